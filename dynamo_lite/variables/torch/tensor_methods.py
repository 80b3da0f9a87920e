"""Methods of tensors that are more than a graph node: those that read metadata, and those that need the data.

Input: real method descriptors of `torch.Tensor`. Output: their handlers; every method without one becomes a
`call_method` node.
Invariant: a handler that answers from metadata adds no node.
Mirrors `tools/autograd/templates/python_variable_methods.cpp` and `torch/_tensor.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite import markers
from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core.nodes import made_at
from dynamo_lite.graph.inputs.bare_attributes import is_inference_of, untold
from dynamo_lite.graph.inputs.buffers import ask, input_number, number_of
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.text import object_format
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import contains, equal, get_item, set_item
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, is_none
from dynamo_lite.variables.protocol.deferred_str import data_text
from dynamo_lite.variables.protocol.dispatch import HANDLERS, builtin, method, refuse
from dynamo_lite.variables.protocol.native import atom_value, host_int, run

from .data_checks import checked_truth, compared_item, expected_truth
from .tensor import (
    TensorVariable,
    dimension,
    has_numbers,
    known_item,
    metadata,
    tensor_is_leaf,
    tensor_shape,
    torchs_slots,
)

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame

T = torch.Tensor


@method(T.size)
def tensor_size(tx: Frame, self: TensorVariable, dim: VariableTracker | None = None) -> VariableTracker:
    if is_none(dim):
        return tensor_shape(tx, self)
    return dimension(self, _checked_dim(tx, self, dim))


def _checked_dim(tx: Frame, self: TensorVariable, dim: VariableTracker) -> int:
    i, n = host_int(dim), self.proxy.meta.ndim
    if not -n <= i < max(n, 1):
        low, high = (-n, n - 1) if n else (-1, 0)
        tx.raises(IndexError, f"Dimension out of range (expected to be in range of [{low}, {high}], but got {i})")
    if not n:
        tx.raises(IndexError, f"Dimension specified as {i} but tensor has no dimensions")
    return i % n


@method(T.stride)
def tensor_stride(tx: Frame, self: TensorVariable, dim: VariableTracker | None = None) -> VariableTracker:
    strides = self.proxy.meta.stride
    if not is_none(dim):
        i = _checked_dim(tx, self, dim)
        return metadata(self, strides[i], "stride", i)
    return TupleVariable([metadata(self, stride, "stride", i) for i, stride in enumerate(strides)])


@method(T.numel, T.nelement)
def tensor_numel(tx: Frame, self: TensorVariable) -> VariableTracker:
    return metadata(self, self.proxy.meta.numel(), "numel")


@method(T.storage_offset)
def tensor_storage_offset(tx: Frame, self: TensorVariable) -> VariableTracker:
    if self.source is not None:
        return unsupported("tensor-attribute", "storage_offset of an input")
    return metadata(self, self.proxy.meta.offset, "storage_offset")


@method(T.is_contiguous)
def tensor_is_contiguous(
    tx: Frame, self: TensorVariable, memory_format: VariableTracker | None = None
) -> VariableTracker:
    wanted = torch.contiguous_format if memory_format is None else memory_format.as_python_constant()
    return ConstantVariable(self.proxy.meta.is_contiguous(wanted))


@method(T.__repr__)
def tensor_repr(tx: Frame, self: TensorVariable, *, tensor_contents: VariableTracker | None = None) -> VariableTracker:
    return torchs_slots(self).tp_repr(self, tx) if is_none(tensor_contents) else unsupported("format", self.describe())


@method(T.__format__)
def tensor_format(tx: Frame, self: TensorVariable, format_spec: VariableTracker) -> VariableTracker:
    """That of the number for a tensor without dimensions."""
    if not issubclass(format_spec.python_type(), str) or self.python_type() is not T or self.proxy.meta.ndim:
        return object_format(tx, self, format_spec)
    spec = atom_value(format_spec, "format")
    known = known_item(self)
    if known is not MISSING:
        return run(tx, format, known, spec)
    run(
        tx, format, torch.zeros((), dtype=self.proxy.meta.dtype).item(), spec
    )  # raises what a spec of the wrong kind raises
    if spec.endswith("c") or tx.tr.overrides is not None:
        return unsupported("format", self.describe())
    return data_text(tx, self, spec)


_FROM_META: dict[str, Callable[[Any], Any]] = {
    "dim": lambda meta: meta.ndim,
    "ndimension": lambda meta: meta.ndim,
    "element_size": lambda meta: meta.dtype.itemsize,
    "is_floating_point": lambda meta: meta.dtype.is_floating_point,
    "is_complex": lambda meta: meta.dtype.is_complex,
    "is_signed": lambda meta: meta.dtype.is_signed,
    "get_device": lambda meta: -1 if meta.device.type in ("cpu", "meta") else meta.device.index,
    "is_conj": lambda meta: meta.live and meta.fake.is_conj(),
    "is_neg": lambda meta: meta.live and meta.fake.is_neg(),
    "is_distributed": lambda meta: False,
}
for _name, _read in _FROM_META.items():
    if hasattr(T, _name):
        HANDLERS.setdefault(getattr(T, _name), lambda tx, self, *, read=_read: ConstantVariable(read(self.proxy.meta)))


@method(T.is_coalesced)
def tensor_is_coalesced(tx: Frame, self: TensorVariable) -> VariableTracker:
    if self.proxy.meta.layout is torch.strided:
        return unsupported("fake-tensor-error", "is_coalesced of a tensor that is not sparse")
    return unsupported("data-dependent-operator", "is_coalesced", origin=made_at(self.proxy))


@method(T.is_inference)
def tensor_is_inference(tx: Frame, self: TensorVariable) -> VariableTracker:
    if self.source is not None:
        read = T.is_inference if tx.tr.overrides is None else is_inference_of
        return tx.tr.wrap(is_inference_of(self.value), tx.tr.source(self.source, ir.CALL, read))
    if tx.tr.state.has_inference or tx.tr.state.has_inference_tensors:
        return unsupported("tensor-attribute", "Tensor.is_inference of a tensor made in the graph")
    return ConstantVariable(tx.tr.state.read(torch.is_inference_mode_enabled, ()))


@method(T.type)
def tensor_type(tx: Frame, self: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """The legacy type string without arguments, a conversion with them."""
    if args or kwargs:
        args, kwargs = tuple(map(_named_class, args)), {name: _named_class(a) for name, a in kwargs.items()}
        return tx.tr.graph.call(tx, "call_method", "type", [self, *args], kwargs)
    meta = self.proxy.meta
    return ConstantVariable(
        torch.empty(0, dtype=meta.dtype, device="cpu").type().replace("torch.", _type_prefix(meta.device))
    )


def _named_class(vt: VariableTracker) -> VariableTracker:
    """The name of a legacy class, which means the same to `Tensor.type`; graphs hold no classes."""
    cls = vt.as_python_constant() if vt.is_python_constant() else None
    is_legacy = cls is T or isinstance(cls, type(torch.FloatTensor))
    return ConstantVariable(f"{cls.__module__}.{cls.__name__}") if is_legacy else vt


def _type_prefix(device: torch.device) -> str:
    return "torch." if device.type == "cpu" else f"torch.{device.type}."


@method(T.__deepcopy__)
def tensor_deepcopy(tx: Frame, self: TensorVariable, memo: VariableTracker) -> VariableTracker:
    """A tensor that is alone in its memory and fills it is cloned. (A view is copied with all of the memory around it, once per `memo`.)"""
    mine = self.proxy.meta
    if not tensor_is_leaf(tx, self).as_python_constant():
        return tx.raises_like(_error_of_a_deep_copy())
    key = tx.call(tx.tr.build_constant_object(id), [self])
    if contains(tx, memo, key).as_python_constant():
        return get_item(tx, memo, key)
    is_plain = self.cls is T and mine.layout is torch.strided and not mine.dtype.is_complex
    if not is_plain or mine.requires_grad or self.attributes:
        unsupported("tensor-attribute", "Tensor.__deepcopy__ of more than plain numbers")
    if self.source is None and self.proxy.family is not None:
        unsupported("tensor-attribute", "Tensor.__deepcopy__ of a tensor of which there are views")
    if self.source is not None:
        _expect_alone(tx, self)
    if memo.source is not None:
        unsupported("tensor-attribute", "Tensor.__deepcopy__ in a deep copy that has begun before")
    tx.tr.effects.provisos.append(_WholeDeepCopy(tx, memo))
    copy = tx.tr.graph.call(tx, "call_method", "clone", [self])
    if copy.proxy.meta.stride != mine.stride:
        unsupported("tensor-attribute", "Tensor.__deepcopy__ of a tensor with gaps in its memory")
    set_item(tx, memo, key, copy)
    return copy


class _WholeDeepCopy:
    """Checks that a deep copy does not go on behind the graph: its `memo` would have to know the memory that has been copied."""

    def __init__(self, tx: Frame, memo: VariableTracker) -> None:
        self.memo = memo
        self.error = Unsupported("tensor-attribute", "Tensor.__deepcopy__ in a deep copy with a break")
        self.error.at(tx.tr.thread.failing_step(), tx.tr.thread.user_stack())

    def check(self, tr: Trace, escaping: Iterable[VariableTracker]) -> None:
        """Raise `Unsupported` if it does."""
        if any(vt is self.memo for vt in escaping):
            raise self.error


def _error_of_a_deep_copy() -> Exception:
    """What torch raises for a tensor that is no leaf."""
    with torch.enable_grad():
        result = torch.ones((), device="cpu", requires_grad=True) * 1
    try:
        T.__deepcopy__(result, {})
    except RuntimeError as error:
        return error.with_traceback(None)
    raise AssertionError("torch copies any tensor")


def _expect_alone(tx: Frame, tensor: TensorVariable) -> None:
    """Guard that the copy of a tensor from outside is just its elements: it shares memory with no other that has been copied."""
    if not _fills_its_memory(tensor.value):
        unsupported("tensor-attribute", "Tensor.__deepcopy__ of a view")
    tx.tr.guards.predicate(
        _fills_its_memory, (tensor.source,), "fills its memory, and has neither gradient nor attributes"
    )
    copied = tx.tr.graph.passes.inputs.copied
    others = [vt for proxy, vt in copied.items() if proxy is not tensor.proxy]
    copied[tensor.proxy] = tensor
    if not others:
        return
    if not _shares_no_memory(tensor.value, *[vt.value for vt in others]):
        unsupported("tensor-attribute", "Tensor.__deepcopy__ of several tensors that share memory")
    nodes = (tensor.source, *[vt.source for vt in others])
    tx.tr.guards.predicate(_shares_no_memory, nodes, "shares no memory with other tensors that are copied")


def _fills_its_memory(tensor: torch.Tensor) -> bool:
    with untold():
        is_whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        return is_whole and not tensor.storage_offset() and tensor.grad is None and not tensor.__dict__


def _shares_no_memory(tensor: torch.Tensor, *others: torch.Tensor) -> bool:
    with untold():
        return tensor.untyped_storage()._cdata not in [other.untyped_storage()._cdata for other in others]


@method(T.is_same_size)
def tensor_is_same_size(tx: Frame, self: TensorVariable, other: TensorVariable) -> VariableTracker:
    return ConstantVariable(bool(self.proxy.meta.size == other.proxy.meta.size))


def _with_number(
    fn: Callable[..., Any], tx: Frame, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    """An operator that has the only element of a tensor of integers taken out of it first, as `item()` does."""
    named = {name: _number(tx, value) if name == "start" else value for name, value in kwargs.items()}
    op, target = ("call_method", fn.__name__) if hasattr(fn, "__objclass__") else ("call_function", fn)
    return tx.tr.graph.call(tx, op, target, [*args[:1], *[_number(tx, arg) for arg in args[1:]]], named)


def _number(tx: Frame, vt: VariableTracker) -> VariableTracker:
    if not isinstance(vt, TensorVariable) or vt.source is None or config.capture_scalar_outputs:
        return vt
    number = input_number(tx.tr.graph, vt.proxy, vt.value)
    return vt if number is None else tx.tr.wrap(number, tx.tr.source(vt.source, ir.CALL, number_of))


for _fn in (torch.narrow, T.narrow, torch.tensor_split, T.tensor_split):
    HANDLERS[_fn] = functools.partial(_with_number, _fn)


@method(T.item)
def tensor_item(tx: Frame, self: TensorVariable) -> VariableTracker:
    known = known_item(self)
    if known is not MISSING:
        return ConstantVariable(known)
    if not config.capture_scalar_outputs:
        ask(tx.tr.graph, [self.proxy])
        is_check = expected_truth(tx) is not None
        if self.proxy.meta.dtype is torch.bool and (is_check or not has_numbers(tx)):
            return checked_truth(tx, self, "data-dependent-operator", "Tensor.item()")
    if not has_numbers(tx):
        return compared_item(tx, self, Unsupported("data-dependent-operator", "Tensor.item()"))
    return tx.tr.graph.call(tx, "call_method", "item", [self])


def _compared(name: str) -> Callable[..., VariableTracker]:
    """`equal` and `allclose` of tensors: a check where one side of the branch behind them only raises, else a number of the graph."""

    def handler(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        expected = expected_truth(tx)
        is_number = has_numbers(tx)
        if name == "equal":  # of tensors in the same memory that have NaN it may be true: so what differs is no check
            is_number = is_number and len(args) == 2 and _goes_by_elements(args[0])
            possible = (is_number or expected is True) and not kwargs and len(args) == 2 and _have_one_form(tx, *args)
        else:
            possible = is_number or expected is not None
        if not possible:
            return tx.tr.graph.call(tx, "call_function", getattr(torch, name), list(args), kwargs)
        function = torch.eq if name == "equal" else torch.isclose
        elements = tx.tr.graph.call(tx, "call_function", function, list(args), kwargs)
        flag = tx.tr.graph.call(tx, "call_function", torch.all, [elements])
        if expected is None:
            return tensor_item(tx, flag)
        return checked_truth(tx, flag, "data-dependent-operator", name)

    return handler


def _goes_by_elements(vt: VariableTracker) -> bool:
    """Whether `torch.equal` of this tensor and another one says whether all elements are equal, in whatever memory they are."""
    if not isinstance(vt, TensorVariable):
        return False
    dtype, device = vt.proxy.meta.dtype, vt.proxy.meta.device
    return not dtype.is_complex and (not dtype.is_floating_point or device.type == "cpu" and _equal_meets_nan())


@functools.cache
def _equal_meets_nan() -> bool:
    """Whether this torch looks for NaN in floats that lie in the same memory on the CPU."""
    number = torch.full((1,), math.nan, device="cpu")
    return not torch.equal(number, number)


def _have_one_form(tx: Frame, a: VariableTracker, b: VariableTracker) -> bool:
    """Whether two tensors have one dtype, device and shape."""
    if not (isinstance(a, TensorVariable) and isinstance(b, TensorVariable)):
        return False
    one, other = a.proxy.meta, b.proxy.meta
    alike = (one.dtype, one.device, one.ndim) == (other.dtype, other.device, other.ndim)
    return alike and all(equal(tx, dimension(a, i), dimension(b, i)) for i in range(one.ndim))


for _name in ("equal", "allclose"):
    HANDLERS[getattr(T, _name)] = HANDLERS[getattr(torch, _name)] = _compared(_name)


# These call the slot of torch's own, whatever the class of the tensor defines.
for _name, _slot in {"__len__": "mp_length", "__iter__": "tp_iter", "__hash__": "tp_hash"}.items():
    HANDLERS[getattr(T, _name)] = lambda tx, self, *, slot=_slot: getattr(torchs_slots(self), slot)(self, tx)
for _name, _slot in {"__contains__": "sq_contains", "__getitem__": "mp_subscript"}.items():
    HANDLERS[getattr(T, _name)] = lambda tx, self, key, *, slot=_slot: getattr(torchs_slots(self), slot)(self, tx, key)
HANDLERS[T.__setitem__] = lambda tx, self, key, value: torchs_slots(self).mp_ass_subscript(self, tx, key, value)
for _number_slot, _names in {
    TensorVariable.nb_bool: "__bool__ __nonzero__ is_nonzero",
    TensorVariable.nb_int: "__int__ __long__",
    TensorVariable.nb_index: "__index__",
    TensorVariable.nb_float: "__float__",
}.items():
    for _name in _names.split():
        HANDLERS[getattr(T, _name)] = lambda tx, self, *, slot=_number_slot: slot(self, tx)
HANDLERS[torch.is_nonzero] = HANDLERS[T.is_nonzero]


# -- what a graph can't hold


_REFUSED = {
    "data-dependent-operator": "__complex__",
    # The number of elements that a sparse tensor stores is data; a fake one stores none.
    "dynamic-shape-operator": "_nnz _values _indices values indices crow_indices col_indices ccol_indices row_indices",
    "numpy": "__array__ __array_wrap__",
    "tensor-attribute": "data_ptr storage untyped_storage _typed_storage storage_type set_ is_set_to is_pinned pin_memory"
    " is_shared share_memory_ apply_ map_ map2_ module_load record_stream __reduce_ex__ __setstate__ __dlpack__"
    " __dlpack_device__ __dir__ _use_count _fix_weakref reinforce _is_view has_names rename rename_ align_to refine_names",
}
for _slug, _names in _REFUSED.items():
    for _name in _names.split():
        if hasattr(T, _name):
            refuse(_slug, getattr(T, _name), context=f"Tensor.{_name}")


@builtin(markers.mark_static)
def mark_static(tx: Frame, t: VariableTracker, index: VariableTracker | None = None) -> VariableTracker:
    """Sizes become constants, for which the graph is guarded."""
    if not isinstance(t, TensorVariable):
        return unsupported("call-skipped-function", "mark_static of something else than a tensor")
    n = t.proxy.meta.ndim
    chosen = range(n) if is_none(index) else [host_int(i) for i in _indices(tx, index)]
    for i in chosen:
        host_int(dimension(t, i % n))
    return ConstantVariable(None)


def _indices(tx: Frame, index: VariableTracker) -> list[VariableTracker]:
    return tx.tr.unpack(tx, index) if isinstance(index, TupleVariable | ListVariable) else [index]
