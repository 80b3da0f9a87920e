"""Functions to which something has happened too often.

Input: breaks in functions that were inlined, analyses that came to nothing. Output: which functions are called instead of inlined, and
which are not analysed again.
Invariant: counts are per code object and class of the first argument where all callers share wrappers (`Module._call_impl`, decorators):
counted per code object alone, these would be blamed for one callee.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import Restart
from dynamo_lite.isa.flow import is_in_loop
from dynamo_lite.isa.resume import is_resumed
from dynamo_lite.record import Function
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker, real_object

from .observed_sizes import note_call

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

    from .tracing import Trace

UNCONCERNED, UNFIT, TOO_LONG, OUT_OF_MEMORY, IMPORTING = (
    "unconcerned",
    "unfit",
    "too long",
    "out of memory",
    "importing",
)
LAST_TIME = {UNCONCERNED: 32, UNFIT: 2, TOO_LONG: 3, OUT_OF_MEMORY: 2, IMPORTING: 32}
"""How many times something may happen to a function before it is not looked at again: it is an inner frame that had nothing to do with
torch; a call has sizes that the program does not allow for; the analysis has used up its budget, or the memory;
another thread was importing what the analysis needs."""

TOO_BROKEN = 3
"""A function with a first argument of the same class that was inlined in so many calls with a graph break in them is called instead, and
captured as a frame of its own: what follows a break in an inlined function belongs to the one call, while all callers share the parts of
a frame. A break counts for the innermost function, and for all that a loop leads to it through, as each of them would be next."""


class Strikes:
    """What has happened to whom, and how often. `without_data`: codes whose graphs are made without numbers that data decide."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, object]] = Counter()
        self.without_data: set[CodeType] = set()

    def is_last(self, what: str, whom: object) -> bool:
        """Note that something has happened to a function; whether it is not looked at again."""
        self._counts[what, whom] += 1
        return self._counts[what, whom] >= LAST_TIME[what]

    def clear(self) -> None:
        """Forget everything."""
        self._counts.clear()
        self.without_data.clear()


class InnerBreaks:
    """Breaks in inlined functions; `turns`: resumed code that would have a version for each turn of a loop."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int, int]] = Counter()
        self.turns: set[CodeType] = set()

    def clear(self) -> None:
        """Forget everything."""
        self._counts.clear()
        self.turns.clear()

    def ask_for_call(self, code: CodeType, arguments: Sequence[VariableTracker | None]) -> bool:
        """Whether a function is better called with these than inlined. (What is left of an earlier call goes on as it began, unless it is
        another one in each turn.)"""
        if is_resumed(code):
            return code in self.turns
        return bool(self._counts) and self._counts[_whose(code, arguments)] >= TOO_BROKEN

    def note(self, tr: Trace, frames: list[Frame]) -> None:
        """Take note of the functions that were followed up to a break: of the sizes they were called with, and that there is one; once
        for each call, as what goes on for a call has been counted. What makes constants of sizes, and breaks in a loop, would make
        its caller one for each size: it is not followed. `frames` is innermost first."""
        in_loop = [is_in_loop(frame.lifted, frame.cur) for frame in frames]
        tr.root.call.record.breaks_in_loop = in_loop[-1]
        begun = [
            (i, frame, _whose(frame.code, frame.arguments))
            for i, frame in enumerate(frames[:-1])
            if not is_resumed(frame.code)
        ]
        if any(in_loop[i] for i, *_ in begun):
            who = tr.graph.passes.sizes.who_made_constants()
            apart = {
                key
                for i, frame, key in begun
                if in_loop[i] and Function.of(frame.code) in who and self._counts[key] < TOO_BROKEN
            }
            if apart:
                self._counts.update(dict.fromkeys(apart, TOO_BROKEN))
                raise Restart("what makes constants of sizes, and breaks in a loop, is a frame of its own")
        for frame in frames[:-1]:
            note_call(tr, frame.code, frame.arguments)
        self._counts.update([key for i, _, key in begun if i == 0 or any(in_loop[i + 1 :])])


def _whose(code: CodeType, arguments: Sequence[VariableTracker | None]) -> tuple[str, int, int]:
    """Whose breaks count together: those of a function, with its resume functions, and a first argument of the same class."""
    return code.co_filename, code.co_firstlineno, _class_of_first(arguments)


def _class_of_first(args: Sequence[VariableTracker | None]) -> int:
    """Whose method it is, for functions that many classes share: a decorator's wrapper, `Module._call_impl`. Looks at nothing lazy."""
    first: Any = args[0] if args else None
    if type(first) is CellVariable:
        first = first.content
    if type(first) is TupleVariable:  # *args
        return _class_of_first(first.items)
    if first is None or first is MISSING:
        return 0
    value = real_object(first)
    return id(type(value) if value is not MISSING else first.python_type())
