"""Part of a sweep in this process: `python -m tests.docstrings.worker --names FILE --out FILE …`.

Writes one JSON line before each docstring and one after it, so that the process that started this one knows which docstring crashed or
hung it.
"""

import argparse
import faulthandler
import gc
import json
import logging
import os
import tempfile
import time

import torch

import dynamo_lite
from tests.docstrings import check, examples


def run(name, options):
    """All forms of one docstring with all backends; one dictionary per run."""
    example = check.Example(examples.program(name))
    example.learn()
    records = []
    for backend in options.backend:
        for form in options.form:
            records.append(check.check(example, form, backend))
            dynamo_lite.reset()
    return {"runs": records, "skipped": example.skipped, "statements": len(example.statements)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--backend", nargs="*", default=["eager", "aot_eager"])
    parser.add_argument("--form", nargs="*", default=["body", "statement"])
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--timeout", type=float, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.verbose:
        logging.disable(logging.CRITICAL)
    with open(options.names) as file:
        names = file.read().split("\n")
    with open(options.out, "a") as out, tempfile.TemporaryDirectory() as folder:

        def say(**record):
            out.write(json.dumps(record) + "\n")
            out.flush()

        os.chdir(folder)
        for name in names:
            say(event="start", name=name)
            faulthandler.dump_traceback_later(options.timeout, exit=True)
            started = time.perf_counter()
            try:
                record, error = run(name, options), None
            except Exception as failure:
                if options.verbose:
                    raise
                record, error = {"runs": []}, f"{type(failure).__name__}: {failure}"[:500]
            faulthandler.cancel_dump_traceback_later()
            say(event="end", name=name, error=error, seconds=round(time.perf_counter() - started, 2), **record)
            gc.collect()


if __name__ == "__main__":
    main()
