"""The table of set-ups: `python -m tests.distributed [NAME …] [--backend aot_eager]` writes `results/setups.md`.

Each set-up runs in two processes, eagerly and compiled, here and under torch.compile. Exit code 1 if a result here differs.
"""

import argparse
import datetime
import os
import pathlib
import sys

import torch

from tests.distributed import collectives, ranks, setups

os.environ["DYNAMO_LITE_CACHE"] = "0"  # of the processes as well: what is read from the cache was counted another day

RESULT = pathlib.Path(__file__).parent / "results/setups.md"
HEAD = """# Set-ups in two processes

`python -m tests.distributed`, {day}, torch {torch}, backend {backend}: each set-up beside its own
eager run on both ranks. Graphs of rank 0.

| set-up | result | graphs | graphs under torch.compile |
| --- | --- | --- | --- |
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--backend", default="aot_eager")
    options = parser.parse_args()
    names = options.names or [*collectives.SETUPS, *setups.SETUPS]
    found = {engine: ranks.run(names, engine, options.backend) for engine in ("dynamo_lite", "torch")}
    lines, wrong = [], 0
    for name in names:
        ours, theirs = (summary(found[engine][name]) for engine in found)
        wrong += ours[0] != "equal"
        lines.append(
            f"| {name} | {ours[0]} | {ours[1]} | {theirs[1]}{'' if theirs[0] == 'equal' else ': ' + theirs[0]} |"
        )
        print(lines[-1], flush=True)
    if not options.names:
        day = datetime.date.today().isoformat()
        head = HEAD.format(day=day, torch=torch.__version__, backend=options.backend)
        RESULT.write_text(head + "\n".join(lines) + f"\n\n{wrong} of {len(lines)} differ.\n")
    return 1 if wrong else 0


def summary(outcomes):
    """What came of one set-up, and the graphs of rank 0 with the operators in them."""
    errors = [outcome.error.split("\n")[0].replace("|", "/") for outcome in outcomes if outcome.error]
    return (errors[0][:120] if errors else "equal"), f"{outcomes[0].graphs} ({outcomes[0].operators})"


if __name__ == "__main__":
    sys.exit(main())
