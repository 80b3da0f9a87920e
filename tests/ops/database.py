"""The calls of the sweep: torch's database of operators and modules, as functions with arguments.

Input: the name of an operator or module, a dtype, a device. Output: `Call`s, always the same ones. What the database says about torch's own
compiler is not looked at.
"""

import contextlib
import copy
import functools
import inspect
import itertools
from dataclasses import dataclass
from typing import Any

import torch

from tests.helpers import seeds
from tests.helpers.operator_database import common_methods_invocations, module_db, op_db, opinfo

OPERATORS = {op.full_name: op for op in op_db}
MODULES = {info.name: info for info in module_db}

SECOND_DTYPES = (torch.complex64, torch.int64, torch.bfloat16, torch.bool, torch.float64)
"""Beside float32, an operator is called with the first of these that it supports."""

UNINITIALISED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    }
)
"""The values that these return are whatever was in memory."""

CRASHES_WITHOUT_ROWS = frozenset({"nn.functional.pdist"})
"""torch 2.13 itself ends with a signal in the backward pass of these, where a tensor has size 0."""

LOOKED_AT = 60
"""Samples of an operator among which those of a run are chosen."""


def _call_seeded(op, *args, **kwargs):
    """Stands for the function by which the database seeds its random operators: the sweep seeds them itself."""
    return op(*args, **kwargs)


common_methods_invocations.wrapper_set_seed = _call_seeded


@dataclass
class Call:
    """`function(*args, **kwargs)`. `grad`: its result is differentiated; `fresh`: its first argument is computed from the given one, so
    that it may be changed in place."""

    variant: str
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool = False
    fresh: bool = False


def dtypes_of(supported):
    """The dtypes with which something is called."""
    first = [torch.float32] if torch.float32 in supported else []
    return first + [dtype for dtype in SECOND_DTYPES if dtype in supported][:1] or list(supported)[:1]


def spread(samples, count):
    """So many of the samples, from the first to the last of those looked at."""
    found = list(itertools.islice(samples, LOOKED_AT))
    if len(found) <= count:
        return found
    return [found[i * (len(found) - 1) // (count - 1)] for i in range(count)] if count > 1 else found[:1]


def operator_calls(op, dtype, count, device="cpu"):
    """The calls of an operator in all its forms."""
    grad = dtype in op.supported_backward_dtypes(device)
    for sample in spread(op.sample_inputs(device, dtype, requires_grad=grad), count):
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        yield Call("function", op.op, args, kwargs, grad)
        if op.method_variant is not None:
            yield Call("method", op.method_variant, args, kwargs, grad)
        yield from _keyword_calls(op, args, kwargs, grad)
        yield from _in_place_calls(op, args, kwargs, grad)
        if len(args) == 2 and not kwargs:
            if op.operator_variant is not None:
                yield Call("operator", op.operator_variant, args, kwargs, grad)
            if op.inplace_operator_variant is not None:
                yield Call("in place operator", op.inplace_operator_variant, constants(args), kwargs, fresh=True)
        if op.supports_out and "out" not in kwargs:
            yield from _out_calls(op, constants(args), constants(kwargs))
        for dim, variant in ((0, "no rows"), (-1, "no columns")):
            if any(value.dim() for value in _dense(args)):
                without_rows = grad and op.full_name not in CRASHES_WITHOUT_ROWS
                yield Call(variant, op.op, without(args, dim), without(kwargs, dim), without_rows)
    for error in spread(_errors(op, device), count):
        sample = error.sample_input
        yield Call("error", op.op, (sample.input, *sample.args), sample.kwargs)


def _keyword_calls(op, args, kwargs, grad):
    """The function and the method with as many keywords as they take."""
    for variant, function, kept in (("keyword", op.op, 0), ("method keyword", op.method_variant, 1)):
        for names in parameter_names(op) if function is not None and len(args) > kept else ():
            if len(names) < len(args) or not kwargs.keys().isdisjoint(names[: len(args)]):
                continue
            by_name = {**dict(zip(names[kept : len(args)], args[kept:], strict=True)), **kwargs}
            if _runs(function, constants(args[:kept]), constants(by_name)):
                yield Call(variant, function, args[:kept], by_name, grad)
                break


def parameter_names(op):
    """Lists of names that the positional parameters of an operator may have: those of its Python function, or of its overloads."""
    with contextlib.suppress(ValueError, TypeError):
        parameters = inspect.signature(op.op).parameters.values()
        if all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters):
            return [[parameter.name for parameter in parameters]]
    found = []
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{op.aten_name}"):
        found.append(["input" if argument.name == "self" else argument.name for argument in schema.arguments])
    return found


def _runs(function, args, kwargs):
    """Whether a call on copies of the arguments returns."""
    try:
        function(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    except Exception:
        return False
    return True


def _in_place_calls(op, args, kwargs, grad):
    """In place on a tensor that is computed, on an argument, on a view of an argument, and with the tensor as its own operand."""
    function = op.inplace_variant
    if function is None:
        return
    in_place = grad and op.supports_inplace_autograd
    taken = args if in_place else constants(args)
    yield Call("in place", function, taken, kwargs, in_place, fresh=True)
    plain, first = constants(args), args[0]
    yield Call("in place argument", function, plain, constants(kwargs))
    if not _dense([first]):
        return

    def on_view(base, *others, **options):
        return function(base[1], *others, **options), base

    stacked = torch.stack([first.detach(), first.detach()]).requires_grad_(in_place and first.requires_grad)
    yield Call("in place view", on_view, (stacked, *taken[1:]), kwargs, in_place, fresh=True)
    if len(args) == 2 and isinstance(args[1], torch.Tensor) and args[1].shape == first.shape:
        yield Call("in place itself", function, (plain[0], plain[0]), kwargs)


def _out_calls(op, args, kwargs):
    """With tensors for the result: such as the call makes them, of size 0, laid out otherwise, of a wider dtype, an argument."""
    result = result_of(op, args, kwargs)
    if result is None:
        return
    kinds = {"out": torch.empty_like, "out resized": _of_size_0, "out strided": _strided, "out cast": _wider}
    for variant, like in kinds.items():
        yield Call(variant, op.op, args, {**kwargs, "out": mapped(result, like)})
    elementwise = isinstance(op, opinfo.core.UnaryUfuncInfo | opinfo.core.BinaryUfuncInfo)
    first = args[0]
    if elementwise and _dense([first]) and (first.shape, first.dtype) == (result.shape, result.dtype):
        yield Call("out argument", op.op, args, {**kwargs, "out": first})


def _of_size_0(tensor):
    return tensor.new_empty(0)


def _strided(tensor):
    """Every second element of a larger tensor."""
    return tensor.new_zeros((*tensor.shape, 2))[..., 0] if _dense([tensor]) else torch.empty_like(tensor)


WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128, torch.bool: torch.float32}


def _wider(tensor):
    return torch.zeros_like(tensor, dtype=WIDER.get(tensor.dtype, torch.float64))


def _dense(values):
    return [value for value in values if isinstance(value, torch.Tensor) and value.layout is torch.strided]


def without(value, dim):
    """The same arguments with size 0 in this dimension of each tensor."""

    def emptied(tensor):
        if not _dense([tensor]) or tensor.dim() == 0:
            return tensor
        return tensor.detach().narrow(dim, 0, 0).clone().requires_grad_(tensor.requires_grad)

    return mapped(value, emptied)


def mapped(value, function):
    """A structure with `function` applied to its tensors."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if type(value) in (list, tuple):
        return type(value)([mapped(item, function) for item in value])
    return {key: mapped(item, function) for key, item in value.items()} if type(value) is dict else value


def _errors(op, device):
    return op.error_inputs(device) if op.error_inputs_func is not None else ()


def constants(value):
    """The same arguments without gradients."""
    return mapped(value, torch.Tensor.detach)


def result_of(op, args, kwargs):
    """The tensors that a call makes, or None where it has none or fails."""
    try:
        result = op.op(*args, **kwargs)
    except Exception:
        return None
    if isinstance(result, torch.Tensor):
        return result
    if isinstance(result, tuple | list) and all(isinstance(r, torch.Tensor) for r in result):
        return tuple(result)
    return None


def module_calls(info, dtype, count, device="cpu"):
    """Calls of modules made new, in training and in evaluation."""
    for training in (True, False):
        inputs = info.module_inputs_func(info, device=device, dtype=dtype, requires_grad=True, training=training)
        for sample in spread((s for s in inputs if s.forward_input is not None), count):
            build = sample.constructor_input
            seeds.seed()
            module = info.module_cls(*build.args, **build.kwargs).to(device, dtype).train(training)
            forward = sample.forward_input
            yield Call("training" if training else "evaluation", module, forward.args, forward.kwargs, grad=True)
            names = list(inspect.signature(module.forward).parameters)[: len(forward.args)]
            by_name = dict(zip(names, forward.args, strict=False))
            if len(by_name) == len(forward.args) and _runs(copy.deepcopy(module), (), {**by_name, **forward.kwargs}):
                yield Call("keyword", module, (), {**by_name, **forward.kwargs}, grad=True)
            yield Call("no rows", module, without(forward.args, 0), without(forward.kwargs, 0), grad=True)


def calls(name, dtype, count, device="cpu"):
    """All calls of an operator or module."""
    if name in OPERATORS:
        return operator_calls(OPERATORS[name], dtype, count, device)
    return module_calls(MODULES[name], dtype, count, device)


@functools.cache
def dtypes(name, device="cpu"):
    supported = OPERATORS[name].supported_dtypes(device) if name in OPERATORS else MODULES[name].dtypes
    return dtypes_of(supported)


def names():
    """Everything in the database."""
    return [*OPERATORS, *MODULES]
