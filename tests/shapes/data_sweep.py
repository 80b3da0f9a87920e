"""`python -m tests.shapes.data_sweep [--check] [--device D] [NAME …]`: run each program of the table under three backends, compare it with
eager execution, and store how many graphs each makes. With names, those programs only; with `--check` nothing is stored, and what differs
from the stored numbers is printed. `--device`: where programs make tensors.
"""

from __future__ import annotations

import argparse
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
        assert list(differences(result, outcome(compiled, args), tol=1e-5)) == []
    return counter.frame_count, [record.slug for record in log.breaks()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.shapes.data_sweep", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_default_device(options.device if options.device != "cpu" else None)
    names = options.names or list(TABLE)
    return check(names) if options.check else store(names)


def store(names: list[str]) -> int:
    stored = json.loads(SWEEP.read_text())["graphs"] if SWEEP.exists() else {}
    for name in names:
        stored[name] = [run(name, backend)[0] for backend in BACKENDS]
        print(f"{name:40} {TABLE[name].graphs:3} {stored[name]}", flush=True)
        lines = ",\n".join(f"  {json.dumps(name)}: {stored[name]}" for name in TABLE if name in stored)
        head = f'{{"torch": "{torch.__version__}", "backends": {json.dumps(BACKENDS)}, "graphs": {{'
        SWEEP.write_text(f"{head}\n{lines}\n}}}}\n")
    return 0


def check(names: list[str]) -> int:
    """Print what differs from eager execution, or from the stored numbers of graphs; 1 if anything does."""
    stored = json.loads(SWEEP.read_text())["graphs"]
    failures = 0
    for name in names:
        for backend, expected in zip(BACKENDS, stored[name], strict=True):
            try:
                graphs, slugs = run(name, backend)
                found = "" if graphs == expected else f"{graphs} graphs instead of {expected}, breaks {slugs}"
            except Exception as error:
                found = f"{type(error).__name__}: {error}"[:400]
            if found:
                failures += 1
                print(f"{name} under {backend}: {found}", flush=True)
    print(f"{len(names)} programs, {failures} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
