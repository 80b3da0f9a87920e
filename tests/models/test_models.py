"""Real models with random weights: one graph, results as in eager execution, no recompilation at the second call."""

import copy
from importlib.util import find_spec

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounterWithBackend, differences
from examples.models import TIMM, import_torchvision, timm_model

if (
    find_spec("transformers") is None or find_spec("timm") is None
):  # `make test` installs both, the other environments do without
    pytest.skip("transformers or timm is not installed", allow_module_level=True)

WIDTH = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}


def tokens(vocabulary, batch=2, length=16):
    return torch.randint(3, vocabulary, (batch, length))


def bert(T):
    return T.BertModel(T.BertConfig(vocab_size=200, num_hidden_layers=12, **WIDTH)), {"input_ids": tokens(200)}


def gpt2(T):
    return T.GPT2LMHeadModel(T.GPT2Config(vocab_size=200, n_embd=64, n_head=4)), {"input_ids": tokens(200)}


def t5(T):
    config = T.T5Config(vocab_size=200, d_model=64, d_ff=128, d_kv=16, num_heads=4)
    return T.T5ForConditionalGeneration(config), {"input_ids": tokens(200), "decoder_input_ids": tokens(200, 2, 8)}


def qwen3(T):
    config = T.Qwen3Config(vocab_size=200, num_hidden_layers=28, num_key_value_heads=2, head_dim=16, **WIDTH)
    return T.Qwen3ForCausalLM(config), {"input_ids": tokens(200)}


def vit(T):
    config = T.ViTConfig(image_size=32, patch_size=8, num_hidden_layers=12, **WIDTH)
    return T.ViTModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def whisper(T):
    config = T.WhisperConfig(
        vocab_size=200,
        d_model=64,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=50,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return T.WhisperModel(config), {"input_features": torch.randn(1, 80, 100), "decoder_input_ids": tokens(200, 1, 5)}


def mobilebert(T):
    return T.MobileBertForQuestionAnswering(T.MobileBertConfig(vocab_size=200)), {"input_ids": tokens(200)}


# The operators of each model's graph.
TRANSFORMERS = {bert: 314, gpt2: 565, t5: 787, qwen3: 2125, vit: 311, whisper: 384, mobilebert: 1320}
IMAGE_SIZE = {"vit_base_patch16_224": 224, "swin_tiny_patch4_window7_224": 224}


def transformers_model(build):
    import_torchvision()
    import transformers

    torch.manual_seed(0)
    model, inputs = build(transformers)
    return model.eval(), inputs


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
    model, inputs = transformers_model(build)
    check(model, (), inputs)


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


@pytest.mark.parametrize("build", [bert, gpt2], ids=lambda b: b.__name__)
def test_training_under_aot_eager(build):
    model, inputs = transformers_model(build)
    check_training(model, inputs, "aot_eager", 1e-5)


def test_training_a_convolutional_model_under_aot_eager():
    torch.manual_seed(0)
    model, (x,), _ = timm_model("resnet50", 64, 2)
    check_training(model, {"x": x}, "aot_eager", 1e-4)


@pytest.mark.parametrize("build", [gpt2, vit], ids=lambda b: b.__name__)
def test_training_under_inductor(build):
    model, inputs = transformers_model(build)
    check_training(model, inputs, "inductor", 1e-3)
