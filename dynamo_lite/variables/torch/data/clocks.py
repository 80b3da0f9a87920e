"""Clocks that are read around the graph, where `config.stitch` is True.

Input: a call of `time.perf_counter` and the like. Output: a float that generated code reads from the clock before the graph, where no
operator stands before the call, else when the graph has run.
Invariant: a clock is read once for each call, in the order of the calls. Any question about the time breaks the graph, as with other late
numbers.
Mirrors `Modules/timemodule.c`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dynamo_lite.config import config
from dynamo_lite.exc import unsupported
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.dispatch import REFUSED, builtin

from .late_numbers import LateNumberVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


class ClockReading(LateNumberVariable):
    """The time by a clock. `is_early`: before the graph runs."""

    def __init__(self, tx: Frame, clock: Callable[[], float]) -> None:
        super().__init__(tx, clock, ())
        self.is_early = tx.tr.graph.is_empty
        tx.tr.effects.clocks.append(self)


def _reads(clock: Callable[[], float]) -> None:
    @builtin(clock)
    def read(tx: Frame, /) -> VariableTracker:
        if config.stitch is True:
            return ClockReading(tx, clock)
        return unsupported("time-dependent", f"time.{clock.__name__}")

    REFUSED[clock] = ("time-dependent", f"time.{clock.__name__}")  # what a forecast says


for _clock in (time.time, time.perf_counter, time.monotonic, time.process_time, time.thread_time):
    _reads(_clock)
