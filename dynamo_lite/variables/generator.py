"""Generators: suspended frames of the traced program.

Input: a frame that has reached RETURN_GENERATOR. Output: `GeneratorVariable`; `send` for `yield from`.
Invariant: a generator runs only when asked to; its handled exception is its own.
Mirrors `Objects/genobject.c`.
"""

from __future__ import annotations

import types
from typing import Any

from ..exc import unsupported
from .abstract import get_iter, type_name
from .base import ObservedException, VariableTracker
from .cell import CellVariable
from .constant import ConstantVariable
from .descr import generic_getattr
from .dispatch import method
from .native import load_filled
from .wrap import builds

NONE = ConstantVariable(None)


class GeneratorVariable(VariableTracker):
    """A generator made by the traced code. `suspended` is set by YIELD_VALUE; `frame` is None once finished."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        # Before RETURN_GENERATOR the arguments that closures share have been put into cells.
        self.arguments = [
            v.content if isinstance(v, CellVariable) else v for v in frame.locals[: frame.lifted.first_free_slot]
        ]
        self.function = frame.function
        self.made_at = frame.tr.failing_step(frame.parent)
        self.started = False
        self.running = False
        self.suspended = False
        self.handled: VariableTracker | None = None

    def python_type(self) -> type:
        return types.GeneratorType

    def describe(self) -> str:
        return f"generator {self.function.describe()}"

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def tp_iter(self, tx: Any) -> VariableTracker:
        return self

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        finished, value = self.resume(tx, NONE)
        return None if finished else value

    def tp_hash(self, tx: Any) -> VariableTracker:
        return tx.tr.identity_hash(self)

    def resume(
        self, tx: Any, value: VariableTracker | None, exc: VariableTracker | None = None
    ) -> tuple[bool, VariableTracker]:
        """`gen_send_ex2`: run to the next yield (False, value) or to the end (True, return value); `exc` is thrown in."""
        if self.running:
            tx.raises(ValueError, "generator already executing")
        if self.frame is None:
            if exc is not None:
                raise ObservedException(exc)
            return True, NONE
        if not self.started and value is not None and value.value is not None:
            tx.raises(TypeError, "can't send non-None value to a just-started generator")
        frame, tr = self.frame, tx.tr
        frame.parent, frame.direct = tx, False
        self.started = self.running = True
        self.suspended = False
        outer_handled = tr.handled
        if self.handled is not None:
            tr.handled = self.handled
        try:
            if exc is not None:
                result = self._throw(frame, exc)
            else:
                frame.push(value)
                result = frame.run()
        except ObservedException:
            self.frame = None
            raise
        finally:
            self.running = False
            self.handled = tr.handled if tr.handled is not outer_handled else None
            tr.handled = outer_handled
        if not self.suspended:
            self.frame = None
        return not self.suspended, result

    def _throw(self, frame: Any, exc: VariableTracker) -> VariableTracker:
        if not frame.unwind(exc):
            raise ObservedException(exc)
        return frame.run()

    def waits_in_block(self) -> bool:
        """Whether it is suspended inside a `try` or `with`, whose end runs when the generator dies."""
        if self.frame is None or not self.suspended:
            return False
        lifted = self.frame.lifted
        handler = lifted.handler_at[self.frame.cur]
        # From 3.12 on a handler around every generator's body turns StopIteration into RuntimeError: nothing of the program.
        return handler is not None and lifted.instrs[handler.target].arg != "STOPITERATION_ERROR"

    # -- codegen

    def children(self) -> Any:
        frame = self.frame
        return (
            list(frame.held()) if self.started and frame is not None else [v for v in self.arguments if v is not None]
        )

    def emit_new(self, cg: Any) -> None:
        """Call the function again; a generator that has started is made to continue where it is."""
        if self.started and self.frame is not None:
            cg.load_suspended(self.frame)
            return
        if self.frame is None:
            cg.load_callable(finished_generator)
            cg.asm.call(0)
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


def finished_generator() -> Any:
    """A real generator that is exhausted."""
    generator = (_ for _ in ())
    generator.close()
    return generator


def _stop_iteration(tx: Any, value: VariableTracker) -> VariableTracker:
    return tx.raises(StopIteration) if value.value is None else _raise_with_value(tx, value)


def _raise_with_value(tx: Any, value: VariableTracker) -> VariableTracker:
    return tx.raise_exception(tx.call(tx.tr.type_tracker(StopIteration), [value]))


@method(types.GeneratorType.send)
def generator_send(tx: Any, self: VariableTracker, value: VariableTracker) -> VariableTracker:
    finished, result = _native(self).resume(tx, value)
    return _stop_iteration(tx, result) if finished else result


@method(types.GeneratorType.throw)
def generator_throw(
    tx: Any, self: VariableTracker, typ: VariableTracker, val: Any = None, tb: Any = None
) -> VariableTracker:
    exc = typ
    if issubclass(type(typ.value), type):
        exc = (
            val
            if val is not None and isinstance(val.python_type(), type) and issubclass(val.python_type(), typ.value)
            else None
        )
        if not issubclass(typ.value, BaseException):
            tx.raises(TypeError, "exceptions must be classes or instances deriving from BaseException, not type")
        exc = exc or tx.call(typ, [] if val is None or val.value is None else [val])
        if not issubclass(exc.python_type(), BaseException):
            tx.raises(
                TypeError,
                f"calling {typ.value!r} should have returned an instance of BaseException, not {exc.python_type()!r}",
            )
    elif not issubclass(typ.python_type(), BaseException):
        tx.raises(
            TypeError, f"exceptions must be classes or instances deriving from BaseException, not {type_name(typ)}"
        )
    generator = _native(self)
    delegate = _delegate(generator)
    if delegate is not None:
        unsupported("generator-escapes", "throw() into a delegating generator")
    finished, result = generator.resume(tx, None, exc)
    return _stop_iteration(tx, result) if finished else result


def _delegate(generator: GeneratorVariable) -> VariableTracker | None:
    """What a suspended `yield from` is waiting for."""
    frame = generator.frame
    if frame is None or not generator.started:
        return None
    from_send = frame.lifted.instrs[frame.cur - 1] if frame.cur else None
    return frame.stack[-1] if from_send is not None and from_send.op.name == "SEND" and frame.stack else None


@method(types.GeneratorType.close)
def generator_close(tx: Any, self: VariableTracker) -> VariableTracker:
    generator = _native(self)
    if generator.frame is None or not generator.started:
        generator.frame = None
        return NONE
    if _delegate(generator) is not None:
        unsupported("generator-escapes", "close() of a delegating generator")
    try:
        finished, value = generator.resume(tx, None, tx.call(tx.tr.type_tracker(GeneratorExit), []))
    except ObservedException as observed:
        if issubclass(observed.exc.python_type(), (GeneratorExit, StopIteration)):
            return NONE
        raise
    if not finished:
        tx.raises(RuntimeError, "generator ignored GeneratorExit")
    return NONE


def _native(self: VariableTracker) -> GeneratorVariable:
    if not isinstance(self, GeneratorVariable):
        unsupported("generator-escapes", self.describe())
    return self


def yield_from_iter(tx: Any, v: VariableTracker) -> VariableTracker:
    """GET_YIELD_FROM_ITER."""
    return v if isinstance(v, GeneratorVariable) else get_iter(tx, v)


def send(tx: Any, receiver: VariableTracker, value: VariableTracker) -> tuple[bool, VariableTracker]:
    """`PyIter_Send`: (finished, value)."""
    if isinstance(receiver, GeneratorVariable):
        return receiver.resume(tx, value)
    if value.value is None:
        if receiver.tp_iternext is None:
            tx.raises(TypeError, f"'{type_name(receiver)}' object is not an iterator")
        try:
            item = receiver.tp_iternext(tx)
        except ObservedException as observed:
            if issubclass(observed.exc.python_type(), StopIteration):
                return True, observed.exc.get(tx, "value")
            raise
        return (True, NONE) if item is None else (False, item)
    return False, tx.call(receiver.tp_getattro(tx, "send"), [value])


class ForeignGeneratorVariable(VariableTracker):
    """A generator that exists before the frame: its frame is CPython's, so driving it breaks the graph."""

    def __init__(self, value: Any, source: Any) -> None:
        self.value = value
        self.source = source

    def python_type(self) -> type:
        return type(self.value)

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def tp_iter(self, tx: Any) -> VariableTracker:
        return self

    def tp_iternext(self, tx: Any) -> VariableTracker | None:
        return unsupported("generator-escapes", "next() of a generator made outside of the captured code")


@builds(types.GeneratorType)
def build_generator(tr: Any, value: Any, source: Any) -> ForeignGeneratorVariable:
    return ForeignGeneratorVariable(value, source)
