"""Graphs and the guards that torch contributes, as plain data and back.

Input: a finished `GraphBuilder`; guards on tensors and on torch's state. Output: data for `marshal`; in another process `StoredGraph`,
which `torch_runtime.compile_graph` takes like a builder, and the arguments of such guards.
Invariant: a graph that is read has the nodes, names and inputs of the one that was written, so that the caches of torch's compilers take
them for the same. Raises `Refused` for what can't be written, `Mismatch` where this process is another one.

`writer` and `reader` stand for the objects of the program; see `dynamo_lite.warm_cache.references`.
"""

from __future__ import annotations

import copy
import marshal
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph_module import _loader

from dynamo_lite._eval_frame import ClassCheck
from dynamo_lite.backends.branch import silenced
from dynamo_lite.exc import Mismatch, Refused
from dynamo_lite.guards import ir, tensor_class
from dynamo_lite.guards.tensor_guards import global_state_check, tensor_spec
from dynamo_lite.isa.typeobject import mro_of
from dynamo_lite.markers import HAS_MARKS
from dynamo_lite.record import AS_CAPTURED

from .builder import STATIC_ADDRESS, GraphBuilder, GraphInput
from .core import modes
from .core.failure import NAMESPACES, is_own
from .core.fake import Propagator
from .core.keep_dynamo_unloaded import without_compiler
from .core.meta import FIELDS, TensorMeta, intern, is_plain, meta_of_input
from .core.nodes import NodeFactory, NodeMeta, read_argument, write_argument
from .core.python_code import TraceGraph, standard_globals
from .core.state import AmbientState
from .core.values import SequenceValue, SymValue, TensorValue
from .passes import effects_of
from .shapes.formulas import MAKERS

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


def _higher_order(operator: Any) -> tuple[Any, ...]:
    return "higher-order operator", operator.name()


def _named_constant(value: object) -> tuple[Any, ...]:
    return "constant", str(value).partition(".")[2]


KINDS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    **dict.fromkeys((torch.dtype, torch.layout, torch.memory_format, torch.qscheme), _named_constant),
    torch.device: lambda device: ("device", device.type, -1 if device.index is None else device.index),
    torch.Size: lambda size: ("size", *size),
    **dict.fromkeys((torch._ops.OpOverload, torch._ops.OpOverloadPacket), _operator),
    **dict.fromkeys((type(torch.ops.higher_order.cond), type(torch.ops.higher_order.while_loop)), _higher_order),
}
"""Exact type → function that says all about such an object in plain data."""

FINDERS: dict[str, Callable[..., Any]] = {
    "constant": lambda name: getattr(torch, name),
    "higher-order operator": lambda name: getattr(torch.ops.higher_order, name),
    "device": lambda kind, index: torch.device(kind) if index < 0 else torch.device(kind, index),
    "size": lambda *sizes: torch.Size(sizes),
    "operator": _find_operator,
    **MAKERS,
}
"""The way back."""

# ----------------------------------------------------------------------------------------------------------------------
# Guards.


GUARD_FORMS = frozenset({"tensor", "state", "tensor class", "class", "mro", "registrations", "reading", "function"})
"""What the arguments of guards begin with that `read_guard` reads."""


def write_guard(writer: Any, guard: ir.Guard) -> tuple[Any, ...]:
    """The argument of a guard on a tensor, on torch's state, or on several values."""
    if guard.kind == ir.TENSOR:
        cls, dtype, device, layout, requires_grad, sizes, strides, keys, _ = guard.arg
        about = (cls, dtype, device, layout, requires_grad, sizes, strides, None if keys is None else keys[1])
        return ("tensor", writer.value(about), writer.numbers[id(guard.node)])
    function = guard.arg
    if type(function) is ClassCheck:
        if type(function.hook) is ir.SameMro:
            return "mro", tuple([writer(base()) for base in function.hook.bases])
        is_of_tensors = function.hook is tensor_class.number_of_attributes
        return ("tensor class", None) if is_of_tensors else ("class", (writer(function.cls), writer(function.hook)))
    if type(function) is ir.SameRegistrations:
        answers = [(one(), other(), answer) for (one, other), answer in function.answers.items()]
        return "registrations", tuple([(writer(one), writer(other), answer) for one, other, answer in answers])
    kept: Any = getattr(getattr(function, "__self__", None), "__getstate__", None)
    if guard.kind == ir.GLOBAL_STATE and isinstance(kept, types.BuiltinFunctionType) and function.__name__ == "check":
        return ("state", kept())
    reading = getattr(function, "reads", None)
    if reading is not None:
        return ("reading", writer.value(reading))
    return ("function", writer(function))


def read_guard(reader: Any, form: str, about: Any, where: int = -1) -> Any:
    """The argument again. Raises `Mismatch` for another tensor or state. `where`: the path of a tensor that the guard is on."""
    if form == "tensor":
        return _tensor_spec(reader.at(where), reader.value(about))
    if form == "state":
        check: Any = global_state_check()
        if getattr(check, "__self__", None) is None or check.__self__.__getstate__() != about:
            raise Mismatch("torch's global state is another one")
        return check
    if form == "tensor class":
        return tensor_class.check()
    if form == "mro":
        return _same_mro(*map(reader, about))
    if form == "class":
        return ClassCheck(*map(reader, about), True)
    if form == "registrations":
        return _same_registrations([(reader(one), reader(other), answer) for one, other, answer in about])
    if form == "reading":
        return AmbientState.reading(*reader.value(about))
    return reader(about)


def _same_mro(cls: type, *bases: type) -> ClassCheck:
    if list(map(id, mro_of(cls))) != list(map(id, (cls, *bases))):
        raise Mismatch("a class has other bases")
    return ClassCheck(cls, ir.SameMro(cls), True)


def _same_registrations(answers: list[tuple[type, type, bool]]) -> ir.SameRegistrations:
    check = ir.SameRegistrations()
    for abstract, cls, answer in answers:
        check.add(abstract, cls, answer)
    check.token = None  # so that all are asked
    if not check():
        raise Mismatch("other classes are registered with an abstract class")
    return check


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


def write_graph(graph: GraphBuilder, writer: Any, write_place: Callable[[Any], int]) -> dict[str, Any]:
    """The data of a graph that has been compiled."""
    module = graph.finish()
    inputs = [_write_input(i, writer) for i in graph.inputs]
    effects = {name: effect.write_data(writer) for name, effect in graph.passes._asdict().items()}
    if AS_CAPTURED in module.meta:
        raise Refused("a graph that compilers do not get")
    numbers: dict[Node, int] = {}
    subjects = _Subjects(graph.passes.sizes.known, writer)
    nodes: list[tuple[Any, ...]] = []
    for node in module.graph.nodes:
        numbers[node] = len(nodes)
        nodes.append(_write_node(node, writer, numbers, subjects, write_place))
    bodies = {name: _write_body(body, writer) for name, body in graph.bodies.items()}
    data = {
        "nodes": nodes,
        "subjects": subjects.table,
        "code": _write_code(module, writer),
    }
    return {
        "n_nodes": len(nodes),
        "inputs": inputs,
        "objects": sorted(_object_numbers((data, bodies))),  # that its nodes need
        "bodies": bodies,
        "graph": marshal.dumps(data),  # read when somebody asks for the nodes
        "forward": data.pop("code"),
        "effects": {name: data for name, data in effects.items() if data is not None},
    }


class _Subjects:
    """The values that nodes stand for: each meta once. 0: nothing is known."""

    def __init__(self, symbols: Any, writer: Any) -> None:
        self.symbols = symbols
        self.writer = writer
        self.table: list[Any] = [None]
        self.known: dict[Any, int] = {}

    def __call__(self, subject: Any) -> int:
        key = subject.meta if type(subject) is TensorValue else id(subject)
        number = self.known.get(key)
        if number is None:
            data = self._data(subject)
            number = self.known[key] = 0 if data is None else len(self.table)
            if data is not None:
                self.table.append(data)
        return number

    def _data(self, subject: Any) -> Any:
        if type(subject) is SequenceValue:
            return self._sequence(subject)
        if type(subject) is TensorValue:
            meta = subject.meta
            if isinstance(meta, TensorMeta):
                return tuple([self.writer.value(getattr(meta, name)) for name in FIELDS])
            return self._symbolic(meta) if meta.interned and meta.live and self.symbols is not None else None
        if type(subject) is SymValue and isinstance(subject.sym, torch.SymInt) and subject.sym.node.has_hint():
            return ("number", self.symbols.written(subject.sym))
        return None

    def _sequence(self, subject: SequenceValue) -> tuple[Any, ...] | None:
        items = [
            (True, self(item)) if isinstance(item, _VALUES) else (False, self.writer.value(item))
            for item in subject.items
        ]
        if (True, 0) in items:
            return None
        return ("sequence", self.writer.value(subject.type), items, self.writer.value(subject.keys))

    def _symbolic(self, meta: Any) -> tuple[Any, ...]:
        sizes, strides, offset = [
            tuple(map(self.symbols.written, numbers)) for numbers in (meta.shape, meta.stride, (meta.offset,))
        ]
        kind = self.writer.value(meta.dtype), self.writer.value(meta.device)
        return ("symbolic", sizes, strides, *offset, *kind, meta.requires_grad, meta.is_leaf)


_VALUES = (TensorValue, SymValue, SequenceValue)


def _object_numbers(data: Any) -> set[int]:
    """The objects that such data mention."""
    found: set[int] = set()
    pending = [data]
    while pending:
        item = pending.pop()
        if type(item) is dict:
            pending.extend(item.values())
        elif type(item) in (tuple, list):
            if len(item) == 2 and item[0] == "object" and type(item[1]) is int:
                found.add(item[1])
            pending.extend(item)
    return found


def _write_code(module: Any, writer: Any) -> tuple[Any, ...] | None:
    """The function that runs the graph node by node, if somebody has asked for it and its names are torch's."""
    forward = type(module).forward
    if module._needs_recompile() or not forward.__code__.co_filename.startswith("<eval_with_key>"):
        return None
    code, standard = forward.__code__, standard_globals()
    used = {name: forward.__globals__[name] for name in code.co_names if name in forward.__globals__}
    try:
        others = [(name, writer.value(v)) for name, v in used.items() if standard.get(name, used) is not v]
    except Refused:
        return None
    return (
        code.replace(co_filename=""),
        others,
        module._code,
        list((module._lineno_map or {}).items()),
        module._prologue_start,
    )


def write_ambient(writer: Any) -> Any:
    """The ambient state on which rules of operators may depend, guarded or not. Raises `Refused` under modes."""
    if modes.around() or modes.fake_mode() is not None:
        raise Refused("modes are active")
    return writer.value(AmbientState.compute_key())


def check_ambient(reader: Any, data: object) -> None:
    """Raise `Mismatch` if the state is another one now."""
    if modes.around() or reader.value(data) != AmbientState.compute_key():
        raise Mismatch("torch's state is another one")


def _write_node(node: Node, writer: Any, numbers: Any, subjects: _Subjects, write_place: Any) -> tuple[Any, ...]:
    return (
        node.name,
        node.op,
        _write_target(node, writer),
        write_argument(node.args, writer, numbers),
        write_argument(node.kwargs, writer, numbers),
        subjects(_subject_of(node.meta)) if node.op != "placeholder" else 0,
        write_place(getattr(node.meta, "place", None)),
    )


def _write_target(node: Node, writer: Any) -> Any:
    """What a node calls: a function of torch's or Python's, the name of a method or of an attribute."""
    if node.op != "call_function":
        return node.target
    if not is_own(node.target):
        raise Refused(f"{node.target} in the graph, whose rules may change")
    return "object", writer(node.target)


def _write_body(module: GraphModule, writer: Any) -> dict[str, Any]:
    """The data of a body of a higher-order operator, and of those inside. What its nodes stand for is found out again when it is run."""
    numbers: dict[Node, int] = {}
    nodes: list[tuple[Any, ...]] = []
    bodies: dict[str, Any] = {}
    for node in module.graph.nodes:
        target = _write_target(node, writer)
        if node.op == "get_attr":
            inside = getattr(module, target)
            if not isinstance(inside, GraphModule):
                raise Refused("a higher-order operator with a constant in its body")
            bodies[target] = _write_body(inside, writer)
        numbers[node] = len(nodes)
        arguments = [write_argument(given, writer, numbers) for given in (node.args, node.kwargs)]
        nodes.append((node.name, node.op, target, *arguments))
    return {"nodes": nodes, "bodies": bodies}


def _subject_of(meta: Any) -> Any:
    """The value that a node stands for."""
    return (meta.sequence or meta.subject) if isinstance(meta, NodeMeta) else None


def _write_input(given: GraphInput, writer: Any) -> tuple[int, bool]:
    subject = getattr(given.node.meta, "subject", None)
    is_size = type(subject) is SymValue and type(given.value) is int
    if not is_size and (not isinstance(given.value, torch.Tensor) or not is_plain(given.value)):
        raise Refused("an input that is no plain tensor")
    if getattr(given.value, "__dict__", None) and HAS_MARKS in given.value.__dict__:
        raise Refused("a tensor with marks")
    return writer.numbers[id(given.source)], bool(given.node.meta.get(STATIC_ADDRESS, False))


# ----------------------------------------------------------------------------------------------------------------------
# Reading.


class StoredGraph:
    """A graph that was read, with the part of `GraphBuilder` that compiling it needs. Its nodes are made when somebody looks at them."""

    def __init__(
        self, data: dict[str, Any], reader: Any, read_place: Callable[[int], Any], guards: Callable[[], ir.GuardSet]
    ) -> None:
        """Raises `Mismatch`."""
        self.propagator = Propagator()
        self.guards = guards
        self.passes = effects_of(None)
        for name, about in data["effects"].items():
            getattr(self.passes, name).read_data(about, reader, self)
        self.sizes = self.passes.sizes.stored
        self.reals = [_real_input(reader.at(number)) for number, _ in data["inputs"]]
        self.node_count = data["n_nodes"]
        self.returns_gradients = False  # asked before a version is kept: whether it lets go of its inputs is known
        inputs = [(self._subject(n, real), fixed) for real, (n, fixed) in zip(self.reals, data["inputs"], strict=True)]
        nodes = _StoredNodes(data["graph"], inputs, reader.only(data["objects"]), self.propagator, read_place)
        nodes.symbols = self.passes.sizes.known
        self.bodies = {name: _read_body(body, reader) for name, body in data["bodies"].items()}
        if self.bodies:
            self.propagator.allow_higher_order()
        self.module = StoredModule(nodes, data["forward"], self.bodies)
        for effect in self.passes:
            effect.annotate(self.module)

    def _subject(self, number: int, real: object) -> TensorValue | SymValue:
        """What is known of an input."""
        known = None if self.sizes is None else self.sizes.subjects.get(number)
        if known is None and not isinstance(real, torch.Tensor):
            raise Mismatch("a number that is no size any more")
        return known or TensorValue(meta_of_input(real))

    @property
    def op_count(self) -> int:
        """The number of operator calls in the graph."""
        return self.node_count - len(self.reals) - len(self.bodies) - 1

    @property
    def has_floats(self) -> bool:
        """Whether it computes with floats that differ from call to call: those are not kept."""
        return False

    def finish(self) -> Any:
        """The module."""
        return self.module

    def example_inputs(self) -> list[Any]:
        """The real inputs in placeholder order."""
        return self.reals


def _real_input(value: object) -> Any:
    if type(value) is not int and (not isinstance(value, torch.Tensor) or not is_plain(value)):
        raise Mismatch("an input is no plain tensor")
    return value


def _read_body(data: dict[str, Any], reader: Any) -> GraphModule:
    """A body of a higher-order operator."""
    bodies = {name: _read_body(inside, reader) for name, inside in data["bodies"].items()}
    graph, nodes = Graph(), list[Node]()
    for name, op, target, args, kwargs in data["nodes"]:
        if op == "call_function":
            target = reader(target[1])
        args, kwargs = (read_argument(given, nodes, reader) for given in (args, kwargs))
        nodes.append(graph.create_node(op, target, args, kwargs, name))
    return silenced(GraphModule(bodies, graph))


class _StoredNodes:
    """Makes the nodes of a graph. Holds nothing of the program but code objects and what the nodes call."""

    def __init__(self, data: bytes, inputs: Any, reader: Any, propagator: Propagator, read_place: Any) -> None:
        self.data = data
        self.inputs = inputs
        self.reader = reader
        self.propagator = propagator
        self.read_place = read_place
        self.symbols: Any = None

    def __call__(self) -> Graph:
        data = marshal.loads(self.data)
        with without_compiler:
            subjects: list[Callable[[], Any]] = [lambda: None]
            for kind in data["subjects"][1:]:
                subjects.append(self._maker(kind, subjects))
        self.given = iter(self.inputs)
        self.graph = graph = TraceGraph()
        self.nodes: list[Node] = []
        create = NodeFactory(graph).named
        names = graph._graph_namespace._used_names
        for name, op, target, args, kwargs, subject, place in data["nodes"]:
            if op == "call_function":
                target = self.reader(target[1])
            args, kwargs = (read_argument(given, self.nodes, self.reader) for given in (args, kwargs))
            node = create(name, op, target, args, kwargs)
            names.add(name)
            self.nodes.append(node)
            if op == "placeholder":
                node.meta = self._meta_of_input(node)
            elif op != "output":
                node.meta = StoredMeta(self, subjects[subject](), place)
        return graph

    def _maker(self, data: tuple[Any, ...], known: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
        """A function that makes what stands for a value of this kind."""
        if data[0] == "sequence":
            value = self.reader.value
            cls, items, keys = value(data[1]), data[2], value(data[3])
            return lambda: SequenceValue(cls, [known[i]() if is_value else value(i) for is_value, i in items], keys)
        if data[0] == "number":
            sym = self.symbols.read(data[1])
            return lambda: SymValue(sym)
        meta = self._symbolic(*data[1:]) if data[0] == "symbolic" else intern(*map(self.reader.value, data))
        return lambda: TensorValue(meta)

    def _symbolic(
        self, sizes: Any, strides: Any, offset: Any, dtype: Any, device: Any, requires_grad: bool, is_leaf: bool
    ) -> Any:
        read, mode = self.symbols.read, self.propagator.mode
        with mode:
            fake = torch.empty_strided(
                list(map(read, sizes)),
                list(map(read, strides)),
                dtype=self.reader.value(dtype),
                device=self.reader.value(device),
            )
            if offset != 0:
                fake = fake.as_strided(fake.shape, fake.stride(), read(offset))
        return mode.symbolic_metas.of(fake, requires_grad, is_leaf)

    def _meta_of_input(self, node: Node) -> NodeMeta:
        subject, is_static = next(self.given)
        made = NodeMeta(self.propagator, subject)
        subject.node = node
        if is_static:
            made[STATIC_ADDRESS] = True
        return made


class StoredMeta(NodeMeta):
    """The `meta` of a node that was read: its line is found when something asks for it."""

    __slots__ = ("nodes", "number")

    def __init__(self, nodes: _StoredNodes, subject: Any, number: int) -> None:
        self.nodes = nodes
        self.propagator = nodes.propagator
        is_sequence = type(subject) is SequenceValue
        self.subject = None if is_sequence else subject
        self.sequence = subject if is_sequence else None
        self.number = number

    @property
    def place(self) -> Any:  # type: ignore[override]
        """The line of the program that called the operator, None if it is not known."""
        return self.nodes.read_place(self.number)


class StoredModule(_LazyGraphModule):
    """The module of a graph that was read. Its nodes, and the function that runs them, are made when they are first needed; from then on it
    is a module like any other."""

    def __init__(
        self, nodes: Callable[[], Graph], forward: tuple[Any, ...] | None, bodies: Mapping[str, GraphModule]
    ) -> None:
        super().__init__({}, TraceGraph())
        for name, body in bodies.items():
            setattr(self, name, body)
        del self.__dict__["_graph"]
        self.__dict__.update(stored_nodes=nodes, stored_forward=forward)

    def __getattr__(self, name: str) -> Any:
        if name == "_graph" and "stored_nodes" in self.__dict__:
            graph = self.__dict__["_graph"] = self.__dict__.pop("stored_nodes")()
            graph.owning_module = self
            self.__dict__.pop("stored_forward", None)
            return graph
        return super().__getattr__(name)

    @property
    def may_be_marked(self) -> bool:
        """Whether there may be checkpointed regions among the nodes: there are none in a graph that is kept."""
        return "stored_nodes" not in self.__dict__

    def unread_copy(self) -> StoredModule | None:
        """Another one that makes nodes of its own when they are needed; None if this one has made its nodes. Both have the same bodies."""
        nodes = self.__dict__.get("stored_nodes")
        if nodes is None:
            return None
        return StoredModule(copy.copy(nodes), self.__dict__.get("stored_forward"), dict(self._modules))

    def real_recompile(self) -> None:
        """Make the function that runs the graph: the one that was kept, unless somebody has had a look at the nodes."""
        forward = self.__dict__.pop("stored_forward", None)
        if forward is None or not self._needs_recompile():
            super().real_recompile()
            return
        code, others, self._code, line_map, self._prologue_start = forward
        names = {**standard_globals(), **{name: self.__dict__["stored_nodes"].reader.value(v) for name, v in others}}
        self._lineno_map = dict(line_map)
        filename = _loader.cache(self._code, names)
        type(self).forward = types.FunctionType(code.replace(co_filename=filename), names, "forward")

    def __deepcopy__(self, memo: object) -> Any:
        self.graph  # noqa: B018  (makes it an ordinary one)
        return super().__deepcopy__(memo)

    def __reduce__(self) -> Any:
        self.graph  # noqa: B018
        return super().__reduce__()


# ----------------------------------------------------------------------------------------------------------------------
# Where it runs.


def versions() -> dict[str, Any]:
    """The versions of torch and of the hardware: programs may ask for all of these, and kernels and rules depend on them."""
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
