"""Second copies of modules written in C.

Input: a type or a builtin function without a model. Output: the model of the one of which it is a copy.
Invariant: CPython executes a C module again when `sys.modules` has lost it, and the copy's functions and types run the
same code as the first one's; a copy of a type is registered as a type of its own, a copy of a function stands for the
first one.
Mirrors multi-phase initialisation (PEP 489) of `Objects/moduleobject.c`.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from dynamo_lite.isa.typeobject import is_written_in_c, module_of, name_of
from dynamo_lite.polyfills.registry import POLYFILLS

from .dispatch import HANDLERS

Register = Callable[[Any], None]

FAMILIES: dict[tuple[str, str], Register] = {}
"""(module, name) of a C type → what registers the model of a type of that name."""

_registered: set[type] = set()


def family(*classes: type) -> Callable[[Register], Register]:
    """Register C types by calling the decorated function with each, now, and with each of their copies when it is met."""

    def decorate(register: Register) -> Register:
        for cls in classes:
            FAMILIES[cls.__module__, name_of(cls)] = register
            _registered.add(cls)
            register(cls)
        return register

    return decorate


def adopt(cls: type) -> bool:
    """Register a type if it is a copy of a known one that has not been met yet; whether it was."""
    register = FAMILIES.get((module_of(cls), name_of(cls)))
    if register is None or cls in _registered or not is_written_in_c(cls):
        return False
    _registered.add(cls)
    register(cls)
    return True


def adopt_owner(fn: Callable[..., Any]) -> bool:
    """`adopt` for the type of which `fn` is a method or the `__new__`."""
    owner = getattr(fn, "__objclass__", None) or getattr(fn, "__self__", None)
    return isinstance(owner, type) and adopt(owner)


def first_copy(fn: Callable[..., Any]) -> Any:
    """The function with a handler or a polyfill of which a builtin function is a copy, or None."""
    if type(fn) is not types.BuiltinFunctionType or type(fn.__self__) is not types.ModuleType:
        return None
    module = sys.modules.get(fn.__self__.__name__)
    found = getattr(module, fn.__name__, None) or _by_name(fn)
    if type(found) is not types.BuiltinFunctionType or found is fn or found.__doc__ != fn.__doc__:
        return None
    return found if found in HANDLERS or found in POLYFILLS else None


def _by_name(fn: Any) -> Any:
    """The known function of the same name of a module of the same name, should `sys.modules` have lost that."""
    for known in (*HANDLERS, *POLYFILLS):
        if type(known) is types.BuiltinFunctionType and known.__name__ == fn.__name__:
            if getattr(known.__self__, "__name__", None) == fn.__self__.__name__:
                return known
    return None
