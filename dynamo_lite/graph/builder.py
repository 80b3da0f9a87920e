"""The FX graph of one trace, built operator by operator.

Input: operator calls with trackers as arguments. Output: trackers of the results; at the end a `torch.fx.GraphModule`
with flat placeholders, in the order in which they were first used, that returns a tuple.
Invariant: a node is added after its operator has been propagated, never before; a placeholder is made when something
first uses it.

The package knows nothing of trackers: `variables` registers how a tracker becomes an argument (`arguments.packs`) and how
a result becomes a tracker (`MODELS`).
"""

from __future__ import annotations

import operator
import types
from collections.abc import Iterator
from importlib import import_module
from types import CodeType, MethodDescriptorType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.node import map_aggregate

from dynamo_lite.config import config
from dynamo_lite.dynamism import dynamic_shapes
from dynamo_lite.dynamism.mark_constraints import check_marks, spoken
from dynamo_lite.exc import Restart, Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.guards.tensor_guards import tensor_spec
from dynamo_lite.markers import HAS_MARKS
from dynamo_lite.record import AS_CAPTURED, OF_FAKES, UNUSED_RANDOM, Function

from .bodies import Body
from .core import modes
from .core.arguments import Packing, as_dtype, with_writable_names
from .core.autograd import first_between, freed_outputs, may_ask_inside
from .core.custom_operators import records_by_its_kernel, why_unseen
from .core.default_dtype import needed_dtype
from .core.failure import is_own
from .core.fake import MEMO, Propagator, fake_of_known, span
from .core.keep_dynamo_unloaded import without_compiler
from .core.meta import LiveMeta, is_plain, meta_of_fake, meta_of_input
from .core.nested_int import NewNestedInts, is_nested, nested_int_of
from .core.nodes import NodeFactory, NodeMeta, placeholder_name
from .core.python_code import TraceGraph
from .core.state import AmbientState
from .core.values import (
    ArgumentResult,
    ConstantResult,
    Propagation,
    SameResult,
    SequenceResult,
    SequenceValue,
    SymResult,
    SymValue,
    TensorResult,
    TensorValue,
    has_constant,
    requires_grad,
)
from .core.varying_floats import FloatValue, is_indifferent, present
from .core.wrapper_tensors import (
    SameDescription,
    WrapperPart,
    is_asked,
    is_wrapper,
    may_write,
    meet_class,
    pin_parts,
    unseen_by_compilers,
)
from .core.writes import check_out, resizes_silently
from .inputs.buffers import ask, known_number, truth
from .inputs.fake_inputs import SLUG as FAKE_INPUTS
from .inputs.fake_inputs import SameFake, check_call, check_changes, check_input, result_is_fake, tensors_of
from .inputs.wrapper_inputs import fake_wrapper, give_nested_int, settle_inputs
from .passes.backward_split import check_escape
from .passes.checks import Checks
from .passes.data_assignment import changed_results, check_views, is_no_view, replaced_inputs, written_past
from .passes.input_aliasing import Reach, check_list, reaches
from .passes.leaves import MadeLeaf, Revived, outlet, revived_inputs, settle
from .passes.output_aliasing import Aliases, aliases
from .passes.random_numbers import unused_random

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame
    from dynamo_lite.variables.protocol.base import VariableTracker

STATIC_ADDRESS = "dynamo_lite_static_address"
"""Key of a placeholder's `meta`: True if its tensor keeps its address from call to call (parameters and buffers)."""

COMPUTES = "dynamo_lite_computes"
"""Attribute of a backend: False if it only records the graph, and the callable that it returns computes nothing."""

MODELS = types.SimpleNamespace()
"""What `variables` provides: `tensor(value)`, `symbol(value)`, `constant(tx, host value)`, `sequence(tx, type,
items)`, `mapping(tx, keys, items)` make trackers; `meet_modes(tr)` has the trace ask the function modes around its frame,
`meet_overrides(tr)` the classes of wrapper tensors as well;
`numbers(args, kwargs)` gives arguments with numbers in place of tensors that are known, None if there are none."""


class GraphInput(NamedTuple):
    """A placeholder, where its value comes from, and the value at trace time."""

    node: Node
    source: Any
    value: Any


_set_meta = torch._C._NodeBase.meta.__set__


def new_symbols(mode: object, tr: Trace) -> Any:
    """The symbolic numbers of a trace. Their machinery is loaded with the first one of a process."""
    return import_module(f"{__package__}.shapes.symbols").Symbols(mode, tr)


class GraphBuilder:
    """The graph under construction. `tr` is the trace."""

    def __init__(self, tr: Trace) -> None:
        self.tr = tr
        self.graph = TraceGraph()
        self.propagator = Propagator()
        self.propagator.mode.create_symbolic_nested_int = NewNestedInts(self)
        self.module_nodes: set[Any] = set()
        self.module_facts: dict[Any, bool] = {}
        self.state = AmbientState(self)
        self.shapes = ShapeGuards(self)
        self._symbols: Any = None
        if config.capture_scalar_outputs or config.capture_dynamic_output_shape_ops:
            self.symbols  # noqa: B018  (operators make new ones)
        self.inputs: list[GraphInput] = []
        self.outputs: list[Node] = []
        breaks_raise = tr.region.fullgraph or config.error_on_graph_break
        self.checks = Checks(None if breaks_raise else tr.region.failing)
        self.module: GraphModule | None = None
        self.scope: Body | None = None
        self.has_bodies = False
        self.bodies: dict[str, GraphModule] = {}
        self.cut = tr.analysis.cut  # the node before which the graph has to end, and why
        self.has_gradients = False
        self.module_hooks: list[Any] = []  # registrations of `module_hooks`
        self.hook_calls: dict[Node, Any] = {}  # their calls of modules
        self.body_hooks: dict[Node, Any] = {}  # hooks of tensors that are bodies in the graph
        self.tensor_hooks: dict[
            Node, list[Any]
        ] = {}  # hooks of tensors that a backward pass in the traced code follows
        self.cuts: dict[Node, dict[Node, Node]] = {}  # where stages of a backward pass end: what is cut there, as what
        self.cut_step = 0  # when that was
        self.stages: set[Node] = set()
        self.written_past: list[tuple[int, int, bool]] = []  # inputs whose `data` is written to, see `data_assignment`
        self.replaced: list[TensorValue] = []  # inputs to whose `data` something is assigned
        self.aliased: list[int] = []  # those of them that the compiled graph gets an alias of
        self.revived: list[Revived] = []  # inputs that become leaves of another kind
        self.hook_regions: list[Any] = []  # blocks with hooks of saved tensors, in order
        self.aliases: Aliases | None = None  # results that are made after the graph
        self.freed: list[int] = []  # the outputs whose gradients are used up
        self.made_leaves: dict[TensorValue, MadeLeaf] = {}  # tensors that begin to require gradients in the graph
        self.viewed_leaves: dict[
            TensorValue, TensorValue
        ] = {}  # views made without gradients, leaves as well → of what
        self.is_below = False  # the trace asks the classes of wrapper tensors about torch functions; while the graph runs nobody does
        self.runs_overrides = False  # torch asks such a class while the graph runs
        self.asks_by_node = tr.analysis.asks_by_node  # those nodes alone, see `modes.asking`
        self.parts: dict[int, WrapperPart] = {}  # id of a fake tensor that is part of a wrapper → what is known of it
        self.written: list[TensorValue] = []  # what operators may have written to
        self.counters: dict[
            Any, TensorValue
        ] = {}  # paths of versions, to be read before the graph runs, and whose they are
        self.writes: list[tuple[TensorValue, int]] = []  # what operators have changed how many times
        self.random: list[Node] = []  # the operators that draw random numbers
        self.counts: list[tuple[int, int]] = []  # results that the graph has changed in place, and how many times
        self.changed: set[TensorValue] = set()  # whose data operators have changed
        self.reaches: list[Reach] = []  # of inputs, to find out whether a change of one shows in another
        self.has_fakes = False  # whether it computes with `FakeTensor`s of the program
        self.first_fake: tuple[Any, FakeTensor] | None = None  # the path of one, if one has come in
        self._items: dict[Any, Node] = {}
        self._create = NodeFactory(self.graph)

    def begin(self) -> None:
        """The trace is complete, its frame not yet entered."""
        MODELS.load_late()
        if modes.fake_mode() is not None:
            self.meet_fakes()
            self.state.guard_modes()
        if modes.around():
            MODELS.meet_modes(self.tr)

    # -- inputs

    def object_input(self, value: Any, source: GuardNode | None) -> Node:
        """The placeholder of an object which is neither a tensor nor a number, known by identity."""
        node = next((i.node for i in self.inputs if i.value is value), None)
        if node is None:
            node = self._placeholder(None, source, value)
            node.meta["example_value"] = value
        return node

    def tensor_input(self, value: torch.Tensor, source: GuardNode | None) -> Any:
        """The model of a real tensor, guarded. Its placeholder is made when something uses it."""
        vt = MODELS.tensor(self.input_value(value, source))
        vt.source, vt.value = source, value
        return vt

    def input_value(self, value: torch.Tensor, source: GuardNode | None) -> TensorValue:
        """The graph value of a real tensor, guarded."""
        origin = ("input", source, value)
        if type(value) is FakeTensor:
            check_input(self, value, source)
            made = self._plain_input(value, source, origin)
            made.is_fake = True
            self.first_fake = self.first_fake or (source, value)
            self.meet_fakes()
            return made
        if not is_plain(value):
            fake = self.propagator.slow_fake(value)
            self.tr.guard(source, ir.TENSOR, tensor_spec(value))
            return TensorValue(LiveMeta(fake), origin=origin, fake=fake)
        made = self._plain_input(value, source, origin)
        if nested_int_of(value) is not None:
            give_nested_int(self, self.propagator.fake_of(made), value, source)
        return made

    def meet_fakes(self) -> None:
        """From now on the graph computes with `FakeTensor`s of the program."""
        self.has_fakes = self.propagator.allows_any_device = True

    def wrapper_input(self, value: torch.Tensor, source: GuardNode | None) -> TensorValue:
        """The graph value of a real wrapper tensor, guarded."""
        fake, free = fake_wrapper(self, value, source)
        self.tr.guard(source, ir.PYTHON, SameDescription(value, free))
        made = TensorValue(LiveMeta(fake), origin=("input", source, value), fake=fake)
        meet_class(self, fake, MODELS.meet_overrides)
        for dim, size in enumerate(fake.shape):
            if is_nested(size):
                self.symbols.ragged.setdefault(size.node.expr, SymValue(size, None, ("method", made, "size", dim)))
        return made

    def _plain_input(self, value: torch.Tensor, source: GuardNode | None, origin: object) -> TensorValue:
        if HAS_MARKS in value.__dict__:
            check_marks(value, spoken(source, self.tr))
        is_parameter = isinstance(value, torch.nn.Parameter)
        dynamic = dynamic_shapes.dynamic_dims(self.tr, value, source, is_parameter)
        unbacked = dynamic_shapes.unbacked_dims(value) | dynamic_shapes.automatic_unbacked_dims(
            self.tr, value, source, is_parameter
        )
        dynamic -= unbacked
        own_strides = self.own_strides(value, source, bool(dynamic or unbacked))
        if not dynamic and not unbacked and not own_strides:
            self._guard_tensor(value, source, tensor_spec(value))
            known = modes.fake_mode() is None and known_number(self.tr, value, source)
            fake = fake_of_known(self.propagator.mode, value, value.clone()) if known else None
            return TensorValue(meta_of_input(value), origin=origin, fake=fake)
        strict = dynamic_shapes.strict_dims(value)
        size, stride = self.symbols.shape_of(value, source, dynamic, strict, unbacked, own_strides)
        fixed = [s if type(s) is int else None for s in stride]
        self._guard_tensor(value, source, tensor_spec(value, dynamic | unbacked, fixed))
        fake = self.propagator.symbolic_fake(size, stride, value)
        return TensorValue(meta_of_fake(fake), origin=origin, fake=fake)

    def _guard_tensor(self, value: torch.Tensor, source: GuardNode | None, spec: tuple[Any, ...]) -> None:
        if type(value) is FakeTensor:
            self.tr.guard(source, ir.PYTHON, SameFake(value, spec))
        else:
            self.tr.guard(source, ir.TENSOR, spec)

    def own_strides(self, value: torch.Tensor, source: GuardNode | None, has_symbols: bool) -> frozenset[int]:
        """The dimensions of an input whose stride is a symbol of its own."""
        if isinstance(value, torch.nn.Parameter) and config.force_parameter_static_shapes:
            return dynamic_shapes.NONE
        return dynamic_shapes.symbolic_strides(self.tr, source, value.shape, value.stride(), has_symbols)

    @property
    def symbols(self) -> Any:
        """The symbolic numbers of this trace. Their machinery is loaded with the first one."""
        if self._symbols is None:
            self._symbols = new_symbols(self.propagator.mode, self.tr)
        return self._symbols

    @property
    def fake_mode(self) -> Any:
        """The mode of all fake tensors of this graph."""
        return self.propagator.mode

    @property
    def last_node(self) -> Node:
        """The node added last."""
        return self.graph._root._prev

    def symbolic_int(self, value: int, source: GuardNode | None) -> Any:
        """The model of an int from outside if it is to be symbolic, else None."""
        return self.symint_input(value, source) if dynamic_shapes.is_dynamic_int(self.tr, value, source) else None

    def symbolic_float(self, value: float, source: GuardNode | None) -> Any:
        """The model of a float from outside if it is one that varies, else None."""
        if not dynamic_shapes.is_dynamic_float(self.tr, value, source):
            return None
        self.tr.guard(source, ir.TYPE_IS, float)
        vt = MODELS.symbol(self.symbols.float_of(value, source))
        vt.source, vt.real = source, value
        return vt

    def without_floats(self, error: Exception) -> None:
        """The backend needs the floats of this graph as constants: have the frame analysed again."""
        for source in self.symbols.floats:
            self.tr.dynamic_hints[dynamic_shapes.NUMBER, source.steps] = dynamic_shapes.STATIC_FLOAT
        raise Restart(f"a graph with floats that vary cannot be compiled: {error}")

    def symint_input(self, value: int, source: GuardNode | None) -> Any:
        """The model of an int whose value is not fixed."""
        self.tr.guard(source, ir.TYPE_IS, int)
        vt = MODELS.symbol(self.symbols.int_of(value, source))
        vt.source, vt.real = source, value
        return vt

    # -- nodes

    def node(self, value: TensorValue | SymValue) -> Node:
        """The node of a value in the graph being built; made if there is none yet."""
        node = value.node
        if node is not None and node.graph is self.graph:
            return node
        if node is None:
            known = (
                self._symbols.input_of(value) if self._symbols is not None and isinstance(value, SymValue) else value
            )
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
        return _NODE_MAKERS[kind](self, value, *parts)

    # -- bodies of higher-order operators

    def open_body(self) -> Body:
        """A new body; as a context manager it takes the operators that are added."""
        if self.has_fakes and modes.fake_mode() is None:
            unsupported(FAKE_INPUTS, "body of a higher-order operator")
        return Body(self, NodeFactory)

    def set_meta(self, node: Node, subject: object) -> None:
        """Say which value a node stands for."""
        _set_meta(node, NodeMeta(self.propagator, subject))

    def body_node(self, module: GraphModule) -> Node:
        """The node by which a graph refers to a body."""
        bodies = self.bodies if self.scope is None else self.scope.bodies
        self.propagator.allow_higher_order()
        name = f"body_{len(bodies)}"
        bodies[name] = module
        node = self._create("get_attr", name)
        _set_meta(node, {})
        return node

    def add_option(self, cls: type, fields: dict[str, Any]) -> Node:
        """The node that makes an object which tells compilers how to treat an operator."""
        node = self._create("call_function", cls, (), fields)
        _set_meta(node, {})
        return node

    def call_with_results(
        self, tx: Frame, target: object, args: list[Any], kwargs: dict[str, Any], fakes: list[Any]
    ) -> list[Any]:
        """Add the call of an operator that returns a tuple of new tensors, ints, or None, whose fakes are known. Arguments are nodes."""
        node = self._create("call_function", target, tuple(args), kwargs)
        _set_meta(node, NodeMeta(self.propagator, None, tx.place()))
        values: list[Any] = []
        tensors = tensors_of((args, kwargs)) if self.has_fakes else []
        check_call(self, target, tensors, ())
        for i, fake in enumerate(fakes):
            origin = ("item", node, i)
            if isinstance(fake, torch.SymInt):
                values.append(SymValue(fake, None, origin))
            elif fake is None or type(fake) is int:
                values.append(fake)
            else:
                value = TensorValue(meta_of_fake(fake), None, origin, fake)
                value.is_fake = self.has_fakes and result_is_fake(self, tensors)
                values.append(value)
        node.meta.sequence = SequenceValue(tuple, values)
        return [self._result(tx, value) for value in values]

    @staticmethod
    def _result(tx: Frame, value: object) -> Any:
        """The model of a result of an operator."""
        if type(value) is TensorValue:
            return MODELS.tensor(value)
        return MODELS.symbol(value) if type(value) is SymValue else MODELS.constant(tx, value)

    def _placeholder(self, value: Any, source: GuardNode | None, real: object) -> Node:
        last = self.inputs[-1].node if self.inputs else self.graph._root
        node = self._create.placeholder(
            str(value.sym) if type(value) is SymValue else placeholder_name(source.path), last
        )
        _set_meta(node, NodeMeta(self.propagator, value))
        if isinstance(real, torch.nn.Parameter) or dynamic_shapes.is_buffer(source):
            node.meta[STATIC_ADDRESS] = True
        self.inputs.append(GraphInput(node, source, real))
        return node

    def _item(self, value: Any, parent: Node, *path: int) -> Node:
        """The node of one item of an operator's result."""
        node = parent
        for i in range(len(path)):
            key = (parent, path[: i + 1])
            item = self._items.get(key)
            if item is None:
                item = self._items[key] = self._create("call_function", operator.getitem, (node, path[i]), {})
                _set_meta(item, NodeMeta(self.propagator, None, parent.meta.place))
            node = item
        node.meta.subject = value
        return node

    def _method(self, value: SymValue, tensor: TensorValue, name: str, *args: Any) -> Node:
        return self._add("call_method", name, (self.node(tensor), *args), {}, value)

    def _sym_call(self, value: SymValue, function: Any, args: tuple[Any, ...]) -> Node:
        numbers = tuple([self._number(a) for a in args])
        if isinstance(function, MethodDescriptorType):  # `float.__round__`: torch.fx writes no such functions
            return self._add("call_method", function.__name__, numbers, {}, value)
        return self._add("call_function", function, numbers, {}, value)

    def _number(self, value: Any) -> Any:
        """The node or constant for an operand of symbolic arithmetic."""
        if type(value) is not SymValue:
            return self.node(value) if isinstance(value, FloatValue) else value
        known = value.sym.node.maybe_as_int() if isinstance(value.sym, torch.SymInt) else None
        return self.node(value) if known is None else known

    def _add(self, op: str, target: object, args: tuple[Any, ...], kwargs: dict[str, Any], subject: object) -> Node:
        node = self._create(op, target, args, kwargs)
        _set_meta(node, NodeMeta(self.propagator, subject))
        return node

    # -- operators

    def call(
        self,
        tx: Frame,
        op: str,
        target: object,
        args: list[Any],
        kwargs: dict[str, Any] | None = None,
        memo: bool = True,
    ) -> Any:
        """Add the call of an operator on trackers and return the tracker of its result.

        `memo` is False for functions that are not torch's own. Raises `Unsupported` where the operator has to run for
        real.
        """
        is_of_program = not memo and isinstance(target, _SCHEMA_CLASSES)
        packing = Packing(self, exact=not memo and not is_of_program)
        fx_args, fx_kwargs = packing.pack_call(target, args, kwargs)
        ambient = self.state.key
        tensors = packing.tensors
        values = self._settle_arguments(op, target, packing, fx_args, fx_kwargs)
        made_op, called, fx_args, fx_kwargs = with_writable_names(op, target, fx_args, fx_kwargs)
        asks = self.asks_by_node and is_asked(self, tensors)
        if asks:
            made_op, called = "call_function", modes.asking(called)
        key = (target, ambient, *packing.key) if memo and packing.memorable and not asks else None
        memory = self.propagator.memo if packing.symbolic else MEMO
        if "out" in fx_kwargs and (key is None or key not in memory):
            check_out(self.propagator, op, target, fx_args, fx_kwargs, tensors, values)
        items_read = self.propagator.mode.items_read
        outcome, fakes = self._propagate(made_op, called, fx_args, fx_kwargs, tensors, values, key, memory)
        if self.propagator.mode.items_read != items_read:
            numbers = MODELS.numbers(args[op == "call_method" :], kwargs)
            if numbers is not None:  # compilers do not know the data
                return self.call(tx, op, target, [*args[: op == "call_method"], *numbers[0]], numbers[1], memo)
        if self._symbols is not None and self._symbols.note_new_numbers() and self.has_fakes:
            unsupported(FAKE_INPUTS, f"{getattr(target, '__name__', target)} asks for data")
        result, changes, _, is_random = outcome
        if is_of_program:
            self._meet_operator(target, tensors, result)
        self._note_effects(target, fx_args, fx_kwargs, values, tensors, outcome, remembered=fakes is None)
        if type(result) is ConstantResult and not changes:
            if result.value is not None or (not tensors and getattr(target, "__module__", None) in _WITHOUT_EFFECTS):
                return MODELS.constant(tx, result.value)
        if packing.scalar_types:
            fx_args, fx_kwargs = map_aggregate((fx_args, fx_kwargs), as_dtype)
        node = self._add_operator(tx, made_op, called, fx_args, fx_kwargs, is_random)
        if type(result) is ArgumentResult:
            given = fx_args[result.key] if type(result.key) is int else fx_kwargs[result.key]
            node.meta.sequence = SequenceValue(type(given), [values.get(a, a) for a in given])
            return args[result.key] if type(result.key) is int else kwargs[result.key]
        return self._wrap_result(tx, result, node, tensors, fakes)

    def _settle_arguments(
        self, op: str, target: object, packing: Packing, fx_args: tuple[Any, ...], fx_kwargs: dict[str, Any]
    ) -> dict[Node, Any]:
        """What the nodes among the arguments stand for. Gives the call a `dtype` where the traced code has set another default, and
        breaks where the operator resizes an input or the arguments don't go together."""
        values, tensors = packing.values, packing.tensors
        if self.has_fakes:
            check_call(self, target, tensors, fx_args)
        if packing.floats:
            if is_indifferent(target, tensors):
                values = {node: present(v) if isinstance(v, FloatValue) else v for node, v in values.items()}
            else:
                packing.memorable = False
        if self.state.has_other_default_dtype:
            dtype = needed_dtype(self, op, target, fx_args, fx_kwargs, tensors, values)
            if dtype is not None:
                fx_kwargs["dtype"] = dtype
                packing.key += ("dtype", dtype)
        if resizes_silently(target, fx_args, fx_kwargs, lambda node: values[node].meta.shape):
            unsupported("tensor-attribute", f"{getattr(target, '__name__', target)} resizes an input")
        return values

    def _propagate(
        self,
        op: str,
        target: object,
        fx_args: tuple[Any, ...],
        fx_kwargs: dict[str, Any],
        tensors: list[TensorValue],
        values: dict[Node, Any],
        key: object,
        memory: dict[Any, Propagation],
    ) -> tuple[Propagation, list[FakeTensor] | None]:
        """`Propagator.propagate`; before a break, what the data or the views of the arguments explain is noted."""
        try:
            return self.propagator.propagate(op, target, fx_args, fx_kwargs, tensors, values, key, memory)
        except Unsupported as error:
            if error.slug == "data-dependent-operator":
                self.ask(tensors)
            if error.slug == "fake-tensor-error":
                self._check_views(tensors, error)
            raise

    def _add_operator(
        self, tx: Frame, op: str, target: object, fx_args: tuple[Any, ...], fx_kwargs: dict[str, Any], is_random: bool
    ) -> Node:
        """The node of an operator, at the program's present line. Raises the error of the cut where the graph is to end."""
        node = self._create(op, target, fx_args, fx_kwargs)
        if node.name == self.cut[0]:
            raise self.cut[1]
        _set_meta(node, NodeMeta(self.propagator, None, tx.place()))
        if is_random and self.scope is None:
            self.random.append(node)
        return node

    def _note_effects(
        self,
        target: object,
        fx_args: tuple[Any, ...],
        fx_kwargs: dict[str, Any],
        values: dict[Any, Any],
        tensors: list[TensorValue],
        outcome: Propagation,
        remembered: bool,
    ) -> None:
        """Note how an operator changes its arguments. Break where torch refuses the change, or compilers don't follow it."""
        _, changes, written, _ = outcome
        if written:
            changed = [tensors[i] for i, _ in written]
            check_list(target, fx_args, values, changed)
            self._note_writes(target, changed, any(value.meta.requires_grad for value in tensors))
            if self.scope is None:
                self.writes += [(tensors[i], n) for i, n in written]
        if may_write(target, fx_kwargs):
            self.written += tensors
        self._refuse_detach(target, tensors)
        if changes:
            check_changes(tensors, changes)
            self._refuse_resize(target, tensors, changes)
            self._apply_changes(tensors, changes, remembered)

    def _meet_operator(self, target: object, tensors: list[TensorValue], result: object) -> None:
        """Note where compilers, which see no more of an operator of the program than its registrations, would be wrong or fail."""
        if has_constant(result):
            unsupported("data-dependent-operator", f"a number that {target} returns")  # the fake's is none of its own
        mode = self.propagator.mode
        mode.misled = mode.misled or why_unseen(target)
        if torch.is_grad_enabled() and any(t.meta.requires_grad for t in tensors) and records_by_its_kernel(target):
            if not any(_has_gradients(item) for item in getattr(result, "items", (result,))):
                unsupported("fake-tensor-error", f"{target}: its rule for fake tensors does not tell of gradients")
            mode.misled = f"{target} has no gradients of its own, but those of what its kernel calls"

    def _wrap_result(
        self, tx: Frame, result: Any, node: Node, tensors: list[TensorValue], fakes: list[Any] | None
    ) -> Any:
        kind = type(result)
        if kind is TensorResult:
            value = TensorValue(result.meta, node, None, fakes[0] if fakes is not None else None)
            node.meta.subject = value
            self._meet(value, tensors)
            base = tensors[result.base] if result.base is not None else None
            if result.meta.requires_grad and result.meta.is_leaf:
                self._begins_leaf(value).nodes.append(node)
                if base is not None and base.meta.requires_grad:
                    self.viewed_leaves[value] = base
            if base is not None:
                _join_family(base, value)
            return MODELS.tensor(value)
        if kind is SameResult:
            value = tensors[result.index]
            if self.scope is not None and value in self.scope.lifted:
                return value.tracker  # it keeps its node outside
            value.node = node
            node.meta.subject = value
            if value.meta.requires_grad and value in self.made_leaves and node.target == "requires_grad_":
                self.made_leaves[value].nodes.append(node)
            return value.tracker
        if kind is SequenceResult:
            made, node.meta.sequence = self._wrap_items(
                tx, result, node, (), tensors, iter(fakes) if fakes is not None else None
            )
            return made
        if kind is SymResult:
            value = SymValue(result.sym, node)
            node.meta.subject = value
            return MODELS.symbol(value)
        return MODELS.constant(tx, result.value)

    def _wrap_items(
        self,
        tx: Frame,
        result: SequenceResult,
        node: Node,
        path: tuple[int, ...],
        tensors: list[TensorValue],
        fakes: Iterator[Any] | None,
    ) -> tuple[Any, SequenceValue]:
        items, values = [], []
        for i, item in zip(result.keys or range(len(result.items)), result.items, strict=True):
            kind = type(item)
            origin = ("item", node, *path, i)
            if kind is TensorResult:
                value = TensorValue(item.meta, None, origin, next(fakes) if fakes is not None else None)
                self._meet(value, tensors)
                if item.base is not None:
                    _join_family(tensors[item.base], value)
                made = MODELS.tensor(value)
            elif kind is SameResult:
                value = tensors[item.index]
                made = value.tracker
            elif kind is SequenceResult:
                made, value = self._wrap_items(tx, item, node, (*path, i), tensors, fakes)
            elif kind is SymResult:
                value = SymValue(item.sym, None, origin)
                made = MODELS.symbol(value)
            else:
                value = item.value
                made = MODELS.constant(tx, value)
            items.append(made)
            values.append(value)
        sequence = SequenceValue(result.type, values, result.keys)
        if result.keys is not None:
            return MODELS.mapping(tx, result.keys, items), sequence
        return MODELS.sequence(tx, result.type, items), sequence

    def _meet(self, value: TensorValue, tensors: list[TensorValue]) -> None:
        """An operator on `tensors` returns this one."""
        value.is_fake = self.has_fakes and result_is_fake(self, tensors)
        if value.meta.live and is_wrapper(value.fake):
            meet_class(self, value.fake, MODELS.meet_overrides)
            pin_parts(self.parts, value, tensors)

    def end_before(self, node: Node, error: Unsupported) -> NoReturn:
        """Analyse again, with the graph's end before the operator that this node, or the tuple of which it is an item, comes from. Where
        no break is wanted, raise the error."""
        if self.tr.region.fullgraph or config.error_on_graph_break:
            raise error
        while node.target is operator.getitem and node.meta.place is None:
            node = node.args[0]
        if not error.user_stack:
            error.user_stack = self.tr.user_stack()
        self.tr.analysis.cut = (node.name, error)
        raise Restart(f"the graph ends before {node.name}: {error.context}")

    def _note_writes(self, target: object, tensors: list[TensorValue], has_gradients: bool) -> None:
        """Break where torch refuses to change a tensor in place: elements that share memory; for autograd, a view of a leaf, one of several
        that an operator has returned. Compilers don't."""
        name = getattr(target, "__name__", target)
        for value in tensors:
            if _repeats_elements(value.meta):
                unsupported("fake-tensor-error", f"{name} of a tensor whose elements share memory")
        if has_gradients:
            self._check_views(tensors, Unsupported("fake-tensor-error", f"{name} of one of several views"))
        if torch.is_grad_enabled() and self.scope is None:
            for value in tensors:
                if value.meta.requires_grad and any(
                    v.meta.requires_grad and v.meta.is_leaf for v in value.family or ()
                ):
                    unsupported("fake-tensor-error", f"{name} of a view of a leaf that requires gradients")
        self.changed.update(tensors)

    def _check_views(self, tensors: list[TensorValue], error: Unsupported) -> None:
        """End the graph before an operator that returns several views, if a later operator is refused, or would be, because it changes one
        of them."""
        if torch.is_grad_enabled() and self.scope is None:
            for value in tensors:
                check_views(self, value, error)

    def _refuse_detach(self, target: object, tensors: list[TensorValue]) -> None:
        """Break where torch refuses to detach a view in place: the fake of an input is none."""
        origin = tensors[0].origin if tensors and getattr(target, "__name__", target) == "detach_" else None
        if origin is None or origin[0] != "input":
            return
        _, source, real = origin
        if not is_no_view(real):
            unsupported("fake-tensor-error", "detach_ of a view")
        self.tr.guards.predicate(is_no_view, (source,), "is no view")

    def _refuse_resize(self, target: Any, tensors: list[TensorValue], changes: Any) -> None:
        """Refuse to give an input another storage, which compilers don't follow: a `resize_` to more elements, an `out=` of another
        size."""
        name = getattr(target, "__name__", target)
        if name in VIEWS_IN_PLACE:
            return
        for position, meta in changes:
            value = tensors[position]
            fits = name.startswith("resize_") and span(meta) <= span(value.meta)
            if meta.shape != value.meta.shape and not fits and is_of_an_input(value):
                unsupported("tensor-attribute", f"{name} resizes an input")

    def _begins_leaf(self, value: TensorValue) -> MadeLeaf:
        if value.is_fake and modes.fake_mode() is None:
            unsupported(FAKE_INPUTS, "leaf made of FakeTensors")
        leaf = self.made_leaves.setdefault(value, MadeLeaf())
        leaf.step = self.tr.failing_step()
        return leaf

    def _keep_example(self, value: TensorValue) -> None:
        """Compilers are to see an input that becomes another view of its storage as it is when the graph begins."""
        node = value.node
        if node is not None and node.op == "placeholder":
            node.meta["example_value"] = self.propagator.make_fake(value.meta)

    def _apply_changes(self, tensors: list[TensorValue], changes: Any, remembered: bool) -> None:
        for position, meta in changes:
            value = tensors[position]
            gains_grad = meta.requires_grad and not value.meta.requires_grad
            if meta.shape != value.meta.shape or meta.stride != value.meta.stride:
                self._keep_example(value)
            value.meta = meta
            if remembered:
                value.fake = None
            if gains_grad and meta.is_leaf:
                self._begins_leaf(value)
            if gains_grad and value.family is not None:
                _require_grad(value)

    def changed_by(self, value: TensorValue, node: Node, i: int) -> None:
        """A call has changed a tensor in place and returns it as its item number `i`."""
        if self.scope is None or value not in self.scope.lifted:
            value.node = self._item(value, node, i)

    def ask(self, tensors: list[TensorValue]) -> None:
        """An operation depends on the data of these: find out whether they can be known."""
        if not modes.around() and modes.fake_mode() is None and not any(value.is_fake for value in tensors):
            ask(self, tensors)

    def truth(self, value: TensorValue) -> bool | None:
        """The truth of a tensor, if it follows from integers that modules keep; then guarded."""
        if self.scope is not None or modes.around() or modes.fake_mode() is not None or value.is_fake:
            return None
        return truth(self, value)

    def add_call(self, tx: Frame, function: object, args: tuple[Any, ...]) -> Node:
        """Add the call of a function that returns nothing. Arguments are nodes."""
        node = self._create("call_function", function, args)
        _set_meta(node, NodeMeta(self.propagator, None, tx.place()))
        return node

    def remove_call(self, node: Node) -> None:
        """Take such a call out again."""
        self.graph.erase_node(node)

    def add_state_call(self, function: object, args: tuple[Any, ...]) -> Node:
        """Add a node that changes torch's ambient state."""
        return self._add("call_function", function, args, {}, None)

    def assume(self, condition: SymValue) -> None:
        """Take a condition on numbers that only the graph knows for granted. The graph will assert it, see `runtime_assert`."""
        self.node(condition)
        with without_compiler:
            torch._check(condition.sym)

    def check(self, tx: Frame, vt: VariableTracker, expected: bool, place: Any, saved: Any) -> None:
        """Take the truth of a tensor for granted, and have it tested after the graph; `saved` is the break that this saves."""
        if not self.checks:
            self.tr.guards.global_state(self.checks.hold, "the checks of this version have held so far")
        zero = MODELS.constant(tx, 0)
        fails = self.call(tx, "call_function", torch.eq if expected else torch.ne, [vt, zero])
        node = self.node(fails.proxy)
        if fails.proxy.meta.ndim:
            node = self._add("call_method", "reshape", (node, ()), {}, None)
        self.checks.add(node, fails.proxy.meta.device, place, saved)

    def add_value(self, function: object, args: tuple[Any, ...]) -> Node:
        """Add the call of a function whose result only the graph's caller sees. Arguments are nodes."""
        return self._add("call_function", function, args, {}, None)

    def add_detached(self, node: Node, like: Node) -> Node:
        """Add a tensor without its history, as an output; `like` is where it comes from."""
        made = self._create("call_method", "detach", (node,))
        _set_meta(made, NodeMeta(self.propagator, None, like.meta.place))
        return made

    def add_after(self, node: Node, value: TensorValue, function: object, args: tuple[Any, ...]) -> Node:
        """Add the call of a function that gives a value behind a node."""
        with self.graph.inserting_after(node):
            made = self._create("call_function", function, args)
        _set_meta(made, NodeMeta(self.propagator, value, node.meta.place))
        return made

    def add_input(self, value: TensorValue, source: GuardNode | None, real: object) -> Node:
        """Add a placeholder for what the code makes before the graph."""
        return self._placeholder(value, source, real)

    def attribute(self, value: TensorValue, name: str) -> Node:
        """A `getattr` node on a tensor."""
        return self._add("call_function", getattr, (self.node(value), name), {}, None)

    # -- the end

    def output(self, vt: VariableTracker) -> int:
        """Register the tensor or symbolic number of a tracker as an output; its index among the outputs."""
        node = self.node(vt.proxy)
        if self.made_leaves and type(vt.proxy) is TensorValue and vt.proxy.meta.requires_grad:
            node = outlet(self, vt.proxy) or node
        for i, known in enumerate(self.outputs):
            if known is node:
                return i
        self.outputs.append(node)
        return len(self.outputs) - 1

    def part_gradients(self, rest: list[tuple[CodeType, dict[str, Any]]]) -> None:
        """The graph ends at a break, and the code with these globals goes on: if it may ask for gradients of one output by another, end the
        graph before the operator that leads from one to the other."""
        if len(self.outputs) > 1 and any(may_ask_inside(code, namespace) for code, namespace in rest):
            node = first_between(self)
            if node is not None:
                self.end_before(node, Unsupported("backward-call", "gradients between two results, maybe"))

    @property
    def op_count(self) -> int:
        """The number of operator calls in the graph."""
        return len(self.graph.nodes) - len(self.inputs) - len(self.bodies) - (self.module is not None)

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return len(self.graph.nodes)

    @property
    def has_floats(self) -> bool:
        """Whether it computes with floats that differ from call to call."""
        return any(isinstance(getattr(node.meta, "subject", None), FloatValue) for node in self.graph.nodes)

    @property
    def has_fixed_sizes(self) -> bool:
        """Whether there are no symbols."""
        return self._symbols is None

    @property
    def assumes_sizes(self) -> bool:
        """Whether sizes of inputs are taken to be what the program says, without a look at them."""
        return self._symbols is not None and self._symbols.has_unbacked

    @property
    def records_gradients(self) -> bool:
        """Whether autograd keeps something of what it computes."""
        subjects = [getattr(node.meta, "subject", None) for node in self.graph.nodes if node.op.startswith("call_")]
        return any(isinstance(subject, TensorValue) and subject.meta.requires_grad for subject in subjects)

    @property
    def returns_gradients(self) -> bool:
        """Whether a result takes part in autograd outside of the graph."""
        return any(map(requires_grad, self.outputs))

    @property
    def computes(self) -> bool:
        """Whether the graph is for running: not if the backend only wants to have it."""
        return getattr(self.tr.region.backend, COMPUTES, True)

    @property
    def is_empty(self) -> bool:
        """True if nothing would be computed."""
        return self.op_count == 0

    @property
    def runs_foreign_code(self) -> bool:
        """Whether it calls operators and functions that are not torch's own, which may do anything."""
        modules: list[Any] = [self.module, *self.bodies.values()]
        graphs = [m.graph for root in modules for m in root.modules() if isinstance(m, GraphModule)]
        return any(n.op == "call_function" and not is_own(n.target) for graph in graphs for n in graph.nodes)

    def finish(self) -> GraphModule:
        """Leave the ambient state as it was found, remove what nothing uses, and make the module (once)."""
        if self.module is None:
            if self.made_leaves:
                settle(self)
            checked = self.checks.results(self)
            if self._symbols is not None:
                self._symbols.add_runtime_asserts(self)
            self.state.at_end(self)
            self._remove_dead(checked)
            self._remove_aliases(checked)
            if self._symbols is not None:
                settle_inputs(self)
            unseen = unseen_by_compilers(self) or self.propagator.mode.misled
            if self.has_gradients and self.returns_gradients:
                self.freed = freed_outputs(self)
            if self.hook_calls or self.cuts or self.tensor_hooks:
                check_escape(self)
            self.written_past = written_past(self)
            self.aliased = replaced_inputs(self)
            self.revived = revived_inputs(self)
            self.aliases, results = aliases(self)
            self.counts = changed_results(self)
            self.reaches = reaches(self)
            for i in self.freed:
                position = results.index(self.outputs[i])
                results[position] = self._add("call_method", "detach", (self.outputs[i],), {}, None)
            self.graph.output((*results, *checked))
            self.module = _LazyGraphModule(self.bodies, self.graph)
            if self.has_fakes:
                unseen = self.module.meta[OF_FAKES] = "FakeTensors of the program have no data"
            if unseen is not None:
                self.module.meta[AS_CAPTURED] = unseen
            if self.random and (unused := unused_random(self)):
                self.module.meta[UNUSED_RANDOM] = unused
            self._let_go()
        return self.module

    def _let_go(self) -> None:
        """Cut what leads from the nodes, which live as long as the compiled code, to real tensors and trackers."""
        for node in self.graph.nodes:
            meta = node.meta
            if type(meta) is NodeMeta:
                _let_go_of(meta.subject)
                _let_go_of(meta.sequence)

    def release(self) -> None:
        """The run is over: let go of the program's tensors. The graph may live on, in compiled code or in a reference cycle, and
        leads through its nodes to their metadata and through symbolic sizes to torch's reasoning about them, but to no builder."""
        for item in self.inputs:
            subject = item.node.meta.subject
            if subject is not None:
                subject.origin = None
        if self._symbols is not None:
            self._symbols.release()
        self.__dict__.clear()

    def _remove_dead(self, checked: list[Node]) -> None:
        wanted = {*self.outputs, *checked}
        for node in reversed(list(self.graph.nodes)):
            if not node.users and node not in wanted and is_removable(node):
                self.graph.erase_node(node)
        self.inputs = [i for i in self.inputs if not i.node._erased]
        used = {node.target for node in self.graph.nodes if node.op == "get_attr"}
        self.bodies = {name: module for name, module in self.bodies.items() if name in used}

    def _remove_aliases(self, checked: list[Node]) -> None:
        """An alias of a result that nothing else uses is that result: what a tensor becomes by `as_subclass`."""
        known = {
            *self.outputs,
            *checked,
            *self.hook_calls,
            *self.body_hooks,
            *self.tensor_hooks,
            *self.cuts,
            *self.stages,
        }
        leaves = {*self.made_leaves, *self.viewed_leaves, *self.viewed_leaves.values()}
        for node in list(self.graph.nodes):
            if node.target is not torch.ops.aten.alias.default:
                continue
            (source,) = node.args
            values = {source.meta.subject, node.meta.subject}
            if source.op == "placeholder" or len(source.users) > 1 or source in known or not leaves.isdisjoint(values):
                continue
            self.outputs = [source if output is node else output for output in self.outputs]
            known = {source if found is node else found for found in known}
            node.replace_all_uses_with(source)
            if node.meta.subject.node is node:
                node.meta.subject.node = source
            self.graph.erase_node(node)

    def example_inputs(self) -> list[Any]:
        """The real inputs in placeholder order, and those of the trace in the place of `FakeTensor`s: compilers take one mode only."""
        return [i.node.meta["example_value"] if type(i.value) is FakeTensor else i.value for i in self.inputs]


def _has_gradients(result: Any) -> bool:
    return type(result) is not TensorResult or result.meta.requires_grad


class ShapeGuards:
    """The assumptions of the trace about symbolic numbers."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder

    def finish(self, tr: Trace) -> None:
        """Add the guards, at the end of the trace. Raises UserError for a broken `mark_dynamic`."""
        if self.builder._symbols is not None:
            self.builder._symbols.add_guards()
            record = tr.analysis.record
            record.specializations = self.builder._symbols.specializations
            record.size_lines = self.builder._symbols.env.functions_at

    def who_made_constants(self) -> set[Function]:
        """The functions whose lines, or whose calls, have made constants of numbers that vary."""
        symbols = self.builder._symbols
        if symbols is None:
            return set()
        lines = {constant.user for constant in symbols.constants()}
        return {function for line in lines for function in symbols.env.functions_at.get(line, ())}


_WITHOUT_EFFECTS = frozenset({"torch.nn.functional", "torch.functional"})
"""Modules whose functions do nothing without tensors but look at their arguments: a call that returns None need not be in the graph."""

_NODE_MAKERS = {
    "input": GraphBuilder._placeholder,
    "item": GraphBuilder._item,
    "method": GraphBuilder._method,
    "call": GraphBuilder._sym_call,
}


def _let_go_of(value: Any) -> None:
    if type(value) is TensorValue:
        value.origin = value.tracker = value.family = None
    elif type(value) is SequenceValue:
        for item in value.items:
            _let_go_of(item)
    elif isinstance(value, SymValue) and not isinstance(value, FloatValue):  # the guards are made of those
        value.origin = None


_SCHEMA_CLASSES = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
"""Operators whose arguments are of the types that their schema names."""


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
        return len(node.all_input_nodes) == 1
    return isinstance(node.meta.subject, SymValue)


def _repeats_elements(meta: Any) -> bool:
    """Whether a tensor has an element at several indices. Sparse ones have no strides."""
    return meta.layout is torch.strided and any(
        step == 0 and n > 1 for n, step in zip(meta.shape, meta.stride, strict=True)
    )


VIEWS_IN_PLACE = frozenset(
    {"t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_", "detach_"}
)
"""The methods that make a tensor another view of the storage that it has."""


def is_of_an_input(value: TensorValue) -> bool:
    """Whether a tensor is an input or a view of one."""
    return any(member.origin is not None and member.origin[0] == "input" for member in value.family or (value,))


def _join_family(base: TensorValue, view: TensorValue) -> None:
    if base.family is None:
        base.family = [base]
    base.family.append(view)
    view.family = base.family


def _require_grad(value: TensorValue) -> None:
    """A write to one member gave all views of the storage a gradient."""
    for member in value.family:
        if member is not value and member.meta.interned and not member.meta.requires_grad:
            member.meta = member.meta.replace(requires_grad=True, is_leaf=False)
            member.fake = None
