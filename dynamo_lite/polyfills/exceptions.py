"""Stand-ins for the methods of exception groups, and what the interpreter itself does with groups at the end of `except*`.

Mirrors the `ExceptionGroup` part of `Objects/exceptions.c`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from dynamo_lite.exc import CAUSE, CONTEXT, TRACEBACK

from .c_calls import leave_to_c
from .registry import polyfill

_EXCEPTIONS = BaseExceptionGroup.__dict__["exceptions"]
_MESSAGE = BaseExceptionGroup.__dict__["message"]

Condition = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]


def _matcher(condition: Any) -> Callable[[BaseException], Any]:
    """The test that a condition means."""
    if type(condition) is types.FunctionType:  # `PyFunction_Check`
        return condition
    if isinstance(condition, type):
        if issubclass(condition, BaseException):
            return lambda exc: condition in type(exc).__mro__
    elif isinstance(condition, tuple):
        if all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in condition):
            return lambda exc: any(cls in type(exc).__mro__ for cls in condition)
    leave_to_c()


def _subset(group: BaseExceptionGroup, exceptions: list[BaseException]) -> BaseExceptionGroup | None:
    """A group like this one of some of its exceptions."""
    if not exceptions:
        return None
    part = group.derive(exceptions)
    if not issubclass(type(part), BaseExceptionGroup):
        leave_to_c()
    TRACEBACK.__set__(part, TRACEBACK.__get__(group))
    CONTEXT.__set__(part, CONTEXT.__get__(group))
    CAUSE.__set__(part, CAUSE.__get__(group))
    notes = getattr(group, "__notes__", None)
    if isinstance(notes, (list, tuple)):
        part.__notes__ = list(notes)
    return part


def _split(exc: BaseException, matches: Callable[[BaseException], Any], with_rest: bool) -> tuple[Any, Any]:
    if matches(exc):
        return exc, None
    if not issubclass(type(exc), BaseExceptionGroup):
        return None, exc
    matching, rest = [], []
    for inner in _EXCEPTIONS.__get__(exc):
        inner_match, inner_rest = _split(inner, matches, with_rest)
        if inner_match is not None:
            matching.append(inner_match)
        if with_rest and inner_rest is not None:
            rest.append(inner_rest)
    match = _subset(exc, matching)
    return match, _subset(exc, rest) if with_rest else None


@polyfill(BaseExceptionGroup.split, check_signature=False)
def split(self: BaseExceptionGroup, condition: Condition, /) -> tuple[Any, Any]:
    """`group.split(condition)`"""
    return _split(self, _matcher(condition), True)


@polyfill(BaseExceptionGroup.subgroup, check_signature=False)
def subgroup(self: BaseExceptionGroup, condition: Condition, /) -> Any:
    """`group.subgroup(condition)`"""
    return _split(self, _matcher(condition), False)[0]


@polyfill(BaseExceptionGroup.derive, check_signature=False)
def derive(self: BaseExceptionGroup, exceptions: Any, /) -> BaseExceptionGroup:
    """`group.derive(exceptions)`"""
    return BaseExceptionGroup(_MESSAGE.__get__(self), exceptions)


def _leaves(exc: BaseException) -> list[BaseException]:
    if not issubclass(type(exc), BaseExceptionGroup):
        return [exc]
    return [leaf for inner in _EXCEPTIONS.__get__(exc) for leaf in _leaves(inner)]


def _is_reraised(exc: BaseException, original: BaseException) -> bool:
    """`is_same_exception_metadata`: a part of the original that was raised again, not a new exception."""
    return (
        TRACEBACK.__get__(exc) is TRACEBACK.__get__(original)
        and CAUSE.__get__(exc) is CAUSE.__get__(original)
        and CONTEXT.__get__(exc) is CONTEXT.__get__(original)
    )


def prepare_reraise_star(original: BaseException, exceptions: list[BaseException | None]) -> BaseException | None:
    """`_PyExc_PrepReraiseStar`: what to raise at the end of `except*`. `exceptions`: what its clauses raised, and what none caught."""
    if not exceptions:
        return None
    if not issubclass(type(original), BaseExceptionGroup):
        return exceptions[0]
    raised: list[BaseException] = []
    kept: list[BaseException] = []
    for exc in exceptions:
        if exc is not None:
            if _is_reraised(exc, original):
                kept += _leaves(exc)
            else:
                raised.append(exc)
    reraised = _split(original, lambda e: any(e is leaf for leaf in kept), False)[0]
    if not raised:
        return reraised
    if reraised is not None:
        raised.append(reraised)
    return raised[0] if len(raised) == 1 else BaseExceptionGroup("", raised)
