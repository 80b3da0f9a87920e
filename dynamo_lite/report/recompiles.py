"""Recompiles for the HTML report: by function, each beside the version that was nearest.

Input: the frames of a `Coverage`. Output: a `RecompiledFunction` for each function with several versions, the one that took longest to
compile again first. Texts of values are cut into pieces, so that those which differ can be marked. Nothing is HTML here.
"""

from __future__ import annotations

import difflib
import linecache
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from dynamo_lite.isa.resume import original_name
from dynamo_lite.messages import short_path
from dynamo_lite.record import FrameRecord, MissedGuard

Pieces = list[tuple[str, bool]]
"""A text in pieces, each with whether it differs from the other text."""


class Difference(NamedTuple):
    """A guard of the nearest version that did not hold: the value's path, what the version was made for, what the call had, and the line
    of the program that asks for the guard: its place and text."""

    path: str
    expected: Pieces
    found: Pieces
    place: str
    line: str


class Recompile(NamedTuple):
    """A version after the first, and what it differs in."""

    record: FrameRecord
    differences: list[Difference]


@dataclass
class RecompiledFunction:
    """The recompiles of one function, those of its rest after breaks counted too."""

    name: str
    where: str
    recompiles: list[Recompile]

    @property
    def seconds(self) -> float:
        """What capture and backends took for them."""
        return sum(r.record.trace_seconds + r.record.backend_seconds for r in self.recompiles)

    @property
    def changed(self) -> list[tuple[str, int]]:
        """The values that differed, the most frequent first: path and number of recompiles."""
        return Counter(path for r in self.recompiles for path in {d.path: 0 for d in r.differences}).most_common()


def recompiled_functions(frames: Iterable[FrameRecord]) -> list[RecompiledFunction]:
    """All recompiles, by function."""
    found: dict[tuple[str, int], RecompiledFunction] = {}
    for frame in sorted(
        frames, key=lambda frame: frame.is_resume
    ):  # the name is that of the function itself, where it was captured
        where = f"{short_path(frame.filename)}:{frame.lineno}"
        function = RecompiledFunction(original_name(frame.name), where, [])
        function = found.setdefault((frame.filename, frame.lineno), function)
        if frame.is_recompile:
            function.recompiles.append(Recompile(frame, differences(frame)))
    return sorted((function for function in found.values() if function.recompiles), key=lambda f: -f.seconds)


def differences(frame: FrameRecord) -> list[Difference]:
    """What of the nearest version did not hold; empty for a first version."""
    return [_difference(failure) for failure in frame.nearest.failures] if frame.nearest is not None else []


def _difference(failure: MissedGuard) -> Difference:
    place, line = "", ""
    if failure.user_line is not None:
        place = f"{short_path(failure.user_line[0])}:{failure.user_line[1]}"
        line = linecache.getline(*failure.user_line).strip()
    return Difference(failure.path, *side_by_side(failure.expected, failure.found), place, line)


def side_by_side(expected: str, found: str) -> tuple[Pieces, Pieces]:
    """Two texts, with the words and numbers marked that differ; wholly where they have nothing but signs in common."""
    left, right = (re.findall(r"\w+|\W", text) for text in (expected, found))
    blocks = difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    if not any(tag == "equal" and any(word.isalnum() for word in left[i:j]) for tag, i, j, _, _ in blocks):
        return [(expected, True)], [(found, True)]
    return (
        [("".join(left[i:j]), tag != "equal") for tag, i, j, _, _ in blocks if j > i],
        [("".join(right[i:j]), tag != "equal") for tag, _, _, i, j in blocks if j > i],
    )
