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
from dynamo_lite.isa.resume import frame_stub
from dynamo_lite.variables.protocol.abstract import type_name
from dynamo_lite.variables.protocol.base import Child, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import (
    PlainObject,
    foreign_attribute,
    getset,
)
from dynamo_lite.variables.protocol.dispatch import builtin, constructor
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

    def emit_new(self, cg: Codegen) -> None:
        frame = self.frame.frame
        cg.load_callable(make_entry)
        cg.load(self.next)
        cg.load_const(frame_stub(frame.code))
        cg.load_const(frame.globals.value)
        cg.load_const(self.lasti)
        cg.load_const(self.lineno)
        cg.asm.call(5)


def make_entry(
    next_: TracebackType | None, code: types.CodeType, globals_: dict[str, Any], lasti: int, lineno: int
) -> TracebackType:
    """A real entry. `code` is a generator's, so that there is a frame of it without anything being run."""
    frame = types.FunctionType(code, globals_)().gi_frame
    return TracebackType(next_, frame, lasti, lineno)


class SourcedTracebackVariable(PlainObject):
    """A traceback that exists before the frame. Replayed is that its frames were cleared."""

    cls = TracebackType
    value: TracebackType = Plain()

    def emit_update(self, cg: Codegen) -> None:
        cg.load_callable(traceback.clear_frames)
        cg.load(self)
        cg.asm.call(1)
        cg.asm.pop_top()


@builds(TracebackType)
def build_traceback(tr: Trace, value: TracebackType, source: GuardNode | None) -> SourcedTracebackVariable:
    tr.guard(source, ir.TYPE_IS, TracebackType)
    return SourcedTracebackVariable(value, source)


def _set_next(tx: Frame, self: VariableTracker, value: VariableTracker | None) -> None:
    """`tb_next_set`."""
    if value is None:
        tx.raises(TypeError, "can't delete tb_next attribute")
    if not is_traceback(value):
        tx.raises(TypeError, f"expected traceback object or None, got '{type_name(value)}'")
    if not isinstance(self, TracebackVariable):
        unsupported("mutation-of-unknown-object", "tb_next of a real traceback")
    link = value
    while isinstance(link, TracebackVariable):
        if link is self:
            tx.raises(ValueError, "traceback loop detected")
        link = link.next
    self.next = value


def _member(name: str, read: Any, setter: object = None) -> None:
    """Register a member that an entry of the traced program knows itself; a real traceback is asked."""
    descriptor = TracebackType.__dict__[name]

    def get(tx: Frame, self: VariableTracker) -> VariableTracker:
        return read(self) if isinstance(self, TracebackVariable) else foreign_attribute(tx, self, descriptor)

    getset(descriptor, setter)(get)


_member("tb_next", lambda tb: tb.next, _set_next)
_member("tb_frame", lambda tb: tb.frame)
_member("tb_lasti", lambda tb: ConstantVariable(tb.lasti))
_member("tb_lineno", lambda tb: ConstantVariable(tb.lineno))


@constructor(TracebackType)
def new_traceback(
    tx: Frame, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    return unsupported("frame-introspection", "types.TracebackType()")


@builtin(traceback.clear_frames)
def clear_frames(tx: Frame, tb: VariableTracker) -> None:
    """The frames that an exception of the traced code has left are gone: there is nothing to clear in them. Those of a real one
    are cleared with the other effects."""
    while isinstance(tb, TracebackVariable):
        tb = tb.next
    if isinstance(tb, SourcedTracebackVariable):
        tx.tr.mutating(tb)


def is_traceback(v: VariableTracker) -> bool:
    """True for None and for anything that `__traceback__` may be."""
    return v.python_type() is TracebackType or is_none(v)
