"""`python benchmarks/run.py …` and `python -m benchmarks.run …`: the driver (see `driver`)."""

import pathlib
import sys

if not __package__:  # run as a file: some modules beside it have names of standard ones
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from benchmarks.driver import main

if __name__ == "__main__":
    sys.exit(main())
