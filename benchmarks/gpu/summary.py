"""The results of `run` for people: `python -m benchmarks.gpu.summary FILE.jsonl` writes FILE.md beside it."""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
from collections.abc import Iterator
from typing import Any

Record = dict[str, Any]
RIVAL = {
    "dynamo_lite inductor": "torch.compile",
    "dynamo_lite reduce-overhead": "torch.compile reduce-overhead",
    "dynamo_lite max-autotune": "torch.compile max-autotune",
}


def page(records: dict[str, Record]) -> str:
    """All chunks that the records have something of. A record "notes" has sentences, as "texts", that were added by hand."""
    environment = records.pop("environment", {})
    facts = ", ".join(f"{key} {value}" for key, value in environment.items())
    notes = records.pop("notes", {}).get("texts", ())
    parts = [f"# On a CUDA device\n\n{facts}", *notes]
    for chunk in ("inference", "training", "max-autotune"):
        rows = {
            key.partition(" ")[2]: r for key, r in records.items() if key.startswith(f"{chunk} ") and "eager ms" in r
        }
        if rows:
            parts.append(f"## {chunk}, milliseconds per call\n\n" + "\n".join(times(rows)))
    rows = {key.partition(" ")[2]: r for key, r in records.items() if key.startswith("first-calls ") and "ms" in r}
    if rows:
        parts.append("## First calls with empty caches\n\n" + "\n".join(first_calls(rows)))
    if "calls" in records:
        parts.append("## Small functions, microseconds per call\n\n" + "\n".join(calls(records["calls"])))
    for chunk in ("zoo", "zoo-training", "recordings"):
        rows = {key.partition(" ")[2]: r for key, r in records.items() if key.startswith(f"{chunk} ")}
        if rows:
            parts.append(f"## {chunk}\n\n" + "\n".join(outcomes(rows)))
    rows = {key.partition(" ")[2]: r for key, r in records.items() if key.startswith("repeatable ")}
    if rows:
        parts.append(
            "## Gradients of a step beside those of another eager step, of the largest\n\n" + "\n".join(table(rows))
        )
    return "\n\n".join(parts) + "\n"


def times(rows: dict[str, Record]) -> Iterator[str]:
    sides = [key.removesuffix(" ms") for key in max(rows.values(), key=len) if key.endswith(" ms")]
    yield f"| model | {' | '.join(sides)} | chosen |"
    yield "|---|" + "---:|" * len(sides) + "---|"
    for name, row in rows.items():
        cells = [f"{row[f'{side} ms']:.3f}" if f"{side} ms" in row else "" for side in sides]
        yield f"| {name} ({row['dtype']}) | {' | '.join(cells)} | {', '.join(row.get('winners', ()))} |"
    yield ""
    for ours, theirs in RIVAL.items():
        ratios = [
            r[f"{ours} ms"] / r[f"{theirs} ms"] for r in rows.values() if {f"{ours} ms", f"{theirs} ms"} <= r.keys()
        ]
        if ratios:
            yield f"{ours} takes {statistics.geometric_mean(ratios):.3f} of the time of {theirs} (geometric mean)."
    ratios = [r["eager ms"] / r["dynamo_lite autotune ms"] for r in rows.values() if "dynamo_lite autotune ms" in r]
    if ratios:
        yield f"The choice is {statistics.geometric_mean(ratios):.2f} times as fast as eager execution (geometric mean)."


def first_calls(rows: dict[str, Record]) -> Iterator[str]:
    yield "| model and side | seconds of the first call | milliseconds of later ones | regions |"
    yield "|---|---:|---:|---|"
    for name, row in rows.items():
        yield f"| {name} | {row['first_s']:.1f} | {row['ms']:.3f} | {', '.join(row['regions'])} |"


def calls(record: Record) -> Iterator[str]:
    functions = [key for key, value in record.items() if isinstance(value, dict)]
    yield f"| | {' | '.join(functions)} |"
    yield "|---|" + "---:|" * len(functions)
    for side in record[functions[0]]:
        yield f"| {side} | {' | '.join(f'{record[function][side]:.1f}' for function in functions)} |"


def outcomes(rows: dict[str, Record]) -> Iterator[str]:
    passed = [name for name, row in rows.items() if row.get("pass")]
    whole = [name for name in passed if not rows[name].get("breaks")]
    yield f"{len(rows)} models, {len(passed)} right, {len(whole)} of these without a break."
    for name, row in rows.items():
        if not row.get("pass"):
            yield f"- {name}: {row.get('error') or '; '.join(row.get('differences', ()))[:300]}"
        elif row.get("notes"):
            yield f"- {name}: {'; '.join(row['notes'])}"


def table(rows: dict[str, Record]) -> Iterator[str]:
    columns = [key for key in max(rows.values(), key=len) if key not in ("pass", "seconds")]
    yield f"| model | {' | '.join(columns)} |"
    yield "|---|" + "---:|" * len(columns)
    for name, row in rows.items():
        yield f"| {name} | {' | '.join(f'{row.get(column, 0):.2g}' for column in columns)} |"


def main() -> None:
    path = pathlib.Path(sys.argv[1])
    records = {record.pop("key"): record for record in map(json.loads, path.read_text().splitlines())}
    path.with_suffix(".md").write_text(page(records))
    print(path.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
