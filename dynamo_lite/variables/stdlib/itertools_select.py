"""The iterators of `itertools` that select and put together items of others: starmap, takewhile and the like, compress, pairwise,
zip_longest, batched.

Mirrors `Modules/itertoolsmodule.c`; see `itertools` beside it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from dynamo_lite.variables.builtin.iter import IteratorVariable, call_or_stop
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.builtin.zip import emit_instance, emit_with
from dynamo_lite.variables.protocol.abstract import get_iter, is_true, iter_next, unpack
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import FALSE, NONE
from dynamo_lite.variables.protocol.dispatch import constructor
from dynamo_lite.variables.protocol.native import host_index

from .itertools import plain_only

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class StarmapVariable(IteratorVariable):
    """`itertools.starmap(function, iterable)`."""

    cls = itertools.starmap
    parts = ("function", "iterator")

    def __init__(self, function: VariableTracker, iterator: VariableTracker) -> None:
        self.function = function
        self.iterator = iterator

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        args = iter_next(tx, self.iterator)
        return None if args is None else call_or_stop(tx, self.function, unpack(tx, args))

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        return self.python_type(), (self.function, self.iterator)

    def emit_new(self, cg: Codegen) -> None:
        emit_instance(cg, self, itertools.starmap, self.function, self.iterator)


@constructor(itertools.starmap)
def new_starmap(
    tx: Frame, cls: VariableTracker, function: VariableTracker, iterable: VariableTracker, /
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

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
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

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        return self.python_type(), (self.function, self.iterator), self.decided

    def restore(self, tx: Frame, state: VariableTracker) -> None:
        self.decided = is_true(tx, state)

    def emit_new(self, cg: Codegen) -> None:
        if not self.decided:
            emit_instance(cg, self, self.base, self.function, self.iterator)
        elif self.base is itertools.takewhile:
            emit_instance(cg, self, self.base, self.function, ())
        else:
            emit_instance(cg, self, self.base, _never, self.iterator)


def _never(item: object) -> bool:
    return False


def _new_while(cls: type) -> None:
    @constructor(cls)
    def new_while(
        tx: Frame, tracker: VariableTracker, predicate: VariableTracker, iterable: VariableTracker, /
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

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        while (item := iter_next(tx, self.data)) is not None:
            selector = iter_next(tx, self.selectors)
            if selector is None:
                return None
            if is_true(tx, selector):
                return item
        return None

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        return self.python_type(), (self.data, self.selectors)

    def emit_new(self, cg: Codegen) -> None:
        emit_instance(cg, self, itertools.compress, self.data, self.selectors)


@constructor(itertools.compress)
def new_compress(
    tx: Frame, cls: VariableTracker, data: VariableTracker, selectors: VariableTracker
) -> CompressVariable:
    return CompressVariable(get_iter(tx, data), get_iter(tx, selectors))


class PairwiseVariable(IteratorVariable):
    """`itertools.pairwise(iterable)`."""

    cls = itertools.pairwise
    parts = ("iterator", "old")

    def __init__(self, iterator: VariableTracker) -> None:
        self.iterator: VariableTracker | None = iterator
        self.old: VariableTracker | None = None

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
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

    def emit_new(self, cg: Codegen) -> None:
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
def new_pairwise(tx: Frame, cls: VariableTracker, iterable: VariableTracker, /) -> PairwiseVariable:
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

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
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

    def reduced(self, tx: Frame) -> tuple[Any, ...]:
        args = tuple([() if iterator is None else iterator for iterator in self.iterators])
        return self.python_type(), args, self.fillvalue

    def restore(self, tx: Frame, state: VariableTracker) -> None:
        self.fillvalue = state

    def emit_new(self, cg: Codegen) -> None:
        iterators = [() if iterator is None or not self.active else iterator for iterator in self.iterators]
        emit_instance(cg, self, itertools.zip_longest, *iterators, fillvalue=self.fillvalue)


@constructor(itertools.zip_longest)
def new_zip_longest(
    tx: Frame, cls: VariableTracker, /, *iterables: VariableTracker, fillvalue: VariableTracker = NONE
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

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
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

    def emit_new(self, cg: Codegen) -> None:
        strict = {"strict": True} if self.strict else {}
        emit_instance(cg, self, itertools.batched, () if self.iterator is None else self.iterator, self.n, **strict)


if hasattr(itertools, "batched"):

    @constructor(itertools.batched)
    def new_batched(
        tx: Frame,
        cls: VariableTracker,
        iterable: VariableTracker,
        n: VariableTracker,
        *,
        strict: VariableTracker = FALSE,
    ) -> VariableTracker:
        size = host_index(tx, n)
        if size < 1:
            return tx.raises(ValueError, "n must be at least one")
        return BatchedVariable(get_iter(tx, iterable), size, is_true(tx, strict))
