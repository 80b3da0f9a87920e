"""Classes made by the traced code.

Input: a name, bases and a namespace. Output: `NewTypeVariable`, `bare_class`.
Invariant: models need real classes, so the analysis makes a *stand-in*: a class of the same layout, with stand-ins for the objects of the
namespace, made without running any code of the program, which never sees it. Generated code makes all classes of a trace bare, in the
same way, and then stores the attributes that each has at the end of the trace.
Mirrors the object that `type_new` of `Objects/typeobject.c` makes.
"""

from __future__ import annotations

import _abc
import gc
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite._eval_frame import set_metaclass
from dynamo_lite.exc import NotConstant, unsupported
from dynamo_lite.isa.typeobject import bases_of, dict_of, mro_of, qualname_of
from dynamo_lite.variables.builtin.dict import DictVariable, MappingProxyVariable
from dynamo_lite.variables.builtin.set import SetVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import MISSING, Child, Children, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import (
    DescriptorVariable,
    InstanceDictDescriptorVariable,
    SlotDescriptorVariable,
    forget,
    type_attribute,
)
from dynamo_lite.variables.protocol.native import emit_call, host_value

from .function import FunctionVariable
from .property import ClassMethodVariable, PropertyVariable, StaticMethodVariable
from .type import MetaInstance, TypeVariable, namespace_of

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

CONVERTED = {
    "__new__": StaticMethodVariable,
    "__init_subclass__": ClassMethodVariable,
    "__class_getitem__": ClassMethodVariable,
}
"""Functions under these names become such descriptors in a new class."""


STAND_INS: weakref.WeakValueDictionary[int, type] = weakref.WeakValueDictionary()
"""All stand-ins that are still there, by id."""


_fresh: set[int] = set()


def register_stand_in(cls: type) -> None:
    """Take note of a stand-in."""
    STAND_INS[id(cls)] = cls
    _fresh.add(id(cls))


def forget_stand_ins() -> None:
    """Have the stand-ins of a finished analysis collected, so that the program does not find them among `__subclasses__()`. No local
    variable of a frame that is still running may hold the analysis, or the stand-ins stay."""
    if _fresh:
        _fresh.clear()
        gc.collect(1)


class ClassDictVariable(DictVariable):
    """The dictionary of a class made by the traced code."""

    owner: NewTypeVariable

    def children(self) -> Any:
        return (self.owner,)

    def emit_new(self, cg: Codegen) -> None:
        emit_call(cg, namespace_of, self.owner)

    emit_fill = None


class NewTypeVariable(TypeVariable):
    """A class made by the traced code. `value` is the stand-in, `attributes` its dictionary, `template` the namespace with which it is
    made bare, `untouched` the attributes that come by themselves, `kept` what was stored in none of these. What the metaclass has a
    data descriptor for is `shadowed`: only the namespace that the class is made with can bring it into the dictionary."""

    bases: list[VariableTracker] = Children()
    template: dict[str, Any] = Plain()
    kept: dict[Any, VariableTracker] = Children(factory=dict, init=False)
    registered: list[VariableTracker] = Children(factory=list, init=False)
    untouched: dict[str, VariableTracker] = Plain(factory=dict, init=False)
    initializers: list[Callable[[type], None]] = Plain(factory=list, init=False)
    shadowed: set[str] = Plain(factory=set, init=False)

    def __post_init__(self) -> None:
        self.name = self.value.__name__
        self.attributes = ClassDictVariable()
        self.attributes.owner = self

    def is_python_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        raise NotConstant(f"class {qualname_of(self.value)} was made by the traced code")

    # -- attributes

    def own(self, name: str) -> VariableTracker | None:
        """The attribute that the class itself has under `name`."""
        return self.attributes.items.get(name)

    def store_attribute(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        """`type_setattro`."""
        meta_attribute = type_attribute(tx, self.python_type(), name)
        if meta_attribute is not None and meta_attribute.tp_descr_set is not None:
            meta_attribute.tp_descr_set(tx, self, value)
        else:
            self.put(tx, name, value)

    def put(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        """Store or delete in the class's dictionary."""
        if name in _REFUSED:
            unsupported(_REFUSED[name], f"{qualname_of(self.value)}.{name}")
        if value is not None:
            type.__setattr__(self.value, name, _REAL_VALUES.get(name, real_object)(value))
            self.attributes.items[name] = value
        else:
            self._delete(tx, name)
        forget(tx.tr, name)

    def _delete(self, tx: Frame, name: str) -> None:
        if name not in self.attributes.items:
            message = f"type object '{self.value.__name__}' has no attribute '{name}'"
            tx.raises_naming(AttributeError, message, name=ConstantVariable(name), obj=self)
        if name in CONVERTED or name in self.untouched:
            # A type goes on calling a deleted `__new__`, which is in its slot; it can't be made without what comes by itself.
            unsupported("mutation-of-class", f"deletion of {qualname_of(self.value)}.{name}")
        type.__delattr__(self.value, name)
        del self.attributes.items[name]
        self.template.pop(name, None)

    def member(self, tx: Frame, descriptor: Any) -> VariableTracker:
        if descriptor in self.kept:
            return self.kept[descriptor]
        reader = IN_DICT.get(descriptor)
        found = reader(tx, self) if reader is not None else None
        if found is not None:
            return found.tp_descr_get(tx, None, self) if found.tp_descr_get is not None else found
        try:
            real = descriptor.__get__(self.value)
        except AttributeError as error:
            return tx.raises_like(error)
        if isinstance(real, tuple) and all(isinstance(c, type) for c in real):
            return TupleVariable([tx.tr.type_tracker(c) for c in real])
        return tx.tr.build_constant_object(real)

    def store_member(self, tx: Frame, descriptor: Any, value: VariableTracker | None) -> None:
        try:
            if value is None:
                descriptor.__delete__(self.value)
            elif descriptor not in IN_DICT:
                descriptor.__set__(self.value, host_value(value, "mutation-of-class"))
        except (TypeError, AttributeError, ValueError) as error:
            tx.raises_like(error)
        if descriptor not in IN_DICT:
            self.kept[descriptor] = value
            tx.tr.classes.attributes.clear()  # it may have been `__bases__`
        elif value is not None:
            self.put(tx, descriptor.__name__, value)
        else:
            self.attributes.items.pop(descriptor.__name__, None)
            self.template.pop(descriptor.__name__, None)
            forget(tx.tr, descriptor.__name__)

    def namespace_proxy(self, tx: Frame) -> VariableTracker:
        return MappingProxyVariable(self.attributes)

    # -- codegen

    def children(self) -> Any:
        return [*self.declared_children(), *self.attributes.items.values()]

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(bare_class)
        cg.load_const(self.python_type())
        cg.load_const(self.name)
        for base in self.bases:
            cg.load(base)
        cg.asm.build_tuple(len(self.bases))
        cg.load_const(self.template)
        cg.load_const(tuple(self.initializers))
        shadowing = [name for name in self.attributes.items if name in self.shadowed]
        for name in shadowing:
            cg.load_const(name)
            cg.load(self.attributes.items[name])
        cg.asm.build_map(len(shadowing))
        cg.asm.call(6)

    def emit_fill(self, cg: Codegen) -> None:
        for name, value in self.attributes.items.items():
            placeholder = self.template.get(name, MISSING)
            if self.untouched.get(name) is value or (is_none(value) and placeholder is None) or name in self.shadowed:
                continue
            emit_call(cg, type.__setattr__, self, ConstantVariable(name), value)
            cg.asm.pop_top()
        for descriptor, value in self.kept.items():
            emit_call(cg, type.__setattr__, self, ConstantVariable(descriptor.__name__), value)
            cg.asm.pop_top()
        for subclass in self.registered:
            emit_call(cg, _abc._abc_register, self, subclass)
            cg.asm.pop_top()


class NewMetaTypeVariable(MetaInstance, NewTypeVariable):
    """A class made by the traced code, of a metaclass of its own."""


def _own_doc(tx: Frame, cls: NewTypeVariable) -> VariableTracker | None:
    return type_attribute(tx, cls.value, "__doc__")


def _own_annotations(tx: Frame, cls: NewTypeVariable) -> VariableTracker:
    if cls.own("__annotations__") is None:
        cls.put(tx, "__annotations__", DictVariable())
    return cls.own("__annotations__")


def _own_attribute(name: str) -> Any:
    return lambda tx, cls: cls.own(name)


IN_DICT: dict[Any, Any] = {
    type.__dict__[name]: _own_attribute(name)
    for name in ("__module__", "__abstractmethods__", "__type_params__")
    if name in type.__dict__
}
IN_DICT[type.__dict__["__doc__"]] = _own_doc
IN_DICT[type.__dict__["__annotations__"]] = _own_annotations
"""Getters of `type` for what is kept in the class's dictionary."""

_REFUSED = {"__del__": "del-finalizer"}
"""What no class made under capture may have → the break."""


def _host_names(names: Any) -> frozenset[str]:
    items = names.objects() if isinstance(names, SetVariable) else getattr(names, "items", None)
    return (
        frozenset(map(host_value, items)) if items is not None else unsupported("mutation-of-class", "abstract methods")
    )


_REAL_VALUES = {"__abstractmethods__": _host_names}
"""Attributes of a stand-in that C code looks into → how to make them from the model."""


def new_class_attribute(tx: Frame, cls: type, name: str) -> VariableTracker | None:
    """`type_attribute` for a class made by the traced code."""
    tr = tx.tr
    for base in mro_of(cls):
        tracker = tr.classes.new.get(id(base))
        if tracker is None:
            found = type_attribute(tx, base, name)  # guards that the base keeps its own
            if name in dict_of(base):
                return found
        elif name in tracker.attributes.items:
            return tracker.attributes.items[name]
    return None


# -- what stands for an object in a stand-in


class StandIn:
    """Stands in a stand-in's namespace for an object without a value during the analysis."""


def real_object(vt: VariableTracker) -> Any:
    """The object that represents another one in a stand-in: itself where it exists and can do no harm, a function of the same code, a
    descriptor of its kind, an opaque object."""
    if isinstance(vt, ConstantVariable):
        return vt.value
    made = vt.__dict__.get("stand_in")
    if made is None:
        made = vt.stand_in = _stand_in(vt)
    return made


def _stand_in(vt: VariableTracker) -> Any:
    if isinstance(vt, FunctionVariable):
        if vt.value is not MISSING:
            return vt.value
        cells = tuple(types.CellType() for _ in vt.code.co_freevars)
        return types.FunctionType(vt.code, {}, vt.code.co_name, None, cells)
    if isinstance(vt, PropertyVariable):
        return property()
    if isinstance(vt, (StaticMethodVariable, ClassMethodVariable)):
        function = vt.parts.get("__func__")
        return vt.base(None if function is None else real_object(function))
    return StandIn()


# -- making a real class without running code of the program


class _Shield:
    """Comes right after the new class in its MRO while it is made, so that no `__init_subclass__` is called."""

    __slots__ = ()

    def __init_subclass__(cls, **keywords: Any) -> None:
        pass


def _shielded_mro(cls: type) -> list[type]:
    first, *rest = type.mro(cls)
    return [first, _Shield, *rest]


def bare_class(
    meta: type,
    name: str,
    bases: tuple[type, ...],
    namespace: dict[str, Any],
    initializers: Any = (),
    shadowing: dict[str, Any] | None = None,
) -> type:
    """`type.__new__(meta, name, bases, namespace)` for a namespace without `__set_name__` methods, less `__init_subclass__`.
    `shadowing`: values for names in the namespace under which they can't be stored later."""
    namespace = {**namespace, **(shadowing or {})}
    if any("__init_subclass__" in dict_of(c) for base in bases for c in mro_of(base)[:-1]):
        shielded = type.__new__(type(meta), meta.__name__, (meta,), {"__slots__": (), "mro": _shielded_mro})
        cls = type.__new__(shielded, name, bases, namespace)
        set_metaclass(cls, meta)
        type.__dict__["__bases__"].__set__(cls, bases_of(cls))  # computes the MRO again
        type.__dict__["__bases__"].__set__(shielded, (type,))  # no longer a subclass of `meta`
    else:
        cls = type.__new__(meta, name, bases, namespace)
    for initialize in initializers:
        initialize(cls)
    return cls


# -- descriptors that come with a class


class _OfNewClass(DescriptorVariable):
    """A descriptor that comes with a class made by the traced code."""

    owner: NewTypeVariable = Child()

    def is_python_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        raise NotConstant(f"{self.value.__name__} of a class made by the traced code")

    def emit_new(self, cg: Codegen) -> None:
        emit_call(cg, own_attribute, self.owner, ConstantVariable(self.value.__name__))


def own_attribute(cls: type, name: str) -> Any:
    """The attribute that a class itself has under a name."""
    return type.__dict__["__dict__"].__get__(cls)[name]


class NewSlotDescriptorVariable(_OfNewClass, SlotDescriptorVariable):
    """A member of `__slots__`."""


class NewDictDescriptorVariable(_OfNewClass, InstanceDictDescriptorVariable):
    """`__dict__`."""


class NewWeakrefDescriptorVariable(_OfNewClass, InstanceDictDescriptorVariable):
    """`__weakref__`."""

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if obj is None:
            return self
        if obj.source is not None or id(obj) in tx.tr.lifetimes.proxies:
            return unsupported("weakref", f"{obj.describe()}.__weakref__")
        return tx.tr.lifetimes.references.get(id(obj), NONE)
