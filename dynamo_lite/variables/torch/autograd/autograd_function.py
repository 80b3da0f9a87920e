"""`torch.autograd.Function`.

Input: calls of `Function.apply`. Output: the call of `forward` where no gradient will be asked for, else one node with `forward` and
`backward` as bodies.
Invariant: `backward` is followed when `forward` is, with gradients like the outputs; it reads from `ctx` the values that `forward` stored
there.
Mirrors `torch/csrc/autograd/custom_function.cpp` and `torch/autograd/function.py`.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import FunctionMeta
from torch.fx import GraphModule

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.bodies import Body
from dynamo_lite.graph.core import functional
from dynamo_lite.graph.core.functional import transforms_around
from dynamo_lite.graph.core.storages import is_of_an_input
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.markers import is_allowed_in_graph
from dynamo_lite.polyfills.torch_autograd import Context, note_unpacked
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import builtin, refuse
from dynamo_lite.variables.torch.allow_in_graph import call_allowed
from dynamo_lite.variables.torch.body import (
    BodyPart,
    BodyVariable,
    CapturedBody,
    Flattening,
    ValueVariable,
    constants,
    cotangent,
    follow,
    followed,
    union,
    whole,
)
from dynamo_lite.variables.torch.tensor import TensorVariable

from .late_bodies import LateBody, follow_later

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

SLUG = "autograd-function"
_SET_GRAD = torch._C._set_grad_enabled
_Function = torch.autograd.Function
_ONCE = torch.autograd.function.once_differentiable(print).__code__
"""The code of what the decorator makes of any function."""


@builtin(note_unpacked)
def unpacks(tx: Frame, context: VariableTracker) -> VariableTracker:
    """`ctx.saved_tensors` is read."""
    if tx.tr.graph.scope is not None:
        tx.tr.graph.scope.note_unpacked(context)
    return NONE


def _needs_grad(vt: VariableTracker) -> bool:
    return isinstance(vt, TensorVariable) and vt.proxy.meta.requires_grad


@builtin(_Function.apply.__func__)
def function_apply(
    tx: Frame, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    """`Function.apply`."""
    if cls.is_python_constant() and is_allowed_in_graph(cls.as_python_constant()):
        return call_allowed(tx, functional.application(cls.as_python_constant()), list(args), kwargs)
    call = ApplyCall(tx, cls, list(args), kwargs)
    needs = any(map(_needs_grad, call.inputs))
    grad = torch.is_grad_enabled()
    if tx.tr.state.records(needs):
        return apply_with_gradients(tx, call)
    context = call.new_context()
    if grad:
        tx.tr.state.write(_SET_GRAD, (False,))
    try:
        return call.returned(context, call.forward(context))
    finally:
        if grad and tx.tr.state.final is None:
            tx.tr.state.write(_SET_GRAD, (True,))


class ApplyCall:
    """A call of `apply`."""

    def __init__(self, tx: Frame, cls: VariableTracker, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.tx = tx
        self.cls = cls
        self.real = cls.as_python_constant()
        self.has_setup = self.real.setup_context is not _Function.setup_context
        self.transforms = transforms_around(tx.tr.graph)
        if self.transforms:
            self._check_transforms()
        self.args, self.kwargs = self._with_defaults(args, kwargs) if self.has_setup else (args, kwargs)

    @property
    def inputs(self) -> list[VariableTracker]:
        """The inputs that `needs_input_grad` and the results of `backward` refer to."""
        return [*self.args, *self.kwargs.values()]

    @property
    def is_once_differentiable(self) -> bool:
        """Whether `backward` is what torch's decorator of this name makes."""
        return getattr(self.real.backward, "__code__", None) is _ONCE

    def _check_transforms(self) -> None:
        real, what = self.real, f"{self.cls.describe()} inside of"
        if not self.has_setup:
            unsupported(SLUG, f"{what} a function transform, without setup_context")
        if "vmap" in self.transforms and not real.generate_vmap_rule:
            rule = "a rule of its own, which gets the tensors of all examples"
            unsupported(SLUG, f"{what} vmap with {'no rule' if real.vmap is _Function.vmap else rule}")
        if "jvp" in self.transforms and ("vmap" in self.transforms or real.jvp is _Function.jvp):
            unsupported(SLUG, f"{what} forward-mode differentiation")

    def _with_defaults(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as `forward` gets them, where `setup_context` is given them as well."""
        function = self.real.forward
        if not issubclass(type(function), types.FunctionType):
            unsupported(SLUG, f"{self.cls.describe()}, whose forward is no function that existed before")
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except TypeError as error:
            self.tx.raises_like(error)
        given = set(bound.arguments)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if name not in given and not issubclass(type(value), (tuple, dict)):
                bound.arguments[name] = self.tx.tr.wrap_new(value) or unsupported(SLUG, f"the default {name}")
        return list(bound.args), bound.kwargs

    def new_context(self) -> VariableTracker:
        """The `ctx` of this call."""
        flags = TupleVariable([ConstantVariable(_needs_grad(value)) for value in self.inputs])  # in any grad mode
        return self.tx.call(self.tx.tr.build_constant_object(Context), [flags])

    def forward(self, context: VariableTracker) -> VariableTracker:
        """Call `forward`, and `setup_context` if there is one."""
        tx, function = self.tx, self.cls.tp_getattro(self.tx, "forward")
        if not self.has_setup:
            return tx.call(function, [context, *self.args], self.kwargs)
        result = tx.call(function, self.args, self.kwargs)
        tx.call(self.cls.tp_getattro(tx, "setup_context"), [context, TupleVariable(self.inputs), result])
        return result

    def returned(self, context: VariableTracker, result: VariableTracker) -> VariableTracker:
        """The result of `apply` where nothing requires gradients."""
        return applied(self.tx, result, self.inputs, self.marked(context, "dirty_tensors"))

    def marked(self, context: VariableTracker, mark: str) -> list[VariableTracker]:
        """The arguments and results that `forward` marked."""
        marked = context.tp_getattro(self.tx, mark)
        return [] if is_none(marked) else self.tx.tr.unpack(self.tx, marked)


def applied(
    tx: Frame, result: VariableTracker, inputs: list[VariableTracker], dirty: list[VariableTracker]
) -> VariableTracker:
    """What `apply` makes of the result of `forward` without gradients: a tuple of any class becomes one, an argument a view of it. Torch
    detaches any other tensor that needs gradients: a break."""

    def item(value: VariableTracker) -> VariableTracker:
        if not isinstance(value, TensorVariable) or any(value is d for d in dirty):
            return value
        if any(value is v for v in inputs):
            return tx.call(tx.tr.build_constant_object(torch.Tensor.view_as), [value, value])
        if value.proxy.meta.requires_grad:
            unsupported(SLUG, "a result without gradients that is a tensor from outside with gradients")
        return value

    if not isinstance(result, TupleVariable):
        return item(result)
    return TupleVariable([item(value) for value in result.items])


class Outputs(Flattening):
    """The result of `forward`: its tensors, which take part in differentiation, and those inside of other objects, which do not."""

    def __init__(self, tx: Frame, body: Body, result: VariableTracker, is_outside: Any) -> None:
        self.tensors: list[VariableTracker] = []
        self.inner: list[VariableTracker] = []
        self.made: dict[VariableTracker, VariableTracker] = {}
        super().__init__(tx, self.inner, is_outside=is_outside)
        self.body = body
        self.is_tuple = isinstance(result, TupleVariable)
        self.items = result.items if self.is_tuple else [result]
        self.parts = [None if isinstance(i, TensorVariable) else self.of(i) for i in self.items]
        self.tensors = [i for i in self.items if isinstance(i, TensorVariable)]

    def of(self, vt: VariableTracker) -> BodyPart:
        if not isinstance(vt, TensorVariable):
            return super().of(vt)
        if not self.body.is_made_inside(vt.proxy):
            return BodyPart(lambda items: vt, None)
        if all(vt is not known for known in (*self.items, *self.inner)):
            self.inner.append(vt)
        return BodyPart(lambda items: self.made[vt], torch.Tensor)

    @property
    def leaves_in_order(self) -> list[VariableTracker]:
        return [*self.tensors, *self.inner]

    def rebuild(self, results: list[VariableTracker]) -> VariableTracker:
        """The result of `apply`, made of the results of the node. A tensor that `forward` has made and returns several times stays one,
        with the gradient of the last place; of an argument each place has a view."""
        self.made = {leaf: r for leaf, r in zip(self.leaves_in_order, results, strict=True) if self._is_own(leaf)}
        own, made = iter(results), []
        for vt, part in zip(self.items, self.parts, strict=True):
            if part is None:
                result = next(own)  # each place has one, also of a tensor that stands at several
                made.append(self.made.get(vt, result))
            else:
                made.append(part(iter(())))  # tensors inside are found in `made`
        return TupleVariable(made) if self.is_tuple else made[0]

    def _is_own(self, vt: VariableTracker) -> bool:
        return self.body.is_made_inside(vt.proxy)


@whole
def apply_with_gradients(tx: Frame, call: ApplyCall) -> VariableTracker:
    """One node: the bodies of `forward` and `backward`, and the tensors that they use."""
    if call.real.backward is _Function.backward:
        unsupported(SLUG, f"{call.cls.describe()} has no backward")
    state = tx.tr.state
    context = call.new_context()
    with state.grad_mode(False):
        body, result, outside = followed(tx, lambda: call.forward(context), call.inputs, runs_once=not call.transforms)
        outputs = Outputs(tx, body, result, outside.has)
        marked = _Marks(tx, call, context, outputs)

        def bodies(tx: Frame) -> list[CapturedBody]:
            return [_follow_backward(tx, call, context, outputs, none) for none in marked.absent or [()]]

        uses = state.grad_mode_uses
        late = LateBody(tx.tr, bodies, SLUG, f"the backward of {call.cls.describe()}")
        backwards = late.followed(tx)
        hangs_on_mode = state.grad_mode_uses > uses and not call.is_once_differentiable
        if hangs_on_mode and call.transforms:
            unsupported(SLUG, f"{call.cls.describe()} asks for the grad mode inside of a function transform")
        if hangs_on_mode:  # it may do something else under `create_graph`
            with state.grad_mode(True):
                backwards += follow_later(tx, bodies)
        marked.saved = _saved(call, context, backwards)
        pushes = [_follow_jvp(tx, call, context, outputs)] if "jvp" in call.transforms else []
    result = _Node(tx, call, body, outputs, marked, backwards, pushes).add()
    late.belongs_to(tx.tr, tx.tr.graph.last_node)
    return result


class _Marks:
    """The marks of `forward`, by position."""

    def __init__(self, tx: Frame, call: ApplyCall, context: Any, outputs: Outputs) -> None:
        tensors = outputs.tensors
        constant = call.marked(context, "non_differentiable")
        self.not_differentiable = [i for i, t in enumerate(tensors) if any(t is m for m in constant)]
        self.not_differentiable += range(len(tensors), len(outputs.leaves_in_order))
        self.dirty = call.marked(context, "dirty_tensors")
        if not all(any(d is t for t in call.inputs) for d in self.dirty):
            unsupported(SLUG, f"{call.cls.describe()} marks something else than an input as changed")
        if not all(any(d is t for t in tensors) for d in self.dirty):
            unsupported(SLUG, f"{call.cls.describe()} does not return what it marks as changed")
        if self.dirty and call.transforms:
            unsupported(SLUG, f"{call.cls.describe()} changes arguments inside of a function transform")
        self.absent = self._absent(tx, call, context, len(outputs.leaves_in_order))
        self.saved: list[Any] | None = None  # what `backward` unpacks, None if it does not

    def _absent(self, tx: Frame, call: ApplyCall, context: Any, n: int) -> list[tuple[int, ...]]:
        """If results that nothing used get no gradient: for each possible call of `backward`, which of its arguments are None. At least one
        argument is a gradient."""
        if context.tp_getattro(tx, "materialize_grads").as_python_constant():
            return []
        others = [i for i in range(n) if i not in self.not_differentiable]
        if len(others) > MAX_OPTIONAL or call.transforms:
            unsupported(SLUG, f"{call.cls.describe()} wants gradients that may be None")
        some = [c for k in range(max(len(others), 1)) for c in itertools.combinations(others, k)]
        return [tuple(sorted([*self.not_differentiable, *none])) for none in some]


def _saved(call: ApplyCall, context: VariableTracker, backwards: list[CapturedBody]) -> list[Any] | None:
    """The tensors that `save_for_backward` got, if `backward` unpacks them: torch then examines each of them, used or not."""
    saved = call.marked(context, "to_save")
    if not all(is_none(value) or isinstance(value, TensorVariable) for value in saved):
        unsupported(SLUG, f"{call.cls.describe()} saves something else than tensors")
    if not any(context is c for backward in backwards for c in backward.body.unpacked):
        return None
    return list(dict.fromkeys(value.proxy for value in saved if isinstance(value, TensorVariable)))


MAX_OPTIONAL = 3
"""Of so many results may the gradients be None: `backward` is followed once for each combination."""


class _Node:
    """The node of a call. `pushes`: the body of `jvp`, where it is needed."""

    def __init__(
        self,
        tx: Frame,
        call: ApplyCall,
        body: Body,
        outputs: Outputs,
        marks: _Marks,
        backwards: list[CapturedBody],
        pushes: list[CapturedBody],
    ) -> None:
        self.tx = tx
        self.call = call
        self.body = body
        self.outputs = outputs
        self.marks = marks
        self.backwards = backwards
        self.pushes = pushes
        graph = tx.tr.graph
        self.tensors = [a for a in dict.fromkeys(call.inputs) if isinstance(a, TensorVariable)]
        self.saved = list(dict.fromkeys([*(marks.saved or ()), *union([*backwards, *pushes])]))
        with body:
            for value in [*self.saved, *(leaf.proxy for leaf in outputs.leaves_in_order)]:
                graph.node(value)
        self.values = list(dict.fromkeys([*(t.proxy for t in self.tensors), *body.lifted]))

    def add(self) -> VariableTracker:
        """Add the node, and return the result of `apply`."""
        tx, values, outputs = self.tx, self.values, self.outputs
        graph, leaves = tx.tr.graph, outputs.leaves_in_order
        dirty = [values.index(t.proxy) for t in self.tensors if any(t is d for d in self.marks.dirty)]
        gradients = [_gradients(tx, backward, self.call.inputs, self.tensors) for backward in self.backwards]
        with self.body:
            nodes = [graph.node(leaf.proxy) for leaf in leaves] + [graph.node(value) for value in self.saved]
        module = self.body.finish(nodes, values)
        with tx.tr.state.grad_mode(False):  # that arguments are changed need not be marked
            self.body.run(module, values, [values[i] for i in dirty], [t.proxy for t in self.tensors])
        backwards = [_finish(graph, b, g, self.saved) for b, g in zip(self.backwards, gradients, strict=True)]
        add = self._transformable if self.call.transforms else self._plain
        results = add(module, backwards, dirty)
        call = graph.last_node
        for i, output in enumerate(leaves):
            if output.proxy in values and values.index(output.proxy) in dirty:
                graph.operators.changed_by(output.proxy, call, i)
        return outputs.rebuild(list(results.items))

    def _plain(self, module: GraphModule, backwards: list[BodyVariable], dirty: list[int]) -> Any:
        marks, values = self.marks, self.values
        bodies = TupleVariable(backwards) if len(backwards) > 1 or marks.absent else backwards[0]
        copied = [i for i in dirty if is_of_an_input(values[i])]
        lists = (tuple(marks.not_differentiable), tuple(dirty), tuple(copied), tuple(marks.absent))
        options = (*lists, self.call.is_once_differentiable, None if marks.saved is None else len(marks.saved))
        n = len(self.outputs.leaves_in_order)
        head = [BodyVariable(module), bodies, *constants(_name(self.call.real), n, *options)]
        return self._call(functional.apply_function, head)

    def _transformable(self, module: GraphModule, backwards: list[BodyVariable], dirty: list[int]) -> Any:
        """The same for a body that a transform calls: there the class says how it is transformed."""
        leaves = [leaf.proxy for leaf in self.outputs.leaves_in_order]
        sources = []
        for value in self.saved:
            if not isinstance(value, TensorValue):
                unsupported(SLUG, f"{self.call.cls.describe()} keeps a number inside of a function transform")
            kind, known = ("input", self.values) if value in self.values else ("output", leaves)
            sources.append((kind, known.index(value)) if value in known else ("extra", 0))
        graph = self.tx.tr.graph
        push = [_finish(graph, p, list(p.result.items), self.saved) for p in self.pushes]
        positions = [self.values.index(t.proxy) for t in self.tensors]
        n_saved = None if self.marks.saved is None else len(self.marks.saved)
        if self.pushes or "vmap" in self.call.transforms:  # tensors of one level as attributes are of no use
            n_saved = len(self.saved)
        options = (len(leaves), tuple(self.marks.not_differentiable), tuple(sources), n_saved, tuple(positions))
        rule = bool(self.call.real.generate_vmap_rule)
        head = [BodyVariable(module), backwards[0], TupleVariable(push)]
        head.extend(constants(_name(self.call.real), *options, rule))
        return self._call(functional.apply_transformable, head)

    def _call(self, function: object, head: list[Any]) -> Any:
        args = [*head, *map(ValueVariable, self.values)]
        return self.tx.tr.graph.call(self.tx, "call_function", function, args, memo=False)


def _name(cls: type) -> str:
    """The name that the nodes of autograd are called by."""
    node = getattr(cls, "_backward_cls", None)
    return node.__name__.removesuffix("Backward") if isinstance(node, type) else cls.__name__


def _follow_backward(
    tx: Frame, call: ApplyCall, context: object, outputs: Outputs, absent: tuple[int, ...]
) -> CapturedBody:
    """The body of `backward`, which gets None as the gradient of each output in `absent` and of each object that is no tensor."""
    body = tx.tr.graph.open_body()
    with body:
        grads: list[Any] = [cotangent(body, output) for output in outputs.leaves_in_order]
    given = iter([NONE if i in absent else grad for i, grad in enumerate(grads)])
    args = [next(given) if part is None else NONE for part in outputs.parts]
    if not any(map(_is_differentiable, outputs.tensors)):  # nothing calls it
        return follow(tx, lambda: TupleVariable([NONE] * len(call.inputs)), [], body)
    function = call.cls.tp_getattro(tx, "backward")
    return follow(tx, lambda: _as_tuple(tx.call(function, [context, *args])), [context, *call.inputs], body)


def _is_differentiable(vt: VariableTracker) -> bool:
    dtype = vt.proxy.meta.dtype
    return dtype.is_floating_point or dtype.is_complex


def _follow_jvp(tx: Frame, call: ApplyCall, context: Any, outputs: Outputs) -> CapturedBody:
    """The body of `jvp`, which gets tangents of all tensors among the inputs."""
    body = tx.tr.graph.open_body()
    known = dict.fromkeys([a for a in call.inputs if isinstance(a, TensorVariable)])
    with body:
        for tensor in known:
            known[tensor] = cotangent(body, tensor)
    args = [known[a] if isinstance(a, TensorVariable) else NONE for a in call.inputs]
    function = call.cls.tp_getattro(tx, "jvp")
    saved = context.tp_getattro(tx, "to_save")
    context.tp_setattro(tx, "to_save", context.tp_getattro(tx, "saved_for_forward"))
    captured = follow(tx, lambda: _as_tuple(tx.call(function, [context, *args])), [context, *call.inputs], body)
    context.tp_setattro(tx, "to_save", saved)
    if len(captured.leaves) != len(outputs.tensors) or len(captured.result.items) != len(outputs.items):
        unsupported(SLUG, "jvp returns another number of tangents than forward has results")
    return captured


def _finish(graph: Any, captured: CapturedBody, results: list[Any], saved: list[Any]) -> BodyVariable:
    """The body of `backward` or `jvp` as a module that takes gradients or tangents, and `saved`."""
    with captured.body:
        nodes = [None if r is None or is_none(r) else graph.node(r.proxy) for r in results]
    module = captured.body.finish(nodes, saved)
    captured.body.run(module, saved)
    return BodyVariable(module)


def _as_tuple(result: VariableTracker) -> VariableTracker:
    return result if isinstance(result, TupleVariable) else TupleVariable([result])


def _gradients(tx: Frame, backward: CapturedBody, inputs: list[Any], tensors: list[Any]) -> list[Any]:
    """The gradient of each tensor, None if it has none: the sum over the inputs which it is."""
    given = list(backward.result.items)
    if len(given) < len(inputs) or not all(map(is_none, given[len(inputs) :])):
        unsupported(SLUG, "backward returns another number of gradients than forward has arguments")
    if not all(isinstance(gradient, TensorVariable) or is_none(gradient) for gradient in given):
        unsupported(SLUG, "backward returns something else than tensors and None")
    gradients: dict[Any, Any] = dict.fromkeys(tensors)
    with backward.body, tx.tr.state.grad_mode(False):
        for arg, gradient in zip(inputs, given, strict=False):
            if not isinstance(gradient, TensorVariable) or not _needs_grad(arg):
                continue
            known = gradients[arg]
            if known is not None:
                gradient = tx.tr.graph.call(tx, "call_function", operator.add, [known, gradient])
            gradients[arg] = gradient
    return list(gradients.values())


refuse(SLUG, FunctionMeta.__init__)
