"""Generators of random numbers that are not torch's: reading their state, and putting it back.

Input: nothing, or a function of the program. Output: the generators of the whole process, those that the function names.
Invariant: numpy is asked only where the program has loaded it. This module does not import torch.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Generator(NamedTuple):
    """How the state of a generator is read, and set."""

    get: Callable[[], Any]
    set: Callable[[Any], object]


def of_process() -> list[Generator]:
    """Python's and numpy's."""
    numpy = sys.modules.get("numpy.random")
    found = [Generator(random.getstate, random.setstate)]
    return found if numpy is None else [*found, Generator(numpy.get_state, numpy.set_state)]


def named_in(fn: object) -> list[Generator]:
    """The generators of Python, numpy and torch in the variables of a function's closure, and among the globals that it names."""
    fn = getattr(fn, "__func__", fn)
    code, names = getattr(fn, "__code__", None), getattr(fn, "__globals__", {})
    values = [names[name] for name in getattr(code, "co_names", ()) if name in names]
    for cell in getattr(fn, "__closure__", None) or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            continue
    return [found for value in values if (found := _generator(value)) is not None]


def _generator(value: Any) -> Generator | None:
    module, name = type(value).__module__.partition(".")[0], type(value).__name__
    if isinstance(value, random.Random):
        return Generator(value.getstate, value.setstate)
    if (module, name) in (("torch", "Generator"), ("numpy", "RandomState")):
        return Generator(value.get_state, value.set_state)
    if (module, name) == ("numpy", "Generator"):
        bits = value.bit_generator
        return Generator(lambda: bits.state, lambda state: setattr(bits, "state", state))
    return None


@contextmanager
def kept(generators: Iterable[Generator]) -> Iterator[None]:
    """Put the states back at the end."""
    states = [(generator, generator.get()) for generator in generators]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set(state)
