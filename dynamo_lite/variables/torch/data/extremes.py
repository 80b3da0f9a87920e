"""`min` and `max` of tensors with one element, and of such tensors and numbers: data decide which object is the result.

Input: two tensors without dimensions, of one dtype and device, or one of them and a number. Output: a `ChosenVariable`, or a
`ChosenNumberVariable`.
Invariant: operators of the graph get the value, by `torch.where`. The object is chosen after the graph has run, by the result of the
program's own comparison, so it is the very object of eager execution. Any use that could distinguish the value from that tensor breaks
the graph at the call: a write to one of them, a view that leaves the frame, a question about the object, or a gradient: that of `where`
gives zeros to the tensor that was not chosen (and NaN where its gradient is infinite), where eager execution gives nothing. What may be
a number is an operand of arithmetic with tensors where a number gives the same dtype and value; any other use breaks the graph there.
Mirrors `min_max` of `Python/bltinmodule.c`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core import functional
from dynamo_lite.graph.core.storages import origin
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import COMPARE_OPS, binary_op, richcompare
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.native import emit_call

from ..data_checks import DataDependentVariable
from ..tensor import FOREIGN_OPERANDS, TensorVariable, is_operand, set_operators

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame

COMPARISONS = {min: "<", max: ">"}


class ChosenVariable(TensorVariable):
    """One of two tensors: `one` if `flag` is true, else `other`."""

    is_one_of_several = True
    is_rebuilt = True

    def __init__(self, made: TensorVariable, flag: TensorVariable, one: TensorVariable, other: TensorVariable) -> None:
        super().__init__(made.proxy)
        self.flag, self.one, self.other = flag, one, other

    def describe(self) -> str:
        return f"one of two tensors: {self.proxy.meta}"

    def refuses(self, method: Any) -> bool:
        return method.__name__ not in _ASKS_NO_OBJECT

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return super().tp_getattro(tx, name) if name in _ASKS_NO_OBJECT else self._refuse()

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        self._refuse()

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return self._refuse()

    def _refuse(self) -> Any:
        return unsupported("data-dependent-branch", self.describe())

    def children(self) -> Any:
        return self.flag, self.one, self.other

    def emit_new(self, cg: Codegen) -> None:
        emit_call(cg, functional.chosen, *self.children())


def chosen_objects(vt: VariableTracker, is_outside: Callable[[VariableTracker], bool]) -> list[TensorVariable] | None:
    """The tensors from outside that this tensor may be, each once; None if that is not known."""
    if isinstance(vt, TensorVariable) and is_outside(vt):
        return [vt]
    if not isinstance(vt, ChosenVariable):
        return None if vt.is_one_of_several else []
    parts = [chosen_objects(part, is_outside) for part in (vt.one, vt.other)]
    found = {vt.proxy: vt for part in parts for vt in part or ()}
    return None if None in parts else list(found.values())


def is_chosen(tx: Frame, vt: VariableTracker, chosen: TensorVariable) -> VariableTracker:
    """Whether data choose this tensor from outside: a bool, or a tensor of one."""
    if not isinstance(vt, ChosenVariable) or vt.proxy is chosen.proxy:
        return ConstantVariable(isinstance(vt, TensorVariable) and vt.proxy is chosen.proxy)
    one, other = is_chosen(tx, vt.one, chosen), is_chosen(tx, vt.other, chosen)
    if isinstance(one, ConstantVariable) and isinstance(other, ConstantVariable) and one.value == other.value:
        return one
    flag = tx.tr.graph.call(tx, "call_method", "reshape", [vt.flag, TupleVariable([])])
    flag = tx.tr.graph.call(tx, "call_function", torch.ne, [flag, ConstantVariable(0)])
    return tx.tr.graph.call(tx, "call_function", torch.where, [flag, one, other])


class ChosenNumberVariable(DataDependentVariable):
    """A tensor or a number: `one` if `flag` is true, else `other`; one of them may be such a choice in turn. `made` is the value as a
    tensor, `numbers` are those that it may be."""

    is_one_of_several = True
    is_rebuilt = True

    def __init__(
        self, made: TensorVariable, flag: TensorVariable, one: VariableTracker, other: VariableTracker
    ) -> None:
        self.made, self.flag, self.one, self.other = made, flag, one, other
        self.proxy = made.proxy
        self.numbers = [number for part in (one, other) for number in _numbers(part)]

    def refuse(self, *args: object) -> NoReturn:
        unsupported("data-dependent-branch", self.describe())

    def describe(self) -> str:
        return f"a tensor or a number: {self.proxy.meta}"

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        return _operate(tx, COMPARE_OPS[op], [self, other])

    children = ChosenVariable.children
    emit_new = ChosenVariable.emit_new


def _numbers(vt: VariableTracker) -> list[int | float]:
    if isinstance(vt, ChosenNumberVariable):
        return vt.numbers
    return [vt.value] if isinstance(vt, ConstantVariable) else []


_ASKS_NO_OBJECT = frozenset(
    "dtype device shape ndim requires_grad layout is_cuda is_cpu is_sparse is_complex is_floating_point dim size numel nelement"
    " __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __rpow__ __neg__ __abs__"
    " __lt__ __le__ __gt__ __ge__ __eq__ __ne__ add sub mul div pow neg abs exp log sqrt rsqrt sin cos tanh sigmoid relu"
    " reciprocal square clamp clamp_min clamp_max minimum maximum sum mean to float double half bfloat16 int long"
    " view reshape flatten transpose permute squeeze unsqueeze matmul __matmul__ __rmatmul__ __getitem__ softmax log_softmax"
    " masked_fill argmax argmin amax amin cumsum mm bmm tril triu"
    " clone expand item lt le gt ge eq ne isnan isfinite isinf floor ceil round sign __format__ __bool__ __int__ __float__".split()
)
"""Attributes and methods that are about the value alone, or give a tensor of the graph of which it is known whose memory it has."""


class ExtremeChoice:
    """Checks at the end of the trace that nobody can distinguish the value from the chosen tensor."""

    def __init__(self, tx: Frame, chosen: ChosenVariable | ChosenNumberVariable, with_gradients: bool = False) -> None:
        self.chosen, self.with_gradients = chosen, with_gradients
        self.node = tx.tr.graph.node(chosen.proxy)
        self.writes_before = len(tx.tr.graph.passes.versions.writes)
        self.error = Unsupported("data-dependent-branch", chosen.describe())
        self.error.at(tx.tr.thread.failing_step(), tx.tr.thread.user_stack())

    def check(self, tr: Trace, escaping: Iterable[VariableTracker]) -> None:
        """Raise `Unsupported` if somebody could tell."""
        value = self.chosen.proxy
        writes = tr.graph.passes.versions.writes[self.writes_before :]
        written = {origin(written) for written, _ in writes if isinstance(written, TensorValue)}
        if origin(value) in written:
            raise self.error
        if not self.node.users:
            return  # the object leaves the frame at most, and that is the right one
        tensors = [vt.proxy for vt in (self.chosen.one, self.chosen.other) if isinstance(vt, TensorVariable)]
        if (value.meta.requires_grad and not self.with_gradients) or any(origin(v) in written for v in tensors):
            raise self.error
        leaving = {vt.proxy for vt in escaping if not is_lazy(vt) and isinstance(vt.__dict__.get("proxy"), TensorValue)}
        if any(v is not value and origin(v) is origin(value) for v in leaving):
            raise self.error


class InnerChoice:
    """Checks at the end of the trace that nobody has a tensor that may stand for one from before, as a side within a side decides."""

    def __init__(self, tx: Frame, made: TensorVariable) -> None:
        self.value = made.proxy
        self.writes_before = len(tx.tr.graph.passes.versions.writes)
        self.error = Unsupported("data-dependent-branch", f"one of several tensors: {made.proxy.meta}")
        self.error.at(tx.tr.thread.failing_step(), tx.tr.thread.user_stack())

    def check(self, tr: Trace, escaping: Iterable[VariableTracker]) -> None:
        """Raise `Unsupported` if somebody has it, or has written to it."""
        writes = tr.graph.passes.versions.writes[self.writes_before :]
        leaving = [vt.__dict__.get("proxy") for vt in escaping if not is_lazy(vt)]
        values = [*[written for written, _ in writes], *leaving]
        if any(isinstance(v, TensorValue) and origin(v) is origin(self.value) for v in values):
            raise self.error


def extreme(tx: Frame, function: Any, best: VariableTracker, item: VariableTracker) -> VariableTracker | None:
    """`min(best, item)`, or `max`, of tensors and numbers; None where the program's comparison has to decide."""
    model = _model(tx, best, item)
    if model is None:
        return None
    flag = richcompare(tx, _value(item), _value(best), COMPARISONS[function])
    return _choice(tx, model, flag, item, best) if isinstance(flag, TensorVariable) else None


def _value(vt: VariableTracker) -> VariableTracker:
    return vt.made if isinstance(vt, ChosenNumberVariable) else vt


def _choice(
    tx: Frame, model: Any, flag: TensorVariable, one: VariableTracker, other: VariableTracker
) -> VariableTracker:
    made = tx.tr.graph.call(tx, "call_function", torch.where, [flag, _value(one), _value(other)])
    chosen = model(made, flag, one, other)
    tx.tr.effects.provisos.append(ExtremeChoice(tx, chosen))
    return chosen


def _model(tx: Frame, *parts: VariableTracker) -> Any:
    """The model of what is one of two objects; None if something else than data decides, or changes with the choice."""
    if all(isinstance(vt, TensorVariable) for vt in parts):
        return ChosenVariable if _are_alike(tx, *parts) else None
    tensor, other = parts if not isinstance(parts[0], ConstantVariable) else parts[::-1]
    value = _value(tensor)
    if not isinstance(value, TensorVariable) or not _are_alike(tx, value) or value.proxy.meta.requires_grad:
        return None
    dtype = value.proxy.meta.dtype
    if isinstance(other, ConstantVariable):
        fits = type(other.value) in (int, float) and _rounded(other.value, dtype) is not None
        # Numbers that are one number in the tensor's dtype are compared as such there.
        fits = fits and all(
            n == other.value or _rounded(n, dtype) != _rounded(other.value, dtype) for n in _numbers(tensor)
        )
        return ChosenNumberVariable if fits and (dtype.is_floating_point or type(other.value) is int) else None
    choice, plain = (tensor, other) if isinstance(tensor, ChosenNumberVariable) else (other, tensor)
    fits = isinstance(choice, ChosenNumberVariable) and isinstance(plain, TensorVariable)
    return ChosenNumberVariable if fits and _are_alike(tx, choice.made, plain) and _agrees(choice, plain) else None


def _rounded(number: float, dtype: torch.dtype) -> int | float | None:
    """A number as a tensor of this dtype has it; None if it can't be one, or is none."""
    if dtype is torch.bool or dtype.is_complex or number != number:
        return None
    try:
        return torch.tensor(number, dtype=dtype, device="cpu").item()
    except (OverflowError, RuntimeError, TypeError):
        return None


def _agrees(chosen: ChosenNumberVariable, other: TensorVariable) -> bool:
    """Whether arithmetic of `other` with each of the numbers is that with a tensor of the chosen one's dtype."""
    dtype, meta = chosen.proxy.meta.dtype, other.proxy.meta
    beside = torch.empty((1,) if meta.ndim else (), dtype=meta.dtype, device="meta")
    common = torch.result_type(beside, torch.empty((), dtype=dtype, device="meta"))
    if dtype == common and common in (
        torch.float32,
        torch.float64,
    ):  # the others may compute with more digits than they have
        exact = True
    else:
        exact = all(_rounded(n, kind) == n for n in chosen.numbers for kind in {dtype, common})
    return (
        exact
        and meta.device == chosen.proxy.meta.device
        and other.python_type() in (torch.Tensor, torch.nn.Parameter)
        and all(torch.result_type(beside, n) == common for n in chosen.numbers)
    )


_ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv)
_OPERATORS = (*_ARITHMETIC, *COMPARE_OPS.values())


def _operate(tx: Frame, function: Callable[..., Any], args: list[VariableTracker]) -> VariableTracker:
    """Arithmetic of a tensor or a number with what may be a number."""
    chosen = next(vt for vt in args if isinstance(vt, ChosenNumberVariable))
    if function not in _OPERATORS:
        chosen.refuse()
    other = args[0] if args[1] is chosen else args[1]
    if isinstance(other, TensorVariable) and _agrees(chosen, other):
        return tx.tr.graph.call(tx, "call_function", function, list(map(_value, args)))
    if function in _ARITHMETIC and isinstance(other, ConstantVariable) and type(other.value) in (int, float):
        divisors = _numbers(args[1]) if function is operator.truediv else ()
        if 0 not in divisors:
            sides = [[part if vt is chosen else vt for vt in args] for part in (chosen.one, chosen.other)]
            one, two = [binary_op(tx, function, *side) for side in sides]
            model = _model(tx, one, two)
            if model is not None:
                return _choice(tx, model, chosen.flag, one, two)
    return chosen.refuse()


def _are_alike(tx: Frame, *tensors: TensorVariable) -> bool:
    """Whether nothing but data decides, and the choice of these tensors has the same metadata either way."""
    if (
        tx.tr.overrides is not None
        or tx.tr.graph.scope is not None
        or any(vt.python_type() is not torch.Tensor for vt in tensors)
    ):
        return False
    if any(vt.attributes or vt.replaced is not None for vt in tensors):
        return False
    metas = [vt.proxy.meta for vt in tensors]
    kinds = {(m.dtype, m.device, m.layout, m.requires_grad) for m in metas}
    return len(kinds) == 1 and all(m.ndim == 0 for m in metas) and not metas[0].dtype.is_complex


TensorVariable.extreme = ChosenNumberVariable.extreme = staticmethod(extreme)
FOREIGN_OPERANDS[ChosenNumberVariable] = _operate
set_operators(ChosenNumberVariable, is_operand, _operate)
