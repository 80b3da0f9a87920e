"""What lists and tuples share: items, subscripts, slices, comparison, search.

Input: an `items` list of trackers, present or still to be loaded from a real sequence. Output: the slots.
Invariant: `items` of a sourced sequence is absent until first used; loading it guards the length, and each item is
lazy.
Mirrors the common parts of `Objects/listobject.c` and `Objects/tupleobject.c`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import COMPARE_OPS, richcompare, size_index, type_name
from dynamo_lite.variables.protocol.base import Children, VariableTracker
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, NOT_IMPLEMENTED, ConstantVariable, boolean
from dynamo_lite.variables.protocol.native import (
    NativeVariable,
    checked_load,
    checked_size,
    host_index,
    host_int,
    part_text,
    same_or_equal,
)

from .iter import ListIterator

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

POINTER = tuple.__itemsize__


class SequenceVariable(NativeVariable):
    """A list or tuple, or an instance of a subclass; `base` is which of the two."""

    base: type
    items: list[VariableTracker] = Children(factory=list, lazy=True)

    def load_items(self) -> list[VariableTracker]:
        """The items of a sequence from outside."""
        tr, source = self._tr, self.source
        real = list(self.base.__iter__(self.value))
        tr.guard(source, ir.LEN, checked_load(len(real)))
        return [tr.wrap(item, tr.source(source, ir.INDEX, i)) for i, item in enumerate(real)]

    def host_copy(self) -> Any:
        """The host sequence of an all-constant one. Raises `NotConstant`."""
        return self.base(
            [item.host_copy() if hasattr(item, "host_copy") else item.as_python_constant() for item in self.items]
        )

    # -- slots

    def mp_length(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(self.known_length())

    def known_length(self) -> int:
        """The number of items; that of a sequence from outside is guarded without a look at the items."""
        if "items" in self.__dict__:
            return len(self.items)
        n = self.base.__len__(self.value)
        self._tr.guard(self.source, ir.LEN, n)
        return n

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return ListIterator(self)

    def sq_contains(self, tx: Frame, item: VariableTracker) -> VariableTracker:
        return boolean(any(same_or_equal(tx, candidate, item) for candidate in self.items))

    def sq_item(self, tx: Frame, index: VariableTracker) -> VariableTracker:
        return self._at(tx, host_int(index))

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        if isinstance(key, ConstantVariable) and type(key.value) is int and abs(key.value) <= sys.maxsize:
            return self._at(tx, key.value)
        if issubclass(key.python_type(), slice):
            return self.sliced(tx, key.host_slice(tx))
        if key.nb_index is None:
            return tx.raises(
                TypeError, f"{self.base.__name__} indices must be integers or slices, not {type_name(key)}"
            )
        return self._at(tx, host_int(size_index(tx, key, IndexError)))

    def _at(self, tx: Frame, i: int) -> VariableTracker:
        try:
            return self.items[i]
        except IndexError as error:
            return tx.raises(IndexError, str(error).replace("list", self.base.__name__))

    def sliced(self, tx: Frame, s: slice) -> VariableTracker:
        return self.make(self.items[s])

    @classmethod
    def make(cls, items: list[VariableTracker]) -> SequenceVariable:
        """A new exact list or tuple."""
        raise NotImplementedError

    def sq_concat(self, tx: Frame, other: VariableTracker) -> VariableTracker:
        name = self.base.__name__
        if not issubclass(other.python_type(), self.base):
            return tx.raises(TypeError, f'can only concatenate {name} (not "{type_name(other)}") to {name}')
        return self.make(self.items + other.items)

    def sq_repeat(self, tx: Frame, count: VariableTracker) -> VariableTracker:
        return self.make(self.repeated(tx, count))

    def repeated(self, tx: Frame, count: VariableTracker) -> list[VariableTracker]:
        """The items `count` times."""
        n = host_index(tx, count)
        if not -sys.maxsize - 1 <= n <= sys.maxsize:
            tx.raises(OverflowError, f"cannot fit '{type_name(count)}' into an index-sized integer")
        n = max(n, 0)
        if n * len(self.items) > sys.maxsize // POINTER:
            tx.raises(MemoryError)
        checked_size(n * len(self.items))
        return self.items * n

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if not issubclass(other.python_type(), self.base):
            return NOT_IMPLEMENTED
        return compare_items(tx, self.items, other.items, op)

    def index_of(
        self, tx: Frame, value: VariableTracker, start: VariableTracker | None, stop: VariableTracker | None
    ) -> int | None:
        """The first position in [start, stop) that holds an equal item."""
        n = len(self.items)
        first = 0 if start is None else clamp(slice_bound(tx, start), n)
        last = sys.maxsize if stop is None else clamp(slice_bound(tx, stop), n)
        i = first
        while i < last and i < len(self.items):
            if same_or_equal(tx, self.items[i], value):
                return i
            i += 1
        return None

    def repr_items(self, tx: Frame) -> str:
        """The items' reprs with commas between."""
        parts = []
        i = 0
        while i < len(self.items):  # an item's __repr__ may change the list
            item = self.items[i]
            atomic = type(item) is ConstantVariable and type(item.value) in ATOMIC_TYPES
            parts.append(repr(item.value) if atomic else part_text(tx, item))
            i += 1
        return ", ".join(parts)


def clamp(i: int, n: int) -> int:
    """A start or stop argument of `index`: negative values count from the end."""
    return i if i >= 0 else max(i + n, 0)


def slice_bound(tx: Frame, v: VariableTracker) -> int:
    """`_PyEval_SliceIndexNotNone`."""
    if v.nb_index is None:
        tx.raises(TypeError, "slice indices must be integers or have an __index__ method")
    return host_index(tx, v)


def compare_items(tx: Frame, v: list[VariableTracker], w: list[VariableTracker], op: str) -> VariableTracker:
    """`list_richcompare`: the first differing items decide, else the lengths."""
    if len(v) != len(w) and op in ("==", "!="):
        return boolean(op == "!=")
    i = 0
    while i < len(v) and i < len(w):
        if not same_or_equal(tx, v[i], w[i]):
            break
        i += 1
    if i >= len(v) or i >= len(w):
        return boolean(COMPARE_OPS[op](len(v), len(w)))
    if op in ("==", "!="):
        return boolean(op == "!=")
    return richcompare(tx, v[i], w[i], op)


def host_items(v: VariableTracker) -> list[VariableTracker] | None:
    """The items of a list or tuple whose class does not override iteration; None for anything else. For reading in
    one go.
    """
    if isinstance(v, SequenceVariable) and v.python_type().__iter__ is v.base.__iter__:
        return v.items
    return None


def all_constant(items: list[VariableTracker]) -> bool:
    """True if each item is a constant."""
    return all(item.is_python_constant() for item in items)
