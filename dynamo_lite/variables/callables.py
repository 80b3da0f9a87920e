"""Callables made by C types: bound methods from their constructor, `list[int]`, `int | None`.

Input: trackers of the constructor's arguments, or a real object. Output: `MethodVariable`, `AliasVariable`.
Invariant: calling one does what calling the real one does.
Mirrors `Objects/classobject.c`, `Objects/genericaliasobject.c`, `Objects/unionobject.c`.
"""

from __future__ import annotations

import types
from typing import Any

from ..guards import ir
from .base import VariableTracker
from .constant import ConstantVariable, is_none
from .dispatch import constructor, method
from .function import MethodVariable
from .wrap import builds

# -- bound methods


@constructor(types.MethodType)
def new_method(
    tx: Any, cls: VariableTracker, function: VariableTracker, instance: VariableTracker, /
) -> VariableTracker:
    if function.tp_call is None:
        return tx.raises(TypeError, "first argument must be callable")
    if is_none(instance):
        return tx.raises(TypeError, "instance must not be None")
    return MethodVariable(function, instance)


@method(
    *[
        cls.__call__
        for cls in (
            types.FunctionType,
            types.BuiltinFunctionType,
            types.MethodType,
            types.MethodDescriptorType,
            types.WrapperDescriptorType,
            types.MethodWrapperType,
            types.ClassMethodDescriptorType,
        )
    ]
)
def call_callable(
    tx: Any, self: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    return tx.call(self, list(args), kwargs)


# -- generic aliases and unions


class AliasVariable(ConstantVariable):
    """`list[int]`: a constant that is called as its origin."""

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(tx.tr.type_tracker(self.value.__origin__), args, kwargs)


@builds(types.GenericAlias)
def build_alias(tr: Any, value: Any, source: Any) -> AliasVariable:
    tr.guard(source, ir.EQUALS, value)
    return AliasVariable(value, source)


@builds(types.UnionType)
def build_union(tr: Any, value: Any, source: Any) -> ConstantVariable:
    tr.guard(source, ir.EQUALS, value)
    return ConstantVariable(value, source)
