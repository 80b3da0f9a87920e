"""What graphs call for function transforms, for `torch.autograd.Function` and for numpy.

Input: bodies (graph modules that return a tuple) and flat arguments. Output: flat tuples of tensors.
Invariant: these are ordinary functions that run, and can be traced, anywhere; a body's tensors from outside are the last arguments.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from .modes import as_now

Body = Callable[..., Any]

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder


def transforms_around(builder: GraphBuilder) -> tuple[str, ...]:
    """The function transforms around what is added now, outermost first."""
    return builder.scope.transforms if builder.scope is not None else ()


def _code(body: Body) -> Body:
    """The `forward` of a body, without the other parts of a module's call: hooks that the program has for all modules, and printing of
    errors."""
    return getattr(body, "forward", body)


def _later(body: Body) -> Body:
    return as_now(_code(body))


def vmap(
    body: Body, in_dims: object, out_dims: object, randomness: str, chunk_size: int | None, *args: Any
) -> tuple[Any, ...]:
    """`torch.vmap` of a body."""
    return torch.vmap(_code(body), in_dims, out_dims, randomness=randomness, chunk_size=chunk_size)(*args)


def _closed(body: Body, given: int, args: tuple[Any, ...]) -> Body:
    """The body as a function of the `given` first arguments. Tensors from outside are in its closure, as in the program: transforms wrap
    arguments, and refuse writes to what they have not wrapped."""
    body, outside = _code(body), args[given:]

    def run(*own: Any) -> Any:
        return body(*own, *outside)

    return run


def _split(body: Body, n: int) -> Body:
    """The first n results, and the rest as auxiliary ones."""

    def run(*args: Any) -> Any:
        results = body(*args)
        return tuple(results[:n]), tuple(results[n:])

    return run


def grad(body: Body, wrt: tuple[int, ...], given: int, *args: Any) -> tuple[Any, ...]:
    """The gradients of a body's first result, then all its results."""
    closed = _closed(body, given, args)

    def scalar_first(*own: Any) -> Any:
        value, *aux = closed(*own)
        return value, tuple(aux)

    grads, (value, aux) = torch.func.grad_and_value(scalar_first, tuple(wrt), has_aux=True)(*args[:given])
    return (*grads, value, *aux)


def jacobian(
    body: Body, mode: str, wrt: tuple[int, ...], n: int, options: tuple[tuple[str, Any], ...], given: int, *args: Any
) -> tuple[Any, ...]:
    """Jacobians of the first n results, for each one by all of `wrt`; then the other results."""
    transform = {"jacrev": torch.func.jacrev, "jacfwd": torch.func.jacfwd}[mode]
    function = _split(_closed(body, given, args), n)
    rows, aux = transform(function, tuple(wrt), has_aux=True, **dict(options))(*args[:given])
    return (*(item for row in rows for item in row), *aux)


def jvp(body: Body, n: int, strict: bool, tangents: Any, given: int, *args: Any) -> tuple[Any, ...]:
    """The first n results, their tangents, the other results."""
    function = _split(_closed(body, given, args), n)
    out, tangent, aux = torch.func.jvp(function, args[:given], tuple(tangents), strict=strict, has_aux=True)
    return (*out, *tangent, *aux)


def vjp_results(body: Body, n: int, given: int, *args: Any) -> tuple[Any, ...]:
    """The results of a body under `vjp`, the first n of them differentiated."""
    out, _, aux = torch.func.vjp(_split(_closed(body, given, args), n), *args[:given], has_aux=True)
    return (*out, *aux)


def vjp(body: Body, n: int, cotangents: Any, given: int, *args: Any) -> tuple[Any, ...]:
    """The cotangents of the given arguments for those of the first n results."""
    _, pull, _ = torch.func.vjp(_split(_closed(body, given, args), n), *args[:given], has_aux=True)
    return pull(tuple(cotangents))


TRANSFORMS = frozenset({vmap, grad, jacobian, jvp, vjp_results, vjp})
"""The function transforms among these."""


def application(cls: type[torch.autograd.Function]) -> Callable[..., Any]:
    """A function that calls `cls.apply`: a node that calls the bound method itself could not be printed as code."""

    @functools.wraps(cls, updated=())
    def apply(*args: Any, **kwargs: Any) -> Any:
        return cls.apply(*args, **kwargs)

    return apply


def apply_function(
    forward: Body,
    backward: object,
    name: str,
    n: int,
    not_differentiable: tuple[int, ...],
    dirty: tuple[int, ...],
    copied: tuple[int, ...],
    absent: tuple[Any, ...],
    once: bool,
    n_saved: int | None,
    *args: Any,
) -> tuple[Any, ...]:
    """`Function.apply` of a class with this name: `forward` returns n results and then what `backward` takes after their gradients.

    `dirty` are the positions of the arguments that it changes. Those in `copied` are inputs of the graph: AOTAutograd treats a change of an
    input in an `autograd.Function` as a change without gradients, so the function changes a copy, which is copied back outside of it. If
    gradients are not to be made of nothing, `absent` says for each `backward` which of its gradients are None. If there are more of them,
    the others are for a pass that creates a graph. `once`: it is `once_differentiable`. `n_saved`: so many of the tensors that `backward`
    takes are saved for it, None if it does not ask for them; the others are attributes of the context, which nobody examines or frees.
    """
    backwards = tuple(map(_later, backward if isinstance(backward, tuple) else (backward,)))

    forward = _code(forward)

    def run_forward(ctx: Any, *args: Any) -> Any:
        results = forward(*args)
        changed = [args[i] for i in dirty]
        # A result that is an argument would be taken for one that was changed in place.
        given = [a for a in args if not any(a is c for c in changed)]
        outputs = tuple([r.view_as(r) if any(r is a for a in given) else r for r in results[:n]])
        _keep(ctx, results[n:], n_saved)
        ctx.mark_dirty(*changed)
        ctx.mark_non_differentiable(*[outputs[i] for i in not_differentiable])
        ctx.set_materialize_grads(not absent)
        return outputs

    def run_backward(ctx: Any, *grads: Any) -> Any:
        saved = _kept(ctx, n_saved)
        none = tuple([i for i, grad in enumerate(grads) if grad is None])
        others = len(backwards) - max(len(absent), 1) if torch.is_grad_enabled() else 0
        body = backwards[others + (absent.index(none) if absent else 0)]
        given = body(*grads, *saved)
        return (*given, *[None] * (len(ctx.needs_input_grad) - len(given)))

    given = [a.clone() if i in copied else a for i, a in enumerate(args)]
    pull = torch.autograd.function.once_differentiable(run_backward) if once else run_backward
    methods = {"forward": staticmethod(run_forward), "backward": staticmethod(pull)}
    cls: Any = type(name, (torch.autograd.Function,), methods)
    outputs = cls.apply(*given)
    for i in copied:
        changed = next(r for r in outputs if r is given[i])
        args[i].copy_(changed)
        outputs = tuple([args[i] if r is changed else r for r in outputs])
    return outputs


def _keep(ctx: Any, values: Any, n_saved: int | None) -> None:
    """Save the first of the values and keep the others as an attribute."""
    n = 0 if n_saved is None else n_saved
    ctx.save_for_backward(*values[:n])
    ctx.others = values[n:]


def _kept(ctx: Any, n_saved: int | None) -> tuple[Any, ...]:
    """What a context keeps: what it has saved, then the others. To read what it has saved, be it nothing, is an error after that was
    freed."""
    return (*(() if n_saved is None else ctx.saved_tensors), *ctx.others)


def apply_transformable(
    forward: Body,
    backward: Body,
    jvp: tuple[Body, ...],
    name: str,
    n: int,
    not_differentiable: tuple[int, ...],
    sources: tuple[tuple[str, int], ...],
    n_saved: int | None,
    positions: tuple[int, ...],
    generate_vmap_rule: bool,
    *args: Any,
) -> tuple[Any, ...]:
    """`apply_function` in a body that transforms call. `sources` says what `backward` and `jvp` take after gradients or tangents: inputs,
    outputs or further results of `forward`; `positions` are those of the arguments that have tangents."""
    forward, backward = _code(forward), _code(backward)
    extra = [n + k for k, (kind, _) in enumerate(sources) if kind == "extra"]

    def run_forward(*args: Any) -> tuple[Any, ...]:
        results = forward(*args)
        outputs = [r.view_as(r) if any(r is a for a in args) else r for r in results[:n]]
        return (*outputs, *[results[k] for k in extra])

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        rest = iter(output[n:])
        known = {"input": inputs, "output": output}
        saved = [known[kind][i] if kind in known else next(rest) for kind, i in sources]
        _keep(ctx, saved, n_saved)
        ctx.save_for_forward(*saved[: 0 if n_saved is None else n_saved])
        ctx.mark_non_differentiable(*[output[i] for i in not_differentiable], *output[n:])

    def run_backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        given = backward(*grads[:n], *_kept(ctx, n_saved))
        return (*given, *[None] * (len(ctx.needs_input_grad) - len(given)))

    def run_jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        given = _code(jvp[0])(*[tangents[i] for i in positions], *ctx.saved_tensors)
        return (*given, *[None] * (n - len(given) + len(extra)))

    methods: dict[str, Any] = {"forward": run_forward, "setup_context": setup_context, "backward": run_backward}
    if jvp:
        methods["jvp"] = run_jvp
    members = {key: staticmethod(method) for key, method in methods.items()}
    cls: Any = type(name, (torch.autograd.Function,), {**members, "generate_vmap_rule": generate_vmap_rule})
    return cls.apply(*args)[:n]


def register_hook(body: Body, tensor: Any, *lifted: Any, name: str) -> Any:
    """`tensor.register_hook` of a body that takes the gradient; its handle. Errors about what it returns call it by its name."""
    body = _later(body)

    def hook(grad: object) -> Any:
        results = body(grad, *lifted)
        return results[0] if results else None

    hook.__name__ = name
    return tensor.register_hook(hook)


def remove_hook(handle: Any) -> None:
    """`handle.remove`."""
    handle.remove()


def cut(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as a leaf, at which a stage of a backward pass ends."""
    return tensor.detach().requires_grad_()


class _WithData(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        return data.data

    @staticmethod
    def backward(ctx: object, grad: object) -> tuple[Any, None]:
        return grad, None


def with_data(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """The tensor after `tensor.data = data`: that memory, the gradients of the tensor."""
    with torch.enable_grad():
        return _WithData.apply(tensor, data)


def run(body: Body, *args: Any) -> tuple[Any, ...]:
    """The body itself."""
    return tuple(_code(body)(*args))


# -- texts


def text_with_suffix(tensor: torch.Tensor, prefix: str, suffix: str) -> str:
    """The text of a tensor as it is with `suffix` for its part in autograd; `prefix` comes first. `_add_suffixes` of `torch/_tensor_str.py`
    begins a new line where the suffix does not fit."""
    text = str(tensor)[:-1]
    line = text[text.rfind("\n") + 1 :]
    is_of_suffix = line.startswith(_SUFFIXES)
    fits = len(line) + (0 if is_of_suffix else 2) + len(suffix) + 2 <= torch._tensor_str.PRINT_OPTS.linewidth
    return f"{prefix}{text}, {suffix})" if fits else f"{prefix}{text},\n{_INDENT}{suffix})"


_INDENT = " " * len("tensor(")
_SUFFIXES = tuple(_INDENT + name for name in ("device=", "size=", "dtype="))


# -- tensors in the place of numbers


def with_tensor_for_number(name: str, number: Any, *args: Any) -> Any:
    """`x.add(y, alpha=number)`, `x.addcdiv(a, b, value=number)` and their like with a tensor which the operator reads as a number, or as
    numbers. Where the data are not known (compilers), or in a list (which no operator takes), tensors take part as factors: that rounds
    once more.
    """
    each = name.startswith("_foreach_")
    if _has_data(number):
        if each:
            return getattr(torch, name)(*args, number)
        return getattr(args[0], name)(*args[1:], **{"value" if "addc" in name else "alpha": number})
    x, *rest = args
    if "lerp" in name:
        for start, end in zip(x, *rest, strict=True):
            wide = torch.promote_types(start.dtype, torch.float32)  # as the operator has the number
            start.copy_(torch.lerp(start.to(wide), end.to(wide), number.to(wide)))
        return None
    if "addc" in name:
        term = _COMBINES[name.rstrip("_")](*rest)
        name = ("_foreach_add" if each else "add") + ("_" if name.endswith("_") else "")
    else:
        (term,) = rest
    if each:
        return getattr(torch, name)(x, torch._foreach_mul(term, list(number)))
    return getattr(x, name)(term * number)


_COMBINES = {
    "addcdiv": operator.truediv,
    "addcmul": operator.mul,
    "_foreach_addcdiv": torch._foreach_div,
    "_foreach_addcmul": torch._foreach_mul,
}


def _has_data(number: object) -> bool:
    """Whether an operator may look at the data of this tensor: nobody records what is done to it."""
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        return False
    return type(number) in (torch.Tensor, torch.nn.Parameter)


# -- numpy


def _as_array(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return import_module("torch._numpy").ndarray(value)
    if isinstance(value, tuple | list):
        return type(value)(_as_array(item) for item in value)
    return {k: _as_array(v) for k, v in value.items()} if isinstance(value, dict) else value


def _as_tensor(value: Any) -> Any:
    if isinstance(value, tuple | list):
        items = [_as_tensor(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value.tensor if isinstance(value, import_module("torch._numpy").ndarray) else value


def chosen(flag: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The tensor that the program's comparison decides on: `min` and `max`."""
    return one if flag else other


def numpy_function(path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of numpy (`"linalg.norm"`), a method or attribute of its arrays (`"ndarray.sum"`), or an operator (`"operator.add"`) on
    tensors, as `torch._numpy` has it."""
    is_operator = path.startswith("operator.")
    root = operator if is_operator else import_module("torch._numpy")
    function: Any = _OWN.get(path) or attrgetter(path.removeprefix("operator."))(root)
    if isinstance(function, property):
        function = function.fget
    result = _as_tensor(function(*_as_array(tuple(args)), **_as_array(dict(kwargs))))
    if path in _KEEP_NAN and isinstance(args[0], torch.Tensor) and result.dtype.is_floating_point:
        return torch.where(torch.isnan(args[0]), args[0].to(result.dtype), result)
    return result


def _fix(x: Any, out: object = None) -> Any:
    numpy = import_module("torch._numpy")
    x = numpy.asarray(x)
    return numpy.trunc(x, out) if x.dtype.name.startswith("float") else numpy.positive(x, out)


def _tile(A: object, reps: object) -> Any:
    """`torch._numpy` asks whether the second argument is an `int`, which symbolic ones are not."""
    return import_module("torch._numpy").tile(A, (reps,) if isinstance(reps, torch.SymInt) else reps)


def _remainder(x1: Any, x2: Any, out: Any = None, **kwargs: Any) -> Any:
    """numpy's remainders have the divisor's sign, zeros too, for which torch has the dividend's."""
    numpy = import_module("torch._numpy")
    result = numpy.remainder(x1, x2, **kwargs)
    if result.dtype.name.startswith("float"):
        return numpy.copysign(result, x2, out, **kwargs)
    return result if out is None else numpy.positive(result, out)


def _divmod(x1: Any, x2: Any, *out: Any, **kwargs: Any) -> Any:
    quotient, _ = import_module("torch._numpy").divmod(x1, x2, *out, **kwargs)
    return quotient, _remainder(x1, x2)


def _power(name: str) -> Callable[..., Any]:
    """The power where torch makes a root of one, or of its inverse, as it does for numbers that are no tensors."""

    def power(x1: Any, x2: Any, out: Any = None, **kwargs: Any) -> Any:
        numpy = import_module("torch._numpy")
        if type(x2) is float and abs(x2) == 0.5 and isinstance(x1, numpy.ndarray) and x1.dtype.name.startswith("float"):
            x2 = numpy.asarray(x2, dtype=x1.dtype)
        return getattr(numpy, name)(x1, x2, out, **kwargs)

    return power


def _power_or_root(x1: Any, x2: Any, out: Any = None, **kwargs: Any) -> Any:
    """The power, and the root where the exponent is one half: of the negative zero and infinity they are others."""
    numpy = import_module("torch._numpy")
    if type(x2) is float and not kwargs:
        return numpy.sqrt(x1, out)
    power = numpy.power(x1, x2, **kwargs)
    result = numpy.where(numpy.equal(x2, 0.5), numpy.sqrt(x1.astype(power.dtype)), power)
    return result if out is None else numpy.positive(result, out)


OR_ROOT = " or root"
"""Follows the name of a power of which numpy makes a root."""

_OWN: dict[str, Callable[..., Any]] = {
    **{"fix": _fix, "tile": _tile, "divmod": _divmod},
    **{"power": _power("power"), "float_power": _power("float_power"), "operator.pow": _power("power")},
    **{"power" + OR_ROOT: _power_or_root, "operator.pow" + OR_ROOT: _power_or_root},
    **dict.fromkeys(("mod", "operator.mod", "remainder"), _remainder),
    "operator.imod": lambda x1, x2: _remainder(x1, x2, x1),
    "operator.ipow": lambda x1, x2: _power("power")(x1, x2, x1),
    "operator.ipow" + OR_ROOT: lambda x1, x2: _power_or_root(x1, x2, x1),
}
"""Functions of numpy's in the place of those that `torch._numpy` has, and of its own."""

_KEEP_NAN = frozenset({"heaviside", "sign"})


def numpy_scalar(path: str, form: tuple[Any, ...], named: tuple[tuple[str, Any], ...], *numbers: Any) -> Any:
    """A function of numpy (`"sqrt"`, `"float64.round"`), or an operator, on numbers. `form` and `named` say how its arguments are made of
    them: `"list"` or `"tuple"` with the items, the name of numpy's class of a number, or nothing for Python's own."""
    rest = iter(numbers)
    root = operator if path.startswith("operator.") else import_module("numpy")
    function = attrgetter(path.removeprefix("operator."))(root)
    args = [_formed(part, rest) for part in form]
    return function(*args, **{name: _formed(part, rest) for name, part in named})


def _formed(form: Any, numbers: Iterator[Any]) -> Any:
    if type(form) is tuple:
        items = [_formed(part, numbers) for part in form[1]]
        return items if form[0] == "list" else tuple(items)
    number = next(numbers)
    return getattr(import_module("numpy"), form)(number) if form else number


def numpy_number(path: str, form: tuple[Any, ...], named: tuple[tuple[str, Any], ...], *numbers: Any) -> Any:
    """The result of `numpy_scalar` as a number of Python's."""
    return numpy_scalar(path, form, named, *numbers).item()


def to_array(tensor: torch.Tensor) -> Any:
    """The numpy array in the memory of a result."""
    return tensor.detach().resolve_conj().resolve_neg().numpy()


def to_array_like(tensor: torch.Tensor, strides: tuple[int, ...] | None, writeable: bool) -> Any:
    """The array of a result with these strides: the same memory if only those of dimensions with one element are others, else a copy."""
    array = to_array(tensor)
    if strides is not None:
        if all(n == 1 or a == b for n, a, b in zip(array.shape, array.strides, strides, strict=True)):
            array = import_module("numpy").lib.stride_tricks.as_strided(array, strides=strides)
        else:
            array = laid_out(array, strides)
    if not writeable:
        array.flags.writeable = False
    return array


def laid_out(values: Any, strides: tuple[int, ...]) -> Any:
    """An array with these values and these strides in memory of its own; `values` if it has them."""
    if values.strides == strides or not values.size:
        return values
    numpy = import_module("numpy")
    reach = [(n - 1) * step for n, step in zip(values.shape, strides, strict=True)]
    low = sum(r for r in reach if r < 0)
    memory = numpy.empty(sum(r for r in reach if r > 0) - low + values.itemsize, numpy.uint8)
    made = numpy.ndarray(values.shape, values.dtype, memory, -low, strides)
    made[...] = values
    return made


def to_scalar(tensor: torch.Tensor) -> Any:
    """The numpy scalar that a result of one number stands for."""
    return to_array(tensor)[()]
