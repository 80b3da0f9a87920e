"""`explain(fn)(*args)`: the graphs, breaks and guards of one call, as an object with a readable `str`.

Input: a function or module, and arguments. Output: an `ExplainOutput`. The function really runs, once, with its
effects.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from dynamo_lite.api import Settings, compile_with, settings_of
from dynamo_lite.exc import many
from dynamo_lite.messages import short_path
from dynamo_lite.record import BreakRecord, FrameRecord, log

from . import html_report
from .coverage import Coverage, Measurement


@dataclass
class ExplainOutput:
    """The result of `explain`. The fields up to `compile_times` have the names and meanings of torch's `ExplainOutput`."""

    graphs: list[torch.fx.GraphModule]
    graph_count: int
    graph_break_count: int
    break_reasons: list[BreakRecord]
    op_count: int
    ops_per_graph: list[list[Any]]
    out_guards: list[str]
    compile_times: str
    coverage: Coverage

    @property
    def frames(self) -> list[FrameRecord]:
        return self.coverage.frames

    def write_html(self, path: str | os.PathLike[str], title: str | None = None) -> None:
        """The report for a browser, in one file. Needs jinja2. Raises ModuleNotFoundError, OSError."""
        html_report.write(self.coverage, path, title)

    def __str__(self) -> str:
        lines = [str(self.coverage)]
        for frame in self.frames:
            lines += ["", *describe_frame(frame)]
        return "\n".join(lines)


def describe_frame(frame: FrameRecord) -> list[str]:
    """One captured frame: its function, graphs, breaks and guards."""
    times = f"traced in {frame.trace_seconds:.3f} s, compiled in {frame.backend_seconds:.3f} s"
    place = f"{short_path(frame.filename)}:{frame.lineno}"
    lines = [f"── {frame.name} {place}: version {frame.entry_index}, {times}"]
    if frame.entry_index > 0:
        why = (
            f"recompiled because {frame.recompile_reason}"
            if frame.is_recompile
            else f"compiled because {frame.nearest}"
        )
        lines.append(why.replace("\n", "\n    "))
    if frame.skipped is not None:
        lines.append(f"not captured: {frame.skipped}")
    for graph in frame.graphs:
        lines.append(f"graph {graph.id}: {many(graph.op_count, 'operator')}, backend {graph.backend}")
        lines += [f"    branch on data, {text}" for text in graph.branches]
        lines += [f"    {name}: {text}" for name, _, text in graph.race or ()]
        lines += [f"    {name}: {note}" for name, notes in graph.notes.items() for note in notes]
        lines.append(graph.code_text().strip())
    lines += [f"behind the graph: {text}" for text in frame.delayed]
    for record in frame.breaks:
        lines += ["graph break", str(record)]
    if frame.specializations:
        lines += ["sizes and numbers that the code made constant", *[f"  {s}" for s in frame.specializations]]
    if frame.guards is not None:
        lines += [f"{len(frame.guards)} guards", frame.guards.text().strip()]
    return lines


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """`explain(fn)(*args, **kwargs)` runs `fn` once, captured afresh, and says what happened.

    The settings are those that `fn` was compiled with, without `fullgraph`; those of a function that is not compiled are the defaults, with
    the backend "eager". Earlier compiled versions are neither used nor changed. With arguments after `f` the call is made at once.
    Exceptions of `fn` propagate. Raises TypeError for what cannot be called.
    """
    if not callable(f):
        raise TypeError(f"expected a function, module or other callable, got {type(f).__name__}")

    def run(*args: Any, **kwargs: Any) -> ExplainOutput:
        settings = replace(settings_of(f) or Settings("eager"), isolate=True, fullgraph=False)
        graphs: list[torch.fx.GraphModule] = []
        with Measurement(keep_texts=True) as measurement:
            stop = log.listen(lambda frame: graphs.extend([graph.module() for graph in frame.graphs]))
            try:
                compile_with(settings, f)(*args, **kwargs)
            finally:
                stop()
        return _output(graphs, measurement.coverage())

    return run(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else run


def _output(graphs: list[torch.fx.GraphModule], coverage: Coverage) -> ExplainOutput:
    ops_per_graph = [[node.target for node in gm.graph.nodes if node.op.startswith("call_")] for gm in graphs]
    return ExplainOutput(
        graphs=graphs,
        graph_count=len(graphs),
        graph_break_count=len(coverage.breaks),
        break_reasons=coverage.breaks,
        op_count=sum(map(len, ops_per_graph)),
        ops_per_graph=ops_per_graph,
        out_guards=[frame.guards.text() for frame in coverage.frames if frame.guards is not None],
        compile_times="\n".join(frame.timing() for frame in coverage.frames),
        coverage=coverage,
    )
