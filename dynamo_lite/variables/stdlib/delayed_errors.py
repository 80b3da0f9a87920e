"""Errors of what is written behind the graph, and of what communicates in it.

Input: the call that writes. Output: the blocks around it, if these do with an error of writing what they do at their ordinary end, and
nothing else; at the end of the trace, where the error goes. Of any call, whether the blocks around it would notice its errors.
Invariant: a block that would notice an error ends the graph before the call. Of other blocks, those that the trace has left have put
back what they changed; those that it has not left get the error, at the instruction at which the graph ends.
Mirrors `exception_unwind` of `Python/ceval.c`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import Unsupported
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.lift import lift
from dynamo_lite.variables.generators.foreign_generator import ForeignGeneratorVariable
from dynamo_lite.variables.generators.generator import GeneratorVariable
from dynamo_lite.variables.generators.unwinding import lets_through
from dynamo_lite.variables.objects.function import MethodVariable
from dynamo_lite.variables.protocol.abstract import get_attr
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.trace_rules import is_of_torch

if TYPE_CHECKING:
    from types import CodeType

    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame

    from .printing import LateOutput

NOTICED = " in a block that would notice an error of writing"

_RAISED = (OSError, ValueError, MemoryError)
"""What writing to a stream of C raises, or classes derived from these."""

_PASSING = frozenset({"inference_mode.__exit__", "autocast.__exit__"})
"""Functions of torch that only pass on the exception which they get."""

_SILENT = frozenset({("contextlib", "nullcontext.__exit__"), ("tqdm.std", "tqdm.__exit__")})
"""Others that do the same whether there is an exception or not, and of which the program notices nothing else."""


def exits_around(tx: Frame) -> list[VariableTracker] | None:
    """The `__exit__`s of the blocks around the current instruction, innermost first; None where the program would notice that it raises."""
    found: list[VariableTracker] = []

    def is_silent(exit_: VariableTracker, self: VariableTracker | None) -> bool:
        found.append(exit_)
        return _is_silent(tx, exit_, self)

    frames = tx.tr.thread.frames()
    return found if all(lets_through(frame, _may_catch_writing, is_silent) for frame in frames) else None


def is_noticed(tx: Frame, raised: tuple[type[Exception], ...]) -> bool:
    """Whether the program would notice in the frames that are followed that the current instruction raises one of these classes, or one
    derived from them. What torch's own functions do with errors is to say and to pass on."""
    may_catch = functools.partial(_may_catch, raised)

    def is_silent(exit_: VariableTracker, self: VariableTracker | None) -> bool:
        return _is_silent(tx, exit_, self, may_catch)

    frames = [frame for frame in tx.tr.thread.frames() if not is_of_torch(frame.globals.value)]
    return not all(lets_through(frame, may_catch, is_silent) for frame in frames)


def _may_catch(raised: tuple[type[Exception], ...], cls: type) -> bool:
    return any(issubclass(cls, one) or issubclass(one, cls) for one in raised)


_may_catch_writing = functools.partial(_may_catch, _RAISED)


def _is_silent(
    tx: Frame,
    exit_: VariableTracker,
    self: VariableTracker | None,
    may_catch: Callable[[type], bool] = _may_catch_writing,
) -> bool:
    if isinstance(exit_, MethodVariable):
        exit_, self = exit_.function, exit_.self
    function = exit_.value
    if self is None or function is MISSING:
        return False
    code = getattr(function, "__code__", None)
    if code is None:
        return self.python_type().__module__.partition(".")[0] in ("torch", "_thread")
    if function is contextlib._GeneratorContextManager.__exit__:
        return _is_silent_generator(tx, get_attr(tx, self, "gen"), may_catch)
    if (function.__globals__.get("__name__"), code.co_qualname) in _SILENT:
        return True
    return is_of_torch(function.__globals__) and (code.co_qualname in _PASSING or not _reads_arguments(code))


def _reads_arguments(code: CodeType) -> bool:
    """Whether an `__exit__` looks at the exception that it gets."""
    lifted = lift(code)
    arguments = range(1, code.co_argcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08))
    return any(
        instr.op in (Op.LOAD_FAST, Op.LOAD_CELL, Op.LOAD_DEREF) and instr.arg in arguments for instr in lifted.instrs
    )


def _is_silent_generator(tx: Frame, generator: VariableTracker, may_catch: Callable[[type], bool]) -> bool:
    """Whether a generator that is a context manager passes on what is thrown in, and the program notices nothing else."""
    if isinstance(generator, ForeignGeneratorVariable):
        if _is_passing_of_torch(generator.value):
            tx.tr.guards.predicate(
                _is_passing_of_torch, [generator.source], f"{generator.source.path} is one of torch's"
            )
            return True
        return False
    if not isinstance(generator, GeneratorVariable) or generator.frame is None or generator.delegate() is not None:
        return False
    frame = generator.frame
    if is_of_torch(frame.globals.value):
        return _catches_nothing(frame.code)
    return lets_through(frame, may_catch, lambda exit_, self: _is_silent(tx, exit_, self, may_catch))


def _is_passing_of_torch(generator: Any) -> bool:
    frame = generator.gi_frame
    return frame is not None and is_of_torch(frame.f_globals) and _catches_nothing(generator.gi_code)


def _catches_nothing(code: CodeType) -> bool:
    """Whether there is no `except` in a function: its handlers put something back."""
    return all(instr.op is not Op.CHECK_EXC_MATCH for instr in lift(code).instrs)


class Handled:
    """Finds out at the end of the trace where an error of writing goes: out of the frame, or to the blocks around the call that the trace
    has not left. Then the graph has to end in just these."""

    def __init__(self, tx: Frame, output: LateOutput, around: list[VariableTracker], reason: Unsupported) -> None:
        self.output, self.around, self.reason = output, around, reason
        self.state = None if around else tx.tr.state.final_changes()

    def check(self, tr: Trace, escaping: object) -> None:
        """Raise the break that the call is if the error can't go there."""
        entries = {id(entry) for frame in tr.thread.frames() for entry in frame.stack}
        left = [exit_ for exit_ in self.around if id(exit_) in entries]
        if left:
            ends_in = exits_around(tr.thread.current)
            if ends_in is None or list(map(id, ends_in)) != list(map(id, left)):
                raise self._because("the graph ends in another block")
            self.output.handled = self.reason
        elif self.state is not None and self.state != tr.state.final_changes():
            raise self._because("what is changed behind it outlives the frame")

    def _because(self, text: str) -> Unsupported:
        self.reason.context += f": {text}"
        return self.reason
