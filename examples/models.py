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


def bert(batch: int = 1, length: int = 16) -> Example:
    """BertModel with 12 layers."""
    import_torchvision()
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(vocab_size=1000)).eval(), (_tokens(batch, length, 1000),), {}


def qwen3(batch: int = 1, length: int = 16) -> Example:
    """Qwen3ForCausalLM with 28 layers, narrow."""
    import_torchvision()
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=1000,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=28,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
    )
    return Qwen3ForCausalLM(config).eval(), (), {"input_ids": _tokens(batch, length, 1000), "use_cache": False}


def linear_relu() -> Example:
    """One layer: nearly all of a call is the compiler's overhead."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
    return model.eval(), (torch.randn(2, 16),), {}


BENCHMARKS: dict[str, Callable[[], Example]] = {
    "linear_relu": linear_relu,
    "bert": bert,
    "qwen3": qwen3,
    "resnet50": lambda: timm_model("resnet50", 64),
    "hrnet_w18": lambda: timm_model("hrnet_w18", 64),
}
