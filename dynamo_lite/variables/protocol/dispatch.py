"""Which function models which real callable without bytecode.

Input: a real builtin function, type or descriptor. Output: its handler.
Invariant: keyed by the real object, never by name; registering twice is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.polyfills.registry import PURE

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

Handler = Callable[..., Any]

HANDLERS: dict[Any, Handler] = {}
"""Real callable → handler(tx, *args, **kwargs), arguments being trackers. For descriptors the first argument is self."""

DIRECT_CALLS: dict[Any, Callable[[list[Any]], tuple[Any, list[Any]]]] = {}
"""Builtin function that does nothing but call a Python function → from its arguments, that function and those of the call."""

CONSTRUCTORS: dict[type, Handler] = {}
"""Builtin type → handler(tx, cls_tracker, *args, **kwargs) that makes an instance."""

WITHOUT_STATE: set[Any] = set()
"""Methods of builtin types whose handlers ask nothing of the state that such an object has in C."""

REFUSED: dict[Any, tuple[str, str]] = {}
"""Real callable → slug and context of the break that a call of it is, always or nearly so."""

SLUG_OF_MODULE = {
    "_io": "call-io",
    "_signal": "call-io",
    "_socket": "call-io",
    "io": "call-io",
    "nt": "call-io",
    "posix": "call-io",
    "time": "time-dependent",
}
"""Name of the module of a C function without a model → slug of the break that calling it is (else `call-c-function`)."""


def slug_of_foreign(fn: Callable[..., Any]) -> str:
    """The slug of the break that calling a C function or class without a model is."""
    owner = getattr(fn, "__objclass__", fn)
    if getattr(fn, "__name__", None) == "__new__" and issubclass(type(getattr(fn, "__self__", None)), type):
        owner = fn.__self__  # of a class written in C
    return SLUG_OF_MODULE.get(getattr(owner, "__module__", None), "call-c-function")


def _register(table: dict[Any, Handler], keys: tuple[Any, ...]) -> Callable[[Handler], Handler]:
    def decorate(handler: Handler) -> Handler:
        for key in keys:
            if key in table:
                raise ValueError(f"{key!r} has a handler already: {table[key]}")
            table[key] = handler
        return handler

    return decorate


def builtin(*functions: Any) -> Callable[[Handler], Handler]:
    """Register the handler of builtin functions: `@builtin(len) def builtin_len(tx, obj)`."""
    return _register(HANDLERS, functions)


def method(*descriptors: Any) -> Callable[[Handler], Handler]:
    """Register the handler of method descriptors: `@method(list.append) def list_append(tx, self, item)`."""
    return _register(HANDLERS, descriptors)


def constructor(*types: type) -> Callable[[Handler], Handler]:
    """Register what calling a builtin type does: `@constructor(list) def new_list(tx, cls, iterable=None)`."""
    return _register(CONSTRUCTORS, types)


def pure(*functions: Any) -> None:
    """Declare callables foldable on constant arguments."""
    PURE.update(functions)


def refuse(slug: str, *functions: Any, context: str | None = None, sees_callers: bool = False) -> None:
    """Declare callables that end the graph whenever they are called. `sees_callers`: they look at the frames that called them."""
    for function in functions:
        text = context or getattr(function, "__qualname__", repr(function))
        REFUSED[function] = (slug, text)
        _register(HANDLERS, (function,))(_refusal(slug, text, sees_callers))


def _refusal(slug: str, context: str, sees_callers: bool) -> Handler:
    def refused(tx: Frame, /, *args: Any, **kwargs: Any) -> Any:
        return tx.needs_real_callers(slug, context) if sees_callers else unsupported(slug, context)

    return refused
