"""Memory over time: how much a long-running process gains, as slopes.

Each kind of work runs in a process of its own, in rounds, for its share of the time: calls that recompile (sizes, numbers, lengths that
change), functions that are made, compiled and forgotten, modules with training steps, calls from threads, resets; and all of them by turns.
After each round comes a collection; then the resident set (KiB) and the objects that the collector knows are counted. The slope is that
of a straight line through all rounds after the first fifth, by least squares, with its standard error; it is told per 1,000 steps. What
torch.fx alone keeps of each GraphModule is measured in the same way beside. `python -m benchmarks.soak [--minutes M] [--json FILE]` exits
with 1 if a slope of ours is more than torch.fx's by more than three standard errors and TOLERATED.
"""

from __future__ import annotations

import argparse
import gc
import json
import linecache
import logging
import multiprocessing
import platform
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from types import FunctionType
from typing import Any, NamedTuple

import torch

import dynamo_lite
from dynamo_lite.record import log

TOLERATED_KIB = 64.0
TOLERATED_OBJECTS = 10.0
"""Per 1,000 steps: what allocators and the interpreter's own tables explain."""


def resident_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def scaled(x: torch.Tensor, factors: list[float]) -> torch.Tensor:
    for factor in factors:
        x = x * factor
    return x


class Scale(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1.0 * 2.0


class Work(NamedTuple):
    """Rounds of `n` steps of one kind. `step(i)` is called with numbers that go on from round to round."""

    n: int
    step: Callable[[int], object]


def _measured() -> tuple[int, int]:
    log.reset()  # it is bounded, and fills up more slowly than this runs
    gc.collect()
    return resident_kib(), len(gc.get_objects())


def recompile(i: int) -> None:
    """A version more for a size, a number, a list's length, and calls of those that there are."""
    compiled = RECOMPILED[i // 50 % len(RECOMPILED)]
    compiled(torch.ones(1 + i % 7, 2 + i % 3), [float(i % 5)] * (1 + i % 4))
    if i % 50 == 49:
        dynamo_lite.reset_code_caches()


RECOMPILED = [dynamo_lite.compile(scaled, backend="eager", dynamic=dynamic) for dynamic in (None, False, True)]


def forget_function(i: int) -> None:
    """A function, and code, of its own, that dies with its compiled version."""
    code = scaled.__code__.replace(co_name=f"scaled_{i % 100}")
    function = FunctionType(code, globals())
    dynamo_lite.compile(function, backend="eager")(torch.ones(4), [1.0, 2.0])


def train(i: int) -> None:
    """A new module, a step of its training, and the module's end."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    compiled = dynamo_lite.compile(module, backend="aot_eager" if i % 10 == 0 else "eager")
    compiled(torch.ones(2 + i % 3, 4)).sum().backward()


def from_threads(i: int) -> None:
    """Four threads that call, and compile, the same function."""
    threads = [threading.Thread(target=THREADED, args=(torch.ones(3), [1.0] * (1 + (i + k) % 3))) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


THREADED = dynamo_lite.compile(scaled, backend="eager")


def compile_and_reset(_: int) -> None:
    dynamo_lite.compile(scaled, backend="eager")(torch.ones(4), [1.0, 2.0])
    dynamo_lite.reset()


def calls(_: int) -> None:
    CALLED(*ARGUMENTS)


CALLED = dynamo_lite.compile(scaled, backend="eager")
ARGUMENTS = torch.ones(4), [1.0, 2.0]


def make_graph_module(_: int) -> None:
    """What torch.fx alone does in a compilation, less the source text that it keeps and we drop."""
    gm = torch.fx.symbolic_trace(Scale())
    gm(torch.ones(4))
    filename = type(gm).forward.__code__.co_filename
    torch.fx.graph_module._loader.eval_cache.pop(filename, None)
    linecache.cache.pop(filename, None)


FLOOR = "graph modules by torch.fx alone"


class Slope(NamedTuple):
    """Of a straight line through samples, per 1,000 steps, and its standard error."""

    value: float
    error: float


def slope(samples: list[tuple[int, float]]) -> Slope:
    """Least squares over the samples after the first fifth."""
    kept = samples[len(samples) // 5 :]
    n = len(kept)
    if n < 3:
        return Slope(float("nan"), float("nan"))
    mean_x, mean_y = sum(x for x, _ in kept) / n, sum(y for _, y in kept) / n
    spread = sum((x - mean_x) ** 2 for x, _ in kept)
    value = sum((x - mean_x) * (y - mean_y) for x, y in kept) / spread
    rest = sum((y - mean_y - value * (x - mean_x)) ** 2 for x, y in kept)
    return Slope(1000 * value, 1000 * (rest / (n - 2) / spread) ** 0.5)


KINDS = {
    "calls": Work(100_000, calls),
    FLOOR: Work(200, make_graph_module),
    "recompiles": Work(200, recompile),
    "new functions": Work(200, forget_function),
    "new modules, with training steps": Work(60, train),
    "calls from four threads": Work(200, from_threads),
    "compile and reset": Work(100, compile_and_reset),
}
ALL = "all by turns"


def samples(kind: str, seconds: float) -> list[tuple[int, int, int]]:
    """(steps so far, KiB, objects) after each round."""
    logging.getLogger("dynamo_lite").setLevel(logging.ERROR)  # recompile limits are reached on purpose
    works = list(KINDS.values()) if kind == ALL else [KINDS[kind]]
    until, done, found = time.monotonic() + seconds, 0, []
    while time.monotonic() < until or len(found) < 5:
        for work in works:
            for i in range(work.n):
                work.step(done // len(works) + i)
            done += work.n
        found.append((done, *_measured()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--json", help="write the result here")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    found: dict[str, dict[str, Any]] = {}
    good = True
    for kind in [FLOOR, *(name for name in KINDS if name != FLOOR), ALL]:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            measured = pool.submit(samples, kind, 60 * options.minutes / (len(KINDS) + 1)).result()
        kib = slope([(n, kib) for n, kib, _ in measured])
        objects = slope([(n, objects) for n, _, objects in measured])
        found[kind] = {"steps": measured[-1][0], "KiB": kib, "objects": objects}
        floor = max(found[FLOOR]["KiB"].value, 0)
        within = kib.value <= floor + TOLERATED_KIB + 3 * kib.error
        within &= objects.value <= TOLERATED_OBJECTS + 3 * objects.error
        good &= within or kind == FLOOR
        print(
            f"{kind}: {measured[-1][0]} steps, {kib.value:+.1f} ± {kib.error:.1f} KiB and "
            f"{objects.value:+.1f} ± {objects.error:.1f} objects per 1,000 steps{'' if within else '  <-- grows'}",
            flush=True,
        )
    if options.json:
        versions = {"python": platform.python_version(), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
        with open(options.json, "w") as out:
            json.dump({**versions, "minutes": options.minutes, "slopes per 1,000 steps": found}, out, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
