"""Room for frames on the data stack of a thread.

Input: a function that calls much and deep. Output: its result; CPython maps no memory for the frames of its calls.

CPython 3.11 to 3.13 keep the frames of Python functions in chunks of 16 KiB, some eighty frames. A call that does not fit in maps a new
chunk, and its return unmaps it (`_PyThreadState_PushFrame` and `_PyThreadState_PopFrame` in Python/pystate.c): a loop whose calls cross the
end of a chunk does so at every turn, 345,000 times and for 6 of 40 seconds when Inductor compiles the training step of a small CNN. A chunk
is as large as the frame for which it is made, rounded up to a power of two: what a function with a huge frame calls shares the rest of a
huge chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_SLOTS = 65_000
"""A little more than half a MiB of pointers, so that nearly half of a chunk of one MiB is left: 2,500 frames. Nobody touches the slots, so
that they take addresses and no memory."""


def with_room(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """The result of `function` with these arguments."""
    return function(*args, **kwargs)


with_room.__code__ = with_room.__code__.replace(co_stacksize=_SLOTS)
