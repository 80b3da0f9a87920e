"""Texts with parts that are known only when the program runs: numbers that vary, and the data of tensors.

Input: a number, a tensor, or pieces of text. Output: a constant where all parts are known, else `LateText`.
Invariant: if the digits of a number turn out to decide something, the frame is analysed again with that number as a constant. Data of a
tensor are those of the moment: if their text turns out to be needed, the graph ends before the instruction that asked for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo_lite.exc import Restart, TextIsRead, Unsupported, unsupported

from .base import Plain, VariableTracker
from .constant import NOT_IMPLEMENTED, ConstantVariable, boolean
from .descr import generic_getattr

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class DataText:
    """The text of a tensor's data at one moment, which is not empty: that of `str`, or as `spec` formats its number."""

    pattern = "(?s:.+)"

    def __init__(self, tx: Frame, tensor: VariableTracker, spec: str | None) -> None:
        self.tensor, self.spec, self.moment = tensor, spec, tensor.moment(tx)
        self.what = tensor.describe()
        self.step = tx.tr.thread.failing_step()
        self.user_stack = tx.tr.thread.user_stack()

    def copied(self, tx: Frame) -> CopyText:
        """The text as that of a copy, if nothing has been written since; else a break."""
        is_same = self.tensor.moment(tx) == self.moment
        copied: CopyText | None = self.tensor.copied_text(tx, self.spec) if is_same else None
        return self.needed() if copied is None else copied

    def needed(self) -> NoReturn:
        """Break where the text was asked for."""
        error = Unsupported("format", self.what)
        error.break_step, error.user_stack = self.step, self.user_stack
        raise error


class NumberText:
    """The text of a number that varies. `number` is its model, `spec` how it is formatted: "" is its repr."""

    def __init__(self, tx: Frame, number: VariableTracker, spec: str) -> None:
        self.number, self.spec = number, spec
        digits = "-?[0-9]+" if number.python_type() is int else "[-+.0-9einfa]+"
        self.pattern = "(?s:.*)" if spec else digits
        self.place = tx.tr.thread.frame.instruction()

    def needed(self) -> NoReturn:
        """Have the number made a constant where its text was asked for."""
        raise Restart(f"the text of {self.number.describe()} decides something", fact=TextIsRead(self.place))


class CopyText:
    """The text of a tensor that nobody writes to: what a function makes of it, with these constants, when the graph has run. No text of the
    program has it."""

    def __init__(self, number: VariableTracker, function: Callable[..., str], *constants: str) -> None:
        self.number, self.function, self.constants = number, function, constants

    def needed(self) -> NoReturn:
        """Nobody asks."""
        unsupported("format", self.number.describe())


def number_text(tx: Frame, number: VariableTracker, spec: str = "") -> VariableTracker:
    """The text of a symbolic number. What one instruction makes texts of is a constant there if one of them was needed before."""
    frame = tx.tr.thread.frame
    if number.python_type() is bool or frame is None or frame.instruction() in tx.tr.facts.numbers_in_texts:
        return ConstantVariable(format(number.as_python_constant(), spec))
    return LateText([NumberText(tx, number, spec)])


class LateText(VariableTracker):
    """A str of which parts are not known yet. `parts` has texts, a `DataText` for data, and a `NumberText` for a number."""

    cls = str
    parts: list[Any] = Plain()

    def describe(self) -> str:
        return "".join([part if type(part) is str else "…" for part in self.parts])

    def first(self, kind: type) -> Any:
        """The first part of a kind, or None."""
        return next((part for part in self.parts if type(part) is kind), None)

    def as_python_constant(self) -> Any:
        data = self.first(DataText)
        if data is not None:
            return unsupported("format", data.what)
        return self.first(NumberText).needed()

    def children(self) -> Any:
        return [part.number for part in self.parts if type(part) in (NumberText, CopyText)]

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return generic_getattr(tx, self, name)

    def tp_str(self, tx: Frame) -> VariableTracker:
        return self

    def nb_bool(self, tx: Frame) -> VariableTracker:
        return boolean(True)

    def sq_concat(self, tx: Frame, other: VariableTracker) -> VariableTracker:
        return joined(tx, [self, other])

    def refuse(self, tx: Frame, *args: Any) -> VariableTracker:
        return self.as_python_constant()

    tp_hash = tp_repr = tp_iter = mp_length = mp_subscript = sq_repeat = refuse

    def sq_contains(self, tx: Frame, item: VariableTracker) -> VariableTracker:
        texts = [part for part in self.parts if type(part) is str]
        found = isinstance(item, ConstantVariable) and type(item.value) is str and any(item.value in t for t in texts)
        return boolean(True) if found else self.refuse(tx)

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if not issubclass(other.python_type(), str):
            return NOT_IMPLEMENTED
        if op not in ("==", "!="):
            return self.refuse(tx)
        equal = self._equals(other)
        return self.refuse(tx) if equal is None else boolean(equal is (op == "=="))

    def _equals(self, other: VariableTracker) -> bool | None:
        """Whether two texts are equal; None if that is not known yet."""
        if isinstance(other, LateText):
            return self._equals_late(other)
        if isinstance(other, ConstantVariable) and re.fullmatch(self._pattern(), other.value) is None:
            return False
        return None

    def _equals_late(self, other: LateText) -> bool | None:
        for a, b in zip(self.parts, other.parts, strict=False):
            if type(a) is not str or type(b) is not str:
                return None
            if a != b:
                return None if a.startswith(b) or b.startswith(a) else False
        return None

    def _pattern(self) -> str:
        return "".join([re.escape(part) if type(part) is str else part.pattern for part in self.parts])

    def emit_new(self, cg: Codegen) -> None:
        data = self.first(DataText)
        if data is not None:
            data.needed()
        for part in self.parts:
            if type(part) is str:
                cg.load_const(part)
            else:
                function, constants = (
                    (format, (part.spec,)) if type(part) is NumberText else (part.function, part.constants)
                )
                cg.load_callable(function)
                cg.load(part.number)
                for constant in constants:
                    cg.load_const(constant)
                cg.asm.call(1 + len(constants))
        cg.asm.build_string(len(self.parts))


def joined(tx: Frame, parts: Iterable[Any], separator: str = "") -> VariableTracker:
    """The text that these texts, trackers and host strings, make together."""
    flat: list[Any] = []
    for i, part in enumerate(parts):
        if i and separator:
            flat.append(separator)
        if isinstance(part, LateText):
            flat += part.parts
        elif isinstance(part, VariableTracker):
            flat.append(part.atom if part.is_atom else part.as_python_constant())
        else:
            flat.append(part)
    return _text(flat)


def _text(parts: list[Any]) -> VariableTracker:
    merged: list[Any] = []
    for part in parts:
        if type(part) is str and merged and type(merged[-1]) is str:
            merged[-1] += part
        elif part != "" or type(part) is not str:
            merged.append(part)
    if all(type(part) is str for part in merged):
        return ConstantVariable("".join(merged))
    return LateText(merged)


# No characters: no text of a program that is meant for anybody has them.
_BEFORE, _AFTER = "\U0010fffe", "\U0010ffff"
_MARK = re.compile(f"{_BEFORE}([0-9]+){_AFTER}")


def mark(text: LateText, marks: list[LateText]) -> str:
    """The mark that represents a text in host strings."""
    marks.append(text)
    return f"{_BEFORE}{len(marks) - 1}{_AFTER}"


def unmarked(tx: Frame, text: str, marks: list[LateText]) -> VariableTracker:
    """A host string with the texts that its marks represent."""
    pieces = _MARK.split(text)
    if any(character in "".join(pieces) for character in (_BEFORE, _AFTER)):
        marks[0].refuse(tx)
    return joined(tx, [marks[int(piece)] if i % 2 else piece for i, piece in enumerate(pieces)])


# -- the texts


def settled(tx: Frame, text: VariableTracker) -> VariableTracker:
    """A text of which every part can be written when the graph has run; a break where the data of a tensor have changed since."""
    if not isinstance(text, LateText) or text.first(DataText) is None:
        return text
    return _text([part.copied(tx) if type(part) is DataText else part for part in text.parts])


def data_text(tx: Frame, tensor: VariableTracker, spec: str | None = None) -> VariableTracker:
    """The text of a tensor as it is now; `spec` formats its number."""
    return LateText([DataText(tx, tensor, spec)])
