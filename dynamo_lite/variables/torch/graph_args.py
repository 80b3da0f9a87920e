"""Trackers as arguments of graph nodes, and results of operators as trackers.

Input: trackers, and the graph's values. Output: entries of `graph.core.arguments.PACKERS`, and `MODELS`.
Invariant: an object that can't be an argument is refused with the break "graph-argument-type", before anything is added to the
graph.
"""

from __future__ import annotations

from types import WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from dynamo_lite.dynamism.dynamic_shapes import is_data, may_vary
from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core.arguments import MODELS, SCALAR_TYPES, Packing, packs
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import lookup, module_of, name_of, qualname_of
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.slice import RangeVariable, SliceVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.atom import AtomVariable
from dynamo_lite.variables.objects.function import FunctionVariable
from dynamo_lite.variables.objects.type import TypeVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, NONE, ConstantVariable
from dynamo_lite.variables.protocol.descr import DescriptorVariable

from .numpy.models import host_number

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame


@packs(ConstantVariable, RangeVariable)
def pack_constant(packing: Packing, vt: ConstantVariable) -> Any:
    return packing.constant(host_number(vt.value))


@packs(AtomVariable)
def pack_atom(packing: Packing, vt: AtomVariable) -> Any:
    """torch reads the number or text past the methods of the class, but asks the object for `__torch_function__` before."""
    is_asked = type(lookup(vt.cls, "__getattribute__")) is not WrapperDescriptorType or lookup(vt.cls, "__getattr__")
    if packing.exact or is_asked:
        unsupported("graph-argument-type", f"{module_of(vt.cls)}.{qualname_of(vt.cls)}")
    return packing.constant(vt.atom)


@packs(TupleVariable)
def pack_tuple(packing: Packing, vt: TupleVariable) -> Any:
    if "items" not in vt.__dict__ and is_fixed(packing, vt):
        packing.builder.tr.guard(vt.source, ir.EQUALS, vt.value)
        return packing.constant_tuple(vt.value)
    items = vt.items
    packing.opens(tuple, len(items))
    plain = tuple([packing.pack(item) for item in items])
    return packing.container(vt.python_type(), plain) if packing.exact else plain


def is_fixed(packing: Packing, vt: TupleVariable) -> bool:
    """True for a real tuple of constants that nobody has looked into and that is part of the program rather than its
    data."""
    real = vt.value
    return (
        type(real) is tuple
        and all(type(item) in ATOMIC_TYPES for item in real)
        and not (is_data(vt.source) and may_vary(packing.builder.tr, vt.source))
    )


@packs(ListVariable)
def pack_list(packing: Packing, vt: ListVariable) -> Any:
    items = vt.items
    packing.opens(list, len(items))
    plain = [packing.pack(item) for item in items]
    return packing.container(vt.python_type(), plain) if packing.exact else plain


@packs(SliceVariable)
def pack_slice(packing: Packing, vt: SliceVariable) -> Any:
    packing.opens(slice, 3)
    return slice(packing.pack(vt.start), packing.pack(vt.stop), packing.pack(vt.step))


@packs(DictVariable)
def pack_dict(packing: Packing, vt: DictVariable) -> Any:
    pairs = list(vt.pairs())
    packing.opens(dict, len(pairs))
    result = {}
    for key, value in pairs:
        if not (key.is_python_constant() and isinstance(key.as_python_constant(), str)):
            unsupported("graph-argument-type", "dict with keys that are not strings")
        result[packing.constant(key.as_python_constant())] = packing.pack(value)
    return packing.container(vt.python_type(), result) if packing.exact else result


@packs(TypeVariable)
def pack_type(packing: Packing, vt: TypeVariable) -> Any:
    if type(vt.value) is type and vt.value in SCALAR_TYPES:
        return packing.scalar_type(vt.value)
    return pack_callable(packing, vt)


@packs(FunctionVariable, DescriptorVariable)
def pack_callable(packing: Packing, vt: VariableTracker) -> Any:
    return unsupported("graph-argument-type", f"{name_of(vt.python_type())} {vt.describe()}")


def make_constant(tx: Frame, value: object) -> VariableTracker:
    """The tracker of a Python value that an operator returned."""
    return NONE if value is None else tx.tr.wrap_new(value)


def make_sequence(tx: Frame, cls: type, items: list[VariableTracker]) -> VariableTracker:
    """The tracker of a tuple, list or structure sequence that an operator returned."""
    if cls is list:
        return ListVariable(items)
    return SEQUENCES[cls](items) if cls in SEQUENCES else TupleVariable(items, cls)


def make_mapping(tx: Frame, keys: tuple[Any, ...], items: list[VariableTracker]) -> DictVariable:
    """The tracker of a dict that an operator returned."""
    result = DictVariable()
    for key, item in zip(keys, items, strict=True):
        result.mp_ass_subscript(tx, ConstantVariable(key), item)
    return result


SEQUENCES: dict[type, Any] = {}
"""Type → function(items) for tuple subclasses with a model of their own."""

MODELS.constant = make_constant
MODELS.sequence = make_sequence
MODELS.mapping = make_mapping
