"""Stand-ins for the classes of `itertools`, but those that make combinations: `variables/stdlib/combinatorics.py` has these.

Each `__next__` asks, fails and forgets in the order of the C code. An item is never compared with a mark for "nothing yet": the program
would get a guard on which object it is; a field of its own says so.
Mirrors `Modules/itertoolsmodule.c`.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .c_calls import host_index, host_ssize, is_number, leave_to_c, same_or_equal, state_of
from .registry import polyfill, stands_for

# Read from here, not from the module: that nobody changes these needs no guard.
_GROUPER: Any = itertools._grouper  # type: ignore[attr-defined]
_TEE: Any = itertools._tee  # type: ignore[attr-defined]
_TEE_DATA: Any = itertools._tee_dataobject  # type: ignore[attr-defined]


class MISSING:
    """The default of a parameter without one."""


# -- endless and repeating


@stands_for(itertools.count)
class count:
    arguments = ("current", "step")

    def __init__(self, start: Any = 0, step: Any = 1) -> None:
        if not is_number(start) or not is_number(step):
            leave_to_c()
        if isinstance(start, int) and isinstance(step, int) and step == 1:  # C counts with a machine number
            start, step = operator.index(start), 1
        self.current, self.step = start, step

    def __next__(self) -> Any:
        item = self.current
        self.current = item + self.step
        return item


@stands_for(itertools.repeat)
class repeat:
    def __init__(self, object: Any, times: Any = MISSING) -> None:
        self.element = object
        self.times = None if times is MISSING else max(host_ssize(times), 0)

    def __next__(self) -> Any:
        if self.times is not None:
            if not self.times:
                raise StopIteration
            self.times -= 1
        return self.element

    @staticmethod
    def rebuild(cls: Any, element: Any, times: int | None) -> Any:
        return itertools.repeat.__new__(cls, element, *([] if times is None else [times]))


@stands_for(itertools.cycle)
class cycle:
    """`iterator` is None when the first pass is over."""

    def __init__(self, iterable: Iterable[Any], /) -> None:
        self.iterator: Any = iter(iterable)
        self.saved: tuple[Any, ...] = ()
        self.index = 0

    def __next__(self) -> Any:
        if self.iterator is not None:
            try:
                item = next(self.iterator)
            except StopIteration:
                self.iterator = None
            else:
                self.saved = (*self.saved, item)
                return item
        if not self.saved:
            raise StopIteration
        item = self.saved[self.index]
        self.index = (self.index + 1) % len(self.saved)
        return item

    @staticmethod
    def rebuild(cls: Any, iterator: Any, saved: tuple[Any, ...], index: int) -> Any:
        if iterator is None:
            return itertools.cycle.__new__(cls, saved[index:] + saved[:index])
        made = itertools.cycle.__new__(cls, itertools.chain(saved, iterator))
        for _ in saved:
            itertools.cycle.__next__(made)
        return made


# -- one item for one


@stands_for(itertools.chain)
class chain:
    """`iterables` is an iterator of iterables, `active` that of the one being read."""

    def __init__(self, /, *iterables: Iterable[Any]) -> None:
        self.iterables: Any = iter(iterables)
        self.active: Any = None

    @classmethod
    def from_iterable(self: Any, iterable: Iterable[Any], /) -> None:
        self.iterables = iter(iterable)
        self.active = None

    def __next__(self) -> Any:
        while self.iterables is not None:
            if self.active is None:
                try:
                    self.active = iter(next(self.iterables))
                except BaseException:
                    self.iterables = None
                    raise
            try:
                return next(self.active)
            except StopIteration:
                self.active = None
        raise StopIteration

    @staticmethod
    def rebuild(cls: Any, iterables: Any, active: Any) -> Any:
        if active is not None:
            iterables = itertools.chain((active,), iterables)
        return itertools.chain.__dict__["from_iterable"].__get__(None, cls)(() if iterables is None else iterables)


@stands_for(itertools.islice)
class islice:
    """`position` items have been taken, the next one to give is the one at `next`."""

    def __init__(self, iterable: Iterable[Any], start: Any, stop: Any = MISSING, step: Any = None, /) -> None:
        if stop is MISSING:
            start, stop = None, start
        self.next = 0 if start is None else _bound(start)
        self.stop = None if stop is None else _bound(stop)
        if self.stop == -1:
            raise ValueError(f"Stop argument for islice() {_MUST_BE_A_SIZE}")
        if self.next < 0 or (self.stop is not None and self.stop < 0):
            raise ValueError(f"Indices for islice() {_MUST_BE_A_SIZE}")
        self.step = 1 if step is None else _bound(step)
        if self.step < 1:
            raise ValueError("Step for islice() must be a positive integer or None.")
        self.iterator: Any = iter(iterable)
        self.position = 0

    def __next__(self) -> Any:
        iterator = self.iterator
        if iterator is None:
            raise StopIteration
        try:
            while self.position < self.next:
                next(iterator)
                self.position += 1
            if self.stop is not None and self.position >= self.stop:
                raise StopIteration
            item = next(iterator)
        except BaseException:
            self.iterator = None
            raise
        self.position += 1
        self.next += self.step
        if self.stop is not None and self.next > self.stop:
            self.next = self.stop
        return item

    @staticmethod
    def rebuild(cls: Any, iterator: Any, next: int, stop: int | None, step: int, position: int) -> Any:
        if iterator is None:
            return itertools.islice.__new__(cls, (), 0)
        end = None if stop is None else stop - position
        return itertools.islice.__new__(cls, iterator, next - position, end, step)


_MUST_BE_A_SIZE = "must be None or an integer: 0 <= x <= sys.maxsize."


def _bound(value: Any) -> int:
    """`PyNumber_AsSsize_t`, -1 for what raises an error."""
    try:
        number = host_index(value)
    except BaseException:
        return -1
    return number if -sys.maxsize - 1 <= number <= sys.maxsize else -1


@stands_for(itertools.accumulate)
class accumulate:
    """`total` is there if `started`, and has not been given if `pending`."""

    def __init__(self, iterable: Iterable[Any], func: Any = None, *, initial: Any = None) -> None:
        self.iterator = iter(iterable)
        self.function = func
        self.total = initial
        self.started = self.pending = initial is not None

    def __next__(self) -> Any:
        if self.pending:
            self.pending = False
            return self.total
        item = next(self.iterator)
        if not self.started:
            self.started = True
        elif self.function is None:
            item = self.total + item
        else:
            item = self.function(self.total, item)
        self.total = item
        return item

    @staticmethod
    def rebuild(cls: Any, iterator: Any, function: Any, total: Any, started: bool, pending: bool) -> Any:
        if started:
            iterator = itertools.chain((total,), iterator)
        made = itertools.accumulate.__new__(cls, iterator, function)
        if started and not pending:
            itertools.accumulate.__next__(made)
        return made


# -- select


class Predicate:
    """A function that is asked about items. `decided`: it has said no."""

    def __init__(self, predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> None:
        self.function = predicate
        self.iterator: Iterator[Any] = iter(iterable)
        self.decided = False


@stands_for(itertools.takewhile)
class takewhile(Predicate):
    def __next__(self) -> Any:
        if self.decided:
            raise StopIteration
        item = next(self.iterator)
        if self.function(item):
            return item
        self.decided = True
        raise StopIteration

    @staticmethod
    def rebuild(cls: Any, function: Any, iterator: Any, decided: bool) -> Any:
        return itertools.takewhile.__new__(cls, function, () if decided else iterator)


@stands_for(itertools.dropwhile)
class dropwhile(Predicate):
    def __next__(self) -> Any:
        while True:
            item = next(self.iterator)
            if self.decided:
                return item
            if not self.function(item):
                self.decided = True
                return item

    @staticmethod
    def rebuild(cls: Any, function: Any, iterator: Any, decided: bool) -> Any:
        return itertools.dropwhile.__new__(cls, (lambda item: False) if decided else function, iterator)


@stands_for(itertools.filterfalse)
class filterfalse(Predicate):
    arguments = ("function", "iterator")

    def __next__(self) -> Any:
        while True:
            item = next(self.iterator)
            if not (item if self.function is None else self.function(item)):
                return item


@stands_for(itertools.starmap)
class starmap(Predicate):
    arguments = ("function", "iterator")

    def __next__(self) -> Any:
        return self.function(*tuple(next(self.iterator)))


@stands_for(itertools.compress)
class compress:
    arguments = ("data", "selectors")

    def __init__(self, data: Iterable[Any], selectors: Iterable[Any]) -> None:
        self.data = iter(data)
        self.selectors = iter(selectors)

    def __next__(self) -> Any:
        while True:
            item = next(self.data)
            if next(self.selectors):
                return item


# -- several items for one


@stands_for(itertools.pairwise)
class pairwise:
    """`old` is there if `started`."""

    def __init__(self, iterable: Iterable[Any], /) -> None:
        self.iterator: Any = iter(iterable)
        self.started = False
        self.old: Any = None

    def __next__(self) -> Any:
        if self.iterator is None:
            raise StopIteration
        try:
            old = self.old
            if not self.started:
                old = self.old = next(self.iterator)
                self.started = True
            if self.iterator is None:  # it came back here
                raise StopIteration
            new = next(self.iterator)
        except BaseException:
            self.iterator = self.old = None
            self.started = False
            raise
        self.old, self.started = new, True
        return old, new

    @staticmethod
    def rebuild(cls: Any, iterator: Any, started: bool, old: Any) -> Any:
        if started:
            iterator = itertools.chain((old,), iterator)
        return itertools.pairwise.__new__(cls, () if iterator is None else iterator)


@stands_for(itertools.zip_longest)
class zip_longest:
    """An iterator that is exhausted is None; `active` are not."""

    def __init__(self, /, *iterables: Iterable[Any], fillvalue: Any = None) -> None:
        self.iterators: tuple[Any, ...] = tuple([iter(iterable) for iterable in iterables])
        self.active = len(iterables)
        self.fillvalue = fillvalue

    def __next__(self) -> Any:
        if not self.active:
            raise StopIteration
        items = []
        for i in range(len(self.iterators)):
            items.append(self.fillvalue if self.iterators[i] is None else self.item(i))
        return tuple(items)

    def item(self, i: int) -> Any:
        try:
            return next(self.iterators[i])
        except StopIteration:
            self.active -= 1
            if not self.active:
                raise
            self.iterators = (*self.iterators[:i], None, *self.iterators[i + 1 :])
        except BaseException:
            self.active = 0
            raise
        return self.fillvalue

    @staticmethod
    def rebuild(cls: Any, iterators: tuple[Any, ...], active: int, fillvalue: Any) -> Any:
        parts = [() if iterator is None or not active else iterator for iterator in iterators]
        return itertools.zip_longest.__new__(cls, *parts, fillvalue=fillvalue)


_batched: Any = getattr(itertools, "batched", None)  # 3.12


@stands_for(_batched)
class batched:
    def __init__(self, iterable: Iterable[Any], n: Any, *, strict: Any = False) -> None:
        self.n = host_ssize(n)
        if self.n < 1:
            raise ValueError("n must be at least one")
        self.strict = bool(strict)
        self.iterator: Any = iter(iterable)

    def __next__(self) -> Any:
        items: list[Any] = []
        while self.iterator is not None and len(items) < self.n:
            try:
                items.append(next(self.iterator))
            except StopIteration:
                break
            except BaseException:
                self.iterator = None
                raise
        if len(items) < self.n and (self.strict or not items):
            self.iterator = None
            if items:
                raise ValueError("batched(): incomplete batch")
            raise StopIteration
        return tuple(items)

    @staticmethod
    def rebuild(cls: Any, iterator: Any, n: int, strict: bool) -> Any:
        options = {"strict": True} if strict else {}
        return _batched.__new__(cls, () if iterator is None else iterator, n, **options)


# -- several iterators for one


@stands_for(itertools.groupby)
class groupby:
    """`key` and `item` were read last, if `has_key` and `has_item`; `target` is the key of the group, if `has_target`. Only the
    group `current` may go on reading."""

    arguments = ("iterator", "function")
    initial = "advanced"

    def __init__(self, iterable: Iterable[Any], key: Any = None) -> None:
        self.iterator = iter(iterable)
        self.function = key
        self.key = self.item = self.target = self.current = None
        self.has_key = self.has_item = self.has_target = self.advanced = False

    def step(self) -> None:
        """`groupby_step`"""
        self.advanced = True
        item = next(self.iterator)
        self.key = item if self.function is None else self.function(item)
        self.item = item
        self.has_key = self.has_item = True

    def __next__(self) -> Any:
        self.current = None
        while not self.has_key or (self.has_target and same_or_equal(self.target, self.key)):
            self.step()
        self.target, self.has_target = self.key, True
        return self.key, _GROUPER(self, self.key)


@stands_for(_GROUPER)
class _grouper:
    def __init__(self, parent: Any, tgtkey: Any, /) -> None:
        self.parent = state_of(parent)
        self.target = tgtkey
        self.parent.current = self

    def __next__(self) -> Any:
        parent = self.parent
        if parent.current is not self:
            raise StopIteration
        if not parent.has_item:
            parent.step()
        if not same_or_equal(self.target, parent.key):
            raise StopIteration
        parent.has_item = parent.has_key = False
        item, parent.item, parent.key = parent.item, None, None
        return item


@stands_for(_TEE_DATA)
class _tee_dataobject:
    """What the iterators of one `tee` share: the items read so far, and the iterator that gives more."""

    def __init__(self, iterator: Any, /) -> None:
        self.iterator = iterator
        self.items: tuple[Any, ...] = ()
        self.running = False

    def item(self, i: int) -> Any:
        """`teedataobject_getitem`"""
        if i == len(self.items):
            if self.running:
                raise RuntimeError("cannot re-enter the tee iterator")
            self.running = True
            try:
                self.items = (*self.items, next(self.iterator))
            finally:
                self.running = False
        return self.items[i]

    @staticmethod
    def rebuild(cls: Any, iterator: Any, items: tuple[Any, ...]) -> Any:
        """An iterator at the start, which can be copied."""
        return itertools.tee(itertools.chain(items, iterator), 1)[0]


@stands_for(_TEE)
class _tee:
    """One of the iterators of a `tee`: a position in what they share."""

    def __init__(self, iterable: Iterable[Any], /) -> None:
        iterator = iter(iterable)
        if type(iterator) is _TEE:
            other = state_of(iterator)
            self.shared, self.position = other.shared, other.position
        else:
            self.shared, self.position = _TEE_DATA(iterator), 0

    def __next__(self) -> Any:
        item = state_of(self.shared).item(self.position)
        self.position += 1
        return item

    def __copy__(self) -> Any:
        return _TEE(self)

    @staticmethod
    def rebuild(cls: Any, shared: Any, position: int) -> Any:
        made = shared.__copy__()
        for _ in range(position):
            next(made)
        return made


def _copies_tees() -> bool:
    """Whether `tee` of a tee iterator leaves that one out of the result."""
    first = itertools.tee(())[0]
    return itertools.tee(first)[0] is not first


_COPIES_TEES = _copies_tees()


@polyfill(itertools.tee, check_signature=False)
def tee(iterable: Iterable[Any], n: Any = 2, /) -> Any:
    """`itertools.tee(iterable, n=2)`"""
    n = host_ssize(n)
    if n < 0:
        leave_to_c()
    if not n:
        return ()
    first: Any = iter(iterable)
    if not hasattr(first, "__copy__"):
        first = _TEE(first)
    elif _COPIES_TEES:
        first = first.__copy__()
    return (first, *[first.__copy__() for _ in range(n - 1)])
