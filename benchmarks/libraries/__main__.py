"""Programs of libraries that are written in torch: eager, dynamo_lite and torch.compile beside each other.

For each program: is what it computes, with gradients and random numbers, equal to eager execution, under dynamo_lite with the backends
"eager" and "aot_eager", and under torch.compile with "eager"; how many graphs; which breaks. A library's programs run in a process of
their own. Results go to a JSON file after each library, with a table beside it; notes on single programs are kept in `notes.json`.

    PYTHONPATH=DIRECTORY python -m benchmarks.libraries [--only a,b] [--jobs 2] [--json FILE] [--table]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pathlib
import platform
import time
from typing import Any

import torch

from ..processes import each
from .measure import measured

HERE = pathlib.Path(__file__).parent
RESULTS = HERE.parent / "results"
NO_LIBRARIES = {"__init__", "__main__", "measure", "program"}
Record = dict[str, Any]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="comma-separated names of libraries")
    parser.add_argument("--jobs", type=int, default=1, help="libraries at a time")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one library")
    parser.add_argument("--json", type=pathlib.Path, help="the file of results (default: results/libraries-DATE.json)")
    parser.add_argument("--table", action="store_true", help="only write the table of the file again")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    path = options.json or RESULTS / f"libraries-{time.strftime('%Y%m%d')}.json"
    results: Record = json.loads(path.read_text()) if path.exists() else {"libraries": {}}
    names = options.only.split(",") if options.only else sorted({p.stem for p in HERE.glob("*.py")} - NO_LIBRARIES)
    if not options.table:
        context = multiprocessing.get_context("spawn")
        calls = [(name, (name,)) for name in names]
        for name, record in each(context, measured, calls, at_a_time=options.jobs, timeout=options.timeout):
            results["libraries"][name] = record
            save(path, results)
    save(path, results)
    print(path.with_suffix(".md").read_text())


def save(path: pathlib.Path, results: Record) -> None:
    results["environment"] = (
        f"date {time.strftime('%Y-%m-%d')}, python {platform.python_version()}, torch {torch.__version__}"
    )
    path.write_text(json.dumps(results, indent=1) + "\n")
    path.with_suffix(".md").write_text(table(results))


def table(results: Record) -> str:
    notes = json.loads((HERE / "notes.json").read_text())
    lines = [
        "# libraries",
        "",
        results["environment"],
        "",
        "`python -m benchmarks.libraries`. `eager`, `aot_eager`: results, gradients and random numbers of dynamo_lite with these backends",
        "are those of eager execution; `torch.compile`: the same of torch.compile with the backend `eager`. Graphs and breaks are those of",
        "dynamo_lite / torch.compile for two calls.",
        "",
        *summary(results["libraries"]),
        "",
        "| library | program | eager | aot_eager | torch.compile | graphs | breaks | note |",
        "|---|---|---|---|---|---:|---:|---|",
    ]
    for name, record in sorted(results["libraries"].items()):
        for program, measurements in record.get("programs", {}).items():
            lines.append(row(f"{record['package']} {record['version']}", program, measurements, notes.get(name, {})))
    return "\n".join(lines) + "\n"


def summary(libraries: Record) -> list[str]:
    programs = [p for record in libraries.values() for p in record.get("programs", {}).values() if "eager" not in p]
    equal = {
        engine: sum(p[engine]["equal"] for p in programs) for engine in ("dynamo_lite", "aot_eager", "torch.compile")
    }
    pairs = [(p["dynamo_lite"]["graphs"], p["torch.compile"]["graphs"]) for p in programs]
    return [
        f"- {len(programs)} programs of {len(libraries)} libraries",
        "- equal to eager: " + ", ".join(f"{engine} {n}" for engine, n in equal.items()),
        f"- in one graph: {sum(a == 1 for a, _ in pairs)} / {sum(b == 1 for _, b in pairs)}; "
        f"fewer graphs than torch.compile: {sum(a < b for a, b in pairs)}, more: {sum(a > b for a, b in pairs)}",
    ]


def row(library_name: str, program: str, record: Record, notes: dict[str, str]) -> str:
    note = notes.get(program, "")
    if "eager" in record:
        return f"| {library_name} | {program} | | | | | | fails in eager execution: {record['eager']} |"
    ours, theirs = record["dynamo_lite"], record["torch.compile"]
    verdicts = ["equal" if record[e]["equal"] else "no" for e in ("dynamo_lite", "aot_eager", "torch.compile")]
    counts = f"{ours['graphs']} / {theirs['graphs']} | {len(ours['breaks'])} / {len(theirs['breaks'])}"
    return f"| {library_name} | {program} | {' | '.join(verdicts)} | {counts} | {note} |"


if __name__ == "__main__":
    main()
