"""Loops that data end: `while error > tolerance:`, `while True: …; if found: break`.

Input: a frame at a branch of which one side leads back to it. Output: one node of `torch.while_loop`; the frame is behind the loop.
Invariant: the variables that the loop assigns to are tensors and ints, and tensors keep shape, strides, dtype and device from turn to
turn. A turn changes nothing else from outside, and nothing has gradients, which the operator does not compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.while_loop import while_loop_op

from dynamo_lite.exc import unsupported
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.flow import innermost_loop, live_slots, turn
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable

from ..body import CapturedBody, body_with, fakes_of, followed, is_int, is_same, needs_grad
from ..higher_order.control_flow import loop_node
from ..tensor import TensorVariable
from .contents import Change, Contents
from .extremes import ChosenVariable

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from dynamo_lite.graph.bodies import Body
    from dynamo_lite.interp.frame import Frame

SLUG = "data-dependent-branch"
_STORES = frozenset({Op.STORE_FAST, Op.DELETE_FAST, Op.LOAD_FAST_AND_CLEAR})


def side_that_returns(tx: Frame) -> bool | None:
    """With which truth the branch behind the current instruction leads back to it; None: with both, or with neither."""
    true, false = [bool(turn(tx.lifted, _start(tx, truth), tx.cur)) for truth in (True, False)]
    return None if true is false else true


def _start(tx: Frame, truth: bool) -> int:
    jump = tx.lifted.instrs[tx.cur + 1]
    return jump.target if jump.arg is truth else tx.cur + 2


class DataLoop:
    """A loop that goes on as long as a tensor has this truth at `place`. `slots`: the variables that are carried from turn to turn."""

    def __init__(self, tx: Frame, flag: TensorVariable, truth: bool) -> None:
        self.tx, self.truth, self.place = tx, truth, tx.cur
        self.start, self.end = _start(tx, truth), _start(tx, not truth)
        self.locals, self.stack = list(tx.locals), tx.stack[:-1]
        self.loop = tx, innermost_loop(tx.lifted, self.place)
        scope = tx.tr.graph.scope
        if scope is not None and scope.is_turn_of(self.loop):
            unsupported(SLUG, "a loop that data end in several places")
        instrs = tx.lifted.instrs
        stored = {instrs[i].arg for i in turn(tx.lifted, self.start, self.place) if instrs[i].op in _STORES}
        live = live_slots(tx.lifted, self.start) | live_slots(tx.lifted, self.end)
        self.stored = sorted(stored)
        self.slots = [slot for slot in self.stored if slot in live]
        self.goes_on = self._goes_on(flag)

    def _goes_on(self, flag: VariableTracker) -> VariableTracker:
        """The condition as a tensor without dimensions."""
        graph, tx = self.tx.tr.graph, self.tx
        test = graph.call(tx, "call_method", "ne" if self.truth else "eq", [flag, ConstantVariable(0)])
        return graph.call(tx, "call_method", "reshape", [test, TupleVariable([])]) if test.proxy.meta.ndim else test

    def capture(self) -> list[tuple[VariableTracker, VariableTracker]]:
        """Add the node and put the frame behind the loop. The carried tensors as they are before the loop, each with its result."""
        tx = self.tx
        items = [self.goes_on, *[self._carried(slot) for slot in self.slots]]
        if len(set(map(id, items))) < len(items):
            unsupported(SLUG, "a loop that data end with two names of one tensor")
        captured = [self._test(items), self._turn(items)]
        if torch.is_grad_enabled() and needs_grad([*captured[1].lifted, *[vt.proxy for vt in items if not is_int(vt)]]):
            unsupported(SLUG, "a loop that data end with gradients")

        def fakes(results: list[Any], modules: list[GraphModule], lifted: list[Any]) -> list[Any]:
            for result, before in zip(results, self._fakes(items), strict=True):
                if isinstance(before, torch.Tensor) and _kind(result) != _kind(before):
                    unsupported(SLUG, "a loop that data end changes the shape, strides, dtype or device of a tensor")
            return self._fakes(items)

        made = list(loop_node(tx, while_loop_op, captured, [items], fakes).items)
        tx.locals, tx.stack[:] = self.locals, self.stack
        for slot in self.stored:
            tx.locals[slot] = None
        for slot, result in zip(self.slots, made[1:], strict=True):
            tx.locals[slot] = result
        tx.cur, tx.ip = self.place, self.end
        return [(vt, result) for vt, result in zip(items[1:], made[1:], strict=True) if not is_int(vt)]

    def _carried(self, slot: int) -> Any:
        vt, name = self.locals[slot], self.tx.lifted.local_names[slot]
        if self.tx.lifted.is_cell[slot] or not (
            is_int(vt)
            or (type(vt) in (TensorVariable, ChosenVariable) and vt.cls is torch.Tensor and not vt.proxy.is_fake)
        ):
            unsupported(SLUG, f"a loop that data end: variable {name!r} is neither a tensor nor an int")
        return vt

    def _fakes(self, items: list[Any]) -> list[Any]:
        symbols = self.tx.tr.graph.symbols
        return [symbols.unknown_int() if is_int(vt) else fakes_of(self.tx, [vt])[0] for vt in items]

    def _test(self, items: list[Any]) -> CapturedBody:
        body, args = body_with(self.tx, self._fakes(items))
        with body:
            result = self.tx.tr.graph.call(self.tx, "call_method", "clone", [args[0]])
        return CapturedBody(self.tx, body, TupleVariable([result]), with_ints=True)

    def _turn(self, items: list[Any]) -> CapturedBody:
        """The body: from behind the branch to the branch."""
        tx, changes = self.tx, dict[int, Change]()
        body, args = body_with(tx, self._fakes(items))
        body.branch, body.loop = (tx, self.place), self.loop
        before = list(self.locals)
        for slot in self.stored:
            before[slot] = None
        for slot, arg in zip(self.slots, args[1:], strict=True):
            before[slot] = arg
        contents = Contents(tx, [*self.locals, *self.stack])

        def run() -> Any:
            tx.locals, tx.stack[:], tx.ip = before, self.stack, self.start
            with contents.put_back(changes):
                if tx.run_to(self.place) is not None:
                    unsupported(SLUG, "a loop that data end with a return statement")
            return None

        handled = tx.tr.thread.active_exception()
        followed(tx, run, [*self.locals, *self.stack], body)
        for change in changes.values():
            vt = change.vt
            unsupported(SLUG, f"a loop that data end changes {vt.python_type().__qualname__} {vt.describe()}")
        if tx.tr.thread.active_exception() is not handled or not all(map(is_same, tx.stack[:-1], self.stack)):
            unsupported(SLUG, "a loop that data end changes what is on the stack")
        results = [tx.locals[slot] for slot in self.slots]
        for slot, vt, item in zip(self.slots, results, items[1:], strict=True):
            if not (is_int(vt) if is_int(item) else isinstance(vt, TensorVariable)):
                name = tx.lifted.local_names[slot]
                unsupported(SLUG, f"a loop that data end: variable {name!r} becomes another kind of object")
        with body:
            results = [self._goes_on(tx.stack[-1]), *[self._new(body, vt, args) for vt in results]]
        return CapturedBody(tx, body, TupleVariable(results), with_ints=True)

    def _new(self, body: Body, vt: Any, args: list[Any]) -> VariableTracker:
        """A result of the turn: a copy of what the turn got."""
        is_given = not is_int(vt) and (vt in args or not body.is_made_inside(vt.proxy))
        return self.tx.tr.graph.call(self.tx, "call_method", "clone", [vt]) if is_given else vt


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device
