"""Large equal regions of an ATen graph, as AOTAutograd hands it to Inductor, each compiled once.

Input: a graph whose nodes have fake values in `meta["val"]`, its inputs, Inductor's compiler of one graph. Output: a callable on a list.
Invariant: only graphs that write to their inputs are cut, as training steps do (the warm cache keeps no such graphs, but whole ones of
inference), where that spares the compiler much, at regions of at least `SMALLEST` operators, beside which a border costs little. All
writes are in the last segment, into which no view of what is written to comes.

A training step that accumulates gradients has its forward and backward pass several times; behind AOTAutograd these are equal nodes in
one stretch, where the captured graph has calls that switch torch's state, and gradients that are added in place.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import TracingContext
from torch.fx import Node

from .chain import find_chain, run_steps

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from .segments import Chain

SMALLEST = 150
"""Operators of a region that is worth a border."""


def compile_aten_regions(
    gm: GraphModule, example_inputs: list[Any], compile_graph: Callable[..., Any], told: Any, **settings: Any
) -> Callable[..., Any]:
    """Compile the graph in segments if it has large equal regions; else as a whole. `told`: the captured graph, whose record is told.
    `settings` are those of `compile_graph(graph, inputs, **settings)`."""
    chain = _chain(gm, example_inputs, told)
    if chain is None:
        return compile_graph(gm, example_inputs, **settings)
    # Each segment gets its inputs from another one, at an address of its own.
    settings = {**settings, "static_input_idxs": ()}
    with _strides_told(gm):
        parts = [compile_graph(body, _inputs(body), **settings) for body in chain.bodies]
    run = run_steps(parts, chain.steps, chain.results)
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _chain(gm: GraphModule, example_inputs: Iterable[Any], told: Any) -> Chain | None:
    if not all(isinstance(value, torch.Tensor) and value.device.type == "cpu" for value in example_inputs):
        return None
    if not _copies(gm) or any("unbacked_bindings" in node.meta for node in gm.graph.nodes):
        return None
    _draw_seeds_first(gm)
    for node in gm.graph.nodes:
        node.meta.setdefault("example_value", node.meta.get("val"))
    chain = find_chain(gm, "auto", SMALLEST, told)
    return chain if chain is not None and _writes_last(gm, chain) else None


def _draw_seeds_first(gm: GraphModule) -> None:
    """Put what takes a seed from the table of seeds behind the table: each takes another one, so that no region has any. (Results of the
    graph may have the table too.)"""
    for table in gm.graph.find_nodes(op="call_function", target=torch.ops.prims.inductor_seeds.default):
        after = table
        for user in list(table.users):
            if user.target is torch.ops.prims.inductor_lookup_seed.default:
                after.append(user)
                after = user


def _writes_last(gm: GraphModule, chain: Chain) -> bool:
    """Whether the inputs that the graph writes to are written to in the last segment alone, and no value made of one by operators that
    return views comes into it."""
    written = {copy.args[0].name for copy in _copies(gm)}
    *others, last = chain.bodies
    if any(map(_copies, others)):
        return False
    if any(step.body == len(chain.bodies) - 1 for step in chain.steps[:-1]):
        return False
    given = {node.name for node in last.graph.find_nodes(op="placeholder")}
    return not any(node.name in given and _root(node).name in written for node in gm.graph.nodes if _is_view(node))


def _copies(gm: GraphModule) -> list[Node]:
    """The nodes that write to inputs; AOTAutograd leaves no others."""
    return gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)


def _is_view(node: Node) -> bool:
    """Whether an operator may return memory of its first argument, or is one of its results."""
    if node.target is operator.getitem:
        return True
    returns = getattr(getattr(node.target, "_schema", None), "returns", ())
    return any(one.alias_info is not None for one in returns)


def _root(node: Node) -> Node:
    while _is_view(node) and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


@contextlib.contextmanager
def _strides_told(gm: GraphModule) -> Iterator[None]:
    """Inductor tells AOTAutograd of the strides of the results of one graph. While the block compiles several, it tells nothing; then
    those of the whole graph are told."""
    context = TracingContext.try_get()
    told = None if context is None else context.output_strides
    if context is None or told is None:
        yield
        return
    context.output_strides = None
    try:
        yield
    finally:
        context.output_strides = told
    (output,) = gm.graph.find_nodes(op="output")
    values = [node.meta["val"] if isinstance(node, Node) else None for node in output.args[0]]
    told += [value.stride() if isinstance(value, torch.Tensor) else None for value in values]


def _inputs(body: GraphModule) -> list[Any]:
    """The fake inputs of a segment, whose nodes are made what Inductor expects: all results have the strides that they have now."""
    placeholders = body.graph.find_nodes(op="placeholder")
    for node in placeholders:
        node.meta["val"] = node.meta["example_value"]
    (output,) = body.graph.find_nodes(op="output")
    output.meta["user_visible_output_idxs"] = list(range(len(output.args[0])))
    return [node.meta["val"] for node in placeholders]
