"""The zoo: models of transformers and timm under dynamo_lite and torch.compile, with a backend that compiles nothing.

For each model and each of the two, and each kind of measurement: `inference`: is the result that of eager execution (`pass`), how
many graphs and operations, how many seconds of capture, how many graphs more when the call is repeated and when a second and a
third batch size come; `training`: for some models a step under `aot_eager`; `dynamic_shapes`: thirteen batch sizes, lengths and image
sizes, and which of them compile anew; `export`: the model as one graph that stands by itself, beside torch.export.

Each measurement has a process of its own. What is measured is written to a JSON file at once, with a table beside it: called
again, the command goes on where it was stopped.

    python -m benchmarks.zoo [--suite hf|timm] [--kind inference|training|shapes|export] [--only a,b]
                             [--engines dynamo_lite] [--jobs 2] [--fast] [--json FILE]
    python -m benchmarks.zoo --trace-only [--rounds 3]        only the seconds again, on a machine that does nothing else
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pathlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from .processes import answered, each
from .results import write
from .zoo_report import environment, table

RESULTS = pathlib.Path(__file__).parent / "results"
ENGINES = ("dynamo_lite", "torch.compile")
KINDS = ("inference", "training", "shapes", "export")
FAST = 7  # every seventh model is in the sample
SUMMARY = ("graphs", "ops", "again", "second", "third", "varies", "constant")
Record = dict[str, Any]
Model = tuple[str, str, bool]  # suite, name, whether it is trained


class Job(NamedTuple):
    suite: str
    model: str
    engine: str
    kind: str


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=["hf", "timm"], help="only transformers or only timm")
    parser.add_argument("--kind", choices=KINDS, help="only one kind of measurement")
    parser.add_argument("--only", help="comma-separated names of models")
    parser.add_argument("--engines", default=",".join(ENGINES), help="comma-separated, of: " + ", ".join(ENGINES))
    parser.add_argument("--jobs", type=int, default=1, help="measurements at a time; more than one spoils the seconds")
    parser.add_argument("--fast", action="store_true", help="a sample of the models")
    parser.add_argument("--again", action="store_true", help="measure also what the file already has")
    parser.add_argument(
        "--trace-only", action="store_true", help="only the seconds of capture, in place of those in the file"
    )
    parser.add_argument("--rounds", type=int, default=3, help="captures of which --trace-only takes the median")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one measurement")
    parser.add_argument("--json", type=pathlib.Path, help="the file of results (default: results/zoo-DATE.json)")
    parser.add_argument("--list", action="store_true", help="print the names of the models and end")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    path = options.json or RESULTS / f"zoo-{time.strftime('%Y%m%d')}.json"
    results: Record = json.loads(path.read_text()) if path.exists() else {"models": {}}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.zoo_measure"])
    catalogue = answered(context, catalogue_of)
    if options.list:
        print("\n".join(f"{suite} {name}{' (training too)' if trained else ''}" for suite, name, trained in catalogue))
        return
    jobs = [job for job in chosen(catalogue, options) if wanted(job, results, options)]
    rounds = options.rounds if options.trace_only else 0
    calls = [(job, (*job, rounds)) for job in jobs]
    for job, record in each(context, measured, calls, at_a_time=options.jobs, timeout=options.timeout):
        records = results["models"].setdefault(job.model, {"suite": job.suite}).setdefault(job.engine, {})
        if options.trace_only:
            merge_times(records.setdefault(job.kind, {}), record, options.rounds)
        else:
            records[job.kind] = record
        print(f"{job.model} {job.engine} {job.kind}: {summary(record)}", flush=True)
        save(path, results, catalogue)
    save(path, results, catalogue)
    print(path.with_suffix(".md").read_text())


def chosen(catalogue: list[Model], options: argparse.Namespace) -> Iterator[Job]:
    """What was asked for: engines take turns, so that what slows the machine down meets both."""
    models = [model for model in catalogue if options.suite in (None, model[0])]
    if options.only:
        only = options.only.split(",")
        unknown = set(only) - {name for _, name, _ in models}
        if unknown:
            raise SystemExit(f"not in the zoo: {', '.join(sorted(unknown))}")
        models = [model for model in models if model[1] in only]
    kinds = ["inference"] if options.trace_only else [kind for kind in KINDS if options.kind in (None, kind)]
    for kind in kinds:
        for suite, name, trained in models[:: FAST if options.fast else 1]:
            if trained or kind != "training":
                yield from (Job(suite, name, engine, kind) for engine in options.engines.split(","))


def wanted(job: Job, results: Record, options: argparse.Namespace) -> bool:
    record = results["models"].get(job.model, {}).get(job.engine, {}).get(job.kind)
    if options.again or record is None:
        return True
    return options.trace_only and record.get("rounds") != options.rounds


def merge_times(record: Record, times: Record, rounds: int) -> None:
    if "error" in times:
        record["trace_error"] = times["error"]
    else:
        record.update(times, rounds=rounds)


def measured(*args: Any) -> Record:
    from .zoo_measure import guarded

    return guarded(*args)


def catalogue_of() -> list[Model]:
    from .zoo_measure import SUITES

    return [(suite, name, entry.train) for suite, models in SUITES.items() for name, entry in models.items()]


def summary(record: Record) -> str:
    if "pass" not in record:
        return str(record)
    counts = ", ".join(f"{key} {record[key]}" for key in SUMMARY if key in record)
    wrong = record.get("error") or "; ".join(record.get("differences", ()))
    lines = [" ".join(["pass" if record["pass"] else "FAIL", counts, wrong[:500]]).rstrip()]
    for axis, part in record.get("axes", {}).items():
        lines.append(f"{axis}: graphs {part['counts']}, guards {part['guards']}, trace {part['trace_cpu']:.2f} s")
        lines += part.get("reasons", ())
    return "\n    ".join([*lines, *(line[:200] for line in record.get("breaks", ()))])


def save(path: pathlib.Path, results: Record, catalogue: list[Model]) -> None:
    results["environment"] = environment()
    models = results["models"]
    results["models"] = {name: models[name] for _, name, _ in catalogue if name in models}
    path.parent.mkdir(exist_ok=True)
    write(path, json.dumps(results, indent=1) + "\n")
    write(path.with_suffix(".md"), table(results))


if __name__ == "__main__":
    main()
