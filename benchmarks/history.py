"""What the committed results say, as points over time.

Input: the JSON files of a folder: those of the driver (`bench-…`), of the zoo, and of the benchmarks that `common.finish` writes; and
`history.json`, the points that earlier commits had (`of_commits`). Output: `Point`s. A file of a kind that nobody knows gives none; one
that can't be read is named in `problems`.
"""

from __future__ import annotations

import json
import pathlib
import re
import statistics
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .results import backend_counts, passed

OURS, THEIRS = "dynamo_lite", "torch.compile"
KEPT = "history.json"
"""The file of the points of commits."""
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
    "training": Metric(
        "Training",
        "s",
        False,
        "processor time of the first five steps beyond eager ones, with empty caches, geometric mean",
    ),
    "capture": Metric(
        "Capture time", "s", False, "the first call with a backend that compiles nothing, geometric mean"
    ),
    "overhead": Metric("Cost per call", "µs", False, "guards and glue, geometric mean"),
    "memory": Metric("Memory", "MiB", False, "rise of the peak while the first call compiles, mean"),
}

FILES = {
    "trace": ("capture", "real models"),
    "overhead": ("overhead", "real models"),
    "memory": ("memory", "real models"),
    "training": ("training", "training steps"),
}
"""Metric and suite of the files that have one row for each model."""


class Point(NamedTuple):
    """One value: of which quantity, of what (a suite and how it was run), of which side, on which day, over how many models."""

    metric: str
    suite: str
    side: str
    day: str
    value: float
    models: int
    commit: str = ""
    """The commit that has the value, for those of `history.json`."""

    @property
    def when(self) -> str:
        """Day and commit, and what was measured, for plots."""
        return f"{self.day} {self.commit or 'not committed'}, {self.models} models"


@dataclass
class History:
    """All results of a folder."""

    points: list[Point] = field(default_factory=list)
    earlier: list[Point] = field(default_factory=list)
    """Of commits, the oldest first."""
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
        """Side → (moment, value), in order, without those that repeat the three digits of the value before."""
        found: dict[str, list[tuple[str, float]]] = {}
        for point in self._in_order():
            if (point.metric, point.suite) == (metric, suite):
                values = found.setdefault(point.side, [])
                if not values or f"{values[-1][1]:.3g}" != f"{point.value:.3g}":
                    values.append((point.when, point.value))
        return found

    def moments(self) -> list[str]:
        """All moments of `over_time`, in order."""
        return list(dict.fromkeys(point.when for point in self._in_order()))

    def _in_order(self) -> list[Point]:
        return [*self.earlier, *sorted(self.points, key=lambda p: p.day)]


def read(folder: pathlib.Path) -> History:
    """Everything in a folder, the oldest first."""
    history = History()
    for path in sorted(folder.glob("*.json"), key=lambda p: (_day(p) or "", p.name)):
        if _day(path) is not None:
            _read_file(history, path.name, path.read_text())
    kept = folder / KEPT
    if kept.exists():
        history.earlier = [Point(*row) for row in json.loads(kept.read_text())]
    return history


def _read_file(history: History, name: str, text: str) -> None:
    """Add what a file says, or the problem that it has."""
    path = pathlib.PurePath(name)
    try:
        data = json.loads(text)
        _add(history, path.stem.rpartition("-")[0], _day(path) or "", data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        history.problems.append(f"{name}: {type(error).__name__}: {error}")
    else:
        environment = data.get("environment", {})
        history.environments[name] = environment if isinstance(environment, dict) else {"run": environment}


def of_commits(folder: pathlib.Path) -> list[Point]:
    """The points of every commit that changed results of a folder, the oldest first, each where its value is new. Raises
    CalledProcessError where there is no git repository."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout

    found: list[Point] = []
    last: dict[tuple[str, str, str], float] = {}
    for line in git("log", "--reverse", "--format=%h %cs", "--", "*.json").splitlines():
        commit, day = line.split()
        names = git(
            "diff-tree", "--root", "--no-commit-id", "--name-only", "--relative", "-r", "--diff-filter=AMR", commit
        )
        history = History()
        for name in sorted(names.split()):
            if name.endswith(".json") and _day(pathlib.PurePath(name)) is not None:
                _read_file(history, name, git("show", f"{commit}:./{name}"))
        for point in history.points:
            key = point.metric, point.suite, point.side
            if last.get(key) != point.value:
                last[key] = point.value
                found.append(point._replace(day=day, commit=commit))
    return found


def _day(path: pathlib.PurePath) -> str | None:
    found = re.search(r"-(\d{4})-?(\d{2})-?(\d{2})$", path.stem)
    return "-".join(found.groups()) if found else None


def _add(history: History, name: str, day: str, data: Record) -> None:
    if name.startswith("bench-"):
        _add_bench(history, day, data, "sample" if name.startswith("bench-fast-") else "")
    elif name == "zoo":
        _add_zoo(history, day, data["models"])
    elif name in FILES:
        metric, suite = FILES[name]
        scale = 1e6 if name == "overhead" else 1.0
        for side in (OURS, THEIRS):
            values = {row["model"]: row[side] * scale for row in data["rows"]}
            _point(history, metric, suite, side, day, values)


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
