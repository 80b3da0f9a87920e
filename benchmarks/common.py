"""What the benchmarks share: options, models, and writing results as JSON and Markdown with date and versions."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

import dynamo_lite
from examples.models import BENCHMARKS, Example

dynamo_lite.config.cache = False  # what is measured here is capture

RESULTS = pathlib.Path(__file__).parent / "results"
PACKAGES = ("dynamo-lite", "torch", "transformers", "timm")


def parse_options(description: str, **switches: str) -> argparse.Namespace:
    """`--models`, `--quick`, `--no-save`, `--threads`, and a benchmark's own switches with their help."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--models", default=",".join(BENCHMARKS), help=f"comma-separated, of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: for a look, not for a record")
    parser.add_argument("--no-save", action="store_true", help="print only")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1: less noise)")
    for switch, text in switches.items():
        parser.add_argument(f"--{switch}", action="store_true", help=text)
    options = parser.parse_args()
    options.models = options.models.split(",")
    torch.set_num_threads(options.threads)
    return options


def examples(names: list[str]) -> Iterator[tuple[str, Example]]:
    """The models asked for, built one at a time from the same random numbers."""
    for name in names:
        torch.manual_seed(0)
        yield name, BENCHMARKS[name]()


def call(model: Callable[..., Any], example: Example) -> Any:
    """One call without autograd."""
    _, args, kwargs = example
    with torch.no_grad():
        return model(*args, **kwargs)


def seconds(model: Callable[..., Any], example: Example) -> float:
    """Wall time of one call without autograd."""
    start = time.perf_counter()
    call(model, example)
    return time.perf_counter() - start


def take_turns(
    sides: Mapping[str, Callable[[], float]], rounds: int, *, budget: float = float("inf"), least: int = 6
) -> dict[str, list[float]]:
    """What each of the sides, functions that measure one block and return its seconds, has measured in each round. They take turns, so that
    what slows the machine down meets all. After `budget` seconds it ends, but not before `least` rounds."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    started = time.perf_counter()
    for i in range(rounds):
        if i >= least and time.perf_counter() - started > budget:
            break
        for side in list(sides) if i % 2 == 0 else list(sides)[::-1]:
            times[side].append(sides[side]())
    return times


def row(name: str, ours: list[float], theirs: list[float], **more: Any) -> dict[str, Any]:
    """One model's result: medians of both, and their ratio (below 1: dynamo_lite is faster). `theirs` is empty if torch.compile fails."""
    if not theirs:
        return {"model": name, "dynamo_lite": statistics.median(ours), "torch.compile": None, "ratio": None, **more}
    a, b = statistics.median(ours), statistics.median(theirs)
    return {"model": name, "dynamo_lite": a, "torch.compile": b, "ratio": a / b if b else 1.0, **more}


def surroundings(threads: int) -> dict[str, str]:
    """Date, machine and versions."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {threads} thread(s)",
        **{package: _version(package) for package in PACKAGES},
    }


def finish(name: str, unit: str, scale: float, rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Print the table; unless `--no-save` or `--quick`, write it to `results/`."""
    environment = surroundings(options.threads)
    more = [key for key in rows[0] if key not in ("model", "dynamo_lite", "torch.compile", "ratio")]
    lines = [
        "| " + " | ".join(["model", f"dynamo_lite {unit}", f"torch.compile {unit}", "ratio", *more]) + " |",
        "|---|" + "---:|" * (3 + len(more)),
    ]
    for r in rows:
        numbers = (r["dynamo_lite"] * scale, r["torch.compile"] and r["torch.compile"] * scale, r["ratio"])
        cells = ["–" if number is None else f"{number:.2f}" for number in numbers]
        lines.append("| " + " | ".join([r["model"], *cells, *(_text(r[key]) for key in more)]) + " |")
    ratios = [r["ratio"] for r in rows if r["ratio"] is not None]
    lines.append(f"\nGeometric mean of the ratios: {statistics.geometric_mean(ratios):.3f}.")
    table = "\n".join(lines)
    print(table)
    if options.quick or options.no_save:
        return
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / f"{name}-{time.strftime('%Y%m%d')}"
    stem.with_suffix(".json").write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")
    facts = ", ".join(f"{key} {value}" for key, value in environment.items())
    stem.with_suffix(".md").write_text(f"# {name}\n\n{facts}\n\n{table}\n")
    print(f"written to {stem}.json and .md")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "source tree"


def _text(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
