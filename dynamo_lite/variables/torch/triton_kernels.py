"""Triton kernels that the program launches.

Input: `kernel[grid](…)`, which is `kernel.run(…, grid=grid, warmup=False)`. Output: a node that calls an operator of the kernel
(`graph.triton_operators`); a grid that is a function is called for each configuration of a kernel that tunes itself.
Invariant: a kernel is known by identity; what is no tensor, int or float of the graph is a constant of its operator. A kernel does not know
autograd, so it gets tensors detached, and breaks the graph where it would write to one that requires gradients.
Mirrors `triton/runtime/jit.py` and `autotuner.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from triton.language.core import constexpr, dtype
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from dynamo_lite.exc import unsupported
from dynamo_lite.graph import triton_operators
from dynamo_lite.graph.triton_operators import KernelCall, Value
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.objects.instance import InstanceVariable
from dynamo_lite.variables.protocol.abstract import get_attr
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import FALSE, ConstantVariable
from dynamo_lite.variables.protocol.descr import PlainObject
from dynamo_lite.variables.protocol.dispatch import builtin

from .symnode import SymNodeVariable
from .tensor import TensorVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

SLUG = "triton-kernel"
CONSTANTS = (int, float, bool, str, type(None), torch.dtype)
OF_THE_LANGUAGE = (dtype, constexpr)  # `tl.float32`
GRID_DIMENSIONS = 3


class LaunchedKernel(PlainObject):
    """What a launch returns: the compiled kernel, at which nearly no program looks."""

    source = None

    def python_type(self) -> type:
        return object

    def emit_new(self, cg: Codegen) -> None:
        unsupported(SLUG, "the compiled kernel that a launch returns")

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return unsupported(SLUG, f"{name} of the compiled kernel that a launch returns")


@builtin(JITFunction.run, Autotuner.run)
def launch(
    tx: Frame,
    self: VariableTracker,
    *args: VariableTracker,
    grid: VariableTracker,
    warmup: VariableTracker = FALSE,
    **kwargs: VariableTracker,
) -> VariableTracker:
    kernel = _kernel_of(tx, self)
    if not warmup.is_python_constant() or warmup.as_python_constant():
        return unsupported(SLUG, "warmup")
    names = kernel.arg_names
    if len(args) > len(names) or not kwargs.keys().isdisjoint(names[: len(args)]):
        return unsupported(SLUG, f"{len(args)} arguments and {', '.join(kwargs)} for {', '.join(names)}")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    planned = {name: _planned(tx, name, value) for name, value in given.items()}
    grids = _grids(tx, kernel, grid, given)
    call = KernelCall(
        tuple(planned[name] for name in names[: len(args)]), tuple((name, planned[name]) for name in kwargs), len(grids)
    )
    tensors = {name: value for name, value in given.items() if isinstance(value, TensorVariable)}
    operator = triton_operators.operator_of(
        kernel, call, {name: tensor.proxy.meta.dtype for name, tensor in tensors.items()}
    )
    values = [
        _detached(tx, operator, name, value) if name in tensors else value
        for name, value in given.items()
        if isinstance(planned[name], Value)
    ]
    numbers = [number for one in grids for number in one]
    tx.tr.graph.call(tx, "call_function", operator, [*values, ListVariable(numbers)])
    return LaunchedKernel()


def _kernel_of(tx: Frame, instance: VariableTracker) -> Any:
    """The kernel, with everything that changes what a launch does besides running it ruled out."""
    if not isinstance(instance, InstanceVariable) or instance.source is None:
        return unsupported(SLUG, "a kernel made in the captured code")
    kernel = instance.value
    tx.tr.guard(instance.source, ir.IS, kernel)
    function = kernel.fn if type(kernel) is Autotuner else kernel
    if type(function) is not JITFunction:
        return unsupported(SLUG, f"a {type(function).__name__} in a kernel that tunes itself")
    if function.pre_run_hooks:
        return unsupported(SLUG, "pre_run_hooks")
    if type(kernel) is Autotuner:
        runs_code = kernel.user_defined_pre_hook or kernel.user_defined_post_hook or kernel.perf_model
        if runs_code or kernel.early_config_prune or any(config.pre_hook for config in kernel.configs):
            return unsupported(SLUG, "a kernel that tunes itself with functions of the program")
    return kernel


def _planned(tx: Frame, name: str, value: VariableTracker) -> Any:
    """What of an argument the operator takes: the value itself, or nothing of a constant."""
    if isinstance(value, TensorVariable):
        if type(value) is not TensorVariable or value.proxy.meta.layout is not torch.strided:
            return unsupported(SLUG, f"{name}, a tensor that is not plain and dense")
        return Value(torch.Tensor)
    if isinstance(value, InstanceVariable) and value.source is not None and value.cls in OF_THE_LANGUAGE:
        tx.tr.guard(value.source, ir.IS, value.value)
        return value.cls, value.value
    if isinstance(value, SymNodeVariable) and value.python_type() is int:
        return Value(int)
    if not value.is_python_constant() or type(value.as_python_constant()) not in CONSTANTS:
        return unsupported(SLUG, f"{name}, a {value.python_type().__name__}")
    constant = value.as_python_constant()
    return type(constant), constant


def _detached(tx: Frame, operator: Any, name: str, tensor: VariableTracker) -> VariableTracker:
    """A tensor as the kernel sees it."""
    assert isinstance(tensor, TensorVariable)
    if not tensor.proxy.meta.requires_grad:
        return tensor
    written = {argument.name for argument in operator._schema.arguments if argument.is_write}
    if f"arg_{name}" in written:
        unsupported(SLUG, f"{name}, which requires gradients and is written to")
    return tx.call(get_attr(tx, tensor, "detach"), [])


def _grids(
    tx: Frame, kernel: Any, grid: VariableTracker, given: dict[str, VariableTracker]
) -> list[list[VariableTracker]]:
    """Three numbers for each configuration."""
    if issubclass(grid.python_type(), tuple | list):
        return [_three(tx, grid)]
    configurations = [config.kwargs for config in kernel.configs] if type(kernel) is Autotuner else [{}]
    found = []
    for chosen in configurations:
        meta = {**given, **{name: tx.tr.wrap_new(value) for name, value in chosen.items()}}
        arguments = DictVariable()
        for name, value in meta.items():
            arguments.mp_ass_subscript(tx, ConstantVariable(name), value)
        found.append(_three(tx, tx.call(grid, [arguments])))
    return found


def _three(tx: Frame, grid: VariableTracker) -> list[VariableTracker]:
    numbers = list(tx.tr.unpack(tx, grid))
    if not 0 < len(numbers) <= GRID_DIMENSIONS or not all(issubclass(n.python_type(), int) for n in numbers):
        unsupported(SLUG, f"a grid that is {grid.describe()}")
    return numbers + [ConstantVariable(1)] * (GRID_DIMENSIONS - len(numbers))
