"""Classes: attribute lookup on types, instantiation, `super`.

Input: a real class. Output: `TypeVariable`; instances made by calling it.
Invariant: a class is known by identity; what is read from it is guarded attribute by attribute.
Mirrors `Objects/typeobject.c` (`type_getattro`, `type_call`, `super_getattro`).
"""

from __future__ import annotations

import _abc
import types
from typing import Any

from ..exc import unsupported
from ..guards import ir
from .base import VariableTracker
from .constant import ConstantVariable, fold, is_constant
from .descr import type_attribute, type_lookup
from .dispatch import CONSTRUCTORS, PURE, builtin, constructor, method
from .function import BuiltinVariable, FunctionVariable, call_handler
from .wrap import builds, builds_subclasses


class TypeVariable(VariableTracker):
    """A class that exists before the frame."""

    def __init__(self, value: type, source: Any = None) -> None:
        self.value = value
        self.source = source

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def describe(self) -> str:
        return self.value.__qualname__

    # -- attributes

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        """`type_getattro`: metatype data descriptor, own MRO (descriptors bound to nothing), metatype attribute."""
        meta = type(self.value)
        meta_attribute = type_attribute(tx, meta, name)
        if (
            meta_attribute is not None
            and meta_attribute.tp_descr_get is not None
            and meta_attribute.tp_descr_set is not None
        ):
            return self._meta_descriptor(tx, meta_attribute, name)
        attribute = type_attribute(tx, self.value, name)
        if attribute is not None:
            if attribute.tp_descr_get is not None:
                return attribute.tp_descr_get(tx, None, self)
            return attribute
        if meta_attribute is not None:
            if meta_attribute.tp_descr_get is not None:
                return meta_attribute.tp_descr_get(tx, self, tx.tr.type_tracker(meta))
            return meta_attribute
        hook = type_attribute(tx, meta, "__getattr__")
        if hook is not None:
            return tx.call(hook, [self, ConstantVariable(name)])
        message = f"type object '{self.value.__name__}' has no attribute '{name}'"
        return tx.raises_naming(AttributeError, message, name=ConstantVariable(name), obj=self)

    def _meta_descriptor(self, tx: Any, attribute: VariableTracker, name: str) -> VariableTracker:
        if isinstance(attribute.value, (types.GetSetDescriptorType, types.MemberDescriptorType)):
            # __name__, __mro__, __dict__, __bases__ … of a class.
            node = tx.tr.source(tx.tr.constant_source(self.value), ir.ATTR, name)
            try:
                real = getattr(self.value, name)
            except AttributeError as error:
                tx.tr.guard(node, ir.ABSENT, None)
                tx.raises_like(error)
            return tx.tr.wrap(real, node)
        return attribute.tp_descr_get(tx, self, tx.tr.type_of(tx, self))

    def tp_setattro(self, tx: Any, name: str, value: VariableTracker | None) -> None:
        unsupported("mutation-of-class", f"{self.value.__qualname__}.{name}")

    # -- calls

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        hook = type_attribute(tx, type(self.value), "__call__")
        if isinstance(hook, FunctionVariable):
            return tx.call(hook, [self, *args], kwargs)
        return type_call(tx, self, args, kwargs)

    def mp_subscript(self, tx: Any, key: VariableTracker) -> VariableTracker:
        """`Cls[key]`: the metatype's `__getitem__`, else `__class_getitem__`."""
        meta_item = type_attribute(tx, type(self.value), "__getitem__")
        if meta_item is not None:
            return tx.call(meta_item, [self, key])
        hook = type_attribute(tx, self.value, "__class_getitem__")
        if hook is None:
            return tx.raises(TypeError, f"type '{self.value.__name__}' is not subscriptable")
        if key.is_python_constant() and not isinstance(hook, FunctionVariable):
            return tx.tr.build_constant_object(self.value[key.as_python_constant()])
        return tx.call(hook.tp_descr_get(tx, None, self), [key])

    def nb_or(tx: Any, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        """`int | None` at run time."""
        return fold(tx, lambda a, b: a | b, [v, w], {}) if is_constant(v, w) else ConstantVariable(NotImplemented)

    nb_or = staticmethod(nb_or)

    def _meta_slot(self, dunder: str) -> Any:
        return type_lookup(type(self.value), dunder)

    @property
    def tp_iter(self) -> Any:
        """Classes are iterable if their metaclass says so (Enum)."""
        if not isinstance(self._meta_slot("__iter__"), types.FunctionType):
            return None
        return lambda tx: tx.call(type_attribute(tx, type(self.value), "__iter__"), [self])

    @property
    def nb_bool(self) -> Any:
        if not isinstance(self._meta_slot("__bool__"), types.FunctionType):
            return None
        return lambda tx: tx.call(type_attribute(tx, type(self.value), "__bool__"), [self])

    @property
    def mp_length(self) -> Any:
        if not isinstance(self._meta_slot("__len__"), types.FunctionType):
            return None
        return lambda tx: tx.call(type_attribute(tx, type(self.value), "__len__"), [self])

    @property
    def sq_contains(self) -> Any:
        if not isinstance(self._meta_slot("__contains__"), types.FunctionType):
            return None
        return lambda tx, item: tx.call(type_attribute(tx, type(self.value), "__contains__"), [self, item])

    def tp_hash(self, tx: Any) -> VariableTracker:
        return tx.tr.identity_hash(self)


@builds(type)
@builds_subclasses(type)
def build_type(tr: Any, value: type, source: Any) -> TypeVariable:
    tr.guard(source, ir.IS, value)
    return TypeVariable(value, source)


def type_call(
    tx: Any, cls: TypeVariable, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """`type_call`: `__new__`, then `__init__` if the result is an instance."""
    real = cls.value
    handler = CONSTRUCTORS.get(real)
    if handler is not None:
        return call_handler(tx, real, handler, [cls, *args], kwargs)
    if real in PURE and is_constant(*args, *kwargs.values()):
        return fold(tx, real, args, kwargs)
    foreign = tx.tr.construct_foreign(tx, cls, args, kwargs)
    if foreign is not None:
        return foreign
    new = type_attribute(tx, real, "__new__")
    obj = tx.call(
        new.tp_descr_get(tx, None, cls) if isinstance(new, BuiltinVariable) else _unwrapped(tx, new),
        [cls, *args],
        kwargs,
    )
    if not issubclass(obj.python_type(), real):
        return obj
    init = type_attribute(tx, obj.python_type(), "__init__")
    result = tx.call(init.tp_descr_get(tx, obj, cls) if init.tp_descr_get else init, args, kwargs)
    if not (result.is_python_constant() and result.as_python_constant() is None):
        tx.raises(TypeError, f"__init__() should return None, not '{result.python_type().__name__}'")
    return obj


def _unwrapped(tx: Any, new: VariableTracker) -> VariableTracker:
    """`__new__` is a staticmethod."""
    return new.tp_descr_get(tx, None, None) if new.tp_descr_get is not None else new


@builtin(object.__new__)
def object_new(tx: Any, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    real = cls.value
    if (args or kwargs) and real.__new__ is not object.__new__:
        return tx.raises(TypeError, "object.__new__() takes exactly one argument (the type to instantiate)")
    if (args or kwargs) and real.__init__ is object.__init__:
        return tx.raises(TypeError, f"{real.__name__}() takes no arguments")
    if getattr(real, "__abstractmethods__", None):
        names = ", ".join(sorted(real.__abstractmethods__))
        plural = "s" if len(real.__abstractmethods__) > 1 else ""
        return tx.raises(
            TypeError, f"Can't instantiate abstract class {real.__name__} with abstract method{plural} {names}"
        )
    return tx.tr.new_instance(tx, real)


@method(type.__call__)
def type_dunder_call(
    tx: Any, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    return type_call(tx, cls, list(args), kwargs)


@method(type.__instancecheck__)
def type_instancecheck(tx: Any, cls: VariableTracker, obj: VariableTracker) -> VariableTracker:
    return ConstantVariable(issubclass(obj.python_type(), cls.value))


@method(type.__subclasscheck__)
def type_subclasscheck(tx: Any, cls: VariableTracker, sub: VariableTracker) -> VariableTracker:
    return ConstantVariable(type.__subclasscheck__(cls.value, sub.value))


@builtin(_abc._abc_instancecheck)
def abc_instancecheck(tx: Any, cls: VariableTracker, obj: VariableTracker) -> VariableTracker:
    return ConstantVariable(issubclass(obj.python_type(), cls.value))


@builtin(_abc._abc_subclasscheck)
def abc_subclasscheck(tx: Any, cls: VariableTracker, sub: VariableTracker) -> VariableTracker:
    return ConstantVariable(issubclass(sub.value, cls.value))


@method(type.mro)
def type_mro(tx: Any, cls: VariableTracker) -> VariableTracker:
    if cls.value.__mro__ is None:  # asked for by a metaclass before the class is complete
        return unsupported("class-definition", "type.mro of a class in the making")
    return tx.tr.wrap_new(list(cls.value.__mro__))


# -- super


class SuperVariable(VariableTracker):
    """`super(start, obj)`; `obj` is an instance or a class."""

    def __init__(self, start: type, obj: VariableTracker) -> None:
        self.start = start
        self.obj = obj
        self.bound_to_class = isinstance(obj, TypeVariable) and issubclass(obj.value, start)
        self.obj_type = obj.value if self.bound_to_class else obj.python_type()

    def python_type(self) -> type:
        return super

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        """`super_getattro`: the MRO of the object's type, after `start`."""
        if name == "__class__":
            return tx.tr.type_tracker(super)
        mro = self.obj_type.__mro__
        for base in mro[mro.index(self.start) + 1 :]:
            if name in base.__dict__:
                # The whole lookup rests on each class before not having the name and on this one's value.
                attribute = type_attribute(tx, base, name)
                if attribute.tp_descr_get is None:
                    return attribute
                obj = None if self.bound_to_class else self.obj
                return attribute.tp_descr_get(tx, obj, tx.tr.type_tracker(self.obj_type))
        return tx.raises(AttributeError, f"'super' object has no attribute '{name}'")

    def children(self) -> Any:
        return (self.obj,)

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(super)
        cg.load_const(self.start)
        cg.load(self.obj)
        cg.asm.call(2)


@constructor(super)
def new_super(tx: Any, cls: VariableTracker, start: Any = None, obj: Any = None) -> VariableTracker:
    """`super()` and `super(start, obj)`; the empty form reads the frame's `__class__` cell and first argument."""
    if start is None:
        start, obj = _zero_argument_super(tx)
    if obj is None:
        return unsupported("call-unknown-object", "unbound super object")
    return make_super(tx, start, obj)


def make_super(tx: Any, start: VariableTracker, obj: VariableTracker) -> VariableTracker:
    """`super_init_impl` with `supercheck`."""
    real = start.value
    bound = isinstance(obj, TypeVariable) and issubclass(obj.value, real)
    if not bound and not issubclass(obj.python_type(), real):
        return tx.raises(TypeError, "super(type, obj): obj must be an instance or subtype of type")
    return SuperVariable(real, obj)


def _zero_argument_super(tx: Any) -> tuple[VariableTracker, VariableTracker]:
    names = tx.lifted.local_names
    if tx.code.co_argcount == 0:
        tx.raises(RuntimeError, "super(): no arguments")
    first = tx.locals[0]
    if first is not None and tx.lifted.is_cell[0]:
        first = first.get(tx)
    if first is None:
        tx.raises(RuntimeError, "super(): arg[0] deleted")
    if "__class__" not in tx.code.co_freevars:
        tx.raises(RuntimeError, "super(): __class__ cell not found")
    slot = tx.lifted.first_free_slot + tx.code.co_freevars.index("__class__")
    start = tx.locals[slot].get(tx)
    if start is None:
        tx.raises(RuntimeError, f"super(): empty __class__ cell ({names[slot]})")
    return start, first


def super_attribute(
    tx: Any, super_type: VariableTracker, cls: VariableTracker, self: VariableTracker, name: str
) -> VariableTracker:
    """LOAD_SUPER_ATTR; a `super` that was shadowed is called like any callable."""
    if super_type.value is not super:
        return tx.call(super_type, [cls, self]).tp_getattro(tx, name)
    return make_super(tx, cls, self).tp_getattro(tx, name)
