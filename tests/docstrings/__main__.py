"""The sweep over the examples in torch's docstrings: `python -m tests.docstrings [NAME …] [--only PART] [--backend …]`.

The examples of each docstring run eagerly and captured, as one function and each statement as its own; see `check`. Batches run in
subprocesses, so that a crash or a hang costs one docstring and is reported with it. Exit code 1 if anything differs.
"""

import argparse
import json
import pathlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.docstrings import page
from tests.ops.page import environment
from tests.ops.runner import all_names, run_batch

BATCH = 60


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.docstrings", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="names of documented objects; default: all")
    parser.add_argument("--only", help="part of the names to run")
    parser.add_argument("--backend", nargs="*", default=["eager", "aot_eager"])
    parser.add_argument("--jobs", type=int, default=1, help="subprocesses at a time")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one docstring")
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
        names = [name for name in all_names("tests.docstrings.examples") if (options.only or "") in name]
    batches = [names[i : i + BATCH] for i in range(0, len(names), BATCH)]
    arguments = ["--backend", *options.backend]
    started, records = time.perf_counter(), {}
    for path in options.add:
        with open(path) as file:
            records.update(json.load(file))
    with ThreadPoolExecutor(options.jobs) as pool:
        sweep = [
            pool.submit(run_batch, part, arguments, options.timeout, "tests.docstrings.worker") for part in batches
        ]
        for found in sweep:
            records.update(found.result())
            for record in found.result().values():
                for line in page.lines_of(record):
                    print(line, flush=True)
    print(page.summary(records), f"{time.perf_counter() - started:.0f} s")
    if options.json:
        with open(options.json, "w") as out:
            json.dump(records, out, indent=1)
    if options.record:
        where = environment()
        version = where["torch"].partition("+")[0].rpartition(".")[0]
        path = pathlib.Path(__file__).parent / "results" / f"torch-{version}.md"
        path.write_text(page.page(records, where, options.record, len(all_names("tests.docstrings.examples"))))
    return 1 if any(map(page.is_wrong, records.values())) else 0


if __name__ == "__main__":
    sys.exit(main())
