"""Operators that once had another outcome compiled than eagerly."""

import pytest
import torch

from dynamo_lite.testing import run_both


def resized(x):
    x.resize_(2, 6)
    return x + 1


def resized_view(x):
    x[0].resize_(4)
    return x + 1


def resized_new(x):
    y = x.clone()
    y.resize_(2, 6)
    return y.zero_()


def transposed(x):
    x.t_()
    return x + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_resize_of_an_input_is_left_to_eager(backend):
    run = run_both(resized, torch.randn(4, 3), _backend=backend, _calls=1)
    assert [b.slug for b in run.breaks] == ["tensor-attribute"]
    run_both(resized_view, torch.randn(4, 3), _backend=backend, _calls=1)
    assert run_both(resized_new, torch.randn(4, 3), _backend=backend, _fullgraph=True).graph_count == 1
    assert run_both(transposed, torch.randn(4, 3), _backend=backend, _fullgraph=True, _calls=1).graph_count == 1


def added_into(x, out):
    return torch.add(x, 1, out=out)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_out_of_another_size_is_resized(backend):
    for out in (torch.empty(0), torch.empty(2, 2)):
        run = run_both(added_into, torch.randn(3), out, _backend=backend)
        assert run.breaks
    assert not run_both(added_into, torch.randn(3), torch.empty(3), _backend=backend).breaks
