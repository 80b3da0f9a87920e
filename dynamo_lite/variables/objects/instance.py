"""Instances of user classes.

Input: a real object of a class without a model of its own, or a class to instantiate. Output: `InstanceVariable`, and mixtures of it
with a native model for subclasses of builtin types.
Invariant: attributes live in one `DictVariable` that stands for the object's real `__dict__`, and in `slots`; special methods are
looked up on the type, as `slot_*` do.
Mirrors `Objects/typeobject.c` (`slot_nb_add` and the like) and `Objects/object.c`.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.guards.source import own_dict
from dynamo_lite.isa.typeobject import (
    MEMBER_DESCRIPTORS,
    dict_of,
    dictoffset_of,
    is_heap_type,
    is_written_in_c,
    member_descriptor,
    mro_of,
    name_of,
    qualname_of,
)
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import is_true, type_name
from dynamo_lite.variables.protocol.base import (
    MISSING,
    Child,
    Children,
    ObservedException,
    Plain,
    VariableTracker,
    missing_from,
)
from dynamo_lite.variables.protocol.constant import ATOM_BASES, ConstantVariable, fold
from dynamo_lite.variables.protocol.descr import (
    attribute_name,
    generic_getattr,
    generic_lookup,
    generic_setattr,
    getset,
    guarded_lookup,
    refuse_finalizer,
    type_attribute,
    type_lookup,
)
from dynamo_lite.variables.protocol.dispatch import HANDLERS, method
from dynamo_lite.variables.protocol.slot_functions import UserSlots, defines, special
from dynamo_lite.variables.protocol.wrap import builds_subclasses

from .function import BuiltinVariable, FunctionVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

STATELESS: set[type] = {object}
"""Types of C whose instances have no state but their `__dict__`."""


_LOOKUPS = {super.__getattribute__, _thread._local.__getattribute__}
_STORES = {_thread._local.__setattr__, _thread._local.__delattr__}
"""Lookups and stores of C types that differ from those of `object`."""


class InstanceDictVariable(DictVariable):
    """The `__dict__` of an object that the traced code made, which comes with the object."""

    owner: InstanceVariable

    @classmethod
    def of(cls, owner: InstanceVariable) -> InstanceDictVariable:
        """The empty dictionary of a new object."""
        result = cls()
        result.owner = owner
        return result

    def children(self) -> Any:
        return [self.owner, *super().children()]

    def emit_new(self, cg: Codegen) -> None:
        self.owner.load_dict(cg)


class InstanceVariable(UserSlots):
    """An object of class `cls`. `dict` is its `__dict__` (None if it has none), `slots` the values of its `__slots__`."""

    dict_replaced = False  # `__dict__` was assigned to
    class_replaced: VariableTracker | None = Child(None, init=False)  # what was assigned to `__class__`
    cls: type = Plain()
    value: Any = Plain(MISSING)
    slots: dict[Any, VariableTracker | None] = Children(factory=dict, init=False)
    dict: Any = Child(MISSING, init=False)

    def describe(self) -> str:
        return f"{name_of(self.cls)} {self.source.path}" if self.source is not None else f"new {name_of(self.cls)}"

    def lacks_layout(self, cls: type) -> bool:
        return cls not in STATELESS and not is_heap_type(cls)

    @property
    def opaque(self) -> bool:
        return any(map(self.lacks_layout, mro_of(self.cls)))

    # -- storage

    def instance_dict(self, tx: Frame) -> DictVariable | None:
        """The tracker of `__dict__`."""
        if self.dict is MISSING:
            if self.source is None:
                self.dict = InstanceDictVariable.of(self) if dictoffset_of(self.cls) else None
            elif issubclass(self.cls, _thread._local):
                self.dict = tx.tr.wrap(dict_of_thread(self.value), tx.tr.source(self.source, ir.CALL, dict_of_thread))
            else:
                real = real_dict(self.value)
                guarded_lookup(tx, self.cls, "__getattribute__")  # which generated code would run
                self.dict = (
                    None if real is None else tx.tr.wrap(real, tx.tr.source(self.source, ir.INSTANCE_DICT, None))
                )
        return self.dict

    def replace_dict(self, tx: Frame, value: VariableTracker | None) -> None:
        """`subtype_setdict`."""
        if value is None:
            value = DictVariable()
        if not issubclass(value.python_type(), dict):
            tx.raises(TypeError, f"__dict__ must be set to a dictionary, not a '{type_name(value)}'")
        before = self.instance_dict(tx)
        if before is None or not isinstance(value, DictVariable):
            unsupported("mutation-of-unknown-object", f"{self.describe()}.__dict__")
        if value is before:
            return
        tx.tr.effects.mutating(self)
        if type(before) is InstanceDictVariable:
            before.__class__ = DictVariable  # it no longer comes with the object
        self.dict, self.dict_replaced = value, True

    def replace_class(self, tx: Frame, value: VariableTracker) -> None:
        """`object_set_class`."""
        cls = value.value
        known = type(self) is InstanceVariable or hasattr(self, "native")
        if not known or self.slots or self.is_atom or tx.tr.instance_class(cls) is not type(self):
            unsupported("mutation-of-unknown-object", f"{self.describe()}.__class__")
        for finalized in (self.cls, cls):
            refuse_finalizer(tx, finalized)
        try:
            bare = next(base for base in mro_of(self.cls) if is_written_in_c(base)).__new__(self.cls)
            object.__dict__["__class__"].__set__(bare, cls)  # past a `__setattr__` of the program
        except TypeError as error:
            tx.raises_like(error)
        self.instance_dict(tx)
        tx.tr.effects.mutating(self)
        self.cls = cls
        if self.source is not None:
            self.class_replaced = value

    def get_slot(self, tx: Frame, descriptor: Any) -> VariableTracker | None:
        """Value of a `__slots__` member, None while unset."""
        if descriptor not in self.slots and self.source is not None:
            if member_descriptor(type(self.value), descriptor.__name__) is not descriptor:
                return unsupported(
                    "attribute-of-unknown-object", f"{descriptor!r} of a class with another slot of that name"
                )
            node = tx.tr.source(self.source, ir.MEMBER, descriptor.__name__)
            try:
                self.slots[descriptor] = tx.tr.wrap(descriptor.__get__(self.value), node)
                tx.tr.expect(node)
            except AttributeError:
                tx.tr.guard(node, ir.ABSENT, None)
                self.slots[descriptor] = None
                self.__dict__.setdefault("empty_slots", set()).add(descriptor)
        return self.slots.get(descriptor)

    def set_slot(self, tx: Frame, descriptor: Any, value: VariableTracker | None) -> None:
        """Store or delete a `__slots__` member."""
        self.get_slot(tx, descriptor)  # what was there says how to replay a deletion
        tx.tr.effects.mutating(self)
        self.slots[descriptor] = value
        self.__dict__.setdefault("written_slots", set()).add(descriptor)

    def item_at(self, kind: int, arg: object) -> Any:
        if kind == ir.INSTANCE_DICT:
            return self.dict if self.dict is not MISSING else None
        slots = self.slots.items() if kind == ir.MEMBER else ()
        return next((value for descriptor, value in slots if descriptor.__name__ == arg), None)

    def let_go(self, tr: Trace) -> Any:
        held = [(None, real_dict(self.value))] if self.dict_replaced else []
        for descriptor in self.__dict__.get("written_slots", ()):
            with contextlib.suppress(AttributeError):
                node = tr.source(self.source, ir.MEMBER, descriptor.__name__)
                held.append((node, descriptor.__get__(self.value)))
        return missing_from(self.children(), held)

    # -- attributes

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        custom = type_attribute(tx, self.cls, "__getattribute__")
        is_slot = isinstance(custom, BuiltinVariable) and type(custom.value) is types.WrapperDescriptorType
        if not is_slot or custom.value in _LOOKUPS:
            try:
                return tx.call(self._bound(tx, custom), [ConstantVariable(name)])
            except ObservedException as observed:
                return self.missing_attribute(tx, name, observed)
        found = generic_lookup(tx, self, name) if self._getters_cannot_raise(tx) else self._guarded_lookup(tx, name)
        return found if found is not None else self.missing_attribute(tx, name, None)

    def _getters_cannot_raise(self, tx: Frame) -> bool:
        return type_attribute(tx, self.cls, "__getattr__") is None

    def _guarded_lookup(self, tx: Frame, name: str) -> VariableTracker | None:
        """Lookup in a class with `__getattr__`: an AttributeError out of a property falls through to it."""
        try:
            return generic_lookup(tx, self, name)
        except ObservedException as observed:
            return self.missing_attribute(tx, name, observed)

    def missing_attribute(self, tx: Frame, name: str, observed: ObservedException | None) -> VariableTracker:
        """`slot_tp_getattr_hook`: `__getattr__` after an AttributeError."""
        is_missing = observed is None or issubclass(observed.exc.python_type(), AttributeError)
        hook = type_attribute(tx, self.cls, "__getattr__") if is_missing else None
        if hook is not None:
            return tx.call(self._bound(tx, hook), [ConstantVariable(name)])
        if observed is not None:
            try:
                raise observed
            finally:
                del observed  # a frame that is raised through and holds the exception would keep itself alive
        message = f"'{type_name(self)}' object has no attribute '{name}'"
        return tx.raises_naming(AttributeError, message, name=ConstantVariable(name), obj=self)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        dunder = "__setattr__" if value is not None else "__delattr__"
        hook = type_attribute(tx, self.cls, dunder)
        if isinstance(hook, BuiltinVariable) and hook.value.__name__ == dunder and hook.value not in _STORES:
            generic_setattr(tx, self, name, value)
            return
        args = [ConstantVariable(name)] if value is None else [ConstantVariable(name), value]
        tx.call(self._bound(tx, hook), args)

    def _bound(self, tx: Frame, hook: VariableTracker) -> VariableTracker:
        """The hook of the class, bound as any attribute: it need not be a function, nor callable."""
        return hook.tp_descr_get(tx, self, tx.tr.type_tracker(self.cls)) if hook.tp_descr_get is not None else hook

    # -- calls

    def direct_call(self, tx: Frame, args: list[VariableTracker]) -> Any:
        hook = type_attribute(tx, self.cls, "__call__")
        return hook.direct_call(tx, [self, *args]) if isinstance(hook, FunctionVariable) else None

    @property
    def tp_call(self) -> Any:
        return self._call if defines(self.cls, "__call__") else None

    def _call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return tx.call(special(tx, self, "__call__"), args, kwargs)

    # -- codegen

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(object.__new__)
        cg.load_const(self.cls)
        cg.asm.call(1)

    def emit_fill(self, cg: Codegen) -> None:
        self.emit_attributes(cg)

    def emit_attributes(self, cg: Codegen) -> None:
        """Store the attributes of a new object."""
        if self.dict_replaced:
            self._emit_member(cg, "__dict__", self.dict)
        elif self.dict not in (None, MISSING) and self.dict.items:
            names = self._plain_names()
            if names is None:
                cg.load(self.dict)  # filled like any new dictionary
                cg.asm.pop_top()
            for name in names or ():  # as the program would, so that the objects of a class share their keys
                cg.load(self.dict.items[name])
                cg.load(self)
                cg.asm.store_attr(name)
        self.emit_slots(cg, [d for d, v in self.slots.items() if v is not None])

    def _plain_names(self) -> list[str] | None:
        """The names of the attributes if STORE_ATTR does nothing but store them."""
        names = list(self.dict.items)
        plain = type_lookup(self.cls, "__setattr__") is object.__setattr__ and all(
            type(name) is str and not any(name in dict_of(base) for base in mro_of(self.cls)) for name in names
        )
        return names if plain else None

    def load_dict(self, cg: Codegen) -> None:
        """Push the object's `__dict__`."""
        if self.cls.__getattribute__ is object.__getattribute__:
            cg.load(self)
            cg.asm.load_attr("__dict__")
        else:
            cg.load_callable(own_dict)
            cg.load(self)
            cg.asm.call(1)

    def _emit_member(self, cg: Codegen, name: str, value: VariableTracker) -> None:
        """Store past any `__setattr__` of the program."""
        cg.load_callable(object.__setattr__)
        cg.load(self)
        cg.load_const(name)
        cg.load(value)
        cg.asm.call(3)
        cg.asm.pop_top()

    def emit_slots(self, cg: Codegen, descriptors: Any) -> None:
        """Store `__slots__` members through their descriptors."""
        empty = self.__dict__.get("empty_slots", ())
        for descriptor in descriptors:
            value = self.slots[descriptor]
            if value is None and (descriptor in empty or self.source is None):
                continue
            cg.load_callable(descriptor.__delete__ if value is None else descriptor.__set__)
            cg.load(self)
            if value is not None:
                cg.load(value)
            cg.asm.call(1 if value is None else 2)
            cg.asm.pop_top()

    def emit_update(self, cg: Codegen) -> None:
        if self.class_replaced is not None:
            self._emit_member(cg, "__class__", self.class_replaced)
        if self.dict_replaced:
            self._emit_member(cg, "__dict__", self.dict)
        self.emit_slots(cg, self.__dict__.get("written_slots", ()))


def dict_of_thread(value: Any) -> dict[str, Any]:
    """`_ldict` of `Modules/_threadmodule.c`: where this thread's attributes of a `threading.local` are; the first time in a thread its
    `__init__` is called. What `__dictoffset__` leads to is not asked by its lookup."""
    return _thread._local.__getattribute__(value, "__dict__")


def real_dict(value: object) -> dict[str, Any] | None:
    """An object's `__dict__` without running user code."""
    cls = type(value)
    if not dictoffset_of(cls):
        return None
    if type(type_lookup(cls, "__dict__")) not in MEMBER_DESCRIPTORS:
        return unsupported("attribute-of-unknown-object", f"{qualname_of(cls)}, which hides its dictionary")
    return own_dict(value)


# -- what `object` itself provides


_CONTAINERS = (collections.OrderedDict, collections.defaultdict, collections.deque)
_GENERIC = (list, tuple, dict, set, frozenset, *_CONTAINERS, *ATOM_BASES)
"""Builtin types that programs derive from, whose own `__getattribute__` is that of `object`."""


@method(*dict.fromkeys([object.__getattribute__, *[cls.__getattribute__ for cls in _GENERIC]]))
def object_getattribute(tx: Frame, self: VariableTracker, name: VariableTracker) -> VariableTracker:
    """`PyObject_GenericGetAttr`. To it a class is an instance of its metaclass, whose `__dict__` is the namespace of the class."""
    if issubclass(self.python_type(), (type, _thread._local)):
        # The `__dict__` of the latter that `object` finds is another one than that of the thread.
        unsupported("attribute-of-unknown-object", f"object.__getattribute__ of {self.describe()}")
    return generic_getattr(tx, self, attribute_name(tx, name))


def _hackcheck(tx: Frame, self: VariableTracker, what: str) -> None:
    """`hackcheck`: the store of `object` would go past that of `type`, or of a `threading.local`."""
    if issubclass(self.python_type(), _thread._local):
        unsupported("attribute-of-unknown-object", f"object.{what} of {self.describe()}")
    if issubclass(self.python_type(), type):
        tx.raises(TypeError, f"can't apply this {what} to {type_name(self)} object")


@method(object.__setattr__)
def object_setattr(tx: Frame, self: VariableTracker, name: VariableTracker, value: VariableTracker) -> None:
    _hackcheck(tx, self, "__setattr__")
    generic_setattr(tx, self, attribute_name(tx, name), value)


@method(object.__delattr__)
def object_delattr(tx: Frame, self: VariableTracker, name: VariableTracker) -> None:
    _hackcheck(tx, self, "__delattr__")
    generic_setattr(tx, self, attribute_name(tx, name), None)


@method(object.__init__)
def object_init(tx: Frame, self: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> None:
    if not args and not kwargs:
        return
    cls = self.python_type()
    overrides_new = next(b for b in mro_of(cls) if "__new__" in dict_of(b)) is not object
    if cls.__init__ is not object.__init__:
        tx.raises(TypeError, "object.__init__() takes exactly one argument (the instance to initialize)")
    if not overrides_new:
        tx.raises(TypeError, f"{type_name(self)}.__init__() takes exactly one argument (the instance to initialize)")


@method(object.__eq__)
def object_eq(tx: Frame, self: VariableTracker, other: VariableTracker) -> VariableTracker:
    return ConstantVariable(True if tx.tr.heap.same_object(self, other) else NotImplemented)


@method(object.__ne__)
def object_ne(tx: Frame, self: VariableTracker, other: VariableTracker) -> VariableTracker:
    if self.tp_richcompare is None:
        return ConstantVariable(NotImplemented)
    if isinstance(self, ConstantVariable) and isinstance(other, ConstantVariable):
        return fold(tx, object.__ne__, [self, other], {})  # their slot gives what the operator gives
    result = self.tp_richcompare(tx, other, "==")
    return result if result.value is NotImplemented else ConstantVariable(not result.as_python_constant())


def _compares(slot: Any) -> Any:
    """The model of a comparison of None's own (3.13 and later), which knows no other object."""

    def compare(tx: Frame, self: VariableTracker, other: VariableTracker) -> VariableTracker:
        if isinstance(self, ConstantVariable) and isinstance(other, ConstantVariable):
            return fold(tx, slot, [self, other], {})
        return ConstantVariable(NotImplemented)

    return compare


for _name in ("__eq__", "__ne__"):
    if _name in vars(types.NoneType):
        HANDLERS[getattr(types.NoneType, _name)] = _compares(getattr(types.NoneType, _name))


def _not_implemented(tx: Frame, self: VariableTracker, other: VariableTracker) -> VariableTracker:
    return ConstantVariable(NotImplemented)


for _name in ("__lt__", "__le__", "__gt__", "__ge__"):
    HANDLERS[getattr(object, _name)] = _not_implemented


@method(object.__hash__)
def object_hash(tx: Frame, self: VariableTracker) -> VariableTracker:
    return tx.tr.heap.identity_hash(self)


@method(object.__repr__)
def object_repr(tx: Frame, self: VariableTracker) -> VariableTracker:
    return unsupported("object-identity", f"text of a {type_name(self)}, which contains its address")


@method(object.__str__)
def object_str(tx: Frame, self: VariableTracker) -> VariableTracker:
    return self.tp_repr(tx) if self.tp_repr is not None else unsupported("object-identity", "str")


def _slot_names(tx: Frame, cls: type) -> list[str]:
    """What `copyreg._slotnames` finds, without the note that it leaves in the class."""
    names = []
    for base in mro_of(cls):
        for name, member in dict_of(base).items():
            if type(member) is types.MemberDescriptorType and member.__objclass__ is base and is_heap_type(base):
                names.append(name)
    if dict_of(cls).get("__slotnames__", names) != names:
        unsupported("class-definition", "__slotnames__")
    return names


@method(object.__getstate__)
def object_getstate(tx: Frame, self: VariableTracker) -> VariableTracker:
    """`object_getstate_default`: the attributes, and the slots of classes that have some."""
    dictionary = self.instance_dict(tx) if hasattr(self, "instance_dict") else None
    state: VariableTracker = ConstantVariable(None)
    if dictionary is not None and is_true(tx, dictionary):
        state = dictionary
    slots = DictVariable()
    for name in _slot_names(tx, self.cls) if isinstance(self, InstanceVariable) else []:
        value = self.get_slot(tx, type_lookup(self.cls, name))
        if value is not None:
            slots.mp_ass_subscript(tx, ConstantVariable(name), value)
    return TupleVariable([state, slots]) if slots.items else state


def _set_class(tx: Frame, self: VariableTracker, value: VariableTracker | None) -> None:
    if value is None:
        tx.raises(TypeError, "can't delete __class__ attribute")
    if not issubclass(value.python_type(), type):
        tx.raises(TypeError, f"__class__ must be set to a class, not '{type_name(value)}' object")
    if not isinstance(self, InstanceVariable):
        unsupported("mutation-of-unknown-object", f"{self.describe()}.__class__")
    self.replace_class(tx, value)


@getset(object.__dict__["__class__"], _set_class)
def object_class(tx: Frame, self: VariableTracker) -> VariableTracker:
    return tx.tr.type_of(tx, self)


@builds_subclasses(object)
def build_instance(tr: Trace, value: object, source: GuardNode | None) -> VariableTracker:
    cls = type(value)
    tr.guard(source, ir.TYPE_IS, cls)
    model = tr.instance_class(cls)
    return model(cls, value, source)
