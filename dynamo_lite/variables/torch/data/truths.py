"""`bool(t)`, `not t`, `any(…)` and `all(…)` whose answer only tensor data decide.

Input: an object, or an iterable of them. Output: a bool of the graph.
Invariant: the graph computes the truth of all items, where the program stops at the first that decides: the items behind one of the graph
come from operators that are defined for all values, and change nothing.
Mirrors `builtin_any` and `builtin_all` of `Python/bltinmodule.c`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.inputs.buffers import ask, truth
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import MISSING, ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, boolean
from dynamo_lite.variables.protocol.dispatch import HANDLERS
from dynamo_lite.variables.stdlib.builtins import search

from ..body import Outside
from ..data_checks import expected_truth
from ..symnode import SymNodeVariable, is_from_data
from ..tensor import TensorVariable, converted_item, has_numbers, known_item
from .total import why_partial

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

SLUG = "data-dependent-branch"
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def _flag(tx: Frame, vt: VariableTracker) -> TensorVariable | None:
    """The truth of an object as a tensor without dimensions, if only data decide it and the graph may have such numbers."""
    graph = tx.tr.graph
    is_in_branches = graph.scope is None or graph.scope.is_in_branches_only
    if not is_in_branches or tx.tr.overrides is not None or not has_numbers(tx):
        return None
    if isinstance(vt, SymNodeVariable):
        return vt.as_tensor(tx) if is_from_data(vt) else None
    if type(vt) is not TensorVariable or vt.cls not in _PLAIN or vt.proxy.is_fake or known_item(vt) is not MISSING:
        return None
    meta = vt.proxy.meta
    if not (meta.interned or meta.live) or not all(type(n) is int and n == 1 for n in meta.shape):
        return None
    ask(graph, [vt.proxy])
    if truth(graph, vt.proxy) is not None:
        return None
    if meta.dtype is not torch.bool:
        vt = graph.call(tx, "call_method", "ne", [vt, ConstantVariable(0)])
    return graph.call(tx, "call_method", "reshape", [vt, TupleVariable([])]) if meta.ndim else vt


def late_truth(vt: VariableTracker, tx: Frame, negated: bool = False) -> VariableTracker | None:
    """The slot of tensors and of numbers that vary."""
    flag = (
        _flag(tx, vt) if expected_truth(tx) is None else None
    )  # a side of a branch behind it that only raises is a check
    if flag is not None and negated:
        flag = tx.tr.graph.call(tx, "call_function", torch.logical_not, [flag])
    return None if flag is None else _number(tx, flag)


def _number(tx: Frame, flag: TensorVariable) -> VariableTracker:
    """What the tensor says as a bool of the graph, which knows the tensor for branches that ask again."""
    number = converted_item(tx, flag, bool)
    if isinstance(number, SymNodeVariable):
        number.flag = flag, flag.moment(tx)
    return number


TensorVariable.late_truth = SymNodeVariable.late_truth = late_truth


def _searching(function: Callable[..., Any], wanted: bool, combine: Callable[..., Any]) -> None:
    """Register what looks for an item of this truth."""

    def handler(tx: Frame, iterable: VariableTracker, /) -> VariableTracker:
        flags, behind = list[TensorVariable](), None

        def take(item: VariableTracker) -> bool:
            nonlocal behind
            flag = _flag(tx, item)
            if flag is not None:
                behind = behind or _Behind(tx, iterable)
                flags.append(flag)
            return flag is not None

        try:
            is_found = search(tx, iterable, wanted, take)
        except ObservedException:
            if behind is not None:
                unsupported(SLUG, f"{function.__name__}: an item that may not be asked for raises")
            raise
        if behind is not None:
            behind.expect_pure(function.__name__)
        if is_found or not flags:
            return boolean(wanted is is_found)
        whole = functools.reduce(lambda a, b: tx.tr.graph.call(tx, "call_function", combine, [a, b]), flags)
        return _number(tx, whole)

    HANDLERS[function] = handler


class _Behind:
    """What is done behind the first item whose truth only the graph knows."""

    def __init__(self, tx: Frame, iterable: VariableTracker) -> None:
        self.nodes = tx.tr.graph.graph.nodes
        self.first = len(self.nodes)
        stack = list(tx.stack)
        tx.stack[:] = [vt for vt in stack if vt is not iterable]  # nobody else sees how far that has come
        self.outside = Outside(tx, [])
        tx.stack[:] = stack

    def expect_pure(self, name: str) -> None:
        """Break if that may raise, or changes something."""
        partial = next(filter(None, map(why_partial, list(self.nodes)[self.first :])), None)
        if partial is not None:
            unsupported(SLUG, f"{name}: {partial} may run only for an item that is not asked for")
        try:
            self.outside.check()
        except Unsupported as error:
            error.slug, error.context = SLUG, f"{name}: {error.context} for an item that may not be asked for"
            raise


_searching(any, True, torch.logical_or)
_searching(all, False, torch.logical_and)
