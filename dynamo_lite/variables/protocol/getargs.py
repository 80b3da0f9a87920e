"""Whether the arguments of a call fit its callable.

Input: a Python callable and the arguments of a call. Output: `fits`.
Invariant: a call whose arguments do not fit breaks the graph: the callable raises its own TypeError.
Mirrors a part of `Python/getargs.c`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from typing import Any


def fits(function: object, positional: int, names: Iterable[str]) -> bool:
    """Whether a call with so many positional arguments and these keywords binds to the parameters of a Python callable."""
    try:
        _signature(function).bind(*[None] * positional, **dict.fromkeys(names))
    except TypeError:
        return False
    return True


@functools.cache
def _signature(function: Any) -> inspect.Signature:
    return inspect.signature(function)
