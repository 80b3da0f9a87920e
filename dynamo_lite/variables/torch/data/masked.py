"""Elements of a tensor that a boolean mask selects.

Input: `x[mask]` with a mask of the leading sizes of `x`. Output: `MaskedVariable`, whose number of elements is unknown: in the graph it
is a tensor of the sizes of `x` together with the mask. Elementwise operators are applied to all elements; the mask is applied when the
result is written back, or is reduced to a value that does not depend on the order.
Invariant: the result is bit by bit that of selecting the elements first. Where that is not certain, or the selection itself is needed,
it is made there, and has a size that only the graph knows. Where the graph may have no such sizes it breaks at the instruction that
applied the mask.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.fx import Node

from dynamo_lite.config import config
from dynamo_lite.exc import MakeSelection, Restart, Unsupported
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.variables.protocol.abstract import BINARY_OPS, COMPARE_OPS
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker, running
from dynamo_lite.variables.protocol.constant import ConstantVariable

from .. import tensor_indexing
from ..symnode import SymNodeVariable
from ..tensor import TensorVariable, ValueVariable, operate, set_operators

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

FLOATS = frozenset({torch.float32, torch.float64})
WHOLE = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})

EXACT = frozenset(
    {
        *(operator.add, operator.sub, operator.mul, operator.truediv, operator.and_, operator.or_, operator.xor),
        *(operator.neg, operator.invert, abs),
        *COMPARE_OPS.values(),
    }
)
"""Operators that give the same number for an element wherever it lies in memory, and never raise because of one."""

IN_PLACE = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    operator.iand: operator.and_,
    operator.ior: operator.or_,
    operator.ixor: operator.xor,
}

POINTWISE = frozenset(
    """
    abs neg sign floor ceil trunc relu clamp clamp_min clamp_max logical_not add sub mul div eq ne lt le gt ge
    bool float double clone
    """.split()
)
"""Methods of which the same is true."""

REDUCTIONS = {
    "sum": (WHOLE, 0),
    "prod": (WHOLE, 1),
    "any": (WHOLE | FLOATS, 0),
    "all": (WHOLE | FLOATS, 1),
    "count_nonzero": (WHOLE | FLOATS, 0),
}
"""Methods that reduce all elements → of which dtypes in any order, and the element that changes nothing."""

DEPTH = 4
"""Operators that a mask may be made of to be recognised when it is written twice."""

NEARBY = 200
"""Nodes between a selection and its use that are looked through for writes."""


class MaskedVariable(TensorVariable):
    """A selection of the elements of `full` where `mask` is true."""

    def __init__(self, tx: Frame, full: TensorValue, mask: TensorValue) -> None:
        self.source = None
        self.value = MISSING
        self.full = full
        self.mask = mask
        self.graph = tx.tr.graph
        self.made_after = self.graph.last_node
        self.step = tx.tr.thread.failing_step()
        self.user_stack = tx.tr.thread.user_stack()
        self.place = tx.instruction()

    @property
    def proxy(self) -> Any:
        """Whoever asks needs the selection itself."""
        self.select()
        return self.proxy

    def settled(self) -> None:
        pass

    def describe(self) -> str:
        return "what a mask selects"

    def refuse(self) -> NoReturn:
        """The selection itself is needed."""
        raise _Needed

    def select(self) -> None:
        """Be the selection from here on. Breaks the graph where the mask was applied, or has the frame analysed again with the selection
        made there, if it can't be made here."""
        tr, operands = self.graph.tr, [ValueVariable(self.full), ValueVariable(self.mask)]
        if not self.graph.passes.sizes.has_lengths:
            raise Unsupported("dynamic-shape-operator", "getitem").at(self.step, self.user_stack)
        if running.trace is not tr or not self.is_unwritten:
            raise Restart(
                "a selection is needed when the graph is complete, or after a write", fact=MakeSelection(self.place)
            )
        made = self.graph.call(tr.thread.current, "call_function", operator.getitem, operands)
        self.__class__ = TensorVariable  # type: ignore[assignment]
        TensorVariable.__init__(self, made.proxy)

    def with_full(self, full: TensorValue) -> MaskedVariable:
        """The elements of another tensor that the same mask selects."""
        other = MaskedVariable.__new__(MaskedVariable)
        other.__dict__.update(self.__dict__, full=full)
        return other

    # -- element by element

    def apply(
        self,
        tx: Frame,
        op: str,
        target: object,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker] | None = None,
    ) -> TensorValue:
        """An operator on the whole tensor, `args` with selections in them; its result."""
        self.check_unwritten()
        whole = [ValueVariable(self.full_of(a)) if isinstance(a, MaskedVariable) else self.plain(a) for a in args]
        result = self.graph.call(tx, op, target, whole, {k: self.plain(v) for k, v in (kwargs or {}).items()})
        if not isinstance(result, TensorVariable) or not same_sizes(result.proxy.meta.shape, self.full.meta.shape):
            self.refuse()
        return result.proxy

    def full_of(self, other: MaskedVariable) -> TensorValue:
        """The tensor of an operand that has been selected by the same mask."""
        other.check_unwritten()
        if not self.has_mask(other.mask) or not same_sizes(other.full.meta.shape, self.full.meta.shape):
            self.refuse()
        return other.full

    def plain(self, operand: VariableTracker) -> VariableTracker:
        """An operand that is the same for all elements."""
        if isinstance(operand, SymNodeVariable):
            return operand
        if isinstance(operand, ConstantVariable) and type(operand.value) in (bool, int, float, type(None)):
            return operand
        if isinstance(operand, TensorVariable) and not operand.proxy.meta.ndim and is_exact(operand.proxy):
            return operand
        return self.refuse()

    @property
    def is_unwritten(self) -> bool:
        """Whether neither the tensor nor the mask can have been changed since the mask was applied."""
        return nothing_written_since(self.made_after, self.graph.last_node)

    def check_unwritten(self) -> None:
        """Refuse if the tensor or the mask may have been changed since the mask was applied."""
        if not self.is_unwritten:
            self.refuse()

    def has_mask(self, mask: TensorValue) -> bool:
        """Whether a mask is this one, or has been computed from the same tensors in the same way."""
        if mask is self.mask:
            return True
        own = self.mask.node
        return is_same_expression(own, mask.node, DEPTH) and nothing_written_since(own, self.graph.last_node)

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        return _operate(tx, COMPARE_OPS[op], [self, other])

    # -- attributes

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        if name in POINTWISE or name in REDUCTIONS:
            return MaskedMethod(self, name)
        self.select()
        return self.tp_getattro(tx, name)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        self.select()
        self.tp_setattro(tx, name, value)

    def reduce(self, tx: Frame, name: str) -> VariableTracker:
        """A reduction over all elements."""
        dtypes, neutral = REDUCTIONS[name]
        dtype = self.full.meta.dtype
        if dtype not in dtypes:
            self.refuse()
        self.check_unwritten()
        fill = ConstantVariable(bool(neutral) if dtype is torch.bool else neutral)
        chosen = self.graph.call(tx, "call_function", torch.where, [self.wide_mask(tx), ValueVariable(self.full), fill])
        return self.graph.call(tx, "call_method", name, [chosen])

    def wide_mask(self, tx: Frame) -> VariableTracker:
        """The mask with as many dimensions as the tensor."""
        mask: VariableTracker = ValueVariable(self.mask)
        for _ in range(self.full.meta.ndim - self.mask.meta.ndim):
            mask = self.graph.call(tx, "call_method", "unsqueeze", [mask, ConstantVariable(-1)])
        return mask


class MaskedMethod(VariableTracker):
    """A method of a selection."""

    def __init__(self, owner: MaskedVariable, name: str) -> None:
        self.owner = owner
        self.name = name
        self.source = None
        self.value = MISSING

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def tp_call(self, tx: Frame, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        try:
            return self._call(tx, args, kwargs)
        except _Needed:
            _select([self.owner, *args])
            return tx.call(self.owner.tp_getattro(tx, self.name), args, kwargs)

    def _call(self, tx: Frame, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        owner = self.owner
        if not isinstance(owner, MaskedVariable):
            raise _Needed
        if self.name in REDUCTIONS:
            return owner.refuse() if args or kwargs else owner.reduce(tx, self.name)
        if kwargs and self.name != "clamp":
            owner.refuse()
        return owner.with_full(owner.apply(tx, "call_method", self.name, [owner, *args], kwargs))

    def emit_new(self, cg: Codegen) -> None:
        raise Unsupported("reconstruct", f"method {self.name} of what a mask selects")


class _Needed(Exception):
    """The selection itself is needed."""


def _select(trackers: Sequence[VariableTracker]) -> None:
    for vt in trackers:
        if isinstance(vt, MaskedVariable):
            vt.select()


def _operate(tx: Frame, function: Callable[..., Any], args: list[VariableTracker]) -> VariableTracker:
    """An operator of which operands are selections."""
    try:
        return _operate_on_all(tx, function, args)
    except _Needed:
        _select(args)
        return operate(tx, function, args)


def _operate_on_all(tx: Frame, function: Callable[..., Any], args: list[VariableTracker]) -> VariableTracker:
    """An operator on selections and on operands that are the same for all elements; an in-place operator changes the first operand."""
    selection = next(a for a in args if isinstance(a, MaskedVariable))
    exact = IN_PLACE.get(function, function)
    if exact not in EXACT or (function in IN_PLACE and args[0] is not selection):
        selection.refuse()
    full = selection.apply(tx, "call_function", exact, args)
    if function not in IN_PLACE:
        return selection.with_full(full)
    if full.meta.dtype is not selection.full.meta.dtype:
        selection.refuse()
    selection.full = full
    return selection


set_operators(MaskedVariable, lambda vt: True, _operate)


# -- subscripts


def is_exact(value: TensorValue) -> bool:
    """Whether a tensor is one of whose elements all operators here give the same number anywhere, and nobody asks for gradients."""
    meta = value.meta
    return meta.interned and meta.dtype in WHOLE | FLOATS and not meta.requires_grad


def same_sizes(a: Sequence[int | torch.SymInt], b: Sequence[int | torch.SymInt]) -> bool:
    """Whether sizes are known to be equal; asking leaves no guard."""
    return len(a) == len(b) and all(_size(x) == _size(y) for x, y in zip(a, b, strict=True))


def _size(size: int | torch.SymInt) -> Any:
    return size if isinstance(size, int) else size.node.expr


def selects(tx: Frame, tensor: TensorVariable, key: VariableTracker) -> bool:
    """Whether a subscript is a mask whose selection needs no sizes for now."""
    if config.capture_dynamic_output_shape_ops or tx.tr.overrides is not None or tx.tr.graph.scope is not None:
        return False
    if tx.instruction() in tx.tr.facts.selections:
        return False
    if not isinstance(key, TensorVariable) or isinstance(key, MaskedVariable) or isinstance(tensor, MaskedVariable):
        return False
    is_plain = tensor.cls in (torch.Tensor, torch.nn.Parameter)
    if not is_plain or not is_exact(tensor.proxy) or not key.proxy.meta.interned:
        return False
    meta, mask = tensor.proxy.meta, key.proxy.meta
    if mask.dtype is not torch.bool or not mask.ndim or mask.device != meta.device:
        return False
    return same_sizes(mask.shape, meta.shape[: mask.ndim])


def subscript(self: TensorVariable, tx: Frame, key: VariableTracker) -> VariableTracker:
    """`x[key]`"""
    if selects(tx, self, key):
        tx.tr.graph.node(self.proxy), tx.tr.graph.node(key.proxy)  # from here on, writes are looked for
        return MaskedVariable(tx, self.proxy, key.proxy)
    return tensor_indexing.subscript(self, tx, key)


def ass_subscript(self: TensorVariable, tx: Frame, key: VariableTracker, value: VariableTracker | None) -> None:
    """`x[key] = value`"""
    if not isinstance(value, MaskedVariable):
        return tensor_indexing.ass_subscript(self, tx, key, value)
    meta, full = self.proxy.meta, value.full.meta
    fits = selects(tx, self, key) and same_sizes(meta.shape, full.shape) and meta.dtype is full.dtype
    fits = fits and value.has_mask(key.proxy) and meta.device == full.device
    if not fits or not value.is_unwritten:
        value.select()
        return tensor_indexing.ass_subscript(self, tx, key, value)
    call = tx.tr.graph.call
    chosen = call(tx, "call_function", torch.where, [value.wide_mask(tx), ValueVariable(value.full), self])
    call(tx, "call_method", "copy_", [self, chosen])
    return None


TensorVariable.mp_subscript = subscript
TensorVariable.mp_ass_subscript = ass_subscript


def nothing_written_since(first: Node, last: Node) -> bool:
    """Whether no node after `first` may have changed a tensor, as far as one looks back."""
    for _ in range(NEARBY):
        if last is first:
            return True
        if may_write(last):
            return False
        last = last.prev
    return False


def is_same_expression(a: object, b: object, depth: int) -> bool:
    """Whether two nodes compute the same from the same nodes."""
    if a is b:
        return True
    if not depth or not isinstance(a, Node) or not isinstance(b, Node):
        return type(a) is type(b) and type(a) in (int, bool, float, str, type(None)) and repr(a) == repr(b)
    if (a.op, a.target) != (b.op, b.target) or a.kwargs or b.kwargs or len(a.args) != len(b.args):
        return False
    if a.target not in (EXACT if a.op == "call_function" else POINTWISE):
        return False
    return all(is_same_expression(x, y, depth - 1) for x, y in zip(a.args, b.args, strict=True))


def may_write(node: Node) -> bool:
    """Whether a node may change a tensor that it is given; True unless it is known not to."""
    if node.op == "placeholder":
        return False
    target = node.target
    if node.op == "call_method":
        name = target
    elif isinstance(target, types.BuiltinFunctionType):
        name = target.__name__
    else:
        return not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable
    if name.endswith("_") and not name.endswith("__"):
        return True
    return name in _WRITERS or "out" in node.kwargs or "batch_norm" in name


_WRITERS = frozenset({"setitem", "delitem", "setattr", *[f.__name__ for f, row in BINARY_OPS.items() if row.inplace]})
