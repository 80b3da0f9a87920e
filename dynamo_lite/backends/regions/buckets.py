"""Graphs of a module inside `DistributedDataParallel`, cut where a bucket of gradients is full.

Input: a graph as `registry` describes it, its inputs, a compiler for graphs. Output: a callable on the flat inputs.
Invariant: a segment's gradients are complete when its backward pass has run, so the all-reduce of their bucket runs beside the backward
passes of the segments before it. Compiled as one function, a backward pass gives all gradients at its end.

The buckets are those that DDP itself makes of gradients in the order in which they come (`compute_bucket_assignment_by_size` in
`torch/csrc/distributed/c10d/reducer.cpp`): each takes gradients until it has as many bytes as its limit; the first has a limit of its own.
A gradient comes with the first use of its parameter in the forward pass.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_lite.backends.handed import on_copies
from dynamo_lite.config import config
from dynamo_lite.record import AS_CAPTURED, GRAPH_RECORD

from .chain import Compile, compile_chain, operators_of

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from .segments import Chain

BY_OPERATOR = "dynamo_lite_by_operator"
"""Name of an attribute of backends, True where the gradients of a graph come operator by operator, as in eager execution."""


def in_buckets(compiler: Compile, managed: Sequence[Any] | None = None) -> Compile:
    """The backend as it is used in DDP: it compiles each segment of a graph by itself, or the graph if DDP waits for none of its gradients,
    or they fit into one bucket. It leaves the graph as it is. `managed`: the inputs by which
    DDP knows its parameters, where the backend gets copies."""

    def compile(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        chain = find_buckets(compiler, gm, example_inputs if managed is None else managed)
        return compile_chain(gm, chain, example_inputs, on_copies(compiler))

    return functools.update_wrapper(compile, compiler)


def find_buckets(compiler: Compile, gm: GraphModule, example_inputs: Sequence[Any]) -> Chain | None:
    """The segments that this backend gets of a graph that is captured in the forward pass of a DDP module; None if it is to be compiled as
    a whole. The graph's record is told of them."""
    import torch

    limits = bucket_limits()
    if not limits or getattr(compiler, BY_OPERATOR, False) or not torch.is_grad_enabled() or gm.meta.get(AS_CAPTURED):
        return None
    from .segments import cut_at, free_places

    nodes = operators_of(gm)
    arriving = _bytes_at_first_uses(gm, nodes, example_inputs)
    if len(arriving) < 2:
        return None
    borders = list(_borders(arriving, limits, free_places(gm, nodes, any_state=True), _widths(nodes)))[::-1]
    chain = cut_at(gm, nodes, borders) if borders else None
    if chain is not None and GRAPH_RECORD in gm.meta:
        bounds = [0, *borders, len(nodes)]
        sizes = [sum(arriving.get(i, 0) for i in range(a, b)) / 2**20 for a, b in itertools.pairwise(bounds)]
        told = ", ".join(f"{size:.3g}" for size in reversed(sizes))
        gm.meta[GRAPH_RECORD].notes["buckets of DDP"] = [f"{len(sizes)} segments, MiB of gradients: {told}"]
    return chain


def bucket_limits() -> tuple[int, ...]:
    """The bytes that fill each bucket, the last of which holds for those after it too; empty where no graph is to be cut: outside of the
    forward pass of a DDP module, and without `config.optimize_ddp`."""
    import torch

    parallel = _active()
    if parallel is None or config.optimize_ddp not in (True, "ddp_optimizer"):
        return ()
    given = getattr(parallel, "bucket_bytes_cap_list", None)
    if given:
        return tuple(given)
    default = parallel.bucket_bytes_cap
    return (torch.distributed._DEFAULT_FIRST_BUCKET_BYTES if parallel.bucket_bytes_cap_default else default, default)


def _active() -> Any:
    """The DDP module whose forward pass runs; None if there is none."""
    import torch

    return getattr(torch.nn.parallel.DistributedDataParallel, "_active_ddp_module", None)


def _bytes_at_first_uses(gm: GraphModule, nodes: Sequence[Node], example_inputs: Sequence[Any]) -> dict[int, int]:
    """Place of a node → bytes of the gradients that DDP waits for and that are complete with this node's backward pass."""
    parallel = _active()
    managed = {
        id(parameter)
        for name, parameter in parallel.module.named_parameters()
        if parameter.requires_grad and name not in parallel.parameters_to_ignore
    }
    places = {node: i for i, node in enumerate(nodes)}
    found: dict[int, int] = defaultdict(int)
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=True):
        uses = [places[user] for user in node.users if user in places]
        if id(value) in managed and uses:
            found[min(uses)] += value.nbytes
    return found


def _borders(
    arriving: Mapping[int, int], limits: Sequence[int], free: Sequence[bool], widths: Sequence[int]
) -> Iterator[int]:
    """The places of nodes before which a bucket is full, from the last to the first. Where several will do, fewest values cross there."""
    places = sorted(arriving, reverse=True)
    following_limits = itertools.chain(limits, itertools.repeat(limits[-1]))
    size, limit = 0, next(following_limits)
    for place, following in itertools.pairwise(places):
        size += arriving[place]
        if size < limit:
            continue
        possible = [i for i in range(place, following, -1) if free[i]]
        if possible:
            yield min(possible, key=widths.__getitem__)
            size, limit = 0, next(following_limits)


def _widths(nodes: Sequence[Node]) -> list[int]:
    """For each node, how many values that the graph makes before it are used from it on."""
    from .segments import last_use

    places = {node: i for i, node in enumerate(nodes)}
    change = [0] * (len(nodes) + 2)
    for i, node in enumerate(nodes):
        change[i + 1] += 1
        change[min(last_use(node, places), len(nodes)) + 1] -= 1
    return list(itertools.accumulate(change))[: len(nodes)]
