"""Graphs of Inductor that are called without the wrappers of AOTAutograd: which they are, and that nothing is missing."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.inductor import inductor, is_inductor_supported
from dynamo_lite.testing import same

pytestmark = pytest.mark.skipif(not is_inductor_supported(), reason="no C++ compiler")


class Direct:
    """The backend; `found`: for each graph, whether it is called directly."""

    def __init__(self):
        self.found = []

    def __call__(self, gm, inputs):
        compiled = inductor(gm, inputs)
        self.found.append(getattr(compiled, "__qualname__", "").startswith("_runner."))
        return compiled


def x():
    return torch.linspace(-1, 1, 6).reshape(2, 3)


WEIGHT = torch.linspace(-1, 1, 9).reshape(3, 3)

PROGRAMS = {
    "products": (lambda x: (x @ WEIGHT).relu() + 1, True),
    "several results": (lambda x: (x.sin(), x.sum(0)), True),
    "random numbers": (lambda x: x + torch.rand_like(x), True),
    "a view of the input": (lambda x: (x + 1, x.t()), False),
    "a view of a result": (lambda x: ((y := x.sin()), y.t()), True),  # it is made behind the graph
    "a changed input": (lambda x: x.add_(1).sin(), False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_which_are_called_directly(name):
    fn, is_direct = PROGRAMS[name]
    backend = Direct()
    with torch.no_grad():
        torch.manual_seed(0)
        expected = fn(x())
        compiled = dynamo_lite.compile(fn, backend=backend)
        for _ in range(2):
            torch.manual_seed(0)
            given = x()
            found = compiled(given)
            if name != "random numbers":  # Inductor has a generator of its own
                assert same(found, expected, tol=1e-6)
    assert backend.found == [is_direct]


def test_training_is_not():
    backend = Direct()
    compiled = dynamo_lite.compile(lambda x: (x @ WEIGHT).sum(), backend=backend)
    given = x().requires_grad_()
    compiled(given).backward()
    assert backend.found == [False] and same(given.grad, torch.ones(2, 3) @ WEIGHT.t(), tol=1e-6)


def test_sizes_that_vary():
    backend = Direct()
    compiled = dynamo_lite.compile(lambda x: (x * 2).cos(), backend=backend, dynamic=True)
    with torch.no_grad():
        for n in (3, 4, 5):
            result = compiled(torch.ones(n))
            assert same(result, torch.full((n,), 2.0).cos(), tol=1e-6) and not vars(result)
    assert len(backend.found) == 1


def test_without_gradients_to_record_the_grad_mode_is_off_inside_alone():
    compiled = dynamo_lite.compile(lambda x: x.sin() + 1, backend="inductor")
    for _ in range(2):
        result = compiled(x())
        assert torch.is_grad_enabled() and not result.requires_grad


def test_the_profiler_sees_the_graph():
    compiled = dynamo_lite.compile(lambda x: x.sin() + 1, backend="inductor")
    compiled(x())
    with torch.profiler.profile() as profiler:
        compiled(x())
    assert [e.name for e in profiler.events() if e.name.startswith("## Call CompiledFxGraph ")]


def test_under_torch_compile():
    compiled = dynamo_lite.compile(lambda x: x.sin() + 1, backend="inductor")
    expected = compiled(x())
    outer = torch.compile(lambda x: compiled(x) * 2, backend="eager")
    for _ in range(2):
        assert same(outer(x()), expected * 2, tol=1e-6)
    torch._dynamo.reset()
