"""Operators that `torch.optim` calls with a tensor for a number, and optimisers that look at numbers in tensors.

Input: their calls. Output: operators that take a tensor in that place.
Invariant: results are those of eager execution; where a tensor stands for a number, compiled ones up to rounding.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.asgd import asgd
from torch.optim.radam import radam

from dynamo_lite.exc import FirstUse
from dynamo_lite.graph.core import functional
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.protocol.abstract import get_attr, is_true
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import TRUE, ConstantVariable
from dynamo_lite.variables.protocol.dispatch import HANDLERS, builtin

from .functions import call_in_graph
from .tensor import TensorVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


def _takes_tensor(vt: VariableTracker) -> bool:
    """Whether a tensor, or a list with one, stands where an operator's parser reads numbers."""
    if isinstance(vt, ListVariable):
        return any(isinstance(item, TensorVariable) for item in vt.items)
    return isinstance(vt, TensorVariable)


def _is_list(vt: VariableTracker) -> bool:
    return isinstance(vt, ListVariable)


def _with_tensor_for_number(raw: Any, name: str, option: str, n_args: int) -> None:
    """An operator with a tensor as the argument `option`. Methods have it as a keyword only."""
    op = "call_function" if isinstance(raw, types.BuiltinFunctionType) else "call_method"

    def handler(tx: Frame, *args: Any, **kwargs: Any) -> VariableTracker:
        call = tx.tr.graph.call
        given = dict(kwargs)
        number = args[n_args] if len(args) > n_args and op == "call_function" else given.pop(option, None)
        if not _takes_tensor(number) or given or len(args) < n_args or (option == "weight" and _is_list(number)):
            return call_in_graph(tx, raw, list(args), kwargs)
        function = ConstantVariable(name)
        return call(tx, "call_function", functional.with_tensor_for_number, [function, number, *args[:n_args]])

    HANDLERS[raw] = handler


for _name, _option, _n in (("add", "alpha", 2), ("sub", "alpha", 2), ("addcdiv", "value", 3), ("addcmul", "value", 3)):
    for _method in (_name, f"{_name}_"):
        _with_tensor_for_number(getattr(torch.Tensor, _method), _method, _option, _n)
for _method in ("_foreach_addcdiv_", "_foreach_addcmul_"):
    _with_tensor_for_number(getattr(torch, _method), _method, "scalars", 3)
_with_tensor_for_number(torch._foreach_lerp_, "_foreach_lerp_", "weight", 2)


def _as_capturable(function: Any) -> None:
    """Follow the wrapped function of an optimiser's step with `capturable=True`: else it reads numbers from tensors. The wrapper itself
    only asks whether a compiler runs."""

    @builtin(function)
    def handler(tx: Frame, *args: Any, **kwargs: Any) -> VariableTracker:
        if "capturable" in kwargs:
            kwargs["capturable"] = TRUE
        return tx.call(tx.tr.build_constant_object(function.__wrapped__), list(args), kwargs)


for _function in (asgd, radam):
    _as_capturable(_function)


# -- state that an optimiser makes at its first step


_CHECK = "_need_device_dtype_check_for_fused"


def _with_state(function: Any) -> None:
    """A function that makes the state of parameters without one, and notes the checks that are done. A step in which it does so runs
    eagerly, since later steps differ from it."""

    @builtin(function)
    def handler(tx: Frame, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        tr = tx.tr
        checks = self.value is not MISSING and _CHECK in vars(self.value) and is_true(tx, get_attr(tx, self, _CHECK))
        state = get_attr(tx, self, "state")
        # As any other function: torch marks `_init_group` as disabled once torch.compile has run, which is no wish of the program's.
        tr.heap.followed[id(function)] = function
        try:
            result = tx.call(tr.build_constant_object(function), [self, *args], kwargs)
        finally:
            del tr.heap.followed[id(function)]
        is_first = state.mutated or (checks and not is_true(tx, get_attr(tx, self, _CHECK)))
        if is_first and not tr.thread.loops_follow():
            raise FirstUse(
                "call-skipped-function", f"{self.python_type().__qualname__}, whose first step makes its state"
            )
        return result


for _cls in {value for value in vars(torch.optim).values() if isinstance(value, type)}:
    if "_init_group" in vars(_cls):
        _with_state(_cls._init_group)
