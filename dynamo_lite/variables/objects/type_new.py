"""Calls of `type`, and the subclasses of a class.

Input: trackers of classes. Output: the class of an object, lists of classes. Making a class breaks the graph.
Mirrors `type_call` and `type___subclasses___impl` of `Objects/typeobject.c`.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.dispatch import constructor, method, refuse

from .function import BuiltinClassMethodVariable, BuiltinVariable, FunctionVariable, MethodVariable
from .subclass import NATIVE_MODELS, PLAIN_BASES
from .type import TypeVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

NATIVE_MODELS.update(
    {
        type: TypeVariable,
        types.FunctionType: FunctionVariable,
        types.MethodType: MethodVariable,
        types.MethodDescriptorType: BuiltinVariable,
        types.WrapperDescriptorType: BuiltinVariable,
        types.ClassMethodDescriptorType: BuiltinClassMethodVariable,
    }
)
PLAIN_BASES.add(type)


refuse("class-definition", type.__new__, builtins.__build_class__)


@method(type.__subclasses__)
def type_subclasses(tx: Frame, cls: TypeVariable, /) -> VariableTracker:
    """The classes that are there when the program runs."""
    found = type.__subclasses__(cls.value)
    node = tx.tr.source(tx.tr.constant_source(cls.value), ir.CALL, type.__subclasses__)
    tx.tr.guard(node, ir.PYTHON, _same_classes(found))
    return ListVariable([tx.tr.type_tracker(sub) for sub in found])


def _same_classes(expected: list[type]) -> Callable[[list[type]], bool]:
    ids = [id(cls) for cls in expected]
    return lambda now: [id(cls) for cls in now] == ids


@constructor(type)
def call_type(tx: Frame, meta: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker) -> Any:
    """`type(x)`."""
    if len(args) == 1 and not keywords:
        return tx.tr.type_of(tx, args[0])
    return unsupported("class-definition", f"{meta.describe()}()")
