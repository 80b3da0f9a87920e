"""Lists.

Input: trackers of the items, or a real list. Output: `ListVariable`, its slots and the whole method surface of
`list`.
Invariant: the model is the list: every alias holds this tracker. A list from outside is replayed by one slice
assignment; one that is only appended to by one `extend`, and may have any length at the next call.
Mirrors `Objects/listobject.c`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_lite.guards import ir
from dynamo_lite.isa import c_facts
from dynamo_lite.variables.protocol.abstract import (
    get_iter,
    get_iter_or_say,
    hint_length,
    is_true,
    iter_next,
    richcompare,
    size_index,
    type_name,
    unpack,
)
from dynamo_lite.variables.protocol.base import MISSING, Children, Plain, VariableTracker, missing_from
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import constructor, method
from dynamo_lite.variables.protocol.native import (
    changes_in_place,
    emit_bare,
    emit_list,
    host_index,
    host_int,
    host_ssize,
    recursive_repr,
    repr_text,
    same_or_equal,
)
from dynamo_lite.variables.protocol.wrap import builds

from .iter import ReversedVariable
from .sequence import SequenceVariable, host_items

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame


class ListVariable(SequenceVariable):
    """A list or the native part of an instance of a subclass. `appended`: behind the items of a list from outside, which are not read."""

    base = list
    cls: type = Plain(list)
    appended: Sequence[VariableTracker] = Children((), init=False)

    def load_items(self) -> list[VariableTracker]:
        items = [*super().load_items(), *self.appended]
        self.appended = ()
        return items

    def append(self, items: Sequence[VariableTracker]) -> None:
        """Add items at the end; the change has been announced."""
        if "items" in self.__dict__:
            self.items.extend(items)
        else:
            self.appended = (*self.appended, *items)

    @classmethod
    def make(cls, items: list[VariableTracker]) -> ListVariable:
        return ListVariable(items)

    def describe(self) -> str:
        return self.source.path if self.source is not None else f"of {len(self.items)} items"

    def item_at(self, kind: int, arg: Any) -> Any:
        items = self.__dict__.get("items", ())
        if kind != ir.INDEX or not 0 <= arg < len(items):
            return None
        is_new = self.value is MISSING
        return items[arg] if is_new or len(items) == list.__len__(self.value) else None

    def let_go(self, tr: Trace) -> Any:
        if "items" not in self.__dict__:
            return ()
        held = enumerate(list.__iter__(self.value))
        return [(tr.source(self.source, ir.INDEX, i), real) for i, real in missing_from(self.items, held)]

    # -- slots

    def mp_length(self, tx: Frame) -> VariableTracker:
        n = super().mp_length(tx)
        return ConstantVariable(n.value + len(self.appended)) if self.appended else n

    def mp_ass_subscript(self, tx: Frame, key: VariableTracker, value: VariableTracker | None) -> None:
        if issubclass(key.python_type(), slice):
            self.assign_slice(tx, key, value)
            return
        if key.nb_index is None:
            tx.raises(TypeError, f"list indices must be integers or slices, not {type_name(key)}")
        i = host_int(size_index(tx, key, IndexError))
        if not -len(self.items) <= i < len(self.items):
            tx.raises(IndexError, "list assignment index out of range")
        self.changing(tx)
        if value is None:
            del self.items[i]
        else:
            self.items[i] = value

    def sq_ass_item(self, tx: Frame, index: VariableTracker, value: VariableTracker | None) -> None:
        self.mp_ass_subscript(tx, index, value)

    def assign_slice(self, tx: Frame, key: VariableTracker, value: VariableTracker | None) -> None:
        """`self[a:b:c] = value`, `del self[a:b:c]`."""
        new: list[VariableTracker] = []
        s = key.host_slice(tx)
        if value is not None:
            plain = s.step in (None, 1)
            message = c_facts.NO_ITEMS_OF_SLICE if plain else c_facts.NO_ITEMS_OF_EXTENDED_SLICE
            new = unpack(tx, get_iter_or_say(tx, value, lambda: message))
        self.changing(tx)
        try:
            if value is None:
                del self.items[s]
            else:
                self.items[s] = new
        except ValueError as error:
            tx.raises_like(error)

    def sq_inplace_concat(self, tx: Frame, other: VariableTracker) -> VariableTracker:
        list_extend(tx, self, other)
        return self

    def sq_inplace_repeat(self, tx: Frame, count: VariableTracker) -> VariableTracker:
        items = self.repeated(tx, count)
        self.changing(tx)
        self.items[:] = items
        return self

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return recursive_repr(tx, self, "[...]", lambda: f"[{self.repr_items(tx)}]")

    # -- code generation

    def emit_new(self, cg: Codegen) -> None:
        if self.cls is list:
            cg.asm.build_list(0)
        else:
            emit_bare(cg, list, self.cls)

    def items_to_fill(self) -> Sequence[VariableTracker]:
        """What a new list gets once it is made."""
        return self.items

    def emit_fill(self, cg: Codegen) -> None:
        items = self.items_to_fill()
        if items:
            cg.load(self)
            emit_list(cg, items)
            cg.asm.list_extend(1)
            cg.asm.pop_top()

    def emit_update(self, cg: Codegen) -> None:
        replaced = "items" in self.__dict__
        if not replaced and not self.appended:
            return  # a subclass's attributes were changed
        cg.load_callable(_replace_items if replaced else list.extend)
        cg.load(self)
        emit_list(cg, self.items if replaced else self.appended)
        cg.asm.call(2)
        cg.asm.pop_top()


def _replace_items(real: list[Any], items: list[Any]) -> None:
    if not items and not list.__len__(real):
        list.append(real, None)  # `list.sort`, which empties the list that it sorts, has to see the change
    list.__setitem__(real, slice(None), items)


builds(list)(ListVariable.from_outside)


@constructor(list)
def new_list(tx: Frame, cls: VariableTracker, iterable: VariableTracker | None = None, /) -> ListVariable:
    return ListVariable([] if iterable is None else iterate(tx, iterable))


@method(list.__init__)
def list_init(
    tx: Frame, self: ListVariable, iterable: VariableTracker | None = None, /, **kwargs: VariableTracker
) -> VariableTracker:
    if kwargs and self.python_type().__new__ is list.__new__:
        return tx.raises(TypeError, "list() takes no keyword arguments")
    items = [] if iterable is None else iterate(tx, iterable)
    self.changing(tx)
    self.items[:] = items
    return NONE


def iterate(tx: Frame, iterable: VariableTracker, unpack: Callable[..., Any] = unpack) -> list[VariableTracker]:
    """A new list of the items of any iterable."""
    items = host_items(iterable)
    return unpack(tx, iterable) if items is None else list(items)


# -- methods


@method(list.append)
def list_append(tx: Frame, self: ListVariable, object: VariableTracker, /) -> VariableTracker:
    self.changing(tx)
    self.append([object])
    return NONE


@method(list.extend)
def list_extend(tx: Frame, self: ListVariable, iterable: VariableTracker, /) -> VariableTracker:
    items = host_items(iterable)
    if items is not None:
        items = list(items)
        self.changing(tx)
        self.append(items)
        return NONE
    iterator = get_iter(tx, iterable)
    hint_length(tx, iterable)
    self.changing(tx)
    # Item by item: what the iterator yields may look at the list.
    while (item := iter_next(tx, iterator)) is not None:
        self.append([item])
    return NONE


@method(list.insert)
def list_insert(tx: Frame, self: ListVariable, index: VariableTracker, object: VariableTracker, /) -> VariableTracker:
    i = host_ssize(tx, index)
    self.changing(tx)
    self.items.insert(i, object)
    return NONE


@method(list.pop)
def list_pop(tx: Frame, self: ListVariable, index: VariableTracker | None = None, /) -> VariableTracker:
    i = -1 if index is None else host_ssize(tx, index)
    if not self.items:
        return tx.raises(IndexError, "pop from empty list")
    if not -len(self.items) <= i < len(self.items):
        return tx.raises(IndexError, "pop index out of range")
    self.changing(tx)
    return self.items.pop(i)


@method(list.remove)
def list_remove(tx: Frame, self: ListVariable, value: VariableTracker, /) -> VariableTracker:
    i = self.index_of(tx, value, None, None)
    if i is None:
        return tx.raises(ValueError, "list.remove(x): x not in list")
    self.changing(tx)
    del self.items[i : i + 1]
    return NONE


@method(list.clear)
def list_clear(tx: Frame, self: ListVariable, /) -> VariableTracker:
    self.changing(tx)
    loaded = self.__dict__.get("items")
    if loaded is None:
        self.items, self.appended = [], ()
    else:
        loaded.clear()
    return NONE


@method(list.copy)
def list_copy(tx: Frame, self: ListVariable, /) -> VariableTracker:
    return ListVariable(list(self.items))


def _not_in_list(tx: Frame, value: VariableTracker) -> str:
    text = c_facts.NOT_IN_LIST
    return text.format(item=repr_text(tx, value)) if "{item}" in text else text


@method(list.index)
def list_index(
    tx: Frame,
    self: ListVariable,
    value: VariableTracker,
    start: VariableTracker | None = None,
    stop: VariableTracker | None = None,
    /,
) -> VariableTracker:
    i = self.index_of(tx, value, start, stop)
    if i is None:
        return tx.raises(ValueError, _not_in_list(tx, value))
    return ConstantVariable(i)


@method(list.count, tuple.count)
def sequence_count(tx: Frame, self: SequenceVariable, value: VariableTracker, /) -> VariableTracker:
    return ConstantVariable(sum(same_or_equal(tx, item, value) for item in self.items))


changes_in_place(list.reverse)


@method(list.__reversed__)
def list_reversed(tx: Frame, self: ListVariable, /) -> VariableTracker:
    return ReversedVariable(self, len(self.items) - 1, type(reversed([])))


@method(list.__getitem__)
def list_getitem(tx: Frame, self: ListVariable, index: VariableTracker, /) -> VariableTracker:
    return SequenceVariable.mp_subscript(self, tx, index)


# -- sorting


def _wants_int() -> bool:
    try:
        [].sort(reverse="")  # type: ignore[call-overload]
    except TypeError:
        return True
    return False


INT_FLAG = _wants_int()
"""`reverse` must be an int; later versions take the truth of any object."""


class Emptied(list):
    """The items of a list while it is sorted. `resized`: has it ever held something (`allocated` in `list_sort_impl`)?"""

    resized = False


def _resizing(name: str) -> Any:
    original = getattr(list, name)

    def change(self: Emptied, *args: Any) -> Any:
        try:
            return original(self, *args)
        finally:
            self.resized = self.resized or bool(self)

    return change


for _name in ("append", "extend", "insert", "__iadd__", "__setitem__"):
    setattr(Emptied, _name, _resizing(_name))


@method(list.sort)
def list_sort(
    tx: Frame, self: ListVariable, *, key: VariableTracker | None = None, reverse: VariableTracker | None = None
) -> VariableTracker:
    order = Sorting(tx, self.items, key, reverse)
    self.changing(tx)
    self.items = emptied = Emptied()
    try:
        order.sort()
        modified = emptied.resized
    finally:
        self.items = order.result()
    if modified:
        return tx.raises(ValueError, "list modified during sort")
    return NONE


def sorted_items(
    tx: Frame, items: list[VariableTracker], key: VariableTracker | None, reverse: VariableTracker | None
) -> list[VariableTracker]:
    """A new list in the order in which `list.sort` puts the items."""
    order = Sorting(tx, items, key, reverse)
    order.sort()
    return order.result()


class Sorting:
    """One sort, with the calls of the key function and the comparisons that CPython makes."""

    def __init__(self, tx: Frame, items: list[VariableTracker], key: Any, reverse: VariableTracker | None) -> None:
        self.tx = tx
        self.items = items
        self.key = key
        self.backwards = reverse is not None and bool(host_index(tx, reverse) if INT_FLAG else is_true(tx, reverse))
        self.order = list(range(len(items)))

    def sort(self) -> None:
        """Put `order` in order; it is left as far as it came if a comparison raises."""
        keys = self.items if is_none(self.key) else [self.tx.call(self.key, [item]) for item in self.items]
        comparable = sort_key(self.tx, keys)
        self.order.sort(key=lambda i: comparable(keys[i]), reverse=self.backwards)

    def result(self) -> list[VariableTracker]:
        """The items as they are sorted by now."""
        return [self.items[i] for i in self.order]


def sort_key(tx: Frame, keys: Iterable[VariableTracker]) -> Callable[[VariableTracker], Any]:
    """The function that makes trackers comparable by the host's sort: their values if these are all numbers or all strings."""
    kinds = {type(k.value) if isinstance(k, ConstantVariable) else None for k in keys}
    if kinds <= {int, float, bool} or kinds == {str}:
        return lambda vt: vt.value
    return functools.partial(_Ordered, tx)


class _Ordered:
    """A tracker whose `<` asks the model."""

    __slots__ = ("tx", "vt")

    def __init__(self, tx: Frame, vt: VariableTracker) -> None:
        self.tx, self.vt = tx, vt

    def __lt__(self, other: _Ordered) -> bool:
        return is_true(self.tx, richcompare(self.tx, self.vt, other.vt, "<"))
