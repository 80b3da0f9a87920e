"""Part of a sweep in this process: `python -m tests.docstrings.worker --names FILE --out FILE …`; see `tests.ops.loop`."""

import logging
import os
import tempfile

import torch

import dynamo_lite
from tests.docstrings import check, examples
from tests.ops import loop


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
    parser = loop.parser()
    parser.add_argument("--form", nargs="*", default=["body", "statement"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.verbose:
        logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        loop.work(options, lambda name: run(name, options), {"runs": []})


if __name__ == "__main__":
    main()
