"""Inputs that share memory, of which the graph changes one: compilers take them for different tensors."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same


def write_then_read(a, b):
    a.add_(1)
    return b * 2


def write_both(a, b):
    a.mul_(2)
    b.add_(1)
    return a.sum() + b.sum()


def relu_in_place(a, b):
    torch.nn.functional.relu(a, inplace=True)
    return b + 1


def through_data(a, b):
    a.data.sub_(1)
    return b * b


def through_detached(a, b):
    torch.detach(a.view(-1)[:2].detach()[1:]).add_(1)
    return b * b


def x():
    return torch.arange(6.0).reshape(2, 3) - 2


def view():
    a = x()
    return a, a[0]


def tail():
    a = x().view(-1)
    return a[:4], a[2:]


def other_rows():
    a = x()
    return a[0], a[1]


def alias():
    a = x()
    return a, a.detach()


def data():
    y = (x().requires_grad_() * 2).sin()
    return y.data, y


def apart():
    return x(), x()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [write_then_read, write_both, relu_in_place, through_data, through_detached])
@pytest.mark.parametrize("make", [view, tail, other_rows, alias, data, apart])
def test_changes_show_in_the_other(make, fn, backend):
    if make is data and fn is write_both:
        backend = "eager"  # AOTAutograd adds up a change of what has a history once more
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    for _ in range(2):
        mine, theirs = make(), make()
        assert same(fn(*mine), compiled(*theirs))
        assert same(mine, theirs)
    assert counter.frame_count == 1


@pytest.mark.parametrize("first", [apart, alias])
def test_whatever_the_first_call_was(first):
    """Nothing but the addresses differs: one version serves both."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = dynamo_lite.compile(write_then_read, backend=counter)
    for make in (first, alias, apart, alias):
        mine, theirs = make(), make()
        assert same(write_then_read(*mine), compiled(*theirs))
        assert same(mine, theirs)
    assert counter.frame_count == 1


def test_of_a_module():
    """Parameters and buffers keep their addresses, until somebody gives them other memory."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, a):
            self.seen.add_(a.detach())
            return (self.weight * a).sum() + self.seen.sum()

    def run(wrap):
        net, results = Net(), []
        call = wrap(net)
        for step in range(4):
            a = net.seen if step == 1 else torch.arange(3.0)
            if step == 3:
                net.seen.set_(net.weight.data.untyped_storage(), 0, (3,))
            results += [call(a).detach(), net.seen.clone(), net.weight.detach().clone()]
        return results

    assert same(run(lambda net: net), run(lambda net: dynamo_lite.compile(net, backend="aot_eager")))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_view_of_a_leaf_is_not_changed_in_place(backend):
    def fn(p):
        p[0].add_(1)
        return p.sum()

    p = torch.nn.Parameter(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="view of a leaf"):
        dynamo_lite.compile(fn, backend=backend)(p)
    assert same(p.detach(), torch.ones(2, 3))
