"""The sub-command `python -m dynamo_lite tune`.

Input: a script to collect graphs of, or the tuner's store. Output: lines on standard output; the status of the command.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from dynamo_lite.backends.registry import lookup_backend
from dynamo_lite.exc import many
from dynamo_lite.tune.autotune import store_at
from dynamo_lite.tune.offline import Collector, tune
from dynamo_lite.tune.results import Choice

from .script import redirected, run_script


def collect(target: str, arguments: Sequence[str], *, as_module: bool = False) -> int:
    """Run a script eagerly and keep the graphs that it would compile."""
    collector = Collector()
    try:
        with redirected(collector):
            run_script(target, arguments, as_module=as_module)
    finally:
        print(f"{many(collector.kept, 'graph')} collected, {collector.known} known already", flush=True)
        for line in collector.refused:
            print(f"not collected: {line}", file=sys.stderr)
    return 0


def race(budget: str | None, candidates: Sequence[str] | None) -> int:
    """Race the collected graphs; 1 if a graph could not be raced. Raises InvalidBackend."""
    for name in candidates or ():
        lookup_backend(name)
    raced = problems = 0
    for place, operators, choice, problem in tune(budget=budget, candidates=list(candidates or ()) or None):
        print(
            f"{place}, {many(operators, 'operator')}: {_winner(choice) if choice else f'no race: {problem}'}",
            flush=True,
        )
        raced += 1
        problems += choice is None
    if not raced:
        collected = len(store_at(None).collected())
        told = (
            f"{many(collected, 'graph')} collected, each with its choice"
            if collected
            else "tune --collect collects graphs"
        )
        print(f"nothing to race: {told}")
    return int(problems > 0)


def _winner(choice: Choice) -> str:
    return f"{choice.backend}, {choice.speedup:.2f}x eager execution"


def stats() -> int:
    """All choices with all candidates, and how often each backend was chosen."""
    store = store_at(None)
    print("\n".join(_stats(store.all(), store.collected())))
    return 0


def _stats(choices: dict[str, Choice], collected: dict[str, tuple[str, int]]) -> Iterator[str]:
    for key, choice in choices.items():
        place, operators = collected.get(key, (key[:12], None))
        yield f"{place}" + (f", {many(operators, 'operator')}" if operators is not None else "")
        for name, _, text in choice.measured:
            yield f"  {name:26} {text}"
    waiting = sum(key not in choices for key in collected)
    yield f"{many(len(choices), 'graph')} tuned, {waiting} collected and waiting"
    for name, count in Counter(choice.backend for choice in choices.values()).most_common():
        yield f"  {name:26} {count:5}"
    speedups = [choice.speedup for choice in choices.values() if choice.speedup > 0]
    if speedups:
        yield f"geometric mean of the speedups over eager execution: {math.exp(sum(map(math.log, speedups)) / len(speedups)):.2f}x"


def forget() -> int:
    """Drop all choices and collected graphs."""
    store = store_at(None)
    count = len(store.all())
    store.forget()
    print(f"{many(count, 'choice')} dropped from {store.path or 'this process'}")
    return 0
