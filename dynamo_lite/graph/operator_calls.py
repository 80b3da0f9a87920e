"""Calls of operators: the part of a `GraphBuilder` that adds them.

Input: a target, trackers as arguments. Output: a node, and the tracker of its result.
Invariant: a node is added after its operator has been propagated, never before. An operator that torch would refuse, or that compilers
would get wrong, breaks the graph before its node is added.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_iter

from dynamo_lite.exc import Unsupported, unsupported

from .core import modes
from .core.arguments import MODELS, Packing, as_dtype, with_writable_names
from .core.custom_operators import records_by_its_kernel, why_unseen
from .core.fake import MEMO, GivesWarning, span
from .core.functional import TRANSFORMS
from .core.meta import meta_of_fake
from .core.nodes import NodeMeta, item_node, made_at, set_meta
from .core.operator_names import VIEWS_IN_PLACE, may_write
from .core.storages import check_views, is_no_view, is_of_an_input
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
)
from .core.varying_floats import FloatValue, floats_at, is_indifferent, present
from .core.wrapper_tensors import is_asked, is_wrapper, pin_parts
from .core.writes import check_out, check_overlap, resizes_silently
from .inputs.buffers import ask
from .inputs.fake_inputs import SLUG as FAKE_INPUTS
from .inputs.fake_inputs import check_call, check_changes, result_is_fake, tensors_of
from .passes import ON_NODE, ON_WRITE
from .shapes.data_memos import DataMemos

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

    from .builder import GraphBuilder
    from .core.autograd import Kin


_KEPT = "dynamo_lite_kept"
"""True in the `meta` of a placeholder whose example is the input as it is when the graph begins."""


class OperatorCalls:
    """Adds operators to a graph. `written`: tensors that operators may have written to, as far as names and schemas tell. `memos`: those
    that remember numbers."""

    def __init__(self, builder: GraphBuilder) -> None:
        passes = builder.passes
        self.builder = builder
        self.propagator = builder.propagator
        self.state = passes.state
        self.sizes = passes.sizes
        self.fakes = passes.fakes
        self.wrappers = passes.wrappers
        self.leaves = passes.leaves
        self.on_write = [passes[i] for i in ON_WRITE]
        self.on_node = [passes[i] for i in ON_NODE]
        self.cut = builder.tr.facts.cut  # the node before which the graph has to end, and why
        self.written: list[TensorValue] = []  # all tensors that were given to operators which may write
        self.changed: list[TensorValue] = []  # those that were written to, as far as that is known
        self.idle: list[Node] = []  # operators of torch that only return an argument
        self.known: dict[Graph, Any] = {}  # what models have computed of the constants of a graph, or of a body's
        self.tells_writes = True  # whether `changed` has all to which what these return is written
        self.memos = DataMemos(builder)

    def call(self, tx: Frame, op: str, target: object, args: list[Any], kwargs: Any = None, memo: bool = True) -> Any:
        """Add the call of an operator on trackers and return the tracker of its result.

        `memo` is False for functions that are not torch's own. Raises `Unsupported` where the operator has to run for real.
        """
        is_of_program = not memo and isinstance(target, _SCHEMA_CLASSES)
        packing = Packing(self.builder, exact=not memo and not is_of_program)
        packing.earlier = self.memos.earlier(target)
        fx_args, fx_kwargs = packing.pack_call(target, args, kwargs)
        if packing.floats and memo and self._is_followed(target):
            return MODELS.follow(tx, target, args, kwargs)
        ambient = self.state.key
        tensors = packing.tensors
        values = self._settle_arguments(op, target, packing, fx_args, fx_kwargs)
        made_op, called, fx_args, fx_kwargs = with_writable_names(op, target, fx_args, fx_kwargs)
        asks = self.wrappers.asks_by_node and is_asked(self.builder, tensors)
        if asks:
            made_op, called = "call_function", modes.asking(called)
        key = (target, ambient, *packing.key) if memo and packing.memorable and not asks else None
        memory = self.propagator.memo if packing.symbolic else MEMO
        if "out" in fx_kwargs and (key is None or key not in memory):
            check_out(self.propagator, op, target, fx_args, fx_kwargs, tensors, values)
        items_read = self.propagator.mode.items_read
        self.propagator.follows_warnings = memo and called is target and self.builder.scope is None
        try:
            outcome, fakes = self._propagate(made_op, called, fx_args, fx_kwargs, tensors, values, key, memory)
        except GivesWarning:
            return MODELS.follow(tx, target, args, kwargs)
        finally:
            self.propagator.follows_warnings = False
        self.memos.settle(tensors)
        if self.propagator.mode.items_read != items_read:
            numbers = MODELS.numbers(tx, target, args[op == "call_method" :], kwargs)
            if numbers is not None:  # compilers do not know the data
                return self.call(tx, op, target, [*args[: op == "call_method"], *numbers[0]], numbers[1], memo)
        if self.sizes.known is not None and self.sizes.known.note_new_numbers() and self.fakes.are_there:
            unsupported(FAKE_INPUTS, f"{getattr(target, '__name__', target)} asks for data")
        result: Any = outcome.result
        if is_of_program:
            self._meet_operator(target, tensors, result)
        if self.state.has_inference_tensors:
            _check_inference_tensors(target, tensors, outcome)
        self._note_effects(target, fx_args, fx_kwargs, values, tensors, outcome, remembered=fakes is None)
        if type(result) is ConstantResult and not outcome.changes:
            if result.value is not None or (not tensors and getattr(target, "__module__", None) in _WITHOUT_EFFECTS):
                return MODELS.constant(tx, result.value)
        if packing.scalar_types:
            fx_args, fx_kwargs = map_aggregate((fx_args, fx_kwargs), as_dtype)
        node = self._add_operator(tx, made_op, called, fx_args, fx_kwargs)
        if type(result) is ArgumentResult:
            place: Any = result.key
            given, made = (fx_args[place], args[place]) if type(place) is int else (fx_kwargs[place], kwargs[place])
            node.meta.sequence = SequenceValue(type(given), [values.get(a, a) for a in given])
        else:
            made = self._wrap_result(tx, result, node, tensors, fakes)
        if type(result) is SameResult and memo and self.builder.scope is None and self._only_returns(node, outcome):
            self.idle.append(node)
        for effect in self.on_node:
            effect.on_node(node, outcome, tensors)
        return made

    def _only_returns(self, node: Node, outcome: Propagation) -> bool:
        """Whether an operator does nothing but to return an argument. Inference tensors do not tell of a write: `inplace=True` does."""
        if torch.is_inference_mode_enabled() or self.state.has_inference_tensors:
            self.tells_writes = False
            has_flag = any(arg is True for arg in (*node.args, *node.kwargs.values()))
            if has_flag and type(node.target) is types.FunctionType:  # builtins have no `inplace`
                return False
        return not (outcome.changes or outcome.written or may_write(node.target, node.kwargs))

    def _is_followed(self, target: object) -> bool:
        """Whether a function of torch that is given a float that varies is followed: the operators that it calls take such a float, where
        the function as a whole says nothing about what it does with it."""
        is_python = type(target) is types.FunctionType and target.__module__ in _WITHOUT_EFFECTS
        return is_python and self.builder.tr.overrides is None

    def _settle_arguments(
        self, op: str, target: object, packing: Packing, fx_args: tuple[Any, ...], fx_kwargs: dict[str, Any]
    ) -> dict[Node, Any]:
        """What the nodes among the arguments stand for. Gives the call a `dtype` where the traced code has set another default, and
        breaks where the operator resizes an input or the arguments don't go together."""
        values, tensors = packing.values, packing.tensors
        if self.fakes.are_there:
            check_call(self.builder, target, tensors, fx_args)
        if packing.floats:
            if packing.bodies or is_indifferent(target, tensors, floats_at(values, fx_args, fx_kwargs)):
                values = {node: present(v) if isinstance(v, FloatValue) else v for node, v in values.items()}
            else:
                packing.memorable = False
        if self.state.has_other_default_dtype:
            dtype = needed_dtype(self.builder, op, target, fx_args, fx_kwargs, tensors, values)
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
        except GivesWarning:
            if MODELS.shows_warnings():
                raise
            self.propagator.follows_warnings = False
            return self._propagate(op, target, fx_args, fx_kwargs, tensors, values, key, memory)
        except Unsupported as error:
            error.origin = error.origin or next(filter(None, map(made_at, tensors)), None)
            if error.slug == "data-dependent-operator":
                ask(self.builder, tensors)
            if error.slug == "fake-tensor-error":
                self._check_views(tensors, error)
            asked = getattr(error.cause, "cond", None)
            if asked is not None and self.sizes.known is not None:
                if self.sizes.known.assume_elements(asked):
                    return self._propagate(op, target, fx_args, fx_kwargs, tensors, values, key, memory)
                error.context = (
                    f"{getattr(target, '__name__', target)} asks for {self.sizes.known.describe_expr(asked)}"
                )
            if self.sizes.known is not None or not self._is_captured(error.slug):
                raise
        self.sizes.needs_symbols()  # the first that data decide
        return self._propagate(op, target, fx_args, fx_kwargs, tensors, values, key, memory)

    def _is_captured(self, slug: str) -> bool:
        """Whether what an operator makes of data is a value of the graph."""
        if slug == "data-dependent-operator":
            return self.sizes.has_numbers
        return slug == "dynamic-shape-operator" and self.sizes.has_lengths

    def _add_operator(
        self, tx: Frame, op: str, target: object, fx_args: tuple[Any, ...], fx_kwargs: dict[str, Any]
    ) -> Node:
        """The node of an operator, at the program's present line. Raises the error of the cut where the graph is to end."""
        node = self.builder._create(op, target, fx_args, fx_kwargs)
        last, error = self.cut
        if error is not None and node.name == last:
            raise error
        set_meta(node, NodeMeta(self.propagator, None, tx.place()))
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
        changed = [(tensors[i], n) for i, n in written]
        if written:
            for effect in self.on_write:
                effect.on_write(target, fx_args, values, changed)
            check_overlap(self.propagator, target, fx_args, [value for value, _ in changed], tensors, values)
            self._refuse_writes(target, [value for value, _ in changed], any(v.meta.requires_grad for v in tensors))
        suspected = tensors if may_write(target, fx_kwargs) else []
        self.written += suspected
        values_changed = [value for value, _ in changed] or suspected
        self.changed += values_changed
        self.memos.forget(values_changed)
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
        self, tx: Frame, result: object, node: Node, tensors: list[TensorValue], fakes: list[Any] | None
    ) -> Any:
        """The tracker of the result of an operator, whose value its node gets."""
        made, value = self._wrap(tx, result, node, (), tensors, iter(fakes) if fakes is not None else None)
        kind = type(value)
        if kind is SequenceValue:
            node.meta.sequence = value
        elif type(result) is SameResult:
            if self.builder.scope is None or value not in self.builder.scope.lifted:  # those keep their node outside
                value.node = node
                node.meta.subject = value
        elif kind is TensorValue or kind is SymValue:
            node.meta.subject = value
        return made

    def _wrap(
        self,
        tx: Frame,
        result: Any,
        node: Node,
        path: tuple[Any, ...],
        tensors: list[TensorValue],
        fakes: Iterator[Any] | None,
    ) -> tuple[Any, Any]:
        """The tracker of a result, and its value in the graph; `path` leads to it from the result of the node."""
        kind = type(result)
        if kind is SequenceResult:
            return self._wrap_items(tx, result, node, path, tensors, fakes)
        if kind is SameResult:
            value = tensors[result.position]
            return value.tracker, value
        own, origin = (None, ("item", node, *path)) if path else (node, None)
        if kind is TensorResult:
            value = TensorValue(result.meta, own, origin, next(fakes) if fakes is not None else None)
            self._meet(value, tensors)
            self._note_inference(value, node)
            if result.base is not None:
                _join_family(tensors[result.base], value)
            return MODELS.tensor(value), value
        if kind is SymResult:
            number = SymValue(result.sym, own, origin)
            return MODELS.symbol(number), number
        return MODELS.constant(tx, result.value), result.value

    def _wrap_items(
        self,
        tx: Frame,
        result: SequenceResult,
        node: Node,
        path: tuple[Any, ...],
        tensors: list[TensorValue],
        fakes: Iterator[Any] | None,
    ) -> tuple[Any, SequenceValue]:
        items, values = [], []
        for i, item in zip(result.keys or range(len(result.items)), result.items, strict=True):
            made, value = self._wrap(tx, item, node, (*path, i), tensors, fakes)
            items.append(made)
            values.append(value)
        sequence = SequenceValue(result.type, values, result.keys)
        if result.keys is not None:
            return MODELS.mapping(tx, result.keys, items), sequence
        return MODELS.sequence(tx, result.type, items), sequence

    def _meet(self, value: TensorValue, tensors: list[TensorValue]) -> None:
        """An operator on `tensors` returns this one."""
        value.is_fake = self.fakes.are_there and result_is_fake(self.builder, tensors)
        if value.meta.live and is_wrapper(value.fake):
            self.wrappers.meet(value.fake, MODELS.meet_overrides)
            pin_parts(self.wrappers.parts, value, tensors)

    def _refuse_writes(self, target: object, tensors: list[TensorValue], has_gradients: bool) -> None:
        """Break where torch refuses to change a tensor in place: elements that share memory; for autograd, a view of a leaf, one of several
        that an operator has returned. Compilers don't."""
        name = getattr(target, "__name__", target)
        for value in tensors:
            if _repeats_elements(value.meta):
                unsupported("fake-tensor-error", f"{name} of a tensor whose elements share memory")
        if has_gradients:
            self._check_views(tensors, Unsupported("fake-tensor-error", f"{name} of one of several views"))
        if torch.is_grad_enabled() and self.builder.scope is None:
            for value in tensors:
                if value.meta.requires_grad and any(
                    v.meta.requires_grad and v.meta.is_leaf for v in value.family or ()
                ):
                    unsupported("fake-tensor-error", f"{name} of a view of a leaf that requires gradients")

    def _check_views(self, tensors: list[TensorValue], error: Unsupported) -> None:
        """End the graph before an operator that returns several views, if a later operator is refused, or would be, because it changes one
        of them."""
        if torch.is_grad_enabled() and self.builder.scope is None:
            for value in tensors:
                check_views(self.builder, value, error)

    def _refuse_detach(self, target: object, tensors: list[TensorValue]) -> None:
        """Break where torch refuses to detach a view in place: the fake of an input is none. Also where an input has gradients: compilers
        leave it its history, and what has been kept of it for gradients does not learn of the change."""
        origin = tensors[0].origin if tensors and getattr(target, "__name__", target) == "detach_" else None
        if origin is None or origin[0] != "input":
            return
        _, source, real = origin
        if tensors[0].meta.requires_grad:
            error = Unsupported("fake-tensor-error", "detach_ of an input that requires gradients")
            node = next(i.node for i in self.builder.inputs if i.node.meta.subject is tensors[0])
            if node.users:
                self.builder.end_before(next(iter(node.users)), error)
            raise error
        if not is_no_view(real):
            unsupported("fake-tensor-error", "detach_ of a view")
        self.builder.tr.guards.predicate(is_no_view, (source,), "is no view")

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

    def _keep_example(self, value: TensorValue) -> None:
        """Compilers are to see an input that becomes another view of its storage as it is when the graph begins."""
        if value.node is None:
            return
        for node in value.node.graph.find_nodes(op="placeholder"):
            # The value's own node is another one where it has been written to before.
            if getattr(node.meta, "subject", None) is value and not node.meta.get(_KEPT):
                node.meta["example_value"], node.meta[_KEPT] = self.propagator.make_fake(value.meta), True

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
                self.leaves.begins(value)
            if gains_grad and value.family is not None:
                _require_grad(value)

    def changed_by(self, value: TensorValue, node: Node, i: int) -> None:
        """A call has changed a tensor in place and returns it as its item number `i`."""
        if self.builder.scope is None or value not in self.builder.scope.lifted:
            value.node = item_node(self.builder, value, node, i)

    def call_with_results(
        self,
        tx: Frame,
        target: object,
        args: list[Any],
        kwargs: dict[str, Any],
        fakes: list[Any],
        kin: Sequence[Kin | None] = (),
    ) -> list[Any]:
        """Add the call of an operator that returns a tuple of tensors, ints, or None, whose fakes are known. Arguments are nodes. `kin`:
        what results share memory with; all others are new."""
        node = self.builder._create("call_function", target, tuple(args), kwargs)
        set_meta(node, NodeMeta(self.propagator, None, tx.place()))
        values: list[Any] = []
        tensors = tensors_of((args, kwargs)) if self.fakes.are_there else []
        check_call(self.builder, target, tensors, ())
        for i, fake in enumerate(fakes):
            origin = ("item", node, i)
            one = kin[i] if kin else None
            other = one and (values[one.other] if isinstance(one.other, int) else one.other)
            if one is not None and one.is_same:
                values.append(other)
            elif isinstance(fake, torch.SymInt):
                values.append(SymValue(fake, None, origin))
            elif fake is None or type(fake) is int:
                values.append(fake)
            else:
                value = TensorValue(meta_of_fake(fake), None, origin, fake)
                value.is_fake = self.fakes.are_there and result_is_fake(self.builder, tensors)
                self._note_inference(value, node)
                if other is not None:
                    _join_family(other, value)
                values.append(value)
        node.meta.sequence = SequenceValue(tuple, values)
        return [self._result(tx, value) for value in values]

    def _note_inference(self, value: TensorValue, node: Node) -> None:
        """A tensor made in an inference mode is of that mode, unless a function transform leaves the mode to make it."""
        if torch.is_inference_mode_enabled():
            self.state.has_inference_tensors = True
            value.is_inference = node.target not in TRANSFORMS or value.fake is None or value.fake.is_inference()

    @staticmethod
    def _result(tx: Frame, value: object) -> Any:
        """The model of a result of an operator."""
        if type(value) is TensorValue:
            return MODELS.tensor(value) if value.tracker is None else value.tracker
        return MODELS.symbol(value) if type(value) is SymValue else MODELS.constant(tx, value)


# -- operators under a default dtype that the traced code has set: compilers keep operators without the dtype that they had by default


def needed_dtype(
    builder: GraphBuilder,
    op: str,
    target: object,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: list[TensorValue],
    values: dict[Node, Any],
) -> torch.dtype | None:
    """The dtype to give to the call, None if it needs none. Breaks where the default dtype was set if the call can't do without."""
    computes_in_default = _converts(args, kwargs, tensors, values)
    if may_write(target, kwargs) or computes_in_default:
        return builder.state.refuse_default_dtype() if computes_in_default else None

    def result(**more: Any) -> Any:
        given = builder.propagator.propagate(op, target, args, {**kwargs, **more}, tensors, values, None, {})
        return given[0].result

    here = result()
    with builder.state.first_default_dtype():
        try:
            if _dtypes(result()) == _dtypes(here):
                return None
            if type(here) is TensorResult and kwargs.get("dtype") is None:
                dtype = here.meta.dtype
                if _dtypes(result(dtype=dtype)) == [dtype]:
                    return dtype
        except Unsupported:
            pass  # it has no such argument
    return builder.state.refuse_default_dtype()


def _converts(
    args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[TensorValue], values: dict[Node, Any]
) -> bool:
    """Whether integers in tensors meet floats: they are converted to the default dtype, whatever that of the result is."""
    if not tensors or any(t.meta.dtype.is_floating_point or t.meta.dtype.is_complex for t in tensors):
        return False
    return any(
        isinstance(value, float | complex | FloatValue) for value in (*tree_iter((args, kwargs)), *values.values())
    )


def _dtypes(result: Any) -> list[Any]:
    if type(result) is TensorResult:
        return [result.meta.dtype]
    if type(result) is SequenceResult:
        return [dtype for item in result.items for dtype in _dtypes(item)]
    return [result.value] if type(result) is ConstantResult else []


# -- effects on arguments


_WITHOUT_EFFECTS = frozenset({"torch.nn.functional", "torch.functional"})
"""Modules whose functions do nothing without tensors but look at their arguments: a call that returns None need not be in the graph."""

_SCHEMA_CLASSES = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
"""Operators whose arguments are of the types that their schema names."""


def _has_gradients(result: Any) -> bool:
    return type(result) is not TensorResult or result.meta.requires_grad


def _check_inference_tensors(target: object, tensors: list[TensorValue], outcome: Propagation) -> None:
    """Break where torch may refuse what is done with an inference tensor: it is changed, or an operator with gradients may save it.
    What torch refuses to change has been changed by then."""
    if torch.is_inference_mode_enabled():
        return
    changed = [tensors[i] for i, _ in (*outcome.changes, *outcome.written)]
    has_gradients = torch.is_grad_enabled() and any(t.meta.requires_grad for t in tensors)
    for value in tensors if has_gradients else changed:
        if value.is_inference or any(v.is_inference for v in value.family or ()):
            unsupported(
                "grad-mode", f"{getattr(target, '__name__', target)} of an inference tensor, outside of the mode"
            )


def _repeats_elements(meta: Any) -> bool:
    """Whether a tensor has an element at several indices, or may have for other data. Sparse ones have no strides. A stride that is
    computed from sizes that data decide is 0 only where the tensor has no elements."""
    if meta.layout is not torch.strided:
        return False
    if meta.live and any(type(n) is torch.SymInt for n in (*meta.shape, *meta.stride)):
        shapes = sys.modules["torch.fx.experimental.symbolic_shapes"]
        of_sizes = shapes.free_unbacked_symbols(meta.shape)
        return any(
            (not shapes.free_unbacked_symbols(step) <= of_sizes or shapes.guard_or_false(step == 0))
            and shapes.guard_or_true(n > 1)
            for n, step in zip(meta.shape, meta.stride, strict=True)
        )
    return any(step == 0 and n > 1 for n, step in zip(meta.shape, meta.stride, strict=True))


def _join_family(base: TensorValue, view: TensorValue) -> None:
    if base.family is None:
        base.family = [base]
    base.family.append(view)
    view.family = base.family


def _require_grad(value: TensorValue) -> None:
    """A write to one member gave all views of the storage a gradient."""
    for member in value.family or ():
        if member is not value and member.meta.interned and not member.meta.requires_grad:
            member.meta = member.meta.replace(requires_grad=True, is_leaf=False)
            member.fake = None
