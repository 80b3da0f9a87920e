"""A node for each symbol that floats of an ATen graph are computed from.

Input: the graph that AOTAutograd has traced. Output: the same graph, with `sym_size` of tensors that have such a symbol as a size.

`tensorify_python_scalars` of torch.fx, which AOTAutograd calls, looks for these nodes. If the program asks for no such size, but for
`(s - 1) // 2` of a result, or for the mean of what a mask selects, there would be none. (In the graphs of torch.compile each symbol of an
input is an input itself, and those of results have nodes.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .patches import Substitute


def substitutes() -> Iterator[Substitute]:
    """For `Patches`."""
    from torch._functorch._aot_autograd import graph_compile

    yield Substitute(graph_compile, "tensorify_python_scalars", _behind_nodes)


def _behind_nodes(original: Callable[..., None]) -> Callable[..., None]:
    def tensorify_python_scalars(gm: Any, *args: Any) -> None:
        _add_nodes(gm.graph, _symbols_of_floats(gm.graph))
        original(gm, *args)

    return tensorify_python_scalars


def _symbols_of_floats(graph: Any) -> set[Any]:
    """Those without a node."""
    import torch

    values = [node.meta.get("val") for node in graph.nodes]
    of_floats = {
        symbol for value in values if isinstance(value, torch.SymFloat) for symbol in value.node.expr.free_symbols
    }
    return of_floats - {value.node.expr for value in values if isinstance(value, torch.SymInt | torch.SymFloat)}


def _add_nodes(graph: Any, symbols: set[Any]) -> None:
    """Ask the first tensor that has the symbol as a size."""
    import torch

    nodes = list(graph.nodes) if symbols else []
    first_operator = next((node for node in nodes if node.op != "placeholder"), None)
    for node, following in zip(nodes, nodes[1:], strict=False):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            continue
        for dim, size in enumerate(value.shape):
            if type(size) is torch.SymInt and size.node.expr in symbols:
                symbols.discard(size.node.expr)
                with graph.inserting_before(first_operator if node.op == "placeholder" else following):
                    graph.call_function(torch.ops.aten.sym_size.int, (node, dim)).meta["val"] = size
