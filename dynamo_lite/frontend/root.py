"""The call that is analysed, and its frame in a run.

Input: the function and the real values of its bound arguments. Output: their models.
Invariant: a call is the same for all runs of its analysis; arguments that are one object are told apart until the frame reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any

from dynamo_lite.breaks import UserFrame
from dynamo_lite.exc import SkipFrame, Unsupported
from dynamo_lite.graph.runtime import AnalysisLog
from dynamo_lite.guards import ir
from dynamo_lite.interp.frame import OPS, Frame
from dynamo_lite.isa.canon import Instr, Op
from dynamo_lite.isa.lift import lift
from dynamo_lite.record import FrameRecord
from dynamo_lite.variables.objects.function import FunctionVariable
from dynamo_lite.variables.protocol import trace_rules
from dynamo_lite.variables.protocol.base import MISSING, UNREAD, LazyVariable, VariableTracker, real_object
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES

from .finalizers import Rebound, has_mortal_arguments, rebound_arguments
from .thread_state import line_of

if TYPE_CHECKING:
    from .tracing import Trace


class MissedCall:
    """A call that no version fits; the record of what is done about it, and who is told."""

    log: AnalysisLog

    def __init__(self, fn: FunctionType, values: tuple[Any, ...], record: FrameRecord) -> None:
        self.fn = fn
        self.values = values
        self.record = record

    @cached_property
    def rebound_arguments(self) -> list[Rebound]:
        """The arguments that `finalizers` has to watch."""
        return rebound_arguments(self.fn.__code__, self.values)

    @cached_property
    def has_mortal_arguments(self) -> bool:
        """Whether the program may see the end of an argument."""
        return has_mortal_arguments(self.fn, self.values)


class Root:
    """The outermost frame of one run.

    Attributes:
        model: of the function; `arguments`: of its arguments, None for a variable that has no value yet.
        frame: from the beginning of the run.
        handlers: those of instructions, with what watches variables of this frame.
        finalized: arguments with a finalizer to which the frame may hold the last references.
        ended_frames: kept if an argument may have a finalizer.
        returned_at: where the outermost function of the program that has returned did so; only for a backend that leaves changes out.
    """

    frame: Frame

    def __init__(self, tr: Trace, call: MissedCall) -> None:
        self.call = call
        self.function = call.fn
        self.values = call.values
        self.handlers: list[Any] = OPS
        self.finalized: list[VariableTracker] = []
        self.ended_frames: list[Frame] | None = None
        self.returned_at: UserFrame | None = None
        self.model = self._model(tr)
        shared = set() if tr.facts.reads_arguments else self._shared_slots()
        if shared:
            self.handlers = [*OPS]
            for op in (Op.LOAD_FAST, Op.LOAD_FAST_AND_CLEAR):
                self.handlers[op] = _reading(OPS[op])
        if tr.effects.keeps_stacks:
            self.handlers = [*self.handlers]
            self.handlers[Op.RETURN_VALUE] = _noting_place(OPS[Op.RETURN_VALUE])
        self.handlers = call.log.watched(self.handlers)
        self.arguments = [
            _argument(tr, value, slot, slot in shared) if value is not MISSING else None
            for slot, value in enumerate(call.values)
        ]

    def _model(self, tr: Trace) -> FunctionVariable:
        function = self.function
        closure = [tr.wrap(cell, tr.source(None, ir.FREEVAR, i)) for i, cell in enumerate(function.__closure__ or ())]
        try:
            namespace = tr.heap.namespace_of(function)
        except Unsupported as reason:
            raise SkipFrame(reason.context, reason) from reason
        return FunctionVariable(function.__code__, namespace, closure, function, tr.constant_source(function))

    def _shared_slots(self) -> set[int]:
        """The variables of arguments of which one object is several, and which may be left unread."""
        is_cell = lift(self.function.__code__).is_cell
        finalized = {slot for slot, found, _ in self.call.rebound_arguments if found is not None}
        slots: dict[int, list[int]] = {}
        for slot, value in enumerate(self.values):
            if value is not MISSING and type(value) not in ATOMIC_TYPES and not is_cell[slot] and slot not in finalized:
                slots.setdefault(id(value), []).append(slot)
        return {slot for same in slots.values() if len(same) > 1 for slot in same}

    def read_argument(self, frame: Frame, slot: int, unread: Any) -> None:
        """The frame reads a variable that holds an argument which another variable holds as well: from now on it matters that they do."""
        frame.locals[slot] = frame.tr.wrap(real_object(unread), unread.__dict__["source"])
        self.arguments = [frame.locals[slot] if vt is unread else vt for vt in self.arguments]

    def release(self) -> None:
        """Let go of the program's objects."""
        self.__dict__.clear()


def _argument(tr: Trace, value: object, slot: int, is_shared: bool) -> Any:
    source = tr.source(None, ir.LOCAL, slot)
    return LazyVariable(tr, value, source, **{UNREAD: True}) if is_shared else tr.wrap(value, source)


def _noting_place(handler: Any) -> Any:
    """The handler of an instruction that returns, which takes note of the place if all callers are torch's: of `nn.Module.__call__`."""

    def returns(f: Frame, instr: Instr) -> Any:
        if _is_of_program(f) and not any(map(_is_of_program, _callers(f))):
            f.tr.root.returned_at = line_of(f)
        return handler(f, instr)

    return returns


def _callers(f: Frame) -> Iterator[Frame]:
    while f.parent is not None:
        f = f.parent
        yield f


def _is_of_program(f: Frame) -> bool:
    return not trace_rules.is_of_torch(f.globals.value) and not trace_rules.is_internal(f.code)


def _reading(handler: Any) -> Any:
    """The handler of an instruction that reads a variable."""

    def read(f: Frame, instr: Instr) -> Any:
        held = f.locals[instr.arg]
        if held is not None and UNREAD in held.__dict__:
            f.tr.root.read_argument(f, instr.arg, held)
        return handler(f, instr)

    return read
