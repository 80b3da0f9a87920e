"""The texts of `compile_log`.

Input: records of what was captured, graphs, guards, code. Output: text in the form in which torch's compiler logs the same, and data for
its structured trace.
Invariant: no code of the program runs for them.
"""

from __future__ import annotations

import dis
import linecache
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType
from typing import Any

import torch
from torch._logging.structured import intern_string

from dynamo_lite.breaks import format_origin
from dynamo_lite.guards import ir
from dynamo_lite.guards.descriptions import short
from dynamo_lite.isa.typeobject import qualname_of
from dynamo_lite.messages import is_users
from dynamo_lite.record import BreakRecord, FrameRecord, Miss, MissedGuard

from .guard_tree import guard_line, source_of


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def failed(version: FrameRecord, failures: Sequence[MissedGuard]) -> str:
    """Failed guards of a version, one a line. Those of a tensor name it as torch does."""
    lines = []
    for failure in failures:
        what = f"tensor {failure.path!r} mismatch." if failure.kind == ir.TENSOR else f"{failure.path}:"
        line = f"- {version.compile_id}: {what} expected {failure.expected}, actual {failure.found}"
        lines.append(line + at_line(failure.user_line))
    return "\n".join(lines or [f"- {version.compile_id}: {Miss(0, ())}"])


def at_line(user: tuple[str, int] | None) -> str:
    """A line of the program, as a comment."""
    if user is None:
        return ""
    return f"  # {linecache.getline(*user).strip()}  # {user[0]}:{user[1]}"


def break_text(record: BreakRecord, with_stack: bool) -> str:
    """A break in the order in which torch tells of one: where, why, what to do, the calls that led there."""
    user = record.user_frame
    where = f" in user code at {user.location}" if user is not None else ""
    about = record.reason if not record.context else record.reason.removesuffix(f": {record.context}")
    again = "" if with_stack else " (user stack suppressed due to duplicate graph break)"
    lines = [f"Graph break{again}{where}", f"Graph Break Reason: {about}", f"  Explanation: {record.why}"]
    lines += [f"  {line}" for line in format_origin(record.origin, record.user_stack)]
    lines += [f"  Hint: {record.what_to_do}", *[f"  Hint: Set {setting}" for setting in record.kind.settings]]
    lines += ["", f"  Developer debug context: {record.context}", ""]
    lines += [f" For more details about this graph break, please visit: {record.kind.page}", ""]
    if with_stack:
        stack = [*stack_above(), *record.user_stack]
        lines += ["User code traceback:", formatted(stack)]
    return "\n".join(lines)


def stack_above() -> traceback.StackSummary:
    """The frames of the program that are running, outermost first."""
    frames = [(f, n) for f, n in traceback.walk_stack(sys._getframe(1)) if is_users(f.f_code.co_filename)]
    return traceback.StackSummary.extract(reversed(frames), lookup_lines=False)


def formatted(stack: Iterable[traceback.FrameSummary]) -> str:
    return "".join(traceback.format_list(list(stack)))


def effect_lines(changes: Iterable[Any]) -> Iterator[str]:
    """What a version does behind its graph: to which objects of the program, or the call that writes."""
    for each in changes:
        if place := getattr(each, "place", None):
            yield f"Delayed call at {place}"
            continue
        path = source_of(each.source) if each.source is not None else "none"
        yield f"Mutating object of type {qualname_of(each.python_type())} (source name: {path})"


def as_dict(record: FrameRecord) -> dict[str, Any]:
    """The frame that is compiled, as the innermost entry of a stack."""
    return {"line": record.lineno, "name": record.name, "filename": intern_string(record.filename), "loc": ""}


def guard_data(guard: ir.Guard) -> dict[str, Any]:
    stack = None
    if guard.user is not None:
        filename, lineno = guard.user
        stack = [
            {
                "line": lineno,
                "name": "",
                "filename": intern_string(filename),
                "loc": linecache.getline(filename, lineno).strip(),
            }
        ]
    return {"code": guard_line(guard).partition("  # ")[0].rstrip(), "stack": None, "user_stack": stack}


def as_table(gm: torch.fx.GraphModule) -> str:
    """The nodes of a graph in columns."""
    rows = [("opcode", "name", "target", "args", "kwargs")]
    rows += [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in gm.graph.nodes]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def sizes_of(gm: torch.fx.GraphModule) -> dict[str, Any]:
    """Node → the sizes of its tensor."""
    values = {node.name: node.meta.get("example_value") for node in gm.graph.nodes}
    return {name: value.shape for name, value in values.items() if isinstance(value, torch.Tensor)}


def plain_size(size: Any) -> int | str:
    return size if type(size) is int else str(size)


class _Constant:
    """A constant in a disassembly, whose own text would be made by the program."""

    def __init__(self, value: object) -> None:
        self.text = short(value)

    def __repr__(self) -> str:
        return self.text


def disassembled(code: CodeType) -> str:
    shown = tuple([value if type(value) in _PLAIN else _Constant(value) for value in code.co_consts])
    return dis.Bytecode(code.replace(co_consts=shown)).dis()


_PLAIN = frozenset({int, float, complex, str, bytes, bool, type(None), type(...)})
