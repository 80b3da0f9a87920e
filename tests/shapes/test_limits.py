"""What becomes of the functions below one that has used up its recompile limit, and what counts for it."""

import gc

import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter
from tests.helpers.capturing import new_region
from tests.helpers.counting import graphs_per_call

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
    return graphs_per_call(model, [(torch.randn(2, size),) for size in sizes])


@pytest.mark.parametrize("inner, step", [(Constant(), 1), (Decision(), 3)])
def test_what_leads_to_the_line_runs_eagerly_and_the_rest_is_captured(inner, step):
    """However many wrappers there are; the part beside is compiled once more when its size changes."""
    model = Wrapped(Wrapped(Wrapped(inner)))
    assert counts(model, range(6, 6 + 10 * step, step)) == [1] * LIMIT + [1, 1] + [0] * (8 - LIMIT)
    graphs = [
        len(f.graphs) for f in log.snapshot() if f.lineno == Beside.forward.__code__.co_firstlineno and not f.is_resume
    ]
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


def test_who_decides_by_a_text_runs_eagerly_and_what_it_calls_is_captured_once():
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.beside = Beside()

        def forward(self, x, name):
            return self.beside(x) * len(name)

    class Around(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.named = Named()

        def forward(self, x, name):
            return self.named(x, name)

    calls = [(torch.ones(2, 3), "n" * n) for n in range(1, 11)]
    assert graphs_per_call(Around(), calls) == [1] * LIMIT + [1] + [0] * (9 - LIMIT)


def test_an_attribute_that_is_set_from_outside_uses_up_one_limit():
    class Scaled(torch.nn.Module):
        scale = 1

        def forward(self, x):
            return x * self.scale

    model = Wrapped(Wrapped(Scaled()))
    counter = CompileCounter()
    compiled = dynamo_lite.compile(model, backend=counter)
    found = []
    for scale in range(2, 12):
        model.inner.inner.scale = scale
        x = torch.randn(2, 3)
        before = counter.frame_count
        torch.testing.assert_close(compiled(x), model(x))
        found.append(counter.frame_count - before)
    assert found == [1] * LIMIT + [1] + [0] * (9 - LIMIT)  # and the part beside


def test_entries_of_modules_that_are_gone_do_not_count():
    """Each module has a limit of its own, and those that come after it are none of its versions."""

    class Of(torch.nn.Module):
        def forward(self, x):
            return x * self.factor if self.cls.__name__ else x

    region = new_region()
    compiled = region.wrap(Of.forward)
    log.reset()
    for i in range(12):
        module = Of()
        module.cls, module.factor = type(f"Local{i}", (), {}), 2
        assert compiled(module, torch.ones(1)) == 2
        del module
        gc.collect()
    assert len(log.snapshot()) == 12
    assert all(len(gone) <= 1 for gone in region.limits.gone.values())
