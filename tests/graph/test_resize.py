"""Operators that give a tensor other sizes, strides or memory in place."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import run_both


def resized(x):
    x.resize_(2, 6)
    return x + 1


def grown(x):
    x.resize_(5, 5)
    return x.zero_() + 1


def grown_new(x):
    y = x.clone()
    y.resize_(5, 5)
    return y.zero_()


def restrided(x):
    x.as_strided_((2, 2), (1, 2))
    return x * 2


def squeezed(x):
    return x.unsqueeze_(0).squeeze_(0).t_()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_inputs_become_other_views_of_their_storage(backend):
    for function in (resized, restrided, squeezed, grown_new):
        assert run_both(function, torch.randn(4, 3), _backend=backend, _fullgraph=True, _calls=1).graph_count == 1
    compiled = dynamo_lite.compile(torch.Tensor.squeeze_, backend=backend, fullgraph=True)
    x = torch.randn(1, 3, 1)
    assert compiled(x) is x and x.shape == (3,)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_growth_of_an_input_is_left_to_eager(backend):
    run = run_both(grown, torch.randn(4, 3), _backend=backend)
    assert {b.slug for b in run.breaks} == {"tensor-attribute"}


def added_into(x, out):
    return torch.add(x, 1, out=out)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_out_of_another_size_is_resized(backend):
    for out in (torch.empty(0), torch.empty(2, 2)):
        assert run_both(added_into, torch.randn(3), out, _backend=backend).breaks
    assert not run_both(added_into, torch.randn(3), torch.empty(3), _backend=backend).breaks


def to_the_size_of(m, x):
    m.resize_(x.shape)
    m.copy_(x)
    return m + x


def as_the_other(m, x):
    return m.resize_as_(x).copy_(x) + x


def own(m, x):
    return m.clone().resize_(m.numel()) + x


def part(m, x):
    torch.ops.aten.resize_(m[1:], [x.shape[0] - 1])
    return m + x


@pytest.mark.parametrize("fn", [to_the_size_of, as_the_other, own, part])
def test_sizes_that_vary(fn, recwarn):
    """AOTAutograd fails on such a graph, which runs as it was captured."""
    compiled = dynamo_lite.compile(fn, backend="aot_eager", fullgraph=True)
    for n in (4, 5, 6):
        m, x = torch.ones(n), torch.randn(n)
        expected_m = m.clone()
        expected = fn(expected_m, x)
        assert torch.equal(compiled(m, x), expected) and torch.equal(m, expected_m)
    assert not [w for w in recwarn if "backend" in str(w.message)]
