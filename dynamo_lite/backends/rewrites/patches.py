"""Functions of torch's compilers that are others while a graph is compiled.

Input: what to replace, by what. Output: a context manager, and decorator, around the compilation.
Invariant: when the last thread has left, torch is as it was. Whoever compiles something else at the same time gets the same results.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Substitute(NamedTuple):
    """An attribute, and what makes another value of its value."""

    owner: Any
    name: str
    of: Callable[[Any], Any]


class Patches(contextlib.ContextDecorator):
    """`find`: functions that import what is to be replaced, called when somebody goes inside."""

    def __init__(self, *find: Callable[[], Iterable[Substitute]]) -> None:
        self.find = find
        self.lock = threading.Lock()
        self.inside = 0
        self.originals: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        substitutes = [substitute for find in self.find for substitute in find()]
        with self.lock:
            self.inside += 1
            if self.inside == 1:
                for owner, name, of in substitutes:
                    original = vars(owner)[name]
                    self.originals.append((owner, name, original))
                    setattr(owner, name, of(original))

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside -= 1
            while not self.inside and self.originals:
                setattr(*self.originals.pop())
