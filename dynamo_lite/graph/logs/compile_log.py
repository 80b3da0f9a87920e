"""What an analysis tells torch's logs (`TORCH_LOGS`, `torch._logging.set_logs`) and its structured trace (`TORCH_TRACE`).

Input: the events of an analysis, in their order. Output: records of the loggers that torch registers, in the form that `torch._dynamo`
gives them; while the analysis runs, torch knows its compile id and puts it before its own messages.
Invariant: nothing is formatted that nobody has asked for, and no code of the program runs for it.
"""

from __future__ import annotations

import linecache
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from time import time
from types import CodeType
from typing import Any

import torch
from torch._guards import CompileContext, CompileId, compile_context
from torch._logging import LazyString, getArtifactLogger, trace_structured
from torch._logging._internal import trace_log
from torch._logging.structured import from_traceback
from torch.fx._utils import lazy_format_graph_code

from dynamo_lite.config import config
from dynamo_lite.guards import ir
from dynamo_lite.guards.descriptions import short
from dynamo_lite.record import BreakRecord, FrameRecord, GraphRecord, MissedGuard

from .guard_tree import guard_tree
from .texts import (
    as_dict,
    as_table,
    at_line,
    break_text,
    disassembled,
    effect_lines,
    failed,
    formatted,
    guard_data,
    indented,
    plain_size,
    sizes_of,
    stack_above,
)

# Below the loggers of torch's compiler: `TORCH_LOGS` finds handlers and levels there, without loading that package.
NAME = "torch." + "_dynamo.dynamo_lite"
SIZES = "torch.fx.experimental.symbolic_shapes.dynamo_lite"

_log = logging.getLogger(NAME)
_sizes = logging.getLogger(SIZES)
_breaks, _recompiles, _verbose, _guards, _bytecode, _code, _table, _graph_sizes, _effects, _lines, _calls, _steps = [
    getArtifactLogger(NAME, artifact)
    for artifact in (
        "graph_breaks",
        "recompiles",
        "recompiles_verbose",
        "guards",
        "bytecode",
        "graph_code",
        "graph",
        "graph_sizes",
        "side_effects",
        "trace_source",
        "trace_call",
        "trace_bytecode",
    )
]
_told: set[tuple[Any, ...]] = set()
"""Breaks whose stack has been logged, and advice that has been given."""


class CompileLog:
    """The log of one analysis: a context in which torch knows the compile id. `ids`: numbers of the frame and of the analysis among those
    of the frame. `misses` gives the versions that do not fit, with the failed guards of each."""

    def __init__(
        self,
        record: FrameRecord,
        code: CodeType,
        ids: tuple[int, int],
        misses: Callable[[], Sequence[tuple[FrameRecord, Sequence[MissedGuard]]]],
    ) -> None:
        self.record = record
        self.code = code
        self.misses = misses
        self.context = CompileContext(CompileId(frame_id=ids[0], frame_compile_id=ids[1]))
        self.restart_reasons: list[str] = []
        self.inputs = 0  # of all graphs
        self.started = time()
        record.compile_id = str(self.context.compile_id)

    def __enter__(self) -> CompileLog:
        self._inside = compile_context(self.context)
        self._inside.__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        _trace("compilation_metrics", lambda: self._metrics(exc_info[1]), record_logging_overhead=False)
        self._inside.__exit__(None, None, None)

    def begins(self) -> None:
        """The analysis begins."""
        record = self.record
        _trace("dynamo_start", lambda: {"stack": [*from_traceback(stack_above()), as_dict(record)]})
        place = f"{record.name} {record.filename}:{record.lineno}"
        if _is_on(_log):
            _log.debug("torchdynamo start compiling %s, stack:\n%s", place, formatted(stack_above()))
        if record.is_recompile and (_is_on(_recompiles) or _is_on(_verbose) or _is_traced()):
            self._recompiled()
        _log.info("Step 1: torchdynamo start tracing %s", place)
        self._show_code("ORIGINAL", self.code)

    def _recompiled(self) -> None:
        misses = self.misses()
        first = [failed(version, failures[:1]) for version, failures in misses]
        if _is_on(_verbose):
            each = [f"guard {i} failures:\n{failed(*miss)}" for i, miss in enumerate(misses)]
            _verbose.debug(self._why_again("\n\n".join(each)))
        else:
            _recompiles.debug("%s", LazyString(lambda: self._why_again("\n".join(first))))
        _artifact("recompile_reasons", "json", lambda: [text.removeprefix("- ") for text in first])

    def _why_again(self, failures: str) -> str:
        record = self.record
        text = f"triggered by the following guard failure(s):\n{failures}"
        return f"Recompiling function {record.name} in {record.filename}:{record.lineno}\n{indented(text)}"

    # -- on the way

    def watched(self, handlers: list[Any]) -> list[Any]:
        """The handlers of instructions, with what tells of each one that is interpreted if somebody listens."""
        if not _is_on(_lines) and not _is_on(_steps):
            return handlers
        line: list[Any] = [None]  # that is interpreted, with its frame
        return [None if handler is None else _watched(handler, line) for handler in handlers]

    def restarts(self, reason: str) -> None:
        """The analysis begins again."""
        self.context.attempt += 1
        self.restart_reasons.append(reason)
        _log.info("Restarting analysis due to %s", reason)

    def breaks(self, records: Iterable[BreakRecord]) -> None:
        """The version that is being made ends at these breaks."""
        for record in records:
            key = record.slug, tuple(record.user_stack)
            if _is_on(_breaks):
                _breaks.debug("%s", break_text(record, key not in _told))
                _told.add(key)
            _advise(record)
            _artifact("dynamo_graph_break_reason", "string", lambda record=record: break_text(record, True))

    def graph(self, gm: torch.fx.GraphModule, record: GraphRecord, inputs: int) -> None:
        """A graph with so many inputs is complete, and the backend gets it next. Nodes of a stored graph are made if a log is on."""
        name = f"__compiled_fn_{record.id}"
        self.inputs += inputs
        detail = {"include_stride": True, "include_device": True}
        _table.debug("%s", LazyString(lambda: f"TRACED GRAPH\n ===== {name} =====\n {as_table(gm)}\n"))
        if _is_on(_calls):
            _show_calls(gm)
        _code.debug("%s", lazy_format_graph_code(name, gm, colored=True, **detail))
        sizes = LazyString(lambda: "\n".join(f"{node}: {tuple(size)}" for node, size in sizes_of(gm).items()))
        _graph_sizes.debug("TRACED GRAPH TENSOR SIZES\n===== %s =====\n%s\n", name, sizes)
        _trace(
            "dynamo_output_graph",
            lambda: {"sizes": {node: [plain_size(n) for n in size] for node, size in sizes_of(gm).items()}},
            payload_fn=lambda: gm.print_readable(print_output=False, **detail),
        )
        _log.info("Step 2: calling compiler function %s", record.backend)

    def compiled(self, record: GraphRecord) -> None:
        """The backend has returned."""
        _log.info("Step 2: done compiler function %s", record.backend)

    def sizes(self, symbols: Any) -> None:
        """The symbols of the analysis: what they stand for, what the program decides by them, which became constants."""
        if not _sizes.isEnabledFor(logging.INFO):
            return
        env = symbols.env
        for each in symbols.tracked:
            if each.first is not None:
                limits = env.var_to_range.get(each.first)
                bounds = f" [{limits.lower}, {limits.upper}]" if limits is not None else ""
                _sizes.info(
                    "create_symbol %s = %s for %s%s",
                    each.first,
                    env.backed_var_to_val.get(each.first),
                    each.text,
                    bounds,
                )
        for guard in env.guards:
            _sizes.info("eval %s [guard added]%s", guard.expr, at_line(guard.sloc.maybe_user_loc))
        for constant in symbols.specializations:
            _sizes.info(
                "set_replacement %s = %s (specialized)%s", constant.text, constant.value, at_line(constant.user)
            )
        _sizes.info("produce_guards")

    def changes(self, objects: Iterable[Any]) -> None:
        """What the version changes of the objects that the program has, and what it writes."""
        texts = LazyString(lambda: "\n".join(effect_lines(objects)))
        if objects:
            _effects.debug("%s", texts)
            _artifact("dynamo_side_effects", "string", lambda: str(texts))

    def committed(self, code: CodeType, guards: Callable[[], ir.GuardSet]) -> None:
        """A version is there: its code, and what makes its guards."""
        _log.info("Step 1: torchdynamo done tracing %s", self.record.name)
        self._show_code("MODIFIED", code)
        if _is_on(_guards):
            _guards.debug("GUARDS:")
            _guards.debug("\n%s", guard_tree(guards()))
        _trace("dynamo_cpp_guards_str", payload_fn=lambda: guard_tree(guards()))
        _trace("dynamo_guards", payload_fn=lambda: [guard_data(guard) for guard in guards().guards])

    def _show_code(self, which: str, code: CodeType) -> None:
        record = self.record
        title = f"{which} BYTECODE {record.name} {record.filename} line {record.lineno} "
        _bytecode.debug("%s\n%s\n", title, LazyString(lambda: disassembled(code)))
        if self.record.is_resume or which == "MODIFIED":
            _artifact(f"{record.name}_{which}_BYTECODE", "string", lambda: disassembled(code))

    # -- the end

    def _metrics(self, error: BaseException | None) -> dict[str, Any]:
        """The numbers of the analysis, under the names of torch's `CompilationMetrics`."""
        record = self.record
        spent = record.trace_seconds + record.backend_seconds
        user = record.breaks[-1].user_frame if record.breaks and record.skipped is not None else None
        return {
            "compile_id": record.compile_id,
            "frame_key": str(self.context.compile_id.frame_id),
            "co_name": record.name,
            "co_filename": record.filename,
            "co_firstlineno": record.lineno,
            "cache_size": record.entry_index,
            "accumulated_cache_size": record.entry_index,
            "guard_count": len(record.guards) if record.guards is not None else None,
            "graph_op_count": record.ops_total,
            "graph_node_count": sum(graph.node_count for graph in record.graphs),
            "graph_input_count": self.inputs,
            "start_time": self.started,
            "entire_frame_compile_time_s": spent,
            "backend_compile_time_s": record.backend_seconds,
            "fail_type": type(error).__name__ if error is not None else None,
            "fail_reason": str(error) if error is not None else record.skipped,
            "fail_user_frame_filename": user.filename if user is not None else None,
            "fail_user_frame_lineno": user.lineno if user is not None else None,
            "non_compliant_ops": [],
            "compliant_custom_ops": [],
            "restart_reasons": sorted(set(self.restart_reasons)),
            "dynamo_time_before_restart_s": 0.0,
            "has_guarded_code": record.skipped is None and error is None,
            "num_graph_breaks": len(record.breaks),
            "recompile_reason": record.recompile_reason,
            "start_time_us": int(self.started * 1e6),
            "duration_us": int(spent * 1e6),
            "end_time_us": int((self.started + spent) * 1e6),
            "dynamo_cumulative_compile_time_us": int(record.trace_seconds * 1e6),
            "config_suppress_errors": config.suppress_errors,
            "specialize_float": config.specialize_float,
            "pytorch_version": torch.__version__,
            "python_version": sys.version,
            "is_forward": True,
            "is_runtime": False,
        }


def _is_on(logger: logging.Logger) -> bool:
    return logger.isEnabledFor(logging.DEBUG)


def _is_traced() -> bool:
    """Whether somebody reads the structured trace. torch's own handler writes nothing without a folder, and takes itself away at its first
    record; pytest adds its handlers to each logger that does not propagate."""
    return any(
        type(handler).__module__ != "_pytest.logging" and getattr(handler, "root_dir", "") is not None
        for handler in trace_log.handlers
    )


def _trace(name: str, metadata: Callable[[], Any] = dict, **options: Any) -> None:
    if _is_traced():
        trace_structured(name, metadata, **options)


def _artifact(name: str, encoding: str, payload: Callable[[], Any]) -> None:
    _trace("artifact", lambda: {"name": name, "encoding": encoding}, payload_fn=payload)


def _advise(record: BreakRecord) -> None:
    """Say once in a process that numbers of tensors need not break graphs."""
    if record.slug != "data-dependent-operator" or not record.context.startswith(_NUMBERS) or _NUMBERS in _told:
        return
    _told.add(_NUMBERS)
    user = record.user_frame
    place = "\n\nGraph break: from user code at:\n" + formatted([user]) if user is not None else ""
    (setting,) = record.kind.settings
    first, _, variable = setting.partition(", or ")
    _log.warning(
        "Graph break from `%s`, consider setting:\n    %s\nor:\n    env %s\nto include these operations in the captured graph.%s",
        record.context,
        first,
        variable,
        place,
    )


_NUMBERS = ("Tensor.item()", "int(", "float(", "index(")


def _watched(handler: Any, line: list[Any]) -> Any:
    """The handler of an instruction, told of in torch's words."""

    def call(frame: Any, instr: Any) -> Any:
        filename, name = frame.code.co_filename, frame.code.co_name
        if instr.lineno is not None and line != [(id(frame), instr.lineno)]:
            line[:] = [(id(frame), instr.lineno)]
            depth = f" (inline depth: {frame.tr.thread.depth})" if frame.parent is not None else ""
            source = linecache.getline(filename, instr.lineno).rstrip()
            _lines.debug("TRACE starts_line %s:%s in %s%s\n    %s", filename, instr.lineno, name, depth, source)
        if _is_on(_steps):
            arg = "" if instr.arg is None else short(instr.arg)
            _steps.debug("TRACE %s %s [%s]", instr.op.name, arg, ", ".join(type(item).__name__ for item in frame.stack))
        return handler(frame, instr)

    return call


def _show_calls(gm: torch.fx.GraphModule) -> None:
    """The operators of a graph, with the lines that call them."""
    for node in gm.graph.nodes:
        place = getattr(node.meta, "place", None) if node.op.startswith("call_") else None
        if place is not None:
            code, lineno = place.code, place.lineno
            line = linecache.getline(code.co_filename, lineno).rstrip()
            _calls.debug(
                "TRACE FX call %s from %s:%s in %s\n%s", node.name, code.co_filename, lineno, code.co_name, line
            )
