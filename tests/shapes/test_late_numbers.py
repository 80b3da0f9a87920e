"""Metrics: floats that Python computes from items of tensors, in one graph with what the program does beside it."""

import math
import types

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log

WEIGHT = torch.linspace(-1, 1, 9).reshape(3, 3)


def batches():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 3, generator=generator) for _ in range(6)]


def steps(update, backend):
    """What the state of a meter and the results are after each step; the graphs and breaks of all versions."""
    state = types.SimpleNamespace(total=0.0, count=0, best=math.inf, worst=-math.inf, mean=0.0)

    def step(x):
        loss = (x @ WEIGHT).square().mean()
        update(state, loss.item(), x.shape[0])
        return loss * 2

    run = step if backend is None else dynamo_lite.compile(step, backend=backend)
    log.reset()
    found = [(run(x).item(), dict(vars(state))) for x in batches()]
    records = log.snapshot()
    return found, [len(record.graphs) for record in records], [b for record in records for b in record.breaks]


def add(state, loss, n):
    state.total += loss


def weigh(state, loss, n):
    state.total += loss * n
    state.count += n
    state.mean = state.total / state.count


def smooth(state, loss, n):
    state.mean = 0.9 * state.mean + (1 - 0.9) * loss


def record_extremes(state, loss, n):
    state.best = min(state.best, loss)
    state.worst = max(loss, state.worst)


def add_signs(state, loss, n):
    state.total = -abs(state.total - loss) / 3


METERS = [add, weigh, smooth, record_extremes, add_signs]


@pytest.mark.parametrize("update", METERS, ids=lambda update: update.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_meters(update, backend):
    found, graphs, breaks = steps(update, backend)
    assert found == steps(update, None)[0]
    # A number that the step itself changes varies from the first call on; an infinity is a constant there.
    assert graphs == ([1, 1] if update is record_extremes else [1]) and not breaks


def compare(state, loss, n):
    state.total += loss
    if state.total > 3:
        state.count += 1


def square(state, loss, n):
    state.total = (state.total + loss) ** 2


def use(state, loss, n):
    state.total += loss
    state.worst = (torch.ones(2) * state.total).sum().item()


def divide(state, loss, n):
    state.total = 1.0 / (state.total + loss)


@pytest.mark.parametrize("update", [compare, square, use, divide], ids=lambda update: update.__name__)
def test_what_needs_the_number_breaks(update):
    found, _, breaks = steps(update, "eager")
    assert found == steps(update, None)[0]
    assert {b.slug for b in breaks} == {"data-dependent-size"}


def test_infinities_and_nan():
    """What the algebra of sizes has no numbers for."""

    def step(x, total):
        item = x.sum().item()
        return x + 1, total + item, max(total, item), min(item, total)

    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    for value in (1.0, math.inf, -math.inf, math.nan):
        for total in (0.5, 1.5, math.inf, math.nan):
            got, expected = compiled(torch.full((2,), value), total), step(torch.full((2,), value), total)
            assert [repr(n) for n in got[1:]] == [repr(n) for n in expected[1:]]


def test_error_of_a_division():
    state = types.SimpleNamespace(total=0.0)

    def step(x, n):
        state.total = (state.total + x.sum().item()) / n
        return x + 1

    compiled = dynamo_lite.compile(step, backend="eager")
    for n in (2.0, 3.0, 4.0):
        compiled(torch.ones(2), n)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        compiled(torch.ones(2), 0.0)
    assert state.total == ((1 + 2) / 3 + 2) / 4


def test_a_break_behind_it():
    state = types.SimpleNamespace(total=0.25)

    def step(x):
        state.total += x.sum().item()
        twice = state.total * 2
        dynamo_lite.graph_break()
        return x + 1, twice

    compiled = dynamo_lite.compile(step, backend="eager")
    found = [compiled(torch.full((2,), float(i)))[1] for i in range(4)]
    assert found == [0.5, 4.5, 12.5, 24.5]
