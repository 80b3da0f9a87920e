"""Gradients that need what an input was before the graph wrote over it: `backends.rewrites.overwritten`."""

import pytest
import torch
from torch._functorch import config

import dynamo_lite
from dynamo_lite.testing import differences


def computed_from_it(a, q):
    y = a * q.sin()
    with torch.no_grad():
        q.add_(1)
    return y


def through_views(a, q):
    y = a * q[1:2].exp() + a * q.unbind(0)[0].sin()
    q.mul_(0.5)
    return y


def a_copy_of_it(a, q):
    y = a @ q.clone().t()
    q.copy_(q.flip(0))
    return y


def a_number_of_it(a, q):
    y = a * q[0, 0].item()
    q += 1
    return y


def several_results(a, q):
    values, order = q.clone().sort(0)
    y = a * values + a.gather(0, order)
    q.zero_()
    return y


class GradientOfForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, q):
        ctx.save_for_backward(q.sin())
        return a * 1

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0].square(), None


def whatever_comes_in(a, q):
    y = GradientOfForward.apply(a, q)
    q.add_(1)
    return y


def train(fn, calls=2):
    """Two calls before one backward pass: nothing that they keep may change in between."""
    torch.manual_seed(0)
    a, q = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    results = [fn(a, q) for _ in range(calls)]
    sum(y.square().sum() for y in results).backward()
    return *(y.detach() for y in results), a.grad, q


PROGRAMS = [computed_from_it, through_views, a_copy_of_it, a_number_of_it, several_results, whatever_comes_in]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_gradients_are_of_the_old_values(fn):
    """They were of the new ones, or autograd noticed the change."""
    compiled = dynamo_lite.compile(fn, backend="inductor", fullgraph=True)
    assert not list(differences(train(compiled), train(fn), tol=1e-5))


def test_symbolic_sizes_and_no_budget():
    with config.patch(activation_memory_budget=0):
        compiled = dynamo_lite.compile(a_copy_of_it, backend="inductor", fullgraph=True, dynamic=True)
        assert not list(differences(train(compiled), train(a_copy_of_it), tol=1e-5))


def test_written_behind_the_graph():
    """AOTAutograd writes to a tensor that requires gradients when the graph has run."""

    def fn(b, q):
        y = b.clone().sin() * q
        b.mul_(2)
        return y

    compiled = dynamo_lite.compile(fn, backend="inductor", fullgraph=True)
    mine, theirs = (train(lambda a, q, f=f: (b := a * 1, f(b, q) + b)[1]) for f in (compiled, fn))
    assert not list(differences(mine, theirs, tol=1e-5))


def test_spectral_norm_and_running_values():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 4))
            self.register_buffer("centre", torch.rand(4))

        def forward(self, a, q):
            y = self.linear(a) * self.centre.exp()
            with torch.no_grad():
                self.centre.mul_(0.9).add_(y.mean(0))
            return y

    models = Model(), Model()
    compiled = dynamo_lite.compile(models[0], backend="inductor", fullgraph=True)
    assert not list(differences(train(compiled), train(models[1]), tol=1e-5))
    assert not list(differences(models[0].state_dict(), models[1].state_dict(), tol=1e-5))


def test_the_rest_is_computed_again():
    """Memory is saved where nothing is written over."""

    def fn(a, q, written):
        y = a * q.sin(), a * written.sin()
        written.add_(1)
        return y

    a, q, written = torch.ones(4, requires_grad=True), torch.ones(4), torch.ones(4)
    y, _ = dynamo_lite.compile(fn, backend="inductor", fullgraph=True)(a, q, written)
    kept = {tensor.data_ptr() for tensor in y.grad_fn.saved_tensors}
    assert q.data_ptr() in kept and written.data_ptr() not in kept
