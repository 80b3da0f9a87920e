"""zip, map, filter, enumerate, and the iterators of the `itertools` module.

Input: trackers of the arguments. Output: iterator models that pull from other iterators when asked, never before.
Invariant: one class per C type, with the fields of its C struct; `emit_new` makes a real object of that type in the
same state. Those that collect their input at once (`product`, `permutations`, …) run the real iterator over the
trackers.
Mirrors `Python/bltinmodule.c`, `Objects/enumobject.c`, `Modules/itertoolsmodule.c`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

from ..exc import unsupported
from ..guards import ir
from .abstract import binary_op, get_iter, is_true, iter_next, unpack
from .base import VariableTracker
from .constant import FALSE, NONE, ConstantVariable, is_none
from .dispatch import builtin, constructor
from .iter import IteratorVariable, SourcedIterator, advance, call_or_stop, reduced_arg, wrapped_args
from .native import emit_all, host_index, same_or_equal
from .tuple import TupleVariable
from .wrap import builds


class ManyIterators(IteratorVariable):
    """Base of the types that hold a list of iterators."""

    iterators: list[VariableTracker]

    def children(self) -> Any:
        return [*self.iterators, *super().children()]


def emit_with(cg: Any, function: Any, *args: Any, **kwargs: Any) -> None:
    """Push `function(*args, **kwargs)`; arguments are trackers, lists of trackers (for tuples), or host constants."""
    cg.load_callable(function)
    for arg in (*args, *kwargs.values()):
        if isinstance(arg, VariableTracker):
            cg.load(arg)
        elif isinstance(arg, list):
            cg.asm.build_tuple(emit_all(cg, arg))
        else:
            cg.load_const(arg)
    cg.asm.call(len(args) + len(kwargs), tuple(kwargs))


def emit_advanced(cg: Any, n: int, emit: Callable[[], None]) -> None:
    """Push the iterator that `emit` pushes, after taking n items off it."""
    cg.load_callable(advance)
    emit()
    cg.load_const(n)
    cg.asm.call(2)


# -- zip


class ZipVariable(ManyIterators):
    """`zip(*iterables, strict=False)`."""

    cls = zip

    def __init__(self, iterators: list[VariableTracker], strict: bool = False, source: Any = None) -> None:
        self.iterators = iterators
        self.strict = strict
        self.source = source

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        items = []
        for i, iterator in enumerate(self.iterators):
            item = iter_next(tx, iterator)
            if item is None:
                if self.strict:
                    self._check_lengths(tx, i)
                return None
            items.append(item)
        return TupleVariable(items) if items else None

    def _check_lengths(self, tx: Any, i: int) -> None:
        """Argument i is exhausted: all others have to be, too."""
        if i:
            plural = " " if i == 1 else "s 1-"
            tx.raises(ValueError, f"zip() argument {i + 1} is shorter than argument{plural}{i}")
        for k, iterator in enumerate(self.iterators[1:], 1):
            if iter_next(tx, iterator) is not None:
                plural = " " if k == 1 else "s 1-"
                tx.raises(ValueError, f"zip() argument {k + 1} is longer than argument{plural}{k}")

    def emit_new(self, cg: Any) -> None:
        if self.strict:
            emit_with(cg, zip, *self.iterators, strict=True)
        else:
            emit_with(cg, zip, *self.iterators)


@constructor(zip)
def new_zip(
    tx: Any, cls: VariableTracker, /, *iterables: VariableTracker, strict: VariableTracker = FALSE
) -> ZipVariable:
    iterators = []
    for iterable in iterables:
        if iterable.tp_iter is None and iterable.sq_item is None:
            tx.raises(TypeError, f"'{iterable.python_type().__name__}' object is not iterable")
        iterators.append(get_iter(tx, iterable))
    return ZipVariable(iterators, is_true(tx, strict))


@builds(zip)
def build_zip(tr: Any, value: Any, source: Any) -> ZipVariable:
    return ZipVariable(wrapped_args(tr, value, source), len(value.__reduce__()) > 2, source)


# -- map, filter, enumerate


class MapVariable(ManyIterators):
    """`map(function, *iterables)`."""

    cls = map
    parts = ("function",)

    def __init__(self, function: VariableTracker, iterators: list[VariableTracker], source: Any = None) -> None:
        self.function = function
        self.iterators = iterators
        self.source = source

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        args = []
        for iterator in self.iterators:
            item = iter_next(tx, iterator)
            if item is None:
                return None
            args.append(item)
        return call_or_stop(tx, self.function, args)

    def emit_new(self, cg: Any) -> None:
        emit_with(cg, map, self.function, *self.iterators)


@constructor(map)
def new_map(tx: Any, cls: VariableTracker, /, *args: VariableTracker) -> MapVariable:
    if len(args) < 2:
        return tx.raises(TypeError, "map() must have at least two arguments.")
    return MapVariable(args[0], [get_iter(tx, iterable) for iterable in args[1:]])


@builds(map)
def build_map(tr: Any, value: Any, source: Any) -> MapVariable:
    function, *iterators = wrapped_args(tr, value, source)
    return MapVariable(function, iterators, source)


class FilterVariable(IteratorVariable):
    """`filter(function or None, iterable)`, and `itertools.filterfalse`."""

    parts = ("function", "iterator")

    def __init__(self, cls: type, function: VariableTracker, iterator: VariableTracker, source: Any = None) -> None:
        self.cls = cls
        self.function = function
        self.iterator = iterator
        self.source = source

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        by_truth = is_none(self.function) or self.function.value is bool
        while (item := iter_next(tx, self.iterator)) is not None:
            verdict = item if by_truth else call_or_stop(tx, self.function, [item])
            if verdict is None:
                return None
            if is_true(tx, verdict) is (self.cls is filter):
                return item
        return None

    def emit_new(self, cg: Any) -> None:
        emit_with(cg, self.cls, self.function, self.iterator)


@constructor(filter)
def new_filter(
    tx: Any, cls: VariableTracker, function: VariableTracker, iterable: VariableTracker, /
) -> FilterVariable:
    return FilterVariable(filter, function, get_iter(tx, iterable))


@constructor(itertools.filterfalse)
def new_filterfalse(
    tx: Any, cls: VariableTracker, function: VariableTracker, iterable: VariableTracker, /
) -> FilterVariable:
    return FilterVariable(itertools.filterfalse, function, get_iter(tx, iterable))


@builds(filter)
def build_filter(tr: Any, value: Any, source: Any) -> FilterVariable:
    function, iterator = wrapped_args(tr, value, source)
    return FilterVariable(filter, function, iterator, source)


class EnumerateVariable(IteratorVariable):
    """`enumerate(iterable, start=0)`."""

    cls = enumerate
    parts = ("iterator",)

    def __init__(self, iterator: VariableTracker, count: int, source: Any = None) -> None:
        self.iterator = iterator
        self.count = count
        self.source = source
        self.consumed = 0

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        item = iter_next(tx, self.iterator)
        if self.source is not None:
            tx.tr.mutating(self)
            self.consumed += 1
        if item is None:
            return None
        count = self.count
        self.count = count + 1
        return TupleVariable([ConstantVariable(count), item])

    def emit_new(self, cg: Any) -> None:
        emit_with(cg, enumerate, self.iterator, self.count)

    def emit_update(self, cg: Any) -> None:
        emit_with(cg, advance, self, self.consumed)
        cg.asm.pop_top()


@constructor(enumerate)
def new_enumerate(
    tx: Any, cls: VariableTracker, iterable: VariableTracker, start: VariableTracker | None = None
) -> EnumerateVariable:
    return EnumerateVariable(get_iter(tx, iterable), 0 if start is None else host_index(tx, start))


@builds(enumerate)
def build_enumerate(tr: Any, value: Any, source: Any) -> EnumerateVariable:
    tr.guard(source, ir.TYPE_IS, enumerate)
    inner, count = value.__reduce__()[1]
    # Not through `wrap`: a number that changes from call to call would become symbolic.
    tr.guard(tr.source(source, ir.CALL, reduced_arg(1)), ir.EQUALS, count)
    model = tr.build(inner, tr.source(source, ir.CALL, reduced_arg(0)))
    if not isinstance(model, SourcedIterator):
        unsupported("iterator-state", f"enumerate over a {type(inner).__name__}")
    model.owned = True  # the enumerate object is advanced, and it with it
    return EnumerateVariable(model, count, source)


# -- endless and repeating


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

    def tp_repr(self, tx: Any) -> VariableTracker:
        return ConstantVariable(
            repr(itertools.count(self.current.as_python_constant(), self.step.as_python_constant()))
        )

    def emit_new(self, cg: Any) -> None:
        emit_with(cg, itertools.count, self.current, self.step)


@constructor(itertools.count)
def new_count(
    tx: Any, cls: VariableTracker, start: VariableTracker | None = None, step: VariableTracker | None = None
) -> CountVariable:
    for value in (start, step):
        if value is not None and value.nb_add is None:
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

    def emit_new(self, cg: Any) -> None:
        emit_with(cg, itertools.repeat, self.element, *([] if self.times is None else [self.times]))


@constructor(itertools.repeat)
def new_repeat(
    tx: Any, cls: VariableTracker, object: VariableTracker, times: VariableTracker | None = None
) -> RepeatVariable:
    return RepeatVariable(object, None if times is None else max(host_index(tx, times), 0))


class CycleVariable(IteratorVariable):
    """`itertools.cycle(iterable)`. `iterator` is None once the first pass is over."""

    cls = itertools.cycle
    parts = ("iterator",)

    def __init__(self, iterator: VariableTracker) -> None:
        self.iterator: VariableTracker | None = iterator
        self.saved: list[VariableTracker] = []
        self.index = 0

    def children(self) -> Any:
        return [*self.saved, *super().children()]

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        if self.iterator is not None:
            item = iter_next(tx, self.iterator)
            if item is not None:
                self.saved.append(item)
                return item
            self.iterator = None
        if not self.saved:
            return None
        item = self.saved[self.index]
        self.index = (self.index + 1) % len(self.saved)
        return item

    def emit_new(self, cg: Any) -> None:
        if self.iterator is None:
            emit_with(cg, itertools.cycle, self.saved[self.index :] + self.saved[: self.index])
            return

        def emit() -> None:
            cg.load_callable(itertools.cycle)
            emit_with(cg, itertools.chain, self.saved, self.iterator)
            cg.asm.call(1)

        emit_advanced(cg, len(self.saved), emit)


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

    def emit_new(self, cg: Any) -> None:
        if self.iterables is None:
            emit_with(cg, itertools.chain)
        elif self.active is None:
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

    def emit_new(self, cg: Any) -> None:
        if self.iterator is None:
            emit_with(cg, itertools.islice, (), 0)
            return
        stop = None if self.stop is None else self.stop - self.position
        emit_with(cg, itertools.islice, self.iterator, self.next - self.position, stop, self.step)


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
            self.total = call_or_stop(tx, self.function, [self.total, item])
        return self.total

    def emit_new(self, cg: Any) -> None:
        initial = self.initial if self.initial is not None else self.total
        if initial is None:
            emit_with(cg, itertools.accumulate, self.iterator, self.function)
            return

        def emit() -> None:
            emit_with(cg, itertools.accumulate, self.iterator, self.function, initial=initial)

        emit_advanced(cg, int(self.initial is None), emit)


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

    def emit_new(self, cg: Any) -> None:
        emit_with(cg, itertools.starmap, self.function, self.iterator)


@constructor(itertools.starmap)
def new_starmap(
    tx: Any, cls: VariableTracker, function: VariableTracker, iterable: VariableTracker, /
) -> StarmapVariable:
    return StarmapVariable(function, get_iter(tx, iterable))


class WhileVariable(IteratorVariable):
    """`itertools.takewhile` and `dropwhile`; `decided` once the predicate has failed."""

    parts = ("function", "iterator")

    def __init__(self, cls: type, function: VariableTracker, iterator: VariableTracker) -> None:
        self.cls = cls
        self.function = function
        self.iterator = iterator
        self.decided = False

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        taking = self.cls is itertools.takewhile
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

    def emit_new(self, cg: Any) -> None:
        if not self.decided:
            emit_with(cg, self.cls, self.function, self.iterator)
        elif self.cls is itertools.takewhile:
            emit_with(cg, self.cls, self.function, ())
        else:
            emit_with(cg, self.cls, _never, self.iterator)


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

    def emit_new(self, cg: Any) -> None:
        emit_with(cg, itertools.compress, self.data, self.selectors)


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
        if self.iterator is None:
            return None
        if self.old is None:
            self.old = iter_next(tx, self.iterator)
        new = iter_next(tx, self.iterator) if self.old is not None else None
        if new is None:
            self.iterator = self.old = None
            return None
        old, self.old = self.old, new
        return TupleVariable([old, new])

    def emit_new(self, cg: Any) -> None:
        if self.iterator is None:
            emit_with(cg, itertools.pairwise, ())
        elif self.old is None:
            emit_with(cg, itertools.pairwise, self.iterator)
        else:
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

    def emit_new(self, cg: Any) -> None:
        iterators = [() if iterator is None or not self.active else iterator for iterator in self.iterators]
        emit_with(cg, itertools.zip_longest, *iterators, fillvalue=self.fillvalue)


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
        emit_with(cg, self.cls, () if self.iterator is None else self.iterator, self.n, **strict)


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
        self.cls = cls
        self.pools = pools
        self.args = args
        self.kwargs = kwargs
        self.host = cls(*pools, *args, **kwargs)
        self.consumed = 0

    def children(self) -> Any:
        return [item for pool in self.pools for item in pool]

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        items = next(self.host, None)
        self.consumed += 1
        return None if items is None else TupleVariable(list(items))

    def emit_new(self, cg: Any) -> None:
        def emit() -> None:
            cg.load_callable(self.cls)
            for pool in self.pools:
                cg.asm.build_tuple(emit_all(cg, pool))
            for value in (*self.args, *self.kwargs.values()):
                cg.load_const(value)
            cg.asm.call(len(self.pools) + len(self.args) + len(self.kwargs), tuple(self.kwargs))

        emit_advanced(cg, self.consumed, emit)


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

    def emit_new(self, cg: Any) -> None:
        if self.key is not None:
            unsupported("reconstruct", "a groupby object that has been advanced")
        emit_with(cg, itertools.groupby, self.iterator, self.function)


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
        item, parent.item = parent.item, None
        return item

    def emit_new(self, cg: Any) -> None:
        unsupported("reconstruct", "a group of itertools.groupby")


@constructor(itertools.groupby)
def new_groupby(
    tx: Any, cls: VariableTracker, iterable: VariableTracker, key: VariableTracker = NONE
) -> GroupByVariable:
    return GroupByVariable(get_iter(tx, iterable), key)


class TeeVariable(IteratorVariable):
    """One of the iterators that `itertools.tee` gives: a position in the items read so far."""

    cls: type = itertools._tee
    parts = ("iterator",)

    def __init__(self, iterator: VariableTracker, items: list[VariableTracker], position: int = 0) -> None:
        self.iterator = iterator
        self.items = items
        self.position = position

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        if self.position == len(self.items):
            item = iter_next(tx, self.iterator)
            if item is None:
                return None
            self.items.append(item)
        self.position += 1
        return self.items[self.position - 1]

    def emit_new(self, cg: Any) -> None:
        unsupported("reconstruct", "an iterator made by itertools.tee")


@builtin(itertools.tee)
def itertools_tee(tx: Any, iterable: VariableTracker, n: VariableTracker | None = None, /) -> VariableTracker:
    count = 2 if n is None else host_index(tx, n)
    if count < 0:
        return tx.raises(ValueError, "n must be >= 0")
    if not count:
        return TupleVariable([])
    iterator = get_iter(tx, iterable)
    if isinstance(iterator, TeeVariable):
        copies = [TeeVariable(iterator.iterator, iterator.items, iterator.position) for _ in range(count - 1)]
        return TupleVariable([iterator, *copies])
    items: list[VariableTracker] = []
    return TupleVariable([TeeVariable(iterator, items) for _ in range(count)])
