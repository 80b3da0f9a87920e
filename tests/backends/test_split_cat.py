"""`cat` of all pieces of a `split`, for which Inductor (torch 2.13) takes the tensor that was split: `backends.rewrites.split_cat`."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.inductor import CACHE_TAG
from dynamo_lite.testing import differences


def kept_for_the_gradient(x):
    a, b = x.split([2, 5], 1)
    return torch.cat([a, b], 1) * x


def returned(x):
    return torch.cat(x.chunk(3, 0))


def transposed(x):
    a, b = x.t().split([2, 5], 0)
    return torch.cat([a, b], 0) * x.t()


def another_order(x):
    a, b = x.split([2, 5], 1)
    return torch.cat([b, a], 1) * x


@pytest.mark.parametrize("fn", [kept_for_the_gradient, returned, transposed, another_order])
def test_inputs_stay_as_they_are(fn):
    """Backward passes wrote over them."""
    mine, theirs = (torch.arange(21.0).reshape(3, 7).sin().requires_grad_() for _ in range(2))
    results = dynamo_lite.compile(fn, backend="inductor", fullgraph=True)(mine), fn(theirs)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y, x in zip(results, (mine, theirs), strict=True)]
    assert not list(differences(*results, tol=1e-6)) and not list(differences(*gradients, tol=1e-6))
    assert torch.equal(mine, theirs) and results[0].stride() == results[1].stride()
    assert results[0].data_ptr() != mine.data_ptr()


def test_caches_are_keyed_apart():
    """torch.compile may have put another result of the same graph into torch's caches."""
    before = torch.compiler.config.cache_key_tag
    tags = []
    compiled = dynamo_lite.compile(torch.sin, backend="inductor", options={"post_grad_custom_post_pass": Seen(tags)})
    compiled(torch.ones(3))
    assert tags == [before + CACHE_TAG] and torch.compiler.config.cache_key_tag == before


class Seen(torch._inductor.custom_graph_pass.CustomGraphPass):
    def __init__(self, tags):
        self.tags = tags

    def __call__(self, graph):
        self.tags.append(torch.compiler.config.cache_key_tag)

    def uuid(self):
        return None
