"""Flags of `torch.autograd.Function` contexts."""

import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter


class Scale(torch.autograd.Function):
    """Its second result has no gradient, and it wants None for that rather than zeros."""

    @staticmethod
    def forward(x, k):
        return x * k, x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad, none):
        assert none is None
        return grad * ctx.k, None


def test_gradients_that_are_not_materialized():
    counter = CompileCounter()
    w = torch.arange(4.0, requires_grad=True)
    y, z = dynamo_lite.compile(lambda a: Scale.apply(a, 3), backend=counter, fullgraph=True)(w)
    assert counter.frame_count == 1 and y.requires_grad and not z.requires_grad
    (y * 2).sum().backward()
    assert torch.equal(w.grad, torch.full((4,), 6.0))
