"""Byte arrays.

Input: arguments of `bytearray`, or a real one. Output: `BytearrayVariable`, its slots and the whole method surface.
Invariant: the model holds a host bytearray on which the real methods work; one from outside is guarded by its contents once they are
used, and changed by one slice assignment.
Mirrors `Objects/bytearrayobject.c`.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import NotConstant
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.abstract import get_iter, iter_next
from dynamo_lite.variables.protocol.base import Child, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import NOT_IMPLEMENTED, ConstantVariable
from dynamo_lite.variables.protocol.dispatch import HANDLERS, constructor, method, pure
from dynamo_lite.variables.protocol.native import NativeVariable, emit_bare, emit_call
from dynamo_lite.variables.protocol.slots import COMPARISONS, SLOTDEFS
from dynamo_lite.variables.protocol.wrap import builds

from .host_proxy import run_host, to_host
from .iter import IteratorVariable, emit_position

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


def contents(real: Any) -> bytes:
    """The bytes of a real bytearray, past its own class."""
    return bytes(memoryview(real))


class BytearrayVariable(NativeVariable):
    """A bytearray or the native part of an instance of a subclass. `host_data` is what C code gets for it."""

    cls = bytearray
    can_stand = True

    host_data: bytearray = Plain(factory=bytearray)

    def load_host_data(self) -> bytearray:
        """The data of one from outside."""
        now = contents(self.value)
        self._tr.guard(self._tr.source(self.source, ir.CALL, contents), ir.EQUALS, now)
        return bytearray(now)

    def tp_iter(self, tx: Frame) -> VariableTracker:
        return BytearrayIterator(self)

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(f"{self.python_type().__name__}({bytes(self.host_data)!r})")

    tp_str = tp_repr

    def emit_new(self, cg: Codegen) -> None:
        if self.cls is bytearray:
            cg.load_callable(bytearray)
            cg.asm.call(0)
        else:
            emit_bare(cg, bytearray, self.cls)

    def emit_fill(self, cg: Codegen) -> None:
        if self.host_data:
            self.emit_update(cg)

    def emit_update(self, cg: Codegen) -> None:
        emit_call(cg, _replace, self, ConstantVariable(bytes(self.host_data)))
        cg.asm.pop_top()


def _replace(real: bytearray, data: bytes) -> None:
    bytearray.__setitem__(real, slice(None), data)


class BytearrayIterator(IteratorVariable):
    """A `bytearray_iterator`. `seq` is None once exhausted."""

    cls = type(iter(bytearray()))
    seq: Any = Child()
    index = 0

    def tp_iternext(self, tx: Frame) -> VariableTracker | None:
        if self.seq is None:
            return None
        i = self.index
        if i < len(self.seq.host_data):
            self.index = i + 1
            return ConstantVariable(self.seq.host_data[i])
        self.seq = None
        return None

    def remaining(self, tx: Frame) -> int:
        """`__length_hint__`."""
        return 0 if self.seq is None else max(len(self.seq.host_data) - self.index, 0)

    def emit_new(self, cg: Codegen) -> None:
        emit_position(cg, self.seq, self.index, bytearray)


builds(bytearray)(BytearrayVariable.from_outside)


def _host(tx: Frame, v: VariableTracker) -> Any:
    """An argument for the real method; an iterable of the program as a list of its items."""
    try:
        return to_host(tx, v)
    except NotConstant:
        if v.tp_iter is None and v.sq_item is None:
            raise
    iterator = get_iter(tx, v)
    items = []
    while (item := iter_next(tx, iterator)) is not None:
        items.append(to_host(tx, item))
    return items


@constructor(bytearray)
def new_bytearray(
    tx: Frame, cls: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> BytearrayVariable:
    result = BytearrayVariable()
    _call(tx, bytearray.__init__, result, args, kwargs)
    return result


def _call(tx: Frame, real: Any, self: BytearrayVariable, args: Any, kwargs: Any = None) -> VariableTracker:
    host = [_host(tx, a) for a in args]
    host_kwargs = {name: _host(tx, a) for name, a in (kwargs or {}).items()}
    if real.__name__ in _CHANGING:
        self.changing(tx)
    data = self.host_data
    returned: list[Any] = []

    def call(*host_args: Any, **host_kwargs: Any) -> Any:
        result = real(data, *host_args, **host_kwargs)
        returned.append(result)
        return None if result is data else result

    made = run_host(tx, call, host, host_kwargs)
    return self if returned[0] is data else made


_CHANGING = frozenset(
    "__init__ __setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove reverse".split()
)
_KINDS = (types.MethodDescriptorType, types.WrapperDescriptorType)
# Those of every object, and those with a slot of the model's own.
_INHERITED = frozenset("__getattribute__ __new__ __iter__ __repr__ __str__ __reduce__ __reduce_ex__".split())


def _slot(name: str, real: object) -> None:
    """The slot behind a special method."""
    definition = SLOTDEFS[name]
    if definition.kind in COMPARISONS or definition.slot == "mp_ass_subscript":
        return
    slot = _SEQUENCE_SLOTS.get(definition.slot, definition.slot) if definition.kind == "binary_l" else definition.slot
    if definition.kind in ("binary_l", "binary_r") and slot.startswith("nb_"):
        return
    setattr(BytearrayVariable, slot, lambda self, tx, *args: _call(tx, real, self, args))


_SEQUENCE_SLOTS = {
    "nb_add": "sq_concat",
    "nb_multiply": "sq_repeat",
    "nb_inplace_add": "sq_inplace_concat",
    "nb_inplace_multiply": "sq_inplace_repeat",
}


def _register(name: str, real: object) -> None:
    @method(real)
    def call(
        tx: Frame, self: BytearrayVariable, /, *args: VariableTracker, **kwargs: VariableTracker
    ) -> VariableTracker:
        return _call(tx, real, self, args, kwargs)

    if name in SLOTDEFS:
        _slot(name, real)


for _name, _real in vars(bytearray).items():
    if isinstance(_real, _KINDS) and _name not in _INHERITED and _real not in HANDLERS:
        _register(_name, _real)

pure(bytearray.maketrans, bytearray.fromhex, bytearray.__dict__["fromhex"])


def _compare(self: BytearrayVariable, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
    try:
        return _call(tx, _COMPARE[op], self, [other])
    except NotConstant:
        return NOT_IMPLEMENTED


_COMPARE = {
    definition.kind: getattr(bytearray, name)
    for name, definition in SLOTDEFS.items()
    if definition.slot == "tp_richcompare"
}
BytearrayVariable.tp_richcompare = _compare


def _assign(self: BytearrayVariable, tx: Frame, key: VariableTracker, value: VariableTracker | None) -> None:
    if value is None:
        _call(tx, bytearray.__delitem__, self, [key])
    else:
        _call(tx, bytearray.__setitem__, self, [key, value])


BytearrayVariable.mp_ass_subscript = _assign
BytearrayVariable.sq_ass_item = _assign


def _remainder(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
    if not hasattr(v, "host_data"):
        return NOT_IMPLEMENTED
    return HANDLERS[bytearray.__mod__](tx, v, w)


BytearrayVariable.nb_remainder = staticmethod(_remainder)
