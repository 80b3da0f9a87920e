"""Stand-ins for functions of `posix` that compute on paths and ask the system nothing.

Mirrors `PyOS_FSPath` of `Modules/posixmodule.c`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from .c_calls import leave_to_c
from .registry import PURE, polyfill


@polyfill(os.fspath)
def fspath(path: Any) -> Any:
    """The path that an object stands for: itself, or what its class says."""
    if isinstance(path, (str, bytes)):
        return path
    cls = type(path)
    for base in cls.__mro__:
        if "__fspath__" in base.__dict__:
            method = base.__dict__["__fspath__"]
            break
    else:
        leave_to_c()
    found = None if method is None else method.__get__(path, cls)()
    return found if isinstance(found, (str, bytes)) else leave_to_c()


PURE.update(
    function
    for name in ("_path_normpath", "_path_splitroot_ex")
    if (function := vars(sys.modules[os.fspath.__module__]).get(name)) is not None
)
