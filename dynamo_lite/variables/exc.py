"""Exceptions of the traced program.

Input: an exception class and arguments, or a real exception. Output: `ExceptionVariable`; matching for `except`; `raise`.
Invariant: type, args, cause, context, suppression and attributes are those eager execution would give.
Mirrors `Objects/exceptions.c`, `do_raise` of `Python/ceval.c`, `PyErr_GivenExceptionMatches` of `Python/errors.c`.
"""

from __future__ import annotations

import traceback
from types import GetSetDescriptorType, MemberDescriptorType, TracebackType
from typing import Any, NoReturn

from ..exc import Unsupported, unsupported
from ..guards import ir
from .base import MISSING, ObservedException, VariableTracker
from .constant import ConstantVariable
from .descr import getset, is_heap_type
from .dispatch import builtin, method
from .instance import InstanceVariable
from .stand import from_host
from .tuple import TupleVariable
from .wrap import builds, builds_subclasses

NONE = ConstantVariable(None)


class ExceptionVariable(InstanceVariable):
    """An exception instance. `state` holds args, __cause__, __context__, __suppress_context__, __traceback__ as far as known."""

    def __init__(self, cls: type, value: Any = MISSING, source: Any = None) -> None:
        super().__init__(cls, value, source)
        self.state: dict[str, VariableTracker] = {}
        self.lines: list[tuple[Any, int]] = []
        self.traceback_dropped = False
        self.traceback: TracebackVariable | None = None
        self.raise_step = -1
        if source is None:
            self.state.update(
                args=TupleVariable([]), __cause__=NONE, __context__=NONE, __suppress_context__=ConstantVariable(False)
            )

    def lacks_layout(self, cls: type) -> bool:
        return cls is not object and not issubclass(cls, BaseException)

    # -- state

    def get(self, tx: Any, name: str) -> VariableTracker:
        """One of the C-level members."""
        if name not in self.state:
            if self.source is None:
                return NONE
            self.state[name] = tx.tr.wrap(getattr(self.value, name), tx.tr.source(self.source, ir.ATTR, name))
        return self.state[name]

    def put(self, tx: Any, name: str, value: VariableTracker) -> None:
        """Set one of the C-level members."""
        if tx is not None:
            tx.tr.mutating(self)
        self.state[name] = value
        self.__dict__.setdefault("written", {})[name] = None

    def set_context(self, context: VariableTracker) -> None:
        """`PyException_SetContext`, without making a cycle."""
        if self.source is None and context is not self:
            seen, link = self, context
            while isinstance(link, ExceptionVariable):
                following = link.state.get("__context__", NONE)
                if following is seen:
                    link.state["__context__"] = NONE
                link = following
            self.put(None, "__context__", context)

    def set_cause(self, cause: VariableTracker) -> None:
        """`PyException_SetCause`: also suppresses the context."""
        self.put(None, "__cause__", cause)
        self.put(None, "__suppress_context__", ConstantVariable(True))

    def add_traceback(self, tx: Any) -> None:
        """`PyTraceBack_Here`."""
        if not self.lines:
            self.raise_step = tx.eager_step()
        self.lines.append((tx.code, tx.lineno))
        self.traceback_dropped = False
        self.traceback = None

    def get_traceback(self, tx: Any) -> VariableTracker:
        """`__traceback__`, None before the exception is raised; code that looks into it breaks."""
        if self.traceback_dropped or (self.source is None and not self.lines):
            return NONE
        if self.traceback is None and self.source is not None and not self.lines:
            return tx.tr.wrap(self.value.__traceback__, tx.tr.source(self.source, ir.ATTR, "__traceback__"))
        if self.traceback is None:
            self.traceback = TracebackVariable(self, self.source is None or bool(self.lines), self.raise_step)
        return self.traceback

    def drop_traceback(self, tx: Any) -> None:
        """`__traceback__ = None`."""
        if self.source is not None:
            self.put(tx, "__traceback__", NONE)
        self.lines.clear()
        self.traceback_dropped = True

    # -- codegen

    def children(self) -> Any:
        return [*self.state.values(), *super().children()]

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(
            next(base for base in self.cls.__mro__ if "__new__" in base.__dict__ and not is_heap_type(base)).__new__
        )
        cg.load_const(self.cls)
        args = self.state["args"].items
        for arg in args:
            cg.load(arg)
        cg.asm.call(1 + len(args))

    def emit_fill(self, cg: Any) -> None:
        self.emit_state(cg, [n for n in self.state if n in self.__dict__.get("written", ())])
        self.emit_attributes(cg)

    def emit_update(self, cg: Any) -> None:
        self.emit_state(cg, self.__dict__.get("written", ()))
        super().emit_update(cg)

    def emit_state(self, cg: Any, names: Any) -> None:
        """Store C-level members (cause before suppression, which it sets)."""
        for name in sorted(names, key=lambda n: n == "__suppress_context__"):
            cg.load(self.state[name])
            cg.load(self)
            cg.asm.store_attr(name)


class TracebackVariable(VariableTracker):
    """A traceback object nobody has looked into."""

    def __init__(self, exc: ExceptionVariable, raised_here: bool, raise_step: int) -> None:
        self.exc = exc
        self.raised_here = raised_here  # by the traced code: the real object would have no such traceback
        self.raise_step = raise_step

    def python_type(self) -> type:
        return TracebackType

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        return self._needed(f"traceback.{name}")

    def tp_hash(self, tx: Any) -> VariableTracker:
        return tx.tr.identity_hash(self)

    def _needed(self, context: str) -> NoReturn:
        """Break here, or for an exception that the traced code raised: where it raised it, so that it is raised in real frames."""
        try:
            unsupported("frame-introspection", context)
        except Unsupported as error:
            if self.raised_here and self.raise_step >= 0:
                error.break_step = self.raise_step
            raise

    def children(self) -> Any:
        return (self.exc,)

    def emit_new(self, cg: Any) -> None:
        if self.raised_here:
            self._needed("a traceback that escapes")
        cg.load(self.exc)
        cg.asm.load_attr("__traceback__")


class SourcedTracebackVariable(VariableTracker):
    """A traceback that exists before the frame. Replayed is that its frames were cleared."""

    def __init__(self, value: TracebackType, source: Any) -> None:
        self.value = value
        self.source = source

    def python_type(self) -> type:
        return TracebackType

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        return unsupported("frame-introspection", f"traceback.{name}")

    def tp_hash(self, tx: Any) -> VariableTracker:
        return tx.tr.identity_hash(self)

    def emit_update(self, cg: Any) -> None:
        cg.load_callable(traceback.clear_frames)
        cg.load(self)
        cg.asm.call(1)
        cg.asm.pop_top()


@builds(TracebackType)
def build_traceback(tr: Any, value: TracebackType, source: Any) -> SourcedTracebackVariable:
    tr.guard(source, ir.TYPE_IS, TracebackType)
    return SourcedTracebackVariable(value, source)


def make_exception(tx: Any, cls: type[BaseException], args: list[VariableTracker]) -> ExceptionVariable:
    """`cls(*args)` for a builtin exception class."""
    exc = ExceptionVariable(cls)
    exc.state["args"] = TupleVariable(args)
    if issubclass(cls, StopIteration):
        exc.state["value"] = args[0] if args else NONE
    return exc


def exception_from(tx: Any, error: BaseException) -> ExceptionVariable:
    """The model of an exception that a real call raised during the analysis."""
    cls = type(error)
    if cls.__init__ is not c_base(cls).__init__ and cls.__module__ == "builtins":
        unsupported("exception-unrepresentable", f"{cls.__name__}: {error}")
    exc = make_exception(tx, cls, _modelled(tx, error, error.args))
    load_members(tx, exc, error)
    attributes = getattr(error, "__dict__", None) or {}
    dictionary = exc.instance_dict(tx) if attributes else None
    for name, value in zip(attributes, _modelled(tx, error, attributes.values()), strict=True):
        dictionary.mp_ass_subscript(tx, ConstantVariable(name), value)
    if error.__cause__ is not None:
        cause = exception_from(tx, error.__cause__)
        exc.set_context(cause)
        exc.set_cause(cause)
    return exc


def _modelled(tx: Any, error: BaseException, values: Any) -> list[VariableTracker]:
    models = [tx.tr.wrap_new(value) for value in values]
    if any(model is None for model in models):
        unsupported("exception-unrepresentable", f"{type(error).__name__}: {error}")
    return models


def c_base(cls: type) -> type:
    """The builtin exception class whose C layout the instances of `cls` have."""
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


C_MEMBERS: dict[type, tuple[str, ...]] = {
    cls: tuple([name for name, d in vars(cls).items() if isinstance(d, (MemberDescriptorType, GetSetDescriptorType))])
    for cls in (SyntaxError, OSError, UnicodeEncodeError, UnicodeDecodeError, UnicodeTranslateError)
}
"""Builtin exception class → what its instances hold beside args, as attributes in C."""


def load_members(tx: Any, exc: ExceptionVariable, error: BaseException) -> None:
    """Give `exc` the arguments and the members that the real `error` has."""
    exc.put(tx, "args", TupleVariable(_modelled(tx, error, error.args)))
    for cls in type(error).__mro__:
        for name in C_MEMBERS.get(cls, ()):
            value = getattr(error, name, None)
            if value is not None:  # what is unset reads as None, or is not there
                exc.put(tx, name, from_host(tx, value))


@method(BaseException.__init__)
def exception_init(tx: Any, self: ExceptionVariable, *args: VariableTracker, **kwargs: VariableTracker) -> None:
    if kwargs:
        tx.raises(TypeError, f"{self.cls.__name__}() takes no keyword arguments")
    self.put(tx, "args", TupleVariable(list(args)))


def new_exception(
    tx: Any, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker
) -> ExceptionVariable:
    """`BaseException_new`."""
    exc = ExceptionVariable(cls.value)
    exc.state["args"] = TupleVariable(list(args))
    return exc


@method(StopIteration.__init__)
def stop_iteration_init(tx: Any, self: ExceptionVariable, *args: VariableTracker) -> None:
    exception_init(tx, self, *args)
    self.state["value"] = args[0] if args else NONE


@method(SystemExit.__init__)
def system_exit_init(tx: Any, self: ExceptionVariable, *args: VariableTracker) -> None:
    exception_init(tx, self, *args)
    self.state["code"] = args[0] if len(args) == 1 else (TupleVariable(list(args)) if args else NONE)


SIMPLE_EXCEPTIONS: list[type] = []
"""Builtin exception classes whose construction is BaseException's."""


def _register(cls: type) -> None:
    for sub in cls.__subclasses__():
        if sub.__module__ == "builtins":
            SIMPLE_EXCEPTIONS.append(sub)
            _register(sub)


_register(BaseException)

for _cls in [BaseException, *SIMPLE_EXCEPTIONS]:
    _init = _cls.__dict__.get("__init__")
    if (
        _init is not None
        and _cls not in (BaseException, StopIteration, SystemExit)
        and not issubclass(_cls, (OSError, ImportError, SyntaxError, UnicodeError, AttributeError, NameError))
    ):
        method(_init)(exception_init)
    if "__new__" in _cls.__dict__ and not issubclass(_cls, (OSError, BaseExceptionGroup)):
        builtin(_cls.__new__)(new_exception)


def _with_name(tx: Any, self: ExceptionVariable, *args: VariableTracker, **kwargs: VariableTracker) -> None:
    """`AttributeError(…, name=, obj=)`, `NameError(…, name=)`, `ImportError(…, name=, path=)`."""
    self.put(tx, "args", TupleVariable(list(args)))
    self.state.update(kwargs)
    self.__dict__.setdefault("written", {}).update(dict.fromkeys(kwargs))
    if args:
        self.state.setdefault("msg", args[0])


for _cls in (AttributeError, NameError, ImportError):
    method(_cls.__init__)(_with_name)


def _member(name: str) -> Any:
    def read(tx: Any, self: ExceptionVariable) -> VariableTracker:
        return self.get(tx, name)

    return read


def _member_setter(name: str) -> Any:
    def write(tx: Any, self: ExceptionVariable, value: VariableTracker | None) -> None:
        if name == "__cause__":
            tx.tr.mutating(self)
            self.set_cause(value)
        elif name == "args":
            self.put(tx, name, TupleVariable(tx.tr.unpack(tx, value)))
        else:
            self.put(tx, name, value if value is not None else NONE)

    return write


for _name in ("args", "__cause__", "__context__", "__suppress_context__"):
    getset(BaseException.__dict__[_name], _member_setter(_name))(_member(_name))
getset(StopIteration.__dict__["value"], _member_setter("value"))(_member("value"))
getset(SystemExit.__dict__["code"], _member_setter("code"))(_member("code"))
for _cls, _name in (
    (AttributeError, "name"),
    (AttributeError, "obj"),
    (NameError, "name"),
    (ImportError, "name"),
    (ImportError, "msg"),
):
    getset(_cls.__dict__[_name], _member_setter(_name))(_member(_name))


def _set_traceback(tx: Any, self: ExceptionVariable, tb: VariableTracker | None) -> None:
    """`BaseException_set_tb`; a traceback of another exception has no model."""
    if tb is not None and tb.value is None:
        self.drop_traceback(tx)
    elif tb is None or tb is not self.get_traceback(tx):
        unsupported("frame-introspection", "write of __traceback__")


@getset(BaseException.__dict__["__traceback__"], _set_traceback)
def exception_traceback(tx: Any, self: ExceptionVariable) -> VariableTracker:
    if self.source is not None and not self.lines and self.value.__traceback__ is None:
        return self.get(tx, "__traceback__")
    return self.get_traceback(tx)


@method(BaseException.with_traceback)
def with_traceback(tx: Any, self: ExceptionVariable, tb: VariableTracker) -> VariableTracker:
    _set_traceback(tx, self, tb)
    return self


@builtin(traceback.clear_frames)
def clear_frames(tx: Any, tb: VariableTracker) -> None:
    """The frames that an exception of the traced code has left are gone: there is nothing to clear in them. Those of a real one
    are cleared with the other effects."""
    if isinstance(tb, SourcedTracebackVariable):
        tx.tr.mutating(tb)
    elif not isinstance(tb, TracebackVariable) or tb.exc.source is not None:
        unsupported("frame-introspection", "traceback.clear_frames")


@method(BaseException.__str__)
def exception_str(tx: Any, self: ExceptionVariable) -> VariableTracker:
    args = self.get(tx, "args").items
    if not args:
        return ConstantVariable("")
    return tx.call(tx.tr.type_tracker(str), [args[0] if len(args) == 1 else self.get(tx, "args")])


for _cls in (AttributeError, NameError):
    if "__str__" in _cls.__dict__:  # the same function under a descriptor of its own
        method(_cls.__str__)(exception_str)


@method(KeyError.__str__)
def key_error_str(tx: Any, self: ExceptionVariable) -> VariableTracker:
    args = self.get(tx, "args").items
    if len(args) == 1:
        return tx.call(tx.tr.wrap_callable(repr), [args[0]])
    return exception_str(tx, self)


@method(BaseException.__repr__)
def exception_repr(tx: Any, self: ExceptionVariable) -> VariableTracker:
    parts = [tx.call(tx.tr.wrap_callable(repr), [a]).as_python_constant() for a in self.get(tx, "args").items]
    return ConstantVariable(f"{self.cls.__name__}({', '.join(parts)})")


@method(BaseException.add_note)
def add_note(tx: Any, self: ExceptionVariable, note: VariableTracker) -> None:
    from_list = self.instance_dict(tx).lookup(tx, ConstantVariable("__notes__"))
    if from_list is None:
        from_list = tx.tr.wrap_new([])
        self.instance_dict(tx).mp_ass_subscript(tx, ConstantVariable("__notes__"), from_list)
    tx.call(from_list.tp_getattro(tx, "append"), [note])


@builds_subclasses(BaseException)
def build_exception(tr: Any, value: BaseException, source: Any) -> ExceptionVariable:
    tr.guard(source, ir.TYPE_IS, type(value))
    return ExceptionVariable(type(value), value, source)


# -- raise and except


def _is_exception_class(v: VariableTracker) -> bool:
    return issubclass(type(v.value), type) and issubclass(v.value, BaseException)


def exception_match(tx: Any, exc: VariableTracker, target: VariableTracker) -> bool:
    """CHECK_EXC_MATCH: `target` is an exception class or a tuple of them."""
    classes = target.items if isinstance(target, TupleVariable) else [target]
    for cls in classes:
        if not _is_exception_class(cls):
            tx.raises(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    return any(issubclass(exc.python_type(), cls.value) for cls in classes)


def raise_varargs(tx: Any, exc: VariableTracker | None = None, cause: VariableTracker | None = None) -> NoReturn:
    """RAISE_VARARGS (`do_raise`)."""
    if exc is None:
        if tx.tr.handled is None:
            tx.raises(RuntimeError, "No active exception to reraise")
        raise ObservedException(tx.tr.handled)
    instance = _instantiate(tx, exc, "exceptions must derive from BaseException")
    if cause is not None:
        is_none = cause.is_python_constant() and cause.as_python_constant() is None
        message = "exception causes must derive from BaseException"
        fixed = NONE if is_none else _instantiate(tx, cause, message)
        tx.tr.mutating(instance)
        instance.set_cause(fixed)
    tx.raise_exception(instance)


def _instantiate(tx: Any, exc: VariableTracker, message: str) -> ExceptionVariable:
    if _is_exception_class(exc):
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
