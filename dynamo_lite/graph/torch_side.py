"""What `convert` and `trace` need of torch.

Input: a trace, or a finished graph. Output: the graph builder of a trace; the compiled callable of a graph.
Invariant: `no_torch` has the same functions.
"""

from __future__ import annotations

import linecache
import time
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

from ..backends.registry import backend_name, call_backend
from ..record import GRAPH_RECORD, GraphRecord, log
from .builder import GraphBuilder

new_graph = GraphBuilder
_hook = torch._C._dynamo.eval_frame


def capture_is_off() -> bool:
    """True while torch itself traces the program for export: it must see the original code."""
    return torch.compiler.is_exporting()


def hide_code(code: CodeType) -> None:
    """Have torch.compile, where it is active around a call of ours, leave this code and all that it calls alone."""
    _hook.set_code_exec_strategy(code, _hook._FrameExecStrategy(_hook._FrameAction.SKIP, _hook._FrameAction.SKIP))


def is_module(value: Any) -> bool:
    """True for instances of nn.Module."""
    return isinstance(value, torch.nn.Module)


def compile_graph(graph: GraphBuilder, backend: Any, fullgraph: bool) -> tuple[Any, GraphRecord]:
    """Hand a finished graph to the backend; the compiled callable and the graph's record."""
    gm = graph.finish()
    record = GraphRecord(log.next_graph_id(), graph.op_count, len(gm.graph.nodes), backend_name(backend), code_text=_text(gm))
    gm.meta[GRAPH_RECORD] = record
    weakref.finalize(gm, _forget_source, type(gm))
    started = time.perf_counter()
    with torch._guards.tracing(torch._guards.TracingContext(graph.propagator.mode)):
        compiled = call_backend(backend, gm, graph.example_inputs(), fullgraph=fullgraph)
    record.compile_seconds = time.perf_counter() - started
    return compiled, record


def _forget_source(cls: type) -> None:
    """Drop the source text that torch.fx and linecache keep for ever for each generated `forward`; `cls` is the dead module's own class."""
    filename = cls.forward.__code__.co_filename
    torch.fx.graph_module._loader.eval_cache.pop(filename, None)
    linecache.cache.pop(filename, None)


def _text(gm: torch.fx.GraphModule) -> Callable[[], str]:
    """The graph's code, as long as the graph lives."""
    ref = weakref.ref(gm)

    def text() -> str:
        module = ref()
        return module.code if module is not None else ""

    return text
