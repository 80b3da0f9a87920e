"""Text and bytes: the slots that str and bytes constants have beyond all constants, and text made from trackers.

Input: str and bytes constants. Output: their slots; handlers of join, format, translate and `%`; everything else is
pure.
Invariant: formatting runs the real formatting code of CPython. Arguments that are no constants are stood for by
`Stand`, whose special methods ask the model.
Mirrors `Objects/unicodeobject.c`, `Objects/bytesobject.c`.
"""

from __future__ import annotations

import functools
import operator
import re
import sys
from typing import Any

from ..exc import unsupported
from ..guards import ir
from .abstract import get_attr, get_item, type_name, unpack
from .base import MISSING, ObservedException, VariableTracker
from .constant import NOT_IMPLEMENTED, ConstantVariable, constant_slot, fold
from .dispatch import builtin, method, pure
from .iter import ConstantIterator
from .native import checked_size, host_index, host_value, repr_text, run, str_text
from .number import pure_methods
from .wrap import builds

CHAR = str, bytes


# -- slots


@constant_slot("tp_iter", *CHAR)
def text_iter(vt: ConstantVariable, tx: Any) -> VariableTracker:
    return ConstantIterator(vt, vt.value)


@method(str.__iter__, bytes.__iter__)
def text_dunder_iter(tx: Any, self: VariableTracker, /) -> VariableTracker:
    return self.tp_iter(tx)


@constant_slot("mp_subscript", *CHAR)
def text_subscript(vt: ConstantVariable, tx: Any, key: VariableTracker) -> VariableTracker:
    if key.is_python_constant():
        return run(tx, vt.value.__getitem__, key.as_python_constant())
    if issubclass(key.python_type(), slice):
        return ConstantVariable(vt.value[key.host_slice(tx)])
    if key.nb_index is not None:
        return run(tx, vt.value.__getitem__, host_index(tx, key))
    what = "string" if isinstance(vt.value, str) else "byte"
    quoted = f"'{type_name(key)}'" if what == "string" else type_name(key)
    return tx.raises(TypeError, f"{what} indices must be integers{' or slices' * (what == 'byte')}, not {quoted}")


@constant_slot("sq_contains", *CHAR)
def text_contains(vt: ConstantVariable, tx: Any, item: VariableTracker) -> VariableTracker:
    if item.is_python_constant():
        return run(tx, vt.value.__contains__, item.as_python_constant())
    if isinstance(vt.value, str):
        return tx.raises(TypeError, f"'in <string>' requires string as left operand, not {type_name(item)}")
    return run(tx, vt.value.__contains__, host_index(tx, item))


@constant_slot("sq_concat", *CHAR)
def text_concat(vt: ConstantVariable, tx: Any, other: VariableTracker) -> VariableTracker:
    if other.is_python_constant():
        return fold(tx, lambda v, w: v + w, [vt, other], {})
    if isinstance(vt.value, str):
        return tx.raises(TypeError, f'can only concatenate str (not "{type_name(other)}") to str')
    return tx.raises(TypeError, f"can't concat {type_name(other)} to bytes")


@constant_slot("sq_repeat", *CHAR)
def text_repeat(vt: ConstantVariable, tx: Any, count: VariableTracker) -> VariableTracker:
    n = host_index(tx, count)
    checked_size(n * len(vt.value))
    return ConstantVariable(vt.value * n)


def _text_remainder(tx: Any, v: VariableTracker, w: VariableTracker) -> VariableTracker:
    """`"…" % args`; for other constants the arithmetic operator."""
    if not isinstance(v, ConstantVariable):
        return NOT_IMPLEMENTED
    if isinstance(v.value, CHAR):
        if issubclass(w.python_type(), tuple) and not isinstance(w, ConstantVariable):
            return run(tx, v.value.__mod__, tuple([stand_in(tx, item) for item in w.items]))
        return run(tx, v.value.__mod__, stand_in(tx, w))
    return _number_remainder(tx, v, w)


_number_remainder = ConstantVariable.nb_remainder
ConstantVariable.nb_remainder = staticmethod(_text_remainder)


# -- formatting with the real code


class Stand:
    """What the real formatting code gets for a tracker that is no constant. Subclasses add the protocols that its
    type has.
    """

    def __init__(self, tx: Any, vt: VariableTracker) -> None:
        self._tx, self._vt = tx, vt

    def __str__(self) -> str:
        return str_text(self._tx, self._vt)

    def __repr__(self) -> str:
        return repr_text(self._tx, self._vt)

    def __format__(self, spec: str) -> str:
        return format_text(self._tx, self._vt, spec)

    def __getattr__(self, name: str) -> Any:
        return stand_in(self._tx, get_attr(self._tx, self._vt, name))


class ItemStand(Stand):
    """A stand for an object with subscripts: `"%(key)s" % d`, `"{0[key]}".format(d)`."""

    def __getitem__(self, key: Any) -> Any:
        return stand_in(self._tx, get_item(self._tx, self._vt, ConstantVariable(key)))


class NumberStand(Stand):
    """A stand for an object that `%d` accepts."""

    def __index__(self) -> Any:
        vt = self._vt
        slot = vt.nb_index or vt.nb_int or vt.nb_float
        return host_value(slot(self._tx), "format")

    __int__ = __float__ = __index__


def stand_in(tx: Any, vt: VariableTracker) -> Any:
    """A host value for a tracker: the constant itself, or a `Stand`."""
    if isinstance(vt, ConstantVariable):
        return vt.value
    if vt.mp_subscript is not None or vt.sq_item is not None:
        kind = ItemStand
    elif vt.nb_index is not None or vt.nb_int is not None or vt.nb_float is not None:
        kind = NumberStand
    else:
        kind = Stand
    return _named(kind, type_name(vt))(tx, vt)


@functools.lru_cache(256)
def _named(kind: type[Stand], name: str) -> type[Stand]:
    """A class of stands with the name of the type they stand for, which error messages show."""
    return type(name, (kind,), {})


def format_text(tx: Any, vt: VariableTracker, spec: str) -> str:
    """`format(vt, spec)` as a host string."""
    if isinstance(vt, ConstantVariable):
        return run(tx, format, vt.value, spec).value
    formatter = tx.tr.lookup_special(tx, vt, "__format__")
    result = tx.call(formatter, [ConstantVariable(spec)])
    if not issubclass(result.python_type(), str):
        tx.raises(TypeError, f"__format__ must return a str, not {type_name(result)}")
    return host_value(result, "format")


@method(object.__format__)
def object_format(tx: Any, self: VariableTracker, format_spec: VariableTracker, /) -> VariableTracker:
    if host_value(format_spec, "format"):
        return tx.raises(TypeError, f"unsupported format string passed to {type_name(self)}.__format__")
    return ConstantVariable(str_text(tx, self))


def format_host(tx: Any, template: str, args: Any, kwargs: dict[str, VariableTracker]) -> ConstantVariable:
    """`template.format(*args, **kwargs)` on trackers."""
    host_args = [stand_in(tx, a) for a in args]
    return run(tx, template.format, *host_args, **{k: stand_in(tx, v) for k, v in kwargs.items()})


@method(str.format)
def str_format(tx: Any, self: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    return format_host(tx, host_value(self), args, kwargs)


@method(str.format_map)
def str_format_map(tx: Any, self: VariableTracker, mapping: VariableTracker, /) -> VariableTracker:
    return run(tx, host_value(self).format_map, ItemStand(tx, mapping))


# -- methods that take containers


@method(str.join, bytes.join)
def text_join(tx: Any, self: VariableTracker, iterable: VariableTracker, /) -> VariableTracker:
    if iterable.tp_iter is None and iterable.sq_item is None:
        return tx.raises(TypeError, "can only join an iterable")
    parts = []
    for i, item in enumerate(unpack(tx, iterable)):
        if not isinstance(item, ConstantVariable) and not issubclass(item.python_type(), CHAR):
            what = "str instance" if isinstance(host_value(self), str) else "a bytes-like object"
            return tx.raises(TypeError, f"sequence item {i}: expected {what}, {type_name(item)} found")
        parts.append(host_value(item))
    return run(tx, host_value(self).join, parts)


@method(str.translate)
def str_translate(tx: Any, self: VariableTracker, table: VariableTracker, /) -> VariableTracker:
    return run(tx, host_value(self).translate, _Table(tx, table))


class _Table:
    """The mapping that the real `translate` reads."""

    def __init__(self, tx: Any, vt: VariableTracker) -> None:
        self._tx, self._vt = tx, vt

    def __getitem__(self, key: int) -> Any:
        try:
            return host_value(get_item(self._tx, self._vt, ConstantVariable(key)))
        except ObservedException as error:
            if issubclass(error.exc.python_type(), LookupError):
                raise LookupError from None
            raise


@method(str.__dict__["maketrans"].__func__)
def str_maketrans(tx: Any, x: VariableTracker, /, *args: VariableTracker) -> VariableTracker:
    values = [v.host_copy() if hasattr(v, "host_copy") else host_value(v) for v in (x, *args)]
    try:
        table = str.maketrans(*values)
    except (TypeError, ValueError) as error:
        tx.raises_like(error)
    return tx.tr.wrap_new(table)


pure_methods(str, bytes)
pure(sys.intern)

# -- regular expressions: patterns and matches are constants


@builds(re.Pattern, re.Match)
def build_pattern(tr: Any, value: Any, source: Any) -> ConstantVariable:
    tr.guard(source, ir.IS, value)
    return ConstantVariable(value, source)


@constant_slot("mp_subscript", re.Match)
def match_subscript(vt: ConstantVariable, tx: Any, key: VariableTracker) -> VariableTracker:
    return fold(tx, operator.getitem, [vt, key], {})


@builtin(re._compile)
def re_compile(tx: Any, pattern: VariableTracker, flags: VariableTracker, /) -> VariableTracker:
    # Past the module's cache, which is no state of the program.
    return fold(tx, re.compile, [known(tx, pattern), known(tx, flags)], {})


def known(tx: Any, v: VariableTracker) -> VariableTracker:
    """An argument as a constant: from 3.13 on the default of `count` and `flags` is an int of its own class."""
    if v.value is not MISSING and isinstance(v.value, int) and not v.is_python_constant():
        tx.tr.guard(v.source, ir.IS, v.value)
        return ConstantVariable(int(v.value))
    return v


def _substitution(function: Any) -> None:
    @method(function)
    def substitute(
        tx: Any, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        args = tuple([known(tx, v) for v in args])
        kwargs = {name: known(tx, v) for name, v in kwargs.items()}
        if all(isinstance(v, ConstantVariable) for v in (*args, *kwargs.values())):
            return fold(tx, function, [self, *args], kwargs)
        return unsupported("call-c-function", f"{function.__name__} of a pattern with arguments that are no constants")


_substitution(re.Pattern.sub)
_substitution(re.Pattern.subn)
_substitution(re.Pattern.split)
pure_methods(re.Match, re.Pattern)
