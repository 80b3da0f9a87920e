"""The sweep over the classes of torch: `python -m tests.classes [NAME …] [--only PART] [--backend …] [--jobs N]`.

Each class of `torch.nn`, `torch.distributions`, `torch.optim` and its schedulers is made with its documented arguments and used,
eagerly and compiled; see `check`. Classes run in subprocesses, as those of `tests.ops`. Exit code 1 if anything differs.
"""

import sys

from tests.ops import page
from tests.ops.sweep import Sweep

SWEEP = Sweep("tests.classes", "tests.classes.cases", page, 20, "class", "classes such as nn.Linear")


def main() -> int:
    parser = SWEEP.parser(__doc__)
    parser.add_argument("--form", help="one form only, such as 'made inside'")
    options = parser.parse_args()
    records = SWEEP.run(options, SWEEP.chosen(options), ["--form", options.form] if options.form else [])
    return SWEEP.finish(
        options,
        records,
        lambda where: page.page(records, where, options, SWEEP.there_are(), "Classes", "python -m tests.classes"),
    )


if __name__ == "__main__":
    sys.exit(main())
