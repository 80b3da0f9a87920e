"""The driver's results: a line for each model, CSV, JSON, and the summary.

Input: records of `measure`, by "suite/name". Invariant: a file is written whole or not at all; what was measured earlier with the same
settings is kept.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .significance import verdict

Record = dict[str, Any]
Records = dict[str, Record]

COVERAGE_COLUMNS = (
    *("dev", "name", "graphs", "graph_calls", "captured_ops", "total_ops", "pct_ops", "pct_time"),
    *("breaks", "recompiles", "trace_s", "overhead_us"),
)
SPEED_COLUMNS = ("pass", "eager_ms", "ms", "speedup", "low", "high", "p", "compile_s", "mib", "backends")
RIVAL_COLUMNS = ("pass", "ms", "speedup", "p", "compile_s", "mib")
GEOMEANS = ("speedup", "eager_ms", "ms", "compile_s", "trace_s", "overhead_us")
"""Columns of which a geometric mean says something: all are above zero."""


class File:
    """The JSON file of a run and the CSV file beside it; None: nothing is kept."""

    def __init__(self, path: pathlib.Path | None, settings: Mapping[str, Any], *, again: bool = False) -> None:
        """Raises SystemExit for a file of other settings, or one that can't be read."""
        self.path = path
        self.settings = dict(settings)
        self.records: Records = {}
        if path is None or not path.exists():
            return
        try:
            known = json.loads(path.read_text())
            measured_with, records = known["settings"], known["models"]
        except (OSError, ValueError, KeyError) as error:
            raise SystemExit(f"{path} can't be read ({error}); remove it, or choose another with --json")
        different = sorted(key for key in self.settings if measured_with.get(key) != self.settings[key])
        if different and not again:
            raise SystemExit(
                f"{path} was measured with other settings ({', '.join(different)}): choose another with --json, or --again"
            )
        if not different:
            self.records = records

    def add(self, key: str, record: Record, environment: Mapping[str, Any]) -> None:
        """Keep a record, at once."""
        self.records[key] = record
        self.save(environment)

    def save(self, environment: Mapping[str, Any]) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        data = {"environment": environment, "settings": self.settings, "models": self.records}
        write(self.path, json.dumps(data, indent=1, allow_nan=False) + "\n")
        write(self.path.with_suffix(".csv"), as_csv(self.records, self.settings))


def write(path: pathlib.Path, text: str) -> None:
    """A whole file or none. Files that it names are named as they are in their package, wherever that lies on this machine."""
    for folder in sorted(filter(None, sys.path), key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        partial.write_text(text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def as_csv(records: Records, settings: Mapping[str, Any]) -> str:
    """Columns of the coverage first, in the order of 2022's reports; then those of the speed, then those of each rival."""
    columns = [*COVERAGE_COLUMNS, "suite"]
    if set(settings["parts"]) != {"coverage"}:
        columns += SPEED_COLUMNS
        columns += [f"{rival} {column}" for rival in settings["rivals"] for column in RIVAL_COLUMNS]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*columns, "error"], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for key, record in records.items():
        suite, _, name = key.partition("/")
        row = {column: _cell(value) for column, value in record.items()}
        writer.writerow({**row, "dev": settings["device"], "name": name, "suite": suite})
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return " ".join(f"{name}:{count}" for name, count in value.items())
    return value


def line(key: str, record: Record, settings: Mapping[str, Any]) -> str:
    """What is printed when a model is done."""
    suite, _, name = key.partition("/")
    parts = [f"{settings['device']} {suite:5} {name:28}"]
    if "graphs" in record:
        parts.append(f"{record['frames_ok']:3}/{record['frames']:3} frames {record['graphs']:3} graphs")
        parts.append(f"{record['pct_ops']:5.1f}% ops")
    if "speedup" in record:
        parts.append(f"{record['speedup']:.3f}x {verdict(record['p']):7}")
    for rival in settings["rivals"]:
        if f"{rival} speedup" in record:
            parts.append(f"| {rival} {record[f'{rival} speedup']:.3f}x {verdict(record[f'{rival} p'])}")
        elif f"{rival} error" in record:
            parts.append(f"| {rival} failed")
    if "backends" in record:
        parts.append("| " + " ".join(f"{backend}:{count}" for backend, count in record["backends"].items()))
    if not record.get("pass"):
        what = record.get("error") or "; ".join(record.get("differences", ()))
        parts.append("FAIL " + " ".join(what.split())[:200])
    elif "accuracy" in settings["parts"]:
        parts.append("pass")
    return " ".join(parts)


def summary(records: Records, settings: Mapping[str, Any]) -> Iterator[str]:
    """Pass rate, mean and geometric mean of each column for each suite, and how often each backend was chosen."""
    suites = list(dict.fromkeys(key.partition("/")[0] for key in records))
    for suite in [*suites, *(["all"] if len(suites) > 1 else [])]:
        own = [r for key, r in records.items() if suite in ("all", key.partition("/")[0])]
        yield f"{suite}: {pass_rate(own, '')}" + "".join(
            f", {rival} {pass_rate(own, rival + ' ')}" for rival in settings["rivals"]
        )
        yield from means(own, columns_of(settings))
        if suite == "micro":
            yield from chains(records, settings["rivals"])
    counts = backend_counts(records.values())
    if counts:
        yield "backends of the graphs: " + ", ".join(f"{name} {count}" for name, count in counts.most_common())
    yield from candidates(records.values())


def columns_of(settings: Mapping[str, Any]) -> list[str]:
    """The columns whose means are told."""
    columns = ["pct_ops", "pct_time", "trace_s", "overhead_us", "speedup", "compile_s", "eager_ms", "ms", "mib"]
    rivals = [f"{rival} {column}" for rival in settings["rivals"] for column in ("speedup", "compile_s", "ms", "mib")]
    return columns + rivals


def pass_rate(records: Iterable[Record], prefix: str) -> str:
    """`9/10 passed (90 %)`. A rival passes where it neither failed nor differed."""
    found = [passed(record, prefix) for record in records]
    return f"{sum(found)}/{len(found)} passed" + (f" ({sum(found) / len(found):.0%})" if found else "")


def passed(record: Record, prefix: str) -> bool:
    """Whether the side of that prefix computes what eager execution computes."""
    if not prefix:
        return bool(record.get("pass"))
    return f"{prefix}compile_s" in record and record.get(f"{prefix}pass", True)


def means(records: list[Record], columns: Iterable[str]) -> Iterator[str]:
    """A table: for each column how many models have it, mean and geometric mean."""
    rows = []
    for column in columns:
        values = [r[column] for r in records if r.get(column) is not None]
        if values:
            positive = column.rpartition(" ")[2] in GEOMEANS and min(values) > 0
            geomean = f"{statistics.geometric_mean(values):.3f}" if positive else ""
            rows.append((column, str(len(values)), f"{statistics.fmean(values):.3f}", geomean))
    if rows:
        yield from table([("", "models", "MEAN", "GEOMEAN"), *rows])


def chains(records: Records, rivals: Iterable[str]) -> Iterator[str]:
    """The micro suite: milliseconds of each chain on each side, and how many times as fast as eager execution that is."""
    sides = [("dynamo_lite", ""), *((rival, f"{rival} ") for rival in rivals)]
    rows = [("chain", "eager ms", *(cell for side, _ in sides for cell in (f"{side} ms", "ratio")))]
    for key, record in records.items():
        if key.startswith("micro/") and "eager_ms" in record:
            cells = [f"{record['eager_ms']:.4f}"]
            for _, prefix in sides:
                timed = f"{prefix}ms" in record
                cells += [f"{record[f'{prefix}ms']:.4f}", f"{record[f'{prefix}speedup']:.2f}"] if timed else ["–", "–"]
            rows.append((key.removeprefix("micro/"), *cells))
    if len(rows) > 1:
        yield from table(rows)


def candidates(records: Iterable[Record]) -> Iterator[str]:
    """What the races have shown: how often each candidate was timed and chosen, its best and its median speed (eager execution is 1), and
    why it was not timed where it was not."""
    speeds: dict[str, list[float]] = {}
    chosen, absent = Counter[str](), Counter[str]()
    for race in (race for record in records for race in record.get("races", ())):
        eager = next((time for name, time, _ in race if name == "eager"), None)
        for name, time, text in race:
            chosen[name] += text.endswith("chosen")
            if time is None or not eager:
                absent[name, text.partition(":")[0]] += 1
            else:
                speeds.setdefault(name, []).append(eager / time)
    names = sorted({*speeds, *(name for name, _ in absent)} - {"eager"}, key=lambda name: -chosen[name])
    if names:
        rows = [("candidate", "timed", "chosen", "best", "median", "not timed")]
        for name in names:
            found = speeds.get(name, [])
            numbers = [f"{max(found):.2f}x", f"{statistics.median(found):.2f}x"] if found else ["–", "–"]
            why = ", ".join(f"{text} {count}" for (other, text), count in absent.most_common() if other == name)
            rows.append((name, str(len(found)), str(chosen[name]), *numbers, why))
        yield from table(rows)


def table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Aligned columns, the first flush left."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))]
        yield "  " + "  ".join(cells).rstrip()


def backend_counts(records: Iterable[Record]) -> Counter[str]:
    """Over all graphs of all models."""
    counts: Counter[str] = Counter()
    for record in records:
        counts.update(record.get("backends", {}))
    return counts
