"""The FX graph of one trace: its nodes, inputs and outputs.

Input: operator calls with trackers as arguments (`operators`), values from outside (`inputs.outside`). Output: at the end a
`torch.fx.GraphModule` with flat placeholders, in the order in which they were first used, that returns a tuple.
Invariant: a placeholder is made when something first uses it. The builder knows no effect around the graph by name, unless one of its own
methods is about it: the table `passes.Passes` lists them.

The package knows nothing of trackers: `variables` registers how a tracker becomes an argument (`arguments.packs`) and how
a result becomes a tracker (`arguments.MODELS`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule

from dynamo_lite.dynamism import dynamic_shapes
from dynamo_lite.exc import EndGraphBefore, Restart, Unsupported, unsupported

from .bodies import Body
from .core import modes
from .core.arguments import MODELS
from .core.autograd import first_between, may_ask_inside
from .core.boxed import raises_behind
from .core.fake import Propagator
from .core.nested_int import NewNestedInts
from .core.nodes import NODE_MAKERS, NodeFactory, NodeMeta, is_removable, let_go, placeholder_name, set_meta
from .core.python_code import TraceGraph
from .core.storages import origins
from .core.values import SymValue, TensorValue, requires_grad, tensors_made_by
from .core.varying_floats import FloatValue
from .inputs.fake_inputs import SLUG as FAKE_INPUTS
from .inputs.outside import OutsideValues
from .operator_calls import OperatorCalls
from .passes import effects_of
from .shapes.captured_calls import answer_by_rules

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame
    from dynamo_lite.variables.protocol.base import VariableTracker

    from .core.state import AmbientState
    from .shapes.symbols import Symbols

STATIC_ADDRESS = "dynamo_lite_static_address"
"""Key of a placeholder's `meta`: True if its tensor keeps its address from call to call (parameters and buffers)."""


class GraphInput(NamedTuple):
    """A placeholder, where its value comes from, and the value at trace time."""

    node: Node
    source: Any
    value: Any


class ModuleFacts(NamedTuple):
    """Facts about `torch.nn.Module`s that are found out once per trace. `nodes`: path → module. `known`: key of a question →
    answer."""

    nodes: dict[Any, Any]
    known: dict[Any, bool]


class GraphBuilder:
    """The graph under construction. `tr` is the trace."""

    def __init__(self, tr: Trace) -> None:
        self.tr = tr
        self.graph = TraceGraph()
        self._create = NodeFactory(self.graph)
        self.propagator = Propagator()
        answer_by_rules(self.propagator.mode)
        self.propagator.mode.create_symbolic_nested_int = NewNestedInts(self)
        self.inputs: list[GraphInput] = []
        self.outputs: list[Node] = []
        self.bodies: dict[str, GraphModule] = {}
        self.scope: Body | None = None
        self.has_bodies = False
        self.module: GraphModule | None = None
        self.modules = ModuleFacts({}, {})
        self.passes = effects_of(self)
        self.outside = OutsideValues(self)
        self.operators = OperatorCalls(self)
        self.call = self.operators.call

    def begin(self) -> None:
        """The trace is complete, its frame not yet entered."""
        MODELS.load_late()
        if modes.fake_mode() is not None:
            self.passes.fakes.meet()
            self.passes.state.guard_modes()
        if modes.around():
            MODELS.meet_modes(self.tr)

    @property
    def state(self) -> AmbientState:
        """Torch's ambient state in the traced code."""
        return self.passes.state

    @property
    def symbols(self) -> Symbols:
        """The symbolic numbers of this trace."""
        return self.passes.sizes.needs_symbols()

    @property
    def last_node(self) -> Node:
        """The node added last."""
        return self.graph._root._prev

    # -- nodes

    def node(self, value: TensorValue | SymValue) -> Node:
        """The node of a value in the graph being built; made if there is none yet."""
        node = value.node
        if node is not None and node.graph is self.graph:
            return node
        if node is None:
            symbols = self.passes.sizes.known
            known = symbols.input_of(value) if symbols is not None and isinstance(value, SymValue) else value
            if known is not value:
                node = self.node(known)
                if self.scope is None:
                    value.node = node
                return node
        if self.scope is not None:
            return self.scope.node(value)
        if node is not None or value.origin[0] == "item" and value.origin[1].graph is not self.graph:
            unsupported("higher-order-operator", "a value made in the body is used outside")
        value.node = node = self.make_node(value)
        return node

    def make_node(self, value: TensorValue | SymValue) -> Node:
        """A new node for a value, as its origin says."""
        kind, *parts = value.origin
        return NODE_MAKERS[kind](self, value, *parts)

    def add_input(self, value: TensorValue | SymValue | None, source: GuardNode, real: object) -> Node:
        """Add a placeholder. `value` is None for objects that are neither tensors nor numbers."""
        last = self.inputs[-1].node if self.inputs else self.graph._root
        name = str(value.sym) if type(value) is SymValue else placeholder_name(source.path)
        node = self._create.placeholder(name, last)
        set_meta(node, NodeMeta(self.propagator, value))
        if isinstance(real, torch.nn.Parameter) or dynamic_shapes.is_buffer(source):
            node.meta[STATIC_ADDRESS] = True
        self.inputs.append(GraphInput(node, source, real))
        return node

    def add(self, op: str, target: object, args: tuple[Any, ...] = (), subject: object = None) -> Node:
        """Add a call that no line of the program makes. Arguments are nodes; `subject` is the value that it makes."""
        node = self._create(op, target, args)
        set_meta(node, NodeMeta(self.propagator, subject))
        return node

    def add_call(self, tx: Frame, function: object, args: tuple[Any, ...], kwargs: Any = None) -> Node:
        """Add the call of a function that returns nothing, at the present line. Arguments are nodes, and constants by name."""
        node = self._create("call_function", function, args, kwargs or {})
        set_meta(node, NodeMeta(self.propagator, None, tx.place()))
        return node

    def add_option(self, cls: type, fields: dict[str, Any]) -> Node:
        """Add the node that makes an object which tells compilers how to treat an operator."""
        node = self._create("call_function", cls, (), fields)
        set_meta(node, {})
        return node

    def add_detached(self, node: Node, like: Node) -> Node:
        """Add a tensor without its history, as an output; `like` is where it comes from."""
        made = self._create("call_method", "detach", (node,))
        set_meta(made, NodeMeta(self.propagator, None, like.meta.place))
        return made

    def add_after(self, node: Node, value: TensorValue, function: object, args: tuple[Any, ...]) -> Node:
        """Add the call of a function that gives a value behind a node."""
        with self.graph.inserting_after(node):
            made = self._create("call_function", function, args)
        set_meta(made, NodeMeta(self.propagator, value, node.meta.place))
        return made

    # -- bodies of higher-order operators

    def open_body(self) -> Body:
        """A new body; as a context manager it takes the operators that are added."""
        if self.passes.fakes.are_there and modes.fake_mode() is None:
            unsupported(FAKE_INPUTS, "body of a higher-order operator")
        return Body(self, NodeFactory)

    def body_node(self, module: GraphModule) -> Node:
        """The node by which a graph refers to a body."""
        bodies = self.bodies if self.scope is None else self.scope.bodies
        self.propagator.allow_higher_order()
        name = f"body_{len(bodies)}"
        bodies[name] = module
        node = self._create("get_attr", name)
        set_meta(node, {})
        return node

    # -- facts

    @property
    def op_count(self) -> int:
        """The number of operator calls in the graph."""
        return len(self.graph.nodes) - len(self.inputs) - len(self.bodies) - (self.module is not None)

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return len(self.graph.nodes)

    def reads_tensors_since(self, last: Node) -> bool:
        """Whether an operator that was added after a node takes a tensor that none of them has made."""
        made: set[Node] = set()
        node = last.next
        while node is not self.graph._root:
            if node.op != "placeholder":  # inputs may be added after it too
                if any(tensors_made_by(given) for given in node.all_input_nodes if given not in made):
                    return True
                made.add(node)
            node = node.next
        return False

    @property
    def is_empty(self) -> bool:
        """True if nothing would be computed."""
        return self.op_count == 0

    @property
    def has_floats(self) -> bool:
        """Whether compilers have to do with floats that differ from call to call."""
        if self.passes.fakes.are_there:
            return False
        return any(isinstance(getattr(node.meta, "subject", None), FloatValue) for node in self.graph.nodes)

    @property
    def records_gradients(self) -> bool:
        """Whether autograd keeps something of what it computes."""
        subjects = [getattr(node.meta, "subject", None) for node in self.graph.nodes if node.op.startswith("call_")]
        return any(isinstance(subject, TensorValue) and subject.meta.requires_grad for subject in subjects)

    @property
    def returns_gradients(self) -> bool:
        """Whether a result takes part in autograd outside of the graph."""
        return any(map(requires_grad, self.outputs))

    def fails_for_good(self, last: Node) -> Node | None:
        """An operator behind a node that may raise for the data, if the graph's changes would keep its frame from starting again."""
        changes = self.passes.versions.writes or self.passes.random.nodes or _takes_others_gradients(self)
        return raises_behind(last) if changes else None

    # -- the end

    def output(self, vt: VariableTracker) -> int:
        """Register the tensor or symbolic number of a tracker as an output; its index among the outputs."""
        node = self.node(vt.proxy)
        if self.passes.leaves.made and type(vt.proxy) is TensorValue and vt.proxy.meta.requires_grad:
            node = self.passes.leaves.outlet(vt.proxy) or node
        for i, known in enumerate(self.outputs):
            if known is node:
                return i
        self.outputs.append(node)
        return len(self.outputs) - 1

    def end_before(self, node: Node, error: Unsupported) -> NoReturn:
        """Analyse again, with the graph's end before the operator that this node, or the tuple of which it is an item, comes from. Where
        no break is wanted, raise the error."""
        if self.tr.breaks_raise:
            raise error
        while node.target is operator.getitem and node.meta.place is None:
            node = node.args[0]
        if not error.user_stack:
            error.user_stack = self.tr.thread.user_stack()
        error.break_step = None  # that of the operator, which the next run comes to
        raise Restart(f"the graph ends before {node.name}: {error.context}", fact=EndGraphBefore(node.name, error))

    def part_gradients(self, rest: list[tuple[CodeType, dict[str, Any]]]) -> None:
        """The graph ends at a break, and the code with these globals goes on: if it may ask for gradients of one output by another, end the
        graph before the operator that leads from one to the other."""
        if len(self.outputs) > 1 and any(may_ask_inside(code, namespace) for code, namespace in rest):
            node = first_between(self)
            if node is not None:
                self.end_before(node, Unsupported("backward-call", "gradients between two results, maybe"))

    def finish(self) -> GraphModule:
        """Let the effects add what they have to, remove what nothing uses, and make the module (once)."""
        if self.module is None:
            _remove_idle(self)
            added = [node for effect in self.passes for node in effect.prepare()]
            _remove_dead(self, added)
            _remove_aliases(self, added)
            results = list(self.outputs)
            for effect in self.passes:
                effect.finish(results)
            for effect in self.passes:
                effect.settle(results)
            self.graph.output((*results, *added))
            self.module = _LazyGraphModule(self.bodies, self.graph)
            for effect in self.passes:
                effect.annotate(self.module)
            let_go(self.graph)
        return self.module

    def paths_to_read(self) -> Iterator[Any]:
        """The paths of values that generated code has to read before it calls the graph."""
        return (path for effect in self.passes for path in effect.paths_to_read())

    def example_inputs(self) -> list[Any]:
        """The real inputs in placeholder order, and those of the trace in the place of `FakeTensor`s: compilers take one mode only."""
        return [i.node.meta["example_value"] if type(i.value) is FakeTensor else i.value for i in self.inputs]

    def release(self) -> None:
        """The run is over: let go of the program's tensors. The graph may live on, in compiled code or in a reference cycle, and
        leads through its nodes to their metadata and through symbolic sizes to torch's reasoning about them, but to no builder."""
        for item in self.inputs:
            subject = item.node.meta.subject
            if subject is not None:
                subject.origin = None
        for effect in self.passes:
            effect.release()
        self.__dict__.clear()


def _takes_others_gradients(builder: GraphBuilder) -> bool:
    """Whether a backward pass in the graph may run through what was computed before it."""
    is_there = any(node.target is torch.autograd.grad for node in builder.graph.nodes)
    return is_there and any(requires_grad(i.node) and not i.node.meta.subject.meta.is_leaf for i in builder.inputs)


def _remove_idle(builder: GraphBuilder) -> None:
    """Leave out operators that only return an argument (a dropout outside of training), where that is written to: AOTAutograd takes the
    results of some for new tensors."""
    operators = builder.operators
    written = set().union(*map(origins, [*operators.written, *operators.changed])) if operators.idle else set()
    kept = builder.passes.backward.kept_nodes()
    for node in operators.idle:
        value = node.meta.subject
        source = next((given for given in node.all_input_nodes if given.meta.subject is value), None)
        if (
            source is not None
            and node not in kept
            and not (operators.tells_writes and written.isdisjoint(origins(value)))
        ):
            builder.outputs = [source if output is node else output for output in builder.outputs]
            node.replace_all_uses_with(source)
            if value.node is node:
                value.node = source
            builder.graph.erase_node(node)


def _remove_dead(builder: GraphBuilder, added: list[Node]) -> None:
    wanted = {*builder.outputs, *added}
    known = builder.operators.known.get(builder.graph)
    for node in known.unused(wanted) if known is not None else ():
        builder.graph.erase_node(node)
    for node in reversed(list(builder.graph.nodes)):
        if not node.users and node not in wanted and is_removable(node):
            builder.graph.erase_node(node)
    builder.inputs = [i for i in builder.inputs if not i.node._erased]
    used = {node.target for node in builder.graph.nodes if node.op == "get_attr"}
    builder.bodies = {name: module for name, module in builder.bodies.items() if name in used}


def _remove_aliases(builder: GraphBuilder, added: list[Node]) -> None:
    """An alias of a result that nothing else uses is that result: what a tensor becomes by `as_subclass`."""
    leaves = builder.passes.leaves
    known = {*builder.outputs, *added, *builder.passes.backward.kept_nodes()}
    kept = {*leaves.made, *leaves.viewed, *leaves.viewed.values()}
    for node in list(builder.graph.nodes):
        if node.target is not torch.ops.aten.alias.default:
            continue
        (source,) = node.args
        values = {source.meta.subject, node.meta.subject}
        if source.op == "placeholder" or len(source.users) > 1 or source in known or not kept.isdisjoint(values):
            continue
        builder.outputs = [source if output is node else output for output in builder.outputs]
        known = {source if found is node else found for found in known}
        node.replace_all_uses_with(source)
        if node.meta.subject.node is node:
            node.meta.subject.node = source
        builder.graph.erase_node(node)
