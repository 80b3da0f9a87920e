"""`python -m tests.shapes.data_torch_counts`: measure how many graphs torch.compile makes of each program of the table, and store it."""

from __future__ import annotations

import logging

import torch
from torch._dynamo.testing import CompileCounter

from .data_models import STORED, TABLE, outcome


def main() -> None:
    logging.disable(logging.WARNING)
    found = {}
    for name, row in TABLE.items():
        torch._dynamo.reset()
        fn, calls = row.make()
        counter = CompileCounter()
        compiled = torch.compile(fn, backend=counter)
        for args in calls:
            outcome(compiled, args)
        found[name] = counter.frame_count
        print(f"{name:40} {row.graphs:3} torch.compile {counter.frame_count:3}", flush=True)
    lines = ",\n".join(f'  "{name}": {n}' for name, n in found.items())
    STORED.write_text(f'{{"torch": "{torch.__version__}", "graphs": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
