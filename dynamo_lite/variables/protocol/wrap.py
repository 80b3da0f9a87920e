"""Which model a real object gets.

Input: a real object and its access path. Output: its tracker, by exact type, then by predicate, then along the MRO.
Invariant: a builder installs the guards on which its model rests from the start; it never runs user code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynamo_lite.isa.typeobject import mro_of

Builder = Callable[[Any, Any, Any], Any]

BUILDERS: dict[type, Builder] = {}
"""Exact type → builder(tr, value, source)."""

PREDICATES: list[tuple[Callable[[Any], bool], Builder]] = []
"""(predicate on the real object, builder), tried in order before the MRO; for kinds that cut across types (torch functions)."""

SUBCLASS_BUILDERS: dict[type, Builder] = {}
"""Base type → builder for instances of its subclasses."""


def builds(*types: type) -> Callable[[Builder], Builder]:
    """Register the builder for instances of exactly these types."""

    def decorate(builder: Builder) -> Builder:
        for t in types:
            if t in BUILDERS:
                raise ValueError(f"{t!r} has a builder already")
            BUILDERS[t] = builder
        return builder

    return decorate


def builds_if(predicate: Callable[[Any], bool]) -> Callable[[Builder], Builder]:
    """Register a builder for objects that satisfy a predicate (which must be cheap and must not run user code)."""

    def decorate(builder: Builder) -> Builder:
        PREDICATES.append((predicate, builder))
        return builder

    return decorate


def builds_subclasses(*bases: type) -> Callable[[Builder], Builder]:
    """Register the builder for instances of (possibly indirect) subclasses of these types."""

    def decorate(builder: Builder) -> Builder:
        for base in bases:
            SUBCLASS_BUILDERS[base] = builder
        return builder

    return decorate


def guarded(check: int, model: Callable[[Any, Any], Any]) -> Builder:
    """The builder `model(value, source)` of objects that guards hold to be the same (`ir.IS`), or equal (`ir.EQUALS`)."""

    def build(tr: Any, value: object, source: Any) -> Any:
        tr.guard(source, check, value)
        return model(value, source)

    return build


def find_builder(value: object) -> Builder:
    """The builder for a real object; `object`'s subclass builder is the last resort."""
    cls = type(value)
    for predicate, builder in PREDICATES:
        if predicate(value):
            return builder
    found = BUILDERS.get(cls)
    if found is not None:
        return found
    for base in mro_of(cls):
        if base in SUBCLASS_BUILDERS:
            return SUBCLASS_BUILDERS[base]
    raise LookupError(cls)
