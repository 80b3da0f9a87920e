"""Memory over time: resident size and reference counts must stay flat.

Runs a million calls of a compiled function, then ten thousand compile-and-reset cycles, and prints the growth of the resident set (KiB)
and of the number of objects between the first tenth and the end. Exits with 1 if either grows. Run it with
`python -m benchmarks.soak [--calls N] [--cycles N]`.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable

import torch

import dynamo_lite

# Growth that allocators and interned objects explain: measured on runs of very different length.
TOLERATED_KIB = 6000
TOLERATED_OBJECTS = 500


def resident_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def growth(step: Callable[[], object], n: int) -> tuple[int, int]:
    """(KiB, objects) gained between the first tenth and the end of n steps."""
    for _ in range(n // 10):
        step()
    gc.collect()
    kib, objects = resident_kib(), len(gc.get_objects())
    for _ in range(n - n // 10):
        step()
    gc.collect()
    return resident_kib() - kib, len(gc.get_objects()) - objects


def scaled(x: torch.Tensor, factors: list[float]) -> torch.Tensor:
    for factor in factors:
        x = x * factor
    return x


def compile_and_reset() -> None:
    dynamo_lite.compile(scaled, backend="eager")(torch.ones(4), [1.0, 2.0])
    dynamo_lite.reset()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--cycles", type=int, default=10_000)
    options = parser.parse_args()
    compiled = dynamo_lite.compile(scaled, backend="eager")
    x, factors = torch.ones(4), [1.0, 2.0]
    good = True
    for name, step, n in (
        ("calls", lambda: compiled(x, factors), options.calls),
        ("compile and reset", compile_and_reset, options.cycles),
    ):
        kib, objects = growth(step, n)
        good &= kib <= TOLERATED_KIB and objects <= TOLERATED_OBJECTS
        print(f"{n} {name}: {kib:+} KiB, {objects:+} objects", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
