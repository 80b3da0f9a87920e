"""Locks that the traced code makes.

Input: nothing. Output: `LockVariable`.
Invariant: nobody else has such a lock before the frame ends, so taking one never waits; a lock from outside breaks the
graph where it is taken, since what it protects must happen while it is held.
Mirrors `Modules/_threadmodule.c`.
"""

from __future__ import annotations

import _thread
from typing import Any

from ..exc import unsupported
from .abstract import is_true
from .base import VariableTracker
from .constant import NONE, TRUE, boolean, is_none
from .dispatch import builtin, constructor, method
from .native import NativeVariable

LOCK_TYPES: tuple[type, ...] = (_thread.RLock, _thread.LockType)


class LockVariable(NativeVariable):
    """A `_thread.RLock` or `_thread.lock`; `count` is how often it is held."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.count = 0

    def acquire(self, tx: Any, blocking: bool) -> VariableTracker:
        """Take it, or not if it is a taken lock that is not to be waited for."""
        if self.count and self.cls is not _thread.RLock:
            return boolean(False) if not blocking else unsupported("call-c-function", "waiting for a lock")
        self.count += 1
        return TRUE

    def release(self, tx: Any) -> VariableTracker:
        """Give it back once."""
        if not self.count:
            reentrant = self.cls is _thread.RLock
            tx.raises(RuntimeError, "cannot release un-acquired lock" if reentrant else "release unlocked lock")
        self.count -= 1
        return NONE

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(_lock)
        cg.load_const(_thread.RLock if self.cls is _thread.RLock else _thread.allocate_lock)
        cg.load_const(self.count)
        cg.asm.call(2)


def _lock(make: Any, count: int) -> Any:
    lock = make()
    for _ in range(count):
        lock.acquire()
    return lock


@constructor(_thread.RLock)
def new_rlock(tx: Any, cls: VariableTracker, /) -> VariableTracker:
    return LockVariable(_thread.RLock)


@builtin(_thread.allocate_lock)
def allocate_lock(tx: Any, /) -> VariableTracker:
    return LockVariable(_thread.LockType)


def _own(lock: VariableTracker) -> LockVariable:
    if not isinstance(lock, LockVariable):
        unsupported("call-c-function", f"a lock from outside: {lock.describe()}")
    return lock


for _cls in LOCK_TYPES:

    @method(_cls.acquire)
    def lock_acquire(
        tx: Any, self: VariableTracker, blocking: VariableTracker = TRUE, timeout: VariableTracker | None = None
    ) -> VariableTracker:
        if not is_none(timeout):
            return unsupported("call-c-function", "acquire() with a timeout")
        return _own(self).acquire(tx, is_true(tx, blocking))

    @method(_cls.__enter__)
    def lock_enter(tx: Any, self: VariableTracker, /) -> VariableTracker:
        return _own(self).acquire(tx, True)

    @method(_cls.release)
    def lock_release(tx: Any, self: VariableTracker, /) -> VariableTracker:
        return _own(self).release(tx)

    @method(_cls.__exit__)
    def lock_exit(tx: Any, self: VariableTracker, /, *exc: VariableTracker) -> VariableTracker:
        return _own(self).release(tx)


@method(_thread.LockType.locked)
def lock_locked(tx: Any, self: VariableTracker, /) -> VariableTracker:
    return boolean(_own(self).count)


@method(_thread.RLock._is_owned)
def rlock_is_owned(tx: Any, self: VariableTracker, /) -> VariableTracker:
    return boolean(_own(self).count)
