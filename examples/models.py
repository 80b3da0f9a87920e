"""Real models with random weights, for the demo, the benchmarks and the model tests. Nothing is downloaded.

Each builder returns `(model in eval mode, positional arguments, keyword arguments)`. Sizes that leave the number of
operations as it is (widths, vocabularies) are kept small; depth is the real one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

Example = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]

TIMM = (  # the timm models of the model tests
    "resnet50",
    "hrnet_w18",
    "vit_base_patch16_224",
    "convnext_tiny",
    "efficientnet_b0",
    "swin_tiny_patch4_window7_224",
)


def import_torchvision() -> None:
    """Import torchvision, which timm and transformers need, even where its compiled operators do not load (CPU builds
    of torch): without these there is nothing for which torchvision could register fake implementations.
    """
    register_fake = torch.library.register_fake

    def register_unless_torchvision(op: Any, func: Any = None, /, **options: Any) -> Any:
        if isinstance(op, str) and op.startswith("torchvision::"):
            return (lambda function: function) if func is None else func
        return register_fake(op, func, **options)

    with mock.patch.object(torch.library, "register_fake", register_unless_torchvision):
        import torchvision  # noqa: F401


def timm_model(name: str, image_size: int | None = None, batch: int = 1) -> Example:
    """A timm model and a batch of random images."""
    import_torchvision()
    import timm

    model = timm.create_model(name, pretrained=False).eval()
    size = image_size or model.default_cfg["input_size"][-1]
    return model, (torch.randn(batch, 3, size, size),), {}


def _tokens(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(3, vocabulary, (batch, length))


WIDTH = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
VOCABULARY = 200


def _transformer(model: str, config: str, kwargs: dict[str, Any], **values: Any) -> Example:
    import_torchvision()
    import transformers

    made = getattr(transformers, model)(getattr(transformers, config)(**values))
    return made.eval(), (), kwargs


def bert(batch: int = 1, length: int = 16, **sizes: int) -> Example:
    """BertModel with 12 layers; `sizes` override the published ones."""
    return _transformer(
        "BertModel", "BertConfig", {"input_ids": _tokens(batch, length, VOCABULARY)}, vocab_size=VOCABULARY, **sizes
    )


def narrow_bert(batch: int = 1, length: int = 16) -> Example:
    """BertModel with 12 layers, narrow."""
    return bert(batch, length, **WIDTH)


def gpt2(batch: int = 1, length: int = 16) -> Example:
    """GPT2LMHeadModel with 12 layers, narrow."""
    kwargs = {"input_ids": _tokens(batch, length, VOCABULARY)}
    return _transformer("GPT2LMHeadModel", "GPT2Config", kwargs, vocab_size=VOCABULARY, n_embd=64, n_head=4)


def t5(batch: int = 1, length: int = 16) -> Example:
    """T5ForConditionalGeneration with 6 + 6 layers, narrow."""
    kwargs = {
        "input_ids": _tokens(batch, length, VOCABULARY),
        "decoder_input_ids": _tokens(batch, length // 2, VOCABULARY),
    }
    sizes = {"d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4}
    return _transformer("T5ForConditionalGeneration", "T5Config", kwargs, vocab_size=VOCABULARY, **sizes)


def _decoder(model: str, config: str, layers: int, batch: int, length: int) -> Example:
    kwargs = {"input_ids": _tokens(batch, length, VOCABULARY)}
    sizes = {"num_hidden_layers": layers, "num_key_value_heads": 2, "head_dim": 16, **WIDTH}
    return _transformer(model, config, kwargs, vocab_size=VOCABULARY, **sizes)


def qwen3(batch: int = 1, length: int = 16, layers: int = 28) -> Example:
    """Qwen3ForCausalLM with 28 layers, narrow."""
    return _decoder("Qwen3ForCausalLM", "Qwen3Config", layers, batch, length)


def llama(batch: int = 1, length: int = 16, layers: int = 32) -> Example:
    """LlamaForCausalLM with 32 layers, narrow."""
    return _decoder("LlamaForCausalLM", "LlamaConfig", layers, batch, length)


def vit(batch: int = 1) -> Example:
    """ViTModel with 12 layers, narrow."""
    kwargs = {"pixel_values": torch.randn(batch, 3, 32, 32)}
    return _transformer("ViTModel", "ViTConfig", kwargs, image_size=32, patch_size=8, **WIDTH)


def whisper(batch: int = 1) -> Example:
    """WhisperModel with 4 + 4 layers, narrow."""
    kwargs = {"input_features": torch.randn(batch, 80, 100), "decoder_input_ids": _tokens(batch, 5, VOCABULARY)}
    sizes = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 4), ("attention_heads", 4), ("ffn_dim", 128))
    }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return _transformer(
        "WhisperModel",
        "WhisperConfig",
        kwargs,
        vocab_size=VOCABULARY,
        d_model=64,
        max_source_positions=50,
        **sizes,
        **tokens,
    )


def mobilebert(batch: int = 1, length: int = 16) -> Example:
    """MobileBertForQuestionAnswering with 24 layers."""
    kwargs = {"input_ids": _tokens(batch, length, VOCABULARY)}
    return _transformer("MobileBertForQuestionAnswering", "MobileBertConfig", kwargs, vocab_size=VOCABULARY)


class Recommender(torch.nn.Module):
    """The shape of DLRM (Naumov et al. 2019): embedding tables, an MLP for the dense features, their pairwise products, an MLP."""

    def __init__(self, tables: int = 26, rows: int = 100, width: int = 16) -> None:
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = _mlp(13, 64, width)
        self.top = _mlp(width + (tables + 1) * tables // 2, 64, 32, 1)
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """(batch, 13) floats and (batch, tables, ids) ints in, (batch,) probabilities out."""
        x = self.bottom(dense)
        features = torch.stack([x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([x, products], dim=1))).squeeze(1)


def _mlp(*widths: int) -> torch.nn.Sequential:
    layers = [m for n, k in zip(widths, widths[1:], strict=False) for m in (torch.nn.Linear(n, k), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers[:-1])


def dlrm(batch: int = 2) -> Example:
    """A recommender with 26 embedding tables."""
    return Recommender().eval(), (torch.randn(batch, 13), torch.randint(100, (batch, 26, 3))), {}


def linear_relu() -> Example:
    """One layer: nearly all of a call is the compiler's overhead."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
    return model.eval(), (torch.randn(2, 16),), {}


BENCHMARKS: dict[str, Callable[[], Example]] = {
    "linear_relu": linear_relu,
    "dlrm": dlrm,
    "bert": narrow_bert,
    "gpt2": gpt2,
    "t5": t5,
    "qwen3": qwen3,
    "llama": llama,
    "whisper": whisper,
    "vit": vit,
    "resnet50": lambda: timm_model("resnet50", 64),
    "hrnet_w18": lambda: timm_model("hrnet_w18", 64),
    "efficientnet_b0": lambda: timm_model("efficientnet_b0", 64),
    "swin": lambda: timm_model("swin_tiny_patch4_window7_224"),
    "convnext": lambda: timm_model("convnext_tiny", 64),
}
