"""Closure cells.

Input: a real cell with its access path, or the initial content of a new one. Output: `CellVariable`.
Invariant: closures that share a cell share its tracker; the content is read (and guarded) only when used.
Mirrors `Objects/cellobject.c`.
"""

from __future__ import annotations

from types import CellType
from typing import TYPE_CHECKING, Any

from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import COMPARE_OPS, richcompare
from dynamo_lite.variables.protocol.base import MISSING, Child, Plain, VariableTracker, missing_from
from dynamo_lite.variables.protocol.constant import NOT_IMPLEMENTED, boolean
from dynamo_lite.variables.protocol.descr import generic_getattr, generic_setattr, getset
from dynamo_lite.variables.protocol.wrap import builds

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class CellVariable(VariableTracker):
    """A cell. `content` is a tracker, None while empty, `MISSING` while the real cell has not been read."""

    cls = CellType
    content: Any = Child(None)
    value: Any = Plain(MISSING)

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        generic_setattr(tx, self, name, value)

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if not isinstance(other, CellVariable):
            return NOT_IMPLEMENTED
        mine, its = self.get(tx), other.get(tx)
        if mine is not None and its is not None:
            return richcompare(tx, mine, its, op)
        return boolean(COMPARE_OPS[op](its is None, mine is None))  # an empty cell is less than any other

    def get(self, tx: Frame) -> VariableTracker | None:
        """The content, or None for an empty cell."""
        if self.content is MISSING:
            tr = tx.tr
            node = tr.source(self.source, ir.CELL_CONTENTS, None)
            try:
                real = self.value.cell_contents
            except ValueError:
                tr.guard(node, ir.ABSENT, None)
                self.content = None
            else:
                tr.expect(node)
                self.content = tr.wrap(real, node)
        return self.content

    def set(self, tx: Frame, content: VariableTracker | None) -> None:
        """Store a tracker; None empties the cell."""
        tx.tr.effects.mutating(self)
        self.content = content

    def item_at(self, kind: int, arg: object) -> Any:
        return self.content if self.content is not MISSING else None

    def let_go(self, tr: Trace) -> Any:
        try:
            content = self.value.cell_contents
        except ValueError:
            tr.guard(tr.source(self.source, ir.CELL_CONTENTS, None), ir.ABSENT)
            return ()
        return missing_from(self.children(), [(tr.source(self.source, ir.CELL_CONTENTS, None), content)])

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(CellType)
        cg.asm.call(0)

    def emit_fill(self, cg: Codegen) -> None:
        if self.content is not None:
            self.emit_update(cg)

    def emit_update(self, cg: Codegen) -> None:
        if self.content is MISSING:
            return
        if self.content is None:
            cg.load(self)
            cg.asm.delete_attr("cell_contents")
        else:
            cg.load(self.content)
            cg.load(self)
            cg.asm.store_attr("cell_contents")


@builds(CellType)
def build_cell(tr: Trace, value: CellType, source: GuardNode | None) -> CellVariable:
    tr.guard(source, ir.TYPE_IS, CellType)
    return CellVariable(MISSING, value, source)


def _set_contents(tx: Frame, self: CellVariable, value: VariableTracker | None) -> None:
    self.set(tx, value)


@getset(CellType.__dict__["cell_contents"], _set_contents)
def cell_contents(tx: Frame, self: CellVariable, /) -> VariableTracker:
    content = self.get(tx)
    return content if content is not None else tx.raises(ValueError, "Cell is empty")
