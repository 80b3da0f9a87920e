"""Tuning apart from the program: graphs are collected while it runs, and raced later.

Input: a program that is run with a `Collector` as its backend; later the store. Output: choices in the store, which
`backend="autotune"` takes without a race. Large inputs are not kept but made again, with values of the same distribution.
"""

from __future__ import annotations

import functools
import io
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamo_lite.progress import place_of

from . import portable
from .apart import RaceApart
from .autotune import default_candidates, seconds_of, store_at
from .key import graph_key
from .results import Choice
from .verify import CannotCopy, Inputs, wants_gradients

if TYPE_CHECKING:
    from torch.fx import GraphModule


class Collector:
    """A backend that runs graphs eagerly and keeps them in the store. It counts the graphs that it has `kept` or that were `known`, and
    lists the reasons of those that it has `refused`."""

    def __init__(self) -> None:
        self.store = store_at(None)
        self.kept = self.known = 0
        self.refused: list[str] = []

    def __call__(self, gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        training = wants_gradients(example_inputs)
        key = graph_key(gm, example_inputs, training)
        if self.store.get(key) is not None or self.store.job(key) is not None:
            self.known += 1
            return gm.forward
        file = io.BytesIO()
        try:
            Inputs(example_inputs)
            job = portable.PortableGraph(gm, example_inputs, training, portable.settings())
            portable.dump(job, file, values=False)
            operators = sum(node.op.startswith("call_") for node in gm.graph.nodes)
            self.store.collect(key, place_of(gm), operators, file.getvalue())
            self.kept += 1
        except (portable.CannotCarry, CannotCopy, OSError) as reason:
            self.refused.append(f"{place_of(gm)}: {reason}")
        return gm.forward


class Tuned(NamedTuple):
    """A collected graph after its race; `choice` is None if there could be none, for `problem`."""

    place: str
    operators: int
    choice: Choice | None
    problem: str = ""


def tune(budget: str | float | None = None, candidates: list[str] | None = None) -> Iterator[Tuned]:
    """Race all graphs that were collected and have no choice yet, or one that leaves some of the candidates open, each in a process of its
    own."""
    store = store_at(None)
    for key, (place, operators) in store.collected().items():
        data = store.job(key)
        known = store.get(key)
        if data is None:
            continue
        try:
            job = portable.load(io.BytesIO(data))
            names = candidates or default_candidates(job.examples, job.training)
            if known is not None and known.settles(names, seconds_of(budget)):
                continue
            race = RaceApart(functools.partial(shutil.copyfileobj, io.BytesIO(data)))
            choice = race.run(names, seconds_of(budget))
            race.close()
        except portable.CannotCarry as reason:
            yield Tuned(place, operators, None, str(reason))
            continue
        store.put(key, choice)
        yield Tuned(place, operators, choice)
