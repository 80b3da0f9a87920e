"""Recompile limits: which versions of a function count together, and what may still be compiled when they are used up.

Input: the code object of a call that no version fits, the values of the call, and the versions. Output: whose versions count for the
call; at the limit, whether anything below may be compiled, and which functions run eagerly from then on.
Invariant: modules that share versions have a limit each, and one reason uses up a limit once.

A function that runs eagerly calls others through the hook, mostly wrappers around the same work, and each of them would use up a limit of
its own for the same reason. So all functions on the way from the one at its limit to the line that decides (by a size, a text or another
constant) run eagerly; the other functions that they call are captured. If the symbolic budget ran out there is no such line, and nothing
is compiled below the function.

A loop that breaks the graph would get a version per turn if its turns differ in something that cannot become symbolic: a text, the length
of a list, a size that the program makes a constant. Such code has one version.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any

from dynamo_lite.guards import ir
from dynamo_lite.isa.flow import begins_in_loop
from dynamo_lite.isa.lift import lift
from dynamo_lite.isa.resume import is_resumed, waiting_frames
from dynamo_lite.record import FrameRecord, Function, MissedGuard, Specialization

from . import dynamic_shapes
from .automatic_dynamic import Memory, item_of, module_of, path_of, paths_of_waiting, seen_by
from .observed_values import is_module


class Owners:
    """Whose version it is: a module's; with a resumed frame, what the calls are that it waits for, and whose. Others of the same class may
    use the version as well. A module that is gone owns nothing: another one may have its address."""

    def __init__(self, code: CodeType, values: Sequence[Any]) -> None:
        ids: list[int] = []
        modules = []
        for each, variables in ((code, values), *waiting_frames(code, values)):
            if each is not code:
                ids.append(id(each))
            module = module_of(each, variables)
            if module is not None:
                ids.append(id(module))
                modules.append(module)
        self.ids = tuple(ids)
        self.modules = tuple(map(weakref.ref, modules))

    def are(self, others: Owners) -> bool:
        """Whether these own a version of which the others say that they want one."""
        return self.ids == others.ids and self.are_alive()

    def are_alive(self) -> bool:
        """Whether none of the modules is gone."""
        return all(module() is not None for module in self.modules)


def names_of_modules(code: CodeType, values: Sequence[Any]) -> list[str]:
    """The variables that hold modules."""
    return [name for name, value in zip(code.co_varnames, values, strict=False) if is_module(value)]


def concern(misses: Sequence[MissedGuard], names: Sequence[str]) -> bool:
    """Whether a guard that has failed is about what one of these variables holds."""
    roots = {path[0] for miss in misses for path in miss.paths}
    return not roots.isdisjoint([(ir.LOCAL, name) for name in names])


def took_too_much(known: Memory, code: CodeType, values: Sequence[Any]) -> bool:
    """Whether sizes or ints of a frame, or of those that it goes on for, are constants because they took too much reasoning."""
    return any(dynamic_shapes.is_fixed(key, value) for key, value in seen_by(known, code, values))


def innermost(code: CodeType, values: Sequence[Any]) -> tuple[ir.Steps, CodeType, Sequence[Any]]:
    """The frame that goes on first, as access path, code and variables: the innermost frame that waits, else the frame itself."""
    found: tuple[ir.Steps, CodeType, Sequence[Any]] = (), code, values
    for found in paths_of_waiting(code, values):  # noqa: B007 (the last)
        pass
    return found


def breaks_in_loop(code: CodeType, values: Sequence[Any], version: FrameRecord) -> bool:
    """Whether code goes on in a loop after a break, or a version of it breaks in a loop of it."""
    return version.breaks_in_loop or _goes_on_in_loop(innermost(code, values)[1])


def why_in_vain(
    code: CodeType, values: Sequence[Any], version: FrameRecord, misses: Sequence[MissedGuard]
) -> str | None:
    """Why one more version of what breaks in a loop would be one for this turn alone; None if it may serve others. That is if the last
    version rests on what the instruction gave that broke the graph (a text, a list of plain values of another length, a number that the
    program makes a constant, a size that is not 0 or 1), or has made a constant of a size that varies. Input: the call, and the guards of
    that version that have failed."""
    constant = _constant_missed(version, misses)
    if _rests_on_given(code, values, constant, misses):
        return "what it goes on with"
    if constant is None or not version.breaks_in_loop:
        return None
    return f"{constant.text}, which the program makes a constant,"


def _rests_on_given(
    code: CodeType, values: Sequence[Any], constant: Specialization | None, misses: Sequence[MissedGuard]
) -> bool:
    path, code, variables = innermost(code, values)
    on_stack = [i for i, name in enumerate(code.co_varnames[: code.co_argcount]) if name.startswith("__stack_")]
    if not on_stack or not _goes_on_in_loop(code):
        return False
    top = on_stack[-1]
    given, value = item_of(path, ir.INDEX, top) if path else path_of(code.co_varnames[top]), variables[top]
    if type(value) in _NUMBERS:
        return constant is not None and any(miss.paths == (given,) and _is_about(miss, constant) for miss in misses)
    if type(value) in _TEXTS or (type(value) in (list, tuple) and all(type(item) in _PLAIN for item in value)):
        return any(given in miss.paths for miss in misses)
    return bool(misses) and all(_allows_any_size(miss, given) for miss in misses)


def _allows_any_size(miss: MissedGuard, owner: ir.Steps) -> bool:
    """Whether a guard only keeps a size of an object from being 0 or 1."""
    if miss.bounds is None or miss.bounds[1] != 2:
        return False
    (path,) = miss.paths
    return len(path) > len(owner) and path[: len(owner)] == owner


def _goes_on_in_loop(code: CodeType) -> bool:
    return is_resumed(code) and begins_in_loop(lift(code))


def _constant_missed(record: FrameRecord, misses: Sequence[MissedGuard]) -> Specialization | None:
    """The size that is a constant in this version, if nothing but such sizes, and what follows from them, is why it does not fit."""
    lines = {constant.user for constant in record.specializations}
    if any(miss.user_line is not None and miss.user_line not in lines for miss in misses):
        return None
    found = (constant for miss in misses for constant in record.specializations if _is_about(miss, constant))
    return next(found, None)


def _is_about(miss: MissedGuard, constant: Specialization) -> bool:
    """Whether a guard demands that a number is the constant that the program has made of it."""
    return miss.bounds == (constant.text, constant.value, constant.value)


_TEXTS = (str, bytes)
_NUMBERS = (bool, int, float, complex)
_PLAIN = frozenset({*_TEXTS, *_NUMBERS, type(None)})


def deciders(versions: Iterable[tuple[FrameRecord, Sequence[MissedGuard]]]) -> set[Function]:
    """The functions whose lines, or whose calls, made versions that do not fit: by a size or another value that is a constant, and another
    one in other versions, or by a condition on sizes. Input: of each version, its record and the guards that have failed."""
    values: dict[Any, set[Any]] = defaultdict(set)
    functions: dict[Any, set[Function]] = defaultdict(set)
    found: set[Function] = set()
    for record, misses in versions:
        lines = record.size_lines
        for constant in record.specializations:
            values[constant.text].add(constant.value)
            functions[constant.text].update(lines.get(constant.user, ()))
        found.update(*[lines.get(miss.user_line, ()) for miss in misses])
        for miss in misses:
            if miss.kind != ir.TENSOR:
                values["guard", miss.path].add(miss.expected)
                functions["guard", miss.path].update(record.guard_lines.get(miss.user_line, ()))
    return found.union(*[functions[key] for key, seen in values.items() if len(seen) > 1])
