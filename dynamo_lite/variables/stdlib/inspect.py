"""`inspect` on functions the analysis knows.

Input: a callable's tracker. Output: the real `Signature`, which rests on the function's code and defaults alone.
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.guards import ir
from dynamo_lite.variables.objects.function import BuiltinVariable, FunctionVariable, MethodVariable
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES
from dynamo_lite.variables.protocol.dispatch import builtin

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


@builtin(inspect.signature)
def signature(tx: Frame, obj: VariableTracker, **options: VariableTracker) -> VariableTracker:
    """That of a plain function is computed now; any other way to it is followed as the Python code that it is."""
    real = _plain_function(tx.tr, obj)
    if real is None:
        maker = tx.tr.build_constant_object(inspect.Signature)
        return tx.call(maker.tp_getattro(tx, "from_callable"), [obj], options)
    host_options = {name: value.as_python_constant() for name, value in options.items()}
    made = signature_of(*_parts(real), host_options)
    tx.tr.heap.recipes[id(made)] = (signature_of, (*_parts(real), host_options))
    return tx.tr.build_constant_object(made)


def _parts(real: Any) -> tuple[Any, bool]:
    return (real.__func__, True) if type(real) is types.MethodType else (real, False)


def signature_of(function: Any, is_bound: bool, options: dict[str, Any]) -> inspect.Signature:
    """The signature of a function, or of a method that it is."""
    return inspect.signature(types.MethodType(function, object()) if is_bound else function, **options)


def _guard_parts(tr: Trace, function: types.FunctionType, source: GuardNode | None) -> None:
    """Guard the facts beside the code on which the signature rests: defaults, annotations, and that no attribute says otherwise."""
    tr.guard(tr.source(source, ir.ATTR, "__dict__"), ir.DICT_KEYS, ())
    node = tr.source(source, ir.FUNC_DEFAULTS)
    if function.__defaults__ is None:
        tr.guard(node, ir.IS, None)
    else:
        tr.guard(node, ir.LEN, len(function.__defaults__))
        for i, value in enumerate(function.__defaults__):
            _pin(tr, tr.source(node, ir.INDEX, i), value)
    node = tr.source(source, ir.FUNC_KWDEFAULTS)
    if function.__kwdefaults__ is None:
        tr.guard(node, ir.IS, None)
    else:
        _pin_items(tr, node, function.__kwdefaults__)
    _pin_items(tr, tr.source(source, ir.ATTR, "__annotations__"), function.__annotations__)


def _pin_items(tr: Trace, node: Any, table: dict[str, Any]) -> None:
    tr.guard(node, ir.DICT_KEYS, tuple(table))
    for key, value in table.items():
        _pin(tr, tr.source(node, ir.DICT_ITEM, key), value)


def _pin(tr: Trace, node: Any, value: Any) -> None:
    by_value = type(value) in ATOMIC_TYPES and type(value) not in (type(None), bool, type(...), type(NotImplemented))
    tr.guard(node, ir.EQUALS if by_value else ir.IS, value)


def _plain_function(tr: Trace, obj: VariableTracker) -> Any:
    """A real function (or builtin) with the same signature, which depends on nothing that the program can change."""
    if isinstance(obj, FunctionVariable):
        if obj.value is not MISSING:
            if obj.value.__dict__ or obj.mutated:
                return None
            _guard_parts(tr, obj.value, obj.source)
            return obj.value
        if not obj.made and obj.dict is None:
            return types.FunctionType(obj.code, {}, None, None, tuple(types.CellType() for _ in obj.closure))
        return None
    if isinstance(obj, MethodVariable):
        function = _plain_function(tr, obj.function) if isinstance(obj.function, FunctionVariable) else None
        return None if function is None else types.MethodType(function, object())
    if isinstance(obj, BuiltinVariable):
        return obj.value
    return None
