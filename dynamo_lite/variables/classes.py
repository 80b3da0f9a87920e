"""Classes made by the traced code: class statements, `type(name, bases, namespace)`, and the descriptors that their bodies make.

Input: a class body, or a name, bases and a namespace. Output: `NewTypeVariable`.
Invariant: the models rest on real classes, so a *stand-in* is made for the analysis, by the real metaclass, with what stands for the
namespace's objects in it; the program never sees it: generated code makes the class anew, and a stand-in is no constant.
Mirrors `builtin___build_class__` of `Python/bltinmodule.c` and `type_new` of `Objects/typeobject.c`.
"""

from __future__ import annotations

import abc
import builtins
import types
from typing import Any

from ..exc import NotConstant, unsupported
from .base import MISSING, VariableTracker, is_lazy
from .cell import CellVariable
from .constant import ATOMIC_TYPES, ConstantVariable
from .descr import (
    ClassMethodVariable,
    InstanceDictDescriptorVariable,
    PropertyVariable,
    SlotDescriptorVariable,
    StaticMethodVariable,
    type_attribute,
    type_lookup,
)
from .dict import DictVariable
from .dispatch import builtin, constructor
from .function import FunctionVariable
from .list import ListVariable
from .tuple import TupleVariable
from .type import TypeVariable

NONE = ConstantVariable(None)

_METACLASSES = (type, abc.ABCMeta)
"""Metaclasses that do nothing but make the class: others would run during the analysis and once more in the program."""


# What C code calls on classes: in a stand-in these are functions without the values of their closures.
_CALLED_BY_TYPES = ("__subclasshook__", "__subclasses__", "mro")


class StandIn:
    """Stands in a stand-in's namespace for an object without a value during the analysis."""


class NewTypeVariable(TypeVariable):
    """A class made by the traced code. `value` is the stand-in, `namespace` what the metaclass was called with, `assigned` what was
    stored on the class since (None: deleted)."""

    def __init__(self, value: type, bases: list[VariableTracker], namespace: list[tuple[str, VariableTracker]]) -> None:
        super().__init__(value)
        self.bases = bases
        self.namespace = namespace
        self.assigned: dict[str, VariableTracker | None] = {}

    def is_python_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        raise NotConstant(f"class {self.value.__qualname__} was made by the traced code")

    def tp_setattro(self, tx: Any, name: str, value: VariableTracker | None) -> None:
        """`type_setattro`."""
        on_meta = type_lookup(type(self.value), name)
        if hasattr(type(on_meta), "__set__") and name not in ("__doc__", "__module__", "__name__", "__qualname__"):
            unsupported("mutation-of-class", f"{self.value.__qualname__}.{name}")
        try:
            if value is None:
                delattr(self.value, name)
            else:
                setattr(self.value, name, real_object(tx, value))
        except (TypeError, AttributeError) as error:
            tx.raises_like(error)
        forget(tx.tr, name)
        self.assigned[name] = value

    def own_attribute(self, tx: Any, name: str) -> VariableTracker:
        """The tracker of what the class itself has under `name`."""
        raw = self.value.__dict__[name]
        if type(raw) in ATOMIC_TYPES:
            return ConstantVariable(raw)
        found = tx.tr.heap.get(id(raw))
        if found is not None:
            return found
        if type(raw) in (staticmethod, classmethod):
            # type_new turns __new__, __init_subclass__ and __class_getitem__ into these.
            return adopt(tx.tr, raw, (StaticMethodVariable if type(raw) is staticmethod else ClassMethodVariable)(raw))
        if type(raw) is types.MemberDescriptorType:
            return adopt(tx.tr, raw, SlotDescriptorVariable(raw))
        if type(raw) is types.GetSetDescriptorType and name == "__dict__":
            return adopt(tx.tr, raw, InstanceDictDescriptorVariable(raw))
        return unsupported("class-definition", f"{self.value.__qualname__}.{name}")

    def _meta_descriptor(self, tx: Any, attribute: VariableTracker, name: str) -> VariableTracker:
        if name in (
            "__name__",
            "__qualname__",
            "__module__",
            "__doc__",
            "__mro__",
            "__bases__",
            "__base__",
            "__flags__",
            "__basicsize__",
        ):
            value = getattr(self.value, name)
            if type(value) in ATOMIC_TYPES:
                return ConstantVariable(value)
            if isinstance(value, tuple):
                return TupleVariable([tx.tr.type_tracker(c) for c in value])
            if isinstance(value, type):
                return tx.tr.type_tracker(value)
            if name == "__doc__":
                return self.own_attribute(tx, name)
        return unsupported("class-definition", f"{self.value.__qualname__}.{name}")

    # -- codegen

    def children(self) -> Any:
        assigned = [v for v in self.assigned.values() if v is not None]
        return [*self.bases, *(v for _, v in self.namespace), *assigned]

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(type(self.value))
        cg.load_const(self.value.__name__)
        for base in self.bases:
            cg.load(base)
        cg.asm.build_tuple(len(self.bases))
        for name, value in self.namespace:
            cg.load_const(name)
            cg.load(value)
        cg.asm.build_map(len(self.namespace))
        cg.asm.call(3)

    def emit_fill(self, cg: Any) -> None:
        for name, value in self.assigned.items():
            if value is not None:
                cg.load(value)
            cg.load(self)
            if value is not None:
                cg.asm.store_attr(name)
            else:
                cg.asm.delete_attr(name)


def forget(tr: Any, name: str) -> None:
    """Class attributes are looked up once per run; a store makes the lookup stale."""
    for key in [k for k in tr.type_attributes if k[1] == name]:
        del tr.type_attributes[key]


def adopt(tr: Any, real: Any, vt: VariableTracker) -> VariableTracker:
    """Have `vt` found wherever `real`, which stands for it in a stand-in, is looked up."""
    tr.heap[id(real)] = vt
    tr.keep_alive.append(real)
    return vt


def real_object(tx: Any, vt: Any) -> Any:
    """What stands for an object in a stand-in: itself where it exists, a function of the same code, an opaque object."""
    if isinstance(vt, ConstantVariable):
        return vt.value
    if vt.value is not MISSING:
        return vt.value
    made = vt.__dict__.get("stand_in")
    if made is None:
        made = _stand_in(tx, vt)
        vt.stand_in = made
        adopt(tx.tr, made, vt)
    return made


def _stand_in(tx: Any, vt: Any) -> Any:
    if not isinstance(vt, FunctionVariable):
        if hasattr(vt.python_type(), "__set_name__") or hasattr(vt.python_type(), "__isabstractmethod__"):
            unsupported("class-definition", f"a {vt.python_type().__name__} in the class body")
        return StandIn()
    function = types.FunctionType(
        vt.code, vt.globals.value, vt.code.co_name, None, tuple(types.CellType() for _ in vt.code.co_freevars)
    )
    if vt.dict is not None:
        for key, value in vt.dict.pairs():
            if value.is_python_constant():
                function.__dict__[key.value] = value.as_python_constant()
    return function


def new_class_attribute(tx: Any, cls: type, name: str) -> VariableTracker | None:
    """`type_attribute` for a class made by the traced code."""
    tr = tx.tr
    for base in cls.__mro__:
        tracker = tr.new_classes.get(base)
        if tracker is None:
            found = type_attribute(tx, base, name)  # guards that the base keeps its own
            if name in base.__dict__:
                return found
        elif name in base.__dict__:
            return tracker.own_attribute(tx, name)
    return None


# -- making a class


@builtin(builtins.__build_class__)
def build_class(
    tx: Any, func: VariableTracker, name: VariableTracker, /, *bases: VariableTracker, **keywords: VariableTracker
) -> VariableTracker:
    """`builtin___build_class__`."""
    meta = keywords.pop("metaclass", None)
    if not all(isinstance(b, TypeVariable) for b in bases) or (meta is not None and not isinstance(meta, TypeVariable)):
        return unsupported("class-definition", "bases or a metaclass that are no classes")
    winner = _metaclass(tx, meta.value if meta is not None else type, bases)
    if keywords:
        return unsupported("class-definition", "keywords of a class statement")
    _check_bases(tx, winner, bases)
    namespace = DictVariable()
    cell = tx.tr.run_class_body(tx, func, namespace)
    made = make_class(tx, winner, name.value, list(bases), namespace)
    if isinstance(cell, CellVariable):
        cell.set(tx, made)
    return made


def _metaclass(tx: Any, meta: type, bases: Any) -> type:
    """`_PyType_CalculateMetaclass`."""
    for base in bases:
        candidate = type(base.value)
        if issubclass(meta, candidate):
            continue
        if not issubclass(candidate, meta):
            tx.raises(
                TypeError,
                "metaclass conflict: the metaclass of a derived class must be a (non-strict) subclass of the metaclasses of all its bases",
            )
        meta = candidate
    return meta


def _check_bases(tx: Any, meta: type, bases: Any) -> None:
    """Refuse what would run code of the program when the stand-in is made."""
    if meta not in _METACLASSES:
        unsupported("class-definition", f"metaclass {meta.__qualname__}")
    for base in bases:
        hook = type_attribute(tx, base.value, "__init_subclass__")
        if hook is not None and hook.value is not object.__dict__["__init_subclass__"]:
            unsupported("class-definition", f"{base.value.__qualname__}.__init_subclass__")


def make_class(
    tx: Any, meta: type, name: str, bases: list[VariableTracker], namespace: DictVariable
) -> NewTypeVariable:
    """`type_new`."""
    pairs = []
    real_namespace = {}
    for key, value in namespace.pairs():
        if key.python_type() is not str:
            unsupported("class-definition", "a namespace with keys that are no strings")
        if is_lazy(value):
            value.python_type()
        pairs.append((key.value, value))
        if key.value == "__classcell__":
            real_namespace[key.value] = types.CellType()
        elif key.value == "__slots__":
            real_namespace[key.value] = _names(value)
        else:
            real_namespace[key.value] = real_object(tx, value)
        if hasattr(value.python_type(), "__set_name__") and value.python_type() is not property:
            unsupported("class-definition", f"__set_name__ of {value.describe()}")
    if "__del__" in real_namespace:
        unsupported("del-finalizer", name)
    called = [hook for hook in _CALLED_BY_TYPES if hook in real_namespace]
    if called:
        unsupported("class-definition", f"{name} with {called[0]}")
    try:
        stand_in = meta(name, tuple(b.value for b in bases), real_namespace)
    except (TypeError, ValueError) as error:
        return tx.raises_like(error)
    made = NewTypeVariable(stand_in, bases, pairs)
    tx.tr.new_classes[stand_in] = made
    adopt(tx.tr, stand_in, made)
    return made


@constructor(type)
def new_type(tx: Any, meta: VariableTracker, *args: VariableTracker, **keywords: VariableTracker) -> VariableTracker:
    """`type(x)`; the three-argument form makes a class."""
    if len(args) == 1 and not keywords:
        return tx.tr.type_of(tx, args[0])
    if len(args) != 3 or keywords:
        return unsupported("class-definition", "type() with arguments that don't fit")
    name, bases, namespace = args
    well_typed = (
        isinstance(name, ConstantVariable) and isinstance(bases, TupleVariable) and isinstance(namespace, DictVariable)
    )
    if not well_typed or type(name.value) is not str or not all(isinstance(b, TypeVariable) for b in bases.items):
        return unsupported("class-definition", "type() with arguments of other types")
    own = DictVariable()
    own.merge(tx, namespace)
    module = tx.globals.load(tx, "__name__")
    if module is not None and own.lookup(tx, ConstantVariable("__module__")) is None:
        own.mp_ass_subscript(tx, ConstantVariable("__module__"), module)
    winner = _metaclass(tx, meta.value, bases.items)
    _check_bases(tx, winner, bases.items)
    return make_class(tx, winner, name.value, list(bases.items), own)


def _names(slots: VariableTracker) -> Any:
    if isinstance(slots, ConstantVariable):
        return slots.value
    if not isinstance(slots, (ListVariable, TupleVariable)) or not all(
        isinstance(i, ConstantVariable) for i in slots.items
    ):
        unsupported("class-definition", "__slots__ that are no list of names")
    return tuple(i.value for i in slots.items)


# -- descriptors made by the traced code


@constructor(property)
def new_property(
    tx: Any,
    cls: VariableTracker,
    fget: VariableTracker = NONE,
    fset: VariableTracker = NONE,
    fdel: VariableTracker = NONE,
    doc: VariableTracker = NONE,
) -> VariableTracker:
    """`property_init_impl`."""
    real = property(*(real_object(tx, f) for f in (fget, fset, fdel)), *([] if doc is NONE else [real_object(tx, doc)]))
    return adopt(tx.tr, real, NewPropertyVariable(real, [fget, fset, fdel, *([] if doc is NONE else [doc])]))


class _New:
    """A descriptor that the traced code made: `value` stands for it, `parts` are the arguments it was made from."""

    parts: list[VariableTracker]
    value: Any

    def is_python_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        raise NotConstant(f"a {type(self.value).__name__} made by the traced code")

    def children(self) -> Any:
        return self.parts

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(type(self.value))
        for part in self.parts:
            cg.load(part)
        cg.asm.call(len(self.parts))


class NewPropertyVariable(_New, PropertyVariable):
    """A property made by the traced code."""

    def __init__(self, value: property, parts: list[VariableTracker]) -> None:
        super().__init__(value)
        self.parts = parts

    def _part(self, tx: Any, name: str) -> VariableTracker:
        return self.parts[("fget", "fset", "fdel").index(name)]

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        if name in ("fget", "fset", "fdel"):
            return self._part(tx, name)
        copy = _PROPERTY_COPIES.get(name)
        if copy is None:
            return unsupported("class-definition", f"property.{name}")
        return PropertyCopier(self, copy)


class PropertyCopier(VariableTracker):
    """`property.getter`, `setter` or `deleter`, bound."""

    def __init__(self, prop: NewPropertyVariable, index: int) -> None:
        self.prop = prop
        self.index = index

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """`property_copy`."""
        if len(args) != 1 or kwargs:
            unsupported("class-definition", "property copy with arguments that don't fit")
        parts = list(self.prop.parts)
        parts[self.index] = args[0]
        return new_property(tx, tx.tr.type_tracker(property), *parts)

    def children(self) -> Any:
        return (self.prop,)

    def emit_new(self, cg: Any) -> None:
        cg.load(self.prop)
        cg.asm.load_attr(next(n for n, i in _PROPERTY_COPIES.items() if i == self.index))


_PROPERTY_COPIES = {"getter": 0, "setter": 1, "deleter": 2}


class NewStaticMethodVariable(_New, StaticMethodVariable):
    """A staticmethod made by the traced code."""

    def __init__(self, value: Any, parts: list[VariableTracker]) -> None:
        super().__init__(value)
        self.parts = parts

    def tp_descr_get(self, tx: Any, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        return self.parts[0]

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        return self.parts[0] if name in ("__func__", "__wrapped__") else self.parts[0].tp_getattro(tx, name)


class NewClassMethodVariable(_New, ClassMethodVariable):
    """A classmethod made by the traced code."""

    def __init__(self, value: Any, parts: list[VariableTracker]) -> None:
        super().__init__(value)
        self.parts = parts

    def tp_descr_get(self, tx: Any, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        function = self.parts[0]
        return function.tp_descr_get(tx, cls, tx.tr.type_of(tx, cls)) if function.tp_descr_get is not None else function

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        return self.parts[0] if name in ("__func__", "__wrapped__") else self.parts[0].tp_getattro(tx, name)


@constructor(staticmethod)
def new_staticmethod(tx: Any, cls: VariableTracker, function: VariableTracker, /) -> VariableTracker:
    real = staticmethod(real_object(tx, function))
    return adopt(tx.tr, real, NewStaticMethodVariable(real, [function]))


@constructor(classmethod)
def new_classmethod(tx: Any, cls: VariableTracker, function: VariableTracker, /) -> VariableTracker:
    real = classmethod(real_object(tx, function))
    return adopt(tx.tr, real, NewClassMethodVariable(real, [function]))
