"""Results without gradients beside views of the same memory that have some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dynamo_lite


def beside_a_view(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * 2
    return z.detach(), z.view(-1)


def between_views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * 2
    return z.view(-1), z.detach(), z.t()


def beside_its_source(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * 2
    return z.detach(), z


def as_a_view_of_its_own(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * 2
    return z + 1, z.detach().t(), z[:]


def negative(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * 2
    return torch._neg_view(z.detach()), z


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("f", [beside_a_view, between_views, beside_its_source, as_a_view_of_its_own, negative])
def test_results_beside_a_detached_one_keep_their_gradients(f: Callable[..., Any], backend: str) -> None:
    compiled = dynamo_lite.optimize(backend, nopython=True)(f)
    x, y = (torch.arange(4.0).reshape(2, 2).requires_grad_() for _ in range(2))
    results, expected = compiled(x), f(y)
    for result, right in zip(results, expected, strict=True):
        torch.testing.assert_close(result, right)
        assert result.requires_grad == right.requires_grad
    for every in (results, expected):
        sum((t * t).sum() for t in every if t.requires_grad).backward()
    torch.testing.assert_close(x.grad, y.grad)


def a_row_beside_its_source(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * 2
    return (z * z).sum(), z.detach().unbind(0)[1], z


def a_row_beside_a_view(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * 2
    return (z * z).sum(), z.detach()[1], z.view(-1)


def flat_beside_its_source(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * 2
    return (z * z).sum(), z.detach().view(-1), z


def flat_beside_a_view(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * 2
    return (z * z).sum(), z.detach().view(-1), z.view(-1)


def whole_beside_a_view(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * 2
    return (z * z).sum(), z.detach(), z.view(-1)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "f",
    [a_row_beside_its_source, a_row_beside_a_view, flat_beside_its_source, flat_beside_a_view, whole_beside_a_view],
)
def test_a_change_of_a_detached_result_is_a_change_of_what_gradients_need(f: Callable[..., Any], backend: str) -> None:
    total, detached, other = dynamo_lite.optimize(backend, nopython=True)(f)(torch.ones(2, 2, requires_grad=True))
    detached.mul_(2)
    assert other._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_a_detached_result_shares_memory_with_the_others() -> None:
    view, detached, transposed = dynamo_lite.optimize("inductor")(between_views)(torch.ones(2, 2, requires_grad=True))
    with torch.no_grad():
        detached[0, 1] = 7
    assert view.tolist() == [2, 7, 2, 2] and transposed.tolist() == [[2, 2], [7, 2]]
