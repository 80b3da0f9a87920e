"""The HTML report: what it shows, costs of breaks, escaping, many frames."""

import re

import pytest
import torch

import dynamo_lite
from dynamo_lite.__main__ import main
from dynamo_lite.breaks import UserFrame
from dynamo_lite.record import BreakRecord, FrameRecord, GraphRecord, Miss
from dynamo_lite.report.costs import break_costs
from dynamo_lite.report.coverage import Coverage, FunctionCoverage, Gap, Measurement, ProfilerEvent
from dynamo_lite.report.page import MAX_DEPTH, page_of
from dynamo_lite.report.recompiles import side_by_side
from dynamo_lite.report.timeline import KINDS, LAST_CALLS, MAX_LANES, duration, timelines
from tests.helpers import page_structure as structure

pytest.importorskip("jinja2")

from dynamo_lite.report import html_report


def helper(x):
    return x.sin() * 2


def fn(x, tag="<script>alert(1)</script>"):
    x = helper(x) + 1
    if x.sum() < 0:  # <i>
        x = x * -1
    return x.cos()


def again(x, depth=2):
    return again(x.sin(), depth - 1) if depth else x


def test_recursion_is_calls_within_calls():
    (place,) = page_of(measured(again, (torch.ones(3),))).functions[0].places
    assert sum(line.operators for line in place.source.lines) == 2
    (once,) = place.calls
    assert (once.operators, once.calls) == (1, [])  # the last call has none


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())

    def forward(self, x):
        return helper(self.inner(x))


def blocks(x, first, second):
    for block in (first, first):
        x = block(x)
    return second(x)


def test_calls_are_a_tree_without_the_functions_that_only_pass_on():
    coverage = measured(blocks, (torch.ones(3), Block(), Block()))
    (place,) = page_of(coverage).functions[0].places
    line = blocks.__code__.co_firstlineno
    assert [(c.line - line, c.source.name, c.operators) for c in place.calls] == [
        (2, "Block.forward", 8),
        (3, "Block.forward", 4),
    ]
    inner = [(c.source.name, c.operators) for c in place.calls[0].calls]
    assert sorted(inner) == [("Sequential.forward", 4), ("helper", 4)]
    sequential = next(c for c in place.calls[0].calls if c.source.name == "Sequential.forward")
    assert sorted(c.source.name for c in sequential.calls) == ["Linear.forward", "ReLU.forward"]
    structure.check(html_report.render(coverage))


def broken_below(x):
    return middle(x) + 1


def middle(x):
    y = x.sin()
    print(end="")
    return y.cos()


def test_a_call_with_a_break_in_it_is_marked():
    page = page_of(measured(broken_below, (torch.ones(3),)))
    (place, *_) = page.functions[0].places
    assert (place.state, [c.state for c in place.calls]) == ("broken", ["broken"])


def deep(x, depth):
    return deep(x.sin(), depth - 1) + 1 if depth else x


def test_deep_trees_are_cut():
    coverage = measured(deep, (torch.ones(3), 100))
    (place,) = page_of(coverage).functions[0].places
    depth = 0
    while place.calls:
        (place,), depth = place.calls, depth + 1
    assert depth == MAX_DEPTH and place.calls_left_out == 1
    assert "1 more call, with fewer operators" in html_report.render(coverage)


def measured(fn, *calls, **options):
    with Measurement(keep_texts=True) as measurement:
        compiled = dynamo_lite.compile(fn, backend="eager", **options)
        for args in calls:
            compiled(*args)
        del compiled
    return measurement.coverage()


def test_the_page():
    coverage = measured(fn, (torch.ones(3),), (torch.ones(3),), (torch.ones(4),))
    dynamo_lite.reset()  # the texts are kept
    page = page_of(coverage)
    ((place,),) = [f.places for f in page.functions]
    assert (place.name, place.state, len(place.breaks), len(place.recompiles)) == ("fn", "broken", 2, 2)
    marks = {line.text.strip(): (line.state, line.operators, line.breaks) for line in place.source.lines}
    assert marks["x = helper(x) + 1"] == ("captured", 6, [])
    assert marks["if x.sum() < 0:  # <i>"] == ("broken", 4, ["DL001"])
    assert marks["x = x * -1"] == ("", 0, [])
    assert marks["return x.cos()"] == ("captured", 2, [])
    (call,) = place.calls
    assert (call.source.name, call.operators, call.state, call.calls) == ("helper", 4, "captured", [])
    assert call.line == fn.__code__.co_firstlineno + 1
    assert "sin" in place.versions[0].graphs[0].code
    assert "def first_failure" in place.versions[0].guards
    (recompiled,) = page.recompiles
    assert (recompiled.name, len(recompiled.recompiles), recompiled.changed) == ("fn", 2, [("x", 2)])
    (difference,) = recompiled.recompiles[0].differences
    assert difference.expected == [("shape (", False), ("3", True), (")", False)]
    assert difference.found == [("shape (", False), ("4", True), (")", False)]
    (cost,) = page.breaks
    assert cost.cost.passes == 3 and cost.cost.seconds > 0 and cost.location.startswith("if x.sum() < 0:")
    (backend,) = page.backends
    assert (backend.name, backend.graphs, backend.calls, len(page.graphs)) == ("eager", 4, 6, 4)
    assert sum(part.percent for part in page.parts) == pytest.approx(100, abs=1)
    (cost,) = page.breaks  # on the scale of all the time
    assert cost.percent == pytest.approx(100 * cost.cost.seconds / coverage.seconds)
    (timeline,) = page.timelines
    (lane,) = timeline.lanes
    assert lane.name == "fn" and {bar.kind for bar in lane.bars} == set(KINDS)
    assert all(0 <= bar.left and bar.left + bar.width < 100.001 for bar in lane.bars)

    text = html_report.render(coverage, "a <title>")
    checker = structure.check(text)
    assert "#graph-0" in text and checker.tags.count("script") == 1 and "<script>alert" not in text
    assert "a &lt;title&gt;" in text and "http" not in re.sub(r"http-equiv", "", text)
    assert any("alert(1)" in part for part in checker.text)


def scaled(x, kind, factor=1.0):
    return x * len(kind) + factor


def test_recompiles_are_grouped_and_folded():
    kinds = ["a", "b", "c"]
    coverage = measured(scaled, *((torch.ones(3), kind) for kind in kinds))
    coverage.functions += measured(fn, (torch.ones(3),), (torch.ones(4),)).functions
    text = html_report.render(coverage)
    structure.check(text)
    groups = re.findall(r'<details class="panel fold-panel recompiled".*?</details>', text, re.DOTALL)
    assert len(groups) == 2 and not any('recompiled" open' in group for group in groups)
    (group,) = [group for group in groups if "<b>scaled</b>" in group]
    assert "2 recompiles" in group and "<code>kind</code> changed 2 times" in group
    assert re.search(r"<mark>&#39;a&#39;</mark>.*<mark>&#39;b&#39;</mark>", group, re.DOTALL)
    assert group.count("if ") == 0 and "test_html.py:" in group  # the line that asks for the guard


@pytest.mark.parametrize(
    "expected, found, left, right",
    [
        ("shape (8, 3)", "shape (8, 4)", ["3"], ["4"]),
        ("'layer'", "'max'", ["'layer'"], ["'max'"]),  # not the quotes alone are equal
        ("keys []", "keys ['a']", [], ["'a'"]),
    ],
)
def test_only_what_differs_is_marked(expected, found, left, right):
    for pieces, whole, marked in zip(side_by_side(expected, found), (expected, found), (left, right), strict=True):
        assert "".join(text for text, _ in pieces) == whole
        assert [text for text, differs in pieces if differs] == marked


def test_the_timeline_has_ticks_and_a_lane_for_each_function():
    names = [f"f{i}" for i in range(MAX_LANES + 2)]
    functions = [
        FunctionCoverage(name, calls=1, frames=[FrameRecord(name, "m.py", i, started=float(i), trace_seconds=i + 0.1)])
        for i, name in enumerate(names)
    ]
    events = [ProfilerEvent("function", 1, 50.0 + i, 0.5) for i in range(LAST_CALLS + 2)]
    whole, last = timelines(Coverage(functions, events=events, names=names))
    assert [lane.name for lane in whole.lanes] == [*sorted({*names} - {"f0", "f2"}, key=names.index), "2 others"]
    assert whole.seconds == pytest.approx(56.5)
    assert [text for _, text in whole.ticks] == ["0", "10 s", "20 s", "30 s", "40 s", "50 s"]
    assert [round(left, 1) for left, _ in whole.ticks][:3] == [0.0, 17.7, 35.4]
    assert last.title == f"The last {LAST_CALLS} calls of these" and last.seconds == pytest.approx(4.5)
    assert [(lane.name, len(lane.bars)) for lane in last.lanes] == [("f1", LAST_CALLS)]
    assert timelines(Coverage()) == []


@pytest.mark.skipif(structure.chromium() is None, reason="no Chromium to lay the page out")
def test_nothing_is_wider_than_a_phone(tmp_path):
    coverage = measured(fn, (torch.ones(3),), (torch.ones(4),))
    assert structure.overflowing(html_report.render(coverage, "a" * 100), tmp_path) == []


def test_an_empty_report():
    checker = structure.check(html_report.render(Coverage()))
    assert any("No compiled function was called." in text for text in checker.text)


def test_what_runs_eagerly_and_what_raced():
    race = [("inductor", 10.0, "10.0 µs, chosen"), ("eager", 40.0, "40.0 µs"), ("broken", None, "failed")]
    graph = GraphRecord(0, 5, 9, "inductor", race=race)
    frames = [
        FrameRecord("f", "gone.py", 3, graphs=[graph], recompile_reason="r", nearest=Miss(0, []), entry_index=1),
        FrameRecord("g", "gone.py", 9, skipped="skip_frame no"),
    ]
    page = page_of(Coverage([FunctionCoverage("F", calls=1, frames=frames)]))
    captured, eager = page.functions[0].places
    assert (captured.state, eager.state) == ("captured", "eager")
    bars = [(bar.name, bar.percent, bar.is_chosen) for bar in captured.versions[0].graphs[0].bars]
    assert bars == [("inductor", 25.0, True), ("eager", 100.0, False), ("broken", 0.0, False)]
    text = html_report.render(Coverage([FunctionCoverage("F", calls=1, frames=frames)]))
    structure.check(text)
    assert "The source of gone.py:3 can't be read." in text and "skip_frame no" in text


def test_time_goes_to_the_break_in_between():
    first, second = (BreakRecord(slug, "", (UserFrame("m.py", 5, "f"),)) for slug in ("call-print", "input-output"))
    frames = [
        FrameRecord("f", "m.py", 3, graphs=[GraphRecord(0, 1, 1, "eager")], breaks=[first]),
        FrameRecord("g", "m.py", 30, graphs=[GraphRecord(1, 1, 1, "eager")]),
        FrameRecord("f (resumed)", "m.py", 3, graphs=[GraphRecord(2, 1, 1, "eager")], is_resume=True, breaks=[second]),
    ]  # fmt: skip
    function = FunctionCoverage("f", frames=frames)
    function.gaps = {
        (None, 0): Gap(2, 9.0),  # the way in is no break's
        (0, 1): Gap(2, 1.0),  # f breaks, calls g
        (1, 2): Gap(2, 2.0),  # g is whole; f goes on: its break
        (2, None): Gap(2, 0.5),
    }
    costs = break_costs(Coverage([function]))
    assert [(c.record.slug, c.passes, c.seconds) for c in costs] == [("call-print", 2, 3.0), ("input-output", 2, 0.5)]


def test_thousands_of_frames():
    frames = [
        FrameRecord(f"f{i}", __file__, i % 3000 + 1, graphs=[GraphRecord(i, 5, 9, "eager")], started=i * 1.0)
        for i in range(3000)
    ]
    page = html_report.render(Coverage([FunctionCoverage("many", calls=1, frames=frames)]))
    assert structure.check(page).tags.count("details") > 6000 and len(page) < 12e6


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0"), (12.3456, "12.3 s"), (1234.5, "1,234 s"), (0.0123, "12.3 ms"), (5e-6, "5 µs"), (2e-7, "0.2 µs")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_from_explain_and_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "report.html"
    dynamo_lite.explain(fn)(torch.ones(3)).write_html(path, "mine")
    assert "def first_failure" in path.read_text() and "<title>mine" in path.read_text()
    script = tmp_path / "s.py"
    program = "import torch\n@torch.compile(backend='eager')\ndef f(x):\n    return x + 1\nf(torch.ones(2))\n"
    script.write_text(program)
    for command in ("run", "coverage", "explain"):
        out = tmp_path / f"{command}.html"
        assert main([command, "--html", str(out), str(script)]) == 0
        assert "1 op" in out.read_text() and f"report: {out}" in capsys.readouterr().err


def test_files_that_can_not_be_written_are_told_first(tmp_path, capsys, monkeypatch):
    script = tmp_path / "s.py"
    script.write_text("print('ran')")
    assert main(["run", "--html", str(script), "x.py"]) == 2
    assert "is a program" in capsys.readouterr().err and script.read_text() == "print('ran')"
    assert main(["run", "--html", str(tmp_path / "no" / "r.html"), str(script)]) == 2
    assert "there is no folder" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["run", "--html", str(tmp_path / "r.html"), str(script)]) == 2
    said = capsys.readouterr()
    assert "pip install 'dynamo-lite[report]'" in said.err and "ran" not in said.out
