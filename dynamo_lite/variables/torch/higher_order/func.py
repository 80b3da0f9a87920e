"""Function transforms: `torch.func`.

Input: calls of `vmap`, `grad`, `jvp`, `vjp`, `jacrev`, `jacfwd`, or of the functions that these return. Output: one graph node each, a
call of one of `graph.core.functional`'s functions with the transformed function as its body.
Invariant: that of `variables.torch.body`.
Mirrors `torch/_functorch/apis.py`, `eager_transforms.py` and `vmap.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.bodies import BREAK
from dynamo_lite.graph.core import functional
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.graph.core.storages import is_written_since
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import is_none
from dynamo_lite.variables.protocol.dispatch import HANDLERS, builtin
from dynamo_lite.variables.torch.body import (
    BodyPart,
    BodyVariable,
    CapturedBody,
    body_with,
    call_function,
    capture,
    constants,
    fakes_of,
    fitting,
    flatten,
    models,
    needs_grad,
    whole,
)
from dynamo_lite.variables.torch.symnode import SymNodeVariable
from dynamo_lite.variables.torch.tensor import TensorVariable

from .vmap import Vmapped, is_replaced

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.graph.core.fake import Propagator
    from dynamo_lite.interp.frame import Frame

_FUNCTION_TYPE = type(lambda: None)
Call = Callable[..., VariableTracker]
"""call(tx, transformed function, args, kwargs): the model of a call of a transform's result."""


class TransformedVariable(VariableTracker):
    """The function that `torch.vmap(f, …)`, `torch.func.grad(f, …)` and the like return."""

    def __init__(
        self,
        transform: Callable[..., Any],
        call: Call,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> None:
        self.transform = transform
        self.call = call
        self.args = args
        self.kwargs = kwargs

    def python_type(self) -> type:
        return _FUNCTION_TYPE

    def children(self) -> Any:
        return [*self.args, *self.kwargs.values()]

    def tp_call(self, tx: Frame, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        return whole(self.call)(tx, self, args, kwargs)

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        fn = self.args[0]
        return (
            fn.tp_getattro(tx, name)
            if fn.tp_getattro
            else unsupported(BREAK, f"attribute {name} of a transformed function")
        )

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(self.transform)
        for arg in (*self.args, *self.kwargs.values()):
            cg.load(arg)
        cg.asm.call(len(self.args) + len(self.kwargs), tuple(self.kwargs))

    def derivative(
        self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker], kind: str = "grad"
    ) -> Derivative:
        """The function, differentiated by the options `argnums` and `has_aux`."""
        argnums, has_aux = self.option("argnums", 1, 0), self.option("has_aux", 2, False)
        return Derivative(tx, self.args[0], args, kwargs, argnums, has_aux, kind)

    def option(self, name: str, position: int, default: object) -> Any:
        """A constant option of the transform."""
        found = self.kwargs.get(name)
        if found is None and len(self.args) > position:
            found = self.args[position]
        if found is None:
            return default
        return _option(found, name)


def _option(vt: VariableTracker, name: str) -> Any:
    """The value of an option: a constant, or a structure of constants."""
    if isinstance(vt, TupleVariable | ListVariable):
        return vt.python_type()([_option(item, name) for item in vt.items])
    if isinstance(vt, DictVariable):
        return {_option(key, name): _option(value, name) for key, value in vt.pairs()}
    if isinstance(vt, SymNodeVariable):
        return vt.as_python_constant()  # guarded
    return vt.as_python_constant() if vt.is_python_constant() else unsupported(BREAK, f"{name} that is not constant")


def _transform(function: Callable[..., Any]) -> Callable[[Call], Call]:
    """Register the model of calls of a transform's result."""

    def decorate(call: Call) -> Call:
        def make(tx: Frame, *args: Any, **kwargs: Any) -> VariableTracker:
            func = [kwargs.pop("func")] if "func" in kwargs else []
            return TransformedVariable(function, call, [*func, *args], kwargs)

        builtin(function)(fitting(function, make))
        return call

    return decorate


class Arguments:
    """The arguments of a transformed function, taken apart: the tensors and how to put others in their place."""

    def __init__(self, tx: Frame, args: list[Any]) -> None:
        self.leaves: list[Any] = []
        self.spans: list[range] = []
        self.builders = []
        for arg in args:
            start = len(self.leaves)
            self.builders.append(flatten(tx, arg, self.leaves))
            self.spans.append(range(start, len(self.leaves)))

    def spread(self, dims: Any) -> list[Any]:
        """The dimension of each tensor."""
        n = len(self.builders)
        if dims is not None and type(dims) is not int and len(dims) != n:
            unsupported(BREAK, "in_dims that do not fit the arguments")
        each = [dims] * n if dims is None or type(dims) is int else dims
        return [dim for part, own in zip(self.builders, each, strict=True) for dim in part.spread(own)]

    def rebuild(self, leaves: list[Any]) -> list[Any]:
        """The arguments with other tensors."""
        items = iter(leaves)
        return [build(items) for build in self.builders]


def _example(propagator: Propagator, leaf: TensorVariable, dim: int | None) -> Any:
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
def call_vmap(tx: Frame, transformed: TransformedVariable, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
    """`vmap(f, in_dims, out_dims, randomness, chunk_size)(*args)`: the body sees one example, keyword arguments as they are."""
    if is_replaced():
        return _vmap_of_library(tx, transformed, args, kwargs)
    given = Arguments(tx, args)
    wanted = transformed.option("in_dims", 1, 0)
    if not isinstance(wanted, int | tuple):
        unsupported(BREAK, "in_dims that are neither an int nor a tuple")
    in_dims = given.spread(wanted)
    propagator = tx.tr.graph.propagator
    fakes = []
    for leaf, dim in zip(given.leaves, in_dims, strict=True):
        fakes.append(_example(propagator, leaf, dim))
    body, leaves = body_with(tx, fakes, "vmap")
    chunk_size = transformed.option("chunk_size", 4, None)  # for each chunk the function runs once
    captured = capture(tx, transformed.args[0], given.rebuild(leaves), kwargs, body=body, runs_once=chunk_size is None)
    lifted = captured.lifted
    module = captured.module(lifted)
    dims = (*in_dims, *[None] * len(lifted))
    out_dims = transformed.option("out_dims", 2, 0)
    if isinstance(captured.result, TensorVariable) and type(out_dims) is tuple and len(out_dims) == 1:
        (out_dims,) = out_dims
    flat_out = tuple(captured.build.spread(out_dims))
    head = [BodyVariable(module), *constants(dims, flat_out, transformed.option("randomness", 3, "error"))]
    head.extend(constants(chunk_size))
    values = [*(leaf.proxy for leaf in given.leaves), *lifted]
    return captured.rebuild(call_function(tx, functional.vmap, head, values))


def _vmap_of_library(
    tx: Frame, transformed: TransformedVariable, args: list[Any], kwargs: dict[str, Any]
) -> VariableTracker:
    """The same where a library has functions of its own in torch's place."""
    in_dims, out_dims = transformed.option("in_dims", 1, 0), transformed.option("out_dims", 2, 0)
    call = Vmapped(tx, transformed.args[0], in_dims, out_dims, args, kwargs)
    lifted = call.captured.lifted
    module = call.captured.module(lifted)
    values, dims = [value for value, _ in call.level.added], [dim for _, dim in call.level.added]
    head = [BodyVariable(module), *constants((*dims, *[None] * len(lifted)), tuple([d for _, d in call.level.removed]))]
    head.extend(constants(transformed.option("randomness", 3, "error"), transformed.option("chunk_size", 4, None)))
    return call.finish(call_function(tx, functional.vmap, head, [*values, *lifted]))


class Derivative:
    """A function that is to be differentiated by its arguments `argnums`, followed as a body in which their tensors need gradients.

    `main` and `aux` make the differentiated result, which has `n` tensors, and the auxiliary one (None: there is none) of the tensors that
    a node returns; `wrt` has the positions of the tensors by which is differentiated.
    """

    def __init__(
        self,
        tx: Frame,
        fn: VariableTracker,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
        argnums: object,
        has_aux: bool,
        kind: str = "grad",
        runs_once: bool = True,
    ) -> None:
        self.given = given = Arguments(tx, args)
        self.is_by_one = not isinstance(argnums, tuple)
        numbers = argnums if isinstance(argnums, tuple) else (argnums,)
        if not all(isinstance(i, int) and -len(args) <= i < len(args) for i in numbers):
            unsupported(BREAK, "argnums does not fit the arguments")
        self.argnums = [a % len(args) for a in numbers]
        self.wrt = tuple([i for a in self.argnums for i in given.spans[a]])
        if not all(given.builders[a].is_of_tensors for a in self.argnums):
            unsupported(BREAK, "derivative by what is no tensor")
        fakes = fakes_of(tx, given.leaves)
        for i in self.wrt:
            if not (fakes[i].dtype.is_floating_point or fakes[i].dtype.is_complex):
                unsupported(BREAK, "derivative by an integer tensor")
            fakes[i].requires_grad_()
        body, leaves = body_with(tx, fakes, kind)
        with tx.tr.state.grad_mode(True):
            captured = capture(tx, fn, given.rebuild(leaves), kwargs, body, runs_once=runs_once)
        self.n, self.main, self.aux = _main_and_aux(tx, captured, has_aux)
        self.body = captured.body
        self.lifted = captured.lifted
        self.module = captured.module(self.lifted)

    def call(self, tx: Frame, function: object, *options: object, extra: tuple[VariableTracker, ...] = ()) -> list[Any]:
        """Add the node of one of `graph.core.functional`'s functions that differentiate; the tensors that it returns."""
        return self._call(tx, function, [*constants(*options), *extra, *constants(len(self.given.leaves))])

    def check_repeatable(self, name: str) -> None:
        """Break where the body does more than compute: `linearize` runs its function twice in eager execution, what `vjp` returns does not
        run it again, and a node runs its body once each time."""
        if self.body.is_random:
            unsupported(BREAK, f"{name} of a function that draws random numbers")
        self.body.run(self.module, self.lifted)  # breaks if it writes

    def run(self, tx: Frame) -> list[Any]:
        """Add a node that only runs the body; the tensors that it returns."""
        return self._call(tx, functional.run, [])

    def _call(self, tx: Frame, function: object, options: list[VariableTracker]) -> list[Any]:
        values = [*(leaf.proxy for leaf in self.given.leaves), *self.lifted]
        return call_function(tx, function, [BodyVariable(self.module), *options], values)

    def by_argument(self, items: Iterator[VariableTracker]) -> VariableTracker:
        """Derivatives in the structure of the arguments: a tuple if `argnums` is one."""
        parts = [self.given.builders[a](items) for a in self.argnums]
        return parts[0] if self.is_by_one else TupleVariable(parts)

    def auxiliary(self, items: Iterator[VariableTracker]) -> list[VariableTracker]:
        """The auxiliary result, if there is one."""
        return [] if self.aux is None else [self.aux(items)]


def _main_and_aux(tx: Frame, captured: CapturedBody, has_aux: bool) -> tuple[int, BodyPart, BodyPart | None]:
    """The number of tensors of the differentiated result, and builders for it and for the auxiliary one."""
    if not has_aux:
        if not captured.build.is_of_tensors:
            unsupported(BREAK, "derivative of what is no tensor")
        return len(captured.leaves), captured.build, None
    parts = captured.result.items if isinstance(captured.result, TupleVariable) else []
    if len(parts) != 2:
        unsupported(BREAK, "has_aux without a pair")
    leaves: list[Any] = []
    main = flatten(tx, parts[0], leaves)
    if not main.is_of_tensors:
        unsupported(BREAK, "derivative of what is no tensor")
    aux = flatten(tx, parts[1], [])
    if not aux.is_of_tensors:
        unsupported(BREAK, "an auxiliary result of something else than tensors")
    return len(leaves), main, aux


def _gradient(with_value: bool) -> Call:
    """The model of calls of the result of `grad` or `grad_and_value`."""

    def call(tx: Frame, transformed: TransformedVariable, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        made = transformed.derivative(tx, args, kwargs)
        if made.main.cls is not torch.Tensor:
            unsupported(BREAK, "gradient of something else than one number")
        items = iter(made.call(tx, functional.grad, made.wrt))
        result, value = made.by_argument(items), made.main(items)
        extra = made.auxiliary(items)
        if with_value:
            return TupleVariable([result, TupleVariable([value, *extra]) if extra else value])
        return TupleVariable([result, *extra]) if extra else result

    return call


call_grad = _transform(torch.func.grad)(_gradient(False))
call_grad_and_value = _transform(torch.func.grad_and_value)(_gradient(True))


def _jacobian(mode: str, kind: str, *names: str) -> Call:
    """The model of calls of the result of `jacrev` or `jacfwd`; `names` are the options that only one of them has."""

    def call(tx: Frame, transformed: TransformedVariable, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        options = {name: transformed.option(name, 1000, None) for name in names if name in transformed.kwargs}
        chunk_size = options.get("chunk_size")
        if chunk_size is not None and chunk_size <= 0:
            unsupported(BREAK, f"options of {mode}")
        made = transformed.derivative(tx, args, kwargs, kind)
        items = iter(made.call(tx, functional.jacobian, mode, made.wrt, made.n, tuple(options.items())))
        rows = [made.by_argument(items) for _ in range(made.n)]
        result = made.main(iter(rows))
        extra = made.auxiliary(items)
        return TupleVariable([result, *extra]) if extra else result

    return call


_transform(torch.func.jacrev)(_jacobian("jacrev", "grad", "chunk_size", "_preallocate_and_copy"))
_transform(torch.func.jacfwd)(_jacobian("jacfwd", "jvp", "randomness"))


def _is_true(vt: VariableTracker | None) -> bool:
    return vt is not None and not is_none(vt) and bool(vt.as_python_constant())


def _by_all(
    tx: Frame,
    func: VariableTracker,
    args: Sequence[VariableTracker],
    has_aux: VariableTracker | None,
    kind: str,
    runs_once: bool = True,
) -> Derivative:
    return Derivative(tx, func, list(args), {}, tuple(range(len(args))), _is_true(has_aux), kind, runs_once)


@models(torch.func.jvp)
def call_jvp(
    tx: Frame,
    func: VariableTracker,
    primals: VariableTracker,
    tangents: VariableTracker,
    *,
    strict: VariableTracker | None = None,
    has_aux: VariableTracker | None = None,
) -> VariableTracker:
    leaves: list[Any] = []
    if not isinstance(primals, TupleVariable) or flatten(tx, primals, []).form != flatten(tx, tangents, leaves).form:
        unsupported(BREAK, "primals and tangents of jvp")
    made = _by_all(tx, func, tx.tr.unpack(tx, primals), has_aux, "jvp")
    outs = made.call(tx, functional.jvp, made.n, _is_true(strict), extra=(TupleVariable(leaves),))
    items = iter(outs)
    return TupleVariable([made.main(items), made.main(items), *made.auxiliary(items)])


class PullbackVariable(VariableTracker):
    """The second result of `torch.func.vjp`. Each call differentiates the body anew, eager execution uses what autograd has saved: the
    `results` of the body and what it has read must be what they were, at the first `n` changes that the graph makes in place."""

    transform = "vjp"

    def __init__(self, tx: Frame, made: Derivative, results: list[Any]) -> None:
        self.made = made
        self.values = [vt.proxy for vt in (*made.given.leaves, *results)] + made.lifted
        self.n = len(tx.tr.graph.operators.changed)

    def python_type(self) -> type:
        return _FUNCTION_TYPE

    def tp_call(self, tx: Frame, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        made = self.made
        made.check_repeatable(self.transform)
        self._check_unchanged(tx)
        if len(args) != 1 or any(name != "retain_graph" or not _is_true(value) for name, value in kwargs.items()):
            unsupported(BREAK, "options of the function that vjp returns")
        leaves: list[Any] = []
        if flatten(tx, args[0], leaves).form != made.main.form:
            unsupported(BREAK, "cotangents do not fit the results")
        outs = made.call(tx, functional.vjp, made.n, extra=(TupleVariable(leaves),))
        return TupleVariable(made.given.rebuild(outs))

    def _check_unchanged(self, tx: Frame) -> None:
        tensors = [value for value in self.values if isinstance(value, TensorValue)]
        if is_written_since(tx.tr.graph, tensors, self.n):
            unsupported(
                BREAK, f"what {self.transform} has read or returned is changed in place before its function is called"
            )

    def emit_new(self, cg: Codegen) -> None:
        unsupported("reconstruct", f"the function that torch.func.{self.transform} returns")


@models(torch.func.vjp)
def call_vjp(
    tx: Frame, func: VariableTracker, *primals: VariableTracker, has_aux: VariableTracker | None = None
) -> VariableTracker:
    made = _by_all(tx, func, primals, has_aux, "grad")
    if len(made.wrt) != len(made.given.leaves):
        unsupported(BREAK, "vjp")
    results = made.call(tx, functional.vjp_results, made.n)
    items = iter(results)
    return TupleVariable([made.main(items), PullbackVariable(tx, made, results), *made.auxiliary(items)])


class LinearizedVariable(PullbackVariable):
    """The second result of `torch.func.linearize`. Each call differentiates the body anew."""

    transform = "linearize"

    def tp_call(self, tx: Frame, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        made, tangents = self.made, Arguments(tx, args)
        self._check_unchanged(tx)
        shapes = [leaf.proxy.meta.shape for leaf in tangents.leaves]
        if shapes != [leaf.proxy.meta.shape for leaf in made.given.leaves]:
            unsupported(BREAK, "tangents do not fit the arguments")
        outs = made.call(tx, functional.jvp, made.n, False, extra=(TupleVariable(tangents.leaves),))
        return made.main(iter(outs[made.n :]))


@models(torch.func.linearize)
def call_linearize(tx: Frame, func: VariableTracker, *primals: VariableTracker) -> VariableTracker:
    made = _by_all(tx, func, primals, None, "jvp", runs_once=False)
    if tx.tr.state.records(needs_grad([leaf.proxy for leaf in made.given.leaves] + made.lifted)):
        unsupported(BREAK, "linearize with gradients")
    made.check_repeatable("linearize")
    results = made.run(tx)
    return TupleVariable([made.main(iter(results)), LinearizedVariable(tx, made, results)])


# -- transformed functions that were made outside of the traced code call these


def _impl(path: str) -> Any:
    return operator.attrgetter(f"_functorch.{path}")(torch)


@builtin(_impl("vmap.vmap_impl"))
def vmapped(
    tx: Frame,
    func: VariableTracker,
    in_dims: VariableTracker,
    out_dims: VariableTracker,
    randomness: VariableTracker,
    chunk_size: VariableTracker,
    /,
    *args: Any,
    **kwargs: Any,
) -> VariableTracker:
    options = [in_dims, out_dims, randomness, chunk_size]
    return TransformedVariable(torch.vmap, call_vmap, [func, *options], {}).tp_call(tx, list(args), kwargs)


def _applied(transform: Callable[..., Any], call: Call) -> Callable[..., VariableTracker]:
    def handler(
        tx: Frame,
        func: VariableTracker,
        argnums: VariableTracker,
        has_aux: VariableTracker,
        args: VariableTracker,
        kwargs: DictVariable,
    ) -> VariableTracker:
        named = {key.as_python_constant(): value for key, value in kwargs.pairs()}
        transformed = TransformedVariable(transform, call, [func, argnums, has_aux], {})
        return transformed.tp_call(tx, tx.tr.unpack(tx, args), named)

    return handler


builtin(_impl("eager_transforms.grad_impl"))(_applied(torch.func.grad, call_grad))
builtin(_impl("eager_transforms.grad_and_value_impl"))(_applied(torch.func.grad_and_value, call_grad_and_value))


# -- the interface below `jvp`


def _refused(name: str) -> Callable[..., VariableTracker]:
    """The model of a function that keeps levels of dual numbers, whose tensors are no values of a graph."""
    what = f"torch.autograd.forward_ad, for which torch.func.jvp stands ({name})"
    return lambda tx, *args, **kwargs: unsupported("higher-order-operator-without-model", what)


for _name in ("_enter_dual_level", "_exit_dual_level", "_make_dual", "_unpack_dual"):
    _function = getattr(_impl("predispatch"), _name, None)  # torch 2.11 calls those of C
    if _function is not None:
        HANDLERS[_function] = _refused(_name)
