"""Cost per call, trace time and warm start on several versions of Python, in one table.

Input: interpreters in whose environments the package is installed (`make test-3.12` and so on make them); models of `examples.models`.
Output: a table with a row for each interpreter, geometric means over the models, and `results/pythons-DATE.json` with `.md`. Calls and
traces are measured as in `benchmarks.overhead` and `benchmarks.trace`, first calls of processes with filled caches as in
`benchmarks.warm`; torch.compile stands beside each number. The interpreters take turns, so that what slows the machine down meets all;
the numbers are medians over the rounds. The first interpreter is the one that others are compared with.

    python -m benchmarks.pythons [--pythons .venv/bin/python,.venv-3.12/bin/python] [--models bert,gpt2] [--warm linear_relu,bert] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import Any

ENVIRONMENTS = ",".join(f".venv{suffix}/bin/python" for suffix in ("", "-3.12", "-3.13", "-3.14"))
SIDES = ("dynamo_lite", "torch.compile")


def calls_and_traces(names: list[str], rounds: int) -> dict[str, Any]:
    """In the process that is measured: seconds of each model, by side, and what the process is."""
    import torch

    from .common import examples, surroundings
    from .trace import compare, prime

    torch.set_num_threads(1)
    prime()
    found: dict[str, Any] = {"environment": surroundings(1), "call": {}, "trace": {}}
    for name, example in examples(names):
        traces = compare(example, max(2, rounds // 8))
        found["trace"][name] = {side: statistics.median(traces[side]) for side in SIDES}
        found["call"][name] = per_side(example, rounds)
    return found


def per_side(example: Any, rounds: int) -> dict[str, float]:
    """Seconds per call of a compiled model, by side."""
    import torch

    import dynamo_lite

    from .common import call, take_turns
    from .overhead import per_call, precomputed

    torch.compiler.reset()
    dynamo_lite.reset()
    compiled = {
        "dynamo_lite": dynamo_lite.compile(example[0], backend=precomputed, fullgraph=True),
        "torch.compile": torch.compile(example[0], backend=precomputed, fullgraph=True),
    }
    for each in compiled.values():
        for _ in range(3):
            call(each, example)
    calls = {side: max(1, int(0.02 / per_call(each, example, 10))) for side, each in compiled.items()}
    times = take_turns({side: partial(per_call, compiled[side], example, calls[side]) for side in SIDES}, rounds)
    return {side: statistics.median(times[side]) for side in SIDES}


def warm_starts(names: list[str], repeats: int) -> dict[str, dict[str, float]]:
    """In a process of the interpreter that is measured: first calls of new processes whose caches are filled."""
    from .warm import row

    found = {name: row(name, "inductor", "processor", repeats) for name in names}
    return {name: {side: each[f"{side} warm first call"] for side in SIDES} for name, each in found.items()}


def in_process(python: str, *what: str) -> Any:
    """What a process of an interpreter measures."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "DYNAMO_LITE_CACHE_DIR": folder}
        command = [python, "-m", "benchmarks.pythons", "--measure", *what]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def medians(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Of the rounds of one interpreter: model → side → seconds."""
    return {
        name: {side: statistics.median(each[name][side] for each in rounds) for side in SIDES} for name in rounds[0]
    }


def mean(models: dict[str, dict[str, float]], side: str = SIDES[0]) -> float:
    """The geometric mean over the models, in seconds."""
    return statistics.geometric_mean(each[side] for each in models.values())


def ratio(models: dict[str, dict[str, float]]) -> float:
    """Of the two sides."""
    return mean(models) / mean(models, SIDES[1])


HEADER = """| Python | µs per call | of 1st row | of theirs | trace ms | of 1st row | of theirs | warm start s | of theirs |
|---|---:|---:|---:|---:|---:|---:|---:|---:|"""


def line(found: dict[str, Any], first: dict[str, Any]) -> str:
    """One row of the table."""
    call, trace, warm = found["call"], found["trace"], found["warm"]
    cells = [
        found["environment"]["python"],
        f"{mean(call) * 1e6:.2f}",
        f"{mean(call) / mean(first['call']):.2f}",
        f"{ratio(call):.3f}",
        f"{mean(trace) * 1e3:.1f}",
        f"{mean(trace) / mean(first['trace']):.2f}",
        f"{ratio(trace):.3f}",
        f"{mean(warm):.2f}" if warm else "–",
        f"{ratio(warm):.2f}" if warm else "–",
    ]
    return f"| {' | '.join(cells)} |"


def measured(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All numbers, by interpreter."""
    pythons = options.pythons.split(",")
    rounds, repeats = ("5", "1") if options.quick else ("40", "5")
    found: dict[str, list[dict[str, Any]]] = {python: [] for python in pythons}
    for turn in range(1 if options.quick else 3):
        for python in pythons[:: 1 if turn % 2 == 0 else -1]:
            found[python].append(in_process(python, "calls", options.models, rounds))
            print(f"{python}: round {turn + 1}", flush=True)
    rows = []
    for python, each in found.items():
        warm = in_process(python, "warm", options.warm, repeats) if options.warm else {}
        numbers = {what: medians([one[what] for one in each]) for what in ("call", "trace")}
        rows.append({"environment": each[0]["environment"], **numbers, "warm": warm})
    return rows


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--measure"]:
        measure = calls_and_traces if sys.argv[2] == "calls" else warm_starts
        print(json.dumps(measure(sys.argv[3].split(","), int(sys.argv[4]))))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pythons", default=ENVIRONMENTS, help="comma-separated; the first is the one to compare with")
    parser.add_argument("--models", default="linear_relu,dlrm,bert,gpt2,t5,vit,resnet50", help="for calls and traces")
    parser.add_argument("--warm", default="linear_relu,bert", help="for warm starts; empty: none")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: for a look, not for a record")
    options = parser.parse_args()
    rows = measured(options)
    facts = ", ".join(f"{key} {value}" for key, value in rows[0]["environment"].items() if key != "python")
    warm = f" and {options.warm} (warm starts, `inductor`)" if options.warm else ""
    models = f"Geometric means over {options.models} (calls, traces){warm}."
    table = "\n".join([HEADER, *(line(each, rows[0]) for each in rows)])
    print(table)
    if not options.quick:
        stem = pathlib.Path(__file__).parent / "results" / f"pythons-{time.strftime('%Y%m%d')}"
        stem.with_suffix(".json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
        stem.with_suffix(".md").write_text(f"# pythons\n\n{facts}\n\n{models}\n\n{table}\n")


if __name__ == "__main__":
    main()
