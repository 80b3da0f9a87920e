"""Races behind a running program: the graph runs eagerly at once, and with the winner from the first call after its race has ended.

Input: a graph, its inputs, candidates. Output: a callable. Races run one after the other in a process of their own (`apart`), which fills
torch's caches; a thread waits for them. The winner is compiled again here by the next call, from these caches: torch's compilers
replace parts of torch while they work (`torch.fx.Tracer.trace` patches `Module.__call__` for the whole process), so none of them may run in
a second thread.

Invariant: what a call runs is whole: eager execution, or the winner. A graph with symbolic sizes keeps running eagerly if the winner would
assume more about them than its guards check, which are made by then.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch._guards import TracingContext, tracing

from dynamo_lite import _eval_frame
from dynamo_lite.backends.registry import lookup_backend
from dynamo_lite.exc import first_line

from .apart import Job, race_apart
from .portable import CannotCarry
from .race import Outcome

if TYPE_CHECKING:
    from torch.fx import GraphModule


class Background:
    """One graph: `call` is what the program runs. `finished` is told how the race ended (an `Outcome`, or why there is none); `installed`
    gives what runs from then on for the winner's name and callable.
    """

    def __init__(
        self,
        gm: GraphModule,
        examples: Sequence[Any],
        names: Sequence[str],
        seconds: float,
        training: bool,
        finished: Callable[[Outcome | str], None],
        installed: Callable[[str, Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        """Raises `CannotCarry` and `CannotCopy`."""
        self.job = Job(gm, examples, training)
        self.gm, self.names, self.seconds = gm, names, seconds
        self.finished, self.installed = finished, installed
        self.context = TracingContext.try_get()
        self.winner: str | None = None
        self.installing = threading.Lock()
        self.call = self._call()
        _submit(self)

    def _call(self) -> Callable[..., Any]:
        self.run = self.gm.forward

        def call(*inputs: Any) -> Any:
            if self.winner is not None:
                self._install(inputs)
            return self.run(*inputs)

        return call

    def race(self) -> None:
        """The work of the thread: wait for the race."""
        try:
            result: Outcome | str = race_apart(self.job.path, self.names, self.seconds)
        except CannotCarry as reason:
            result = f"no race: {reason}"
        self.job.close()
        self.finished(result)
        if isinstance(result, Outcome) and result.winner != "eager":
            self.winner = result.winner

    def _install(self, inputs: Sequence[Any]) -> None:
        """Compile the winner and put it in place of eager execution. Another thread that comes by runs eagerly meanwhile."""
        if not self.installing.acquire(blocking=False):
            return
        region = _eval_frame.set_region(None)
        try:
            name, self.winner = self.winner, None
            if name is None:
                return
            assumed = self._assumed()
            with tracing(self.context):
                compiled = lookup_backend(name)(self.gm, list(inputs))
            if self._assumed() == assumed:
                self.run = self.installed(name, compiled)
            else:
                self.finished(f"{name} was fastest, but assumes more about sizes than the guards check")
        except Exception as error:  # the program runs on as it did
            self.finished(f"the winner failed: {type(error).__name__}: {first_line(error)}")
        finally:
            _eval_frame.set_region(region)
            self.installing.release()

    def _assumed(self) -> Any:
        env = getattr(getattr(self.context, "fake_mode", None), "shape_env", None)
        if env is None:
            return None
        return len(env.guards), dict(env.replacements), dict(env.var_to_range), len(env.divisible)


_waiting: queue.SimpleQueue[Background] = queue.SimpleQueue()
_starting = threading.Lock()
_thread: threading.Thread | None = None


def _submit(race: Background) -> None:
    global _thread
    _waiting.put(race)
    with _starting:
        if _thread is None:
            _thread = threading.Thread(target=_work, name="dynamo_lite races", daemon=True)
            _thread.start()


def _work() -> None:
    while True:
        _waiting.get().race()


def _after_fork() -> None:
    """The child has no such thread; its graphs go on as they are, and new ones start another."""
    global _thread, _waiting, _starting
    _thread, _waiting, _starting = None, queue.SimpleQueue(), threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
