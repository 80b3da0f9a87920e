"""Steps that print and log between their operators: `config.stitch` off and on, beside torch.compile; microseconds per step.

The three take turns in one process, and must write the text of eager execution under `eager` (Inductor rounds differently; torch.compile
2.13 loses the format of a number across a break, or raises). The ratio is that of stitched steps to torch.compile's, the result the median
over the rounds. Run it with `python -m benchmarks.stitch`.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

import dynamo_lite
from dynamo_lite.record import log

from .common import finish, parse_options, row, take_turns
from .stitch_programs import PROGRAMS, Step, batches


def run(step: Step, given: list[torch.Tensor]) -> str:
    """All steps of one round; what they have written."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        for i, x in enumerate(given):
            step(i, x)
    return written.getvalue()


def per_step(step: Step, given: list[torch.Tensor]) -> float:
    start = time.perf_counter()
    run(step, given)
    return (time.perf_counter() - start) / len(given)


def sides(make: Callable[[], Step], backend: str) -> tuple[dict[str, Step], dict[str, int], str]:
    """A program under each engine, warm, without torch.compile where that fails; the lines where steps break; how the text of torch.compile
    compares with that of eager execution. Raises AssertionError where that of dynamo_lite differs."""
    given, made, breaks = batches(), {}, {}
    torch.manual_seed(0)
    eager = make()
    expected = [run(eager, given) for _ in range(3)]
    for name, stitch in (("broken", False), ("stitched", "auto")):
        torch.manual_seed(0)
        with dynamo_lite.config.patch(stitch=stitch):
            log.reset()
            made[name] = step = dynamo_lite.compile(make(), backend=backend, name=name)
            written = [run(step, given) for _ in range(3)]
            assert written == expected or backend != "eager", (make.__name__, name)
            breaks[name] = len({record.user_stack for record in log.breaks()})
    torch.manual_seed(0)
    step = torch.compile(make(), backend=backend)
    try:
        is_same = [run(step, given) for _ in range(3)] == expected
    except Exception as error:
        return made, breaks, f"raises {type(error).__name__}"
    return {**made, "torch.compile": step}, breaks, "same" if is_same else "differs"


def overhead(n: int = 10) -> float:
    """Seconds that a late statement costs beside the statement itself: of n calls of `print` behind one graph, beside the graph alone and
    the calls alone; the median of rounds in turns."""

    def whole(x: torch.Tensor) -> torch.Tensor:
        for i in range(n):
            print("statement", i)
        return x + 1

    def texts(x: torch.Tensor) -> torch.Tensor:
        for i in range(n):
            print("statement", i)
        return x

    x = torch.ones(3)
    compiled = {"whole": dynamo_lite.compile(whole, backend="eager"), "texts": texts}
    compiled["graph"] = dynamo_lite.compile(lambda x: x + 1, backend="eager")

    def block(fn: Callable[[torch.Tensor], torch.Tensor]) -> float:
        with contextlib.redirect_stdout(io.StringIO()):
            start = time.perf_counter()
            for _ in range(200):
                fn(x)
            return (time.perf_counter() - start) / 200

    times = take_turns({name: partial(block, fn) for name, fn in compiled.items()}, 30)
    whole_, texts_, graph = [statistics.median(times[name]) for name in ("whole", "texts", "graph")]
    return (whole_ - texts_ - graph) / n


def main() -> None:
    options = parse_options(__doc__.splitlines()[0])
    torch.set_num_threads(options.threads)
    rows = []
    for backend in ("eager", "inductor"):
        for make in PROGRAMS:
            torch.compiler.reset()
            dynamo_lite.reset()
            compiled, breaks, text = sides(make, backend)
            given = batches()
            timed = {name: partial(per_step, step, given) for name, step in compiled.items()}
            times = take_turns(timed, 5 if options.quick else 40)
            broken = statistics.median(times["broken"])
            more = {
                "broken µs": round(broken * 1e6, 1),
                "gain": round(broken / statistics.median(times["stitched"]), 2),
                "breaks": f"{breaks['broken']} → {breaks['stitched']}",
                "torch.compile's text": text,
            }
            rows.append(row(f"{backend}, {make.__name__}", times["stitched"], times.get("torch.compile", []), **more))
    print(f"a late statement costs {overhead() * 1e6:.2f} µs beside the statement")
    finish("stitch", "µs", 1e6, rows, options)


if __name__ == "__main__":
    main()
