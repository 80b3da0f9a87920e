"""What stands around the computation in `torch.optim` and training loops.

Input: calls of `record_function`, and operators with a tensor for a number. Output: nothing where only a profiler
would see it; operators that take a tensor in that place.
Invariant: results are those of eager execution, up to rounding where a tensor stands for a number.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.optim.asgd import asgd
from torch.optim.radam import radam

from ..exc import unsupported
from .base import VariableTracker
from .constant import FALSE, NONE, TRUE
from .dispatch import HANDLERS, builtin
from .list import ListVariable
from .tensor import TensorVariable

_CALLBACKS = "run_callbacks_on_exit"


@builtin(record_function.__enter__)
def record_enter(tx: Any, self: VariableTracker) -> VariableTracker:
    """A profiler sees the graph, not what it was made of. Should the block be left after a break, there is nothing to end."""
    self.tp_setattro(tx, _CALLBACKS, FALSE)
    return self


@builtin(record_function.__exit__)
def record_exit(tx: Any, self: VariableTracker, *exc_info: VariableTracker) -> VariableTracker:
    if self.tp_getattro(tx, _CALLBACKS).as_python_constant():
        return unsupported("call-skipped-function", "record_function.__exit__ of a block that was entered before")
    self.tp_setattro(tx, _CALLBACKS, TRUE)
    return NONE


def _scaled(tx: Any, value: Any, tensor: Any) -> VariableTracker:
    return tx.tr.graph.call(tx, "call_function", operator.mul, [value, tensor])


def _with_tensor_factor(name: str, function: Any) -> None:
    """`x.addcdiv_(a, b, value=v)` needs a number for v: with a tensor it is `x.add_(a / b * v)`."""
    raw = getattr(torch.Tensor, name)

    def handler(tx: Any, self: Any, *args: Any, **kwargs: Any) -> VariableTracker:
        call = tx.tr.graph.call
        value = kwargs.get("value")
        if not isinstance(value, TensorVariable) or len(args) != 2 or len(kwargs) > 1:
            return call(tx, "call_method", name, [self, *args], kwargs)
        term = _scaled(tx, value, call(tx, "call_function", function, list(args)))
        return call(tx, "call_method", "add_" if name.endswith("_") else "add", [self, term])

    HANDLERS[raw] = handler


def _with_tensor_alpha(name: str) -> None:
    raw = getattr(torch.Tensor, name)

    def handler(tx: Any, self: Any, *args: Any, **kwargs: Any) -> VariableTracker:
        call = tx.tr.graph.call
        alpha = kwargs.get("alpha")
        if isinstance(alpha, TensorVariable) and len(args) == 1 and len(kwargs) == 1:
            return call(tx, "call_method", name, [self, _scaled(tx, alpha, args[0])])
        return call(tx, "call_method", name, [self, *args], kwargs)

    HANDLERS[raw] = handler


for _name, _function in (("addcdiv", operator.truediv), ("addcmul", operator.mul)):
    _with_tensor_factor(_name, _function)
    _with_tensor_factor(_name + "_", _function)
for _name in ("add", "add_", "sub", "sub_"):
    _with_tensor_alpha(_name)


def _foreach_with_tensor_factors(function: Any, term: Any) -> None:
    """`_foreach_addcdiv_(params, a, b, factors)` likewise."""

    def handler(tx: Any, *args: Any, **kwargs: Any) -> VariableTracker:
        call = tx.tr.graph.call
        factors = args[3] if len(args) == 4 else None
        if isinstance(factors, TensorVariable):
            factors = ListVariable(list(call(tx, "call_function", torch.unbind, [factors]).items))
        if not isinstance(factors, ListVariable) or not any(isinstance(f, TensorVariable) for f in factors.items):
            return call(tx, "call_function", function, list(args), kwargs)
        terms = call(tx, "call_function", term, [args[1], args[2]])
        terms = call(tx, "call_function", torch._foreach_mul, [ListVariable(list(terms.items)), factors])
        return call(tx, "call_function", torch._foreach_add_, [args[0], ListVariable(list(terms.items))])

    HANDLERS[function] = handler


_foreach_with_tensor_factors(torch._foreach_addcdiv_, torch._foreach_div)
_foreach_with_tensor_factors(torch._foreach_addcmul_, torch._foreach_mul)


def _as_capturable(function: Any) -> None:
    """A step that looks at numbers in tensors unless it is asked to be `capturable` is asked. What it wraps need not ask whether it
    may run under a compiler."""

    @builtin(function)
    def handler(tx: Any, *args: Any, **kwargs: Any) -> VariableTracker:
        if "capturable" in kwargs:
            kwargs["capturable"] = TRUE
        return tx.call(tx.tr.build_constant_object(function.__wrapped__), list(args), kwargs)


for _function in (asgd, radam):
    _as_capturable(_function)
