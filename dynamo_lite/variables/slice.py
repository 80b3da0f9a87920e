"""Slices and ranges.

Input: trackers of start, stop and step. Output: `SliceVariable`, `RangeVariable`.
Invariant: a range is a constant: a symbolic bound is made one, since the number of iterations of a loop has to be
known.
Mirrors `Objects/sliceobject.c`, `Objects/rangeobject.c`.
"""

from __future__ import annotations

from typing import Any

from ..guards import ir
from .abstract import COMPARE_OPS, type_name
from .base import VariableTracker
from .constant import NONE, NOT_IMPLEMENTED, ConstantVariable, boolean, is_constant, is_none
from .descr import getset
from .dispatch import constructor, method
from .iter import ConstantIterator
from .native import NativeVariable, emit_call, host_index, host_int, host_value, readonly, run, same_or_equal
from .sequence import compare_items
from .tuple import TupleVariable
from .wrap import builds


class SliceVariable(NativeVariable):
    """A slice object; the parts are any trackers."""

    cls = slice

    def __init__(
        self, start: VariableTracker, stop: VariableTracker, step: VariableTracker = NONE, source: Any = None
    ) -> None:
        self.start, self.stop, self.step = start, stop, step
        self.source = source

    def children(self) -> Any:
        return [self.start, self.stop, self.step]

    def is_python_constant(self) -> bool:
        return is_constant(*self.children())

    def as_python_constant(self) -> slice:
        return slice(*[part.as_python_constant() for part in self.children()])

    def as_proxy(self) -> slice:
        return slice(*[part.as_proxy() for part in self.children()])

    def host_slice(self, tx: Any) -> slice:
        """The slice with int or None parts (`PySlice_Unpack`)."""
        parts = []
        for part in self.children():
            if is_none(part):
                parts.append(None)
            elif part.nb_index is None:
                tx.raises(TypeError, "slice indices must be integers or None or have an __index__ method")
            else:
                parts.append(host_index(tx, part))
        if parts[2] == 0:
            tx.raises(ValueError, "slice step cannot be zero")
        return slice(*parts)

    def tp_richcompare(self, tx: Any, other: VariableTracker, op: str) -> VariableTracker:
        if not isinstance(other, SliceVariable):
            return NOT_IMPLEMENTED
        return compare_items(tx, self.children(), other.children(), op)

    if slice.__hash__ is not None:  # from 3.12 on

        def tp_hash(self, tx: Any) -> VariableTracker:
            return run(tx, hash, host_value(self, "unhashable-key"))

    def tp_repr(self, tx: Any) -> VariableTracker:
        return ConstantVariable(f"slice{TupleVariable(self.children()).tp_repr(tx).value}")

    def emit_new(self, cg: Any) -> None:
        emit_call(cg, slice, self.start, self.stop, self.step)


@builds(slice)
def build_slice(tr: Any, value: slice, source: Any) -> SliceVariable:
    tr.guard(source, ir.TYPE_IS, slice)
    parts = [tr.wrap(getattr(value, name), tr.source(source, ir.ATTR, name)) for name in ("start", "stop", "step")]
    return SliceVariable(*parts, source=source)


@constructor(slice)
def new_slice(tx: Any, cls: VariableTracker, /, *args: VariableTracker) -> VariableTracker:
    if not 1 <= len(args) <= 3:
        few, n = ("at least", 1) if not args else ("at most", 3)
        return tx.raises(TypeError, f"slice expected {few} {n} argument{'s' * (n > 1)}, got {len(args)}")
    return SliceVariable(NONE, args[0]) if len(args) == 1 else SliceVariable(*args)


for _name in ("start", "stop", "step"):
    getset(slice.__dict__[_name], readonly(slice.__dict__[_name]))(lambda tx, self, name=_name: getattr(self, name))


@method(slice.indices)
def slice_indices(tx: Any, self: SliceVariable, object: VariableTracker, /) -> VariableTracker:
    n = host_index(tx, object)
    if n < 0:
        return tx.raises(ValueError, "length should not be negative")
    return TupleVariable([ConstantVariable(i) for i in self.host_slice(tx).indices(n)])


@method(slice.__reduce__)
def slice_reduce(tx: Any, self: SliceVariable, /) -> VariableTracker:
    return TupleVariable([tx.tr.type_of(tx, self), TupleVariable(self.children())])


class RangeVariable(NativeVariable):
    """A range object, known as a whole."""

    cls = range

    def __init__(self, value: range, source: Any = None) -> None:
        self.value = value
        self.source = source

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> range:
        return self.value

    def describe(self) -> str:
        return repr(self.value)

    def mp_length(self, tx: Any) -> VariableTracker:
        return run(tx, len, self.value)

    def nb_bool(self, tx: Any) -> VariableTracker:
        return boolean(self.value)

    def tp_iter(self, tx: Any) -> VariableTracker:
        return ConstantIterator(self, self.value)

    def tp_hash(self, tx: Any) -> VariableTracker:
        return ConstantVariable(hash(self.value))

    def tp_repr(self, tx: Any) -> VariableTracker:
        return ConstantVariable(repr(self.value))

    def tp_richcompare(self, tx: Any, other: VariableTracker, op: str) -> VariableTracker:
        if not isinstance(other, RangeVariable) or op not in ("==", "!="):
            return NOT_IMPLEMENTED
        return boolean(COMPARE_OPS[op](self.value, other.value))

    def mp_subscript(self, tx: Any, key: VariableTracker) -> VariableTracker:
        if isinstance(key, SliceVariable):
            return RangeVariable(self.value[key.host_slice(tx)])
        if key.nb_index is None:
            return tx.raises(TypeError, f"range indices must be integers or slices, not {type_name(key)}")
        return run(tx, self.value.__getitem__, host_index(tx, key))

    def sq_item(self, tx: Any, index: VariableTracker) -> VariableTracker:
        return run(tx, self.value.__getitem__, host_int(index))

    def sq_contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        if isinstance(item, ConstantVariable):
            return boolean(item.value in self.value)
        return boolean(self._position(tx, item) is not None)

    def _position(self, tx: Any, item: VariableTracker) -> int | None:
        if isinstance(item, ConstantVariable) and isinstance(item.value, int):
            return self.value.index(item.value) if item.value in self.value else None
        return next((i for i, n in enumerate(self.value) if same_or_equal(tx, ConstantVariable(n), item)), None)

    def emit_new(self, cg: Any) -> None:
        cg.load_const(self.value)


@builds(range)
def build_range(tr: Any, value: range, source: Any) -> RangeVariable:
    tr.guard(source, ir.EQUALS, value)
    return RangeVariable(value, source)


@constructor(range)
def new_range(tx: Any, cls: VariableTracker, /, *args: VariableTracker) -> VariableTracker:
    try:
        return RangeVariable(range(*[host_index(tx, a) for a in args]))
    except (TypeError, ValueError) as error:
        tx.raises_like(error)


for _name in ("start", "stop", "step"):
    getset(range.__dict__[_name], readonly(range.__dict__[_name]))(
        lambda tx, self, name=_name: ConstantVariable(getattr(self.value, name))
    )


@method(range.count)
def range_count(tx: Any, self: RangeVariable, value: VariableTracker, /) -> VariableTracker:
    if isinstance(value, ConstantVariable):
        return ConstantVariable(self.value.count(value.value))
    return ConstantVariable(sum(same_or_equal(tx, ConstantVariable(n), value) for n in self.value))


@method(range.index)
def range_index(tx: Any, self: RangeVariable, value: VariableTracker, /) -> VariableTracker:
    if isinstance(value, ConstantVariable):
        return run(tx, self.value.index, value.value)
    i = self._position(tx, value)
    return ConstantVariable(i) if i is not None else tx.raises(ValueError, "sequence.index(x): x not in sequence")


@method(range.__reversed__)
def range_reversed(tx: Any, self: RangeVariable, /) -> VariableTracker:
    backwards = RangeVariable(self.value[::-1])
    return ConstantIterator(backwards, backwards.value)
