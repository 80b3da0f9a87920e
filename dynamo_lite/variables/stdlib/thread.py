"""Locks that the traced code makes. Every operation on one from outside breaks the graph.

Input: nothing, or a real lock. Output: `LockVariable`.
Invariant: nobody else has a lock made here before the frame ends, so acquiring one never waits.
Mirrors `Modules/_threadmodule.c`.
"""

from __future__ import annotations

import _thread
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import is_true
from dynamo_lite.variables.protocol.base import MISSING, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, TRUE, boolean, is_none
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, method
from dynamo_lite.variables.protocol.native import NativeVariable
from dynamo_lite.variables.protocol.wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

LOCK_TYPES: tuple[type, ...] = (_thread.RLock, _thread.LockType)


class LockVariable(NativeVariable):
    """A `_thread.RLock` or `_thread.lock`; `count` is how often the frame holds it."""

    cls: type = Plain()
    value: Any = Plain(MISSING)
    count: int = Plain(0, init=False)

    def acquire(self, tx: Frame, blocking: bool) -> VariableTracker:
        """Take it, or not if it is a taken lock that is not to be waited for."""
        if self.count and self.cls is not _thread.RLock:
            return boolean(False) if not blocking else unsupported("call-c-function", "waiting for a lock")
        self.require_known()
        self.count += 1
        return TRUE

    def require_known(self) -> None:
        """Raise `Unsupported` if somebody else may hold it."""
        if self.source is not None:
            unsupported("call-c-function", f"a lock from outside: {self.describe()}")

    def release(self, tx: Frame) -> VariableTracker:
        """Give it back once."""
        self.require_known()
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


@builds(*LOCK_TYPES)
def build_lock(tr: Trace, value: object, source: GuardNode | None) -> LockVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    return LockVariable(type(value), value, source)


for _cls in LOCK_TYPES:

    @method(_cls.acquire)
    def lock_acquire(
        tx: Frame, self: LockVariable, blocking: VariableTracker = TRUE, timeout: VariableTracker | None = None
    ) -> VariableTracker:
        if not is_none(timeout):
            return unsupported("call-c-function", "acquire() with a timeout")
        return self.acquire(tx, is_true(tx, blocking))

    @method(_cls.__enter__)
    def lock_enter(tx: Frame, self: LockVariable, /) -> VariableTracker:
        return self.acquire(tx, True)

    @method(_cls.release)
    def lock_release(tx: Frame, self: LockVariable, /) -> VariableTracker:
        return self.release(tx)

    @method(_cls.__exit__)
    def lock_exit(tx: Frame, self: LockVariable, /, *exc: VariableTracker) -> VariableTracker:
        return self.release(tx)


@method(_thread.LockType.locked)
def lock_locked(tx: Frame, self: LockVariable, /) -> VariableTracker:
    self.require_known()
    return boolean(self.count)


@method(_thread.RLock._is_owned)
def rlock_is_owned(tx: Frame, self: LockVariable, /) -> VariableTracker:
    self.require_known()
    return boolean(self.count)
