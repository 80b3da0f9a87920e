"""Normalisations on symbolic sizes: the metadata of torch's rules, and the same guards and errors."""

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.graph import norms
from dynamo_lite.record import log
from dynamo_lite.testing import differences


def batch_norm(x, mean, var):
    return F.batch_norm(x, mean, var, mean, var)


def layer_norm(x, mean, var):
    return F.layer_norm(x, (6,), mean, var)


def metadata(fn, *args):
    """Sizes, strides and types of what the graph holds, as the trace knows them, and the guards on sizes."""
    dynamo_lite.reset()
    found = []

    def backend(gm, example_inputs):
        for node in gm.graph.nodes:
            value = node.meta.get("example_value")
            if isinstance(value, torch.Tensor):
                found.append((str(value.shape), str(value.stride()), value.dtype, value.requires_grad))
        return gm.forward

    result = dynamo_lite.compile(fn, backend=backend, fullgraph=True, dynamic=True)(*args)
    assert not list(differences(fn(*args), result))
    return found, [str(number) for number in log.snapshot()[-1].guards.guards().sizes]


def inputs(n, *shape, **options):
    x = torch.randn(*shape, requires_grad=options.pop("requires_grad", False)).to(**options)
    return x, torch.randn(n).to(x.dtype), torch.rand(n).to(x.dtype) + 1


CASES = {
    "images": (batch_norm, inputs(6, 3, 6, 4, 5)),
    "channels last": (batch_norm, inputs(6, 3, 6, 4, 5, memory_format=torch.channels_last)),
    "rows": (batch_norm, inputs(6, 5, 6)),
    "strided": (batch_norm, (torch.randn(6, 5).t(), torch.zeros(6), torch.ones(6))),
    "gradients": (batch_norm, inputs(6, 5, 6, 3, requires_grad=True)),
    "half": (batch_norm, inputs(6, 5, 6, 3, dtype=torch.bfloat16)),
    "layers": (layer_norm, inputs(6, 3, 4, 6)),
    "layers with gradients": (layer_norm, inputs(6, 3, 4, 6, requires_grad=True)),
    "strided layers": (layer_norm, (torch.randn(6, 5).t(), torch.zeros(6), torch.ones(6))),
    "half layers": (layer_norm, inputs(6, 3, 4, 6, dtype=torch.bfloat16)),
}


@pytest.mark.parametrize("name", CASES)
def test_as_torch_says(name, monkeypatch):
    fn, args = CASES[name]
    mine = metadata(fn, *args)
    monkeypatch.setattr(norms, "RULES", {})
    monkeypatch.setattr("dynamo_lite.graph.fake.RULES", {})
    assert metadata(fn, *args) == mine


def test_sizes_that_do_not_fit():
    def fn(x, weight):
        return F.layer_norm(x, (6,), weight)

    compiled = dynamo_lite.compile(fn, backend="eager", dynamic=True)
    assert compiled(torch.ones(3, 6), torch.ones(6)).shape == (3, 6)
    for x, weight in ((torch.ones(3, 5), torch.ones(6)), (torch.ones(3, 6), torch.ones(5))):
        with pytest.raises(RuntimeError, match="(?i)shape") as expected:
            fn(x, weight)
        with pytest.raises(RuntimeError) as found:
            compiled(x, weight)
        assert str(found.value) == str(expected.value)
