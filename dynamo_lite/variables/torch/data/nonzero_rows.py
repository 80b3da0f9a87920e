"""Loops over the positions of a mask: `for i in (count > 0).nonzero(): …`, as models with experts have them.

Input: a tensor that `nonzero` or `where` has made of a vector of known length, or its list, where a `for` begins. Output: an iterator whose
first step follows the whole loop: for each position in turn a branch, one side of which is the turn with that position as a constant, and
the other does nothing.
Invariant: `nonzero` gives positions in ascending order, each once, so the turns of the branches that are taken are those of the program.
Where a turn can't be a side of a branch, the loop is a break, as over every tensor of unknown length.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core.arguments import MODELS
from dynamo_lite.graph.core.storages import is_written_since, origin
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.isa.canon import Op
from dynamo_lite.variables.builtin.iter import IteratorVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.protocol.base import Child, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable

from ..body import Outside
from ..data_checks import check
from ..tensor import TensorVariable
from .branches import SLUG, Gains, Turn, are_wanted, tell

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

LONGEST = 64
"""Positions for each of which a branch is made."""

_NONZERO = frozenset({"nonzero", torch.nonzero, torch.argwhere, "argwhere"})
_ROWS, _VECTOR, _NUMBERS = "rows", "vector", "numbers"
"""What a position is: a tensor of one element, a tensor without dimensions, an int."""


class NonzeroRows(IteratorVariable):
    """The iterator over the rows of such a tensor. `failed` raises what ends the graph where the loop begins."""

    cls = type(iter(()))
    rows: TensorVariable = Child()
    length: int = Plain()
    form: str = Plain()
    failed: Callable[[Unsupported], None] = Plain()

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        head = tx.cur
        if tx.lifted.instrs[head].op is not Op.FOR_ITER or tx.stack[-1] is not self:
            return unsupported(SLUG, "an iterator over the positions of a mask that is used elsewhere")
        gains = Gains()
        self.made: list[TensorVariable] = []
        n_changed = len(tx.tr.graph.operators.changed)
        try:
            for position in range(self.length):
                tx.cur = head
                make_row = functools.partial(self._row, tx, position)
                Turn(tx, self._is_there(tx, position), make_row, gains).join()
            self._expect_gains(tx, gains)
            if is_written_since(tx.tr.graph, [vt.proxy for vt in (self.rows, *self.made)], n_changed):
                unsupported(SLUG, "a turn of the loop writes to the positions")
        except Unsupported as error:
            self.failed(error)
            raise
        tx.cur, tx.ip = head, head + 1
        tell(tx, head, f"{self.length} branches, one for each position of a mask")
        return None

    def _is_there(self, tx: Frame, position: int) -> VariableTracker:
        call = tx.tr.graph.call
        same = call(tx, "call_method", "eq", [self.rows, ConstantVariable(position)])
        return call(tx, "call_method", "any", [same])

    @staticmethod
    def _expect_gains(tx: Frame, gains: Gains) -> None:
        """Have the graph check for each tensor that one of the turns is taken that make it part of autograd."""
        known = {vt.proxy for vt, *_ in Outside(tx, []).objects.values() if isinstance(vt, TensorVariable)}
        if not known.isdisjoint(gains.earlier):
            unsupported(SLUG, "a turn of the loop leaves an earlier value of what other turns make part of autograd")
        call = tx.tr.graph.call
        for flags in gains.flags.values():
            any_of_them = functools.reduce(lambda a, b: call(tx, "call_function", torch.logical_or, [a, b]), flags)
            check(tx, any_of_them, True, SLUG, "whether a turn of the loop is taken")

    def _row(self, tx: Frame, position: int) -> VariableTracker:
        """The item of the turn."""
        number = ConstantVariable(position)
        if self.form is _NUMBERS:
            return number
        call, device = tx.tr.graph.call, self.rows.proxy.meta.device
        row = call(tx, "call_function", torch.tensor, [ListVariable([number]) if self.form is _ROWS else number])
        row = row if device.type == "cpu" else call(tx, "call_method", "to", [row, ConstantVariable(device)])
        self.made.append(row)
        return row

    def emit_new(self, cg: Codegen) -> None:
        unsupported(SLUG, "an iterator over the positions of a mask that is used elsewhere")


def _may_be_changed(tx: Frame, value: TensorValue) -> bool:
    """Whether an operator has written to a tensor, be it through a view or `data`."""
    return origin(value) in set(map(origin, tx.tr.graph.passes.inputs.changed))


def _mask_of(value: TensorValue) -> TensorValue | None:
    """The vector whose positions a tensor has, as rows or as a vector."""
    is_item = value.origin is not None and value.origin[0] == "item"
    node, items = (value.origin[1], value.origin[2:]) if is_item else (value.node, ())
    if node is None or not node.args or not isinstance(node.args[0], Node):
        return None
    given = getattr(node.args[0].meta, "subject", None)
    if not isinstance(given, TensorValue):
        return None
    if is_item:
        is_tuple = node.target is torch.where or node.target in _NONZERO and node.kwargs == {"as_tuple": True}
        return given if is_tuple and len(node.args) == 1 and items == (0,) and given.meta.ndim == 1 else None
    if node.target in _NONZERO and len(node.args) == 1 and not node.kwargs:
        return given if given.meta.ndim == 1 and value.meta.ndim == 2 else None
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    is_vector = (name, node.args[1:]) in _TO_VECTOR and given.meta.ndim == 2
    return _mask_of(given) if is_vector else None


_TO_VECTOR = (
    *(("flatten", ()), ("ravel", ()), ("view", (-1,)), ("reshape", (-1,)), ("squeeze", (-1,)), ("squeeze", (1,))),
)
"""Names of functions and their arguments. (Those of others may be slices, so this is no set.)"""


def rows_of_nonzero(tx: Frame, tensor: TensorVariable, as_numbers: bool = False) -> VariableTracker | None:
    """The iterator, if the instruction begins a loop over such a tensor, or over its list, and branches on data are wanted."""
    instrs, value = tx.lifted.instrs, tensor.proxy
    if instrs[tx.cur].op is not Op.GET_ITER or instrs[tx.cur + 1].op is not Op.FOR_ITER or not are_wanted(tx):
        return None
    mask = _mask_of(value) if type(tensor) is TensorVariable else None
    if mask is None or as_numbers and value.meta.ndim != 1:
        return None
    length = mask.meta.shape[0]
    if type(length) is not int or length > LONGEST or _may_be_changed(tx, value):
        return None
    thread = tx.tr.thread
    step, stack = thread.failing_step(), thread.user_stack()

    def failed(error: Unsupported) -> None:
        error.context = f"a loop over the positions of a mask: {error.context}"
        error.slug, error.break_step, error.user_stack = SLUG, step, stack

    form = _NUMBERS if as_numbers else _ROWS if value.meta.ndim == 2 else _VECTOR
    return NonzeroRows(tensor, length, form, failed)


MODELS.rows_of_nonzero = rows_of_nonzero
