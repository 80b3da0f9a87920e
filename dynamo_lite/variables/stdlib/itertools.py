"""The iterators of the `itertools` module: the endless, the repeating and the chaining ones, and what all of them share.

Input: trackers of the arguments. Output: iterator models that pull from other iterators when asked, never before.
Invariant: one class per C type, with the fields of its C struct; `emit_new` makes a real object of that type in the
same state. The others are in `itertools_select`, `itertools_product` and `itertools_groupby`.
Mirrors `Modules/itertoolsmodule.c`.
"""

from __future__ import annotations

import itertools
import operator
import sys
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.builtin.iter import IteratorVariable, call_or_stop
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.builtin.zip import emit_advanced, emit_instance, emit_with
from dynamo_lite.variables.protocol.abstract import binary_op, get_iter, is_number, iter_next, type_name
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, method
from dynamo_lite.variables.protocol.native import host_index, repr_text

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


def plain_only(vt: IteratorVariable, base: type) -> None:
    """Break for a subclass instance in a state that no call of a constructor leads to."""
    if vt.python_type() is not base:
        unsupported("reconstruct", f"a {vt.python_type().__name__} object that has been advanced")


def state_items(tx: Frame, state: VariableTracker, least: int, most: int) -> list[VariableTracker]:
    """The items of the tuple that `__setstate__` of a C iterator takes apart (`PyArg_ParseTuple`)."""
    if not issubclass(state.python_type(), tuple):
        tx.raises(TypeError, "state is not a tuple")
    items = state.items
    n = len(items)
    if not least <= n <= most:
        bound = "exactly" if least == most else "at least" if n < least else "at most"
        limit = least if n < least else most
        tx.raises(TypeError, f"function takes {bound} {limit} argument{'s' * (limit != 1)} ({n} given)")
    return items


# -- endless and repeating


MAX_FAST = sys.maxsize


class CountVariable(IteratorVariable):
    """`itertools.count(start, step)`."""

    cls = itertools.count
    parts = ("current", "step")

    def __init__(self, current: VariableTracker, step: VariableTracker) -> None:
        self.current = current
        self.step = step

    def tp_iternext(self, tx: Frame) -> VariableTracker:
        item = self.current
        self.current = binary_op(tx, operator.add, item, self.step)
        return item

    def _counts_in_ones(self) -> bool:
        """The C code's fast mode: machine numbers, step 1."""
        step, current = self.step.value, self.current.value
        return type(step) is int and step == 1 and type(current) is int and current < MAX_FAST

    def tp_repr(self, tx: Frame) -> VariableTracker:
        step = (
            ""
            if self._counts_in_ones() or (type(self.step.value) is int and self.step.value == 1)
            else (f", {repr_text(tx, self.step)}")
        )
        return ConstantVariable(f"{self.python_type().__name__}({repr_text(tx, self.current)}{step})")

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        return self.python_type(), (self.current,) if self._counts_in_ones() else (self.current, self.step)

    def emit_new(self, cg: Codegen) -> None:
        emit_instance(cg, self, itertools.count, self.current, self.step)


@constructor(itertools.count)
def new_count(
    tx: Frame, cls: VariableTracker, start: VariableTracker | None = None, step: VariableTracker | None = None
) -> CountVariable:
    for value in (start, step):
        if value is not None and not is_number(value):
            return tx.raises(TypeError, "a number is required")
    return CountVariable(start or ConstantVariable(0), step or ConstantVariable(1))


class RepeatVariable(IteratorVariable):
    """`itertools.repeat(object[, times])`; `times` is None for ever."""

    cls = itertools.repeat
    parts = ("element",)

    def __init__(self, element: VariableTracker, times: int | None) -> None:
        self.element = element
        self.times = times

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        if self.times is not None:
            if self.times <= 0:
                return None
            self.times -= 1
        return self.element

    def tp_repr(self, tx: Frame) -> VariableTracker:
        times = "" if self.times is None else f", {self.times}"
        return ConstantVariable(f"{self.python_type().__name__}({repr_text(tx, self.element)}{times})")

    def remaining(self, tx: Frame) -> int:
        """`__length_hint__`."""
        return tx.raises(TypeError, "len() of unsized object") if self.times is None else self.times

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        return self.python_type(), (self.element, *([] if self.times is None else [self.times]))

    def emit_new(self, cg: Codegen) -> None:
        emit_instance(cg, self, itertools.repeat, self.element, *([] if self.times is None else [self.times]))


@constructor(itertools.repeat)
def new_repeat(
    tx: Frame, cls: VariableTracker, object: VariableTracker, times: VariableTracker | None = None
) -> RepeatVariable:
    return RepeatVariable(object, None if times is None else max(host_index(tx, times), 0))


@method(itertools.repeat.__length_hint__)
def repeat_length_hint(tx: Frame, self: RepeatVariable, /) -> VariableTracker:
    return ConstantVariable(self.remaining(tx))


class CycleVariable(IteratorVariable):
    """`itertools.cycle(iterable)`. `iterator` is None once the first pass is over."""

    cls = itertools.cycle
    parts = ("iterator",)

    def __init__(self, iterator: VariableTracker) -> None:
        self.iterator: VariableTracker | None = iterator
        self.saved = ListVariable()
        self.index = 0
        self.saves = True  # what the first pass gives is noted (not after `__setstate__` with a true second item)

    def children(self) -> Any:
        return [self.saved, *super().children()]

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        if self.iterator is not None:
            item = iter_next(tx, self.iterator)
            if item is not None:
                if self.saves:
                    self.saved.items.append(item)
                return item
            self.iterator = None
        saved = self.saved.items
        if not saved:
            return None
        item = saved[self.index]
        self.index = self.index + 1 if self.index + 1 < len(saved) else 0
        return item

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        saved = self.saved
        if self.iterator is not None:
            return self.python_type(), (self.iterator,), (saved, not self.saves)
        iterator = get_iter(tx, saved)
        iterator.index = self.index
        return self.python_type(), (iterator,), (saved, True)

    def restore(self, tx: Frame, state: VariableTracker) -> None:
        saved, first_pass = state_items(tx, state, 2, 2)
        if not isinstance(saved, ListVariable):
            tx.raises(TypeError, f"argument 1 must be list, not {type_name(saved)}")
        self.saved = saved
        self.saves = not host_index(tx, first_pass)
        self.index = 0

    def emit_new(self, cg: Codegen) -> None:
        if self.iterator is not None and not self.saved.items:
            emit_instance(cg, self, itertools.cycle, self.iterator)
            return
        plain_only(self, itertools.cycle)
        if self.iterator is None:
            saved = self.saved.items
            emit_with(cg, itertools.cycle, saved[self.index :] + saved[: self.index])
            return
        if not self.saves:
            unsupported("reconstruct", "an itertools.cycle that __setstate__ was called on")

        def emit() -> None:
            cg.load_callable(itertools.cycle)
            emit_with(cg, itertools.chain, list(self.saved.items), self.iterator)
            cg.asm.call(1)

        emit_advanced(cg, len(self.saved.items), emit)


@constructor(itertools.cycle)
def new_cycle(tx: Frame, cls: VariableTracker, iterable: VariableTracker, /) -> CycleVariable:
    return CycleVariable(get_iter(tx, iterable))


# -- chain, islice, accumulate


class ChainVariable(IteratorVariable):
    """`itertools.chain(*iterables)`: `iterables` is an iterator of iterables, `active` the one being read."""

    cls = itertools.chain
    parts = ("iterables", "active")

    def __init__(self, iterables: VariableTracker) -> None:
        self.iterables: VariableTracker | None = iterables
        self.active: VariableTracker | None = None

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        while self.iterables is not None:
            if self.active is None:
                iterable = iter_next(tx, self.iterables)
                if iterable is None:
                    self.iterables = None
                    return None
                self.active = get_iter(tx, iterable)
            item = iter_next(tx, self.active)
            if item is not None:
                return item
            self.active = None
        return None

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        if self.iterables is None:
            return self.python_type(), ()
        active = () if self.active is None else (self.active,)
        return self.python_type(), (), (self.iterables, *active)

    def restore(self, tx: Frame, state: VariableTracker) -> None:
        items = state_items(tx, state, 1, 2)
        if any(item.tp_iternext is None for item in items):
            tx.raises(TypeError, "Arguments must be iterators.")
        self.iterables = items[0]
        self.active = items[1] if len(items) > 1 else None

    def emit_new(self, cg: Codegen) -> None:
        if self.iterables is None:
            emit_instance(cg, self, itertools.chain)
            return
        plain_only(self, itertools.chain)
        if self.active is None:
            emit_with(cg, itertools.chain.from_iterable, self.iterables)
        else:
            cg.load_callable(itertools.chain.from_iterable)
            emit_with(cg, itertools.chain, [self.active], self.iterables)
            cg.asm.call(1)


@constructor(itertools.chain)
def new_chain(tx: Frame, cls: VariableTracker, /, *iterables: VariableTracker) -> ChainVariable:
    return ChainVariable(get_iter(tx, TupleVariable(list(iterables))))


@builtin(itertools.chain.__dict__["from_iterable"])
def chain_from_iterable(tx: Frame, cls: VariableTracker, iterable: VariableTracker, /) -> ChainVariable:
    return ChainVariable(get_iter(tx, iterable))


class IsliceVariable(IteratorVariable):
    """`itertools.islice(iterable, start, stop, step)`; `position` items have been taken."""

    cls = itertools.islice
    parts = ("iterator",)

    def __init__(self, iterator: VariableTracker, start: int, stop: int | None, step: int) -> None:
        self.iterator: VariableTracker | None = iterator
        self.next = start
        self.stop = stop
        self.step = step
        self.position = 0

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        if self.iterator is None:
            return None
        while self.position < self.next:
            if iter_next(tx, self.iterator) is None:
                self.iterator = None
                return None
            self.position += 1
        if self.stop is not None and self.position >= self.stop:
            self.iterator = None
            return None
        item = iter_next(tx, self.iterator)
        if item is None:
            self.iterator = None
            return None
        self.position += 1
        self.next += self.step
        if self.stop is not None and self.next > self.stop:
            self.next = self.stop
        return item

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        if self.iterator is None:
            return self.python_type(), (get_iter(tx, ListVariable([])), 0), 0
        return self.python_type(), (self.iterator, self.next, self.stop, self.step), self.position

    def restore(self, tx: Frame, state: VariableTracker) -> None:
        self.position = host_index(tx, state)

    def emit_new(self, cg: Codegen) -> None:
        if self.iterator is None:
            emit_instance(cg, self, itertools.islice, (), 0)
            return
        stop = None if self.stop is None else self.stop - self.position
        emit_instance(cg, self, itertools.islice, self.iterator, self.next - self.position, stop, self.step)


@constructor(itertools.islice)
def new_islice(
    tx: Frame, cls: VariableTracker, iterable: VariableTracker, /, *args: VariableTracker
) -> VariableTracker:
    bounds = [None if is_none(arg) else host_index(tx, arg) if arg.nb_index is not None else "" for arg in args]
    try:
        itertools.islice((), *bounds)
    except (TypeError, ValueError) as error:
        tx.raises_like(error)
    s = slice(*bounds)
    return IsliceVariable(get_iter(tx, iterable), s.start or 0, s.stop, 1 if s.step is None else s.step)


class AccumulateVariable(IteratorVariable):
    """`itertools.accumulate(iterable, func=None, *, initial=None)`."""

    cls = itertools.accumulate
    parts = ("iterator", "function", "total", "initial")

    def __init__(self, iterator: VariableTracker, function: VariableTracker, initial: VariableTracker | None) -> None:
        self.iterator = iterator
        self.function = function
        self.initial = initial
        self.total: VariableTracker | None = None

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        if self.initial is not None:
            self.total, self.initial = self.initial, None
            return self.total
        item = iter_next(tx, self.iterator)
        if item is None:
            return None
        if self.total is None:
            self.total = item
        elif is_none(self.function):
            self.total = binary_op(tx, operator.add, self.total, item)
        else:
            total = call_or_stop(tx, self.function, [self.total, item])
            if total is None:
                return None
            self.total = total
        return self.total

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        cls = self.python_type()
        if self.initial is not None:
            return cls, (chained(tx, self.initial, self.iterator), self.function), None
        if is_none(self.total) and self.total is not None:
            again = AccumulateVariable(chained(tx, self.total, self.iterator), self.function, None)
            return itertools.islice, (again, 1, None)
        return cls, (self.iterator, self.function), NONE if self.total is None else self.total

    def restore(self, tx: Frame, state: VariableTracker) -> None:
        self.total = state

    def emit_new(self, cg: Codegen) -> None:
        if self.total is None:
            initial = {} if self.initial is None else {"initial": self.initial}
            emit_instance(cg, self, itertools.accumulate, self.iterator, self.function, **initial)
            return
        plain_only(self, itertools.accumulate)

        def emit() -> None:
            cg.load_callable(itertools.accumulate)
            emit_with(cg, itertools.chain, [self.total], self.iterator)
            cg.load(self.function)
            cg.asm.call(2)

        emit_advanced(cg, 1, emit)


def chained(tx: Frame, first: VariableTracker, iterator: VariableTracker) -> VariableTracker:
    """`itertools.chain((first,), iterator)`"""
    return new_chain(tx, tx.tr.type_tracker(itertools.chain), TupleVariable([first]), iterator)


@constructor(itertools.accumulate)
def new_accumulate(
    tx: Frame,
    cls: VariableTracker,
    iterable: VariableTracker,
    func: VariableTracker = NONE,
    *,
    initial: VariableTracker | None = None,
) -> AccumulateVariable:
    return AccumulateVariable(get_iter(tx, iterable), func, None if is_none(initial) else initial)
