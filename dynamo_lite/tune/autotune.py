"""The backend `autotune`: each graph goes to the backend that runs it fastest, and right.

Input: a graph as `backends.registry` describes it. Output: the callable of the chosen backend. The choice is that of an earlier race over
an equal graph (`store`), else a race is run now (`race`). The graph's record says what was chosen and why.
"""

from __future__ import annotations

import os
import pathlib
import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import torch

from ..backends.aot import FLOATS
from ..backends.registry import candidates, lookup_backend
from ..cache.store import directory
from ..config import config
from ..exc import first_line
from ..record import GRAPH_RECORD
from .inputs import CannotCopy
from .key import graph_key
from .race import Race, Runner, race
from .store import Choice, Store

OPTIONS = ("budget", "candidates", "store")
DEFAULT_BUDGET = 20.0


def autotune(
    gm: Any, example_inputs: list[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile the graph with the backend that wins.

    `options`: "budget": seconds for one graph's race, compilation counted ("20s" or a number); "candidates": names of backends in place of
    all that can run here; "store": the file of choices, False for none. Raises RuntimeError for others, and `InvalidBackend`.
    """
    options = dict(options or {})
    validate(mode, options)
    training = wants_gradients(example_inputs)
    names = list(options.get("candidates") or default_candidates(example_inputs, training))
    store = store_at(options.get("store"))
    key = graph_key(gm, example_inputs, training)
    known = store.get(key)
    if known is not None and known.backend in ("eager", *names):
        compiled = _compile_known(gm, example_inputs, known)
        if compiled is not None:
            return compiled
        store.forget(key)
    compilers = {name: lookup_backend(name) for name in names if name != "eager"}
    try:
        result = race(gm, example_inputs, compilers, seconds=seconds_of(options.get("budget")), training=training)
    except CannotCopy as reason:
        return _without_race(gm, example_inputs, names, str(reason))
    choice = _choice(result)
    store.put(key, choice)
    _note(gm, choice)
    return result.winner.compiled  # type: ignore[return-value]


def validate(mode: str | None = None, options: Mapping[str, Any] | None = None) -> None:
    """Check what the user gave to `compile`. Raises RuntimeError, and InvalidBackend for a candidate that nobody knows."""
    if mode is not None:
        raise RuntimeError(f"mode={mode!r} is for one backend; backend='autotune' tries the modes itself")
    unknown = set(options or ()) - set(OPTIONS)
    if unknown:
        raise RuntimeError(f"Unexpected option {', '.join(sorted(unknown))} of autotune; known: {', '.join(OPTIONS)}")
    seconds_of((options or {}).get("budget"))
    for name in (options or {}).get("candidates") or ():
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


def wants_gradients(example_inputs: Iterable[Any]) -> bool:
    """Whether the graph will be trained: gradients are recorded, and an input wants some."""
    return torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in example_inputs)


def default_candidates(example_inputs: Iterable[Any], training: bool) -> list[str]:
    """The backends that can run here, on the devices of these inputs."""
    devices = {v.device.type for v in example_inputs if isinstance(v, torch.Tensor)} or {"cpu"}
    return candidates(devices, training)


@cache
def store_at(path: str | os.PathLike[str] | bool | None) -> Store:
    """The store at a path; None: the user's, False: none."""
    if path is False:
        return Store(None)
    return Store(default_path() if path in (None, True) else path)  # type: ignore[arg-type]


def default_path() -> pathlib.Path:
    """`config.tune_store`, else a file in the directory of the cache."""
    return pathlib.Path(config.tune_store).expanduser() if config.tune_store else directory() / "tune.sqlite3"


def _compile_known(gm: Any, example_inputs: list[Any], known: Choice) -> Callable[..., Any] | None:
    """The graph compiled by the backend of an earlier race; None if it fails now."""
    try:
        compiled = lookup_backend(known.backend)(gm, example_inputs)
    except Exception as error:
        warnings.warn(
            f"backend {known.backend!r}, chosen earlier, fails now and is left: {first_line(error)}", stacklevel=2
        )
        return None
    _note(gm, known)
    return compiled


def _without_race(gm: Any, example_inputs: list[Any], names: list[str], reason: str) -> Callable[..., Any]:
    """The first candidate, where no race can be run."""
    name = names[0] if names else "eager"
    _note(gm, Choice(name, 1.0, [(name, None, f"no race: {reason}")], time.time()))
    return lookup_backend(name)(gm, example_inputs)


def _choice(result: Race) -> Choice:
    told = zip(result.ranking(), result.table(), strict=True)
    measured = [(r.name, _microseconds(r), text) for r, (_, text) in told]
    eager = result.runners[0]
    speedup = eager.median / result.winner.median if result.winner.times else 1.0
    return Choice(result.winner.name, speedup, measured)


def _microseconds(runner: Runner) -> float | None:
    return round(runner.median * 1e6, 3) if runner.times else None


def _note(gm: Any, choice: Choice) -> None:
    record = gm.meta.get(GRAPH_RECORD)
    if record is not None:
        record.backend = choice.backend
        record.race = choice.measured


autotune.validate = validate
setattr(autotune, FLOATS, "items")
