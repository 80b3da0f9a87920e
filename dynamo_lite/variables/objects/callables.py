"""Callables made by C types: bound methods from their constructor, `list[int]`, `int | None`.

Input: trackers of the constructor's arguments, or a real object. Output: `MethodVariable`.
Invariant: calling one does what calling the real one does.
Mirrors `Objects/classobject.c`, `Objects/genericaliasobject.c`, `Objects/unionobject.c`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import is_none
from dynamo_lite.variables.protocol.dispatch import constructor, method

from .function import MethodVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

# -- bound methods


@constructor(types.MethodType)
def new_method(
    tx: Frame, cls: VariableTracker, function: VariableTracker, instance: VariableTracker, /
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
    tx: Frame, self: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    return tx.call(self, list(args), kwargs)
