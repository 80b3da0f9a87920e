"""The command of a sweep: `tests.ops`, `tests.classes`, `tests.docstrings`.

Input: what is swept, and the command line. Output: lines on the way, a JSON file, the committed page; the exit code says whether anything
differs. Batches run in subprocesses, see `runner`.
"""

import argparse
import json
import pathlib
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import NamedTuple

from tests.ops.page import environment
from tests.ops.runner import all_names, run_batch


class Sweep(NamedTuple):
    """`names`: the module whose `names()` are what can be swept. `page`: a module with `add`, `lines_of`, `summary` and `is_wrong`."""

    package: str
    names: str
    page: ModuleType
    batch: int
    one: str  # what has a name
    several: str

    def parser(self, doc):
        """The options of every sweep."""
        parser = argparse.ArgumentParser(prog=f"python -m {self.package}", description=doc.splitlines()[0])
        parser.add_argument("names", nargs="*", help=f"names of {self.several}; default: all")
        parser.add_argument("--only", help="part of the names to run")
        parser.add_argument("--backend", nargs="*", default=["eager", "aot_eager"])
        parser.add_argument("--jobs", type=int, default=1, help="subprocesses at a time")
        parser.add_argument("--timeout", type=float, default=300, help=f"seconds for one {self.one}")
        parser.add_argument("--json", help="write the results here")
        parser.add_argument(
            "--add", nargs="*", default=[], metavar="FILE", help="results of earlier runs, for what is not run now"
        )
        parser.add_argument(
            "--record", metavar="ENGINE", help="write results/torch-X.Y.md, with this name of the engine's state"
        )
        return parser

    def there_are(self):
        """How many names there are."""
        return len(all_names(self.names))

    def chosen(self, options):
        """The names that the options ask for."""
        if options.only is None and (options.names or options.add):
            return options.names
        return [name for name in all_names(self.names) if (options.only or "") in name]

    def run(self, options, names, arguments):
        """The records of earlier runs and of this one. `arguments`: of the worker, beside the backends."""
        batches = [names[start : start + self.batch] for start in range(0, len(names), self.batch)]
        arguments = ["--backend", *options.backend, *arguments]
        started, records = time.perf_counter(), {}
        for path in options.add:
            with open(path) as file:
                self.page.add(records, json.load(file))
        with ThreadPoolExecutor(options.jobs) as pool:
            for found in pool.map(
                lambda part: run_batch(part, arguments, options.timeout, f"{self.package}.worker"), batches
            ):
                self.page.add(records, found)
                for record in found.values():
                    for line in self.page.lines_of(record):
                        print(line, flush=True)
        print(self.page.summary(records), f"{time.perf_counter() - started:.0f} s")
        return records

    def finish(self, options, records, text, kind=""):
        """Write what the options ask for; the exit code. `text(where)` is the page."""
        if options.json:
            with open(options.json, "w") as out:
                json.dump(records, out, indent=1)
        if options.record:
            where = environment()
            version = where["torch"].partition("+")[0].rpartition(".")[0]
            folder = pathlib.Path(__file__).parents[2].joinpath(*self.package.split("."), "results")
            (folder / f"torch-{version}{kind}.md").write_text(text(where))
        return 1 if any(map(self.page.is_wrong, records.values())) else 0
