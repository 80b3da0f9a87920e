"""Branches on tensor data of which one side only raises.

Input: a frame and a tensor whose truth it asks for. Output: the truth with which the frame does not raise, which the graph then checks.
Invariant: what is taken for granted here is tested before anything of the program has happened (`graph.checks`), so where the program
would catch the exception, or what it does before it raises, is of no concern. Whether the branch is a check is only a guess at what
the program does as a rule.
"""

from __future__ import annotations

from typing import Any

import torch

from ..exc import Unsupported
from ..isa.canon import Op
from ..isa.flow import only_raises
from .base import VariableTracker
from .constant import ConstantVariable

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def checked_truth(tx: Any, vt: Any) -> VariableTracker:
    """The truth of a tensor for a branch. Raises `Unsupported` if both sides go on."""
    expected = _side_that_goes_on(tx)
    if expected is None:
        raise Unsupported("data-dependent-branch", vt.describe())
    check(tx, vt, expected, "data-dependent-branch")
    return ConstantVariable(expected)


def check(tx: Any, vt: Any, expected: bool, slug: str) -> None:
    """Have the graph check the truth of a tensor. Raises `Unsupported` where it can't."""
    tr = tx.tr
    saved = Unsupported(slug, vt.describe())
    pos = tx.lifted.instrs[tx.cur].pos
    place = (tx.code.co_filename, pos[0] or tx.code.co_firstlineno, pos[2])
    if tr.overrides is not None or vt.cls not in _PLAIN or not tr.graph.checks.accepts(tr.graph, vt.proxy, place):
        raise saved
    saved.break_step, saved.user_stack = tr.failing_step(), tr.user_stack()
    tr.graph.check(tx, vt, expected, place, saved)


def _side_that_goes_on(tx: Any) -> bool | None:
    """With which truth the branch at the frame's TO_BOOL does not raise; None: with both, or with neither, or it is no branch."""
    instrs, i = tx.lifted.instrs, tx.cur
    if instrs[i].op is not Op.TO_BOOL or instrs[i + 1].op is not Op.JUMP_IF:
        return None
    jump = instrs[i + 1]
    jumps, falls = only_raises(tx.lifted, jump.target), only_raises(tx.lifted, i + 2)
    return None if jumps is falls else jump.arg is not jumps
