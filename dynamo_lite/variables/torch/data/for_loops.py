"""Loops over a range that data may end before: `for i in range(n): …; if error < tolerance: break`.

Input: a frame at a branch of which one side leaves the innermost loop, a `for` over a constant range, and the other leads to its next turn.
Output: one node of `torch.while_loop` behind the first turn; the frame is behind the loop.
Invariant: as of `loops`. The sides of the branch meet where the loop takes its next number; the side that leaves has done nothing more by
then. So leaving must lead where the end of the range leads (no `else`, no `return`), and the iterator must be known to the loop alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import unsupported
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.flow import innermost_loop
from dynamo_lite.variables.builtin.iter import ConstantIterator
from dynamo_lite.variables.builtin.slice import RangeVariable
from dynamo_lite.variables.protocol.abstract import binary_op
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable

from ..symnode import SymNodeVariable
from ..tensor import TensorVariable
from .contents import Contents
from .loops import SLUG, DataLoop, is_same_way, landing, side_start

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

Leave = Callable[["Frame", VariableTracker, bool, int], None]
"""`leave(tx, flag, truth, head)`: follow both sides of the current branch to the instruction `head`; the one of this truth does nothing."""


def head_of_for(tx: Frame) -> int | None:
    """The instruction by which the innermost loop around the current one takes its next item, if that is a `for`."""
    head = innermost_loop(tx.lifted, tx.cur)[0]
    return head if tx.lifted.instrs[head].op is Op.FOR_ITER else None


def leads_behind(tx: Frame, head: int, index: int) -> bool:
    """Whether the code from an instruction on only drops the iterator and goes where the end of the range goes."""
    index = landing(tx, index)
    target = tx.lifted.instrs[head].target
    return tx.lifted.instrs[index].op is Op.POP_TOP and is_same_way(tx, index + 1, target)


class ForLoop(DataLoop):
    """A loop over a range. `leaves`: with which truth of the test, at `test`, it ends before the range does."""

    def __init__(self, tx: Frame, flag: TensorVariable, leaves: bool, leave: Leave) -> None:
        self._begin(tx)
        self.leaves, self.leave, self.test = leaves, leave, tx.cur
        self.place = head = self.loop[1][0]
        if not leads_behind(tx, head, side_start(tx, leaves)):
            unsupported(SLUG, "a loop over a range that data end with an `else` or a return statement")
        self.start, self.end = head + 1, tx.lifted.instrs[head].target
        self.goes_on = self._goes_on(flag, not leaves)
        self.leave(tx, flag, leaves, head)
        self.iterator = self._iterator(tx.stack[-1])
        self.locals, self.stack = list(tx.locals), tx.stack[:-1]
        self._find_slots(self.loop[1])

    @property
    def has_turns(self) -> bool:
        """Whether the range has more numbers."""
        return self.iterator.index < self.iterator.size

    def _iterator(self, vt: VariableTracker) -> ConstantIterator:
        known = isinstance(vt, ConstantIterator) and vt.source is None and isinstance(vt.seq, RangeVariable)
        if not known or vt.seq.varies or any(held is vt for held in self.tx.locals):
            unsupported(SLUG, "a loop that data end over something else than a range of constants")
        return vt

    # -- what `DataLoop` asks

    def numbers(self) -> list[VariableTracker]:
        """The number of the next turn, beside what is in variables."""
        return [ConstantVariable(self.iterator.values[self.iterator.index])]

    def follow_turn(self, contents: Contents, changes: Any, before: list[Any], numbers: list[VariableTracker]) -> None:
        tx = self.tx
        tx.locals, tx.stack[:], tx.ip = before, [*self.stack, self.iterator, numbers[0]], self.start
        self.flag: VariableTracker | None = None
        with contents.put_back(changes):
            if tx.run_to(self.place) is not None or self.flag is None:
                unsupported(SLUG, "a loop that data end with a return statement")
        if tx.stack[-1] is not self.iterator:
            unsupported(SLUG, "a loop that data end changes what is on the stack")
        tx.stack.pop()

    def add_test(self, tx: Frame, flag: VariableTracker) -> bool:
        """Take the test of a turn; the frame goes on where the loop takes its next number."""
        if tx.cur != self.test:
            return False
        self.flag = self._goes_on(flag, not self.leaves)
        self.leave(tx, flag, self.leaves, self.place)
        return True

    def answer(self, numbers: list[VariableTracker]) -> tuple[VariableTracker, list[VariableTracker]]:
        """Whether there is another turn, and its number."""
        tx, values = self.tx, self.iterator.values
        number = numbers[0]
        assert isinstance(number, SymNodeVariable)
        following = binary_op(tx, operator.add, number, ConstantVariable(values.step))
        is_there = following.tp_richcompare(tx, ConstantVariable(values.stop), "<" if values.step > 0 else ">")
        assert isinstance(is_there, SymNodeVariable) and self.flag is not None
        goes_on = tx.tr.graph.call(tx, "call_function", torch.logical_and, [self.flag, is_there.as_tensor(tx)])
        return goes_on, [following]
