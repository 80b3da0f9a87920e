"""Weak references to objects that exist before the frame.

Input: a tracker, or a real `weakref.ref`. Output: `WeakRefVariable`.
Invariant: the object referred to is alive, which is guarded for a reference from outside.
Mirrors `Objects/weakrefobject.c`.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..exc import unsupported
from ..guards import ir
from .abstract import richcompare
from .base import MISSING, VariableTracker
from .constant import NOT_IMPLEMENTED, is_none
from .dispatch import constructor
from .keys import Key, hash_rule, key_of
from .native import NativeVariable, emit_call
from .wrap import builds


class WeakRefVariable(NativeVariable):
    """`weakref.ref(target)` without a callback, or a real reference."""

    cls = weakref.ref

    def __init__(self, target: VariableTracker, source: Any = None) -> None:
        self.target = target
        self.source = source

    def children(self) -> Any:
        return (self.target,)

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if args or kwargs:
            return tx.raises(TypeError, "weakref.__call__() takes no arguments")
        return self.target

    def tp_hash(self, tx: Any) -> VariableTracker:
        return self.target.tp_hash(tx)

    def tp_richcompare(self, tx: Any, other: VariableTracker, op: str) -> VariableTracker:
        if not isinstance(other, WeakRefVariable) or op not in ("==", "!="):
            return NOT_IMPLEMENTED
        return richcompare(tx, self.target, other.target, op)

    def emit_new(self, cg: Any) -> None:
        emit_call(cg, weakref.ref, self.target)


@hash_rule(weakref.ref.__hash__)
def weakref_key(tx: Any, v: Any) -> Any:
    return Key(v, (weakref_key, key_of(tx, v.target)))


@constructor(weakref.ref)
def new_weakref(
    tx: Any, cls: VariableTracker, object: VariableTracker, callback: VariableTracker | None = None, /
) -> VariableTracker:
    if not is_none(callback) or object.value is MISSING:
        return unsupported("weakref", object.describe())
    return WeakRefVariable(object)


def referent(reference: Any) -> Any:
    """What a weak reference refers to."""
    return reference()


@builds(weakref.ref)
def build_weakref(tr: Any, value: Any, source: Any) -> WeakRefVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    target = value()
    node = tr.source(source, ir.CALL, referent)
    tr.guard(node, ir.IS_NOT if target is not None else ir.IS, None)
    return WeakRefVariable(tr.wrap(target, node), source)
