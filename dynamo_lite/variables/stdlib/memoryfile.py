"""`io.StringIO` and `io.BytesIO` made by the traced code, and `print` to them.

Input: arguments of the constructors and methods. Output: `MemoryFileVariable`.
Invariant: a host file of the same kind does the work; one from outside ends the graph where it is used.
Mirrors `Modules/_io/stringio.c`, `Modules/_io/bytesio.c`, `builtin_print` of `Python/bltinmodule.c`.
"""

from __future__ import annotations

import io
import sys
import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import NotConstant, unsupported
from dynamo_lite.isa.typeobject import dict_of, mro_of
from dynamo_lite.variables.builtin.host_proxy import run_host, to_host
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.objects.subclass import NATIVE_MODELS
from dynamo_lite.variables.protocol.abstract import get_attr, is_true, type_name, unpack
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.descr import getset
from dynamo_lite.variables.protocol.dispatch import HANDLERS, REFUSED, builtin, constructor
from dynamo_lite.variables.protocol.native import NativeVariable, atom_value, emit_call, object_str

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

_KINDS = (io.StringIO, io.BytesIO)


class MemoryFileVariable(NativeVariable):
    """A file in memory; `file` is the host file."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def python_type(self) -> type:
        return type(self.file)

    def children(self) -> Any:
        return ()

    def tp_iter(self, tx: Frame) -> VariableTracker:
        run_host(tx, lambda: self.file.__iter__() and None)  # it may be closed
        return self

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        line = run_host(tx, next, [self.file, None])
        return None if is_none(line) else line

    def emit_new(self, cg: Codegen) -> None:
        emit_call(cg, self.python_type())

    def emit_fill(self, cg: Codegen) -> None:
        kind = self.python_type()
        if self.file.closed:
            emit_call(cg, kind.close, self)
        else:
            cg.load_callable(kind.__setstate__)
            cg.load(self)
            cg.load_const((*self.file.__getstate__()[:-1], None))
            cg.asm.call(2)
        cg.asm.pop_top()


def _host(tx: Frame, v: VariableTracker) -> Any:
    try:
        return to_host(tx, v)
    except NotConstant:
        return to_host(tx, ListVariable(unpack(tx, v)))


def _call(tx: Frame, real: Any, self: MemoryFileVariable, args: Any, kwargs: Any = None) -> VariableTracker:
    file = self.file
    host_kwargs = {name: _host(tx, v) for name, v in (kwargs or {}).items()}

    def call(*host: Any, **named: Any) -> Any:
        result = real(file, *host, **named)
        return None if result is file else result

    return run_host(tx, call, [_host(tx, a) for a in args], host_kwargs)


def _register(name: str, real: Any) -> None:
    def call(tx: Frame, self: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if not isinstance(self, MemoryFileVariable):
            return tx.tr.call_foreign(tx, real, [self, *args], kwargs)
        made = _call(tx, real, self, args, kwargs)
        return self if name in ("__enter__", "__iter__") else made

    HANDLERS[real] = call


# What gives a view of the file's own memory, fills one of the program, or is no method of the file.
_REFUSED = frozenset(
    "__new__ __del__ __sizeof__ __setstate__ __getstate__ getbuffer readinto detach __repr__ __next__".split()
)
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def _members(kind: type) -> None:
    NATIVE_MODELS[kind] = MemoryFileVariable
    for base in mro_of(kind)[:-1]:
        for name, real in dict_of(base).items():
            if isinstance(real, _METHODS) and name not in _REFUSED and real not in HANDLERS:
                _register(name, real)
    for descriptor in vars(kind).values():
        if isinstance(descriptor, types.GetSetDescriptorType):
            _attribute(descriptor)

    @constructor(kind)
    def new_file(tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker) -> Any:
        made = MemoryFileVariable(kind())
        _call(tx, kind.__init__, made, args, kwargs)
        return made


def _attribute(descriptor: Any) -> None:
    @getset(descriptor)
    def read(tx: Frame, self: VariableTracker, /) -> VariableTracker:
        if not isinstance(self, MemoryFileVariable):
            return unsupported("call-io", f"{descriptor.__name__} of {self.describe()}")
        return run_host(tx, descriptor.__get__, [self.file])


for _kind in _KINDS:
    _members(_kind)


# -- print


@builtin(print)
def builtin_print(
    tx: Frame,
    /,
    *args: VariableTracker,
    sep: VariableTracker = NONE,
    end: VariableTracker = NONE,
    file: VariableTracker = NONE,
    flush: VariableTracker = NONE,
) -> VariableTracker:
    target = tx.tr.heap.namespace(sys.__dict__).load(tx, "stdout") if is_none(file) else file
    if target is None or target.source is not None or not (isinstance(target, MemoryFileVariable) or target.can_stand):
        return unsupported("call-print", "print()")
    for name, v in (("sep", sep), ("end", end)):
        if not is_none(v) and not issubclass(v.python_type(), str):
            return tx.raises(TypeError, f"{name} must be None or a string, not {type_name(v)}")
    for i, arg in enumerate(args):
        if i:
            _write(tx, target, " " if is_none(sep) else atom_value(sep))
        tx.call(get_attr(tx, target, "write"), [object_str(tx, arg)])
    _write(tx, target, "\n" if is_none(end) else atom_value(end))
    if is_true(tx, flush):
        tx.call(get_attr(tx, target, "flush"), [])
    return NONE


REFUSED[print] = ("call-print", "print()")  # what it is unless the text goes into an object made here


def _write(tx: Frame, target: VariableTracker, text: str) -> None:
    tx.call(get_attr(tx, target, "write"), [ConstantVariable(text)])
