"""The sweep over the examples in torch's docstrings: `python -m tests.docstrings [NAME …] [--only PART] [--backend …]`.

The examples of each docstring run eagerly and captured, as one function and each statement as its own; see `check`. Batches run in
subprocesses, so that a crash or a hang costs one docstring and is reported with it. Exit code 1 if anything differs.
"""

import sys

from tests.docstrings import page
from tests.ops.sweep import Sweep

SWEEP = Sweep("tests.docstrings", "tests.docstrings.examples", page, 60, "docstring", "documented objects")


def main():
    options = SWEEP.parser(__doc__).parse_args()
    records = SWEEP.run(options, SWEEP.chosen(options), [])
    return SWEEP.finish(options, records, lambda where: page.page(records, where, options.record, SWEEP.there_are()))


if __name__ == "__main__":
    sys.exit(main())
