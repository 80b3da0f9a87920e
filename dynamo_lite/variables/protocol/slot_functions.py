"""Slots of classes written in Python: each looks the special method up on the type and calls it.

Input: an object's class. Output: `UserSlots`, the base of every model whose type a class statement made: instances, and classes with
a metaclass of their own.
Invariant: a slot is there exactly if the class defines one of the special methods that make it up; either is guarded when somebody
asks.
Mirrors the `slot_*` functions of `Objects/typeobject.c` and `SLOT1BINFULL`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.isa.typeobject import dict_of, lookup, mro_of

from .abstract import is_subtype, is_true, type_name
from .base import ObservedException, VariableTracker, running
from .constant import NOT_IMPLEMENTED, ConstantVariable, boolean, is_none
from .descr import guarded_lookup, type_attribute
from .hashing import Hash
from .slots import SEQUENCE_ALTERNATIVES, SLOTDEFS

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


class UserSlots(VariableTracker):
    """The slots of an object whose class is `cls`."""

    is_user_made = True
    cls: type


def _noted(cls: type, dunder: str, found: bool) -> bool:
    """`found`; the type is not to get the slot another time, nor to lose it."""
    tr = running.trace
    if tr is not None and not found:
        guarded_lookup(tr.thread.frame, cls, dunder)
    elif tr is not None:
        source = type_attribute(tr.thread.frame, cls, dunder).__dict__.get("source")
        if source is not None:
            tr.expect(source)  # whoever calls the method looks at it more closely
    return found


def defines(cls: type, dunder: str) -> bool:
    """Does a class of the MRO have `dunder`?"""
    return _noted(cls, dunder, any(dunder in dict_of(base) for base in mro_of(cls)))


def special(tx: Frame, obj: VariableTracker, dunder: str) -> VariableTracker | None:
    """`lookup_maybe_method`: a special method of the type, bound to the object; None if the type has none. A method set to None is
    found: calling it raises TypeError."""
    cls = obj.python_type()
    attribute = type_attribute(tx, cls, dunder)
    if attribute is None:
        return None
    if attribute.tp_descr_get is None:
        return attribute
    return attribute.tp_descr_get(tx, obj, tx.tr.type_tracker(cls))


# -- slots of user classes, generated from the slot table


def _overloaded(v: VariableTracker, w: VariableTracker, dunder: str) -> bool:
    """`method_is_overloaded`: does w's type have another `dunder` than v's?"""
    find = lambda t: next((dict_of(b)[dunder] for b in mro_of(t) if dunder in dict_of(b)), None)  # noqa: E731
    return find(w.python_type()) is not None and find(w.python_type()) is not find(v.python_type())


def _slot_binary(name: str, reflected: str, slot: str) -> Any:
    """`SLOT1BINFULL`."""

    def has_it(v: VariableTracker) -> bool:
        return isinstance(v, UserSlots) and (_is_number(v.cls, name) or _is_number(v.cls, reflected))

    def run(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        type_v, type_w = v.python_type(), w.python_type()
        do_other = type_v is not type_w and has_it(w) and defines(type_w, reflected)
        if has_it(v) and defines(type_v, name):
            if do_other and is_subtype(tx, type_w, type_v) and _overloaded(v, w, reflected):
                result = tx.call(special(tx, w, reflected), [v])
                if result.value is not NotImplemented:
                    return result
                do_other = False
            result = tx.call(special(tx, v, name), [w])
            if result.value is not NotImplemented or type_v is type_w:
                return result
        if do_other:
            return tx.call(special(tx, w, reflected), [v])
        return ConstantVariable(NotImplemented)

    return property(lambda self: run if has_it(self) else None)


def _slot_inplace(name: str) -> Any:
    def run(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        return tx.call(special(tx, v, name), [w])

    return property(lambda self: run if _is_number(self.cls, name) else None)


def _slot_sequence(*names: str) -> Any:
    """A slot that a class has from a sequence of C, if it overrides none of these methods."""

    def bound(self: UserSlots) -> Any:
        def run(tx: Frame, arg: VariableTracker) -> VariableTracker:
            return tx.call(special(tx, self, names[0]), [arg])

        return run if all(defines(self.cls, name) and _is_of_sequence(self.cls, name) for name in names) else None

    return property(bound)


def _is_number(cls: type, dunder: str) -> bool:
    """Whether the method, if there is one, is in the slot of numbers: `resolve_slotdups` leaves those of sequences where they are, but for
    `__iadd__`, for which both kinds have the same wrapper, and where the class has inherited the slot of numbers as well."""
    return defines(cls, dunder) and (
        dunder == "__iadd__" or not _is_of_sequence(cls, dunder) or _inherits_number(cls, dunder)
    )


def _inherits_number(cls: type, dunder: str) -> bool:
    """Whether a class of the program behind the sequence of C gives the type the slot of numbers."""
    names = {"__mul__", "__rmul__"} if dunder in ("__mul__", "__rmul__") else {dunder}
    return any(type(dict_of(b).get(name)) is types.FunctionType for b in mro_of(cls) for name in names)


def _is_of_sequence(cls: type, dunder: str) -> bool:
    """Whether a method that there is has been inherited from the slot of a sequence of C."""
    found = lookup(cls, dunder)
    is_inherited = dunder in _OF_SEQUENCES and type(found) is types.WrapperDescriptorType
    return is_inherited and "__radd__" not in dict_of(found.__objclass__)


_OF_SEQUENCES = frozenset({"__add__", "__iadd__", "__mul__", "__rmul__", "__imul__"})


def _slot_method(name: str) -> Any:
    """Slots whose arguments are the method's: unary, subscript."""
    has = _usable if name in _REFUSED_BY_NONE else defines

    def bound(self: UserSlots) -> Any:
        def run(tx: Frame, *args: VariableTracker) -> VariableTracker:
            return tx.call(special(tx, self, name), list(args))

        return run if has(self.cls, name) else None

    return property(bound)


_REFUSED_BY_NONE = frozenset({"__iter__"})
"""Setting this to None leaves the type without the slot; None in the place of another method is called, which fails."""


def _usable(cls: type, name: str) -> bool:
    """A type has the slot if the method exists and is not None."""
    return _noted(cls, name, next((dict_of(b)[name] is not None for b in mro_of(cls) if name in dict_of(b)), False))


def _slot_contains(self: UserSlots) -> Any:
    def run(tx: Frame, item: VariableTracker) -> VariableTracker:
        method = special(tx, self, "__contains__")
        if is_none(method):
            return tx.raises(TypeError, f"'{type_name(self)}' object is not a container")
        return boolean(is_true(tx, tx.call(method, [item])))

    return run if defines(self.cls, "__contains__") else None


def _slot_next(self: UserSlots) -> Any:
    def run(tx: Frame) -> VariableTracker | None:
        return tx.call(special(tx, self, "__next__"), [])

    return run if defines(self.cls, "__next__") else None


def _slot_compare(self: UserSlots) -> Any:
    def run(tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        try:
            method = special(tx, self, _COMPARE_NAMES[op])
        except ObservedException:  # out of the `__get__` of a descriptor
            return NOT_IMPLEMENTED
        return tx.call(method, [other])

    return run


def _slot_set(set_name: str, delete_name: str) -> Any:
    def bound(self: UserSlots) -> Any:
        def run(tx: Frame, key: VariableTracker, value: VariableTracker | None) -> None:
            name, args = (delete_name, [key]) if value is None else (set_name, [key, value])
            method_ = special(tx, self, name)
            if method_ is None:
                tx.raises(AttributeError, name)
            tx.call(method_, args)

        return run if defines(self.cls, set_name) or defines(self.cls, delete_name) else None

    return property(bound)


def _slot_descr_get(self: UserSlots) -> Any:
    def run(tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return tx.call(special(tx, self, "__get__"), [obj if obj is not None else ConstantVariable(None), cls])

    return run if defines(self.cls, "__get__") else None


def _slot_hash(self: UserSlots) -> Any:
    def run(tx: Frame) -> VariableTracker:
        result = tx.call(special(tx, self, "__hash__"), [])
        if not issubclass(result.python_type(), int):
            tx.raises(TypeError, "__hash__ method should return an integer")
        if result.is_atom or result.is_symbolic or isinstance(result, ConstantVariable):
            return ConstantVariable(hash(Hash(result.atom if result.is_atom else result.as_python_constant())))
        return result  # an address

    return run if _usable(self.cls, "__hash__") else None


_COMPARE_NAMES = {d.kind: d.dunder for d in SLOTDEFS.values() if d.slot == "tp_richcompare"}

for _d in SLOTDEFS.values():
    if _d.kind == "binary_l" and _d.slot.startswith("nb_inplace"):
        setattr(UserSlots, _d.slot, _slot_inplace(_d.dunder))
    elif _d.kind == "binary_l":
        setattr(UserSlots, _d.slot, _slot_binary(_d.dunder, "__r" + _d.dunder[2:], _d.slot))
    elif _d.kind in ("unary", "objarg"):
        setattr(UserSlots, _d.slot, _slot_method(_d.dunder))
UserSlots.tp_hash = property(_slot_hash)
UserSlots.tp_iternext = property(_slot_next)
UserSlots.sq_contains = property(_slot_contains)
UserSlots.tp_richcompare = property(_slot_compare)
UserSlots.mp_ass_subscript = _slot_set("__setitem__", "__delitem__")
UserSlots.tp_descr_set = _slot_set("__set__", "__delete__")
UserSlots.tp_descr_get = property(_slot_descr_get)


# A user class has the mapping slots where C has both; the other sequence slots of a native base are reached through its descriptors.
for _name in SEQUENCE_ALTERNATIVES.values():
    setattr(UserSlots, _name, None)
UserSlots.sq_concat = _slot_sequence("__add__")
UserSlots.sq_repeat = _slot_sequence("__mul__", "__rmul__")
UserSlots.sq_inplace_concat = _slot_sequence("__iadd__")
UserSlots.sq_inplace_repeat = _slot_sequence("__imul__")
UserSlots.sq_item = _slot_method("__getitem__")  # what makes a class without `__iter__` iterable
