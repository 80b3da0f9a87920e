"""Enum members: singletons known by identity.

Input: a real member. Output: `EnumVariable`, a constant whose attributes follow its class.
Mirrors `Lib/enum.py`: `value` and `name` are descriptors of the class; members of mixed-in types behave as those.
"""

from __future__ import annotations

import enum
import types
from typing import Any

from ..guards import ir
from .abstract import COMPARE_OPS
from .base import VariableTracker
from .constant import ConstantVariable, fold, is_constant
from .descr import generic_getattr, type_lookup
from .wrap import builds_if


class EnumVariable(ConstantVariable):
    """A member of an Enum class."""

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        raw = type_lookup(type(self.value), name)
        if isinstance(raw, (types.FunctionType, property, classmethod, staticmethod)):
            return generic_getattr(tx, self, name)
        try:
            found = getattr(self.value, name)
        except AttributeError as error:
            return tx.raises(AttributeError, str(error))
        return tx.tr.wrap(found, tx.tr.constant_source(found))

    def tp_richcompare(self, tx: Any, other: VariableTracker, op: str) -> VariableTracker:
        custom = type_lookup(type(self.value), _COMPARE_NAMES[op])
        if isinstance(custom, types.FunctionType):
            return tx.call(tx.tr.build_constant_object(custom), [self, other])
        if not is_constant(other):
            return ConstantVariable(NotImplemented)
        return fold(tx, COMPARE_OPS[op], [self, other], {})

    def tp_hash(self, tx: Any) -> VariableTracker:
        return ConstantVariable(hash(self.value))

    def emit_new(self, cg: Any) -> None:
        cg.load_const(self.value)


_COMPARE_NAMES = {"<": "__lt__", "<=": "__le__", "==": "__eq__", "!=": "__ne__", ">": "__gt__", ">=": "__ge__"}


@builds_if(lambda value: issubclass(type(value), enum.Enum))
def build_enum(tr: Any, value: enum.Enum, source: Any) -> EnumVariable:
    tr.guard(source, ir.IS, value)
    return EnumVariable(value, source)
