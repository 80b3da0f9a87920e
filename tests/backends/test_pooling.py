"""Inductor's gradient of average pooling whose last window reaches beyond the input is wrong (torch 2.13): `backends.rewrites.pooling`."""

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def gradients(f, x):
    result = f(x)
    torch.manual_seed(0)
    (gradient,) = torch.autograd.grad(result, x, torch.randn_like(result))
    return result, gradient


@pytest.mark.filterwarnings("error:backend")
@pytest.mark.parametrize(
    "dims, arguments", [(1, {}), (2, {}), (3, {}), (2, {"padding": 0}), (2, {"padding": (0, 0), "stride": 3})]
)
def test_windows_beyond_the_input(dims, arguments):
    def f(x):
        return POOLS[dims](x, 4, ceil_mode=True, **arguments)

    x = torch.randn(1, 2, *[7] * dims, requires_grad=True)
    torch.testing.assert_close(gradients(dynamo_lite.compile(f, backend="inductor"), x), gradients(f, x))


def padded(x):
    return F.avg_pool2d(x, 3, 2, 1, True)


def test_with_padding_the_graph_runs_eagerly():
    x = torch.randn(1, 1, 8, 8, requires_grad=True)
    with pytest.warns(UserWarning, match="gradients of avg_pool2d with padding and ceil_mode in Inductor"):
        actual = gradients(dynamo_lite.compile(padded, backend="inductor"), x)
    torch.testing.assert_close(actual, gradients(padded, x))


@pytest.mark.filterwarnings("error:backend")
def test_without_gradients_padding_is_no_matter():
    x = torch.randn(1, 1, 8, 8)
    torch.testing.assert_close(dynamo_lite.compile(padded, backend="inductor")(x), padded(x))


@pytest.mark.filterwarnings("error:backend")
def test_what_is_right_is_left_alone():
    def f(x):
        divided = F.avg_pool2d(x, 3, 2, 1, divisor_override=2)
        return F.avg_pool2d(x, 3, 2, 1) + divided, F.avg_pool2d(x, 3, 2, 1, True, False)

    x = torch.randn(1, 1, 7, 7, requires_grad=True)
    compiled = dynamo_lite.compile(f, backend="inductor")
    for i in range(2):
        torch.testing.assert_close(gradients(lambda x, i=i: compiled(x)[i], x), gradients(lambda x, i=i: f(x)[i], x))
