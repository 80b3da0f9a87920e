"""The race between backends over one graph, in this process.

Input: a graph, its real inputs, compilers by name. Output: a `Choice`: the winner, and for each candidate its time or the reason why it
dropped out. Invariant: the program's tensors and random state are as before; a candidate with wrong results never wins, nor does one
that is not faster than eager execution beyond doubt.

Method: candidates take turns in short blocks, so that whatever slows the machine down meets all of them; of each round the logarithm of
the ratio of two candidates' times is one observation (Georges, Buytaert, Eeckhout: Statistically Rigorous Java Performance Evaluation,
OOPSLA 2007, use the same paired design); a difference counts if its one-sided t statistic is beyond p = 0.01.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynamo_lite.backends.options import is_ours
from dynamo_lite.exc import first_line

from .results import Choice, not_tried
from .verify import Expected, Inputs, undisturbed

if TYPE_CHECKING:
    from torch.fx import GraphModule

ROUNDS = 25
MIN_ROUNDS, MAX_ROUNDS = 6, 200
"""Other processes spoil the times: a race that is in doubt goes on, and is judged once more."""
WORTH = 1.03
"""How many times as fast as eager execution a candidate has to seem for that."""
BLOCK_SECONDS = 2e-3
"""The least duration of a block, which is timed as a whole: the clock and the loop take less than a thousandth of it."""
HOPELESS = 1.25
"""A candidate that is beyond doubt so many times slower than the fastest drops out of the race early."""
# Student's t at p = 0.01, one-sided, for 5 … 24 degrees of freedom.
_T = (3.36, 3.14, 3.00, 2.90, 2.82, 2.76, 2.72, 2.68, 2.65, 2.62, 2.60, 2.58, 2.57, 2.55, 2.54, 2.53, 2.52, 2.51, 2.50, 2.49)  # fmt: skip

CompilerFn = Callable[..., Callable[..., Any]]


class Dropped(Exception):
    """Raised by a compiler that takes no part in the race; the message is the reason."""


@dataclass
class Runner:
    """One candidate: seconds per call in each round, or the reason why it is out of the race."""

    name: str
    compiled: Callable[..., Any]
    compile_seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    out: str | None = None
    calls: int = 0

    @property
    def median(self) -> float:
        """Seconds per call; infinite if it never ran."""
        return statistics.median(self.times) if self.times else math.inf

    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the median, from order statistics (binomial)."""
        times, n = sorted(self.times), len(self.times)
        k = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
        return times[k], times[n - 1 - k]

    def time_block(self, expected: Expected) -> None:
        """Run one block of calls and note the seconds per call. The first block follows a short one, which gives the number of calls."""
        if not self.calls:
            self.calls = max(1, math.ceil(BLOCK_SECONDS / max(self._seconds(expected, 3), 1e-9)))
        self.times.append(self._seconds(expected, self.calls))

    def _seconds(self, expected: Expected, calls: int) -> float:
        """Seconds per call. Inputs that the graph writes to are not restored within a block: that would cost time and changes none."""
        values = expected.inputs.fresh()
        expected.synchronize()
        started = time.perf_counter()
        for _ in range(calls):
            expected.run(self.compiled, values)
        expected.synchronize()
        return (time.perf_counter() - started) / calls

    def text(self, eager: Runner, winner: Runner) -> str:
        """The result of the candidate, for people."""
        parts = [self.out, "chosen" if self is winner else None]
        if self.times:
            low, high = self.interval()
            parts = [
                f"{self.median * 1e6:.1f} µs ({low * 1e6:.1f} … {high * 1e6:.1f}), {eager.median / self.median:.2f}x",
                f"compiled in {self.compile_seconds:.1f} s",
                *parts,
            ]
        return ", ".join(filter(None, parts))


class Race:
    """A race over one graph. After `run`, `compiled` is the callable of the winner.

    `tell` is given a line about each step. Raises `verify.CannotCopy` for inputs that can't be copied.
    """

    def __init__(
        self, gm: GraphModule, examples: Sequence[Any], training: bool, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        self.gm, self.examples, self.training, self.tell = gm, examples, training, tell
        self.compiled: Callable[..., Any] = gm.forward

    def run(self, compilers: Mapping[str, CompilerFn], seconds: float) -> Choice:
        """Compile, verify and time each candidate, in the order given, for about `seconds` in all; eager execution always takes part. A
        candidate under way when the time is up is not interrupted. Compilers leave the graph as it is (`handed.on_copies`)."""
        started = time.perf_counter()
        eager = Runner("eager", self.gm.forward)
        runners = [eager]
        with undisturbed(self.examples):
            expected = Expected(self.gm.forward, Inputs(self.examples), self.training)
            for name, compiler in compilers.items():
                runner = Runner(name, self.gm.forward)
                runners.append(runner)
                if time.perf_counter() - started > seconds * 0.75:
                    runner.out = not_tried(seconds)
                else:
                    self.tell(f"compiling with {name}")
                    self._prepare(runner, compiler, expected)
            self.tell("timing " + ", ".join(r.name for r in runners if r.out is None))
            _time(runners, expected, started + seconds)
        ranking = sorted(runners, key=lambda r: r.median)
        winner = next(
            (r for r in ranking if r is not eager and r.out is None and is_faster(r.times, eager.times)), eager
        )
        self.compiled = winner.compiled
        return Choice(
            winner.name,
            eager.median / winner.median if winner.times else 1.0,
            [(r.name, round(r.median * 1e6, 3) if r.times else None, r.text(eager, winner)) for r in ranking],
            dropped={r.name: r.out for r in runners if r.out is not None},
        )

    def _prepare(self, runner: Runner, compiler: CompilerFn, expected: Expected) -> None:
        started = time.perf_counter()
        try:
            # Ours do not run the graph on the real inputs; by these they know what has a fixed address.
            own = is_ours(compiler) and not binds(compiler)
            with undisturbed(self.examples):
                runner.compiled = compiler(self.gm, list(self.examples) if own else expected.inputs.fresh())
                # The first call is part of the compilation: backends compile late.
                runner.out = expected.problem_of(runner.compiled)
        except Dropped as reason:
            runner.out = str(reason)
        except Exception as error:
            runner.out = _failure(error)
        runner.compile_seconds = time.perf_counter() - started


def _failure(error: Exception) -> str:
    return f"failed: {type(error).__name__}: {first_line(error)[:200]}"


def binds(compiler: CompilerFn) -> bool:
    """Whether a backend makes constants of parameters. It is compiled for the copies on which the race runs, and for the program's own
    parameters if it wins."""
    return bool(getattr(getattr(compiler, "requirements", None), "assumes", ""))


def _time(runners: list[Runner], expected: Expected, deadline: float) -> None:
    """Let the candidates take turns, as long as there are two, rounds left and time."""
    running = [r for r in runners if r.out is None]
    for i in range(MAX_ROUNDS):
        if len(running) < 2 or (i >= MIN_ROUNDS and time.perf_counter() > deadline):
            break
        if i == ROUNDS and not _is_in_doubt(running, runners[0]):
            break
        for runner in running[i % len(running) :] + running[: i % len(running)]:
            try:
                runner.time_block(expected)
            except Exception as error:
                if runner is runners[0]:
                    raise
                runner.out = _failure(error)
        running = [r for r in running if r.out is None]
        best = min(running, key=lambda r: r.median)
        for runner in running[1:]:
            if is_faster(best.times, runner.times, HOPELESS):
                runner.out = "slower"
        running = [r for r in running if r.out is None]


def _is_in_doubt(running: list[Runner], eager: Runner) -> bool:
    """Whether a candidate seems to be worth while, and none is beyond doubt."""
    best = min(running, key=lambda r: r.median)
    seems_so = best.median * WORTH < eager.median
    return seems_so and not any(is_faster(r.times, eager.times) for r in running if r is not eager)


def is_faster(times: Sequence[float], others: Sequence[float], factor: float = 1.0) -> bool:
    """Whether `times` are below `others` / `factor` beyond doubt: paired by round, over the rounds that both have run."""
    ratios = [math.log(b / (a * factor)) for a, b in zip(times, others, strict=False)]
    n = len(ratios)
    if n < MIN_ROUNDS:
        return False
    mean, spread = statistics.fmean(ratios), statistics.stdev(ratios)
    return mean > 0 and mean * math.sqrt(n) >= _T[min(n - 6, len(_T) - 1)] * max(spread, 1e-12)
