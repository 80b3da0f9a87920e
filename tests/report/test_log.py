"""The log that capture writes."""

import threading

import torch
import torch._dynamo.utils

import dynamo_lite
from dynamo_lite.breaks import UserFrame
from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported
from dynamo_lite.record import BreakRecord, FrameRecord, GraphRecord, RecordLog, log


def frame(**fields):
    return FrameRecord("f", "f.py", 1, **fields)


def test_counters():
    records = RecordLog()
    records.add(frame(graphs=[GraphRecord(0, 3, 5, "eager"), GraphRecord(1, 4, 6, "eager")], restarts=2))
    records.add(frame(breaks=[BreakRecord("call-print", "print", ())], recompile_reason="x changed", entry_index=1))
    records.add(frame(skipped="too old"))
    assert records.counters["frames"] == {"total": 3, "ok": 2}
    assert records.counters["stats"] == {"unique_graphs": 2, "calls_captured": 7, "restarts": 2}
    assert records.counters["graph_break"] == {"DL020 print or logging": 1}
    assert records.counters["recompiles"] == {"x changed": 1}
    assert records.counters["skipped"] == {"too old": 1}
    assert records.counters["unimplemented"] == {"print or logging": 1}
    assert len(records.graphs()) == 2 and len(records.breaks()) == 1
    records.reset()
    assert not records.snapshot() and not records.counters


def test_counters_of_the_process():
    def f(x):
        print(x.shape)
        return x + 1

    counters = dynamo_lite.counters
    dynamo_lite.compile(f, backend="eager")(torch.ones(2))
    assert counters is log.counters and counters["graph_break"] == {"DL020 print or logging": 1}
    assert counters["stats"]["unique_graphs"] == 1 and counters["inductor"]["no such count"] == 0
    torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"] += 1
    try:
        assert (
            counters["inductor"]["fxgraph_cache_miss"] == torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"]
        )
    finally:
        torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"] -= 1
    dynamo_lite.reset()
    assert not counters


def test_ids_of_analyses():
    def f(x):
        return x + 1

    def g(x):
        return x - 1

    first, second = dynamo_lite.compile(f, backend="eager"), dynamo_lite.compile(g, backend="eager")
    for fn, n in ((first, 2), (second, 2), (first, 3)):
        fn(torch.ones(n))
    assert [frame.compile_id for frame in log.snapshot()] == ["0/0", "1/0", "0/1"]


def test_values_of_the_operand_stack_are_named_by_their_expression():
    def f(x):
        total = x.sum()
        return x * total.item() + 1

    compiled = dynamo_lite.compile(f, backend="eager")
    with dynamo_lite.config.patch(capture_scalar_outputs=False):
        for n in range(3):
            compiled(torch.full((2,), float(n)))
    (again,) = [frame.recompile_reason for frame in log.snapshot() if frame.recompile_reason]
    assert again.startswith("total.item(): expected 0.0, found 2.0")


def test_a_break_says_where_its_value_was_made():
    def f(x):
        flag = x.sum() > 0
        y = x * 2
        if flag:
            y = y + 1
        return y

    dynamo_lite.compile(f, backend="eager")(torch.ones(2))
    (record,) = log.breaks()
    assert record.origin.line.strip() == "flag = x.sum() > 0" and record.origin.lineno == record.user_frame.lineno - 2
    assert f"  this value was made at tests/report/test_log.py:{record.origin.lineno}: flag = x.sum() > 0" in str(
        record
    )


def test_a_break_about_an_argument():
    def f(x):
        return x + int(x)

    with dynamo_lite.config.patch(capture_scalar_outputs=False):
        dynamo_lite.compile(f, backend="eager")(torch.tensor(2.0))
    (record,) = log.breaks()
    assert record.origin is None and record.reason.startswith("DL002") and "was made" not in str(record)


def test_bounded():
    records = RecordLog(max_frames=3)
    for i in range(5):
        records.add(frame(restarts=i))
    assert [f.restarts for f in records.snapshot()] == [2, 3, 4]
    assert records.counters["frames"]["total"] == 5


def test_break_record():
    error = Unsupported("call-print", "print('x')")
    error.user_stack = (UserFrame("f.py", 3, "f", "    print('x')", 4, 14),)
    record = BreakRecord.of(error)
    assert (record.number, record.code, record.title) == (20, "DL020", "print or logging")
    assert record.reason == "DL020 print or logging: print('x')"
    assert record.user_frame.lineno == 3 and str(record) == str(error)


def test_listeners_and_threads():
    records = RecordLog()
    seen = []
    stop = records.listen(seen.append)
    threads = [threading.Thread(target=lambda: [records.add(frame()) for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == len(records.snapshot()) == records.counters["frames"]["total"] == 400
    stop()
    records.add(frame())
    assert len(seen) == 400
    assert len({records.next_graph_id() for _ in range(5)}) == 5


def test_timing_line(capsys):
    with config.patch(timing=True):
        log.add(frame(trace_seconds=0.5, backend_seconds=1.0))
    assert capsys.readouterr().err == "TIMING: entire_frame_compile:1.50000 backend_compile:1.00000 f f.py:1\n"
    log.reset()
