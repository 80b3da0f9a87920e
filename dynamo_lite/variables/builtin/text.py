"""Text and bytes: the slots that str and bytes constants have beyond all constants, and text made from trackers.

Input: str and bytes constants. Output: their slots; handlers of join, format, translate and `%`; everything else is
pure.
Invariant: formatting runs the real formatting code of CPython on stands (`host_proxy.py`).
Mirrors `Objects/unicodeobject.c`, `Objects/bytesobject.c`.
"""

from __future__ import annotations

import functools
import operator
import re
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import ABSENT
from dynamo_lite.variables.protocol.abstract import get_attr, get_item, type_name, unpack
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, ConstantVariable, constant_slot, fold
from dynamo_lite.variables.protocol.deferred_str import LateText, joined, mark, unmarked
from dynamo_lite.variables.protocol.descr import type_lookup
from dynamo_lite.variables.protocol.dispatch import builtin, method
from dynamo_lite.variables.protocol.native import (
    atom_value,
    checked_size,
    host_index,
    object_repr,
    object_str,
    run,
)
from dynamo_lite.variables.protocol.wrap import builds

from .host_proxy import Stand, call_host, can_be_host, crossing, run_host, shielded, to_host, tracker_of
from .iter import ConstantIterator
from .list import ListVariable
from .number import pure_methods
from .tuple import TupleVariable

if TYPE_CHECKING:
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
        return run(tx, vt.value.__getitem__, host_index(tx, key))
    what = "string" if isinstance(vt.value, str) else "byte"
    quoted = f"'{type_name(key)}'" if what == "string" else type_name(key)
    return tx.raises(TypeError, f"{what} indices must be integers{' or slices' * (what == 'byte')}, not {quoted}")


@constant_slot("sq_contains", *CHAR)
def text_contains(vt: ConstantVariable, tx: Frame, item: VariableTracker) -> VariableTracker:
    if can_be_host(item) or isinstance(item, LateText):
        return call_host(tx, type(vt.value).__contains__, [vt, item])
    if isinstance(vt.value, str):
        return tx.raises(TypeError, f"'in <string>' requires string as left operand, not {type_name(item)}")
    return run(tx, vt.value.__contains__, host_index(tx, item))


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
    operand = value
    if issubclass(value.python_type(), tuple) and not isinstance(value, ConstantVariable):
        operand = TupleVariable(value.items)
    elif issubclass(value.python_type(), type) and type_lookup(value.python_type(), "__getitem__") is ABSENT:
        operand = TupleVariable([value])  # no mapping, whatever `__class_getitem__` takes
    elif value.sq_item is not None and value.mp_subscript is None:
        operand = TupleVariable([value])  # a deque is no mapping either, which its stand-in could not show
    template = atom_value(self)
    return formatting(tx, template.__mod__, [operand])


# -- formatting with the real code


class ModelStand(Stand):
    """The object that formatting code gets for one of a builtin type that is no constant, since that may hold anything."""

    def __str__(self) -> str:
        return crossing(self, object_str)

    def __repr__(self) -> str:
        return crossing(self, object_repr)

    def __format__(self, spec: str) -> str:
        return crossing(self, lambda tx, vt: format_object(tx, vt, ConstantVariable(spec)))

    def __getattribute__(self, name: str) -> Any:
        return _part(self, lambda tx, vt: get_attr(tx, vt, name))


class ItemStand(ModelStand):
    """A stand for an object with subscripts: `"%(key)s" % d`, `"{0[key]}".format(d)`."""

    def __getitem__(self, key: object) -> Any:
        return _part(self, lambda tx, vt: get_item(tx, vt, ConstantVariable(key)))


class NumberStand(ModelStand):
    """A stand for an object that `%d` accepts."""

    def __index__(self) -> Any:
        return crossing(self, lambda tx, vt: (vt.nb_index or vt.nb_int or vt.nb_float)(tx))

    __int__ = __float__ = __index__


def _part(stand: object, operation: Any) -> Any:
    tx, marks = (object.__getattribute__(stand, name) for name in ("_dl_tx", "_dl_marks"))
    return shielded(lambda: stand_in(tx, operation(tx, tracker_of(stand)), marks))


_WIDTHS = {
    "__mod__": re.compile(r"%(\([^)]*\))?[-#0 +]*[\d.*]"),
    "format": re.compile(r"![rsa]:|[.\[][^{}]*:|\{[^{}]*\{"),
}
_PARTS = re.compile(r"\{[^{}!:]*[.\[]")
"""`{0.name}` and `{0[key]}`, which look into their objects."""


_NUMBERS = frozenset({int, float, bool})


def stand_in(tx: Frame, vt: VariableTracker, marks: list[LateText]) -> Any:
    """A host value that can be formatted as the object would be."""
    if isinstance(vt, ConstantVariable) or vt.can_stand or vt.python_type() in _NUMBERS:  # symbolic ones too
        host = to_host(tx, vt)
        if issubclass(type(host), Stand):
            host._dl_formatted = functools.partial(_formatted, tx, marks)
        return host
    if type(vt) is TupleVariable and vt.python_type() is tuple:
        return tuple([stand_in(tx, item, marks) for item in vt.items])
    return _model_stand(tx, vt, marks)


def _model_stand(tx: Frame, vt: VariableTracker, marks: list[LateText]) -> Any:
    if vt.mp_subscript is not None or vt.sq_item is not None:
        kind = ItemStand
    elif vt.nb_index is not None or vt.nb_int is not None or vt.nb_float is not None:
        kind = NumberStand
    else:
        kind = ModelStand
    stand = object.__new__(_named(kind, type_name(vt)))
    stand._dl_tx, stand._dl_vt, stand._dl_marks = tx, vt, marks
    stand._dl_formatted = functools.partial(_formatted, tx, marks)
    return stand


def _parted(tx: Frame, vt: VariableTracker, marks: list[LateText]) -> Any:
    """The same for an object whose parts are asked for: those of a constant that is known by identity may change."""
    known = isinstance(vt, ConstantVariable) and type(vt.value) not in ATOMIC_TYPES
    return (_model_stand if known else stand_in)(tx, vt, marks)


def _formatted(tx: Frame, marks: list[LateText], result: VariableTracker) -> Any:
    """The text that formatting code gets for the result of an operation on a stand: a text with addresses in it is a mark."""
    return mark(result, marks) if isinstance(result, LateText) else stand_in(tx, result, marks)


@functools.lru_cache(256)
def _named(kind: type[ModelStand], name: str) -> type[ModelStand]:
    """A class of stands with the name of the type they stand for, which error messages show."""
    return type(name, (kind,), {})


def formatting(
    tx: Frame, function: Any, args: Any, kwargs: dict[str, VariableTracker] | None = None
) -> VariableTracker:
    """`function(*args, **kwargs)`, a real formatting function, on stands."""
    marks: list[LateText] = []
    if isinstance(function.__self__, bytes) and not can_be_host(*args):
        return unsupported("call-c-function", "an object that may have a buffer as an argument of a format")
    inside = function.__name__ != "__mod__" and _PARTS.search(function.__self__) is not None
    argument = _parted if inside else stand_in
    host = [argument(tx, a, marks) for a in args]
    result = run_host(tx, function, host, {k: argument(tx, v, marks) for k, v in (kwargs or {}).items()})
    if marks and _WIDTHS[function.__name__].search(function.__self__):
        return marks[0].refuse(tx)  # what it is padded to, or cut, hangs on its length
    return unmarked(tx, result.value, marks) if marks else result


def format_object(tx: Frame, v: VariableTracker, spec: VariableTracker) -> VariableTracker:
    """`PyObject_Format`."""
    if isinstance(v, ConstantVariable) and isinstance(spec, ConstantVariable):
        return fold(tx, format, [v, spec], {})
    if isinstance(v, LateText) and spec.value == "":
        return v
    if not issubclass(spec.python_type(), str):
        return tx.raises(TypeError, f"format() argument 2 must be str, not {type_name(spec)}")
    result = tx.call(tx.tr.lookup_special(tx, v, "__format__"), [spec])
    if not issubclass(result.python_type(), str):
        return tx.raises(TypeError, f"__format__ must return a str, not {type_name(result)}")
    return result


@method(object.__format__)
def object_format(tx: Frame, self: VariableTracker, format_spec: VariableTracker, /) -> VariableTracker:
    if atom_value(format_spec, "format"):
        return tx.raises(TypeError, f"unsupported format string passed to {type_name(self)}.__format__")
    return object_str(tx, self)


@method(str.format)
def str_format(
    tx: Frame, self: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    return formatting(tx, atom_value(self).format, args, kwargs)


# -- methods that take containers


@method(str.join, bytes.join)
def text_join(tx: Frame, self: VariableTracker, iterable: VariableTracker, /) -> VariableTracker:
    if iterable.tp_iter is None and iterable.sq_item is None:
        return tx.raises(TypeError, "can only join an iterable")
    template = atom_value(self)
    parts = unpack(tx, iterable)
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


def _replacer(tx: Frame, function: VariableTracker) -> Any:
    """A function of the program as the replacement that the real `sub` calls."""

    def replace(match: re.Match[Any]) -> Any:
        return shielded(lambda: to_host(tx, tx.call(function, [ConstantVariable(match)])))

    return replace


def _substitution(function: Any) -> None:
    @method(function)
    def substitute(
        tx: Frame, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        args = tuple([known(tx, v) for v in args])
        kwargs = {name: known(tx, v) for name, v in kwargs.items()}
        host = [_replacer(tx, v) if _is_function(v) else to_host(tx, v) for v in args]
        host_kwargs = {name: _replacer(tx, v) if _is_function(v) else to_host(tx, v) for name, v in kwargs.items()}
        return run_host(tx, functools.partial(function, self.value), host, host_kwargs)


def _is_function(v: VariableTracker) -> bool:
    return v.tp_call is not None and not isinstance(v, ConstantVariable)


_substitution(re.Pattern.sub)
_substitution(re.Pattern.subn)
_substitution(re.Pattern.split)


pure_methods(re.Match, re.Pattern)
