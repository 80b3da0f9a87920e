"""The committed results as a page, as plots for the README, and as its table.

Input: the JSON files in `results/`. Output: `results/dashboard.html`, one file; SVG files beside it; the table between marks in README.md.
Nothing is measured here. `--check` only says whether they are those of the results. `--commits` first writes `results/history.json` anew:
what the results were in the commits that changed them.

    python -m benchmarks.dashboard [--results FOLDER] [--readme FILE] [--check] [--commits]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import NamedTuple

from dynamo_lite.report.html_report import environment

from . import plots
from .common import RESULTS
from .history import KEPT, METRICS, OURS, THEIRS, History, Metric, Point, of_commits, read, sides

README = RESULTS.parents[1] / "README.md"
BEGIN, END = "<!-- results: python -m benchmarks.dashboard -->", "<!-- end of results -->"
IN_README = ("speedup", "compile", "capture", "overhead")
"""Quantities that have a plot in the README, where they were measured."""


def panels(history: History) -> Iterator[tuple[Metric, list[tuple[str, str]]]]:
    """For each quantity, its plots: title and SVG."""
    for name, metric in METRICS.items():
        latest = history.latest(name)
        if not latest:
            continue
        found = [("Latest, by suite", latest_bars(metric, latest))]
        for suite, _ in sides(latest):
            series = history.over_time(name, suite)
            if max(len(points) for points in series.values()) > 1:
                found.append(
                    (
                        f"{suite}, over commits",
                        plots.lines(f"{metric.title}: {suite}", series, history.moments(), metric.unit),
                    )
                )
        for (of, suite), series in history.ratios.items():
            if of == name and name in ("speedup", "capture") and max(map(len, series.values())) >= 4:
                how = "dynamo_lite / torch.compile" if name == "capture" else "each model"
                found.append((f"{suite}: {how}", each_model(name, suite, series)))
        yield metric, found


def each_model(name: str, suite: str, series: dict[str, dict[str, float]]) -> str:
    """Speedups as they are; capture times as the ratio of both sides."""
    if name == "capture":
        both = {m: v / series[THEIRS][m] for m, v in series.get(OURS, {}).items() if m in series.get(THEIRS, {})}
        series = {"dynamo_lite / torch.compile": both}
    return plots.dots(f"{METRICS[name].title}, {suite}", series)


def latest_bars(metric: Metric, latest: list[Point], width: int = plots.WIDTH) -> str:
    groups = [
        (
            f"{suite}, {points[0].models} models",
            [plots.Value(p.side, p.value, f"{number(p.value)} {metric.unit}") for p in points],
        )
        for suite, points in sides(latest)
    ]
    return plots.bars(f"{metric.title}: {metric.about}", groups, width)


def number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def page(history: History) -> str:
    """The dashboard."""
    template = environment(str(pathlib.Path(__file__).parent / "templates")).get_template("dashboard.html")
    newest = max((point.day for point in history.points), default="")
    return template.render(
        panels=[(metric, found) for metric, found in panels(history)],
        cards=list(cards(history)),
        backends=[
            (how, plots.bars(f"backends, {how}", [(n, [plots.Value("", c, str(c))]) for n, c in counts.items()]))
            for how, counts in history.backends.items()
        ],
        environments=history.environments,
        problems=history.problems,
        newest=newest,
        table=list(rows(history)),
    )


class Card(NamedTuple):
    """A headline number: ours, torch.compile's, over how many models, and whether ours is better, if that can be said."""

    title: str
    ours: str
    theirs: str
    models: int
    is_better: bool | None


def cards(history: History) -> Iterator[Card]:
    """What is told first: the mean over the suites that have latest results of both sides."""
    for name, metric in METRICS.items():
        by_suite = [{p.side: p for p in points} for _, points in sides(history.latest(name))]
        both = [suite for suite in by_suite if OURS in suite and THEIRS in suite]
        models = sum(suite[OURS].models for suite in both)
        if both:
            ours, theirs = (sum(s[side].value * s[OURS].models for s in both) / models for side in (OURS, THEIRS))
            texts = [f"{number(value)} {metric.unit}" for value in (ours, theirs)]
            better = None if texts[0] == texts[1] else (ours > theirs) == metric.more_is_better
            yield Card(metric.title, *texts, models, better)


def rows(history: History) -> Iterator[tuple[str, str, str, str, str]]:
    """Of the table: quantity, suite, ours, torch.compile's, and how many models."""
    for name, metric in METRICS.items():
        for suite, points in sides(history.latest(name)):
            value = {point.side: f"{number(point.value)} {metric.unit}" for point in points}
            yield metric.title, suite, value.get(OURS, "–"), value.get(THEIRS, "–"), str(points[0].models)


def readme_part(history: History, folder: str) -> str:
    """What stands between the marks: the table, and the plots there are."""
    lines = [BEGIN, "", "| | | dynamo_lite | torch.compile | models |", "|---|---|---:|---:|---:|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows(history)]
    lines += ["", *(f"{metric.title}: {metric.about}." for name, metric in METRICS.items() if history.latest(name))]
    lines.append("")
    for name in plotted(history):
        lines += [f"![{METRICS[name].title}]({folder}/{name}.svg)"]
    return "\n".join([*lines, "", END])


def plotted(history: History) -> list[str]:
    return [name for name in IN_README if history.latest(name)]


def outputs(history: History, folder: pathlib.Path, readme: pathlib.Path) -> dict[pathlib.Path, str]:
    """Every file and what belongs into it. Raises SystemExit if the README has no marks."""
    found = {folder / "dashboard.html": page(history)}
    for name in plotted(history):
        found[folder / f"{name}.svg"] = plots.standalone(latest_bars(METRICS[name], history.latest(name), 640))
    text = readme.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{readme} has no marks {BEGIN} … {END}")
    before, rest = text.split(BEGIN, 1)
    relative = folder.resolve().relative_to(readme.resolve().parent).as_posix()
    found[readme] = before + readme_part(history, relative) + rest.split(END, 1)[1]
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--readme", type=pathlib.Path, default=README)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; status 1 if a file is not that of the results"
    )
    parser.add_argument("--commits", action="store_true", help=f"write {KEPT} anew, from git")
    options = parser.parse_args(arguments)
    if options.commits:
        lines = ",\n".join(json.dumps(point) for point in of_commits(options.results))
        (options.results / KEPT).write_text(f"[\n{lines}\n]\n")
    history = read(options.results)
    for problem in history.problems:
        print(f"left out: {problem}", file=sys.stderr)
    stale = [
        (path, text)
        for path, text in outputs(history, options.results, options.readme).items()
        if not path.exists() or path.read_text() != text
    ]
    for path, text in stale:
        print(f"{'differs' if options.check else 'written'}: {path}")
        if not options.check:
            path.write_text(text)
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
