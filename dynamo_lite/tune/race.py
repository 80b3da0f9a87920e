"""A race between backends over one graph.

Input: candidates (name and compiler), the graph, its real inputs. Output: a `Race`: for each candidate its times or why it dropped out,
and the winner. Invariant: the program's tensors and random state are as before; a candidate that is wrong never wins; one that is not
faster than eager beyond doubt does not win.

Method: candidates take turns in short blocks, so that what slows the machine down meets all of them; of each round the logarithm of the
ratio of two candidates' times is one observation (Georges, Buytaert, Eeckhout: Statistically Rigorous Java Performance Evaluation,
OOPSLA 2007, use the same paired design); a difference counts if its one-sided t statistic is beyond p = 0.01.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dynamo_lite.exc import first_line

from .inputs import Inputs
from .verify import Expected

if TYPE_CHECKING:
    from torch.fx import GraphModule

ROUNDS = 25
MIN_ROUNDS = 6
BLOCK_SECONDS = 2e-3
"""A block of calls that is timed as one takes at least so long: the clock and the loop are then below a thousandth of it."""
HOPELESS = 1.25
"""A candidate beyond doubt so many times slower than the fastest drops out of the race early."""
# Student's t at p = 0.01, one-sided, for 5 … 24 degrees of freedom.
_T = (
    3.36,
    3.14,
    3.00,
    2.90,
    2.82,
    2.76,
    2.72,
    2.68,
    2.65,
    2.62,
    2.60,
    2.58,
    2.57,
    2.55,
    2.54,
    2.53,
    2.52,
    2.51,
    2.50,
    2.49,
)

CompilerFn = Callable[[Any, list[Any]], Callable[..., Any]]


class Dropped(Exception):
    """A compiler's way of saying why it takes no part; the message is the reason."""


@dataclass
class Runner:
    """One candidate: seconds per call in each round, or why it is out of the race."""

    name: str
    compiled: Callable[..., Any] | None = None
    compile_seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    out: str | None = None
    calls: int = 1

    @property
    def median(self) -> float:
        """Seconds per call; infinite if it never ran."""
        return statistics.median(self.times) if self.times else math.inf

    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the median, from order statistics (binomial)."""
        times, n = sorted(self.times), len(self.times)
        k = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
        return times[k], times[n - 1 - k]


class Outcome(NamedTuple):
    """What a race has shown, in plain data: the winner, eager execution's seconds per call, and of all candidates, fastest first, (name,
    seconds or None, why it is out or None, what happened)."""

    winner: str
    eager: float
    runners: list[tuple[str, float | None, str | None, str]]

    def problem_of(self, name: str) -> str | None:
        """Why a candidate is out, or None."""
        return next((out for other, _, out, _ in self.runners if other == name), "not tried")


@dataclass
class Race:
    """What a race has shown."""

    runners: list[Runner]
    winner: Runner
    seconds: float
    training: bool

    def ranking(self) -> list[Runner]:
        """The candidates, fastest first."""
        return sorted(self.runners, key=lambda r: r.median)

    def outcome(self) -> Outcome:
        """All of it in plain data."""
        rows = zip(self.ranking(), self.table(), strict=True)
        runners = [(r.name, r.median if r.times else None, r.out, text) for r, (_, text) in rows]
        return Outcome(self.winner.name, self.runners[0].median if self.runners[0].times else 0.0, runners)

    def table(self) -> list[tuple[str, str]]:
        """(candidate, what happened), in the order of `ranking`."""
        eager = self.runners[0].median
        rows = []
        for r in self.ranking():
            if r.times:
                low, high = r.interval()
                text = f"{r.median * 1e6:.1f} µs ({low * 1e6:.1f} … {high * 1e6:.1f}), {eager / r.median:.2f}x"
                text += f", compiled in {r.compile_seconds:.1f} s"
            else:
                text = ""
            rows.append((r.name, ", ".join(filter(None, [text, r.out, "chosen" if r is self.winner else ""]))))
        return rows


def race(
    gm: GraphModule,
    examples: Sequence[Any],
    candidates: Mapping[str, CompilerFn],
    *,
    seconds: float,
    training: bool,
    tell: Callable[[str], None] = lambda text: None,
) -> Race:
    """Compile, verify and time each candidate, in the order given, for at most about `seconds` in all; eager always takes part.

    `tell` is given what is being done. A candidate under way when the time is up is not interrupted. Raises `inputs.CannotCopy` for inputs
    that can't be copied.
    """
    started = time.perf_counter()
    runners = [Runner("eager", gm.forward)]
    with undisturbed(examples):
        inputs = Inputs(examples)
        expected = Expected(gm.forward, inputs, training)
        for name, compiler in candidates.items():
            runner = Runner(name)
            runners.append(runner)
            if time.perf_counter() - started > seconds * 0.75:
                runner.out = f"not tried: the {seconds:g} s for this graph were used up"
            else:
                tell(f"compiling with {name}")
                _prepare(runner, compiler, gm, examples, expected)
        tell("timing " + ", ".join(r.name for r in runners if r.out is None))
        _run(runners, expected, started + seconds)
    winner = _winner(runners)
    for runner in runners:
        if runner is not winner:
            runner.compiled = None
    return Race(runners, winner, time.perf_counter() - started, training)


def _prepare(
    runner: Runner, compiler: CompilerFn, gm: GraphModule, examples: Sequence[Any], expected: Expected
) -> None:
    started = time.perf_counter()
    try:
        runner.compiled = compiler(gm, expected.inputs.fresh() if binds(compiler) else list(examples))
        # The first call is part of the compilation: backends compile late.
        problem = expected.problem_of(runner.compiled)
    except Dropped as reason:
        problem = str(reason)
    except Exception as error:
        problem = f"failed: {type(error).__name__}: {first_line(error)[:200]}"
    runner.compile_seconds = time.perf_counter() - started
    runner.out = problem


def binds(compiler: CompilerFn) -> bool:
    """Whether a backend makes constants of parameters. It is compiled for the copies that the race runs on, and for the program's own if it
    wins."""
    return bool(getattr(getattr(compiler, "requirements", None), "assumes", ""))


def _run(runners: list[Runner], expected: Expected, deadline: float) -> None:
    running = [r for r in runners if r.out is None]
    if len(running) < 2:
        return
    for runner in running:
        runner.calls = calls_of(runner, expected)
    for i in range(ROUNDS):
        for runner in running[i % len(running) :] + running[: i % len(running)]:
            runner.times.append(block(runner, expected, runner.calls))
        if i + 1 >= MIN_ROUNDS:
            if time.perf_counter() > deadline:
                break
            best = min(running, key=lambda r: r.median)
            for runner in running[1:]:
                if is_faster(best.times, runner.times, HOPELESS):
                    runner.out = "slower"
            running = [r for r in running if r.out is None]
            if len(running) < 2:
                break


def calls_of(runner: Runner, expected: Expected) -> int:
    """How many calls make a block."""
    return max(1, math.ceil(BLOCK_SECONDS / max(block(runner, expected, 3), 1e-9)))


def block(runner: Runner, expected: Expected, calls: int) -> float:
    """Seconds per call over a block. What the graph writes to is not put back within a block: it costs time and changes none."""
    values = expected.inputs.fresh()
    expected.synchronize()
    started = time.perf_counter()
    for _ in range(calls):
        expected.run(runner.compiled, values)
    expected.synchronize()
    return (time.perf_counter() - started) / calls


def is_faster(times: Sequence[float], others: Sequence[float], factor: float = 1.0) -> bool:
    """Whether `times` are below `others` / `factor` beyond doubt: paired by round, over the rounds that both have run."""
    ratios = [math.log(b / (a * factor)) for a, b in zip(times, others, strict=False)]
    n = len(ratios)
    if n < MIN_ROUNDS:
        return False
    mean, spread = statistics.fmean(ratios), statistics.stdev(ratios)
    return mean > 0 and mean * math.sqrt(n) >= _T[min(n - 6, len(_T) - 1)] * max(spread, 1e-12)


def _winner(runners: list[Runner]) -> Runner:
    """The fastest that is faster than eager beyond doubt; else eager."""
    eager = runners[0]
    for runner in sorted(runners[1:], key=lambda r: r.median):
        if runner.out is None and is_faster(runner.times, eager.times):
            return runner
    return eager


@contextmanager
def undisturbed(examples: Sequence[Any]) -> Iterator[None]:
    """The random state, which is the only global one that is changed inside, is put back."""
    devices = {v.device.index for v in examples if isinstance(v, torch.Tensor) and v.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices)):
        yield
