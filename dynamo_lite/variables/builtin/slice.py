"""Slices and ranges.

Input: trackers of start, stop and step. Output: `SliceVariable`, `RangeVariable`.
Invariant: a range whose bounds vary is made a constant when something asks for it as a whole, as a loop over it does: its turns are
unrolled. A loop that breaks the graph in one of its turns asks only whether there is a next turn.
Mirrors `Objects/sliceobject.c`, `Objects/rangeobject.c`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import COMPARE_OPS, binary_op, index, is_true, richcompare, type_name
from dynamo_lite.variables.protocol.base import Child, VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import (
    NONE,
    NOT_IMPLEMENTED,
    ConstantVariable,
    boolean,
    fold,
    is_constant,
    is_none,
)
from dynamo_lite.variables.protocol.descr import getset
from dynamo_lite.variables.protocol.dispatch import constructor, method
from dynamo_lite.variables.protocol.native import (
    NativeVariable,
    emit_call,
    host_index,
    host_int,
    host_value,
    readonly,
    run,
    same_or_equal,
)
from dynamo_lite.variables.protocol.wrap import builds

from .iter import ConstantIterator, IteratorVariable, emit_position
from .sequence import compare_items
from .tuple import TupleVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class SliceVariable(NativeVariable):
    """A slice object; the parts are any trackers."""

    cls = slice

    start: VariableTracker = Child()
    stop: VariableTracker = Child()
    step: VariableTracker = Child(NONE)
    rebuild = slice

    def is_python_constant(self) -> bool:
        return is_constant(*self.children())

    def as_python_constant(self) -> slice:
        return slice(*[part.as_python_constant() for part in self.children()])

    def as_proxy(self) -> slice:
        return slice(*[part.as_proxy() for part in self.children()])

    def host_slice(self, tx: Frame) -> slice:
        """The slice with int or None parts (`PySlice_Unpack`: the step comes first)."""
        step = slice_index(tx, self.step)
        if step == 0:
            tx.raises(ValueError, "slice step cannot be zero")
        start = slice_index(tx, self.start)
        return slice(start, slice_index(tx, self.stop), step)

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if not isinstance(other, SliceVariable):
            return NOT_IMPLEMENTED
        return compare_items(tx, self.children(), other.children(), op)

    if slice.__hash__ is not None:  # from 3.12 on

        def tp_hash(self, tx: Frame) -> VariableTracker:
            return run(tx, hash, host_value(self, "unhashable-key"))

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(f"slice{TupleVariable(self.children()).tp_repr(tx).value}")


def slice_index(tx: Frame, part: VariableTracker) -> int | None:
    """A part of a slice as an int or None (`_PyEval_SliceIndex`)."""
    if is_none(part):
        return None
    if part.nb_index is None:
        tx.raises(TypeError, "slice indices must be integers or None or have an __index__ method")
    return host_index(tx, part)


@builds(slice)
def build_slice(tr: Trace, value: slice, source: GuardNode | None) -> SliceVariable:
    tr.guard(source, ir.TYPE_IS, slice)
    parts = [tr.wrap(getattr(value, name), tr.source(source, ir.ATTR, name)) for name in ("start", "stop", "step")]
    return SliceVariable(*parts, source=source)


@constructor(slice)
def new_slice(tx: Frame, cls: VariableTracker, /, *args: VariableTracker) -> VariableTracker:
    if not 1 <= len(args) <= 3:
        few, n = ("at least", 1) if not args else ("at most", 3)
        return tx.raises(TypeError, f"slice expected {few} {n} argument{'s' * (n > 1)}, got {len(args)}")
    return SliceVariable(NONE, args[0]) if len(args) == 1 else SliceVariable(*args)


for _name in ("start", "stop", "step"):
    getset(slice.__dict__[_name], readonly(slice.__dict__[_name]))(lambda tx, self, name=_name: getattr(self, name))


@method(slice.indices)
def slice_indices(tx: Frame, self: SliceVariable, object: VariableTracker, /) -> VariableTracker:
    n = host_index(tx, object)
    if n < 0:
        return tx.raises(ValueError, "length should not be negative")
    return TupleVariable([ConstantVariable(i) for i in self.host_slice(tx).indices(n)])


def _varies(vt: VariableTracker) -> bool:
    """Whether it is an int that varies and does not depend on data."""
    return vt.is_symbolic and vt.python_type() is int and vt.present() is not None


class RangeVariable(NativeVariable):
    """A range object. `parts`: start, stop and step, of which the first two may vary; `value` is the range, its bounds made constants."""

    cls = range

    def __init__(self, *parts: VariableTracker, source: GuardNode | None = None) -> None:
        self.parts = parts
        self.source = source

    @classmethod
    def of(cls, value: range) -> RangeVariable:
        """The model of a constant range."""
        return cls(*map(ConstantVariable, (value.start, value.stop, value.step)))

    @property
    def value(self) -> range:
        return range(*[part.as_python_constant() for part in self.parts])

    @property
    def varies(self) -> bool:
        """Whether bounds are numbers that vary."""
        return any(map(_varies, self.parts))

    def children(self) -> Any:
        return self.parts if self.varies else ()

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> range:
        return self.value

    def describe(self) -> str:
        return repr(self.value)

    def mp_length(self, tx: Frame) -> VariableTracker:
        return run(tx, len, self.value)

    def nb_bool(self, tx: Frame) -> VariableTracker:
        return boolean(self.value)

    def tp_iter(self, tx: Frame) -> VariableTracker:
        if not self.varies:
            return ConstantIterator(self, self.value)
        if tx.step in tx.tr.facts.open_ranges:
            return OpenRangeIterator(self)
        iterator = ConstantIterator(self, self.value)
        iterator.made_at = tx.step
        return iterator

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(hash(self.value))

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(repr(self.value))

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if not isinstance(other, RangeVariable) or op not in ("==", "!="):
            return NOT_IMPLEMENTED
        return boolean(COMPARE_OPS[op](self.value, other.value))

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        if isinstance(key, SliceVariable):
            return RangeVariable.of(self.value[key.host_slice(tx)])
        if key.nb_index is None:
            return tx.raises(TypeError, f"range indices must be integers or slices, not {type_name(key)}")
        return run(tx, self.value.__getitem__, host_index(tx, key))

    def sq_item(self, tx: Frame, index: VariableTracker) -> VariableTracker:
        return run(tx, self.value.__getitem__, host_int(index))

    def sq_contains(self, tx: Frame, item: VariableTracker) -> VariableTracker:
        if isinstance(item, ConstantVariable):
            return boolean(item.value in self.value)
        return boolean(self._position(tx, item) is not None)

    def _position(self, tx: Frame, item: VariableTracker) -> int | None:
        if isinstance(item, ConstantVariable) and isinstance(item.value, int):
            return self.value.index(item.value) if item.value in self.value else None
        return next((i for i, n in enumerate(self.value) if same_or_equal(tx, ConstantVariable(n), item)), None)

    def emit_new(self, cg: Codegen) -> None:
        if self.varies:
            emit_call(cg, range, *self.parts)
        else:
            cg.load_const(self.value)


class OpenRangeIterator(IteratorVariable):
    """The iterator of a range whose bounds vary. Each turn asks whether it is the last one, so the number of turns is known only if all of
    them are taken."""

    seq: RangeVariable | None = Child()
    index = 0

    def __post_init__(self) -> None:
        parts = self.seq.parts
        self.cls = type(iter(range(*[p.present() if _varies(p) else p.as_python_constant() for p in parts])))
        self.step = parts[2].as_python_constant()

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        if self.seq is None:
            return None
        start, stop, _ = self.seq.parts
        distance = self.index * self.step
        number = binary_op(tx, operator.add, start, ConstantVariable(distance)) if distance else start
        if not is_true(tx, richcompare(tx, number, stop, "<" if self.step > 0 else ">")):
            self.seq = None
            return None
        self.index += 1
        return number

    def emit_new(self, cg: Codegen) -> None:
        emit_position(cg, self.seq, self.index, functools.partial(range, 0))


def open_ranges(held: Iterable[VariableTracker]) -> set[int]:
    """The steps at which loops over ranges began that vary and are under way: their iterators are on the stack, in variables, or parts of
    iterators there."""
    found = set()
    pending = list(held)
    while pending:
        vt = pending.pop()
        if is_lazy(vt):
            continue
        if isinstance(vt, ConstantIterator) and vt.made_at >= 0:
            found.add(vt.made_at)
        elif isinstance(vt, IteratorVariable):
            pending.extend(vt.children())
    return found


@builds(range)
def build_range(tr: Trace, value: range, source: GuardNode | None) -> RangeVariable:
    tr.guard(source, ir.TYPE_IS, range)
    parts = [tr.wrap(getattr(value, name), tr.source(source, ir.ATTR, name)) for name in _PARTS]
    return RangeVariable(*parts, source=source)


@constructor(range)
def new_range(tx: Frame, cls: VariableTracker, /, *args: VariableTracker) -> VariableTracker:
    if not 1 <= len(args) <= 3:
        return fold(tx, range, [ConstantVariable(1)] * len(args), {})
    bounds = [arg if _varies(arg) else index(tx, arg) for arg in args]  # numpy's ints may vary, too
    parts = [arg if _varies(arg) and i < 2 else ConstantVariable(host_index(tx, arg)) for i, arg in enumerate(bounds)]
    if len(parts) == 1:
        parts.insert(0, ConstantVariable(0))
    if len(parts) == 2:
        parts.append(ConstantVariable(1))
    try:
        range(*[1 if _varies(part) else part.value for part in parts])
    except (TypeError, ValueError) as error:
        tx.raises_like(error)
    return RangeVariable(*parts)


_PARTS = ("start", "stop", "step")
for _i, _name in enumerate(_PARTS):
    getset(range.__dict__[_name], readonly(range.__dict__[_name]))(lambda tx, self, i=_i: self.parts[i])


@method(range.__reversed__)
def range_reversed(tx: Frame, self: RangeVariable, /) -> VariableTracker:
    backwards = RangeVariable.of(self.value[::-1])
    return ConstantIterator(backwards, backwards.value)
