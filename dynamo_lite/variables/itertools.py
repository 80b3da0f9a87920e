"""The iterators of the `itertools` module.

Input: trackers of the arguments. Output: iterator models that pull from other iterators when asked, never before.
Invariant: one class per C type, with the fields of its C struct; `emit_new` makes a real object of that type in the
same state. Those that collect their input at once (`product`, `permutations`, …) run the real iterator over the
trackers.
Mirrors `Modules/itertoolsmodule.c`.
"""

from __future__ import annotations

import itertools
import operator
import sys
from typing import Any

from ..exc import unsupported
from .abstract import binary_op, get_iter, is_number, is_true, iter_next, type_name, unpack
from .base import VariableTracker
from .constant import FALSE, NONE, ConstantVariable, is_none
from .dispatch import builtin, constructor, method
from .iter import IteratorVariable, advance, call_or_stop
from .list import ListVariable
from .native import NativeVariable, host_index, repr_text, same_or_equal
from .tuple import TupleVariable
from .zip import emit_advanced, emit_instance, emit_with


def plain_only(vt: IteratorVariable, base: type) -> None:
    """Break for a subclass instance in a state that no call of a constructor leads to."""
    if vt.python_type() is not base:
        unsupported("reconstruct", f"a {vt.python_type().__name__} object that has been advanced")


def state_items(tx: Any, state: VariableTracker, least: int, most: int) -> list[VariableTracker]:
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

    def tp_iternext(self, tx: Any) -> VariableTracker:
        item = self.current
        self.current = binary_op(tx, operator.add, item, self.step)
        return item

    def _counts_in_ones(self) -> bool:
        """The C code's fast mode: machine numbers, step 1."""
        step, current = self.step.value, self.current.value
        return type(step) is int and step == 1 and type(current) is int and current < MAX_FAST

    def tp_repr(self, tx: Any) -> VariableTracker:
        step = (
            ""
            if self._counts_in_ones() or (type(self.step.value) is int and self.step.value == 1)
            else (f", {repr_text(tx, self.step)}")
        )
        return ConstantVariable(f"{self.python_type().__name__}({repr_text(tx, self.current)}{step})")

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        return self.python_type(), (self.current,) if self._counts_in_ones() else (self.current, self.step)

    def emit_new(self, cg: Any) -> None:
        emit_instance(cg, self, itertools.count, self.current, self.step)


@constructor(itertools.count)
def new_count(
    tx: Any, cls: VariableTracker, start: VariableTracker | None = None, step: VariableTracker | None = None
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

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        if self.times is not None:
            if self.times <= 0:
                return None
            self.times -= 1
        return self.element

    def tp_repr(self, tx: Any) -> VariableTracker:
        times = "" if self.times is None else f", {self.times}"
        return ConstantVariable(f"{self.python_type().__name__}({repr_text(tx, self.element)}{times})")

    def remaining(self, tx: Any) -> int:
        """`__length_hint__`."""
        return tx.raises(TypeError, "len() of unsized object") if self.times is None else self.times

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        return self.python_type(), (self.element, *([] if self.times is None else [self.times]))

    def emit_new(self, cg: Any) -> None:
        emit_instance(cg, self, itertools.repeat, self.element, *([] if self.times is None else [self.times]))


@constructor(itertools.repeat)
def new_repeat(
    tx: Any, cls: VariableTracker, object: VariableTracker, times: VariableTracker | None = None
) -> RepeatVariable:
    return RepeatVariable(object, None if times is None else max(host_index(tx, times), 0))


@method(itertools.repeat.__length_hint__)
def repeat_length_hint(tx: Any, self: RepeatVariable, /) -> VariableTracker:
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

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
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

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        saved = self.saved
        if self.iterator is not None:
            return self.python_type(), (self.iterator,), (saved, not self.saves)
        iterator = get_iter(tx, saved)
        iterator.index = self.index
        return self.python_type(), (iterator,), (saved, True)

    def restore(self, tx: Any, state: VariableTracker) -> None:
        saved, first_pass = state_items(tx, state, 2, 2)
        if not isinstance(saved, ListVariable):
            tx.raises(TypeError, f"argument 1 must be list, not {type_name(saved)}")
        self.saved = saved
        self.saves = not host_index(tx, first_pass)
        self.index = 0

    def emit_new(self, cg: Any) -> None:
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
def new_cycle(tx: Any, cls: VariableTracker, iterable: VariableTracker, /) -> CycleVariable:
    return CycleVariable(get_iter(tx, iterable))


# -- chain, islice, accumulate


class ChainVariable(IteratorVariable):
    """`itertools.chain(*iterables)`: `iterables` is an iterator of iterables, `active` the one being read."""

    cls = itertools.chain
    parts = ("iterables", "active")

    def __init__(self, iterables: VariableTracker) -> None:
        self.iterables: VariableTracker | None = iterables
        self.active: VariableTracker | None = None

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
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

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        if self.iterables is None:
            return self.python_type(), ()
        active = () if self.active is None else (self.active,)
        return self.python_type(), (), (self.iterables, *active)

    def restore(self, tx: Any, state: VariableTracker) -> None:
        items = state_items(tx, state, 1, 2)
        if any(item.tp_iternext is None for item in items):
            tx.raises(TypeError, "Arguments must be iterators.")
        self.iterables = items[0]
        self.active = items[1] if len(items) > 1 else None

    def emit_new(self, cg: Any) -> None:
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
def new_chain(tx: Any, cls: VariableTracker, /, *iterables: VariableTracker) -> ChainVariable:
    return ChainVariable(get_iter(tx, TupleVariable(list(iterables))))


@builtin(itertools.chain.__dict__["from_iterable"])
def chain_from_iterable(tx: Any, cls: VariableTracker, iterable: VariableTracker, /) -> ChainVariable:
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

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
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

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        if self.iterator is None:
            return self.python_type(), (get_iter(tx, ListVariable([])), 0), 0
        return self.python_type(), (self.iterator, self.next, self.stop, self.step), self.position

    def restore(self, tx: Any, state: VariableTracker) -> None:
        self.position = host_index(tx, state)

    def emit_new(self, cg: Any) -> None:
        if self.iterator is None:
            emit_instance(cg, self, itertools.islice, (), 0)
            return
        stop = None if self.stop is None else self.stop - self.position
        emit_instance(cg, self, itertools.islice, self.iterator, self.next - self.position, stop, self.step)


@constructor(itertools.islice)
def new_islice(tx: Any, cls: VariableTracker, iterable: VariableTracker, /, *args: VariableTracker) -> VariableTracker:
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

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
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

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        cls = self.python_type()
        if self.initial is not None:
            return cls, (chained(tx, self.initial, self.iterator), self.function), None
        if is_none(self.total) and self.total is not None:
            again = AccumulateVariable(chained(tx, self.total, self.iterator), self.function, None)
            return itertools.islice, (again, 1, None)
        return cls, (self.iterator, self.function), NONE if self.total is None else self.total

    def restore(self, tx: Any, state: VariableTracker) -> None:
        self.total = state

    def emit_new(self, cg: Any) -> None:
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


def chained(tx: Any, first: VariableTracker, iterator: VariableTracker) -> VariableTracker:
    """`itertools.chain((first,), iterator)`"""
    return new_chain(tx, tx.tr.type_tracker(itertools.chain), TupleVariable([first]), iterator)


@constructor(itertools.accumulate)
def new_accumulate(
    tx: Any,
    cls: VariableTracker,
    iterable: VariableTracker,
    func: VariableTracker = NONE,
    *,
    initial: VariableTracker | None = None,
) -> AccumulateVariable:
    return AccumulateVariable(get_iter(tx, iterable), func, None if is_none(initial) else initial)


# -- selecting


class StarmapVariable(IteratorVariable):
    """`itertools.starmap(function, iterable)`."""

    cls = itertools.starmap
    parts = ("function", "iterator")

    def __init__(self, function: VariableTracker, iterator: VariableTracker) -> None:
        self.function = function
        self.iterator = iterator

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        args = iter_next(tx, self.iterator)
        return None if args is None else call_or_stop(tx, self.function, unpack(tx, args))

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        return self.python_type(), (self.function, self.iterator)

    def emit_new(self, cg: Any) -> None:
        emit_instance(cg, self, itertools.starmap, self.function, self.iterator)


@constructor(itertools.starmap)
def new_starmap(
    tx: Any, cls: VariableTracker, function: VariableTracker, iterable: VariableTracker, /
) -> StarmapVariable:
    return StarmapVariable(function, get_iter(tx, iterable))


class WhileVariable(IteratorVariable):
    """`itertools.takewhile` and `dropwhile`; `decided` once the predicate has failed."""

    parts = ("function", "iterator")

    def __init__(self, cls: type, function: VariableTracker, iterator: VariableTracker) -> None:
        self.cls = self.base = cls
        self.function = function
        self.iterator = iterator
        self.decided = False

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        taking = self.base is itertools.takewhile
        if self.decided and taking:
            return None
        while (item := iter_next(tx, self.iterator)) is not None:
            if self.decided:
                return item
            verdict = call_or_stop(tx, self.function, [item])
            if verdict is None:
                return None
            holds = is_true(tx, verdict)
            self.decided = not holds
            if holds is taking:
                return item
            if taking:
                return None
        return None

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        return self.python_type(), (self.function, self.iterator), self.decided

    def restore(self, tx: Any, state: VariableTracker) -> None:
        self.decided = is_true(tx, state)

    def emit_new(self, cg: Any) -> None:
        if not self.decided:
            emit_instance(cg, self, self.base, self.function, self.iterator)
        elif self.base is itertools.takewhile:
            emit_instance(cg, self, self.base, self.function, ())
        else:
            emit_instance(cg, self, self.base, _never, self.iterator)


def _never(item: Any) -> bool:
    return False


def _new_while(cls: type) -> None:
    @constructor(cls)
    def new_while(
        tx: Any, tracker: VariableTracker, predicate: VariableTracker, iterable: VariableTracker, /
    ) -> WhileVariable:
        return WhileVariable(cls, predicate, get_iter(tx, iterable))


_new_while(itertools.takewhile)
_new_while(itertools.dropwhile)


class CompressVariable(IteratorVariable):
    """`itertools.compress(data, selectors)`."""

    cls = itertools.compress
    parts = ("data", "selectors")

    def __init__(self, data: VariableTracker, selectors: VariableTracker) -> None:
        self.data = data
        self.selectors = selectors

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        while (item := iter_next(tx, self.data)) is not None:
            selector = iter_next(tx, self.selectors)
            if selector is None:
                return None
            if is_true(tx, selector):
                return item
        return None

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        return self.python_type(), (self.data, self.selectors)

    def emit_new(self, cg: Any) -> None:
        emit_instance(cg, self, itertools.compress, self.data, self.selectors)


@constructor(itertools.compress)
def new_compress(tx: Any, cls: VariableTracker, data: VariableTracker, selectors: VariableTracker) -> CompressVariable:
    return CompressVariable(get_iter(tx, data), get_iter(tx, selectors))


class PairwiseVariable(IteratorVariable):
    """`itertools.pairwise(iterable)`."""

    cls = itertools.pairwise
    parts = ("iterator", "old")

    def __init__(self, iterator: VariableTracker) -> None:
        self.iterator: VariableTracker | None = iterator
        self.old: VariableTracker | None = None

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        iterator = self.iterator
        if iterator is None:
            return None
        old = self.old
        if old is None:
            self.old = old = iter_next(tx, iterator)
            if old is None:
                self.iterator = None
                return None
            iterator = self.iterator
            if iterator is None:  # the iterator came back here
                self.old = None
                return None
        new = iter_next(tx, iterator)
        if new is None:
            self.iterator = self.old = None
            return None
        self.old = new
        return TupleVariable([old, new])

    def emit_new(self, cg: Any) -> None:
        if self.iterator is None:
            emit_instance(cg, self, itertools.pairwise, ())
        elif self.old is None:
            emit_instance(cg, self, itertools.pairwise, self.iterator)
        else:
            plain_only(self, itertools.pairwise)
            cg.load_callable(itertools.pairwise)
            emit_with(cg, itertools.chain, [self.old], self.iterator)
            cg.asm.call(1)


@constructor(itertools.pairwise)
def new_pairwise(tx: Any, cls: VariableTracker, iterable: VariableTracker, /) -> PairwiseVariable:
    return PairwiseVariable(get_iter(tx, iterable))


class ZipLongestVariable(IteratorVariable):
    """`itertools.zip_longest(*iterables, fillvalue=None)`; an exhausted iterator is None."""

    cls = itertools.zip_longest
    parts = ("fillvalue",)

    def __init__(self, iterators: list[VariableTracker], fillvalue: VariableTracker) -> None:
        self.iterators: list[VariableTracker | None] = list(iterators)
        self.active = len(iterators)
        self.fillvalue = fillvalue

    def children(self) -> Any:
        return [*[it for it in self.iterators if it is not None], self.fillvalue]

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        if not self.active:
            return None
        items = []
        for i, iterator in enumerate(self.iterators):
            item = None if iterator is None else iter_next(tx, iterator)
            if item is None and iterator is not None:
                self.active -= 1
                if not self.active:
                    return None
                self.iterators[i] = None
            items.append(self.fillvalue if item is None else item)
        return TupleVariable(items)

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        args = tuple([() if iterator is None else iterator for iterator in self.iterators])
        return self.python_type(), args, self.fillvalue

    def restore(self, tx: Any, state: VariableTracker) -> None:
        self.fillvalue = state

    def emit_new(self, cg: Any) -> None:
        iterators = [() if iterator is None or not self.active else iterator for iterator in self.iterators]
        emit_instance(cg, self, itertools.zip_longest, *iterators, fillvalue=self.fillvalue)


@constructor(itertools.zip_longest)
def new_zip_longest(
    tx: Any, cls: VariableTracker, /, *iterables: VariableTracker, fillvalue: VariableTracker = NONE
) -> ZipLongestVariable:
    return ZipLongestVariable([get_iter(tx, iterable) for iterable in iterables], fillvalue)


class BatchedVariable(IteratorVariable):
    """`itertools.batched(iterable, n, *, strict=False)` (3.12+)."""

    cls: type = getattr(itertools, "batched", object)
    parts = ("iterator",)

    def __init__(self, iterator: VariableTracker, n: int, strict: bool) -> None:
        self.iterator: VariableTracker | None = iterator
        self.n = n
        self.strict = strict

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        items: list[VariableTracker] = []
        while self.iterator is not None and len(items) < self.n:
            item = iter_next(tx, self.iterator)
            if item is None:
                self.iterator = None
                if items and self.strict:
                    tx.raises(ValueError, "batched(): incomplete batch")
                break
            items.append(item)
        return TupleVariable(items) if items else None

    def emit_new(self, cg: Any) -> None:
        strict = {"strict": True} if self.strict else {}
        emit_instance(cg, self, itertools.batched, () if self.iterator is None else self.iterator, self.n, **strict)


if hasattr(itertools, "batched"):

    @constructor(itertools.batched)
    def new_batched(
        tx: Any, cls: VariableTracker, iterable: VariableTracker, n: VariableTracker, *, strict: VariableTracker = FALSE
    ) -> VariableTracker:
        size = host_index(tx, n)
        if size < 1:
            return tx.raises(ValueError, "n must be at least one")
        return BatchedVariable(get_iter(tx, iterable), size, is_true(tx, strict))


# -- combinations


class CombinatoricVariable(IteratorVariable):
    """`product`, `permutations`, `combinations`, `combinations_with_replacement`: the real iterator over trackers."""

    def __init__(self, cls: type, pools: list[list[VariableTracker]], *args: int, **kwargs: int) -> None:
        self.cls = self.base = cls
        self.pools = pools
        self.args = args
        self.kwargs = kwargs
        self.host = cls(*pools, *args, **kwargs)
        self.consumed = 0
        self.restored = False

    def children(self) -> Any:
        return [item for pool in self.pools for item in pool]

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        items = next(self.host, None)
        self.consumed += 1
        return None if items is None else TupleVariable(list(items))

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        _, *rest = self.host.__reduce__()
        return (self.python_type(), *rest)

    def restore(self, tx: Any, state: VariableTracker) -> None:
        self.restored = True
        try:
            self.host.__setstate__(state.as_python_constant())
        except (TypeError, ValueError) as error:
            tx.raises_like(error)

    def emit_new(self, cg: Any) -> None:
        if self.restored:
            unsupported("reconstruct", f"a {self.base.__name__} object that __setstate__ was called on")
        if self.consumed:
            plain_only(self, self.base)

        def emit() -> None:
            emit_instance(cg, self, self.base, *self.pools, *self.args, **self.kwargs)

        emit_advanced(cg, self.consumed, emit) if self.consumed else emit()


@constructor(itertools.product)
def new_product(
    tx: Any, cls: VariableTracker, /, *iterables: VariableTracker, repeat: VariableTracker | None = None
) -> VariableTracker:
    times = 1 if repeat is None else host_index(tx, repeat)
    if times < 0:
        return tx.raises(ValueError, "repeat argument cannot be negative")
    pools = [unpack(tx, iterable) for iterable in iterables] if times else []
    return CombinatoricVariable(itertools.product, pools, repeat=times)


@constructor(itertools.permutations)
def new_permutations(
    tx: Any, cls: VariableTracker, iterable: VariableTracker, r: VariableTracker | None = None
) -> VariableTracker:
    pool = unpack(tx, iterable)
    if r is not None and not is_none(r) and not issubclass(r.python_type(), int):
        return tx.raises(TypeError, "Expected int as r")
    n = len(pool) if is_none(r) else host_index(tx, r)
    return CombinatoricVariable(itertools.permutations, [pool], n) if n >= 0 else _negative_r(tx)


def _new_combinations(cls: type) -> None:
    @constructor(cls)
    def new_combinations(
        tx: Any, tracker: VariableTracker, iterable: VariableTracker, r: VariableTracker
    ) -> VariableTracker:
        n = host_index(tx, r)
        pool = unpack(tx, iterable)
        return CombinatoricVariable(cls, [pool], n) if n >= 0 else _negative_r(tx)


def _negative_r(tx: Any) -> VariableTracker:
    return tx.raises(ValueError, "r must be non-negative")


_new_combinations(itertools.combinations)
_new_combinations(itertools.combinations_with_replacement)


# -- groupby and tee


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

    def step(self, tx: Any) -> bool:
        """`groupby_step`: read one item; False at the end."""
        item = iter_next(tx, self.iterator)
        if item is None:
            return False
        key = item if is_none(self.function) else call_or_stop(tx, self.function, [item])
        if key is None:
            return False
        self.item, self.key = item, key
        return True

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        self.current = None
        while self.key is None or (self.target is not None and same_or_equal(tx, self.target, self.key)):
            if not self.step(tx):
                return None
        self.target = self.key
        self.current = GrouperVariable(self, self.key)
        return TupleVariable([self.key, self.current])

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        args = (self.iterator, self.function)
        if self.key is None or self.item is None or self.target is None:
            return self.python_type(), args
        return self.python_type(), args, (self.key, self.item, self.target)

    def restore(self, tx: Any, state: VariableTracker) -> None:
        self.key, self.item, self.target = state_items(tx, state, 3, 3)

    def emit_new(self, cg: Any) -> None:
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

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        parent = self.parent
        if parent.current is not self:
            return None
        if parent.item is None and not parent.step(tx):
            return None
        if not same_or_equal(tx, self.target, parent.key):
            return None
        item, parent.item, parent.key = parent.item, None, None
        return item

    def reduced(self, tx: Any) -> tuple[Any, ...]:
        if self.parent.current is not self:
            return iter, ((),)
        return self.python_type(), (self.parent, self.target)

    def emit_new(self, cg: Any) -> None:
        unsupported("reconstruct", "a group of itertools.groupby")


@constructor(itertools.groupby)
def new_groupby(
    tx: Any, cls: VariableTracker, iterable: VariableTracker, key: VariableTracker = NONE
) -> GroupByVariable:
    return GroupByVariable(get_iter(tx, iterable), key)


@constructor(itertools._grouper)
def new_grouper(tx: Any, cls: VariableTracker, parent: VariableTracker, tgtkey: VariableTracker, /) -> VariableTracker:
    if not isinstance(parent, GroupByVariable):
        return unsupported("call-c-function", "itertools._grouper of a groupby from outside")
    parent.current = GrouperVariable(parent, tgtkey)
    return parent.current


class TeeSource(NativeVariable):
    """What the iterators of one `itertools.tee` share: the items read so far, and the iterator that gives more."""

    cls: type = itertools._tee

    def __init__(self, iterator: VariableTracker) -> None:
        self.iterator = iterator
        self.items: list[VariableTracker] = []
        self.running = False

    def item(self, tx: Any, position: int) -> VariableTracker | None:
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

    def emit_new(self, cg: Any) -> None:
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

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        item = self.shared.item(tx, self.position)
        if item is not None:
            self.position += 1
        return item

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(_tee_at)
        cg.load(self.shared)
        cg.load_const(self.position)
        cg.asm.call(2)


def _tee_at(start: Any, position: int) -> Any:
    return advance(start.__copy__(), position)


@constructor(itertools._tee)
def new_tee(tx: Any, cls: VariableTracker, iterable: VariableTracker, /) -> VariableTracker:
    iterator = get_iter(tx, iterable)
    if isinstance(iterator, TeeVariable):
        return TeeVariable(iterator.shared, iterator.position)
    return TeeVariable(TeeSource(iterator))


@method(itertools._tee.__copy__)
def tee_copy(tx: Any, self: VariableTracker, /) -> VariableTracker:
    if not isinstance(self, TeeVariable):
        return unsupported("iterator-state", "a copy of an itertools.tee from outside")
    return TeeVariable(self.shared, self.position)


@builtin(itertools.tee)
def itertools_tee(tx: Any, iterable: VariableTracker, n: VariableTracker | None = None, /) -> VariableTracker:
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
