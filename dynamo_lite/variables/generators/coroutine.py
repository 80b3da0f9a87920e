"""`await`, `async for`, `async with`: awaitables. (An async generator of the traced program breaks the graph where it is made.)

Input: trackers of awaitables. Output: what the bytecode of a coroutine waits for.
Invariant: everything runs inside the frame that drives the outermost coroutine by `send()`; nothing here knows an event loop.
Mirrors the coroutine part of `Objects/genobject.c`, and `GET_AITER`, `GET_ANEXT` of `Python/bytecodes.c`.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.objects.exception_instance import make_exception
from dynamo_lite.variables.protocol.abstract import type_name
from dynamo_lite.variables.protocol.base import Child, ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE
from dynamo_lite.variables.protocol.descr import PlainObject
from dynamo_lite.variables.protocol.dispatch import builtin, method

from .generator import COROUTINE, GeneratorVariable, Thrown, finish, native

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


async def _coroutine() -> None:
    pass


def _wrapper_type() -> type:
    coroutine = _coroutine()
    wrapper = coroutine.__await__()
    wrapper.close()  # else newer CPythons warn that nobody has awaited it
    return type(wrapper)


CoroutineWrapperType = _wrapper_type()


class CoroutineWrapperVariable(PlainObject):
    """`coroutine.__await__()`: an iterator that drives a coroutine."""

    cls = CoroutineWrapperType
    target: GeneratorVariable = Child()

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return self

    def tp_iternext(self, tx: Frame) -> VariableTracker:
        return self.send(tx, NONE)

    def send(self, tx: Frame, value: VariableTracker) -> VariableTracker:
        """Go on to the next value that is passed through to the driver; the end is an exception."""
        return finish(tx, *self.target.resume(tx, value))

    def emit_new(self, cg: Codegen) -> None:
        self.target.refuse_to_escape()


@method(types.CoroutineType.__await__)
def coroutine_await(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return CoroutineWrapperVariable(native(tx, self))


@method(CoroutineWrapperType.send)
def wrapper_send(tx: Frame, self: CoroutineWrapperVariable, value: VariableTracker, /) -> VariableTracker:
    return self.send(tx, value)


@method(CoroutineWrapperType.throw)
def wrapper_throw(tx: Frame, self: CoroutineWrapperVariable, /, *args: VariableTracker) -> VariableTracker:
    return finish(tx, *self.target.throw(tx, Thrown(list(args))))


@method(CoroutineWrapperType.close)
def wrapper_close(tx: Frame, self: CoroutineWrapperVariable, /) -> VariableTracker:
    return self.target.close(tx)


def awaitable_iterator(tx: Frame, v: VariableTracker) -> VariableTracker:
    """`_PyCoro_GetAwaitableIter`."""
    if isinstance(v, GeneratorVariable) and v.is_awaitable:
        return v
    if v.python_type() is types.CoroutineType:
        unsupported("generator-escapes", "await of a coroutine made outside of the captured code")
    getter = tx.tr.lookup_special(tx, v, "__await__")
    if getter is None:
        tx.raises(TypeError, f"object {type_name(v)} can't be used in 'await' expression")
    result = tx.call(getter, [])
    if result.python_type() is types.CoroutineType or (isinstance(result, GeneratorVariable) and result.is_awaitable):
        tx.raises(TypeError, "__await__() returned a coroutine")
    if result.tp_iternext is None:
        tx.raises(TypeError, f"__await__() returned non-iterator of type '{type_name(result)}'")
    return result


_ENTERING, _LEAVING = 1, 2  # the operand of GET_AWAITABLE inside `async with`


def get_awaitable(tx: Frame, v: VariableTracker, where: int) -> VariableTracker:
    """GET_AWAITABLE."""
    if where in (_ENTERING, _LEAVING) and not _is_awaitable(tx, v):
        name = "__aenter__" if where == _ENTERING else "__aexit__"
        text = f"'async with' received an object from {name} that does not implement __await__: {type_name(v)}"
        tx.raises(TypeError, text)
    iterator = awaitable_iterator(tx, v)
    if isinstance(iterator, GeneratorVariable) and iterator.kind is COROUTINE and iterator.delegate() is not None:
        tx.raises(RuntimeError, "coroutine is being awaited already")
    return iterator


def _is_awaitable(tx: Frame, v: VariableTracker) -> bool:
    if isinstance(v, GeneratorVariable) and v.is_awaitable:
        return True
    return tx.tr.lookup_special(tx, v, "__await__") is not None


def remembers_origin(tx: Frame) -> bool:
    """Whether new coroutines note the frames that make them (`sys.set_coroutine_origin_tracking_depth`)."""
    depth = tx.tr.wrap(_depth(sys), tx.tr.source(tx.tr.constant_source(sys), ir.CALL, _depth))
    return depth.as_python_constant() > 0


def _depth(_: object) -> int:
    return sys.get_coroutine_origin_tracking_depth()


# -- iteration


def get_aiter(tx: Frame, v: VariableTracker) -> VariableTracker:
    """GET_AITER."""
    getter = tx.tr.lookup_special(tx, v, "__aiter__")
    if getter is None:
        tx.raises(TypeError, f"'async for' requires an object with __aiter__ method, got {type_name(v)}")
    result = tx.call(getter, [])
    if tx.tr.lookup_special(tx, result, "__anext__") is None:
        text = f"'async for' received an object from __aiter__ that does not implement __anext__: {type_name(result)}"
        tx.raises(TypeError, text)
    return result


def get_anext(tx: Frame, v: VariableTracker) -> VariableTracker:
    """GET_ANEXT: what to await for the next item."""
    getter = tx.tr.lookup_special(tx, v, "__anext__")
    if getter is None:
        tx.raises(TypeError, f"'async for' requires an iterator with __anext__ method, got {type_name(v)}")
    item = tx.call(getter, [])
    try:
        return awaitable_iterator(tx, item)
    except ObservedException as observed:
        reason = observed.exc
    text = f"'async for' received an invalid object from __anext__: {type_name(item)}"
    error = make_exception(tx, TypeError, [tx.const(text)])
    error.set_cause(tx, reason)
    error.put(tx, "__context__", reason)
    error.names(tx.tr)
    raise ObservedException(error)


@builtin(aiter)
def builtin_aiter(tx: Frame, iterable: VariableTracker, /) -> VariableTracker:
    getter = tx.tr.lookup_special(tx, iterable, "__aiter__")
    if getter is None:
        tx.raises(TypeError, f"'{type_name(iterable)}' object is not an async iterable")
    result = tx.call(getter, [])
    if tx.tr.lookup_special(tx, result, "__anext__") is None:
        tx.raises(TypeError, f"aiter() returned not an async iterator of type '{type_name(result)}'")
    return result


@builtin(anext)
def builtin_anext(tx: Frame, iterator: VariableTracker, default: VariableTracker | None = None, /) -> VariableTracker:
    getter = tx.tr.lookup_special(tx, iterator, "__anext__")
    if getter is None:
        tx.raises(TypeError, f"'{type_name(iterator)}' object is not an async iterator")
    if default is not None:
        unsupported("async", "anext() with a default")
    return tx.call(getter, [])
