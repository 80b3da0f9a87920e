"""The graph that a backend gets.

Input: a backend, a graph as captured. Output: that graph for the backends of this package, which leave it as it is; a copy for any other,
which may rewrite what it gets and then fail, or turn out to be wrong.
Invariant: the captured graph computes what the program does, whatever a backend has done. So it can replace any backend, at any time.
"""

from __future__ import annotations

import copy
import linecache
import operator
import sys
import weakref
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

from dynamo_lite.record import COPY_OF

from .branch import silenced
from .options import is_ours

if TYPE_CHECKING:
    from torch.fx import GraphModule


def on_copies(compiler_fn: Callable[..., Any]) -> Callable[..., Any]:
    """The backend, which leaves the graph that it is called with as it is. A copy that comes back as it was is not kept."""
    if is_ours(compiler_fn):
        return compiler_fn

    def compile(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        made = copy_of(gm)
        for graph in made.modules():  # some have a text at their first call only
            weakref.finalize(graph, forget_text_of, type(graph))
        made.meta[COPY_OF] = weakref.ref(gm)
        before = _parts(made)
        result: Callable[..., Any] = compiler_fn(made, example_inputs)
        if graph_of(result, gm) is not made or result != made.forward or "forward" in vars(made):
            return result
        after = _parts(made)
        is_changed = len(before) != len(after) or any(map(operator.is_not, before, after))
        return result if is_changed else gm.forward

    return compile


def _parts(made: GraphModule) -> list[object]:
    """What torch.fx puts others in the place of when a graph, or one inside of it, is rewritten; each part stands in the same place again
    where it has not been. The nodes of a graph from the warm cache that nobody has read are not made."""
    found: list[object] = []
    for module in made.modules():
        found += [module, *module._modules.values()]
        graph = None if "stored_nodes" in vars(module) else getattr(module, "graph", None)
        codegen = getattr(graph, "_codegen", None)
        found += [graph, codegen, getattr(codegen, "_body_transformer", None)]
        for node in () if graph is None else graph.nodes:
            found += [node, node.target, node.args, node.kwargs]
    return found


def forget_sources(*filenames: str) -> None:
    """Drop the source texts that torch.fx and linecache keep for ever for each generated `forward`."""
    graph_module = sys.modules["torch.fx.graph_module"]
    for filename in filenames:
        graph_module._loader.eval_cache.pop(filename, None)
        linecache.cache.pop(filename, None)


def forget_text_of(cls: type[GraphModule]) -> None:
    """Drop the text of a module that is dead. `cls`: the class that torch.fx has made for it."""
    forget_sources(cls.forward.__code__.co_filename)


def captured_of(gm: GraphModule) -> GraphModule:
    """The captured graph of which this is the copy; the graph itself if it is none, or the other one is gone."""
    captured = gm.meta.get(COPY_OF)
    return gm if captured is None else captured() or gm


def graph_of(function: object, gm: GraphModule) -> GraphModule | None:
    """The graph whose operators this callable of a backend runs one by one: the captured one or its copy. None for other callables."""
    from torch.fx import GraphModule

    module = function.__self__ if isinstance(function, MethodType) else None
    return module if isinstance(module, GraphModule) and captured_of(module) is gm else None


def copy_of(gm: GraphModule) -> GraphModule:
    """A copy with nodes and bodies of its own, names and marks as they are; values in the `meta` of nodes are shared. For 1,000 nodes it
    takes 10 ms, where a capture in a process that has seen such operators takes 80; `Graph.graph_copy`, which makes the fake values of all
    nodes, takes 150."""
    from torch.fx import GraphModule

    unread_copy = getattr(gm, "unread_copy", None)  # of a graph from the warm cache, whose nodes perhaps nobody needs
    made = (None if unread_copy is None else unread_copy()) or _read_copy(gm)
    made.meta = dict(gm.meta)
    for name, child in gm._modules.items():
        if isinstance(child, GraphModule):
            body = copy_of(child)
            setattr(made, name, silenced(body) if "_wrapped_call" in vars(child) else body)
    return made


def _read_copy(gm: GraphModule) -> GraphModule:
    """A copy with the bodies of the other one."""
    from torch.fx import GraphModule
    from torch.fx._lazy_graph_module import _LazyGraphModule
    from torch.fx.node import map_arg

    graph, copies = type(gm.graph)(), {}  # type: ignore[var-annotated]
    graph.set_codegen(copy.copy(gm.graph._codegen))
    for node in gm.graph.nodes:
        args, kwargs = map_arg(node.args, copies.__getitem__), map_arg(node.kwargs, copies.__getitem__)
        copies[node] = other = graph.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        twin = getattr(node.meta, "twin", None)
        other.meta = dict(node.meta) if twin is None else twin()
    return (_LazyGraphModule if isinstance(gm, _LazyGraphModule) else GraphModule)(gm, graph)
