"""The first steps of training under `inductor`, with empty caches: the whole step compiled, from zeroing gradients to the scheduler.

Output: a table, and `results/training-DATE.json` with `.md`: processor seconds of the first `STEPS` steps beyond those of eager
execution, the compilers they start included; graphs; the largest difference of a loss from eager execution. Each measurement is a
process of its own with caches of its own; the engines take turns.

    python -m benchmarks.training [--steps cnn-sgd,gpt-adamw] [--backend inductor] [--no-save]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ENGINES = ("eager", "dynamo_lite", "torch.compile")
STEPS = 5


@dataclass(frozen=True)
class Training:
    """One training step. `clip`: whether gradients are clipped to a norm of 1; `parts`: batches whose gradients are accumulated."""

    model: str
    optimizer: str
    autocast: bool = False
    clip: bool = False
    parts: int = 1
    scheduler: bool = False


TRAININGS = {
    "cnn-sgd": Training("cnn", "sgd"),
    "cnn-adamw": Training("cnn", "adamw", autocast=True, scheduler=True),
    "cnn-adafactor": Training("cnn", "adafactor"),
    "vit-sgd": Training("vit", "sgd", clip=True),
    "vit-adamw": Training("vit", "adamw", autocast=True),
    "vit-adafactor": Training("vit", "adafactor", clip=True),
    "gpt-sgd": Training("gpt", "sgd", autocast=True),
    "gpt-adamw": Training("gpt", "adamw", clip=True, scheduler=True),
    "gpt-adafactor": Training("gpt", "adafactor"),
    "gpt-accumulation": Training("gpt", "adamw", parts=2),
}


def _models() -> dict[str, Callable[[], tuple[Any, Callable[[], Any]]]]:
    """Name → what makes a module that returns a loss, and what makes a batch for it."""
    import torch
    from torch import nn

    class Classifier(nn.Module):
        def __init__(self, body: nn.Module) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self.body(x).flatten(0, -2), labels.flatten())

    class Patches(nn.Module):
        """A vision transformer with two layers; the mean of its tokens decides."""

        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 64, 8, 8)
            self.position = nn.Parameter(torch.zeros(1, 16, 64))
            self.layers = nn.TransformerEncoder(_layer(), 2, enable_nested_tensor=False)
            self.head = nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = self.patch(x).flatten(2).transpose(1, 2) + self.position
            return self.head(self.layers(tokens).mean(1))

    class Language(nn.Module):
        """A causal transformer with two layers."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(200, 64)
            self.layers = nn.TransformerEncoder(_layer(), 2, enable_nested_tensor=False)
            self.head = nn.Linear(64, 200)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(32))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.layers(self.embedding(tokens), self.mask, is_causal=True))

    def _layer() -> nn.Module:
        return nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, norm_first=True)

    def _cnn() -> nn.Module:
        layers: list[nn.Module] = []
        for before, after in ((3, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    def images() -> Any:
        return torch.randn(8, 3, 32, 32), torch.randint(10, (8,))

    def texts() -> Any:
        tokens = torch.randint(200, (4, 33))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return {
        "cnn": lambda: (Classifier(_cnn()), images),
        "vit": lambda: (Classifier(Patches()), images),
        "gpt": lambda: (Classifier(Language()), texts),
    }


def make_step(training: Training) -> tuple[Callable[..., Any], Callable[[], Any]]:
    """The step, a function of its batches that returns the loss, and what makes the batches."""
    import torch

    model, batch = _models()[training.model]()
    make = {
        "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
        "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=1e-2),
    }
    optimizer = make[training.optimizer](model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100) if training.scheduler else None

    def step(batches: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros(())
        for inputs, labels in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=training.autocast):
                loss = model(inputs, labels) / len(batches)
            loss.backward()
            total += loss.detach()
        if training.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        return total

    return step, lambda: [batch() for _ in range(training.parts)]


def processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def measure(engine: str, name: str, backend: str) -> dict[str, Any]:
    """In the process that is measured: the seconds of each step, the losses and the number of graphs compiled."""
    import torch

    import dynamo_lite
    from dynamo_lite.record import log

    torch.set_num_threads(1)
    torch.manual_seed(0)
    step, batches = make_step(TRAININGS[name])
    compilers = {"dynamo_lite": dynamo_lite.compile, "torch.compile": torch.compile}
    run = step if engine == "eager" else compilers[engine](step, backend=backend)
    seconds, losses = [], []
    for _ in range(STEPS):
        given = batches()
        started = processor_seconds()
        losses.append(run(given).item())
        seconds.append(processor_seconds() - started)
    if engine == "dynamo_lite":
        graphs = sum(len(frame.graphs) for frame in log.snapshot())
    else:
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"] if engine == "torch.compile" else 0
    return {"seconds": seconds, "losses": losses, "graphs": graphs}


def in_process(engine: str, name: str, backend: str) -> dict[str, Any]:
    """What a new process with empty caches measures."""
    with tempfile.TemporaryDirectory(prefix="training-") as folder:
        environment = {
            **os.environ,
            "DYNAMO_LITE_CACHE_DIR": os.path.join(folder, "ours"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "torch"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.training", "--measure", engine, name, backend],
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, backend: str) -> dict[str, Any]:
    """One training step under all engines."""
    found = {engine: in_process(engine, name, backend) for engine in ENGINES}
    eager = found["eager"]
    result: dict[str, Any] = {"model": name}
    for engine in ENGINES[1:]:
        result[engine] = sum(found[engine]["seconds"]) - sum(eager["seconds"])
        result[f"{engine} steps"] = found[engine]["seconds"]
        result[f"{engine} graphs"] = found[engine]["graphs"]
        result[f"{engine} off"] = max(abs(a - b) for a, b in zip(found[engine]["losses"], eager["losses"], strict=True))
    result["ratio"] = result["dynamo_lite"] / result["torch.compile"]
    return result


HEADER = """| step | ours | theirs | ratio | our steps | their steps | graphs | theirs | loss off | theirs |
|---|---:|---:|---:|---|---|---:|---:|---:|---:|"""


def line(found: dict[str, Any]) -> str:
    """One row of the table."""
    sides = ENGINES[1:]
    cells = [
        found["model"],
        *(f"{found[side]:.1f} s" for side in sides),
        f"{found['ratio']:.2f}",
        *(" ".join(f"{seconds:.1f}" for seconds in found[f"{side} steps"]) for side in sides),
        *(str(found[f"{side} graphs"]) for side in sides),
        *(f"{found[f'{side} off']:.0e}" for side in sides),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:5])))
        return
    import statistics

    from benchmarks.common import RESULTS, surroundings

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", default=",".join(TRAININGS))
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    about = surroundings(1)
    print(HEADER, flush=True)
    rows: list[dict[str, Any]] = []
    for name in options.steps.split(","):
        rows.append(row(name, options.backend))
        print(line(rows[-1]), flush=True)
    mean = f"Geometric mean of the ratios: {statistics.geometric_mean(found['ratio'] for found in rows):.3f}."
    print(mean)
    if options.no_save:
        return
    stem = RESULTS / f"training-{time.strftime('%Y%m%d')}"
    facts = ", ".join(f"{key} {value}" for key, value in about.items())
    stem.with_suffix(".json").write_text(json.dumps({"environment": about, "rows": rows}, indent=1) + "\n")
    stem.with_suffix(".md").write_text("\n".join([f"# training\n\n{facts}\n", HEADER, *map(line, rows), f"\n{mean}\n"]))


if __name__ == "__main__":
    main()
