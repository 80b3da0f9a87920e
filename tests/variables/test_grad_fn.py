"""`grad_fn` of tensors that the graph makes: it exists when the graph runs, and is not None."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log

WEIGHT = torch.ones(3, requires_grad=True)


def asks_for_none(x):
    y = x * WEIGHT
    if y.grad_fn is None or None is y.grad_fn or not y.grad_fn:
        return x
    assert x.grad_fn is None
    return y.sum()


def asks_for_the_class(x):
    y = x * WEIGHT
    return type(y.grad_fn).__name__, y + 1


def asks_for_the_name(x):
    y = x * WEIGHT
    return y.grad_fn.name(), y + 1


def asks_for_identity(x):
    y = x * WEIGHT
    return y.grad_fn is y.grad_fn, y.grad_fn is (y + 1).grad_fn, y + 1


def returns_it(x):
    y = x * WEIGHT
    return y.grad_fn.next_functions[0][0] is not None, y + 1


@pytest.mark.parametrize(
    "fn, breaks",
    [(asks_for_none, 0), (asks_for_the_class, 1), (asks_for_the_name, 1), (asks_for_identity, 1), (returns_it, 1)],
)
def test_as_in_eager_execution(fn, breaks):
    x = torch.arange(3.0)
    compiled = dynamo_lite.compile(fn, backend="eager")
    log.reset()
    assert str(compiled(x)) == str(fn(x)) == str(compiled(x))
    assert [b.slug for b in log.breaks()] == ["tensor-attribute"] * breaks
