"""Liveness."""

from dynamo_lite.isa import Op, lift
from dynamo_lite.isa.flow import live_cells, live_slots


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

    assert names(f, 2, live_cells) == {"a"}
    assert names(f, 4, live_cells) == set()
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
