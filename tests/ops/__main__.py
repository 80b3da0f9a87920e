"""The sweep over torch's database of operators and modules: `python -m tests.ops [NAME …] [--count N] [--dtype …] [--backend …]`.

Each operator is called in all its forms (function, method, in place, operator, `out=`, with wrong arguments), forward and backward, eagerly
and compiled; see `check`. Batches run in subprocesses, so that a crash or a hang costs one operator and is reported with it. Exit code 1
if anything differs.
"""

import argparse
import json
import pathlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.ops import page
from tests.ops.runner import all_names, run_batch

BATCH = 30


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.ops", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="names of operators and modules; default: all")
    parser.add_argument("--only", help="part of the names to run")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth of the names only")
    parser.add_argument("--offset", type=int, default=0, help="the first of each N names")
    parser.add_argument("--count", type=int, default=3, help="samples of each operator")
    parser.add_argument("--dtype", nargs="*", help="names of dtypes; default: float32 and one more")
    parser.add_argument("--backend", nargs="*", default=["eager", "aot_eager"])
    parser.add_argument("--dynamic", action="store_true", help="compile with symbolic sizes")
    parser.add_argument(
        "--data-dependent", action="store_true", help="numbers and sizes that depend on data enter the graph"
    )
    parser.add_argument("--jobs", type=int, default=1, help="subprocesses at a time")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one operator")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument(
        "--add", nargs="*", default=[], metavar="FILE", help="results of earlier runs, for what is not run now"
    )
    parser.add_argument(
        "--record", metavar="ENGINE", help="write results/torch-X.Y.md, with this name of the engine's state"
    )
    options = parser.parse_args()
    names = options.names
    if options.only is not None or not (names or options.add):
        names = [name for name in all_names() if (options.only or "") in name][options.offset :: options.every]
    batches = [names[i : i + BATCH] for i in range(0, len(names), BATCH)]
    arguments = ["--count", str(options.count), "--backend", *options.backend]
    arguments += ["--dtype", *options.dtype] if options.dtype else []
    arguments += ["--dynamic"] if options.dynamic else []
    arguments += ["--data-dependent"] if options.data_dependent else []
    started, records = time.perf_counter(), {}
    for path in options.add:
        with open(path) as file:
            page.add(records, json.load(file))
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(lambda part: run_batch(part, arguments, options.timeout), batches):
            page.add(records, found)
            for record in found.values():
                for line in page.lines_of(record):
                    print(line, flush=True)
    print(page.summary(records), f"{time.perf_counter() - started:.0f} s")
    if options.json:
        with open(options.json, "w") as out:
            json.dump(records, out, indent=1)
    if options.record:
        environment = page.environment()
        text = page.page(records, environment, options, len(all_names()))
        version = environment["torch"].partition("+")[0].rpartition(".")[0]
        kind = "-data-dependent" if options.data_dependent else ""
        (pathlib.Path(__file__).parent / "results" / f"torch-{version}{kind}.md").write_text(text)
    return 1 if any(page.is_wrong(record) for record in records.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
