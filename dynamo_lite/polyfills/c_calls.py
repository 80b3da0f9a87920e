"""What stand-ins need of C's own calls and Python has no word for.

Input: any object. Output: as each function says.
Invariant: in captured code `variables/stdlib/app_level.py` models each of them; the bodies here are what they mean.
"""

from __future__ import annotations

import operator
import sys
from typing import Any, NoReturn


class LeftToC(TypeError):
    """What `leave_to_c` raises where nothing is captured."""


def leave_to_c() -> NoReturn:
    """The C function refuses such arguments, in words of its own: captured code breaks, and calls it. Not for functions that stand-ins
    return: these may be called without capture."""
    raise LeftToC


def host_index(n: Any) -> int:
    """`PyNumber_AsSsize_t`. A number that varies from call to call becomes a constant."""
    return operator.index(n)


def host_ssize(n: Any) -> int:
    """The same for the `n` of `PyArg_Parse`, which raises OverflowError."""
    number = operator.index(n)
    if not -sys.maxsize - 1 <= number <= sys.maxsize:
        raise OverflowError("Python int too large to convert to C ssize_t")
    return number


def same_or_equal(a: Any, b: Any) -> bool:
    """`PyObject_RichCompareBool(a, b, Py_EQ)`"""
    return a is b or bool(a == b)


def is_number(a: Any) -> bool:
    """`PyNumber_Check`"""
    return isinstance(a, complex) or any(hasattr(type(a), name) for name in ("__index__", "__int__", "__float__"))


def is_sequence(a: Any) -> bool:
    """`PySequence_Check`"""
    return hasattr(type(a), "__getitem__") and not isinstance(a, dict)


def state_of(a: Any) -> Any:
    """The object in Python that does the work of an object of a class with a stand-in."""
    return a
