"""Stand-ins for methods of `object` that support copying."""

from __future__ import annotations

import copyreg
from typing import Any

from .registry import polyfill


@polyfill(object.__reduce_ex__)
def __reduce_ex__(self: Any, protocol: int, /) -> Any:
    """`copyreg` form of an object of a user class, for `copy.copy` and `copy.deepcopy`."""
    cls = type(self)
    if cls.__reduce__ is not object.__reduce__:
        return self.__reduce__()
    args, kwargs = (), {}
    if hasattr(cls, "__getnewargs_ex__"):
        args, kwargs = self.__getnewargs_ex__()
    elif hasattr(cls, "__getnewargs__"):
        args = self.__getnewargs__()
    state = self.__getstate__()
    items = iter(self) if isinstance(self, list) else None
    pairs = iter(self.items()) if isinstance(self, dict) else None
    if kwargs:
        return copyreg.__newobj_ex__, (cls, args, kwargs), state, items, pairs
    return copyreg.__newobj__, (cls, *args), state, items, pairs
