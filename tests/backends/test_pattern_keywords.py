"""Keywords that Inductor's patterns do not name: `backends.rewrites.pattern_keywords`."""

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

import dynamo_lite
from tests.helpers.against_eager import check

INDUCTOR = ("inductor",)


@pytest.fixture(autouse=True)
def no_caches():
    """What is compiled here is matched here."""
    with fresh_cache():
        yield


@pytest.mark.parametrize("order", ["sum first", "product first"])
@pytest.mark.parametrize("alpha", [0.5, 2])
def test_a_factor_of_a_sum_with_a_product(order, alpha):
    def f(w, a, b):
        if order == "sum first":
            return torch.add(w, a @ b, alpha=alpha)
        return torch.add(a @ b, w, alpha=alpha)

    tensors = [torch.randn(size, requires_grad=True) for size in ((2, 2), (2, 3), (3, 2))]
    expected, actual = f(*tensors), dynamo_lite.compile(f, backend="inductor")(*tensors)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual.pow(2).sum(), tensors), torch.autograd.grad(expected.pow(2).sum(), tensors)
    )


def test_a_merged_adapter():
    def merge(weight, up, down):
        weight.mul_(0.9).add_(up @ down, alpha=0.25)

    check(merge, (torch.ones(4, 4), torch.ones(4, 2), torch.ones(2, 4)), backends=INDUCTOR)


def test_two_products():
    def f(a, b, c, d):
        return torch.add(a @ b, c @ d, alpha=0.5)

    check(f, [torch.ones(3, 3) for _ in range(4)], backends=INDUCTOR)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_a_running_sum_of_a_constant(dtype):
    def f(x):
        return torch.full((2, 4), 1.5).cumsum(1, dtype=dtype), torch.ones(2, 4).cumsum(1, dtype=dtype) + x

    check(f, [torch.ones(2, 4, dtype=dtype)], backends=INDUCTOR)


def matches(f, *args):
    """How many patterns match in what is compiled."""
    counters.clear()
    dynamo_lite.reset()
    torch.testing.assert_close(dynamo_lite.compile(f, backend="inductor")(*args), f(*args))
    return counters["inductor"]["pattern_matcher_count"]


def test_defaults_are_no_matter():
    a, b = torch.randn(3, 3), torch.randn(3, 3)
    assert (
        matches(lambda w, a, b: torch.add(w, a @ b, alpha=1), a, b, a)
        == matches(lambda w, a, b: w + a @ b, a, b, a)
        > 0
    )
    assert matches(lambda x: x + torch.full((3, 3), 1.5).cumsum(1), a) > 0


def test_attention_is_found():
    def attention(q, k, v):
        return (q @ k.transpose(-2, -1) / 4).softmax(-1) @ v

    q, k, v = (torch.randn(2, 4, 8, 16) for _ in range(3))
    matches(attention, q, k, v)
    assert counters["inductor"]["fuse_attention"] == 1
