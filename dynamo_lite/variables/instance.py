"""Instances of user classes.

Input: a real object of a class without a model of its own, or a class to instantiate. Output: `InstanceVariable`, and mixtures of it
with a native model for subclasses of builtin types.
Invariant: attributes live in one `DictVariable` that stands for the object's real `__dict__`, and in `slots`; special methods are
looked up on the type, as `slot_*` do.
Mirrors `Objects/typeobject.c` (`slot_nb_add` and the like) and `Objects/object.c`.
"""

from __future__ import annotations

import copyreg
from typing import Any

from ..exc import unsupported
from ..guards import ir
from .base import MISSING, ObservedException, VariableTracker
from .constant import ConstantVariable
from .descr import generic_getattr, generic_lookup, generic_setattr, getset, is_heap_type, type_attribute, type_lookup
from .dict import DictVariable
from .dispatch import HANDLERS, method
from .function import BuiltinVariable, FunctionVariable
from .slots import SEQUENCE_ALTERNATIVES, SLOTDEFS
from .tuple import TupleVariable
from .wrap import builds_subclasses

STATELESS: set[type] = {object}
"""Types of C whose instances have no state but their `__dict__`."""


class InstanceVariable(VariableTracker):
    """An object of class `cls`. `dict` is its `__dict__` (None if it has none), `slots` the values of its `__slots__`."""

    def __init__(self, cls: type, value: Any = MISSING, source: Any = None) -> None:
        self.cls = cls
        self.value = value
        self.source = source
        self.dict: Any = MISSING
        self.slots: dict[Any, VariableTracker | None] = {}

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"{self.cls.__name__} {self.source.path}" if self.source is not None else f"new {self.cls.__name__}"

    def lacks_layout(self, cls: type) -> bool:
        return cls not in STATELESS and not is_heap_type(cls)

    # -- storage

    def instance_dict(self, tx: Any) -> DictVariable | None:
        """The tracker of `__dict__`."""
        if self.dict is MISSING:
            if self.source is None:
                self.dict = DictVariable() if self.cls.__dictoffset__ else None
            else:
                real = real_dict(self.value)
                self.dict = (
                    None if real is None else tx.tr.wrap(real, tx.tr.source(self.source, ir.INSTANCE_DICT, None))
                )
        return self.dict

    def get_slot(self, tx: Any, descriptor: Any) -> VariableTracker | None:
        """Value of a `__slots__` member, None while unset."""
        if descriptor not in self.slots and self.source is not None:
            node = tx.tr.source(self.source, ir.ATTR, descriptor.__name__)
            try:
                self.slots[descriptor] = tx.tr.wrap(descriptor.__get__(self.value), node)
            except AttributeError:
                tx.tr.guard(node, ir.ABSENT, None)
                self.slots[descriptor] = None
        return self.slots.get(descriptor)

    def set_slot(self, tx: Any, descriptor: Any, value: VariableTracker | None) -> None:
        """Store or delete a `__slots__` member."""
        tx.tr.mutating(self)
        self.slots[descriptor] = value
        self.__dict__.setdefault("written_slots", set()).add(descriptor)

    # -- attributes

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        custom = type_attribute(tx, self.cls, "__getattribute__")
        if isinstance(custom, FunctionVariable):
            try:
                return tx.call(custom, [self, ConstantVariable(name)])
            except ObservedException as observed:
                return self.missing_attribute(tx, name, observed)
        found = generic_lookup(tx, self, name) if self._getters_cannot_raise(tx) else self._guarded_lookup(tx, name)
        return found if found is not None else self.missing_attribute(tx, name, None)

    def _getters_cannot_raise(self, tx: Any) -> bool:
        return type_attribute(tx, self.cls, "__getattr__") is None

    def _guarded_lookup(self, tx: Any, name: str) -> VariableTracker | None:
        """Lookup in a class with `__getattr__`: an AttributeError out of a property falls through to it."""
        try:
            return generic_lookup(tx, self, name)
        except ObservedException as observed:
            return self.missing_attribute(tx, name, observed)

    def missing_attribute(self, tx: Any, name: str, observed: ObservedException | None) -> VariableTracker:
        """`slot_tp_getattr_hook`: `__getattr__` after an AttributeError."""
        if observed is not None and not issubclass(observed.exc.python_type(), AttributeError):
            raise observed
        hook = type_attribute(tx, self.cls, "__getattr__")
        if hook is not None:
            return tx.call(hook.tp_descr_get(tx, self, tx.tr.type_tracker(self.cls)), [ConstantVariable(name)])
        if observed is not None:
            raise observed
        message = f"'{self.cls.__name__}' object has no attribute '{name}'"
        return tx.raises_naming(AttributeError, message, name=ConstantVariable(name), obj=self)

    def tp_setattro(self, tx: Any, name: str, value: VariableTracker | None) -> None:
        hook = type_attribute(tx, self.cls, "__setattr__" if value is not None else "__delattr__")
        if isinstance(hook, BuiltinVariable):
            generic_setattr(tx, self, name, value)
            return
        args = [ConstantVariable(name)] if value is None else [ConstantVariable(name), value]
        tx.call(hook, [self, *args])

    # -- calls

    def direct_call(self, tx: Any, args: list[VariableTracker]) -> Any:
        hook = type_attribute(tx, self.cls, "__call__")
        return hook.direct_call(tx, [self, *args]) if isinstance(hook, FunctionVariable) else None

    @property
    def tp_call(self) -> Any:
        return self._call if _defines(self.cls, "__call__") else None

    def _call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(special(tx, self, "__call__"), args, kwargs)

    # -- codegen

    def children(self) -> Any:
        attributes = [] if self.dict in (None, MISSING) else [self.dict]
        return [*attributes, *(v for v in self.slots.values() if v is not None)]

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(object.__new__)
        cg.load_const(self.cls)
        cg.asm.call(1)

    def emit_fill(self, cg: Any) -> None:
        self.emit_attributes(cg)

    def emit_attributes(self, cg: Any) -> None:
        """Store the attributes of a new object."""
        if self.dict not in (None, MISSING) and self.dict.source is None:
            for key, value in self.dict.pairs():
                cg.load(value)
                cg.load(self)
                cg.asm.load_attr("__dict__")
                cg.load(key)
                cg.asm.store_subscr()
        self.emit_slots(cg, [d for d, v in self.slots.items() if v is not None])

    def emit_slots(self, cg: Any, descriptors: Any) -> None:
        """Store `__slots__` members through their descriptors."""
        for descriptor in descriptors:
            value = self.slots[descriptor]
            if descriptor.__objclass__ in cg.tr.new_classes:
                if value is not None:
                    cg.asm.push_callable(lambda d=descriptor: _load_setter(cg, d))
                    cg.load(self)
                    cg.load(value)
                    cg.asm.call(2)
                    cg.asm.pop_top()
                continue
            cg.load_callable(descriptor.__delete__ if value is None else descriptor.__set__)
            cg.load(self)
            if value is not None:
                cg.load(value)
            cg.asm.call(1 if value is None else 2)
            cg.asm.pop_top()

    def emit_update(self, cg: Any) -> None:
        self.emit_slots(cg, self.__dict__.get("written_slots", ()))


def _load_setter(cg: Any, descriptor: Any) -> None:
    """Push the `__set__` of a slot of a class that the traced code made."""
    cg.load_const(descriptor.__objclass__)
    cg.asm.load_attr(descriptor.__name__)
    cg.asm.load_attr("__set__")


def real_dict(value: Any) -> dict[str, Any] | None:
    """An object's `__dict__` without running user code."""
    if not type(value).__dictoffset__:
        return None
    return object.__getattribute__(value, "__dict__")


def _defines(cls: type, dunder: str) -> bool:
    return any(dunder in base.__dict__ for base in cls.__mro__)


def special(tx: Any, obj: VariableTracker, dunder: str) -> VariableTracker | None:
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
    find = lambda t: next((b.__dict__[dunder] for b in t.__mro__ if dunder in b.__dict__), None)  # noqa: E731
    return find(w.python_type()) is not None and find(w.python_type()) is not find(v.python_type())


def _slot_binary(name: str, reflected: str, slot: str) -> Any:
    """`SLOT1BINFULL`."""

    def run(tx: Any, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        type_v, type_w = v.python_type(), w.python_type()
        do_other = type_v is not type_w and isinstance(w, InstanceVariable) and _defines(type_w, reflected)
        if isinstance(v, InstanceVariable) and _defines(type_v, name):
            if do_other and type_v in type_w.__mro__ and _overloaded(v, w, reflected):
                result = tx.call(special(tx, w, reflected), [v])
                if result.value is not NotImplemented:
                    return result
                do_other = False
            result = tx.call(special(tx, v, name), [w])
            if result.value is not NotImplemented or type_v is type_w:
                return result
        if do_other or (not isinstance(v, InstanceVariable) and _defines(type_w, reflected)):
            return tx.call(special(tx, w, reflected), [v])
        return ConstantVariable(NotImplemented)

    return property(lambda self: run if _defines(self.cls, name) or _defines(self.cls, reflected) else None)


def _slot_inplace(name: str) -> Any:
    def run(tx: Any, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        return tx.call(special(tx, v, name), [w])

    return property(lambda self: run if _defines(self.cls, name) else None)


def _slot_method(name: str) -> Any:
    """Slots whose arguments are the method's: unary, subscript, contains."""

    def bound(self: InstanceVariable) -> Any:
        def run(tx: Any, *args: VariableTracker) -> VariableTracker:
            return tx.call(special(tx, self, name), list(args))

        return run if _usable(self.cls, name) else None

    return property(bound)


def _usable(cls: type, name: str) -> bool:
    """A type has the slot if the method exists and is not None (`__hash__ = None`)."""
    return next((b.__dict__[name] is not None for b in cls.__mro__ if name in b.__dict__), False)


def _slot_next(self: InstanceVariable) -> Any:
    def run(tx: Any) -> VariableTracker | None:
        try:
            return tx.call(special(tx, self, "__next__"), [])
        except ObservedException as observed:
            if issubclass(observed.exc.python_type(), StopIteration):
                return None
            raise

    return run if _usable(self.cls, "__next__") else None


def _slot_compare(self: InstanceVariable) -> Any:
    def run(tx: Any, other: VariableTracker, op: str) -> VariableTracker:
        return tx.call(special(tx, self, _COMPARE_NAMES[op]), [other])

    return run


def _slot_set(set_name: str, delete_name: str) -> Any:
    def bound(self: InstanceVariable) -> Any:
        def run(tx: Any, key: VariableTracker, value: VariableTracker | None) -> None:
            name, args = (delete_name, [key]) if value is None else (set_name, [key, value])
            method_ = special(tx, self, name)
            if method_ is None:
                tx.raises(AttributeError if set_name == "__set__" else TypeError, name)
            tx.call(method_, args)

        return run if _defines(self.cls, set_name) or _defines(self.cls, delete_name) else None

    return property(bound)


def _slot_descr_get(self: InstanceVariable) -> Any:
    def run(tx: Any, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return tx.call(special(tx, self, "__get__"), [obj if obj is not None else ConstantVariable(None), cls])

    return run if _defines(self.cls, "__get__") else None


_COMPARE_NAMES = {d.kind: d.dunder for d in SLOTDEFS.values() if d.slot == "tp_richcompare"}

for _d in SLOTDEFS.values():
    if _d.kind == "binary_l" and _d.slot.startswith("nb_inplace"):
        setattr(InstanceVariable, _d.slot, _slot_inplace(_d.dunder))
    elif _d.kind == "binary_l":
        setattr(InstanceVariable, _d.slot, _slot_binary(_d.dunder, "__r" + _d.dunder[2:], _d.slot))
    elif _d.kind in ("unary", "objarg"):
        setattr(InstanceVariable, _d.slot, _slot_method(_d.dunder))
InstanceVariable.tp_iternext = property(_slot_next)
InstanceVariable.tp_richcompare = property(_slot_compare)
InstanceVariable.mp_ass_subscript = _slot_set("__setitem__", "__delitem__")
InstanceVariable.tp_descr_set = _slot_set("__set__", "__delete__")
InstanceVariable.tp_descr_get = property(_slot_descr_get)


# A user class has the mapping slots where C has both; the sequence slots of a native base are reached through its descriptors.
for _name in SEQUENCE_ALTERNATIVES.values():
    setattr(InstanceVariable, _name, None)
InstanceVariable.sq_item = _slot_method("__getitem__")  # what makes a class without `__iter__` iterable


# -- what `object` itself provides


@method(object.__getattribute__)
def object_getattribute(tx: Any, self: VariableTracker, name: VariableTracker) -> VariableTracker:
    return generic_getattr(tx, self, name.as_python_constant())


@method(object.__setattr__)
def object_setattr(tx: Any, self: VariableTracker, name: VariableTracker, value: VariableTracker) -> None:
    generic_setattr(tx, self, name.as_python_constant(), value)


@method(object.__delattr__)
def object_delattr(tx: Any, self: VariableTracker, name: VariableTracker) -> None:
    generic_setattr(tx, self, name.as_python_constant(), None)


@method(object.__init__)
def object_init(tx: Any, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> None:
    cls = self.python_type()
    overrides_new = next(b for b in cls.__mro__ if "__new__" in b.__dict__) is not object
    if (args or kwargs) and (cls.__init__ is not object.__init__ or not overrides_new):
        tx.raises(TypeError, f"{cls.__name__}.__init__() takes exactly one argument (the instance to initialize)")


@method(object.__eq__)
def object_eq(tx: Any, self: VariableTracker, other: VariableTracker) -> VariableTracker:
    return ConstantVariable(True if tx.tr.same_object(self, other) else NotImplemented)


@method(object.__ne__)
def object_ne(tx: Any, self: VariableTracker, other: VariableTracker) -> VariableTracker:
    if self.tp_richcompare is None:
        return ConstantVariable(NotImplemented)
    result = self.tp_richcompare(tx, other, "==")
    return result if result.value is NotImplemented else ConstantVariable(not result.as_python_constant())


def _not_implemented(tx: Any, self: VariableTracker, other: VariableTracker) -> VariableTracker:
    return ConstantVariable(NotImplemented)


for _name in ("__lt__", "__le__", "__gt__", "__ge__"):
    HANDLERS[getattr(object, _name)] = _not_implemented


@method(object.__hash__)
def object_hash(tx: Any, self: VariableTracker) -> VariableTracker:
    return tx.tr.identity_hash(self)


@method(object.__repr__)
def object_repr(tx: Any, self: VariableTracker) -> VariableTracker:
    return unsupported("object-identity", f"repr of {self.python_type().__name__}")


@method(object.__str__)
def object_str(tx: Any, self: VariableTracker) -> VariableTracker:
    return self.tp_repr(tx) if self.tp_repr is not None else unsupported("object-identity", "str")


@method(object.__getstate__)
def object_getstate(tx: Any, self: VariableTracker) -> VariableTracker:
    """`object_getstate_default`: the attributes, and the slots of classes that have some."""
    dictionary = self.instance_dict(tx) if isinstance(self, InstanceVariable) else None
    state: VariableTracker = ConstantVariable(None)
    if dictionary is not None:
        state = tx.call(dictionary.tp_getattro(tx, "copy"), [])
    names = copyreg._slotnames(self.python_type()) if isinstance(self, InstanceVariable) else []
    slots = DictVariable()
    for name in names:
        value = self.get_slot(tx, type_lookup(self.cls, name))
        if value is not None:
            slots.mp_ass_subscript(tx, ConstantVariable(name), value)
    return TupleVariable([state, slots]) if slots.items else state


@method(object.__init_subclass__, object.__subclasshook__)
def object_init_subclass(tx: Any, *args: VariableTracker) -> None:
    return None


@getset(object.__dict__["__class__"])
def object_class(tx: Any, self: VariableTracker) -> VariableTracker:
    return tx.tr.type_of(tx, self)


@builds_subclasses(object)
def build_instance(tr: Any, value: Any, source: Any) -> VariableTracker:
    cls = type(value)
    tr.guard(source, ir.TYPE_IS, cls)
    model = tr.instance_class(cls)
    return model(cls, value, source)
