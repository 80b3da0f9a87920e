"""Branches on tensor data whose sides both go on: `if t:`, `a if t else b`, `t and a`.

Input: a frame whose current instruction asks a tensor for its truth, for the branch behind it. Output: `BothSidesFollowed`, with the
frame at the instruction where the sides meet, or with the value that it returns; nothing where the graph has to break.
Invariant: each side is followed as the body of a `torch.cond`, from the same variables and contents of objects. What the sides change from
outside is put together where they meet, or the graph breaks (`contents`, `written`). There a variable has the same object of both, or a
result of the node: tensors of the same shape, strides, dtype, device and need for gradients. A side may leave a tensor that existed
before: the graph computes with a copy, the frame has the very object (`extremes.ChosenVariable`). The sides may give gradients to different
tensors where the backend leaves those of the side that is not taken undefined (`backends.undefined_gradients`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node
from torch.utils._pytree import SUPPORTED_NODES

from dynamo_lite.backends.aot import FUSES_BRANCHES
from dynamo_lite.backends.branch import branch
from dynamo_lite.backends.undefined_gradients import UNDEFINED, edge_of, reached
from dynamo_lite.config import config
from dynamo_lite.exc import FollowToReturn, Restart, Unsupported, unsupported
from dynamo_lite.graph.bodies import Body
from dynamo_lite.graph.core.arguments import MODELS
from dynamo_lite.graph.core.autograd import INSIDE, UNEVEN, has_uneven_branches
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.graph.core.storages import origin
from dynamo_lite.graph.core.values import SymValue, TensorValue
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.flow import innermost_loop, live_slots, meeting_point
from dynamo_lite.messages import short_path
from dynamo_lite.signals import let_through
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.sequence import SequenceVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.protocol.base import BothSidesFollowed, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable

from ..body import CapturedBody, Outside, followed, is_same, structure
from ..higher_order.control_flow import Branches
from ..symnode import QUOTIENTS, SymNodeVariable, is_unbacked, scalar_tensor
from ..tensor import TensorVariable, converted_item, has_numbers
from .contents import Change, Contents
from .extremes import ChosenVariable, ExtremeChoice, InnerChoice, chosen_objects, is_chosen
from .for_loops import ForLoop, head_of_for
from .joins import Joins, NewObject, ResultPlace, is_number, parts_of, scalar_in
from .loops import DataLoop, side_that_returns
from .total import Total, why_partial
from .unrolled import MOST_TURNS, can_be_one_node, mappings_of, stack_of_turn
from .written import WrittenTensor, changed_copy, expect_of_mode, without_gains, write_back, written_by

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

SLUG = "data-dependent-branch"


def follow_both(tx: Frame, make_flag: Callable[[], Any]) -> None:
    """Make both sides part of the graph, if the current instruction asks for a branch; `make_flag` makes its condition as a tensor. Raises
    `BothSidesFollowed`, or `Unsupported` with the reason why that can't be."""
    instrs, cur = tx.lifted.instrs, tx.cur
    is_branch = instrs[cur].op is Op.TO_BOOL and instrs[cur + 1].op is Op.JUMP_IF
    if not is_branch or not are_wanted(tx):
        return
    flag = make_flag()
    if flag.cls is not torch.Tensor or flag.proxy.is_fake or not (flag.proxy.meta.live or flag.proxy.meta.numel() == 1):
        return
    thread, scope = tx.tr.thread, tx.tr.graph.scope
    step, stack = thread.failing_step(), thread.user_stack()
    try:
        is_in_turn = scope is not None and scope.turn is not None and scope.turn.tx is tx  # not in what the turn calls
        if is_in_turn and scope.turn.add_test(tx, flag):
            raise BothSidesFollowed(None)
        truth = side_that_returns(tx)
        unrolled = _Unrolled.of(tx, flag) if may_repeat_code(tx) and not can_be_one_node(tx, truth) else None
        fork = unrolled or (_Fork(tx, flag) if truth is None else None)
        result = _behind_loop(tx, flag, truth) if fork is None else fork.join()
    except Unsupported as error:
        if tx.tr.graph.scope is None:
            error.context = f"{flag.describe()}; the sides are not captured: {error.context}"
        error.slug, error.break_step, error.user_stack = SLUG, step, stack
        raise
    raise BothSidesFollowed(result)


def are_wanted(tx: Frame) -> bool:
    """Whether branches are to be in the graph: by the setting, or where the graph may not break, or where that is no slower."""
    wanted = config.capture_branches
    if wanted is None:
        wanted = tx.tr.breaks_raise or getattr(tx.tr.backend, FUSES_BRANCHES, False)
    if not wanted or tx.tr.facts.leaves_data or tx.tr.overrides is not None or tx.generator is not None:
        return False
    scope = tx.tr.graph.scope
    # `vmap` refuses a branch on data, and other operators run a body otherwise than once
    return scope is None or scope.is_in_branches_only


def may_repeat_code(tx: Frame) -> bool:
    """Whether the code behind a branch may be in the graph several times: where the program may not break, or wants its branches there. A
    break costs less than a large model in both sides."""
    return tx.tr.breaks_raise or bool(config.capture_branches)


class _Side(NamedTuple):
    """One side, followed: the frame's variables and stack where the sides meet, or what it returns; the objects that it has changed."""

    locals: list[Any]
    stack: list[Any]
    result: VariableTracker | None
    changes: dict[int, Change]


class _Fork:
    """A branch. `end`: the instruction where its sides meet, or one behind the last if they return; `pairs`: the objects of both sides
    that differ there; `outside`: which of them are tensors that existed before; `written`: the tensors that the sides change in place;
    `changed`: the objects that they change, as they are to be where the sides meet."""

    most_nested = 1  # sides of this branch within each other

    def __init__(self, tx: Frame, flag: TensorVariable, end: int | None = None) -> None:
        self.tx, self.flag = tx, flag
        self.place, self.instruction = tx.cur, tx.instruction()
        self.jump = tx.lifted.instrs[tx.cur + 1]
        self.end = _meeting_point(tx) if end is None else end
        self.locals, self.stack = list(tx.locals), tx.stack[:-1]
        self.pairs: list[tuple[VariableTracker, VariableTracker]] = []
        self.outside: list[list[bool]] = []
        # Of each of the pairs: from which tensors from before the branch a side within a side has chosen; None if that is not known.
        self.chosen: list[list[TensorVariable] | None] = []
        self.joins = Joins(tx)
        self.bodies: tuple[Body, ...] = ()
        self.numbers: dict[tuple[Any, ...], VariableTracker] = {}
        self.written: list[WrittenTensor] = []
        self.gained: set[TensorValue] = set()
        # If the sides, or those of a branch in them, give gradients to different tensors: the mark of that.
        self.unevenness: str | None = None
        self.before: dict[int, TensorValue] = {}  # number of a result → the tensor that the second side leaves as it is
        self.adding: set[int] = set()  # those of them to which the first side adds something with gradients
        self.recorded: set[TensorValue] = set()  # those that take part in autograd without that
        self.contents = Contents(tx, [*self.locals, *self.stack])
        self.changed: list[tuple[Change, dict[Any, Any]]] = []

    def join(self) -> VariableTracker | None:
        """Follow both sides and put the frame where they meet: None; or the value that it returns."""
        try:
            followed_sides = [self._follow(truth) for truth in (True, False)]
            bodies, sides = zip(*followed_sides, strict=True)
            return self._joined(bodies, sides)
        except Unsupported as error:
            first = self.tx.tr.facts.followed_to_return.get(self.instruction)
            if first is not None:
                raise first from None
            if self.bodies:
                self._meet_later(error)
            raise

    def _meet_later(self, error: Unsupported) -> None:
        """Analyse again with the sides followed to the end of the function, if they may meet there."""
        lifted, scope = self.tx.lifted, self.tx.tr.graph.scope
        is_in_loop = len(innermost_loop(lifted, self.place)) > 1
        is_plain = type(self) is _Fork and scope is None and not is_in_loop
        if is_plain and self.end < len(lifted.instrs) and may_repeat_code(self.tx):
            error.break_step = None
            error.with_traceback(None)  # which leads to the inputs of this analysis
            error.__context__ = error.__cause__ = None
            raise Restart("the sides of a branch meet later", fact=FollowToReturn(self.instruction, error)) from None

    def _joined(self, bodies: tuple[Body, ...], sides: tuple[_Side, ...]) -> VariableTracker | None:
        tx = self.tx
        self.bodies = bodies
        entries = self._entries(sides)
        self.written = written_by(tx, bodies, self.gained)
        merged: list[VariableTracker] = []
        if self.pairs or self.written:
            branches = Branches(tx, self.flag, self._captured(bodies), [written.value for written in self.written])
            self._expect_alike(branches)
            reason = self._why_cond(branches)
            self._tell(f"torch.cond ({reason})" if reason else "torch.where (small, and both sides can run)")
            if not reason:
                entries = self._entries([self._run(True), self._run(False)])
                merged = self._selected()
            else:
                made = branches.node(of_program=True)
                if self.unevenness is not None:
                    list(tx.tr.graph.graph.find_nodes(op="call_function", target=branch))[-1].meta[UNEVEN] = (
                        self.unevenness
                    )
                merged = self._written_back(list(made.items))
                self._note_gains(merged)
        elif any(why_partial(node) for body in bodies for node in body.graph.nodes) and self._why_computed():
            unsupported(SLUG, "the sides leave the same objects and compute something nevertheless")
        else:
            self._tell("torch.where (of numbers)" if self.numbers else "nothing (the sides leave the same)")
        tx.cur = self.place
        entries = self._with_objects(entries, merged)
        self._change_objects()
        if self.end == len(tx.lifted.instrs):
            return entries[0]
        n = len(self.locals)
        tx.locals, tx.stack[:], tx.ip = entries[:n], entries[n:], self.end
        return None

    def _why_cond(self, branches: Branches) -> str:
        """Why one side has to run alone; empty if both can."""
        if self.written:
            return "a side changes a tensor in place"
        if any(_divides_by_data(node) for body in self.bodies for node in body.graph.nodes):
            return "a side divides by a number that may be 0"
        if not all(isinstance(vt, TensorVariable) for pair in self.pairs for vt in pair):
            return "the sides leave numbers or objects"
        return _why_not_where(self.tx, branches)

    def _why_computed(self) -> str:
        """Why sides that leave the same objects have to run nevertheless; empty if they need not."""
        branches, watch = Branches(self.tx, self.flag, self._captured(self.bodies)), Total(reductions=True)
        return _run_watched(self.tx, branches, watch) or watch.partial

    def _tell(self, choice: str) -> None:
        tell(self.tx, self.place, choice)

    # -- the sides

    def _follow(self, truth: bool) -> tuple[Body, _Side]:
        """One side as the body of a node."""
        tx, budget, graph = self.tx, self.tx.tr.budget, self.tx.tr.graph
        graph.passes.sizes.sides += 1
        if graph.passes.sizes.sides > MOST_SIDES:
            unsupported(SLUG, f"more than {MOST_SIDES} sides of branches")
        body = graph.open_body()
        body.branch, body.most_nested = (tx, self.place), self.most_nested
        if graph.scope is not None:
            # Turns of a loop have all their branches again.
            body.most_nested = max(body.most_nested, graph.scope.most_nested)
            if graph.scope.sides_of(body.branch) >= body.most_nested:
                unsupported(SLUG, "a loop that data end")
        handled = tx.tr.thread.active_exception()
        break_step, budget.break_step = budget.break_step, -1
        try:
            _, side, _ = followed(tx, lambda: self._run(truth), [*self.locals, *self.stack], body)
        finally:
            budget.break_step = break_step
        self.gained |= without_gains(body)
        if tx.tr.thread.active_exception() is not handled:
            unsupported(SLUG, "a side handles an exception")
        return body, side

    def _run(self, truth: bool) -> _Side:
        """Interpret one side. Objects have their old contents again afterwards."""
        tx, changes = self.tx, dict[int, Change]()
        tx.locals, tx.stack[:] = list(self.locals), self._stack_of_side()
        tx.ip = self.jump.target if self.jump.arg is truth else self.place + 2
        with self.contents.put_back(changes):
            result = tx.run_to(self.end)
        if result is not None and self.end < len(tx.lifted.instrs):
            unsupported(SLUG, "a side that returns before the sides meet")
        return _Side(tx.locals, list(tx.stack), result, changes)

    def _stack_of_side(self) -> list[Any]:
        return self.stack

    def _expect_alike(self, branches: Branches) -> None:
        """Break where it can be told from a result, other than by its value, which side it comes from."""
        tx = self.tx
        self.before = dict(self._values_before())
        self.recorded = {value for value in self.before.values() if value.meta.requires_grad}
        for number, (one, other) in enumerate(zip(*branches.results, strict=True)):
            may_gain = number in self.before and self._may_gain(self.before[number])
            if isinstance(one, torch.Tensor) and _kind(one, may_gain) != _kind(other, may_gain):
                unsupported(
                    SLUG, "the sides leave tensors of other shape, strides, dtype, device or need for gradients"
                )
        expect_of_mode(one for results in branches.results for one in results)
        inputs = [v for v in branches.lifted if isinstance(v, TensorValue) and v.meta.requires_grad]
        if not tx.tr.state.records(bool(inputs)):
            return
        if any(body.is_random for body in self.bodies):
            unsupported(SLUG, "random numbers, which `torch.cond` draws once more for the gradient")
        try:
            ends = {edge_of(tx.tr.graph.propagator.fake_of(v)): v for v in inputs}
        except AssertionError:  # of torch
            unsupported(SLUG, "a view that was made where nothing is recorded")
        sides = [[reached(result, ends) for result in results] for results in branches.results]
        has_inner = any(has_uneven_branches(body.graph) for body in self.bodies)
        if sides[0] != sides[1] or has_inner:
            is_chosen = config.capture_branches or tx.tr.breaks_raise  # it costs a step more than a break
            if not is_chosen or not getattr(tx.tr.backend, UNDEFINED, False):
                unsupported(SLUG, "the sides give gradients to different tensors")
            self.unevenness = INSIDE if has_inner else UNEVEN
        self.adding = {number for number, value in self.before.items() if sides[0][number] - {value}}

    def _values_before(self) -> Iterator[tuple[int, TensorValue]]:
        """The results that are another value of a tensor that existed before, which the second side leaves as it is: their numbers, and the
        tensors."""
        for number, ((_, other), (_, is_outside)) in enumerate(zip(self.pairs, self.outside, strict=True)):
            if is_outside:
                yield number, other.proxy
        number = len(self.pairs)
        for written in self.written:
            if written.has_gradients:
                yield number, written.value
            number += 2 if written.is_counted else 1

    def _may_gain(self, value: TensorValue) -> bool:
        """Whether the first side only may make this tensor part of autograd."""
        return False

    def _note_gains(self, merged: Sequence[VariableTracker]) -> None:
        """The results are in the graph: those of `pairs` are these."""

    # -- where they meet

    def _entries(self, sides: Sequence[_Side]) -> list[Any]:
        """The variables and the stack where the sides meet, or the returned value, with places of `pairs` where the sides differ; a
        variable that is dead is unbound."""
        self.pairs, self.joins = [], Joins(self.tx)
        tx, (one, other) = self.tx, sides
        changes = [one.changes, other.changes]
        if self.end == len(tx.lifted.instrs):
            alive = self._alive_behind(sides)
            changes = [{key: change for key, change in side.items() if key in alive} for side in changes]
        self.changed = list(self.contents.joined(changes, self._entry))
        if self.end == len(tx.lifted.instrs):
            return [self._entry(one.result, other.result)]
        if len(one.stack) != len(other.stack):
            unsupported(SLUG, "the sides leave stacks of other depth")
        live = live_slots(tx.lifted, self.end)
        entries = []
        for slot, values in enumerate(zip(one.locals, other.locals, strict=True)):
            is_read = slot in live or tx.lifted.is_cell[slot] or is_same(*values)
            entries.append(self._entry(*values) if is_read else None)
        return entries + [self._entry(*values) for values in zip(one.stack, other.stack, strict=True)]

    def _alive_behind(self, sides: Sequence[_Side]) -> set[int]:
        """The ids of the objects that somebody may have when the frame has returned: its callers' variables, its arguments, results and
        cells lead to them, or a change of such an object does."""
        cells = [vt for vt in self.locals if isinstance(vt, CellVariable)]
        held: list[Any] = [*[side.result for side in sides], *cells, *self.tx.arguments]
        alive: set[int] = set()
        while True:
            behind = Outside(self.tx, held, of_callers=True)
            more = {key for key, change in self.contents.before.items() if behind.has(change.vt)} - alive
            if not more:
                return alive
            alive |= more
            left = [side.changes[key].items for side in sides for key in more if key in side.changes]
            held += [part for items in left for value in items.values() for part in parts_of(value)]

    def _entry(self, one: Any, other: Any) -> Any:
        if is_same(one, other):
            return one
        if not (isinstance(one, VariableTracker) and isinstance(other, VariableTracker)):
            unsupported(SLUG, "a variable is bound on one side only")
        if _are_numbers(one, other) and has_numbers(self.tx):
            if not any(_is_made_in(body, vt) for body in self.bodies for vt in (one, other)):
                return self._number(one, other)
            return ResultPlace(self._index_of(one, other), one.python_type())
        self._expect_new(one)
        self._expect_new(other)
        joined = self.joins.of(one, other, self._entry)
        if joined is not None:
            return joined
        return ResultPlace(self._index_of(one, other))

    def _index_of(self, one: VariableTracker, other: VariableTracker) -> int:
        if (one, other) not in self.pairs:
            self.pairs.append((one, other))
        return self.pairs.index((one, other))

    def _expect_new(self, vt: VariableTracker) -> None:
        """Break for a container that existed before: another one takes its place, with the same items."""
        if isinstance(vt, ConstantVariable | TensorVariable | SymNodeVariable) or not self.contents.outside.has(vt):
            return
        if isinstance(vt, SequenceVariable | DictVariable) or vt.python_type() in SUPPORTED_NODES:
            unsupported(SLUG, f"a side leaves a {vt.python_type().__qualname__} that existed before")

    def _number(self, one: Any, other: Any) -> VariableTracker:
        """One of two numbers, as a number of the graph."""
        key = (_key(one), _key(other))
        if key not in self.numbers:
            tx, values = self.tx, [scalar_tensor(self.tx, number) for number in (one, other)]
            chosen = tx.tr.graph.call(tx, "call_function", torch.where, [self._scalar_flag(), *values])
            self.numbers[key] = converted_item(tx, chosen, one.python_type())
        return self.numbers[key]

    def _scalar_flag(self) -> VariableTracker:
        if not self.flag.proxy.meta.ndim:
            return self.flag
        return self.tx.tr.graph.call(self.tx, "call_method", "reshape", [self.flag, TupleVariable([])])

    def _captured(self, bodies: Sequence[Body]) -> list[CapturedBody]:
        """The sides as bodies that return their objects of `pairs`: new tensors, copies of those that existed before."""
        tx = self.tx
        self.outside = [[_is_outside(*part) for part in zip(bodies, pair, strict=True)] for pair in self.pairs]
        self.chosen = [_chosen_inside(bodies, pair) for pair in self.pairs]
        captured = []
        for i, body in enumerate(bodies):
            values: list[VariableTracker] = [pair[i] for pair in self.pairs]
            for n, is_outside in enumerate(self.outside):
                if _are_numbers(*self.pairs[n]):
                    values[n] = scalar_in(tx, body, values[n])
                elif is_outside[i]:
                    with body:
                        values[n] = tx.tr.graph.call(tx, "call_method", "clone", [values[n]])
            for written in self.written:
                values += changed_copy(tx, body, written, i)
            for pair, chosen in zip(self.pairs, self.chosen, strict=True):
                values += [self._flag_in(body, pair[i], vt) for vt in chosen or ()]
            captured.append(CapturedBody(tx, body, TupleVariable(values), with_ints=True))
        forms = [structure(tx, c.result) for c in captured]
        if forms[0] != forms[1]:
            unsupported(SLUG, "the sides leave objects of other kinds")
        return captured

    def _flag_in(self, body: Body, vt: VariableTracker, chosen: TensorVariable) -> VariableTracker:
        """Whether a side leaves this tensor from before, as a result of the side: a float, since the gradient of `torch.cond` fails where
        a result is none."""
        with body:
            flag = is_chosen(self.tx, vt, chosen)
            if not isinstance(flag, ConstantVariable):
                return self.tx.tr.graph.call(self.tx, "call_method", "double", [flag])
        return scalar_in(self.tx, body, ConstantVariable(float(flag.value)))

    def _selected(self) -> list[VariableTracker]:
        """The results of `torch.where` for `pairs`, both sides of which are computed, and the flags of what they choose."""
        tx, flag = self.tx, self._scalar_flag()
        flags = [
            [is_chosen(tx, vt, one) for vt in pair]
            for pair, chosen in zip(self.pairs, self.chosen, strict=True)
            for one in chosen or ()
        ]
        return [tx.tr.graph.call(tx, "call_function", torch.where, [flag, *pair]) for pair in [*self.pairs, *flags]]

    def _written_back(self, made: list[VariableTracker]) -> list[VariableTracker]:
        """The merged values of `pairs`, once the tensors that sides have changed have theirs, and flags of what inner sides choose."""
        rest = made[len(self.pairs) :]
        for written in self.written:
            n = 2 if written.is_counted else 1
            write_back(self.tx, written, rest[:n])
            rest = rest[n:]
        return [*made[: len(self.pairs)], *rest]

    def _change_objects(self) -> None:
        """Give the objects that the sides have changed what they are to have."""
        for (vt, form, _), items in self.changed:
            self.tx.tr.effects.mutating(vt)
            form.write(self.tx, vt, items)

    def _with_objects(self, entries: list[Any], merged: list[VariableTracker]) -> list[Any]:
        """The entries with the merged values in the places of pairs: where a side leaves a tensor that somebody else has, the object is
        chosen when the graph has run."""
        tx = self.tx
        left = [None if type(entry) in (ResultPlace, NewObject) else entry for entry in entries]
        returns = self.end == len(tx.lifted.instrs)
        tx.locals, tx.stack[:] = [None] * len(self.locals) if returns else left, []
        held = [part for entry in [*entries, *[items for _, items in self.changed]] for part in parts_of(entry)]
        objects = Outside(tx, held).objects.values() if merged else ()
        known = {vt.proxy for vt, *_ in objects if isinstance(vt, TensorVariable)}
        flags = iter(merged[len(self.pairs) :])
        for i, made in enumerate(merged[: len(self.pairs)]):
            chosen = self.chosen[i]
            sides = list(zip(self.pairs[i], self.outside[i], strict=True))
            parts = [vt if is_outside else made for vt, is_outside in sides]
            if chosen is None and isinstance(made, TensorVariable):
                made.is_one_of_several = True  # a side within a side has chosen, by a flag that only it knows
                tx.tr.effects.provisos.append(InnerChoice(tx, made))
            elif chosen:
                for vt in chosen:
                    flag = tx.tr.graph.call(tx, "call_function", torch.ne, [next(flags), ConstantVariable(0)])
                    merged[i] = self._choice(made, flag, vt, merged[i])
            elif any(part is not made and _is_known(part, known) for part in parts):
                merged[i] = self._choice(made, self.flag, *parts)
        fill = self.joins.filled
        self.changed = [(part, {k: fill(v, merged) for k, v in items.items()}) for part, items in self.changed]
        return [fill(entry, merged) for entry in entries]

    def _choice(
        self, made: VariableTracker, flag: VariableTracker, one: VariableTracker, other: VariableTracker
    ) -> ChosenVariable:
        chosen = ChosenVariable(made, flag, one, other)
        self.tx.tr.effects.provisos.append(ExtremeChoice(self.tx, chosen, with_gradients=True))
        return chosen


def _meeting_point(tx: Frame) -> int:
    """Where the sides of the branch behind the current instruction meet, or are to meet, see `FollowToReturn`."""
    is_followed = tx.instruction() in tx.tr.facts.followed_to_return
    return len(tx.lifted.instrs) if is_followed else meeting_point(tx.lifted, tx.cur + 1)


class _Unrolled(_Fork):
    """A branch in a loop over what is known, of which one side leaves the loop; the other one goes on, to this branch again."""

    most_nested = MOST_TURNS

    @classmethod
    def of(cls, tx: Frame, flag: TensorVariable) -> _Unrolled | None:
        """The branch, if it is in such a loop."""
        is_there = stack_of_turn(tx.lifted, tx.cur, _meeting_point(tx), tx.locals, tx.stack[:-1]) is not None
        return cls(tx, flag) if is_there else None

    def _stack_of_side(self) -> list[Any]:
        return stack_of_turn(self.tx.lifted, self.place, self.end, self.locals, self.stack) or self.stack

    def _run(self, truth: bool) -> _Side:
        side = super()._run(truth)
        if any(id(mapping) in side.changes for mapping in mappings_of(self.stack)):
            unsupported(SLUG, "a turn of a loop over a dict that changes it")
        return side


class _Leaving(_Fork):
    """A branch in a loop, of which the side of this truth leaves the loop: it does nothing more before `end`."""

    def __init__(self, tx: Frame, flag: TensorVariable, truth: bool, end: int) -> None:
        super().__init__(tx, flag, end)
        self.truth = truth

    def _run(self, truth: bool) -> _Side:
        if truth is not self.truth:
            return super()._run(truth)
        return _Side(list(self.locals), list(self.stack), None, {})


class Gains:
    """The tensors that turns of a loop make part of autograd. `flags`: each, with the conditions of these turns; `earlier`: values that
    they had before a turn."""

    def __init__(self) -> None:
        self.flags: dict[TensorValue, list[TensorVariable]] = {}
        self.earlier: list[TensorValue] = []


class Turn(_Fork):
    """A turn of a loop that is taken if data say so. The loop asks for its next item, the iterator is on top of the stack. Behind the
    first turn that makes a tensor part of autograd the trace takes it for one: `gains` tells the loop, which has that checked."""

    def __init__(self, tx: Frame, flag: TensorVariable, make_item: Callable[[], VariableTracker], gains: Gains) -> None:
        super().__init__(tx, flag, tx.cur)
        self.stack, self.make_item, self.gains = list(tx.stack), make_item, gains

    def _run(self, truth: bool) -> _Side:
        tx, changes = self.tx, dict[int, Change]()
        tx.locals, tx.stack[:], tx.ip = list(self.locals), self.stack, self.end
        if truth:
            tx.stack.append(self.make_item())
            tx.ip += 1
            with self.contents.put_back(changes):
                if tx.run_to(self.end) is not None:
                    unsupported(SLUG, "a turn that returns")
        return _Side(tx.locals, list(tx.stack), None, changes)

    def _may_gain(self, value: TensorValue) -> bool:
        return not value.meta.requires_grad

    def _note_gains(self, merged: Sequence[VariableTracker]) -> None:
        for number, value in self.before.items():
            made = merged[number].proxy if number < len(merged) else value
            flags = self.gains.flags.pop(value, None)
            if flags is None and (value in self.recorded or number not in self.adding):
                continue
            self.gains.flags[made] = [*(flags or ()), *([self.flag] if number in self.adding else ())]
            if made is not value:
                self.gains.earlier.append(value)


def _leave(tx: Frame, flag: VariableTracker, truth: bool, head: int) -> None:
    assert isinstance(flag, TensorVariable)
    _Leaving(tx, flag, truth, head).join()


def _behind_loop(tx: Frame, flag: TensorVariable, truth: bool) -> None:
    """Make a loop part of the graph. What somebody else has of the tensors before it is what they are if there is no turn."""
    if head_of_for(tx) is None:
        loop = DataLoop(tx, flag, truth)
    else:
        loop = ForLoop(tx, flag, not truth, _leave)
        if not loop.has_turns:
            return
    chosen = []
    results = loop.capture()
    tell(tx, loop.place, "torch.while_loop")
    known = {vt.proxy for vt, *_ in Outside(tx, []).objects.values() if isinstance(vt, TensorVariable)}
    for before, made in results:
        if _is_known(before, known):
            chosen.append((made, ChosenVariable(made, loop.goes_on, made, before)))
            tx.tr.effects.provisos.append(ExtremeChoice(tx, chosen[-1][1], with_gradients=True))
    tx.locals = [next((new for old, new in chosen if old is vt), vt) for vt in tx.locals]


def _are_numbers(one: VariableTracker, other: VariableTracker) -> bool:
    """Whether both are of one kind of numbers, small enough for a tensor."""
    return is_number(one) and is_number(other) and one.python_type() is other.python_type()


def _is_made_in(body: Body, part: Any) -> bool:
    """Whether a number rests on something that a side has computed."""
    if isinstance(part, SymNodeVariable):
        return _is_made_in(body, part.proxy)
    if isinstance(part, Node):
        return part.graph is body.graph
    if isinstance(part, tuple | list):
        return any(_is_made_in(body, item) for item in part)
    if not isinstance(part, SymValue):
        return isinstance(part, TensorValue) and body.is_made_inside(part)
    return _is_made_in(body, part.node) or _is_made_in(body, part.origin)


def _key(number: Any) -> Any:
    return repr(number.value) if isinstance(number, ConstantVariable) else number


def _is_outside(body: Body, vt: VariableTracker) -> bool:
    """Whether this is a tensor that existed before the branch."""
    return isinstance(vt, TensorVariable) and not body.is_made_inside(vt.proxy)


def _chosen_inside(bodies: Sequence[Body], pair: Sequence[VariableTracker]) -> list[TensorVariable] | None:
    """If sides within the sides may leave tensors from before the branch in this place: these, and those that the sides leave themselves;
    None if they are not known. Else none."""
    parts = [chosen_objects(vt, partial(_is_outside, body)) for body, vt in zip(bodies, pair, strict=True)]
    if not any(part != [] and not _is_outside(*side) for part, *side in zip(parts, bodies, pair, strict=True)):
        return []
    return None if None in parts else list({vt.proxy: vt for part in parts for vt in part or ()}.values())


def _is_known(vt: TensorVariable, known: set[TensorValue]) -> bool:
    """Whether somebody has a tensor, or one in its memory: those that are `known`, and who gave the frame its inputs."""
    memory = origin(vt.proxy)
    return vt.is_one_of_several or memory.is_input or any(origin(v) is memory for v in known)


def _kind(tensor: torch.Tensor, may_gain: bool) -> tuple[Any, ...]:
    needs_grad = may_gain or (tensor.requires_grad and torch.is_grad_enabled())
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, needs_grad


# -- `torch.where` instead of `torch.cond`


def _divides_by_data(node: Node) -> bool:
    """Whether a node of a captured graph is the quotient of numbers of which data decide the second one."""
    if not isinstance(getattr(node.meta, "subject", None), SymValue) or node.target not in QUOTIENTS:
        return False
    divisor = node.args[1]
    return isinstance(divisor, Node) and is_unbacked(divisor.meta.subject.sym)


def _why_not_where(tx: Frame, branches: Branches) -> str:
    """Why it is not sound, or not cheaper, to compute both sides: a few elements, by operators that cannot raise, without gradients, which
    would be zero times whatever the other side has. Empty if it is."""
    results = [result for results in branches.results for result in results]
    if config.capture_branches == "cond":
        return "by config.capture_branches"
    if torch.is_grad_enabled() and any(result.requires_grad for result in results):
        return "gradients"
    fuses = getattr(tx.tr.backend, FUSES_BRANCHES, False)
    is_too_large = config.capture_branches != "where" and not all(_is_small(result) for result in results)
    if is_too_large and not fuses:
        return f"more than {SMALL} elements"
    watch = Total()
    reason = _run_watched(tx, branches, watch)
    if reason:
        return reason
    if is_too_large and watch.count > MANY:
        return f"more than {SMALL} elements and {MANY} operators"
    return watch.partial and f"{watch.partial} can raise, or is not elementwise"


def _run_watched(tx: Frame, branches: Branches, watch: Total) -> str:
    """Run both sides on fakes; why they can't be watched, or nothing."""
    propagator = tx.tr.graph.propagator
    inputs = list(map(propagator.argument_of, branches.lifted))
    try:
        with propagator.mode, watch, without_compiler, propagator.dispatcher():
            for module in branches.modules:
                module.forward(*inputs)
    except Exception as error:
        let_through(error)
        return "a loop or branch is inside"
    return ""


def tell(tx: Frame, index: int, choice: str) -> None:
    """Note for reports what has become of the branch at an instruction."""
    line = tx.lifted.instrs[index].pos[0] or tx.code.co_firstlineno
    tx.tr.graph.passes.sizes.branches.append(f"{short_path(tx.code.co_filename)}:{line}: {choice}")


MOST_SIDES = 512
"""Of the branches of one graph: where each turn of a loop has a branch, the next turn is in both sides."""

SMALL = 1 << 16
"""Elements of a result that both sides compute rather than one, where each operator goes through memory."""

MANY = 64
"""Operators of both sides that both are computed of, whatever the size, where a compiler makes one loop of them."""


def _is_small(tensor: torch.Tensor) -> bool:
    n = tensor.numel()
    return type(n) is int and n <= SMALL


MODELS.follow_both = follow_both
