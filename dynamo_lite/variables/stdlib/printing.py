"""`print` behind the graph, where `config.stitch` has it so.

Input: a call of `print`. Output: a `PrintedText`: generated code writes it when the graph has run, in the order of the program's other
changes.
Invariant: the text is that of eager execution at the moment of the call. Between that moment and the writing only operators of the graph
run, and changes are made to objects which the stream doesn't show: its methods are those of C. Anything else ends the graph before
the call, and whatever may look at the stream later ends it there, behind the text.
Mirrors `builtin_print` of `Python/bltinmodule.c`.
"""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

from dynamo_lite.config import config
from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.messages import short_path
from dynamo_lite.variables.protocol.abstract import is_true, type_name
from dynamo_lite.variables.protocol.base import Child, Children, ObservedException, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.deferred_str import DataText, LateText, joined
from dynamo_lite.variables.protocol.dispatch import REFUSED, builtin
from dynamo_lite.variables.protocol.native import NativeVariable, emit_call, object_str

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class LateOutput(NativeVariable):
    """What a call writes behind the graph. `place`: the line of the program and the function, for reports."""

    place: str = Plain()

    def python_type(self) -> type:
        return type(self)


def place_of_call(tx: Frame, function: str) -> str:
    """Where a frame calls a function, as reports have it."""
    return f"{short_path(tx.code.co_filename)}:{tx.lineno}: {function}"


class PrintedText(LateOutput):
    """What a call of `print` writes: `pieces` are texts, and tensors, which are written as `str` shows them. `file` may be None."""

    pieces: list[VariableTracker] = Children()
    file: VariableTracker = Child()
    flush: bool = Plain()

    def emit_update(self, cg: Codegen) -> None:
        emit_call(cg, _write, self.file, ConstantVariable(self.flush), *self.pieces)
        cg.asm.pop_top()


def _write(file: Any, flush: bool, *pieces: object) -> None:
    print(*pieces, sep="", end="", file=file, flush=flush)


def is_of_c(file: object) -> bool:
    """Whether writing to a stream runs no code of the program."""
    cls = type(file)
    return (
        issubclass(cls, io.TextIOWrapper | io.StringIO)
        and cls.write in (io.TextIOWrapper.write, io.StringIO.write)
        and cls.flush in (io.TextIOWrapper.flush, io.StringIO.flush)
    )


def stdout_is_of_c() -> bool:
    """Whether writing to `sys.stdout` runs no code of the program."""
    return is_of_c(sys.stdout)


@builtin(print)
def builtin_print(
    tx: Frame,
    /,
    *objects: VariableTracker,
    sep: VariableTracker = NONE,
    end: VariableTracker = NONE,
    file: VariableTracker = NONE,
    flush: VariableTracker = NONE,
    **unknown: VariableTracker,
) -> VariableTracker:
    if not config.stitch or unknown or is_watched(tx) or not is_of_c(sys.stdout if is_none(file) else file.value):
        return unsupported("call-print", "print()")
    between, after = _separator(tx, sep, "sep", " "), _separator(tx, end, "end", "\n")
    pieces: list[Any] = []
    for vt in objects:
        pieces += [*([between] if pieces else []), *_pieces(tx, vt)]
    pieces.append(after)
    if is_none(file):
        tx.tr.guards.global_state(stdout_is_of_c, "writing to sys.stdout runs no code of the program")
    else:
        tx.tr.guard(file.source, ir.IS, file.value)
    is_flushed = not is_none(flush) and is_true(tx, flush)
    place, source = place_of_call(tx, "print"), tx.tr.constant_source(sys)
    tx.tr.effects.mutating(PrintedText(place, _merged(tx, pieces), file, is_flushed, source))
    return NONE


def is_watched(tx: Frame) -> bool:
    """Whether the call is in one side of a branch on data, or the frame has changed what `sys` has."""
    effects = tx.tr.effects
    return bool(effects.watches) or any(vt.value is sys or vt.value is vars(sys) for vt in effects.mutations)


def _separator(tx: Frame, vt: VariableTracker, name: str, default: str) -> Any:
    if is_none(vt):
        return default
    if not issubclass(vt.python_type(), str):
        tx.raises(TypeError, f"{name} must be None or a string, not {type_name(vt)}")
    return vt


def _pieces(tx: Frame, vt: VariableTracker) -> list[Any]:
    """An object as texts, and as tensors that nobody changes."""
    changes = tx.tr.effects.changes
    try:
        text = object_str(tx, vt)
    except ObservedException:
        return unsupported("call-print", "print() of an object whose text raises")  # what stands before it is written
    if tx.tr.effects.changes != changes:
        return unsupported("call-print", "print() of an object whose text changes something")
    parts = text.parts if isinstance(text, LateText) else [text]
    if not any(type(part) is DataText for part in parts):
        return [text]
    if text is vt:  # made earlier: the data may have changed since
        return unsupported("call-print", "print() of an earlier text of a tensor's data")
    return [part.copied(tx) if type(part) is DataText else LateText([part]) for part in parts]


def _merged(tx: Frame, pieces: list[Any]) -> list[VariableTracker]:
    """The pieces, of which adjacent texts are one."""
    merged: list[VariableTracker] = []
    texts: list[Any] = []
    for piece in [*pieces, None]:
        if piece is None or not (type(piece) is str or issubclass(piece.python_type(), str)):
            if texts:
                merged.append(joined(tx, texts))
            texts = []
            merged += [] if piece is None else [piece]
        else:
            texts.append(piece)
    return merged


REFUSED[print] = ("call-print", "print()")  # what a forecast says: `config.stitch` is the program's
