"""Small types of torch: dtypes and devices, `torch.Size`, generators.

Input: real objects, or the items of a size. Output: constants; `SizeVariable`.
Invariant: a dtype, layout or memory format is one object; a device is compared by value; a size is a tuple of ints,
some of them symbolic.
Mirrors `torch/csrc/Size.cpp`, `Dtype.cpp`, `Device.cpp`, `TypeInfo.cpp`.
"""

from __future__ import annotations

import contextlib
import math
import operator
import types
from typing import TYPE_CHECKING

import torch

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.list import iterate
from dynamo_lite.variables.builtin.number import pure_methods
from dynamo_lite.variables.builtin.tuple import TupleVariable, build_tuple, new_tuple
from dynamo_lite.variables.objects.module import ModuleVariable
from dynamo_lite.variables.objects.subclass import register_native
from dynamo_lite.variables.objects.type import TypeVariable, type_call
from dynamo_lite.variables.protocol.abstract import binary_op, index, type_name
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import NOT_IMPLEMENTED, ConstantVariable
from dynamo_lite.variables.protocol.descr import type_lookup
from dynamo_lite.variables.protocol.dispatch import HANDLERS, PURE, constructor, method
from dynamo_lite.variables.protocol.hashing import hash_rule, tuple_key
from dynamo_lite.variables.protocol.native import emit_all
from dynamo_lite.variables.protocol.wrap import builds, guarded

from .graph_args import SEQUENCES

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

# -- constants

_BY_IDENTITY = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)


# Enumerations of pybind11: values compare by their number; reading one from C makes another object.
_MODULES = [torch._C, *(m for m in vars(torch._C).values() if isinstance(m, types.ModuleType))]
_ENUMERATIONS = {c for m in _MODULES for c in vars(m).values() if isinstance(c, type) and hasattr(c, "__members__")}


_ENGINE = type(torch.autograd.Variable._execution_engine)

builds(*_BY_IDENTITY, torch.finfo, torch.iinfo, _ENGINE)(guarded(ir.IS, ConstantVariable))
builds(torch.device, *_ENUMERATIONS)(guarded(ir.EQUALS, ConstantVariable))

_PYBIND11_METACLASS = type(torch._C._SDPBackend)


@method(_PYBIND11_METACLASS.__call__)
def pybind11_meta_call(
    tx: Frame, cls: TypeVariable, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    """`pybind11_meta_call`: as for other classes."""
    return type_call(tx, cls, list(args), kwargs)


@method(_PYBIND11_METACLASS.__getattribute__)
def pybind11_meta_getattro(tx: Frame, cls: TypeVariable, name: VariableTracker) -> VariableTracker:
    """As for other classes, but methods stay unbound."""
    raw = type_lookup(cls.value, name.as_python_constant())
    if type(raw) is type(torch._C._SDPBackend.__eq__):
        return tx.tr.build_constant_object(raw)
    return TypeVariable.tp_getattro(cls, tx, name.as_python_constant())


pure_methods(*_BY_IDENTITY, torch.device, torch.finfo, torch.iinfo)
PURE.update({torch.device, torch.finfo, torch.iinfo})


# -- schemas of operators


class SchemaVariable(ConstantVariable):
    """A `FunctionSchema` or a part of one: an immutable object of pybind11, whose attributes are read for real."""

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        try:
            real = getattr(self.value, name)
        except AttributeError as error:
            return tx.raises_like(error)
        return tx.tr.wrap_new(real)

    def tp_str(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(str(self.value))

    tp_repr = tp_str


builds(torch._C.FunctionSchema, torch._C.Argument)(guarded(ir.IS, SchemaVariable))


# -- torch._VF


class FunctionsModuleVariable(ModuleVariable):
    """The module object whose attributes are torch's operators."""

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        try:
            return tx.tr.build_constant_object(getattr(self.value, name))
        except AttributeError as error:
            tx.raises_like(error)


builds(type(torch._VF))(guarded(ir.IS, FunctionsModuleVariable))


# -- torch.Size

hash_rule(torch.Size.__hash__)(tuple_key)  # a method of its own where tuples keep their hashes (3.14)


class SizeVariable(TupleVariable):
    """A `torch.Size`. Slices and concatenations of sizes are sizes."""

    cls = torch.Size

    def __init__(self, items: list[VariableTracker], cls: type = torch.Size) -> None:
        self.items = items

    def as_python_constant(self) -> torch.Size:
        return torch.Size([item.as_python_constant() for item in self.items])

    def sq_concat(self, tx: Frame, other: VariableTracker) -> VariableTracker:
        if not issubclass(other.python_type(), tuple):
            return tx.raises(TypeError, f"can only concatenate tuple (not {type_name(other)}) to torch.Size")
        return size_of(tx, super().sq_concat(tx, other))

    @staticmethod
    def nb_add(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        if not (isinstance(v, TupleVariable) and isinstance(w, TupleVariable)):
            return NOT_IMPLEMENTED
        return size_of(tx, TupleVariable([*v.items, *w.items]))

    def sq_repeat(self, tx: Frame, count: VariableTracker) -> VariableTracker:
        return size_of(tx, super().sq_repeat(tx, count))

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        return size_of(tx, super().mp_subscript(tx, key))

    def _repr(self, tx: Frame) -> str:
        return f"torch.Size([{self.repr_items(tx)}])"

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(torch.Size)
        cg.asm.build_tuple(emit_all(cg, self.items))
        cg.asm.call(1)


SEQUENCES[torch.Size] = SizeVariable
register_native(torch.Size, SizeVariable)


@builds(torch.Size)
def build_size(tr: Trace, value: torch.Size, source: GuardNode | None) -> SizeVariable:
    result = build_tuple(tr, value, source)
    result.__class__ = SizeVariable
    return result


@constructor(torch.Size)
def new_size(tx: Frame, cls: VariableTracker, iterable: VariableTracker | None = None, /) -> VariableTracker:
    return size_of(tx, new_tuple(tx, cls, iterable))


def size_of(tx: Frame, v: VariableTracker) -> VariableTracker:
    """`THPSize_pynew` of what a slot of tuples has made; what is no tuple stays as it is (`wrap_tuple_fn`)."""
    if not isinstance(v, TupleVariable):
        return v
    return SizeVariable([_as_dimension(tx, i, item) for i, item in enumerate(v.items)])


def _as_dimension(tx: Frame, i: int, item: VariableTracker) -> VariableTracker:
    cls = item.python_type()
    if issubclass(cls, int) and cls is not bool:
        return item
    if issubclass(cls, torch.Tensor):
        unsupported("data-dependent-size", f"torch.Size of a {cls.__name__}")
    if item.nb_index is not None:
        with contextlib.suppress(ObservedException):  # whatever it was, torch raises the error below in its place
            return index(tx, item)
    return tx.raises(TypeError, f"torch.Size() takes an iterable of 'int' (item {i} is '{type_name(item)}')")


def with_named_size(
    args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> tuple[list[VariableTracker], dict[str, VariableTracker]]:
    """The arguments of a legacy constructor, with a `torch.Size` passed as `size=`. In the graph it is a tuple, which would be taken
    for data."""
    if len(args) == 1 and isinstance(args[0], SizeVariable):
        return [], {"size": args[0], **kwargs}
    return args, kwargs


@method(torch.Size.numel)
def size_numel(tx: Frame, self: SizeVariable) -> VariableTracker:
    if self.is_python_constant():
        return ConstantVariable(math.prod(item.as_python_constant() for item in self.items))
    result: VariableTracker = ConstantVariable(1)
    for item in self.items:
        result = binary_op(tx, operator.mul, result, item)
    return result


for _name, _raw in vars(torch.Size).items():
    # Everything that a size has of its own and that has no model here works on constants only.
    if isinstance(_raw, types.MethodDescriptorType) and _raw not in HANDLERS:
        PURE.add(_raw)


# -- named results


@constructor(*{c for c in vars(torch.return_types).values() if hasattr(c, "n_sequence_fields")})
def new_named_result(
    tx: Frame, cls: VariableTracker, sequence: VariableTracker, dict: VariableTracker | None = None
) -> VariableTracker:
    """`structseq_new`, of a type that has no fields beside the items."""
    real = cls.value
    if sequence.tp_iter is None and sequence.sq_item is None:
        return tx.raises(TypeError, "constructor requires a sequence")
    items = iterate(tx, sequence)
    if dict is not None:
        return unsupported("call-c-function", f"{real.__qualname__} with a dict")
    if len(items) != real.n_sequence_fields:
        wanted = f"{real.n_sequence_fields}-sequence ({len(items)}-sequence given)"
        return tx.raises(TypeError, f"{real.__module__}.{real.__qualname__}() takes a {wanted}")
    return TupleVariable(items, real)
