"""The table of set-ups: `python -m tests.distributed [NAME …] [--backend aot_eager] [--steps 20]` writes `results/setups.md`.

Each set-up runs in two processes or four, eagerly and compiled, here and under torch.compile. Exit code 1 if a result here differs.
"""

import argparse
import datetime
import os
import pathlib
import sys

import torch

from tests.distributed import collectives, ranks, setups, trainings

os.environ["DYNAMO_LITE_CACHE"] = "0"  # of the processes as well: what is read from the cache was counted another day

RESULT = pathlib.Path(__file__).parent / "results/setups.md"
HEAD = """# Set-ups in two processes

`python -m tests.distributed`, {day}, torch {torch}, backend {backend}, trainings of {steps} steps: each
set-up beside its own eager run on all ranks. Graphs that the backend gets on rank 0, and the operators in them; DDP cuts some.

| set-up | result | graphs | graphs under torch.compile |
| --- | --- | --- | --- |
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--steps", type=int, default=20, help="of the trainings (default 20)")
    options = parser.parse_args()
    in_two = [*collectives.SETUPS, *setups.SETUPS, *trainings.SETUPS]
    names = options.names or [*in_two, *trainings.IN_FOUR]
    found = {engine: outcomes(names, engine, options) for engine in ("dynamo_lite", "torch")}
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
        head = HEAD.format(day=day, torch=torch.__version__, backend=options.backend, steps=options.steps)
        RESULT.write_text(head + "\n".join(lines) + f"\n\n{wrong} of {len(lines)} differ.\n")
    return 1 if wrong else 0


def outcomes(names, engine, options):
    """Those of all set-ups under one engine. Each training has processes of its own: torch.compile ends some of them."""
    found = {}
    alone = [[name] for name in names if name in trainings.SETUPS or name in trainings.IN_FOUR]
    together = [name for name in names if [name] not in alone]
    for group in ([together] if together else []) + alone:
        size = 4 if group[0] in trainings.IN_FOUR else ranks.WORLD
        try:
            found |= ranks.run(group, engine, options.backend, size=size, steps=options.steps, limit=60)
        except RuntimeError as error:
            last = str(error).strip().split("\n")[-1]
            found |= {name: [ranks.Outcome(last, 0, 0, [])] * size for name in group}
    return found


def summary(outcomes):
    """What came of one set-up, and the graphs of rank 0 with the operators in them."""
    errors = [outcome.error.split("\n")[0].replace("|", "/") for outcome in outcomes if outcome.error]
    return (errors[0][:120] if errors else "equal"), f"{outcomes[0].graphs} ({outcomes[0].operators})"


if __name__ == "__main__":
    sys.exit(main())
