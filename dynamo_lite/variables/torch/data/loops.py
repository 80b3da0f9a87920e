"""Loops that data end: `while error > tolerance:`, `while True: …; if found: break`.

Input: a frame at a branch of which one side leads back to it. Output: one node of `torch.while_loop`; the frame is behind the loop.
Invariant: the variables that the loop assigns to are tensors and numbers, which the node carries as tensors of one element. They keep
shape, strides, dtype and device from turn to turn. A turn changes nothing else from outside, and nothing has gradients, which the operator
does not compute. The branch is the last test of a turn. Tests before it that end the loop too (`while a and b`) have nothing behind them
but operators that cannot raise: all tests of a turn are computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.while_loop import while_loop_op

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.isa.canon import NO_TARGET, TERMINAL, Op
from dynamo_lite.isa.flow import innermost_loop, live_slots, turn
from dynamo_lite.signals import let_through
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable

from ..body import CapturedBody, body_with, fakes_of, followed, is_same, needs_grad
from ..higher_order.control_flow import loop_node
from ..symnode import SymNodeVariable, scalar_tensor
from ..tensor import TensorVariable, converted_item, has_numbers
from .contents import Change, Contents
from .extremes import ChosenVariable
from .joins import is_number, scalar_in
from .total import BehindNode, why_partial
from .written import expect_of_mode

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from dynamo_lite.graph.bodies import Body
    from dynamo_lite.interp.frame import Frame

SLUG = "data-dependent-branch"
_STORES = frozenset({Op.STORE_FAST, Op.DELETE_FAST, Op.LOAD_FAST_AND_CLEAR})
_CHANGES = _STORES | {op for op in Op if op.name.startswith(("STORE_", "DELETE_"))} | {Op.FOR_ITER}


def side_that_returns(tx: Frame) -> bool | None:
    """With which truth the branch behind the current instruction leads back to it; None: with both, or with neither."""
    true, false = [bool(turn(tx.lifted, side_start(tx, truth), tx.cur)) for truth in (True, False)]
    return None if true is false else true


def side_start(tx: Frame, truth: bool, test: int | None = None) -> int:
    """Where the code goes on behind a test that has this truth."""
    test = tx.cur if test is None else test
    jump = tx.lifted.instrs[test + 1]
    return jump.target if jump.arg is truth else test + 2


def landing(tx: Frame, index: int) -> int:
    """Where jumps from an instruction end."""
    instrs = tx.lifted.instrs
    while instrs[index].op is Op.JUMP:
        index = instrs[index].target
    return index


def is_same_way(tx: Frame, one: int, other: int) -> bool:
    """Whether the code goes on alike from two instructions. CPython repeats the end of a function instead of jumping there (3.12)."""
    instrs = tx.lifted.instrs
    while (one := landing(tx, one)) != (other := landing(tx, other)):
        first, second = instrs[one], instrs[other]
        if first.op is not second.op or first.arg != second.arg or {first.target, second.target} != {NO_TARGET}:
            return False
        if first.op in TERMINAL:
            return first.op is Op.RETURN_VALUE
        one, other = one + 1, other + 1
    return True


def _truth_that_ends(tx: Frame, test: int, end: int) -> bool | None:
    """With which truth of a test the code goes on at `end`, and with the other one elsewhere."""
    lands = [is_same_way(tx, side_start(tx, truth, test), end) for truth in (True, False)]
    return None if lands[0] is lands[1] else lands[0]


class DataLoop:
    """A loop that goes on as long as a tensor has this truth at `place`. `slots`: the variables that are carried from turn to turn."""

    def __init__(self, tx: Frame, flag: TensorVariable, truth: bool) -> None:
        self._begin(tx)
        self.truth, self.place = truth, tx.cur
        self.start, self.end = side_start(tx, truth), side_start(tx, not truth)
        self.locals, self.stack = list(tx.locals), tx.stack[:-1]
        self.goes_on = self._goes_on(flag, truth)
        self._move_to_last_test()
        self._find_slots(turn(tx.lifted, self.start, self.place))

    def _begin(self, tx: Frame) -> None:
        self.tx = tx
        self.loop = tx, innermost_loop(tx.lifted, tx.cur)
        self.tests: list[tuple[VariableTracker, str]] = []
        scope = tx.tr.graph.scope
        if scope is not None and scope.is_turn_of(self.loop):
            unsupported(SLUG, "a loop that data end in several places")

    def _find_slots(self, instructions: Iterable[int]) -> None:
        """The variables that these instructions assign to, and those of them that are read again."""
        lifted = self.tx.lifted
        live = live_slots(lifted, self.start) | live_slots(lifted, self.end)
        self.stored = sorted({lifted.instrs[i].arg for i in instructions if lifted.instrs[i].op in _STORES})
        self.slots = [slot for slot in self.stored if slot in live]

    def _move_to_last_test(self) -> None:
        """Where another test of the same loop follows at once (`while a and b`), that is the place; before the loop both are made."""
        tx, instrs, i = self.tx, self.tx.lifted.instrs, self.start
        while instrs[i].target == NO_TARGET and instrs[i].op not in TERMINAL | _CHANGES | {Op.TO_BOOL}:
            i += 1
        if instrs[i].op is not Op.TO_BOOL or instrs[i + 1].op is not Op.JUMP_IF:
            return
        ends = _truth_that_ends(tx, i, self.end)
        if ends is None or not turn(tx.lifted, side_start(tx, not ends, i), self.place):
            return
        tx.stack[:], tx.ip = self.stack, self.start
        nodes = tx.tr.graph.graph.nodes
        before = len(nodes)
        tx.run_to(i)
        answer = tx.stack[-1]
        partial = next(filter(None, map(why_partial, list(nodes)[before:])), None)
        if partial is not None:
            unsupported(SLUG, f"a loop that data end in several places, where {partial} may run only if it goes on")
        self.place, self.truth, self.start, self.stack = i, not ends, side_start(tx, not ends, i), tx.stack[:-1]
        if not answer.is_python_constant():
            both = [self.goes_on, self._goes_on(answer, not ends)]
            self.goes_on = tx.tr.graph.call(tx, "call_function", torch.logical_and, both)
        elif bool(answer.as_python_constant()) is ends:
            unsupported(SLUG, "a loop that data end, without a turn")

    def add_test(self, tx: Frame, flag: VariableTracker) -> bool:
        """Take a test before the last one of a turn; the frame goes on behind it. False if it is no such test."""
        ends = _truth_that_ends(tx, tx.cur, self.end)
        if ends is None:
            return False
        start = side_start(tx, not ends)
        behind = turn(tx.lifted, start, self.place)
        if not behind or any(tx.lifted.instrs[i].op in _CHANGES for i in behind):
            return False
        self.tests.append((self._goes_on(flag, not ends), tx.tr.graph.last_node.name))
        tx.stack.pop()
        tx.ip = start
        return True

    def _goes_on(self, flag: VariableTracker, truth: bool) -> VariableTracker:
        """Whether a test has this truth, as a tensor without dimensions."""
        graph, tx = self.tx.tr.graph, self.tx
        if isinstance(flag, SymNodeVariable):
            flag = flag.as_tensor(tx)
        test = graph.call(tx, "call_method", "ne" if truth else "eq", [flag, ConstantVariable(0)])
        return graph.call(tx, "call_method", "reshape", [test, TupleVariable([])]) if test.proxy.meta.ndim else test

    def capture(self) -> list[tuple[VariableTracker, VariableTracker]]:
        """Add the node and put the frame behind the loop. The carried tensors as they are before the loop, each with its result."""
        tx = self.tx
        carried = [*[self._carried(slot) for slot in self.slots], *self.numbers()]
        items = [self.goes_on, *[scalar_tensor(tx, vt) if is_number(vt) else vt for vt in carried]]
        if len(set(map(id, items))) < len(items):
            unsupported(SLUG, "a loop that data end with two names of one tensor")
        captured = [self._test(items), self._turn(items, carried)]
        if tx.tr.state.records(needs_grad([*captured[1].lifted, *[vt.proxy for vt in items]])):
            unsupported(SLUG, "a loop that data end with gradients")

        def fakes(results: list[Any], modules: list[GraphModule], lifted: list[Any]) -> list[Any]:
            expect_of_mode(results)
            self._expect_total(modules[1], [*self._fakes(items), *map(tx.tr.graph.propagator.argument_of, lifted)])
            for result, before in zip(results, self._fakes(items), strict=True):
                if _kind(result) != _kind(before):
                    unsupported(SLUG, "a loop that data end changes the shape, strides, dtype or device of a tensor")
            return self._fakes(items)

        made = list(loop_node(tx, while_loop_op, captured, [items], fakes).items)
        tx.locals, tx.stack[:] = self.locals, self.stack
        for slot in self.stored:
            tx.locals[slot] = None
        for slot, vt, result in zip(self.slots, carried, made[1:], strict=False):
            tx.locals[slot] = converted_item(tx, result, vt.python_type()) if is_number(vt) else result
        tx.cur, tx.ip = self.place, self.end
        return [(vt, result) for vt, result in zip(carried, made[1:], strict=True) if not is_number(vt)]

    # -- what loops of another kind do otherwise

    def numbers(self) -> list[VariableTracker]:
        """Numbers that are carried beside what is in variables."""
        return []

    def follow_turn(
        self, contents: Contents, changes: dict[int, Change], before: list[Any], numbers: list[VariableTracker]
    ) -> None:
        """Interpret a turn from these variables to the last test, whose answer is on top of the stack."""
        tx = self.tx
        tx.locals, tx.stack[:], tx.ip = before, self.stack, self.start
        with contents.put_back(changes):
            if tx.run_to(self.place) is not None:
                unsupported(SLUG, "a loop that data end with a return statement")

    def answer(self, numbers: list[VariableTracker]) -> tuple[VariableTracker, list[VariableTracker]]:
        """Whether there is another turn, as a tensor, and its numbers. The stack is that before the test."""
        goes_on = self._goes_on(self.tx.stack.pop(), self.truth)
        for test, _ in self.tests:
            goes_on = self.tx.tr.graph.call(self.tx, "call_function", torch.logical_and, [test, goes_on])
        return goes_on, []

    # -- the rest

    def _expect_total(self, module: GraphModule, inputs: list[Any]) -> None:
        """Break where an operator behind the first test may raise: in eager execution it runs only if the loop goes on."""
        if not self.tests:
            return
        propagator = self.tx.tr.graph.propagator
        behind = BehindNode(module, self.tests[0][1])
        try:
            with propagator.mode, without_compiler, propagator.dispatcher():
                behind.run(*inputs)
        except Exception as error:
            let_through(error)
            unsupported(SLUG, "a loop that data end in several places, with a loop or branch inside")
        if behind.watch.partial:
            unsupported(
                SLUG, f"a loop that data end in several places, where {behind.watch.partial} may run only if it goes on"
            )

    def _carried(self, slot: int) -> Any:
        vt, name = self.locals[slot], self.tx.lifted.local_names[slot]
        if self.tx.lifted.is_cell[slot] or not (
            (is_number(vt) and has_numbers(self.tx))
            or (type(vt) in (TensorVariable, ChosenVariable) and vt.cls is torch.Tensor and not vt.proxy.is_fake)
        ):
            unsupported(SLUG, f"a loop that data end: variable {name!r} is neither a tensor nor a number")
        return vt

    def _fakes(self, items: list[Any]) -> list[Any]:
        assert self.tx.tr.graph.symbols  # the operator's own rules, which compilers ask, need them
        return [fakes_of(self.tx, [vt])[0] for vt in items]

    def _test(self, items: list[Any]) -> CapturedBody:
        body, args = body_with(self.tx, self._fakes(items))
        with body:
            result = self.tx.tr.graph.call(self.tx, "call_method", "clone", [args[0]])
        return CapturedBody(self.tx, body, TupleVariable([result]), with_ints=True)

    def _turn(self, items: list[Any], carried: list[Any]) -> CapturedBody:
        """The body: from behind the branch to the branch."""
        tx, changes = self.tx, dict[int, Change]()
        body, args = body_with(tx, self._fakes(items))
        body.branch, body.turn = (tx, self.place), self
        before = list(self.locals)
        for slot in self.stored:
            before[slot] = None
        contents = Contents(tx, [*self.locals, *self.stack])
        numbers: list[VariableTracker] = []

        def run() -> Any:
            given = [
                converted_item(tx, arg, vt.python_type()) if is_number(vt) else arg
                for vt, arg in zip(carried, args[1:], strict=True)
            ]
            before_it, numbers[:] = given[: len(self.slots)], given[len(self.slots) :]
            for slot, vt in zip(self.slots, before_it, strict=True):
                before[slot] = vt
            self.follow_turn(contents, changes, before, numbers)
            return None

        handled = tx.tr.thread.active_exception()
        followed(tx, run, [*self.locals, *self.stack], body)
        for change in changes.values():
            vt = change.vt
            unsupported(SLUG, f"a loop that data end changes {vt.python_type().__qualname__} {vt.describe()}")
        with body:
            goes_on, numbers = self.answer(numbers)
        if tx.tr.thread.active_exception() is not handled or not all(map(is_same, tx.stack, self.stack)):
            unsupported(SLUG, "a loop that data end changes what is on the stack")
        results = [*[tx.locals[slot] for slot in self.slots], *numbers]
        for slot, vt, old in zip(self.slots, results, carried, strict=False):
            is_like = is_number(vt) and vt.python_type() is old.python_type()
            if not (is_like if is_number(old) else isinstance(vt, TensorVariable)):
                name = tx.lifted.local_names[slot]
                unsupported(SLUG, f"a loop that data end: variable {name!r} becomes another kind of object")
        results = [goes_on, *[self._new(body, vt, args) for vt in results]]
        return CapturedBody(tx, body, TupleVariable(results), with_ints=True)

    def _new(self, body: Body, vt: Any, args: list[Any]) -> VariableTracker:
        """A result of the turn: a copy of what the turn got."""
        if is_number(vt):
            return scalar_in(self.tx, body, vt)
        if body.is_made_inside(vt.proxy) and vt not in args:
            return vt
        with body:
            return self.tx.tr.graph.call(self.tx, "call_method", "clone", [vt])


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device
