"""Graphs and the guards that torch contributes, as plain data and back.

Input: a finished `GraphBuilder`; guards on tensors and on torch's state. Output: data for `marshal`; in another process `StoredGraph`,
which `torch_side.compile_graph` takes like a builder, and the arguments of such guards.
Invariant: a graph that is read has the nodes, names and inputs of the one that was written, so that the caches of torch's compilers take
them for the same. Raises `Refused` for what can't be written, `Mismatch` where this process is another one.

`writer` and `reader` stand for the objects of the program; see `dynamo_lite.cache.references`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..exc import Mismatch, Refused
from ..guards import ir
from ..guards.tensor import global_state_check, tensor_spec
from . import modes
from .builder import STATIC_ADDRESS, GraphBuilder, GraphInput, NodeFactory, NodeMeta
from .checks import Checks
from .failure import NAMESPACES, is_own
from .fake import Propagator
from .meta import FIELDS, TensorMeta, intern, is_plain, meta_of_input
from .state import AmbientState
from .values import TensorValue

# ----------------------------------------------------------------------------------------------------------------------
# Kinds of constants.


def _operator(overload: Any) -> tuple[Any, ...]:
    packet = overload if isinstance(overload, torch._ops.OpOverloadPacket) else overload._overloadpacket
    name = packet._qualified_op_name
    if name.partition("::")[0] not in NAMESPACES:
        raise Refused(f"the operator {name}, whose rules may change")
    return "operator", name, None if packet is overload else overload._overloadname


def _find_operator(name: str, overload: str | None) -> Any:
    namespace, _, name = name.partition("::")
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
        return packet if overload is None else getattr(packet, overload)
    except AttributeError:
        raise Mismatch(f"there is no operator {namespace}::{name}") from None


def _named_constant(value: Any) -> tuple[Any, ...]:
    return "constant", str(value).partition(".")[2]


KINDS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    **dict.fromkeys((torch.dtype, torch.layout, torch.memory_format, torch.qscheme), _named_constant),
    torch.device: lambda device: ("device", device.type, -1 if device.index is None else device.index),
    torch.Size: lambda size: ("size", *size),
    **dict.fromkeys((torch._ops.OpOverload, torch._ops.OpOverloadPacket), _operator),
}
"""Exact type → function that says all about such an object in plain data."""

FINDERS: dict[str, Callable[..., Any]] = {
    "constant": lambda name: getattr(torch, name),
    "device": lambda kind, index: torch.device(kind) if index < 0 else torch.device(kind, index),
    "size": lambda *sizes: torch.Size(sizes),
    "operator": _find_operator,
}
"""The way back."""

# ----------------------------------------------------------------------------------------------------------------------
# Guards.


def write_guard(writer: Any, guard: ir.Guard) -> tuple[Any, ...]:
    """The argument of a guard on a tensor, on torch's state, or on several values."""
    if guard.kind == ir.TENSOR:
        cls, dtype, device, layout, requires_grad, sizes, strides, keys, _ = guard.arg
        about = (cls, dtype, device, layout, requires_grad, sizes, strides, None if keys is None else keys[1])
        return ("tensor", writer.value(about))
    function = guard.arg
    kept = getattr(getattr(function, "__self__", None), "__getstate__", None)
    if guard.kind == ir.GLOBAL_STATE and type(kept) is type(len) and function.__name__ == "check":
        return ("state", kept())
    reading = getattr(function, "reads", None)
    if reading is not None:
        return ("reading", writer.value(reading))
    return ("function", writer(function))


def read_guard(reader: Any, kind: int, where: Any, data: tuple[Any, ...]) -> Any:
    """The argument again. Raises `Mismatch` for another tensor or state."""
    form, about = data
    if form == "tensor":
        return _tensor_spec(reader.at(where), reader.value(about))
    if form == "state":
        check = global_state_check()
        if getattr(check, "__self__", None) is None or check.__self__.__getstate__() != about:
            raise Mismatch("torch's global state is another one")
        return check
    if form == "reading":
        return AmbientState.reading(*reader.value(about))
    return reader(about)


def _tensor_spec(value: Any, about: tuple[Any, ...]) -> tuple[Any, ...]:
    cls, *_, sizes, strides, keys = about
    if type(value) is not cls or len(sizes) != value.dim():
        raise Mismatch("a tensor is another one")
    spec = tensor_spec(value, [i for i, size in enumerate(sizes) if size is None], strides)
    if (*spec[:7], None if spec[7] is None else spec[7][1]) != about:
        raise Mismatch("a tensor is another one")
    return spec


# ----------------------------------------------------------------------------------------------------------------------
# Writing.


def write_graph(graph: GraphBuilder, writer: Any, write_place: Callable[[Any], Any]) -> dict[str, Any]:
    """The data of a graph that has been compiled."""
    if graph._symbols is not None:
        raise Refused("a graph with symbolic sizes")
    if graph.checks:
        raise Refused("a graph with checks of data")
    if graph.module_hooks:
        raise Refused("a graph of a module with backward hooks")
    if graph.bodies:
        raise Refused("a graph with higher-order operators")
    module = graph.finish()
    numbers: dict[Node, int] = {}
    metas: dict[TensorMeta, int] = {}
    nodes = []
    for node in module.graph.nodes:
        numbers[node] = len(nodes)
        nodes.append(_write_node(node, writer, numbers, metas, write_place))
    state = graph.state
    return {
        "nodes": nodes,
        "metas": [tuple([writer.value(getattr(meta, name)) for name in FIELDS]) for meta in metas],
        "inputs": [_write_input(i, writer) for i in graph.inputs],
        "freed": list(graph.freed),
        "initial": [(writer.value(key), writer.value(value)) for key, value in state.initial.items()],
        "writes": state.writes,
    }


def write_ambient(writer: Any) -> Any:
    """What operators' rules may depend on, guarded or not. Raises `Refused` under function modes."""
    if modes.around():
        raise Refused("function modes are active")
    return writer.value(AmbientState.compute_key())


def check_ambient(reader: Any, data: Any) -> None:
    """Raise `Mismatch` if the state is another one now."""
    if modes.around() or reader.value(data) != AmbientState.compute_key():
        raise Mismatch("torch's state is another one")


def _write_node(node: Node, writer: Any, numbers: Any, metas: Any, write_place: Any) -> tuple[Any, ...]:
    target: Any = node.target
    if node.op == "call_function":
        if not is_own(target):
            raise Refused(f"{target} in the graph, whose rules may change")
        target = ("object", writer(target))
    subject = getattr(node.meta, "subject", None)
    meta = subject.meta if type(subject) is TensorValue and isinstance(subject.meta, TensorMeta) else None
    return (
        node.name,
        node.op,
        target,
        _write_argument(node.args, writer, numbers),
        _write_argument(node.kwargs, writer, numbers),
        None if meta is None else metas.setdefault(meta, len(metas)),
        write_place(getattr(node.meta, "place", None)),
    )


def _write_argument(arg: Any, writer: Any, numbers: dict[Node, int]) -> Any:
    if isinstance(arg, Node):
        return ("node", numbers[arg])
    if isinstance(arg, dict):
        return ("kwargs", tuple([(name, _write_argument(v, writer, numbers)) for name, v in arg.items()]))
    if type(arg) is tuple or (isinstance(arg, list) and not isinstance(arg, tuple)):
        kind = "tuple" if type(arg) is tuple else "list"
        return (kind, tuple([_write_argument(v, writer, numbers) for v in arg]))
    if type(arg) is slice:
        return ("slice", tuple([_write_argument(v, writer, numbers) for v in (arg.start, arg.stop, arg.step)]))
    return writer.value(arg)


def _write_input(given: GraphInput, writer: Any) -> tuple[int, bool]:
    if not isinstance(given.value, torch.Tensor) or not is_plain(given.value):
        raise Refused("an input that is no plain tensor")
    return writer.numbers[id(given.source)], bool(given.node.meta.get(STATIC_ADDRESS, False))


# ----------------------------------------------------------------------------------------------------------------------
# Reading.


class StoredGraph:
    """A graph that was read, with the part of `GraphBuilder` that compiling it needs."""

    def __init__(
        self, data: dict[str, Any], reader: Any, guards: ir.GuardSet, read_place: Callable[[Any], Any]
    ) -> None:
        self.reader = reader
        self.propagator = Propagator()
        self.freed = data["freed"]
        self.checks = Checks(None)
        self.module_hooks: list[Any] = []
        self.state = AmbientState(None)
        self.state.initial = {reader.value(key): reader.value(value) for key, value in data["initial"]}
        self.state.writes = data["writes"]
        self.graph = Graph()
        self.inputs: list[GraphInput] = []
        self._given = iter(data["inputs"])
        self._guards = guards
        self._read_place = read_place
        self._metas = [TensorMetaOf(reader, fields) for fields in data["metas"]]
        self._create = NodeFactory(self.graph)
        self.nodes: list[Node] = []
        for node in data["nodes"]:
            self.nodes.append(self._read_node(*node))
        self.module = _LazyGraphModule({}, self.graph)

    def _read_node(self, name: str, op: str, target: Any, args: Any, kwargs: Any, meta: Any, place: Any) -> Node:
        if op == "call_function":
            target = self.reader(target[1])
        node = self._create.named(name, op, target, self._argument(args), self._argument(kwargs))
        self.graph._graph_namespace._used_names.add(name)
        if op == "placeholder":
            self._input(node)
        elif op != "output":
            subject = None if meta is None else TensorValue(self._metas[meta].meta)
            node.meta = NodeMeta(self.propagator, subject, self._read_place(place))
        return node

    def _input(self, node: Node) -> None:
        number, is_static = next(self._given)
        real = self.reader.at(number)
        if not isinstance(real, torch.Tensor) or not is_plain(real):
            raise Mismatch("an input is no plain tensor")
        node.meta = NodeMeta(self.propagator, TensorValue(meta_of_input(real)))
        if is_static:
            node.meta[STATIC_ADDRESS] = True
        self.inputs.append(GraphInput(node, self._guards.nodes[number], real))

    def _argument(self, data: Any) -> Any:
        if type(data) is not tuple:
            return data
        kind, rest = data[0], data[1] if len(data) > 1 else None
        if kind == "node":
            return self.nodes[rest]
        if kind == "kwargs":
            return {name: self._argument(v) for name, v in rest}
        if kind in ("tuple", "list", "slice"):
            items = [self._argument(v) for v in rest]
            return tuple(items) if kind == "tuple" else items if kind == "list" else slice(*items)
        return self.reader.value(data)

    @property
    def op_count(self) -> int:
        """The number of operator calls in the graph."""
        return len(self.nodes) - len(self.inputs) - 1

    def finish(self) -> Any:
        """The module."""
        return self.module

    def example_inputs(self) -> list[Any]:
        """The real inputs in placeholder order."""
        return [i.value for i in self.inputs]


class TensorMetaOf:
    """A meta that is made when something asks for it."""

    def __init__(self, reader: Any, fields: Any) -> None:
        self.reader = reader
        self.fields = fields

    @property
    def meta(self) -> TensorMeta:
        return intern(*map(self.reader.value, self.fields))


# ----------------------------------------------------------------------------------------------------------------------
# Where it runs.


def versions() -> dict[str, Any]:
    """What torch is here and what it runs on: programs may ask for all of this, and kernels and rules depend on it."""
    found = {
        "torch": torch.__version__,
        "torch source": str(torch.version.git_version),
        "cuda": str(torch.version.cuda),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "accelerators": [],
        "parts": [name for name in _PARTS if getattr(torch.backends, name).is_available()],
    }
    if torch.cuda.is_available():
        devices = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        found["accelerators"] = [f"{d.name} {d.major}.{d.minor}" for d in devices]
    return found


_PARTS = ("mps", "mkl", "mkldnn", "openmp", "cudnn")
