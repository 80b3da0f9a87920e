"""Forecast the graph breaks of a script without running it.

Input: the path of a Python file. Output: a `Report`: for each function of the file the calls that end a graph, as far as they can be
told from the names that the file imports, with their numbers and what to do.
Invariant: the file is compiled, never executed; of the modules that it imports only those of the standard library and torch are
looked at. Code at module level is not captured, so nothing is said about it; nor about functions that are not compiled, where the
file says which are.
"""

from __future__ import annotations

import inspect
import types
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from dynamo_lite.breaks import BREAKS, UserFrame, format_break
from dynamo_lite.exc import many
from dynamo_lite.isa import LiftError

from .forecast import UNKNOWN, Event, KnownVariable, StaticFrame, StaticVariable, builtin_name, tensor_names


class Forecast(NamedTuple):
    """One place of the script where a graph ends."""

    frame: UserFrame
    slug: str
    context: str

    def as_dict(self) -> dict[str, Any]:
        kind, frame = BREAKS[self.slug], self.frame
        return {
            "line": frame.lineno,
            "column": frame.col,
            "end_line": frame.end_lineno,
            "end_column": frame.end_col,
            "function": frame.function,
            "number": kind.code,
            "slug": self.slug,
            "title": kind.title,
            "context": self.context,
            "why": kind.why,
            "what_to_do": kind.what_to_do,
        }


class Report(NamedTuple):
    """The forecast of a file. `functions`: the number of functions examined; `calls`, `unknown`: the numbers of their calls, and of the
    calls whose callee is known only when the program runs."""

    path: str
    functions: int
    calls: int
    unknown: int
    breaks: list[Forecast]

    def as_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "breaks": [found.as_dict() for found in self.breaks]}

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        for found in self.breaks:
            yield format_break(found.slug, found.context, [found.frame])
            yield ""
        where = len({found.frame.function for found in self.breaks})
        counts = Counter(BREAKS[found.slug].code for found in self.breaks)
        kinds = ", ".join(f"{code} {n}×" if n > 1 else code for code, n in sorted(counts.items()))
        yield (
            f"{self.path}: {many(len(self.breaks), 'graph break')} forecast in {where} of {self.functions} "
            f"functions" + (f" ({kinds})" if kinds else "")
        )
        yield f"{many(self.calls, 'call')}, of which {self.unknown} of something that is known only when the program runs"


def check(path: str) -> Report:
    """Look at a Python file. Raises OSError and SyntaxError as reading and compiling it do."""
    with open(path, "rb") as file:
        source = file.read()
    return check_source(source, path)


def check_source(source: str | bytes, path: str = "<string>") -> Report:
    """Look at the text of a Python file. Raises SyntaxError."""
    code = compile(source, path, "exec", dont_inherit=True)
    text = source.decode(errors="replace") if isinstance(source, bytes) else source
    return _Script(path, text.splitlines()).run(code)


def _is_torch(value: Any) -> bool:
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    return name.partition(".")[0] == "torch"


class _Script:
    def __init__(self, path: str, lines: list[str]) -> None:
        self.path = path
        self.lines = lines
        self.frames: dict[types.CodeType, StaticFrame] = {}
        self.inside: dict[types.CodeType, types.CodeType] = {}

    def run(self, code: types.CodeType) -> Report:
        self.module = StaticFrame(code, builtin_name, lambda name: UNKNOWN, {}).run()
        imports_torch = any(
            isinstance(value, KnownVariable) and _is_torch(value.value) for value in self.module.bound.values()
        )
        self.tensors = tensor_names() if imports_torch else frozenset()
        self._inner(code, self.module, None)
        chosen = {code: frame for code, frame in self.frames.items() if code in self._captured()}
        found = {self._forecast(code, event): None for code, frame in chosen.items() for event in frame.events}
        unknown = sum(frame.unresolved for frame in chosen.values())
        return Report(
            self.path,
            sum(not code.co_name.startswith("<") for code in chosen),
            sum(frame.resolved for frame in chosen.values()) + unknown,
            unknown,
            sorted(found, key=lambda found: (found.frame.lineno, found.frame.col or 0)),
        )

    def _captured(self) -> set[types.CodeType]:
        """The functions that may be captured: those that are compiled and what they call, if the file says so, else all functions
        that compile nothing themselves."""
        everything = [self.module, *self.frames.values()]
        reached = {code for frame in everything for code in frame.compiled}
        if not reached or any(frame.compiles for frame in everything):
            return {code for code, frame in self.frames.items() if not (frame.compiles or frame.compiled)}
        work = list(reached)
        while work:
            code = work.pop()
            frame = self.frames.get(code)
            inner = [other for other, outer in self.inside.items() if outer is code]
            new = {*inner, *(frame.called if frame is not None else ())} - reached
            reached |= new
            work += new
        return reached

    def _inner(self, code: types.CodeType, outer: StaticFrame, enclosing: StaticFrame | None) -> None:
        """The functions and classes defined in `code`."""
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType) and inner not in outer.disabled:
                self._function(inner, outer, enclosing)

    def _function(self, code: types.CodeType, outer: StaticFrame, enclosing: StaticFrame | None) -> None:
        def free(name: str) -> StaticVariable:
            if enclosing is None or name not in enclosing.lifted.local_names:
                return UNKNOWN
            return enclosing.variable(enclosing.lifted.slot_of(name))

        try:
            frame = StaticFrame(code, self.module.name, free, outer.functions.get(code, {}), tensors=self.tensors).run()
        except LiftError:
            return
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
        self.inside[code] = outer.code
        if is_function:
            self.frames[code] = frame
        self._inner(code, frame, frame if is_function else enclosing)

    def _forecast(self, code: types.CodeType, event: Event) -> Forecast:
        lineno, end_lineno, col, end_col = event.instr.pos
        lineno = lineno or code.co_firstlineno
        line = self.lines[lineno - 1] if 0 < lineno <= len(self.lines) else ""
        function = code.co_qualname.partition(".<locals>.<")[0]
        return Forecast(
            UserFrame(self.path, lineno, function, line, col, end_col, end_lineno), event.slug, event.context
        )
