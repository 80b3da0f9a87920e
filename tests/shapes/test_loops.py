"""Loops that break in each turn, over data."""

import torch

import dynamo_lite
from dynamo_lite.record import log
from tests.helpers.counting import graphs_per_call

BREAKS_AT_DATA = dynamo_lite.config.patch(capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False)


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


@BREAKS_AT_DATA
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


@BREAKS_AT_DATA
def test_turns_of_a_loop_that_go_on_with_a_list_have_one_version():
    calls = [
        (torch.ones(3), [torch.arange(n) for n in sizes]) for sizes in ([3, 4, 5], [6, 7, 8], [2, 9, 5], [5, 5, 5])
    ]
    found, said = of_loop(lengths, calls)
    assert found == [2, 0, 0, 0]
    assert said == {GIVEN}


def rows_of_groups(x, groups):
    total = torch.zeros(2)
    for group in range(3):
        (rows,) = torch.where(groups == group)
        total = total + x[rows].sin().sum(0)
    return total


@BREAKS_AT_DATA
def test_turns_of_a_loop_that_go_on_with_zero_or_one_row_are_no_versions():
    calls = [
        (torch.randn(6, 2), torch.tensor(groups))
        for groups in ([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1], [2, 2, 2, 2, 2, 1], [0, 1, 2, 2, 2, 2])
    ]
    found, said = of_loop(rows_of_groups, calls)
    assert found[2:] == [0, 0]
    assert said == {GIVEN}


def test_a_size_that_is_a_constant_before_a_loop_that_breaks():
    found, said = of_loop(scaled, [(torch.ones(n),) for n in range(3, 12)])
    assert found == [2, 2] + [0] * 7
    assert said == {
        "runs eagerly where no version fits: it breaks in a loop, and x.size(0), which the program makes a constant, differs from turn "
        "to turn"
    }


@BREAKS_AT_DATA
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

    calls = [(torch.arange(n, n + 4).float(),) for n in range(3, 9)]
    with BREAKS_AT_DATA:
        found, said = of_loop(f, calls)
    assert found == [4, 1, 0, 0, 0, 0]
    assert said == set()
    assert of_loop(f, calls) == ([1, 0, 0, 0, 0, 0], set())


def test_rows_of_groups_in_a_loop_are_in_one_graph():
    calls = [(torch.ones(6, 2), torch.tensor(groups)) for groups in ([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1], [2] * 6)]
    assert of_loop(rows_of_groups, calls) == ([1, 0, 0], set())


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


def broken(make, counts, expected):
    """A loop that breaks in each turn, with turns of the numbers that `make(n)` gives."""

    def f(x, n):
        for i in make(n):
            x = x * 2 + i
            dynamo_lite.graph_break()
        return x - 1

    assert graphs_per_call(f, [(torch.ones(3), n) for n in counts]) == expected


def test_loops_over_ranges_that_vary_have_the_same_versions_whatever_their_length():
    broken(range, [2, 3, 4, 7, 20, 1, 5], [3, 2, 0, 0, 0, 0, 0])
    broken(lambda n: range(n, n + 3), [5, 6, 9, 40, 2], [4, 1, 0, 0, 0])
    broken(lambda n: range(n, 0, -2), [5, 6, 9, 40, 2], [4, 1, 0, 0, 0])
    broken(lambda n: enumerate_of(range(n)), [2, 3, 4, 7, 20, 1, 5], [3, 2, 0, 0, 0, 0, 0])


def enumerate_of(numbers):
    return (i + number for i, number in enumerate(numbers, 1))


def test_a_loop_over_no_turn():
    broken(range, [2, 3, 0, 5, 0], [3, 2, 1, 0, 0])


def test_a_range_iterator_that_a_break_restores():
    def f(x, n):
        turns = iter(range(n, n + 4))
        first = next(turns)
        dynamo_lite.graph_break()
        return [x * first + i for i in turns], list(turns)

    def results(x, n):
        made, rest = f(x, n)
        return torch.stack(made) + len(rest)

    assert graphs_per_call(results, [(torch.ones(3), n) for n in range(2, 9)])[3:] == [0] * 4


def test_ranges_as_arguments():
    def f(x, r):
        return x * r.start + r.stop if 7 in r else x + r.step

    calls = [(torch.ones(3), range(n, 2 * n)) for n in range(2, 9)]
    for args in calls:
        assert torch.equal(dynamo_lite.compile(f, backend="eager")(*args), f(*args))
    assert graphs_per_call(lambda x, r: x * r.start + r.stop, calls) == [1, 1, 0, 0, 0, 0, 0]


def test_equal_ranges_with_other_ends():
    """`range(0, 3, 2) == range(0, 4, 2)`."""
    compiled = dynamo_lite.compile(lambda x, r: x * r.stop, backend="eager")
    for stop in (3, 4, 3):
        assert torch.equal(compiled(torch.ones(2), range(0, stop, 2)), torch.full((2,), float(stop)))


def test_the_count_of_an_enumerate_that_a_break_restores():
    def f(x, start, names):
        pairs = enumerate(names, start)
        dynamo_lite.graph_break()
        for i, name in pairs:
            x = x * i + len(name)
        return x, i, next(pairs, None)

    def checked(x, start, names):
        x, i, rest = f(x, start, names)
        return x * i if rest is None else x

    assert graphs_per_call(checked, [(torch.ones(3), n, ["a", "bc"]) for n in range(2, 9)])[2:] == [0] * 5


def test_numbers_of_two_iterators_are_two_numbers():
    """Whose paths differ in nothing but the place in the iterator that goes through both."""

    def f(x, a, b):
        pairs = zip(a, b)
        dynamo_lite.graph_break()
        for i, j in pairs:
            x = x * i + j
        return x

    ints = [(torch.ones(3), [n, 2], [4, n + 5]) for n in range(2, 8)]
    assert graphs_per_call(f, ints) == [1, 1, 0, 0, 0, 0]
    floats = [(torch.ones(3), [n / 3, 2.5], [4.5, n / 7]) for n in range(2, 8)]
    assert graphs_per_call(f, floats) == [1, 1, 0, 0, 0, 0]
