"""The sweep over torch's database of operators and modules: `python -m tests.ops [NAME …] [--count N] [--dtype …] [--backend …]`.

Each operator is called in all its forms (function, method, in place, operator, `out=`, with wrong arguments), forward and backward, eagerly
and compiled; see `check`. Batches run in subprocesses, so that a crash or a hang costs one operator and is reported with it. Exit code 1
if anything differs.
"""

import sys

from tests.ops import page
from tests.ops.sweep import Sweep

SWEEP = Sweep("tests.ops", "tests.ops.database", page, 30, "operator", "operators and modules")


def main():
    parser = SWEEP.parser(__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth of the names only")
    parser.add_argument("--offset", type=int, default=0, help="the first of each N names")
    parser.add_argument("--count", type=int, default=3, help="samples of each operator")
    parser.add_argument("--dtype", nargs="*", help="names of dtypes; default: float32 and one more")
    parser.add_argument("--device", default="cpu", help="where the tensors are (default cpu)")
    parser.add_argument("--dynamic", action="store_true", help="compile with symbolic sizes")
    parser.add_argument(
        "--data-dependent", action="store_true", help="numbers and sizes that depend on data enter the graph"
    )
    options = parser.parse_args()
    names = SWEEP.chosen(options)
    if options.only is not None or not (options.names or options.add):
        names = names[options.offset :: options.every]
    arguments = [
        "--count",
        str(options.count),
        "--device",
        options.device,
        *(["--dtype", *options.dtype] if options.dtype else []),
    ]
    arguments += ["--dynamic"] if options.dynamic else []
    arguments += ["--data-dependent"] if options.data_dependent else []
    records = SWEEP.run(options, names, arguments)
    kind = "-data-dependent" if options.data_dependent else ""
    return SWEEP.finish(options, records, lambda where: page.page(records, where, options, SWEEP.there_are()), kind)


if __name__ == "__main__":
    sys.exit(main())
