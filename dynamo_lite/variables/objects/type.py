"""Classes: attribute lookup on types, instantiation.

Input: a real class. Output: `TypeVariable`; instances made by calling it.
Invariant: a class is known by identity; what is read from it is guarded attribute by attribute.
Mirrors `Objects/typeobject.c` (`type_getattro`, `type_call`).
"""

from __future__ import annotations

import gc
import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import Py_TPFLAGS_IMMUTABLETYPE, dict_of, flags, mro_of, qualname_of, tp_name
from dynamo_lite.polyfills.registry import find_polyfill
from dynamo_lite.variables.builtin.dict import MappingProxyVariable
from dynamo_lite.variables.builtin.genericalias import combine
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.protocol.abstract import class_path, is_subtype, known_mro, message_name, type_name
from dynamo_lite.variables.protocol.base import ObservedException, Plain, VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import NOT_IMPLEMENTED, ConstantVariable, fold, is_constant, is_none
from dynamo_lite.variables.protocol.descr import (
    GETSETS,
    attribute_name,
    forget,
    getset,
    has_own,
    type_attribute,
    type_lookup,
)
from dynamo_lite.variables.protocol.dispatch import CONSTRUCTORS, PURE, builtin, method
from dynamo_lite.variables.protocol.markers import refuse_marked
from dynamo_lite.variables.protocol.native import emit_call, readonly
from dynamo_lite.variables.protocol.slot_functions import UserSlots, special
from dynamo_lite.variables.protocol.wrap import builds, builds_subclasses

from .function import call_handler, call_stand_in

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

_MARKS = frozenset({"__final__", "__no_type_check__", "__override__"})
"""What the decorators of `typing` leave on classes, for which nobody looks in the real class."""


class TypeVariable(VariableTracker):
    """A class that exists before the frame, of the metaclass `type`. `written` has what the traced code stored on it, None for what it
    deleted, and comes before the class's own attributes in all lookups; a store of a special method breaks."""

    written: dict[str, VariableTracker | None] = {}

    value: type = Plain()

    def python_type(self) -> type:
        return type(self.value)

    def children(self) -> Any:
        return [v for v in self.written.values() if v is not None]

    def item_at(self, kind: int, arg: Any) -> Any:
        return self.written.get(arg) if kind == ir.TYPE_ATTR else None

    def emit_update(self, cg: Codegen) -> None:
        for name, value in self.written.items():
            if value is None and name not in self.value.__dict__:
                continue  # stored and deleted again
            if value is None:
                emit_call(cg, type.__delattr__, self, ConstantVariable(name))
            else:
                emit_call(cg, type.__setattr__, self, ConstantVariable(name), value)
            cg.asm.pop_top()

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return qualname_of(self.value)

    # -- attributes

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        found = type_getattro(tx, self, name)
        return found if found is not None else self.missing_attribute(tx, name)

    def missing_attribute(self, tx: Frame, name: str) -> VariableTracker:
        """Raise what `type_getattro` raises."""
        message = f"type object '{message_name(self.value)}' has no attribute '{name}'"
        return tx.raises_naming(AttributeError, message, name=ConstantVariable(name), obj=self)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        self.store_attribute(tx, name, value)

    def store_attribute(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        """`type_setattro`. Special methods are looked up in the real class in many places, which would not see the change."""
        cls = self.value
        if flags(cls) & Py_TPFLAGS_IMMUTABLETYPE:
            tx.raises(TypeError, f"cannot set {name!r} attribute of immutable type '{tp_name(cls)}'")
        namespace = tx.tr.heap.get(id(namespace_of(cls)))
        if (name[:2] == name[-2:] == "__" and name not in _MARKS) or (namespace is not None and not is_lazy(namespace)):
            unsupported("mutation-of-class", f"{qualname_of(cls)}.{name}")
        meta_attribute = type_attribute(tx, self.python_type(), name)
        if meta_attribute is not None and meta_attribute.tp_descr_set is not None:
            meta_attribute.tp_descr_set(tx, self, value)
            return
        if value is None and not has_own(tx, cls, name):
            self.missing_attribute(tx, name)
        if not has_own(tx, cls, name):
            type_attribute(tx, cls, name)  # guards that the class does not get one meanwhile
        self._write(tx, name, value)

    def _write(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        tx.tr.effects.mutating(self)
        if value is None:
            node = tx.tr.source(tx.tr.constant_source(self.value), ir.CALL, namespace_of)
            tx.tr.guard(node, ir.HAS_KEY if name in self.value.__dict__ else ir.LACKS_KEY, name)
        tx.tr.classes.written[id(self.value)] = self
        tx.tr.classes.written_names.add(name)
        self.written = {**self.written, name: value}
        forget(tx.tr, name)

    def member(self, tx: Frame, descriptor: Any) -> VariableTracker:
        """An attribute that C code computes of a class: `__name__`, `__mro__`, `__bases__` …"""
        if descriptor.__name__ == "__annotations__" and _makes_annotations(self.value):
            text = f"annotations of {self.describe()}, which it makes when they are first asked for"
            return unsupported("call-c-function", text)
        # Not `ATTR`: a guard must not run the `__getattribute__` of a metaclass.
        node = tx.tr.source(tx.tr.constant_source(self.value), ir.FIELD, descriptor.__name__)
        try:
            real = descriptor.__get__(self.value)
        except AttributeError as error:
            tx.tr.guard(node, ir.ABSENT, None)
            tx.raises_like(error)
        tx.tr.expect(node)
        return tx.tr.wrap(real, node)

    def store_member(self, tx: Frame, descriptor: Any, value: VariableTracker | None) -> None:
        """The setters of these."""
        self.store_attribute(tx, descriptor.__name__, value)

    def namespace_proxy(self, tx: Frame) -> VariableTracker:
        """`cls.__dict__`, which is another object at each access."""
        if self.written:
            unsupported("mutation-of-class", f"{qualname_of(self.value)}.__dict__ after a change")
        node = tx.tr.source(tx.tr.constant_source(self.value), ir.CALL, namespace_of)
        return MappingProxyVariable(tx.tr.wrap(namespace_of(self.value), node))

    # -- slots

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return type_call(tx, self, args, kwargs)

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        """`PyObject_GetItem` of a class: the metatype's `__getitem__`, else `__class_getitem__`."""
        meta = self.python_type()
        meta_item = type_attribute(tx, meta, "__getitem__") if meta is not type else None
        if meta_item is not None:
            return tx.call(special(tx, self, "__getitem__"), [key])
        if self.value is type:
            return fold(tx, types.GenericAlias, [self, key], {})
        hook = type_attribute(tx, self.value, "__class_getitem__")
        if hook is None:
            return tx.raises(TypeError, f"type '{message_name(self.value)}' is not subscriptable")
        if self.is_python_constant() and key.is_python_constant() and not hasattr(hook, "function"):
            return tx.tr.build_constant_object(self.value[key.as_python_constant()])
        return tx.call(self.tp_getattro(tx, "__class_getitem__"), [key])

    @staticmethod
    def nb_or(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        """`int | None` at run time."""
        return combine(tx, v, w) if is_constant(v, w) else NOT_IMPLEMENTED

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return tx.tr.heap.identity_hash(self)

    def tp_repr(self, tx: Frame) -> VariableTracker:
        """`type_repr`."""
        class_path(self.value)
        return ConstantVariable(type.__repr__(self.value))


class MetaInstance(UserSlots):
    """Mixed into the model of a class whose metaclass is not `type` itself: special methods come from the metaclass."""

    @property
    def cls(self) -> type:
        return self.python_type()

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        """`slot_tp_getattr_hook`."""
        meta = self.python_type()
        lookup = type_attribute(tx, meta, "__getattribute__")
        hook = type_attribute(tx, meta, "__getattr__")
        if lookup.value is type.__dict__["__getattribute__"] and hook is None:
            return TypeVariable.tp_getattro(self, tx, name)
        try:
            return tx.call(special(tx, self, "__getattribute__"), [ConstantVariable(name)])
        except ObservedException as observed:
            if hook is None or not issubclass(observed.exc.python_type(), AttributeError):
                raise
        return tx.call(special(tx, self, "__getattr__"), [ConstantVariable(name)])

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        dunder, args = ("__delattr__", []) if value is None else ("__setattr__", [value])
        tx.call(special(tx, self, dunder), [ConstantVariable(name), *args])

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        hook = type_attribute(tx, self.python_type(), "__call__")
        if hook.value is type.__dict__["__call__"]:
            return type_call(tx, self, args, kwargs)
        return tx.call(special(tx, self, "__call__"), args, kwargs)

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        return TypeVariable.mp_subscript(self, tx, key)


class MetaTypeVariable(MetaInstance, TypeVariable):
    """A class that exists before the frame, of a metaclass of its own."""


def type_getattro(tx: Frame, cls: TypeVariable, name: str) -> VariableTracker | None:
    """`type_getattro`: metatype data descriptor, own MRO (descriptors bound to nothing), metatype attribute; None for none of these."""
    meta = cls.python_type()
    meta_attribute = type_attribute(tx, meta, name)
    if (
        meta_attribute is not None
        and meta_attribute.tp_descr_get is not None
        and meta_attribute.tp_descr_set is not None
    ):
        return meta_attribute.tp_descr_get(tx, cls, tx.tr.type_tracker(meta))
    attribute = type_attribute(tx, cls.value, name)
    if attribute is not None:
        return attribute.tp_descr_get(tx, None, cls) if attribute.tp_descr_get is not None else attribute
    if meta_attribute is None or meta_attribute.tp_descr_get is None:
        return meta_attribute
    return meta_attribute.tp_descr_get(tx, cls, tx.tr.type_tracker(meta))


def _makes_annotations(cls: type) -> bool:
    """Whether a class would run code of the program when it is asked for its annotations (PEP 649)."""
    namespace = dict_of(cls)
    is_made = "__annotations__" in namespace or "__annotations_cache__" in namespace
    return not is_made and namespace.get("__annotate_func__") is not None


def namespace_of(cls: type) -> dict[str, Any]:
    """The dictionary behind `cls.__dict__`."""
    return gc.get_referents(type.__dict__["__dict__"].__get__(cls))[0]


def _register_member(descriptor: object) -> None:
    @getset(descriptor, lambda tx, cls, value: cls.store_member(tx, descriptor, value))
    def get(tx: Frame, cls: TypeVariable, /) -> VariableTracker:
        return cls.member(tx, descriptor)


_DISALLOW_INSTANTIATION, _VALID_VERSION_TAG, _IS_ABSTRACT = 1 << 7, 1 << 19, 1 << 20


def lasting_flags(cls: type) -> int:
    """`flags(cls)` without the one that says whether the interpreter has cached a lookup."""
    return flags(cls) & ~_VALID_VERSION_TAG


@getset(type.__dict__["__flags__"], readonly(type.__dict__["__flags__"]))
def type_flags(tx: Frame, cls: TypeVariable, /) -> VariableTracker:
    if cls.is_python_constant():
        tx.tr.guard(
            tx.tr.source(tx.tr.constant_source(cls.value), ir.CALL, lasting_flags), ir.EQUALS, lasting_flags(cls.value)
        )
    return ConstantVariable(flags(cls.value))


for _descriptor in type.__dict__.values():
    if type(_descriptor) in (types.GetSetDescriptorType, types.MemberDescriptorType):
        if _descriptor in GETSETS:
            continue
        if _descriptor.__name__ == "__dict__":
            getset(_descriptor, readonly(_descriptor))(lambda tx, cls: cls.namespace_proxy(tx))
        else:
            _register_member(_descriptor)


_NAMES = {str}


def _check_names(cls: type) -> None:
    """Keys that are no strings would have their `__eq__` called by each lookup of the analysis."""
    if not _NAMES.issuperset(map(type, type.__dict__["__dict__"].__get__(cls))):
        unsupported("attribute-of-unknown-object", f"{qualname_of(cls)}, in whose namespace not all keys are strings")


@builds(type)
def build_type(tr: Trace, value: type, source: GuardNode | None) -> TypeVariable:
    _check_names(value)
    tr.guard(source, ir.IS, value)
    return TypeVariable(value, source)


@builds_subclasses(type)
def build_meta_instance(tr: Trace, value: type, source: GuardNode | None) -> TypeVariable:
    _check_names(value)
    tr.guard(source, ir.IS, value)
    return MetaTypeVariable(value, source)


# -- calling


def type_call(
    tx: Frame, cls: TypeVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """`type_call`: `__new__`, then `__init__` if the result is an instance."""
    real = cls.value
    refuse_marked(real)
    handler = CONSTRUCTORS.get(real)
    if handler is not None:
        return call_handler(tx, real, handler, [cls, *args], kwargs)
    if real in PURE and is_constant(*args, *kwargs.values()):
        return fold(tx, real, args, kwargs)
    polyfill = find_polyfill(real) if type(real) is type else None  # a metaclass would be asked for attributes
    if polyfill is not None:
        return call_stand_in(tx, real, polyfill, args, kwargs)
    if flags(real) & _DISALLOW_INSTANTIATION:
        tx.raises(TypeError, f"cannot create '{tp_name(real)}' instances")
    foreign = tx.tr.construct_foreign(tx, cls, args, kwargs)
    if foreign is not None:
        return foreign
    obj = tx.call(_new_of(tx, cls), [cls, *args], kwargs)
    if not is_subtype(tx, obj.python_type(), real):
        return obj
    init = type_attribute(tx, obj.python_type(), "__init__")
    result = tx.call(init.tp_descr_get(tx, obj, cls) if init.tp_descr_get else init, args, kwargs)
    if not is_none(result):
        tx.raises(TypeError, f"__init__() should return None, not '{type_name(result)}'")
    return obj


def _new_of(tx: Frame, cls: TypeVariable) -> VariableTracker:
    """What makes an instance. `slot_tp_new`, which a class statement with a `__new__` installs, asks the class for it as Python code does,
    and so its metaclass; C code has it in a slot."""
    new = type_attribute(tx, cls.value, "__new__")
    if isinstance(cls, MetaInstance) and type(getattr(new, "value", None)) is not types.BuiltinFunctionType:
        return cls.tp_getattro(tx, "__new__")
    return new.tp_descr_get(tx, None, cls) if new.tp_descr_get is not None else new


@builtin(object.__new__)
def object_new(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    real = cls.value
    # A class that stores `object.__new__` may have another function in its slot.
    is_plain = not any("__new__" in dict_of(base) for base in mro_of(real)[:-1])
    takes_none = not is_plain or type_lookup(real, "__init__") is object.__init__
    if flags(real) & _IS_ABSTRACT or ((args or kwargs) and takes_none):
        return unsupported("arguments-mismatch", f"object.__new__() of {qualname_of(real)}, which raises TypeError")
    return tx.tr.new_instance(tx, real)


@method(type.__call__)
def type_dunder_call(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    return type_call(tx, cls, list(args), kwargs)


@method(type.__getattribute__)
def type_getattribute(tx: Frame, cls: TypeVariable, name: VariableTracker, /) -> VariableTracker:
    return TypeVariable.tp_getattro(cls, tx, attribute_name(tx, name))


@method(type.__setattr__)
def type_setattr(tx: Frame, cls: TypeVariable, name: VariableTracker, value: VariableTracker, /) -> None:
    cls.store_attribute(tx, attribute_name(tx, name), value)


@method(type.__delattr__)
def type_delattr(tx: Frame, cls: TypeVariable, name: VariableTracker, /) -> None:
    cls.store_attribute(tx, attribute_name(tx, name), None)


@method(type.mro)
def type_mro(tx: Frame, cls: VariableTracker, /) -> VariableTracker:
    if mro_of(cls.value) is None:  # asked for by a metaclass before the class is complete
        return unsupported("class-definition", "type.mro of a class in the making")
    known_mro(tx, cls.value)
    return ListVariable([tx.tr.type_tracker(base) for base in type.mro(cls.value)])
