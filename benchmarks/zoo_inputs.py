"""Narrow models of transformers with random weights, and what they are called with.

Input: a class of transformers, what its configuration is to say, a function that makes inputs for a batch size. Output: an
`Entry` of the zoo. Widths, vocabularies and numbers of experts do not change what has to be captured: `narrow` sets them by
name in a configuration and all the configurations inside it, and leaves the depth as it is published.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Inputs = dict[str, Any]
Make = Callable[..., Inputs]
Example = tuple[torch.nn.Module, Make]

VOCABULARY = 200
LENGTH = 16
IMAGE = 198  # the token that stands for a piece of an image
IMAGE_SIZE = 32

WIDTHS = {
    "vocab_size": VOCABULARY,
    **dict.fromkeys(["hidden_size", "d_model", "n_embd", "dim", "word_embed_proj_dim", "embedding_size"], 64),
    **dict.fromkeys(["intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "d_inner"], 128),
    **dict.fromkeys(["hidden_dim", "ffn_hidden_size", "feed_forward_size", "dff"], 128),
    **dict.fromkeys(["num_attention_heads", "n_head", "n_heads", "encoder_attention_heads", "attention_heads"], 4),
    **dict.fromkeys(["decoder_attention_heads", "num_encoder_attention_heads", "num_decoder_attention_heads"], 4),
    **dict.fromkeys(["num_key_value_heads", "num_kv_heads"], 2),
    **dict.fromkeys(["head_dim", "d_kv", "d_head", "attention_head_size"], 16),
    **dict.fromkeys(["projection_dim", "moe_intermediate_size", "shared_expert_intermediate_size"], 32),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts"], 4),
    **dict.fromkeys(["num_experts_per_tok", "num_experts_per_token"], 2),
}


@dataclass(frozen=True)
class Entry:
    """One model of the zoo. `train`: its training step is measured as well. `axes`: what of its inputs may become larger, the batch
    apart: names of numbers that the function that makes the inputs takes.
    """

    build: Callable[[], Example]
    train: bool = False
    axes: tuple[str, ...] = ()


def narrow(config_class: Any, /, **overrides: Any) -> Any:
    """A configuration with the published depth and small widths.

    A dict among `overrides` goes to the configuration inside of that name; a callable makes one.
    """
    default = config_class()
    fields = default.to_dict()
    overrides = {name: value() if callable(value) else value for name, value in overrides.items()}
    values = {name: width for name, width in WIDTHS.items() if type(fields.get(name)) is int}
    for name in getattr(config_class, "sub_configs", {}):
        inner = getattr(default, name, None)
        given = overrides.get(name, {})
        if inner is not None and isinstance(given, dict):
            values[name] = narrow(type(inner), **given)
            overrides.pop(name, None)
    values.update(overrides)
    vocabulary = values.get("vocab_size", fields.get("vocab_size"))
    for name, value in fields.items():
        if name.endswith("_token_id") and type(value) is int and name not in overrides and value >= (vocabulary or 0):
            values[name] = 1
    return config_class(**values)


def model(class_name: str, **overrides: Any) -> Any:
    """The model of that name with a narrow configuration."""
    import transformers

    cls = getattr(transformers, class_name)
    torch.manual_seed(0)
    return cls(narrow(cls.config_class, **overrides))


def backbone(class_name: str, **overrides: Any) -> Callable[[], Any]:
    """A configuration for another model's backbone, made when it is needed."""

    def make() -> Any:
        import transformers

        return narrow(getattr(transformers, class_name), **overrides)

    return make


def tokens(batch: int, length: int = LENGTH) -> torch.Tensor:
    """Random tokens, none of them special."""
    return torch.randint(10, VOCABULARY - 10, (batch, length))


def image_size(config: Any) -> tuple[int, int]:
    size = getattr(config, "image_size", None) or getattr(getattr(config, "vision_config", None), "image_size", 64)
    return (size, size) if isinstance(size, int) else tuple(size)


# What the models are called with: functions of the model's configuration and the batch size. One that can make inputs of other
# sizes takes a number of steps, by the name of what becomes larger: `length`, one token or 100 samples a step, or `image`, 8 pixels.


def text(config: Any, batch: int, length: int = 0) -> Inputs:
    return {"input_ids": tokens(batch, LENGTH + length)}


def masked_text(config: Any, batch: int, length: int = 0) -> Inputs:
    mask = torch.ones(batch, LENGTH + length, dtype=torch.long)
    mask[0, -4:] = 0
    return {"input_ids": tokens(batch, LENGTH + length), "attention_mask": mask}


def labelled_text(config: Any, batch: int, length: int = 0) -> Inputs:
    ids = tokens(batch, LENGTH + length)
    return {"input_ids": ids, "labels": ids.clone()}


def long_text(base: int) -> Make:
    return lambda config, batch, length=0: {"input_ids": tokens(batch, base + length)}


def two_texts(config: Any, batch: int, length: int = 0) -> Inputs:
    return {"input_ids": tokens(batch, LENGTH + length), "decoder_input_ids": tokens(batch, 8)}


def labelled_two_texts(config: Any, batch: int, length: int = 0) -> Inputs:
    return {"input_ids": tokens(batch, LENGTH + length), "labels": tokens(batch, 8)}


def long_two_texts(base: int) -> Make:
    return lambda config, batch, length=0: {
        "input_ids": tokens(batch, base + length),
        "decoder_input_ids": tokens(batch, 8),
    }


def masked_long_two_texts(base: int) -> Make:
    return lambda config, batch, length=0: {
        "input_ids": tokens(batch, base + length),
        "attention_mask": torch.ones(batch, base + length, dtype=torch.long),
        "decoder_input_ids": tokens(batch, 8),
    }


def image(config: Any, batch: int, image: int = 0) -> Inputs:
    height, width = image_size(config)
    return {"pixel_values": torch.randn(batch, 3, height + 8 * image, width + 8 * image)}


def image_of(size: int) -> Make:
    return lambda config, batch, image=0: {"pixel_values": torch.randn(batch, 3, size + 8 * image, size + 8 * image)}


def video(frames: int) -> Make:
    return lambda config, batch: {"pixel_values": torch.randn(batch, frames, 3, *image_size(config))}


def image_and_text(config: Any, batch: int, length: int = 0) -> Inputs:
    return {**image(config, batch), **text(config, batch, length)}


def image_in_text(pieces: int, typed: bool = False) -> Make:
    """An image for which `pieces` tokens of the text stand; `typed`: it is said where the prefix ends."""

    def inputs(config: Any, batch: int, length: int = 0) -> Inputs:
        ids = tokens(batch, LENGTH + pieces + length)
        ids[:, 2 : 2 + pieces] = IMAGE
        made = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **image(config, batch)}
        if typed:
            made["token_type_ids"] = torch.zeros_like(ids)
            made["token_type_ids"][:, -4:] = 1
        return made

    return inputs


def waveform(config: Any, batch: int, length: int = 0) -> Inputs:
    return {"input_values": torch.randn(batch, 4000 + 100 * length)}


def spectrogram_and_text(bins: int, frames: int) -> Make:
    return lambda config, batch, length=0: {
        "input_features": torch.randn(batch, bins, frames),
        "decoder_input_ids": tokens(batch, 8 + length),
    }


def document(config: Any, batch: int, length: int = 0) -> Inputs:
    corner = torch.randint(0, 500, (batch, LENGTH + length, 2))
    return {"input_ids": tokens(batch, LENGTH + length), "bbox": torch.cat([corner, corner + 100], -1)}


def document_with_image(size: int) -> Make:
    return lambda config, batch, length=0: {
        **document(config, batch, length),
        "pixel_values": torch.randn(batch, 3, size, size),
    }


def patches(grid: tuple[int, int], patch: int, values: str = "image_grid_thw") -> Make:
    """Images as flat patches of any number, as the Qwen-VL family takes them: merged two by two into text tokens."""

    def inputs(config: Any, batch: int, length: int = 0) -> Inputs:
        pieces = grid[0] * grid[1] // 4
        ids = tokens(batch, LENGTH + pieces + length)
        ids[:, 2 : 2 + pieces] = IMAGE
        pixels = torch.randn(batch * grid[0] * grid[1], 3 * 2 * patch * patch)
        kinds = torch.zeros_like(ids)
        kinds[ids == IMAGE] = 1
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "pixel_values": pixels,
            "image_grid_thw": torch.tensor([[1, *grid]] * batch),
            "mm_token_type_ids": kinds,
        }

    return inputs


def series(config: Any, batch: int) -> Inputs:
    return {"past_values": torch.randn(batch, config.context_length, config.num_input_channels)}


def case(class_name: str, inputs: Make, /, *, train: bool = False, seed: int = 1, **overrides: Any) -> Entry:
    def build() -> Example:
        built = model(class_name, **overrides)

        def make(batch: int, **steps: int) -> Inputs:
            torch.manual_seed(seed)
            return inputs(built.config, batch, **steps)

        return built, make

    return Entry(build, train, tuple(inspect.signature(inputs).parameters)[2:])
