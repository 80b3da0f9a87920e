"""A graph compiled segment by segment, equal ones once.

Input: a flat graph as `registry` describes it, its inputs, a compiler for graphs. Output: a callable on the flat inputs.
Invariant: each segment takes part in autograd by itself, as the operators in it would; a value dies with its last use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_lite.backends.aot import BOXED, BoxedCallable
from dynamo_lite.config import config
from dynamo_lite.record import AS_CAPTURED, GRAPH_RECORD

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from .region import Region
    from .segments import Chain

Compile = Callable[["GraphModule", list[Any]], Callable[..., Any]]

SHORTEST = 12
"""Nodes of a region."""

FIXED = 40
"""What a segment costs a compiler besides its nodes, as a number of nodes: measured with Inductor on the CPU."""

WORTH = 150
"""Nodes that regions have to save before a graph is cut without being asked to."""

CUTS = 4
"""Ways to cut one chain of equal regions that are looked at."""


def compile_regions(gm: GraphModule, example_inputs: list[Any], compile_graph: Compile) -> Callable[..., Any]:
    """Compile the graph in segments where `config.compile_regions` asks for it, or where that saves much; else as a whole."""
    chain = None if gm.meta.get(AS_CAPTURED) else find_chain(gm, config.compile_regions)
    return compile_graph(gm, example_inputs) if chain is None else _compiled(gm, chain, example_inputs, compile_graph)


def find_chain(gm: GraphModule, wanted: bool | str) -> Chain | None:
    """The segments of a graph; None if it is to be compiled as a whole. `wanted` is True, False or "auto"."""
    nodes = [node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    least = 1 if wanted is True else WORTH
    if not wanted or len(nodes) < 2 * SHORTEST or len(nodes) < least:
        return None
    from .segments import cut

    regions = list(_regions(nodes, least))
    saved = sum(region.saved for region in regions)
    if saved < least:
        return None
    chain = cut(gm, nodes, regions)
    if chain is None or (wanted is not True and saved < FIXED * (len(chain.bodies) - 1) + WORTH):
        return None
    _tell(gm, regions)
    return chain


def _regions(nodes: Sequence[Any], least: int) -> Iterator[Region]:
    from .labels import labels_of
    from .region import regions_at
    from .repeats import repeats

    labels = labels_of(nodes)
    for repeat in repeats(labels, SHORTEST):
        if repeat.saved < min(least, FIXED):
            return
        best = next(iter(regions_at(nodes, labels, repeat)), None)
        if best is not None and best.saved >= min(least, FIXED):
            yield best


def _tell(gm: GraphModule, regions: Sequence[Region]) -> None:
    if GRAPH_RECORD in gm.meta:
        told = [f"{len(region.copies[0].nodes)} operators ×{len(region.copies)}" for region in regions]
        gm.meta[GRAPH_RECORD].notes["regions"] = told


def _compiled(gm: GraphModule, chain: Chain, example_inputs: list[Any], compile_graph: Compile) -> Callable[..., Any]:
    import torch
    from torch._guards import TracingContext, tracing

    given = dict(zip([node.name for node in gm.graph.find_nodes(op="placeholder")], example_inputs, strict=True))
    context = TracingContext.try_get()
    calls: list[BoxedCallable] = []
    for body in chain.bodies:
        placeholders = body.graph.find_nodes(op="placeholder")
        examples = [given.get(node.name, node.meta["example_value"]) for node in placeholders]
        mode = context.fake_mode if context is not None else torch._guards.detect_fake_mode(examples)
        with tracing(TracingContext(mode)):
            calls.append(_boxed(compile_graph(body, examples)))
    return _runner(chain, calls)


def _boxed(compiled: Callable[..., Any]) -> BoxedCallable:
    return BOXED.get(compiled) or (lambda inputs: compiled(*inputs))


def _runner(chain: Chain, calls: Sequence[BoxedCallable]) -> Callable[..., Any]:
    steps = [(calls[step.body], step.reads, step.dead) for step in chain.steps]
    results = chain.results

    def run(values: list[Any]) -> Any:
        for call, reads, dead in steps:
            given = [values[number] for number in reads]
            for number in dead:
                values[number] = None
            values.extend(call(given))
        found = tuple([values[r] if type(r) is int else r[0] for r in results])
        values.clear()
        return found

    def call(*args: Any) -> Any:
        return run(list(args))

    BOXED[call] = run
    return call
