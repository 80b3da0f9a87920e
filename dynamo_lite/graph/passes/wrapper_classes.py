"""Wrapper tensors in a graph, whose classes torch would ask about the operators that it runs.

Input: the wrapper tensors that come into the graph. Output: a wrapper that switches the `__torch_function__` protocol off while the graph
runs; a mark on the module for effects on parts of wrapper tensors that compilers don't see.
Invariant: a class whose `__torch_function__` is code of the program is asked once: by the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node

from dynamo_lite.exc import AskClassesByNode, Restart, Unsupported
from dynamo_lite.graph.core import modes
from dynamo_lite.graph.core.effect import GraphEffect, Wrapper
from dynamo_lite.graph.core.values import Propagation, TensorResult, TensorValue
from dynamo_lite.graph.core.wrapper_tensors import (
    WrapperPart,
    are_disjoint,
    is_followed,
    is_wrapper,
    mask_buffers,
    memories_of,
    runs_code,
    share_memory,
    takes_gradients_apart,
)
from dynamo_lite.record import AS_CAPTURED

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

_C = torch._C


@dataclass(eq=False)
class WrapperClasses(GraphEffect):
    """`parts`: id of a fake tensor that is part of a wrapper → the facts about it. `is_below`: the trace asks classes about torch
    functions; while the graph runs nobody does. `runs_overrides`: torch asks such a class while the graph runs. `asks_by_node`: it is asked
    by those nodes alone, see `modes.asking`. `unseen`: why compilers must not get the graph. `masks`: what results share with others of
    their kind, eager ones too, and the node of the result."""

    takes_boxed = True

    never_kept = {"is_below": "a graph that runs below the protocol of its tensors' classes"}

    parts: dict[int, WrapperPart] = field(default_factory=dict)
    is_below: bool = False
    runs_overrides: bool = False
    asks_by_node: bool = False
    unseen: str | None = None
    masks: list[tuple[Any, Node]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.builder is not None:
            self.asks_by_node = self.builder.tr.facts.asks_by_node

    def meet(self, value: torch.Tensor, follow: Callable[[Any], None]) -> None:
        """A wrapper tensor comes into the graph: `follow(tr)` has the trace ask its class about torch functions, if that is code of the
        program. Then torch itself must ask no class while the graph runs. Where others have to be asked there, the nodes that do so are
        told apart from the beginning: raises `Restart` if they were not."""
        tr = self.builder.tr
        if is_followed(type(value)):
            follow(tr)
            self.is_below = True
        elif not self.runs_overrides:
            with _C.DisableTorchFunctionSubclass():
                self.runs_overrides = runs_code(value)
        if self.is_below and self.runs_overrides and not self.asks_by_node:
            why = f"{type(value).__qualname__} is among classes whose `__torch_function__` the graph runs"
            raise Restart(why, fact=AskClassesByNode())

    def on_node(self, node: Node, outcome: Propagation, tensors: Sequence[TensorValue]) -> None:
        if type(outcome.result) is TensorResult and outcome.result.meta.live:
            self.masks += [(buffer, node) for buffer in mask_buffers(node.meta.subject.fake)]

    def prepare(self) -> Sequence[Node]:
        """A mask that the graph makes has to be used up in it: a compiled graph leaves none for what comes behind."""
        for buffer, node in self.masks:
            if type(buffer.data) is FakeTensor:
                reason = f"{node.name} of parts of a table, whose results are not added up in the graph"
                self.builder.end_before(node, Unsupported("tensor-subclass", reason))
        return ()

    def release(self) -> None:
        """Masks of fakes are not left for eager execution."""
        for buffer in self.builder.propagator.masks:
            if type(buffer.data) is FakeTensor:
                buffer.data, buffer.refcount = None, 0
        super().release()

    def finish(self, results: list[Node]) -> None:
        self.unseen = unseen_by_compilers(self.builder) or self.builder.propagator.mode.misled

    def annotate(self, module: GraphModule) -> None:
        if self.unseen is not None:
            module.meta[AS_CAPTURED] = self.unseen

    def call_wrapper(self) -> Wrapper | None:
        return modes.below if self.is_below else None


def unseen_by_compilers(builder: GraphBuilder) -> str | None:
    """The first effect on parts of wrapper tensors that compilers don't see, as text: a gradient of a part which is not that of the whole
    tensor, a change of a tensor which changes a part of another one, or the other way round. None if there is none, which guards ensure."""
    wrappers = [i for i in builder.inputs if is_wrapper(i.value)]
    if not wrappers:
        return None
    with _C.DisableTorchFunctionSubclass():
        apart = next((i for i in wrappers if takes_gradients_apart(i.value)), None)
    if apart is not None and builder.records_gradients:
        return f"parts of {apart.source.path} require gradients"
    written = _written(builder)
    for changed in builder.inputs:
        subject = getattr(changed.node.meta, "subject", None)
        if subject is None or not isinstance(changed.value, torch.Tensor) or not _is_written(subject, written):
            continue
        for other in builder.inputs if is_wrapper(changed.value) else wrappers:
            if other is changed or not isinstance(other.value, torch.Tensor):
                continue
            sources = changed.source, other.source
            if not are_disjoint(changed.value, other.value):
                builder.tr.guards.predicate(share_memory, sources, "share memory")
                return f"{changed.source.path} is changed and shares memory with {other.source.path}"
            builder.tr.guards.predicate(are_disjoint, sources, "share no memory")
    return None


def _written(builder: GraphBuilder) -> tuple[set[Any], set[int]]:
    """The values that operators have written to, with those that are known to share their memory, and that memory as far as it is known."""
    values = {member for value in builder.operators.written for member in value.family or (value,)}
    with _C.DisableTorchFunctionSubclass():
        return values, set().union(*(memories_of(v.fake) for v in values if v.fake is not None))


def _is_written(value: Any, written: tuple[set[Any], set[int]]) -> bool:
    values, memory = written
    if value in values:
        return True
    with _C.DisableTorchFunctionSubclass():
        return value.fake is not None and not memory.isdisjoint(memories_of(value.fake))
