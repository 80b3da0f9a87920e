"""Recompile limits: which versions of a function count together, and what becomes of what it calls when they are used up.

Input: the code object of a call that no version fits, the call's values, and the versions. Output: whose versions count for it; once there
are too many, whether anything below may be compiled, and the functions that give up with it.
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
from .hints import Memory, seen_by
from .record import FrameRecord, Function, MissedGuard
from .resume import is_resumed, waiting_frames


def owners(code: CodeType, values: Sequence[Any]) -> tuple[int, ...]:
    """Whose version it is: a module's; with a resumed frame, what the calls are that it waits for, and whose."""
    found = _owner(code, values)
    for inner, variables in waiting_frames(code, values):
        found += (id(inner), *_owner(inner, variables))
    return found


def _owner(code: CodeType, values: Sequence[Any]) -> tuple[int, ...]:
    """The module that is the first argument; of what goes on for a method, the first variable that is one."""
    candidates = values if is_resumed(code) else values[:1]
    return tuple([id(value) for value in candidates if side.is_module(value)][:1])


def took_too_much(known: Memory, code: CodeType, values: Sequence[Any]) -> bool:
    """Whether sizes or ints of a frame, or of those that it goes on for, are constants because they took too much reasoning."""
    return any(shapes.is_fixed(key, value) for key, value in seen_by(known, code, values))


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
