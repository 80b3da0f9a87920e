"""Instances of subclasses of int, float, complex, str and bytes.

Input: a real instance, or the arguments of such a class. Output: `AtomVariable`, the native half of the model; `__new__` of the five types.
Invariant: the value never changes; an instance from outside is guarded by it only once it is used. Methods of the builtin type are the
real ones, called on the value (`host_proxy.py`), unless the class overrides them.
Mirrors the `*_subtype_new` functions of `Objects/longobject.c`, `floatobject.c`, `complexobject.c`, `unicodeobject.c`, `bytesobject.c`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.host_proxy import call_host
from dynamo_lite.variables.protocol.base import Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import ATOM_BASES, ConstantVariable, atom_base
from dynamo_lite.variables.protocol.descr import getset
from dynamo_lite.variables.protocol.dispatch import CONSTRUCTORS, builtin
from dynamo_lite.variables.protocol.native import NativeVariable, atom_value, readonly
from dynamo_lite.variables.protocol.wrap import builds_subclasses

from .subclass import NATIVES, instance_class

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

_READERS: dict[type, Any] = {
    int: lambda v: int.__int__(v),
    float: lambda v: float.__float__(v),
    complex: lambda v: complex.__complex__(v),
    str: lambda v: str.__str__(v),
    bytes: lambda v: bytes.__bytes__(v),
}
"""How the value of an instance is read past its own class."""


class AtomVariable(NativeVariable):
    """The native half of an instance; `atom` is its value."""

    is_atom = True
    atom: Any = Plain(init=False, lazy=True)

    def load_atom(self) -> Any:
        """The value of an instance from outside."""
        tr, reader = self._tr, _READERS[atom_base(self.cls)]
        atom = reader(self.value)
        tr.guard(tr.source(self.source, ir.CALL, reader), ir.EQUALS, atom)
        return atom

    def as_proxy(self) -> Any:
        return self.atom

    def emit_new(self, cg: Codegen) -> None:
        base = atom_base(self.cls)
        cg.load_callable(base.__new__)
        cg.load_const(self.cls)
        cg.load_const(self.atom)
        cg.asm.call(2)


NATIVES.update(dict.fromkeys(ATOM_BASES, AtomVariable))


@builds_subclasses(*ATOM_BASES)
def build_atom_instance(tr: Trace, value: object, source: GuardNode | None) -> VariableTracker:
    cls = type(value)
    tr.guard(source, ir.TYPE_IS, cls)
    model = instance_class(cls)(cls, value, source)
    model._tr = tr
    return model


def _new(base: type) -> None:
    @builtin(base.__new__)
    def atom_new(
        tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        real = cls.value
        if not issubclass(type(real), type) or atom_base(real) is not base or real is bool:
            return call_host(tx, base.__new__, [cls, *args], kwargs)
        made = CONSTRUCTORS[base](tx, tx.tr.type_tracker(base), *args, **kwargs)
        if real is base:
            return made
        instance = tx.tr.new_instance(tx, real)
        instance.atom = atom_value(made)
        return instance


for _base in ATOM_BASES:
    _new(_base)
    for _name, _descriptor in vars(_base).items():
        if issubclass(type(_descriptor), (types.GetSetDescriptorType, types.MemberDescriptorType)):
            getset(_descriptor, readonly(_descriptor))(
                lambda tx, self, d=_descriptor: ConstantVariable(d.__get__(atom_value(self)))
            )
