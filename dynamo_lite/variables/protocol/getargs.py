"""Whether the arguments of a call fit its callable.

Input: a callable and the arguments of a call. Output: `fits`, for a Python function; `ignores_keywords`, for the `__new__` of a builtin
type.
Invariant: a call whose arguments do not fit breaks the graph: the callable raises its own TypeError.
Mirrors a part of `Python/getargs.c`.
"""

from __future__ import annotations

import collections
import functools
import inspect
import types
from collections.abc import Iterable
from typing import Any

from .base import VariableTracker

_HAVE_INIT = frozenset(
    {float, list, dict, set, frozenset, tuple, collections.OrderedDict, collections.defaultdict, collections.deque}
)
"""Types that a subclass with an `__init__` of its own may give other arguments."""


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


def ignores_keywords(fn: Any, args: list[VariableTracker]) -> bool:
    """True for a `tp_new` that leaves keywords to the `__init__` that a subclass has (`_PyArg_NoKeywords` is asked only without one)."""
    made = fn.__self__ if type(fn) is types.BuiltinFunctionType and fn.__name__ == "__new__" else None
    if made not in _HAVE_INIT or not args or args[0].value.__init__ is made.__init__:
        return False
    try:
        fn(_with_init(made), **{"": None})
    except TypeError:
        return False
    return True


@functools.cache
def _with_init(cls: type) -> type:
    """A subclass with an `__init__` of its own."""
    return type("Sub", (cls,), {"__init__": lambda self, *args, **kwargs: None})
