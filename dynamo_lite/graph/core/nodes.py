"""Nodes of a graph that is being built: made without the checks of `Graph.create_node`, with a `meta` that is filled on demand."""

from __future__ import annotations

import linecache
import math
import operator
import re
from collections.abc import Callable, Sequence
from types import MethodDescriptorType
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import _disable_current_modes

from dynamo_lite.breaks import UserFrame

from .values import SequenceValue, SymValue, TensorValue
from .varying_floats import FloatValue

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder
    from dynamo_lite.guards.ir import GuardNode


class NodeMeta(dict):
    """The `meta` of a node. "example_value" and "stack_trace" are made when something asks for them."""

    __slots__ = ("place", "propagator", "sequence", "subject")

    def __init__(self, propagator: Any = None, subject: Any = None, place: Any = None) -> None:
        self.propagator = propagator
        self.subject = subject
        self.place = place
        self.sequence: SequenceValue | None = None  # of a node with several results

    def __missing__(self, key: str) -> Any:
        maker = _MADE_ON_DEMAND.get(key)
        made = maker(self) if maker is not None else None
        if made is None:
            raise KeyError(key)
        self[key] = made
        return made

    def get(self, key: str, default: object = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (key in _MADE_ON_DEMAND and self.get(key) is not None)

    def copy(self) -> dict[str, Any]:
        for key in _MADE_ON_DEMAND:
            self.get(key)
        return dict(self)

    __copy__ = copy

    def twin(self) -> NodeMeta:
        """The same for the node's copy in another graph; it makes nothing."""
        other = NodeMeta(self.propagator, self.subject, self.place)
        other.sequence = self.sequence
        other.update(self)
        return other

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)


def _example_value(meta: NodeMeta) -> Any:
    subject = meta.subject
    if isinstance(subject, TensorValue):
        if subject.fake is None:
            with _disable_current_modes():  # a compiler may ask while it functionalises
                return meta.propagator.fake_of(subject)
        return subject.fake
    if isinstance(subject, FloatValue):
        return subject.real
    if isinstance(subject, SymValue):
        return subject.sym
    return _sequence(meta.propagator, meta.sequence) if meta.sequence is not None else None


def _sequence(propagator: Any, value: Any) -> Any:
    """The fake tensors and numbers of a node with several results."""
    if isinstance(value, SequenceValue):
        items = [_sequence(propagator, item) for item in value.items]
        if value.keys is not None:
            return dict(zip(value.keys, items, strict=True))
        if value.type is list or value.type is tuple or hasattr(value.type, "n_sequence_fields"):
            return value.type(items)
        return tuple.__new__(value.type, items)
    if isinstance(value, TensorValue):
        return propagator.fake_of(value)
    return value.sym if isinstance(value, SymValue) else value


def _stack_trace(meta: NodeMeta) -> str | None:
    if meta.place is None:
        return None
    code, lineno, _ = meta.place
    line = linecache.getline(code.co_filename, lineno).strip()
    return f'  File "{code.co_filename}", line {lineno}, in {code.co_name}\n    {line}\n'


def made_at(value: Any) -> UserFrame | None:
    """The line of the program that made a value of the graph; None for an input."""
    node = value.node if isinstance(value, TensorValue) else None  # an input that nothing has used yet has none
    place = getattr(node.meta, "place", None) if node is not None else None
    return UserFrame(place.code.co_filename, place.lineno, place.code.co_name) if place is not None else None


_MADE_ON_DEMAND = {"example_value": _example_value, "stack_trace": _stack_trace}


set_meta: Callable[[Node, dict[str, Any]], None] = torch._C._NodeBase.meta.__set__
"""Gives a node its `meta`, without a look at it."""


class NodeFactory:
    """Adds nodes at the insertion point of a graph: `Graph.create_node` without its checks, which cost more than the
    rest. The arguments are a tuple and a dict of what an FX graph may hold; the caller has made sure of that.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.names = graph._graph_namespace
        self.bases: dict[Any, list[Any]] = {}  # target → [base name, number of the last node]
        self.items: dict[Any, Node] = {}  # (node with several results, path of an item) → node of the item

    def __call__(self, op: str, target: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Node:
        if target is operator.pow and isinstance(args[0], int | float):
            target = pow  # torch.fx writes `-2 ** x` for the operator, which means `-(2 ** x)`
        return self.named(self._name(target), op, target, args, kwargs or {})

    def named(self, name: str, op: str, target: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        """A node with this name."""
        graph = self.graph
        node = Node(graph, name, op, target, args, kwargs, None)
        self.names._obj_to_name[node] = name
        graph._insert(node)
        graph._find_nodes_lookup_table.insert(node)
        graph._len += 1
        return node

    def _name(self, target: Any) -> str:
        known = self.bases.get(target)
        names = self.names
        if known is None:
            name = names.create_name(self.graph._target_to_str(target), None)
            base, _, number = name.rpartition("_")
            self.bases[target] = [base, int(number)] if base and number.isdigit() else [name, 0]
            return name
        base, number = known
        used = names._used_names
        number += 1
        while (name := f"{base}_{number}") in used:
            number += 1
        used.add(name)
        names._base_count[base] = known[1] = number
        return name

    def placeholder(self, name: str, last: Node) -> Node:
        """Add a placeholder behind the `last` one. The parameter is called as the node is, since its name has to be unique as well."""
        graph, names = self.graph, self.names
        if name in names._used_names or not _is_parameter_name(name):
            name = names.create_name(name, None)
        else:
            names._used_names.add(name)
            names._base_count[name] = 0
        node = Node(graph, name, "placeholder", name, (), {}, None)
        last.append(node)
        names._obj_to_name[node] = name
        graph._find_nodes_lookup_table.insert(node)
        graph._len += 1
        return node


_not_identifier = re.compile(r"\W+")
_is_parameter_name = re.compile(r"l_[a-z0-9_]*_").fullmatch  # whole as `placeholder_name` makes it


def placeholder_name(path: str) -> str:
    """`self.layers[3].weight` → `l_self_layers_3_weight_`."""
    return f"l_{_not_identifier.sub('_', path).strip('_')}_".lower()


# -- nodes of values, by their origin


def item_node(builder: GraphBuilder, value: TensorValue | SymValue, parent: Node, *path: int) -> Node:
    """The node of one item of an operator's result."""
    node = parent
    for i in range(len(path)):
        key = (parent, path[: i + 1])
        item = builder._create.items.get(key)
        if item is None:
            item = builder._create.items[key] = builder._create("call_function", operator.getitem, (node, path[i]), {})
            set_meta(item, NodeMeta(builder.propagator, None, parent.meta.place))
        node = item
    node.meta.subject = value
    return node


def _input_node(builder: GraphBuilder, value: TensorValue | SymValue, source: GuardNode, real: object) -> Node:
    return builder.add_input(value, source, real)


def _method_node(builder: GraphBuilder, value: SymValue, tensor: TensorValue, name: str, *args: Any) -> Node:
    return builder.add("call_method", name, (builder.node(tensor), *args), value)


def _number_node(builder: GraphBuilder, value: SymValue, function: Any, args: tuple[Any, ...]) -> Node:
    numbers = tuple([_operand(builder, a) for a in args])
    if isinstance(function, MethodDescriptorType):  # `float.__round__`: torch.fx writes no such functions
        return builder.add("call_method", function.__name__, numbers, value)
    if builder.scope is not None:
        function = SYMBOLIC.get(function, function)  # bodies run on numbers that vary
    return builder.add("call_function", function, numbers, value)


SYMBOLIC = {
    getattr(math, name): getattr(torch, f"_sym_{name}") for name in vars(math) if hasattr(torch, f"_sym_{name}")
}
"""Functions of numbers → what computes the same of symbols."""


def _operand(builder: GraphBuilder, value: Any) -> Any:
    """The node or constant for an operand of symbolic arithmetic."""
    if type(value) is not SymValue:
        return builder.node(value) if isinstance(value, FloatValue) else value
    known = value.sym.node.maybe_as_int() if isinstance(value.sym, torch.SymInt) else None
    return builder.node(value) if known is None else known


NODE_MAKERS: dict[str, Callable[..., Node]] = {
    "input": _input_node,
    "item": item_node,
    "method": _method_node,
    "call": _number_node,
}
"""The first part of a value's origin → the function that makes its node from the others."""


def run_node(node: Node, values: dict[Node, Any]) -> Any:
    """The result of a call, given the values of other nodes."""
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    function = SYMBOLIC.get(node.target, node.target) if any(type(arg) is torch.SymInt for arg in args) else node.target
    return function(*args, **kwargs)


def is_removable(node: Node) -> bool:
    """True for nodes that can't fail and have no effect: inputs, containers, items of results, basic indexing, sizes and
    arithmetic on them."""
    if (
        node.op in ("placeholder", "get_attr")
        or isinstance(node.target, type)
        and issubclass(node.target, tuple | dict)
    ):
        return True
    if node.target is operator.getitem:
        return len(node.all_input_nodes) == 1 and not _has_list(node.args[1])
    return isinstance(node.meta.subject, SymValue)


def _has_list(index: Any) -> bool:
    """Whether an index has a list of positions, which may be out of range: they are data of a tensor when the graph is traced."""
    return isinstance(index, list) or (isinstance(index, tuple) and any(map(_has_list, index)))


def let_go(graph: Graph) -> None:
    """Cut the references from nodes, which live as long as the compiled code, to real tensors and trackers."""
    for node in graph.nodes:
        if type(node.meta) is NodeMeta:
            _let_go_of(node.meta.subject)
            _let_go_of(node.meta.sequence)


def _let_go_of(value: Any) -> None:
    if type(value) is TensorValue:
        value.origin = value.tracker = value.family = None
    elif type(value) is SequenceValue:
        for item in value.items:
            _let_go_of(item)
    elif isinstance(value, SymValue) and not isinstance(value, FloatValue):  # the guards are made of those
        value.origin = None


# -- arguments of nodes as plain data, and back


def write_argument(arg: object, writer: Any, numbers: dict[Node, int]) -> Any:
    if isinstance(arg, Node):
        return ("node", numbers[arg])
    if isinstance(arg, dict):
        return ("kwargs", tuple([(name, write_argument(v, writer, numbers)) for name, v in arg.items()]))
    if type(arg) is tuple or (isinstance(arg, list) and not isinstance(arg, tuple)):
        kind = "tuple" if type(arg) is tuple else "list"
        return (kind, tuple([write_argument(v, writer, numbers) for v in arg]))
    if type(arg) is slice:
        return ("slice", tuple([write_argument(v, writer, numbers) for v in (arg.start, arg.stop, arg.step)]))
    return writer.value(arg)


def read_argument(data: Any, nodes: Sequence[Node], reader: Any) -> Any:
    """The argument that `write_argument` has written."""
    if type(data) is not tuple:
        return data
    kind, rest = data[0], data[-1]
    if kind == "node":
        return nodes[rest]
    if kind == "kwargs":
        return {name: read_argument(v, nodes, reader) for name, v in rest}
    if kind in ("tuple", "list", "slice"):
        items = [read_argument(v, nodes, reader) for v in rest]
        return tuple(items) if kind == "tuple" else items if kind == "list" else slice(*items)
    return reader.value(data)
