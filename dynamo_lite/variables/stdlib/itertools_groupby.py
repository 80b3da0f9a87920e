"""groupby and tee: iterators of `itertools` that share the one they read.

Mirrors `Modules/itertoolsmodule.c`; see `itertools` beside it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.builtin.iter import IteratorVariable, advance, call_or_stop
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.builtin.zip import emit_instance, emit_with
from dynamo_lite.variables.protocol.abstract import get_iter, iter_next
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, is_none
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, method
from dynamo_lite.variables.protocol.native import NativeVariable, host_index, same_or_equal

from .itertools import state_items

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class GroupByVariable(IteratorVariable):
    """`itertools.groupby(iterable, key=None)`. Only `current` may go on reading."""

    cls = itertools.groupby
    parts = ("iterator", "function", "target", "key", "item")

    def __init__(self, iterator: VariableTracker, function: VariableTracker) -> None:
        self.iterator = iterator
        self.function = function
        self.target: VariableTracker | None = None
        self.key: VariableTracker | None = None
        self.item: VariableTracker | None = None
        self.current: GrouperVariable | None = None

    def step(self, tx: Frame) -> bool:
        """`groupby_step`: read one item; False at the end."""
        item = iter_next(tx, self.iterator)
        if item is None:
            return False
        key = item if is_none(self.function) else call_or_stop(tx, self.function, [item])
        if key is None:
            return False
        self.item, self.key = item, key
        return True

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        self.current = None
        while self.key is None or (self.target is not None and same_or_equal(tx, self.target, self.key)):
            if not self.step(tx):
                return None
        self.target = self.key
        self.current = GrouperVariable(self, self.key)
        return TupleVariable([self.key, self.current])

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        args = (self.iterator, self.function)
        if self.key is None or self.item is None or self.target is None:
            return self.python_type(), args
        return self.python_type(), args, (self.key, self.item, self.target)

    def restore(self, tx: Frame, state: VariableTracker) -> None:
        self.key, self.item, self.target = state_items(tx, state, 3, 3)

    def emit_new(self, cg: Codegen) -> None:
        if self.key is not None or self.target is not None:
            unsupported("reconstruct", "a groupby object that has been advanced")
        emit_instance(cg, self, itertools.groupby, self.iterator, self.function)


class GrouperVariable(IteratorVariable):
    """One group of a `groupby`."""

    cls: type = itertools._grouper
    parts = ("parent", "target")

    def __init__(self, parent: GroupByVariable, target: VariableTracker) -> None:
        self.parent = parent
        self.target = target

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        parent = self.parent
        if parent.current is not self:
            return None
        if parent.item is None and not parent.step(tx):
            return None
        if not same_or_equal(tx, self.target, parent.key):
            return None
        item, parent.item, parent.key = parent.item, None, None
        return item

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        if self.parent.current is not self:
            return iter, ((),)
        return self.python_type(), (self.parent, self.target)

    def emit_new(self, cg: Codegen) -> None:
        unsupported("reconstruct", "a group of itertools.groupby")


@constructor(itertools.groupby)
def new_groupby(
    tx: Frame, cls: VariableTracker, iterable: VariableTracker, key: VariableTracker = NONE
) -> GroupByVariable:
    return GroupByVariable(get_iter(tx, iterable), key)


@constructor(itertools._grouper)
def new_grouper(
    tx: Frame, cls: VariableTracker, parent: VariableTracker, tgtkey: VariableTracker, /
) -> VariableTracker:
    if not isinstance(parent, GroupByVariable):
        return unsupported("call-c-function", "itertools._grouper of a groupby from outside")
    parent.current = GrouperVariable(parent, tgtkey)
    return parent.current


class TeeSource(NativeVariable):
    """The state that the iterators of one `itertools.tee` share: the items read so far, and the iterator that gives more."""

    cls: type = itertools._tee

    def __init__(self, iterator: VariableTracker) -> None:
        self.iterator = iterator
        self.items: list[VariableTracker] = []
        self.running = False

    def item(self, tx: Frame, position: int) -> VariableTracker | None:
        """`teedataobject_getitem`."""
        if position < len(self.items):
            return self.items[position]
        if self.running:
            tx.raises(RuntimeError, "cannot re-enter the tee iterator")
        self.running = True
        try:
            item = iter_next(tx, self.iterator)
        finally:
            self.running = False
        if item is not None:
            self.items.append(item)
        return item

    def children(self) -> Any:
        return [self.iterator, *self.items]

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(_tee_from_start)
        emit_with(cg, itertools.chain, self.items, self.iterator)
        cg.asm.call(1)


def _tee_from_start(iterator: Any) -> Any:
    return itertools.tee(iterator, 1)[0]


class TeeVariable(IteratorVariable):
    """One of the iterators that `itertools.tee` gives: a position in what they share."""

    cls: type = itertools._tee
    parts = ("shared",)

    def __init__(self, shared: TeeSource, position: int = 0) -> None:
        self.shared = shared
        self.position = position

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        item = self.shared.item(tx, self.position)
        if item is not None:
            self.position += 1
        return item

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(_tee_at)
        cg.load(self.shared)
        cg.load_const(self.position)
        cg.asm.call(2)


def _tee_at(start: Any, position: int) -> Any:
    return advance(start.__copy__(), position)


@constructor(itertools._tee)
def new_tee(tx: Frame, cls: VariableTracker, iterable: VariableTracker, /) -> VariableTracker:
    iterator = get_iter(tx, iterable)
    if isinstance(iterator, TeeVariable):
        return TeeVariable(iterator.shared, iterator.position)
    return TeeVariable(TeeSource(iterator))


@method(itertools._tee.__copy__)
def tee_copy(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    if not isinstance(self, TeeVariable):
        return unsupported("iterator-state", "a copy of an itertools.tee from outside")
    return TeeVariable(self.shared, self.position)


@builtin(itertools.tee)
def itertools_tee(tx: Frame, iterable: VariableTracker, n: VariableTracker | None = None, /) -> VariableTracker:
    count = 2 if n is None else host_index(tx, n)
    if count < 0:
        return tx.raises(ValueError, "n must be >= 0")
    if not count:
        return TupleVariable([])
    first = get_iter(tx, iterable)
    if not isinstance(first, TeeVariable):
        first = TeeVariable(TeeSource(first))
    elif _COPIES_TEES:
        first = TeeVariable(first.shared, first.position)
    return TupleVariable([first, *[TeeVariable(first.shared, first.position) for _ in range(count - 1)]])


def _copies_tees() -> bool:
    """Whether `tee` of a tee iterator leaves that one out of the result."""
    tee = itertools.tee(())[0]
    return itertools.tee(tee)[0] is not tee


_COPIES_TEES = _copies_tees()
