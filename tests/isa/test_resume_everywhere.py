"""Every place of every program: run the machine up to there, let a continuation run the rest, compare with the
original."""

import types

import pytest

from dynamo_lite.isa import Op
from dynamo_lite.isa.flow import live_slots
from dynamo_lite.isa.resume import resume_code
from tests.isa.machine import NULL, Lasti, Machine, Previous
from tests.isa.programs import PROGRAMS, load, outcome

CALLS = {Op.CALL, Op.CALL_FUNCTION_EX}


def start(name):
    space = load(name)
    return Machine(space["f"], space["f"].__defaults__ or ()), space


def advance(machine, steps):
    """Run that many original instructions; returns whether the last one went on with the next."""
    fell = True
    for _ in range(steps):
        fell = machine.step()
    return fell


def shape(stack, handled):
    """The arguments of resume_code that describe the stack, and the values to pass for it."""
    stack = list(stack)
    nulls = tuple(i for i, item in enumerate(stack) if item is NULL)
    saved = tuple(i for i, item in enumerate(stack) if isinstance(item, Previous))
    lasti = tuple((i, item.offset) for i, item in enumerate(stack) if isinstance(item, Lasti))
    special = {*nulls, *dict(lasti)}
    for i in reversed(saved):
        handled, stack[i] = stack[i].exception, handled
    return nulls, saved, lasti, [item for i, item in enumerate(stack) if i not in special]


def locals_of(machine, index, only_live):
    """Names and values of the slots to pass, and the closure."""
    lifted = machine.lifted
    live = live_slots(lifted, index)
    names, values, cells = [], [], []
    for slot, value in enumerate(machine.slots):
        if lifted.is_cell[slot]:
            if isinstance(value, types.CellType):
                cells.append((lifted.local_names[slot], value))
                continue
            cells.append((lifted.local_names[slot], types.CellType()))
        elif only_live and slot not in live:
            continue
        if value is not NULL:
            names.append(lifted.local_names[slot])
            values.append(value)
    by_name = dict(reversed(cells))
    order = machine.code.co_cellvars + machine.code.co_freevars
    return tuple(names), values, tuple(by_name[name] for name in order)


def build(machine, code, closure):
    return types.FunctionType(code, machine.globals, closure=closure)


def go_on(machine, fell, only_live):
    """A continuation from the machine's present state."""
    nulls, saved, lasti, values = shape(machine.stack, machine.handled)
    names, more, closure = locals_of(machine, machine.index, only_live)
    offset = machine.current.offset if fell else machine.lifted.instrs[machine.index].offset
    code = resume_code(
        machine.code, offset, len(machine.stack), nulls, names, after=fell, exc_entries=saved, lasti_entries=lasti
    )
    function = build(machine, code, closure)
    return lambda: function(*values, *more)


def raise_or_call(machine, function, args, kwargs, taken, mode):
    """A continuation that makes the machine's pending call itself."""
    below = machine.stack[: len(machine.stack) - taken]
    offset = machine.lifted.instrs[machine.index].offset
    names, more, closure = locals_of(machine, machine.index, False)
    if mode == "call":
        nulls, saved, lasti, values = shape(below, machine.handled)
        last = [lambda *args: machine.call(function, args, kwargs), list(args)]
        depth = len(below) + 1
    else:
        nulls, saved, lasti, values = shape(machine.stack, machine.handled)
        depth = len(machine.stack)
        try:
            machine.call(function, args, kwargs)
        except Exception as error:
            if machine.handled is not None and error.__context__ is None:
                error.__context__ = machine.handled
            last = [error]
        else:
            return None
    code = resume_code(machine.code, offset, depth, nulls, names, mode=mode, exc_entries=saved, lasti_entries=lasti)
    continuation = build(machine, code, closure)
    return lambda: continuation(*values, *more, *last)


def count_steps(name):
    machine, _ = start(name)
    steps = 0
    try:
        while not machine.done:
            machine.step()
            steps += 1
    except Exception:
        pass
    return steps


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("only_live", [True, False], ids=["live", "bound"])
def test_value(name, only_live):
    space = load(name)
    expected = outcome(space["f"], space)
    tried = 0
    for steps in places(name):
        machine, space = start(name)
        fell = advance(machine, steps)
        if machine.at_start() or machine.done or cleaning_up(machine):
            continue
        continuation = go_on(machine, fell, only_live)
        assert outcome(continuation, space) == expected, (steps, machine.current)
        tried += 1
    assert tried > 10


def cleaning_up(machine):
    """Inside the compiler's own `COPY 3; POP_EXCEPT; RERAISE 1` a saved exc_info lies on the stack twice or is
    stale."""
    if machine.lifted.instrs[machine.index].op is Op.RERAISE and machine.current.op is Op.POP_EXCEPT:
        return True
    saved = [id(item) for item in machine.stack if isinstance(item, Previous)]
    return len(saved) != len(set(saved))


def places(name, limit=150):
    count = count_steps(name)
    return range(1, count, max(1, count // limit))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("mode", ["call", "raise"])
def test_at_calls(name, mode):
    space = load(name)
    expected = outcome(space["f"], space)
    for steps in range(1, count_steps(name)):
        machine, space = start(name)
        advance(machine, steps)
        if machine.done or machine.lifted.instrs[machine.index].op not in CALLS:
            continue
        continuation = raise_or_call(machine, *machine.pending_call(), mode)
        if continuation is not None:
            assert outcome(continuation, space) == expected, (steps, machine.current)
