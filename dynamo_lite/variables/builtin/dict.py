"""Dicts.

Input: host keys and trackers of the values, or a real dict. Output: `DictVariable` with the method surface of `dict`;
`MappingProxyVariable`.
Invariant: `items` maps host keys (`hashing.key_of`) to trackers in the dict's order, and is one host dict for the life
of the model, so that iterators over it notice changes as CPython's do. A sourced dict is read key by key until
something needs all of them: until then stores and deletions of constant keys, or the store of one number that varies, are kept in
`pending`, without a guard on the rest of the dict.
Mirrors `Objects/dictobject.c` and `Objects/descrobject.c` (mapping proxy).
"""

from __future__ import annotations

import collections
import gc
import operator
import sys
import types
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import ordered_keys, store_hashed
from dynamo_lite.dynamism.dynamic_shapes import are_others, varying_keys
from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa import c_facts
from dynamo_lite.variables.protocol.abstract import (
    binary_op,
    get_attr,
    get_item,
    get_iter,
    get_iter_or_say,
    iter_next,
    length,
    richcompare,
    type_name,
    unpack,
)
from dynamo_lite.variables.protocol.base import (
    MISSING,
    Child,
    ObservedException,
    Plain,
    VariableTracker,
    held_items,
    is_lazy,
    missing_from,
    real_object,
    sourced_objects,
    stands_for,
)
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, NONE, NOT_IMPLEMENTED, ConstantVariable, boolean
from dynamo_lite.variables.protocol.descr import getset
from dynamo_lite.variables.protocol.dispatch import constructor, method
from dynamo_lite.variables.protocol.hashing import (
    MAX_NUMBERS,
    NumberKey,
    UserKey,
    absent_from,
    check_address,
    guard_stored_hashes,
    is_constant_key,
    is_plain_class,
    key_of,
    key_tracker,
    known_key,
    number_key,
    objects_in,
    refuse_collisions,
    runs_program,
    same_key,
    table_key,
)
from dynamo_lite.variables.protocol.native import (
    NativeVariable,
    changes_in_place,
    checked_load,
    emit_bare,
    emit_call,
    host_table,
    host_value,
    object_str,
    optional_attr,
    part_text,
    raise_with,
    readonly,
    recursive_repr,
    repr_text,
    same_or_equal,
)
from dynamo_lite.variables.protocol.wrap import builds

from .dictview import VIEW_TYPES, DictItemsVariable, DictIterator, DictKeysVariable, DictValuesVariable
from .tuple import TupleVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


OrderedDict = collections.OrderedDict


class DictVariable(NativeVariable):
    """A dict or the native part of an instance of a subclass; `base` is the builtin type whose storage it has."""

    cls = base = dict
    host_type: type = dict
    items: dict[Any, VariableTracker] = Plain(None, lazy=True)
    numbered = False  # some key is a number that may be another one at the next call

    def __post_init__(self) -> None:
        if self.items is None:
            self.items = self.host_type()
        elif any(type(key) is NumberKey for key in self.items):
            self.numbered = True

    # -- a real dict, read as far as needed

    def load_from(self, tr: Trace, value: object, source: GuardNode | None) -> None:
        super().load_from(tr, value, source)
        self.read: dict[Any, VariableTracker | None] = {}
        self.plain_keys: bool | None = None
        self.pending: dict[Any, tuple[bool, VariableTracker | None]] = {}

    def load_items(self) -> dict[Any, VariableTracker]:
        """All items of a dict from outside."""
        tr, source = self._tr, self.source
        pairs, numbers, placed = self.real_items(tr)
        items = self.host_type()
        for i, (key, real) in enumerate(pairs):
            value = self.read.get(key) if is_constant_key(key) or is_plain_class(key) else None
            node = None if value is not None else (source, ir.DICT_ITEM, key)
            if i in numbers:
                self.numbered = True
                key, node = NumberKey(numbers[i]), (source, ir.DICT_VALUE, i)
            elif not is_constant_key(key):
                key = key_of(tr.thread.frame, tr.wrap(key, tr.source(source, ir.DICT_KEY, i)))
                # Found by its place: nobody but the program may look up what runs it.
                if i in placed or runs_program(key):
                    node = (source, ir.DICT_VALUE, i)
            items[key] = tr.wrap(real, tr.source(*node)) if value is None else value
        if len(items) != len(pairs):
            unsupported("unhashable-key", "a table with keys that have become equal")
        if self.base is dict:
            guard_stored_hashes(tr, self.value, source, items)
        self.original = dict(items)
        for key, (deleted, value) in self.pending.items():
            if type(key) is NumberKey:
                key = number_key(tr.thread.frame, key.vt, items)
            elif numbers:
                key = number_key(tr.thread.frame, ConstantVariable(key), items)
            if deleted or value is None:
                items.pop(key, None)
            if value is not None:
                items[key] = value
        return items

    def real_items(self, tr: Trace) -> tuple[list[tuple[Any, Any]], dict[int, VariableTracker], Collection[int]]:
        """The real keys and values, in order, the numbers among the keys that vary, by position, and the positions of objects that may be
        others at the next call: these are guarded by what is found of each. The other keys are guarded."""
        if self.value is sys.modules:
            unsupported("import", "all of sys.modules, to which the analysis may add")
        checked_load(dict.__len__(self.value))
        pairs = self.pairs_in_order(self.value)
        keys = tuple([key for key, _ in pairs])
        numbers = self._varying_keys(tr, keys)
        objects = {i: found for i, key in enumerate(keys) if not is_constant_key(key) and (found := objects_in(key))}
        placed: Collection[int] = ()
        if objects and are_others(tr, self.source, [each for found in objects.values() for each in found]):
            placed = objects.keys()
        if not numbers and not placed:
            tr.guard(self.source, ir.DICT_KEYS, keys)
            return pairs, numbers, placed
        tr.guard(self.source, ir.LEN, len(keys))
        for i, key in enumerate(keys):
            if i not in numbers and i not in placed:
                tr.guard(tr.source(self.source, ir.DICT_KEY, i), ir.EQUALS, key)
        return pairs, numbers, placed

    def _varying_keys(self, tr: Trace, keys: tuple[Any, ...]) -> dict[int, VariableTracker]:
        numbers = {}
        for i in varying_keys(tr, self.source, keys) if len(keys) <= MAX_NUMBERS else ():
            if keys[i] not in self.read and keys[i] not in self.pending:
                number = tr.graph.outside.int_if_dynamic(keys[i], tr.source(self.source, ir.DICT_KEY, i))
                if number is not None:
                    numbers[i] = number
        return numbers

    @staticmethod
    def pairs_in_order(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
        """The keys and values as the dict iterates over them."""
        return list(dict.items(value))

    def _has_plain_keys(self) -> bool:
        """Whether what is known can be looked up in the real dict without running code of the program."""
        if self.plain_keys is None:
            others = set(map(type, dict.keys(self.value))) - ATOMIC_TYPES
            self.plain_keys = not any(issubclass(type(cls.__eq__), types.FunctionType) for cls in others)
        return self.plain_keys

    def _read(self, key: Any) -> VariableTracker | None:
        """The real dict's value for a key that is known (`known_key`), guarded; None if it has none."""
        if key in self.read:
            return self.read[key]
        tr, source = self._tr, self.source
        real = dict.get(self.value, key, MISSING)
        if real is MISSING:
            tr.guard(source, ir.LACKS_KEY, key)
            found = None
        else:
            node = tr.source(source, ir.DICT_ITEM, key)
            tr.expect(node)
            found = tr.wrap(real, node)
        self.read[key] = found
        return found

    # -- access by host key

    def key(self, tx: Frame, v: VariableTracker) -> Any:
        """The host key of an object in this table."""
        is_number = v.is_symbolic or self.numbered
        key = number_key(tx, v, self.items) if is_number else table_key(tx, v, c_facts.UNHASHABLE_KEY)
        check_address(key, self)
        return key

    def key_as_here(self, tx: Frame, key: object) -> Any:
        """The host key that stands here for the object that this one stands for in another table."""
        return self.key(tx, key_tracker(key)) if self.numbered or type(key) is NumberKey else key

    def find(self, key: object) -> VariableTracker | None:
        """The value for a host key, or None."""
        if "items" not in self.__dict__:
            entry = self.pending.get(key) if is_constant_key(key) else None
            if entry is not None:
                return entry[1]
            known = known_key(key)
            if known is not MISSING and self._has_plain_keys():
                return self._read(known)
        return self.items.get(key)

    def store(self, tx: Frame, key: Any, value: VariableTracker) -> None:
        """`d[key] = value` for a host key."""
        if type(key) is NumberKey:
            self.numbered = True
        if self.source is not None:
            tx.tr.effects.mutating(self)
            if "items" not in self.__dict__ and is_constant_key(key):
                deleted, previous = self.pending.get(key, (False, value))
                if previous is None:
                    del self.pending[key]  # a new key: it goes to the end
                self.pending[key] = (deleted, value)
                return
        self.items[key] = value

    def _store_unread(self, tx: Frame, key: VariableTracker, value: VariableTracker) -> bool:
        """Store a value for a number that varies in a dict that is as it was at the call and that no key was asked of; False for any other
        one. What the next use asks of the dict reads all of it. That no finalizer runs for what the value replaces is guarded."""
        if "items" in self.__dict__ or self.source is None or self.pending or tx.tr.effects.watches:
            return False
        source = tx.tr.graph.symbols.source_of(key.proxy) if key.python_type() is int else None
        if source is None or not (self._has_plain_keys() and _replaces_plain(self.value, key.present())):
            return False
        text = f"{self.source.path} has nothing that dies with an effect at {source.path}"
        tx.tr.guards.predicate(_replaces_plain, [self.source, source], text)
        tx.tr.effects.mutating(self)
        self.numbered = True
        self.pending[NumberKey(key)] = (False, value)
        return True

    def discard(self, tx: Frame, key: Any) -> VariableTracker | None:
        """Remove a host key; its value, None if it was not there."""
        if self.source is None:
            return self.items.pop(key, None)
        found = self.find(key)
        if found is None:
            return None
        self.changing(tx)
        if "items" in self.__dict__:
            del self.items[key]
        else:
            # A later store puts the key at the end of the dict, so the deletion has to come first in the replay.
            self.pending.pop(key, None)
            self.pending[key] = (True, None)
        return found

    def lookup(self, tx: Frame, key: VariableTracker) -> VariableTracker | None:
        """The value for a key, or None. Of a dict from outside that one key is guarded: in a table of classes (`copyreg.dispatch_table`) a
        guard on all keys would depend on every class that a library registers."""
        return self.find(self.key(tx, key))

    def stored(self, key: str) -> VariableTracker | None:
        """What the run has stored or looked at under a key, without a guard; None if that is nothing."""
        items = self.__dict__.get("items")
        found = self.pending.get(key, (False, None))[1] if items is None else dict.get(items, key)
        return None if found is None or is_lazy(found) else found

    def pairs(self, tx: Frame = None) -> list[tuple[VariableTracker, VariableTracker]]:
        """Keys and values."""
        return [(key_tracker(key), value) for key, value in self.items.items()]

    def children(self) -> Any:
        items = self.__dict__.get("items")
        if items is None:
            return [
                *map(key_tracker, self.pending),
                *(value for _, value in self.pending.values() if value is not None),
            ]
        return [*map(key_tracker, dict.keys(items)), *map(key_tracker, self.deleted_keys()), *dict.values(items)]

    def let_go(self, tr: Trace) -> Any:
        items = self.__dict__.get("items")
        if items is None:
            values = [value for _, value in self.pending.values() if value is not None]
            held = held_items(tr, self.source, self.value, filter(is_constant_key, self.pending))
        else:
            values = [*map(key_tracker, items), *items.values()]
            held = sourced_objects([*map(key_tracker, self.original), *self.original.values()])
        return missing_from(values, held)

    def differs(self) -> bool:
        items = self.__dict__.get("items")
        if items is not None:
            return [*map(id, items)] != [*map(id, self.original)] or any(
                vt is not (old := self.original[key]) and not stands_for(vt, real_object(old))
                for key, vt in items.items()
            )
        return any(
            deleted or not stands_for(vt, dict.get(self.value, key, MISSING))
            for key, (deleted, vt) in self.pending.items()
        )

    def carries_over(self) -> bool:
        """Whether what was found here matters for what is left here: not if all that has changed was set without a look at it."""
        if "items" in self.__dict__:
            return True
        return any(
            deleted or (key in self.read and not stands_for(vt, dict.get(self.value, key, MISSING)))
            for key, (deleted, vt) in self.pending.items()
        )

    def item_at(self, kind: int, arg: object) -> Any:
        items = self.__dict__.get("items")
        if kind != ir.DICT_ITEM:
            return None
        return self.pending.get(arg, (False, None))[1] if items is None else items.get(arg)

    def deleted_keys(self) -> list[Any]:
        """Host keys that the real dict has and the model has no more."""
        return absent_from(self.items, self.original) if self.mutated else []

    def host_copy(self) -> dict[Any, Any]:
        """The host dict of an all-constant one. Raises `NotConstant`."""
        return {k.as_python_constant(): v.as_python_constant() for k, v in self.pairs()}

    def describe(self) -> str:
        return self.source.path if self.source is not None else f"of {len(self.items)} items"

    # -- slots

    def used(self, tx: Frame) -> VariableTracker:
        """`ma_used`: the length, whatever a subclass says."""
        if "items" not in self.__dict__ and not self.pending:
            n = dict.__len__(self.value)
            tx.tr.guard(self.source, ir.LEN, n)
            return ConstantVariable(n)
        return ConstantVariable(len(self.items))

    mp_length = used

    def is_empty(self, tx: Frame) -> bool:
        """Whether nothing is in it."""
        if "items" not in self.__dict__ and self.pending:
            return False
        if "items" not in self.__dict__ and type(self.value) is dict and self.value:
            tx.tr.guard(self.source, ir.TRUTH, True)
            return False
        return self.used(tx).value == 0

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        found = self.find(self.key(tx, key))
        if found is not None:
            return found
        if self.cls is not dict:
            missing = tx.tr.lookup_special(tx, self, "__missing__")
            if missing is not None:
                return tx.call(missing, [key])
        return raise_with(tx, KeyError, key)

    def mp_ass_subscript(self, tx: Frame, key: VariableTracker, value: VariableTracker | None) -> None:
        if value is not None and key.is_symbolic and self._store_unread(tx, key, value):
            return
        host_key = self.key(tx, key)
        if value is not None:
            self.store(tx, host_key, value)
        elif self.discard(tx, host_key) is None:
            raise_with(tx, KeyError, key)

    def sq_contains(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        return boolean(self.find(self.key(tx, key)) is not None)

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return DictIterator(self, "keys")

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if op not in ("==", "!=") or not issubclass(other.python_type(), dict):
            return NOT_IMPLEMENTED
        return boolean(self.equals(tx, other) is (op == "=="))

    def equals(self, tx: Frame, other: Any) -> bool:
        """`dict_equal`."""
        if len(self.items) != len(other.items):
            return False
        for key, value in list(dict.items(self.items)):  # without a lookup of each, which OrderedDict.items makes
            found = other.find(other.key_as_here(tx, key))
            if found is None or not same_or_equal(tx, value, found):
                return False
        return True

    @staticmethod
    def nb_or(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        if not issubclass(v.python_type(), dict) or not issubclass(w.python_type(), dict):
            return NOT_IMPLEMENTED
        result = v.or_copy(tx)
        result.merge(tx, w)
        return result

    def or_copy(self, tx: Frame) -> DictVariable:
        """The new dict that `self | other` starts from."""
        return DictVariable(dict(self.items))

    @staticmethod
    def nb_inplace_or(tx: Frame, v: Any, w: VariableTracker) -> VariableTracker:
        update_from(tx, v, w)
        return v

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return recursive_repr(tx, self, "{...}", lambda: f"{{{self.repr_items(tx)}}}")

    def repr_items(self, tx: Frame) -> str:
        """`key: value` texts with commas between."""
        return ", ".join([f"{part_text(tx, k)}: {part_text(tx, v)}" for k, v in self.pairs()])

    # -- merging

    def merge(self, tx: Frame, other: VariableTracker, unique_for: VariableTracker | None = None) -> None:
        """`dict_merge` with a mapping; `unique_for`: the function whose keyword arguments are collected."""
        direct = isinstance(other, DictVariable) and other.python_type().__iter__ is other.base.__iter__
        loaded = "items" in self.__dict__
        at_once = direct and loaded and unique_for is None and not (self.numbered or other.numbered)
        if at_once and type(self.items) is dict and type(other.items) is dict:
            self.changing(tx)
            with host_table(tx):
                self.items.update(other.items)
            return
        if direct:
            pairs: Any = [(self.key_as_here(tx, key), other.items[key]) for key in list(other.items)]
        else:
            pairs = self._foreign_pairs(tx, other, unique_for)
        for key, value in pairs:
            if unique_for is not None and self.find(key) is not None:
                name = key_tracker(key).as_python_constant()
                tx.raises(
                    TypeError, f"{function_text(tx, unique_for)} got multiple values for keyword argument '{name}'"
                )
            self.store(tx, key, value)

    def _foreign_pairs(
        self, tx: Frame, other: VariableTracker, unique_for: Any
    ) -> Iterator[tuple[Any, VariableTracker]]:
        keys = optional_attr(tx, other, "keys")
        if keys is None:
            if unique_for is None:
                tx.raises(TypeError, f"'{type_name(other)}' object is not a mapping")
            what = f"{function_text(tx, unique_for)} argument after ** must be a mapping"
            tx.raises(TypeError, f"{what}, not {type_name(other)}")
        for key in _keys_of(tx, other, tx.call(keys, [])):
            yield self.key(tx, key), get_item(tx, other, key)

    # -- code generation

    def emit_new(self, cg: Codegen) -> None:
        if self.cls is dict:
            cg.asm.build_map(0)
        else:
            emit_bare(cg, dict, self.cls)

    def hashes_program_objects(self) -> bool:
        return any(map(runs_program, self.__dict__.get("items", ())))

    def emit_fill(self, cg: Codegen) -> None:
        self.emit_stores(cg, self.items.items())

    def emit_stores(self, cg: Codegen, pairs: Any) -> None:
        """Store (host key, value) pairs past any `__setitem__` of a subclass."""
        refuse_collisions(self.__dict__.get("items", ()))
        for key, value in pairs:
            if type(key) is UserKey and self.base is dict:
                emit_call(cg, store_hashed, self, key.vt, ConstantVariable(key.hash), value)
                cg.asm.pop_top()
            elif self.cls is dict:
                cg.load(value)
                cg.load(self)
                cg.load(key_tracker(key))
                cg.asm.store_subscr()
            else:
                emit_call(cg, self.base.__setitem__, self, key_tracker(key), value)
                cg.asm.pop_top()

    def emit_deletions(self, cg: Codegen, keys: Any) -> None:
        """Delete host keys."""
        for key in keys:
            emit_call(cg, self.base.__delitem__, self, key_tracker(key))
            cg.asm.pop_top()

    def emit_update(self, cg: Codegen) -> None:
        if "items" not in self.__dict__:
            self.emit_pending(cg)
            return
        original, final = self.original, self.items
        gone = self.deleted_keys()
        is_gone = set(map(id, gone))
        kept = [key for key in original if id(key) not in is_gone]
        cleared = bool(gone) and not final  # at once: finalizers of the values see an empty dict
        in_order = all(same_key(a, b) for a, b in zip(kept, final, strict=False))
        if in_order and not cleared and not any(map(runs_program, gone)):
            self.emit_deletions(cg, gone)
            before = {id(key): value for key, value in original.items()}  # a lookup might run methods of keys
            self.emit_stores(cg, [(k, v) for k, v in final.items() if before.get(id(k)) is not v])
        else:
            emit_call(cg, take_all if self.base is dict else self.base.clear, self)
            cg.asm.pop_top()
            self.emit_stores(cg, final.items())

    def emit_pending(self, cg: Codegen) -> None:
        """Replay the changes of single keys."""
        for key, (deleted, value) in self.pending.items():
            if deleted:  # the real dict need not have had it: the traced code may have stored it before
                emit_call(cg, self.base.pop, self, key_tracker(key), NONE)
                cg.asm.pop_top()
            if value is not None:
                self.emit_stores(cg, [(key, value)])


def take_all(real: dict[Any, Any]) -> None:
    """`dict.clear`, which must not happen while a key is looked up that is to be stored: an `__eq__` of the program may run then, and
    before 3.14 the dict would get a table for keys that are strings. No item dies before all are out."""
    taken = []
    while dict.__len__(real):
        taken.append(dict.popitem(real))


def _replaces_plain(real: dict[Any, Any], key: int) -> bool:
    """Whether a dict has a value without a finalizer for this key, or none."""
    return type(dict.get(real, key)) in ATOMIC_TYPES


def ordered_items(real: Any) -> list[tuple[Any, Any]]:
    """The items of a real OrderedDict, in its order; no key is asked whether it equals another. Raises KeyError if its table has lost a key
    past the order."""
    values = {id(key): value for key, value in dict.items(real)}
    return [(key, values[id(key)]) for key in ordered_keys(real)]


def function_text(tx: Frame, function: VariableTracker) -> str:
    """`_PyObject_FunctionStr`."""
    qualname = optional_attr(tx, function, "__qualname__")
    if qualname is None:
        return repr_text(tx, function)
    module = optional_attr(tx, function, "__module__")
    name = host_value(qualname)
    if module is None or module.value is None or module.value == "builtins":
        return f"{name}()"
    return f"{host_value(module)}.{name}()"


builds(dict)(DictVariable.from_outside)


# -- making


@constructor(dict)
def new_dict(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    result = DictVariable()
    dict_update_common(tx, result, "dict", args, kwargs)
    return result


@method(dict.__init__)
def dict_init(tx: Frame, self: DictVariable, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    dict_update_common(tx, self, "dict", args, kwargs)
    return NONE


@method(dict.update)
def dict_update(tx: Frame, self: DictVariable, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    dict_update_common(tx, self, "update", args, kwargs)
    return NONE


def dict_update_common(tx: Frame, self: DictVariable, name: str, args: Any, kwargs: dict[str, VariableTracker]) -> None:
    """`dict_update_common`: at most one mapping or iterable of pairs, then keywords."""
    if len(args) > 1:
        tx.raises(TypeError, f"{name} expected at most 1 argument, got {len(args)}")
    if args:
        update_from(tx, self, args[0])
    for key, value in kwargs.items():
        self.store(tx, key, value)


def update_from(tx: Frame, self: DictVariable, other: VariableTracker) -> None:
    """`dict_update_arg`."""
    if other.python_type() is dict or optional_attr(tx, other, "keys") is not None:
        self.merge(tx, other)
    else:
        merge_pairs(tx, self, other)


def _keys_of(tx: Frame, mapping: VariableTracker, keys: VariableTracker) -> list[VariableTracker]:
    """`method_output_as_list`, for `PyMapping_Keys`."""
    returned = lambda: f"{type_name(mapping)}.keys() returned a non-iterable (type {type_name(keys)})"  # noqa: E731
    return unpack(tx, get_iter_or_say(tx, keys, returned))


def merge_pairs(tx: Frame, self: DictVariable, iterable: VariableTracker) -> None:
    """`PyDict_MergeFromSeq2`."""
    iterator = get_iter(tx, iterable)
    i = 0
    while (pair := iter_next(tx, iterator)) is not None:
        parts = _unpack_pair(tx, pair, i)
        if len(parts) != 2:
            tx.raises(ValueError, f"dictionary update sequence element #{i} has length {len(parts)}; 2 is required")
        self.store(tx, self.key(tx, parts[0]), parts[1])
        i += 1


def _unpack_pair(tx: Frame, pair: VariableTracker, number: int) -> list[VariableTracker]:
    """`PySequence_Fast` of an item of a sequence of pairs, with what a TypeError of it becomes."""
    if pair.python_type() in (list, tuple):
        return unpack(tx, pair)
    message = c_facts.NO_PAIR.format(number=number)
    with _type_error_becomes(tx, message, number):
        iterator = get_iter(tx, pair)
    with _type_error_becomes(tx, None if c_facts.NO_PAIR_NOTE else message, number):
        return unpack(tx, iterator)


@contextmanager
def _type_error_becomes(tx: Frame, message: str | None, number: int) -> Iterator[None]:
    """Raise a new TypeError with this message in place of one from the block; None: the same one. It gets CPython's note."""
    try:
        yield
        return
    except ObservedException as observed:
        exc = observed.exc
        if not issubclass(exc.python_type(), TypeError):
            raise
    if message is not None:
        exc = tx.call(tx.tr.type_tracker(TypeError), [ConstantVariable(message)])
        exc.chain(tx)
    if c_facts.NO_PAIR_NOTE:
        tx.call(get_attr(tx, exc, "add_note"), [ConstantVariable(c_facts.NO_PAIR_NOTE.format(number=number))])
    raise ObservedException(exc)


def _entries(table: Any) -> Iterator[Any]:
    """The host keys of a dict or set for a C function that goes through the table: their hashes are not asked for again."""
    iterator = iter(table)
    while True:
        try:
            yield next(iterator)
        except StopIteration:
            return
        except RuntimeError:
            if not table:
                return
            unsupported("iterator-state", "a table that comparing its keys has changed")


@method(dict.__dict__["fromkeys"])
def dict_fromkeys(
    tx: Frame, cls: VariableTracker, iterable: VariableTracker, value: VariableTracker = NONE, /
) -> VariableTracker:
    result = tx.call(cls, [])
    direct = result.python_type() is dict
    hashed = isinstance(iterable, NativeVariable) and iterable.python_type() in (dict, set, frozenset)
    if direct and hashed and not result.items:
        for key in _entries(iterable.items):
            result.store(tx, key, value)
        return result
    iterator = get_iter(tx, iterable)
    while (key := iter_next(tx, iterator)) is not None:
        if direct:
            result.store(tx, result.key(tx, key), value)
        else:
            result.mp_ass_subscript(tx, key, value)
    return result


# -- methods


@method(dict.get)
def dict_get(
    tx: Frame, self: DictVariable, key: VariableTracker, default: VariableTracker = NONE, /
) -> VariableTracker:
    found = self.find(self.key(tx, key))
    return default if found is None else found


@method(dict.setdefault, OrderedDict.setdefault)
def dict_setdefault(
    tx: Frame, self: DictVariable, key: VariableTracker, default: VariableTracker = NONE, /
) -> VariableTracker:
    host_key = self.key(tx, key)
    if self.source is None and type(host_key) is not NumberKey:
        return self.items.setdefault(host_key, default)  # compares keys once, as the program may count
    found = self.find(host_key)
    if found is None:
        self.store(tx, host_key, default)
        return default
    return found


@method(dict.pop)
def dict_pop(
    tx: Frame, self: DictVariable, key: VariableTracker, default: VariableTracker | None = None, /
) -> VariableTracker:
    # No hash is asked for where a dict is empty: that can be told where hashing has effects.
    hashes = key.is_python_constant() or not self.is_empty(tx)
    found = self.discard(tx, self.key(tx, key)) if hashes else None
    if found is not None:
        return found
    return default if default is not None else raise_with(tx, KeyError, key)


@method(dict.popitem)
def dict_popitem(tx: Frame, self: DictVariable, /) -> VariableTracker:
    if not self.items:
        return tx.raises(KeyError, "popitem(): dictionary is empty")
    self.changing(tx)
    key, value = self.items.popitem()
    return TupleVariable([key_tracker(key), value])


changes_in_place(dict.clear, OrderedDict.clear)


@method(dict.copy)
def dict_copy(tx: Frame, self: DictVariable, /) -> VariableTracker:
    return DictVariable(dict(self.items))


@method(dict.keys, OrderedDict.keys)
def dict_keys(tx: Frame, self: DictVariable, /) -> VariableTracker:
    return DictKeysVariable(self)


@method(dict.values, OrderedDict.values)
def dict_values(tx: Frame, self: DictVariable, /) -> VariableTracker:
    return DictValuesVariable(self)


@method(dict.items, OrderedDict.items)
def dict_items(tx: Frame, self: DictVariable, /) -> VariableTracker:
    return DictItemsVariable(self)


@method(dict.__getitem__)
def dict_getitem(tx: Frame, self: DictVariable, key: VariableTracker, /) -> VariableTracker:
    return DictVariable.mp_subscript(self, tx, key)


@method(dict.__contains__)
def dict_contains(tx: Frame, self: DictVariable, key: VariableTracker, /) -> VariableTracker:
    return DictVariable.sq_contains(self, tx, key)


@method(dict.__reversed__, OrderedDict.__reversed__)
def dict_reversed(tx: Frame, self: DictVariable, /) -> VariableTracker:
    return DictIterator(self, "keys", backwards=True)


# -- mapping proxies

DICT_KEYS, DICT_VALUES, DICT_ITEMS = [VIEW_TYPES[False, kind] for kind in ("keys", "values", "items")]


class MappingProxyVariable(NativeVariable):
    """`types.MappingProxyType(mapping)`, also the `mapping` attribute of dict views."""

    cls = types.MappingProxyType

    mapping: VariableTracker = Child()
    rebuild = types.MappingProxyType

    def mp_length(self, tx: Frame) -> VariableTracker:
        return length(tx, self.mapping)

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        return get_item(tx, self.mapping, key)

    def sq_contains(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        return self.mapping.sq_contains(tx, key)

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return get_iter(tx, self.mapping)

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        return richcompare(tx, self.mapping, other, op)

    @staticmethod
    def nb_or(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        v, w = [x.mapping if isinstance(x, MappingProxyVariable) else x for x in (v, w)]
        return binary_op(tx, operator.or_, v, w)

    @staticmethod
    def nb_inplace_or(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        return tx.raises(TypeError, "'|=' is not supported by mappingproxy; use '|' instead")

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(f"mappingproxy({repr_text(tx, self.mapping)})")

    def tp_str(self, tx: Frame) -> VariableTracker:
        return object_str(tx, self.mapping)

    if types.MappingProxyType.__hash__ is not None:  # from 3.12 on

        def tp_hash(self, tx: Frame) -> VariableTracker:
            return tx.call(tx.tr.wrap_callable(hash), [self.mapping])


def mapping_behind(proxy: object) -> Any:
    """The mapping of a mapping proxy."""
    return gc.get_referents(proxy)[0]


@builds(types.MappingProxyType)
def build_mapping_proxy(tr: Trace, value: object, source: GuardNode | None) -> MappingProxyVariable:
    tr.guard(source, ir.TYPE_IS, types.MappingProxyType)
    return MappingProxyVariable(tr.wrap(mapping_behind(value), tr.source(source, ir.CALL, mapping_behind)), source)


@constructor(types.MappingProxyType)
def new_mapping_proxy(tx: Frame, cls: VariableTracker, mapping: VariableTracker) -> VariableTracker:
    if mapping.mp_subscript is None or issubclass(mapping.python_type(), (list, tuple)):
        return tx.raises(TypeError, f"mappingproxy() argument must be a mapping, not {type_name(mapping)}")
    return MappingProxyVariable(mapping)


@getset(DICT_KEYS.__dict__["mapping"], readonly(DICT_KEYS.__dict__["mapping"]))
@getset(DICT_VALUES.__dict__["mapping"], readonly(DICT_VALUES.__dict__["mapping"]))
@getset(DICT_ITEMS.__dict__["mapping"], readonly(DICT_ITEMS.__dict__["mapping"]))
def view_mapping(tx: Frame, self: DictKeysVariable, /) -> VariableTracker:
    return MappingProxyVariable(self.mapping)


def _forward(name: str) -> None:
    @method(getattr(types.MappingProxyType, name))
    def forward(tx: Frame, self: MappingProxyVariable, /, *args: VariableTracker) -> VariableTracker:
        return tx.call(get_attr(tx, self.mapping, name), list(args))


for _name in ("get", "keys", "values", "items", "copy", "__reversed__"):
    _forward(_name)
