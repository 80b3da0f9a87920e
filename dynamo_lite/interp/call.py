"""Calls: argument binding and the CALL protocol.

Input: a callable tracker with arguments. Output: the result's tracker.
Invariant: a call whose result the calling instruction pushes unchanged runs in a *direct* frame, so that a break inside can resume
the whole inline stack.
Mirrors `initialize_locals` and `too_many_positional` of `Python/ceval.c`.
"""

from __future__ import annotations

from inspect import CO_VARARGS, CO_VARKEYWORDS
from typing import Any, NoReturn

from ..variables import abstract
from ..variables.base import VariableTracker
from ..variables.constant import ConstantVariable
from ..variables.dict import DictVariable
from ..variables.tuple import TupleVariable


def call_function(
    f: Any, fn: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """CALL: a Python function (however bound) in a direct frame, anything else through its `tp_call`."""
    target = fn.direct_call(f, args)
    if target is not None:
        function, bound = target
        return f.tr.inline(f, function, bound, kwargs, True)
    return abstract.call(f, fn, args, kwargs)


def call_function_ex(
    f: Any, fn: VariableTracker, args: VariableTracker, kwargs: VariableTracker | None
) -> VariableTracker:
    """CALL_FUNCTION_EX."""
    if args.tp_iter is None and args.sq_item is None:
        f.raises(TypeError, f"{_name(fn)} argument after * must be an iterable, not {abstract.type_name(args)}")
    return call_function(f, fn, abstract.unpack(f, args), keyword_arguments(f, fn, kwargs))


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
        if key.python_type() is not str:
            f.raises(TypeError, "keywords must be strings")
        result[key.as_python_constant()] = value
    return result


def _name(fn: VariableTracker) -> str:
    return f"{fn.describe()}()"


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
    names = code.co_varnames
    total = n_positional + n_keyword
    bound: list[VariableTracker | None] = [*args[:n_positional], *[None] * (total - min(len(args), n_positional))]
    extra: dict[str, VariableTracker] = {}
    for name, value in kwargs.items():
        _bind_keyword(f, fn, bound, extra, name, value, names, total)
    if len(args) > n_positional and not flags & CO_VARARGS:
        _too_many_positional(f, fn, len(args), bound)
    _fill_defaults(f, fn, bound, len(args))
    if flags & CO_VARARGS:
        bound.append(TupleVariable(args[n_positional:]))
    if flags & CO_VARKEYWORDS:
        rest = DictVariable()
        for name, value in extra.items():
            rest.mp_ass_subscript(f, ConstantVariable(name), value)
        bound.append(rest)
    return bound


def _bind_keyword(
    f: Any,
    fn: Any,
    bound: list[Any],
    extra: dict[str, Any],
    name: str,
    value: VariableTracker,
    names: tuple[str, ...],
    total: int,
) -> None:
    code = fn.code
    for i in range(code.co_posonlyargcount, total):
        if names[i] == name:
            if bound[i] is not None:
                f.raises(TypeError, f"{code.co_qualname}() got multiple values for argument '{name}'")
            bound[i] = value
            return
    if code.co_flags & CO_VARKEYWORDS:
        extra[name] = value
        return
    if name in names[: code.co_posonlyargcount]:
        f.raises(
            TypeError, f"{code.co_qualname}() got some positional-only arguments passed as keyword arguments: '{name}'"
        )
    f.raises(TypeError, f"{code.co_qualname}() got an unexpected keyword argument '{name}'")


def _fill_defaults(f: Any, fn: Any, bound: list[Any], given: int) -> None:
    code = fn.code
    n_positional = code.co_argcount
    if any(bound[i] is None for i in range(min(given, n_positional), n_positional)):
        defaults = fn.default_values(f)
        first = n_positional - len(defaults)
        missing = [code.co_varnames[i] for i in range(first) if bound[i] is None]
        if missing:
            _missing_arguments(f, fn, missing, "positional")
        for i in range(first, n_positional):
            if bound[i] is None:
                bound[i] = defaults[i - first]
    missing = []
    for i in range(n_positional, n_positional + code.co_kwonlyargcount):
        if bound[i] is None:
            bound[i] = fn.keyword_default(f, code.co_varnames[i])
            if bound[i] is None:
                missing.append(code.co_varnames[i])
    if missing:
        _missing_arguments(f, fn, missing, "keyword-only")


def _missing_arguments(f: Any, fn: Any, names: list[str], kind: str) -> NoReturn:
    quoted = [repr(n) for n in names]
    if len(quoted) == 1:
        text = quoted[0]
    elif len(quoted) == 2:
        text = " and ".join(quoted)
    else:
        text = ", ".join(quoted[:-1]) + ", and " + quoted[-1]
    plural = "" if len(names) == 1 else "s"
    f.raises(TypeError, f"{fn.code.co_qualname}() missing {len(names)} required {kind} argument{plural}: {text}")


def _too_many_positional(f: Any, fn: Any, given: int, bound: list[Any]) -> NoReturn:
    code = fn.code
    n_positional = code.co_argcount
    n_defaults = len(fn.default_values(f))
    keyword_given = sum(v is not None for v in bound[n_positional:])
    takes = f"from {n_positional - n_defaults} to {n_positional}" if n_defaults else str(n_positional)
    plural = n_positional != 1 if not n_defaults else True
    if keyword_given:
        extra = f" positional argument{'s' * (given != 1)} (and {keyword_given} keyword-only argument{'s' * (keyword_given != 1)})"
    else:
        extra = ""
    was = "was" if given == 1 and not keyword_given else "were"
    f.raises(
        TypeError,
        f"{code.co_qualname}() takes {takes} positional argument{'s' * plural} but {given}{extra} {was} given",
    )
