"""Views of dicts and the iterators over dicts.

Input: a `DictVariable`. Output: live views, and iterators that hold the dict and a position.
Invariant: views hold the dict, never a copy. An iterator wraps a host iterator over the model's own host dict, which
goes through the same changes as the dict of the traced program, so that it ends, and complains, exactly as CPython's.
Mirrors the second half of `Objects/dictobject.c` and `Objects/odictobject.c` (views, iterators).
"""

from __future__ import annotations

import collections
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import COMPARE_OPS, contains, iterated, length
from dynamo_lite.variables.protocol.base import Child, Plain, VariableTracker, load_filled
from dynamo_lite.variables.protocol.constant import NOT_IMPLEMENTED, boolean
from dynamo_lite.variables.protocol.dispatch import method
from dynamo_lite.variables.protocol.hashing import key_tracker
from dynamo_lite.variables.protocol.native import (
    NativeVariable,
    emit_call,
    part_text,
    recursive_repr,
    same_or_equal,
)
from dynamo_lite.variables.protocol.wrap import builds

from .iter import IteratorVariable, advance
from .tuple import TupleVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

OrderedDict = collections.OrderedDict


class DictViewVariable(NativeVariable):
    """A view; `kind` is the name of the dict method that makes it."""

    kind: str

    mapping: Any = Child()
    real_type: type | None = Plain(None)  # that of a view from outside, whose dict may be lazy, and is left so

    def __post_init__(self) -> None:
        self.cls = self.real_type or VIEW_TYPES[self.mapping.base is OrderedDict, self.kind]

    def mp_length(self, tx: Frame) -> VariableTracker:
        return self.mapping.used(tx)

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return DictIterator(self.mapping, self.kind)

    def objects(self) -> list[VariableTracker]:
        """The items of the view, in order."""
        return [item_of(self.kind, *pair) for pair in self.mapping.items.items()]

    def tp_repr(self, tx: Frame) -> VariableTracker:
        def text() -> str:
            return f"{self.python_type().__name__}([{', '.join([part_text(tx, v) for v in self.objects()])}])"

        return recursive_repr(tx, self, "...", text)

    def emit_new(self, cg: Codegen) -> None:
        emit_call(cg, getattr(self.mapping.base, self.kind), self.mapping)


def item_of(kind: str, key: object, value: VariableTracker) -> VariableTracker:
    """The item that an iterator of this kind gives for one entry."""
    if kind == "keys":
        return key_tracker(key)
    return value if kind == "values" else TupleVariable([key_tracker(key), value])


class DictValuesVariable(DictViewVariable):
    """`d.values()`."""

    kind = "values"


class SetLike(DictViewVariable):
    """Keys and items views compare as sets; their set algebra is in `set.py`."""

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        """`dictview_richcompare`: by lengths first, then containment of the smaller one."""
        if not is_set_like(other):
            return NOT_IMPLEMENTED
        size_v, size_w = length(tx, self).value, length(tx, other).value
        if op in ("==", "!="):
            equal = size_v == size_w and all_contained(tx, self, other)
            return boolean(equal is (op == "=="))
        if not COMPARE_OPS[op](size_v, size_w):
            return boolean(False)
        small, large = (self, other) if op in ("<", "<=") else (other, self)
        return boolean(all_contained(tx, small, large))


def is_set_like(v: VariableTracker) -> bool:
    """`PyAnySet_Check(v) || PyDictViewSet_Check(v)`."""
    return isinstance(v, SetLike) or issubclass(v.python_type(), (set, frozenset))


def all_contained(tx: Frame, small: VariableTracker, large: VariableTracker) -> bool:
    """`all_contained_in`."""
    return all(contains(tx, large, item).value for item in iterated(tx, small))


class DictKeysVariable(SetLike):
    """`d.keys()`."""

    kind = "keys"

    def sq_contains(self, tx: Frame, item: VariableTracker) -> VariableTracker:
        return boolean(self.mapping.find(self.mapping.key(tx, item)) is not None)


class DictItemsVariable(SetLike):
    """`d.items()`."""

    kind = "items"

    def sq_contains(self, tx: Frame, item: VariableTracker) -> VariableTracker:
        if not issubclass(item.python_type(), tuple) or len(item.items) != 2:
            return boolean(False)
        found = self.mapping.find(self.mapping.key(tx, item.items[0]))
        return boolean(found is not None and same_or_equal(tx, found, item.items[1]))


VIEW_TYPES: dict[tuple[bool, str], type] = {
    (ordered, kind): type(getattr(d, kind)())
    for ordered, d in ((False, {}), (True, OrderedDict()))
    for kind in ("keys", "values", "items")
}
VIEW_MODELS: dict[str, type[DictViewVariable]] = {
    "keys": DictKeysVariable,
    "values": DictValuesVariable,
    "items": DictItemsVariable,
}


# -- iterators


class DictIterator(IteratorVariable):
    """An iterator over a dict's keys, values or items, forwards or backwards."""

    mapping: Any = Child()
    kind: str = Plain()
    backwards: bool = Plain(False)
    consumed = 0
    done = False

    def __post_init__(self) -> None:
        items = self.mapping.items.items()
        self.base: type = self.mapping.base
        self.size = len(items)
        self.host: Iterator[tuple[Any, VariableTracker]] = reversed(items) if self.backwards else iter(items)

    def python_type(self) -> type:
        return ITERATOR_TYPES[self.base is OrderedDict, self.kind, self.backwards]

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        if self.done:
            return None
        try:
            key, value = next(self.host)
        except StopIteration:
            self.done = True
            return None
        except RuntimeError as error:
            tx.raises_like(error)
        self.consumed += 1
        return item_of(self.kind, key, value)

    def can_be_made_again(self) -> bool:
        """Whether an iterator over the dict as it is now gives the same after as many items."""
        if len(self.mapping.items) != self.size:
            return False
        items = list(self.mapping.items.items())
        try:
            to_come = self.host.__reduce__()[1][0]  # a list, made without moving the iterator
        except RuntimeError:  # keys were exchanged: one iterator more would not complain as this one will
            return False
        return [id(v) for _, v in to_come] == [
            id(v) for _, v in (items[::-1] if self.backwards else items)[self.consumed :]
        ]

    def emit_new(self, cg: Codegen) -> None:
        if not self.done and not self.can_be_made_again():
            unsupported("reconstruct", "an iterator over a dict that has changed since")
        cg.load_callable(advance)
        cg.load_callable(reversed if self.backwards else iter)
        cg.load_callable(getattr(self.base, self.kind))
        if self.done:
            emit_call(cg, dict if self.base is not OrderedDict else OrderedDict)
        else:
            load_filled(cg, self.mapping)
        cg.asm.call(1)
        cg.asm.call(1)
        cg.load_const(1 if self.done else self.consumed)
        cg.asm.call(2)


def _iterator_type(d: object, kind: str, backwards: bool) -> type:
    view = getattr(d, kind)()
    return type(reversed(view) if backwards else iter(view))


ITERATOR_TYPES: dict[tuple[bool, str, bool], type] = {
    (ordered, kind, backwards): _iterator_type(d, kind, backwards)
    for ordered, d in ((False, {}), (True, OrderedDict()))
    for kind in ("keys", "values", "items")
    for backwards in (False, True)
}

# -- methods of views


for _cls in VIEW_TYPES.values():

    @method(_cls.__reversed__)
    def view_reversed(tx: Frame, self: DictViewVariable, /) -> VariableTracker:
        return DictIterator(self.mapping, self.kind, backwards=True)


@method(VIEW_TYPES[False, "keys"].isdisjoint, VIEW_TYPES[False, "items"].isdisjoint)
def view_isdisjoint(tx: Frame, self: SetLike, other: VariableTracker, /) -> VariableTracker:
    """`dictviews_isdisjoint`: a longer set or view is asked for the items of this one."""
    asked: VariableTracker = self
    if self is not other and (other.python_type() in (set, frozenset) or isinstance(other, SetLike)):
        if length(tx, other).value > length(tx, self).value:
            asked, other = other, self
    return boolean(not any(contains(tx, asked, item).value for item in iterated(tx, other)))


# -- views that exist before the frame


def dict_behind(view: object) -> Any:
    """The dict of a real view."""
    return gc.get_referents(view)[0]


@builds(*dict.fromkeys(VIEW_TYPES.values()))
def build_view(tr: Trace, value: object, source: GuardNode | None) -> DictViewVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    mapping = tr.wrap(dict_behind(value), tr.source(source, ir.CALL, dict_behind))
    ordered, kind = next(key for key, cls in VIEW_TYPES.items() if cls is type(value))
    if not ordered and issubclass(type(dict_behind(value)), OrderedDict):
        unsupported("call-c-function", "the order of an OrderedDict's table")
    return VIEW_MODELS[kind](mapping, type(value), source)
