"""Keys of dicts and elements of sets: which host object stands for a tracker in a host hash table.

Input: a tracker. Output: a host key (`key_of`) and the way back (`key_tracker`).
Invariant: two host keys are equal, and hash alike, exactly if the objects are equal as dict keys in the traced
program. Constants are their own keys, so that 1, True and 1.0 meet as in CPython; objects that compare by identity
are stood for by their tracker, and guarded to be different ones. An int that may be another one at the next call has
a key in dicts only (`number_key`).
Mirrors `lookdict` of `Objects/dictobject.c` and `PyObject_Hash`.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import is_stored_under
from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.guards.ir import PYTHON
from dynamo_lite.isa import c_facts
from dynamo_lite.isa.typeobject import lookup

from .abstract import is_true, richcompare, said, type_name
from .base import MISSING, LazyVariable, ObservedException, VariableTracker
from .constant import ATOMIC_TYPES, ConstantVariable, atom_base
from .native import host_value, same_or_equal

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class Key:
    """A key that is equal to others by its parts: `host` is a host object (a tuple of keys, a frozenset …)."""

    __slots__ = ("hash", "host", "vt")

    def __init__(self, vt: VariableTracker, host: Any) -> None:
        self.vt = vt
        self.host = host
        self.hash = hash(host)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if type(other) is UserKey:
            return NotImplemented  # which is asked next
        return type(other) is Key and self.host == other.host


class Hash:
    """A host object with this hash, as C takes it: an int that is none of its size is reduced, and -1 is -2."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        return self.value


class UserKey:
    """A key whose class defines `__hash__` and `__eq__`: these are called as CPython's tables call them."""

    __slots__ = ("hash", "made_at", "tx", "vt")

    def __init__(self, tx: Frame, vt: VariableTracker, hash_: int) -> None:
        self.tx = tx
        self.vt = vt
        self.hash = hash_
        self.made_at = tx.tr.thread.failing_step()

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if self.tx.tr.budget.is_over:  # a host OrderedDict looks up each key that it iterates over, by identity first
            return False
        # The table asks the stored key; the frame to call from is that of the key looked up, if it is of this kind.
        tx = other.tx if type(other) is UserKey else self.tx
        with asked_again(tx, self.vt, "__eq__"):
            return same_or_equal(tx, self.vt, key_tracker(other))


@contextlib.contextmanager
def asked_again(tx: Frame, v: VariableTracker, name: str) -> Iterator[None]:
    """Break if a method that a table calls changes something: real tables call it again where changes of them are replayed, and where
    guards look a key up."""
    changes = tx.tr.effects.changes
    try:
        yield
    except ObservedException as error:
        unsupported("unhashable-key", f"{type_name(v)}.{name}, which raises {error.exc.python_type().__name__}")
    if tx.tr.effects.changes != changes:
        unsupported("unhashable-key", f"{type_name(v)}.{name}, which changes something")


class AtomKey:
    """A key whose class takes hash and equality from its builtin base."""

    __slots__ = ("atom", "vt")

    def __init__(self, vt: VariableTracker) -> None:
        self.vt = vt
        self.atom = vt.atom

    def __hash__(self) -> int:
        return hash(self.atom)

    def __eq__(self, other: object) -> bool:
        if type(other) is AtomKey:
            return self.atom == other.atom
        if type(other) is UserKey:
            return NotImplemented
        return type(other) in ATOMIC_TYPES and self.atom == other


class NumberKey:
    """A key that is an int which may be another one at the next call. Nothing is equal to it that its table has not asked about."""

    __slots__ = ("vt",)

    def __init__(self, vt: VariableTracker) -> None:
        self.vt = vt


def number_key(tx: Frame, v: VariableTracker, keys: Any) -> Any:
    """The host key under which a table with these host keys has, or would have, an object, where a number takes part that may be
    another one at the next call: what it is not equal to is guarded. One that is found is held to be that key."""
    own = NumberKey(v) if _is_apart(v, keys) else table_key(tx, v, c_facts.UNHASHABLE_KEY)
    for key in keys if type(own) in _NUMBERS else ():
        if type(key) in _NUMBERS and NumberKey in (type(own), type(key)):
            if is_true(tx, richcompare(tx, key_tracker(key), v, "==")):
                return key
    return own


def _is_apart(v: VariableTracker, keys: Any) -> bool:
    """Whether an object is an int that varies and is none of the keys now, and these are not too many to ask each time."""
    if not v.is_symbolic or v.python_type() is not int or (now := v.present()) is None or now in keys:
        return False
    kinds = [type(key) for key in keys]
    return not {AtomKey, UserKey}.intersection(kinds) and sum(kind in _NUMBERS for kind in kinds) <= MAX_NUMBERS


_NUMBERS = frozenset({NumberKey, bool, int, float, complex})

MAX_NUMBERS = 32
"""Numbers in a table that are told apart from one that varies."""


def key_of(tx: Frame, v: VariableTracker) -> Any:
    """The host key of an object. Raises TypeError in the traced program if it is unhashable, and whatever its
    `__hash__` raises.
    """
    if isinstance(v, ConstantVariable):
        value = v.value
        if type(value) in ATOMIC_TYPES:
            return value
        try:
            return Key(v, value) if type(value) in (tuple, frozenset) else _hashed(value)
        except TypeError as error:
            tx.raises_like(error)
    cls = v.python_type()
    hash_ = lookup(cls, "__hash__")
    if type(hash_).__hash__ is None:  # of classes made by pybind11: the method itself has no hash
        return unsupported("unhashable-key", f"{type_name(v)} {v.describe()}")
    if is_known_by_identity(cls):
        return identity_key(tx, v)
    rule = HASH_RULES.get(hash_)
    if rule is not None:
        return rule(tx, v)
    if hash_ is object.__hash__ or type(hash_) not in _OF_C:
        with asked_again(tx, v, "__hash__"):
            number = host_value(object_hash(tx, v), "unhashable-key")
        if number in tx.tr.heap.hashes:  # a table may have that object, whose tracker hashes otherwise
            unsupported("object-identity", f"{type_name(v)} with the hash of another object as a key")
        return UserKey(tx, v, number)
    if v.is_python_constant():
        return Key(v, v.as_python_constant())
    return unsupported("unhashable-key", f"{type_name(v)} {v.describe()}")


def is_known_by_identity(cls: type) -> bool:
    """Whether tables find the instances of a class by their identity alone."""
    hash_ = lookup(cls, "__hash__")
    if type(hash_).__hash__ is None:
        return False
    if hash_ in IDENTITY_HASHES and hash_ is not object.__hash__:
        return True
    # Where equality is identity the hash makes no difference, if no code of the program makes it.
    return lookup(cls, "__eq__") is object.__eq__ and type(hash_) in _OF_C


def objects_in(key: Any) -> list[object]:
    """The objects by whose identity a table finds a real key, if nothing else decides but constants and classes: the key, what a tuple
    holds, or whose method it is. Empty for any other key."""
    kind = type(key)
    if kind is tuple:
        parts = [objects_in(part) for part in key if not (is_constant_key(part) or is_plain_class(part))]
        return [each for part in parts for each in part] if all(parts) else []
    if kind is types.MethodType:
        key = key.__self__
    return [key] if not is_plain_class(key) and is_known_by_identity(type(key)) else []


_OF_C = frozenset({types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType})
"""Types of what a class has as `__hash__` that no code of the program stands behind."""


def object_hash(tx: Frame, v: VariableTracker) -> VariableTracker:
    """`PyObject_Hash`. Breaks for an object whose class has a hash that its model does not know."""
    if v.tp_hash is not None:
        return v.tp_hash(tx)
    if v.python_type().__hash__ is not None:
        unsupported("operation-on-unknown-object", f"hash() of a {type_name(v)}")
    return tx.raises(TypeError, f"unhashable type: '{type_name(v)}'")


def table_key(tx: Frame, v: VariableTracker, text: str) -> Any:
    """The same for a table that says `text` where that is a TypeError."""
    try:
        return key_of(tx, v)
    except ObservedException as error:
        if error.exc.python_type() is not TypeError or text == "{error}":
            raise
        reason = host_value(error.exc.tp_str(tx), "unhashable-key")
        return tx.raises(TypeError, said(text, v.python_type(), error=reason))


def check_address(key: object, table: Any) -> None:
    """Break if a host key stands for a number that is known only when the code runs, such as what `id()` returns, or for a tuple of such,
    and a table has numbers with which it may be equal."""
    if not _has_address(key):
        return
    if _is_number(key):
        found = not _NUMBERS.isdisjoint(map(type, table.items))
    else:
        found = any(not _has_address(other) and _may_be_equal(key, other) for other in table.items)
    if found:
        unsupported("object-identity", "an address or the number of a thread as a key of a table of numbers")


def _has_address(key: Any) -> bool:
    if type(key) is not Key:
        return False
    return _is_number(key) or (type(key.host) is tuple and any(map(_has_address, key.host)))


def _is_number(key: Key) -> bool:
    return key.vt.python_type() is int


def _may_be_equal(key: Any, other: Any) -> bool:
    if type(key) is Key and _is_number(key):
        return type(other) in _NUMBERS
    parts = [part.host if type(part) is Key else part for part in (key, other)]
    if not all(type(part) is tuple for part in parts):
        return key == other
    return len(parts[0]) == len(parts[1]) and all(map(_may_be_equal, *parts))


def _hashed(value: object) -> Any:
    """The value, which has a hash. Raises TypeError."""
    hash(value)
    return value


def identity_key(tx: Frame, v: VariableTracker) -> VariableTracker:
    """The key of an object that is equal to itself only. At the next call it has to be another object than all other keys again."""
    node = v.source
    if node is not None:
        node.owner.hashed(v.python_type(), node, tx.tr.thread.here() if tx is not None else None)
    elif tx is not None and tx.tr.effects.cached and (found := tx.tr.effects.comes_from_cache(v)) is not None:
        raise found.error  # the table may have the object that is in the cache
    return v


_KEYS = (Key, UserKey, AtomKey, NumberKey)


def key_tracker(key: Any) -> VariableTracker:
    """The object for which a host key stands."""
    kind = type(key)
    if kind in ATOMIC_TYPES:
        return ConstantVariable(key)
    if kind in _KEYS:
        return key.vt
    if issubclass(kind, (VariableTracker, LazyVariable)):
        return key
    return ConstantVariable(key)


def runs_program(key: Any) -> bool:
    """True for a host key that stands for an object whose hash a method of the program computes."""
    if type(key) is Key:
        return issubclass(type(key.host), (tuple, frozenset)) and any(map(runs_program, key.host))
    return type(key) is UserKey


def same_key(a: object, b: object) -> bool:
    """Whether two host keys are one key, without running code of the program."""
    return a is b or (is_constant_key(a) and is_constant_key(b) and a == b)


def absent_from(table: Collection[Any], keys: Collection[Any]) -> list[Any]:
    """The host keys that a table does not have, without running code of the program: an object that is asked for equality is equal to
    itself only."""
    if not any(map(runs_program, [*table, *keys])):
        return [key for key in keys if key not in table]
    return [key for key in keys if not any(same_key(key, other) for other in table)]


def known_hash(key: Any) -> int | None:
    """The hash of the object for which a host key stands, if it is computed by the program; None if it is not, or not known."""
    if type(key) is UserKey:
        return key.hash
    if type(key) is not Key or type(key.host) is not tuple or not runs_program(key):
        return None
    is_known = all(is_constant_key(part) or known_hash(part) is not None for part in key.host)
    return key.hash if is_known else None


def refuse_collisions(keys: Iterable[Any]) -> None:
    """Break before the program has put a second key with one hash into a table that has to be made: the real one would call `__eq__` again,
    which need not say what it said."""
    seen: set[int] = set()
    for key in keys:
        number = hash(key) if type(key) is UserKey or is_constant_key(key) else None
        if type(key) is UserKey and number in seen:
            raise Unsupported("unhashable-key", f"{type_name(key.vt)} objects with one hash").at(key.made_at)
        if number is not None:
            seen.add(number)


class StoredHashes:
    """Guard: the keys of a dict, or the elements of a set, are stored under these hashes (None: any), which the objects need not have any
    more."""

    def __init__(self, hashes: Sequence[int | None]) -> None:
        self.hashes = hashes

    def __call__(self, real: Any) -> bool:
        if type(real) in (set, frozenset):
            real = dict.fromkeys(real)  # takes the hashes over
        pairs = zip(dict.keys(real), self.hashes, strict=True)
        return all(number is None or is_stored_under(real, key, number) for key, number in pairs)


def guard_stored_hashes(tr: Trace, real: Any, source: GuardNode, keys: Iterable[Any]) -> None:
    """Hold that a real table has stored the keys under the hashes that the program computes for them now. Two with one hash would have to
    be compared, which only the program may do."""
    hashes = [known_hash(key) for key in keys]
    known = [number for number in hashes if number is not None]
    if not known or len(set(known)) != len(known):
        return
    stored = StoredHashes(hashes)
    if not stored(real):
        unsupported("unhashable-key", "a table with a key whose hash has changed since")
    tr.heap.bind_to_process("the hash of an object of the program")
    tr.guard(source, PYTHON, stored)


def is_constant_key(key: object) -> bool:
    """True for host keys that are the keys themselves."""
    return type(key) in ATOMIC_TYPES


def known_key(key: Any) -> Any:
    """The real key for a host key that can be looked up in a real dict or set during the analysis without running code of the program:
    a constant, or a class that is equal to itself only. Else `MISSING`."""
    if type(key) in ATOMIC_TYPES:
        return key
    is_class = isinstance(key, VariableTracker) and _makes_plain_classes(key.python_type()) and key.is_python_constant()
    return key.as_python_constant() if is_class else MISSING


def is_plain_class(key: object) -> bool:
    """True for a class that is equal to itself only."""
    return _makes_plain_classes(type(key))


def _makes_plain_classes(cls: type) -> bool:
    """True for `type`, and for metaclasses that leave it to `type` when their classes are equal (that of `torch.Tensor`)."""
    if cls is type or not issubclass(cls, type):
        return cls is type
    return lookup(cls, "__hash__") is object.__hash__ and lookup(cls, "__eq__") is object.__eq__


IDENTITY_HASHES: set[Any] = {object.__hash__}
"""`__hash__` functions of classes whose instances are equal as keys only if identical (`torch.Tensor.__hash__`), and which have no
effect."""

HashRule = Callable[[Any, VariableTracker], Any]

HASH_RULES: dict[Any, HashRule] = {}
"""The class's `__hash__` → the host key of an instance."""


def hash_rule(hash_: Any) -> Callable[[HashRule], HashRule]:
    """Register the key of instances of the classes that have this `__hash__`."""

    def decorate(rule: HashRule) -> HashRule:
        HASH_RULES[hash_] = rule
        return rule

    return decorate


@hash_rule(None)
def unhashable(tx: Frame, v: VariableTracker) -> Any:
    return tx.raises(TypeError, f"unhashable type: '{type_name(v)}'")


@hash_rule(tuple.__hash__)
def tuple_key(tx: Frame, v: VariableTracker) -> Any:
    found: Key | None = v.__dict__.get("kept_key")
    if found is None:
        found = Key(v, tuple([key_of(tx, item) for item in v.items]))
        if c_facts.TUPLE_KEEPS_HASH:
            v.__dict__["kept_key"] = found
    return found


@hash_rule(frozenset.__hash__)
def frozenset_key(tx: Frame, v: VariableTracker) -> Any:
    return Key(v, frozenset(v.items))


@hash_rule(types.MethodType.__hash__)
@hash_rule(types.BuiltinMethodType.__hash__)
def method_key(tx: Frame, v: VariableTracker) -> Any:
    if not hasattr(v, "self"):
        return Key(v, v.as_python_constant())  # a function of a module
    # Not a tuple that a tuple key could equal: the first item is no key.
    owner = v.self.value if isinstance(v.self, ConstantVariable) else identity_key(tx, v.self)
    return Key(v, (method_key, owner, key_of(tx, v.function)))


@hash_rule(int.__hash__)
@hash_rule(float.__hash__)
@hash_rule(complex.__hash__)
@hash_rule(str.__hash__)
@hash_rule(bytes.__hash__)
def symbolic_key(tx: Frame, v: VariableTracker) -> Any:
    """An instance of a subclass; or a number of the graph, which is made a constant, or breaks."""
    if v.is_atom:
        plain = v.python_type().__eq__ is atom_base(v.python_type()).__eq__
        return AtomKey(v) if plain else UserKey(tx, v, hash(v.atom))
    return host_value(v, "unhashable-key")
