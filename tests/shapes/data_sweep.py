"""`python -m tests.shapes.data_sweep [NAME …]`: run each program of the table under three backends, compare it with eager execution, and
store how many graphs each makes. With names, those programs only."""

from __future__ import annotations

import json
import logging
import pathlib
import sys

import torch

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounterWithBackend, differences

from .data_models import TABLE, outcome

BACKENDS = ("eager", "aot_eager", "inductor")
SWEEP = pathlib.Path(__file__).parent / "data_sweep.json"


def run(name: str, backend: str, **settings: object) -> tuple[int, list[str]]:
    """Compare all calls of a program with eager execution; the number of graphs, and the slugs of the breaks."""
    dynamo_lite.reset()
    counter = CompileCounterWithBackend(backend)
    expected = [outcome(fn, args) for fn, calls in [TABLE[name].make()] for args in calls]
    fn, calls = TABLE[name].make()
    compiled = dynamo_lite.compile(fn, backend=counter, **settings)
    for args, result in zip(calls, expected, strict=True):
        assert not list(differences(result, outcome(compiled, args), tol=1e-5))
    return counter.frame_count, [record.slug for record in log.breaks()]


def main() -> None:
    logging.disable(logging.WARNING)
    stored = json.loads(SWEEP.read_text())["graphs"] if SWEEP.exists() else {}
    for name in sys.argv[1:] or TABLE:
        stored[name] = [run(name, backend)[0] for backend in BACKENDS]
        print(f"{name:40} {TABLE[name].graphs:3} {stored[name]}", flush=True)
        lines = ",\n".join(f"  {json.dumps(name)}: {stored[name]}" for name in TABLE if name in stored)
        head = f'{{"torch": "{torch.__version__}", "backends": {json.dumps(BACKENDS)}, "graphs": {{'
        SWEEP.write_text(f"{head}\n{lines}\n}}}}\n")


if __name__ == "__main__":
    main()
