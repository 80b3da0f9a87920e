"""`generate()` of transformers: the tokens of eager execution, and a bounded number of versions."""

from importlib.util import find_spec

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from examples.models import import_torchvision

if find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

import_torchvision()  # first: torch need not be what torchvision's operators were built for
import transformers  # noqa: E402

COUNT = 32


@pytest.fixture(autouse=True)
def one_thread():
    """On operators as small as these, threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def llama():
    config = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return transformers.LlamaForCausalLM(config)


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=2))


def t5():
    config = transformers.T5Config(
        vocab_size=96, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


def whisper():
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": 2, "attention_heads": 2, "ffn_dim": 64}.items()
    }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    config = transformers.WhisperConfig(
        vocab_size=96,
        num_mel_bins=8,
        d_model=32,
        max_source_positions=16,
        max_target_positions=64,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        **sides,
        **tokens,
    )
    return transformers.WhisperForConditionalGeneration(config)


def prompt(build, batch=2, length=6):
    if build is whisper:
        return {"input_features": torch.randn(batch, 8, 32)}
    ids = torch.randint(4, 96, (batch, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


class Generation:
    """A tiny model that generates from a prompt in eager execution, and with `forward` of the model and of its encoder compiled."""

    def __init__(self, build, cache, sample=False, count=COUNT):
        torch.manual_seed(0)
        model = self.model = build().eval()
        self.options = {"min_new_tokens": count, "max_new_tokens": count, "do_sample": sample, "pad_token_id": 0}
        if cache == "static":
            self.options.update(
                cache_implementation="static", disable_compile=True
            )  # of transformers, by torch.compile
        parts = [model, model.get_encoder()] if build in (t5, whisper) else [model]
        self.compiled = [(part, dynamo_lite.compile(part.forward, backend="eager")) for part in parts]

    def tokens(self, inputs, compiled):
        for part, forward in self.compiled:
            if compiled:
                part.forward = forward
            else:
                vars(part).pop("forward", None)
        torch.manual_seed(1)
        return self.model.generate(**inputs, **self.options)

    def new_versions(self, inputs):
        """How many versions a call compiles; its tokens are those of eager execution."""
        expected = self.tokens(inputs, compiled=False)
        before = len(log.snapshot())
        found = self.tokens(inputs, compiled=True)
        assert torch.equal(found, expected) and found.shape[1] >= self.options["max_new_tokens"]
        frames = log.snapshot()[before:]
        assert all(frame.skipped is None and not frame.breaks for frame in frames)
        return len(frames)


# Of the model: prefill, decoding, and with a cache that grows decoding with a length that varies. An encoder is one more.
VERSIONS = {"dynamic": 3, "static": 2}


@pytest.mark.parametrize("build", [llama, gpt2, t5, whisper])
@pytest.mark.parametrize("cache", VERSIONS)
@pytest.mark.parametrize("sample", [False, True], ids=["greedy", "sampling"])
def test_tokens_and_versions(build, cache, sample):
    generation = Generation(build, cache, sample)
    inputs = prompt(build)
    assert generation.new_versions(inputs) == VERSIONS[cache] + (build in (t5, whisper))
    assert generation.new_versions(inputs) == 0


# Longer prompts: with sizes that vary, each version that a length reaches once more (a static cache has the length of prompt and
# result); from then on any length.
LONGER = {
    (llama, "dynamic"): 1,
    (llama, "static"): 2,
    (gpt2, "dynamic"): 1,
    (gpt2, "static"): 2,
    (t5, "dynamic"): 4,
    (t5, "static"): 3,
}


@pytest.mark.parametrize(("build", "cache"), LONGER)
def test_prompts_of_other_lengths(build, cache):
    generation = Generation(build, cache, count=6)
    generation.new_versions(prompt(build))
    assert generation.new_versions(prompt(build, length=9)) == LONGER[build, cache]
    for length in (7, 12, 8, 20):
        assert generation.new_versions(prompt(build, length=length)) == 0
