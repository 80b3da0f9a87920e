"""Liveness."""

import pytest

from dynamo_lite.isa import Op, lift
from dynamo_lite.isa.flow import begins_in_loop, innermost_loop, is_in_loop, leads_to_loop, live_slots
from dynamo_lite.isa.resume import resume_code


def names(function, line, kind=live_slots):
    """Live names before the first instruction of a line (relative to the def)."""
    lifted = lift(function.__code__)
    first = function.__code__.co_firstlineno
    index = next(i for i, instr in enumerate(lifted.instrs) if instr.lineno == first + line)
    return {lifted.local_names[slot] for slot in kind(lifted, index)}


def test_straight():
    def f(a, b):
        c = a
        d = c + 1
        return d

    assert names(f, 1) == {"a"}
    assert names(f, 2) == {"c"}
    assert names(f, 3) == {"d"}


def test_loop_and_branch():
    def f(n, x, y):
        for i in range(n):
            if i:
                x = x + y
        return x

    assert names(f, 1) == {"n", "x", "y"}
    assert names(f, 3) == {"x", "y"}
    assert names(f, 4) == {"x"}


def test_handler_edges():
    def f(a, b):
        try:
            return g(a)  # noqa: F821
        except ValueError:
            return b

    assert names(f, 2) == {"a", "b"}
    assert names(f, 4) == {"b"}


def test_frame_readers():
    def f(a, b):
        print(a)
        return locals()

    assert names(f, 2) == {"a", "b"}


def test_cells():
    def f(a):
        b = 1
        g = lambda: a  # noqa: E731
        a = 2
        return g, b

    assert names(f, 2) == {"b"}


def test_super_reads_the_first_argument():
    class A:
        def f(self, x):
            y = x
            return super().__init__, y

    assert "self" in names(A.f, 1)


def test_clear_is_a_read():
    def f(xs):
        x = 1
        return [x + 1 for x in xs], x

    lifted = lift(f.__code__)
    if any(instr.op is Op.LOAD_FAST_AND_CLEAR for instr in lifted.instrs):
        index = next(i for i, instr in enumerate(lifted.instrs) if instr.op is Op.LOAD_FAST_AND_CLEAR)
        assert lifted.slot_of("x") in live_slots(lifted, index)


def lines_where(function, condition):
    """The lines (relative to the def) with an instruction for which a condition holds."""
    lifted, first = lift(function.__code__), function.__code__.co_firstlineno
    return {instr.lineno - first for i, instr in enumerate(lifted.instrs) if instr.lineno and condition(lifted, i)}


def with_loops(n, x):
    x = x + 1
    for i in range(n):
        x = x * i
    while x:
        if n:
            return x
        x = x - 1
    return x


def test_loops():
    assert lines_where(with_loops, is_in_loop) == {2, 3, 4, 5, 7}
    assert lines_where(with_loops, leads_to_loop) >= {1, 2, 3, 4, 5, 7}
    assert not lines_where(with_loops, leads_to_loop) & {6, 8}


def resumed_after(line):
    """The resumed code behind the last binary operation of a line."""
    lifted = lift(with_loops.__code__)
    first = with_loops.__code__.co_firstlineno
    (offset,) = [i.offset for i in lifted.instrs if i.op is Op.BINARY and i.lineno == first + line]
    depth = 2 if line == 3 else 1  # the iterator
    return resume_code(with_loops.__code__, offset, depth, locals_passed=("n", "x"))


def test_resumed_code_that_begins_in_a_loop():
    assert not begins_in_loop(lift(resumed_after(1)))
    assert begins_in_loop(lift(resumed_after(3)))
    assert begins_in_loop(lift(resumed_after(7)))


def test_the_innermost_loop():
    def fn(n, lock):
        for i in range(n):
            with lock:
                n += i
                while n > i:
                    n -= 1
            n += 2
        return n

    lifted = lift(fn.__code__)
    first = fn.__code__.co_firstlineno

    def lines(offset):
        index = next(
            i for i, instr in enumerate(lifted.instrs) if instr.lineno == first + offset and instr.op is Op.BINARY
        )
        loop = [lifted.instrs[i] for i in innermost_loop(lifted, index)]
        return {instr.lineno - first for instr in loop if instr.op is Op.BINARY}

    assert lines(3) == {3, 5, 6} and lines(5) == {5} and lines(6) == {3, 5, 6}


@pytest.mark.parametrize(
    "source, expected",
    [
        ("def f(x):\n    x += 1\n    return x", False),
        ("def f(x):\n    x += 1\n    for _ in x:\n        x += 1\n    return x", False),
        ("def f(x):\n    while True:\n        x += 1", True),
        ("def f(x):\n    if x:\n        while True:\n            x += 1", False),
    ],
)
def test_code_that_begins_in_a_loop(source, expected):
    scope = {}
    exec(source, scope)
    assert begins_in_loop(lift(scope["f"].__code__)) is expected
