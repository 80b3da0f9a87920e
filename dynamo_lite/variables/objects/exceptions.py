"""The builtin exception classes: construction, members, text, pickling.

Input: an `ExceptionVariable` and arguments. Output: its members and texts.
Invariant: what an assignment refuses, and the text of rare classes, is asked of a real exception.
Mirrors `Objects/exceptions.c`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import unsupported
from dynamo_lite.isa.typeobject import mro_of
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import class_name, message_name
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import getset
from dynamo_lite.variables.protocol.dispatch import builtin, method

from .exception_instance import EXCEPTION_CLASSES, WITH_MEMBERS, ExceptionVariable
from .traceback_object import is_traceback

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

# -- construction


@method(BaseException.__init__)
def exception_init(tx: Frame, self: ExceptionVariable, /, *args: VariableTracker, **kwargs: VariableTracker) -> None:
    if kwargs:
        tx.raises(TypeError, f"{message_name(self.cls)}() takes no keyword arguments")
    self.put(tx, "args", TupleVariable(list(args)))


def new_exception(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> ExceptionVariable:
    """`BaseException_new`."""
    exc = ExceptionVariable(cls.value)
    exc.state["args"] = TupleVariable(list(args))
    return exc


def stop_iteration_init(
    tx: Frame, self: ExceptionVariable, /, *args: VariableTracker, **kwargs: VariableTracker
) -> None:
    exception_init(tx, self, *args, **kwargs)
    self.put(tx, "value", args[0] if args else NONE)


def system_exit_init(tx: Frame, self: ExceptionVariable, /, *args: VariableTracker, **kwargs: VariableTracker) -> None:
    exception_init(tx, self, *args, **kwargs)
    self.put(tx, "code", args[0] if len(args) == 1 else (TupleVariable(list(args)) if args else NONE))


def _init_with_names(cls: type) -> Any:
    """`AttributeError(…, name=, obj=)`, `NameError(…, name=)`, `ImportError(…, name=, path=)`."""

    def init(tx: Frame, self: ExceptionVariable, /, *args: VariableTracker, **kwargs: VariableTracker) -> None:
        try:
            cls(**dict.fromkeys(kwargs))
        except TypeError as error:
            tx.raises_like(error)
        self.put(tx, "args", TupleVariable(list(args)))
        for name, value in kwargs.items():
            self.put(tx, name, value)
        if issubclass(cls, ImportError):
            self.put(tx, "msg", args[0] if len(args) == 1 else NONE)

    return init


_INITS: dict[type, Any] = {
    StopIteration: stop_iteration_init,
    SystemExit: system_exit_init,
    **{cls: _init_with_names(cls) for cls in (AttributeError, NameError, ImportError)},
}


def _init_of(cls: type) -> Any:
    """The construction of a builtin class: its own function, or that of the nearest base with one."""
    return next((_INITS[base] for base in mro_of(cls) if base in _INITS), exception_init)


for _cls in EXCEPTION_CLASSES:
    if "__init__" in _cls.__dict__ and _cls is not BaseException and not issubclass(_cls, WITH_MEMBERS):
        method(_cls.__init__)(_init_of(_cls))
    if "__new__" in _cls.__dict__ and not issubclass(_cls, WITH_MEMBERS):
        builtin(_cls.__new__)(new_exception)


# -- members


def _write_args(tx: Frame, self: ExceptionVariable, value: VariableTracker) -> None:
    self.put(tx, "args", TupleVariable(tx.tr.unpack(tx, value)))


def _is_exception_or_none(v: VariableTracker) -> bool:
    return isinstance(v, ExceptionVariable) or is_none(v)


# Members that take only some values, and can't be deleted → (test, setter).
_RESTRICTED: dict[str, tuple[Any, Any]] = {
    "args": (lambda v: v.tp_iter is not None or v.sq_item is not None, _write_args),
    "__cause__": (_is_exception_or_none, lambda tx, self, v: self.set_cause(tx, v)),
    "__context__": (_is_exception_or_none, lambda tx, self, v: self.put(tx, "__context__", v)),
    "__traceback__": (is_traceback, lambda tx, self, v: self.put(tx, "__traceback__", v)),
    "__suppress_context__": (
        lambda v: v.python_type() is bool,
        lambda tx, self, v: self.put(tx, "__suppress_context__", v),
    ),
}


def _setter(descriptor: Any) -> Any:
    name = descriptor.__name__
    restriction = _RESTRICTED.get(name)

    def write(tx: Frame, self: ExceptionVariable, value: VariableTracker | None) -> None:
        if restriction is None:
            self.put(tx, name, value if value is not None else NONE)
        elif value is None or not restriction[0](value):
            unsupported("mutation-of-unknown-object", f"{descriptor!r}, which does not take this")
        elif restriction[1] is None:
            self.put(tx, name, value)
        else:
            restriction[1](tx, self, value)

    return write


def _getter(name: str) -> Any:
    return lambda tx, self: self.get(tx, name)


for _cls in EXCEPTION_CLASSES:
    for _name, _descriptor in _cls.__dict__.items():
        is_member = type(_descriptor) in (types.GetSetDescriptorType, types.MemberDescriptorType)
        if is_member and _name != "__dict__" and _cls not in WITH_MEMBERS:
            getset(_descriptor, _setter(_descriptor))(_getter(_name))


@method(BaseException.with_traceback)
def with_traceback(tx: Frame, self: ExceptionVariable, tb: VariableTracker) -> VariableTracker:
    _setter(BaseException.__dict__["__traceback__"])(tx, self, tb)
    return self


# -- text


def _repr(tx: Frame, v: VariableTracker) -> str:
    return tx.call(tx.tr.wrap_callable(repr), [v]).as_python_constant()


@method(BaseException.__str__)
def exception_str(tx: Frame, self: ExceptionVariable) -> VariableTracker:
    args = self.get(tx, "args").items
    if not args:
        return ConstantVariable("")
    return tx.call(tx.tr.type_tracker(str), [args[0] if len(args) == 1 else self.get(tx, "args")])


@method(KeyError.__str__)
def key_error_str(tx: Frame, self: ExceptionVariable) -> VariableTracker:
    args = self.get(tx, "args").items
    return ConstantVariable(_repr(tx, args[0])) if len(args) == 1 else exception_str(tx, self)


@method(ImportError.__str__)
def import_error_str(tx: Frame, self: ExceptionVariable) -> VariableTracker:
    message = self.get(tx, "msg")
    return message if message.python_type() is str else exception_str(tx, self)


for _cls in EXCEPTION_CLASSES:
    has_own = _cls in (BaseException, KeyError, ImportError) or issubclass(_cls, WITH_MEMBERS)
    if "__str__" in _cls.__dict__ and not has_own:  # the same function under a descriptor of its own
        method(_cls.__str__)(exception_str)


@method(BaseException.__repr__)
def exception_repr(tx: Frame, self: ExceptionVariable) -> VariableTracker:
    parts = [_repr(tx, a) for a in self.get(tx, "args").items]
    return ConstantVariable(f"{class_name(self.cls)}({', '.join(parts)})")
