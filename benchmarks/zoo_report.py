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
            *(f"- {line}" for line in (*shape_totals(models), *export_totals(models))),
            "",
            "## Inference",
            "",
            "| model | pass | graphs | ops | second | third | trace s | ratio |",
            "|---|---|---:|---:|---:|---:|---:|---:|",
            *(inference_row(name, entry) for name, entry in models.items() if "inference" in entry.get(OURS, {})),
            "",
            "## Training step (forward, loss, backward; aot_eager)",
            "",
            "| model | pass | graphs | ops |",
            "|---|---|---:|---:|",
            *(training_row(name, entry) for name, entry in models.items() if "training" in entry.get(OURS, {})),
            *shape_table(models),
            *export_table(models),
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


# -- shapes


def axes_of(entry: Record, engine: str) -> dict[str, Record]:
    return part(entry, engine, "shapes").get("axes", {})


def bounded(axis: Record) -> bool:
    """Each graph at most once more at the first change, and none at the eleven sizes after it."""
    return axis["change"] <= axis["graphs"] and axis["more"] == 0


def shape_totals(models: Record) -> list[str]:
    lines = []
    for engine in (OURS, THEIRS):
        found = [
            (f"{name} {key}", axis) for name, entry in models.items() for key, axis in axes_of(entry, engine).items()
        ]
        if found:
            beyond = [name for name, axis in found if not bounded(axis)]
            lines.append(
                f"shapes, {engine}: {len(found) - len(beyond)} of {len(found)} axes with one recompilation at the first change"
                f" and none after it; not: {', '.join(beyond) or 'none'}"
            )
    pairs = [
        (mine, axes_of(entry, THEIRS)[key])
        for entry in models.values()
        for key, mine in axes_of(entry, OURS).items()
        if key in axes_of(entry, THEIRS)
    ]
    if pairs:
        sums = [
            f"{key} {sum(a[key] for a, _ in pairs):.4g} / {sum(b[key] for _, b in pairs):.4g}"
            for key in ("graphs", "change", "more", "guards", "trace")
        ]
        lines.append(f"shapes, sums over the {len(pairs)} axes that both have: {', '.join(sums)} s")
    return lines


def shape_table(models: Record) -> list[str]:
    """One line for each axis."""
    rows = []
    for name, entry in models.items():
        ours, theirs = axes_of(entry, OURS), axes_of(entry, THEIRS)
        for key in dict.fromkeys([*ours, *theirs]):
            sides = ours.get(key, {}), theirs.get(key, {})
            cells = [
                " / ".join("–" if side.get(column) is None else text(side[column]) for side in sides)
                for column in ("graphs", "change", "more", "guards", "trace")
            ]
            rows.append("| " + " | ".join([name, key, pair(entry, "shapes", "pass"), *cells]) + " |")
    if not rows:
        return []
    return [
        "",
        "## Shapes",
        "",
        "Thirteen sizes along each axis that the model's inputs may grow along. `graphs` are those of the first size, `change` those",
        "compiled at the second, `more` at the eleven sizes after it; `guards` and `trace` belong to the version of the second size.",
        "",
        "| model | axis | pass | graphs | change | more | guards | trace s |",
        "|---|---|---|---:|---:|---:|---:|---:|",
        *rows,
    ]


# -- export


def export_totals(models: Record) -> list[str]:
    entries = [entry for entry in models.values() if part(entry, OURS, "export")]
    if not entries:
        return []
    counts = [
        f"{what} {' / '.join(str(sum(bool(part(e, engine, 'export').get(key)) for e in entries)) for engine in (OURS, THEIRS))}"
        for key, what in (("pass", "whole and right"), ("varies", "also for another batch size"))
    ]
    less = [
        name
        for name, entry in models.items()
        for key in ("pass", "varies")
        if part(entry, THEIRS, "export").get(key) and not part(entry, OURS, "export").get(key)
    ]
    return [
        f"export, of {len(entries)}, beside torch.export: {', '.join(counts)}; only torch.export has: {', '.join(less) or 'none'}"
    ]


def export_table(models: Record) -> list[str]:
    rows = [
        "| "
        + " | ".join([name, *(pair(entry, "export", key) for key in ("pass", "varies"))])
        + f" | {part(entry, OURS, 'export').get('constant', '')[:120]} |".replace("\n", " ")
        for name, entry in models.items()
        if part(entry, OURS, "export")
    ]
    return ["", "## Export", "", "| model | pass | varies | why not |", "|---|---|---|---|", *rows] if rows else []


def failures(models: Record) -> list[str]:
    """What differed, and why graphs were broken."""
    lines = []
    for name, entry in models.items():
        for engine in (OURS, THEIRS):
            for kind in ("inference", "training", "shapes", "export"):
                record = part(entry, engine, kind)
                if record.get("pass") is False:
                    what = record.get("error") or "; ".join(record.get("differences", ()))
                    lines.append(f"- {name}, {engine}, {kind}: {' '.join(what.split())[:300]}")
    return ["", "## Failures", "", *lines] if lines else []
