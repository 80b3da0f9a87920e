"""Races in a process of their own: what crashes, hangs or eats the memory there costs the program nothing.

Input: a graph and its inputs, names of candidates. Output: an `Outcome`.
Invariant: nothing of the program is changed: the other process has copies; it ends when it is done, when its
time is up, or with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dynamo_lite.backends.registry import lookup_backend
from dynamo_lite.exc import first_line

from . import portable
from .inputs import Inputs
from .race import Dropped, Outcome

if TYPE_CHECKING:
    from torch.fx import GraphModule

START_SECONDS = 120.0
"""What a process may take until it begins: imports."""
GRACE_SECONDS = 60.0
"""What it may take besides the seconds of the race: a candidate that is compiling when the time is up."""


class Job:
    """A graph and copies of its inputs as they are now, in a file that lives as long as this object.

    Raises `CannotCarry` and `CannotCopy`.
    """

    def __init__(self, gm: GraphModule, examples: Sequence[Any], training: bool) -> None:
        handle, path = tempfile.mkstemp(prefix="dynamo_lite-race-")
        self.path = pathlib.Path(path)
        self.close = weakref.finalize(self, self.path.unlink, missing_ok=True)
        job = portable.PortableGraph(gm, Inputs(examples).fresh(), training, portable.settings())
        try:
            with os.fdopen(handle, "wb") as file:
                portable.dump(job, file)
        except (OSError, RuntimeError) as error:  # torch says RuntimeError where the disk is full
            raise portable.CannotCarry(f"{self.path} can't be written: {first_line(error)}") from error


def race_apart(path: os.PathLike[str], names: Sequence[str], seconds: float) -> Outcome:
    """Race in a process of its own, and again without whoever has brought it down, as long as there are candidates.

    `path` is the file of a job. Raises `CannotCarry`.
    """
    fallen: list[tuple[str, float | None, str | None, str]] = []
    candidates = {name: importable(name) for name in names if name != "eager"}
    while True:
        last, outcome, how = _run(path, candidates, seconds)
        if outcome is not None:
            if "problem" in outcome:
                raise portable.CannotCarry(outcome["problem"])
            runners = [tuple(row) for row in outcome["runners"]]
            return Outcome(outcome["winner"], outcome["eager"], runners + fallen)
        if last is None:
            raise portable.CannotCarry(f"the race {how}")
        fallen.append((last, None, how, how))
        del candidates[last]
        if not candidates:
            return Outcome("eager", 0.0, [("eager", None, None, "chosen"), *fallen])


class Trials:
    """Lets candidates that may bring a process down run in one of their own first."""

    def __init__(self, gm: GraphModule, examples: Sequence[Any], training: bool, seconds: float) -> None:
        self.given = gm, examples, training
        self.seconds = seconds
        self.job: Job | None = None

    def before(self, name: str, compiler: Callable[..., Any]) -> Callable[..., Any]:
        """`compiler`, which raises `Dropped` if `name` failed there, or was beyond doubt slower than eager execution."""

        def compile(gm: GraphModule, examples: list[Any]) -> Callable[..., Any]:
            try:
                self.job = self.job or Job(*self.given)
                problem = race_apart(self.job.path, [name], self.seconds).problem_of(name)
            except portable.CannotCarry as reason:
                problem = f"can't be tried in a process of its own: {reason}"
            if problem is not None:
                raise Dropped(problem)
            return compiler(gm, examples)

        return compile


def importable(backend: str | Callable[..., Any]) -> tuple[str, str] | None:
    """Module and name of a backend's function, if another process can import it."""
    compiler = lookup_backend(backend)
    module, path = getattr(compiler, "__module__", None), getattr(compiler, "__qualname__", None)
    found: Any = sys.modules.get(module or "")
    for part in (path or "<>").split("."):
        found = getattr(found, part, None)
    return (module, path) if found is compiler and module != "__main__" else None  # type: ignore[return-value]


def _run(
    path: os.PathLike[str], candidates: Mapping[str, Any], seconds: float
) -> tuple[str | None, dict[str, Any] | None, str]:
    """The last candidate that was begun, the outcome, and how the process ended if it has none."""
    last, outcome, expired = None, None, threading.Event()
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        _started(path, json.dumps([candidates, seconds]), errors) as process,
    ):

        def end_after(seconds: float) -> threading.Timer:
            timer = threading.Timer(seconds, lambda: (expired.set(), process.kill()))
            timer.daemon = True
            timer.start()
            return timer

        timer = end_after(START_SECONDS)
        try:
            for line in process.stdout:  # type: ignore[union-attr]
                with suppress(ValueError):  # half a line of a process that was killed
                    told = json.loads(line)
                    if last is None:
                        timer.cancel()
                        timer = end_after(seconds + GRACE_SECONDS)
                    last, outcome = told.get("candidate", last), told if "candidate" not in told else outcome
            status = process.wait()
        finally:
            timer.cancel()
            process.kill()
        errors.seek(0)
        said = errors.read().strip().rpartition("\n")[2]
    return last, outcome, _ending(status, expired.is_set(), said)


_running: weakref.WeakSet[subprocess.Popen[str]] = weakref.WeakSet()


def _started(path: os.PathLike[str], request: str, errors: Any) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", f"{__package__}.worker", os.fspath(path), request],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    _running.add(process)
    return process


@atexit.register
def _stop() -> None:
    for process in list(_running):
        process.kill()


def _ending(status: int, expired: bool, said: str) -> str:
    if expired:
        return "hung: its time was up"
    if status < 0:
        return f"crashed: {signal.Signals(-status).name}"
    return f"ended its process with status {status}" + (f": {said[:200]}" if said else "")
