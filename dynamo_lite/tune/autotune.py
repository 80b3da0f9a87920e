"""The backend `autotune`: each graph goes to the backend that runs it fastest, and right.

Input: a graph as `backends.registry` describes it. Output: the callable of the chosen backend. The choice is that of an earlier race over
an equal graph (`results`), else a race is run now (`race`). The graph's record says what was chosen and why.
"""

from __future__ import annotations

import os
import pathlib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.backends.aot import FLOATS
from dynamo_lite.backends.options import refuse_unknown
from dynamo_lite.backends.registry import candidates, lookup_backend, requirements_of
from dynamo_lite.config import config
from dynamo_lite.exc import first_line
from dynamo_lite.record import GRAPH_RECORD
from dynamo_lite.warm_cache.store import directory

from . import progress
from .apart import Trials
from .background import Background
from .inputs import CannotCopy
from .key import graph_key
from .portable import CannotCarry
from .race import Outcome, binds, race
from .results import Choice, Store
from .shadow import watched
from .verify import wants_gradients

if TYPE_CHECKING:
    from torch.fx import GraphModule

OPTIONS = ("background", "budget", "candidates", "shadow", "store")
DEFAULT_BUDGET = 20.0
UNRACED = "inductor"
"""What takes a graph whose inputs can't be copied, so that there is no race."""


def autotune(
    gm: GraphModule, example_inputs: list[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile the graph with the backend that wins.

    `options`:

    - "budget": seconds for one graph's race, compilation counted ("20s" or a number).
    - "candidates": names of backends in place of all that can run here.
    - "store": the file of choices, False for none.
    - "background": the graph runs eagerly at once, and with the winner from the first call after its race.
    - "shadow": one of so many calls is compared with eager execution ("1/1000" or 1000); 0 for none.

    Raises RuntimeError for others, and `InvalidBackend`.
    """
    validate(mode, options)
    return Tuning(gm, example_inputs, dict(options or {})).compiled()


class Tuning:
    """One graph on its way to a backend."""

    def __init__(self, gm: GraphModule, examples: list[Any], options: Mapping[str, Any]) -> None:
        self.gm, self.examples = gm, examples
        self.training = wants_gradients(examples)
        self.names = list(options.get("candidates") or default_candidates(examples, self.training))
        self.seconds = seconds_of(options.get("budget"))
        self.every = every_of(options.get("shadow"))
        self.behind = bool(options.get("background"))
        self.store = store_at(options.get("store"))
        self.key = graph_key(gm, examples, self.training)

    def compiled(self) -> Callable[..., Any]:
        """The callable that the program calls."""
        known = self.store.get(self.key)
        if known is not None and known.backend in ("eager", *self.names):
            try:
                return self._with(known, lookup_backend(known.backend)(self.gm, self.examples))
            except Exception as error:
                warnings.warn(
                    f"backend {known.backend!r}, chosen earlier, fails now and is left: {first_line(error)}",
                    stacklevel=2,
                )
                self.store.forget(self.key)
        try:
            return self._in_background() if self.behind else self._race()
        except CannotCopy as reason:
            name = UNRACED if UNRACED in self.names else "eager"
            self._note(Choice(name, 1.0, [(name, None, f"no race: {reason}")]))
            return lookup_backend(name)(self.gm, self.examples)

    def _race(self) -> Callable[..., Any]:
        trials = Trials(self.gm, self.examples, self.training, self.seconds)
        compilers = {}
        for name in self.names:
            if name != "eager":
                needs = requirements_of(name)
                compiler = lookup_backend(name)
                compilers[name] = trials.before(name, compiler) if needs and needs.isolate else compiler
        with progress.shown(f"dynamo_lite: racing {len(compilers)} backends for {self._graph()}") as tell:
            result = race(self.gm, self.examples, compilers, seconds=self.seconds, training=self.training, tell=tell)
        choice = choice_of(result.outcome())
        self.store.put(self.key, choice)
        compiled = result.winner.compiled
        if choice.backend != "eager" and binds(lookup_backend(choice.backend)):
            compiled = lookup_backend(choice.backend)(self.gm, self.examples)
        return self._with(choice, compiled)

    def _in_background(self) -> Callable[..., Any]:
        """Eager execution, with the winner from some later call on."""
        self._note(Choice("eager", 1.0, [("eager", None, "the race is in the background")]))

        def finished(result: Outcome | str) -> None:
            if isinstance(result, str):
                self._note(Choice("eager", 1.0, [("eager", None, result)]))
                return
            choice = choice_of(result)
            self.store.put(self.key, choice)
            self._note(choice)
            progress.say(
                f"dynamo_lite: {choice.backend} is chosen for {self._graph()}: {choice.speedup:.2f}x eager execution"
            )

        try:
            return Background(
                self.gm, self.examples, self.names, self.seconds, self.training, finished, self._shadowed
            ).call
        except CannotCarry as reason:
            finished(f"no race in the background: {reason}")
            return self.gm.forward

    def _with(self, choice: Choice, compiled: Any) -> Callable[..., Any]:
        self._note(choice)
        return self._shadowed(choice.backend, compiled)

    def _shadowed(self, name: str, compiled: Callable[..., Any]) -> Callable[..., Any]:
        if not self.every or name == "eager":
            return compiled

        def demote(reason: str) -> None:
            known = self.store.get(self.key)
            measured = [row for row in known.measured if row[0] != name] if known is not None else []
            choice = Choice("eager", 1.0, [*measured, (name, None, f"quarantined: {reason}")])
            self.store.put(self.key, choice)
            self._note(choice)
            warnings.warn(
                f"backend {name!r} is left for {self._graph()}, which runs eagerly from now on: {reason}", stacklevel=2
            )

        return watched(self.gm, compiled, self.every, demote)

    def _graph(self) -> str:
        """How messages name the graph."""
        record = self.gm.meta.get(GRAPH_RECORD)
        return f"graph {record.id if record is not None else '?'} ({place_of(self.gm)})"

    def _note(self, choice: Choice) -> None:
        record = self.gm.meta.get(GRAPH_RECORD)
        if record is not None:
            record.backend = choice.backend
            record.race = choice.measured


def place_of(gm: GraphModule) -> str:
    """The program's line of the first operator of a graph."""
    for node in gm.graph.nodes:
        found = re.fullmatch(
            r'\s*File "(.*)", line (\d+), in (.*)', (node.meta.get("stack_trace") or "").rpartition("\n")[2]
        )
        if found is not None:
            return f"{os.path.basename(found[1])}:{found[2]} in {found[3]}"
    return "no line known"


def validate(mode: str | None = None, options: Mapping[str, Any] | None = None) -> None:
    """Check what the user gave to `compile`. Raises RuntimeError, and InvalidBackend for a candidate that nobody knows."""
    options = options or {}
    if mode is not None:
        raise RuntimeError(f"mode={mode!r} is for one backend; backend='autotune' tries the modes itself")
    refuse_unknown("autotune", options, OPTIONS)
    seconds_of(options.get("budget"))
    every_of(options.get("shadow"))
    for name in options.get("candidates") or ():
        lookup_backend(name)


def seconds_of(budget: str | float | None) -> float:
    """ "20s", "500ms", "2min" or a number of seconds. Raises RuntimeError for anything else."""
    if budget is None:
        return DEFAULT_BUDGET
    if isinstance(budget, int | float) and not isinstance(budget, bool) and budget > 0:
        return float(budget)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min)\s*", budget) if isinstance(budget, str) else None
    if found is None:
        raise RuntimeError(f"budget={budget!r}: expected seconds, or a text such as '20s', '500ms', '2min'")
    return float(found[1]) * {"ms": 1e-3, "s": 1.0, "min": 60.0}[found[2]]


def every_of(shadow: str | float | None) -> int:
    """N for "1/N", 1/N or N; 0 for none. Raises RuntimeError for anything else."""
    if not shadow:
        return 0
    if isinstance(shadow, str):
        found = re.fullmatch(r"\s*(?:1\s*/\s*)?([1-9]\d*)\s*", shadow)
        if found is not None:
            return int(found[1])
    elif isinstance(shadow, int | float) and not isinstance(shadow, bool) and shadow > 0:
        return round(shadow if shadow >= 1 else 1 / shadow)
    raise RuntimeError(f"shadow={shadow!r}: expected '1/1000' or 1000 for one call of a thousand, 0 for none")


def default_candidates(example_inputs: Iterable[Any], training: bool) -> list[str]:
    """The backends that can run here, on the devices of these inputs."""
    devices = {v.device.type for v in example_inputs if isinstance(v, torch.Tensor)} or {"cpu"}
    return candidates(devices, training)


@cache
def store_at(path: str | os.PathLike[str] | bool | None) -> Store:
    """The store at a path; None: the user's, False: none."""
    where = None if path is False else default_path() if path in (None, True) else path
    store = Store(where)  # type: ignore[arg-type]
    _stores.append(store)
    return store


_stores: list[Store] = []


def reset() -> None:
    """Race again for graphs that this process has raced for, or whose winner it has looked up."""
    for store in _stores:
        store.reset()


autotune.reset = reset  # type: ignore[attr-defined]


def default_path() -> pathlib.Path:
    """`config.tune_store`, else a file in the directory of the cache."""
    return pathlib.Path(config.tune_store).expanduser() if config.tune_store else directory() / "tune.sqlite3"


def choice_of(outcome: Outcome) -> Choice:
    """The choice to which a race has led."""
    seconds = {name: median for name, median, _, _ in outcome.runners}
    speedup = outcome.eager / seconds[outcome.winner] if seconds.get(outcome.winner) else 1.0
    measured = [(name, None if s is None else round(s * 1e6, 3), text) for name, s, _, text in outcome.runners]
    return Choice(outcome.winner, speedup, measured)


autotune.validate = validate
setattr(autotune, FLOATS, "items")
