"""`list[int]` and `int | None`: generic aliases and unions.

Input: real objects, or constants to make them from. Output: `AliasVariable`, `UnionVariable`.
Invariant: both are constants, equal to others by their parts; what they compute from constants is computed for real.
Mirrors `Objects/genericaliasobject.c` and `Objects/unionobject.c`.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import contextvars
import functools
import itertools
import operator
import re
import types
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import get_attr, set_attr
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import NOT_IMPLEMENTED, ConstantVariable, fold, is_constant
from dynamo_lite.variables.protocol.descr import type_lookup
from dynamo_lite.variables.protocol.dispatch import constructor, method
from dynamo_lite.variables.protocol.wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


def combine(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
    """`v | w` of constants. The parts are compared with each other, for which a metaclass may have a method of its own."""
    if not (_is_quiet(v.value) and _is_quiet(w.value)):
        unsupported("class-definition", "a union with a class whose metaclass compares")
    return fold(tx, operator.or_, [v, w], {})


def _is_quiet(part: Any) -> bool:
    if issubclass(type(part), type):
        return type_lookup(type(part), "__eq__") is object.__eq__
    return all(map(_is_quiet, part.__args__)) if type(part) in (types.GenericAlias, types.UnionType) else True


class TypeExpressionVariable(ConstantVariable):
    """The base of aliases and unions."""

    @staticmethod
    def nb_or(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        return combine(tx, v, w) if is_constant(v, w) else NOT_IMPLEMENTED

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        return fold(tx, operator.getitem, [self, key], {})


class _Asking(type):
    """The type of a class that notes the attributes it is asked for."""

    asked: set[str] = set()

    def __getattribute__(cls, name: str) -> Any:
        _Asking.asked.add(name)
        return type.__getattribute__(cls, name)


class _Origin(metaclass=_Asking):
    """A class that records that an alias asks it."""


@functools.cache
def _is_of_origin(name: str) -> bool:
    """Whether an alias takes this attribute from its origin."""
    alias = types.GenericAlias(_Origin, ())
    _Asking.asked.clear()
    with contextlib.suppress(AttributeError):
        getattr(alias, name)
    return name in _Asking.asked


class AliasVariable(TypeExpressionVariable):
    """`list[int]`: it is called as its origin, and has most of its attributes."""

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        """`ga_getattro`."""
        if _is_of_origin(name):
            return get_attr(tx, tx.tr.type_tracker(self.value.__origin__), name)
        return super().tp_getattro(tx, name)

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """`ga_call`: what is made is told of the alias, if it can be."""
        made = tx.call(tx.tr.type_tracker(self.value.__origin__), args, kwargs)
        if made.is_user_made:
            try:
                set_attr(tx, made, "__orig_class__", self)
            except ObservedException as observed:
                if not issubclass(observed.exc.python_type(), (AttributeError, TypeError)):
                    raise
        return made

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return unsupported("call-c-function", f"iteration over {self.value!r}")


class UnionVariable(TypeExpressionVariable):
    """`int | None`."""


@builds(types.GenericAlias)
def build_alias(tr: Trace, value: object, source: GuardNode | None) -> AliasVariable:
    tr.guard(source, ir.EQUALS, value)
    return AliasVariable(value, source)


@builds(types.UnionType)
def build_union(tr: Trace, value: object, source: GuardNode | None) -> UnionVariable:
    tr.guard(source, ir.EQUALS, value)
    return UnionVariable(value, source)


@constructor(types.GenericAlias)
def new_alias(tx: Frame, cls: VariableTracker, origin: VariableTracker, args: VariableTracker, /) -> VariableTracker:
    return fold(tx, types.GenericAlias, [origin, args], {})


def _generic_classes() -> Iterator[Any]:
    """The `__class_getitem__` of classes written in C."""
    for module in (builtins, collections, contextvars, functools, itertools, re, weakref):
        for cls in vars(module).values():
            raw = vars(cls).get("__class_getitem__") if issubclass(type(cls), type) else None
            if type(raw) is types.ClassMethodDescriptorType:
                yield raw


@method(*dict.fromkeys(_generic_classes()))
def class_getitem(tx: Frame, cls: VariableTracker, item: VariableTracker, /) -> VariableTracker:
    """`Py_GenericAlias`."""
    return fold(tx, types.GenericAlias, [cls, item], {})
