"""Methods of `logging.Logger`.

Input: `logger.debug(text, …)` and the like. Output: nothing where the logger drops the record, which guards check; where `config.stitch`
has it so, a `LoggedRecord`: generated code has the logger handle the record when the graph has run, in the order of the program's other
changes.
Invariant: loggers, handlers, filters and formatters that run code of the program or that the traced code has changed, and arguments whose
text may change, end the graph before the call, in the frame of the program that the record names.
Mirrors `Lib/logging/__init__.py`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import is_true
from dynamo_lite.variables.protocol.base import MISSING, Child, Children, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, boolean, is_none
from dynamo_lite.variables.protocol.deferred_str import settled
from dynamo_lite.variables.protocol.dispatch import REFUSED, builtin
from dynamo_lite.variables.protocol.native import emit_call, object_repr

from .printing import LateOutput, is_of_c, is_settled, place_of_call, text_now, why_now, write_behind

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class Caller(NamedTuple):
    """What a record tells of the frame that made it."""

    filename: str
    lineno: int
    function: str


class LoggedRecord(LateOutput):
    """A record that `logger` handles behind the graph, with these attributes more. `values` are those of `extra`, then the message and the
    arguments, `shown` their reprs where only texts of these are known, else None. `pos`: the instruction of the frame that calls.
    `of_mapping`: the only argument is a dict that is not empty."""

    logger: VariableTracker = Child()
    level: int = Plain()
    caller: Caller = Plain()
    extra: tuple[str, ...] = Plain()
    values: list[VariableTracker] = Children()
    shown: list[VariableTracker] = Children()
    of_mapping: bool = Plain()
    pos: tuple[Any, ...] = Plain()

    def emit_output(self, cg: Codegen) -> None:
        cg.asm.set_location(*self.pos)
        cg.load_callable(logging.Logger.handle)  # with no frame between: errors show those that lead to it
        cg.load(self.logger)
        about = map(ConstantVariable, (self.level, tuple(self.caller), self.extra, self.of_mapping))
        emit_call(cg, _record, self.logger, *about, *self.values, *self.shown)
        cg.asm.call(2)
        cg.asm.pop_top()


class _Shown(str):
    """The text of an object, with its repr: errors of logging show arguments."""

    repr = ""

    def __repr__(self) -> str:
        return self.repr


def _shown(text: Any, repr_: str | None) -> Any:
    if repr_ is None:
        return text
    shown = _Shown(text)
    shown.repr = repr_
    return shown


def _record(
    logger: logging.Logger, level: int, caller: Caller, extra: tuple[str, ...], of_mapping: bool, *values: Any
) -> logging.LogRecord:
    filename, lineno, function = caller
    n = len(extra)
    middle = n + (len(values) - n) // 2
    message, *arguments = map(_shown, values[n:middle], values[middle:])
    more = dict(zip(extra, values, strict=False))
    record = logger.makeRecord(logger.name, level, filename, lineno, message, tuple(arguments), None, function, more)
    if of_mapping:
        (record.args,) = arguments  # as `LogRecord` has it
    return record


_ANSWERS: dict[tuple[int, bool], Callable[[logging.Logger], bool]] = {}


def _answers(level: int, answer: bool) -> Callable[[logging.Logger], bool]:
    """The function that tells whether `isEnabledFor` gives this answer."""

    def answers(logger: logging.Logger) -> bool:
        return logger.isEnabledFor(level) is answer

    return _ANSWERS.setdefault((level, answer), answers)


def _is_plain(logger: logging.Logger) -> bool:
    """Whether handling a record runs no code of the program."""
    return (
        logging.getLogRecordFactory() is logging.LogRecord
        and not logger.filters
        and all(map(_is_plain_handler, _handlers_of(logger)))
    )


def _handlers_of(logger: logging.Logger) -> Iterator[logging.Handler | None]:
    """The handlers that get the records of a logger, as `Logger.callHandlers` finds them."""
    current: logging.Logger | None = logger
    found = False
    while current is not None:
        found = found or bool(current.handlers)
        yield from current.handlers
        current = current.parent if current.propagate else None
    if not found:
        yield logging.lastResort


def _is_plain_handler(handler: logging.Handler | None) -> bool:
    cls, formatter = type(handler), getattr(handler, "formatter", None)
    if handler is None or handler.filters or not (formatter is None or _is_plain_formatter(formatter)):
        return False
    is_writer = cls in (logging.StreamHandler, logging.FileHandler) or handler is logging.lastResort
    return cls is logging.NullHandler or (is_writer and is_of_c(handler.stream))  # type: ignore[attr-defined]


def _is_plain_formatter(formatter: logging.Formatter) -> bool:
    """Whether a formatter runs no code of the program, and shows the arguments only in the message."""
    return type(formatter) is logging.Formatter and "args" not in (formatter._fmt or "")


def _is_changed(tx: Frame, logger: logging.Logger) -> bool:
    """Whether the traced code has changed what the handling of a record reads. The change may be another one by the time at which a record
    is handled: attributes are stored once, with their last values."""
    mutations = tx.tr.effects.mutations
    if not isinstance(logger, logging.Logger) or not any(vt.value is not MISSING for vt in mutations):
        return False
    read = {id(thing) for thing in _read_by(logger)}
    return any(id(vt.value) in read for vt in mutations)


def _read_by(logger: logging.Logger) -> Iterator[object]:
    """What decides whether and how a record of a logger is handled: objects, their dictionaries and lists."""
    objects: list[Any] = [logging, threading.current_thread(), logger.manager, logging.lastResort]
    current: logging.Logger | None = logger
    while current is not None:
        objects += [current, *current.handlers]
        yield from (current.handlers, current.filters)
        current = current.parent
    for handler in [each for each in objects if isinstance(each, logging.Handler)]:
        yield handler.filters
        formatter = handler.formatter
        objects += [] if formatter is None else [formatter, getattr(formatter, "_style", None)]
    for each in objects:
        yield each
        yield getattr(each, "__dict__", None)


def _is_enabled(tx: Frame, logger: VariableTracker, level: int) -> bool | None:
    """Whether a logger takes records of a level, guarded; None if code of the program, or what this frame has changed, may decide."""
    real = logger.value
    if type(real) not in (logging.Logger, logging.RootLogger) or logger.source is None or _is_changed(tx, real):
        return None
    answer = real.isEnabledFor(level)
    text = f"{logger.source.path} {'takes' if answer else 'drops'} records of level {level}"
    question = _answers(level, answer)
    tx.tr.heap.recipes[id(question)] = (_answers, (level, answer))
    tx.tr.guards.predicate(question, [logger.source], text)
    return answer


def _logged(
    tx: Frame, name: str, level: int, logger: VariableTracker, message: VariableTracker, args: Any, kwargs: Any
) -> VariableTracker:
    is_enabled = _is_enabled(tx, logger, level)
    if is_enabled is False:
        return NONE
    call = f"logging.Logger.{name}()"
    if is_enabled is None or not config.stitch:
        why = " behind a change of what handles the record" if _is_changed(tx, logger.value) else ""
        return tx.needs_real_callers("call-print", call + why)
    caller, extra = _caller(tx, kwargs.pop("stacklevel", ConstantVariable(1))), _extra(tx, kwargs)
    reason = _why_now(tx, logger.value, caller, extra)
    given = [message, *args]
    values, shown = ([], []) if reason else _settled(tx, given, call)
    if caller is None or extra is None or not values:
        return tx.needs_real_callers("call-print", call + (reason or " of values whose text is not known"))
    tx.tr.guards.predicate(_is_plain, [logger.source], f"handlers of {logger.source.path} run no code of the program")
    place, source = place_of_call(caller, call[:-2]), tx.tr.constant_source(logging)
    named = Caller(caller.code.co_filename, caller.lineno, caller.code.co_name)
    of_mapping = len(args) == 1 and issubclass(args[0].python_type(), dict) and is_true(tx, args[0])
    pos = tx.tr.root.frame.last_instr.pos
    texts = [*extra.values(), *values]
    record = LoggedRecord(place, logger, level, named, tuple(extra), texts, shown, of_mapping, pos, source)
    write_behind(tx, record, tx.with_real_callers("call-print", call))
    return NONE


def _why_now(tx: Frame, logger: logging.Logger, caller: Frame | None, extra: Any) -> str:
    """Why a record can't be handled later than eager execution does it, for the message of a break; empty if it can."""
    handlers = [handler for handler in _handlers_of(logger) if not _is_plain_handler(handler)]
    if handlers:
        return f": {type(handlers[0]).__qualname__} may run code of the program"
    if not _is_plain(logger):
        return ", whose filters run code of the program"
    if caller is None:
        return " for a caller outside of the captured code"
    if extra is None:
        return " with an exception, a stack or attributes that may change"
    return why_now(tx)


def _caller(tx: Frame, stacklevel: VariableTracker) -> Frame | None:
    """The frame that a record names, as `Logger.findCaller` finds it; None if it is not among those of the trace."""
    if not isinstance(stacklevel, ConstantVariable) or type(stacklevel.value) is not int or stacklevel.value < 1:
        return None
    level: int = stacklevel.value
    frame: Frame | None = tx
    while frame is not None:
        level -= os.path.normcase(frame.code.co_filename) != logging._srcfile  # type: ignore[attr-defined]
        if level == 0:
            return frame
        frame = frame.parent
    return None


def _extra(tx: Frame, kwargs: dict[str, VariableTracker]) -> dict[str, VariableTracker] | None:
    """The attributes that a record gets; None if they may fail or change, or if the record is to tell of an exception or of the stack."""
    given = kwargs.get("extra", NONE)
    others = [vt for name, vt in kwargs.items() if name != "extra"]
    if not kwargs.keys() <= {"extra", "exc_info", "stack_info"} or not all(map(_is_false, others)):
        return None
    if is_none(given):
        return {}
    if given.python_type() is not dict:
        return None
    items = given.pairs(tx)
    if not all(isinstance(key, ConstantVariable) and type(key.value) is str and is_settled(vt) for key, vt in items):
        return None
    extra = {key.value: vt for key, vt in items}
    return extra if _TAKEN.isdisjoint(extra) else None


_TAKEN = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
"""Attributes that records have already."""


def _is_false(vt: VariableTracker) -> bool:
    return isinstance(vt, ConstantVariable) and vt.value in (None, False, 0)


def _settled(
    tx: Frame, values: list[VariableTracker], call: str
) -> tuple[list[VariableTracker], list[VariableTracker]]:
    """The message and the arguments of a record, of which those that may change are texts, and the reprs of these; empty where the record's
    text is not known not to fail."""
    try:
        given = [vt if is_settled(vt) else settled(tx, text_now(tx, vt, call)) for vt in values]
        shown = [NONE if vt is text else _repr(tx, vt, text, call) for vt, text in zip(values, given, strict=True)]
    except Unsupported:
        return [], []
    message, *samples = [_sample(vt, vt is value) for vt, value in zip(given, values, strict=True)]
    try:
        str(message) % tuple(samples) if samples else None
    except (TypeError, ValueError, KeyError):
        return [], []
    return given, shown


def _repr(tx: Frame, vt: VariableTracker, text: VariableTracker, call: str) -> VariableTracker:
    """The repr of an object that has this text; None where the text itself is the object."""
    if vt.python_type() is str:
        return NONE
    if vt.python_type().__str__ is object.__str__:
        return text
    return settled(tx, text_now(tx, vt, call, object_repr))


class _Text(str):
    """Stands for an object of which only the text is known."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise TypeError


def _sample(vt: VariableTracker, is_itself: bool) -> Any:
    """A value that is formatted as the one of the call."""
    if not is_itself:
        return _Text("text")
    if vt.is_symbolic:
        return vt.python_type()(1)
    return vt.value if isinstance(vt, ConstantVariable) else "text"


@builtin(logging.Logger.log)
def logger_log(
    tx: Frame,
    self: VariableTracker,
    level: VariableTracker,
    msg: VariableTracker,
    /,
    *args: VariableTracker,
    **kwargs: VariableTracker,
) -> VariableTracker:
    if type(level.value) is not int:
        return tx.needs_real_callers("call-print", "logging.Logger.log()")
    return _logged(tx, "log", level.value, self, msg, args, kwargs)


def _method(name: str, level: int) -> None:
    @builtin(getattr(logging.Logger, name))
    def method(
        tx: Frame, self: VariableTracker, msg: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        return _logged(tx, name, level, self, msg, args, kwargs)


def _function(name: str, level: int) -> None:
    @builtin(getattr(logging, name))
    def function(
        tx: Frame, msg: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        root = logging.root
        if not root.handlers:  # `basicConfig()` makes one
            return tx.needs_real_callers("call-print", f"logging.{name}()")
        source = tx.tr.source(tx.tr.constant_source(logging), ir.ATTR, "root")
        tx.tr.guard(source, ir.IS, root)
        tx.tr.guards.predicate(_has_handlers, [source], "the root logger has handlers")
        return _logged(tx, name, level, tx.tr.wrap(root, source), msg, args, kwargs)


def _has_handlers(logger: logging.Logger) -> bool:
    return bool(logger.handlers)


for _name in ("debug", "info", "warning", "error", "critical"):
    _method(_name, getattr(logging, _name.upper()))
    _function(_name, getattr(logging, _name.upper()))
# What a forecast says: loggers take these records unless the program has it otherwise.
for _name in ("warning", "error", "critical"):
    for _owner in (logging, logging.Logger):
        REFUSED[getattr(_owner, _name)] = ("call-print", f"logging.{_name}()")


@builtin(logging.Logger.isEnabledFor)
def is_enabled_for(tx: Frame, self: VariableTracker, level: VariableTracker, /) -> VariableTracker:
    answer = _is_enabled(tx, self, level.value) if type(level.value) is int else None
    if answer is None:
        return tx.needs_real_callers("call-print", "logging.Logger.isEnabledFor()")
    return boolean(answer)
