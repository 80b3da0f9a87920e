"""Graphs under Inductor with numbers and sizes that only the graph knows.

Input: such a graph, captured or of ATen. Output: the same computation by what Inductor can compile. Parts of tensors are written by
their positions (`y[:, n.item():] = 0` is a `slice_scatter`, for which there is no kernel). An operator that Inductor refuses runs as
torch's own kernel between the compiled ones. A backward pass that it cannot take runs operator by operator.
Invariant: where all numbers are known, or come from sizes, Inductor's own rules are used.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from dynamo_lite.backends.rewrites.patches import Substitute
from dynamo_lite.signals import let_through

if TYPE_CHECKING:
    from torch.fx import GraphModule


def depends_on_data(gm: GraphModule, fakes: list[Any]) -> bool:
    """Whether a graph, or the trace that its inputs belong to, has numbers that only the graph knows."""
    from torch._guards import detect_fake_mode

    if gm.graph.find_nodes(op="call_method", target="item"):
        return True
    env = getattr(detect_fake_mode(fakes), "shape_env", None)
    return env is not None and any(str(symbol).startswith(("u", "zuf")) for symbol in env.var_to_range)


def compile_around() -> Callable[..., Any]:
    """Inductor's compiler of one ATen graph, which leaves out the operators that it refuses."""
    from torch._inductor import compile_fx, config

    def compile_one(graph: GraphModule, inputs: list[Any], **settings: Any) -> Callable[..., Any]:
        patches = {"layout_optimization": False} if _set_convolutions_apart(graph) else {}
        unchanged = _copied(graph)  # the compiler changes the one that it gets
        while True:
            try:
                with config.patch(patches):
                    return compile_fx.compile_fx_inner(graph, inputs, **settings)
            except Exception as error:
                let_through(error)
                if not _avoid(unchanged, str(error)):
                    raise
                graph = _copied(unchanged)
                # torch's own kernel gives the strides that it gives in eager execution
                patches["layout_optimization"] = False

    return compile_one


def _set_convolutions_apart(graph: GraphModule) -> bool:
    """Have convolutions of sizes from data run by themselves; whether there are any. Inductor sorts the strides of such tensors wrongly
    (torch 2.13): it lays out the images in one order, and takes the results for laid out in another."""
    import torch

    convolutions = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)
    apart = [
        node
        for node in graph.graph.nodes
        if node.target in convolutions
        and any(map(_is_from_data, node.args[node.target is convolutions[1]].meta["val"].shape))
    ]
    for node in apart:
        _run_by_itself(node)
    return bool(apart)


def _copied(graph: GraphModule) -> GraphModule:
    import torch

    nodes = torch.fx.Graph()
    nodes.output(nodes.graph_copy(graph.graph, {}))
    return torch.fx.GraphModule(graph, nodes)


_REFUSED = re.compile(r"LoweringException.*?^ *target: (\S+)$", re.DOTALL | re.MULTILINE)


def _avoid(graph: GraphModule, message: str) -> bool:
    """Have the uses of the operator that Inductor has refused compiled otherwise; False if that has been tried, or can't be."""
    refused = _REFUSED.search(message)
    avoided = False
    for node in list(graph.graph.nodes):
        if refused is not None and node.op == "call_function" and str(node.target) == refused[1]:
            avoided |= _view_a_copy(graph, node) if _shares_memory(node) else _run_by_itself(node)
    return avoided


def _run_by_itself(node: Node) -> bool:
    """Mark an operator for `GraphLowering.call_function`, if tensors are all that it returns."""
    schema = getattr(node.target, "_schema", None)
    can = schema is not None and all(str(one.type) == "Tensor" for one in schema.returns)
    is_new = can and "should_fallback" not in node.meta
    node.meta.update({"should_fallback": True} if is_new else {})
    return is_new


def _view_a_copy(graph: GraphModule, view: Node) -> bool:
    """Inductor can't make views at places that data decide of what it is free to lay out, or to compute in the same kernel: copy that.
    Not for results: AOTAutograd asks these where they lie in the memory of an input, or of another result."""
    base, copy = view.args[0], _copy_operator()
    if not isinstance(base, Node) or base.target is copy or _is_result(view) or not view.target.is_view:
        return False
    with graph.graph.inserting_before(view):
        copied = graph.graph.call_function(copy, (base,))
    copied.meta = {key: value for key, value in base.meta.items() if key != "unbacked_bindings"}
    view.update_arg(0, copied)
    return True


@functools.cache
def _copy_operator() -> Any:
    """`clone`, of which Inductor knows nothing: it would leave out one of its own."""
    import torch

    _libraries.append(library := torch.library.Library("dynamo_lite", "FRAGMENT"))
    library.define("copy(Tensor tensor) -> Tensor")
    library.impl("copy", torch.clone, "CompositeExplicitAutograd")
    return torch.ops.dynamo_lite.copy.default


_libraries: list[Any] = []
"""What is in them lives as long as they."""


def _is_result(node: Node) -> bool:
    """Whether a node, or a view of it, is a result of the graph."""
    return any(user.op == "output" or (_shares_memory(user) and _is_result(user)) for user in node.users)


def _shares_memory(node: Node) -> bool:
    """Whether an operand is viewed or written to."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(one.alias_info is not None for one in (*schema.arguments, *schema.returns))


def substitutes() -> Iterator[Substitute]:
    """For `Patches`."""
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    from torch._inductor.sizevars import SizeVarAllocator

    yield Substitute(PythonWrapperCodegen, "codegen_dynamic_select_index", _in_python)
    yield Substitute(SizeVarAllocator, "check_equals", _without_promises)


def _in_python(original: Callable[..., None]) -> Callable[..., None]:
    """Where a view begins is written into Python code as the text of an expression, which may have functions of sympy (`Max`)."""

    def codegen_dynamic_select_index(self: Any, node: Any, **settings: Any) -> None:
        names = ("index", "size", "base_offset", "base_dim_stride")
        printed = {name: f"({self.codegen_sizevar(getattr(node, name))})" for name in names}
        original(self, SimpleNamespace(unbacked_offset_symbol=node.unbacked_offset_symbol, **printed), **settings)

    return codegen_dynamic_select_index


def _without_promises(original: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor puts sizes together by their ranges (7 is more than 3 at most), and takes for granted that they make up each other. Of
    sizes from data nobody would check that: `rows.t().reshape(-1, 7)` had wrong elements (torch 2.13). Where it is told, it copies."""
    import sympy
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    def check_equals(self: Any, left: Any, right: Any) -> Any:
        if (_is_from_data(left) or _is_from_data(right)) and not self.statically_known_equals(left, right):
            raise GuardOnDataDependentSymNode(sympy.Eq(left, right))
        return original(self, left, right)

    return check_equals


def decompositions() -> dict[Any, Any]:
    """Inductor's table of decompositions, with this rule in it."""
    import torch
    from torch._inductor.decomposition import select_decomp_table

    return {**select_decomp_table(), torch.ops.aten.slice_scatter.default: slice_scatter}


def slice_scatter(base: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    """`base` with `source` in the place of `base[..., start:end:step]`, written by positions."""
    import torch

    dim %= base.dim()
    size = base.shape[dim]
    if not any(_is_from_data(number) for number in (start, end, source.shape[dim])):
        return NotImplemented
    length = source.shape[dim]
    if start is None or (type(start) is int and start == 0):
        first = 0
    elif type(step) is int and step == 1 and (end is None or (type(end) is int and end == sys.maxsize)):
        first = size - length  # of which a backward pass has the number; an expression of `start` it may not have
    else:
        first = _within(start, size)
    positions = torch.arange(length, device=base.device) * step + first
    return torch.ops.aten.index_put(base, [None] * dim + [positions], source)


def _within(bound: Any, size: Any) -> Any:
    """An end of a slice, counted from the beginning, and not beyond the dimension."""
    import torch

    if type(bound) is int and bound < 0:
        bound = torch.sym_max(0, bound + size)
    elif _may_be_negative(bound):
        bound = torch.sym_max(0, torch.sym_ite(bound < 0, bound + size, bound))
    return torch.sym_min(bound, size)


def _may_be_negative(number: Any) -> bool:
    """Whether this is a number from data of which nothing says that it counts from the beginning."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return _is_from_data(number) and not statically_known_true(number >= 0)


def _is_from_data(number: Any) -> bool:
    """Whether a number is one that only the graph knows, or is computed of such numbers."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(number))
