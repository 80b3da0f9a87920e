"""Traceback objects.

Input: the frames that an exception of the traced program leaves. Output: `TracebackVariable`, one entry.
Invariant: file, function, line and columns of an entry are those of eager execution; what only the real frame knows (its variables,
its caller) breaks the graph where the exception is raised, so that it is raised in real frames.
Mirrors `Python/traceback.c`.
"""

from __future__ import annotations

import traceback
import types
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.resume import HOLDER, FrameHolder, frame_stub, holder_of
from dynamo_lite.variables.protocol.base import Child, Plain, VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import (
    PlainObject,
    foreign_attribute,
    getset,
)
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.wrap import builds

from .frame_object import FrameVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class TracebackVariable(PlainObject):
    """One entry of a traceback. `next` is the entry one frame further in, or None."""

    cls = TracebackType
    frame: FrameVariable = Plain()
    lasti: int = Plain()
    lineno: int = Plain()
    next: VariableTracker = Child()

    def children(self) -> Any:
        holder = self.frame.holder
        return (self.next,) if holder is None else (self.next, holder)

    def emit_new(self, cg: Codegen) -> None:
        frame = self.frame.frame
        cg.load_callable(make_entry)
        cg.load(self.next)
        cg.load_const(frame_stub(frame.code))
        cg.load_const(frame.globals.value)
        cg.load_const(self.lasti)
        cg.load_const(self.lineno)
        if self.frame.holder is not None:
            cg.load(self.frame.holder)
        cg.asm.call(5 + (self.frame.holder is not None))


def make_entry(
    next_: TracebackType | None,
    code: types.CodeType,
    globals_: dict[str, Any],
    lasti: int,
    lineno: int,
    holder: FrameHolder | None = None,
) -> TracebackType:
    """A real entry. `code` is a generator's, so that there is a frame of it without anything being run. `holder` keeps the frame that it
    stands for, if that goes on after a graph break."""
    frame = types.FunctionType(code, globals_)().gi_frame
    frame.f_trace = holder
    return TracebackType(next_, frame, lasti, lineno)


class FrameHolderVariable(VariableTracker):
    """A `FrameHolder` that is made at a graph break; `reference`: the one that the frame had before, if any."""

    holds_weakly = True

    def __init__(self, reference: VariableTracker | None) -> None:
        self.reference = reference

    def python_type(self) -> type:
        return FrameHolder

    def children(self) -> Any:
        return () if self.reference is None else (self.reference,)

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(holder_of)
        if self.reference is None:
            cg.load_const(None)
        else:
            cg.load(self.reference)
        cg.asm.call(1)


def hold_frames(frames: list[Frame], escaping: list[Any]) -> None:
    """Give holders to those of the frames, which go on after a graph break, that are in tracebacks among the objects that are built."""
    for vt in escaping:
        if (
            not is_lazy(vt)
            and isinstance(vt, TracebackVariable)
            and vt.frame.holder is None
            and vt.frame.frame in frames
        ):
            frame = vt.frame.frame
            names = frame.lifted.local_names
            vt.frame.holder = FrameHolderVariable(frame.locals[names.index(HOLDER)] if HOLDER in names else None)


class SourcedTracebackVariable(PlainObject):
    """A traceback that exists before the frame."""

    cls = TracebackType
    value: TracebackType = Plain()


@builds(TracebackType)
def build_traceback(tr: Trace, value: TracebackType, source: GuardNode | None) -> SourcedTracebackVariable:
    tr.guard(source, ir.TYPE_IS, TracebackType)
    return SourcedTracebackVariable(value, source)


def _member(name: str, read: Any) -> None:
    """Register a member that an entry of the traced program knows itself; a real traceback is asked."""
    descriptor = TracebackType.__dict__[name]

    def get(tx: Frame, self: VariableTracker) -> VariableTracker:
        return read(self) if isinstance(self, TracebackVariable) else foreign_attribute(tx, self, descriptor)

    getset(descriptor)(get)


_member("tb_next", lambda tb: tb.next)
_member("tb_frame", lambda tb: tb.frame)
_member("tb_lasti", lambda tb: ConstantVariable(tb.lasti))
_member("tb_lineno", lambda tb: ConstantVariable(tb.lineno))


@builtin(traceback.clear_frames)
def clear_frames(tx: Frame, tb: VariableTracker) -> None:
    """The end of `assertRaises` of `unittest`. The frames that an exception of the traced code has left are gone, with all that was in
    them."""
    while isinstance(tb, TracebackVariable):
        tb = tb.next
    if not is_none(tb):
        unsupported("frame-introspection", "clear_frames of a real traceback")


def is_traceback(v: VariableTracker) -> bool:
    """True for None and for anything that `__traceback__` may be."""
    return v.python_type() is TracebackType or is_none(v)
