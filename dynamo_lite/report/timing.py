"""Where the time of captures goes: two lines of totals, and a file for a trace viewer.

Input: the frames of `record.log`. Output: the lines `TIMING:` and `STATS:`; a JSON file in Chrome's trace event format, which
ui.perfetto.dev and chrome://tracing show (docs: "Trace Event Format", Google, 2016).
Invariant: reads records only; times are seconds in the records and microseconds in the file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from dynamo_lite.record import FrameRecord


def summary(frames: Iterable[FrameRecord]) -> str:
    """The totals over frames: `TIMING: entire_frame_compile:… backend_compile:…` and `STATS: call_* op count:… | …`."""
    frames = list(frames)
    trace = sum(frame.trace_seconds for frame in frames)
    backend = sum(frame.backend_seconds for frame in frames)
    counts: Counter[str] = Counter()
    for frame in frames:
        counts.update(frame.counts())
    stats = " | ".join(f"{name}:{n}" for name, n in [("frames", len(frames)), *counts.items()])
    return f"TIMING: entire_frame_compile:{trace + backend:.5f} backend_compile:{backend:.5f}\nSTATS: {stats}"


def trace_events(frames: Iterable[FrameRecord]) -> Iterator[dict[str, Any]]:
    """One event for each analysed frame, with its counts, and one inside it for each graph's compilation."""
    process = os.getpid()
    for frame in frames:
        seconds = frame.trace_seconds + frame.backend_seconds
        event = {"ph": "X", "pid": process, "tid": 1}
        arguments = {
            "location": frame.location,
            **frame.counts(),
            "breaks at": [str(b.user_frame) for b in frame.breaks],
        }
        if frame.recompile_reason is not None:
            arguments["recompiled because"] = frame.recompile_reason
        start = frame.started * 1e6
        yield {**event, "name": frame.name, "cat": "frame", "ts": start, "dur": seconds * 1e6, "args": arguments}
        # A graph goes to the backend when the analysis is done.
        at = start + frame.trace_seconds * 1e6
        for graph in frame.graphs:
            length = graph.compile_seconds * 1e6
            about = {"operators": graph.op_count, "graph": graph.id}
            yield {
                **event,
                "name": f"backend {graph.backend}",
                "cat": "backend",
                "ts": at,
                "dur": length,
                "args": about,
            }
            at += length


def write_trace(frames: Iterable[FrameRecord], path: str) -> None:
    """Write the events of frames as a trace file. Raises OSError if the path can't be written."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": list(trace_events(frames)), "displayTimeUnit": "ms"}, file)
