"""Tensors that existed before a branch and that its sides change in place.

Input: the followed sides. Output: sides that change copies, as further results; behind the branch, one `copy_` of the merged value into
each tensor, and how many times eager execution would have counted. A tensor with gradients becomes the merged value itself, and is not
counted: compilers leave the counters of such tensors alone.
Invariant: a side works on one copy per memory, made before its first operator, so that all of its views see the change; where two tensors
of one memory are used in a side that writes to it, or somebody could tell by gradients, the graph breaks. Inputs that turn out to share
memory when the graph is called start the frame again (`graph.passes.input_aliasing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.bodies import Body
from dynamo_lite.graph.core.autograd import is_kept
from dynamo_lite.graph.core.storages import counter, origin
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import ConstantVariable

from .joins import scalar_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame

SLUG = "data-dependent-branch"

RECORDED = "a side that enables gradients, around which they are not"
"""What a node computes that autograd does not record has no history, whatever it does inside."""


class WrittenTensor:
    """A tensor that one side, or both, change. `counts`: how many times each side does, as version counters tell; `has_gradients`: whether
    it takes part in autograd, or does once a side has written to it."""

    def __init__(self, value: TensorValue, by_data: bool, has_gradients: bool) -> None:
        self.value = value
        self.by_data = by_data  # only through its `data`
        self.has_gradients = has_gradients and not by_data
        self.counts = [0, 0]

    @property
    def is_counted(self) -> bool:
        """Whether the sides return how many times they count."""
        return not (self.by_data or self.has_gradients)

    def describe(self) -> str:
        return f"a tensor that existed before: {self.value.meta}"


def expect_of_mode(results: Iterable[Any]) -> None:
    """Break where results of a side have a history, or are inference tensors, as the node of the branch would not give them."""
    is_recorded, is_inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    for result in results:
        if isinstance(result, torch.Tensor) and result.requires_grad > is_recorded:
            unsupported(SLUG, RECORDED)
        if isinstance(result, torch.Tensor) and result.is_inference() is not is_inference:
            unsupported(SLUG, "a side in another inference mode than what is around it")


def without_gains(body: Body) -> set[TensorValue]:
    """The tensors from outside that a side has made part of autograd; they are put back as they were."""
    gained = set()
    for value, before in body.metas.items():
        now = value.meta
        alone = value.family is None and before.interned and now.interned
        if now is not before and alone and now.replace(requires_grad=False, is_leaf=before.is_leaf) is before:
            value.meta, value.fake = before, None
            gained.add(value)
    return gained


def written_by(tx: Frame, bodies: Sequence[Body], gained: set[TensorValue]) -> list[WrittenTensor]:
    """The tensors from outside that the sides change, `gained` those that have gradients then. Breaks where one `copy_` behind the branch
    would not do."""
    found: dict[TensorValue, WrittenTensor] = {}
    for side, body in enumerate(bodies):
        for value, meta in body.metas.items():
            if value.meta is not meta:
                unsupported(SLUG, f"a side makes something else of a tensor that existed before: {value.meta}")
        for changed, n in body.writes:
            known = [value for value in body.metas if origin(value) is origin(changed)]
            if not known:
                continue
            if changed in body.recorded and not torch.is_grad_enabled() and known[0].meta.requires_grad:
                unsupported(SLUG, RECORDED)
            if len(known) > 1:
                unsupported(SLUG, f"a side uses two tensors of one memory and changes it: {known[0].meta}")
            counted = counter(changed) is counter(known[0])
            needs_grad = known[0] in gained or (known[0].meta.requires_grad and torch.is_grad_enabled())
            written = found.setdefault(known[0], WrittenTensor(known[0], not counted, needs_grad))
            if written.by_data is counted:
                unsupported(SLUG, f"the sides change {written.describe()}, and its data")
            written.counts[side] += n
    if found and (torch.is_inference_mode_enabled() or any(value.is_inference for value in found)):
        unsupported(SLUG, "a side changes a tensor in inference mode, where no counter tells")
    if len({origin(value) for value in found}) < len(found):
        unsupported(SLUG, "each side changes another view of one memory")
    for written in found.values():
        _expect_writable(tx, written)
    return list(found.values())


def _expect_writable(tx: Frame, written: WrittenTensor) -> None:
    value, graph = written.value, tx.tr.graph
    if (
        value.tracker.python_type() not in (torch.Tensor, torch.nn.Parameter)
        or value.is_fake
        or graph.passes.assigned.values
    ):
        unsupported(SLUG, f"the sides change {written.describe()}")
    if written.by_data:
        return
    if written.has_gradients and not _is_made_here(graph, value):
        unsupported(SLUG, f"the sides change {written.describe()}, which has gradients")
    if graph.records_gradients and is_kept(graph, graph.node(value)):
        unsupported(SLUG, f"the sides change {written.describe()}, which is kept for a gradient")


def _is_made_here(graph: Any, value: TensorValue) -> bool:
    """Whether the graph has made a tensor, alone in its memory, that is no leaf of autograd: the program may write to it."""
    is_leaf = value.meta.requires_grad and value.meta.is_leaf
    is_alone = value.family is None and origin(value) is value
    is_input = value.is_input
    return graph.scope is None and is_alone and not is_leaf and not is_input


def changed_copy(tx: Frame, body: Body, written: WrittenTensor, side: int) -> list[VariableTracker]:
    """The value that a side, which is complete, leaves in a tensor, and how many times it counts. The side gets a copy in its place."""
    graph, tensor = tx.tr.graph, written.value.tracker
    with body:
        if not any(origin(value) is origin(written.value) for value, _ in body.writes):
            left = graph.call(tx, "call_method", "clone", [_without_history(tx, written, tensor)])
        else:
            copy = graph.call(tx, "call_method", "clone", [tensor])
            if copy.proxy.meta.stride != written.value.meta.stride:
                unsupported(SLUG, f"the sides change {written.describe()}, which has gaps in its memory")
            node, placeholder = copy.proxy.node, body.lift(written.value)
            placeholder.replace_all_uses_with(node, delete_user_cb=lambda user: user is not node)
            first = next(n for n in body.graph.nodes if n.op != "placeholder")
            if first is not node:
                first.prepend(node)
            left = _without_history(tx, written, copy)
    if not written.is_counted:
        return [left]
    count = scalar_in(tx, body, ConstantVariable(written.counts[side]))
    with body:
        for more in body.counts.get(written.value, ()):
            count = graph.call(tx, "call_function", torch.add, [count, more])
    return [left, count]


def _without_history(tx: Frame, written: WrittenTensor, tensor: VariableTracker) -> VariableTracker:
    return tensor if written.has_gradients else tx.tr.graph.call(tx, "call_method", "detach", [tensor])


def write_back(tx: Frame, written: WrittenTensor, parts: list[VariableTracker]) -> None:
    """Behind the branch: give a tensor its merged value. One with gradients becomes another node: operators may have kept the old value."""
    graph, value = tx.tr.graph, written.value
    if written.has_gradients:
        made = parts[0].proxy
        value.node, value.meta, value.fake = graph.node(made), made.meta, None
        return
    target: Any = value.tracker
    if written.by_data:
        target = graph.call(tx, "call_function", getattr, [target, ConstantVariable("data")])
    graph.call(tx, "call_method", "copy_", [target, parts[0]])
    graph.passes.inputs.are_apart = True
    if written.by_data:
        return
    if graph.scope is None:
        graph.passes.versions.decided.append((value, graph.node(parts[1].proxy)))
        tx.tr.effects.provisos.append(_Counted(tx, written))
    else:
        graph.scope.writes.remove((value, 1))
        graph.scope.writes.append((value, 0))
        graph.scope.counts.setdefault(value, []).append(parts[1])


class _Counted:
    """Checks at the end of the trace that no tensor which compilers keep for gradients has the counter that data decide."""

    def __init__(self, tx: Frame, written: WrittenTensor) -> None:
        self.value = written.value
        self.error = Unsupported(SLUG, f"the sides change {written.describe()}, beside gradients")
        self.error.at(tx.tr.thread.failing_step(), tx.tr.thread.user_stack())

    def check(self, tr: Trace, escaping: Iterable[VariableTracker]) -> None:
        """Raise `Unsupported` if one could."""
        if not tr.graph.records_gradients:
            return
        tensors = [vt.__dict__.get("proxy") for vt in escaping if not is_lazy(vt)]
        others = [v for v in tensors if isinstance(v, TensorValue) and v.origin is None]
        if self.value.meta.requires_grad or any(origin(v) is origin(self.value) for v in others):
            raise self.error
