"""Locks from outside that a frame acquires and releases.

Input: the locks, cells and arguments that the generated frame has when it begins. Output: whether the guards still hold once the locks
are held; `release` gives them back.
Invariant: guards read and generated code writes the data that a lock protects, so both happen while it is held: the frame acquires the
lock first, evaluates the guards again, and releases the lock after the last store. It is held longer than by the program; so nothing that
may wait for another thread comes in between, and several locks are held at once only where the program holds them at once.
"""

from __future__ import annotations

from typing import Any


class Taking:
    """Generated code calls this with a list for the locks that are taken, the locks, its cells, and all its variables that are
    arguments. `program` are the guards of its version, set when there are any."""

    __slots__ = ("program",)
    program: Any

    def __call__(self, held: list[Any], locks: tuple[Any, ...], cells: tuple[Any, ...], *values: Any) -> bool:
        for lock in locks:
            lock.acquire()
            held.append(lock)
        return bool(self.program.check(values, cells or None))


def release(held: list[Any]) -> None:
    """Give back the locks of `held`, the last one first, and forget them."""
    while held:
        held.pop().release()
