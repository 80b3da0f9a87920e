"""Inputs that share memory with an input which the graph changes in place.

Input: a builder with its finished graph. Output: the inputs whose memory is compared when the graph is called, and a wrapper that does
so.
Invariant: compilers assume that the inputs of a graph have different memory. Where a change of one input would show in another, the graph
runs as it was captured.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core.effect import Captured, Compiled, GraphEffect, Replacement, Wrapper
from dynamo_lite.graph.core.failure import CheckFailed
from dynamo_lite.graph.core.fake import span
from dynamo_lite.graph.core.storages import origin, origins
from dynamo_lite.graph.core.values import TensorValue, tensors_made_by
from dynamo_lite.record import WRITTEN

if TYPE_CHECKING:
    pass


class Reach(NamedTuple):
    """Input number `position`: how many bytes it reaches from its first element on, None if that differs from call to call."""

    position: int
    is_written: bool
    size: int | None


@dataclass(eq=False)
class InputAliasing(GraphEffect):
    """`changed`: the tensors whose data operators have changed. `reaches`: the inputs whose memory is compared, if one of several tensors
    is changed in place; else nothing. `are_apart`: the captured graph too takes it for granted that these have memory of their own.
    `copied`: those of which the program has made deep copies, and their models.
    `touched`: per memory that is changed the names of the nodes that have a part of it."""

    changed: set[TensorValue] = field(default_factory=set)
    are_apart: bool = False
    copied: dict[TensorValue, Any] = field(default_factory=dict)
    reaches: list[Reach] = field(default_factory=list)
    touched: list[list[str]] = field(default_factory=list)

    def on_write(
        self, target: object, args: tuple[Any, ...], values: dict[Any, Any], written: list[tuple[TensorValue, int]]
    ) -> None:
        tensors = [value for value, _ in written]
        check_list(target, args, values, tensors)
        self.changed.update(tensors)

    def finish(self, results: list[Node]) -> None:
        tensors = [(i, item) for i, item in enumerate(self.builder.inputs) if type(item.value) in _PLAIN]
        if len(tensors) < 2 or not self.changed:
            return
        written = set().union(*map(origins, self.changed))
        found = []
        for i, item in tensors:
            subject = item.node.meta.subject
            if isinstance(subject, TensorValue) and subject.meta.layout is torch.strided:
                found.append(Reach(i, subject in written, None if subject.meta.live else _size(item.value)))
        if any(reach.is_written for reach in found):
            self.reaches = found

    def annotate(self, module: GraphModule) -> None:
        if self.changed:
            self.touched = self._touched()
        if self.touched:
            module.meta[WRITTEN] = self.touched

    def _touched(self) -> list[list[str]]:
        names: dict[TensorValue, list[str]] = {origin(value): [] for value in self.changed}
        for node in self.builder.graph.nodes:
            for first in {origin(value) for value in tensors_made_by(node)}.intersection(names):
                names[first].append(node.name)
        return list(names.values())

    def replacement(self) -> Replacement | None:
        return functools.partial(apart, self.reaches) if self.reaches and not self.are_apart else None

    def call_wrapper(self) -> Wrapper | None:
        return functools.partial(expect_apart, self.reaches) if self.reaches and self.are_apart else None

    def write_data(self, writer: Any) -> Any:
        return ([tuple(reach) for reach in self.reaches], self.touched) if self.touched else None

    def read_data(self, data: Any, reader: Any, graph: Any) -> None:
        reaches, self.touched = data
        self.reaches = [Reach(*reach) for reach in reaches]


def check_list(target: object, args: tuple[Any, ...], values: dict[Any, Any], written: list[TensorValue]) -> None:
    """Break at an operator that changes the tensors of a list one after another, if one of them shares memory with what another one is
    computed from: compilers change them all at once."""
    if not args or type(args[0]) not in (list, tuple):
        return
    memory = set(map(origin, written))
    lists = [arg for arg in args if type(arg) in (list, tuple)]
    seen: dict[TensorValue, list[tuple[int, TensorValue]]] = {}
    for place, node in ((i, item) for arg in lists for i, item in enumerate(arg) if type(item) is Node):
        value = values[node]
        first = origin(value) if isinstance(value, TensorValue) else None
        if first in memory:
            others = seen.setdefault(first, [])
            if any(i != place and _meet(value, other) for i, other in others):
                unsupported("fake-tensor-error", f"{getattr(target, '__name__', target)} of tensors that share memory")
            others.append((place, value))


def _meet(one: TensorValue, other: TensorValue) -> bool:
    """Whether two views of one memory have an element in common, as far as that is known."""
    if one.meta.live or other.meta.live:
        return True
    return one.meta.offset < span(other.meta) and other.meta.offset < span(one.meta)


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _size(tensor: torch.Tensor) -> int:
    if not tensor.numel():
        return 0
    last = sum([(n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)])
    return (last + 1) * tensor.element_size()


Span = tuple[int, int, bool]
"""Addresses from the first up to the second, and whether they are written to."""


class _Spans:
    """Spans, asked whether one of them meets another."""

    def __init__(self, spans: Iterable[Span]) -> None:
        spans = sorted(spans)
        self.starts = [start for start, _, _ in spans]
        self.ends = list(accumulate([end for _, end, _ in spans], max))

    def meet(self, start: int, end: int) -> bool:
        before = bisect_left(self.starts, end)
        return before > 0 and self.ends[before - 1] > start


def _clash(spans: Iterable[Span]) -> bool:
    """Whether one that is written to meets another."""
    last = written = 0
    for start, end, is_written in sorted(spans):
        if start < (last if is_written else written):
            return True
        last = max(last, end)
        if is_written:
            written = max(written, end)
    return False


class _Group:
    """Some of the inputs."""

    def __init__(self, reaches: list[Reach]) -> None:
        self.reaches = reaches
        self.positions = [reach.position for reach in reaches]
        self.sizes = [reach.size for reach in reaches]
        self.written = [reach.is_written for reach in reaches]
        self.is_sized = None not in self.sizes

    def starts(self, args: Sequence[Any]) -> list[int]:
        return [_address(args[i]) for i in self.positions]

    def spans(self, args: Sequence[Any]) -> list[Span]:
        starts = self.starts(args)
        sizes = self.sizes
        if not self.is_sized:
            sizes = [_size(args[i]) if n is None else n for i, n in zip(self.positions, sizes, strict=True)]
        return list(zip(starts, map(add, starts, sizes), self.written, strict=True))


class _Known(NamedTuple):
    """The answer for tensors that have kept their `addresses`: those of `fixed`, not of `others`."""

    fixed: _Group
    others: _Group
    addresses: list[int]
    clash: bool
    every: _Spans
    written: _Spans


class Overlaps:
    """Tells for the arguments of a call whether a change of one shows in another.

    Most tensors are at the same addresses call after call, so that it is enough to compare these.
    """

    def __init__(self, inputs: list[Reach]) -> None:
        self.inputs = inputs
        self.known: _Known | None = None

    def _look(self, args: Sequence[Any], before: _Known | None) -> _Known:
        if before is None:
            others = {reach for reach in self.inputs if reach.size is None}
        else:
            places = zip(before.fixed.reaches, before.fixed.starts(args), before.addresses, strict=True)
            others = {*before.others.reaches, *[reach for reach, now, then in places if now != then]}
        fixed = _Group([reach for reach in self.inputs if reach not in others])
        spans = fixed.spans(args)
        written = _Spans(span for span in spans if span[2])
        return _Known(fixed, _Group(list(others)), fixed.starts(args), _clash(spans), _Spans(spans), written)

    def __call__(self, args: Sequence[Any]) -> bool:
        known = self.known
        if known is None or known.fixed.starts(args) != known.addresses:
            known = self.known = self._look(args, known)
        if known.clash:
            return True
        spans = known.others.spans(args)
        meets = [(known.every if written else known.written).meet(start, end) for start, end, written in spans]
        return any(meets) or _clash(spans)


_address = torch.Tensor.data_ptr


def expect_apart(inputs: list[Reach], compiled: Compiled) -> Compiled:
    """A graph that raises `CheckFailed`, so that the frame starts again, where a change of an input would show in another one."""
    overlap = Overlaps(inputs)

    def run(*args: Any) -> Any:
        if overlap(args):
            raise CheckFailed
        return compiled(*args)

    return run


def apart(
    inputs: list[Reach],
    compiled: Compiled,
    captured: Captured,
    is_boxed: bool = False,
) -> Compiled:
    """A compiled graph that is called where no change of an input shows in another one; elsewhere the graph from `captured` is called.
    `is_boxed`: both take a list of the inputs."""
    overlap = Overlaps(inputs)

    def run(*args: Any) -> Any:
        if not overlap(args[0] if is_boxed else args):
            return compiled(*args)
        return captured()(*args)

    return run
