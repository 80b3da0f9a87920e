"""Coverage: the text from hand-made records, and the counts from real ones."""

import re
import time

import pytest
import torch

import dynamo_lite
from dynamo_lite.breaks import UserFrame
from dynamo_lite.record import BreakRecord, FrameRecord, GraphRecord, log
from dynamo_lite.report.costs import break_costs
from dynamo_lite.report.coverage import Coverage, FunctionCoverage, Measurement


def frame(name, line, **fields):
    return FrameRecord(name, "model.py", line, **fields)


def test_report():
    place = UserFrame("model.py", 8, "forward", "    if b.sum() < 0:", 7, 18)
    function = FunctionCoverage("Model", calls=10, seconds=2.0, graph_seconds=1.5, captured_ops=90, eager_ops=10)
    function.frames = [
        frame(
            "forward", 3, trace_seconds=0.25, backend_seconds=1.0,
            graphs=[GraphRecord(0, 5, 9, "eager", calls=10, seconds=1.0)],
            breaks=[BreakRecord("data-dependent-branch", "b.sum() < 0", (place,))],
        ),
        frame("resume in forward", 8, graphs=[GraphRecord(1, 4, 7, "eager", calls=6, seconds=0.5)], is_resume=True),
        frame(
            "resume in forward", 8, graphs=[GraphRecord(2, 4, 7, "eager", calls=4)],
            entry_index=1, recompile_reason="x.shape[0] == 3\nk: expected 2", is_resume=True, trace_seconds=0.5,
        ),
    ]  # fmt: skip
    assert str(Coverage([function])).split("\n") == [
        "dynamo_lite coverage: 1 function, 3 frames, 3 graphs, 20 graph calls",
        "captured 90 of 100 (90.0%) operators, 75.0% of the time; 1 graph break, 1 recompile; "
        "trace 0.75 s, backend 1.00 s",
        "",
        "Model: 10 calls, captured 90 of 100 (90.0%) operators, 75.0% of 2.000 s",
        "  frame              where       graphs  calls  ops   time  breaks  recompiles  trace s",
        "  forward            model.py:3       1     10   50  50.0%       1           0    0.250",
        "  resume in forward  model.py:8       2     10   40  25.0%       0           1    0.500",
        "",
        "graph breaks",
        "  1x DL001 data-dependent branch: b.sum() < 0",
        "      model.py:8  if b.sum() < 0:",
        "",
        "recompiles",
        "  resume in forward model.py:8: x.shape[0] == 3",
        "      k: expected 2",
    ]


def test_report_of_nothing():
    assert "0 functions, 0 frames, 0 graphs, 0 graph calls" in str(Coverage())


def measured(fn, *calls, backend="eager"):
    with Measurement() as measurement:
        compiled = dynamo_lite.compile(fn, backend=backend)
        for args in calls:
            compiled(*args)
    return measurement.coverage()


X = torch.ones(3)


def test_one_graph():
    coverage = measured(lambda x: x.sin().cos() + 1, (X,), (X,), (X,))
    (function,) = coverage.functions
    assert (function.calls, function.captured_ops, function.eager_ops) == (3, 9, 0)
    assert (len(coverage.graphs), coverage.graph_calls, coverage.breaks, coverage.recompiles) == (1, 3, [], [])
    assert 0 < coverage.time_share <= 1


def test_operators_between_graphs_are_counted():
    @dynamo_lite.disable
    def outside(x):
        return x.exp() * 2

    def fn(x):
        return outside(x.sin()) + 1

    coverage = measured(fn, (X,), (X,))
    assert (coverage.captured_ops, coverage.total_ops) == (4, 8)
    assert len(coverage.breaks) == 1


def test_operators_outside_of_compiled_functions_do_not_count():
    with Measurement() as measurement:
        compiled = dynamo_lite.compile(torch.sin, backend="eager")
        X.exp()
        compiled(X)
        X.exp()
    assert measurement.coverage().total_ops == 1


def test_modules_methods_and_in_place():
    class Net(torch.nn.Module):
        def forward(self, x):
            return x + 1

        def other(self, x):
            return x + 2

    with Measurement() as measurement:
        net = dynamo_lite.compile(Net(), backend="eager")
        assert isinstance(net, Net)
        net(X)
        method = dynamo_lite.compile(Net().other, backend="eager")
        method(X)
    names = [function.name.rpartition(".<locals>.")[2] for function in measurement.coverage().functions]
    assert names == ["Net", "Net.other"]


def test_window(monkeypatch):
    with Measurement(window=0.0) as measurement:
        compiled = dynamo_lite.compile(torch.sin, backend="eager")
        compiled(X)
    coverage = measurement.coverage()
    assert coverage.window_seconds is not None and coverage.total_ops == 0 and coverage.graph_calls == 1
    assert re.search(r"operators were counted in the first 0\.\d\d\d s only", str(coverage))
    coverage.window_seconds = 60.2
    assert "operators were counted in the first 60 s only" in str(coverage)


def test_nothing_is_left_behind():
    context = log.capture_context
    with pytest.raises(ZeroDivisionError), Measurement():
        compiled = dynamo_lite.compile(lambda x: x / 0 and 1 / 0, backend="eager")
        compiled(1)
    assert log.capture_context is context


@pytest.mark.parametrize("nested", [True, False])
def test_a_break_in_a_function_is_passed_once_per_call(nested):
    def callee(x):
        x = x.sin()
        print(end="")
        return x.cos()

    def caller(x):
        for _ in range(3):
            x = callee(x * 2)
        return x

    with Measurement() as measurement, dynamo_lite.config.patch(nested_graph_breaks=nested):
        compiled = dynamo_lite.compile(caller, backend="eager")
        for _ in range(11):
            compiled(X)
    (cost,) = break_costs(measurement.coverage())
    assert cost.passes == 33


def test_the_rest_of_the_time():
    @dynamo_lite.disable
    def outside(x):
        time.sleep(0.01)
        return x

    coverage = measured(lambda x: outside(x.sin()) + 1, (X,), (X,), (X,))
    (line,) = [line for line in str(coverage).splitlines() if line.startswith("the rest of the time: ")]
    share, _, part = line.removeprefix("the rest of the time: ").partition("% ")
    assert float(share) > 80 and part.startswith("between graphs (breaks)")


def two_sides(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def sides_in_one_line(x):
    return x * 2 if x.sum() > 0 else x - 1


@pytest.mark.parametrize("callee, second", [(two_sides, "line {}"), (sides_in_one_line, "another place in line {}")])
def test_the_other_side_of_a_branch_in_a_called_function_is_no_recompile(callee, second):
    def fn(x):
        return callee(x) + 1

    coverage = measured(fn, (X,), (-X,), (X,))
    line = callee.__code__.co_firstlineno
    assert [(frame.is_resume, frame.entry_index) for frame in coverage.frames] == [(False, 0), (True, 0), (True, 1)]
    assert coverage.recompiles == [] and "recompiles\n" not in str(coverage)
    expected = line + 1 if callee is sides_in_one_line else line + 2
    assert [(f.path, f.expected, f.found) for f in coverage.frames[2].nearest.failures] == [
        (f"where {callee.__name__} goes on", f"line {expected}", second.format(line + (1 if second[0] == "a" else 3)))
    ]
    four = torch.ones(4)
    coverage = measured(fn, (X,), (-X,), (four,), (-four,))
    shapes = [(f.path, f.expected) for frame in coverage.recompiles for f in frame.nearest.failures]
    assert shapes == [("x", "shape (3)")] * 3
