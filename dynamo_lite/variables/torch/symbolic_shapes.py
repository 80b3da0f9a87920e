"""Questions that programs ask about numbers which vary or depend on data, and what they state about them.

Input: bools and numbers, some of them symbolic. Output: the answers of torch's `ShapeEnv` as constants; statements become assumptions.
Invariant: an answer leaves a guard only where torch's own does. What is stated about numbers that only the graph knows it asserts.
Mirrors `torch/fx/experimental/symbolic_shapes.py`. Imported once the program has loaded that module.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental import symbolic_shapes

from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, boolean, fold, is_none
from dynamo_lite.variables.protocol.dispatch import HANDLERS, builtin

from .symnode import SymNodeVariable, evaluate, is_unbacked, specialized
from .tensor import TensorVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


def _question(function: Callable[[Any], bool]) -> Callable[..., VariableTracker]:
    def handler(tx: Frame, a: VariableTracker) -> VariableTracker:
        sym = getattr(a.proxy, "sym", None) if isinstance(a, SymNodeVariable) else None
        return fold(tx, function, [specialized(a)], {}) if sym is None else boolean(evaluate(function, sym))

    return handler


for _name in "guard_or_false guard_or_true statically_known_true statically_known_false".split():
    HANDLERS[getattr(symbolic_shapes, _name)] = _question(getattr(symbolic_shapes, _name))


@builtin(symbolic_shapes.constrain_range)
def constrain_range(
    tx: Frame, a: VariableTracker, *, min: VariableTracker, max: VariableTracker = NONE
) -> VariableTracker:
    """Both ends are assumed; of a constant they are tested, as torch does."""
    if not isinstance(a, SymNodeVariable):
        return fold(tx, symbolic_shapes.constrain_range, [a], {"min": min, "max": max})
    for bound, op in ((min, ">="), (max, "<=")):
        if not is_none(bound):
            HANDLERS[torch._check_value](tx, a.tp_richcompare(tx, bound, op))
    return NONE


@builtin(symbolic_shapes.guard_int)
def guard_int(tx: Frame, a: VariableTracker) -> VariableTracker:
    return ConstantVariable(operator.index(a.as_python_constant()))


@builtin(symbolic_shapes.has_free_unbacked_symbols)
def has_free_unbacked_symbols(tx: Frame, x: VariableTracker) -> VariableTracker:
    """Whether a number, or a size or stride of a tensor, is one that only the graph knows."""
    if isinstance(x, TensorVariable):
        return boolean(any(map(is_unbacked, (*x.proxy.meta.shape, *x.proxy.meta.stride))))
    if isinstance(x, SymNodeVariable):
        return boolean(is_unbacked(x.proxy.sym))
    return fold(tx, symbolic_shapes.has_free_unbacked_symbols, [x], {})
