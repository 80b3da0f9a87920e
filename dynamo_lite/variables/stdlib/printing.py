"""`print`, and `write` and `flush` of streams, behind the graph, where `config.stitch` has it so.

Input: a call of one of these. Output: a `PrintedText`: generated code writes it when the graph has run, in the order of the program's other
changes.
Invariant: the text is that of eager execution at the moment of the call. Between that moment and the writing only operators of the graph
run, and changes are made to objects which the stream doesn't show: its methods are those of C. Anything else ends the graph before
the call, and whatever may look at the stream later ends it there, behind the text.
Mirrors `builtin_print` of `Python/bltinmodule.c`.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.typeobject import lookup
from dynamo_lite.messages import short_path
from dynamo_lite.variables.objects.function import MethodVariable
from dynamo_lite.variables.protocol.abstract import is_true, type_name
from dynamo_lite.variables.protocol.base import Child, ObservedException, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.deferred_str import DataText, LateText, joined, settled
from dynamo_lite.variables.protocol.dispatch import REFUSED, WITHOUT_STATE, builtin
from dynamo_lite.variables.protocol.native import NativeVariable, emit_call, object_str

from .delayed_errors import NOTICED, Handled, exits_around

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame


class LateOutput(NativeVariable):
    """What a call writes behind the graph. `place`: the line of the program and the function, for reports. `handled`: why it is
    one more break if an error can't go to the handlers of the instruction at which the graph ends; None: it leaves the frame."""

    place: str = Plain()
    handled: Unsupported | None = None

    def python_type(self) -> type:
        return type(self)

    def emit_update(self, cg: Codegen) -> None:
        if self.handled is None:
            self.emit_output(cg)
            return
        if cg.failed is None:
            raise self.handled
        cg.asm.begin_try(cg.failed)
        self.emit_output(cg)
        cg.asm.end_try()

    def emit_output(self, cg: Codegen) -> None:
        """Push nothing, and write."""
        raise NotImplementedError


def place_of_call(tx: Frame, function: str) -> str:
    """Where a frame calls a function, as reports have it."""
    return f"{short_path(tx.code.co_filename)}:{tx.lineno}: {function}"


class PrintedText(LateOutput):
    """What a call of `print` writes. `file` may be None."""

    text: VariableTracker = Child()
    file: VariableTracker = Child()
    flush: bool = Plain()

    def emit_output(self, cg: Codegen) -> None:
        emit_call(cg, _write, self.text, self.file, ConstantVariable(self.flush))
        cg.asm.pop_top()


def _write(text: str, file: Any, flush: bool) -> None:
    print(text, end="", file=file, flush=flush)


def is_of_c(file: Any) -> bool:
    """Whether writing to a stream runs no code of the program."""
    base = next((base for base in (io.StringIO, io.TextIOWrapper) if issubclass(type(file), base)), None)
    if base is None or any(lookup(type(file), name) is not lookup(base, name) for name in _USED):
        return False
    if not _INSTANCE_DICT.__get__(file).keys().isdisjoint(_USED):
        return False
    return base is io.StringIO or _writes_to_c(file)


def _writes_to_c(file: Any) -> bool:
    """Whether what lies below a stream is of C."""
    try:
        buffer, errors = _BUFFER.__get__(file), _ERRORS.__get__(file)
        raw = buffer.raw if type(buffer) in (io.BufferedWriter, io.BufferedRandom, io.BufferedReader) else buffer
    except ValueError:  # it has none any more
        return False
    return errors in _ERROR_HANDLERS and type(raw) in (io.FileIO, io.BytesIO)


_USED = ("write", "flush", "closed", "__getattribute__")
"""The attributes of a stream that decide what writing to it does."""

_INSTANCE_DICT: Any = vars(io.IOBase.__base__)["__dict__"]
_BUFFER, _ERRORS, _CLOSED = io.TextIOWrapper.buffer, io.TextIOWrapper.errors, io.StringIO.closed
_ERROR_HANDLERS = frozenset(
    "strict ignore replace backslashreplace xmlcharrefreplace namereplace surrogateescape surrogatepass".split()
)
"""Those that the program has not registered, whose errors are ValueErrors."""


def takes_any_text(file: Any) -> bool:
    """Whether writing to a stream of C can't raise."""
    try:
        return issubclass(type(file), io.StringIO) and not _CLOSED.__get__(file)
    except ValueError:  # its `__init__` has not run
        return False


def stdout_takes_any_text() -> bool:
    """Whether writing to `sys.stdout` can't raise."""
    return takes_any_text(sys.stdout)


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
    stream = sys.stdout if is_none(file) else file.value
    around = _around(tx, stream, "print()", is_known=not unknown)
    between, after = _separator(tx, sep, "sep", " "), _separator(tx, end, "end", "\n")
    pieces: list[Any] = []
    for vt in objects:
        pieces += [*([between] if pieces else []), text_now(tx, vt, "print()")]
    written = settled(tx, joined(tx, [*pieces, after]))
    _write_behind(tx, "print", file, written, not is_none(flush) and is_true(tx, flush), around)
    return NONE


def _around(tx: Frame, stream: Any, call: str, is_known: bool = True) -> list[VariableTracker] | None:
    """The `__exit__`s of the blocks around a call that writes to a stream, None if writing can't raise. Raises Unsupported where the call
    can't come later, or its arguments are not known."""
    reason = why_now(tx)
    if not is_of_c(stream):
        reason = f" to {type(stream).__qualname__}, which may run code of the program"
    elif any(vt.value is stream or vt.value is _INSTANCE_DICT.__get__(stream) for vt in tx.tr.effects.mutations):
        reason = " behind a change of the stream"  # attributes are stored once, with their last values
    around = None if takes_any_text(stream) else exits_around(tx)
    if around is None and not takes_any_text(stream):
        reason = reason or NOTICED
    if not config.stitch or reason or not is_known:
        unsupported("call-print", f"{call}{reason}")
    return around


def _write_behind(
    tx: Frame,
    name: str,
    file: VariableTracker,
    text: VariableTracker,
    is_flushed: bool,
    around: list[VariableTracker] | None,
) -> None:
    """Have a text written to a stream, or to `sys.stdout` where that is None."""
    _guard_stream(tx, file, around is None)
    written = PrintedText(place_of_call(tx, name), text, file, is_flushed, tx.tr.constant_source(sys))
    write_behind(tx, written, Unsupported("call-print", f"{name}()"), around)


def _of_stream(cls: type[io.StringIO] | type[io.TextIOWrapper]) -> None:
    """`write`, whose result nobody wants, and `flush` of a stream from outside."""

    @builtin(cls.write)
    def write(tx: Frame, self: VariableTracker, *args: VariableTracker) -> VariableTracker:
        call = f"{cls.__name__}.write()"
        is_known = self.source is not None and len(args) == 1 and args[0].python_type() is str
        if not is_known or not is_dropped(tx, cls.write):
            return unsupported("call-print", f"{call}, whose result is used, or of what is no text")
        around = _around(tx, self.value, call)
        _write_behind(tx, call[:-2], self, settled(tx, text_now(tx, args[0], call)), False, around)
        return NONE

    @builtin(cls.flush)
    def flush(tx: Frame, self: VariableTracker, *args: VariableTracker) -> VariableTracker:
        call = f"{cls.__name__}.flush()"
        if self.source is None or args:
            return unsupported("call-print", f"{call} of a stream that the captured code has made")
        _write_behind(tx, call[:-2], self, ConstantVariable(""), True, _around(tx, self.value, call))
        return NONE


for _cls in (io.StringIO, io.TextIOWrapper):
    _of_stream(_cls)
    WITHOUT_STATE.update((_cls.write, _cls.flush))


def is_dropped(tx: Frame, method: Any = None) -> bool:
    """Whether the function being called, which may be this method of C, is what the current instruction calls, and the next one drops the
    result. The operands of a call of anything else, which may call this function, are still on the stack."""
    instr, following = tx.lifted.instrs[tx.cur], tx.lifted.instrs[tx.ip]
    if instr.op is not Op.CALL or following.op is not Op.POP_TOP:
        return False
    for vt in tx.stack[-2 - instr.arg[0] : len(tx.stack) - instr.arg[0]]:
        called = vt.function if isinstance(vt, MethodVariable) else vt
        if (
            isinstance(vt, VariableTracker)
            and vt.tp_call is not None
            and (method is None or getattr(called, "value", None) is not method)
        ):
            return False
    return True


def _guard_stream(tx: Frame, file: VariableTracker, is_certain: bool) -> None:
    """Require that writing to a stream runs no code of the program, and that it can't raise if that `is_certain` now."""
    if is_none(file):
        tx.tr.guards.global_state(stdout_is_of_c, "writing to sys.stdout runs no code of the program")
    else:
        tx.tr.guards.predicate(is_of_c, [file.source], f"writing to {file.source.path} runs no code of the program")
    if is_certain and is_none(file):
        tx.tr.guards.global_state(stdout_takes_any_text, "writing to sys.stdout can't raise")
    elif is_certain:
        tx.tr.guards.predicate(takes_any_text, [file.source], f"writing to {file.source.path} can't raise")


def why_now(tx: Frame) -> str:
    """Why nothing can be written later than eager execution does it, for the message of a break; empty if it can."""
    if tx.tr.effects.watches:
        return " in one side of a branch on data"
    is_changed = any(vt.value is sys or vt.value is vars(sys) for vt in tx.tr.effects.mutations)
    return " behind a change of sys" if is_changed else ""


def write_behind(
    tx: Frame, output: LateOutput, reason: Unsupported, around: list[VariableTracker] | None = None
) -> None:
    """Have generated code write this when the graph has run; `reason`: the break that the call is where the text might be lost. `around`:
    the `__exit__`s of the blocks around the call (`exits_around`) if writing may raise."""
    tx.tr.effects.mutating(output)
    thread, step = tx.tr.thread, reason.break_step
    reason.at(thread.failing_step() if step is None else step, thread.user_stack())
    if around is not None:
        tx.tr.effects.provisos.append(Handled(tx, output, around, reason))
    if config.stitch == "auto" and not tx.tr.breaks_raise:
        tx.tr.effects.provisos.append(Sure(tx, reason))


class Sure:
    """Checks at the end of the trace that no text is lost: where an operator behind the call raises for the data and the frame can't start
    again, nobody would write it."""

    def __init__(self, tx: Frame, reason: Unsupported) -> None:
        self.last, self.reason = tx.tr.graph.last_node, reason

    def check(self, tr: Trace, escaping: object) -> None:
        """Raise the break if one might be."""
        node = tr.graph.fails_for_good(self.last)
        if node is not None:
            self.reason.context += f": {node.name} behind it may raise, and the graph has changed something by then"
            raise self.reason


def _separator(tx: Frame, vt: VariableTracker, name: str, default: str) -> Any:
    if is_none(vt):
        return default
    if not issubclass(vt.python_type(), str):
        tx.raises(TypeError, f"{name} must be None or a string, not {type_name(vt)}")
    return vt


def text_now(
    tx: Frame, vt: VariableTracker, call: str, make: Callable[[Frame, VariableTracker], VariableTracker] = object_str
) -> VariableTracker:
    """The text of an object; a break where making it runs into an error or changes something."""
    changes = tx.tr.effects.changes
    try:
        text = make(tx, vt)
    except ObservedException:
        return unsupported("call-print", f"{call} of an object whose text raises")  # what stands before it is written
    if tx.tr.effects.changes != changes:
        return unsupported("call-print", f"{call} of an object whose text changes something")
    return text


def is_settled(vt: VariableTracker) -> bool:
    """Whether an object has the same text whenever it is asked for, and no code of the program makes it."""
    is_late = isinstance(vt, LateText) and vt.first(DataText) is None
    return vt.is_symbolic or is_late or (isinstance(vt, ConstantVariable) and type(vt.value) in _IMMUTABLE)


_IMMUTABLE = (str, int, float, bool, type(None))

REFUSED[print] = ("call-print", "print()")  # what a forecast says where `config.stitch` is off
