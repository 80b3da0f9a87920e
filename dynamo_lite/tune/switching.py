"""Graphs whose callable is replaced while the program runs: after a race in the background, and when a check finds a fault.

Input: a graph, its inputs, and callbacks of `autotune.Tuning`. Output: a callable for the program, which runs eager execution or the
backend's callable, never parts of both.

Races in the background run one after the other in processes of their own (`apart`), which fill torch's caches; a thread waits for them. The
winner is compiled again here by the next call, from these caches: torch's compilers replace parts of torch while they work
(`torch.fx.Tracer.trace` patches `Module.__call__` for the whole process), so none of them may run in a second thread.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from torch._guards import TracingContext, tracing

from dynamo_lite import _eval_frame
from dynamo_lite.backends.regions import in_buckets
from dynamo_lite.backends.registry import lookup_backend
from dynamo_lite.data_stack import with_room
from dynamo_lite.exc import brief

from .apart import RaceApart, job_of, read_compiled
from .portable import CannotCarry
from .race import Runner, is_faster
from .results import Choice
from .verify import CannotCopy, Expected, Inputs, undisturbed, wants_gradients

if TYPE_CHECKING:
    from torch.fx import GraphModule


@contextmanager
def _uncaptured() -> Iterator[None]:
    """Capture nothing meanwhile."""
    region = _eval_frame.set_region(None)
    try:
        yield
    finally:
        _eval_frame.set_region(region)


NOTHING: tuple[object, ...] = (0, {}, {}, 0)
"""What is assumed about the sizes of a graph that has no symbolic ones."""


class Background:
    """A graph that runs eagerly at once, and with the winner from the first call after its race.

    `finished` is told the `Choice`, or why there is none; `installed` is given the winner's name and callable, and returns the callable
    that runs from then on. A graph with symbolic sizes keeps running eagerly if the winner would assume more about them than its guards,
    which are made by then, check. Raises `CannotCarry` and `CannotCopy`.
    """

    def __init__(
        self,
        gm: GraphModule,
        examples: Sequence[Any],
        training: bool,
        finished: Callable[[Choice | str], None],
        installed: Callable[[str, Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        self.write: Callable[[IO[bytes]], object] | None = job_of(gm, examples, training)
        self.compiled: bytes | None = None
        self.gm = gm
        self.finished, self.installed = finished, installed
        self.context = TracingContext.try_get()
        self.winner: str | None = None
        self.installing = threading.Lock()
        self.run = gm.forward

    def start(self, names: Sequence[str], seconds: float) -> Callable[..., Any]:
        """Race once the races before it have ended; the callable for the program."""

        def call(*inputs: Any) -> Any:
            if self.winner is not None:
                self._install(inputs)
            return self.run(*inputs)

        _submit(lambda: self._race(names, seconds))
        return call

    def _race(self, names: Sequence[str], seconds: float) -> None:
        """The work of the thread: write the graph, for which torch imports its compilers, and wait for the other process."""
        write, self.write = self.write, None  # with the copies of the inputs
        try:
            race = RaceApart(write)  # type: ignore[arg-type]
            result: Choice | str = race.run(names, seconds, gives_way=True)
            self.compiled = race.compiled
            race.close()
        except CannotCarry as reason:
            result = f"no race in the background: {reason}"
        except Exception as error:  # the program runs on as it did
            result = f"the race in the background failed: {brief(error)}"
        self.finished(result)
        if isinstance(result, Choice) and result.backend != "eager":
            self.winner = result.backend

    def _install(self, inputs: Sequence[Any]) -> None:
        """Compile the winner and put it in place of eager execution. Calls of other threads run eagerly meanwhile."""
        if not self.installing.acquire(blocking=False):
            return
        try:
            name, self.winner = self.winner, None
            if name is None:
                return
            assumed = self._assumed()
            with _uncaptured(), tracing(self.context):
                compiled = self._compiled(name, inputs)
            if self._assumed() == assumed:
                self.run = self.installed(name, compiled)
            else:
                self.finished(f"{name} was fastest, but assumes more about sizes than the guards check")
        except Exception as error:  # the program runs on as it did
            self.finished(f"the winner failed: {brief(error)}")
        finally:
            self.installing.release()

    def _compiled(self, name: str, inputs: Sequence[Any]) -> Callable[..., Any]:
        """What the other process has compiled, if it can be had and assumes nothing about sizes; else compiled here from its caches."""
        data, self.compiled = self.compiled, None
        if data is not None and self._assumed() == NOTHING:
            found = read_compiled(data, name)
            if found is not None:
                return found
        return in_buckets(lookup_backend(name))(self.gm, list(inputs))

    def _assumed(self) -> tuple[object, ...]:
        """The assumptions about symbolic sizes so far. Compilers make a `ShapeEnv` where the graph needed none."""
        env = getattr(getattr(self.context, "fake_mode", None), "shape_env", None)
        if env is None:
            return NOTHING
        return len(env.guards), dict(env.replacements), dict(env.var_to_range), len(env.divisible)


_waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
_starting = threading.Lock()
_thread: threading.Thread | None = None


def _submit(race: Callable[[], None]) -> None:
    global _thread
    _waiting.put(race)
    with _starting:
        if _thread is None:
            _thread = threading.Thread(target=_work, name="dynamo_lite races", daemon=True)
            _thread.start()


def _work() -> None:
    while True:
        with_room(_waiting.get())


def _after_fork() -> None:
    """The child has no such thread; its graphs go on as they are, and new ones start another."""
    global _thread, _waiting, _starting
    _thread, _waiting, _starting = None, queue.SimpleQueue(), threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def shadowed(
    gm: GraphModule, compiled: Callable[..., Any], every: int, demote: Callable[[str], None]
) -> Callable[..., Any]:
    """A callable that runs `compiled`, and compares one call of `every` with eager execution, on copies of the inputs.

    The backend is left for eager execution, and `demote` told the reason, when it is wrong or fails, or is slower beyond doubt over the
    checks so far. The call that finds a wrong result does not return it.
    """
    shadow = _Shadow(gm, compiled, demote)
    numbers = itertools.count(1)

    def call(*inputs: Any) -> Any:
        if not next(numbers) % every and shadow.run is compiled:
            shadow.check(inputs)
        return shadow.run(*inputs)

    return call


class _Shadow:
    def __init__(self, gm: GraphModule, compiled: Callable[..., Any], demote: Callable[[str], None]) -> None:
        self.run = compiled
        self.demote = demote
        self.eager, self.chosen = Runner("eager", gm.forward), Runner("", compiled)

    def check(self, inputs: Sequence[Any]) -> None:
        """Compare, and go over to eager execution if there is a reason."""
        try:
            with _uncaptured(), undisturbed(inputs):
                reason = self._fault(inputs)
        except CannotCopy:
            return
        if reason is not None:
            self.run = self.eager.compiled
            self.demote(reason)

    def _fault(self, inputs: Sequence[Any]) -> str | None:
        copies = Inputs(inputs)
        expected = Expected(self.eager.compiled, copies, wants_gradients(inputs), others=False)
        try:
            problem = expected.problem_of(self.chosen.compiled)
        except Exception as error:
            return f"failed: {type(error).__name__}: {error}"
        if problem is not None:
            return problem
        self.eager.time_block(expected)
        self.chosen.time_block(expected)
        if not is_faster(self.eager.times, self.chosen.times):
            return None
        return f"slower: {self.chosen.median * 1e6:.1f} µs where eager execution takes {self.eager.median * 1e6:.1f} µs"
