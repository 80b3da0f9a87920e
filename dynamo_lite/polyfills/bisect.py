"""Stand-ins for `bisect`. Size and items are asked of the sequence slots, which a dict and a set don't have."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable
from typing import Any

from dynamo_lite.isa.typeobject import tp_name

from .registry import polyfill
from .sequence import need_items, sequence_item, sequence_size

Key = Callable[[Any], Any] | None


def _asks_for_items_first() -> bool:
    """Whether this CPython wants a slot for items even where it looks at none."""
    try:
        bisect.bisect_right(frozenset(), 0, 0, 0)  # type: ignore[call-overload]
    except TypeError:
        return True
    return False


ASKS_FOR_ITEMS_FIRST = _asks_for_items_first()


def _bounds(a: Any, lo: int, hi: int | None) -> tuple[int, int]:
    lo = operator.index(lo)
    if hi is not None:
        if not hasattr(type(hi), "__index__"):
            raise TypeError(f"argument should be integer or None, not '{tp_name(type(hi))}'")
        hi = operator.index(hi)
    if lo < 0:
        raise ValueError("lo must be non-negative")
    if hi is None or hi == -1:
        hi = sequence_size(a)
    if ASKS_FOR_ITEMS_FIRST:
        need_items(a)
    return lo, hi


@polyfill(bisect.bisect_right)
def bisect_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Key = None) -> int:
    """The place for x behind all equal items of the sorted list a."""
    lo, hi = _bounds(a, lo, hi)
    while lo < hi:
        mid = (lo + hi) // 2
        item = sequence_item(a, mid)
        if x < (item if key is None else key(item)):
            hi = mid
        else:
            lo = mid + 1
    return lo


@polyfill(bisect.bisect_left)
def bisect_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Key = None) -> int:
    """The place for x before all equal items of the sorted list a."""
    lo, hi = _bounds(a, lo, hi)
    while lo < hi:
        mid = (lo + hi) // 2
        item = sequence_item(a, mid)
        if (item if key is None else key(item)) < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


@polyfill(bisect.insort_right)
def insort_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Key = None) -> None:
    """Insert x into the sorted list a, behind equal items."""
    place = bisect_right(a, x if key is None else key(x), lo, hi, key=key)
    a.insert(place, x)


@polyfill(bisect.insort_left)
def insort_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Key = None) -> None:
    """Insert x into the sorted list a, before equal items."""
    place = bisect_left(a, x if key is None else key(x), lo, hi, key=key)
    a.insert(place, x)
