"""A float that is computed from sizes of which the graph asks for none itself: AOTAutograd wants a node for each symbol."""

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend

WEIGHT = torch.randn(2, 2, 3, 3)


def resized(x):
    half = F.conv2d(x, WEIGHT, stride=2, padding=1)
    small = F.conv2d(half, WEIGHT, stride=2, padding=1)
    return F.interpolate(small, size=half.shape[2:], mode="bilinear", align_corners=False)


@pytest.mark.filterwarnings("error:backend")  # that it fails and the graph runs eagerly
@pytest.mark.parametrize("backend, needs_grad", [("aot_eager", True), ("inductor", False)])
def test_a_scale_from_sizes_that_are_rounded(backend, needs_grad):
    """Not with gradients under Inductor: it makes constants of the sizes there."""
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(resized, backend=counter)
    for n in (16, 24, 30, 33):
        x = torch.randn(1, 2, n, n, requires_grad=needs_grad)
        y = x.detach().clone().requires_grad_(needs_grad)
        expected, actual = resized(x), compiled(y)
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
        if needs_grad:
            weights = torch.randn_like(expected)
            (expected * weights).sum().backward()
            (actual * weights).sum().backward()
            torch.testing.assert_close(y.grad, x.grad, atol=1e-4, rtol=1e-4)
    assert counter.frame_count == 2


def test_with_random_numbers_that_nobody_uses():
    def f(x):
        torch.rand(3)
        return resized(x), x.shape[2] + 1

    compiled = dynamo_lite.compile(f, backend="aot_eager", dynamic=True)
    for n in (24, 33):
        x = torch.randn(1, 2, n, n)
        torch.manual_seed(n)
        expected, after = f(x), torch.rand(2)
        torch.manual_seed(n)
        actual = compiled(x)
        torch.testing.assert_close(actual, expected)
        assert torch.equal(torch.rand(2), after)
