"""Memory over time: resident size and reference counts must stay flat.

Runs a million calls of a compiled function, then ten thousand compile-and-reset cycles, and prints the growth of the resident set (KiB)
and of the number of objects between the first tenth and the end. Exits with 1 if either grows. torch.fx itself keeps 1 to 2 KiB for every
GraphModule that was ever made; that is measured in the same run, and a cycle, which makes one, may not gain more. Run it with
`python -m benchmarks.soak [--calls N] [--cycles N]`.
"""

from __future__ import annotations

import argparse
import gc
import linecache
import sys
from collections.abc import Callable

import torch

import dynamo_lite

# Growth that allocators and interned objects explain: measured on runs of very different length.
TOLERATED_KIB = 6000
TOLERATED_OBJECTS = 2000  # bounded tables filling up


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


class Scale(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1.0 * 2.0


def make_graph_module() -> None:
    """What torch.fx alone does in a cycle, less the source text that it keeps and we drop."""
    gm = torch.fx.symbolic_trace(Scale())
    gm(torch.ones(4))
    filename = type(gm).forward.__code__.co_filename
    torch.fx.graph_module._loader.eval_cache.pop(filename, None)
    linecache.cache.pop(filename, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--cycles", type=int, default=10_000)
    options = parser.parse_args()
    compiled = dynamo_lite.compile(scaled, backend="eager")
    x, factors = torch.ones(4), [1.0, 2.0]
    good = True
    floor = 0
    for name, step, n in (
        ("calls", lambda: compiled(x, factors), options.calls),
        ("graph modules by torch.fx alone", make_graph_module, options.cycles),
        ("compile and reset", compile_and_reset, options.cycles),
    ):
        kib, objects = growth(step, n)
        print(f"{n} {name}: {kib:+} KiB, {objects:+} objects", flush=True)
        if step is make_graph_module:
            floor = kib
        else:
            good &= kib <= TOLERATED_KIB + floor and objects <= TOLERATED_OBJECTS
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
