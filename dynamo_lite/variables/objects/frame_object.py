"""Frame objects of frames that are being traced.

Input: how many calls up. Output: `FrameVariable`, or a break where the frame is none of the traced ones.
Invariant: a frame object is asked about its code and namespaces only; one that escapes breaks the graph.
Mirrors `Objects/frameobject.c` and `sys__getframe_impl` of `Python/sysmodule.c`.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo_lite.exc import Unsupported
from dynamo_lite.isa.resume import is_resumed
from dynamo_lite.variables.protocol import trace_rules
from dynamo_lite.variables.protocol.base import Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable
from dynamo_lite.variables.protocol.descr import foreign_attribute, getset
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.native import NativeVariable, host_index, readonly

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class FrameVariable(NativeVariable):
    """A frame of the traced program; `frame` is the interpreter's. `raise_step`: where an exception that left it was raised."""

    cls = types.FrameType

    frame: Any = Plain()
    raise_step = -1
    holder: VariableTracker | None = None  # keeps the frame for tracebacks, when it goes on after a graph break

    def describe(self) -> str:
        return f"frame of {self.frame.code.co_qualname}"

    def emit_new(self, cg: Codegen) -> None:
        self.needs_real_frames(f"{self.describe()}, which escapes")

    def needs_real_frames(self, context: str) -> NoReturn:
        """Break, for a frame that an exception has left where it was raised: then all its frames are real. One that is running
        must run for real from its start."""
        if self.raise_step < 0:
            self.frame.needs_real_frame("frame-introspection", context)
        error = Unsupported("frame-introspection", context)
        error.break_step = self.raise_step
        raise error


def caller(tx: Frame, depth: int) -> Any:
    """The frame so many calls above the one that calls; None beyond the outermost traced one. Frames of polyfills are none."""
    frame = tx
    while frame is not None:
        if not trace_rules.is_internal(frame.code):
            if depth <= 0:
                return frame
            depth -= 1
        frame = frame.parent
    return None


def frame_object(tx: Frame, frame: Frame) -> VariableTracker:
    """The one object of a traced frame."""
    tx.tr.thread.asked.append((tx.step, frame))
    known = tx.tr.lifetimes.frame_objects
    found = known.get(id(frame))
    if found is None:
        found = known[id(frame)] = FrameVariable(frame)
    return found


@builtin(sys._getframe)
def sys_getframe(tx: Frame, depth: VariableTracker = ConstantVariable(0), /) -> VariableTracker:  # noqa: B008
    frame = caller(tx, host_index(tx, depth))
    if frame is None:
        return tx.needs_real_callers("frame-introspection", "sys._getframe()")
    return frame_object(tx, frame)


if hasattr(sys, "_getframemodulename"):

    @builtin(sys._getframemodulename)
    def sys_getframemodulename(tx: Frame, depth: VariableTracker = ConstantVariable(0)) -> VariableTracker:  # noqa: B008
        frame = caller(tx, host_index(tx, depth))
        if frame is None:
            return tx.needs_real_callers("frame-introspection", "sys._getframemodulename()")
        tx.tr.thread.asked.append((tx.step, frame))
        return frame.function.tp_getattro(tx, "__module__")


def _member(name: str, read: Any) -> None:
    descriptor = types.FrameType.__dict__[name]

    @getset(descriptor, readonly(descriptor))
    def get(tx: Frame, self: VariableTracker, /) -> VariableTracker:
        if not isinstance(self, FrameVariable):
            return foreign_attribute(tx, self, descriptor)  # a real frame
        return read(tx, self)


def _back(tx: Frame, self: FrameVariable, /) -> VariableTracker:
    if self.frame.generator is not None and not self.frame.generator.running:
        return NONE
    parent = caller(self.frame.parent, 0) if self.frame.parent is not None else None
    if parent is None:
        return tx.needs_real_callers("frame-introspection", "f_back of the outermost frame")
    return frame_object(tx, parent)


def _refused(name: str) -> Any:
    return lambda tx, self: self.needs_real_frames(f"frame.{name}")


def _code(tx: Frame, self: FrameVariable, /) -> VariableTracker:
    if is_resumed(self.frame.code):
        return self.needs_real_frames("frame.f_code after a graph break")
    return ConstantVariable(self.frame.code)


_member("f_code", _code)
_member("f_globals", lambda tx, self: self.frame.globals.as_dict(tx))
_member("f_lineno", lambda tx, self: ConstantVariable(self.frame.last_instr.lineno))
_member("f_back", _back)
_member("f_trace", lambda tx, self: NONE)
for _name in ("f_locals", "f_builtins", "f_lasti"):
    _member(_name, _refused(_name))
