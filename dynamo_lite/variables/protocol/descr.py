"""Attribute lookup: the real MRO, descriptors, the generic getattr and setattr.

Input: an object's tracker and a name. Output: the attribute's tracker.
Invariant: what a class defines is read from the real classes and guarded; user descriptors and properties are followed as Python code.
Mirrors `Objects/descrobject.c` and `_PyObject_GenericGetAttrWithDict` of `Objects/object.c`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from dynamo_lite import polyfills
from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.guards.mirror import has_finalizer
from dynamo_lite.isa import c_facts
from dynamo_lite.isa.typeobject import (
    ABSENT,
    Py_TPFLAGS_IMMUTABLETYPE,
    dict_of,
    field_descriptor,
    flags,
    is_heap_type,
    is_written_in_c,
    lookup,
    member_descriptor,
    module_of,
    mro_of,
    qualname_of,
    tp_name,
)

from .abstract import said, type_name
from .base import Plain, VariableTracker, is_lazy
from .constant import NONE, ConstantVariable, is_none
from .dispatch import method
from .wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

METHOD_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def type_lookup(cls: type, name: str) -> Any:
    """`_PyType_Lookup`: the raw class attribute, or `ABSENT`."""
    if mro_of(cls) is None:
        unsupported("class-definition", f"lookup of {name} in a class whose MRO is being made")
    return lookup(cls, name, ABSENT)


_STAND_INS = f"{polyfills.__name__}."


def type_attribute(tx: Frame, cls: type, name: str) -> VariableTracker | None:
    """The tracker of what the MRO of `cls` has under `name` (unbound), guarded; None if nothing."""
    tr = tx.tr
    cache = tr.classes.attributes
    key = (id(cls), name)
    if key in cache:
        return cache[key]
    if name in tr.classes.written_names:
        result = cache[key] = _written_attribute(tx, cls, name)
        return result
    raw = type_lookup(cls, name)
    node = None
    if flags(cls) & Py_TPFLAGS_IMMUTABLETYPE or str(module_of(cls)).startswith(_STAND_INS):
        # A static type of C: its attributes can't be changed. Nobody changes those of our own stand-ins.
        result = tr.wrap(raw, tr.constant_source(raw)) if raw is not ABSENT else None
    else:
        node = tr.source(tr.constant_source(cls), ir.TYPE_ATTR, name)
        if raw is ABSENT:
            tr.guard(node, ir.ABSENT, None)
            result = None
        else:
            result = tr.wrap(raw, node)
    cache[key] = result
    return result


def guarded_lookup(tx: Frame, cls: type, name: str) -> Any:
    """`type_lookup` of what has to be the same next time."""
    attribute = type_attribute(tx, cls, name)
    if is_lazy(attribute):
        attribute._realize()
    return type_lookup(cls, name)


def refuse_finalizer(tx: Frame, cls: type) -> None:
    """Break where the traced code makes an object of a class with a `__del__`: a model dies without running it."""
    if has_finalizer(cls):
        unsupported("del-finalizer", qualname_of(cls))
    if is_heap_type(cls):
        type_attribute(tx, cls, "__del__")  # which it may get


def _written_attribute(tx: Frame, cls: type, name: str) -> VariableTracker | None:
    """`type_attribute` for a name that the traced code has stored on some class."""
    for base in mro_of(cls):
        if has_own(tx, base, name):
            return own_attribute(tx, base, name)
    return None


def has_own(tx: Frame, cls: type, name: str) -> bool:
    """Whether a class itself has the name."""
    writer = tx.tr.classes.written.get(id(cls))
    if writer is not None and name in writer.written:
        return writer.written[name] is not None
    return name in dict_of(cls)


def own_attribute(tx: Frame, cls: type, name: str) -> VariableTracker:
    """The attribute that a class itself has under a name."""
    tr = tx.tr
    writer = tr.classes.written.get(id(cls))
    if writer is not None and name in writer.written:
        return writer.written[name]
    raw = dict_of(cls)[name]
    return tr.wrap(raw, tr.source(tr.constant_source(cls), ir.TYPE_ATTR, name))


def forget(tr: Trace, name: str) -> None:
    """Class attributes are looked up once per run; a store makes the lookup stale."""
    for key in [k for k in tr.classes.attributes if k[1] == name]:
        del tr.classes.attributes[key]


def attribute_name(tx: Frame, name: VariableTracker) -> str:
    """The name that a special method is told."""
    if not issubclass(name.python_type(), str):
        tx.raises(TypeError, f"attribute name must be string, not '{type_name(name)}'")
    return name.atom if name.is_atom else name.as_python_constant()


def generic_getattr(tx: Frame, obj: VariableTracker, name: str) -> VariableTracker:
    """`PyObject_GenericGetAttr`. Raises AttributeError in the traced program."""
    found = generic_lookup(tx, obj, name)
    if found is None:
        message = f"'{type_name(obj)}' object has no attribute '{name}'"
        return tx.raises_naming(AttributeError, message, name=ConstantVariable(name), obj=obj)
    return found


def generic_lookup(tx: Frame, obj: VariableTracker, name: str) -> VariableTracker | None:
    """As `generic_getattr`, None for a missing attribute: data descriptor, instance dictionary, other class attribute."""
    cls = obj.python_type()
    attribute = type_attribute(tx, cls, name)
    if attribute is not None and attribute.tp_descr_set is not None and attribute.tp_descr_get is not None:
        return attribute.tp_descr_get(tx, obj, tx.tr.type_tracker(cls))
    dictionary = obj.instance_dict(tx) if hasattr(obj, "instance_dict") else None
    if dictionary is not None:
        found = dictionary.lookup(tx, ConstantVariable(name))
        if found is not None:
            return found
    if attribute is not None:
        if attribute.tp_descr_get is not None:
            return attribute.tp_descr_get(tx, obj, tx.tr.type_tracker(cls))
        return attribute
    return None


def _no_dict_remark() -> str:
    """The remark that this CPython adds to the message when an object has no `__dict__` to store an attribute in."""
    try:
        object().name = None
    except AttributeError as error:
        return str(error).partition("'name'")[2]
    raise AssertionError("plain objects have no attributes")


_NO_DICT = _no_dict_remark()


def generic_setattr(tx: Frame, obj: VariableTracker, name: str, value: VariableTracker | None) -> None:
    """`PyObject_GenericSetAttr`; deletes when `value` is None."""
    cls = obj.python_type()
    attribute = type_attribute(tx, cls, name)
    if attribute is not None and attribute.tp_descr_set is not None:
        attribute.tp_descr_set(tx, obj, value)
        return
    dictionary = obj.instance_dict(tx) if hasattr(obj, "instance_dict") else None
    if dictionary is None:
        if attribute is not None:
            tx.raises(AttributeError, f"'{type_name(obj)}' object attribute '{name}' is read-only")
        tx.raises(AttributeError, f"'{type_name(obj)}' object has no attribute '{name}'{_NO_DICT}")
    if value is None and dictionary.lookup(tx, ConstantVariable(name)) is None:
        tx.raises(AttributeError, f"'{type_name(obj)}' object has no attribute '{name}'")
    dictionary.mp_ass_subscript(tx, ConstantVariable(name), value)


class PlainObject(VariableTracker):
    """An object of a builtin type with the attributes, and the hash, of `object`."""

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        generic_setattr(tx, self, name, value)

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return tx.tr.heap.identity_hash(self)


class DescriptorVariable(VariableTracker):
    """A class attribute that is a C or builtin descriptor, known by identity."""

    value: Any = Plain()

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return repr(self.value)

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        try:
            real = getattr(self.value, name)
        except AttributeError as error:
            tx.raises_like(error)
        return tx.tr.build_constant_object(real)


def check_object(tx: Frame, descriptor: Any, obj: VariableTracker) -> None:
    """`descr_check`."""
    owner = descriptor.__objclass__
    if not any(base is owner for base in mro_of(obj.python_type())):
        what = f"descriptor '{descriptor.__name__}' for '{tp_name(owner)}' objects"
        tx.raises(TypeError, f"{what} doesn't apply to a '{type_name(obj)}' object")


class SlotDescriptorVariable(DescriptorVariable):
    """A member descriptor made by `__slots__`."""

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if obj is None:
            return self
        check_object(tx, self.value, obj)
        if not hasattr(obj, "get_slot"):
            return foreign_attribute(tx, obj, self.value)
        found = obj.get_slot(tx, self.value)
        if found is None:
            return tx.raises(AttributeError, said(c_facts.EMPTY_SLOT, cls.value, attribute=self.value.__name__))
        return found

    def tp_descr_set(self, tx: Frame, obj: VariableTracker, value: VariableTracker | None) -> None:
        check_object(tx, self.value, obj)
        if not hasattr(obj, "set_slot"):
            unsupported("mutation-of-unknown-object", self.describe())
        if value is None and obj.get_slot(tx, self.value) is None:
            tx.raises(AttributeError, self.value.__name__)
        obj.set_slot(tx, self.value, value)


GETSETS: dict[Any, tuple[Any, Any]] = {}
"""Real getset or member descriptor of a C type → (getter(tx, obj), setter(tx, obj, value | None) | None)."""


def getset(descriptor: Any, setter: object = None) -> Any:
    """Register the getter (decorated) and setter of a C attribute."""

    def decorate(getter: object) -> Any:
        GETSETS[descriptor] = (getter, setter)
        return getter

    return decorate


class GetSetVariable(DescriptorVariable):
    """An attribute implemented in C."""

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if obj is None:
            return self
        check_object(tx, self.value, obj)
        entry = GETSETS.get(self.value)
        if entry is not None:
            return entry[0](tx, obj)
        return foreign_attribute(tx, obj, self.value)

    def tp_descr_set(self, tx: Frame, obj: VariableTracker, value: VariableTracker | None) -> None:
        check_object(tx, self.value, obj)
        entry = GETSETS.get(self.value)
        if entry is None or entry[1] is None:
            unsupported("mutation-of-unknown-object", self.describe())
        entry[1](tx, obj, value)


@method(types.GetSetDescriptorType.__get__, types.MemberDescriptorType.__get__)
def descriptor_get(
    tx: Frame, self: VariableTracker, obj: VariableTracker, cls: VariableTracker | None = None
) -> VariableTracker:
    """`wrap_descr_get`."""
    owner = obj if not is_none(obj) else None
    if owner is None and is_none(cls):
        return tx.raises(TypeError, "__get__(None, None) is invalid")
    return self.tp_descr_get(tx, owner, tx.tr.type_of(tx, obj) if is_none(cls) else cls)


@method(types.GetSetDescriptorType.__set__, types.MemberDescriptorType.__set__)
def descriptor_set(tx: Frame, self: VariableTracker, obj: VariableTracker, value: VariableTracker) -> VariableTracker:
    """`wrap_descr_set`."""
    self.tp_descr_set(tx, obj, value)
    return NONE


@method(types.GetSetDescriptorType.__delete__, types.MemberDescriptorType.__delete__)
def descriptor_delete(tx: Frame, self: VariableTracker, obj: VariableTracker) -> VariableTracker:
    """`wrap_descr_delete`."""
    self.tp_descr_set(tx, obj, None)
    return NONE


class InstanceDictDescriptorVariable(DescriptorVariable):
    """The `__dict__` attribute of a class's instances."""

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if obj is None:
            return self
        dictionary = obj.instance_dict(tx) if hasattr(obj, "instance_dict") else None
        return (
            dictionary
            if dictionary is not None
            else unsupported("attribute-of-unknown-object", f"{obj.describe()}.__dict__")
        )

    def tp_descr_set(self, tx: Frame, obj: VariableTracker, value: VariableTracker | None) -> None:
        if self.value is types.ModuleType.__dict__["__dict__"]:
            tx.raises(AttributeError, "readonly attribute")
        cls = obj.python_type()
        if value is None and not issubclass(cls, type) and any(map(_has_dict_in_c, mro_of(cls))):
            tx.raises(TypeError, "cannot delete __dict__")
        if not hasattr(obj, "replace_dict"):
            unsupported("mutation-of-unknown-object", f"{obj.describe()}.__dict__")
        obj.replace_dict(tx, value)


def _has_dict_in_c(cls: type) -> bool:
    """Whether it is C code that gives instances their `__dict__` (`get_builtin_base_with_dict`)."""
    return is_written_in_c(cls) and "__dict__" in type.__dict__["__dict__"].__get__(cls)


def member_source(tr: Trace, obj: VariableTracker, descriptor: Any) -> Any:
    """The path of what a field or slot of an object from outside holds; None if another one of that name hides it."""
    cls, name = type(obj.value), descriptor.__name__
    for kind, find in ((ir.FIELD, field_descriptor), (ir.MEMBER, member_descriptor)):
        if find(cls, name) is descriptor:
            return tr.source(obj.source, kind, name)
    return None


def foreign_attribute(tx: Frame, obj: VariableTracker, descriptor: Any) -> VariableTracker:
    """An attribute that C code computes: of a constant it is a constant; of a sourced object it is read again by each guard check."""
    name = descriptor.__name__
    if obj.is_python_constant():
        try:
            real = getattr(obj.as_python_constant(), name)
        except AttributeError as error:
            tx.raises_like(error)
        return tx.tr.build_constant_object(real)
    node = None if obj.source is None or obj.mutated else member_source(tx.tr, obj, descriptor)
    if node is not None:
        try:
            real = descriptor.__get__(obj.value)
        except AttributeError as error:
            tx.tr.guard(node, ir.ABSENT, None)
            tx.raises_like(error)
        except Exception as error:  # a buffer that has been released …
            return unsupported("attribute-of-unknown-object", f"{descriptor!r}: {error}")
        tx.tr.expect(node)
        return tx.tr.wrap(real, node)
    return unsupported("attribute-of-unknown-object", f"{descriptor!r}")


@builds(types.GetSetDescriptorType, types.MemberDescriptorType)
def build_getset(tr: Trace, value: Any, source: GuardNode | None) -> DescriptorVariable:
    tr.guard(source, ir.IS, value)
    if value.__name__ == "__dict__" and value not in GETSETS:
        return InstanceDictDescriptorVariable(value, source)
    slotted = type(value) is types.MemberDescriptorType and value not in GETSETS and is_heap_type(value.__objclass__)
    return SlotDescriptorVariable(value, source) if slotted else GetSetVariable(value, source)
