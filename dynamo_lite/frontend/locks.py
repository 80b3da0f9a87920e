"""Locks from outside that a frame acquires and releases.

Input: the locks, cells and arguments that the generated frame has when it begins. Output: whether the guards still hold once the locks
are held; `release` gives them back.
Invariant: guards read and generated code writes the data that a lock protects, so both happen while it is held: the frame acquires the
lock first, evaluates the guards again, and releases the lock after the last store. It is held longer than by the program; so nothing that
may wait for another thread comes in between, and several locks are held at once only where the program holds them at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynamo_lite._eval_frame import GuardProgram

    from .codegen import Codegen


class Taking:
    """Generated code calls this with a list for the locks that are taken, the locks, its cells, and all its variables that are
    arguments. `program` are the guards of its version, set when there are any."""

    __slots__ = ("program",)
    program: GuardProgram

    def __call__(self, held: list[Any], locks: tuple[Any, ...], cells: tuple[Any, ...], *values: Any) -> bool:
        for lock in locks:
            lock.acquire()
            held.append(lock)
        return bool(self.program.check(values, cells or None))


def release(held: list[Any]) -> None:
    """Give back the locks of `held`, the last one first, and forget them."""
    while held:
        held.pop().release()


class LockScope:
    """The part of the new code in which the locks are held. `taking` is None where the frame takes none."""

    def __init__(self, cg: Codegen) -> None:
        self.taking: Taking | None = None
        self._held = ""  # the local with the list of the locks that are taken
        self._failed = cg.asm.label()  # where exceptions go while they are
        self._stale = cg.asm.label()  # where the frame starts again as the original

    def take(self, cg: Codegen) -> None:
        """Take the locks. Raises `Unsupported` where they can't be held for the whole of the frame."""
        asm = cg.asm
        locks = cg.tr.effects.locks
        if not locks:
            return
        for lock in locks:
            if lock.count or cg.tr.graph.runs_foreign_code:
                raise lock.saved
        for lock in locks:
            cg.hold(lock)
        self._held = cg.new_local()
        asm.build_list(0)
        asm.store_fast(self._held)
        asm.begin_try(self._failed)
        self.taking = Taking()
        cg.load_callable(self.taking)
        asm.load_fast(self._held)
        for lock in locks:
            cg.load(lock)
        asm.build_tuple(len(locks))
        asm.call(3 + cg.load_own_call())
        asm.jump_if(False, self._stale)

    def give_back(self, cg: Codegen) -> None:
        """All stores are done."""
        if self.taking is not None:
            self.emit_release(cg)
            cg.asm.end_try()

    def emit_release(self, cg: Codegen) -> None:
        """Release the locks, if there are any."""
        if self.taking is not None:
            cg.load_callable(release)
            cg.asm.load_fast(self._held)
            cg.asm.call(1)
            cg.asm.pop_top()

    def emit_handlers(self, cg: Codegen) -> None:
        """While the frame waited for a lock, another thread has changed what the guards say: it starts again as the original. Or
        something was raised while locks were held."""
        if self.taking is None:
            return
        asm = cg.asm
        asm.set_location(cg.code.co_firstlineno)
        asm.place(self._stale)
        self.emit_release(cg)
        cg.start_again()
        asm.place(self._failed)
        self.emit_release(cg)
        asm.reraise(0)
