"""Making tensors from Python values: `torch.tensor` of tensors, and the legacy classes (`torch.FloatTensor`, …).

Input: calls of the constructors. Output: graph nodes.
Invariant: the data of tensors among the values is never asked for: they are stacked.
Mirrors `torch/csrc/utils/tensor_new.cpp` and `torch/csrc/tensor/python_tensor.cpp`.
"""

from __future__ import annotations

import functools
import math
import types
from typing import TYPE_CHECKING, NamedTuple

import torch

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core.arguments import as_dtype
from dynamo_lite.graph.core.varying_floats import FloatValue
from dynamo_lite.graph.inputs.fake_inputs import SLUG as FAKE_INPUTS
from dynamo_lite.isa.typeobject import lookup
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.type import TypeVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import FALSE, ConstantVariable, boolean, is_none
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, method

from .numpy.models import ArrayVariable, holds_inexact_scalars, holds_scalars, tensor_of_array
from .symnode import SymNodeVariable, specialized
from .tensor import TensorVariable, ValueVariable
from .value_types import with_named_size

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_CLASSES = [cls for cls in torch._tensor_classes if isinstance(cls, type(torch.FloatTensor))]


def _tensors_within(vt: VariableTracker) -> list[TensorVariable | ArrayVariable]:
    if isinstance(vt, ListVariable | TupleVariable):
        return [tensor for item in vt.items for tensor in _tensors_within(item)]
    return [vt] if isinstance(vt, TensorVariable | ArrayVariable) else []


_OF_C = (type(None), types.WrapperDescriptorType, types.MethodDescriptorType)


def _check_sequences(vt: VariableTracker) -> None:
    """Break for an object that is a sequence by methods of its class: torch asks these for the items, even of a number."""
    if vt.is_user_made and (vt.is_atom or isinstance(vt, ListVariable | TupleVariable)):
        # A number is a sequence by the first alone (`PySequence_Check`).
        for name in ("__getitem__",) if vt.is_atom else ("__getitem__", "__len__"):
            if type(lookup(vt.python_type(), name)) not in _OF_C:
                unsupported("operation-on-unknown-object", f"items of {vt.describe()}, whose class has a {name}")
    if isinstance(vt, ListVariable | TupleVariable):
        for item in vt.items:
            _check_sequences(item)


@builtin(torch.tensor)
def tensor(
    tx: Frame,
    data: VariableTracker,
    *,
    dtype: VariableTracker | None = None,
    device: VariableTracker | None = None,
    requires_grad: VariableTracker = FALSE,
    pin_memory: VariableTracker = FALSE,
) -> VariableTracker:
    """`torch.tensor`: copies of tensors within sequences are stacked instead of read."""
    _check_sequences(data)
    call = tx.tr.graph.call
    options = {"dtype": dtype, "device": device, "requires_grad": requires_grad, "pin_memory": pin_memory}
    given = {name: value for name, value in options.items() if value is not None and not _is_default(value)}
    if isinstance(data, ArrayVariable) and set(given) <= {"dtype", "device"}:
        return tensor_of_array(tx, data, given, copy=True)
    within = _tensors_within(data)
    if not within and dtype is None and holds_scalars(data):
        return unsupported("numpy", "torch.tensor of numpy's scalars")
    if _has_numbers(data):
        result = _of_numbers(tx, data, given)
        if result is not None:
            return result
        data = data if within else _known(data)
    if not within or isinstance(data, TensorVariable):
        return call(tx, "call_function", torch.tensor, [data], given)
    if any(t.proxy.is_fake for t in within):
        return unsupported("data-dependent-operator", "torch.tensor of FakeTensors")
    if any(t.proxy.meta.numel() != 1 for t in within if isinstance(t, TensorVariable)):
        return unsupported("data-dependent-operator", "torch.tensor of tensors with several elements")
    with tx.tr.state.grad_mode(False):
        stacked = _stack(tx, data, functools.reduce(torch.promote_types, _dtypes_within(data)))
        target = {"dtype": given.get("dtype"), "device": given.get("device", ConstantVariable(torch.device("cpu")))}
        result = call(tx, "call_method", "to", [stacked], {k: v for k, v in target.items() if v is not None})
        result = call(tx, "call_method", "detach", [result])
    if "pin_memory" in given:
        return unsupported("tensor-attribute", "torch.tensor(pin_memory=True)")
    return call(tx, "call_method", "requires_grad_", [result]) if "requires_grad" in given else result


@constructor(torch.autograd.Variable)
def variable(
    tx: Frame,
    cls: VariableTracker,
    data: VariableTracker | None = None,
    requires_grad: VariableTracker = FALSE,
    volatile: VariableTracker = FALSE,
) -> VariableTracker:
    """The legacy name of a tensor: another one with the same data, without its history."""
    if not isinstance(data, TensorVariable) or tx.tr.overrides is not None or not _is_default(volatile):
        return unsupported("type-creation", "torch.autograd.Variable of something else than a tensor")
    made = tx.tr.graph.call(tx, "call_method", "detach", [data])
    return (
        made
        if _is_default(requires_grad)
        else tx.tr.graph.call(tx, "call_method", "requires_grad_", [made, requires_grad])
    )


@builtin(torch.asarray)
def asarray(tx: Frame, obj: VariableTracker, **options: VariableTracker) -> VariableTracker:
    """`torch.asarray`: the same as `as_tensor` for arrays, sequences of tensors and numbers that vary."""
    _check_sequences(obj)
    stacks = _tensors_within(obj) and not isinstance(obj, TensorVariable)
    if stacks or isinstance(obj, ArrayVariable) or _has_numbers(obj):
        options = {name: v for name, v in options.items() if not (_has_numbers(obj) and _is_idle(name, v))}
        if set(options) <= {"dtype", "device"}:
            return as_tensor(tx, obj, **options)
    return tx.tr.graph.call(tx, "call_function", torch.asarray, [_known(obj)], options)


def _is_idle(option: str, value: VariableTracker) -> bool:
    """Whether an option of `torch.asarray` is what it does with numbers anyway."""
    text = f"{option}={value.as_python_constant()!r}" if value.is_python_constant() else ""
    return text in ("copy=None", "copy=True", "requires_grad=False")


@builtin(torch.as_tensor)
def as_tensor(tx: Frame, data: VariableTracker, **options: VariableTracker) -> VariableTracker:
    """`torch.as_tensor`: an array's tensor has its memory."""
    _check_sequences(data)
    if isinstance(data, ArrayVariable) and set(options) <= {"dtype", "device"}:
        return tensor_of_array(tx, data, {k: v for k, v in options.items() if not is_none(v)}, copy=False)
    if holds_scalars(data) or (_tensors_within(data) and not isinstance(data, TensorVariable)):
        return tensor(tx, data, **options)
    if _has_numbers(data):
        return tensor(tx, data, **options)
    return tx.tr.graph.call(tx, "call_function", torch.as_tensor, [data], options)


# -- numbers that vary, or that data decide


def is_varying_int(vt: VariableTracker) -> bool:
    """Whether it is an int that varies."""
    return isinstance(vt, SymNodeVariable) and vt.python_type() is int


def _has_numbers(vt: VariableTracker) -> bool:
    """Whether a nested sequence has numbers that `torch.tensor` would ask for."""
    if isinstance(vt, ListVariable | TupleVariable):
        return any(map(_has_numbers, vt.items))
    return isinstance(vt, SymNodeVariable)


def _known(vt: VariableTracker) -> VariableTracker:
    """A nested sequence with the numbers that vary as constants: compilers take ints that `torch.tensor` asks for for 32 bits."""
    if isinstance(vt, ListVariable | TupleVariable) and _has_numbers(vt):
        return ListVariable([_known(item) for item in vt.items])
    return specialized(vt) if isinstance(vt, SymNodeVariable) else vt


def tensor_of_numbers(tx: Frame, vt: VariableTracker, options: dict[str, VariableTracker]) -> VariableTracker:
    """A nested sequence of numbers, some of which vary, as a tensor. `torch.tensor` would ask for them."""
    call = tx.tr.graph.call
    if isinstance(vt, ListVariable | TupleVariable):
        items = [tensor_of_numbers(tx, item, options) for item in vt.items]
        return call(tx, "call_function", torch.stack, [ListVariable(items)])
    return call(tx, "call_function", torch.scalar_tensor, [vt], options)


def _of_numbers(tx: Frame, data: VariableTracker, given: dict[str, VariableTracker]) -> VariableTracker | None:
    """`torch.tensor` of numbers that vary, beside constant ones; None where they have to be known: in sequences that are no regular array,
    and for dtypes that not every such number fits into."""
    form = _form_of(data)
    if form is None or not set(given) <= {"dtype", "device"}:
        return None
    default = {bool: torch.bool, int: torch.int64, float: torch.get_default_dtype()}[form.kind]
    dtype = given.get("dtype", ConstantVariable(default))
    wanted = dtype.as_python_constant()
    if form.kind is not bool and not (wanted.is_floating_point if form.kind is float else wanted in _WIDE):
        return None
    if wanted is torch.float32 and not _are_single(data):
        return None  # an infinity, where `scalar_tensor` raises
    return tensor_of_numbers(tx, data, {**given, "dtype": dtype})


def _are_single(vt: VariableTracker) -> bool:
    """Whether floats that vary are in the range of float32."""
    if isinstance(vt, ListVariable | TupleVariable):
        return all(map(_are_single, vt.items))
    if not isinstance(vt, SymNodeVariable) or not isinstance(vt.proxy, FloatValue):
        return not isinstance(vt, ConstantVariable) or type(vt.value) is not float or _is_single(vt.value)
    return bool(vt.proxy.decide(_is_single, vt.proxy))


def _is_single(number: float) -> bool:
    return not math.isfinite(number) or abs(number) <= _MOST


_MOST = torch.finfo(torch.float32).max


_WIDE = (torch.int64, torch.float32, torch.float64)


class _Form(NamedTuple):
    """Of a nested sequence of numbers."""

    shape: tuple[int, ...]
    kind: type
    """The widest of those of its numbers: bool, int, float."""


def _form_of(vt: VariableTracker) -> _Form | None:
    """The form of a nested sequence of numbers; None for anything else."""
    if isinstance(vt, ListVariable | TupleVariable):
        forms = [_form_of(item) for item in vt.items]
        shapes = {form and form.shape for form in forms}
        inner = shapes.pop() if len(shapes) == 1 else None
        kinds = [form.kind for form in forms if form is not None]
        return None if inner is None else _Form((len(vt.items), *inner), max(kinds, key=_KINDS.index))
    kind = type(vt.value) if isinstance(vt, ConstantVariable) else vt.python_type()
    return _Form((), kind) if kind in _KINDS and isinstance(vt, ConstantVariable | SymNodeVariable) else None


_KINDS = (bool, int, float)


def _is_default(vt: VariableTracker) -> bool:
    return is_none(vt) or vt.is_python_constant() and vt.as_python_constant() is False


def _dtypes_within(vt: VariableTracker) -> list[torch.dtype]:
    """The dtype that torch infers for each item of nested sequences."""
    if isinstance(vt, ListVariable | TupleVariable):
        return [dtype for item in vt.items for dtype in _dtypes_within(item)]
    if isinstance(vt, TensorVariable | ArrayVariable):
        return [vt.proxy.meta.dtype]
    if not vt.is_python_constant() or not isinstance(vt.as_python_constant(), (bool, int, float, complex)):
        return unsupported("data-dependent-operator", "torch.tensor of tensors and other values")
    return [torch.tensor(vt.as_python_constant()).dtype]


def _stack(tx: Frame, vt: VariableTracker, dtype: torch.dtype) -> VariableTracker:
    """The nested sequence as one tensor."""
    call = tx.tr.graph.call
    if isinstance(vt, ListVariable | TupleVariable):
        items = [_stack(tx, item, dtype) for item in vt.items]
        return call(tx, "call_function", torch.stack, [ListVariable(items)])
    if not isinstance(vt, TensorVariable | ArrayVariable):
        return call(tx, "call_function", torch.tensor, [vt], {"dtype": ConstantVariable(dtype)})
    value: VariableTracker = ValueVariable(vt.proxy)
    if vt.proxy.meta.device.type != "cpu":
        value = call(tx, "call_method", "to", [value, ConstantVariable(torch.device("cpu"))])
    if vt.proxy.meta.dtype is not dtype:
        value = call(tx, "call_method", "to", [value, ConstantVariable(dtype)])
    return call(tx, "call_method", "reshape", [value, TupleVariable([])]) if isinstance(vt, TensorVariable) else value


def legacy_of_numbers(
    tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker], dtype: torch.dtype, device: object
) -> VariableTracker | None:
    """A legacy constructor's tensor of a sequence of numbers some of which vary; None for other arguments, such as sizes."""
    if kwargs or len(args) != 1 or not isinstance(args[0], ListVariable | TupleVariable) or not _has_numbers(args[0]):
        return None
    return _of_numbers(tx, args[0], {"dtype": ConstantVariable(dtype), "device": ConstantVariable(device)})


def _check_data(args: tuple[VariableTracker, ...], dtype: torch.dtype, what: str) -> None:
    """Break for sequences of tensors, and of numpy's scalars that torch converts to another number."""
    if any(_tensors_within(a) and not isinstance(a, TensorVariable) for a in args):
        unsupported("data-dependent-operator", f"{what} of tensors")
    if not (dtype.is_floating_point or dtype.is_complex) and any(map(holds_inexact_scalars, args)):
        unsupported("numpy", f"{what} of numpy's scalars")


@constructor(*_CLASSES)
def legacy_tensor_new(
    tx: Frame, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    real = cls.as_python_constant()
    if len(args) == 1 and isinstance(args[0], ArrayVariable) and not kwargs and not real.is_cuda:
        return tensor_of_array(tx, args[0], {"dtype": ConstantVariable(real.dtype)}, copy=False)
    _check_data(args, real.dtype, cls.describe())
    given, named = with_named_size(list(args), kwargs)
    made = legacy_of_numbers(tx, given, named, real.dtype, torch.device("cuda" if real.is_cuda else "cpu"))
    return made or tx.tr.graph.call(tx, "call_function", real, given, named)


@method(torch.Tensor.new)
def tensor_new(tx: Frame, self: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """`Tensor.new`: a legacy constructor that takes dtype and device from a tensor."""
    meta = self.proxy.meta
    if len(args) == 1 and isinstance(args[0], ArrayVariable) and not kwargs and meta.device.type == "cpu":
        return tensor_of_array(tx, args[0], {"dtype": ConstantVariable(meta.dtype)}, copy=False)
    _check_data(args, meta.dtype, "Tensor.new")
    given, named = with_named_size(list(args), kwargs)
    made = legacy_of_numbers(tx, given, named, meta.dtype, meta.device)
    return made or tx.tr.graph.call(tx, "call_method", "new", [self, *given], named)


@method(torch.Tensor.new_tensor)
def tensor_new_tensor(
    tx: Frame, self: TensorVariable, data: VariableTracker, **options: VariableTracker
) -> VariableTracker:
    """`Tensor.new_tensor`: `torch.tensor` with dtype and device of a tensor."""
    dtype = options.get("dtype")
    wanted = self.proxy.meta.dtype if dtype is None or is_none(dtype) else as_dtype(dtype.as_python_constant())
    if isinstance(data, ArrayVariable) and set(options) <= {"dtype"} and self.proxy.meta.device.type == "cpu":
        return tensor_of_array(tx, data, {"dtype": ConstantVariable(wanted)}, copy=True)
    if _has_numbers(data):
        defaults = {"dtype": ConstantVariable(wanted), "device": ConstantVariable(self.proxy.meta.device)}
        return tensor(tx, data, **{**defaults, **{k: v for k, v in options.items() if not is_none(v)}})
    if not isinstance(data, TensorVariable):
        _check_data((data,), wanted, "Tensor.new_tensor")
    return tx.tr.graph.call(tx, "call_method", "new_tensor", [self, data], options)


@method(type(torch.FloatTensor).__instancecheck__)
def legacy_instancecheck(tx: Frame, cls: TypeVariable, obj: VariableTracker) -> VariableTracker:
    """A legacy class stands for a dtype and a kind of device."""
    if not isinstance(obj, TensorVariable):
        return FALSE
    if obj.proxy.is_fake:
        return unsupported(FAKE_INPUTS, f"whether it is a {cls.describe()}")
    meta, real = obj.proxy.meta, cls.as_python_constant()
    sample = torch.empty(0, dtype=meta.dtype) if meta.device.type == "cpu" and not meta.live else None
    if sample is not None:
        return boolean(isinstance(sample, real))
    same_device = real.is_cuda == (meta.device.type == "cuda") and meta.device.type in ("cpu", "cuda")
    return boolean(same_device and real.dtype == meta.dtype and real.layout == meta.layout)
