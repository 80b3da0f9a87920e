"""Methods of `logging.Logger`.

Input: `logger.debug(text, …)` and the like. Output: nothing where the logger drops the record, which guards check; where `config.stitch`
has it so, a `LoggedRecord`: generated code has the logger handle the record when the graph has run, in the order of the program's other
changes.
Invariant: loggers, handlers, filters and formatters that run code of the program, and arguments whose text may change, end the graph before
the call, in the frame of the program that the record names.
Mirrors `Lib/logging/__init__.py`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dynamo_lite.config import config
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.base import Child, Children, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, boolean
from dynamo_lite.variables.protocol.deferred_str import DataText, LateText
from dynamo_lite.variables.protocol.dispatch import REFUSED, builtin
from dynamo_lite.variables.protocol.native import emit_call

from .printing import LateOutput, is_of_c, is_watched, place_of_call

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class LoggedRecord(LateOutput):
    """A record that `logger` handles behind the graph. It names `filename`, `lineno` and `function` as those of its caller."""

    logger: VariableTracker = Child()
    level: int = Plain()
    filename: str = Plain()
    lineno: int = Plain()
    function: str = Plain()
    message: VariableTracker = Child()
    arguments: list[VariableTracker] = Children()

    def emit_update(self, cg: Codegen) -> None:
        about = map(ConstantVariable, (self.level, self.filename, self.lineno, self.function))
        emit_call(cg, _handle, self.logger, *about, self.message, *self.arguments)
        cg.asm.pop_top()


def _handle(
    logger: logging.Logger, level: int, filename: str, lineno: int, function: str, message: str, *arguments: Any
) -> None:
    logger.handle(logger.makeRecord(logger.name, level, filename, lineno, message, arguments, None, function))


@functools.cache
def _answers(level: int, answer: bool) -> Callable[[logging.Logger], bool]:
    """A function that tells whether `isEnabledFor` gives this answer."""

    def answers(logger: logging.Logger) -> bool:
        return logger.isEnabledFor(level) is answer

    return answers


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
    if handler is None or handler.filters or (formatter is not None and type(formatter) is not logging.Formatter):
        return False
    is_writer = cls in (logging.StreamHandler, logging.FileHandler) or handler is logging.lastResort
    return cls is logging.NullHandler or (is_writer and is_of_c(handler.stream))  # type: ignore[attr-defined]


def _is_enabled(tx: Frame, logger: VariableTracker, level: int) -> bool | None:
    """Whether a logger takes records of a level, guarded; None if code of the program, or what this frame has changed, may decide."""
    real = logger.value
    changed = any(issubclass(type(vt.value), logging.Logger | logging.Manager) for vt in tx.tr.effects.mutations)
    if type(real) not in (logging.Logger, logging.RootLogger) or logger.source is None or changed:
        return None
    answer = real.isEnabledFor(level)
    text = f"{logger.source.path} {'takes' if answer else 'drops'} records of level {level}"
    tx.tr.guards.predicate(_answers(level, answer), [logger.source], text)
    return answer


def _logged(
    tx: Frame, name: str, level: int, logger: VariableTracker, message: VariableTracker, args: Any, kwargs: Any
) -> VariableTracker:
    is_enabled = _is_enabled(tx, logger, level)
    if is_enabled is False:
        return NONE
    may_be_late = config.stitch and is_enabled and not kwargs and not is_watched(tx)
    if not may_be_late or not _is_plain(logger.value) or not _is_formatted(message, args):
        return tx.needs_real_callers("call-print", f"logging.Logger.{name}()")
    tx.tr.guards.predicate(_is_plain, [logger.source], f"handlers of {logger.source.path} run no code of the program")
    place, source = place_of_call(tx, f"logging.Logger.{name}"), tx.tr.constant_source(logging)
    caller = (tx.code.co_filename, tx.lineno, tx.code.co_name)
    tx.tr.effects.mutating(LoggedRecord(place, logger, level, *caller, message, list(args), source))
    return NONE


def _is_formatted(message: VariableTracker, args: list[VariableTracker]) -> bool:
    """Whether the text of a record is known not to fail, and hangs on no object that may change."""
    if not all(vt.is_symbolic or _is_settled_text(vt) or _is_constant(vt) for vt in (message, *args)):
        return False
    if not args:
        return True
    samples = tuple([vt.python_type()(1) if vt.is_symbolic else _sample(vt) for vt in args])
    try:
        str(_sample(message)) % samples
    except (TypeError, ValueError, KeyError):
        return False
    return True


def _is_settled_text(vt: VariableTracker) -> bool:
    return isinstance(vt, LateText) and vt.first(DataText) is None


def _is_constant(vt: VariableTracker) -> bool:
    return isinstance(vt, ConstantVariable) and type(vt.value) in (str, int, float, bool, type(None))


def _sample(vt: VariableTracker) -> Any:
    """A value that is formatted as the one of the call."""
    return vt.value if isinstance(vt, ConstantVariable) else "text"


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
