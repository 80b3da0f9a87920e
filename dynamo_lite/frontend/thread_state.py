"""Where the analysed program is.

Input: frames as they begin and end. Output: the user's lines now, the exception that is handled, the step to break at if the current
instruction can't be captured.
Invariant: mirrors `PyThreadState` (`Include/cpython/pystate.h`): the innermost frame, the stack of handled exceptions and the depth of
the recursion.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo_lite._eval_frame import C_STACK_FOR_ANALYSIS, c_stack_left
from dynamo_lite.breaks import UserFrame
from dynamo_lite.config import config
from dynamo_lite.dynamism.observed_values import is_module
from dynamo_lite.exc import Unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.flow import is_in_loop, leads_to_loop, looks_at_callers
from dynamo_lite.isa.resume import PREFIXES
from dynamo_lite.record import Function
from dynamo_lite.variables.generators.generator import ExcState
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.protocol import trace_rules
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker, real_object

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame
    from dynamo_lite.variables.objects.function import FunctionVariable

    from .tracing import Trace


class ThreadState:
    """The thread that runs the analysed program.

    Attributes:
        frame: the innermost frame being interpreted.
        exc_info: the innermost `ExcState`: of the generator that runs, or of the frames around it.
        functions_at: line that needs a guard → the calls that led to it.
        asked: where the program has asked for a frame that is followed, and which.
        is_told_of_capture: whether the program has asked `is_compiling()`: eager execution goes another way.
    """

    def __init__(self, tr: Trace) -> None:
        self.tr = tr
        self.frame: Frame | None = None
        self.depth = 0
        self.is_told_of_capture = False
        self.exc_info = ExcState()
        self._of_caller = sys.exception()
        self.functions_at: dict[Any, tuple[Function, ...]] = {}
        self.asked: list[tuple[int, Frame]] = []

    def release(self) -> None:
        """Let go of the program's objects."""
        self.frame = self._of_caller = None
        self.asked.clear()
        self.exc_info = ExcState()

    # -- frames

    @property
    def current(self) -> Frame:
        """The innermost frame, where there is one."""
        assert self.frame is not None
        return self.frame

    def frames(self) -> Iterator[Frame]:
        """The frames that are followed, innermost first."""
        frame = self.frame
        while frame is not None:
            yield frame
            frame = frame.parent

    def enter(self, fn: FunctionVariable) -> None:
        """One frame more; who calls this counts `depth` down again."""
        if self.depth >= config.max_inline_depth or c_stack_left() < C_STACK_FOR_ANALYSIS // 2:
            self.too_deep(fn)
        self.depth += 1

    def too_deep(self, fn: FunctionVariable) -> NoReturn:
        """Leave out the outermost frame's call. (After a break further in, the continuation of the whole stack would be as deep, and
        come here again.) Recursion without end then reaches the limit of real frames, with one version of each function."""
        error = Unsupported("recursion-limit", fn.describe())
        error.break_step = self.current.eager_step()
        raise error

    # -- the exception being handled

    @property
    def handled(self) -> VariableTracker | None:
        """The exception that the traced code handles (`_PyErr_GetTopmostException`), or None."""
        state: ExcState | None = self.exc_info
        while state is not None and state.value is None:
            state = state.previous
        return None if state is None else state.value

    def active_exception(self) -> VariableTracker | None:
        """The exception that a bare `raise` raises, or None."""
        return self.handled or self.outer_exception()

    def outer_exception(self) -> Any:
        """The exception that the caller of the frame handles, or None. It is guarded here, when the traced code asks for it."""
        node = self.tr.source(self.tr.constant_source(sys), ir.CALL, _current_exception)
        if self._of_caller is None:
            self.tr.guard(node, ir.IS, None)
            return None
        return self.tr.wrap(self._of_caller, node)

    # -- where the program is

    def here(self) -> tuple[str, int] | None:
        """The user's (file, line) now."""
        f = self.frame
        known = f.lifted.lines[f.cur] if f is not None else None
        if known is not None:
            return known
        while f is not None and trace_rules.is_internal(f.code):
            f = f.parent
        return f.user_line() if f is not None else None

    def line_of_guard(self) -> tuple[str, int] | None:
        """The user's line now, which needs a guard."""
        line = self.here()
        if line not in self.functions_at:
            self.functions_at[line] = self.functions()
        return line

    def functions(self) -> tuple[Function, ...]:
        """The functions that are followed now, innermost first."""
        return tuple([Function.of(f.code) for f in self.frames()])

    def user_stack(self) -> list[UserFrame]:
        """The user's frames now, outermost first."""
        return [line_of(f) for f in self.frames() if not trace_rules.is_internal(f.code)][::-1]

    def loops_follow(self) -> bool:
        """Whether there are loops of the program still to come around the current frame; those of modules go through their parts."""
        return any(
            not _is_of_module(f) and not trace_rules.is_of_torch(f.globals.value) and leads_to_loop(f.lifted, f.cur)
            for f in self.frames()
        )

    def failing_step(self, frame: Frame | None = None) -> int:
        """The step at which the next run has to break because the current instruction of `frame` (default: the innermost) failed: the
        innermost step from which every frame above can be resumed. What is called for real there and looks at its callers finds real ones:
        then it is the outermost call."""
        f = frame if frame is not None else self.frame
        step = f.step if f is not None else self.tr.budget.steps
        called = None if frame is None else next((f for f in self.frames() if f.parent is frame), None)
        turning = self.turning_frame()
        while f is not None and f.parent is not None:
            if not (f.direct and config.nested_graph_breaks) or _is_never_cut(f) or f is turning:
                step, called = f.call_step, f
            f = f.parent
        return step if called is None or not self._looks_at_followed(called) else called.eager_step()

    def _looks_at_followed(self, called: Frame) -> bool:
        """Whether a frame, or one below it, has looked at frames above it, or may do so from here on, and the nearest of them would not be
        real. (The outermost is: its new code looks as the original does.)"""
        if called.parent is None or called.parent.parent is None:
            return False
        within = list(self.frames())
        if called in within:
            del within[within.index(called) + 1 :]
            if any(looks_at_callers(f.lifted, f.cur) for f in within):
                return True
        return any(step >= called.call_step and _is_above(f, called) for step, f in self.asked)

    def turning_frame(self) -> Frame | None:
        """The innermost frame if it is torch's own and in a loop: such functions go over parameters of any shapes (`torch.optim`), so that
        a break in them is one for each turn, and each turn another version. They run as they are, captured are the functions they call."""
        f = next((f for f in self.frames() if not trace_rules.is_internal(f.code)), None)
        return f if f is not None and trace_rules.is_of_torch(f.globals.value) and is_in_loop(f.lifted, f.cur) else None


def line_of(f: Frame) -> UserFrame:
    """The user's line at which a frame is, or has ended."""
    pos = f.lifted.instrs[f.cur].pos
    return UserFrame(f.code.co_filename, pos[0] or f.code.co_firstlineno, f.code.co_name, "", pos[2], pos[3], pos[1])


def _is_above(above: Frame, frame: Frame) -> bool:
    """Whether one frame has called the other, through whatever frames."""
    f = frame.parent
    while f is not None and f is not above:
        f = f.parent
    return f is not None


def _is_never_cut(f: Frame) -> bool:
    return trace_rules.is_internal(f.code) or trace_rules.is_one_step(f.globals.value)


def _is_of_module(frame: Frame) -> bool:
    """Whether the first variable of a frame, apart from those that continue another one's stack, is a module."""
    own = zip(frame.lifted.local_names, frame.locals, strict=True)
    first: Any = next((value for name, value in own if not name.startswith(PREFIXES)), MISSING)
    if type(first) is CellVariable:
        first = first.content
    return first is not None and first is not MISSING and is_module(real_object(first))


def _current_exception(_: object) -> BaseException | None:
    return sys.exception()
