"""Stand-ins for the functions of `math` that take containers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from .registry import polyfill


@polyfill(math.prod, pure=True)
def prod(iterable: Iterable[Any], /, *, start: Any = 1) -> Any:
    """`math.prod(iterable, /, *, start=1)`"""
    result = start
    for value in iterable:
        result = result * value
    return result


@polyfill(math.dist, pure=True)
def dist(p: Sequence[Any], q: Sequence[Any], /) -> float:
    """`math.dist(p, q)`: the C function on tuples, which are constants if their items are."""
    return math.dist(tuple(p), tuple(q))


@polyfill(math.fsum, pure=True)
def fsum(seq: Iterable[Any], /) -> float:
    """`math.fsum(iterable)`"""
    return math.fsum(tuple(seq))


if hasattr(math, "sumprod"):

    @polyfill(math.sumprod, pure=True)
    def sumprod(p: Iterable[Any], q: Iterable[Any], /) -> Any:
        """`math.sumprod(p, q)`"""
        return math.sumprod(tuple(p), tuple(q))


def checked_radicand(x: float, /) -> float:
    """The operand of `math.sqrt`, which raises for a negative one, where compilers would not."""
    if x < 0:
        raise ValueError("math domain error")
    return float(x)


def checked_for_int(x: float, /) -> float:
    """The operand of `round`, which raises for what is no number and gives a long int for a large one; compilers know 64 bits."""
    if not -(2.0**53) < x < 2.0**53:
        raise OverflowError("cannot convert float infinity to integer")
    return x
