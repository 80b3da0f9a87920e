"""Races in a process of their own, where a candidate may crash, hang or eat the memory at no cost to the program.

Input: a graph and its inputs, names of candidates. Output: a `Choice`, as that of `race.Race`. The other process is
`python -m dynamo_lite.tune.apart FILE REQUEST`; it writes lines of JSON to standard output: one before each candidate, so that the reader
knows which candidate brought it down, and one with the choice. Output of backends goes to its standard error.
Invariant: nothing of the program is changed: the other process has copies; it ends when it is done, when its time is up, or with this
process.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import marshal
import operator
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from torch._guards import TracingContext, detect_fake_mode, tracing

from dynamo_lite.backends.handed import on_copies
from dynamo_lite.backends.registry import list_backends, lookup_backend
from dynamo_lite.exc import InvalidBackend, first_line
from dynamo_lite.warm_cache.artifacts import library_in
from dynamo_lite.warm_cache.store import attempt_to_write

from . import portable
from .race import CompilerFn, Dropped, Race
from .results import Choice
from .verify import Inputs

if TYPE_CHECKING:
    from torch.fx import GraphModule

START_SECONDS = 120.0
"""The time limit for the start of a process: imports."""
GRACE_SECONDS = 60.0
"""The time limit besides the seconds of the race: a candidate may be compiling when these are up."""

GIVEN_WAY = 5
"""How much nicer a process is that gives way to others."""

COMPILED = "compiled"
"""The name of the file, beside that of the graph, in which the other process leaves what it has compiled."""

Importable = tuple[str, str]
"""Module and qualified name of a backend's function."""


class RaceApart:
    """A race over the graph that `write` puts into a file, in a folder that nobody else can enter and that exists as long as this object.
    `compiled`: what the other process has made of the graph with the winner, where that backend can say it as data; None elsewhere. Raises
    `CannotCarry`."""

    def __init__(self, write: Callable[[IO[bytes]], object]) -> None:
        self.compiled: bytes | None = None
        try:
            folder = pathlib.Path(tempfile.mkdtemp(prefix="dynamo_lite-race-"))
        except OSError as error:
            raise portable.CannotCarry(f"no temporary folder: {first_line(error)}") from error
        self.path = folder / "graph"
        self.close = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        try:
            with self.path.open("wb") as file:
                write(file)
        except (OSError, RuntimeError) as error:  # torch says RuntimeError where the disk is full
            raise portable.CannotCarry(f"{self.path} can't be written: {first_line(error)}") from error

    @classmethod
    def of(cls, gm: GraphModule, examples: Sequence[Any], training: bool) -> RaceApart:
        """The race over a graph, on copies of its inputs as they are now. Raises `CannotCarry` and `CannotCopy`."""
        return cls(job_of(gm, examples, training))

    def run(self, names: Sequence[str], seconds: float, gives_way: bool = False) -> Choice:
        """Race, and again without the candidate that brought the process down, as long as there are candidates. `gives_way`: to other
        processes that want the processor. Raises `CannotCarry`."""
        fallen: dict[str, str] = {}
        candidates = {name: importable(name) for name in names if name != "eager"}
        while True:
            last, choice, ending = self._run(candidates, seconds, gives_way)
            if choice is not None:
                break
            if last is None:
                raise portable.CannotCarry(f"the race {ending}")
            fallen[last] = ending
            del candidates[last]
            if not candidates:
                choice = Choice("eager", 1.0, [("eager", None, "chosen")])
                break
        with suppress(OSError):
            self.compiled = self.path.with_name(COMPILED).read_bytes()
        measured = [*choice.measured, *((name, None, ending) for name, ending in fallen.items())]
        return choice._replace(measured=measured, dropped={**choice.dropped, **fallen})

    def _run(
        self, candidates: Mapping[str, Importable | None], seconds: float, gives_way: bool
    ) -> tuple[str | None, Choice | None, str]:
        """The last candidate that was begun, the choice, and the way in which the process ended if there is none."""
        last, choice, expired = None, None, threading.Event()
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
            _started(self.path, json.dumps([candidates, seconds, gives_way]), errors) as process,
        ):

            def expire() -> None:
                expired.set()
                process.kill()

            def end_after(seconds: float) -> threading.Timer:
                timer = threading.Timer(seconds, expire)
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
                        if "problem" in told:
                            raise portable.CannotCarry(told["problem"])
                        last = told.get("candidate", last)
                        choice = Choice.of_json(told["choice"]) if "choice" in told else choice
                status = process.wait()
            finally:
                timer.cancel()
                process.kill()
            errors.seek(0)
            said = errors.read().strip().rpartition("\n")[2]
        return last, choice, _ending(status, expired.is_set(), said)


def job_of(gm: GraphModule, examples: Sequence[Any], training: bool) -> Callable[[IO[bytes]], object]:
    """What writes a graph, with copies of its inputs as they are now. Raises `CannotCarry` and `CannotCopy`."""
    job = portable.PortableGraph(gm, Inputs(examples).fresh(), training, portable.settings())
    return functools.partial(portable.dump, job)


def read_compiled(data: bytes, backend: str) -> Callable[..., Any] | None:
    """The callable that another process has compiled with this backend; None if it would be another one here."""
    settings, compiled = marshal.loads(data)
    artifacts = lookup_backend(backend).artifacts  # type: ignore[attr-defined]
    if settings != artifacts.settings():
        return None
    with tempfile.TemporaryDirectory() as folder:  # a library that is loaded needs its file no more
        result: Callable[..., Any] = artifacts.read(compiled, functools.partial(library_in, pathlib.Path(folder)))
    return result


def importable(backend: str | Callable[..., Any]) -> Importable | None:
    """Module and name of a backend's function, if another process can import it."""
    compiler = lookup_backend(backend)
    module, path = getattr(compiler, "__module__", None), getattr(compiler, "__qualname__", None)
    found: Any = sys.modules.get(module or "")
    for part in (path or "<>").split("."):
        found = getattr(found, part, None)
    return (module, path) if found is compiler and module != "__main__" else None  # type: ignore[return-value]


_running: weakref.WeakSet[subprocess.Popen[str]] = weakref.WeakSet()


def _started(path: os.PathLike[str], request: str, errors: IO[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __spec__.name, os.fspath(path), request],
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


# In the other process.


def main(path: str, request: str) -> int:
    """Run the race of a file. The status is 0 also if no candidate has won."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as told:
        os.dup2(2, 1)
        candidates, seconds, gives_way = json.loads(request)
        if gives_way:
            os.nice(GIVEN_WAY)

        def tell(**line: object) -> None:
            print(json.dumps(line), file=told, flush=True)

        try:
            with open(path, "rb") as file:
                job = portable.load(file)
        except portable.CannotCarry as reason:
            tell(problem=str(reason))
            return 0
        portable.apply(job.settings)
        fakes = [node.meta["example_value"] for node in job.gm.graph.find_nodes(op="placeholder")]
        compilers = {name: functools.partial(_compile, tell, name, where) for name, where in candidates.items()}
        with tracing(TracingContext(detect_fake_mode(fakes))):
            race = Race(job.gm, job.examples, job.training)
            choice = race.run(compilers, seconds)
            _leave(pathlib.Path(path), choice.backend, race.compiled)
            tell(choice=choice)
    return 0


def _leave(path: pathlib.Path, backend: str, compiled: Callable[..., Any]) -> None:
    """Write what the winner has made of the graph into a file, if it can be said as data."""
    artifacts = getattr(lookup_backend(backend), "artifacts", None) if backend in list_backends(None) else None
    settings = artifacts and artifacts.settings()
    if settings is None:
        return
    data = attempt_to_write(
        f"the graph compiled with {backend}", lambda: marshal.dumps((settings, artifacts.write(compiled))), Counter()
    )
    if data is not None:
        path.with_name(COMPILED).write_bytes(data)


KNOWN_HERE_ONLY = "known to this program only, so it can't be tried in a process of its own"


def _compile(
    tell: Callable[..., None], name: str, where: Importable | None, gm: GraphModule, examples: list[Any]
) -> Callable[..., Any]:
    """Compile with the backend of that name or, if only the program has registered it, with the function that its module has."""
    tell(candidate=name)
    try:
        compiler: CompilerFn = lookup_backend(name)
    except InvalidBackend:
        if where is None:
            raise Dropped(KNOWN_HERE_ONLY) from None
        module, path = where
        compiler = operator.attrgetter(path)(importlib.import_module(module))
    return on_copies(compiler)(gm, examples)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
