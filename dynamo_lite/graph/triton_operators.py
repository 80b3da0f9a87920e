"""Calls of Triton kernels as operators, which a graph can hold.

Input: a kernel, and how one call gives it its arguments. Output: an operator on the tensors and numbers of the call, and the grid, which
launches the kernel. AOTAutograd looks into it (`torch.library.triton_op`), so that compilers see the kernel.
Invariant: calls with equal constants share an operator; its schema says to which tensors the kernel writes. It knows nothing of autograd,
as the kernel: tensors that require gradients are detached before.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.library import triton_op, wrap_triton

from dynamo_lite.backends.triton_writes import written_tensors

NAMESPACE = "dynamo_lite_triton"


class Value(NamedTuple):
    """An argument of the operator."""

    type: type


class KernelCall(NamedTuple):
    """How a kernel is called: positional and named arguments, each a `Value` or a constant, with the type of the constant beside it, since
    1 and True are equal; the number of configurations that a grid is given for."""

    positional: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    n_grids: int

    def arguments(self, names: Sequence[str]) -> dict[str, Any]:
        """By name, in the order in which the operator takes the values."""
        return {**dict(zip(names, self.positional, strict=False)), **dict(self.named)}


_operators: dict[tuple[int, KernelCall], tuple[Any, OpOverload]] = {}
"""Kernels are compared by identity: torch's registry keeps the operator, and with it the kernel, for the whole process."""


def operator_of(kernel: Any, call: KernelCall, dtypes: Mapping[str, torch.dtype]) -> OpOverload:
    """The operator for such calls. `dtypes`: those of the tensors, by parameter."""
    key = id(kernel), call
    found = _operators.get(key)
    if found is None:
        found = _operators[key] = kernel, _make(kernel, call, dtypes)
    return found[1]


def _make(kernel: Any, call: KernelCall, dtypes: Mapping[str, torch.dtype]) -> OpOverload:
    arguments = call.arguments(kernel.arg_names)
    values = {name: value.type for name, value in arguments.items() if isinstance(value, Value)}
    written = written_tensors(kernel, _samples(kernel, arguments, dtypes)) & values.keys()
    written |= {name for name in getattr(kernel, "reset_to_zero", ()) if name in values}
    parameters = {f"arg_{name}": kind for name, kind in values.items()}
    operator = triton_op(
        f"{NAMESPACE}::{_function_of(kernel).__name__}_{len(_operators)}",
        _with_signature(_launcher(kernel, call, list(values)), {**parameters, "grids": Sequence[int]}),
        mutates_args={f"arg_{name}" for name in written},
    )
    return operator._opoverload


def _function_of(kernel: Any) -> Callable[..., Any]:
    """The function of the program that a kernel, or one that tunes itself, is made of."""
    return getattr(kernel, "base_fn", None) or kernel.fn


def _samples(kernel: Any, arguments: Mapping[str, Any], dtypes: Mapping[str, torch.dtype]) -> dict[str, Any]:
    """A value for each parameter of the kernel."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(_function_of(kernel)).parameters.items()
        if parameter.default is not parameter.empty
    }
    given = {name: _sample(value, dtypes.get(name)) for name, value in arguments.items() if name in kernel.arg_names}
    return {**defaults, **given}


def _sample(value: Any, dtype: torch.dtype | None) -> Any:
    if not isinstance(value, Value):
        return value[1]
    return torch.empty(2, dtype=dtype) if value.type is torch.Tensor else value.type(2)


def _launcher(kernel: Any, call: KernelCall, names: list[str]) -> Callable[..., None]:
    """The function of the operator: its arguments are the values in order, then three numbers for each grid."""
    traceable = wrap_triton(kernel)

    def launch(*given: Any) -> None:
        values, grids = iter(given[:-1]), given[-1]

        def argument(planned: Any) -> Any:
            return next(values) if isinstance(planned, Value) else planned[1]

        positional = [argument(planned) for planned in call.positional]
        named = {name: argument(planned) for name, planned in call.named}

        def grid(meta: Mapping[str, Any]) -> tuple[Any, ...]:
            i = 3 * _configuration(kernel, meta) if call.n_grids > 1 else 0
            return tuple(grids[i : i + 3])

        traceable[grid](*positional, **named)

    return launch


def _configuration(kernel: Any, meta: Mapping[str, Any]) -> int:
    """The number of the configuration with which a kernel that tunes itself is launched."""
    for i, config in enumerate(kernel.configs):
        if all(name in meta and meta[name] == value for name, value in config.kwargs.items()):
            return i
    raise RuntimeError(f"{kernel.base_fn.__name__}: launched with none of its configurations")


def _with_signature(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Callable[..., Any]:
    """torch makes the schema of the operator from the annotations of its parameters."""
    made = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)
        for name, kind in parameters.items()
    ]
    function.__signature__ = inspect.Signature(made, return_annotation=None)  # type: ignore[attr-defined]
    return function
