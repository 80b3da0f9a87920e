"""Loops over what is known that data end early, as branches within each other."""

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.exc import Unsupported
from dynamo_lite.record import log
from dynamo_lite.testing import differences

torch.manual_seed(0)
LAYERS = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)]).requires_grad_(False)
TABLE = {"a": 2.0, "b": 3.0, "c": 0.5}


def returns_a_number(x):
    for i in range(6):
        x = x * 0.7
        if x.abs().max() < 0.5:
            return x, i
    return x, -1


def early_exit(x):
    for layer in LAYERS:
        x = layer(x).relu()
        if x.max() > 0.5:
            return x
    return x - 1


def breaks_off(x):
    n = 0
    for n, layer in enumerate(LAYERS):
        x = layer(x)
        if x.max() < 0.4:
            break
    return x, n


def with_else(x):
    for scale in (0.5, 2.0, 4.0):
        x = x * scale
        if x.max() > 3:
            break
    else:
        x = x - 100
    return x


def pairs(x):
    total = x.sum()
    for (name, factor), bias in zip(TABLE.items(), [1.0, 2.0, 3.0], strict=False):
        total = total * factor + bias
        if total > 10:
            return total, x
        x = x + len(name)
    return total, x + 1


def nested(x):
    for row in x.view(2, 2):
        for v in row:
            if v > 1.5:
                return v * 10
    return x.sum()


def inner_break(x):
    found = torch.zeros(())
    for row in x.view(2, 2):
        for v in row.tolist():
            if v > 0.5:
                found = found + v
                break
    return found


def in_a_function(x):
    def first(rows):
        for r in rows:
            if r > 0:
                return r * 2
        return rows[0]

    return first([x[0] - 1, x[1], x[2]]) + x


def branch_in_a_turn(x):
    x = x + 0
    for s in (1.0, 2.0, 3.0):
        if x.sum() > 5:
            continue
        x = x * s + 1
        if x.max() > 3:
            break
    return x


def loop_in_a_side(x):
    for s in (1.0, 2.0):
        if x.sum() > 1:
            for t in (4.0, 5.0):
                if x.max() > t:
                    return x * t
        x = x + s
    return x


WHOLE = [
    returns_a_number,
    early_exit,
    breaks_off,
    with_else,
    pairs,
    nested,
    inner_break,
    in_a_function,
    branch_in_a_turn,
    loop_in_a_side,
]
INPUTS = [torch.ones(4), -torch.ones(4), torch.arange(4.0), torch.tensor([0.1, 2.0, -3.0, 0.6]), torch.zeros(4)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", WHOLE)
def test_loops_that_data_end_in_one_graph(function, backend):
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    for x in INPUTS:
        torch.testing.assert_close(compiled(x.clone()), function(x.clone()))


@pytest.mark.parametrize("function", [returns_a_number, early_exit, with_else, nested])
def test_inductor(function):
    compiled = dynamo_lite.compile(function, backend="inductor", fullgraph=True)
    for x in INPUTS:
        torch.testing.assert_close(compiled(x), function(x))


def test_gradients():
    def step(x):
        for scale in (0.5, 2.0, 4.0):
            x = (x * scale).sin()
            if x.max() > 0.9:
                return x
        return x * 3

    compiled = dynamo_lite.compile(step, backend="aot_eager", fullgraph=True)
    for x in INPUTS:
        mine, theirs = (x.clone().requires_grad_() for _ in range(2))
        compiled(mine).sum().backward()
        step(theirs).sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)


class LeavesEarly(torch.nn.Module):
    """As models that spend more layers on what is hard."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.head = torch.nn.Linear(4, 1)
        self.threshold = 0.0

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
            if x.mean() > self.threshold:
                break
        return self.head(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_layers_that_do_not_run_have_no_gradients(backend):
    model, x = LeavesEarly(), torch.arange(12.0).reshape(3, 4).sin()
    compiled = dynamo_lite.compile(model, backend=backend, fullgraph=True)
    ran = []
    for threshold in (-1.0, 0.1, 0.15, 2.0):
        model.threshold = threshold
        found = []
        for call in (compiled, model):
            model.zero_grad(set_to_none=True)
            result = call(x)
            result.sum().backward()
            found.append((result, [None if p.grad is None else p.grad.clone() for p in model.parameters()]))
        assert not list(differences(*found))
        ran.append(sum(layer.weight.grad is not None for layer in model.layers))
    assert ran[0] == 1 and ran[-1] == 3
    graph = log.snapshot()[0].graphs[0]
    expected = (
        {} if backend == "eager" else {"AOTAutograd": ["a branch within a branch decides which tensors get gradients"]}
    )
    assert graph.notes == expected


def goes_on_behind(x):
    items = iter([1.0, 2.0, 3.0])
    for v in items:
        if x.sum() > v:
            break
    return x + sum(items)


def too_many_turns(x):
    for layer in list(LAYERS) * 10:
        x = layer(x)
        if x.max() > 1000:
            return x
    return x - 1


def too_many_sides(x):
    for s in [1.0] * 12:
        if x.sum() > 5:
            continue
        x = x * s + 1
        if x.max() > 1000:
            break
    return x


def generated(x):
    for v in (n * 2 for n in (1, 2, 3)):
        if x.sum() > v:
            return x + v
    return x


@pytest.mark.parametrize("function", [goes_on_behind, too_many_turns, too_many_sides, generated])
def test_loops_that_break(function):
    compiled = dynamo_lite.compile(function, backend="eager")
    for x in INPUTS:
        torch.testing.assert_close(compiled(x), function(x))
    with pytest.raises(Unsupported):
        dynamo_lite.compile(function, backend="eager", fullgraph=True)(INPUTS[0])
