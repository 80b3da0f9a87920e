"""Generators: suspended frames of the traced program. Coroutines break the graph where they are made.

Input: a frame that has reached RETURN_GENERATOR. Output: `GeneratorVariable`; `send` for `yield from`.
Invariant: a generator runs only when asked to; the exceptions it handles are its own, on top of those of whoever resumes it.
Mirrors the generator part of `Objects/genobject.c`.
"""

from __future__ import annotations

import types
import warnings
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.typeobject import MEMBER_DESCRIPTORS
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.cell import CellVariable
from dynamo_lite.variables.objects.exception_instance import ExceptionVariable, is_exception_class, make_exception
from dynamo_lite.variables.objects.traceback_object import is_traceback
from dynamo_lite.variables.protocol.abstract import get_attr, get_iter, type_name
from dynamo_lite.variables.protocol.base import ObservedException, Plain, VariableTracker, load_filled
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import (
    PlainObject,
    getset,
)
from dynamo_lite.variables.protocol.dispatch import method

from .unwinding import lets_through

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class ExcState:
    """The exception that one generator handles, or the frames around all generators (`_PyErr_StackItem`). `previous` is that of the
    resumer."""

    __slots__ = ("previous", "value")

    def __init__(self) -> None:
        self.value: VariableTracker | None = None
        self.previous: ExcState | None = None


class GeneratorVariable(PlainObject):
    """A generator made by the traced code. `suspended` is set by YIELD_VALUE; `frame` is None once finished."""

    frame: Any = Plain()
    exc_state: ExcState = Plain(factory=ExcState, init=False)
    started = running = suspended = False

    def __post_init__(self) -> None:
        frame = self.frame
        # Before RETURN_GENERATOR the arguments that closures share have been put into cells.
        self.arguments = [
            v.content if isinstance(v, CellVariable) else v for v in frame.locals[: frame.lifted.first_free_slot]
        ]
        self.function = frame.function
        self.made_at = frame.tr.thread.failing_step(frame.parent)
        frame.tr.lifetimes.generators[id(self)] = self

    cls = types.GeneratorType

    def describe(self) -> str:
        return f"generator {self.function.describe()}"

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return self

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        finished, value = self.resume(tx, NONE)
        if not finished:
            return value
        return None if value.value is None else raise_stop_iteration(tx, value)

    def follow(self, tx: Frame) -> GeneratorVariable:
        """The model that runs."""
        return self

    # -- running

    def resume(
        self, tx: Frame, value: VariableTracker, exc: VariableTracker | None = None
    ) -> tuple[bool, VariableTracker]:
        """`gen_send_ex2`: run to the next yield (False, value) or to the end (True, return value); `exc` is thrown in."""
        if not self.started and self.frame is not None and exc is None and value.value is not None:
            tx.raises(TypeError, "can't send non-None value to a just-started generator")
        if self.running:
            tx.raises(ValueError, "generator already executing")
        if self.frame is None:
            if exc is not None:
                raise ObservedException(exc)
            return True, NONE
        try:
            result = self._run(tx, value, exc)
        except ObservedException as observed:
            self.frame = None
            replacement = stop_iteration_error(tx, observed.exc)
            if replacement is observed.exc:
                raise
            raise ObservedException(replacement) from None
        if not self.suspended:
            self.frame = None
        return not self.suspended, result

    def _run(self, tx: Frame, value: VariableTracker, exc: VariableTracker | None) -> VariableTracker:
        frame, tr = self.frame, tx.tr
        frame.parent, frame.direct = tx, False
        self.started = self.running = True
        self.suspended = False
        state = self.exc_state
        outer, state.previous, tr.thread.exc_info = tr.thread.exc_info, tr.thread.exc_info, state
        tr.thread.enter(self.function)
        try:
            if exc is None:
                frame.push(value)
            else:
                if state.value is not None:
                    exc.chain(frame)
                if not frame.unwind(exc):
                    raise ObservedException(exc)
            return frame.run()
        finally:
            tr.thread.depth -= 1
            tr.thread.exc_info = outer
            state.previous = None
            self.running = False
            if self.suspended and self.ends_with_effects():
                tr.lifetimes.unclosed[id(self)] = self
            else:
                tr.lifetimes.unclosed.pop(id(self), None)

    def throw(self, tx: Frame, thrown: Thrown, close_on_exit: bool = True) -> tuple[bool, VariableTracker]:
        """`_gen_throw`: into what a `yield from` waits for, else at the yield."""
        delegate = self.delegate()
        if delegate is None:
            return self.resume(tx, NONE, thrown.exception(tx))
        try:
            if close_on_exit and thrown.is_a(GeneratorExit):
                self._meanwhile(close_iterator, tx, delegate)
                return self.resume(tx, NONE, thrown.exception(tx))
            if isinstance(delegate, GeneratorVariable):
                finished, value = self._meanwhile(delegate.throw, self._frame_below(tx), thrown, close_on_exit)
                if finished:
                    raise_stop_iteration(tx, value)
                return False, value
            thrower = optional_attribute(tx, delegate, "throw")
            if thrower is None:
                return self.resume(tx, NONE, thrown.exception(tx))
            return False, self._meanwhile(self._frame_below(tx).call, thrower, thrown.arguments)
        except ObservedException as observed:
            if self.frame is None or self.delegate() is not delegate:
                raise  # out of this generator, not out of the delegate
            return self._leave_delegate(tx, observed.exc)

    def _frame_below(self, tx: Frame) -> Any:
        """The suspended frame as the caller of its delegate."""
        self.frame.parent, self.frame.direct = tx, False
        return self.frame

    def _leave_delegate(self, tx: Frame, exc: ExceptionVariable) -> tuple[bool, VariableTracker]:
        """The delegate ended with `exc`. Newer bytecode looks at it itself; in older one the loop around SEND is left for it."""
        frame = self.frame
        instrs = frame.lifted.instrs
        handler = frame.lifted.handler_at[frame.cur]
        if handler is not None and instrs[handler.target].op is Op.CLEANUP_THROW:
            return self.resume(tx, NONE, exc)
        frame.stack.pop()
        target = instrs[frame.cur - 1].target
        frame.cur, frame.ip = target - 1, target
        if issubclass(exc.python_type(), StopIteration):
            return self.resume(tx, exc.get(tx, "value"))
        return self.resume(tx, NONE, exc)

    def close(self, tx: Frame) -> VariableTracker:
        """`gen_close`."""
        if self.frame is None or not self.started:
            self.frame = None
            return NONE
        exc = None
        delegate = self.delegate()
        if delegate is not None:
            try:
                self._meanwhile(close_iterator, tx, delegate)
            except ObservedException as observed:
                exc = observed.exc
        try:
            finished, value = self.resume(tx, NONE, exc or make_exception(tx, GeneratorExit, []))
        except ObservedException as observed:
            if issubclass(observed.exc.python_type(), (GeneratorExit, StopIteration)):
                return NONE
            raise
        if not finished:
            tx.raises(RuntimeError, "generator ignored GeneratorExit")
        return value if CLOSE_RETURNS else NONE

    def _meanwhile(self, function: Any, *args: Any) -> Any:
        """Call a function during which this generator counts as running."""
        self.running = True
        try:
            return function(*args)
        finally:
            self.running = False

    def delegate(self) -> VariableTracker | None:
        """`_PyGen_yf`: what a suspended `yield from` is waiting for."""
        frame = self.frame
        if frame is None or self.running or not self.suspended or not frame.cur:
            return None
        return frame.stack[-1] if frame.lifted.instrs[frame.cur - 1].op is Op.SEND else None

    def ends_with_effects(self) -> bool:
        """True if CPython would do something visible when the last reference goes away (`_PyGen_Finalize`)."""
        if self.frame is None or not self.started:
            return False
        delegate = self.delegate()
        if delegate is not None and not isinstance(delegate, GeneratorVariable) and not is_plain_iterator(delegate):
            return True
        return not lets_through(self.frame, lambda cls: issubclass(GeneratorExit, cls))

    def finalize(self, tx: Frame) -> None:
        """`_PyGen_Finalize` of a started one: the last reference is gone."""
        try:
            self.close(tx)
        except ObservedException as observed:
            unsupported("del-finalizer", f"{observed.exc.describe()} out of the end of {self.describe()}")

    # -- codegen

    def children(self) -> Any:
        if self.started and self.frame is not None:
            return list(self.frame.held())
        return [self.function, *(v for v in self.arguments if v is not None)]

    def emit_new(self, cg: Codegen) -> None:
        """Call the function again; a generator that has started is made to continue where it is."""
        if self.running or {"__name__", "__qualname__"} & self.function.made.keys():  # which it got when it was made
            unsupported("generator-escapes", self.describe())
        if self.started and self.frame is not None:
            cg.load_suspended(self.frame)
            return
        if self.frame is None:
            cg.load_callable(finished_generator)
            for name in (self.function.code.co_name, self.function.code.co_qualname):
                cg.load_const(name)
            cg.asm.call(2)
            return
        code = self.function.code
        n_positional = code.co_argcount
        keyword_only = code.co_varnames[n_positional : n_positional + code.co_kwonlyargcount]
        cg.asm.push_callable(lambda: cg.load(self.function))
        for argument in self.arguments[:n_positional]:
            cg.load(argument)
        cg.asm.build_list(n_positional)
        slot = n_positional + len(keyword_only)
        if code.co_flags & 0x04:
            cg.load(self.arguments[slot])
            cg.asm.list_extend(1)
            slot += 1
        cg.asm.list_to_tuple()
        for i, name in enumerate(keyword_only):
            cg.load_const(name)
            cg.load(self.arguments[n_positional + i])
        cg.asm.build_map(len(keyword_only))
        if code.co_flags & 0x08:
            load_filled(cg, self.arguments[slot])  # the call copies it
            cg.asm.dict_update(1)
        cg.asm.call_function_ex(True)

    def refuse_to_escape(self, what: str = "escapes") -> None:
        """Break where the generator is made: then it is a real one."""
        error = Unsupported("generator-escapes", f"{self.describe()} {what}")
        error.break_step = self.made_at
        raise error


def finished_generator(name: str, qualname: str) -> Any:
    """A real generator that is exhausted."""
    generator = (_ for _ in ())
    generator.__name__, generator.__qualname__ = name, qualname
    generator.close()
    return generator


def is_plain_iterator(v: VariableTracker) -> bool:
    """True for an iterator written in C, which has no `close`."""
    return not hasattr(v.python_type(), "close")


def optional_attribute(tx: Frame, obj: VariableTracker, name: str) -> VariableTracker | None:
    """`_PyObject_LookupAttr`: None instead of an AttributeError."""
    try:
        return get_attr(tx, obj, name)
    except ObservedException as observed:
        if issubclass(observed.exc.python_type(), AttributeError):
            return None
        raise


def close_iterator(tx: Frame, delegate: VariableTracker) -> None:
    """`gen_close_iter`."""
    if isinstance(delegate, GeneratorVariable):
        delegate.close(tx)
        return
    try:
        closer = optional_attribute(tx, delegate, "close")
    except ObservedException as observed:
        return unsupported("call-print", f"the report of {observed.exc.describe()}, which has nowhere to go")
    if closer is not None:
        tx.call(closer, [])


def stop_iteration_error(tx: Frame, exc: VariableTracker) -> VariableTracker:
    """The RuntimeError that replaces a StopIteration that leaves the body of a generator; any other exception as it is."""
    if not issubclass(exc.python_type(), StopIteration):
        return exc
    error = make_exception(tx, RuntimeError, [ConstantVariable("generator raised StopIteration")])
    error.set_cause(tx, exc)
    error.put(tx, "__context__", exc)
    return error


def raise_stop_iteration(tx: Frame, value: VariableTracker) -> Any:
    """`_PyGen_SetStopIterationValue`: the end of a generator, as an exception."""
    tx.raise_exception(make_exception(tx, StopIteration, [] if value.value is None else [value]))


def _asked() -> tuple[bool, bool]:
    """Whether `close()` returns what the generator returns, and whether `throw()` with several arguments warns."""

    def returning() -> Any:
        try:
            yield
        except GeneratorExit:
            return 1

    generator = returning()
    next(generator)
    returned = generator.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            returning().throw(KeyError, None)
        except KeyError:
            pass
    return returned == 1, bool(caught)


CLOSE_RETURNS, _THROW_WARNS = _asked()


class Thrown:
    """The arguments of `throw()`."""

    def __init__(self, arguments: list[VariableTracker]) -> None:
        if len(arguments) > 1 and _THROW_WARNS:
            unsupported("call-print", "the warning that throw() has more than one argument")
        self.arguments = arguments
        self.known: VariableTracker | None = None

    def is_a(self, cls: type) -> bool:
        """`PyErr_GivenExceptionMatches` of the first argument."""
        first = self.arguments[0]
        return issubclass(first.value if is_exception_class(first) else first.python_type(), cls)

    def exception(self, tx: Frame) -> VariableTracker:
        """The instance that the arguments mean (the end of `_gen_throw`)."""
        if self.known is None:
            self.known = self._instance(tx, *self.arguments)
        return self.known

    def _instance(
        self, tx: Frame, typ: VariableTracker, value: VariableTracker = NONE, tb: VariableTracker = NONE
    ) -> VariableTracker:
        if not is_traceback(tb):
            tx.raises(TypeError, "throw() third argument must be a traceback object")
        no_value = is_none(value)
        if is_exception_class(typ):
            exc = self._normalize(tx, typ, None if no_value else value)
        elif not isinstance(typ, ExceptionVariable):
            tx.raises(
                TypeError, f"exceptions must be classes or instances deriving from BaseException, not {type_name(typ)}"
            )
        elif not no_value:
            tx.raises(TypeError, "instance exception may not have a separate value")
        else:
            exc = typ
        if tb.python_type() is types.TracebackType:
            exc.put(tx, "__traceback__", tb)
        return exc

    @staticmethod
    def _normalize(tx: Frame, cls: VariableTracker, value: VariableTracker | None) -> VariableTracker:
        """`PyErr_NormalizeException`."""
        if value is not None and issubclass(value.python_type(), cls.value):
            return value
        args = [] if value is None else value.items if isinstance(value, TupleVariable) else [value]
        try:
            return Thrown._made(tx, cls, list(args))
        except ObservedException as observed:
            return observed.exc  # which is thrown in instead

    @staticmethod
    def _made(tx: Frame, cls: VariableTracker, args: list[VariableTracker]) -> VariableTracker:
        exc = tx.call(cls, args)
        if not isinstance(exc, ExceptionVariable):
            tx.raises(
                TypeError,
                f"calling {cls.value!r} should have returned an instance of BaseException, not {type_name(exc)}",
            )
        return exc


# -- methods


def native(tx: Frame, self: VariableTracker) -> GeneratorVariable:
    """The model that runs: of one that exists before the frame there may be none."""
    return self.follow(tx) if hasattr(self, "follow") else unsupported("generator-escapes", self.describe())


def finish(tx: Frame, finished: bool, value: VariableTracker) -> VariableTracker:
    """`gen_send_ex`: the value yielded; the end is an exception."""
    return raise_stop_iteration(tx, value) if finished else value


@method(types.GeneratorType.send)
def generator_send(tx: Frame, self: VariableTracker, value: VariableTracker, /) -> VariableTracker:
    return finish(tx, *native(tx, self).resume(tx, value))


@method(types.GeneratorType.throw)
def generator_throw(tx: Frame, self: VariableTracker, /, *args: VariableTracker) -> VariableTracker:
    if not 1 <= len(args) <= 3:
        try:
            (_ for _ in ()).throw(*args)
        except TypeError as error:
            tx.raises_like(error)
    return finish(tx, *native(tx, self).throw(tx, Thrown(list(args))))


@method(types.GeneratorType.__iter__)
def generator_iter(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return self


@method(types.GeneratorType.__next__)
def generator_next(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return generator_send(tx, self, NONE)


@method(types.GeneratorType.close)
def generator_close(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return native(tx, self).close(tx)


# -- members


def _refuse(tx: Frame, self: VariableTracker) -> VariableTracker:
    return unsupported("generator-escapes", f"a member of {self.describe()}")


for _descriptor in vars(types.GeneratorType).values():
    if type(_descriptor) in MEMBER_DESCRIPTORS:
        getset(_descriptor)(_refuse)


# -- delegation


def yield_from_iter(tx: Frame, v: VariableTracker) -> VariableTracker:
    """GET_YIELD_FROM_ITER."""
    if v.python_type() is types.CoroutineType:
        unsupported("async", "a coroutine after `yield from`")
    return v if isinstance(v, GeneratorVariable) else get_iter(tx, v)


def send(tx: Frame, receiver: VariableTracker, value: VariableTracker) -> tuple[bool, VariableTracker]:
    """`PyIter_Send`: (finished, value)."""
    if isinstance(receiver, GeneratorVariable):
        return receiver.resume(tx, value)
    try:
        if value.value is None:
            if receiver.tp_iternext is None:
                tx.raises(TypeError, f"'{type_name(receiver)}' object is not an iterator")
            item = receiver.tp_iternext(tx)
            return (True, NONE) if item is None else (False, item)
        return False, tx.call(get_attr(tx, receiver, "send"), [value])
    except ObservedException as observed:
        if issubclass(observed.exc.python_type(), StopIteration):
            return True, observed.exc.get(tx, "value")
        raise
