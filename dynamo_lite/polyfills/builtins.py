"""Stand-ins for methods of `object` (those that support copying, and `__dir__`) and of exceptions (`add_note`).

Input: objects of the program. Output: what the C functions return.
Mirrors `object___reduce_ex___impl`, `reduce_newobj` and `object___dir___impl` of `Objects/typeobject.c`.
"""

from __future__ import annotations

import copyreg
import types
from typing import Any

from dynamo_lite.isa import c_facts
from dynamo_lite.isa.typeobject import is_heap_type

from .c_calls import leave_to_c
from .registry import polyfill


@polyfill(object.__reduce_ex__)
def __reduce_ex__(self: Any, protocol: int, /) -> Any:
    """`copyreg` form of an object of a user class, for `copy.copy` and `copy.deepcopy`."""
    cls = type(self)
    if cls.__reduce__ is not object.__reduce__:
        return self.__reduce__()
    return _common_reduce(self, cls, protocol)


@polyfill(object.__reduce__)
def __reduce__(self: Any, /) -> Any:
    """The same for protocol 0."""
    return _common_reduce(self, type(self), 0)


def _common_reduce(self: Any, cls: Any, protocol: int) -> Any:
    if protocol < 2:
        return copyreg._reduce_ex(self, protocol)
    args, kwargs = _new_arguments(self, cls)
    if args is None and not issubclass(cls, (list, dict)) and _has_hidden_state(cls):
        leave_to_c()
    state = self.__getstate__()
    items = iter(self) if issubclass(cls, list) else None
    pairs = iter(self.items()) if issubclass(cls, dict) else None
    if kwargs:
        return copyreg.__newobj_ex__, (cls, args, kwargs), state, items, pairs
    return copyreg.__newobj__, (cls, *(args or ())), state, items, pairs


def _new_arguments(self: Any, cls: Any) -> Any:
    """`_PyObject_GetNewArguments`: None for the arguments of a class that names none."""
    if hasattr(cls, "__getnewargs_ex__"):
        found = self.__getnewargs_ex__()
        if not isinstance(found, tuple) or len(found) != 2:
            leave_to_c()
        args, kwargs = found
        return (args, kwargs) if isinstance(args, tuple) and isinstance(kwargs, dict) else leave_to_c()
    if hasattr(cls, "__getnewargs__"):
        args = self.__getnewargs__()
        return (args, {}) if isinstance(args, tuple) else leave_to_c()
    return None, {}


def _has_hidden_state(cls: Any) -> bool:
    """True if the objects have more in C than a `__dict__` and a list of weak references."""
    for base in cls.__mro__:
        if not is_heap_type(base):
            known = (base.__dictoffset__ != 0) + (base.__weakrefoffset__ != 0)
            return base.__itemsize__ != 0 or base.__basicsize__ > object.__basicsize__ + 8 * known
    return False


@polyfill(object.__dir__)
def __dir__(self: Any, /) -> list[str]:
    """The names in the object's dictionary and in those of its classes."""
    names = getattr(self, "__dict__", None)
    names = dict(names) if isinstance(names, dict) else {}
    cls = getattr(self, "__class__", None)
    if cls is not None:
        _merge_class_names(names, cls)
    return list(names)


@polyfill(type.__dir__)
def __type_dir__(self: Any, /) -> list[str]:
    """The names in the dictionaries of a class and its bases."""
    names: dict[str, Any] = {}
    _merge_class_names(names, self)
    return list(names)


@polyfill(types.ModuleType.__dir__)
def __module_dir__(self: Any, /) -> list[str]:
    """The module's own `__dir__`, or its names."""
    names = self.__dict__
    if not isinstance(names, dict):
        leave_to_c()
    own = names.get("__dir__")
    return own() if own is not None else list(names)


def _merge_class_names(names: dict[str, Any], cls: Any) -> None:
    """`merge_class_dict`: the bases are walked as a tree, not along the MRO."""
    own = getattr(cls, "__dict__", None)
    if own is not None:
        names.update(own)
    for base in getattr(cls, "__bases__", None) or ():
        _merge_class_names(names, base)


_MISSING = object()


@polyfill(BaseException.add_note)
def add_note(self: Any, note: str, /) -> None:
    """`BaseException_add_note` of `Objects/exceptions.c`."""
    if not isinstance(note, str):
        raise TypeError(c_facts.NO_NOTE.format(name=type(note).__name__))
    notes = getattr(self, "__notes__", _MISSING)
    if notes is _MISSING:
        self.__notes__ = notes = []
    if not isinstance(notes, list):
        raise TypeError("Cannot add note: __notes__ is not a list")
    list.append(notes, note)
