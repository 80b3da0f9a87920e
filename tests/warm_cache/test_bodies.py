"""Graphs with `torch.cond`: the bodies are kept with them."""

import pytest
import torch

from tests.warm_cache.cache_programs import Run

BRANCH = """
import torch
layer = torch.nn.Linear(3, 3)
def f(x):
    y = torch.cond(x.sum() > 0, lambda a: a.sin() @ a, lambda a: a.cos() @ a, (x,))
    return torch.cond(y.sum() > 0, outer, torch.neg, (y,)) + 1
def outer(a):
    return torch.cond(a[0, 0] > 0, lambda b: layer(b), lambda b: b * 2, (a,))
def main(): return f, (torch.randn(3, 3),)
"""

TRAINED = BRANCH.replace("torch.randn(3, 3),)", "torch.randn(3, 3, requires_grad=True),)")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("text", [BRANCH, TRAINED], ids=["branch", "trained"])
def test_found_again(own_cache, text, backend):
    with torch.set_grad_enabled(text is TRAINED):
        first = Run(backend, prog=text)
        assert (first.hits, first.kept, first.refusals) == (0, 1, {})
        again = Run(backend, prog=text)
    assert (again.hits, again.misses) == (1, 0)
    assert len(again.frames["f"].graphs) == 1
    torch.testing.assert_close(again.results, again.expected)
    torch.testing.assert_close(first.results, first.expected)


def test_a_constant_in_a_body_is_not_kept(own_cache):
    text = BRANCH.replace("lambda a: a.cos() @ a", "lambda a: a + torch.tensor([1.0, 2.0, 3.0])")
    run = Run("eager", prog=text)
    assert run.kept == 0 or run.is_right
    assert Run("eager", prog=text).is_right


@pytest.mark.parametrize("part", ["a.cos() @ a", "b * 2"])
def test_another_body_is_another_program(own_cache, part):
    Run("eager", prog=BRANCH)
    again = Run("eager", prog=BRANCH.replace(part, f"({part}).exp()"))
    assert again.hits == 0 and again.is_right


FUNCTION = """
import torch
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor
    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        with torch.autocast("cpu", torch.bfloat16):
            product = gradient.float() @ x
        return product.float() * ctx.factor, None
def f(x):
    return Product.apply(x, torch.ones(()))
def main(): return f, (torch.full((2, 2), 1.01, requires_grad=True),)
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_function_with_a_backward_of_its_own(own_cache, backend):
    assert Run(backend, prog=FUNCTION).refusals == {}
    again = Run(backend, prog=FUNCTION)
    assert (again.hits, again.misses) == (1, 0)
    torch.testing.assert_close(again.results, again.expected)
