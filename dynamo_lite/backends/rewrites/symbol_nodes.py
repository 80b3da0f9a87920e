"""A node for each symbol that floats of an ATen graph, or the backward pass, are computed from, none that asks a gradient for its size, and
no `alpha` of a sum with such a float.

Input: the graph that AOTAutograd has traced. Output: the same graph, with `sym_size` of tensors that have such a symbol as a size.

`tensorify_python_scalars` of torch.fx, which AOTAutograd calls, looks for these nodes. If the program asks for no such size, but for
`(s - 1) // 2` of a result, or for the mean of what a mask selects, there would be none. (In the graphs of torch.compile each symbol of an
input is an input itself, and those of results have nodes.) Its partitioner keeps sizes for the backward pass, and takes those of incoming
gradients (`tangents`) for sizes that the forward pass knows. And where the pass puts a tensor in the place of a float, it makes the
operator anew from its positional arguments alone.

The partitioner also hands on the symbols that the sizes of kept tensors are made of (`2 * s + 6`), which Inductor can't do without, where
it finds a node for them; and a backward pass that no size is handed to is compiled when it is first needed: what that assumes about sizes
would be no guard of the forward pass.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from typing import Any

from .patches import Substitute


def substitutes() -> Iterator[Substitute]:
    """For `Patches`."""
    from torch._functorch import partitioners
    from torch._functorch._aot_autograd import graph_compile

    yield Substitute(graph_compile, "tensorify_python_scalars", _behind_nodes)
    yield Substitute(partitioners, "is_symbol_binding_fx_node", _or_size)
    yield Substitute(partitioners, "find_symbol_binding_fx_nodes", _and_sizes)


def _or_size(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def is_symbol_binding_fx_node(node: Any) -> Any:
        return original(node) or _symbol_of(node)

    return is_symbol_binding_fx_node


def _and_sizes(original: Callable[[Any], dict[Any, Any]]) -> Callable[[Any], dict[Any, Any]]:
    """At this point the partitioner has removed nodes that nobody uses."""

    def find_symbol_binding_fx_nodes(graph: Any) -> dict[Any, Any]:
        found, behind = original(graph), _behind_gradients(graph)
        for node in graph.nodes:
            symbol = None if node in behind else _symbol_of(node)
            if symbol is not None:
                found.setdefault(symbol, node)
        values = [node.meta.get("val") for node in graph.nodes if node not in behind]
        sizes = {_expr(size) for value in values for size in getattr(value, "shape", ())}
        return found | _add_nodes(
            graph, {size for size in sizes if size is not None and size.is_Symbol} - found.keys(), behind
        )

    return find_symbol_binding_fx_nodes


def _symbol_of(node: Any) -> Any:
    """The symbol that a node asks a tensor for."""
    import torch

    size = _expr(node.meta.get("val")) if node.target is torch.ops.aten.sym_size.int else None
    return size if size is not None and size.is_Symbol else None


def _behind_nodes(original: Callable[..., None]) -> Callable[..., None]:
    def tensorify_python_scalars(gm: Any, shape_env: Any, fake_mode: Any) -> None:
        _multiply_by_alpha(gm.graph, fake_mode)
        behind = _behind_gradients(gm.graph)
        of_gradients = _sizes_of_gradients(gm.graph, behind)
        added = _add_nodes(gm.graph, _symbols_of_floats(gm.graph) | of_gradients.keys(), behind)
        for size in added.keys() & of_gradients.keys():
            for node in of_gradients[size]:
                node.replace_all_uses_with(added[size])
                gm.graph.erase_node(node)
        original(gm, shape_env, fake_mode)

    return tensorify_python_scalars


def _multiply_by_alpha(graph: Any, fake_mode: Any) -> None:
    """Take sums with a factor `alpha` apart if a term is a float that varies."""
    import torch

    aten = torch.ops.aten
    for target in (aten.add.Tensor, aten.sub.Tensor):
        for node in graph.find_nodes(op="call_function", target=target):
            values = [_value(arg) for arg in node.args]
            if "alpha" not in node.kwargs or not any(isinstance(value, torch.SymFloat) for value in values):
                continue
            first, second = node.args
            multiply = aten.mul.Tensor if isinstance(values[1], torch.Tensor) else operator.mul
            with graph.inserting_before(node):
                product = graph.call_function(multiply, (second, node.kwargs["alpha"]))
            product.meta = {name: value for name, value in node.meta.items() if name != "tensor_meta"}
            with fake_mode:
                product.meta["val"] = multiply(values[1], _value(node.kwargs["alpha"]))
            node.args, node.kwargs = (first, product), {}


def _value(arg: Any) -> Any:
    """The example that a node has; a constant."""
    return arg.meta.get("val") if hasattr(arg, "meta") else arg


def _symbols_of_floats(graph: Any) -> set[Any]:
    """Those without a node."""
    import torch

    values = [node.meta.get("val") for node in graph.nodes]
    of_floats = {
        symbol for value in values if isinstance(value, torch.SymFloat) for symbol in value.node.expr.free_symbols
    }
    return of_floats - {value.node.expr for value in values if isinstance(value, torch.SymInt | torch.SymFloat)}


def _sizes_of_gradients(graph: Any, behind: set[Any]) -> dict[Any, list[Any]]:
    """By the size: the nodes that ask an incoming gradient, or what is computed of one, for it."""
    import torch

    found: dict[Any, list[Any]] = {}
    sym_size = torch.ops.aten.sym_size.int
    asking = [
        node
        for node in graph.find_nodes(op="call_function", target=sym_size)
        if node.args[0] in behind and _expr(node.meta.get("val"))
    ]
    same = _sizes_of_results(graph) if asking else {}
    for node in asking:
        size = _expr(node.meta["val"])
        found.setdefault(same.get(size, size), []).append(node)
    return found


def _sizes_of_results(graph: Any) -> dict[Any, Any]:
    """For the sizes of incoming gradients those of the results that these are for: where data decide, AOTAutograd has made the gradients
    like the results of an earlier run, with other symbols."""
    placeholders = graph.find_nodes(op="placeholder")
    tangents = [node for node in placeholders if _is_tangent(node)]
    results = next(iter(graph.find_nodes(op="output"))).args[0]
    results = results[: len(results) - (len(placeholders) - len(tangents))]
    same: dict[Any, Any] = {}
    if len(results) == len(tangents):  # else some results have no gradients
        for tangent, result in zip(tangents, results, strict=True):
            shapes = [getattr(node.meta.get("val"), "shape", ()) for node in (tangent, result)]
            same.update({_expr(one): _expr(other) for one, other in zip(*shapes, strict=False) if _expr(one)})
    return same


def _expr(size: Any) -> Any:
    """The expression of a symbolic size; None of a number."""
    return getattr(getattr(size, "node", None), "expr", None)


def _is_tangent(node: Any) -> bool:
    return node.op == "placeholder" and "tangents" in str(node.target)


def _behind_gradients(graph: Any) -> set[Any]:
    """The incoming gradients, and what is computed of them."""
    behind: set[Any] = set()
    for node in graph.nodes:
        if _is_tangent(node) or not behind.isdisjoint(node.all_input_nodes):
            behind.add(node)
    return behind


def _add_nodes(graph: Any, sizes: Collection[Any], behind: set[Any]) -> dict[Any, Any]:
    """Ask the first tensor that has it for each size. The new nodes."""
    import torch

    added: dict[Any, Any] = {}
    nodes = list(graph.nodes) if sizes else []
    first_operator = next((node for node in nodes if node.op != "placeholder"), None)
    for node, following in zip(nodes, nodes[1:], strict=False):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or node in behind:
            continue
        for dim, size in enumerate(value.shape):
            if type(size) is torch.SymInt and size.node.expr in sizes and size.node.expr not in added:
                with graph.inserting_before(first_operator if node.op == "placeholder" else following):
                    added[size.node.expr] = made = graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
                made.meta["val"] = size
    return added
