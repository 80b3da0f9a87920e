"""The backend `autotune`: each graph goes to the fastest of the backends with right results.

Input: a graph as `backends.registry` describes it. Output: the callable of the chosen backend. The choice is that of an earlier race over
an equal graph (`results`), else a race is run: now (`race`), or behind the program (`switching`). The graph's record holds the choice.
"""

from __future__ import annotations

import functools
import math
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.backends.aot import FLOATS
from dynamo_lite.backends.options import refuse_unknown
from dynamo_lite.backends.regions import BY_OPERATOR, in_buckets
from dynamo_lite.backends.registry import candidates, lookup_backend, requirements_of
from dynamo_lite.backends.undefined_gradients import UNDEFINED
from dynamo_lite.config import config
from dynamo_lite.exc import first_line
from dynamo_lite.messages import warn_user
from dynamo_lite.progress import place_of, shown, terminal
from dynamo_lite.record import GRAPH_RECORD
from dynamo_lite.warm_cache.store import directory

from .apart import RaceApart
from .key import graph_key
from .portable import CannotCarry
from .race import CompilerFn, Dropped, Race, binds
from .results import Choice, Store
from .switching import Background, shadowed
from .verify import CannotCopy, check_repeatable, wants_gradients

if TYPE_CHECKING:
    from torch.fx import GraphModule

OPTIONS = ("background", "budget", "candidates", "shadow", "store")
DEFAULT_BUDGET, BACKGROUND_BUDGET = 20.0, 600.0
"""Seconds, for a program that waits and for one that does not."""
QUARANTINED = "quarantined"
"""How the text about a candidate begins that was wrong, failed or was slow in a check: it is in no later race for this graph."""
UNRACED = "inductor"
"""The backend for a graph that can't be run on copies of its inputs, so that there is no race."""


def autotune(
    gm: GraphModule, example_inputs: list[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile the graph with the backend that wins.

    `options`:

    - "budget": seconds for one graph's race, compilation counted ("20s" or a number; by default 20, in the background 600).
    - "candidates": names of backends in place of all that can run here.
    - "store": the file of choices, False for none.
    - "background": the graph runs eagerly at once, and with the winner from the first call after its race.
    - "shadow": one of so many calls is compared with eager execution ("1/1000" or 1000); 0 for none.

    Raises RuntimeError for others, and `InvalidBackend`.
    """
    validate(options)
    return Tuning(gm, example_inputs, dict(options or {})).compiled()


class Tuning:
    """One graph on its way to a backend."""

    def __init__(self, gm: GraphModule, examples: list[Any], options: Mapping[str, Any]) -> None:
        self.gm, self.examples = gm, examples
        self.training = wants_gradients(examples)
        self.names = list(options.get("candidates") or default_candidates(examples, self.training))
        self.in_background = bool(options.get("background"))
        self.seconds = seconds_of(options.get("budget", BACKGROUND_BUDGET if self.in_background else None))
        self.every = every_of(options.get("shadow"))
        self.store = store_at(options.get("store"))
        self.key = graph_key(gm, examples, self.training)
        self.left: list[tuple[str, float | None, str]] = []  # candidates that an earlier check has found at fault

    def compiled(self) -> Callable[..., Any]:
        """The callable for the program."""
        known = self.store.get(self.key)
        if known is not None and known.settles(self.names, self.seconds):
            try:
                return self._running(known, in_buckets(lookup_backend(known.backend))(self.gm, self.examples))
            except Exception as error:
                warn_user(
                    f"backend {known.backend!r}, chosen earlier, fails now and is left: {first_line(error)}",
                )
                self.store.forget(self.key)
        if known is not None:
            self.left = [row for row in known.measured if row[2].startswith(QUARANTINED)]
            self.names = [name for name in self.names if all(name != left for left, _, _ in self.left)]
        try:
            check_repeatable(self.gm)
            return self._race_behind() if self.in_background else self._race()
        except CannotCopy as reason:
            name = UNRACED if UNRACED in self.names else "eager"
            self._note(Choice(name, 1.0, [(name, None, f"no race: {reason}")]))
            return in_buckets(lookup_backend(name))(self.gm, self.examples)

    def _race(self) -> Callable[..., Any]:
        compilers = {name: self._compiler(name) for name in self.names if name != "eager"}
        with shown(f"racing {len(compilers)} backends for {self._graph()}") as tell:
            race = Race(self.gm, self.examples, self.training, tell)
            choice = race.run(compilers, self.seconds)
        choice = choice._replace(measured=[*choice.measured, *self.left])
        self._decide(choice)
        compiled = race.compiled
        if choice.backend != "eager" and binds(lookup_backend(choice.backend)):
            compiled = in_buckets(lookup_backend(choice.backend))(self.gm, self.examples)
        return self._running(choice, compiled)

    def _compiler(self, name: str) -> CompilerFn:
        """The backend of that name. One that may bring the process down runs in a process of its own first; it raises `Dropped` here if it
        failed there, or was beyond doubt slower than eager execution."""
        compiler = in_buckets(lookup_backend(name), self.examples)
        needs = requirements_of(name)
        if not needs or not needs.isolate:
            return compiler

        def compile(gm: GraphModule, examples: list[Any]) -> Callable[..., Any]:
            try:
                problem = self._apart.run([name], self.seconds).problem_of(name)
            except CannotCarry as reason:
                problem = f"can't be tried in a process of its own: {reason}"
            if problem is not None:
                raise Dropped(problem)
            return compiler(gm, examples)

        return functools.update_wrapper(compile, compiler)

    @functools.cached_property
    def _apart(self) -> RaceApart:
        return RaceApart.of(self.gm, self.examples, self.training)

    def _race_behind(self) -> Callable[..., Any]:
        """Eager execution, with the winner from some later call on."""
        self._note(_eager("the race is in the background"))
        try:
            background = Background(self.gm, self.examples, self.training, self._finished, self._checked)
        except CannotCarry as reason:
            self._finished(f"no race in the background: {reason}")
            return self.gm.forward
        return background.start(self.names, self.seconds)

    def _finished(self, result: Choice | str) -> None:
        if isinstance(result, str):
            self._note(_eager(result))
            return
        self._decide(result._replace(measured=[*result.measured, *self.left]))
        if terminal() is not None:
            text = f"{result.backend} is chosen for {self._graph()}: {result.speedup:.2f}x eager execution"
            print(f"dynamo_lite: {text}", file=sys.stderr, flush=True)

    def _running(self, choice: Choice, compiled: Callable[..., Any]) -> Callable[..., Any]:
        self._note(choice)
        return self._checked(choice.backend, compiled)

    def _checked(self, name: str, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """The callable of a backend, which is compared with eager execution from time to time if the user wants that."""
        if not self.every or name == "eager":
            return compiled

        def demote(reason: str) -> None:
            known = self.store.get(self.key)
            measured = [row for row in known.measured if row[0] != name] if known is not None else []
            self._decide(Choice("eager", 1.0, [*measured, (name, None, f"{QUARANTINED}: {reason}")]))
            warn_user(f"backend {name!r} is left for {self._graph()}, which runs eagerly from now on: {reason}")

        return shadowed(self.gm, compiled, self.every, demote)

    def _graph(self) -> str:
        """The graph's name in messages."""
        record = self.gm.meta.get(GRAPH_RECORD)
        return f"graph {record.id if record is not None else '?'} ({place_of(self.gm)})"

    def _decide(self, choice: Choice) -> None:
        """Store a choice for later graphs and processes."""
        self.store.put(self.key, choice)
        self._note(choice)

    def _note(self, choice: Choice) -> None:
        record = self.gm.meta.get(GRAPH_RECORD)
        if record is not None:
            record.backend = choice.backend
            record.race = choice.measured


def _eager(text: str) -> Choice:
    return Choice("eager", 1.0, [("eager", None, text)])


# Options.


def validate(options: Mapping[str, Any] | None = None) -> None:
    """Check the arguments that the user gave to `compile`. Raises RuntimeError, and InvalidBackend for an unknown candidate."""
    options = options or {}
    refuse_unknown("autotune", options, OPTIONS)
    seconds_of(options.get("budget"))
    every_of(options.get("shadow"))
    _check_kind("background", options.get("background"), bool, "True or False")
    _check_kind(
        "store",
        options.get("store"),
        (str, os.PathLike, bool),
        "the path of a file, True for the user's store or False for none",
    )
    _check_kind("candidates", options.get("candidates"), (list, tuple), "a list of names of backends")
    for name in options.get("candidates") or ():
        _check_kind("candidates", name, str, "a list of names of backends (`register_backend` gives a function one)")
        lookup_backend(name)


def _check_kind(option: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise RuntimeError(f"{option}={value!r}: expected {expected}")


def seconds_of(budget: str | float | None) -> float:
    """ "20s", "500ms", "2min" or a number of seconds. Raises RuntimeError for anything else."""
    if budget is None:
        return DEFAULT_BUDGET
    if isinstance(budget, int | float) and not isinstance(budget, bool) and budget > 0:
        return float(budget)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min)\s*", budget) if isinstance(budget, str) else None
    if found is None or not float(found[1]):
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
    elif (
        isinstance(shadow, int | float)
        and not isinstance(shadow, bool)
        and 0 < shadow < math.inf
        and 1 / shadow < math.inf
    ):
        return round(shadow if shadow >= 1 else 1 / shadow)
    raise RuntimeError(f"shadow={shadow!r}: expected '1/1000' or 1000 for one call of a thousand, 0 for none")


def default_candidates(example_inputs: Iterable[Any], training: bool) -> list[str]:
    """The backends that can run here, on the devices of these inputs."""
    devices = {v.device.type for v in example_inputs if isinstance(v, torch.Tensor)} or {"cpu"}
    return candidates(devices, training)


def store_at(path: str | os.PathLike[str] | bool | None) -> Store:
    """The store at a path; None or True: the user's, as the setting is now, False: none."""
    default = pathlib.Path(config.tune_store).expanduser() if config.tune_store else directory() / "tune.sqlite3"
    return store_of(None if path is False else default if path in (None, True) else path)  # type: ignore[arg-type]


@functools.cache
def store_of(path: str | os.PathLike[str] | None) -> Store:
    """The store in a file, one for the process; None: one that keeps nothing."""
    store = Store(path)
    _stores.append(store)
    return store


_stores: list[Store] = []


def reset() -> None:
    """Race again for graphs that this process has raced for, or whose winner it has looked up."""
    for store in _stores:
        store.reset()


autotune.reset = reset  # type: ignore[attr-defined]
autotune.validate = validate  # type: ignore[attr-defined]
setattr(autotune, FLOATS, "items")
setattr(autotune, UNDEFINED, True)
setattr(autotune, BY_OPERATOR, True)  # each of its candidates cuts the graph by itself
