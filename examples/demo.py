"""The main job on real models: one graph, results equal to eager, time per call. What `make demo` runs.

Models have their real structure and random weights; nothing is downloaded.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from models import Example, bert, timm_model

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, differences


def milliseconds(compiled, eager, example: Example, rounds: int = 9) -> tuple[float, float]:
    """Median time per call of both, taking turns."""
    _, args, kwargs = example
    times: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(rounds):
        for i, model in enumerate((compiled, eager)):
            start = time.perf_counter()
            model(*args, **kwargs)
            times[i].append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[0]), statistics.median(times[1])


@torch.no_grad()
def show(name: str, example: Example, backend: str, tolerance: float) -> bool:
    """One line for one model and backend. True if the results agree and one graph was enough."""
    model, args, kwargs = example
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(model, backend=counter)
    start = time.perf_counter()
    actual = compiled(*args, **kwargs)
    first = time.perf_counter() - start
    different = list(differences(model(*args, **kwargs), actual, tol=tolerance))
    ours, eager = milliseconds(compiled, model, example)
    verdict = "equal to eager" if not different else f"DIFFERENT FROM EAGER: {different[0]}"
    print(
        f"{name:10} backend {backend:9} {counter.frame_count} graph(s), {counter.op_count:4} operators, {verdict}; "
        f"first call {first:6.2f} s, then {ours:7.2f} ms per call, eager {eager:7.2f} ms ({eager / ours:.2f}x)",
        flush=True,
    )
    return not different and counter.frame_count == 1


def main() -> int:
    torch.manual_seed(0)
    print(
        f"dynamo_lite {dynamo_lite.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}", flush=True
    )
    good = True
    for name, example in (("BertModel", bert(1, 32)), ("resnet50", timm_model("resnet50", 128))):
        good &= show(name, example, "eager", 0.0)
        good &= show(name, example, "inductor", 1e-3)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
