"""Making classes: `type.__new__` and the other methods of `type` that take part.

Input: trackers of a metaclass, a name, bases and a namespace. Output: `NewTypeVariable`.
Invariant: the hooks of the program (`__set_name__`, `__init_subclass__`) are followed, in the order and with the arguments of CPython;
none runs during the analysis.
Mirrors `type_new`, `type_init` and `type___subclasses___impl` of `Objects/typeobject.c`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import dict_of, is_heap_type, mro_of
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.protocol.abstract import is_subtype, type_name
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import guarded_lookup, type_attribute, type_lookup
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, method
from dynamo_lite.variables.protocol.native import host_value
from dynamo_lite.variables.protocol.slot_functions import special

from .cell import CellVariable
from .classes import (
    CONVERTED,
    IN_DICT,
    STAND_INS,
    NewDictDescriptorVariable,
    NewMetaTypeVariable,
    NewSlotDescriptorVariable,
    NewTypeVariable,
    NewWeakrefDescriptorVariable,
    bare_class,
    real_object,
    register_stand_in,
)
from .function import BuiltinClassMethodVariable, BuiltinVariable, FunctionVariable, MethodVariable
from .subclass import NATIVE_MODELS, PLAIN_BASES
from .type import TypeVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame

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


def _check_metaclass(meta: type) -> None:
    """Refuse what `bare_class` can't keep from running."""
    if type_lookup(meta, "mro") is not type.__dict__["mro"]:
        unsupported("class-definition", f"{meta.__qualname__}.mro")
    if (
        any("__init_subclass__" in dict_of(c) for c in mro_of(meta)[:-1])
        or type_lookup(type(meta), "mro") is not type.__dict__["mro"]
    ):
        unsupported("class-definition", f"metaclass {meta.__qualname__}")


@builtin(type.__new__)
def type_new(
    tx: Frame, meta: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker
) -> VariableTracker:
    """`type_new`."""
    if len(args) != 3 or not all(map(issubclass, [arg.python_type() for arg in args], (str, tuple, dict))):
        return unsupported("arguments-mismatch", "type.__new__()")
    name, bases, namespace = args
    if not all(isinstance(b, TypeVariable) for b in bases.items):
        return unsupported("class-definition", "bases that are no classes")
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


def calculate_metaclass(tx: Frame, meta: type, bases: Any) -> type:
    """`_PyType_CalculateMetaclass`."""
    for base in bases:
        candidate = base.python_type()
        if is_subtype(tx, meta, candidate):
            continue
        if not is_subtype(tx, candidate, meta):
            unsupported("class-definition", "bases whose metaclasses conflict")
        meta = candidate
    return meta


def _guard_mro(tr: Trace, cls: type) -> None:
    """The order of lookups in a class made here is that of its bases, which an assignment to `__bases__` changes."""
    if not is_heap_type(cls) or tr.classes.is_new(cls):
        return
    node = tr.source(tr.constant_source(cls), ir.ATTR, "__mro__")
    tr.guard(node, ir.LEN, len(mro_of(cls)))
    for i, base in enumerate(mro_of(cls)):
        tr.guard(tr.source(node, ir.INDEX, i), ir.IS, base)


def make_class(
    tx: Frame, meta: type, name: str, bases: list[VariableTracker], namespace: DictVariable
) -> NewTypeVariable:
    """The class itself, before any hook is called."""
    _check_metaclass(meta)
    for base in bases:
        _guard_mro(tx.tr, base.value)
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
        return tx.raises_like(error, [b.value for b in bases])
    made = (NewTypeVariable if meta is type else NewMetaTypeVariable)(stand_in, bases, template)
    register_stand_in(stand_in)
    tx.tr.classes.new[id(stand_in)] = made
    _fill_attributes(tx, made, attributes)
    made.shadowed = {name for name in attributes if name not in _SETTABLE and _is_shadowed(tx, meta, name)}
    if cell is not None:
        cell.set(tx, made)
    return made


def _is_shadowed(tx: Frame, meta: type, name: str) -> bool:
    attribute = type_attribute(tx, meta, name)
    return attribute is not None and attribute.tp_descr_set is not None


_SETTABLE = {"__qualname__", *(descriptor.__name__ for descriptor in IN_DICT)}
_PASSED = ("__slots__", "__qualname__")


def _template(tx: Frame, attributes: dict[str, VariableTracker]) -> dict[str, Any]:
    """The namespace for `bare_class`: the names in their order, with what decides the layout of the class."""
    template: dict[str, Any] = dict.fromkeys(attributes)
    if "__slots__" in attributes:
        template["__slots__"] = _slot_names(tx, attributes["__slots__"])
    for name in ("__qualname__", "__module__"):
        if name in attributes:
            template[name] = host_value(attributes[name], "class-definition")
    return template


def _slot_names(tx: Frame, slots: VariableTracker) -> Any:
    if isinstance(slots, ConstantVariable):
        return slots.value
    return tuple(host_value(item, "class-definition") for item in tx.tr.unpack(tx, slots))


def _converted(name: str, value: VariableTracker) -> VariableTracker:
    """`type_new_staticmethod`, `type_new_classmethod`."""
    model = CONVERTED.get(name)
    if model is None or not isinstance(value, FunctionVariable):
        return value
    return model(function=value)


def _fill_attributes(tx: Frame, made: NewTypeVariable, attributes: dict[str, VariableTracker]) -> None:
    """The class's dictionary in the order that it really has."""
    for name, real in made.value.__dict__.items():
        value = attributes.get(name)
        if value is None:
            value = made.untouched[name] = _automatic(made, real)
        made.attributes.items[name] = value


def _automatic(made: NewTypeVariable, real: Any) -> VariableTracker:
    """The model of an attribute that `type_new` adds."""
    if type(real) is types.MemberDescriptorType:
        return NewSlotDescriptorVariable(real, made)
    if type(real) is types.GetSetDescriptorType and real.__name__ == "__dict__":
        return NewDictDescriptorVariable(real, made)
    if type(real) is types.GetSetDescriptorType:
        return NewWeakrefDescriptorVariable(real, made)
    return ConstantVariable(real)


def _set_names(tx: Frame, made: NewTypeVariable) -> None:
    """`type_new_set_names`."""
    for name, value in list(made.attributes.items.items()):
        if name in made.untouched or isinstance(value, ConstantVariable):
            continue
        hook = special(tx, value, "__set_name__")
        if hook is None:
            continue
        try:
            tx.call(hook, [made, ConstantVariable(name)])
        except ObservedException:
            unsupported("class-definition", f"__set_name__ of a {type_name(value)} raises an exception")


def _init_subclass(tx: Frame, made: NewTypeVariable, keywords: dict[str, VariableTracker]) -> None:
    """`type_new_init_subclass`: that of the next class in the MRO."""
    for base in mro_of(made.value)[1:]:
        if "__init_subclass__" in dict_of(base):
            hook = type_attribute(tx, base, "__init_subclass__")
            tx.call(hook.tp_descr_get(tx, None, made), [], keywords)
            return
        guarded_lookup(tx, base, "__init_subclass__")  # which it may get


@method(object.__dict__["__init_subclass__"])
def object_init_subclass(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker
) -> None:
    if args or keywords:
        unsupported("arguments-mismatch", f"{cls.value.__qualname__}.__init_subclass__()")


@method(type.__init__)
def type_init(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker) -> None:
    if len(args) not in (1, 3) or (keywords and len(args) == 1):
        unsupported("arguments-mismatch", "type.__init__()")


@method(type.__dict__["__prepare__"])
def type_prepare(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker) -> Any:
    return DictVariable()


@method(type.__subclasses__)
def type_subclasses(tx: Frame, cls: TypeVariable, /) -> VariableTracker:
    """The classes that are there when the program runs, and those that the traced code has made."""
    if not isinstance(cls, NewTypeVariable):
        node = tx.tr.source(tx.tr.constant_source(cls.value), ir.CALL, subclasses_of)
        tx.tr.guard(node, ir.PYTHON, _same_classes(subclasses_of(cls.value)))
    return ListVariable([tx.tr.type_tracker(sub) for sub in visible_subclasses(tx, cls.value)])


def subclasses_of(cls: type) -> list[type]:
    """`cls.__subclasses__()` without stand-ins."""
    return [sub for sub in type.__subclasses__(cls) if id(sub) not in STAND_INS]


def visible_subclasses(tx: Frame, cls: type) -> list[type]:
    """Those, and the stand-ins of the classes that this trace has made."""
    found = type.__subclasses__(cls)
    return [sub for sub in found if id(sub) not in STAND_INS or id(sub) in tx.tr.classes.new]


def _same_classes(expected: list[type]) -> Callable[[list[type]], bool]:
    ids = [id(cls) for cls in expected]
    return lambda now: [id(cls) for cls in now] == ids


@constructor(type)
def call_type(tx: Frame, meta: VariableTracker, /, *args: VariableTracker, **keywords: VariableTracker) -> Any:
    """`type(x)`; the three-argument form makes a class."""
    if len(args) == 1 and not keywords:
        return tx.tr.type_of(tx, args[0])
    if len(args) not in (1, 3):
        return unsupported("arguments-mismatch", "type()")
    given = args
    if len(args) == 3 and issubclass(args[2].python_type(), dict):
        args = (*args[:2], _with_module(tx, args[2]))
    made = type_new(tx, meta, *args, **keywords)
    init = type_attribute(tx, made.python_type(), "__init__")
    if init.value is not type.__init__:  # that of the bases' metaclass
        result = tx.call(init.tp_descr_get(tx, made, tx.tr.type_tracker(made.python_type())), list(given), keywords)
        if not is_none(result):
            tx.raises(TypeError, f"__init__() should return None, not '{type_name(result)}'")
    return made


def _with_module(tx: Frame, namespace: DictVariable) -> DictVariable:
    """`type_new_set_module`: where the call is."""
    own = DictVariable(dict(namespace.items))
    module = tx.globals.load(tx, "__name__")
    if module is not None and "__module__" not in own.items:
        own.items["__module__"] = module
    return own
