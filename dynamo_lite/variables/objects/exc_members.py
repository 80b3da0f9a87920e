"""Exceptions with members of their own in C: SyntaxError, the UnicodeErrors, OSError.

Input: the arguments of their constructors. Output: the members, in the state of the `ExceptionVariable`; their texts.
Invariant: a real exception of the class, made of what stands for the arguments, parses them and makes the text.
Mirrors the `*Error_init`, `*Error_str` functions of `Objects/exceptions.c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dynamo_lite.isa.typeobject import mro_of
from dynamo_lite.variables.builtin.host_proxy import run_host, to_host
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.descr import getset
from dynamo_lite.variables.protocol.dispatch import builtin, method

from .exception_instance import C_MEMBERS, EXCEPTION_CLASSES, ExceptionVariable, c_base, load_members

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_UNICODE_ERRORS = (UnicodeEncodeError, UnicodeDecodeError, UnicodeTranslateError)


def _real(tx: Frame, cls: type, args: Any) -> Any:
    """A real exception of a builtin class."""
    made: list[Any] = []
    host = [to_host(tx, a) for a in args]
    run_host(tx, lambda: made.append(cls(*host)))
    return made[0]


def _init(cls: type) -> None:
    @method(cls.__init__)
    def init(tx: Frame, self: ExceptionVariable, *args: VariableTracker) -> None:
        load_members(tx, self, _real(tx, cls, args))


def _with_own(name: str, *bases: type) -> list[type]:
    """The builtin classes derived from `bases` that have a `name` of their own."""
    return [cls for cls in EXCEPTION_CLASSES if issubclass(cls, bases) and name in cls.__dict__]


for _cls in _with_own("__init__", SyntaxError, *_UNICODE_ERRORS):
    _init(_cls)


def _parses_in_init(cls: type) -> bool:
    """`oserror_use_init`: a class with an `__init__` of its own and no `__new__` leaves the arguments to OSError.__init__."""
    return cls.__init__ is not c_base(cls).__init__ and cls.__new__ is c_base(cls).__new__


@builtin(*[cls.__new__ for cls in _with_own("__new__", OSError)])
def os_error_new(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> Any:
    real = cls.value
    if _parses_in_init(real):
        exc = ExceptionVariable(real)
    else:
        error = _real(tx, c_base(real), args)
        exc = ExceptionVariable(type(error) if real is OSError else real)
        load_members(tx, exc, error)
    return exc


@method(*[cls.__init__ for cls in _with_own("__init__", OSError)])
def os_error_init(tx: Frame, self: ExceptionVariable, /, *args: VariableTracker, **kwargs: VariableTracker) -> None:
    if _parses_in_init(self.cls):
        load_members(tx, self, _real(tx, c_base(self.cls), args))


def _text(cls: type) -> None:
    @method(cls.__str__)
    def text(tx: Frame, self: ExceptionVariable) -> VariableTracker:
        base = c_base(self.cls)
        real = base.__new__(base)
        real.args = tuple([to_host(tx, a) for a in self.get(tx, "args").items])
        for name in [name for b in mro_of(base) for name in C_MEMBERS.get(b, ())]:
            value = self.get(tx, name)
            if value.value is not None:
                setattr(real, name, to_host(tx, value))
        return run_host(tx, cls.__str__, [real])


for _cls in _with_own("__str__", *C_MEMBERS):
    _text(_cls)


def _accessors(cls: type, name: str) -> None:
    descriptor = cls.__dict__[name]

    def write(tx: Frame, self: ExceptionVariable, value: VariableTracker | None) -> None:
        host = [] if value is None else [to_host(tx, value)]
        change = descriptor.__delete__ if value is None else descriptor.__set__
        run_host(tx, lambda: change(cls.__new__(cls), *host))  # it may refuse the value
        self.put(tx, name, ConstantVariable(None) if value is None else value)

    def read(tx: Frame, self: ExceptionVariable) -> VariableTracker:
        value = self.get(tx, name)
        if value.value is None:
            run_host(tx, lambda: descriptor.__get__(cls.__new__(cls)))  # one of them is not there until it is set
        return value

    getset(descriptor, write)(read)


for _cls in (SyntaxError, OSError, *_UNICODE_ERRORS):
    for _name in C_MEMBERS[_cls]:
        _accessors(_cls, _name)
