"""`await`, `async for`, `async with`: awaitables, and async generators.

Input: trackers of awaitables, or an async generator of the traced program. Output: what the bytecode of a coroutine waits for.
Invariant: everything runs inside the frame that drives the outermost coroutine by `send()`; nothing here knows an event loop.
Mirrors the coroutine and async generator parts of `Objects/genobject.c`, and `GET_AITER`, `GET_ANEXT` of `Python/bytecodes.c`.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.objects.exception_instance import make_exception
from dynamo_lite.variables.protocol.abstract import type_name
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, is_none
from dynamo_lite.variables.protocol.descr import generic_getattr
from dynamo_lite.variables.protocol.dispatch import builtin, method

from .generator import COROUTINE, GeneratorVariable, Thrown, finish, native, raise_stop_iteration

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


def _types() -> tuple[type, ...]:
    """The types of what `await` looks for in a coroutine, and of what the methods of async generators return."""

    async def coroutine() -> None:
        pass

    async def generator() -> Any:
        yield

    running, values = coroutine(), generator()
    objects = running.__await__(), values.asend(None), values.aclose()
    for one in (running, *objects):
        one.close()  # else newer CPythons warn that nobody has awaited it
    return tuple(map(type, objects))


CoroutineWrapperType, AsyncGenASendType, AsyncGenAThrowType = _types()


class AwaitableVariable(VariableTracker):
    """An iterator that drives a coroutine or an async generator."""

    cls: type

    def __init__(self, target: GeneratorVariable) -> None:
        self.target = target

    def python_type(self) -> type:
        return self.cls

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return self

    def tp_iternext(self, tx: Frame) -> VariableTracker:
        return self.send(tx, NONE)

    def send(self, tx: Frame, value: VariableTracker) -> VariableTracker:
        """Go on to the next value that is passed through to the driver; the end is an exception."""
        raise NotImplementedError(type(self).__name__)

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return tx.tr.heap.identity_hash(self)

    def children(self) -> Any:
        return (self.target,)

    def emit_new(self, cg: Codegen) -> None:
        self.target.refuse_to_escape()


# -- coroutines


class CoroutineWrapperVariable(AwaitableVariable):
    """`coroutine.__await__()`."""

    cls = CoroutineWrapperType

    def send(self, tx: Frame, value: VariableTracker) -> VariableTracker:
        return finish(tx, *self.target.resume(tx, value))


@method(types.CoroutineType.__await__)
def coroutine_await(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return CoroutineWrapperVariable(native(tx, self))


@method(CoroutineWrapperType.send, AsyncGenASendType.send, AsyncGenAThrowType.send)
def awaitable_send(tx: Frame, self: AwaitableVariable, value: VariableTracker, /) -> VariableTracker:
    return self.send(tx, value)


@method(CoroutineWrapperType.throw)
def wrapper_throw(tx: Frame, self: CoroutineWrapperVariable, /, *args: VariableTracker) -> VariableTracker:
    return finish(tx, *self.target.throw(tx, Thrown(list(args))))


@method(CoroutineWrapperType.close)
def wrapper_close(tx: Frame, self: CoroutineWrapperVariable, /) -> VariableTracker:
    return self.target.close(tx)


@method(AsyncGenASendType.__await__, AsyncGenAThrowType.__await__)
def awaitable_await(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return self


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
    if isinstance(item, AsyncGenSendVariable):
        return item
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


# -- async generators


class YieldedVariable(VariableTracker):
    """`_PyAsyncGenWrappedValue`: an item, in contrast to what an `await` passes through."""

    def __init__(self, item: VariableTracker) -> None:
        self.item = item


def _unwrap(tx: Frame, generator: GeneratorVariable, step: Any) -> VariableTracker:
    """`async_gen_unwrap_value` of the result of one step: an item ends the awaitable, with the item as its value."""
    try:
        finished, result = step()
        if finished:
            tx.raises(StopAsyncIteration)
    except ObservedException as observed:
        if issubclass(observed.exc.python_type(), (StopAsyncIteration, GeneratorExit)):
            generator.closed = True
        generator.running_async = False
        raise
    if isinstance(result, YieldedVariable):
        generator.running_async = False
        raise_stop_iteration(tx, result.item)
    return result


class AsyncGenSendVariable(AwaitableVariable):
    """`__anext__()` and `asend(value)`."""

    cls = AsyncGenASendType

    def __init__(self, target: GeneratorVariable, value: VariableTracker) -> None:
        super().__init__(target)
        self.value_to_send = value
        self.begun = self.done = False

    def children(self) -> Any:
        return (self.target, self.value_to_send)

    def send(self, tx: Frame, value: VariableTracker) -> VariableTracker:
        """`async_gen_asend_send`."""
        generator = self.target
        if self.done:
            tx.raises(RuntimeError, "cannot reuse already awaited __anext__()/asend()")
        if not self.begun:
            if generator.running_async:
                tx.raises(RuntimeError, "anext(): asynchronous generator is already running")
            self.begun = True
            value = self.value_to_send if is_none(value) else value
        generator.running_async = True
        try:
            return _unwrap(tx, generator, lambda: generator.resume(tx, value))
        except ObservedException:
            self.done = True
            raise


class AsyncGenThrowVariable(AwaitableVariable):
    """`athrow(…)`, and `aclose()`, for which `thrown` is None."""

    cls = AsyncGenAThrowType

    def __init__(self, target: GeneratorVariable, thrown: Thrown | None) -> None:
        super().__init__(target)
        self.thrown = thrown
        self.begun = self.done = False

    def children(self) -> Any:
        return (self.target, *(self.thrown.arguments if self.thrown is not None else ()))

    def send(self, tx: Frame, value: VariableTracker) -> VariableTracker:
        """`async_gen_athrow_send`."""
        generator = self.target
        if self.done:
            tx.raises(RuntimeError, "cannot reuse already awaited aclose()/athrow()")
        if generator.frame is None:
            self.done = True
            raise_stop_iteration(tx, NONE)
        if self.begun:
            return self._guarded(tx, lambda: generator.resume(tx, value))
        if generator.running_async:
            self.done = True
            name = "aclose" if self.thrown is None else "athrow"
            tx.raises(RuntimeError, f"{name}(): asynchronous generator is already running")
        if generator.closed:
            self.done = True
            tx.raises(StopAsyncIteration)
        if not is_none(value):
            tx.raises(RuntimeError, "can't send non-None value to a just-started coroutine")
        self.begun = generator.running_async = True
        if self.thrown is None:
            generator.closed = True
        thrown = self.thrown or Thrown([tx.tr.type_tracker(GeneratorExit)])
        return self._guarded(tx, lambda: generator.throw(tx, thrown, False))

    def _guarded(self, tx: Frame, step: Any) -> VariableTracker:
        """One step. The end of the generator is what `aclose()` waits for; an item instead of it is an error."""
        generator = self.target
        try:
            if self.thrown is not None:
                return _unwrap(tx, generator, step)
            finished, result = step()
            if finished:
                tx.raises(StopAsyncIteration)
        except ObservedException as observed:
            generator.running_async = False
            self.done = True
            ended = issubclass(observed.exc.python_type(), (StopAsyncIteration, GeneratorExit))
            if not ended or self.thrown is not None:
                raise
            result = None
        if result is None:
            raise_stop_iteration(tx, NONE)
        if isinstance(result, YieldedVariable):
            generator.running_async = False
            self.done = True
            tx.raises(RuntimeError, "async generator ignored GeneratorExit")
        return result


def _first_use(tx: Frame, self: VariableTracker) -> GeneratorVariable:
    """`async_gen_init_hooks`: an event loop may want to know of the generator."""
    generator = native(tx, self)
    if not generator.hooked:
        node = tx.tr.source(tx.tr.constant_source(sys), ir.CALL, _hook)
        if _hook(sys) is not None:
            unsupported("async", "an async generator in an event loop")
        tx.tr.guard(node, ir.IS, None)
        generator.hooked = True
    return generator


def _hook(_: object) -> Any:
    return sys.get_asyncgen_hooks().firstiter


@method(types.AsyncGeneratorType.__aiter__)
def async_generator_aiter(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return self


@method(types.AsyncGeneratorType.__anext__)
def async_generator_anext(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return AsyncGenSendVariable(_first_use(tx, self), NONE)


@method(types.AsyncGeneratorType.asend)
def async_generator_asend(tx: Frame, self: VariableTracker, value: VariableTracker, /) -> VariableTracker:
    return AsyncGenSendVariable(_first_use(tx, self), value)


@method(types.AsyncGeneratorType.athrow)
def async_generator_athrow(tx: Frame, self: VariableTracker, /, *args: VariableTracker) -> VariableTracker:
    if not 1 <= len(args) <= 3:
        unsupported("call-c-function", "athrow() with a wrong number of arguments")
    return AsyncGenThrowVariable(_first_use(tx, self), Thrown(list(args)))


@method(types.AsyncGeneratorType.aclose)
def async_generator_aclose(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    return AsyncGenThrowVariable(_first_use(tx, self), None)
