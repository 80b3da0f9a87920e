"""Branches on tensor data where one side only raises.

Input: a frame and a tensor whose truth it asks for, or whose only element it compares with a number. Output: the truth with which the
frame does not raise, which the graph then checks.
Invariant: the graph tests the assumption before anything of the program has happened (`graph.passes.checks`), so it does not matter
whether the program would catch the exception, or what it does before it raises. That a branch is a check is a guess about the usual run
of the program; a wrong guess costs time, never the result.
"""

from __future__ import annotations

import inspect
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core.arguments import MODELS
from dynamo_lite.graph.core.nodes import made_at
from dynamo_lite.isa.canon import NO_TARGET, TERMINAL, Op
from dynamo_lite.isa.flow import leads_to_checked_comparison, only_raises, side_that_goes_on
from dynamo_lite.isa.lift import lift
from dynamo_lite.isa.typeobject import dict_of, mro_of
from dynamo_lite.variables.protocol.abstract import COMPARE_OPS
from dynamo_lite.variables.protocol.base import VariableTracker, real_object
from dynamo_lite.variables.protocol.constant import ConstantVariable, is_none

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def checked_truth(
    tx: Frame, vt: VariableTracker, slug: str = "data-dependent-branch", context: str | None = None
) -> VariableTracker:
    """The truth of a tensor, as a bool, for a branch. Raises `Unsupported` if both sides go on, and `BothSidesFollowed` where they have
    become part of the graph."""
    expected = expected_truth(tx)
    if expected is None:
        MODELS.follow_both(tx, lambda: vt)
        unsupported(slug, context or vt.describe(), origin=made_at(vt.proxy))
    check(tx, vt, expected, slug, context)
    return ConstantVariable(expected)


def expected_truth(tx: Frame) -> bool | None:
    """With which truth of what this instruction makes the branch behind it does not raise; None: with both, or there is none."""
    return side_that_goes_on(tx.lifted, tx.cur, lambda index: _calls_what_raises(tx, index))


def _calls_what_raises(tx: Frame, index: int) -> bool:
    """Whether the code from `index` on calls `sys.exit`, or a function of the program that only raises, before it branches or returns."""
    instrs = tx.lifted.instrs
    while (instr := instrs[index]).target == NO_TARGET and instr.op not in TERMINAL:
        found: Any = None
        if instr.op is Op.LOAD_GLOBAL:
            found = tx.globals.load(tx, instr.arg)
            if found is not None and real_object(found) is sys and instrs[index + 1].arg == "exit":
                return True
        elif instr.op is Op.LOAD_DEREF:
            found = tx.locals[instr.arg].get(tx)
        elif instr.op is Op.LOAD_METHOD and instrs[index - 1].op is Op.LOAD_FAST:
            owner = tx.locals[instrs[index - 1].arg]
            found = None if owner is None else _method(owner.python_type(), instr.arg)
        code = getattr(found, "code", None)
        if isinstance(code, CodeType) and not code.co_flags & _SUSPENDS and only_raises(lift(code), 0):
            return True
        index += 1
    return False


class _Method(NamedTuple):
    code: CodeType | None


def _method(cls: type, name: str) -> _Method:
    found = next((dict_of(base)[name] for base in mro_of(cls) if name in dict_of(base)), None)
    return _Method(getattr(found, "__code__", None) if type(found) is FunctionType else None)


_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def check(
    tx: Frame,
    vt: VariableTracker,
    expected: bool,
    slug: str,
    context: str | None = None,
    saved: Unsupported | None = None,
) -> None:
    """Have the graph check the truth of a tensor. Raises `Unsupported`, or the break that this saves, where it can't."""
    tr = tx.tr
    place = _place(tx)
    saved = saved or Unsupported(slug, context or vt.describe()).at(tr.thread.failing_step(), tr.thread.user_stack())
    saved.origin = saved.origin or made_at(vt.proxy)
    if tr.overrides is not None or vt.cls not in _PLAIN or not tr.graph.passes.checks.accepts(vt.proxy, place):
        raise saved
    tr.graph.passes.checks.add(tx, vt, expected, place, saved)


class DataDependentVariable(VariableTracker):
    """An object whose class, or value, only data know: whatever asks for it breaks the graph, where a subclass has no other answer."""

    source = None
    type_varies = True

    def refuse(self, *args: object) -> NoReturn:
        raise NotImplementedError(type(self).__name__)

    def is_object(self, other: VariableTracker) -> bool:
        """Whether it is this object."""
        self.refuse()

    def python_type(self) -> type:
        self.refuse()


def _refused(self: DataDependentVariable, *args: object) -> NoReturn:
    self.refuse()


for _slot in vars(VariableTracker):
    if _slot.startswith(("tp_", "nb_", "sq_", "mp_")):
        setattr(DataDependentVariable, _slot, _refused)


class GradFnVariable(DataDependentVariable):
    """The `grad_fn` of a tensor that is no leaf: it exists when the graph runs. It is not None; anything else breaks the graph."""

    def refuse(self, *args: object) -> NoReturn:
        unsupported("tensor-attribute", "Tensor.grad_fn")

    emit_new = refuse

    def is_object(self, other: VariableTracker) -> bool:
        return False if is_none(other) else self.refuse()

    def nb_bool(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(True)


class ItemVariable(DataDependentVariable):
    """The only element of a tensor as a number that the program only compares in checks. `error`: the break where it got the number, which
    anything else needs."""

    def __init__(self, tensor: VariableTracker, error: Unsupported) -> None:
        self.tensor, self.error = tensor, error

    def refuse(self, *args: object) -> NoReturn:
        raise self.error

    emit_new = refuse

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        expected = side_that_goes_on(tx.lifted, tx.cur)
        if expected is None or not self._is_exact(other):
            self.refuse()
        tensor = self.tensor
        if tensor.proxy.meta.dtype.is_floating_point:
            tensor = tx.tr.graph.call(tx, "call_method", "double", [tensor])
        flag = tx.tr.graph.call(tx, "call_function", COMPARE_OPS[op], [tensor, other])
        check(tx, flag, expected, self.error.slug, saved=self.error)
        return ConstantVariable(expected)

    def _is_exact(self, other: VariableTracker) -> bool:
        """Whether a tensor compares with this number as a number does."""
        if self.tensor.proxy.meta.dtype.is_floating_point:
            number = other.value if isinstance(other, ConstantVariable) else None
            return type(number) is float or (type(number) is int and abs(number) <= 2**53)
        return not other.type_varies and other.python_type() is int


def compared_item(tx: Frame, tensor: VariableTracker, error: Unsupported) -> VariableTracker:
    """What `Tensor.item()` returns if checks may be all that the frame needs it for. Raises the error otherwise."""
    error.origin = made_at(tensor.proxy)
    dtype = tensor.proxy.meta.dtype
    if dtype.is_complex or not leads_to_checked_comparison(tx.lifted, tx.cur):
        raise error
    return ItemVariable(tensor, error.at(tx.tr.thread.failing_step(), tx.tr.thread.user_stack()))


CALLERS = 4
"""Frames that tell checks in a function for checks apart."""


def _place(tx: Frame) -> tuple[Any, ...]:
    place = []
    while tx is not None and len(place) < CALLERS:
        pos = tx.lifted.instrs[tx.cur].pos
        place.append((tx.code.co_filename, pos[0] or tx.code.co_firstlineno, pos[2]))
        tx = tx.parent
    return tuple(place)
