"""A graph cut into segments: the copies of its regions, and what lies between them.

Input: a flat graph and its regions. Output: a `Chain`: the distinct bodies, and the steps that run them one after the other.
Invariant: running the steps in order computes what the graph computes, in the order of its nodes. Nothing but tensors and symbolic sizes
crosses a border; at each border torch's state is what it was before the graph; memory that the graph writes to is seen by one segment only;
what requires gradients and crosses leads to a result by operators that have gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from dynamo_lite.record import GRAPH_RECORD, UNUSED_RANDOM, WRITTEN

from .ambient import FIRST_STATE, SegmentState, states_before
from .region import RepeatedRegion, arguments_of


class Stretch(NamedTuple):
    """Nodes that follow each other, and the number of their region; None for those between regions. Torch's state before the first and
    behind the last."""

    nodes: tuple[Node, ...]
    region: int | None
    before: SegmentState = FIRST_STATE
    behind: SegmentState = FIRST_STATE


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

    @property
    def lengths(self) -> list[int]:
        """How many nodes each body has: with the graph, they tell the borders."""
        return [len(body.graph.nodes) for body in self.bodies]


def cut(gm: GraphModule, nodes: Sequence[Node], regions: Sequence[RepeatedRegion]) -> Chain | None:
    """The chain of a graph with a segment for each copy of a region; None where it can't be cut there."""
    stretches = _stretches(nodes, regions)
    free = free_places(gm, nodes)
    ends = itertools.accumulate(len(stretch.nodes) for stretch in stretches)
    if not all(free[end] for end in ends if end < len(nodes)):
        return None
    return _Cutter(gm, stretches, regions).chain()


def compiler_nodes(nodes: Sequence[Node], regions: Sequence[RepeatedRegion], fixed: int) -> int:
    """What the graph costs a compiler that gets its segments, each distinct one once: nodes, and `fixed` more for each segment."""
    between = [len(stretch.nodes) for stretch in _stretches(nodes, regions) if stretch.region is None]
    bodies = [len(region.copies[0].nodes) for region in regions] + between
    return sum(bodies) + fixed * len(bodies)


def cut_at(gm: GraphModule, nodes: Sequence[Node], borders: Sequence[int]) -> Chain | None:
    """The chain of a graph with borders before the nodes at these places, which ascend and are free. A segment between whose neighbours and
    it torch is in another state than before the graph enters that state by itself, and leaves it."""
    states = states_before(nodes)
    at = [(0, FIRST_STATE), *((i, states[i] or FIRST_STATE) for i in borders), (len(nodes), FIRST_STATE)]
    stretches = [
        Stretch(tuple(nodes[i:k]), None, before, behind) for (i, before), (k, behind) in itertools.pairwise(at)
    ]
    return _Cutter(gm, stretches, ()).chain()


def free_places(gm: GraphModule, nodes: Sequence[Node], *, any_state: bool = False) -> list[bool]:
    """For each node, whether there may be a border before it: torch's state is that before the graph (with `any_state`: it is known), all
    values that cross are tensors and symbolic sizes, those that require gradients get some, and no memory that the graph writes to is seen
    on both sides."""
    places = {node: i for i, node in enumerate(nodes)}
    free = [state is not None if any_state else state == FIRST_STATE for state in states_before(nodes)]
    in_vain = _without_gradients(gm, nodes)
    for first, node in enumerate(nodes):
        if node in in_vain or not _may_cross(node):
            _forbid(free, first, last_use(node, places))
    names = {node.name: i for node, i in places.items()}
    for written in gm.meta.get(WRITTEN, ()):
        touched = [names[name] for name in written if name in names]
        if touched:
            _forbid(free, min(touched), max(touched))
    return free


def _without_gradients(gm: GraphModule, nodes: Sequence[Node]) -> set[Node]:
    """The nodes that require gradients and get none, since only assertions, draws of random numbers that nobody uses, or operators without
    gradients read them. As the result of a segment such a value would get zeros, which go on to what it is computed from."""
    output = gm.graph.output_node()
    written = {name for names in gm.meta.get(WRITTEN, ()) for name in names}
    reached: set[Node] = set()
    for node in reversed(nodes):
        if _may_get_gradients(node) and (node.name in written or any(u is output or u in reached for u in node.users)):
            reached.add(node)
    return {node for node in nodes if node not in reached and _may_get_gradients(node)}


def _may_get_gradients(node: Node) -> bool:
    value = node.meta.get("example_value")
    return value.requires_grad if isinstance(value, torch.Tensor) else not isinstance(value, torch.SymInt)


def last_use(node: Node, places: Mapping[Node, int]) -> int:
    """The place of the last user of a node; that behind all nodes if it is a result of the graph."""
    return max((places.get(user, len(places)) for user in node.users), default=places[node])


def _forbid(free: list[bool], first: int, last: int) -> None:
    """No border between these places."""
    for place in range(first + 1, min(last + 1, len(free))):
        free[place] = False


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
    for call in stretch.before.enter():
        graph.call_function(*call)
    for node in stretch.nodes:
        for given in arguments_of(node):
            if given.op == "get_attr" and given not in new:
                new[given] = graph.node_copy(given)
        new[node] = graph.node_copy(node, new.__getitem__)
    for call in stretch.behind.leave():
        graph.call_function(*call)
    graph.output(tuple([new[node] for node in results]))
    body = GraphModule(gm, graph)
    names = {node.name for node in stretch.nodes}
    body.meta = {UNUSED_RANDOM: [name for name in gm.meta.get(UNUSED_RANDOM, ()) if name in names]}
    if GRAPH_RECORD in gm.meta:
        body.meta[GRAPH_RECORD] = gm.meta[GRAPH_RECORD]
    return body


def _without_address(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: meta[key] for key in ("example_value", "stack_trace") if key in meta}
