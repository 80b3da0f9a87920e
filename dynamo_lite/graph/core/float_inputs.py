"""Graphs with float inputs, for compilers that only take tensors.

Input: a finished graph in which floats differ from call to call. Output: the graph with a tensor of one double in the place of each
float, and the function that computes these floats from the inputs before the graph runs.
Invariant: Python computes the floats, as it does in the program. Operators get `tensor.item()`. For a compiler that would make constants
of these items, tensors replace the floats inside operators as well, where operators take them; results then differ by rounding at most.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule

from dynamo_lite.backends.handed import graph_of
from dynamo_lite.record import UNUSED_RANDOM, WRITTEN

from .nodes import SYMBOLIC
from .operator_names import operator_name
from .values import SymValue, TensorValue
from .varying_floats import FloatValue


def _subject(node: Node) -> Any:
    return getattr(node.meta, "subject", None)


def _is_float(node: object) -> bool:
    return isinstance(node, Node) and isinstance(_subject(node), FloatValue)


def _is_constant(node: Node) -> bool:
    """Whether the guards hold a float to what it is now."""
    subject = _subject(node)
    return subject.decide.is_constant(subject)


def _is_known(subject: Any) -> bool:
    """Whether this is a number which follows from numbers and sizes, not from the data of a tensor, which the graph may change."""
    return isinstance(subject, FloatValue) or (isinstance(subject, SymValue) and subject.sym.node.has_hint())


class Lowered:
    """A graph in two halves: `module` for the compiler, whose inputs `examples` gives, and the numbers. Once `compiled` is set, an
    object to call like the whole."""

    compiled: Callable[..., Any]

    def __init__(self, gm: GraphModule, propagator: Any, forms: bool) -> None:
        self.propagator = propagator
        self.forms = _FORMS if forms else {}
        self.nodes = list(gm.graph.nodes)
        self.inputs = [node for node in self.nodes if node.op == "placeholder"]
        self.host_nodes = self._find_host_nodes()
        used = [node for node in self.nodes if node in self.host_nodes and self._is_used_inside(node)]
        self.constants = {node: _subject(node).real for node in used if _is_constant(node)}
        self.frontier = [node for node in used if node not in self.constants]
        outputs = self.nodes[-1].args[0]
        self.given = [node for node in outputs if node in self.host_nodes and _is_float(node)]
        self.host_module = self._make_host(gm)
        self.host = self.host_module.forward
        self.kept = [i for i, node in enumerate(self.inputs) if not _is_float(node)]
        # Where each output comes from: the numbers that were computed before, or the results of the graph.
        place = {node: i for i, node in enumerate(dict.fromkeys(self.given))}
        self.places = [(True, place[node]) if node in place else (False, 0) for node in outputs]
        writer = _Writer(self, gm)
        self.module = writer.write()
        self.origins = writer.origins

    def examples(self, inputs: list[Any]) -> list[Any]:
        """Inputs of the half for the compiler, from those of the whole."""
        return [inputs[i] for i in self.kept] + [_tensor(_subject(n).real) for n in self.frontier]

    @property
    def has_operators(self) -> bool:
        """Whether there is anything to compile."""
        return any(node.op.startswith("call_") for node in self.module.graph.nodes)

    def _find_host_nodes(self) -> dict[Node, None]:
        """Numbers that are known before the graph runs."""
        found: dict[Node, None] = {}
        known = set(self.inputs)
        for node in self.nodes:
            if _is_known(_subject(node)) and all(n in known for n in node.all_input_nodes):
                found[node] = None
                known.add(node)
        return found

    def _is_used_inside(self, node: Node) -> bool:
        return _is_float(node) and any(user not in self.host_nodes and user.op != "output" for user in node.users)

    def _make_host(self, gm: GraphModule) -> GraphModule:
        graph, copies = Graph(), {}
        for node in self.inputs:
            copies[node] = graph.placeholder(node.name)
        for node in self.host_nodes:
            if node.op != "placeholder":
                copies[node] = graph.create_node(
                    node.op, node.target, *torch.fx.map_arg((node.args, node.kwargs), copies.__getitem__)
                )
        graph.output(tuple([copies[node] for node in [*self.frontier, *dict.fromkeys(self.given)]]))
        return _LazyGraphModule({}, graph)

    def parts(self) -> Iterator[tuple[GraphModule, Sequence[int]]]:
        """Both halves; for each of their nodes, the number of the node of the whole up to which operators have run when it raises."""
        yield self.module, self.origins
        running = graph_of(self.compiled, self.module)
        if running not in (None, self.module) and running.code == self.module.code:  # a backend's copy, not rewritten
            yield running, self.origins
        yield self.host_module, [0] * len(self.host_module.graph.nodes)  # none has yet: node 0 is a placeholder

    def __call__(self, *args: Any) -> Any:
        numbers = self.host(*args)
        n = len(self.frontier)
        results = iter(self.compiled(*[args[i] for i in self.kept], *map(_tensor, numbers[:n])))
        return tuple([numbers[n + i] if known else next(results) for known, i in self.places])


def _tensor(number: float) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.float64, device="cpu")


class _Writer:
    """Writes the half for the compiler."""

    def __init__(self, lowered: Lowered, gm: GraphModule) -> None:
        self.lowered = lowered
        self.gm = gm
        self.graph = Graph()
        self.copies: dict[Node, Node] = {}
        self.tensors: dict[Node, Node] = {}  # number → the tensor in its place
        self.items: dict[Node, Node] = {}
        self.origins: list[int] = []  # for each node, the number of the one that it is written for

    def write(self) -> GraphModule:
        lowered = self.lowered
        for node in lowered.inputs:
            if not _is_float(node):
                self.copies[node] = self.graph.node_copy(node)
        for node in lowered.frontier:
            self._input(node)
        for i, node in enumerate(lowered.nodes):
            if node.op != "placeholder" and not (node in lowered.host_nodes and _is_float(node)):
                self._write(node)
            self.origins += [i] * (len(self.graph.nodes) - len(self.origins))
        module = _LazyGraphModule(self.gm, self.graph)
        module.meta = self._marks()
        return module

    def _marks(self) -> dict[str, Any]:
        """What passes have noted about the graph, by the names of the nodes here."""
        names = {node.name: copy.name for node, copy in self.copies.items()}
        marks = dict(self.gm.meta)
        if UNUSED_RANDOM in marks:
            marks[UNUSED_RANDOM] = [names[name] for name in marks[UNUSED_RANDOM] if name in names]
        if WRITTEN in marks:
            marks[WRITTEN] = [[names[name] for name in touched if name in names] for touched in marks[WRITTEN]]
        return marks

    def _input(self, node: Node) -> None:
        made = self.graph.placeholder(f"{node.name}_tensor")
        with self.lowered.propagator.mode:
            made.meta["example_value"] = torch.empty((), dtype=torch.float64, device="cpu")
        self.tensors[node] = made

    def _write(self, node: Node) -> None:
        if node.op == "output":
            self.graph.output(tuple([self.copies[n] for n in node.args[0] if n in self.copies]))
            return
        if any(n in self.tensors for n in node.all_input_nodes):
            form = self.lowered.forms.get(_name(node))
            made = form(self, node) if form is not None else None
            if made is not None:
                made.meta = node.meta.copy()
                self.copies[node] = made
                return
        made = self.copies[node] = self.graph.node_copy(node, self.copy)
        made.target = SYMBOLIC.get(made.target, made.target)

    # -- for the forms

    def copy(self, node: Node) -> Node:
        """The argument for a node; a number as a number."""
        if node in self.lowered.constants:
            return self.lowered.constants[node]
        if node not in self.tensors:
            return self.copies[node]
        if node not in self.items:
            self.lowered.propagator.mode.allow_scalar_outputs = True
            self.items[node] = self.graph.call_method("item", (self.tensors[node],))
        return self.items[node]

    def argument(self, arg: Any, dtype: torch.dtype | None = None) -> Any:
        """Any argument; a float as a tensor, of the given type if there is one."""
        if isinstance(arg, Node) and arg in self.tensors:
            tensor = self.tensors[arg]
            return tensor if dtype is None else self.graph.call_method("to", (tensor, dtype))
        return torch.fx.map_arg(arg, self.copy)

    def is_float(self, arg: object) -> bool:
        return isinstance(arg, Node) and arg in self.tensors

    def call(self, function: object, *args: Any) -> Node:
        return self.graph.call_function(function, args)


def _name(node: Node) -> str:
    return operator_name(node.target) or ""


Form = Callable[[_Writer, Node], "Node | None"]


def _dtype_for(node: Node) -> torch.dtype | None:
    """The type that a tensor needs in the place of a number, so that the result has the type that it had; None: any."""
    tensors = [value for n in node.all_input_nodes if isinstance(value := _subject(n), TensorValue)]
    if len(tensors) != 1:
        return None
    meta = tensors[0].meta
    if meta.ndim and (meta.dtype.is_floating_point or meta.dtype.is_complex):
        return None
    return meta.dtype if meta.dtype.is_floating_point or meta.dtype.is_complex else torch.get_default_dtype()


def _arithmetic(w: _Writer, node: Node) -> Node | None:
    """`op(x, f)`, `op(f, x)`."""
    if node.kwargs or len(node.args) != 2:
        return None
    dtype = _dtype_for(node)
    args = tuple([w.argument(a, dtype) for a in node.args])
    return w.graph.create_node(node.op, node.target, args)


def _scaled_sum(w: _Writer, node: Node) -> Node | None:
    """`x.add(y, alpha=f)`, `torch._foreach_add(xs, ys, alpha=f)`."""
    each = _is_each(node)
    if not node.kwargs:
        return _each(w, node) if each else _arithmetic(w, node)
    if set(node.kwargs) != {"alpha"} or len(node.args) != 2 or w.is_float(node.args[1]) or not _keeps_types(node):
        return None
    x = w.argument(node.args[0], _dtype_for(node))
    y = w.argument(node.args[1])
    term = w.call(torch._foreach_mul if each else operator.mul, y, w.argument(node.kwargs["alpha"]))
    return w.graph.create_node(node.op, node.target, (x, _of_type(w, node, term)))


def _scaled_term(function: object, function_of_lists: object) -> Form:
    """`x.addcdiv(a, b, value=f)`, `torch._foreach_addcdiv(xs, as, bs, f)`."""

    def form(w: _Writer, node: Node) -> Node | None:
        args = [*node.args, *node.kwargs.values()]
        if len(args) != 4 or not w.is_float(args[3]) or not _keeps_types(node):
            return None
        x, a, b, factor = map(w.argument, args)
        return _add_product(w, node, x, w.call(function_of_lists if _is_each(node) else function, a, b), factor)

    return form


def _interpolation(w: _Writer, node: Node) -> Node | None:
    """`x.lerp(end, f)`, `torch._foreach_lerp(xs, ends, f)`."""
    args = [*node.args, *node.kwargs.values()]
    if len(args) != 3 or not w.is_float(args[2]) or not _keeps_types(node):
        return None
    start, end, weight = map(w.argument, args)
    difference = w.call(torch._foreach_sub if _is_each(node) else operator.sub, end, start)
    return _add_product(w, node, start, difference, weight)


def _add_product(w: _Writer, node: Node, x: Any, term: Node, factor: Any) -> Node:
    """`x + term * factor`; in place if the node's operator is."""
    in_place = _name(node).endswith("_")
    if _is_each(node):
        term = w.call(torch._foreach_mul, term, factor)
        return w.call(torch._foreach_add_ if in_place else torch._foreach_add, x, term)
    product = _of_type(w, node, w.call(operator.mul, term, factor))
    return w.graph.call_method("add_" if in_place else "add", (x, product))


def _of_type(w: _Writer, node: Node, term: Node) -> Node:
    """What a product with a tensor of a double is in the sum that `node` stands for. That tensor gives its type to others without
    dimensions, and to integers, where a number gives none."""
    if _is_each(node) or _outweigh_double(node):
        return term
    return w.graph.call_method("to", (term, _subject(node).meta.dtype))


def _each(w: _Writer, node: Node) -> Node | None:
    """`torch._foreach_mul(xs, f)`."""
    if node.kwargs or len(node.args) != 2 or not w.is_float(node.args[1]) or not _keeps_types(node):
        return None
    tensors = w.argument(node.args[0])
    return w.call(node.target, tensors, [w.argument(node.args[1])] * len(tensors))


def _is_each(node: Node) -> bool:
    """Whether an operator is for lists of tensors."""
    return _name(node).startswith("_foreach_")


def _keeps_types(node: Node) -> bool:
    """Whether the tensors of a list stay of their type when one of a single double takes part, and the operator does not refuse the float
    because its result is an integer."""
    result = _subject(node)
    if isinstance(result, TensorValue) and not (result.meta.dtype.is_floating_point or result.meta.dtype.is_complex):
        return False
    return not _is_each(node) or _outweigh_double(node)


def _outweigh_double(node: Node) -> bool:
    """Whether the tensors that an operator is given decide its type, even where a tensor of a single double takes part."""
    metas = [value.meta for n in node.all_input_nodes if isinstance(value := _subject(n), TensorValue)]
    return all(m.ndim and (m.dtype.is_floating_point or m.dtype.is_complex) for m in metas)


_FORMS: dict[str, Form] = {
    **dict.fromkeys(("mul", "div", "pow", "true_divide", "multiply", "divide", "gt", "ge", "lt", "le", "eq", "ne"), _arithmetic),
    **dict.fromkeys(("add", "sub", "_foreach_add", "_foreach_sub"), _scaled_sum),
    **dict.fromkeys(("addcdiv", "_foreach_addcdiv"), _scaled_term(operator.truediv, torch._foreach_div)),
    **dict.fromkeys(("addcmul", "_foreach_addcmul"), _scaled_term(operator.mul, torch._foreach_mul)),
    **dict.fromkeys(("lerp", "_foreach_lerp"), _interpolation),
    **dict.fromkeys(("_foreach_mul", "_foreach_div"), _each),
}  # fmt: skip
_FORMS.update({f"{name}_": form for name, form in list(_FORMS.items())})
"""Operator → how to write it with tensors in the place of floats; it may decline with None."""
