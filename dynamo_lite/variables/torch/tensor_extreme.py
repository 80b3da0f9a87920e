"""`min` and `max` of tensors with one element: data decide which of two tensors is the result.

Input: two tensors without dimensions, of one dtype and device. Output: a `ChosenVariable`.
Invariant: operators of the graph get the value, by `torch.where`. The object is chosen after the graph has run, by the result of the
program's own comparison, so it is the very tensor of eager execution. Any use that could distinguish the value from that tensor breaks
the graph at the call: a write to one of them, a view that leaves the frame, a question about the object, or a gradient: that of `where`
gives zeros to the tensor that was not chosen (and NaN where its gradient is infinite), where eager execution gives nothing.
Mirrors `min_max` of `Python/bltinmodule.c`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core import functional
from dynamo_lite.variables.protocol.abstract import richcompare
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy

from .numpy.arrays import families, with_views
from .tensor import TensorVariable

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
        cg.load_callable(functional.chosen)
        for part in self.children():
            cg.load(part)
        cg.asm.call(3)


_ASKS_NO_OBJECT = frozenset(
    "dtype device shape ndim requires_grad layout is_cuda is_cpu is_sparse is_complex is_floating_point dim size numel nelement"
    " __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __rpow__ __neg__ __abs__"
    " __lt__ __le__ __gt__ __ge__ __eq__ __ne__ add sub mul div pow neg abs exp log sqrt rsqrt sin cos tanh sigmoid relu"
    " reciprocal square clamp clamp_min clamp_max minimum maximum sum mean to float double half bfloat16 int long"
    " clone expand item lt le gt ge eq ne isnan isfinite isinf floor ceil round sign __format__ __bool__ __int__ __float__".split()
)
"""Attributes and methods that are about the value alone, or give a tensor of the graph of which it is known whose memory it has."""


class ExtremeChoice:
    """Checks at the end of the trace that nobody can distinguish the value from the chosen tensor."""

    def __init__(self, tx: Frame, chosen: ChosenVariable) -> None:
        self.chosen = chosen
        self.node = tx.tr.graph.node(chosen.proxy)
        self.writes_before = len(tx.tr.graph.passes.versions.writes)
        self.error = Unsupported("data-dependent-branch", chosen.describe())
        self.error.at(tx.tr.thread.failing_step(), tx.tr.thread.user_stack())

    def check(self, tr: Trace, escaping: Iterable[VariableTracker]) -> None:
        """Raise `Unsupported` if somebody could tell."""
        value = self.chosen.proxy
        views = with_views({value})
        written = {value for value, _ in tr.graph.passes.versions.writes[self.writes_before :]}
        if not written.isdisjoint(views):
            raise self.error
        if not self.node.users:
            return  # the object leaves the frame at most, and that is the right one
        if value.meta.requires_grad or not written.isdisjoint(families(self.chosen.one) | families(self.chosen.other)):
            raise self.error
        leaving = {vt.proxy for vt in escaping if not is_lazy(vt) and "proxy" in vt.__dict__}
        if not leaving.isdisjoint(views - {value}):
            raise self.error


def extreme(tx: Frame, function: Any, best: VariableTracker, item: VariableTracker) -> VariableTracker | None:
    """`min(best, item)`, or `max`, of two tensors; None where the program's comparison has to decide."""
    if not (isinstance(best, TensorVariable) and isinstance(item, TensorVariable)) or not _are_alike(tx, best, item):
        return None
    flag = richcompare(tx, item, best, COMPARISONS[function])
    if not isinstance(flag, TensorVariable):
        return None
    made = tx.tr.graph.call(tx, "call_function", torch.where, [flag, item, best])
    chosen = ChosenVariable(made, flag, item, best)
    tx.tr.effects.provisos.append(ExtremeChoice(tx, chosen))
    return chosen


def _are_alike(tx: Frame, *tensors: TensorVariable) -> bool:
    """Whether nothing but data decides, and the choice has the same metadata either way."""
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


TensorVariable.extreme = staticmethod(extreme)
