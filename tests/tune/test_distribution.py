"""Tensors of the same distribution as others."""

import pytest
import torch

from dynamo_lite.report.repro import RandomInput
from dynamo_lite.tune.distribution import Distribution

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor([1.0, 3.0, NAN, INF, -INF]), (2, 1)),
        (torch.tensor([NAN]), (0, 1)),
        (torch.empty(0), (0, 1)),
        (torch.tensor([1 + 3j, 1 + 3j]), (2, 1)),
        (torch.tensor([1 + 3j]).conj(), (-1, 2)),
        (torch.tensor([2.0, 4.0], dtype=torch.bfloat16), (3, 1)),
        (torch.tensor([7, -3]), (-3, 7)),
        (torch.empty(0, dtype=torch.int32), (0, 0)),
        (torch.tensor([2**63 - 1, -(2**63)]), (-(2**63), 2**63 - 1)),
        (torch.tensor([True, True]), (1, 1)),
        (torch.tensor([True, False]), (0, 1)),
    ],
)
def test_two_numbers(value, expected):
    found = Distribution.of(value)
    assert found == expected
    filled = torch.empty(1000, dtype=value.dtype)
    found.fill(filled, torch.Generator().manual_seed(0))
    again = Distribution.of(filled)
    if value.is_floating_point() or value.is_complex():
        assert filled.isfinite().all() and again == pytest.approx(expected, abs=0.2)
    else:
        assert again[0] >= expected[0] and again[1] <= expected[1]


def test_an_expression_gives_the_same_again():
    value = torch.tensor([[1.0, NAN], [5.0, 3.0]]).t().requires_grad_()
    like = RandomInput.like(value, 3)
    again = eval(like.expression(), {"RandomInput": RandomInput, "torch": torch})
    assert torch.equal(again, like.make()) and again.isfinite().all()
    assert (again.stride(), again.dtype, again.requires_grad) == (value.stride(), value.dtype, True)
