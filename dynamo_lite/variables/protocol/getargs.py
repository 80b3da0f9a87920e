"""What the argument parsers of C say about a call, before anything else happens.

Input: a C callable and the trackers of a call that does not fit its handler. Output: the TypeError that the callable raises for this number
of arguments and these keywords (`argument_error`), or that its keywords are ignored (`ignores_keywords`).
Invariant: the callable is asked itself, with None for each argument and an empty object as self: a wrong number is found out first. Only
callables that could do no harm with such arguments are asked: pure functions, builtin types, methods of builtin types, and what a few
modules in C consist of.
Mirrors `Python/getargs.c`.
"""

from __future__ import annotations

import collections
import functools
import inspect
import re
import types
from collections.abc import Iterable
from typing import Any

from dynamo_lite.exc import CONTEXT

from .base import VariableTracker
from .descr import METHOD_DESCRIPTORS
from .dispatch import PURE

# What CPython's argument parsers say about the number and the names of arguments, before they look at one.
_ARGUMENT_ERROR = re.compile(r"\b(takes|expected|missing|needs an|invalid|unexpected)\b.*\bargument|needs an argument$")
_PARSED_TYPES = (
    object,
    list,
    dict,
    set,
    frozenset,
    tuple,
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    bool,
    range,
    slice,
    collections.OrderedDict,
    collections.defaultdict,
    collections.deque,
)
# Modules in C whose functions and types do nothing when they are given None.
_HARMLESS = frozenset(
    "itertools functools _functools operator _operator collections _collections _heapq _bisect math".split()
)


def argument_error(fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> TypeError | None:
    """The TypeError of a C callable for this number of arguments and these keywords, None if they are right or it can't be told."""
    host = _harmless_arguments(fn, args)
    if host is None:
        return None
    try:
        fn(*host, **dict.fromkeys(kwargs))
    except TypeError as error:
        CONTEXT.__set__(error, None)  # with what leads to the frames that call this
        return error.with_traceback(None) if _ARGUMENT_ERROR.search(str(error)) else None
    except Exception:
        return None
    return None


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


def _harmless_arguments(fn: Any, args: list[VariableTracker]) -> list[Any] | None:
    """Real arguments, as many as there are; None if the callable had better not be called."""
    if isinstance(fn, type):
        # The class itself comes first in the arguments of a constructor's handler.
        asked = fn in PURE or fn.__module__ in _HARMLESS or fn.__module__ == "builtins"
        return [None] * (len(args) - 1) if asked else None
    if isinstance(fn, (*METHOD_DESCRIPTORS, types.ClassMethodDescriptorType)):
        owner = fn.__objclass__
        if owner not in _PARSED_TYPES:
            return None
        first = owner if isinstance(fn, types.ClassMethodDescriptorType) else _empty(owner)
        return [first, *[None] * (len(args) - 1)] if args else []
    if not isinstance(fn, types.BuiltinFunctionType):
        return None
    made = made_by(fn)
    if made in _PARSED_TYPES and args:
        return [made if args[0].value.__init__ is made.__init__ else _with_init(made), *[None] * (len(args) - 1)]
    return [None] * len(args) if fn in PURE or fn.__module__ in _HARMLESS else None


def _empty(cls: type) -> Any:
    """An instance to which methods may do what they like."""
    if cls is slice:
        return slice(None)
    return range(0) if cls is range else cls()


def made_by(fn: Any) -> Any:
    """The type whose `tp_new` a builtin function is."""
    return fn.__self__ if fn.__name__ == "__new__" and isinstance(fn.__self__, type) else None


@functools.cache
def _with_init(cls: type) -> type:
    """A subclass with an `__init__` of its own."""
    return type("Sub", (cls,), {"__init__": lambda self, *args, **kwargs: None})


def ignores_keywords(fn: Any, args: list[VariableTracker]) -> bool:
    """True for a `tp_new` that leaves keywords to the `__init__` that a subclass has (`_PyArg_NoKeywords` is asked only without one)."""
    made = made_by(fn) if isinstance(fn, types.BuiltinFunctionType) else None
    if made not in _PARSED_TYPES or not args or args[0].value.__init__ is made.__init__:
        return False
    try:
        fn(_with_init(made), **{"": None})
    except TypeError:
        return False
    return True
