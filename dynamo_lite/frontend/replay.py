"""Contents of new objects, and changes of objects that existed before.

Input: the trackers that codegen has built bare, and the changed ones of the trace. Output: instructions that fill the former and bring
the latter to the state of their models.
Invariant: a new object is filled once, a changed one is updated once, in the order of the first changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynamo_lite.variables.protocol.base import VariableTracker

    from .codegen import Codegen


class Replay:
    """What is still to be stored.

    Attributes:
        fills: new objects that are still bare; `late`: those of them that call methods of the program when they are filled.
        updated: ids of the trackers of changed objects whose changes are applied.
    """

    def __init__(self) -> None:
        self.fills: list[VariableTracker] = []
        self.late: list[VariableTracker] = []
        self.updated: set[int] = set()

    def fill(self, cg: Codegen) -> None:
        """Fill the new mutable objects; filling may build more."""
        while self.fills:
            vt = self.fills.pop()
            if not vt.hashes_program_objects():
                _fill(cg, vt)
                continue
            self.late.append(vt)
            for child in vt.children():
                cg.hold(child)

    def fill_now(self, cg: Codegen, vt: VariableTracker) -> None:
        """Fill one object before the others, if it is still bare."""
        for waiting in (self.fills, self.late):
            for i, other in enumerate(waiting):
                if other is vt:
                    del waiting[i]
                    _fill(cg, vt)
                    return

    def emit(self, cg: Codegen) -> None:
        """Fill what is new and apply the changes of objects that existed before, in the order of their first change. Where methods of the
        program are called, which may look at anything, the rest is complete."""
        self.fill(cg)
        mutations = cg.tr.effects.mutations
        for vt in mutations:
            for child in vt.children():
                cg.hold(child)
        self.fill(cg)
        for vt in sorted(mutations, key=lambda vt: vt.hashes_program_objects()):
            self.update(cg, vt)
        self.fill(cg)
        while self.late:
            _fill(cg, self.late.pop(0))
            self.fill(cg)

    def update(self, cg: Codegen, vt: VariableTracker) -> None:
        """Apply the changes of one object, if that has not been done yet. Iterators from outside come before all others: they have taken
        their items before their containers changed (see `_check_container` in `variables/builtin/iter.py`)."""
        if id(vt) not in self.updated:
            self.updated.add(id(vt))
            for other in () if vt.is_moved_first else cg.tr.effects.mutations:
                if other.is_moved_first:
                    self.update(cg, other)
            cg.named.append(vt)
            vt.emit_update(cg)


def _fill(cg: Codegen, vt: VariableTracker) -> None:
    fill: Callable[[Codegen], None] | None = vt.emit_fill
    if fill is not None:
        fill(cg)
