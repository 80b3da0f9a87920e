"""Stand-ins for `bisect`."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

from .c_calls import is_number, is_sequence, leave_to_c
from .registry import polyfill

Key = Callable[[Any], Any] | None


def _bounds(a: Any, lo: int, hi: int | None) -> tuple[int, int]:
    if not is_sequence(a) or not is_number(lo) or (hi is not None and not is_number(hi)) or lo < 0:
        leave_to_c()
    return lo, len(a) if hi is None or hi == -1 else hi


@polyfill(bisect.bisect_right)
def bisect_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Key = None) -> int:
    """The place for x behind all equal items of the sorted list a."""
    lo, hi = _bounds(a, lo, hi)
    while lo < hi:
        mid = (lo + hi) // 2
        if x < (a[mid] if key is None else key(a[mid])):
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
        if (a[mid] if key is None else key(a[mid])) < x:
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
