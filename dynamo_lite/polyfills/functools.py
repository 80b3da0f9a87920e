"""Stand-ins for the C half of `functools`, and for what takes a lock in it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from .c_calls import leave_to_c, state_of
from .registry import polyfill, stands_for

_MISSING = object()


@polyfill(functools.reduce, check_signature=False)
def reduce(function: Callable[[Any, Any], Any], iterable: Iterable[Any], initial: Any = _MISSING, /) -> Any:
    """`functools.reduce(function, iterable[, initial])`"""
    try:
        iterator = iter(iterable)
    except TypeError:
        leave_to_c()
    if initial is _MISSING:
        try:
            value = next(iterator)
        except StopIteration:
            leave_to_c()
    else:
        value = initial
    for element in iterator:
        value = function(value, element)
    return value


_KEY: Any = type(functools.cmp_to_key(int))


@stands_for(_KEY)
class KeyWrapper:
    """What `cmp_to_key(compare)` gives, and the key that it makes of an object."""

    initial = "has_object"

    def __init__(self, compare: Callable[[Any, Any], Any], has_object: bool, obj: Any) -> None:
        self.compare, self.has_object, self.object = compare, has_object, obj

    def __call__(self, obj: Any) -> Any:
        return _KEY(self.compare, True, obj)

    def __lt__(self, other: Any) -> Any:
        return self.compare(self.object, state_of(other).object) < 0

    @staticmethod
    def rebuild(cls: Any, compare: Callable[[Any, Any], Any]) -> Any:
        return functools.cmp_to_key(compare)


@polyfill(functools.cmp_to_key)
def cmp_to_key(mycmp: Callable[[Any, Any], Any]) -> Any:
    """`functools.cmp_to_key(mycmp)`"""
    return _KEY(mycmp, False, None)


def _cached_property_get(self: Any, instance: Any, owner: Any = None) -> Any:
    """`functools.cached_property.__get__` as of CPython 3.12, which takes no lock."""
    if instance is None:
        return self
    name = self.attrname
    if name is None:
        raise TypeError("Cannot use cached_property instance without calling __set_name__ on it.")
    try:
        values = instance.__dict__
    except AttributeError:
        raise TypeError(
            f"No '__dict__' attribute on {type(instance).__name__!r} instance to cache {name!r} property."
        ) from None
    value = values.get(name, _MISSING)
    if value is _MISSING:
        value = self.func(instance)
        try:
            values[name] = value
        except TypeError:
            raise TypeError(
                f"The '__dict__' attribute on {type(instance).__name__!r} instance does not support item assignment "
                f"for caching {name!r} property."
            ) from None
    return value


if sys.version_info < (3, 12):
    polyfill(functools.cached_property.__get__)(_cached_property_get)
