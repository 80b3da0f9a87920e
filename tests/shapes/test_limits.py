"""What becomes of the functions below one that has used up its recompile limit."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter

LIMIT = 3


@pytest.fixture(autouse=True)
def a_small_limit():
    with config.patch(recompile_limit=LIMIT):
        yield


class Beside(torch.nn.Module):
    """Takes any size."""

    def forward(self, x):
        return torch.relu(x) + x.shape[1]


class Constant(torch.nn.Module):
    """A loop over a size."""

    def forward(self, x):
        total = torch.zeros(())
        for i in range(x.shape[1]):
            total = total + x[:, i].sum() * i
        return x + total


class Decision(torch.nn.Module):
    """Four ways, by a size."""

    def forward(self, x):
        rest = x.shape[1] // 3 % 4
        if rest == 0:
            return x
        if rest == 1:
            return x + 1
        return x * 2 if rest == 2 else x * 3


class Wrapped(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.beside, self.inner = Beside(), inner

    def forward(self, x):
        return self.inner(self.beside(x))


def counts(model, sizes):
    """Graphs compiled by a call with each size; results are those of eager execution."""
    counter = CompileCounter()
    compiled = dynamo_lite.compile(model, backend=counter)
    found = []
    for size in sizes:
        x, before = torch.randn(2, size), counter.frame_count
        torch.testing.assert_close(compiled(x), model(x))
        found.append(counter.frame_count - before)
    return found


@pytest.mark.parametrize("inner, step", [(Constant(), 1), (Decision(), 3)])
def test_what_leads_to_the_line_runs_eagerly_and_the_rest_is_captured(inner, step):
    """However many wrappers there are; the part beside is compiled once more when its size changes."""
    model = Wrapped(Wrapped(Wrapped(inner)))
    assert counts(model, range(6, 6 + 10 * step, step)) == [1] * LIMIT + [1, 1] + [0] * (8 - LIMIT)
    graphs = [len(f.graphs) for f in log.snapshot() if f.code is Beside.forward.__code__]
    assert graphs == [1, 1]


def test_a_function_that_varies_by_itself_has_a_limit_of_its_own():
    """Its constants are other ones than those that the outer function gave up."""

    class Scaled(torch.nn.Module):
        def forward(self, x):
            return x * len(self.text)

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scaled, self.constant = Scaled(), Constant()

        def forward(self, x):
            return self.constant(self.scaled(x))

    model = Both()
    model.scaled.text = "a"
    counter = CompileCounter()
    compiled = dynamo_lite.compile(model, backend=counter)
    for size in range(4, 8):
        compiled(torch.ones(2, size))
    before = counter.frame_count
    for text in ("bb", "ccc", "dddd"):
        model.scaled.text = text
        x = torch.randn(2, 8)
        torch.testing.assert_close(compiled(x), model(x))
    assert counter.frame_count - before == LIMIT - 1


def test_nothing_is_compiled_below_sizes_that_take_too_much_reasoning():
    class Windows(torch.nn.Module):
        def forward(self, x):
            n = x.shape[1]
            for width in (2, 3, 5, 7):
                n = (n + (width - n % width) % width) // width
            return x.sum() if n > 1 else x

    with config.patch(symbolic_effort=4):
        found = counts(Wrapped(Windows()), range(300, 310))
    assert found == [1] * LIMIT + [0] * (10 - LIMIT)


def test_reset_forgets_what_was_given_up():
    model = Wrapped(Constant())
    assert sum(counts(model, range(4, 14))) > LIMIT
    dynamo_lite.reset()
    assert counts(model, range(4, 7)) == [1] * LIMIT


def of_loop(f, calls):
    """How many graphs each call compiles; what is said of code that is not compiled again."""
    counter, first = CompileCounter(), len(log.snapshot())
    compiled = dynamo_lite.compile(f, backend=counter)
    found = []
    for args in calls:
        before = counter.frame_count
        torch.testing.assert_close(compiled(*args), f(*args))
        found.append(counter.frame_count - before)
    return found, {frame.skipped for frame in log.snapshot()[first:] if frame.skipped}


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
    def f(x, rows):
        out = []
        for row in rows:
            items = row.tolist()
            out.append((x * len(items)).sum() + len([item for item in items if item]))
        return torch.stack(out)

    calls = [
        (torch.ones(3), [torch.arange(n) for n in lengths]) for lengths in ([3, 4, 5], [6, 7, 8], [2, 9, 5], [5, 5, 5])
    ]
    found, said = of_loop(f, calls)
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
    def f(x):
        y = x * sum([1.0] * x.shape[0])
        for i in range(2):
            y = y + i
            dynamo_lite.graph_break()
        return y

    found, said = of_loop(f, [(torch.ones(n),) for n in range(3, 12)])
    assert found == [2, 2] + [0] * 7
    assert said == {
        "runs eagerly where no version fits: it breaks in a loop, and x.size(0), which the program makes a constant, differs from turn "
        "to turn"
    }


def test_the_same_in_a_function_that_is_called():
    """The frame that calls it is compiled once more, without it; it makes no constant of the size, which is the function's affair."""

    def lengths(x, rows):
        out = []
        for row in rows:
            items = row.tolist()
            out.append((x * len(items)).sum() + len([item for item in items if item]))
        return torch.stack(out)

    def f(x, rows):
        return lengths(x + 1, rows) * 2

    rows = [[torch.arange(n) for n in sizes] for sizes in ([3, 4, 5], [6, 7, 8], [2, 9, 5], [5, 5, 5], [2, 3, 11])]
    found, said = of_loop(f, [(torch.ones(3), each) for each in rows])
    assert found[2:] == [0, 0, 0]
    assert said == {GIVEN}

    def scaled(x):
        y = x * sum([1.0] * x.shape[0])
        for i in range(2):
            y = y + i
            dynamo_lite.graph_break()
        return y

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
