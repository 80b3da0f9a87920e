"""Loops over what is known that data end early: `for layer in layers: x = layer(x); if x.max() < eps: break`.

Input: a branch in a `for`, one side of which leaves the loop. Output: whether the other side may go on with the loop as a side of a branch,
and the stack with which it does.
Invariant: only the loop has the iterator, so that a side may have a copy of it: what the iterator says behind the branch nobody asks. A
dict that is iterated over stays as it is.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.flow import innermost_loop
from dynamo_lite.variables.builtin.dictview import DictIterator
from dynamo_lite.variables.builtin.iter import ConstantIterator, IteratorVariable, ListIterator
from dynamo_lite.variables.builtin.slice import RangeVariable
from dynamo_lite.variables.builtin.zip import EnumerateVariable, ZipVariable

from .for_loops import head_of_for, leads_behind
from .loops import side_start

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame
    from dynamo_lite.isa.canon import Lifted

MOST_TURNS = 24
"""Turns of a loop, each a branch within that of the turn before."""

_PLAIN = frozenset({ConstantIterator, ListIterator, DictIterator})


def stack_of_turn(
    lifted: Lifted, place: int, end: int, local_variables: list[Any], stack: list[Any]
) -> list[Any] | None:
    """The stack for a side of the branch at `place` that goes on with the innermost loop until `end`: with copies of the iterators that end
    with the loop (all, if the sides return). None if it is in no `for` before `end`, or the iterator may not be the loop's alone."""
    instrs, loop = lifted.instrs, innermost_loop(lifted, place)
    if instrs[loop[0]].op is not Op.FOR_ITER or end in loop or not stack:
        return None
    returns = end == len(instrs)
    copies = [_copy(local_variables, vt) if returns or i == len(stack) - 1 else vt for i, vt in enumerate(stack)]
    return None if None in copies else copies


def mappings_of(stack: list[Any]) -> list[Any]:
    """The dicts that iterators on the stack go through."""
    found, pending = [], list(stack)
    while pending:
        vt = pending.pop()
        if type(vt) is DictIterator:
            found.append(vt.mapping)
        elif type(vt) is EnumerateVariable:
            pending.append(vt.iterator)
        elif type(vt) is ZipVariable:
            pending += vt.iterators
    return found


def _copy(local_variables: list[Any], vt: Any) -> Any:
    """An iterator that has come as far as this one; what is no iterator itself; None for one that can't be copied."""
    if not isinstance(vt, IteratorVariable):
        return vt
    if vt.source is not None or any(held is vt for held in local_variables):
        return None
    made = object.__new__(type(vt))
    made.__dict__.update(vt.__dict__)
    if type(vt) is DictIterator:
        made.host = copy.copy(vt.host)
    if type(vt) is EnumerateVariable:
        made.iterator = _copy(local_variables, vt.iterator)
        return None if made.iterator is None else made
    if type(vt) is ZipVariable:
        made.iterators = [_copy(local_variables, iterator) for iterator in vt.iterators]
        return None if None in made.iterators else made
    return made if type(vt) in _PLAIN else None


def can_be_one_node(tx: Frame, truth: bool | None) -> bool:
    """Whether the innermost loop is over a range of numbers, and the side that does not have this truth only leaves it: see `ForLoop`."""
    head, top = head_of_for(tx), tx.stack[-2] if len(tx.stack) > 1 else None
    if head is None or truth is None or type(top) is not ConstantIterator or not isinstance(top.seq, RangeVariable):
        return False
    return leads_behind(tx, head, side_start(tx, not truth))
