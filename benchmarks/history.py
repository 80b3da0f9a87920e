"""What the committed results say, as points over time.

Input: the JSON files of a folder: those of the driver (`bench-…`), of the zoo, and of the benchmarks that `common.finish` writes. Output:
`Point`s. A file of a kind that nobody knows gives none; one that can't be read is named in `problems`.
"""

from __future__ import annotations

import json
import pathlib
import re
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .results import backend_counts, passed

OURS, THEIRS = "dynamo_lite", "torch.compile"
Record = dict[str, Any]


class Metric(NamedTuple):
    """A quantity that is plotted: its title, unit, and whether more is better."""

    title: str
    unit: str
    more_is_better: bool
    about: str


METRICS = {
    "pass": Metric("Pass rate", "%", True, "models whose results are those of eager execution"),
    "speedup": Metric("Speedup", "x", True, "over eager execution, geometric mean"),
    "compile": Metric(
        "Compile time", "s", False, "the first call beyond an eager one, with empty caches, geometric mean"
    ),
    "capture": Metric(
        "Capture time", "s", False, "the first call with a backend that compiles nothing, geometric mean"
    ),
    "overhead": Metric("Cost per call", "µs", False, "guards and glue, geometric mean"),
    "memory": Metric("Memory", "MiB", False, "rise of the peak while the first call compiles, mean"),
}


class Point(NamedTuple):
    """One value: of which quantity, of what (a suite and how it was run), of which side, on which day, over how many models."""

    metric: str
    suite: str
    side: str
    day: str
    value: float
    models: int


@dataclass
class History:
    """All results of a folder."""

    points: list[Point] = field(default_factory=list)
    ratios: dict[tuple[str, str], dict[str, dict[str, float]]] = field(default_factory=dict)
    """(metric, suite) → side → model → value; of the latest day."""
    backends: dict[str, dict[str, int]] = field(default_factory=dict)
    environments: dict[str, Record] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def latest(self, metric: str) -> list[Point]:
        """The newest point of each suite and side."""
        newest: dict[tuple[str, str], Point] = {}
        for point in sorted(self.points, key=lambda p: p.day):
            if point.metric == metric:
                newest[point.suite, point.side] = point
        return list(newest.values())

    def over_time(self, metric: str, suite: str) -> dict[str, list[tuple[str, float]]]:
        """Side → (day, value), in order."""
        found: dict[str, list[tuple[str, float]]] = {}
        for point in sorted(self.points, key=lambda p: p.day):
            if (point.metric, point.suite) == (metric, suite):
                found.setdefault(point.side, []).append((point.day, point.value))
        return found


def read(folder: pathlib.Path) -> History:
    """Everything in a folder, the oldest first."""
    history = History()
    for path in sorted(folder.glob("*.json"), key=lambda p: (_day(p) or "", p.name)):
        day = _day(path)
        if day is None:
            continue
        try:
            data = json.loads(path.read_text())
            _add(history, path.stem.rpartition("-")[0], day, data)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            history.problems.append(f"{path.name}: {type(error).__name__}: {error}")
            continue
        history.environments[path.name] = data.get("environment", {})
    return history


def _day(path: pathlib.Path) -> str | None:
    found = re.search(r"-(\d{4})-?(\d{2})-?(\d{2})$", path.stem)
    return "-".join(found.groups()) if found else None


def _add(history: History, name: str, day: str, data: Record) -> None:
    if name.startswith("bench-"):
        _add_bench(history, day, data, "sample" if name.startswith("bench-fast-") else "")
    elif name == "zoo":
        _add_zoo(history, day, data["models"])
    elif name in ("trace", "overhead", "memory"):
        metric = {"trace": "capture", "overhead": "overhead", "memory": "memory"}[name]
        scale = 1e6 if name == "overhead" else 1.0
        for side in (OURS, THEIRS):
            values = {row["model"]: row[side] * scale for row in data["rows"]}
            _point(history, metric, "real models", side, day, values)


def _add_bench(history: History, day: str, data: Record, part: str) -> None:
    settings = data["settings"]
    run = [*filter(None, [part]), settings["device"], "training" if settings["training"] else "inference"]
    run += ["dynamic"] if settings["dynamic"] else []
    run += [settings["dtype"]] if settings["dtype"] != "float32" else []
    run += [settings["backend"]]
    run += [settings["budget"]] if settings.get("budget") else []
    how = ", ".join(run)
    suites = list(dict.fromkeys(key.partition("/")[0] for key in data["models"]))
    for suite in suites:
        records = {key.partition("/")[2]: r for key, r in data["models"].items() if key.startswith(f"{suite}/")}
        label = f"{suite} ({how})"
        for rival in ("", *settings["rivals"]):
            side, prefix = rival or OURS, f"{rival} " if rival else ""
            if "accuracy" in settings["parts"]:
                rate = 100 * sum(passed(r, prefix) for r in records.values()) / len(records)
                history.points.append(Point("pass", label, side, day, rate, len(records)))
            for metric, column in (("speedup", "speedup"), ("compile", "compile_s"), ("memory", "mib")):
                _point(history, metric, label, side, day, _column(records, prefix + column))
        _point(history, "overhead", label, OURS, day, _column(records, "overhead_us"))
    counts = backend_counts(data["models"].values())
    if counts:
        history.backends[how] = dict(counts.most_common())


def _column(records: dict[str, Record], column: str) -> dict[str, float]:
    return {name: record[column] for name, record in records.items() if record.get(column) is not None}


def _add_zoo(history: History, day: str, models: Record) -> None:
    for suite in ("hf", "timm"):
        for kind in ("inference", "training"):
            for side in (OURS, THEIRS):
                records = {
                    name: entry[side][kind]
                    for name, entry in models.items()
                    if entry["suite"] == suite and kind in entry.get(side, {})
                }
                if records:
                    rate = 100 * sum(bool(r.get("pass")) for r in records.values()) / len(records)
                    history.points.append(Point("pass", f"zoo, {suite} ({kind})", side, day, rate, len(records)))
                _point(history, "capture", f"zoo, {suite} ({kind})", side, day, _column(records, "trace"))


def _point(history: History, metric: str, suite: str, side: str, day: str, values: dict[str, float]) -> None:
    above = [value for value in values.values() if value > 0]
    if metric == "memory" and values:
        history.points.append(Point(metric, suite, side, day, statistics.fmean(values.values()), len(values)))
    elif above:
        history.points.append(Point(metric, suite, side, day, statistics.geometric_mean(above), len(above)))
    if above:
        history.ratios.setdefault((metric, suite), {})[side] = {n: v for n, v in values.items() if v > 0}


def sides(points: Iterable[Point]) -> Iterator[tuple[str, list[Point]]]:
    """Points by suite."""
    by_suite: dict[str, list[Point]] = {}
    for point in points:
        by_suite.setdefault(point.suite, []).append(point)
    yield from by_suite.items()
