"""Branches on tensor data where one side only raises.

Input: a frame and a tensor whose truth it asks for. Output: the truth with which the frame does not raise, which the graph then checks.
Invariant: the graph tests the assumption before anything of the program has happened (`graph.passes.checks`), so it does not matter
whether the program would catch the exception, or what it does before it raises. That a branch is a check is a guess about the usual run
of the program; a wrong guess costs time, never the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import Unsupported
from dynamo_lite.isa.flow import side_that_goes_on
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def checked_truth(
    tx: Frame, vt: VariableTracker, slug: str = "data-dependent-branch", context: str | None = None
) -> VariableTracker:
    """The truth of a tensor, as a bool, for a branch. Raises `Unsupported` if both sides go on."""
    expected = side_that_goes_on(tx.lifted, tx.cur)
    if expected is None:
        raise Unsupported(slug, context or vt.describe())
    check(tx, vt, expected, slug, context)
    return ConstantVariable(expected)


def check(tx: Frame, vt: VariableTracker, expected: bool, slug: str, context: str | None = None) -> None:
    """Have the graph check the truth of a tensor. Raises `Unsupported` where it can't."""
    tr = tx.tr
    saved = Unsupported(slug, context or vt.describe())
    place = _place(tx)
    if tr.overrides is not None or vt.cls not in _PLAIN or not tr.graph.passes.checks.accepts(vt.proxy, place):
        raise saved
    tr.graph.passes.checks.add(tx, vt, expected, place, saved.at(tr.thread.failing_step(), tr.thread.user_stack()))


CALLERS = 4
"""Frames that tell checks in a function for checks apart."""


def _place(tx: Frame) -> tuple[Any, ...]:
    place = []
    while tx is not None and len(place) < CALLERS:
        pos = tx.lifted.instrs[tx.cur].pos
        place.append((tx.code.co_filename, pos[0] or tx.code.co_firstlineno, pos[2]))
        tx = tx.parent
    return tuple(place)
