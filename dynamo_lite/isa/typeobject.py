"""What CPython keeps of a type and Python code can read: flags, and the name in messages.

Input: classes. Output: plain facts; no code of the program runs. Mirrors `Include/object.h` and `Objects/typeobject.c`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

Py_TPFLAGS_SEQUENCE = 1 << 5
Py_TPFLAGS_MAPPING = 1 << 6
Py_TPFLAGS_IMMUTABLETYPE = 1 << 8
Py_TPFLAGS_HEAPTYPE = 1 << 9
Py_TPFLAGS_HAVE_GC = 1 << 14

flags = type.__dict__["__flags__"].__get__  # past any metaclass
mro_of = type.__dict__["__mro__"].__get__
bases_of = type.__dict__["__bases__"].__get__
dict_of = type.__dict__["__dict__"].__get__
basicsize_of = type.__dict__["__basicsize__"].__get__
itemsize_of = type.__dict__["__itemsize__"].__get__
dictoffset_of = type.__dict__["__dictoffset__"].__get__
weakrefoffset_of = type.__dict__["__weakrefoffset__"].__get__
"""These and the functions below ask no metaclass of the program, which may define `__getattribute__`."""


def module_of(cls: type) -> object:
    """`cls.__module__`, mostly a str."""
    return type.__dict__["__module__"].__get__(cls)


def name_of(cls: type) -> str:
    """`cls.__name__`."""
    return type.__dict__["__name__"].__get__(cls)


def qualname_of(cls: type) -> str:
    """`cls.__qualname__`."""
    return type.__dict__["__qualname__"].__get__(cls)


def lookup(cls: type, name: str, default: object = None) -> Any:
    """`_PyType_Lookup`: what the first class of the MRO that has the name keeps under it."""
    for base in mro_of(cls):
        found = dict_of(base).get(name, ABSENT)
        if found is not ABSENT:
            return found
    return default


ABSENT = object()


def is_heap_type(cls: type) -> bool:
    """True for classes made by a class statement (their member descriptors are `__slots__`)."""
    return flags(cls) & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_IMMUTABLETYPE) == Py_TPFLAGS_HEAPTYPE


def has_sequence_slots(cls: type) -> bool:
    """Whether `tp_as_sequence` is there, be it without the slot that one looks for: each type on the heap has it. (Among the static ones
    those that are mappings only have no length.)"""
    has_length = any(lookup(cls, name, ABSENT) is not ABSENT for name in ("__len__", "__contains__"))
    return has_length or bool(flags(cls) & Py_TPFLAGS_HEAPTYPE)


def is_of_library(cls: type) -> bool:
    """True for the classes of the standard library, torch and numpy, which programs leave as they are."""
    return str(module_of(cls)).partition(".")[0] in LIBRARIES


LIBRARIES = sys.stdlib_module_names | {"torch", "numpy"}


def can_change(cls: type) -> bool:
    """True for a class of the program: it may get other bases, and another name."""
    return is_heap_type(cls) and not is_of_library(cls)


def is_written_in_c(cls: type) -> bool:
    """No class statement makes a static or immutable type, nor the `__new__` that belongs to the very class it is found in."""
    return not is_heap_type(cls) or getattr(dict_of(cls).get("__new__"), "__self__", None) is cls


def tp_name(cls: type) -> str:
    """The name that a class has in C: with the module for classes written in C."""
    name = module_of(cls)
    if name == "builtins" or type(name) is not str or not is_written_in_c(cls):
        return name_of(cls)
    return f"{name}.{name_of(cls)}"


def full_name(cls: type) -> str:
    """`PyType_GetFullyQualifiedName`, but for `__main__`."""
    name = module_of(cls)
    return qualname_of(cls) if name == "builtins" or type(name) is not str else f"{name}.{qualname_of(cls)}"


Member = GetSetDescriptorType | MemberDescriptorType
MEMBER_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType)


def field_descriptor(cls: type, name: str) -> Member | None:
    """The descriptor of a field of C: the first one along the MRO that an immutable class has; None if there is none."""
    return next((d for base, d in _descriptors(cls, name) if not is_heap_type(base)), None)


def member_descriptor(cls: type, name: str) -> Member | None:
    """The first descriptor of a field or of a slot along the MRO; None if there is none."""
    return next((d for _, d in _descriptors(cls, name)), None)


def _descriptors(cls: type, name: str) -> Iterator[tuple[type, Member]]:
    """The getset and member descriptors of that name with their classes, whatever else class statements have put before them."""
    for base in mro_of(cls):
        found = dict_of(base).get(name)
        if type(found) in MEMBER_DESCRIPTORS:
            yield base, found


def read_field(obj: object, name: str) -> object:
    """The value of a C field. No method or property of the program runs."""
    return field_descriptor(type(obj), name).__get__(obj)


def read_member(obj: object, name: str) -> object:
    """The value of a field or slot. No method or property of the program runs."""
    return member_descriptor(type(obj), name).__get__(obj)
