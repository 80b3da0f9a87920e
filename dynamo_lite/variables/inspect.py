"""`inspect` on functions the analysis knows.

Input: a callable's tracker. Output: the real `Signature`, which rests on the function's code and defaults alone.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

from .base import MISSING, VariableTracker
from .dispatch import builtin
from .function import BuiltinVariable, FunctionVariable, MethodVariable


@builtin(inspect.signature)
def signature(tx: Any, obj: VariableTracker, **options: VariableTracker) -> VariableTracker:
    """That of a plain function is computed now; any other way to it is followed as the Python code that it is."""
    real = _plain_function(obj)
    if real is None:
        maker = tx.tr.build_constant_object(inspect.Signature)
        return tx.call(maker.tp_getattro(tx, "from_callable"), [obj], options)
    host_options = {name: value.as_python_constant() for name, value in options.items()}
    made = signature_of(*_parts(real), host_options)
    tx.tr.recipes[id(made)] = (signature_of, (*_parts(real), host_options))
    return tx.tr.build_constant_object(made)


def _parts(real: Any) -> tuple[Any, bool]:
    return (real.__func__, True) if isinstance(real, types.MethodType) else (real, False)


def signature_of(function: Any, is_bound: bool, options: dict[str, Any]) -> inspect.Signature:
    """The signature of a function, or of a method that it is."""
    return inspect.signature(types.MethodType(function, object()) if is_bound else function, **options)


def _plain_function(obj: VariableTracker) -> Any:
    """A real function (or builtin) with the same signature, which depends on nothing that the program can change."""
    if isinstance(obj, FunctionVariable):
        if obj.value is not MISSING:
            return None if obj.value.__dict__ or obj.mutated else obj.value
        if not obj.made and obj.dict is None:
            return types.FunctionType(obj.code, {}, None, None, tuple(types.CellType() for _ in obj.closure))
        return None
    if isinstance(obj, MethodVariable):
        function = _plain_function(obj.function) if isinstance(obj.function, FunctionVariable) else None
        return None if function is None else types.MethodType(function, object())
    if isinstance(obj, BuiltinVariable):
        return obj.value
    return None
