"""`"…" % args` and `"…".format(…)` with parts that C code can't be given: numbers that vary, data of tensors, objects of the program.

Input: a constant template and trackers. Output: the text, such parts as late texts; None where the template asks for more than is known
here (attributes and items of arguments, nested specifications, names in `%`), so that the real code has to do it.
Invariant: fields are formatted from left to right, each as the real code does it.
Mirrors `PyUnicode_Format` of `Objects/unicodeobject.c` and `Objects/stringlib/unicode_format.h`.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Any

from dynamo_lite.variables.protocol.abstract import bad_argument, type_name
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, fold
from dynamo_lite.variables.protocol.deferred_str import LateText, joined
from dynamo_lite.variables.protocol.native import object_repr, object_str

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_CONVERSION = re.compile(r"%(?:(%)|([#0\- +]*)([0-9]*)(?:\.([0-9]+))?([dieEfFgGsr]))")
_FLOATS = frozenset("eEfFgG")


def percent(tx: Frame, template: str, values: list[VariableTracker]) -> VariableTracker | None:
    """`template % tuple(values)`."""
    pieces: list[Any] = []
    at, rest = 0, iter(values)
    while (start := template.find("%", at)) >= 0:
        found = _CONVERSION.match(template, start)
        if found is None:
            return None
        pieces.append(template[at:start])
        at = found.end()
        if found[1]:
            pieces.append("%")
            continue
        value = next(rest, None)
        piece = None if value is None else _converted(tx, value, found)
        if piece is None:
            return None
        pieces.append(piece)
    return joined(tx, [*pieces, template[at:]]) if next(rest, None) is None else None


def _converted(tx: Frame, value: VariableTracker, conversion: re.Match[str]) -> VariableTracker | None:
    flags, width, precision, kind = conversion.groups()[1:]
    if kind in "sr":
        if not (flags or width or precision):
            return object_str(tx, value) if kind == "s" else object_repr(tx, value)
    elif not value.is_symbolic and not isinstance(value, ConstantVariable):
        if (value.nb_float if kind in _FLOATS else value.nb_int) is None:
            return None
        value = tx.call(tx.tr.build_constant_object(float if kind in _FLOATS else int), [value])
    if isinstance(value, ConstantVariable):
        try:
            return ConstantVariable(conversion[0] % (value.value,))
        except (TypeError, ValueError, OverflowError):
            return None
    spec = _spec(flags, width, precision, kind)
    if spec is None or not value.is_symbolic or (kind in "di" and value.python_type() is not int):
        return None
    return format_object(tx, value, ConstantVariable(spec))


def _spec(flags: str, width: str, precision: str | None, kind: str) -> str | None:
    """The specification by which `format` gives the text of a conversion of numbers."""
    is_float = kind in _FLOATS
    if kind in "sr" or (is_float and "0" in flags) or (not is_float and (precision is not None or "#" in flags)):
        return None  # `%05f` of infinity has no zeros
    align = "<" if "-" in flags and width else ""
    sign = "+" if "+" in flags else " " if " " in flags else ""
    zero = "0" if "0" in flags and "-" not in flags and width else ""
    digits = f".{precision or 6}" if is_float else ""
    return f"{align}{sign}{'#' * ('#' in flags)}{zero}{width}{digits}{'d' if kind == 'i' else kind}"


def by_fields(
    tx: Frame, template: str, args: tuple[VariableTracker, ...], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """`template.format(*args, **kwargs)`."""
    pieces: list[Any] = []
    automatic = 0
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError:
        return None
    for literal, name, spec, conversion in parts:
        pieces.append(literal)
        if name is None:
            continue
        if name == "":
            name, automatic = str(automatic), automatic + 1
        value = args[int(name)] if name.isdecimal() and int(name) < len(args) else kwargs.get(name)
        if value is None or spec is None or "{" in spec or conversion not in (None, "s", "r"):
            return None
        if conversion is not None:
            value = object_str(tx, value) if conversion == "s" else object_repr(tx, value)
        pieces.append(format_object(tx, value, ConstantVariable(spec)))
    if automatic and any(name and name.isdecimal() for _, name, *_ in parts):
        return None
    return joined(tx, pieces)


def is_late(vt: VariableTracker) -> bool:
    """Whether the text of an object is not that of a constant."""
    return vt.is_symbolic or isinstance(vt, LateText) or not (vt.is_atom or vt.is_python_constant())


def format_object(tx: Frame, v: VariableTracker, spec: VariableTracker) -> VariableTracker:
    """`PyObject_Format`."""
    if isinstance(v, ConstantVariable) and isinstance(spec, ConstantVariable):
        return fold(tx, format, [v, spec], {})
    if isinstance(v, LateText) and spec.value == "":
        return v
    if not issubclass(spec.python_type(), str):
        bad_argument(tx, "format", "argument 2", "str", spec)
    result = tx.call(tx.tr.lookup_special(tx, v, "__format__"), [spec])
    if not issubclass(result.python_type(), str):
        return tx.raises(TypeError, f"__format__ must return a str, not {type_name(result)}")
    return result
