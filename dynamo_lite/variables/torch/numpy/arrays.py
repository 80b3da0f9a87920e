"""Arrays of numpy as values of the graph.

Input: values of the graph, layouts. Output: `ArrayVariable`, `FlagsVariable`.
Invariant: an array has a tensor of the graph with the same memory; its strides and flags are those that numpy's array would have.
Their operators are in `calls`, their subscripts in `numpy_indexing`.
Mirrors `numpy/_core/src/multiarray/arrayobject.c` and `getset.c`.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core import functional, modes
from dynamo_lite.graph.core.nodes import made_at
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.graph.inputs.fake_inputs import SLUG as FAKE_INPUTS
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.function import MethodVariable
from dynamo_lite.variables.protocol.abstract import binary_op
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.torch.tensor import TensorVariable, ValueVariable, converted_item, has_numbers, metadata

from .known import known_number
from .layout import Layout, is_of_data, is_only_named_otherwise, shape_now, strides_now

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

numpy: Any = sys.modules.get("numpy")


class ArrayVariable(VariableTracker):
    """An array, or a scalar that numpy computed from arrays. `proxy` is a tensor of the graph with the same memory."""

    def __init__(self, proxy: TensorValue, cls: type, layout: Layout = Layout(), made_at: int = 0) -> None:  # noqa: B008
        if proxy.is_fake or modes.fake_mode() is not None:
            unsupported(FAKE_INPUTS, "array, whose data no FakeTensor has")
        if numpy_dtype(proxy.meta.dtype) is None:
            unsupported("numpy", f"array of {proxy.meta.dtype}, which numpy does not have")
        self.proxy = proxy
        self.cls = cls
        self.layout = layout
        self.made_at = made_at
        self.memory = proxy  # a value of the graph that has the same memory, though autograd does not know
        self.source = None
        self.value = MISSING
        proxy.tracker = self

    def settled(self) -> None:
        self.proxy.tracker = self

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"{self.cls.__name__} {self.proxy.meta}"

    @property
    def is_scalar(self) -> bool:
        return self.cls is not numpy.ndarray

    # -- attributes

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        known = ATTRIBUTES.get(name)
        if known is not None:
            return known(tx, self)
        raw = getattr(self.cls, name, None)
        if isinstance(raw, types.MethodDescriptorType):
            return MethodVariable(tx.tr.build_constant_object(raw), self)
        if raw is None:
            return tx.raises(
                AttributeError, f"'{self.cls.__module__}.{self.cls.__name__}' object has no attribute '{name}'"
            )
        return unsupported("numpy", f"{self.cls.__name__}.{name}")

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        unsupported("numpy", f"assignment to {self.cls.__name__}.{name}")

    # -- numbers

    def nb_bool(self, tx: Frame) -> VariableTracker:
        if (known := known_number(tx.tr.graph, self)) is not None:
            return ConstantVariable(bool(known))
        return unsupported("data-dependent-branch", self.describe(), origin=made_at(self.proxy))

    nb_index, nb_int, nb_float = TensorVariable.nb_index, TensorVariable.nb_int, TensorVariable.nb_float

    def number(self, tx: Frame, convert: Callable[[Any], Any]) -> VariableTracker:
        """The only element as a Python number."""
        if (known := known_number(tx.tr.graph, self)) is not None:
            return ConstantVariable(convert(known))
        if not has_numbers(tx) or self.proxy.meta.ndim:
            return unsupported(
                "data-dependent-operator", f"a number from {self.describe()}", origin=made_at(self.proxy)
            )
        return converted_item(tx, ValueVariable(self.proxy), convert)

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return unsupported("format", self.describe(), origin=made_at(self.proxy))

    # -- container

    def mp_length(self, tx: Frame) -> VariableTracker:
        if not self.proxy.meta.ndim:
            return tx.raises(TypeError, "len() of unsized object")
        return metadata(self, self.proxy.meta.shape[0], "size", 0)

    def sq_contains(self, tx: Frame, item: VariableTracker) -> VariableTracker:
        return unsupported("data-dependent-operator", "element in array", origin=made_at(self.proxy))

    def tp_iter(self, tx: Frame) -> VariableTracker:
        if not self.proxy.meta.ndim:
            return tx.raises(TypeError, "iteration over a 0-d array")
        n = self.mp_length(tx).as_python_constant()
        return TupleVariable([self.mp_subscript(tx, ConstantVariable(i)) for i in range(n)]).tp_iter(tx)

    # -- codegen

    def emit_new(self, cg: Codegen) -> None:
        strides, is_fixed = self.layout.strides, not self.layout.writeable
        if self.is_scalar or (strides is None and not is_fixed):
            cg.load_callable(functional.to_scalar if self.is_scalar else functional.to_array)
            cg.load_graph_output(cg.tr.graph.output(self))
            cg.asm.call(1)
            return
        if strides is not None and not is_only_named_otherwise(self.proxy, strides):
            self._require_memory_of_its_own()
        cg.load_callable(functional.to_array_like)
        cg.load_graph_output(cg.tr.graph.output(self))
        cg.load_const(strides)
        cg.load_const(not is_fixed)
        cg.asm.call(3)

    def _require_memory_of_its_own(self) -> None:
        """A copy takes the array's place, since the tensor lies otherwise in memory."""
        if self.proxy.family is not None:
            raise Unsupported("numpy", f"{self.describe()}, of which there are views").at(self.made_at)


@functools.cache
def numpy_dtype(dtype: object) -> Any:
    """numpy's dtype for one of torch's, None where it has none (`bfloat16`, `complex32`)."""
    try:
        return numpy.dtype(str(dtype).removeprefix("torch."))
    except TypeError:
        return None


def dtype_of(self: ArrayVariable) -> Any:
    return numpy_dtype(self.proxy.meta.dtype)


def _shape(tx: Frame, self: ArrayVariable) -> VariableTracker:
    shape = self.proxy.meta.shape
    return TupleVariable([metadata(self, n, "size", i) for i, n in enumerate(shape)])


def _strides(tx: Frame, self: ArrayVariable) -> VariableTracker:
    if self.layout.strides is not None:
        return TupleVariable(list(map(ConstantVariable, self.layout.strides)))
    if is_of_data(self.proxy) or 0 in self.proxy.meta.shape:
        return unsupported("numpy", "ndarray.strides, which are others where there are no elements")
    size = ConstantVariable(self.proxy.meta.dtype.itemsize)
    strides = [metadata(self, n, "stride", i) for i, n in enumerate(self.proxy.meta.stride)]
    return TupleVariable([binary_op(tx, operator.mul, n, size) for n in strides])


def _nbytes(tx: Frame, self: ArrayVariable) -> VariableTracker:
    numel = metadata(self, self.proxy.meta.numel(), "numel")
    return binary_op(tx, operator.mul, numel, ConstantVariable(self.proxy.meta.dtype.itemsize))


def _flags(tx: Frame, self: ArrayVariable) -> VariableTracker:
    if self.is_scalar or not all(type(n) is int for n in self.proxy.meta.shape):
        return unsupported("numpy", f"{self.cls.__name__}.flags")
    owndata = self.layout.owndata
    if self.source is not None:
        owndata = owns_data(self.value)
        tx.tr.guard(tx.tr.source(self.source, ir.CALL, owns_data), ir.IS, owndata)
    sample = numpy.empty(1, dtype_of(self))
    strides = strides_now(self.proxy, self.layout)
    sample = numpy.lib.stride_tricks.as_strided(sample, shape_now(self.proxy), strides, writeable=self.layout.writeable)
    return FlagsVariable(sample.flags, owndata, tx.tr.thread.failing_step())


def owns_data(array: Any) -> bool:
    """Whether the memory is the array's own."""
    return array.flags.owndata


def _refused(what: str) -> Any:
    """A slot that breaks the graph."""
    return lambda self, tx, *args: unsupported("numpy", what)


_OF_MEMORY = frozenset({"owndata", "OWNDATA", "O"})
_OF_COPIES = frozenset({"writebackifcopy", "WRITEBACKIFCOPY", "X"})


class FlagsVariable(VariableTracker):
    """`ndarray.flags`: another object at each access."""

    def __init__(self, flags: Mapping[str, bool], owndata: bool, made_at: int) -> None:
        self.flags = flags  # those of an array with the same layout
        self.owndata = owndata
        self.made_at = made_at

    def python_type(self) -> type:
        return type(self.flags)

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return self._flag(name, getattr(self.flags, name, None))

    def mp_subscript(self, tx: Frame, key: VariableTracker) -> VariableTracker:
        name = key.as_python_constant()
        try:
            return self._flag(name, self.flags[name])
        except KeyError:
            return unsupported("numpy", "ndarray.flags[]")

    def _flag(self, name: str, value: object) -> VariableTracker:
        if type(value) is not bool or name in _OF_COPIES:
            return unsupported("numpy", f"ndarray.flags.{name}")
        return ConstantVariable(self.owndata if name in _OF_MEMORY else value)

    tp_setattro = mp_ass_subscript = _refused("assignment to ndarray.flags")
    tp_richcompare = _refused("comparison of ndarray.flags")
    tp_hash = _refused("hash of ndarray.flags")

    def emit_new(self, cg: Codegen) -> None:
        raise Unsupported("numpy", "ndarray.flags, which leaves the frame").at(self.made_at)


ATTRIBUTES: dict[str, Callable[[Any, ArrayVariable], VariableTracker]] = {
    "dtype": lambda tx, self: ConstantVariable(dtype_of(self)),
    "flags": _flags,
    "itemsize": lambda tx, self: ConstantVariable(self.proxy.meta.dtype.itemsize),
    "nbytes": _nbytes,
    "ndim": lambda tx, self: ConstantVariable(self.proxy.meta.ndim),
    "shape": _shape,
    "size": lambda tx, self: metadata(self, self.proxy.meta.numel(), "numel"),
    "strides": _strides,
}
"""Attribute → function(tx, array)."""


def families(vt: TensorVariable | ArrayVariable) -> set[TensorValue]:
    """The values of the graph that have the memory of a tensor or an array."""
    return with_views({vt.proxy, getattr(vt, "memory", vt.proxy)})


def with_views(values: set[TensorValue]) -> set[TensorValue]:
    return {member for value in values for member in value.family or (value,)}


def alias(tx: Frame, vt: TensorVariable | ArrayVariable) -> TensorVariable:
    return tx.tr.graph.call(tx, "call_method", "detach", [ValueVariable(vt.proxy)])


def array_in_memory_of(tx: Frame, vt: TensorVariable | ArrayVariable) -> ArrayVariable:
    """Another array in the same memory."""
    array = ArrayVariable(alias(tx, vt).proxy, numpy.ndarray)
    array.memory = getattr(vt, "memory", vt.proxy)
    return array
