"""Stand-ins for the C half of `functools`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from .registry import polyfill

_MISSING = object()


@polyfill(functools.reduce, check_signature=False)
def reduce(function: Callable[[Any, Any], Any], iterable: Iterable[Any], initial: Any = _MISSING, /) -> Any:
    """`functools.reduce(function, iterable[, initial])`"""
    iterator = None
    try:
        iterator = iter(iterable)
    except TypeError:
        pass  # another error takes its place, as in C
    if iterator is None:
        raise TypeError("reduce() arg 2 must support iteration")
    if initial is _MISSING:
        try:
            value = next(iterator)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        value = initial
    for element in iterator:
        value = function(value, element)
    return value
