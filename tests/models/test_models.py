"""Real models with random weights: one graph, results as in eager execution, no recompilation at the second call."""

import copy
from importlib.util import find_spec

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounterWithBackend, differences
from examples.models import TIMM, gpt2, mobilebert, narrow_bert, qwen3, t5, timm_model, vit, whisper

if (
    find_spec("transformers") is None or find_spec("timm") is None
):  # `make test` installs both, the other environments do without
    pytest.skip("transformers or timm is not installed", allow_module_level=True)

# The operators of each model's graph.
TRANSFORMERS = {narrow_bert: 314, gpt2: 565, t5: 787, qwen3: 2125, vit: 311, whisper: 384, mobilebert: 1320}
IMAGE_SIZE = {"vit_base_patch16_224": 224, "swin_tiny_patch4_window7_224": 224}


def narrow_model(build):
    torch.manual_seed(0)
    return build(1 if build is whisper else 2)


def check(model, args, kwargs):
    counter = CompileCounterWithBackend("eager")
    before = copy.deepcopy((args, kwargs))
    with torch.no_grad():
        compiled = dynamo_lite.compile(model, backend=counter)
        results = [compiled(*args, **kwargs) for _ in range(2)]
        expected = model(*args, **kwargs)
    for result in results:
        assert not list(differences(expected, result, tol=0.0))
    assert not list(differences(before, (args, kwargs), tol=0.0))
    assert counter.frame_count == 1
    assert not log.breaks()
    assert len(log.snapshot()) == 1  # the second call compiled nothing
    return counter


@pytest.mark.parametrize("build", TRANSFORMERS, ids=lambda b: b.__name__)
def test_transformers(build):
    counter = check(*narrow_model(build))
    assert counter.op_count == TRANSFORMERS[build]


@pytest.mark.parametrize("name", TIMM)
def test_timm(name):
    torch.manual_seed(0)
    check(*timm_model(name, IMAGE_SIZE.get(name, 64), 2))


def tensors(value):
    """All tensors of a model's output."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if hasattr(value, "to_tuple"):
        value = value.to_tuple()
    return [t for item in value for t in tensors(item)] if isinstance(value, (tuple, list)) else []


def check_training(model, kwargs, backend, tol):
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # the compiled graph draws other random numbers under inductor
    other = copy.deepcopy(model)
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(other, backend=counter)
    for _ in range(2):
        for run, owner in ((model, model), (compiled, other)):
            owner.zero_grad()
            torch.stack([t.float().pow(2).mean() for t in tensors(run(**kwargs))]).sum().backward()
    assert counter.frame_count == 1
    for (name, expected), actual in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (expected.grad is None) == (actual.grad is None), name
        if expected.grad is not None:
            torch.testing.assert_close(
                actual.grad, expected.grad, rtol=tol, atol=tol, msg=lambda m, n=name: f"{n}: {m}"
            )
    for (name, expected), actual in zip(model.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=tol, atol=tol, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("build", [narrow_bert, gpt2], ids=lambda b: b.__name__)
def test_training_under_aot_eager(build):
    model, _, inputs = narrow_model(build)
    check_training(model, inputs, "aot_eager", 1e-5)


def test_training_a_convolutional_model_under_aot_eager():
    torch.manual_seed(0)
    model, (x,), _ = timm_model("resnet50", 64, 2)
    check_training(model, {"x": x}, "aot_eager", 1e-4)


@pytest.mark.parametrize("build", [gpt2, vit], ids=lambda b: b.__name__)
def test_training_under_inductor(build):
    model, _, inputs = narrow_model(build)
    check_training(model, inputs, "inductor", 1e-3)
