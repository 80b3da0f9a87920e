"""How trace time grows with depth: a Llama of 12, 24, 48 and 96 layers on both sides.

Prints the trace time of each and the slope, in milliseconds per layer (least squares). Run it with
`python -m benchmarks.depth [--quick]`.
"""

from __future__ import annotations

import statistics

import torch

from examples.models import llama

from .common import finish, parse_options, row
from .trace import compare, prime

LAYERS = (12, 24, 48, 96)


def slope(times: list[float]) -> float:
    """Seconds per layer."""
    return statistics.linear_regression(LAYERS[: len(times)], times).slope


def main() -> None:
    options = parse_options(__doc__)
    prime()
    rows = []
    for layers in LAYERS[:3] if options.quick else LAYERS:
        torch.manual_seed(0)
        times = compare(llama(layers=layers), 1 if options.quick else 3)
        rows.append(row(f"llama, {layers} layers", times["dynamo_lite"], times["torch.compile"]))
        print(f"{layers}: {rows[-1]}", flush=True)
    ours, theirs = ([r[side] for r in rows] for side in ("dynamo_lite", "torch.compile"))
    rows.append(row("per layer (slope)", [slope(ours)], [slope(theirs)]))
    finish("depth", "ms", 1e3, rows, options)


if __name__ == "__main__":
    main()
