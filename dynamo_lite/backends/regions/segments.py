"""A graph cut into segments: the copies of its regions, and what lies between them.

Input: a flat graph and its regions. Output: a `Chain`: the distinct bodies, and the steps that run them one after the other.
Invariant: running the steps in order computes what the graph computes, in the order of its nodes. Nothing but tensors and symbolic sizes
crosses a border; at each border torch's state is what it was before the graph; memory that the graph writes to is seen by one segment only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from dynamo_lite.record import GRAPH_RECORD, UNUSED_RANDOM, WRITTEN

from .region import RepeatedRegion, arguments_of


class Stretch(NamedTuple):
    """Nodes that follow each other, and the number of their region; None for those between regions."""

    nodes: tuple[Node, ...]
    region: int | None


class SegmentCall(NamedTuple):
    """One call: the number of the body, the values that it gets, and those that nobody needs after it. Values are numbered in the order
    in which they are made, the inputs of the graph first."""

    body: int
    reads: tuple[int, ...]
    dead: tuple[int, ...]


@dataclass
class Chain:
    """`results`: per result of the graph the number of the value, or the constant in a list of one."""

    bodies: list[GraphModule]
    steps: list[SegmentCall]
    results: list[int | list[Any]]


def cut(gm: GraphModule, nodes: Sequence[Node], regions: Sequence[RepeatedRegion]) -> Chain | None:
    """The chain of a graph; None where it can't be cut there."""
    stretches = _stretches(nodes, regions)
    if not _keeps_state(stretches) or not _keeps_writes(gm, stretches):
        return None
    return _Cutter(gm, stretches, regions).chain()


def _stretches(nodes: Sequence[Node], regions: Sequence[RepeatedRegion]) -> list[Stretch]:
    first = {copy.nodes[0]: (number, copy) for number, region in enumerate(regions) for copy in region.copies}
    found: list[Stretch] = []
    between: list[Node] = []
    at = 0
    while at < len(nodes):
        number, copy = first.get(nodes[at], (None, None))
        if copy is None:
            between.append(nodes[at])
            at += 1
            continue
        if between:
            found.append(Stretch(tuple(between), None))
            between = []
        found.append(Stretch(copy.nodes, number))
        at += len(copy.nodes)
    return [*found, Stretch(tuple(between), None)] if between else found


def _keeps_state(stretches: Sequence[Stretch]) -> bool:
    """Whether each stretch leaves torch's state as it was; autocast and the like are not followed."""
    before = torch.is_grad_enabled()
    for stretch in stretches:
        now = before
        for node in stretch.nodes:
            if node.target is torch._C._set_grad_enabled:
                now = node.args[0]
            elif node.meta.get("example_value") is None and not node.users:
                return False
        if now != before:
            return False
    return True


def _keeps_writes(gm: GraphModule, stretches: Sequence[Stretch]) -> bool:
    """Whether all nodes whose memory the graph writes to lie in one stretch with their kin."""
    place = {node.name: number for number, stretch in enumerate(stretches) for node in stretch.nodes}
    return all(len({place.get(name) for name in names} - {None}) == 1 for names in gm.meta.get(WRITTEN, ()))


class _Cutter:
    def __init__(self, gm: GraphModule, stretches: Sequence[Stretch], regions: Sequence[RepeatedRegion]) -> None:
        self.gm, self.stretches, self.regions = gm, stretches, regions
        self.numbers: dict[Node, int] = {}
        self.bodies: list[GraphModule] = []
        self.body_of: dict[int, int] = {}  # region → body
        self.reads: list[tuple[Node, ...]] = []
        self.steps: list[int] = []

    def chain(self) -> Chain | None:
        for node in self.gm.graph.find_nodes(op="placeholder"):
            self.numbers[node] = len(self.numbers)
        for stretch in self.stretches:
            inputs, results = self._border(stretch)
            if not all(map(_may_cross, results)):
                return None
            self._add(stretch, inputs, results)
        *_, output = self.gm.graph.nodes
        returned = [self.numbers[given] if isinstance(given, Node) else [given] for given in output.args[0]]
        kept = {given for given in returned if isinstance(given, int)}
        return Chain(self.bodies, list(self._steps(kept)), returned)

    def _border(self, stretch: Stretch) -> tuple[tuple[Node, ...], list[Node]]:
        inside = set(stretch.nodes)
        inputs = dict.fromkeys(
            given
            for node in stretch.nodes
            for given in arguments_of(node)
            if given not in inside and given.op != "get_attr"
        )
        if stretch.region is not None:
            return tuple(inputs), [stretch.nodes[offset] for offset in self.regions[stretch.region].results]
        return tuple(inputs), [node for node in stretch.nodes if any(user not in inside for user in node.users)]

    def _add(self, stretch: Stretch, inputs: tuple[Node, ...], results: Sequence[Node]) -> None:
        number = self.body_of.get(stretch.region) if stretch.region is not None else None
        if number is None:
            number = len(self.bodies)
            self.bodies.append(_body(self.gm, stretch, inputs, results))
            if stretch.region is not None:
                self.body_of[stretch.region] = number
        self.steps.append(number)
        self.reads.append(inputs)
        for node in results:
            self.numbers[node] = len(self.numbers)

    def _steps(self, kept: set[int]) -> Iterable[SegmentCall]:
        reads = [tuple([self.numbers[node] for node in inputs]) for inputs in self.reads]
        last = {value: step for step, values in enumerate(reads) for value in values}
        for step, (body, values) in enumerate(zip(self.steps, reads, strict=True)):
            yield SegmentCall(
                body, values, tuple([v for v in dict.fromkeys(values) if last[v] == step and v not in kept])
            )


def _may_cross(node: Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.Tensor | torch.SymInt)


def _body(gm: GraphModule, stretch: Stretch, inputs: Sequence[Node], results: Sequence[Node]) -> GraphModule:
    """The graph of one stretch. Which inputs keep their address is known between regions only: each copy of one has its own."""
    graph, new = Graph(), {}
    for node in inputs:
        new[node] = graph.placeholder(node.name)
        new[node].meta = dict(node.meta.copy()) if stretch.region is None else _without_address(node.meta)
    for node in stretch.nodes:
        for given in arguments_of(node):
            if given.op == "get_attr" and given not in new:
                new[given] = graph.node_copy(given)
        new[node] = graph.node_copy(node, new.__getitem__)
    graph.output(tuple([new[node] for node in results]))
    body = GraphModule(gm, graph)
    names = {node.name for node in stretch.nodes}
    body.meta = {UNUSED_RANDOM: [name for name in gm.meta.get(UNUSED_RANDOM, ()) if name in names]}
    if GRAPH_RECORD in gm.meta:
        body.meta[GRAPH_RECORD] = gm.meta[GRAPH_RECORD]
    return body


def _without_address(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: meta[key] for key in ("example_value", "stack_trace") if key in meta}
