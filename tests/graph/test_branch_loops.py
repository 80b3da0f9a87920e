"""Loops that tensor data end: one node of `torch.while_loop`, with the results of eager execution; what became of branches, in reports."""

import functools

import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported
from tests.helpers import graph_counts


def condition_first(x):
    while x.sum() < 10:
        x = x + 5
    return x


def counts_turns(x):
    n, error = 0, x.abs().max()
    while error > 0.1:
        before = x
        x = x / 2
        error = (x - before).abs().max()
        n += 1
    return x, n, x * n


def ends_by_break(x):
    while True:
        x = x + 2
        if x.sum() > 8:
            break
    return x * 2


def branch_in_a_turn(x):
    y = x * 1
    while y.sum() < 20:
        if y[0] > 0:
            y = y + 1
        else:
            y = y + 3
    return y + x


def loop_in_a_loop(x):
    for i in range(3):
        while x.sum() < 3 * i:
            x = x + 1
    return x


def ends_in_the_midst(x):
    for i in range(3):
        while True:
            if x.sum() >= 3 * i:
                break
            x = x + 1
    return x


def with_else(x):
    while x.sum() < 10:
        x = x + 1
    else:
        x = x * 2
    return x


def draws(x):
    while x.sum() < 10:
        x = x + torch.rand(3) + 1
    return x


def counter_first(x):
    n = 0
    while n < 6 and x.sum() < 10:
        x = x + 1
        n += 1
    return x, n


def counter_second(x):
    n, error, y = 0, x.sum(), x * 1
    while error < 30 and n < 4:
        y = y + 2
        error = y.sum()
        n += 1
    return y, n, error


def two_conditions(x):
    while x.sum() < 10 and x.max() < 3:
        x = x + 1
    return x


def carries_floats_and_bools(x):
    scale, found = 1.0, False
    while x.sum() < 10:
        x, scale, found = x + scale, scale * 0.5 + 0.25, True
    return x * scale, scale, found


def range_that_ends_before(x):
    for i in range(20):
        x = x * 0.5
        if x.abs().max() < 0.1:
            break
    return x, i


def range_with_a_rest_of_the_turn(x):
    for i in range(20):
        y = x * 0.5 + 1
        if (y - x).abs().max() < 0.05:
            break
        x = y
    return x, i


def range_by_steps(x):
    n = 0
    for k in range(9, -1, -2):
        n += k
        x = x - 1
        if x.sum() < -8:
            break
    return x * k, n, k


def range_to_its_end(x):
    for i in range(3):
        x = x + i
        if x.sum() > 1e9:
            break
    return x, i


def range_of_one(x):
    for i in range(1):
        x = x + 1
        if x.sum() > 3:
            break
    return x, i


def range_with_a_branch(x):
    for _ in range(8):
        x = x + 2 if x.sum() > 4 else x + 1
        if x.sum() > 20:
            break
    return x


def range_in_a_range(x):
    for j in range(2):
        for i in range(6):
            x = x + 1
            if x.sum() > 9 * (j + 1):
                break
    return x, i


def doubled_or_more(x):
    return x * 2 if x.sum() > 5 else x + 1


def turn_that_calls_a_branch(x):
    while x.sum() < 50:
        x = doubled_or_more(x)
    return x


def turn_with_a_branch_in_a_comprehension(x):
    while x.sum() < 50:
        x = torch.stack([v * 2 if v > 1 else v + 1 for v in x])
    return x


def is_small(x):
    return True if x.sum() < 40 else False


def is_asked_in_a_call(x):
    while is_small(x):
        x = x + 1
    return x


def loop_in_itself(x):
    def grown(x, depth):
        while x.sum() < 50 and x.max() < 30:
            if depth:
                x = grown(x - 4, depth - 1)
            x = x + 3
        return x

    return grown(x + 1, 1)


def range_that_calls_a_branch(x):
    for _ in range(9):
        x = doubled_or_more(x)
        if x.sum() > 50:
            break
    return x


WHOLE = [f for f in list(globals().values()) if getattr(f, "__module__", "") == __name__]


def in_place(x):
    while x.sum() < 10:
        x += 5
    return x


def changes_a_list(x):
    found = []
    while x.sum() < 10:
        x = x + 5
        found.append(1)
    return x, found


def grows(x):
    while x.sum() < 10:
        x = torch.cat([x, x + 4])
    return x


def other_dtypes(x):
    while x.sum() < 10:
        x = (x + 4).double()
    return x


def returns_from_a_turn(x):
    while x.sum() < 10:
        x = x + 4
        if x.max() > 6:
            return x * 2
    return x


def second_test_by_index(x):
    n = 0
    while n < 3 and x[n] < 2:
        n += 1
    return x * n


def second_test_draws(x):
    n = 0
    while n < 3 and torch.rand(()) < 0.9:
        n += 1
    return x * n


def range_with_else(x):
    for _ in range(4):
        x = x + 1
        if x.sum() > 9:
            break
    else:
        x = x * 2
    return x


def range_with_a_list(x):
    found = []
    for _ in range(8):
        x = x + 1
        found.append(x)
        if x.sum() > 20:
            break
    return x, found


BREAKS = {
    in_place: "changes a tensor from outside",
    changes_a_list: "a loop that data end changes list",
    grows: "the shape, strides, dtype or device",
    other_dtypes: "tensors of other shape|the shape, strides, dtype or device",  # the first test may be a branch of its own
    returns_from_a_turn: "a loop that data end in several places",
    second_test_by_index: "aten.select.int may run only if it goes on",
    second_test_draws: "aten.rand.* may run only if it goes on|rand may run only if it goes on",
    range_with_a_list: "a loop that data end changes list",
}


def outcomes(fn):
    found = []
    for n in (1.0, -1.0, 7.0, -1.0):
        torch.manual_seed(0)
        x = torch.full((3,), n)
        result = fn(x)
        found.append((result, x, result is x, torch.rand(1)))
    return found


graphs_of = functools.partial(graph_counts.graphs_of, outcomes)


@pytest.mark.parametrize("fn", WHOLE)
def test_whole(fn):
    assert graphs_of(fn, "aot_eager", fullgraph=True) == 1


@pytest.mark.parametrize("fn", [counts_turns, counter_first, counter_second, range_with_a_rest_of_the_turn])
def test_inductor(fn):
    """Which has no ints in loops: the node carries tensors."""
    assert graphs_of(fn, "inductor", fullgraph=True) == 1


@pytest.mark.parametrize("fn", BREAKS)
def test_breaks(fn):
    with config.patch(capture_branches=True):
        assert graphs_of(fn, "eager") > 1
    with pytest.raises(Unsupported, match=BREAKS[fn]):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(torch.ones(3))


def test_gradients_break():
    with pytest.raises(Unsupported, match="a loop that data end with gradients"):
        dynamo_lite.compile(condition_first, backend="eager", fullgraph=True)(torch.ones(3, requires_grad=True))


def test_the_choices_are_told():
    def fn(x):
        if x.sum() > 0:
            x = x * 2
        if x.sum() > 5:
            x = x @ x
        n = 0
        if x.sum() > 0:
            n = 3
        while x.sum() > 9:
            x = x - 4
        return x * n

    with config.patch(capture_branches=True):
        told = str(dynamo_lite.explain(fn)(torch.ones(3, 3)))
    first = fn.__code__.co_firstlineno
    for line, choice in (
        (1, "torch.where (small, and both sides can run)"),
        (3, "torch.cond (aten.mm.default can raise, or is not elementwise)"),
        (6, "torch.where (of numbers)"),
        (8, "torch.while_loop"),
    ):
        assert f"test_branch_loops.py:{first + line}: {choice}" in told


# -- loops whose turn raises


def hashed(n, seen):
    h = 5381
    while n > 0:
        h = h * 33 + 7
        n = n - 1
    return h % 1000


def fibonacci(n, seen):
    a, b = 0, 1
    for i in range(200):
        if n <= i:
            break
        a, b = b, a + b
    return a


def caught(n, seen):
    k, r = 30, 0.0
    try:
        while n > 0:
            k, n = k - 1, n - 1
            r = r + 1 / k
    except ZeroDivisionError as error:
        seen.append(error.args)
    return r * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [hashed, fibonacci, caught])
def test_a_turn_that_raises(fn, backend, capfd):
    """What an int64 cannot hold, and the program's own error, start the function again; nothing is printed."""
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for turns in (5, 120, 20):
        seen, mine = [], []
        assert compiled(torch.tensor(turns), mine) == fn(torch.tensor(turns), seen)
        assert mine == seen
    assert "Traceback" not in capfd.readouterr().err


def test_a_turn_that_raises_behind_a_write():
    def fn(x, n):
        x.add_(1)
        return caught(n, [])

    x = torch.zeros(1)
    with pytest.raises(ZeroDivisionError) as info:
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(x, torch.tensor(50))
    assert "changed a tensor in place" in info.value.__notes__[0]
    assert x.item() == 1
