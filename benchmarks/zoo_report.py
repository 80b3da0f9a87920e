"""The zoo's results as a table with totals. Input: the records of `zoo`. Output: Markdown."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from typing import Any

Record = dict[str, Any]
OURS, THEIRS = "dynamo_lite", "torch.compile"
PACKAGES = ("torch", "transformers", "timm")
COUNTS = ("graphs", "ops", "second", "third")


def environment() -> Record:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread",
        **{package: importlib.metadata.version(package) for package in PACKAGES},
    }


def table(results: Record) -> str:
    """The whole report. A pair of numbers is dynamo_lite's and torch.compile's."""
    models = results["models"]
    facts = ", ".join(f"{key} {value}" for key, value in results["environment"].items())
    return "\n".join(
        [
            "# zoo",
            "",
            facts,
            "",
            "Pairs are dynamo_lite / torch.compile; – was not measured. `pass`: equal to eager execution. `second`, `third`:",
            "graphs compiled anew for a second and a third batch size. `trace`: seconds of the first call beyond an eager one.",
            "",
            *totals(models),
            "",
            "## Inference",
            "",
            "| model | pass | graphs | ops | second | third | trace s | ratio |",
            "|---|---|---:|---:|---:|---:|---:|---:|",
            *(inference_row(name, entry) for name, entry in models.items()),
            "",
            "## Training step (forward, loss, backward; aot_eager)",
            "",
            "| model | pass | graphs | ops |",
            "|---|---|---:|---:|",
            *(training_row(name, entry) for name, entry in models.items() if "training" in entry.get(OURS, {})),
            *failures(models),
            "",
        ]
    )


def part(entry: Record, engine: str, kind: str) -> Record:
    return entry.get(engine, {}).get(kind, {})


def pair(entry: Record, kind: str, key: str) -> str:
    values = [part(entry, engine, kind).get(key) for engine in (OURS, THEIRS)]
    return " / ".join("–" if value is None else text(value) for value in values)


def text(value: Any) -> str:
    if isinstance(value, bool):
        return "pass" if value else "**fail**"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def inference_row(name: str, entry: Record) -> str:
    cells = [pair(entry, "inference", key) for key in ("pass", *COUNTS, "trace")]
    ours, theirs = (part(entry, engine, "inference").get("trace") for engine in (OURS, THEIRS))
    ratio = f"{ours / theirs:.2f}" if ours and theirs else "–"
    return "| " + " | ".join([name, *cells, ratio]) + " |"


def training_row(name: str, entry: Record) -> str:
    return "| " + " | ".join([name, *(pair(entry, "training", key) for key in ("pass", "graphs", "ops"))]) + " |"


def totals(models: Record) -> list[str]:
    """Passes of both, and sums over the models that both captured rightly."""
    lines = []
    for kind in ("inference", "training"):
        entries = {name: entry for name, entry in models.items() if part(entry, OURS, kind)}
        passes = {
            engine: f"{sum(bool(part(e, engine, kind).get('pass')) for e in entries.values())} of "
            f"{sum(bool(part(e, engine, kind)) for e in entries.values())}"
            for engine in (OURS, THEIRS)
        }
        lines.append(f"- {kind}: pass {OURS} {passes[OURS]}, {THEIRS} {passes[THEIRS]}")
        both = {
            name: entry
            for name, entry in entries.items()
            if all("graphs" in part(entry, engine, kind) for engine in (OURS, THEIRS))
        }
        if both:
            lines += [f"  - {line}" for line in compared(both, kind)]
    return lines


def compared(both: Record, kind: str) -> list[str]:
    def total(engine: str, key: str) -> float:
        return sum(part(entry, engine, kind).get(key, 0) for entry in both.values())

    keys = [key for key in COUNTS if any(key in part(entry, OURS, kind) for entry in both.values())]
    sums = ", ".join(f"{key} {total(OURS, key)} / {total(THEIRS, key)}" for key in keys)
    lines = [f"sums over the {len(both)} models that both have: {sums}"]
    timed = [entry for entry in both.values() if all("trace" in part(entry, engine, kind) for engine in (OURS, THEIRS))]
    if timed:
        ours, theirs = (sum(part(entry, engine, kind)["trace"] for entry in timed) for engine in (OURS, THEIRS))
        lines[0] += f", trace {ours:.1f} / {theirs:.1f} s"
    more = [
        name for name, entry in both.items() if part(entry, OURS, kind)["graphs"] > part(entry, THEIRS, kind)["graphs"]
    ]
    again = [name for name, entry in both.items() if recompiles(entry, OURS, kind) > recompiles(entry, THEIRS, kind)]
    lines.append(f"more graphs than torch.compile: {', '.join(more) or 'none'}")
    lines.append(f"more recompilations than torch.compile: {', '.join(again) or 'none'}")
    return lines


def recompiles(entry: Record, engine: str, kind: str) -> int:
    return sum(part(entry, engine, kind).get(key, 0) for key in ("again", "second", "third"))


def failures(models: Record) -> list[str]:
    """What differed, and why graphs were broken."""
    lines = []
    for name, entry in models.items():
        for engine in (OURS, THEIRS):
            for kind in ("inference", "training"):
                record = part(entry, engine, kind)
                if record.get("pass") is False:
                    what = record.get("error") or "; ".join(record.get("differences", ()))
                    lines.append(f"- {name}, {engine}, {kind}: {' '.join(what.split())[:300]}")
    return ["", "## Failures", "", *lines] if lines else []
