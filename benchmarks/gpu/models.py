"""The models that are measured on a CUDA device: some of the zoo, and some as large as people run them.

Input: a name. Output: an `Entry`, as in the zoo. Those of the zoo have small widths and full depth: launches are what they cost. The
large ones are bound by memory or arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo_inputs import Entry, Inputs

ZOO = {
    "hf": (
        "bert distilbert electra gpt2 gpt_neox opt llama mistral gemma2 phi3 qwen3 mixtral t5 bart vit swin convnextv2 clip whisper"
        " wav2vec2"
    ).split(),
    "timm": (
        "resnet50 densenet121 efficientnet_b0 mobilenetv3_large_100 convnext_tiny regnety_004 vit_tiny_patch16_224 mixer_s16_224"
        " poolformer_s12 inception_v3"
    ).split(),
}


class Block(nn.Module):
    """A pre-norm transformer layer with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(h)
        return x + self.mlp(self.norms[1](x))


class Language(nn.Module):
    """A GPT of so many layers, as wide as the published ones."""

    def __init__(self, layers: int, width: int, heads: int, words: int = 50304, length: int = 1024) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Elementwise(nn.Module):
    """A chain of elementwise operators and reductions over a large tensor: bound by memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x * 1.5 + 0.5).sigmoid() * x
        y = F.layer_norm(y, y.shape[-1:])
        return (y.tanh() + x).softmax(-1)


def large(make_model: Callable[[], nn.Module], make_inputs: Callable[[int], Inputs], train: bool = True) -> Entry:
    def build() -> tuple[nn.Module, Callable[..., Inputs]]:
        torch.manual_seed(0)
        return make_model(), make_inputs

    return Entry(build, train)


def words(length: int, times: int = 1) -> Callable[[int], Inputs]:
    def make(batch: int) -> Inputs:
        torch.manual_seed(1)
        return {"ids": torch.randint(0, 50000, (batch * times, length))}

    return make


def numbers(name: str, *shape: int, times: int = 1) -> Callable[[int], Inputs]:
    def make(batch: int) -> Inputs:
        torch.manual_seed(1)
        return {name: torch.randn(batch * times, *shape)}

    return make


def resnet() -> nn.Module:
    import timm

    return timm.create_model("resnet50", pretrained=False)


LARGE: dict[str, Entry] = {
    "gpt2_small_8x512": large(lambda: Language(12, 768, 12), words(512, 4)),
    "gpt2_small_decode": large(lambda: Language(12, 768, 12), words(1), train=False),
    "resnet50_32x224": large(resnet, numbers("x", 3, 224, 224, times=16)),
    "elementwise_8192x4096": large(Elementwise, numbers("x", 4096, times=4096)),
}


def entry(suite: str, name: str) -> Entry:
    """A model by its suite (`large`, or one of the zoo) and name."""
    if suite == "large":
        return LARGE[name]
    from benchmarks.suites import entries

    return entries(suite)[name]


def names(large_too: bool = True) -> list[tuple[str, str]]:
    found = [(suite, name) for suite, chosen in ZOO.items() for name in chosen]
    return [("large", name) for name in LARGE] * large_too + found
