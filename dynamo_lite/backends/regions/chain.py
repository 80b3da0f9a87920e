"""A graph compiled segment by segment, equal ones once.

Input: a flat graph as `registry` describes it, its inputs, a compiler for graphs. Output: a callable on the flat inputs.
Invariant: each segment takes part in autograd by itself, as the operators in it would; a value dies with its last use.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_lite.backends.aot import BOXED, boxed
from dynamo_lite.config import config
from dynamo_lite.record import AS_CAPTURED, GRAPH_RECORD

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from .region import RepeatedRegion
    from .segments import Chain

Compile = Callable[["GraphModule", list[Any]], Callable[..., Any]]

SHORTEST = 12
"""Nodes of a region."""

FIXED = 40
"""What a segment costs a compiler besides its nodes, as a number of nodes: measured with Inductor on the CPU."""

WORTH = 150
"""Nodes that regions have to save before a graph is cut without being asked to."""


TOLLS = (0, 15)
"""Two ways to look for regions, of which the cheaper result is taken: see `repeats`."""


def compile_regions(
    gm: GraphModule, example_inputs: list[Any], compile_graph: Compile, wanted: bool | str | None = None
) -> Callable[..., Any]:
    """Compile the graph in segments where that is `wanted` ("auto": where it saves much and costs next to nothing; None: as
    `config.compile_regions` says); else as a whole."""
    wanted = config.compile_regions if wanted is None else wanted
    is_left = gm.meta.get(AS_CAPTURED) or (wanted == "auto" and not _is_cheap(example_inputs))
    chain = None if is_left else find_chain(gm, wanted)
    return compile_chain(gm, chain, example_inputs, compile_graph)


def operators_of(gm: GraphModule) -> list[Node]:
    """The nodes of a graph that compute something, in order."""
    return [node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]


def _is_cheap(example_inputs: Sequence[Any]) -> bool:
    """Whether borders cost next to nothing. Each segment that records gradients is a function of autograd for AOTAutograd, which costs a
    step 4 to 9 % (`benchmarks/results/regions-20261126b.md`). On CUDA a call that only launches kernels takes a tenth more (Qwen3; another
    model nothing: `benchmarks/results/gpu-20261127-h100.md`)."""
    import torch

    tensors = [value for value in example_inputs if isinstance(value, torch.Tensor)]
    is_recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return not is_recorded and all(tensor.device.type == "cpu" for tensor in tensors)


def find_chain(
    gm: GraphModule, wanted: bool | str, shortest: int = SHORTEST, told: GraphModule | None = None
) -> Chain | None:
    """The segments of a graph; None if it is to be compiled as a whole. `wanted` is True, False or "auto", `shortest` the number of nodes
    that a region has at least; the record of `told`, or of the graph, is told of the regions."""
    nodes = operators_of(gm)
    least = 1 if wanted is True else WORTH
    if not wanted or len(nodes) < 2 * shortest or len(nodes) < least:
        return None
    from .labels import labels_of
    from .segments import compiler_nodes, cut

    labels = labels_of(nodes)
    regions = min(
        (list(_regions(nodes, labels, least, shortest, toll)) for toll in TOLLS),
        key=lambda found: compiler_nodes(nodes, found, FIXED),
    )
    if sum(region.saved for region in regions) < least:
        return None
    if wanted is not True and compiler_nodes(nodes, regions, FIXED) > len(nodes) + FIXED - WORTH:
        return None
    chain = cut(gm, nodes, regions)
    if chain is not None:
        _tell(gm if told is None else told, regions)
    return chain


def _regions(
    nodes: Sequence[Any], labels: Sequence[int], least: int, shortest: int, toll: int
) -> Iterator[RepeatedRegion]:
    from .region import regions_at
    from .repeats import repeats

    for repeat in repeats(labels, shortest, toll):
        if repeat.saved < min(least, FIXED):
            return
        best = next(iter(regions_at(nodes, labels, repeat)), None)
        if best is not None and best.saved >= min(least, FIXED):
            yield best


def _tell(gm: GraphModule, regions: Sequence[RepeatedRegion]) -> None:
    if GRAPH_RECORD in gm.meta:
        told = [f"{len(region.copies[0].nodes)} operators ×{len(region.copies)}" for region in regions]
        gm.meta[GRAPH_RECORD].notes["regions"] = told


def compile_chain(
    gm: GraphModule, chain: Chain | None, example_inputs: list[Any], compile_graph: Compile
) -> Callable[..., Any]:
    """The callable on the flat inputs of a graph, each segment of which is compiled by itself; without a chain, the graph as a whole."""
    if chain is None:
        return compile_graph(gm, example_inputs)
    import torch
    from torch._guards import TracingContext, tracing

    given = dict(zip([node.name for node in gm.graph.find_nodes(op="placeholder")], example_inputs, strict=True))
    context = TracingContext.try_get()
    parts = []
    for body in chain.bodies:
        placeholders = body.graph.find_nodes(op="placeholder")
        examples = [given.get(node.name, node.meta["example_value"]) for node in placeholders]
        mode = context.fake_mode if context is not None else torch._guards.detect_fake_mode(examples)
        with tracing(TracingContext(mode)):
            parts.append(compile_graph(body, examples))
    return Segmented(parts, [tuple(step) for step in chain.steps], chain.results).runner()


def run_steps(
    calls: Sequence[Callable[[list[Any]], Any]], steps: Sequence[Any], results: Sequence[Any]
) -> Callable[[list[Any]], Any]:
    """The callable on a list of the inputs. `calls`: those of the segments; `steps` and `results` as of `Segmented`."""
    ready = [(calls[part], reads, dead) for part, reads, dead in steps]

    def run(values: list[Any]) -> Any:
        for call, reads, dead in ready:
            given = [values[number] for number in reads]
            for number in dead:
                values[number] = None
            values.extend(call(given))
        found = tuple([values[r] if type(r) is int else r[0] for r in results])
        values.clear()
        return found

    return run


class Segmented:
    """The compiled segments of a graph. `steps`: (number of a segment, numbers of the values that it gets, numbers of those that die with
    it); `results`: the number of a value, or a constant in a list of one."""

    def __init__(self, parts: Sequence[Callable[..., Any]], steps: Sequence[Any], results: Sequence[Any]) -> None:
        self.parts, self.steps, self.results = parts, steps, results

    def runner(self) -> Callable[..., Any]:
        """The callable on the flat inputs of the graph."""
        run = run_steps([BOXED.get(part) or boxed(part) for part in self.parts], self.steps, self.results)

        def call(*args: Any) -> Any:
            return run(list(args))

        BOXED[call] = run
        SEGMENTED[call] = self
        return call

    def data(self, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """The segments as plain data, each written by `write`."""
        parts = [write(part) for part in self.parts]
        kernels = [kernel for part in parts for kernel in part["kernels"]]
        return {"parts": parts, "steps": list(self.steps), "results": list(self.results), "kernels": kernels}


SEGMENTED: weakref.WeakKeyDictionary[Callable[..., Any], Segmented] = weakref.WeakKeyDictionary()
"""The callable of a graph that was compiled in segments → these."""
