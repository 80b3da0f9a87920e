"""Exceptions of the traced program.

Input: an exception class and arguments, or a real exception. Output: `ExceptionVariable`; matching for `except`; `raise`.
Invariant: type, args, cause, context, suppression, traceback entries and attributes are those eager execution would give.
Mirrors the `BaseException` part of `Objects/exceptions.c`, `do_raise` of `Python/ceval.c` and `Python/errors.c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from dynamo_lite.exc import CAUSE, causes, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import (
    dict_of,
    field_descriptor,
    is_heap_type,
    mro_of,
    name_of,
    read_field,
)
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol import trace_rules
from dynamo_lite.variables.protocol.abstract import class_name, is_subtype
from dynamo_lite.variables.protocol.base import Children, ObservedException, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.wrap import builds_subclasses

from .frame_object import frame_object
from .instance import InstanceVariable
from .traceback_object import TracebackVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

FALSE = ConstantVariable(False)


class ExceptionVariable(InstanceVariable):
    """An exception instance. `state` holds the members of its C struct as far as known: args, __cause__, __traceback__, name …"""

    state: dict[str, VariableTracker] = Children(factory=dict, init=False)
    written: dict[str, None] = Plain(factory=dict, init=False)
    named: list[type] = Plain(factory=list, init=False)  # classes in the message, which nobody has seen yet
    raise_step = -1
    raised_again = False  # by a resume function
    context_pending: Any = None  # the trace, while the context is whatever the caller handles

    def __post_init__(self) -> None:
        if self.source is None:
            self.state.update(args=TupleVariable([]), __suppress_context__=FALSE)

    def lacks_layout(self, cls: type) -> bool:
        return cls is not object and not issubclass(cls, BaseException)

    # -- state

    def get(self, tx: Frame, name: str) -> VariableTracker:
        """One of the C-level members."""
        if self.context_pending is not None and name == "__context__":
            self.settle_context()
        found = self.state.get(name)
        if found is None:
            if self.source is None:
                return NONE
            found = self.state[name] = self._read(tx, name)
        return found

    def _read(self, tx: Frame, name: str) -> VariableTracker:
        """`PyException_GetTraceback` and the like: the field itself. A class of the program may have methods and properties for the
        attribute of that name, which do not matter here."""
        node = tx.tr.source(self.source, ir.FIELD, name)
        try:
            value = read_field(self.value, name)
        except AttributeError:
            tx.tr.guard(node, ir.ABSENT, None)
            return NONE
        tx.tr.expect(node)
        return tx.tr.wrap(value, node)

    def put(self, tx: Frame, name: str, value: VariableTracker) -> None:
        """Set one of the C-level members."""
        tx.tr.effects.mutating(self)
        if name == "__context__":
            self.context_pending = None
        self.state[name] = value
        self.written[name] = None

    def set_cause(self, tx: Frame, cause: VariableTracker) -> None:
        """`PyException_SetCause`: also suppresses the context."""
        self.put(tx, "__cause__", cause)
        self.put(tx, "__suppress_context__", ConstantVariable(True))

    def chain(self, tx: Frame) -> None:
        """The context that `_PyErr_SetObject` gives: the exception being handled."""
        handled = tx.tr.thread.handled
        if handled is not None:
            self._chain_to(tx, handled)
        elif self.source is None:
            self.context_pending = tx.tr
        else:
            outer = tx.tr.thread.outer_exception()
            if outer is not None:
                self._chain_to(tx, outer)

    def _chain_to(self, tx: Frame, handled: VariableTracker) -> None:
        """Set the context, cutting the chain where it would lead back here. (One that is a cycle already is walked once.)"""
        if handled is self:
            return
        seen = {id(handled)}
        link = handled
        while True:
            # A new exception can only be met where the traced code has put it.
            following = link.state.get("__context__", NONE) if self.source is None else link.get(tx, "__context__")
            if following is self:
                link.put(tx, "__context__", NONE)
                break
            if not isinstance(following, ExceptionVariable) or id(following) in seen:
                break
            seen.add(id(following))
            link = following
        self.put(tx, "__context__", handled)

    def settle_context(self) -> None:
        """Find out what the caller handles."""
        tr, self.context_pending = self.context_pending, None
        outer = tr.thread.outer_exception()
        if outer is not None:
            self.state["__context__"] = outer
            self.written["__context__"] = None

    def names(self, tr: Trace) -> None:
        """The message that was put together last is this exception's."""
        self.named, tr.classes.named = self.named + tr.classes.named, []

    def show_names(self) -> None:
        """From now on the program can read the message. (It never sees an exception that native code handles, as `hasattr` does.)"""
        for cls in self.named:
            class_name(cls)
        self.named = []

    def add_traceback(self, tx: Frame) -> None:
        """`PyTraceBack_Here`. Code of the engine stands for C code, which has no entries."""
        if trace_rules.is_internal(tx.code):
            return
        following = self.get(tx, "__traceback__")
        if not isinstance(following, TracebackVariable):
            self.raise_step = 0 if self.raised_again else tx.eager_step()
        frame = frame_object(tx, tx)
        if frame.raise_step < 0:
            frame.raise_step = self.raise_step
        entry = TracebackVariable(frame, tx.lifted.instrs[tx.cur].offset, tx.lineno, following)
        self.put(tx, "__traceback__", entry)

    # -- codegen

    def children(self) -> Any:
        if self.context_pending is not None:
            self.settle_context()
        return self.declared_children()

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(native_new(self.cls))
        cg.load_const(self.cls)
        cg.asm.call(1)

    def emit_fill(self, cg: Codegen) -> None:
        names = [name for name, value in self.state.items() if value is not NONE and value is not FALSE]
        if "__cause__" in names:
            names.append("__suppress_context__")
        self.emit_state(cg, names)
        self.emit_attributes(cg)

    def emit_update(self, cg: Codegen) -> None:
        self.emit_state(cg, self.written)
        super().emit_update(cg)

    def emit_state(self, cg: Codegen, names: Any) -> None:
        """Store C-level members (the cause before the suppression, which it sets)."""
        for name in sorted(dict.fromkeys(names), key=lambda n: n == "__suppress_context__"):
            cg.load_callable(field_descriptor(self.cls, name).__set__)
            cg.load(self)
            cg.load(self.state[name])
            cg.asm.call(2)
            cg.asm.pop_top()


def native_new(cls: type) -> Any:
    """`__new__` of the builtin class whose layout instances of an exception class have."""
    return next(base for base in mro_of(cls) if "__new__" in dict_of(base) and not is_heap_type(base)).__new__


def make_exception(tx: Frame, cls: type[BaseException], args: list[VariableTracker]) -> ExceptionVariable:
    """`cls(*args)` for a builtin exception class."""
    exc = ExceptionVariable(cls)
    exc.state["args"] = TupleVariable(args)
    if issubclass(cls, StopIteration):
        exc.state["value"] = args[0] if args else NONE
    return exc


def exception_from(tx: Frame, error: BaseException) -> ExceptionVariable:
    """The model of an exception that a real call raised during the analysis."""
    cls = type(error)
    if issubclass(type(error), WITH_MEMBERS):
        unsupported("exception-unrepresentable", f"{name_of(cls)}: {error}")
    exc = make_exception(tx, cls, [tx.tr.wrap_new(arg) for arg in error.args])
    attributes = getattr(error, "__dict__", None) or {}
    dictionary = exc.instance_dict(tx) if attributes else None
    for name, value in zip(attributes, map(tx.tr.wrap_new, attributes.values()), strict=True):
        dictionary.mp_ass_subscript(tx, ConstantVariable(name), value)
    *_, innermost = causes(error)
    if CAUSE.__get__(innermost) is not None:
        unsupported("exception-unrepresentable", f"{name_of(cls)}, which is one of its own causes")
    if innermost is not error:
        cause = exception_from(tx, CAUSE.__get__(error))
        exc.put(tx, "__context__", cause)
        exc.set_cause(tx, cause)
    return exc


def _subclasses(cls: type) -> list[type]:
    """The builtin exception classes below one."""
    direct = [sub for sub in cls.__subclasses__() if sub.__module__ == "builtins"]
    return [*direct, *(below for sub in direct for below in _subclasses(sub))]


EXCEPTION_CLASSES = list(dict.fromkeys([BaseException, *_subclasses(BaseException)]))
"""Every builtin exception class."""


WITH_MEMBERS = (
    SyntaxError,
    OSError,
    UnicodeEncodeError,
    UnicodeDecodeError,
    UnicodeTranslateError,
    BaseExceptionGroup,
)
"""Builtin exception classes that parse their arguments in C. Traced code makes none: that breaks the graph."""


@builds_subclasses(BaseException)
def build_exception(tr: Trace, value: BaseException, source: GuardNode | None) -> ExceptionVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    return ExceptionVariable(type(value), value, source)


# -- raise and except


def is_exception_class(v: VariableTracker) -> bool:
    """`PyExceptionClass_Check`."""
    return issubclass(type(v.value), type) and issubclass(v.value, BaseException)


def caught_classes(tx: Frame, target: VariableTracker) -> list[VariableTracker]:
    """`check_except_type_valid`: the class or classes after `except`."""
    classes = target.items if isinstance(target, TupleVariable) else [target]
    for cls in classes:
        if not is_exception_class(cls):
            tx.raises(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    return classes


def exception_match(tx: Frame, exc: VariableTracker, target: VariableTracker) -> bool:
    """CHECK_EXC_MATCH: `target` is an exception class or a tuple of them."""
    return any(is_subtype(tx, exc.python_type(), cls.value) for cls in caught_classes(tx, target))


def raise_varargs(tx: Frame, exc: VariableTracker | None = None, cause: VariableTracker | None = None) -> NoReturn:
    """RAISE_VARARGS (`do_raise`)."""
    if exc is None:
        active = tx.tr.thread.active_exception()
        if active is None:
            tx.raises(RuntimeError, "No active exception to reraise")
        raise ObservedException(active)
    instance = _instantiate(tx, exc, "exceptions must derive from BaseException")
    if cause is not None:
        message = "exception causes must derive from BaseException"
        instance.set_cause(tx, NONE if is_none(cause) else _instantiate(tx, cause, message))
    tx.raise_exception(instance)


def _instantiate(tx: Frame, exc: VariableTracker, message: str) -> ExceptionVariable:
    if is_exception_class(exc):
        instance = tx.call(exc, [])
        if not isinstance(instance, ExceptionVariable):
            tx.raises(
                TypeError,
                f"calling {exc.value!r} should have returned an instance of BaseException, not {instance.python_type()!r}",
            )
        return instance
    if isinstance(exc, ExceptionVariable):
        return exc
    tx.raises(TypeError, message)
