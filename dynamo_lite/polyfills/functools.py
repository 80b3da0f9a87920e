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
    try:
        iterator = iter(iterable)
    except TypeError:
        raise TypeError("reduce() arg 2 must support iteration") from None
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


class ComparisonKey:
    """What `cmp_to_key(mycmp)` makes of an object."""

    __slots__ = ("mycmp", "obj")
    __hash__ = None

    def __init__(self, mycmp: Callable[[Any, Any], Any], obj: Any) -> None:
        self.mycmp = mycmp
        self.obj = obj

    def __lt__(self, other: ComparisonKey) -> bool:
        return self.mycmp(self.obj, other.obj) < 0

    def __gt__(self, other: ComparisonKey) -> bool:
        return self.mycmp(self.obj, other.obj) > 0

    def __eq__(self, other: object) -> bool:
        return self.mycmp(self.obj, other.obj) == 0

    def __le__(self, other: ComparisonKey) -> bool:
        return self.mycmp(self.obj, other.obj) <= 0

    def __ge__(self, other: ComparisonKey) -> bool:
        return self.mycmp(self.obj, other.obj) >= 0


@polyfill(functools.cmp_to_key)
def cmp_to_key(mycmp: Callable[[Any, Any], Any]) -> Callable[[Any], ComparisonKey]:
    """`functools.cmp_to_key(mycmp)`"""
    return functools.partial(ComparisonKey, mycmp)
