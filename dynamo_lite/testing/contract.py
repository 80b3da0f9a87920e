"""A record of the capture of a function, with which tests compare later captures.

Input: a function or module, the arguments of one call or more. Output: a `Captured`; its `text` is what a lock file holds, one fact a line
and without line numbers, so that only changes of the capture change it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.api import compile
from dynamo_lite.backends.handed import on_copies
from dynamo_lite.backends.registry import lookup_backend
from dynamo_lite.config import config
from dynamo_lite.exc import many
from dynamo_lite.record import BreakRecord, FrameRecord, log

if TYPE_CHECKING:
    from torch.fx import GraphModule

Arguments = Sequence[Any]


@dataclass
class Captured:
    """Operators of each graph, breaks, reasons of recompilations, sizes that are symbolic, frames that were left alone (with reasons)."""

    graphs: list[int] = field(default_factory=list)
    breaks: list[BreakRecord] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)
    dynamic: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, frame: FrameRecord) -> None:
        """Add the record of a frame."""
        self.graphs += [graph.op_count for graph in frame.graphs]
        self.breaks += frame.breaks
        if frame.recompile_reason is not None:
            self.recompiles.append(frame.recompile_reason)
        if frame.skipped is not None:
            self.skipped.append(f"{frame.name}: {frame.skipped}")

    def text(self) -> str:
        """The lines of a lock file."""
        lines = [many(len(self.graphs), "graph"), many(len(self.breaks), "break")]
        lines.append(many(len(self.recompiles), "recompilation"))
        lines += [f"graph {i}: {many(n, 'operator')}" for i, n in enumerate(self.graphs)]
        lines += [f"break {i}: {_line_of(record)}" for i, record in enumerate(self.breaks)]
        lines += [f"symbolic: {name}" for name in dict.fromkeys(self.dynamic)]
        lines += [f"not captured: {text}" for text in self.skipped]
        return "\n".join(lines) + "\n"


def _line_of(record: BreakRecord) -> str:
    frame = record.user_frame
    if frame is None:
        return f"{record.code} {record.title}"
    line = frame.line or ""
    return f"{record.code} {record.title}, {os.path.basename(frame.filename)} in {frame.function}: {line}"


def capture_of(
    fn: Callable[..., Any],
    args: Arguments = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    then: Iterable[Arguments] = (),
    backend: str | Callable[..., Any] = "eager",
    dynamic: bool | None = None,
) -> Captured:
    """Call a function, captured afresh, with `args` and `kwargs`, then with the positional arguments in `then` and the same `kwargs`.

    Earlier versions and the cache are neither used nor changed. Exceptions of the function propagate.
    """
    captured = Captured()
    compiler = on_copies(lookup_backend(backend))

    def noting(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        for node in gm.graph.find_nodes(op="placeholder"):
            fake = node.meta.get("example_value")
            if isinstance(fake, torch.Tensor):
                captured.dynamic += [
                    f"{node.target}.size({i})" for i, size in enumerate(fake.shape) if isinstance(size, torch.SymInt)
                ]
        return compiler(gm, example_inputs)

    with config.patch(cache=False):
        compiled = compile(fn, backend=noting, dynamic=dynamic, isolate_recompiles=True)
        with log.recording() as frames:
            for arguments in (args, *then):
                compiled(*arguments, **(kwargs or {}))
    for frame in frames:
        captured.add(frame)
    return captured


def assert_captured(
    fn: Callable[..., Any],
    args: Arguments = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    graphs: int | None = 1,
    breaks: int | None = 0,
    recompiles: int | None = 0,
    then: Iterable[Arguments] = (),
    backend: str | Callable[..., Any] = "eager",
    dynamic: bool | None = None,
) -> Captured:
    """As `capture_of`; AssertionError if the numbers are others, with the breaks and what to do about them. None: any number."""
    __tracebackhide__ = True  # pytest shows the test's own line
    captured = capture_of(fn, args, kwargs, then=then, backend=backend, dynamic=dynamic)
    found = (len(captured.graphs), len(captured.breaks), len(captured.recompiles))
    wanted = (graphs, breaks, recompiles)
    if any(w is not None and w != f for w, f in zip(wanted, found, strict=True)):
        names = ("graph", "break", "recompilation")
        told = [many(f, name) for f, name in zip(found, names, strict=True)]
        expected = [many(w, name) for w, name in zip(wanted, names, strict=True) if w is not None]
        lines = [f"captured in {', '.join(told)}; expected {', '.join(expected)}"]
        lines += map(str, captured.breaks)
        lines += [f"recompiled because {reason}" for reason in captured.recompiles]
        lines += [f"not captured: {text}" for text in captured.skipped]
        raise AssertionError("\n".join(lines))
    return captured
