"""Recompile limits: how many versions a function may have, and what becomes of it and of what it calls when they are used up.

Input: the cache of a code object and the values of a call that none of its versions fits. Output: whose versions count for it, and the
state of the cache once it has too many.
Invariant: a limit is used up once for one reason. A function that runs eagerly calls others through the hook, wrappers around the same
work most of all; each of them would use up a limit of its own on what has just been given up. So all functions from the one that gave up
down to the line that decides by a size run eagerly; what they call besides is captured by itself. For a size that takes too much
reasoning nobody knows such a line; then nothing more is compiled below.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any

from . import shapes
from .graph import side
from .hints import Memory, waiting_frames
from .record import FrameRecord, Function, MissedGuard
from .resume import is_resumed


def owners(code: CodeType, values: Sequence[Any]) -> tuple[int, ...]:
    """Whose version it is: a module's; with a resumed frame, what the calls are that it waits for, and whose."""
    if not is_resumed(code):
        return (id(values[0]),) if values and side.is_module(values[0]) else ()
    found = [id(value) for value in values if side.is_module(value)][:1]
    if code.co_varnames[: code.co_argcount][-1:] == ("__inner_args",):
        inner, arguments = values[-2:]
        return (*found, id(inner.__code__), *owners(inner.__code__, arguments))
    return tuple(found)


def took_too_much(known: Memory, code: CodeType, values: Sequence[Any]) -> bool:
    """Whether sizes or ints of a frame, or of those that it goes on for, are constants because they took too much reasoning."""
    codes = [code, *(inner for _, inner in waiting_frames(code, values))]
    hints = [known.get(key, {}) for code in codes for key in (code, Function.of(code))]
    return any(shapes.is_fixed(key, value) for each in hints for key, value in each.items())


def deciders(versions: Iterable[tuple[FrameRecord, Sequence[MissedGuard]]]) -> set[Function]:
    """The functions whose lines, or whose calls, made versions that do not fit: by a size that is a constant, and another one in other
    versions, or by a condition on sizes. Input: of each version, its record and the guards that have failed."""
    values: dict[str, set[Any]] = defaultdict(set)
    functions: dict[str, set[Function]] = defaultdict(set)
    found: set[Function] = set()
    for record, misses in versions:
        lines = record.size_lines
        for constant in record.specializations:
            values[constant.text].add(constant.value)
            functions[constant.text].update(lines.get(constant.user, ()))
        found.update(*[lines.get(miss.user_line, ()) for miss in misses])
    return found.union(*[functions[text] for text, seen in values.items() if len(seen) > 1])
