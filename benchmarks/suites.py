"""What can be measured, by suite: `hf` and `timm` (the zoo), `micro`, and `torchbench` from a checkout of it.

Input: the name of a suite. Output: name → `Entry`, whose `build` gives a model and a function that makes its inputs for a batch size: a
dict of keyword arguments or a tuple. Nothing of transformers or timm is imported for the others.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
from typing import Any

from .zoo_inputs import Entry, Example

SUITES = ("hf", "timm", "micro", "torchbench")
DEFAULT = ("hf", "timm", "micro")

# The sample of `--fast`: architectures of every kind, which compile within seconds.
FAST = {
    "hf": ("distilbert", "gpt2", "vit"),
    "timm": ("resnet50", "mixer_s16_224"),
    "micro": ("chain_8_10", "chain_32_10", "chain_8_1000", "chain_32_1000"),
}
FAST_OF_OTHERS = 7  # every seventh


def entries(
    suite: str, checkout: str | None = None, *, training: bool = False, device: str = "cpu"
) -> dict[str, Entry]:
    """The models of a suite. Raises SystemExit for torchbench without a checkout."""
    if suite == "micro":
        from .micro import MODELS

        return MODELS
    if suite == "torchbench":
        return torchbench(checkout, training, device)
    from .zoo_measure import SUITES as zoo
    from .zoo_measure import transformers

    transformers.utils.logging.set_verbosity_error()
    return zoo[suite]


def sample(suite: str, names: list[str]) -> list[str]:
    """The part of a suite that `--fast` measures."""
    chosen = FAST.get(suite)
    return [name for name in names if name in chosen] if chosen else names[::FAST_OF_OTHERS]


def torchbench(checkout: str | None, training: bool, device: str) -> dict[str, Entry]:
    """The models that a checkout of pytorch/benchmark has installed."""
    if checkout is None:
        raise SystemExit("the suite torchbench needs --torchbench PATH, a checkout of github.com/pytorch/benchmark")
    root = pathlib.Path(checkout).resolve()
    folder = root / "torchbenchmark" / "models"
    if not folder.is_dir():
        raise SystemExit(f"{root} is no checkout of torchbench: it has no {folder.relative_to(root)}")
    if str(root) not in sys.path:
        sys.path.append(str(root))
    names = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    return {name: Entry(lambda name=name: torchbench_model(name, training, device), True) for name in names}


def torchbench_model(name: str, training: bool, device: str) -> Example:
    """A model as torchbench itself builds it, with its own inputs and batch size."""
    module = importlib.import_module(f"torchbenchmark.models.{name}")
    model, inputs = module.Model(test="train" if training else "eval", device=device).get_module()

    def make(batch: int) -> Any:
        return dict(inputs) if isinstance(inputs, dict) else tuple(inputs)

    return model, make
