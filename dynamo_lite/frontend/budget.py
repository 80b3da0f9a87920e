"""How long an analysis may go on.

Input: the instructions that are interpreted and the items that native code iterates over, counted by `Frame.run` and
`abstract.iter_next`. Output: `GraphBreak` at the step where the run has to break, `Unsupported` where it takes too long.
Invariant: an analysis is deterministic, so that a step number names a point of all its runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.interp.frame import GraphBreak

if TYPE_CHECKING:
    from .tracing import Trace


class Budget:
    """The count of one run.

    Attributes:
        steps: instructions interpreted so far.
        stop_step: the next step at which `stop` is to be asked.
        items: what native code has iterated over since the last operation of the graph.
    """

    def __init__(self, break_step: int) -> None:
        self.steps = 0
        self.items = 0
        self.max_items = config.max_idle_steps
        self.break_step = break_step
        self.stop_step = -1
        self.is_over = False
        self._known_operations = 0
        self._plan_stop()

    def stop(self, tr: Trace) -> None:
        """`stop_step` is reached: break here if this run must, or where a loop that goes on for too long began. Raises RuntimeError if the
        run is over: what is found out behind it (which keys have gone, what code to generate) may not run code of the program."""
        if self.is_over:
            raise RuntimeError(
                f"{tr.thread.current.code.co_qualname} of the program is to run behind the end of the trace"
            )
        if self.steps == self.break_step:
            raise GraphBreak
        operations = tr.graph.op_count
        if self.steps >= config.max_steps:
            self._too_long(tr, config.max_steps // 2)
        if operations == self._known_operations:
            self._too_long(tr, config.max_idle_steps // 2)
        self._known_operations = operations
        self.items = 0
        self._plan_stop()

    def end(self) -> None:
        """The run is over."""
        self.is_over = True
        self.stop_step = self.steps + 1

    def _plan_stop(self) -> None:
        self.stop_step = min(self.steps + config.max_idle_steps, max(config.max_steps, 1))
        if self.steps < self.break_step:
            self.stop_step = min(self.stop_step, self.break_step)

    def _too_long(self, tr: Trace, most: int) -> NoReturn:
        """Leave out the innermost call that took `most` of the steps; if there is no such call, the frame."""
        context = f"{self.steps} instructions, {tr.graph.op_count} operations"
        frame = tr.thread.current
        while frame.parent is not None and self.steps - frame.parent.step < most:
            frame = frame.parent
        if frame.parent is None:
            frame.needs_real_frame("code-size", context)
        error = Unsupported("code-size", context)
        error.break_step = tr.thread.failing_step(frame.parent)
        raise error

    def too_many_items(self) -> NoReturn:
        """Native code iterates over more than the analysis is willing to follow."""
        unsupported("code-size", f"iteration over {self.items} items")
