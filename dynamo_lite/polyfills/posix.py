"""Stand-ins for functions of `posix` that compute on paths and ask the system nothing.

Mirrors `PyOS_FSPath` of `Modules/posixmodule.c`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from .registry import PURE, polyfill


class _Refuses:
    __fspath__ = None


def _none_is_absent() -> bool:
    """Whether a class that sets `__fspath__` to None is one without it; else None is called."""
    try:
        os.fspath(_Refuses())  # type: ignore[call-overload]
    except TypeError as error:
        return str(error).startswith("expected")
    raise AssertionError("None has been called")


_NONE_IS_ABSENT = _none_is_absent()
_ABSENT = object()


def _special(obj: Any, cls: type, name: str) -> Any:
    """`_PyObject_LookupSpecial`"""
    for base in cls.__mro__:
        found = base.__dict__.get(name, _ABSENT)
        if found is not _ABSENT:
            return found.__get__(obj, cls) if hasattr(type(found), "__get__") else found
    return _ABSENT


@polyfill(os.fspath)
def fspath(path: Any) -> Any:
    """The path that an object stands for: itself, or what its class says."""
    if isinstance(path, (str, bytes)):
        return path
    cls = type(path)
    method = _special(path, cls, "__fspath__")
    if method is _ABSENT or (method is None and _NONE_IS_ABSENT):
        raise TypeError(f"expected str, bytes or os.PathLike object, not {cls.__name__}")
    found = method()
    if isinstance(found, (str, bytes)):
        return found
    raise TypeError(f"expected {cls.__name__}.__fspath__() to return str or bytes, not {type(found).__name__}")


PURE.update(
    function
    for name in ("_path_normpath", "_path_splitroot_ex")
    if (function := vars(sys.modules[os.fspath.__module__]).get(name)) is not None
)
