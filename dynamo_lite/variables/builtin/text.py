"""Text and bytes: the slots that str and bytes constants have beyond all constants, and text made from trackers.

Input: str and bytes constants. Output: their slots; handlers of join, format, translate and `%`; everything else is
pure.
Invariant: formatting runs the real formatting code of CPython on constants (`host_proxy.py`).
Mirrors `Objects/unicodeobject.c`, `Objects/bytesobject.c`.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import re
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import is_heap_type
from dynamo_lite.variables.protocol.abstract import bad_argument, get_iter_or_say, size_index, type_name, unpack
from dynamo_lite.variables.protocol.base import MISSING, ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, ConstantVariable, constant_slot, fold
from dynamo_lite.variables.protocol.deferred_str import LateText, joined
from dynamo_lite.variables.protocol.dispatch import builtin, method
from dynamo_lite.variables.protocol.native import (
    atom_value,
    checked_size,
    host_index,
    host_int,
    object_str,
    run,
)
from dynamo_lite.variables.protocol.wrap import builds

from .host_proxy import call_host, can_be_host, run_host, stays, to_host
from .iter import ConstantIterator
from .list import ListVariable
from .number import pure_methods
from .tuple import TupleVariable
from .unicode_format import by_fields, is_late, percent

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

CHAR = str, bytes


# -- slots


@constant_slot("tp_iter", *CHAR)
def text_iter(vt: ConstantVariable, tx: Frame) -> VariableTracker:
    return ConstantIterator(vt, vt.value)


_WIDE_ITERATOR = type(iter("\N{EURO SIGN}"))
"""That of a text which is not compact ASCII; instances of subclasses never are."""


@method(str.__iter__, bytes.__iter__)
def text_dunder_iter(tx: Frame, self: VariableTracker, /) -> VariableTracker:
    made = ConstantIterator(self, atom_value(self))
    if self.is_atom and isinstance(self.atom, str):
        made.cls = _WIDE_ITERATOR
    return made


@constant_slot("mp_subscript", *CHAR)
def text_subscript(vt: ConstantVariable, tx: Frame, key: VariableTracker) -> VariableTracker:
    if key.is_python_constant():
        return run(tx, vt.value.__getitem__, key.as_python_constant())
    if issubclass(key.python_type(), slice):
        return ConstantVariable(vt.value[key.host_slice(tx)])
    if key.nb_index is not None:
        return run(tx, vt.value.__getitem__, host_int(size_index(tx, key, IndexError)))
    what = "string" if isinstance(vt.value, str) else "byte"
    quoted = f"'{type_name(key)}'" if what == "string" else type_name(key)
    return tx.raises(TypeError, f"{what} indices must be integers{' or slices' * (what == 'byte')}, not {quoted}")


@constant_slot("sq_contains", *CHAR)
def text_contains(vt: ConstantVariable, tx: Frame, item: VariableTracker) -> VariableTracker:
    if can_be_host(item) or isinstance(item, LateText):
        return call_host(tx, type(vt.value).__contains__, [vt, item])
    if isinstance(vt.value, str):
        return tx.raises(TypeError, f"'in <string>' requires string as left operand, not {type_name(item)}")
    number = None
    if item.nb_index is not None:
        with contextlib.suppress(ObservedException):  # C asks for a buffer next
            number = max(-1, min(host_index(tx, item), 256))
    return _no_buffer(tx, item) if number is None else run(tx, vt.value.__contains__, number)


def _no_buffer(tx: Frame, v: VariableTracker) -> VariableTracker:
    """The error of `PyObject_GetBuffer`; types of C may have one."""
    if not v.is_user_made:
        unsupported("call-c-function", f"bytes and a {type_name(v)}, which may have a buffer")
    return tx.raises(TypeError, f"a bytes-like object is required, not '{type_name(v)}'")


@constant_slot("sq_concat", *CHAR)
def text_concat(vt: ConstantVariable, tx: Frame, other: VariableTracker) -> VariableTracker:
    if can_be_host(other):
        return call_host(tx, type(vt.value).__add__, [vt, other])
    if isinstance(vt.value, str):
        if isinstance(other, LateText):
            return joined(tx, [vt, other])
        return tx.raises(TypeError, f'can only concatenate str (not "{type_name(other)}") to str')
    return unsupported("call-c-function", f"bytes and a {type_name(other)}, which may have a buffer")


@constant_slot("sq_repeat", *CHAR)
def text_repeat(vt: ConstantVariable, tx: Frame, count: VariableTracker) -> VariableTracker:
    n = host_index(tx, count)
    checked_size(n * len(vt.value))
    return ConstantVariable(vt.value * n)


def _text_remainder(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
    """`"…" % args`; for other constants the arithmetic operator."""
    if isinstance(v, ConstantVariable) and isinstance(v.value, CHAR):
        return remainder(tx, v, w)
    return _number_remainder(tx, v, w)


_number_remainder = ConstantVariable.nb_remainder
ConstantVariable.nb_remainder = staticmethod(_text_remainder)


@method(str.__mod__, bytes.__mod__)
def remainder(tx: Frame, self: VariableTracker, value: VariableTracker, /) -> VariableTracker:
    """A template without conversions is its own result, also one of a class of the program."""
    is_tuple = issubclass(value.python_type(), tuple) and not isinstance(value, ConstantVariable)
    operand = TupleVariable(value.items) if is_tuple else value
    values = list(operand.items) if is_tuple else [operand]
    template = atom_value(self)
    if type(template) is str and operand.python_type() is not dict and any(map(is_late, values)):
        text = percent(tx, template, values)
        if text is not None:
            return text
    result = formatting(tx, template.__mod__, [operand])
    return self if type(template) is str and template and "%" not in template else result


# -- formatting with the real code


_PARTS = re.compile(r"\{[^{}!:]*[.\[]")
"""`{0.name}` and `{0[key]}`, which look into their objects."""


def formatting(
    tx: Frame, function: Any, args: Any, kwargs: dict[str, VariableTracker] | None = None
) -> VariableTracker:
    """`function(*args, **kwargs)`, a real formatting function, on constants, and on tuples, lists and dicts of these."""
    inside = function.__name__ != "__mod__" and _PARTS.search(function.__self__) is not None
    host = [_shown(tx, a, inside) for a in args]
    return run_host(tx, function, host, {k: _shown(tx, v, inside) for k, v in (kwargs or {}).items()})


def _shown(tx: Frame, vt: VariableTracker, inside: bool) -> Any:
    """A host value that is formatted as the object would be. Breaks where code of the program, or a name that it may change, decides
    about the text; `inside`: where attributes may, or items."""
    cls = vt.python_type()
    if isinstance(vt, ListVariable | TupleVariable) and not is_heap_type(cls):
        return cls([_shown(tx, item, inside) for item in vt.items])
    if cls is dict:
        return {_shown(tx, key, inside): _shown(tx, value, inside) for key, value in vt.pairs()}
    if cls in (int, float, bool, str) or (
        isinstance(vt, ConstantVariable) and not (inside and cls not in ATOMIC_TYPES)
    ):
        return vt.as_python_constant()
    if vt.is_atom and stays(tx, cls):
        return vt.atom
    return unsupported("call-c-function", f"a format of {vt.describe()}")


@method(object.__format__)
def object_format(tx: Frame, self: VariableTracker, format_spec: VariableTracker, /) -> VariableTracker:
    if not _is_text(format_spec):
        bad_argument(tx, "__format__", "argument", "str", format_spec)
    if atom_value(format_spec, "format"):
        return tx.raises(TypeError, f"unsupported format string passed to {type_name(self)}.__format__")
    return object_str(tx, self)


@method(str.format)
def str_format(
    tx: Frame, self: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    template = atom_value(self)
    if any(map(is_late, (*args, *kwargs.values()))):
        text = by_fields(tx, template, args, kwargs)
        if text is not None:
            return text
    result = formatting(tx, template.format, args, kwargs)
    return self if template and not {"{", "}"}.intersection(template) else result


def _partition(function: Any, whole: int) -> None:
    """`whole`: which of the three is the text itself, if the separator is not in it."""

    @method(function)
    def partition(tx: Frame, self: VariableTracker, sep: VariableTracker, /) -> VariableTracker:
        items = list(call_host(tx, function, [self, sep]).items)
        if items[1].value:
            items[1] = sep
        else:
            items[whole] = self
        return TupleVariable(items)


for _type in (str, bytes):
    _partition(_type.partition, 0)
    _partition(_type.rpartition, 2)


# -- methods that take containers


@method(str.join, bytes.join)
def text_join(tx: Frame, self: VariableTracker, iterable: VariableTracker, /) -> VariableTracker:
    template = atom_value(self)
    parts = unpack(tx, get_iter_or_say(tx, iterable, lambda: "can only join an iterable"))
    if any(isinstance(item, LateText) for item in parts) and all(_is_text(item) for item in parts):
        return joined(tx, parts, template)
    for i, item in enumerate(parts):
        if not can_be_host(item) and not hasattr(item, "host_copy"):
            if isinstance(template, bytes):
                return unsupported("call-c-function", f"bytes and a {type_name(item)}, which may have a buffer")
            return tx.raises(TypeError, f"sequence item {i}: expected str instance, {type_name(item)} found")
    return call_host(tx, template.join, [ListVariable(parts)])


def _is_text(v: VariableTracker) -> bool:
    return issubclass(v.python_type(), str)


def _at_end(function: Any) -> None:
    @method(function)
    def at_end(tx: Frame, self: VariableTracker, /, *args: VariableTracker) -> VariableTracker:
        if isinstance(self, LateText) and len(args) == 1 and isinstance(args[0], ConstantVariable):
            text = self.parts[0 if function is str.startswith else -1]
            if type(text) is str and type(args[0].value) is str and len(args[0].value) <= len(text):
                return fold(tx, function, [ConstantVariable(text), args[0]], {})
        return call_host(tx, function, [self, *args])


_at_end(str.startswith)
_at_end(str.endswith)


@method(str.translate)
def str_translate(tx: Frame, self: VariableTracker, table: VariableTracker, /) -> VariableTracker:
    return call_host(tx, str.translate, [self, table])


pure_methods(str, bytes)

# -- regular expressions: patterns and matches are constants


@builds(re.Pattern, re.Match)
def build_pattern(tr: Trace, value: object, source: GuardNode | None) -> ConstantVariable:
    tr.guard(source, ir.IS, value)
    return ConstantVariable(value, source)


@constant_slot("mp_subscript", re.Match)
def match_subscript(vt: ConstantVariable, tx: Frame, key: VariableTracker) -> VariableTracker:
    return fold(tx, operator.getitem, [vt, key], {})


@builtin(re._compile)
def re_compile(tx: Frame, pattern: VariableTracker, flags: VariableTracker, /) -> VariableTracker:
    # Past the module's cache, which is no state of the program.
    return fold(tx, re.compile, [known(tx, pattern), known(tx, flags)], {})


def known(tx: Frame, v: VariableTracker) -> VariableTracker:
    """An argument as a constant: from 3.13 on the default of `count` and `flags` is an int of its own class."""
    if v.value is not MISSING and isinstance(v.value, int) and not v.is_python_constant():
        tx.tr.guard(v.source, ir.IS, v.value)
        return ConstantVariable(int(v.value))
    return v


def _substitution(function: Any) -> None:
    @method(function)
    def substitute(
        tx: Frame, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        host = [to_host(tx, known(tx, v)) for v in args]
        host_kwargs = {name: to_host(tx, known(tx, v)) for name, v in kwargs.items()}
        if any(map(callable, (*host, *host_kwargs.values()))):
            return unsupported("call-c-function", f"{function.__name__}() that calls a function")
        return run_host(tx, functools.partial(function, self.value), host, host_kwargs)


_substitution(re.Pattern.sub)
_substitution(re.Pattern.subn)
_substitution(re.Pattern.split)


class MatchVariable(ConstantVariable):
    """A match in an instance of a class that inherits from str; `text` is the model of that."""

    text: VariableTracker

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return self.text if name == "string" else super().tp_getattro(tx, name)

    def emit_new(self, cg: Codegen) -> None:
        unsupported("reconstruct", "a match in an instance of a class that inherits from str")


def _matching(function: Any) -> None:
    @method(function)
    def match(tx: Frame, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if not args or not args[0].is_atom or isinstance(args[0], ConstantVariable):
            return fold(tx, function, [self, *args], kwargs)
        found = fold(tx, function, [self, ConstantVariable(args[0].atom), *args[1:]], kwargs)
        if found.value is not None:
            found = MatchVariable(found.value)
            found.text = args[0]
        return found


for _raw in (re.Pattern.match, re.Pattern.search, re.Pattern.fullmatch):
    _matching(_raw)
pure_methods(re.Match, re.Pattern)
