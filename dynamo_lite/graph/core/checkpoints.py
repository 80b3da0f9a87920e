"""Graphs with checkpointed regions that run as they are, without a compiler.

Input: a graph module with calls of `tag_activation_checkpoint`. Output: one that calls `torch.utils.checkpoint.checkpoint`.
Invariant: the operator only marks nodes for compilers, which take care of random numbers themselves; run as it is, it would compute a
dropout again with other numbers.
Mirrors `torch/utils/checkpoint.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.fx import Graph, GraphModule
from torch.utils.checkpoint import checkpoint

from .modes import as_now

PRESERVES_RNG = "preserve_rng_state"
"""Key of a body's `meta`: False if the program said that the state of the generators need not be kept."""

CONTEXT_FN = "_checkpoint_context_fn"
"""Key of a body's `meta` under which the operator, and AOTAutograd, find what decides which results are kept."""


def run_checkpointed(body: Any, *args: Any) -> tuple[Any, ...]:
    """A region whose results are computed again when gradients are asked for."""
    options = {"preserve_rng_state": body.meta.get(PRESERVES_RNG, True)}
    if CONTEXT_FN in body.meta:
        options["context_fn"] = body.meta[CONTEXT_FN]
    return tuple(checkpoint(as_now(body.forward), *args, use_reentrant=False, **options))


def forward_of(module: Any) -> Callable[..., Any]:
    """The function that runs a graph as it was captured, in the place of the compiled one."""
    module.real_recompile()  # its text is written when it is first needed
    return runnable(module).forward


def runnable(module: GraphModule) -> GraphModule:
    """The module, or one that does for real what it only marks. `may_be_marked`: a module's word that its nodes need not be looked at."""
    if not getattr(module, "may_be_marked", True):
        return module
    marked = module.graph.find_nodes(op="call_function", target=tag_activation_checkpoint)
    if not marked:
        return module
    graph = Graph()
    copies: dict[Any, Any] = {}
    graph.output(graph.graph_copy(module.graph, copies))
    for node in marked:
        copies[node].target = run_checkpointed
    for name, child in module.named_children():
        if isinstance(child, GraphModule):
            setattr(module, name, runnable(child))
    return GraphModule(module, graph)
