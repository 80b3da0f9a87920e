"""Sizes that vary in backward passes under Inductor: `backends.rewrites.symbol_nodes`."""

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.testing import differences


def padded(x, weight):
    return (F.pad(x, (0, 0, 1, 2)) @ weight).sin()


def put_together(x, weight):
    return (torch.cat([x, x.cos()], 1) @ weight).softmax(1)


def picked_rows(x, weight):
    n = x.size(1)
    rows = torch.cat([torch.arange(2 * n) % n, torch.arange(n)])
    hidden = x[0] @ weight
    return torch.zeros_like(hidden).index_add(0, rows, hidden[rows])


def halved(x, weight):
    return F.conv1d((x @ weight).mT, torch.ones(3, 3, 3), stride=2).sin()


@pytest.mark.parametrize("fn", [padded, put_together, picked_rows, halved], ids=lambda fn: fn.__name__)
def test_kept_tensors_of_computed_sizes(fn):
    """Inductor found no value for the symbol in `2 * s + 6`."""
    compiled = dynamo_lite.compile(fn, backend="inductor", dynamic=True, fullgraph=True)
    for n in (10, 12, 17, 17):
        x, weights = torch.randn(2, n, 4), [torch.arange(12.0).reshape(4, 3).sin().requires_grad_() for _ in range(2)]
        results = [f(x, weight) for f, weight in zip((compiled, fn), weights, strict=True)]
        gradients = [torch.autograd.grad(y.square().sum(), w)[0] for y, w in zip(results, weights, strict=True)]
        assert not list(differences(*results, tol=1e-5)) and not list(differences(*gradients, tol=1e-4))
