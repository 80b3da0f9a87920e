"""A frame whose graph raises starts again.

Input: what the generated frame has in its hands when its graph call fails: the original's code, the cells and the arguments.
Output: the call of the original, run eagerly in the frame's place; or, where that may not be, the error with the user's lines.
Invariant: generated code calls its graph before anything else, so nothing of the program has happened in Python yet; `graph.core.failure`
answers for the tensors. Arguments are bound as in `initialize_locals` (`Python/ceval.c`).
"""

from __future__ import annotations

import os
from types import CellType, CodeType, FunctionType, TracebackType
from typing import Any, NamedTuple

from dynamo_lite._eval_frame import eager_call
from dynamo_lite.exc import TRACEBACK
from dynamo_lite.isa.resume import frame_stub, interrupted_code
from dynamo_lite.signals import is_interruption

PLACED = -1
"""`tb_lasti` of the entries made here: no instruction of theirs has run."""

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Place(NamedTuple):
    """A line of the program, and the one that its frame was called from when that frame was inlined."""

    code: CodeType
    lineno: int
    caller: Place | None = None


class Original:
    """Generated code calls this with its cells and all its variables that are arguments, and returns what it gets."""

    __slots__ = ("code", "globals")

    def __init__(self, code: CodeType, globals_: dict[str, Any]) -> None:
        self.code = code
        self.globals = globals_

    def __call__(self, cells: tuple[CellType, ...], *values: Any) -> Any:
        code = self.code
        function = FunctionType(code, self.globals, code.co_name, None, cells)
        first, after = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        extra = list(values[after:])
        star = extra.pop(0) if code.co_flags & 0x04 else ()
        named = dict(zip(code.co_varnames[first:after], values[first:after], strict=True))
        if code.co_flags & 0x08:
            named.update(extra[0])
        return eager_call(function, (*values[:first], *star, *named.values()), tuple(named))


class Interrupted(Original):
    """Continuations call this in the same way, with what has interrupted their graph as the last argument: it comes up inside the blocks of
    the original."""

    __slots__ = ()

    def __call__(self, cells: tuple[CellType, ...], *values: Any) -> Any:
        *given, error = values
        code = interrupted_code(self.code, given, error)
        if code is None:
            raise error
        traceback = TRACEBACK.__get__(error)
        TRACEBACK.__set__(error, traceback.tb_next if traceback is not None else None)
        return Original(code, self.globals)(cells, *given)


def has_interrupted(error: BaseException) -> bool:
    """Whether this has come up while the graph of the frame that calls this ran, and is no error of the graph."""
    return not isinstance(error, Exception) or is_interruption(error, 1)


def put_place(error: BaseException, place: Place | None) -> None:
    """Put the lines of an operator before the traceback that its error has so far."""
    traceback = TRACEBACK.__get__(error)
    while place is not None:
        frame = FunctionType(frame_stub(place.code), {})().gi_frame
        traceback = TracebackType(traceback, frame, PLACED, place.lineno)
        place = place.caller
    TRACEBACK.__set__(error, traceback)


def without_own(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the entries of our own functions, which eager execution does not call."""
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    for entry in reversed(entries):
        if not entry.tb_frame.f_code.co_filename.startswith(_HERE):
            traceback = TracebackType(traceback, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return traceback


def take_place(error: BaseException) -> None:
    """Merge the traceback entry of the generated frame into the next one: `put_place` has made that for the same frame."""
    entry = TRACEBACK.__get__(error)
    placed = entry.tb_next if entry is not None else None
    if placed is not None and placed.tb_lasti == PLACED and _looks_like(placed.tb_frame.f_code, entry.tb_frame.f_code):
        TRACEBACK.__set__(error, TracebackType(placed.tb_next, entry.tb_frame, PLACED, placed.tb_lineno))


def _looks_like(stub: CodeType, code: CodeType) -> bool:
    return (stub.co_filename, stub.co_name, stub.co_firstlineno) == (
        code.co_filename,
        code.co_name,
        code.co_firstlineno,
    )
