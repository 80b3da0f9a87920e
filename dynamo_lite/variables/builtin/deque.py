"""`collections.deque`.

Input: trackers of the items, or a real deque. Output: `DequeVariable`.
Invariant: `items` is one host deque for the life of the model, so that `maxlen` and changes during iteration work as
in CPython. The host deque's own comparisons are never used. A deque from outside that is only added to is not read, and may have any
length at the next call.
Mirrors `Modules/_collectionsmodule.c`.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import deque_has_changed
from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import class_name, get_iter, iter_next, type_name
from dynamo_lite.variables.protocol.base import (
    Child,
    Children,
    Plain,
    VariableTracker,
    load_filled,
    missing_from,
    sourced_objects,
)
from dynamo_lite.variables.protocol.constant import (
    ATOMIC_TYPES,
    NONE,
    NOT_IMPLEMENTED,
    ConstantVariable,
    boolean,
    is_none,
)
from dynamo_lite.variables.protocol.descr import getset
from dynamo_lite.variables.protocol.dispatch import constructor, method
from dynamo_lite.variables.protocol.native import (
    NativeVariable,
    changes_in_place,
    checked_size,
    emit_bare,
    emit_call,
    emit_list,
    host_index,
    host_int,
    host_ssize,
    part_text,
    readonly,
    recursive_repr,
    same_or_equal,
)
from dynamo_lite.variables.protocol.wrap import builds

from .iter import IteratorVariable
from .sequence import compare_items

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

deque = collections.deque


class DequeVariable(NativeVariable):
    """A deque. `added`: what one from outside gets whose items are not read; `adders`: the methods by which it does."""

    cls = base = deque
    items: Any = Children((), lazy=True)
    maxlen: int | None = Plain(None)
    added: Sequence[VariableTracker] = Children((), init=False)
    adders: Sequence[str] = Plain((), init=False)
    original: tuple[VariableTracker, ...] = ()
    probe: Any = None  # an iterator over the items from outside, made when they were loaded

    def __post_init__(self) -> None:
        self.items = deque(self.items, self.maxlen)

    def load_from(self, tr: Trace, value: Any, source: GuardNode | None) -> None:
        tr.guard(tr.source(source, ir.ATTR, "maxlen"), ir.EQUALS, value.maxlen)
        super().load_from(tr, value, source)

    def load_items(self) -> Any:
        """The items of a deque from outside."""
        tr, source = self._tr, self.source
        real = list(deque.__iter__(self.value))
        tr.guard(source, ir.LEN, len(real))
        node = tr.source(source, ir.CALL, items_of)
        items = [tr.wrap(item, tr.source(node, ir.INDEX, i)) for i, item in enumerate(real)]
        result = deque(items, self.value.maxlen)
        self.original, self.probe = tuple(items), iter(result)
        for name, item in zip(self.adders, self.added, strict=True):
            getattr(result, name)(item)
        self.added = self.adders = ()
        return result

    def add(self, tx: Frame, name: str, item: VariableTracker) -> None:
        """`append` or `appendleft`; the change has been announced."""
        if "items" in self.__dict__ or not self._lets_plain_items_go(tx, name):
            getattr(self.items, name)(item)
        else:
            self.added, self.adders = (*self.added, item), (*self.adders, name)

    def _lets_plain_items_go(self, tx: Frame, name: str) -> bool:
        """Whether what falls out of the real deque when one more is added on this side has no finalizer, which is guarded."""
        if self.value.maxlen is None:
            return True
        drops = _drops_plain(1 + self.adders.count(name), name == "append")
        if any(adder != name for adder in self.adders) or not drops(self.value):
            return False
        tx.tr.guards.predicate(drops, [self.source], f"{self.source.path} drops numbers and texts")
        return True

    def let_go(self, tr: Trace) -> Any:
        return missing_from(self.items, sourced_objects(self.original)) if "items" in self.__dict__ else ()

    # -- slots

    def mp_length(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(len(self.items))

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return DequeIterator(self)

    def sq_contains(self, tx: Frame, item: VariableTracker) -> VariableTracker:
        return boolean(any(self.compare_each(tx, item)))

    def compare_each(
        self, tx: Frame, value: VariableTracker, first: int = 0, last: int | None = None
    ) -> Iterator[bool]:
        """Whether each of the items equals `value`, one after the other. A comparison that changes the deque is an error when the
        next result is asked for.
        """
        for item in list(self.items)[first:last]:
            token = iter(self.items)
            yield same_or_equal(tx, item, value)
            if deque_has_changed(token):
                tx.raises(RuntimeError, "deque mutated during iteration")

    def sq_item(self, tx: Frame, index: VariableTracker) -> VariableTracker:
        try:
            return self.items[host_int(index)]
        except IndexError:
            return tx.raises(IndexError, "deque index out of range")

    def sq_ass_item(self, tx: Frame, index: VariableTracker, value: VariableTracker | None) -> None:
        i = host_int(index)
        if not -len(self.items) <= i < len(self.items):
            tx.raises(IndexError, "deque index out of range")
        self.changing(tx)
        if value is None:
            del self.items[i]
        else:
            self.items[i] = value

    def sq_concat(self, tx: Frame, other: VariableTracker) -> VariableTracker:
        if not issubclass(other.python_type(), deque):
            return tx.raises(TypeError, f'can only concatenate deque (not "{type_name(other)}") to deque')
        result = deque_copy(tx, self)
        deque_extend(tx, result, other)
        return result

    def sq_inplace_concat(self, tx: Frame, other: VariableTracker) -> VariableTracker:
        deque_extend(tx, self, other)
        return self

    def sq_repeat(self, tx: Frame, count: VariableTracker) -> VariableTracker:
        return DequeVariable.sq_inplace_repeat(deque_copy(tx, self), tx, count)

    def sq_inplace_repeat(self, tx: Frame, count: VariableTracker) -> VariableTracker:
        items = self._repeated(tx, count)
        self.changing(tx)
        self.items.clear()
        self.items.extend(items)
        return self

    def _repeated(self, tx: Frame, count: VariableTracker) -> list[VariableTracker]:
        n = max(host_index(tx, count), 0)
        checked_size(n * len(self.items))
        return list(self.items) * n

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if not issubclass(other.python_type(), deque):
            return NOT_IMPLEMENTED
        return compare_items(tx, list(self.items), list(other.items), op)

    def tp_repr(self, tx: Frame) -> VariableTracker:
        def text() -> str:
            items = ", ".join([part_text(tx, item) for item in self.items])
            bound = f", maxlen={self.items.maxlen}" if self.items.maxlen is not None else ""
            return f"{class_name(self.python_type())}([{items}]{bound})"

        return recursive_repr(tx, self, "[...]", text)

    # -- code generation

    def emit_new(self, cg: Codegen) -> None:
        if self.cls is not deque:
            emit_bare(cg, deque, self.cls)
            return
        cg.load_callable(deque)
        cg.load_const(())
        cg.load_const(self.items.maxlen)
        cg.asm.call(2)

    def emit_fill(self, cg: Codegen) -> None:
        if self.cls is not deque and self.items.maxlen is not None:
            self._emit_init(cg)
        self._emit_extend(cg)

    def _emit_init(self, cg: Codegen) -> None:
        emit_call(cg, deque.__init__, self, ConstantVariable(()), ConstantVariable(self.items.maxlen))
        cg.asm.pop_top()

    def _emit_extend(self, cg: Codegen) -> None:
        cg.load_callable(deque.extend)
        cg.load(self)
        emit_list(cg, list(self.items))
        cg.asm.call(2)
        cg.asm.pop_top()

    def emit_update(self, cg: Codegen) -> None:
        if "items" not in self.__dict__:  # else a subclass's attributes were changed
            for name, item in zip(self.adders, self.added, strict=True):
                emit_call(cg, getattr(deque, name), self, item)
                cg.asm.pop_top()
            return
        if self._only_items_changed():
            # Iterators over the real deque live on.
            for i, (old, new) in enumerate(zip(self.original, self.items, strict=True)):
                if new is not old:
                    emit_call(cg, deque.__setitem__, self, ConstantVariable(i), new)
                    cg.asm.pop_top()
            return
        if self.items.maxlen == self.value.maxlen:
            emit_call(cg, deque.clear, self)
            cg.asm.pop_top()
        else:
            self._emit_init(cg)
        self._emit_extend(cg)

    def _only_items_changed(self) -> bool:
        """Whether an iterator made when the items were loaded would still go on."""
        return self.probe is not None and not deque_has_changed(self.probe)


@functools.cache
def _drops_plain(count: int, from_left: bool) -> Callable[[Any], bool]:
    """A function that tells whether the first or last items of a deque, so many, are of types without finalizers."""

    def drops_plain(real: Any) -> bool:
        items = deque.__iter__(real) if from_left else deque.__reversed__(real)
        return all(type(item) in ATOMIC_TYPES for item in itertools.islice(items, count))

    return drops_plain


def items_of(real: Any) -> tuple[Any, ...]:
    """The items of a real deque."""
    return tuple(deque.__iter__(real))


class DequeIterator(IteratorVariable):
    """An iterator over a deque, forwards or backwards."""

    seq: DequeVariable = Child()
    backwards: bool = Plain(False)
    consumed = 0

    def __post_init__(self) -> None:
        self.host = reversed(self.seq.items) if self.backwards else iter(self.seq.items)
        self.cls = type(self.host)

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        try:
            item = next(self.host)
        except StopIteration:
            return None
        except RuntimeError as error:
            tx.raises_like(error)
        self.consumed += 1
        return item

    def emit_new(self, cg: Codegen) -> None:
        if deque_has_changed(self.host):
            remaining = ConstantVariable(operator.length_hint(self.host))
            emit_call(cg, stale_iterator, ConstantVariable(self.cls), self.seq, remaining)
            return
        # The type takes the deque and a position.
        cg.load_callable(self.cls)
        load_filled(cg, self.seq)
        cg.load_const(self.consumed)
        cg.asm.call(2)


def stale_iterator(cls: type[Iterator[Any]], seq: Any, remaining: int) -> Iterator[Any]:
    """An iterator over a deque that has changed since: it can only raise, whatever it goes over, and keeps the deque alive."""
    other = deque([seq] * remaining)
    iterator = cls(other)  # type: ignore[call-arg]
    other.append(seq)
    return iterator


def _new_iterator(cls: type, backwards: bool) -> None:
    @constructor(cls)
    def new_iterator(
        tx: Frame, tracker: VariableTracker, seq: VariableTracker, index: VariableTracker | None = None, /
    ) -> VariableTracker:
        if not isinstance(seq, DequeVariable):
            return unsupported("call-c-function", f"{cls.__name__} of a {type_name(seq)}")
        iterator = DequeIterator(seq, backwards)
        for _ in range(0 if index is None else host_ssize(tx, index)):
            if iterator.tp_iternext(tx) is None:
                break
        return iterator


_new_iterator(type(iter(deque())), False)
_new_iterator(type(reversed(deque())), True)


builds(deque)(DequeVariable.from_outside)


@constructor(deque)
def new_deque(tx: Frame, cls: VariableTracker, iterable: object = None, maxlen: object = None) -> VariableTracker:
    result = DequeVariable()
    deque_init(tx, result, iterable, maxlen)
    return result


@method(deque.__init__)
def deque_init(tx: Frame, self: DequeVariable, iterable: Any = None, maxlen: Any = None) -> VariableTracker:
    bound = None
    if not is_none(maxlen):
        if not issubclass(maxlen.python_type(), int):
            return tx.raises(TypeError, "an integer is required")
        bound = host_ssize(tx, maxlen)
        if bound < 0:
            return tx.raises(ValueError, "maxlen must be non-negative")
    self.changing(tx)
    self.items.clear()  # for the iterators over it
    self.items, self.added, self.adders = deque((), bound), (), ()
    self.probe = None
    return NONE if iterable is None else deque_extend(tx, self, iterable)


@getset(deque.__dict__["maxlen"], readonly(deque.__dict__["maxlen"]))
def deque_maxlen(tx: Frame, self: DequeVariable, /) -> VariableTracker:
    return ConstantVariable(self.items.maxlen)


# -- methods


def _adder(name: str) -> Callable[..., VariableTracker]:
    def add(tx: Frame, self: DequeVariable, item: VariableTracker) -> VariableTracker:
        self.changing(tx)
        self.add(tx, name, item)
        return NONE

    return method(getattr(deque, name))(add)


_adder("append")
_adder("appendleft")


def _remover(name: str) -> Callable[..., VariableTracker]:
    def remove(tx: Frame, self: DequeVariable) -> VariableTracker:
        if not self.items:
            return tx.raises(IndexError, "pop from an empty deque")
        self.changing(tx)
        return getattr(self.items, name)()

    return method(getattr(deque, name))(remove)


_remover("pop")
_remover("popleft")


@method(deque.extend)
def deque_extend(tx: Frame, self: DequeVariable, iterable: VariableTracker, /) -> VariableTracker:
    return _extend(tx, self, iterable, "append")


@method(deque.extendleft)
def deque_extendleft(tx: Frame, self: DequeVariable, iterable: VariableTracker, /) -> VariableTracker:
    return _extend(tx, self, iterable, "appendleft")


def _extend(tx: Frame, self: DequeVariable, iterable: VariableTracker, name: str) -> VariableTracker:
    self.changing(tx)
    if iterable is self:
        for item in list(self.items):
            getattr(self.items, name)(item)
        return NONE
    iterator = get_iter(tx, iterable)
    while (item := iter_next(tx, iterator)) is not None:
        self.add(tx, name, item)
    return NONE


changes_in_place(deque.clear, deque.reverse)


@method(deque.copy, deque.__copy__)
def deque_copy(tx: Frame, self: DequeVariable, /) -> VariableTracker:
    if self.python_type() is deque:
        return DequeVariable(self.items, self.items.maxlen)
    bound = [] if self.items.maxlen is None else [ConstantVariable(self.items.maxlen)]
    result = tx.call(tx.tr.type_of(tx, self), [self, *bound])
    if not issubclass(result.python_type(), deque):
        tx.raises(TypeError, f"{type_name(self)}() must return a deque, not {type_name(result)}")
    return result


@method(deque.rotate)
def deque_rotate(tx: Frame, self: DequeVariable, n: VariableTracker | None = None, /) -> VariableTracker:
    steps = 1 if n is None else host_ssize(tx, n)
    self.changing(tx)
    self.items.rotate(steps)
    return NONE


@method(deque.__reversed__)
def deque_reversed(tx: Frame, self: DequeVariable, /) -> VariableTracker:
    return DequeIterator(self, backwards=True)
