"""Tuning apart from the program: graphs are collected while it runs, and raced later.

Input: a program that is run with the backend of `collector`; later the store. Output: choices in the store, which
`backend="autotune"` takes without a race. Large inputs are not kept but made again, with values of the same distribution.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from . import portable
from .apart import race_apart
from .autotune import choice_of, default_candidates, place_of, seconds_of, store_at
from .inputs import CannotCopy, Inputs
from .key import graph_key
from .results import Choice
from .verify import wants_gradients

if TYPE_CHECKING:
    from torch.fx import GraphModule


class Collector:
    """A backend that runs graphs eagerly and keeps them in the store; `kept`, `known` and `refused` (reasons) tell what came by."""

    def __init__(self, store: os.PathLike[str] | None = None) -> None:
        self.store = store_at(store)
        self.kept = self.known = 0
        self.refused: list[str] = []

    def __call__(self, gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        training = wants_gradients(example_inputs)
        key = graph_key(gm, example_inputs, training)
        if self.store.get(key) is not None or self.store.has_graph(key):
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


def tune(
    store: os.PathLike[str] | None = None, *, budget: str | float | None = None, candidates: list[str] | None = None
) -> Iterator[Tuned]:
    """Race all graphs that were collected and have no choice yet, each in a process of its own."""
    kept = store_at(store)
    for key, (place, operators) in kept.collected().items():
        data = kept.job(key)
        if data is None or kept.get(key) is not None:
            continue
        try:
            outcome = _race(data, seconds_of(budget), candidates)
        except portable.CannotCarry as reason:
            yield Tuned(place, operators, None, str(reason))
            continue
        choice = choice_of(outcome)
        kept.put(key, choice)
        yield Tuned(place, operators, choice)


def _race(data: bytes, seconds: float, candidates: list[str] | None) -> Any:
    job = portable.load(io.BytesIO(data))
    names = candidates or default_candidates(job.examples, job.training)
    with tempfile.NamedTemporaryFile(prefix="dynamo_lite-race-", delete=False) as file:
        file.write(data)
    try:
        return race_apart(file.name, names, seconds)
    finally:
        os.unlink(file.name)
