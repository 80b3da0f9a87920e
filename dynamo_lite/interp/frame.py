"""One frame of the traced program and the evaluation loop.

Input: a function model and its bound arguments. Output: the model of the return value, `ObservedException` for an exception that
leaves the frame, `GraphBreak` when the step at which this run must stop is reached, `Unsupported` for what can't be captured.
Invariant: the operand stack holds trackers, `NULL` and `ExcInfo` only; a slot of `locals` holds a tracker (cells: a
`CellVariable`) or None while unbound; an instruction either completes or leaves the frame as `GraphBreak` finds it.
Mirrors `Python/ceval.c` and the frame part of `Include/internal/pycore_frame.h`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo_lite.exc import SkipFrame, Unsupported
from dynamo_lite.isa.canon import Instr, Lifted, Op
from dynamo_lite.isa.eager_fallback import Place
from dynamo_lite.isa.lift import LOCALS_ARE_SHARED, lift
from dynamo_lite.isa.resume import is_own_name, is_resumed
from dynamo_lite.isa.typeobject import can_change, name_of
from dynamo_lite.signals import let_through
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.objects.exception_instance import exception_from, make_exception
from dynamo_lite.variables.protocol import abstract
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.variables.generators.generator import GeneratorVariable
    from dynamo_lite.variables.objects.exception_instance import ExceptionVariable


class _Null:
    """The type of `NULL`, the empty self-or-callable entry that a call leaves below its arguments."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL"


NULL = _Null()


class ExcInfo:
    """Stack entry that `PUSH_EXC_INFO` leaves: what this frame's `ExcState` had before (None for nothing), and the exception
    handled since."""

    __slots__ = ("exc", "previous")

    def __init__(self, previous: VariableTracker | None, exc: VariableTracker) -> None:
        self.previous = previous
        self.exc = exc


class Lasti(ConstantVariable):
    """Stack entry that tells a later RERAISE where the exception was raised (a byte offset)."""


# Ops that go straight to `exception_unwind` in ceval.c. (A bare `raise` does too, but is no op of its own.)
_KEEPING_TRACEBACK = frozenset({Op.RERAISE, Op.CLEANUP_THROW, Op.END_ASYNC_FOR})


class GraphBreak(Exception):
    """The run has reached the step at which the graph must end. The innermost frame is `tr.thread.frame`, its instruction not yet done."""


class Frame:
    """A frame being interpreted.

    Attributes:
        arguments: what the variables were at the beginning.
        direct: the parent's current call instruction pushes this frame's result unchanged, so that the parent can be resumed
            with it after a break in here.
        raised_at: where the frame says it is after RERAISE, which may name an earlier place; None: where it is.
        step: `tr.budget.steps` when the current instruction started.
        cur: index of the instruction being executed; `ip` of the next one.
    """

    __slots__ = (
        "arguments",
        "builtins",
        "caller",
        "code",
        "cur",
        "direct",
        "raised_at",
        "function",
        "generator",
        "globals",
        "handled",
        "ip",
        "lifted",
        "locals",
        "parent",
        "snapshot",
        "stack",
        "step",
        "tr",
    )

    def __init__(
        self, tr: Trace, function: Any, locals_: list[VariableTracker | None], parent: Frame | None, direct: bool
    ) -> None:
        self.tr = tr
        self.function = function
        self.code: CodeType = function.code
        self.lifted: Lifted = lift(self.code)
        self.globals = function.globals  # GlobalsNamespace
        self.arguments = locals_
        self.locals = locals_ + [None] * (len(self.lifted.local_names) - len(locals_))
        first_free = self.lifted.first_free_slot
        for i, cell in enumerate(function.closure):
            self.locals[first_free + i] = cell
        self.stack: list[Any] = []
        self.ip = 0
        self.cur = 0
        self.parent = parent
        self.caller: Place | None = None
        self.direct = direct
        self.step = tr.budget.steps
        self.generator: GeneratorVariable | None = None
        self.raised_at: int | None = None
        self.snapshot: DictVariable | None = None

    # -- services for models (the `tx` protocol)

    @staticmethod
    def const(value: object) -> ConstantVariable:
        """A constant tracker."""
        return ConstantVariable(value)

    def call(self, fn: Any, args: list[Any], kwargs: dict[str, Any] | None = None) -> VariableTracker:
        """Call any callable tracker."""
        return abstract.call(self, fn, args, kwargs or {})

    def raises(self, cls: type[BaseException], *args: Any) -> NoReturn:
        """Raise `cls(*args)` in the traced program; args are host values of constants."""
        self.raise_exception(make_exception(self, cls, [self.tr.wrap_new(a) for a in args]))

    def raises_naming(self, cls: type[BaseException], message: str, **members: VariableTracker) -> NoReturn:
        """Raise an AttributeError or a NameError that knows which name of which object was missing."""
        exc = make_exception(self, cls, [ConstantVariable(message)])
        for name, value in members.items():
            exc.state[name] = value
        self.raise_exception(exc)

    def raises_like(
        self, error: BaseException, among: Iterable[Any] = (), again: Callable[[], object] | None = None
    ) -> NoReturn:
        """Raise in the traced program what a real call raised during the analysis; the message may name classes that are `among` these.
        `again`: the call, if it has no effects and may raise exceptions of any class."""
        let_through(error, again)
        texts = [arg for arg in error.args if type(arg) is str]
        classes = [cls for cls in among if issubclass(type(cls), type) and can_change(cls)]
        self.tr.classes.named += [cls for cls in classes if any(name_of(cls) in text for text in texts)]
        self.raise_exception(exception_from(self, error))

    def raise_exception(self, exc: ExceptionVariable) -> NoReturn:
        """Raise an exception instance (`_PyErr_SetObject`: the exception being handled becomes its context)."""
        exc.chain(self)
        exc.names(self.tr)
        raise ObservedException(exc)

    # -- what the program asks about its frame

    def eager_step(self) -> int:
        """The step to break at so that what happens now happens in real frames: the outermost frame's instruction."""
        frame = self
        while frame.parent is not None:
            frame = frame.parent
        return frame.step

    @property
    def call_step(self) -> int:
        """When the parent's instruction started: where to break if a break in here can't be resumed."""
        return self.parent.step if self.parent is not None else 0

    def frame_locals(self) -> VariableTracker:
        """`locals()`: a dictionary of the bound variables (`PyFrame_FastToLocals`)."""
        if self.snapshot is None or not LOCALS_ARE_SHARED:
            self.snapshot = DictVariable()
        for slot, name in enumerate(self.lifted.local_names):
            if is_resumed(self.code) and is_own_name(name):
                continue
            value = self.locals[slot]
            if value is not None and self.lifted.is_cell[slot]:
                assert isinstance(value, CellVariable)
                value = value.get(self)
            key = ConstantVariable(name)
            if value is not None:
                self.snapshot.mp_ass_subscript(self, key, value)
            elif self.snapshot.lookup(self, key) is not None:
                self.snapshot.mp_ass_subscript(self, key, None)
        return self.snapshot

    def needs_real_frame(self, slug: str, context: str, callees: bool = True) -> NoReturn:
        """Refuse what only this frame itself can do: it is called for real, or runs eagerly if it is the outermost. `callees`: what it
        calls then may be captured."""
        if self.parent is None:
            self.needs_all_real_frames(slug, context, callees)
        reason = Unsupported(slug, context)
        reason.break_step = self.tr.thread.failing_step(self.parent)
        raise reason

    def needs_all_real_frames(self, slug: str, context: str, callees: bool = True) -> NoReturn:
        """Refuse what shows the frames under way and goes on in them, as a debugger does: the outermost runs eagerly."""
        reason = Unsupported(slug, context)
        if self.tr.breaks_raise:
            raise reason
        reason.user_stack = self.tr.thread.user_stack()
        raise SkipFrame(context, reason, callees)

    def needs_real_callers(self, slug: str, context: str) -> NoReturn:
        """Refuse what looks at the frames that called it: they are real but for the outermost, whose code keeps its file and lines."""
        raise self.with_real_callers(slug, context)

    def with_real_callers(self, slug: str, context: str) -> Unsupported:
        """The break before the outermost call under way, for what looks at the frames that called it."""
        reason = Unsupported(slug, context)
        if self.parent is not None:
            reason.break_step = self.eager_step()
        return reason

    # -- the stack

    def push(self, v: object) -> None:
        """Push one entry."""
        self.stack.append(v)

    def pop(self) -> Any:
        """Pop one entry."""
        return self.stack.pop()

    def popn(self, n: int) -> list[Any]:
        """Pop n entries; the list has them bottom to top."""
        if not n:
            return []
        values = self.stack[-n:]
        del self.stack[-n:]
        return values

    def held(self) -> Iterator[Any]:
        """Every tracker on the stack and in the slots."""
        for entry in [*self.stack, *self.locals]:
            if type(entry) is ExcInfo:
                yield entry.exc
            elif entry is not None and entry is not NULL:
                yield entry

    # -- evaluation

    def run(self) -> VariableTracker:
        """Interpret until return or yield; the value. `generator.suspended` tells the two apart."""
        tr = self.tr
        budget, root, thread = tr.budget, tr.root, tr.thread
        handlers = root.handlers
        instrs = self.lifted.instrs
        outer, thread.frame = thread.frame, self
        while True:
            self.cur = ip = self.ip
            instr = instrs[ip]
            self.ip = ip + 1
            self.step = budget.steps = step = budget.steps + 1
            if step == budget.stop_step:
                budget.stop(tr)
            try:
                result = handlers[instr.op](self, instr)
            except ObservedException as observed:
                if not self.unwind(observed.exc):
                    thread.frame = outer
                    if root.ended_frames is not None:
                        root.ended_frames.append(self)
                    raise
            except RecursionError:
                # Of the analysis itself, which takes several host frames for one of the program.
                thread.frame = self
                thread.too_deep(self.function)
            else:
                if result is not None:
                    thread.frame = outer
                    if root.ended_frames is not None:
                        root.ended_frames.append(self)
                    if tr.lifetimes.unclosed and self.generator is None:
                        self._leave(result)
                    return result

    def run_to(self, end: int) -> VariableTracker | None:
        """Interpret until the instruction `end` is reached: None; or until the frame returns: the value. The graph can't end in here."""
        budget, handlers, instrs = self.tr.budget, self.tr.root.handlers, self.lifted.instrs
        while self.ip != end:
            self.cur = ip = self.ip
            instr = instrs[ip]
            self.ip = ip + 1
            self.step = budget.steps = budget.steps + 1
            try:
                result = handlers[instr.op](self, instr)
            except ObservedException as observed:
                if not self.unwind(observed.exc):
                    raise
            else:
                if result is not None:
                    return result
        return None

    def _leave(self, result: VariableTracker) -> None:
        """The variables of a function that returns are gone."""
        slots = zip(self.locals, self.lifted.is_cell, strict=True)
        variables = [v for v, is_cell in slots if v is not None and not is_cell]
        self.locals = [None] * len(self.locals)
        self.tr.lifetimes.dropped(self, variables, result)

    def unwind(self, exc: ExceptionVariable) -> bool:
        """Go to the handler of the current instruction with `exc` on the stack; False if the frame has none."""
        exc.show_names()
        if not self._raises_again(exc):
            exc.add_traceback(self)
        handler = self.lifted.handler_at[self.cur]
        if handler is None:
            return False
        del self.stack[handler.depth :]
        if handler.lasti:
            self.push(Lasti(self.last_instr.offset))
        self.raised_at = None
        self.push(exc)
        self.ip = handler.target
        return True

    def _raises_again(self, exc: VariableTracker) -> bool:
        """True for an instruction that goes straight to `exception_unwind`."""
        instr = self.lifted.instrs[self.cur]
        if instr.op is Op.RAISE_VARARGS and not instr.arg:
            return exc is self.tr.thread.active_exception()
        return instr.op in _KEEPING_TRACEBACK

    @property
    def last_instr(self) -> Instr:
        """The instruction at which the frame is, or says it is."""
        return self.lifted.instrs[self.cur if self.raised_at is None else self.raised_at]

    def place(self) -> Place:
        """The user's line now, and those that led here. A generator is called from many places: none is named."""
        if self.parent is None or self.generator is not None:
            return Place(self.code, self.lineno)
        if self.caller is None:
            self.caller = self.parent.place()
        return Place(self.code, self.lineno, self.caller)

    def user_line(self) -> tuple[str, int]:
        """The file and the line of the current instruction of the user's code; one object per instruction."""
        found = self.lifted.lines[self.cur]
        if found is None:
            found = self.lifted.lines[self.cur] = (self.code.co_filename, self.lineno)
        return found

    def instruction(self) -> tuple[int, int]:
        """The current instruction: the id of its code object, its index."""
        return id(self.code), self.cur

    @property
    def lineno(self) -> int:
        """The user's line of the current instruction."""
        return self.lifted.instrs[self.cur].lineno or self.code.co_firstlineno


OPS: list[Any] = []
"""Handlers by op number, filled by `interp.ops`: (frame, instr) -> None, or the value with which the frame returns or yields."""
