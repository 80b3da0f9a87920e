"""`isinstance`, `issubclass`, and the abstract base classes that have a say in them.

Input: trackers of an object and of a class, a tuple or a union. Output: a bool constant.
Invariant: no code of the program runs during the analysis: hooks written in Python are followed.
Mirrors `PyObject_IsInstance` and `PyObject_IsSubclass` of `Objects/abstract.c`, and `Modules/_abc.c`.
"""

from __future__ import annotations

import _abc
import abc
import sys
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.isa.typeobject import dict_of, module_of, mro_of
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import is_subtype, is_true
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import boolean, is_none
from dynamo_lite.variables.protocol.descr import guarded_lookup, type_attribute, type_lookup
from dynamo_lite.variables.protocol.dispatch import builtin, method, refuse
from dynamo_lite.variables.protocol.native import optional_attr, run
from dynamo_lite.variables.protocol.slot_functions import UserSlots, special

from .type import TypeVariable
from .weakref import ProxyVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_ARG_2 = {
    "isinstance": "isinstance() arg 2 must be a type, a tuple of types, or a union",
    "issubclass": "issubclass() arg 2 must be a class, a tuple of classes, or a union",
}

CHECKS: dict[Any, Callable[..., bool]] = {}
"""A metaclass's `__instancecheck__` or `__subclasscheck__` → `check(tx, cls, obj)` that does the same without following it."""


@builtin(isinstance)
def builtin_isinstance(tx: Frame, obj: VariableTracker, class_or_tuple: VariableTracker, /) -> VariableTracker:
    return boolean(is_instance(tx, obj, class_or_tuple))


@builtin(issubclass)
def builtin_issubclass(tx: Frame, cls: VariableTracker, class_or_tuple: VariableTracker, /) -> VariableTracker:
    return boolean(is_subclass(tx, cls, class_or_tuple))


def is_instance(tx: Frame, obj: VariableTracker, target: VariableTracker) -> bool:
    """`object_isinstance` with its tuples, unions and hooks."""
    if obj.python_type() is target.value:
        return True
    return _check(tx, obj, target, "__instancecheck__", is_instance, _recursive_isinstance)


def is_subclass(tx: Frame, cls: VariableTracker, target: VariableTracker) -> bool:
    """`object_issubclass` with its tuples, unions and hooks."""
    return _check(tx, cls, target, "__subclasscheck__", is_subclass, _recursive_issubclass)


def _check(tx: Frame, obj: object, target: VariableTracker, dunder: str, again: Any, plain: Any) -> bool:
    if type(target) is TypeVariable:
        return plain(tx, obj, target)
    if isinstance(target, TupleVariable):
        _check_depth(target)
        return any(again(tx, obj, item) for item in target.items)
    if type(target.value) is types.UnionType:
        parts = [tx.tr.build_constant_object(part) for part in target.value.__args__]
        return any(again(tx, obj, tx.tr.type_of(tx, part) if is_none(part) else part) for part in parts)
    hook = special(tx, target, dunder)
    if hook is None:
        return plain(tx, obj, target)
    attribute = type_attribute(tx, target.python_type(), dunder)
    check = CHECKS.get(attribute.value) if attribute.value is not MISSING else None
    return check(tx, target, obj) if check is not None else is_true(tx, tx.call(hook, [obj]))


_MAX_DEPTH = 50


def _check_depth(target: TupleVariable) -> None:
    """Tuples of tuples may be as deep as to exhaust the C stack, which has another size here."""
    depth, level = 0, [target]
    while level:
        depth += 1
        level = [item for v in level for item in v.items if isinstance(item, TupleVariable)]
        if depth > _MAX_DEPTH:
            unsupported("recursion-limit", "nested tuples of classes")


def claimed_class(tx: Frame, obj: VariableTracker) -> VariableTracker:
    """`obj.__class__`, which a class may compute."""
    cls = obj.python_type()
    if not isinstance(obj, (UserSlots, ProxyVariable)) or (
        guarded_lookup(tx, cls, "__class__") is object.__dict__["__class__"]
        and guarded_lookup(tx, cls, "__getattribute__") in _PLAIN_LOOKUPS
    ):
        return tx.tr.type_of(tx, obj)
    found = optional_attr(tx, obj, "__class__")
    return tx.tr.type_of(tx, obj) if found is None else found


_PLAIN_LOOKUPS = (object.__getattribute__, type.__getattribute__)


def _recursive_isinstance(tx: Frame, obj: VariableTracker, target: VariableTracker) -> bool:
    """`object_isinstance`."""
    if isinstance(target, TypeVariable):
        if is_subtype(tx, obj.python_type(), target.value):
            return True
        claimed = claimed_class(tx, obj)
        return isinstance(claimed, TypeVariable) and is_subtype(tx, claimed.value, target.value)
    return _no_class(tx, target, _ARG_2["isinstance"])


def _recursive_issubclass(tx: Frame, cls: VariableTracker, target: VariableTracker) -> bool:
    """`recursive_issubclass`."""
    if isinstance(cls, TypeVariable) and isinstance(target, TypeVariable):
        return is_subtype(tx, cls.value, target.value)
    wrong = cls if not isinstance(cls, TypeVariable) else target
    return _no_class(tx, wrong, "issubclass() arg 1 must be a class" if wrong is cls else _ARG_2["issubclass"])


def _no_class(tx: Frame, v: VariableTracker, message: str) -> Any:
    """Raise TypeError for an object that is no class, and has no `__bases__` by which it is taken for one."""
    if optional_attr(tx, v, "__bases__") is not None:
        unsupported("operation-on-unknown-object", f"{v.describe()}, which is taken for a class")
    tx.raises(TypeError, message)


@method(type.__instancecheck__)
def type_instancecheck(tx: Frame, cls: VariableTracker, instance: VariableTracker, /) -> VariableTracker:
    return boolean(_recursive_isinstance(tx, instance, cls))


@method(type.__subclasscheck__)
def type_subclasscheck(tx: Frame, cls: VariableTracker, subclass: VariableTracker, /) -> VariableTracker:
    return boolean(_recursive_issubclass(tx, subclass, cls))


CHECKS[type.__instancecheck__] = lambda tx, cls, obj: _recursive_isinstance(tx, obj, cls)
CHECKS[type.__subclasscheck__] = lambda tx, cls, obj: _recursive_issubclass(tx, obj, cls)


# -- abstract base classes


refuse("mutation-of-class", _abc._abc_init, _abc._abc_register)


@builtin(_abc._abc_instancecheck)
def abc_instancecheck(tx: Frame, cls: TypeVariable, instance: VariableTracker, /) -> VariableTracker:
    """`_abc__abc_instancecheck_impl`."""
    claimed, real = claimed_class(tx, instance), tx.tr.type_of(tx, instance)
    kinds = [claimed] if claimed is real else [claimed, real]
    return boolean(any(_subclasscheck(tx, cls, kind) for kind in kinds))


def _subclasscheck(tx: Frame, cls: TypeVariable, kind: VariableTracker) -> bool:
    """`cls.__subclasscheck__(kind)`."""
    hook = type_attribute(tx, cls.python_type(), "__subclasscheck__")
    if hook.value is abc.ABCMeta.__subclasscheck__:
        return _abc_subclasscheck(tx, cls, kind)
    return is_true(tx, tx.call(cls.tp_getattro(tx, "__subclasscheck__"), [kind]))


@builtin(_abc._abc_subclasscheck)
def abc_subclasscheck(tx: Frame, cls: TypeVariable, subclass: VariableTracker, /) -> VariableTracker:
    return boolean(_abc_subclasscheck(tx, cls, subclass))


def _abc_subclasscheck(tx: Frame, cls: TypeVariable, subclass: VariableTracker) -> bool:
    """`_abc__abc_subclasscheck_impl`, where no code of the program is asked."""
    if not isinstance(subclass, TypeVariable):
        tx.raises(TypeError, "issubclass() arg 1 must be a class")
    if _asks_program(cls.value):
        unsupported("operation-on-unknown-object", f"issubclass() that asks hooks of {cls.describe()}")
    try:
        found = _abc._abc_subclasscheck(cls.value, subclass.value)
    except TypeError as error:
        tx.raises_like(error)
    _guard_answer(tx, cls.value, subclass.value, found)
    return found


def _guard_answer(tx: Frame, abstract: type, cls: type, answer: bool) -> None:
    """Have the guards ask again, if the answer may be another one: classes are registered at any time, and stay so in this process. A
    version of another process may be for a class that is registered there."""
    if answer and (_is_of_python(abstract, cls) or not _is_by_registration(tx, abstract, cls)):
        return
    tx.tr.guards.same_answer(abstract, cls, answer)


def _is_of_python(*classes: type) -> bool:
    return all(str(module_of(cls)).partition(".")[0] in sys.stdlib_module_names for cls in classes)


def _is_by_registration(tx: Frame, abstract: type, cls: type) -> bool:
    """Whether neither the bases of a class, nor its methods, make it a subclass."""
    return not is_subtype(tx, cls, abstract) and abstract.__subclasshook__(cls) is not True


def _asks_program(cls: type) -> bool:
    """Does a check against the abstract class call functions of the program?"""
    return _is_of_program(type_lookup(cls, "__subclasshook__")) or any(
        "__subclasses__" in dict_of(base) for base in (*mro_of(cls), *mro_of(type(cls))) if base is not type
    )


def _is_of_program(hook: object) -> bool:
    function = getattr(hook, "__func__", hook)
    module = getattr(function, "__module__", None) or ""
    return issubclass(type(function), types.FunctionType) and module.partition(".")[0] not in sys.stdlib_module_names


def _abc_instance_of(tx: Frame, cls: VariableTracker, obj: VariableTracker) -> bool:
    return abc_instancecheck(tx, cls, obj).value


CHECKS[abc.ABCMeta.__instancecheck__] = _abc_instance_of
CHECKS[abc.ABCMeta.__subclasscheck__] = _abc_subclasscheck


# -- protocols


def _instance_of_protocol(tx: Frame, target: VariableTracker, obj: VariableTracker) -> bool:
    """`isinstance(obj, Protocol)`: by the class where that decides it, else by the attributes of the object."""
    cls = target.value
    if not getattr(cls, "_is_protocol", False):
        found = abc.ABCMeta.__subclasscheck__(cls, obj.python_type())
        _guard_answer(tx, cls, obj.python_type(), found)
        return found
    if not getattr(cls, "_is_runtime_protocol", False):
        run(tx, isinstance, None, cls)
    try:
        found = abc.ABCMeta.__subclasscheck__(cls, obj.python_type())
        _guard_answer(tx, cls, obj.python_type(), found)
        if found:
            return True
    except TypeError:  # a protocol with data members: classes don't decide it
        if is_subtype(tx, obj.python_type(), cls):
            return True
    for name in typing._get_protocol_attrs(cls):
        found = optional_attr(tx, obj, name)
        if found is None or (is_none(found) and callable(getattr(cls, name, None))):
            return False
    return True


def _subclass_of_protocol(tx: Frame, target: VariableTracker, cls: VariableTracker) -> bool:
    return run(tx, issubclass, cls.value if cls.value is not MISSING else None, target.value).value


_ProtocolMeta = type(typing.Protocol)
CHECKS[_ProtocolMeta.__instancecheck__] = _instance_of_protocol
if "__subclasscheck__" in _ProtocolMeta.__dict__:
    CHECKS[_ProtocolMeta.__subclasscheck__] = _subclass_of_protocol
