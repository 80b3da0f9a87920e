"""Locks from outside that a frame takes and gives back.

Input: what the generated frame has in its hands when it begins: the locks, the cells and the arguments. Output: whether what the
trace found still holds, now that the locks are taken; `release` gives them back.
Invariant: what a lock protects is read by the guards and written by generated code, so both happen while it is held: it is taken
first, the guards are evaluated again, and it is given back when everything is stored. It is held longer than by the program; so
nothing that may wait for another thread comes in between, and several locks are held at once only where the program does so.
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
