"""A line on the terminal while something is compiled for long: what, in which phase, for how many seconds.

Input: `shown(…)` around the work. Output: the line on stderr, changed in place and taken away at the end; only if stderr is a terminal and
`config.progress` is on. Invariant: nothing of the program runs for it. A thread writes it that `threading` does not list, and that ends
with the work; what the compilers of torch are at, it sees in their frames.
"""

from __future__ import annotations

import _thread
import io
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from .config import config
from .messages import is_users

DELAY = 1.0
"""Seconds that work takes before there is a line about it."""
INTERVAL = 0.2

PHASES = {
    ("torch._inductor.cpp_builder", "run_compile_cmd"): "C++ compiler",
    ("torch._inductor.async_compile", "AsyncCompile.wait"): "compiling kernels",
    ("torch._inductor.graph", "GraphLowering.codegen"): "Inductor, generating code",
    ("torch._inductor.graph", "GraphLowering.run"): "Inductor, lowering",
    ("torch._inductor.compile_fx", "compile_fx_inner"): "Inductor",
    ("torch._inductor.compile_fx", "compile_fx"): "AOTAutograd",
    ("torch._functorch.aot_autograd", "aot_module_simplified"): "AOTAutograd",
    ("dynamo_lite.backends.aot", "load_compiler"): "importing the compiler",
}
"""Functions of compilers, and what is going on below them; the innermost one counts."""

CALLERS = ("dynamo_lite.frontend", "torch.autograd")

Text = str | Callable[[], str]


class Job:
    """Work under way in a thread: its title, what is told of it besides, and since when."""

    def __init__(self, title: Text) -> None:
        self.title = title
        self.step: Text = ""
        self.thread = _thread.get_ident()
        self.started = time.monotonic()

    def tell(self, step: Text) -> None:
        """Add to the title."""
        self.step = step

    def text(self) -> str:
        """The line about it, in which what changes comes first: terminals may be narrow."""
        seconds = f"{time.monotonic() - self.started:.0f} s"
        return "dynamo_lite: " + ", ".join(
            filter(None, [seconds, _phase(self.thread), _text(self.step), _text(self.title)])
        )


class ProgressLine:
    """The line of the process: the work under way, in the order in which it began."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.jobs: list[Job] = []
        self.has_writer = False
        self.on: TextIO | None = None
        """The stream on which there is a line now."""

    def begin(self, job: Job) -> None:
        with self.lock:
            self.jobs.append(job)
            if not self.has_writer:
                self.has_writer = True
                _thread.start_new_thread(self._write, ())

    def end(self, job: Job) -> None:
        with self.lock:
            if job in self.jobs:  # not in a forked process
                self.jobs.remove(job)
            self._show("")

    def _write(self) -> None:
        """What the thread does: as long as there is work, tell of that which began last and takes long."""
        while True:
            time.sleep(INTERVAL)
            with self.lock:
                if not self.jobs:
                    self.has_writer = False
                    return
                known = [job for job in self.jobs if time.monotonic() - job.started >= DELAY]
                self._show(known[-1].text() if known else "")

    def _show(self, text: str) -> None:
        """Change the line. The cursor goes back to its start, so that what others write comes in its place."""
        stream = terminal() if text else self.on
        if stream is None:
            return
        try:
            width = os.get_terminal_size(stream.fileno()).columns or 80
            stream.write(f"\r\x1b[K{text[: width - 1]}\r" if text else "\r\x1b[K")
            stream.flush()
            self.on = stream if text else None
        except (OSError, ValueError):  # the terminal is gone
            self.on = None


_line = ProgressLine()
os.register_at_fork(after_in_child=_line.__init__)  # the thread is not there


def terminal() -> TextIO | None:
    """stderr, if it is a terminal on which a line can be changed and the user wants that; a stream of the program's own class is none."""
    stream: Any = sys.stderr
    is_plain = type(stream) is io.TextIOWrapper and not stream.closed
    return stream if config.progress and is_plain and os.environ.get("TERM") != "dumb" and stream.isatty() else None


@contextmanager
def shown(title: Text) -> Iterator[Callable[[Text], None]]:
    """Tell of what is done within, if it takes long; the yielded function adds to the title. Texts that are functions are asked in another
    thread, whenever the line is written."""
    job = begin(title)
    try:
        yield (lambda step: None) if job is None else job.tell
    finally:
        end(job)


def begin(title: Text) -> Job | None:
    """Work begins in this thread; None if nothing is to be told of it."""
    if terminal() is None:
        return None
    job = Job(title)
    _line.begin(job)
    return job


def end(job: Job | None) -> None:
    """The work is done."""
    if job is not None:
        _line.end(job)


def place_of(gm: Any) -> str:
    """The program's line of the first operator of a graph, for messages; a line of torch if no other is known."""
    for node in gm.graph.nodes:
        places = list(_places(node))
        if places:
            file, line, function = next((place for place in places if is_users(place[0])), places[0])
            return f"{os.path.basename(file)}:{line} in {function}"
    return "no line known"


def _places(node: Any) -> Iterator[tuple[str, Any, str]]:
    """File, line and function of the calls that lead to an operator, the innermost first. Graphs that were copied know that one only."""
    at = getattr(node.meta, "place", None) if node.op not in ("placeholder", "output") else None
    if at is None:
        yield from re.findall(
            r'File "(.*)", line (\d+), in (.*)', (node.meta.get("stack_trace") or "").rpartition("\n")[2]
        )
    while at is not None:
        yield at.code.co_filename, at.lineno, at.code.co_name
        at = at.caller


def _text(text: Text) -> str:
    return text if isinstance(text, str) else text()


def _phase(thread: int) -> str:
    """What the compilers of torch are at in a thread. The frames of whoever called them are not looked at."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(CALLERS):
            break
        phase = PHASES.get((module, frame.f_code.co_qualname))
        if phase is not None:
            return phase
        frame = frame.f_back
    return ""
