"""Locks that the traced code makes.

Input: nothing. Output: `LockVariable`.
Invariant: nobody else has a lock made here before the frame ends, so acquiring one never waits. A lock from outside breaks the graph where
it is acquired and where it is released: other threads wait for it, and what it protects is read and written in between.
Mirrors `Modules/_threadmodule.c`.
"""

from __future__ import annotations

import _thread
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.protocol.abstract import is_true
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, TRUE, boolean, is_none
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, method
from dynamo_lite.variables.protocol.native import NativeVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class LockVariable(NativeVariable):
    """A `_thread.RLock` or `_thread.lock`; `count` is how often the frame holds it."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.count = 0

    def acquire(self, blocking: bool) -> VariableTracker:
        """Take it, or not if it is a taken lock that is not to be waited for."""
        if self.count and self.cls is not _thread.RLock:
            return boolean(False) if not blocking else unsupported("call-c-function", "waiting for a lock")
        self.count += 1
        return TRUE

    def release(self, tx: Frame) -> VariableTracker:
        """Give it back once."""
        if not self.count:
            reentrant = self.cls is _thread.RLock
            tx.raises(RuntimeError, "cannot release un-acquired lock" if reentrant else "release unlocked lock")
        self.count -= 1
        return NONE

    def emit_new(self, cg: Codegen) -> None:
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
def new_rlock(tx: Frame, cls: VariableTracker, /) -> VariableTracker:
    return LockVariable(_thread.RLock)


@builtin(_thread.allocate_lock)
def allocate_lock(tx: Frame, /) -> VariableTracker:
    return LockVariable(_thread.LockType)


def made_here(self: VariableTracker) -> LockVariable:
    """A lock that the traced code has made; breaks for others."""
    return self if isinstance(self, LockVariable) else unsupported("call-c-function", "a lock from outside")


for _cls in (_thread.RLock, _thread.LockType):

    @method(_cls.acquire)
    def lock_acquire(
        tx: Frame, self: VariableTracker, blocking: VariableTracker = TRUE, timeout: VariableTracker = NONE
    ) -> VariableTracker:
        if not is_none(timeout):
            return unsupported("call-c-function", "acquire() with a timeout")
        return made_here(self).acquire(is_true(tx, blocking))

    @method(_cls.__enter__)
    def lock_enter(tx: Frame, self: VariableTracker, /) -> VariableTracker:
        return made_here(self).acquire(True)

    @method(_cls.release)
    def lock_release(tx: Frame, self: VariableTracker, /) -> VariableTracker:
        return made_here(self).release(tx)

    @method(_cls.__exit__)
    def lock_exit(tx: Frame, self: VariableTracker, /, *exc: VariableTracker) -> VariableTracker:
        return made_here(self).release(tx)


@method(_thread.LockType.locked, _thread.RLock._is_owned)
def lock_locked(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return boolean(made_here(self).count)
