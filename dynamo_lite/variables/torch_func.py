"""Function transforms: `torch.func`.

Input: calls of `vmap`, `grad`, `jvp`, `vjp`, `jacrev`, `jacfwd`, or of what they return. Output: one graph node each, a call of one of
`graph.functional`'s functions with the transformed function as its body.
Invariant: that of `torch_body`.
Mirrors `torch/_functorch/apis.py`, `eager_transforms.py` and `vmap.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import TreeSpec, _broadcast_to_and_flatten

from ..exc import unsupported
from ..graph import functional
from ..graph.bodies import BREAK
from ..graph.lean import without_compiler
from .base import VariableTracker
from .constant import is_none
from .dispatch import builtin
from .tensor import TensorVariable
from .torch_body import (
    BodyVariable,
    Captured,
    body_with,
    call_function,
    capture,
    constants,
    fakes_of,
    fitting,
    flatten,
    leaves_of,
    models,
    whole,
)
from .tuple import TupleVariable

_FUNCTION_TYPE = type(lambda: None)


class TransformedVariable(VariableTracker):
    """What `torch.vmap(f, …)`, `torch.func.grad(f, …)` and the like return."""

    def __init__(self, transform: Any, call: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.transform = transform
        self.call = call
        self.args = args
        self.kwargs = kwargs

    def python_type(self) -> type:
        return _FUNCTION_TYPE

    def children(self) -> Any:
        return [*self.args, *self.kwargs.values()]

    def tp_call(self, tx: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        return whole(self.call)(tx, self, args, kwargs)

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        fn = self.args[0]
        return (
            fn.tp_getattro(tx, name)
            if fn.tp_getattro
            else unsupported(BREAK, f"attribute {name} of a transformed function")
        )

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(self.transform)
        for arg in (*self.args, *self.kwargs.values()):
            cg.load(arg)
        cg.asm.call(len(self.args) + len(self.kwargs), tuple(self.kwargs))

    def option(self, name: str, position: int, default: Any) -> Any:
        """A constant option of the transform."""
        found = self.kwargs.get(name)
        if found is None and len(self.args) > position:
            found = self.args[position]
        if found is None:
            return default
        if not found.is_python_constant():
            unsupported(BREAK, f"{name} of a transform is not constant")
        return found.as_python_constant()


def _transform(function: Any) -> Callable[[Any], Any]:
    """Register what calling the result of a transform does."""

    def decorate(call: Any) -> Any:
        def make(tx: Any, *args: Any, **kwargs: Any) -> VariableTracker:
            func = [kwargs.pop("func")] if "func" in kwargs else []
            return TransformedVariable(function, call, [*func, *args], kwargs)

        builtin(function)(fitting(function, make))
        return call

    return decorate


class Arguments:
    """The arguments of a transformed function, taken apart: the tensors and how to put others in their place."""

    def __init__(self, tx: Any, args: list[Any]) -> None:
        self.leaves: list[Any] = []
        self.spans: list[range] = []
        self.builders = []
        for arg in args:
            start = len(self.leaves)
            self.builders.append(flatten(tx, arg, self.leaves))
            self.spans.append(range(start, len(self.leaves)))

    def rebuild(self, leaves: list[Any]) -> list[Any]:
        """The arguments with other tensors."""
        items = iter(leaves)
        return [build(items) for build in self.builders]

    def rebuild_one(self, position: int, leaves: Any) -> Any:
        """One argument with other tensors."""
        return self.builders[position](iter(leaves))


def _in_dims(dims: Any, args: list[Any]) -> list[Any]:
    """The batched dimension of each tensor among the arguments, as `_process_batched_inputs` finds it."""
    leaves, spec = leaves_of(TupleVariable(args))
    flat = _broadcast_to_and_flatten(dims, spec) if isinstance(dims, int | tuple) else None
    return _of_tensors("in_dims", flat, leaves)


def _out_dims(dims: Any, captured: Captured) -> tuple[Any, ...]:
    """Where each tensor of the result gets the batched dimension, as `_unwrap_batched` finds it."""
    leaves, spec = leaves_of(captured.result)
    if isinstance(captured.result, TensorVariable) and isinstance(dims, tuple) and len(dims) == 1:
        return dims
    return tuple(_of_tensors("out_dims", _broadcast_to_and_flatten(dims, spec), leaves))


def _of_tensors(what: str, dims: list[Any] | None, leaves: list[Any]) -> list[Any]:
    """The dimensions for tensors; other leaves have none."""
    if dims is None or not all(
        dim is None or isinstance(dim, int) and isinstance(leaf, TensorVariable)
        for dim, leaf in zip(dims, leaves, strict=True)
    ):
        unsupported(BREAK, f"{what} of vmap does not fit")
    return [dim for dim, leaf in zip(dims, leaves, strict=True) if isinstance(leaf, TensorVariable)]


def _example(propagator: Any, leaf: Any, dim: int | None) -> Any:
    """The fake of one example: the tensor without its batch dimension, which may be empty."""
    fake = propagator.fake_of(leaf.proxy).detach()
    if dim is not None:
        shape, stride = list(fake.shape), list(fake.stride())
        if not -len(shape) <= dim < len(shape):
            unsupported(BREAK, "in_dims does not fit the arguments")
        del shape[dim], stride[dim]
        with propagator.mode, without_compiler, torch.no_grad():
            fake = torch.empty_strided(shape, stride, dtype=fake.dtype, device=fake.device)
    return fake.requires_grad_(leaf.proxy.meta.requires_grad)


@_transform(torch.vmap)
def call_vmap(tx: Any, transformed: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
    """`vmap(f, in_dims, out_dims, randomness, chunk_size)(*args)`: the body sees one example."""
    if kwargs:
        unsupported(BREAK, "keyword arguments of a vmapped function")
    given = Arguments(tx, args)
    in_dims = _in_dims(transformed.option("in_dims", 1, 0), args)
    propagator = tx.tr.graph.propagator
    fakes = []
    for leaf, dim in zip(given.leaves, in_dims, strict=True):
        fakes.append(_example(propagator, leaf, dim))
    body, leaves = body_with(tx, fakes)
    body.is_transformed = True
    captured = capture(tx, transformed.args[0], given.rebuild(leaves), body=body)
    lifted = captured.lifted
    module = captured.module(lifted)
    dims = (*in_dims, *[None] * len(lifted))
    flat_out = _out_dims(transformed.option("out_dims", 2, 0), captured)
    head = [BodyVariable(module), *constants(dims, flat_out, transformed.option("randomness", 3, "error"))]
    head.extend(constants(transformed.option("chunk_size", 4, None)))
    values = [*(leaf.proxy for leaf in given.leaves), *lifted]
    return captured.rebuild(call_function(tx, functional.vmap, head, values))


def _differentiated(
    tx: Any, fn: Any, args: list[Any], kwargs: dict[str, Any], argnums: tuple[int, ...]
) -> tuple[Arguments, Captured, tuple[int, ...]]:
    """Follow a function that is to be differentiated: the tensors of the arguments `argnums` need a gradient."""
    given = Arguments(tx, args)
    argnums = tuple([a % len(args) for a in argnums])
    wrt = tuple([i for a in argnums for i in given.spans[a]])
    fakes = fakes_of(tx, given.leaves)
    for i in wrt:
        if not (fakes[i].dtype.is_floating_point or fakes[i].dtype.is_complex):
            unsupported(BREAK, "derivative by an integer tensor")
        fakes[i].requires_grad_()
    body, leaves = body_with(tx, fakes)
    body.is_transformed = True
    with tx.tr.state.grad_mode(True):
        captured = capture(tx, fn, given.rebuild(leaves), kwargs, body)
    return given, captured, wrt


def _numbers(argnums: Any, args: list[Any]) -> tuple[int, ...]:
    """The positions by which is differentiated."""
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not all(isinstance(i, int) and -len(args) <= i < len(args) for i in numbers):
        unsupported(BREAK, "argnums does not fit the arguments")
    return numbers


def _main_and_aux(tx: Any, captured: Captured, has_aux: bool) -> tuple[int, Any, Any]:
    """How many tensors the differentiated result has, and builders for it and for the auxiliary one."""
    if not has_aux:
        return len(captured.leaves), captured.build, None
    parts = captured.result.items if isinstance(captured.result, TupleVariable) else []
    if len(parts) != 2:
        unsupported(BREAK, "has_aux without a pair")
    leaves: list[Any] = []
    main = flatten(tx, parts[0], leaves)
    return len(leaves), main, flatten(tx, parts[1], [])


def _values(given: Arguments, lifted: list[Any]) -> list[Any]:
    return [*(leaf.proxy for leaf in given.leaves), *lifted]


def _gradient(tx: Any, transformed: Any, args: list[Any], kwargs: dict[str, Any], with_value: bool) -> VariableTracker:
    argnums = transformed.option("argnums", 1, 0)
    has_aux = transformed.option("has_aux", 2, False)
    given, captured, wrt = _differentiated(tx, transformed.args[0], args, kwargs, _numbers(argnums, args))
    n, main, aux = _main_and_aux(tx, captured, has_aux)
    if n != 1:
        unsupported(BREAK, "gradient of something else than one number")
    lifted = captured.lifted
    head = [BodyVariable(captured.module(lifted)), *constants(wrt)]
    outs = call_function(tx, functional.grad, head, _values(given, lifted))
    items = iter(outs)
    grads = [given.builders[a % len(args)](items) for a in _numbers(argnums, args)]
    result = TupleVariable(grads) if isinstance(argnums, tuple) else grads[0]
    value = main(items)
    extra = aux(items) if has_aux else None
    if with_value:
        return TupleVariable([result, TupleVariable([value, extra]) if has_aux else value])
    return TupleVariable([result, extra]) if has_aux else result


@_transform(torch.func.grad)
def call_grad(tx: Any, transformed: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
    return _gradient(tx, transformed, args, kwargs, False)


@_transform(torch.func.grad_and_value)
def call_grad_and_value(tx: Any, transformed: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
    return _gradient(tx, transformed, args, kwargs, True)


def _jacobian(mode: str) -> Any:
    def call(tx: Any, transformed: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        argnums = transformed.option("argnums", 1, 0)
        has_aux = transformed.option("has_aux", 2, False)
        chunk_size = transformed.option("chunk_size", 3, None)
        if chunk_size is not None and chunk_size <= 0 or transformed.option("randomness", 3, "error") != "error":
            unsupported(BREAK, f"options of {mode}")
        given, captured, wrt = _differentiated(tx, transformed.args[0], args, kwargs, _numbers(argnums, args))
        n, main, aux = _main_and_aux(tx, captured, has_aux)
        lifted = captured.lifted
        head = [BodyVariable(captured.module(lifted)), *constants(mode, wrt, n)]
        items = iter(call_function(tx, functional.jacobian, head, _values(given, lifted)))
        rows = []
        for _ in range(n):
            row = [given.builders[a % len(args)](items) for a in _numbers(argnums, args)]
            rows.append(TupleVariable(row) if isinstance(argnums, tuple) else row[0])
        result = main(iter(rows))
        return TupleVariable([result, aux(items)]) if has_aux else result

    return call


_transform(torch.func.jacrev)(_jacobian("jacrev"))
_transform(torch.func.jacfwd)(_jacobian("jacfwd"))


def _is_true(vt: Any) -> bool:
    return vt is not None and not is_none(vt) and bool(vt.as_python_constant())


@models(torch.func.jvp)
def call_jvp(
    tx: Any, func: Any, primals: Any, tangents: Any, *, strict: Any = None, has_aux: Any = None
) -> VariableTracker:
    if not isinstance(primals, TupleVariable) or leaves_of(primals)[1] != leaves_of(tangents)[1] or _is_true(strict):
        unsupported(BREAK, "primals and tangents of jvp")
    args = tx.tr.unpack(tx, primals)
    tangent_leaves: list[Any] = []
    flatten(tx, tangents, tangent_leaves)
    given, captured, wrt = _differentiated(tx, func, args, {}, tuple(range(len(args))))
    n, main, aux = _main_and_aux(tx, captured, _is_true(has_aux))
    lifted = captured.lifted
    head = [BodyVariable(captured.module(lifted)), *constants(wrt, n), TupleVariable(tangent_leaves)]
    items = iter(call_function(tx, functional.jvp, head, _values(given, lifted)))
    result = [main(items), main(items)]
    return TupleVariable([*result, aux(items)] if aux is not None else result)


class PullbackVariable(VariableTracker):
    """The second result of `torch.func.vjp`. Each call differentiates the body anew."""

    def __init__(
        self, given: Arguments, captured: Captured, spec: TreeSpec, module: GraphModule, wrt: tuple[int, ...], n: int
    ) -> None:
        self.given = given
        self.spec = spec  # of the results that are differentiated
        self.captured = captured
        self.module = module
        self.wrt = wrt
        self.n = n

    def python_type(self) -> type:
        return _FUNCTION_TYPE

    def tp_call(self, tx: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        if len(args) != 1 or any(name != "retain_graph" or not _is_true(value) for name, value in kwargs.items()):
            unsupported(BREAK, "options of the function that vjp returns")
        leaves, spec = leaves_of(args[0])
        if spec != self.spec:
            unsupported(BREAK, "cotangents do not fit the results")
        head = [BodyVariable(self.module), *constants(self.wrt, self.n), TupleVariable(leaves)]
        outs = call_function(tx, functional.vjp, head, _values(self.given, self.captured.lifted))
        return TupleVariable(self.given.rebuild(outs))

    def emit_new(self, cg: Any) -> None:
        unsupported("reconstruct", "the function that torch.func.vjp returns")


@models(torch.func.vjp)
def call_vjp(tx: Any, func: Any, *primals: Any, has_aux: Any = None) -> VariableTracker:
    given, captured, wrt = _differentiated(tx, func, list(primals), {}, tuple(range(len(primals))))
    n, main, aux = _main_and_aux(tx, captured, _is_true(has_aux))
    lifted = captured.lifted
    module = captured.module(lifted)
    if len(wrt) != len(given.leaves):
        unsupported(BREAK, "vjp")
    spec = leaves_of(captured.result.items[0] if aux is not None else captured.result)[1]
    zeros = call_function(tx, functional.run, [BodyVariable(module)], _values(given, lifted))
    items = iter(zeros)
    value = main(items)
    result = [value, PullbackVariable(given, captured, spec, module, wrt, n)]
    return TupleVariable([*result, aux(items)] if aux is not None else result)


# -- transformed functions that were made outside of the traced code call these


def _impl(path: str) -> Any:
    return operator.attrgetter(f"_functorch.{path}")(torch)


@builtin(_impl("vmap.vmap_impl"))
def vmapped(
    tx: Any, func: Any, in_dims: Any, out_dims: Any, randomness: Any, chunk_size: Any, /, *args: Any, **kwargs: Any
) -> VariableTracker:
    options = [in_dims, out_dims, randomness, chunk_size]
    return TransformedVariable(torch.vmap, call_vmap, [func, *options], {}).tp_call(tx, list(args), kwargs)


def _applied(transform: Any, call: Any) -> Any:
    def handler(tx: Any, func: Any, argnums: Any, has_aux: Any, args: Any, kwargs: Any) -> VariableTracker:
        named = {key.as_python_constant(): value for key, value in kwargs.pairs()}
        transformed = TransformedVariable(transform, call, [func, argnums, has_aux], {})
        return transformed.tp_call(tx, tx.tr.unpack(tx, args), named)

    return handler


builtin(_impl("eager_transforms.grad_impl"))(_applied(torch.func.grad, call_grad))
builtin(_impl("eager_transforms.grad_and_value_impl"))(_applied(torch.func.grad_and_value, call_grad_and_value))
