"""What is to be done on a CUDA device, in chunks that can be run one by one.

Input: the names of chunks and the device. Output: `Job`s: a key, the case and its arguments. Chunks that take times run one job at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from .models import LARGE, names


class Job(NamedTuple):
    """`key`: by it a record is found again; `case`: a name of `cases.CASES`."""

    key: str
    case: str
    args: tuple[Any, ...]


class Chunk(NamedTuple):
    """`timed`: its jobs run one at a time."""

    jobs: Callable[[str], Iterator[Job]]
    timed: bool


TIMED = ("dynamo_lite inductor", "dynamo_lite reduce-overhead", "torch.compile", "torch.compile reduce-overhead")
INFERENCE = (*TIMED, "dynamo_lite cudagraphs", "dynamo_lite autotune")
TRAINING = ("dynamo_lite inductor", "torch.compile")
PREPARED = {False: TIMED, True: TRAINING}
TUNED = ("dynamo_lite max-autotune", "torch.compile max-autotune")
FOR_INFERENCE = (
    *LARGE,
    *("bert", "llama", "t5", "vit", "resnet50", "convnext_tiny", "gpt2", "qwen3", "efficientnet_b0", "mixer_s16_224"),
)
FOR_TRAINING = ("gpt2_small_8x512", "bert", "resnet50_32x224", "llama", "resnet50")
FOR_FIRST_CALLS = ("qwen3", "gpt2_small_8x512", "bert")
FOR_MAX_AUTOTUNE = ("gpt2_small_8x512", "gpt2_small_decode", "bert")


def zoo(device: str, training: bool = False) -> Iterator[Job]:
    from benchmarks.zoo_measure import SUITES

    for suite, models in SUITES.items():
        for name, entry in models.items():
            if entry.train or not training:
                yield Job(f"zoo{'-training' * training} {name}", "zoo", (suite, name, device, training))


def recordings(device: str) -> Iterator[Job]:
    for suite, name in names(large_too=False):
        yield Job(f"recordings {name}", "sizes", (suite, name, device, "cudagraphs"))


def _dtype(suite: str) -> str:
    return "bfloat16" if suite == "large" else "float32"


def _preparations(device: str, sides: Mapping[bool, Sequence[str]], title: str) -> Iterator[Job]:
    """One compilation of each model that is timed, in inference and in training, by each of these sides; `{}` in the title is the side."""
    for is_training, chosen in ((True, FOR_TRAINING), (False, FOR_INFERENCE)):
        for side in sides[is_training]:
            for suite, name in names():
                if name in chosen:
                    key = f"{title.format(side)} {name}{' training' * is_training}"
                    yield Job(key, "prepare", (suite, name, device, side, _dtype(suite), is_training))


def _kernels(device: str) -> Iterator[Job]:
    """Kernels of what is timed."""
    yield from _preparations(device, PREPARED, "prepare {}")


def _configurations(device: str) -> Iterator[Job]:
    """Each model once more, alone on the device: Inductor chooses configurations of kernels, which the timed sides find on the disk."""
    yield Job("configurations forgotten", "forget_configurations", (device,))
    yield from _preparations(device, {kind: sides[:1] for kind, sides in PREPARED.items()}, "configurations")


def speed(chunk: str, chosen: Sequence[str], sides: Sequence[str], device: str) -> Iterator[Job]:
    for suite, name in names():
        if name in chosen:
            yield Job(f"{chunk} {name}", "speed", (suite, name, device, sides, _dtype(suite), chunk == "training"))


def first_calls(device: str) -> Iterator[Job]:
    for name in FOR_FIRST_CALLS:
        for side in ("dynamo_lite inductor", "dynamo_lite regions", "torch.compile"):
            suite = next(suite for suite, known in names() if known == name)
            yield Job(f"first-calls {name} by {side}", "first_call", (suite, name, device, side, _dtype(suite)))


def calls(device: str) -> Iterator[Job]:
    yield Job("calls", "per_call", (device,))


def repeatable(device: str) -> Iterator[Job]:
    for suite, name in (
        ("hf", "bert"),
        ("hf", "resnet"),
        ("timm", "mobilenetv3_large_100"),
        ("timm", "densenet121"),
        ("hf", "mamba"),
        ("hf", "wav2vec2"),
        ("hf", "mobilebert"),
        ("timm", "vgg11_bn"),
        ("timm", "efficientnet_b0"),
        ("timm", "hrnet_w18"),
    ):
        yield Job(f"repeatable {name}", "repeatable", (suite, name, device))


CHUNKS: dict[str, Chunk] = {
    "zoo": Chunk(zoo, False),
    "zoo-training": Chunk(partial(zoo, training=True), False),
    "repeatable": Chunk(repeatable, False),
    "recordings": Chunk(recordings, False),
    "first-calls": Chunk(first_calls, True),
    "kernels": Chunk(_kernels, False),
    "configurations": Chunk(_configurations, True),
    "calls": Chunk(calls, True),
    "inference": Chunk(partial(speed, "inference", FOR_INFERENCE, INFERENCE), True),
    "training": Chunk(partial(speed, "training", FOR_TRAINING, TRAINING), True),
    "max-autotune": Chunk(partial(speed, "max-autotune", FOR_MAX_AUTOTUNE, TUNED), True),
}
"""In the order in which they are run; `kernels` and `configurations` fill Inductor's cache for those behind them."""
