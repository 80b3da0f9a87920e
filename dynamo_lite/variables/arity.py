"""The error of a call whose arguments do not fit a C function.

Input: the real callable, the number of positional arguments and the names of the keyword arguments. Output: the
exception that CPython's argument parsing raises.
Invariant: only called for arguments that do not fit, so that the real function never gets to do anything.
Mirrors `Python/getargs.c` by asking it.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def binding_error(fn: Any, n_args: int, names: Iterable[str]) -> TypeError | None:
    """What `fn` raises when called with so many arguments and these keywords; None if that can't be found out."""
    args: list[Any] = [None] * n_args
    try:
        if isinstance(fn, _DESCRIPTORS):
            args[:1] = [fn.__objclass__()]
        fn(*args, **dict.fromkeys(names))
    except TypeError as error:
        return error
    except Exception:
        return None
    return None
