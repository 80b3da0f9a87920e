"""Sets and frozensets, and the set algebra of dict views.

Input: host keys, or a real set. Output: `SetVariable`, `FrozenSetVariable` and their method surface.
Invariant: `items` is a host set of host keys that goes through the same operations as the set of the traced program:
the host's algorithms decide which of two equal elements stays, and the order of constants is the order that CPython
would give. Numbers that may be others at the next call are `held` until somebody looks, since they decide about the order. A set from
outside that is only added to is not read, and may have any elements at the next call.
Mirrors `Objects/setobject.c`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import starmap, zip_longest
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import store_hashed
from dynamo_lite.exc import NotConstant, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa import c_facts
from dynamo_lite.variables.protocol.abstract import (
    COMPARE_OPS,
    class_name,
    contains,
    iterated,
    length,
    unpack,
)
from dynamo_lite.variables.protocol.base import (
    MISSING,
    Child,
    Children,
    Plain,
    VariableTracker,
    load_filled,
    sourced_objects,
)
from dynamo_lite.variables.protocol.constant import NONE, NOT_IMPLEMENTED, ConstantVariable, boolean
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, method
from dynamo_lite.variables.protocol.hashing import (
    Hash,
    UserKey,
    absent_from,
    check_address,
    guard_stored_hashes,
    is_constant_key,
    key_of,
    key_tracker,
    known_hash,
    known_key,
    refuse_collisions,
    runs_program,
    table_key,
)
from dynamo_lite.variables.protocol.native import (
    NativeVariable,
    changes_in_place,
    emit_all,
    emit_bare,
    emit_call,
    emit_list,
    host_table,
    object_state,
    part_text,
    raise_with,
    recursive_repr,
)
from dynamo_lite.variables.protocol.wrap import builds

from .dict import DictVariable
from .dictview import DictKeysVariable, SetLike
from .iter import IteratorVariable, advance, emit_position, items_to_come
from .list import ListVariable
from .tuple import TupleVariable, item_hash

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame


class SetVariable(NativeVariable):
    """A set, or the native part of an instance of a subclass. A host set of its type that it is made of becomes its own, since a copy may
    have another order. `added`: what one from outside gets whose elements are not read."""

    cls: type = set
    base: type = set
    items: Any = Plain((), lazy=True)
    added: Sequence[VariableTracker] = Children((), init=False)

    def __post_init__(self) -> None:
        if type(self.items) is not self.base:
            self.items = self.base(self.items)

    @classmethod
    def of(cls, tr: Trace, value: Any) -> Any:
        """The model of a new set that the analysis computed, or that is a constant of the code."""
        elements = tuple(value)
        if all(map(is_constant_key, elements)):
            return cls(same_order_copy(value, elements))
        return cls([key_of(None, tr.wrap_new(item)) for item in elements])

    # -- a real set

    def load_items(self) -> Any:
        """The host keys of a set from outside, or of one with held numbers."""
        if "held" in self.__dict__:
            items, numbers = self.__dict__.pop("held")
            items.update([key_of(None, number) for number in numbers])
            return items
        tr, source, base = self._tr, self.source, self.base
        real = self.value
        # As a tuple, since the order in which a set gives its elements shows.
        elements = elements_of(real)
        node = tr.source(source, ir.CALL, elements_of)
        if all(map(is_constant_key, elements)):
            tr.guard(node, ir.EQUALS, elements)
            items = same_order_copy(real, elements)
        else:
            tr.guard(node, ir.LEN, len(elements))
            keys = [
                key_of(tr.thread.frame, tr.wrap(element, tr.source(node, ir.INDEX, i)))
                for i, element in enumerate(elements)
            ]
            items = base(keys)
            if len(items) != len(keys):
                unsupported("unhashable-key", "a table with keys that have become equal")
            if any(map(operator.is_not, items, keys)):
                self.loaded = keys
            if type(real) is base:
                guard_stored_hashes(tr, real, source, keys)
        self.original = frozenset(items)
        if self.added:
            items.update([element_key(tr.thread.frame, vt) for vt in self.added])
            self.added = ()
        return items

    def in_order(self) -> Iterable[Any]:
        """The host keys as the set gives them. Keys that stand for objects known by identity hash otherwise than these do: as long as
        a set from outside has got nothing new, they come as the real elements did."""
        items = self.items
        left = [key for key in self.__dict__.get("loaded", ()) if key in items]
        return left if len(left) == len(items) else items

    def in_order_of_insertion(self) -> list[Any]:
        """The host keys in an order in which an empty set gets them to give them as this one does, if one of the usual orders is that."""
        keys = list(self.in_order())
        if not all(map(is_constant_key, keys)):
            return keys
        return next((order for order in (keys, keys[::-1]) if list(set(order)) == keys), keys)

    @property
    def is_unread(self) -> bool:
        """True for a set from outside that nobody has looked at or added to."""
        return "_tr" in self.__dict__ and "items" not in self.__dict__ and not self.added

    def has(self, tx: Frame, key: object) -> bool:
        """Whether a host key is in the set. A sourced set is not loaded for a key that is known."""
        known = known_key(key) if self.is_unread else MISSING
        if known is MISSING:
            return key in self.items
        found = self.base.__contains__(self.value, known)
        tx.tr.guard(self.source, ir.HAS_KEY if found else ir.LACKS_KEY, known)
        return found

    def children(self) -> Any:
        if "held" in self.__dict__:
            return [*map(key_tracker, self.held[0]), *self.held[1]]
        return [*map(key_tracker, [*self.__dict__.get("items", ()), *self.removed()]), *self.added]

    def let_go(self, tr: Trace) -> Any:
        return sourced_objects(map(key_tracker, self.removed()))

    def differs(self) -> bool:
        if self.added:
            return not all(
                isinstance(vt, ConstantVariable) and set.__contains__(self.value, vt.value) for vt in self.added
            )
        return "original" not in self.__dict__ or len(self.items) != len(self.original) or bool(self.removed())

    def removed(self) -> list[Any]:
        """Host keys that the real set has and the model has no more."""
        return absent_from(self.items, self.original) if "original" in self.__dict__ else []

    def objects(self) -> list[VariableTracker]:
        """The elements, in the set's order."""
        return list(map(key_tracker, self.in_order()))

    def host_copy(self) -> Any:
        """The host set of an all-constant one. Raises `NotConstant`."""
        return self.base([v.as_python_constant() for v in self.objects()])

    def add(self, tx: Frame, item: VariableTracker) -> None:
        """`set.add`, also for frozensets under construction."""
        if item.is_symbolic and type(self) is SetVariable and self.source is None and item.present() is not None:
            self.hold(item)
            return
        is_read = self.source is None or "items" in self.__dict__ or tx.tr.effects.watches
        if not is_read and self.base is set and _is_atom(item):
            tx.tr.effects.mutating(self)
            self.added = (*self.added, item)
            return
        key = element_key(tx, item)
        self.changing(tx)
        self.items.add(key)

    def merge(self, tx: Frame, other: VariableTracker) -> None:
        """`_PySet_Update` of a set under construction. An empty one takes over the table of another set, and so its order."""
        if isinstance(other, SetVariable):
            with host_table(tx):
                self.items.update(other.items)
            return
        for item in iterated(tx, other):
            self.add(tx, item)

    def hold(self, number: VariableTracker) -> None:
        """Add a number that varies to a new set."""
        if "held" not in self.__dict__:
            self.held = (self.__dict__.pop("items"), [])
        self.held[1].append(number)

    def describe(self) -> str:
        return self.source.path if self.source is not None else f"of {len(self.children())} elements"

    def order_shows(self, tr: Trace) -> None:
        """Note that the order of a set of texts or objects differs from process to process. That of one from outside is guarded."""
        if (self.source is None or self.mutated) and not all(type(key) is int for key in self.items):
            tr.heap.bind_to_process("the order of a set")

    # -- slots

    def mp_length(self, tx: Frame) -> VariableTracker:
        if self.is_unread:
            n = self.base.__len__(self.value)
            tx.tr.guard(self.source, ir.LEN, n)
            return ConstantVariable(n)
        return ConstantVariable(len(self.items))

    def tp_iter(self, tx: Frame) -> VariableTracker:
        self.order_shows(tx.tr)
        return SetIterator(self)

    def sq_contains(self, tx: Frame, item: VariableTracker) -> VariableTracker:
        key = lookup_key(tx, item)
        check_address(key, self)
        return boolean(self.has(tx, key))

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if not isinstance(other, SetVariable):
            return NOT_IMPLEMENTED
        with host_table(tx):
            return boolean(COMPARE_OPS[op](self.items, other.items))

    def tp_repr(self, tx: Frame) -> VariableTracker:
        cls = self.python_type()
        name = class_name(cls)
        self.order_shows(tx.tr)

        def text() -> str:
            if not self.items:
                return f"{name}()"
            items = ", ".join([part_text(tx, v) for v in self.objects()])
            return f"{{{items}}}" if cls is set else f"{name}({{{items}}})"

        return recursive_repr(tx, self, f"{name}(...)", text)

    # -- code generation

    def emit_new(self, cg: Codegen) -> None:
        if self.cls is set:
            cg.asm.build_set(0)
        else:
            emit_bare(cg, set, self.cls)

    def hashes_program_objects(self) -> bool:
        return any(map(runs_program, self.__dict__.get("items", ())))

    def emit_fill(self, cg: Codegen) -> None:
        if self.items:
            self.order_shows(cg.tr)
            emit_elements(cg, set.update, self, self.in_order_of_insertion())

    def emit_update(self, cg: Codegen) -> None:
        if self.is_unread:
            return  # a subclass's attributes were changed
        if self.added:
            emit_elements(cg, set.update, self, self.added)
            return
        items = self.items
        removed = list(self.removed())
        added = absent_from(self.original, items)
        if any(map(runs_program, self.removed())):
            # What the program computes for an element need not be what it was.
            emit_call(cg, set.clear, self)
            cg.asm.pop_top()
            added = self.in_order()
        elif removed:
            emit_elements(cg, set.difference_update, self, removed)
        if added:
            self.order_shows(cg.tr)
            emit_elements(cg, set.update, self, added)


def emit_elements(cg: Codegen, function: object, self: SetVariable, keys: Iterable[Any]) -> None:
    """Call a method of the real set with the objects of host keys."""
    cg.load_callable(function)
    cg.load(self)
    _emit_objects(cg, list(keys))
    cg.asm.call(2)
    cg.asm.pop_top()


def _emit_objects(cg: Codegen, keys: list[Any]) -> None:
    """Push a list of the objects of host keys; or a dict, whose hashes a set takes over, if they were computed by the program."""
    refuse_collisions(keys)
    elements = list(map(key_tracker, keys))
    if not any(map(runs_program, keys)):
        emit_list(cg, elements)
        return
    cg.tr.heap.bind_to_process("the hash of an object of the program")
    cg.load_callable(_with_hashes)
    cg.asm.build_list(emit_all(cg, elements))
    cg.load_const(tuple(map(known_hash, keys)))
    cg.asm.call(2)


def _with_hashes(objects: list[Any], hashes: tuple[int | None, ...]) -> dict[Any, None]:
    """The objects as keys of a dict; None: a hash that is still to be computed."""
    table: dict[Any, None] = {}
    for key, number in zip(objects, hashes, strict=True):
        if number is None:
            table[key] = None
        else:
            store_hashed(table, key, number, None)
    return table


def _is_atom(item: VariableTracker) -> bool:
    """Whether an element is a constant that is its own key, or a number that varies."""
    return item.is_symbolic or (isinstance(item, ConstantVariable) and is_constant_key(item.value))


def elements_of(real: Any) -> tuple[Any, ...]:
    """The elements of a real set, in its order."""
    return tuple(set.__iter__(real) if issubclass(type(real), set) else frozenset.__iter__(real))


def same_order_copy(real: object, elements: tuple[Any, ...]) -> Any:
    """A copy of a set of constants that gives its elements in the same order, if one of the usual ways leads to it."""
    base: Any = set if issubclass(type(real), set) else frozenset
    copies = (base.copy(real), base(elements), base(elements[::-1]))
    return next((copy for copy in copies if tuple(copy) == elements), copies[0])


class FrozenSetVariable(SetVariable):
    """A frozenset: a constant when all of its elements are."""

    cls = base = frozenset
    hash: ConstantVariable | None = None

    def is_python_constant(self) -> bool:
        return all(v.is_python_constant() for v in self.objects())

    def as_python_constant(self) -> Any:
        if not self.is_python_constant():
            raise NotConstant(self.describe())
        return self.host_copy()

    def tp_hash(self, tx: Frame) -> VariableTracker:
        """`frozenset_hash`: of the hashes in the table, and only once."""
        if self.hash is None:
            tx.tr.heap.bind_to_process("the hash of a set")
            self.hash = ConstantVariable(hash(frozenset([Hash(key_hash(tx, key)) for key in self.items])))
        return self.hash

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(frozenset.__new__)
        cg.load_const(self.cls)
        self.order_shows(cg.tr)
        _emit_objects(cg, self.in_order_of_insertion())
        cg.asm.call(2)

    emit_fill = None


def key_hash(tx: Frame, key: Any) -> int:
    """The hash of the object for which a host key stands."""
    if is_constant_key(key):
        return hash(key)
    return key.hash if type(key) is UserKey else item_hash(tx, key_tracker(key))


class SetIterator(IteratorVariable):
    """A `set_iterator`."""

    cls = type(iter(set()))
    seq: SetVariable | None = Child()  # None once exhausted
    consumed = 0

    def __post_init__(self) -> None:
        self.host = iter(self.seq.items)  # tells what has changed since
        self.order = list(self.seq.in_order())

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        try:
            next(self.host)
        except StopIteration:
            self.seq = None
            return None
        except RuntimeError as error:
            tx.raises_like(error)
        self.consumed += 1
        return key_tracker(self.order[self.consumed - 1])

    def emit_new(self, cg: Codegen) -> None:
        if self.seq is None:
            emit_position(cg, None, 0, set)
            return
        cg.load_callable(_set_iterator_at)
        load_filled(cg, self.seq)
        cg.asm.build_list(emit_all(cg, self.rest()))
        cg.load_const(self.consumed)
        cg.asm.call(3)

    def rest(self) -> list[VariableTracker]:
        """The elements still to come."""
        if len(self.seq.items) != len(self.order):
            unsupported("reconstruct", "an iterator over a set that has changed since")
        return list(map(key_tracker, self.order[self.consumed :]))


def _set_iterator_at(real: Any, rest: list[Any], consumed: int) -> Iterator[Any]:
    # A set that is built again may give its elements in another order; then the list has to do.
    iterator = advance(type(real).__iter__(real), consumed)
    return iterator if all(starmap(_is_one_element, zip_longest(items_to_come(iterator), rest))) else iter(rest)


def _is_one_element(a: object, b: object) -> bool:
    # What `==` says of other objects than constants is theirs to decide; of two tensors with the same data it says yes.
    return a is b or (is_constant_key(a) and is_constant_key(b) and type(a) is type(b) and a == b)


def lookup_key(tx: Frame, item: VariableTracker) -> Any:
    """The host key to search for: a set is searched for as a frozenset."""
    if isinstance(item, SetVariable) and item.python_type().__hash__ is None:
        return key_of(tx, FrozenSetVariable(item.items))
    return element_key(tx, item)


def element_key(tx: Frame, item: VariableTracker) -> Any:
    """The host key of what becomes an element of a set, or is compared with its elements."""
    return table_key(tx, item, c_facts.UNHASHABLE_ELEMENT)


def element_keys(tx: Frame, v: VariableTracker, key: Callable[[Frame, VariableTracker], Any] = element_key) -> Any:
    """The host keys of an iterable's items, as something that host set operations treat as they would the real object. Other iterables
    than sets and dicts are asked one item at a time, and only when the host algorithm asks: what that has done before an error stays
    done, and where it stops, nobody is asked any more. `key` makes the host keys (an intersection has some that are no elements)."""
    if isinstance(v, SetVariable):
        return v.items
    if isinstance(v, DictVariable) and not v.numbered and v.python_type().__iter__ is v.base.__iter__:
        return v.items
    if isinstance(v, DictKeysVariable) and not v.mapping.numbered:
        return v.mapping.items.keys()
    return _one_by_one(tx, v, key)


def _one_by_one(tx: Frame, v: VariableTracker, key: Callable[[Frame, VariableTracker], Any]) -> Iterator[Any]:
    for item in iterated(tx, v):
        yield key(tx, item)


def table_of(tx: Frame, base: type, iterable: VariableTracker | None) -> Any:
    """A new host set or frozenset of the host keys of an iterable's items."""
    with host_table(tx):
        return base() if iterable is None else base(element_keys(tx, iterable))


builds(set)(SetVariable.from_outside)
builds(frozenset)(FrozenSetVariable.from_outside)


@constructor(set)
def new_set(tx: Frame, cls: VariableTracker, iterable: VariableTracker | None = None, /) -> VariableTracker:
    return SetVariable(table_of(tx, set, iterable))


@constructor(frozenset)
def new_frozenset(tx: Frame, cls: VariableTracker, iterable: VariableTracker | None = None, /) -> VariableTracker:
    if iterable is not None and iterable.python_type() is frozenset:
        return iterable
    return FrozenSetVariable(table_of(tx, frozenset, iterable))


@builtin(frozenset.__new__)
def frozenset_new(tx: Frame, cls: VariableTracker, iterable: VariableTracker | None = None, /) -> VariableTracker:
    real = cls.value
    if real is frozenset:
        return new_frozenset(tx, cls, iterable)
    instance = tx.tr.new_instance(tx, real)
    instance.items = table_of(tx, frozenset, iterable)
    return instance


@method(set.__init__)
def set_init(tx: Frame, self: SetVariable, iterable: VariableTracker | None = None, /) -> VariableTracker:
    self.changing(tx)
    self.items.clear()
    with host_table(tx):
        self.items.update(() if iterable is None else element_keys(tx, iterable))
    return NONE


# -- methods that make a new set, change the set, or compare


def _result_of(self: SetVariable, items: Any) -> SetVariable:
    return (FrozenSetVariable if self.base is frozenset else SetVariable)(items)


_RAW_HASH = frozenset({"intersection", "intersection_update", "issubset"})
"""Methods that hash what the set need not have: an error is that of the hash."""


def _call_host(tx: Frame, self: SetVariable, host: Any, others: Iterable[VariableTracker]) -> Any:
    """A method of the host set, given the host keys of the other operands."""
    key = key_of if host.__name__ in _RAW_HASH else element_key
    with host_table(tx):
        return host(self.items, *[element_keys(tx, other, key) for other in others])


def _new_method(host: Any) -> None:
    @method(host)
    def operation(tx: Frame, self: SetVariable, /, *others: VariableTracker) -> VariableTracker:
        return _result_of(self, _call_host(tx, self, host, others))


def _changing_method(host: Any) -> None:
    @method(host)
    def operation(tx: Frame, self: SetVariable, /, *others: VariableTracker) -> VariableTracker:
        self.changing(tx)
        _call_host(tx, self, host, others)
        return NONE


def _predicate(host: Any) -> None:
    @method(host)
    def operation(tx: Frame, self: SetVariable, other: VariableTracker, /) -> VariableTracker:
        return boolean(_call_host(tx, self, host, [other]))


for _base in (set, frozenset):
    for _name in ("union", "intersection", "difference"):
        _new_method(getattr(_base, _name))
    for _name in ("isdisjoint", "issubset", "issuperset"):
        _predicate(getattr(_base, _name))
for _name in ("update", "intersection_update", "difference_update"):
    _changing_method(getattr(set, _name))


@method(set.symmetric_difference, frozenset.symmetric_difference)
def set_symmetric_difference(tx: Frame, self: SetVariable, other: VariableTracker, /) -> VariableTracker:
    return _result_of(self, _call_host(tx, self, self.base.symmetric_difference, [other]))


@method(set.symmetric_difference_update)
def set_symmetric_difference_update(tx: Frame, self: SetVariable, other: VariableTracker, /) -> VariableTracker:
    self.changing(tx)
    _call_host(tx, self, set.symmetric_difference_update, [other])
    return NONE


@method(set.copy, frozenset.copy)
def set_copy(tx: Frame, self: SetVariable, /) -> VariableTracker:
    return self if self.python_type() is frozenset else _result_of(self, self.items.copy())


@method(set.add)
def set_add(tx: Frame, self: SetVariable, object: VariableTracker, /) -> VariableTracker:
    self.add(tx, object)
    return NONE


@method(set.discard)
def set_discard(tx: Frame, self: SetVariable, object: VariableTracker, /) -> VariableTracker:
    key = lookup_key(tx, object)
    if self.has(tx, key):
        items = self.items
        self.changing(tx)
        items.discard(key)
    return NONE


@method(set.remove)
def set_remove(tx: Frame, self: SetVariable, object: VariableTracker, /) -> VariableTracker:
    key = lookup_key(tx, object)
    if not self.has(tx, key):
        return raise_with(tx, KeyError, object)
    items = self.items
    self.changing(tx)
    items.discard(key)
    return NONE


@method(set.pop)
def set_pop(tx: Frame, self: SetVariable, /) -> VariableTracker:
    if not self.items:
        return tx.raises(KeyError, "pop from an empty set")
    self.changing(tx)
    self.order_shows(tx.tr)
    first = next(iter(self.in_order())) if "loaded" in self.__dict__ else self.items.pop()
    self.items.discard(first)
    return key_tracker(first)


changes_in_place(set.clear)


@method(set.__contains__, frozenset.__contains__)
def set_contains(tx: Frame, self: SetVariable, object: VariableTracker, /) -> VariableTracker:
    return SetVariable.sq_contains(self, tx, object)


@method(set.__reduce__, frozenset.__reduce__)
def set_reduce(tx: Frame, self: SetVariable, /) -> VariableTracker:
    state = object_state(tx, self)
    return TupleVariable([tx.tr.type_of(tx, self), TupleVariable([ListVariable(unpack(tx, self))]), state])


# -- operators


def _operator(name: str) -> Any:
    def slot(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        if not isinstance(v, SetVariable) or not isinstance(w, SetVariable):
            return NOT_IMPLEMENTED
        with host_table(tx):
            return _result_of(v, getattr(v.items, name)(w.items))

    return staticmethod(slot)


def _inplace_operator(name: str) -> Any:
    def slot(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        if v.base is frozenset or not isinstance(w, SetVariable):
            return NOT_IMPLEMENTED
        keys, items = w.items, v.items
        v.changing(tx)
        with host_table(tx):
            getattr(items, name)(keys)
        return v

    return staticmethod(slot)


def _view_operator(name: str) -> Any:
    def slot(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        """`dictviews_sub` and its kin: one operand is a view, the other any iterable."""
        if name == "intersection":
            return _intersect_views(tx, v, w)
        with host_table(tx):
            return SetVariable(getattr(set(element_keys(tx, v)), name)(element_keys(tx, w)))

    return staticmethod(slot)


def _intersect_views(tx: Frame, v: VariableTracker, w: VariableTracker) -> SetVariable:
    """`_PyDictView_Intersect`: a set that is not shorter goes through the view, whose items it hashes. Of two views the longer is asked."""
    if not isinstance(v, SetLike):
        v, w = w, v
    n = length(tx, v).value
    if w.python_type() is set and n <= length(tx, w).value:
        with host_table(tx):
            return SetVariable([key for key in element_keys(tx, v, key_of) if key in w.items])
    if isinstance(w, SetLike) and length(tx, w).value > n:
        v, w = w, v
    return SetVariable([element_key(tx, item) for item in iterated(tx, w) if contains(tx, v, item).value])


for _suffix, _name, _update in (
    ("subtract", "difference", "difference_update"),
    ("and", "intersection", "intersection_update"),
    ("or", "union", "update"),
    ("xor", "symmetric_difference", "symmetric_difference_update"),
):
    setattr(SetVariable, f"nb_{_suffix}", _operator(_name))
    setattr(SetVariable, f"nb_inplace_{_suffix}", _inplace_operator(_update))
    setattr(SetLike, f"nb_{_suffix}", _view_operator(_name))
