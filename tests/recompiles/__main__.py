"""`python -m tests.recompiles [--write] [NAME …]`: the counts of each program with dynamo_lite and with torch.compile.

`--write` puts those of torch.compile into `torch_counts.json`.
"""

from __future__ import annotations

import argparse
import json
import logging

import torch

import dynamo_lite

from .counts import STORED, Counts, is_more, run
from .exceptions import EXCEPTIONS
from .programs import PROGRAMS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.recompiles", description=__doc__)
    parser.add_argument("--write", action="store_true", help="store what torch.compile comes to")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    found = {}
    for name in arguments.names or PROGRAMS:
        torch._dynamo.reset()
        dynamo_lite.reset()
        found[name] = theirs = run(name, torch.compile)
        ours = run(name, dynamo_lite.compile)
        note = EXCEPTIONS[name].reason if name in EXCEPTIONS else "MORE" if is_more(ours, theirs) else ""
        print(f"{name:40} {_text(ours)} torch.compile {_text(theirs)}  {note}", flush=True)
    if arguments.write:
        known = json.loads(STORED.read_text())["counts"] if arguments.names else {}
        data = {"torch": torch.__version__, "counts": {**known, **found}}
        lines = ",\n".join(f'  "{name}": {json.dumps(data["counts"][name])}' for name in sorted(data["counts"]))
        STORED.write_text(f'{{"torch": {json.dumps(data["torch"])}, "counts": {{\n{lines}\n}}}}\n')


def _text(counts: Counts) -> str:
    return f"{counts.graphs:3} graphs {counts.operators:4} operators"


main()
