"""Sides within sides that leave tensors from before: the very objects of eager execution, in one graph."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.exc import Unsupported


def chain(x, y):
    if x.sum() > 100:
        return x + 1
    elif x.sum() > 3:
        return x - 1
    return x


def either_input(x, y):
    if x.sum() > 5:
        if y.sum() > 5:
            return x
        return y
    if y.sum() > 5:
        return y * 2
    return x


def one_of_three(x, y):
    if x.sum() > 5:
        z = x if y.sum() > 5 else (y if y.sum() > 2 else x * 3)
    else:
        z = y if x.sum() > 1 else x + y
    return z, z + 1


def three_levels(x, y):
    z = x
    if x.sum() > 5:
        if y.sum() > 5:
            z = x * 2
            if y.max() > 3:
                z = y
    return z


def in_turns(x, y):
    for _ in range(4):
        if x.sum() > 5:
            if y.sum() > 3:
                y = x
            else:
                x = y * 2
    return x, y


def dict_item(x, y):
    table = {"a": x}
    if x.sum() > 5:
        if y.sum() > 5:
            table["a"] = y
    return table["a"], table


def sides_that_cost(x, y):
    if x.sum() > 5:
        if y.sum() > 5:
            z = x.outer(y).cumsum(0).sum(0)
        else:
            z = x
    else:
        z = y
    return z


PROGRAMS = [chain, either_input, one_of_three, three_levels, in_turns, dict_item, sides_that_cost]


def outcome(fn, x, y, requires_grad):
    inputs = [torch.full((3,), n, requires_grad=requires_grad) for n in (x, y)]
    results = fn(*inputs)
    tensors = [t for t in (results if isinstance(results, tuple) else (results,)) if isinstance(t, torch.Tensor)]
    which = [next((i for i, given in enumerate(inputs) if t is given), None) for t in tensors]
    if requires_grad:
        sum(t.sum() for t in tensors).backward()
    gradients = [None if t.grad is None else t.grad.tolist() for t in inputs]
    return which, [t.tolist() for t in tensors], gradients


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_the_object_is_that_of_eager_execution(fn, backend, requires_grad):
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for x in (0.1, 1.0, 2.0, 50.0):
        for y in (0.1, 1.0, 4.0):
            assert outcome(compiled, x, y, requires_grad) == outcome(fn, x, y, requires_grad)


def test_a_write_behind_is_refused():
    """Which of the two is written is not known."""

    def written(x, y):
        z = x
        if x.sum() > 5:
            if y.sum() > 5:
                z = y
        z += 1
        return z

    compiled = dynamo_lite.compile(written, backend="eager", fullgraph=True)
    with pytest.raises(Unsupported, match="one of two tensors"):
        compiled(torch.ones(3), torch.ones(3))
