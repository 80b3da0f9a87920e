"""`Tensor.tolist`: lists whose numbers only tensor data decide.

Input: a tensor. Output: a `LateListVariable`, which generated code makes by calling `tolist` when the graph has run, unless the program
asks for an item before.
Invariant: the list has the numbers that the tensor had when it was made: the graph copies them, unless nothing has been written when an
item is asked for.
Mirrors `torch/csrc/utils/tensor_list.cpp`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core.arguments import MODELS
from dynamo_lite.graph.core.nodes import made_at
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.protocol.abstract import binary_op
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.dispatch import method
from dynamo_lite.variables.protocol.native import emit_call

from ..tensor import TensorVariable, dimension, has_numbers, torchs_slots
from ..tensor_methods import tensor_item

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

MAX_ITEMS = 64
"""Numbers of one dimension that become values of the graph, where the program asks for one of them."""


class LateListVariable(ListVariable):
    """The list that `Tensor.tolist` makes of a tensor. As long as nobody asks for its items it is made of `copy` behind the graph."""

    def __init__(self, tx: Frame, tensor: TensorVariable) -> None:
        self.tensor, self.moment = tensor, tensor.moment(tx)
        call = tx.tr.graph.call
        self.copy = call(tx, "call_method", "clone", [call(tx, "call_method", "detach", [tensor])])
        self._tr, self.cls, self.source = tx.tr, list, None
        self.made = tx.tr.thread.failing_step()

    @property
    def is_late(self) -> bool:
        """Whether nobody has asked for the items."""
        return "items" not in self.__dict__

    def load_items(self) -> list[VariableTracker]:
        """The items as numbers of the graph. Where there are too many, or the graph does not know how many, it ends where the list was
        made, which is an input of what follows."""
        tx = self._tr.thread.frame
        tensor = self.tensor if self.tensor.moment(tx) == self.moment else self.copy
        try:
            items = [*items_of(tx, tensor), *self.appended]
        except Unsupported as error:
            error.break_step = self.made
            raise
        self.appended = ()
        return items

    def load_if_short(self) -> None:
        """Load the items before code is followed that may run otherwise than once: there they would be made inside."""
        sizes = self.copy.sizes()
        if self.is_late and sizes is not None and all(n is not None and n <= MAX_ITEMS for n in sizes):
            self.items  # noqa: B018 (loaded)

    def children(self) -> Sequence[VariableTracker]:
        return [self.copy, *self.appended] if self.is_late else self.items

    def describe(self) -> str:
        return f"a list of the numbers in {self.tensor.describe()}" if self.is_late else super().describe()

    def mp_length(self, tx: Frame) -> VariableTracker:
        if not self.is_late:
            return super().mp_length(tx)
        n = dimension(self.copy, 0)
        return binary_op(tx, operator.add, n, ConstantVariable(len(self.appended))) if self.appended else n

    def tp_iter(self, tx: Frame) -> VariableTracker:
        is_as_made = self.is_late and not self.appended and self.tensor.moment(tx) == self.moment
        positions = MODELS.rows_of_nonzero(tx, self.tensor, as_numbers=True) if is_as_made else None
        return super().tp_iter(tx) if positions is None else positions

    def emit_new(self, cg: Codegen) -> None:
        if self.is_late:
            emit_call(cg, torch.Tensor.tolist, self.copy)
        else:
            super().emit_new(cg)

    def items_to_fill(self) -> Sequence[VariableTracker]:
        return self.appended if self.is_late else self.items


@method(torch.Tensor.tolist)
def tensor_tolist(tx: Frame, self: TensorVariable) -> VariableTracker:
    """Nested lists of numbers, or the number of a tensor without dimensions."""
    if not self.proxy.meta.ndim:
        return tensor_item(tx, self)
    if not has_numbers(tx):
        return unsupported("data-dependent-operator", "Tensor.tolist()", origin=made_at(self.proxy))
    is_plain = self.cls in (torch.Tensor, torch.nn.Parameter) and tx.tr.graph.scope is None and tx.tr.overrides is None
    return LateListVariable(tx, self) if is_plain else ListVariable(items_of(tx, self))


def items_of(tx: Frame, tensor: TensorVariable) -> list[VariableTracker]:
    """What is in a tensor's list: numbers of the graph, or lists of them."""
    n = dimension(tensor, 0).as_python_constant()
    if n > MAX_ITEMS:
        unsupported("data-dependent-operator", f"Tensor.tolist() of {n} items", origin=made_at(tensor.proxy))
    rows = [torchs_slots(tensor).mp_subscript(tensor, tx, ConstantVariable(i)) for i in range(n)]
    return [ListVariable(items_of(tx, row)) if row.proxy.meta.ndim else tensor_item(tx, row) for row in rows]
