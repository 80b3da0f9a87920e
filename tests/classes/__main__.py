"""The sweep over the classes of torch: `python -m tests.classes [NAME …] [--only PART] [--backend …] [--jobs N]`.

Each class of `torch.nn`, `torch.distributions`, `torch.optim` and its schedulers is made with its documented arguments and used,
eagerly and compiled; see `check`. Classes run in subprocesses, as those of `tests.ops`. Exit code 1 if anything differs.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.ops import page
from tests.ops.runner import ROOT, run_batch

BATCH = 20
WORKER = "tests.classes.worker"


def all_names() -> list[str]:
    """The classes that have cases; asked for in a process of its own, which loads torch."""
    code = "from tests.classes import cases; print('\\n'.join(cases.by_class()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.classes", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="names such as nn.Linear; default: all")
    parser.add_argument("--only", help="part of the names to run")
    parser.add_argument("--backend", nargs="*", default=["eager", "aot_eager"])
    parser.add_argument("--form", help="one form only, such as 'made inside'")
    parser.add_argument("--jobs", type=int, default=1, help="subprocesses at a time")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one class")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument(
        "--add", nargs="*", default=[], metavar="FILE", help="results of earlier runs, for other classes"
    )
    parser.add_argument(
        "--record", metavar="ENGINE", help="write results/torch-X.Y.md, with this name of the engine's state"
    )
    options = parser.parse_args()
    names = options.names
    if options.only is not None or not (names or options.add):
        names = [name for name in all_names() if (options.only or "") in name]
    arguments = ["--backend", *options.backend, *(["--form", options.form] if options.form else [])]
    batches = [names[start : start + BATCH] for start in range(0, len(names), BATCH)]
    started, records = time.perf_counter(), {}
    for path in options.add:
        with open(path) as file:
            page.add(records, json.load(file))
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(lambda part: run_batch(part, arguments, options.timeout, WORKER), batches):
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
        version = environment["torch"].partition("+")[0].rpartition(".")[0]
        text = page.page(records, environment, options, len(all_names()), "Classes", "python -m tests.classes")
        (pathlib.Path(__file__).parent / "results" / f"torch-{version}.md").write_text(text)
    return 1 if any(page.is_wrong(record) for record in records.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
