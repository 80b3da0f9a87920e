"""The calls of the sweep: torch's database of operators and modules, as functions with arguments.

Input: the name of an operator or module, a dtype. Output: `Call`s, always the same ones. What the database says about torch's own
compiler is not looked at.
"""

import functools
import itertools
import sys
import types
import unittest
from dataclasses import dataclass
from typing import Any

import torch

if "expecttest" not in sys.modules:  # the database's modules want it for tests of their own
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase

from torch.testing._internal import common_methods_invocations, common_modules

OPERATORS = {op.full_name: op for op in common_methods_invocations.op_db}
MODULES = {info.name: info for info in common_modules.module_db}

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


def operator_calls(op, dtype, count):
    """The calls of an operator in all its forms."""
    grad = dtype in op.supported_backward_dtypes("cpu")
    for sample in spread(op.sample_inputs("cpu", dtype, requires_grad=grad), count):
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        yield Call("function", op.op, args, kwargs, grad)
        if op.method_variant is not None:
            yield Call("method", op.method_variant, args, kwargs, grad)
        if op.inplace_variant is not None:
            in_place = grad and op.supports_inplace_autograd
            yield Call(
                "in place", op.inplace_variant, args if in_place else constants(args), kwargs, in_place, fresh=True
            )
        if len(args) == 2 and not kwargs:
            if op.operator_variant is not None:
                yield Call("operator", op.operator_variant, args, kwargs, grad)
            if op.inplace_operator_variant is not None:
                yield Call("in place operator", op.inplace_operator_variant, constants(args), kwargs, fresh=True)
        if op.supports_out and "out" not in kwargs:
            out = out_for(op, constants(args), constants(kwargs))
            if out is not None:
                yield Call("out", op.op, constants(args), {**constants(kwargs), "out": out})
    for error in spread(_errors(op), count):
        sample = error.sample_input
        yield Call("error", op.op, (sample.input, *sample.args), sample.kwargs)


def _errors(op):
    return op.error_inputs("cpu") if op.error_inputs_func is not None else ()


def constants(value):
    """The same arguments without gradients."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if type(value) in (list, tuple):
        return type(value)([constants(item) for item in value])
    return {key: constants(item) for key, item in value.items()} if type(value) is dict else value


def out_for(op, args, kwargs):
    """Tensors for the result, or None where the call has none or fails."""
    try:
        result = op.op(*args, **kwargs)
    except Exception:
        return None
    if isinstance(result, torch.Tensor):
        return torch.empty_like(result)
    if isinstance(result, tuple | list) and all(isinstance(r, torch.Tensor) for r in result):
        return tuple([torch.empty_like(r) for r in result])
    return None


def module_calls(info, dtype, count):
    """Calls of modules made new, in training and in evaluation."""
    for training in (True, False):
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for sample in spread((s for s in inputs if s.forward_input is not None), count):
            build = sample.constructor_input
            torch.manual_seed(0)
            module = info.module_cls(*build.args, **build.kwargs).to(dtype).train(training)
            forward = sample.forward_input
            yield Call("training" if training else "evaluation", module, forward.args, forward.kwargs, grad=True)


def calls(name, dtype, count):
    """All calls of an operator or module."""
    if name in OPERATORS:
        return operator_calls(OPERATORS[name], dtype, count)
    return module_calls(MODULES[name], dtype, count)


@functools.cache
def dtypes(name):
    supported = OPERATORS[name].supported_dtypes("cpu") if name in OPERATORS else MODULES[name].dtypes
    return dtypes_of(supported)


def names():
    """Everything in the database."""
    return [*OPERATORS, *MODULES]
