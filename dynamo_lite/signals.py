"""Exceptions of the program that come up while the engine runs: from signal handlers, from other threads, from lack of memory.

Input: the Python signal handlers that the program has installed; an exception that engine code has caught. Output: inside
`relayed()` handlers run at the same moments as ever, but an `Exception` that one of them raises travels as `HandlerRaised`;
`let_through(error)` raises the others again. Compiled graphs run without relays: `is_interruption(error)` tells by its traceback.
Invariant: time-outs are built on such exceptions. Our code and torch's catch `Exception` where an operator or a backend may fail,
and would take the program's time-out for a failure of capture.
"""

from __future__ import annotations

import signal
import sys
import threading
from _signal import getsignal  # what `signal.getsignal` wraps to make enums of numbers
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import CO_VARARGS
from opcode import opmap
from types import CodeType, FrameType, TracebackType
from typing import Any

from ._eval_frame import replace_signal_handlers
from .exc import CAUSE, CONTEXT, TRACEBACK

Handler = Callable[[int, FrameType | None], Any]


class HandlerRaised(BaseException):
    """Carries the exception that a signal handler of the program has raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Relay:
    """Stands in for one handler. `outer` is the exception that the program was handling when the analysis began."""

    def __init__(self, handler: Handler, outer: BaseException | None) -> None:
        self.handler = handler
        self.outer = outer

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        interrupted = (
            sys.exception()
        )  # the exception that the analysis itself was handling is none of the program's business
        try:
            self.handler(signum, frame)
        except Exception as error:
            self._raise(error, interrupted, frame)

    def _raise(self, error: Exception, interrupted: BaseException | None, frame: FrameType | None) -> None:
        innermost: BaseException = error
        while (context := CONTEXT.__get__(innermost)) is not None and context is not interrupted:
            innermost = context
        CONTEXT.__set__(innermost, self.outer)
        traceback = TRACEBACK.__get__(error)
        TRACEBACK.__set__(error, traceback.tb_next if traceback is not None else None)
        if frame is not None and _is_importing(frame):
            _waiting.append(error)
            return
        hook = getattr(sys, "unraisablehook", sys.__unraisablehook__)
        if type(hook) is not _Unraisable:
            sys.unraisablehook = _Unraisable(hook)
        raise HandlerRaised(error) from None


class _Unraisable:
    """`sys.unraisablehook` from the moment that a relay raises until it has arrived: the callback of a weak reference and `__del__`, in
    which a handler may run as well, have no caller to pass it on to."""

    def __init__(self, previous: Callable[[Any], Any]) -> None:
        self.previous = previous

    def __call__(self, unraisable: Any) -> None:
        if type(unraisable.exc_value) is HandlerRaised:
            _waiting.append(unraisable.exc_value.error)
            _put_hook_back()
        else:
            self.previous(unraisable)


def _put_hook_back() -> None:
    hook = getattr(sys, "unraisablehook", None)
    if type(hook) is _Unraisable:
        sys.unraisablehook = hook.previous


_ANALYSIS = f"{__package__}.frontend.convert"
"""The module that begins analyses: what the program does around its call is none of theirs."""

_waiting: list[Exception] = []
"""What handlers have raised while the analysis imported a module, or where nobody could catch it."""


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is imported now: an exception would leave it in `sys.modules` in part, broken for the rest of the process (sympy,
    which the first size that varies imports)."""
    while frame is not None and frame.f_globals.get("__name__") != _ANALYSIS:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def raise_waiting() -> None:
    """Raise what a handler has raised during an import or a callback that is over."""
    if _waiting:
        error = _waiting[0]
        _waiting.clear()
        raise HandlerRaised(error)


@contextmanager
def relayed() -> Iterator[None]:
    """Let handlers of the program raise through code that catches `Exception`. Only the main thread runs handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outer = sys.exception()
    relays = [
        (signum, handler, _Relay(handler, outer))
        for signum in _SIGNALS
        if callable(handler := getsignal(signum)) and handler is not signal.default_int_handler
    ]
    originals = [(signum, relay, handler) for signum, handler, relay in relays]
    try:
        replace_signal_handlers(relays)
        yield
        raise_waiting()
    except Exception:
        raise_waiting()
        raise
    finally:
        # One call, since a handler may run, and raise, behind each. Where the handler is another one by now, the program has installed it.
        try:
            replace_signal_handlers(originals)
        finally:
            _waiting.clear()
            _put_hook_back()


def let_through(error: BaseException, again: Callable[[], object] | None = None) -> None:
    """Raise an exception of the program again that engine code has caught: lack of memory, and an exception that another thread has
    raised in this one (`PyThreadState_SetAsyncExc`); its class is unknown to the engine, and engine code raised it. `again`: does once
    more what raised it, if that has no effects. A C function that raises an exception of its own module (`struct.error`) does so again."""
    if _has_overlooked_lack_of_memory(error):
        raise CAUSE.__get__(error)
    if is_lack_of_memory(error):
        raise error
    if _is_foreign(type(error)) and _is_raised_by_engine(error) and not (again and _raises(again, type(error))):
        raise error


def is_interruption(error: BaseException, skipped: int = 0) -> bool:
    """Whether an exception that has left a compiled graph is none of its operators', nor of the backend: a signal handler has raised it,
    or another thread has had it raised. `skipped`: so many entries of its traceback are of frames that call the graph."""
    entries = list(_entries(TRACEBACK.__get__(error)))[skipped:]
    handlers = _codes_of_handlers()
    return any(entry.tb_frame.f_code in handlers or _is_handler(entry.tb_frame) for entry in entries) or (
        bool(entries) and _is_put(error, entries[-1])
    )


def _codes_of_handlers() -> set[CodeType]:
    """What runs first when a signal comes. A handler may have deleted its arguments."""
    codes = set()
    for signum in _SIGNALS:
        handler: Any = getsignal(signum)
        while isinstance(handler, partial):
            handler = handler.func
        handler = getattr(handler, "__func__", handler)
        for function in (handler, type(handler).__call__):
            code = getattr(function, "__code__", None)
            if type(code) is CodeType:
                codes.add(code)
    return codes


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_handler(frame: FrameType) -> bool:
    """Whether this frame was called as handlers are: with the number of a signal and the frame that it has interrupted, its caller."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + bool(code.co_flags & CO_VARARGS)]
    if not names or frame.f_back is None:
        return False
    bound = frame.f_locals
    values = [bound.get(name) for name in names[: code.co_argcount]]
    if code.co_flags & CO_VARARGS:
        rest = bound.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        values += rest if type(rest) is tuple else ()
    return any(
        type(number) is int and number in _SIGNALS and interrupted is frame.f_back
        for number, interrupted in zip(values, values[1:], strict=False)
    )


def _is_put(error: BaseException, innermost: TracebackType) -> bool:
    """Whether the interpreter has raised this between two instructions (`PyThreadState_SetAsyncExc`), which it does with the class alone.
    C functions say what is wrong; those that do not (`queue.SimpleQueue.get`), or that give a class of the program's, are called by code
    of the program."""
    instruction = innermost.tb_frame.f_code.co_code[innermost.tb_lasti]
    if instruction in _RAISES or isinstance(error, StopIteration | StopAsyncIteration | MemoryError):
        return False
    if instruction == _LOOPS:
        return True
    name = innermost.tb_frame.f_globals.get("__name__")  # code of graphs has none
    return (error.args == () or _is_foreign(type(error))) and (name is None or _is_own(name))


_LOOPS = opmap["JUMP_BACKWARD"]  # raises nothing itself
_RAISES = frozenset({opmap["RAISE_VARARGS"], opmap["RERAISE"]})


def _raises(function: Callable[[], object], cls: type[BaseException]) -> bool:
    try:
        function()
    except cls:
        return True
    return False


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether this is how a lack of memory shows. CPython 3.11 forgets an exception that leaves a frame while there is no memory for
    the frame object of the caller (`take_ownership` in Python/frame.c), 3.14 one during which there is none to clear the dictionary of an
    object; they raise SystemError in its place, and a generator that such an exception leaves seems to be at its end."""
    return (
        isinstance(error, MemoryError)
        or _has_overlooked_lack_of_memory(error)
        or (type(error) is RuntimeError and str(error) in (_NO_LOCK, _NO_BLOCK))
        or (type(error) is SystemError and str(error).endswith(_FORGOTTEN))
    )


def _has_overlooked_lack_of_memory(error: BaseException) -> bool:
    """Whether a C function (`__init__` of nodes in torch) has returned as if nothing were wrong when there was no memory."""
    return type(error) is SystemError and isinstance(CAUSE.__get__(error), MemoryError)


_NO_LOCK = "can't allocate lock"  # `_thread.allocate_lock()` without memory
_NO_BLOCK = "generator didn't yield"  # a context manager of the engine, each of which yields
_FORGOTTEN = ("error return without exception set", " returned NULL without setting an exception")


def _is_foreign(cls: type[BaseException]) -> bool:
    return cls.__module__.partition(".")[0] not in _ENGINE


def _is_raised_by_engine(error: BaseException) -> bool:
    entries = list(_entries(TRACEBACK.__get__(error)))
    return bool(entries) and _is_own(entries[-1].tb_frame.f_globals.get("__name__"))


def _is_own(name: object) -> bool:
    return isinstance(name, str) and name.partition(".")[0] in _ENGINE


_SIGNALS = sorted(signal.valid_signals())
_ENGINE = frozenset({"builtins", "dynamo_lite", "mpmath", "numpy", "sympy", "torch"})
"""Packages whose code an analysis runs, and whose exceptions it expects."""
