"""Classes made by the traced code: class statements, `type(name, bases, namespace)`, metaclasses.

Input: a class body, or a name, bases and a namespace. Output: `NewTypeVariable`.
Invariant: the models rest on real classes, so a *stand-in* is made for the analysis, with what stands for the namespace's objects in it
and without running any code of the program; the program never sees it. Generated code makes the class bare, in the same way, and then
stores the attributes that it has at the end of the trace.
Mirrors `builtin___build_class__` of `Python/bltinmodule.c` and `type_new` of `Objects/typeobject.c`.
"""

from __future__ import annotations

import _abc
import builtins
import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

from .._eval_frame import set_metaclass
from ..exc import NotConstant, unsupported
from ..guards import ir
from .abstract import type_name
from .base import MISSING, ObservedException, VariableTracker
from .cell import CellVariable
from .constant import NONE, ConstantVariable, is_none
from .descr import InstanceDictDescriptorVariable, SlotDescriptorVariable, forget, type_attribute, type_lookup
from .dict import DictVariable, MappingProxyVariable
from .dispatch import builtin, constructor, method
from .function import BuiltinClassMethodVariable, BuiltinVariable, FunctionVariable, MethodVariable
from .list import ListVariable
from .native import emit_call, host_value, optional_attr
from .property import ClassMethodVariable, PropertyVariable, StaticMethodVariable
from .set import SetVariable
from .slot_functions import special
from .subclass import NATIVE_MODELS, PLAIN_BASES
from .tuple import TupleVariable
from .type import MetaInstance, TypeVariable, is_subtype, namespace_of

NATIVE_MODELS.update(
    {
        type: TypeVariable,
        types.FunctionType: FunctionVariable,
        types.MethodType: MethodVariable,
        types.MethodDescriptorType: BuiltinVariable,
        types.WrapperDescriptorType: BuiltinVariable,
        types.ClassMethodDescriptorType: BuiltinClassMethodVariable,
    }
)
PLAIN_BASES.add(type)

_CONVERTED = {
    "__new__": StaticMethodVariable,
    "__init_subclass__": ClassMethodVariable,
    "__class_getitem__": ClassMethodVariable,
}
"""Functions under these names become such descriptors in a new class."""


STAND_INS: weakref.WeakValueDictionary[int, type] = weakref.WeakValueDictionary()
"""All stand-ins that are still there, by id."""


def forget_stand_ins() -> None:
    """Have the stand-ins of a finished analysis collected, so that the program does not find them among `__subclasses__()`."""
    if STAND_INS:
        gc.collect(1)


class ClassDictVariable(DictVariable):
    """The dictionary of a class made by the traced code."""

    owner: NewTypeVariable

    def children(self) -> Any:
        return (self.owner,)

    def emit_new(self, cg: Any) -> None:
        emit_call(cg, namespace_of, self.owner)

    emit_fill = None


class NewTypeVariable(TypeVariable):
    """A class made by the traced code. `value` is the stand-in, `attributes` its dictionary, `template` the namespace with which it is
    made bare, `untouched` the attributes that come by themselves, `kept` what was stored in none of these. What the metaclass has a
    data descriptor for is `shadowed`: only the namespace that the class is made with can bring it into the dictionary."""

    def __init__(self, value: type, bases: list[VariableTracker], template: dict[str, Any]) -> None:
        super().__init__(value)
        self.name = value.__name__
        self.bases = bases
        self.template = template
        self.attributes = ClassDictVariable()
        self.attributes.owner = self
        self.untouched: dict[str, VariableTracker] = {}
        self.kept: dict[Any, VariableTracker] = {}
        self.initializers: list[Callable[[type], None]] = []
        self.registered: list[VariableTracker] = []
        self.shadowed: set[str] = set()

    def is_python_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        raise NotConstant(f"class {self.value.__qualname__} was made by the traced code")

    # -- attributes

    def own(self, name: str) -> VariableTracker | None:
        """What the class itself has under `name`."""
        return self.attributes.items.get(name)

    def store_attribute(self, tx: Any, name: str, value: VariableTracker | None) -> None:
        """`type_setattro`."""
        meta_attribute = type_attribute(tx, self.python_type(), name)
        if meta_attribute is not None and meta_attribute.tp_descr_set is not None:
            meta_attribute.tp_descr_set(tx, self, value)
        else:
            self.put(tx, name, value)

    def put(self, tx: Any, name: str, value: VariableTracker | None) -> None:
        """Store or delete in the class's dictionary."""
        if name in _REFUSED:
            unsupported(_REFUSED[name], f"{self.value.__qualname__}.{name}")
        if value is not None:
            type.__setattr__(self.value, name, _REAL_VALUES.get(name, real_object)(value))
            self.attributes.items[name] = value
        else:
            self._delete(tx, name)
        forget(tx.tr, name)

    def _delete(self, tx: Any, name: str) -> None:
        if name not in self.attributes.items:
            message = f"type object '{self.value.__name__}' has no attribute '{name}'"
            tx.raises_naming(AttributeError, message, name=ConstantVariable(name), obj=self)
        if name in _CONVERTED or name in self.untouched:
            # A type goes on calling a deleted `__new__`, which is in its slot; it can't be made without what comes by itself.
            unsupported("mutation-of-class", f"deletion of {self.value.__qualname__}.{name}")
        type.__delattr__(self.value, name)
        del self.attributes.items[name]
        self.template.pop(name, None)

    def member(self, tx: Any, descriptor: Any) -> VariableTracker:
        if descriptor in self.kept:
            return self.kept[descriptor]
        reader = _IN_DICT.get(descriptor)
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

    def store_member(self, tx: Any, descriptor: Any, value: VariableTracker | None) -> None:
        try:
            if value is None:
                descriptor.__delete__(self.value)
            elif descriptor not in _IN_DICT:
                descriptor.__set__(self.value, host_value(value, "mutation-of-class"))
        except (TypeError, AttributeError, ValueError) as error:
            tx.raises_like(error)
        if descriptor not in _IN_DICT:
            self.kept[descriptor] = value
            tx.tr.type_attributes.clear()  # it may have been `__bases__`
        elif value is not None:
            self.put(tx, descriptor.__name__, value)
        else:
            self.attributes.items.pop(descriptor.__name__, None)
            self.template.pop(descriptor.__name__, None)
            forget(tx.tr, descriptor.__name__)

    def namespace_proxy(self, tx: Any) -> VariableTracker:
        return MappingProxyVariable(self.attributes)

    # -- codegen

    def children(self) -> Any:
        return [*self.bases, *self.attributes.items.values(), *self.kept.values(), *self.registered]

    def emit_new(self, cg: Any) -> None:
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

    def emit_fill(self, cg: Any) -> None:
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


def _own_doc(tx: Any, cls: NewTypeVariable) -> VariableTracker | None:
    return type_attribute(tx, cls.value, "__doc__")


def _own_annotations(tx: Any, cls: NewTypeVariable) -> VariableTracker:
    if cls.own("__annotations__") is None:
        cls.put(tx, "__annotations__", DictVariable())
    return cls.own("__annotations__")


def _own_attribute(name: str) -> Any:
    return lambda tx, cls: cls.own(name)


_IN_DICT: dict[Any, Any] = {
    type.__dict__[name]: _own_attribute(name)
    for name in ("__module__", "__abstractmethods__", "__type_params__")
    if name in type.__dict__
}
_IN_DICT[type.__dict__["__doc__"]] = _own_doc
_IN_DICT[type.__dict__["__annotations__"]] = _own_annotations
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


def new_class_attribute(tx: Any, cls: type, name: str) -> VariableTracker | None:
    """`type_attribute` for a class made by the traced code."""
    tr = tx.tr
    for base in cls.__mro__:
        tracker = tr.new_classes.get(id(base))
        if tracker is None:
            found = type_attribute(tx, base, name)  # guards that the base keeps its own
            if name in base.__dict__:
                return found
        elif name in tracker.attributes.items:
            return tracker.attributes.items[name]
    return None


# -- what stands for an object in a stand-in


class StandIn:
    """Stands in a stand-in's namespace for an object without a value during the analysis."""


def real_object(vt: Any) -> Any:
    """What stands for an object in a stand-in: itself where it exists and can do no harm, a function of the same code, a descriptor of
    its kind, an opaque object."""
    if isinstance(vt, ConstantVariable):
        return vt.value
    made = vt.__dict__.get("stand_in")
    if made is None:
        made = vt.stand_in = _stand_in(vt)
    return made


def _stand_in(vt: Any) -> Any:
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
    if any("__init_subclass__" in c.__dict__ for base in bases for c in base.__mro__[:-1]):
        shielded = type.__new__(type(meta), meta.__name__, (meta,), {"__slots__": (), "mro": _shielded_mro})
        cls = type.__new__(shielded, name, bases, namespace)
        set_metaclass(cls, meta)
        type.__dict__["__bases__"].__set__(cls, cls.__bases__)  # computes the MRO again
        type.__dict__["__bases__"].__set__(shielded, (type,))  # no longer a subclass of `meta`
    else:
        cls = type.__new__(meta, name, bases, namespace)
    for initialize in initializers:
        initialize(cls)
    return cls


def _check_metaclass(meta: type) -> None:
    """Refuse what `bare_class` can't keep from running."""
    if type_lookup(meta, "mro") is not type.__dict__["mro"]:
        unsupported("class-definition", f"{meta.__qualname__}.mro")
    if (
        any("__init_subclass__" in c.__dict__ for c in meta.__mro__[:-1])
        or type_lookup(type(meta), "mro") is not type.__dict__["mro"]
    ):
        unsupported("class-definition", f"metaclass {meta.__qualname__}")


# -- type.__new__


@builtin(type.__new__)
def type_new(tx: Any, meta: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker) -> VariableTracker:
    """`type_new`."""
    if len(args) != 3:
        return tx.raises(TypeError, f"type.__new__() takes exactly 3 arguments ({len(args)} given)")
    name, bases, namespace = args
    for i, (arg, cls) in enumerate(zip(args, (str, tuple, dict), strict=True)):
        if not issubclass(arg.python_type(), cls):
            tx.raises(TypeError, f"type.__new__() argument {i + 1} must be {cls.__name__}, not {type_name(arg)}")
    if not all(isinstance(b, TypeVariable) for b in bases.items):
        return _bases_without_entries(tx, bases.items)
    winner = calculate_metaclass(tx, meta.value, bases.items)
    if winner is not meta.value:
        new = type_attribute(tx, winner, "__new__")
        if new.value is not type.__new__:
            winner_tracker = tx.tr.type_tracker(winner)
            return tx.call(new.tp_descr_get(tx, None, winner_tracker), [winner_tracker, *args], keywords)
    made = make_class(tx, winner, host_value(name), list(bases.items), namespace)
    _set_names(tx, made)
    _init_subclass(tx, made, keywords)
    return made


def _bases_without_entries(tx: Any, bases: Any) -> VariableTracker:
    for base in bases:
        if not isinstance(base, TypeVariable) and optional_attr(tx, base, "__mro_entries__") is not None:
            tx.raises(TypeError, "type() doesn't support MRO entry resolution; use types.new_class() instead")
    return unsupported("class-definition", "bases that are no classes")


def calculate_metaclass(tx: Any, meta: type, bases: Any) -> type:
    """`_PyType_CalculateMetaclass`."""
    for base in bases:
        candidate = base.python_type()
        if is_subtype(meta, candidate):
            continue
        if not is_subtype(candidate, meta):
            tx.raises(
                TypeError,
                "metaclass conflict: the metaclass of a derived class must be a (non-strict) subclass of the metaclasses of all its bases",
            )
        meta = candidate
    return meta


def make_class(
    tx: Any, meta: type, name: str, bases: list[VariableTracker], namespace: DictVariable
) -> NewTypeVariable:
    """The class itself, before any hook is called."""
    _check_metaclass(meta)
    attributes: dict[str, VariableTracker] = {}
    for key, value in namespace.pairs():
        if key.python_type() is not str:
            unsupported("class-definition", "a namespace with keys that are no strings")
        attributes[key.value] = _converted(key.value, value)
    if "__del__" in attributes:
        unsupported("del-finalizer", name)
    if "__classdictcell__" in attributes:
        unsupported("class-definition", "a scope that sees the class's namespace")
    cell = attributes.pop("__classcell__", None)
    if cell is not None and not isinstance(cell, CellVariable):
        tx.raises(TypeError, f"type.__new__(): __classcell__ must be a nonlocal cell, not {type_name(cell)!r}"[:-1])
    template = _template(tx, attributes)
    real = {key: template[key] if key in _PASSED else real_object(value) for key, value in attributes.items()}
    try:
        stand_in = bare_class(meta, name, tuple(b.value for b in bases), real)
    except (TypeError, ValueError) as error:
        return tx.raises_like(error)
    made = (NewTypeVariable if meta is type else NewMetaTypeVariable)(stand_in, bases, template)
    STAND_INS[id(stand_in)] = stand_in
    tx.tr.new_classes[id(stand_in)] = made
    _fill_attributes(tx, made, attributes)
    made.shadowed = {name for name in attributes if name not in _SETTABLE and _is_shadowed(tx, meta, name)}
    if cell is not None:
        cell.set(tx, made)
    return made


def _is_shadowed(tx: Any, meta: type, name: str) -> bool:
    attribute = type_attribute(tx, meta, name)
    return attribute is not None and attribute.tp_descr_set is not None


_SETTABLE = {"__qualname__", *(descriptor.__name__ for descriptor in _IN_DICT)}
_PASSED = ("__slots__", "__qualname__")


def _template(tx: Any, attributes: dict[str, VariableTracker]) -> dict[str, Any]:
    """The namespace for `bare_class`: the names in their order, with what decides the layout of the class."""
    template: dict[str, Any] = dict.fromkeys(attributes)
    if "__slots__" in attributes:
        template["__slots__"] = _slot_names(tx, attributes["__slots__"])
    for name in ("__qualname__", "__module__"):
        if name in attributes:
            template[name] = host_value(attributes[name], "class-definition")
    return template


def _slot_names(tx: Any, slots: VariableTracker) -> Any:
    if isinstance(slots, ConstantVariable):
        return slots.value
    return tuple(host_value(item, "class-definition") for item in tx.tr.unpack(tx, slots))


def _converted(name: str, value: VariableTracker) -> VariableTracker:
    """`type_new_staticmethod`, `type_new_classmethod`."""
    model = _CONVERTED.get(name)
    if model is None or not isinstance(value, FunctionVariable):
        return value
    return model(function=value)


def _fill_attributes(tx: Any, made: NewTypeVariable, attributes: dict[str, VariableTracker]) -> None:
    """The class's dictionary in the order that it really has."""
    for name, real in made.value.__dict__.items():
        value = attributes.get(name)
        if value is None:
            value = made.untouched[name] = _automatic(made, real)
        made.attributes.items[name] = value


def _automatic(made: NewTypeVariable, real: Any) -> VariableTracker:
    """The model of an attribute that `type_new` adds."""
    if type(real) is types.MemberDescriptorType:
        return NewSlotDescriptorVariable(made, real)
    if type(real) is types.GetSetDescriptorType and real.__name__ == "__dict__":
        return NewDictDescriptorVariable(made, real)
    if type(real) is types.GetSetDescriptorType:
        return NewWeakrefDescriptorVariable(made, real)
    return ConstantVariable(real)


class _OfNewClass:
    """A descriptor that comes with a class made by the traced code."""

    owner: NewTypeVariable
    value: Any

    def __init__(self, owner: NewTypeVariable, value: Any) -> None:
        self.owner = owner
        self.value = value

    def is_python_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        raise NotConstant(f"{self.value.__name__} of a class made by the traced code")

    def children(self) -> Any:
        return (self.owner,)

    def emit_new(self, cg: Any) -> None:
        emit_call(cg, own_attribute, self.owner, ConstantVariable(self.value.__name__))


def own_attribute(cls: type, name: str) -> Any:
    """What a class itself has under a name."""
    return type.__dict__["__dict__"].__get__(cls)[name]


class NewSlotDescriptorVariable(_OfNewClass, SlotDescriptorVariable):
    """A member of `__slots__`."""


class NewDictDescriptorVariable(_OfNewClass, InstanceDictDescriptorVariable):
    """`__dict__`."""


class NewWeakrefDescriptorVariable(_OfNewClass, InstanceDictDescriptorVariable):
    """`__weakref__`."""

    def tp_descr_get(self, tx: Any, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if obj is None:
            return self
        if obj.source is not None or id(obj) in tx.tr.proxies:
            return unsupported("weakref", f"{obj.describe()}.__weakref__")
        return tx.tr.references.get(id(obj), NONE)


def _notes_set_name_errors() -> bool:
    """Whether an error in `__set_name__` gets a note (3.12), or becomes the cause of a RuntimeError."""

    class Descriptor:
        def __set_name__(self, owner: type, name: str) -> None:
            raise LookupError

    try:
        type("Owner", (), {"name": Descriptor()})
    except LookupError:
        return True
    except RuntimeError:
        return False
    raise AssertionError("__set_name__ is called")


_NOTES_SET_NAME_ERRORS = _notes_set_name_errors()


def _set_names(tx: Any, made: NewTypeVariable) -> None:
    """`type_new_set_names`."""
    for name, value in list(made.attributes.items.items()):
        if name in made.untouched or isinstance(value, ConstantVariable):
            continue
        hook = special(tx, value, "__set_name__")
        if hook is None:
            continue
        try:
            tx.call(hook, [made, ConstantVariable(name)])
        except ObservedException as observed:
            what = f"Error calling __set_name__ on '{type_name(value)}' instance {name!r} in {made.value.__name__!r}"
            if _NOTES_SET_NAME_ERRORS:
                tx.call(observed.exc.tp_getattro(tx, "add_note"), [ConstantVariable(what)])
                raise
            error = tx.call(tx.tr.type_tracker(RuntimeError), [ConstantVariable(what)])
            error.put(tx, "__cause__", observed.exc)
            error.put(tx, "__context__", observed.exc)
            raise ObservedException(error) from observed


def _init_subclass(tx: Any, made: NewTypeVariable, keywords: dict[str, VariableTracker]) -> None:
    """`type_new_init_subclass`: that of the next class in the MRO."""
    for base in made.value.__mro__[1:]:
        if "__init_subclass__" in base.__dict__:
            hook = type_attribute(tx, base, "__init_subclass__")
            tx.call(hook.tp_descr_get(tx, None, made), [], keywords)
            return


@method(object.__dict__["__init_subclass__"])
def object_init_subclass(tx: Any, cls: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker) -> None:
    name = f"{cls.value.__qualname__}.__init_subclass__()"
    if keywords:
        tx.raises(TypeError, f"{name} takes no keyword arguments")
    if args:
        tx.raises(TypeError, f"{name} takes no arguments ({len(args)} given)")


@method(type.__init__)
def type_init(tx: Any, cls: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker) -> None:
    if keywords and len(args) == 1:
        tx.raises(TypeError, "type.__init__() takes no keyword arguments")
    if len(args) not in (1, 3):
        tx.raises(TypeError, "type.__init__() takes 1 or 3 arguments")


@method(type.__dict__["__prepare__"])
def type_prepare(tx: Any, cls: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker) -> Any:
    return DictVariable()


@method(type.__subclasses__)
def type_subclasses(tx: Any, cls: TypeVariable, /) -> VariableTracker:
    """The classes that are there when the program runs, and those that the traced code has made."""
    if not isinstance(cls, NewTypeVariable):
        node = tx.tr.source(tx.tr.constant_source(cls.value), ir.CALL, subclasses_of)
        tx.tr.guard(node, ir.PYTHON, _same_classes(subclasses_of(cls.value)))
    return ListVariable([tx.tr.type_tracker(sub) for sub in visible_subclasses(tx, cls.value)])


def subclasses_of(cls: type) -> list[type]:
    """`cls.__subclasses__()` without stand-ins."""
    return [sub for sub in type.__subclasses__(cls) if id(sub) not in STAND_INS]


def visible_subclasses(tx: Any, cls: type) -> list[type]:
    """Those, and the stand-ins of the classes that this trace has made."""
    found = type.__subclasses__(cls)
    return [sub for sub in found if id(sub) not in STAND_INS or id(sub) in tx.tr.new_classes]


def _same_classes(expected: list[type]) -> Callable[[list[type]], bool]:
    ids = [id(cls) for cls in expected]
    return lambda now: [id(cls) for cls in now] == ids


@constructor(type)
def call_type(tx: Any, meta: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker) -> Any:
    """`type(x)`; the three-argument form makes a class."""
    if len(args) == 1 and not keywords:
        return tx.tr.type_of(tx, args[0])
    if len(args) not in (1, 3):
        return tx.raises(TypeError, "type() takes 1 or 3 arguments")
    if len(args) == 3 and issubclass(args[2].python_type(), dict):
        args = (*args[:2], _with_module(tx, args[2]))
    return type_new(tx, meta, *args, **keywords)


def _with_module(tx: Any, namespace: DictVariable) -> DictVariable:
    """`type_new_set_module`: where the call is."""
    own = DictVariable(dict(namespace.items))
    module = tx.globals.load(tx, "__name__")
    if module is not None and "__module__" not in own.items:
        own.items["__module__"] = module
    return own


# -- the class statement


@builtin(builtins.__build_class__)
def build_class(
    tx: Any, func: VariableTracker, name: VariableTracker, /, *bases: VariableTracker, **keywords: VariableTracker
) -> VariableTracker:
    """`builtin___build_class__`."""
    entries = _update_bases(tx, bases)
    meta = keywords.pop("metaclass", None)
    if meta is None:
        meta = tx.tr.type_of(tx, entries[0]) if entries else tx.tr.type_tracker(type)
    if isinstance(meta, TypeVariable) and all(isinstance(b, TypeVariable) for b in entries):
        meta = tx.tr.type_tracker(calculate_metaclass(tx, meta.value, entries))
    bases_tuple = TupleVariable(entries)
    namespace = _prepare(tx, meta, name, bases_tuple, keywords)
    cell = tx.tr.run_class_body(tx, func, namespace)
    if len(entries) != len(bases) or any(a is not b for a, b in zip(entries, bases, strict=False)):
        namespace.mp_ass_subscript(tx, ConstantVariable("__orig_bases__"), TupleVariable(list(bases)))
    made = tx.call(meta, [name, bases_tuple, namespace], keywords)
    if isinstance(made, TypeVariable) and isinstance(cell, CellVariable):
        _check_cell(tx, cell, made, name.value)
    return made


def _update_bases(tx: Any, bases: Any) -> list[VariableTracker]:
    """`update_bases`: what bases that are no classes stand for."""
    entries: list[VariableTracker] = []
    for base in bases:
        hook = None if isinstance(base, TypeVariable) else optional_attr(tx, base, "__mro_entries__")
        if hook is None:
            entries.append(base)
            continue
        found = tx.call(hook, [TupleVariable(list(bases))])
        if not issubclass(found.python_type(), tuple):
            tx.raises(TypeError, "__mro_entries__ must return a tuple")
        entries.extend(found.items)
    return entries


def _prepare(
    tx: Any, meta: VariableTracker, name: VariableTracker, bases: VariableTracker, keywords: dict[str, VariableTracker]
) -> Any:
    hook = optional_attr(tx, meta, "__prepare__")
    if hook is None:
        return DictVariable()
    namespace = tx.call(hook, [name, bases], keywords)
    if namespace.mp_subscript is None:
        who = meta.value.__name__ if isinstance(meta, TypeVariable) else "<metaclass>"
        tx.raises(TypeError, f"{who}.__prepare__() must return a mapping, not {type_name(namespace)}")
    return namespace


def _check_cell(tx: Any, cell: CellVariable, made: TypeVariable, name: str) -> None:
    content = cell.get(tx)
    if content is made:
        return
    if content is None:
        message = f"__class__ not set defining {name!r} as {type.__repr__(made.value)}."
        tx.raises(RuntimeError, message + " Was __classcell__ propagated to type.__new__?")
    unsupported("class-definition", f"__class__ of {name} is set to something else")
