"""What is there at one call, and is merely asked for or passed on, need not be there at the next."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter


def asks(x, o):
    return x + 1, hasattr(o, "extra")


def passes_on(x, o):
    return x + 1, getattr(o, "extra", None)


def tries(x, o):
    try:
        o.extra
    except AttributeError:
        return x + 1, "none"
    return x + 1, "there"


MAKERS = {
    "tensor": lambda: torch.ones(2),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "module": lambda: torch.nn.Linear(2, 2),
}
EXTRAS = {
    "list": lambda: [1],
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "module": lambda: torch.nn.Linear(2, 2),
}


@pytest.mark.parametrize("observe", [asks, passes_on, tries])
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("kind", MAKERS)
def test_an_attribute_that_goes(kind, extra, observe):
    owner, value, x = MAKERS[kind](), EXTRAS[extra](), torch.ones(2)
    counter = CompileCounter()
    compiled = dynamo_lite.compile(observe, backend=counter, fullgraph=True)
    owner.extra = value
    there = observe(x, owner)[1]
    assert compiled(x, owner)[1] is there
    del owner.extra
    gone = observe(x, owner)[1]
    assert compiled(x, owner)[1] is gone is not there
    owner.extra = value
    assert compiled(x, owner)[1] is there
    assert counter.frame_count == 2


def test_a_default_of_a_keyword_argument_that_goes():
    def g(*, a=5):
        return [a]

    def f(x):
        try:
            return x + 1, g()
        except TypeError:
            return x + 1, "none"

    compiled = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    x = torch.ones(2)
    assert compiled(x)[1] == [5]
    g.__kwdefaults__ = {}
    assert compiled(x)[1] == "none"
    g.__kwdefaults__ = None
    assert compiled(x)[1] == "none"
    g.__kwdefaults__ = {"a": 6}
    assert compiled(x)[1] == [6]
