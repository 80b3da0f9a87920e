"""Numpy: scalars and dtypes are constants, arrays are tensors of the graph.

Input: real numpy objects, and calls of numpy's functions. Output: constants; `ArrayVariable`s; nodes that call `torch._numpy`.
Invariant: numpy is not imported here: if the program (or torch) has not loaded it, there is nothing to model.
Mirrors `numpy/_core/src/multiarray`, `torch/csrc/utils/tensor_numpy.cpp`.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.config import config
from dynamo_lite.dynamism import dynamic_shapes
from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core import functional
from dynamo_lite.graph.core.arguments import Packing, packs
from dynamo_lite.graph.core.functional import transforms_around
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import tp_name
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.number import CONVERTING
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import COMPARE_OPS
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, constant_slot, fold
from dynamo_lite.variables.protocol.descr import DescriptorVariable
from dynamo_lite.variables.protocol.dispatch import HANDLERS, PURE, builtin
from dynamo_lite.variables.protocol.wrap import builds, builds_subclasses, guarded
from dynamo_lite.variables.torch.tensor import (
    FOREIGN_ARGUMENTS,
    FOREIGN_OPERANDS,
    TensorVariable,
    ValueVariable,
    has_numbers,
)
from dynamo_lite.variables.torch.tensor import operate as operate_on_tensors

from . import scalarmath
from .arrays import ArrayVariable, alias, array_in_memory_of, numpy_dtype
from .calls import NumpyCall, call_numpy
from .known import known_number, known_values
from .scalarmath import ScalarVariable, any_within, varies

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

numpy: Any = sys.modules.get("numpy")

# -- scalars among tensors


def _category(dtype: torch.dtype) -> int:
    """Bools, ints, floats, complex numbers: of a number among tensors only this counts for the dtype of a result."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else int(dtype is not torch.bool)


def is_taken_as_real(cls: type) -> bool:
    """Whether torch takes the real part of a complex number of numpy's: it is no complex number of Python's."""
    return issubclass(cls, numpy.complexfloating) and not issubclass(cls, complex)


def among_tensors(tx: Frame, scalar: ArrayVariable, tensors: list[TensorVariable]) -> VariableTracker:
    """A tensor that takes part in an operator as the scalar's number does: torch knows its class, not its dtype. In a graph it is a tensor
    without dimensions, whose dtype counts more."""
    if not scalar.is_scalar or scalar.cls is numpy.bool_:  # of which torch makes a float
        return unsupported("graph-argument-type", scalar.describe())
    if is_taken_as_real(scalar.cls):
        return unsupported("graph-argument-type", f"{scalar.describe()}, of which torch takes the real part")
    value = ValueVariable(scalar.proxy)
    dtype = functools.reduce(torch.promote_types, [t.proxy.meta.dtype for t in tensors])
    category = _category(scalar.proxy.meta.dtype)
    if category <= _category(dtype):
        if all(t.proxy.meta.ndim for t in tensors):
            return value
    elif category == 2:
        dtype = torch.get_default_dtype()
    else:
        dtype = torch.int64 if category == 1 else torch.promote_types(dtype, torch.get_default_dtype()).to_complex()
    if dtype in (torch.float16, torch.bfloat16):
        return unsupported("graph-argument-type", f"{scalar.describe()} beside {dtype}")  # computed with more digits
    return tx.tr.graph.call(tx, "call_method", "to", [value, ConstantVariable(dtype)])


def _operate_on_tensors(tx: Frame, function: Callable[..., Any], args: list[VariableTracker]) -> VariableTracker:
    """An operator on a tensor and a scalar, or an array."""
    tensors = [a for a in args if isinstance(a, TensorVariable)]
    if function is operator.setitem and isinstance(args[2], ArrayVariable) and args[2].is_scalar and len(tensors) == 1:
        return operate_on_tensors(tx, function, [*args[:2], ValueVariable(args[2].proxy)])
    if function not in _AMONG_TENSORS:
        return unsupported("graph-argument-type", f"operator.{function.__name__} of tensors and numpy's numbers")
    made = [among_tensors(tx, a, tensors) if isinstance(a, ArrayVariable) else a for a in args]
    if made[1] is tensors[0] and function in (
        operator.add,
        operator.mul,
    ):  # halves are computed with the digits of the second operand
        made.reverse()
    elif made[1] is tensors[0] and function is operator.truediv:  # what `Tensor.__rtruediv__` does
        inverse = tx.tr.graph.call(tx, "call_method", "reciprocal", [made[1]])
        return operate_on_tensors(tx, operator.mul, [inverse, made[0]])
    return operate_on_tensors(tx, function, made)


_AMONG_TENSORS = frozenset(
    {
        *COMPARE_OPS.values(),
        *(getattr(operator, f"{prefix}{name}") for name in ("add", "sub", "mul", "truediv") for prefix in ("", "i")),
    }
)
"""Operators that round in the same way whether a number or a tensor takes part."""


def _with_tensors(
    tx: Frame, fn: Callable[..., Any], args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> list[VariableTracker]:
    """The arguments of a function or method of torch's, with tensors where scalars stand for a number or a tensor."""
    name = getattr(fn, "__name__", "")
    position = _TAKES_NUMBERS.get(name)
    if kwargs or position is None or len(args) <= position or not isinstance(args[position], TensorVariable):
        numbers = [_known_number(tx, a) if isinstance(a, ArrayVariable) else a for a in args]
        if None not in numbers:
            return numbers
        return unsupported("graph-argument-type", f"{name} of numpy's arrays or numbers")
    tensor = args[position]
    made = [among_tensors(tx, a, [tensor]) if isinstance(a, ArrayVariable) else a for a in args]
    if name in _KEEP_DTYPE and any(
        _category(a.proxy.meta.dtype) > _category(tensor.proxy.meta.dtype)
        for a in made
        if isinstance(a, TensorVariable)
    ):
        return unsupported("graph-argument-type", f"{name} of a number of another kind")
    return made


def _known_number(tx: Frame, array: ArrayVariable) -> VariableTracker | None:
    """The constant that a scalar of numpy's is, None if data decide it."""
    known = known_number(tx.tr.graph, array) if array.is_scalar else None
    return None if known is None else ConstantVariable(array.cls(known))


def _constant_if_known(tx: Frame, vt: VariableTracker) -> VariableTracker:
    """The argument of a function of numpy's; a scalar that follows from constants of the graph as a constant, since it may be a size."""
    return (_known_number(tx, vt) if isinstance(vt, ArrayVariable) else None) or vt


@packs(ArrayVariable)
def _pack_number(packing: Packing, array: ArrayVariable) -> Any:
    """A number of 64 bits among sizes or positions, as one of Python's; of smaller ones torch may ask for the dtype."""
    known = known_number(packing.builder, array) if array.cls is numpy.int64 else None
    if known is None:
        return unsupported("graph-argument-type", f"{array.cls.__name__} {array.describe()}")
    return packing.constant(known)


_KEEP_DTYPE = frozenset({"masked_fill", "masked_fill_", "fill_"})
_TAKES_NUMBERS = {
    **dict.fromkeys(("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "true_divide"), 0),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "clamp", "clip", "clamp_min", "clamp_max"), 0),
    **dict.fromkeys(_KEEP_DTYPE, 0),
    "where": 1,
}
"""Function → position of the tensor whose dtype decides."""


class NumpyFunctionVariable(DescriptorVariable):
    """A ufunc or array function. Of constants a number is computed; everything else goes into the graph."""

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return call_function(tx, self.value, args, kwargs)


def call_function(tx: Frame, real: Any, args: list[VariableTracker], kwargs: dict[str, Any]) -> VariableTracker:
    """Call a function of numpy's namespaces."""
    if getattr(real, "__name__", "") in _WITH_EFFECTS:
        return unsupported("numpy", f"numpy.{real.__name__}")
    if real is numpy.asanyarray:
        real = numpy.asarray  # there are no arrays of subclasses here
    args = [_constant_if_known(tx, vt) for vt in args]
    kwargs = {name: _constant_if_known(tx, vt) for name, vt in kwargs.items()}
    if real in _OF_DTYPES:
        found = NumpyCall(real.__name__, real, args, kwargs).expected()
        return tx.tr.wrap_new(found)
    if any(_holds_tensor(vt) for vt in (*args, *kwargs.values())):
        return _call_on_tensors(tx, real, args, kwargs)
    if real is numpy.diag and args and isinstance(args[0], ArrayVariable) and args[0].proxy.meta.ndim == 2:
        real, kwargs = numpy.diagonal, {"offset" if name == "k" else name: value for name, value in kwargs.items()}
    if any(map(varies, (*args, *kwargs.values()))):
        name = getattr(real, "__name__", "")
        is_known = getattr(numpy, name, None) is real
        found = scalarmath.call_on_numbers(tx, name, real, args, kwargs) if is_known else None
        if found is not None:
            return found
    if not any(_holds_data(vt) for vt in (*args, *kwargs.values())):
        folded = _folded(tx, real, args, kwargs)
        if folded is not None:
            return folded
    module = (getattr(real, "__module__", None) or "numpy").removeprefix("numpy").removeprefix(".")
    path = f"{module}.{real.__name__}" if module in ("linalg", "fft") else real.__name__
    if module not in ("", "linalg", "fft") or not _has(path):
        return unsupported("numpy", f"numpy.{path}")
    return call_numpy(tx, path, real, args, kwargs)


_OF_DTYPES = (
    () if numpy is None else (numpy.can_cast, numpy.common_type, numpy.isscalar, numpy.promote_types, numpy.result_type)
)
"""Functions that look at classes and dtypes only."""


def _holds_data(vt: VariableTracker) -> bool:
    return any_within(vt, lambda item: not item.is_python_constant())


def _holds_tensor(vt: VariableTracker) -> bool:
    return any_within(vt, lambda item: isinstance(item, TensorVariable))


def _folded(
    tx: Frame, real: Any, args: Iterable[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """The result of a call on Python numbers, None for an array, which is a new one at each call."""
    host = NumpyCall(getattr(real, "__name__", ""), real, [], {})
    host_args, host_kwargs = list(map(host.sample, args)), {name: host.sample(value) for name, value in kwargs.items()}
    if host.samples:
        return None
    try:
        result = real(*host_args, **host_kwargs)
    except Exception as error:
        return tx.raises_like(error)
    return None if isinstance(result, numpy.ndarray) else tx.tr.wrap_new(result)


# -- tensors as arguments


def _call_on_tensors(tx: Frame, real: Any, args: list[VariableTracker], kwargs: dict[str, Any]) -> VariableTracker:
    """numpy makes an array of each tensor; the result of a ufunc becomes a tensor again (`Tensor.__array_wrap__`)."""
    implementation = getattr(real, "_implementation", None)
    if isinstance(implementation, types.FunctionType):
        return tx.call(tx.tr.build_constant_object(implementation), args, kwargs)
    tensors = [vt for vt in (*args, *kwargs.values()) if isinstance(vt, TensorVariable)]
    is_ufunc = isinstance(real, numpy.ufunc)
    if tx.tr.overrides is not None or (is_ufunc and ("out" in kwargs or len(args) != real.nin or not tensors)):
        return unsupported("numpy", f"{real.__name__} of tensors")
    arrays = [_array_of(tx, vt) for vt in args]
    found = call_function(tx, real, arrays, {name: _array_of(tx, vt) for name, vt in kwargs.items()})
    if not is_ufunc:
        return found
    if not isinstance(found, ArrayVariable):
        return unsupported("numpy", f"{real.__name__} of tensors")
    array = ArrayVariable(found.proxy, numpy.ndarray, found.layout, found.made_at)
    if found.proxy.meta.dtype is torch.bool:  # what `Tensor.__array_wrap__` does
        array = call_numpy(tx, "ndarray.astype", numpy.ndarray.astype, [array, ConstantVariable("uint8")])
    return from_numpy(tx, array)


def _array_of(tx: Frame, vt: VariableTracker) -> VariableTracker:
    """`__array__` of the tensors within an argument."""
    if isinstance(vt, TensorVariable):
        return tensor_numpy(tx, vt)
    if isinstance(vt, ListVariable | TupleVariable) and _holds_tensor(vt):
        items = [_array_of(tx, item) for item in vt.items]
        return ListVariable(items) if isinstance(vt, ListVariable) else TupleVariable(items)
    return vt


def _has(path: str) -> bool:
    try:
        operator.attrgetter(path)(sys.modules.get("torch._numpy") or functional.import_module("torch._numpy"))
    except AttributeError:
        return False
    return True


# -- between arrays and tensors


def as_tensor(array: Any) -> Any:
    """The tensor in the memory of an array, None if there is none."""
    if not array.flags.writeable:
        return None
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):
        return None


def build_array(tr: Trace, value: Any, source: GuardNode | None) -> VariableTracker:
    tensor = as_tensor(value) if config.trace_numpy and type(value) is numpy.ndarray else None
    if tensor is None:
        return unsupported("numpy", f"{type(value).__name__} of {value.dtype}")
    tr.guard(source, ir.TYPE_IS, numpy.ndarray)
    vt = ArrayVariable(tr.graph.outside.value(tensor, tr.source(source, ir.CALL, as_tensor)), numpy.ndarray)
    vt.source, vt.value = source, value
    tr.heap.keep_alive.append(tensor)
    return vt


def tensor_numpy(tx: Frame, self: TensorVariable, *, force: VariableTracker | None = None) -> VariableTracker:
    """`Tensor.numpy`. The wrappers of tensors that a transform's function works with have no memory that an array could have."""
    if transforms := transforms_around(tx.tr.graph):
        return unsupported("numpy", f"Tensor.numpy inside of {transforms[-1]}")
    meta = self.proxy.meta
    forced = force is not None and force.as_python_constant()
    if not config.trace_numpy or meta.device.type != "cpu" or (meta.requires_grad and not forced):
        return unsupported("numpy", "Tensor.numpy")
    if numpy_dtype(meta.dtype) is None:
        return unsupported("numpy", f"Tensor.numpy of {meta.dtype}")
    return array_in_memory_of(tx, self)


def from_numpy(tx: Frame, array: VariableTracker) -> VariableTracker:
    """`torch.from_numpy`: a tensor in the same memory."""
    cls = array.python_type()
    if not issubclass(cls, numpy.ndarray):
        return tx.raises(TypeError, f"expected np.ndarray (got {tp_name(cls)})")
    if not isinstance(array, ArrayVariable) or not array.layout.writeable or array.layout.strides is not None:
        return unsupported("numpy", f"from_numpy of {array.describe()}")
    return alias(tx, array)


def tensor_of_array(tx: Frame, array: ArrayVariable, options: dict[str, Any], copy: bool) -> VariableTracker:
    """`torch.tensor` (a copy) or `torch.as_tensor` of an array."""
    result = alias(tx, array)
    if copy:
        result = tx.tr.graph.call(tx, "call_method", "clone", [result])
    target = {name: value for name, value in options.items() if name in ("dtype", "device")}
    return tx.tr.graph.call(tx, "call_method", "to", [result], target) if target else result


# -- constants


_build_by_value = guarded(ir.EQUALS, ConstantVariable)


def item_of(scalar: Any) -> Any:
    """The Python number that a scalar of numpy's is."""
    return scalar.item()


def build_scalar(tr: Trace, value: Any, source: GuardNode | None) -> VariableTracker:
    """A number: a constant, or one that varies as Python's numbers do."""
    model = scalarmath.MODELS.get(type(value))
    if model is None:
        return _build_by_value(tr, value, source)
    tr.guard(source, ir.TYPE_IS, type(value))
    node = tr.source(source, ir.CALL, item_of)
    dynamic_shapes.take_for_data(tr, node)
    number = tr.build(value.item(), node)
    return model(type(value), number, value, source) if number.is_symbolic else ConstantVariable(value, source)


def _scalar_item(vt: ConstantVariable, tx: Frame, key: VariableTracker) -> VariableTracker:
    return unsupported("numpy", f"item of a {type(vt.value).__name__}")


def _scalar_index(vt: ConstantVariable, tx: Frame) -> VariableTracker:
    return fold(tx, operator.index, [vt], {})


def holds_scalars(vt: VariableTracker) -> bool:
    """Whether an object is, or is a sequence with, a scalar of numpy, which has a dtype of its own."""
    return any_within(vt, _is_scalar)


def holds_inexact_scalars(vt: VariableTracker) -> bool:
    """Whether an object is, or is a sequence with, a scalar of numpy that torch does not store in a tensor of integers: one that has
    no `__index__` and is no Python float."""
    return any_within(vt, lambda v: _is_scalar(v) and not issubclass(v.python_type(), numpy.integer | float))


def _is_scalar(vt: VariableTracker) -> bool:
    known = numpy is not None and isinstance(vt, ConstantVariable) and isinstance(vt.value, numpy.generic)
    return known or isinstance(vt, ScalarVariable)


def host_number(value: Any) -> Any:
    """A numpy scalar as the Python number that a graph can hold; anything else as it is. torch does not take every truth of numpy's
    for one, and refuses what has no room in 64 bits with a sign."""
    if numpy is None or not isinstance(value, numpy.generic):
        return value
    too_large = isinstance(value, numpy.unsignedinteger) and value > numpy.iinfo("int64").max
    if type(value) is numpy.bool_ or too_large or is_taken_as_real(type(value)):
        return unsupported("numpy", f"a {type(value).__name__} of numpy's as an argument")
    return value.item()


def _python_numbers(value: Any) -> VariableTracker:
    return ListVariable(list(map(_python_numbers, value))) if isinstance(value, list) else ConstantVariable(value)


def _method_handler(name: str, raw: Any) -> Any:
    def handler(tx: Frame, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if name in ("item", "tolist") and not args and not kwargs:
            known = known_values(tx.tr.graph, self)
            if known is not None and (name == "tolist" or known.numel() == 1):
                return _python_numbers(known.tolist() if name == "tolist" else known.item())
            if has_numbers(tx):
                return self.number(tx, lambda number: number)
        if name in _DATA_METHODS or not _has(f"ndarray.{name}"):
            return unsupported("data-dependent-operator" if name in _DATA_METHODS else "numpy", f"ndarray.{name}")
        return call_numpy(tx, f"ndarray.{name}", raw, [self, *args], kwargs)

    return handler


def array_view(
    tx: Frame, self: VariableTracker, dtype: VariableTracker | None = None, type: VariableTracker | None = None
) -> VariableTracker:
    """`ndarray.view`."""
    given = [vt for vt in (dtype, type) if vt is not None]
    if not isinstance(self, ArrayVariable) or self.is_scalar or type is not None:
        return unsupported("numpy", "ndarray.view")
    call = NumpyCall("ndarray.view", numpy.ndarray.view, [self, *given], {})
    expected, made = call.expected(), array_in_memory_of(tx, self)
    target = getattr(torch, str(getattr(expected, "dtype", None)), None)
    if target is None or not isinstance(expected, numpy.ndarray):
        return unsupported("numpy", f"ndarray.view as {getattr(expected, 'dtype', expected)}")
    if given:
        made = tx.tr.graph.call(tx, "call_method", "view", [ValueVariable(made.proxy), ConstantVariable(target)])
    return call.result(tx, expected, made)


def _scalar_method_handler(name: str, raw: object) -> Any:
    def handler(tx: Frame, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if isinstance(self, ArrayVariable):
            return _method_handler(name, raw)(tx, self, *args, **kwargs)
        found = scalarmath.call_method(tx, raw, self, list(args), kwargs)
        if found is None:
            found = _folded(tx, raw, *scalarmath.all_constants((self, *args), kwargs))
        return unsupported("numpy", f"{self.python_type().__name__}.{name}") if found is None else found

    return handler


def _function_handler(real: object) -> Any:
    return lambda tx, *args, **kwargs: call_function(tx, real, list(args), kwargs)


def model_functions(*modules: types.ModuleType) -> None:
    """Model the functions of parts of numpy that are not ufuncs and do not dispatch on their arguments."""
    for module in modules:
        for function in vars(module).values():
            if isinstance(function, types.BuiltinFunctionType | types.FunctionType):
                HANDLERS.setdefault(function, _function_handler(function))


# Functions that read or write files or settings, call functions of the program, or consume iterators.
_WITH_EFFECTS = frozenset(
    "show_config show_runtime info get_include fromfile fromregex genfromtxt load loadtxt save savetxt savez savez_compressed"
    " printoptions set_printoptions get_printoptions array2string array_repr array_str setbufsize getbufsize"
    " seterr geterr seterrcall geterrcall fromfunction fromiter frompyfunc nested_iters piecewise apply_along_axis apply_over_axes"
    " mask_indices".split()
)
_DATA_METHODS = ("item", "tolist", "tobytes", "dump", "dumps", "tofile", "byteswap", "setflags")


def _fill_tables_of_limits() -> None:
    """numpy keeps the limits of a dtype in tables and objects of its own when they are first asked for. Filled in the analysis they are
    changes of the program, and a second version at its next call."""
    for code in numpy.typecodes["AllInteger"]:
        limits = numpy.iinfo(code)
        limits.min, limits.max  # noqa: B018  # fills the tables
    for dtype in (numpy.float16, numpy.float32, numpy.float64):
        limits = numpy.finfo(dtype)
        for name, attribute in vars(numpy.finfo).items():
            if isinstance(attribute, functools.cached_property):
                getattr(limits, name)


FOREIGN_OPERANDS[ArrayVariable] = _operate_on_tensors
FOREIGN_ARGUMENTS[ArrayVariable] = _with_tensors

if numpy is not None:
    _fill_tables_of_limits()
    builds_subclasses(numpy.dtype)(_build_by_value)
    builds_subclasses(numpy.generic)(build_scalar)
    constant_slot("mp_subscript", numpy.generic)(_scalar_item)
    constant_slot("nb_index", numpy.integer)(_scalar_index)
    CONVERTING.append(numpy.generic)
    builds_subclasses(numpy.ndarray)(build_array)
    builds(numpy.ufunc, type(numpy.sum))(guarded(ir.IS, NumpyFunctionVariable))
    PURE.update({numpy.dtype, numpy.finfo})
    PURE.add(getattr(getattr(numpy.lib, "array_utils", None), "normalize_axis_index", numpy.dtype))
    for _name, _raw in vars(numpy.ndarray).items():
        if isinstance(_raw, types.MethodDescriptorType):
            HANDLERS[_raw] = _method_handler(_name, _raw)
    HANDLERS[numpy.ndarray.view] = array_view
    for _raw, _name in scalarmath.METHODS.items():
        HANDLERS[_raw] = _scalar_method_handler(_name, _raw)
    model_functions(numpy, numpy.linalg)
    builtin(torch.from_numpy)(from_numpy)
    HANDLERS[torch.Tensor.numpy] = tensor_numpy
