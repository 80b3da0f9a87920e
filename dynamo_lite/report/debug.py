"""`python -m dynamo_lite debug`: stop where a graph breaks, look at the state of the capture, and follow it line by line.

Input: a script; commands on standard input. Output: the answers.
Invariant: looking changes nothing: lazy values stay lazy, no guard is added, and the program's results are those of a run without the
debugger. An inactive debugger costs nothing.

The debugger follows analyses, not the program: a line is interpreted on symbolic values when its function is captured, again from the
beginning after each break (an analysis learns where it has to end), and executed afterwards. Stepping passes over the code of torch.
"""

from __future__ import annotations

import cmd
import contextlib
import linecache
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO
from unittest import mock

import torch

from dynamo_lite.exc import Unsupported
from dynamo_lite.frontend.analysis import Analysis
from dynamo_lite.guards.mirror import mirror_source
from dynamo_lite.interp.frame import NULL, OPS, ExcInfo, Frame
from dynamo_lite.messages import short_path
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.protocol import trace_rules
from dynamo_lite.variables.protocol.base import MISSING

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace

_TORCH = os.path.dirname(torch.__file__) + os.sep
AROUND = 5
"""Lines of the source that `list` shows before and after the current one."""


class Quit(SystemExit):
    """The command `quit`."""


class Debugger(cmd.Cmd):
    """The commands; `watching()` is the block in which captures stop. `at_start` stops at the first line that is captured."""

    prompt = "(dynamo_lite) "

    def __init__(self, stdin: TextIO | None = None, stdout: TextIO | None = None, *, at_start: bool = False) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None and sys.stdin.isatty()
        self.frame: Frame | None = None
        self.reason: Unsupported | None = None
        self.lines: set[tuple[str, int]] = set()
        self.stop_at: Callable[[Frame], bool] | None = self._new_line(None) if at_start else None
        self.last: tuple[Any, int] | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Captures that happen inside stop at breaks and where the commands have said."""
        learn = Analysis._learn

        def learned(analysis: Any, tr: Trace, error: Unsupported) -> bool:
            if not error.user_stack:
                error.user_stack = tr.thread.user_stack()
            self.at_break(tr, error)
            return learn(analysis, tr, error)

        handlers = list(OPS)
        OPS[:] = map(self._watched, handlers)
        try:
            with mock.patch.object(Analysis, "_learn", learned):
                yield
        finally:
            OPS[:] = handlers

    def _watched(self, handler: Any) -> Any:
        if handler is None:
            return None

        def step(frame: Frame, instr: object) -> Any:
            if (self.stop_at is not None or self.lines) and not trace_rules.is_internal(frame.code):
                self._before(frame)
            return handler(frame, instr)

        return step

    def _before(self, frame: Frame) -> None:
        place = (frame, frame.lineno)
        is_new = self.last is None or self.last != place
        wanted = self.stop_at is not None and not _is_of_torch(frame.code) and self.stop_at(frame)
        at_line = is_new and (frame.code.co_filename, frame.lineno) in self.lines
        self.last = place
        if wanted or at_line:
            self._interact(frame, None)

    def at_break(self, tr: Trace, reason: Unsupported) -> None:
        """Stop at a break, in the innermost frame of the program."""
        frame = tr.thread.frame
        while frame is not None and trace_rules.is_internal(frame.code):
            frame = frame.parent
        if frame is not None:
            self._interact(frame, reason)

    def _interact(self, frame: Frame, reason: Unsupported | None) -> None:
        self.frame, self.reason, self.stop_at = frame, reason, None
        if reason is not None:
            self._say(str(reason))
        else:
            self._say(self._place(frame))
        try:
            self.cmdloop()
        finally:
            self.frame = self.reason = None

    # -- going on

    def do_step(self, _: str) -> bool:
        """step (s): on to the next line that is captured, also in functions that are called."""
        self.stop_at = self._new_line(self.last)
        return True

    def do_next(self, _: str) -> bool:
        """next (n): on to the next line of this function, or of its caller."""
        here = self._current()
        now, was_break = dict(_lines(here)), self.reason is not None

        def is_next(frame: Frame) -> bool:
            """Behind a break other frames go on: before they do, the analysis has followed the program up to the break once more."""
            lines = list(_lines(frame))
            if was_break and not frame.tr.root.call.record.is_resume:
                return False
            return bool(lines) and now.get(lines[0][0], frame.lineno) != frame.lineno

        self.stop_at = is_next
        return True

    def do_stepi(self, _: str) -> bool:
        """stepi (si): on to the next instruction of the bytecode."""
        self.stop_at = lambda frame: True
        return True

    def do_return(self, _: str) -> bool:
        """return (r): on until this function is back in its caller."""
        parent = self.frame.parent if self.frame is not None else None
        self.stop_at = (lambda frame: frame is parent) if parent is not None else None
        return True

    def do_continue(self, _: str) -> bool:
        """continue (c): on to the next break of a graph, or the next line given to `break`."""
        return True

    def do_break(self, text: str) -> None:
        """break (b) [FILE:]LINE: stop whenever this line is captured; without a line: show them all."""
        if not text:
            self._say("\n".join(f"{short_path(file)}:{line}" for file, line in sorted(self.lines)) or "no lines")
            return
        file, _, line = text.rpartition(":")
        if not line.isdigit():
            self._say("break [FILE:]LINE")
            return
        known = self.frame.code.co_filename if self.frame is not None else ""
        self.lines.add((file or known, int(line)))

    def do_clear(self, _: str) -> None:
        """clear: forget the lines given to `break`."""
        self.lines.clear()

    def do_quit(self, _: str) -> bool:
        """quit (q): end the program."""
        raise Quit(1)

    def do_EOF(self, _: str) -> bool:
        """The end of the input: go on without stopping."""
        self.lines.clear()
        self.stop_at = None
        return True

    # -- looking

    def do_why(self, _: str) -> None:
        """why: the break again: what, where, why, and what to do."""
        reason = self.reason
        self._say(str(reason) if reason is not None else "no break here")

    def do_where(self, _: str) -> None:
        """where (w): the functions that are captured, outermost first."""
        frame, lines = self.frame, []
        while frame is not None:
            if not trace_rules.is_internal(frame.code):
                lines.append(self._place(frame))
            frame = frame.parent
        self._say("\n".join(reversed(lines)))

    def do_list(self, _: str) -> None:
        """list (l): the source around the current line."""
        frame = self._current()
        for number in range(max(1, frame.lineno - AROUND), frame.lineno + AROUND + 1):
            text = linecache.getline(frame.code.co_filename, number).rstrip()
            if text or number <= frame.lineno:
                self._say(f"{'->' if number == frame.lineno else '  '} {number:4} {text}")

    def do_locals(self, _: str) -> None:
        """locals: the variables with their types and values; a variable that the code has not used yet shows its path only."""
        frame = self._current()
        for name, value in zip(frame.lifted.local_names, frame.locals, strict=True):
            if value is not None:
                self._say(f"{name} = {described(value)}")

    def do_print(self, name: str) -> None:
        """print (p) NAME: one variable of this function, its closure, or its globals."""
        frame = self._current()
        for known, value in zip(frame.lifted.local_names, frame.locals, strict=True):
            if known == name and value is not None:
                self._say(described(value))
                return
        self._say(f"{name} is not a variable of {frame.code.co_qualname}")

    def do_stack(self, _: str) -> None:
        """stack: the values that the current instruction finds, the last one on top; and the instruction."""
        frame = self._current()
        instr = frame.lifted.instrs[frame.cur]
        self._say(f"{instr.op.name} {'' if instr.arg is None else instr.arg}".rstrip())
        for value in frame.stack:
            self._say(f"  {described(value)}")

    def do_graph(self, _: str) -> None:
        """graph: the operators so far."""
        self._say("\n".join(map(_line_of, self._current().tr.graph.graph.nodes)) or "no operators yet")

    def do_guards(self, _: str) -> None:
        """guards: the assumptions so far, as Python."""
        self._say(mirror_source(self._current().tr.guards).rstrip())

    do_s, do_n, do_si, do_r, do_c, do_q = do_step, do_next, do_stepi, do_return, do_continue, do_quit
    do_b, do_w, do_l, do_p = do_break, do_where, do_list, do_print

    def do_help(self, name: str) -> None:
        """help (h): the commands."""
        names = [name] if name else ["step", "next", "stepi", "return", "continue", "break", "clear", "quit"]
        names += [] if name else ["why", "where", "list", "locals", "print", "stack", "graph", "guards"]
        for one in names:
            method = getattr(self, f"do_{one}", None)
            self._say(method.__doc__ if method is not None else f"no command {one}")

    do_h = do_help

    def emptyline(self) -> bool:
        """An empty line is `step`."""
        return self.do_step("")

    def default(self, line: str) -> None:
        """Anything else."""
        self._say(f"no command {line.split()[0]!r}; help lists them")

    def _current(self) -> Frame:
        assert self.frame is not None
        return self.frame

    @staticmethod
    def _new_line(last: tuple[Any, int] | None) -> Callable[[Frame], bool]:
        return lambda frame: last is None or (frame, frame.lineno) != last

    @staticmethod
    def _place(frame: Frame) -> str:
        code: types.CodeType = frame.code
        text = linecache.getline(code.co_filename, frame.lineno).strip()
        return f"{short_path(code.co_filename)}:{frame.lineno} in {code.co_qualname}\n    {text}"

    def _say(self, text: str) -> None:
        print(text, file=self.stdout)


def _lines(frame: Frame) -> Iterator[tuple[tuple[object, ...], int]]:
    """The functions of the program that a frame is called in, itself first, each with its line. A function is known by its callers; one
    that goes on behind a break is the same one."""
    here: Frame | None = frame
    while here is not None:
        callers = (f for f in _frames(here) if not trace_rules.is_internal(f.code))
        yield tuple([(f.code.co_filename, f.code.co_firstlineno) for f in callers]), here.lineno
        here = here.parent


def _frames(frame: Frame) -> Iterator[Frame]:
    here: Frame | None = frame
    while here is not None:
        yield here
        here = here.parent


def _is_of_torch(code: types.CodeType) -> bool:
    """Whether stepping passes over the code: what torch does around the program's own."""
    return code.co_filename.startswith(_TORCH)


def _line_of(node: Any) -> str:
    if node.op == "placeholder":
        return f"{node.name}: input"
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    given = [*map(repr, node.args), *(f"{name}={value!r}" for name, value in node.kwargs.items())]
    return f"{node.name} = {target}({', '.join(given)})"


def described(value: Any) -> str:
    """A tracker in one line. A lazy tracker stays lazy: its type and path are shown."""
    if value is NULL:
        return "NULL"
    if type(value) is ExcInfo:
        return f"exception being handled: {described(value.exc)}"
    state = value.__dict__
    if "_lazy" in state:
        return f"{type(state['_lazy'][1]).__name__} at {state['source'].path}, not looked at"
    if type(value) is CellVariable and value.content is not None and value.content is not MISSING:
        return f"cell: {described(value.content)}"
    return f"{value.python_type().__name__}: {value.describe()}".rstrip(": ")
