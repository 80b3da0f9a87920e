"""`torch.autograd.Function`.

Input: calls of `Function.apply`. Output: the call of `forward` where no gradient will be asked for, else one node with `forward` and
`backward` as bodies.
Invariant: `backward` is followed when `forward` is, with gradients like the outputs; what it reads of `ctx` is what `forward` left there.
Mirrors `torch/csrc/autograd/custom_function.cpp` and `torch/autograd/function.py`.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction, FunctionMeta

from ..exc import unsupported
from ..graph import functional
from ..graph.builder import is_of_an_input
from ..polyfills.torch_autograd import Context
from .base import VariableTracker
from .classes import NewTypeVariable, own_attribute
from .constant import NONE, ConstantVariable, is_none
from .dispatch import builtin
from .native import emit_call
from .tensor import TensorVariable
from .torch_body import BodyVariable, Captured, ValueVariable, constants, cotangent, follow, union, whole
from .tuple import TupleVariable

SLUG = "autograd-function"
_SET_GRAD = torch._C._set_grad_enabled


def _needs_grad(vt: VariableTracker) -> bool:
    return isinstance(vt, TensorVariable) and vt.proxy.meta.requires_grad


@builtin(torch.autograd.Function.apply.__func__)
def function_apply(tx: Any, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """`Function.apply`."""
    grad = torch.is_grad_enabled()
    if grad and any(map(_needs_grad, args)):
        return apply_with_gradients(tx, cls, list(args), kwargs)
    context = _new_context(tx, [False] * len(args))
    if grad:
        tx.tr.state.write(_SET_GRAD, (False,))
    try:
        return _forward(tx, cls, context, list(args), kwargs)
    finally:
        if grad and tx.tr.state.final is None:
            tx.tr.state.write(_SET_GRAD, (True,))


def _new_context(tx: Any, needs_input_grad: list[bool]) -> VariableTracker:
    flags = TupleVariable([ConstantVariable(flag) for flag in needs_input_grad])
    return tx.call(tx.tr.build_constant_object(Context), [flags])


def _forward(tx: Any, cls: Any, context: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
    forward = cls.tp_getattro(tx, "forward")
    if cls.as_python_constant().setup_context is torch.autograd.Function.setup_context:
        return tx.call(forward, [context, *args], kwargs)
    result = tx.call(forward, args, kwargs)
    tx.call(cls.tp_getattro(tx, "setup_context"), [context, TupleVariable(args), result])
    return result


@whole
def apply_with_gradients(tx: Any, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
    """One node: the bodies of `forward` and `backward`, and the tensors that they use."""
    real, state, graph = cls.as_python_constant(), tx.tr.state, tx.tr.graph
    if real.backward is torch.autograd.Function.backward:
        unsupported(SLUG, f"{cls.describe()} has no backward")
    if graph.scope is not None and graph.scope.is_transformed:
        unsupported(SLUG, f"{cls.describe()} inside a function transform")
    with state.grad_mode(False):
        context = _new_context(tx, [_needs_grad(a) for a in args])
        forward = follow(tx, lambda: _forward(tx, cls, context, args, kwargs), [*args, *kwargs.values()])
        outputs = forward.leaves
        not_differentiable = _positions(tx, context, "not_differentiable", outputs)
        absent = _absent(tx, cls, context, outputs, not_differentiable)
        backwards = [_follow_backward(tx, cls, context, outputs, none, args) for none in absent or [()]]
    tensors = [a for a in dict.fromkeys(args) if isinstance(a, TensorVariable)]
    gradients = [_gradients(tx, backward, args, tensors) for backward in backwards]
    saved = union(backwards)
    with forward.body:
        for value in saved:
            graph.node(value)
    values = list(dict.fromkeys([*(t.proxy for t in tensors), *forward.body.lifted]))
    dirty = [values.index(t.proxy) for t in _dirty(tx, cls, context, tensors)]
    forward_module = forward.module(values, [*outputs, *map(ValueVariable, saved)])
    with state.grad_mode(False):  # that arguments are changed need not be marked
        forward.body.run(forward_module, values, [values[i] for i in dirty], [t.proxy for t in tensors])
    head = [BodyVariable(forward_module)]
    bodies = [_finish_backward(graph, b, g, saved) for b, g in zip(backwards, gradients, strict=True)]
    head.append(TupleVariable(bodies) if absent else bodies[0])
    copied = [i for i in dirty if is_of_an_input(values[i])]
    head.extend(
        constants(_name(real), len(outputs), tuple(not_differentiable), tuple(dirty), tuple(copied), tuple(absent))
    )
    results = graph.call(
        tx, "call_function", functional.apply_function, [*head, *map(ValueVariable, values)], memo=False
    )
    call = graph.last_node
    for i, output in enumerate(outputs):
        if output.proxy in values and values.index(output.proxy) in dirty:
            graph.changed_by(output.proxy, call, i)
    return forward.rebuild(list(results.items))


def _name(cls: type) -> str:
    """The name that the nodes of autograd are called by."""
    node = getattr(cls, "_backward_cls", None)
    return cls.__name__ if node is None else node.__name__.removesuffix("Backward")


def _positions(tx: Any, context: Any, mark: str, outputs: list[Any]) -> list[int]:
    """The positions of the outputs that `forward` marked."""
    marked = tx.tr.unpack(tx, context.tp_getattro(tx, mark))
    return [i for i, output in enumerate(outputs) if any(output is m for m in marked)]


def _dirty(tx: Any, cls: Any, context: Any, tensors: list[Any]) -> list[Any]:
    """The arguments that `forward` marked as changed."""
    marked = tx.tr.unpack(tx, context.tp_getattro(tx, "marked_dirty"))
    if not all(any(m is t for t in tensors) for m in marked):
        unsupported(SLUG, f"{cls.describe()} marks something else than an input as changed")
    return [t for t in tensors if any(t is m for m in marked)]


def _absent(
    tx: Any, cls: Any, context: Any, outputs: list[Any], not_differentiable: list[int]
) -> list[tuple[int, ...]]:
    """Where results that nothing used have no gradient: for each `backward` that there may be, which of its arguments are None. Some
    argument is a gradient."""
    if context.tp_getattro(tx, "materializes").as_python_constant():
        return []
    others = [i for i in range(len(outputs)) if i not in not_differentiable]
    if len(others) > MAX_OPTIONAL:
        unsupported(SLUG, f"{cls.describe()} wants gradients that may be None")
    some = [c for n in range(max(len(others), 1)) for c in itertools.combinations(others, n)]
    return [tuple(sorted([*not_differentiable, *none])) for none in some]


MAX_OPTIONAL = 3
"""Of so many results may the gradients be None: `backward` is followed once for each combination."""


def _follow_backward(
    tx: Any, cls: Any, context: Any, outputs: list[Any], absent: tuple[int, ...], args: list[Any]
) -> Captured:
    """The body of `backward`, which gets None as the gradients of the outputs `absent`."""
    graph = tx.tr.graph
    body = graph.open_body()
    with body:
        grads: list[Any] = [cotangent(body, output) for output in outputs]
    grads = [NONE if i in absent else grad for i, grad in enumerate(grads)]
    function = cls.tp_getattro(tx, "backward")
    return follow(tx, lambda: _as_tuple(tx.call(function, [context, *grads])), [context, *args], body)


def _finish_backward(graph: Any, backward: Captured, gradients: list[Any], saved: list[Any]) -> BodyVariable:
    """The body of `backward` as a module that takes the outputs' gradients and `saved`."""
    with backward.body:
        nodes = [None if g is None else graph.node(g.proxy) for g in gradients]
    module = backward.body.finish(nodes, saved)
    backward.body.run(module, saved)
    return BodyVariable(module)


def _as_tuple(result: VariableTracker) -> VariableTracker:
    return result if isinstance(result, TupleVariable) else TupleVariable([result])


def _gradients(tx: Any, backward: Captured, args: list[Any], tensors: list[Any]) -> list[Any]:
    """The gradient of each tensor, None if it has none: the sum over the arguments which it is."""
    given = list(backward.result.items)
    if len(given) < len(args) or not all(map(is_none, given[len(args) :])):
        unsupported(SLUG, "backward returns another number of gradients than forward has arguments")
    gradients: dict[Any, Any] = dict.fromkeys(tensors)
    with backward.body, tx.tr.state.grad_mode(False):
        for arg, gradient in zip(args, given, strict=False):
            if not isinstance(gradient, TensorVariable) or not _needs_grad(arg):
                continue
            known = gradients[arg]
            if known is not None:
                gradient = tx.tr.graph.call(tx, "call_function", operator.add, [known, gradient])
            gradients[arg] = gradient
    return list(gradients.values())


# -- classes made by the traced code


class BackwardClassVariable(VariableTracker):
    """The class of the backward nodes of an `autograd.Function` that the traced code makes. It has a number that counts such classes,
    so it is made when and if the function's class is, and nobody can look into it before."""

    source = None

    def __init__(self, owner: NewTypeVariable) -> None:
        self.owner = owner

    def python_type(self) -> type:
        return type(BackwardCFunction)

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        return unsupported(SLUG, f"{self.owner.describe()}._backward_cls")

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return self.tp_getattro(tx, "__call__")

    def children(self) -> Any:
        return (self.owner,)

    def emit_new(self, cg: Any) -> None:
        emit_call(cg, own_attribute, self.owner, ConstantVariable("_backward_cls"))


@builtin(FunctionMeta.__init__)
def init_function_class(tx: Any, cls: Any, name: Any, bases: Any, attrs: Any) -> None:
    """`FunctionMeta.__init__`."""
    if not isinstance(cls, NewTypeVariable):
        unsupported(SLUG, f"{cls.describe()} is initialised again")
    backward = BackwardClassVariable(cls)
    cls.put(tx, "_backward_cls", backward)
    cls.untouched["_backward_cls"] = backward
    cls.initializers.append(_make_backward_class)


def _make_backward_class(cls: type) -> None:
    FunctionMeta.__init__(cls, cls.__name__, cls.__bases__, {})
