"""Calls: argument binding and the CALL protocol.

Input: a callable tracker with arguments. Output: the result's tracker.
Invariant: a call whose result the calling instruction pushes unchanged runs in a *direct* frame, so that a break inside can resume
the whole inline stack.
Mirrors `initialize_locals` of `Python/ceval.c`.
"""

from __future__ import annotations

from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Any, NoReturn

from dynamo_lite.exc import unsupported
from dynamo_lite.variables.builtin.dict import DictVariable, function_text
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol import abstract
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable


def call_function(
    f: Any, base: int, fn: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """CALL: a Python function (however bound) in a direct frame, anything else through its `tp_call`. The operands, from `base` on, leave
    the stack: those of a Python function before it runs, which owns its arguments; those of others behind the call, for a C function does
    not."""
    target = fn.direct_call(f, args)
    if target is not None:
        del f.stack[base:]
        function, bound = target
        return f.tr.inline(f, function, bound, kwargs, True)
    result = abstract.call(f, fn, args, kwargs)
    del f.stack[base:]
    return result


def call_function_ex(
    f: Any, base: int, fn: VariableTracker, args: VariableTracker, kwargs: VariableTracker | None
) -> VariableTracker:
    """CALL_FUNCTION_EX, see `call_function`."""
    if args.tp_iter is None and args.sq_item is None:
        f.raises(
            TypeError, f"{function_text(f, fn)} argument after * must be an iterable, not {abstract.type_name(args)}"
        )
    return call_function(f, base, fn, abstract.unpack_to_tuple(f, args), keyword_arguments(f, fn, kwargs))


def keyword_arguments(f: Any, fn: VariableTracker, kwargs: VariableTracker | None) -> dict[str, VariableTracker]:
    """The items of a `**` argument, whose keys must be strings."""
    if kwargs is None:
        return {}
    if not isinstance(kwargs, DictVariable):
        merged = DictVariable()
        merged.merge(f, kwargs, unique_for=fn)
        kwargs = merged
    result = {}
    for key, value in kwargs.pairs():
        if not issubclass(key.python_type(), str):
            f.raises(TypeError, "keywords must be strings")
        if key.is_atom:
            unsupported(
                "arguments-mismatch", "a keyword that is an instance of a subclass of str"
            )  # `**kw` would keep it
        result[key.as_python_constant()] = value
    return result


def bind_arguments(
    f: Any, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> list[VariableTracker | None]:
    """The localsplus prefix of a call: positional, keyword-only, `*args`, `**kwargs`. Raises TypeError in the traced program."""
    code = fn.code
    flags = code.co_flags
    n_positional = code.co_argcount
    n_keyword = code.co_kwonlyargcount
    if not kwargs and len(args) == n_positional and not n_keyword and not flags & (CO_VARARGS | CO_VARKEYWORDS):
        return list(args)
    total = n_positional + n_keyword
    bound: list[VariableTracker | None] = [*args[:n_positional], *[None] * (total - min(len(args), n_positional))]
    extra: dict[str, VariableTracker] = {}
    fits = len(args) <= n_positional or flags & CO_VARARGS
    for name, value in kwargs.items():
        fits = _bind_keyword(code, bound, extra, name, value, total) and fits
    if not (fits and _fill_defaults(f, fn, bound)):
        refuse_arguments(f, fn, len(args), list(kwargs))
    if flags & CO_VARARGS:
        bound.append(TupleVariable(args[n_positional:]))
    if flags & CO_VARKEYWORDS:
        rest = DictVariable()
        for name, value in extra.items():
            rest.mp_ass_subscript(f, ConstantVariable(name), value)
        bound.append(rest)
    return bound


def _bind_keyword(
    code: CodeType, bound: list[Any], extra: dict[str, Any], name: str, value: VariableTracker, total: int
) -> bool:
    """Put a keyword argument in its place; False if it has none, or the place is taken."""
    names = code.co_varnames
    for i in range(code.co_posonlyargcount, total):
        if names[i] == name:
            free = bound[i] is None
            bound[i] = value
            return free
    extra[name] = value
    return bool(code.co_flags & CO_VARKEYWORDS)


def _fill_defaults(f: object, fn: Any, bound: list[Any]) -> bool:
    """Put defaults where no argument was given; False if one is missing."""
    code = fn.code
    n_positional = code.co_argcount
    if any(v is None for v in bound[:n_positional]):
        defaults = fn.default_values(f)
        first = n_positional - len(defaults)
        for i in range(max(first, 0), n_positional):
            if bound[i] is None:
                bound[i] = defaults[i - first]
    for i in range(n_positional, n_positional + code.co_kwonlyargcount):
        if bound[i] is None:
            bound[i] = fn.keyword_default(f, code.co_varnames[i])
    return all(v is not None for v in bound)


def refuse_arguments(f: Any, fn: Any, n_args: int, names: list[str]) -> NoReturn:
    """Raise what this CPython says about arguments that don't fit: a function with the same parameters is asked."""
    code = fn.code
    n_parameters = code.co_argcount + code.co_kwonlyargcount
    n_parameters += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    parameters = _EMPTY.replace(
        co_argcount=code.co_argcount,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_varnames=code.co_varnames[:n_parameters],
        co_nlocals=n_parameters,
        co_flags=_EMPTY.co_flags | code.co_flags & (CO_VARARGS | CO_VARKEYWORDS),
    )
    stub = FunctionType(parameters, {}, code.co_name, (None,) * len(fn.default_values(f)))
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    stub.__kwdefaults__ = {name: None for name in keyword_only if fn.keyword_default(f, name) is not None}
    stub.__qualname__ = abstract.get_attr(f, fn, "__qualname__").as_python_constant()
    try:
        stub(*[None] * n_args, **dict.fromkeys(names))
    except TypeError as error:
        f.raises_like(error)
    raise AssertionError(f"the arguments fit {stub.__qualname__}")


_EMPTY = (lambda: None).__code__
