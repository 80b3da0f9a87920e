"""The log that capture writes."""

import threading

from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported, UserFrame
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
    assert len(records.graphs()) == 2 and len(records.breaks()) == 1
    records.reset()
    assert not records.snapshot() and not records.counters


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
