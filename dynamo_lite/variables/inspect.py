"""`inspect` on functions the analysis knows.

Input: a callable's tracker. Output: the real `Signature`, which rests on the function's code and defaults alone.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

from ..exc import unsupported
from .base import MISSING, VariableTracker
from .dispatch import builtin
from .function import FunctionVariable, MethodVariable


@builtin(inspect.signature)
def signature(tx: Any, obj: VariableTracker, **options: VariableTracker) -> VariableTracker:
    host_options = {name: value.as_python_constant() for name, value in options.items()}
    return tx.tr.build_constant_object(inspect.signature(_real_callable(obj), **host_options))


def _real_callable(obj: VariableTracker) -> Any:
    """A real callable with the same signature."""
    if isinstance(obj, MethodVariable) and isinstance(obj.function, FunctionVariable):
        return types.MethodType(_real_callable(obj.function), object())
    if isinstance(obj, FunctionVariable) and obj.value is not MISSING:
        return obj.value
    if isinstance(obj, FunctionVariable) and not obj.made:
        return types.FunctionType(obj.code, {}, None, None, tuple(types.CellType() for _ in obj.closure))
    if obj.is_python_constant():
        return obj.as_python_constant()
    return unsupported("frame-introspection", f"signature of {obj.describe()}")
