"""The lines TIMING and STATS, and the trace file."""

import json
import re

import torch

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.report.timing import summary, trace_events, write_trace


def captured():
    def fn(x):
        y = x.sin() + 1
        print(end="")
        return y * 2

    log.reset()
    dynamo_lite.compile(fn, backend="eager")(torch.ones(3))
    return log.snapshot()


def test_totals():
    frames = captured()
    timing, stats = summary(frames).split("\n")
    assert re.fullmatch(r"TIMING: entire_frame_compile:\d+\.\d{5} backend_compile:\d+\.\d{5}", timing)
    counts = dict(part.rsplit(":", 1) for part in stats.removeprefix("STATS: ").split(" | "))
    assert counts["frames"] == "2" and counts["call_* op count"] == "3" and counts["graphs"] == "2"
    assert counts["breaks"] == "1" and int(counts["guards"]) > 0 and int(counts["instructions"]) > 0
    assert sum(int(counts[name]) for name in ("FakeTensor dispatches", "memo hits", "shape rules")) >= 3


def test_events_nest_and_name_breaks(tmp_path):
    frames = captured()
    path = tmp_path / "trace.json"
    write_trace(frames, str(path))
    events = json.loads(path.read_text())["traceEvents"]
    assert events == json.loads(json.dumps(list(trace_events(frames))))
    outer = [e for e in events if e["cat"] == "frame"]
    inner = [e for e in events if e["cat"] == "backend"]
    assert len(outer) == len(inner) == 2
    assert any("test_timing.py" in place for e in outer for place in e["args"]["breaks at"])
    for frame, backend in zip(outer, inner, strict=True):
        assert frame["ts"] <= backend["ts"] <= backend["ts"] + backend["dur"] <= frame["ts"] + frame["dur"] + 1000
