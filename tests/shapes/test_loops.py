"""Loops that break in each turn, over data."""

import torch

import dynamo_lite
from dynamo_lite.record import log

from .counting import graphs_per_call


def of_loop(f, calls):
    """How many graphs each call compiles; what is said of code that is not compiled again."""
    first = len(log.snapshot())
    found = graphs_per_call(f, calls)
    return found, {frame.skipped for frame in log.snapshot()[first:] if frame.skipped}


def lengths(x, rows):
    out = []
    for row in rows:
        items = row.tolist()
        out.append((x * len(items)).sum() + len([item for item in items if item]))
    return torch.stack(out)


def scaled(x):
    y = x * sum([1.0] * x.shape[0])
    for i in range(2):
        y = y + i
        dynamo_lite.graph_break()
    return y


GIVEN = "runs eagerly where no version fits: it breaks in a loop, and what it goes on with differs from turn to turn"


def test_turns_of_a_loop_that_go_on_with_a_text_have_one_version():
    def f(x, table):
        total = torch.zeros(())
        for i in range(x.shape[0]):
            key = f"e{x[i].item()}"
            total = total + table[key] * 2
        return total

    table = {f"e{i}": torch.tensor(float(i)) for i in range(9)}
    found, said = of_loop(
        f, [(torch.tensor(p), table) for p in ([0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 1, 2], [8, 1, 7])]
    )
    assert found == [3, 1, 0, 0, 0]
    assert said == {GIVEN}


def test_turns_of_a_loop_that_go_on_with_a_list_have_one_version():
    calls = [
        (torch.ones(3), [torch.arange(n) for n in sizes]) for sizes in ([3, 4, 5], [6, 7, 8], [2, 9, 5], [5, 5, 5])
    ]
    found, said = of_loop(lengths, calls)
    assert found == [2, 0, 0, 0]
    assert said == {GIVEN}


def test_turns_of_a_loop_that_go_on_with_zero_or_one_row_are_no_versions():
    def f(x, groups):
        total = torch.zeros(2)
        for group in range(3):
            (rows,) = torch.where(groups == group)
            total = total + x[rows].sin().sum(0)
        return total

    calls = [
        (torch.randn(6, 2), torch.tensor(groups))
        for groups in ([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1], [2, 2, 2, 2, 2, 1], [0, 1, 2, 2, 2, 2])
    ]
    found, said = of_loop(f, calls)
    assert found[2:] == [0, 0]
    assert said == {GIVEN}


def test_a_size_that_is_a_constant_before_a_loop_that_breaks():
    found, said = of_loop(scaled, [(torch.ones(n),) for n in range(3, 12)])
    assert found == [2, 2] + [0] * 7
    assert said == {
        "runs eagerly where no version fits: it breaks in a loop, and x.size(0), which the program makes a constant, differs from turn "
        "to turn"
    }


def test_the_same_in_a_function_that_is_called():
    """The frame that calls it is compiled once more, without it; it makes no constant of the size, which is the function's affair."""

    def f(x, rows):
        return lengths(x + 1, rows) * 2

    rows = [[torch.arange(n) for n in sizes] for sizes in ([3, 4, 5], [6, 7, 8], [2, 9, 5], [5, 5, 5], [2, 3, 11])]
    found, said = of_loop(f, [(torch.ones(3), each) for each in rows])
    assert found[2:] == [0, 0, 0]
    assert said == {GIVEN}

    def g(x):
        return (scaled(x.cos() + 1) * 2).sin()

    found, said = of_loop(g, [(torch.ones(n),) for n in range(3, 12)])
    assert found[2:] == [0] * 7
    assert len(said) == 1


def test_numbers_in_a_loop_that_breaks_are_symbols():
    def f(x):
        for _ in range(4):
            a, b = x.long()[:2].tolist()
            x = x * a + b
        return x

    found, said = of_loop(f, [(torch.arange(n, n + 4).float(),) for n in range(3, 9)])
    assert found == [4, 1, 0, 0, 0, 0]
    assert said == set()


def test_functions_in_a_loop_are_frames_of_their_own_from_the_first_change_on():
    """Each of the functions on the way to the break is compiled by itself in the call of the first change, and then no more."""

    def inner(x):
        x = x + 1
        dynamo_lite.graph_break()
        return x * 2

    def middle(x, y):
        return inner(x - 1) + y

    def layers(x, y):
        for _ in range(4):
            x = middle(x, y)
        return x

    def f(x, y):
        return layers(x + y, y).sum()

    found, said = of_loop(f, [(torch.randn(n, 2), torch.randn(n, 2)) for n in range(3, 12)])
    assert found[2:] == [0] * 7
    assert said == set()
