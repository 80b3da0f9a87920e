"""Numpy: scalars and dtypes are constants, arrays are tensors of the graph.

Input: real numpy objects, and calls of numpy's functions. Output: constants; `ArrayVariable`, whose operators become nodes that call
`torch._numpy`; a break for what that does not have.
Invariant: numpy is not imported here: if the program (or torch) has not loaded it, there is nothing to model. What kind of result a
call has (array or scalar, dtype, shape) is asked of numpy itself, with samples of the arguments' metadata; where torch gives another,
the call is a break.
Mirrors `numpy/_core/src/multiarray` and `torch/_numpy`.
"""

from __future__ import annotations

import operator
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..config import config
from ..exc import NotConstant, unsupported
from ..graph import functional
from ..graph.values import TensorValue
from ..guards import ir
from . import scalarmath
from .abstract import BINARY_OPS, COMPARE_OPS, UNARY_OPS
from .base import MISSING, VariableTracker
from .constant import NOT_IMPLEMENTED, ConstantVariable, constant_slot, fold
from .descr import DescriptorVariable
from .dict import DictVariable
from .dispatch import HANDLERS, PURE, builtin
from .function import MethodVariable
from .list import ListVariable
from .number import CONVERTING
from .scalarmath import ScalarVariable, any_within, varies
from .tensor import TensorVariable, ValueVariable, metadata
from .tuple import TupleVariable
from .wrap import builds, builds_subclasses

numpy: Any = sys.modules.get("numpy")

# -- arrays


class ArrayVariable(VariableTracker):
    """An array, or a scalar that numpy computed from arrays. `proxy` is a tensor of the graph with the same memory."""

    def __init__(self, proxy: TensorValue, cls: type) -> None:
        self.proxy = proxy
        self.cls = cls
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

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        known = _FROM_META.get(name)
        if known is not None:
            return known(self)
        raw = getattr(self.cls, name, None)
        if isinstance(raw, types.MethodDescriptorType):
            return MethodVariable(tx.tr.build_constant_object(raw), self)
        if name in _VIEWS:
            return call_numpy(tx, f"ndarray.{name}", _VIEWS[name], [self])
        if raw is None:
            return tx.raises(
                AttributeError, f"'{self.cls.__module__}.{self.cls.__name__}' object has no attribute '{name}'"
            )
        return unsupported("numpy", f"{self.cls.__name__}.{name}")

    # -- operators

    def tp_richcompare(self, tx: Any, other: VariableTracker, op: str) -> VariableTracker:
        return operate(tx, COMPARE_OPS[op], [self, other])

    def nb_bool(self, tx: Any) -> VariableTracker:
        return unsupported("data-dependent-branch", self.describe())

    def nb_index(self, tx: Any) -> VariableTracker:
        return unsupported("data-dependent-operator", f"a number from {self.describe()}")

    nb_int = nb_float = nb_index

    def tp_repr(self, tx: Any) -> VariableTracker:
        return unsupported("format", self.describe())

    # -- container

    def mp_length(self, tx: Any) -> VariableTracker:
        if not self.proxy.meta.ndim:
            return tx.raises(TypeError, "len() of unsized object")
        return metadata(self, self.proxy.meta.shape[0], "size", 0)

    def mp_subscript(self, tx: Any, key: VariableTracker) -> VariableTracker:
        return operate(tx, operator.getitem, [self, key])

    def mp_ass_subscript(self, tx: Any, key: VariableTracker, value: VariableTracker | None) -> None:
        if value is None:
            tx.raises(ValueError, "cannot delete array elements")
        operate(tx, operator.setitem, [self, key, value])

    def sq_contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        return unsupported("data-dependent-operator", "element in array")

    def tp_iter(self, tx: Any) -> VariableTracker:
        if not self.proxy.meta.ndim:
            return tx.raises(TypeError, "iteration over a 0-d array")
        n = self.mp_length(tx).as_python_constant()
        return TupleVariable([self.mp_subscript(tx, ConstantVariable(i)) for i in range(n)]).tp_iter(tx)

    # -- codegen

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(functional.to_scalar if self.is_scalar else functional.to_array)
        cg.load_graph_output(cg.tr.graph.output(self))
        cg.asm.call(1)


def _dtype(self: ArrayVariable) -> Any:
    return numpy.dtype(str(self.proxy.meta.dtype).removeprefix("torch."))


def _shape(self: ArrayVariable) -> VariableTracker:
    shape = self.proxy.meta.shape
    return TupleVariable([metadata(self, n, "size", i) for i, n in enumerate(shape)])


_VIEWS = {name: operator.attrgetter(name) for name in ("T", "imag", "real")}
_FROM_META: dict[str, Callable[[ArrayVariable], VariableTracker]] = {
    "dtype": lambda self: ConstantVariable(_dtype(self)),
    "shape": _shape,
    "ndim": lambda self: ConstantVariable(self.proxy.meta.ndim),
    "size": lambda self: metadata(self, self.proxy.meta.numel(), "numel"),
    "itemsize": lambda self: ConstantVariable(self.proxy.meta.dtype.itemsize),
}


def _is_operand(vt: VariableTracker) -> bool:
    if isinstance(vt, ArrayVariable | ListVariable | TupleVariable):
        return True
    return issubclass(vt.python_type(), (int, float, complex, numpy.generic))


def operate(tx: Any, function: Callable[..., Any], args: list[VariableTracker]) -> VariableTracker:
    """A function of the `operator` module on arrays."""
    return call_numpy(tx, f"operator.{function.__name__}", function, args)


def _binary(function: Callable[..., Any]) -> Any:
    def slot(tx: Any, v: VariableTracker, w: VariableTracker) -> VariableTracker:
        if not (_is_operand(v) and _is_operand(w)):
            return NOT_IMPLEMENTED
        return operate(tx, function, [v, w])

    return staticmethod(slot)


for _function, _row in BINARY_OPS.items():
    if _function is not divmod:
        setattr(ArrayVariable, _row.inplace or _row.slot, _binary(_function))
for _function, (_slot, _) in UNARY_OPS.items():
    setattr(ArrayVariable, _slot, lambda self, tx, f=_function: operate(tx, f, [self]))


# -- calls


def call_numpy(
    tx: Any, path: str, real: Callable[..., Any], args: list[Any], kwargs: dict[str, Any] | None = None
) -> VariableTracker:
    """Put a call into the graph. `real` is numpy's function, `path` its name for `functional.numpy_function`."""
    args, kwargs = list(map(_known_scalar, args)), {name: _known_scalar(v) for name, v in (kwargs or {}).items()}
    if not config.trace_numpy:
        return unsupported("numpy", path)
    expected = _sample_result(path, real, args, kwargs)
    named = DictVariable()
    for name, value in kwargs.items():
        named.mp_ass_subscript(tx, ConstantVariable(name), _argument(tx, path, value))
    call = [ConstantVariable(path), TupleVariable([_argument(tx, path, a) for a in args]), named]
    return _result(path, expected, tx.tr.graph.call(tx, "call_function", functional.numpy_function, call))


def _known_scalar(vt: VariableTracker) -> VariableTracker:
    """A scalar of numpy's has a dtype, which a number of the graph has not: it becomes a constant."""
    return vt.constant() if isinstance(vt, ScalarVariable) else vt


def _argument(tx: Any, path: str, vt: VariableTracker) -> VariableTracker:
    """The argument as the graph has it: arrays as tensors, numpy's scalars, whose dtype counts, too; dtypes by name."""
    if isinstance(vt, ArrayVariable):
        return ValueVariable(vt.proxy)
    if isinstance(vt, ListVariable | TupleVariable):
        items = [_argument(tx, path, item) for item in vt.items]
        return ListVariable(items) if isinstance(vt, ListVariable) else TupleVariable(items)
    if not vt.is_python_constant():
        return vt
    value = vt.as_python_constant()
    if isinstance(value, numpy.dtype | type):
        return ConstantVariable(numpy.dtype(value).name)
    dtype = getattr(torch, value.dtype.name, None) if isinstance(value, numpy.generic) else None
    if dtype is None or path in _INDEXING:
        return vt
    options = {"dtype": ConstantVariable(dtype)}
    scalar = tx.tr.graph.call(tx, "call_function", torch.tensor, [ConstantVariable(value.item())], options)
    return ValueVariable(scalar.proxy)


_INDEXING = ("operator.getitem", "operator.setitem")


def _sample_result(path: str, real: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What numpy returns for arguments with these dtypes and shapes."""
    try:
        host_args = [_sample(a) for a in args]
        host_kwargs = {name: _sample(value) for name, value in kwargs.items()}
    except NotConstant as error:
        return unsupported("numpy", f"{path}: {error}")
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return real(*host_args, **host_kwargs)
        except Exception as error:
            return unsupported("numpy", f"{path}: {error}", error)


def _sample(vt: VariableTracker) -> Any:
    if isinstance(vt, ArrayVariable):
        shape = [n if type(n) is int else n.node.hint for n in vt.proxy.meta.shape]
        sample = numpy.zeros(shape, _dtype(vt)) if _dtype(vt).kind in "iub" else _numbers(shape, _dtype(vt))
        return _dtype(vt).type(0) if vt.is_scalar else sample
    if isinstance(vt, ListVariable | TupleVariable):
        items = [_sample(item) for item in vt.items]
        return items if isinstance(vt, ListVariable) else tuple(items)
    if isinstance(vt, TensorVariable):
        raise NotConstant("a tensor as an argument")
    return vt.as_python_constant()


def _numbers(shape: list[int], dtype: Any) -> Any:
    """Numbers that make a regular matrix."""
    return (numpy.random.default_rng(0).random(shape) + 0.5).astype(dtype)


def _result(path: str, expected: Any, result: VariableTracker) -> VariableTracker:
    """The graph's result as the object that numpy would return."""
    if isinstance(expected, tuple | list):
        items = getattr(result, "items", None)
        if items is None or len(items) != len(expected) or type(expected) not in (tuple, list):
            return unsupported("numpy", f"{path} returns another structure")
        made = [_result(path, e, r) for e, r in zip(expected, items, strict=True)]
        return TupleVariable(made) if isinstance(expected, tuple) else ListVariable(made)
    if isinstance(result, ArrayVariable):
        return result  # changed in place
    if not isinstance(expected, numpy.ndarray | numpy.generic):
        if result.is_python_constant() and result.as_python_constant() == expected:
            return ConstantVariable(expected)
        return unsupported("numpy", f"{path} returns a {type(expected).__name__}")
    if not isinstance(result, TensorVariable):
        return unsupported("numpy", f"{path} returns a {result.python_type().__name__}")
    array = ArrayVariable(result.proxy, type(expected) if isinstance(expected, numpy.generic) else numpy.ndarray)
    shape = tuple([n if type(n) is int else n.node.hint for n in result.proxy.meta.shape])
    if _dtype(array) != expected.dtype or shape != expected.shape:
        return unsupported("numpy", f"{path} gives {_dtype(array)}{list(shape)} instead of {expected.dtype}")
    return array


class NumpyFunctionVariable(DescriptorVariable):
    """A ufunc or array function. Of constants a number is computed; everything else goes into the graph."""

    def tp_call(self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return call_function(tx, self.value, args, kwargs)


def call_function(tx: Any, real: Any, args: list[VariableTracker], kwargs: dict[str, Any]) -> VariableTracker:
    """Call a function of numpy's namespaces."""
    if getattr(real, "__name__", "") in _WITH_EFFECTS:
        return unsupported("numpy", f"numpy.{real.__name__}")
    if any(map(varies, (*args, *kwargs.values()))):
        name = getattr(real, "__name__", "")
        is_known = getattr(numpy, name, None) is real
        found = scalarmath.call_on_numbers(tx, name, real, args, kwargs) if is_known else None
        if found is not None:
            return found
        if not any(map(_holds_array, (*args, *kwargs.values()))):
            args, kwargs = scalarmath.all_constants(args, kwargs)
    if not any(_holds_data(vt) for vt in (*args, *kwargs.values())):
        folded = _folded(tx, real, args, kwargs)
        if folded is not None:
            return folded
    module = (getattr(real, "__module__", None) or "numpy").removeprefix("numpy").removeprefix(".")
    path = f"{module}.{real.__name__}" if module in ("linalg", "fft") else real.__name__
    if module not in ("", "linalg", "fft") or not _has(path):
        return unsupported("numpy", f"numpy.{path}")
    return call_numpy(tx, path, real, args, kwargs)


def _holds_data(vt: VariableTracker) -> bool:
    return any_within(vt, lambda item: not item.is_python_constant())


def _holds_array(vt: VariableTracker) -> bool:
    return any_within(vt, lambda item: isinstance(item, ArrayVariable | TensorVariable))


def _folded(tx: Any, real: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker | None:
    """The result of a call on Python numbers, None for an array, which is a new one at each call."""
    try:
        result = real(*map(_sample, args), **{name: _sample(value) for name, value in kwargs.items()})
    except Exception as error:
        return tx.raises_like(error)
    return None if isinstance(result, numpy.ndarray) else tx.tr.wrap_new(result)


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


def build_array(tr: Any, value: Any, source: Any) -> VariableTracker:
    tensor = as_tensor(value) if config.trace_numpy and type(value) is numpy.ndarray else None
    if tensor is None:
        return unsupported("numpy", f"{type(value).__name__} of {value.dtype}")
    tr.guard(source, ir.TYPE_IS, numpy.ndarray)
    vt = ArrayVariable(tr.graph.input_value(tensor, tr.source(source, ir.CALL, as_tensor)), numpy.ndarray)
    vt.source, vt.value = source, value
    tr.keep_alive.append(tensor)
    return vt


def _alias(tx: Any, vt: TensorVariable | ArrayVariable) -> TensorVariable:
    return tx.tr.graph.call(tx, "call_method", "detach", [ValueVariable(vt.proxy)])


def tensor_numpy(tx: Any, self: TensorVariable, *, force: VariableTracker | None = None) -> VariableTracker:
    """`Tensor.numpy`."""
    meta = self.proxy.meta
    forced = force is not None and force.as_python_constant()
    if not config.trace_numpy or meta.device.type != "cpu" or (meta.requires_grad and not forced):
        return unsupported("numpy", "Tensor.numpy")
    try:
        numpy.dtype(str(meta.dtype).removeprefix("torch."))
    except TypeError:
        return unsupported("numpy", f"Tensor.numpy of {meta.dtype}")
    return ArrayVariable(_alias(tx, self).proxy, numpy.ndarray)


def from_numpy(tx: Any, array: VariableTracker) -> VariableTracker:
    """`torch.from_numpy`: a tensor in the same memory."""
    if not isinstance(array, ArrayVariable) or array.is_scalar:
        return unsupported("numpy", f"from_numpy of a {array.python_type().__name__}")
    return _alias(tx, array)


def tensor_of_array(tx: Any, array: ArrayVariable, options: dict[str, Any], copy: bool) -> VariableTracker:
    """`torch.tensor` (a copy) or `torch.as_tensor` of an array."""
    result = _alias(tx, array)
    if copy:
        result = tx.tr.graph.call(tx, "call_method", "clone", [result])
    target = {name: value for name, value in options.items() if name in ("dtype", "device")}
    return tx.tr.graph.call(tx, "call_method", "to", [result], target) if target else result


# -- constants


def build_scalar(tr: Any, value: Any, source: Any) -> VariableTracker:
    return scalarmath.build_varying(tr, value, source) or build_by_value(tr, value, source)


def build_by_value(tr: Any, value: Any, source: Any) -> ConstantVariable:
    tr.guard(source, ir.EQUALS, value)
    return ConstantVariable(value, source)


def _scalar_item(vt: ConstantVariable, tx: Any, key: VariableTracker) -> VariableTracker:
    return unsupported("numpy", f"item of a {type(vt.value).__name__}")


def _scalar_index(vt: ConstantVariable, tx: Any) -> VariableTracker:
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


def build_function(tr: Any, value: Any, source: Any) -> NumpyFunctionVariable:
    tr.guard(source, ir.IS, value)
    return NumpyFunctionVariable(value, source)


def host_number(value: Any) -> Any:
    """A numpy scalar as the Python number that a graph can hold; anything else as it is. torch does not take every truth of numpy's
    for one."""
    if numpy is not None and type(value) is numpy.bool_:
        return unsupported("numpy", "a bool of numpy's as an argument")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def _method_handler(name: str, raw: Any) -> Any:
    def handler(tx: Any, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if name in _DATA_METHODS:
            return unsupported("data-dependent-operator", f"ndarray.{name}")
        return call_numpy(tx, f"ndarray.{name}", raw, [self, *args], kwargs)

    return handler


def _scalar_method_handler(name: str, raw: Any) -> Any:
    def handler(tx: Any, self: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        found = scalarmath.call_method(tx, raw, self, list(args), kwargs)
        if found is None:
            found = _folded(tx, raw, *scalarmath.all_constants((self, *args), kwargs))
        return unsupported("numpy", f"{self.python_type().__name__}.{name}") if found is None else found

    return handler


def _function_handler(real: Any) -> Any:
    return lambda tx, *args, **kwargs: call_function(tx, real, list(args), kwargs)


def _plain_functions() -> Iterator[Any]:
    """Those that are not ufuncs and do not dispatch on their arguments."""
    for module in (numpy, numpy.linalg, numpy.fft):
        for function in vars(module).values():
            if isinstance(function, types.BuiltinFunctionType | types.FunctionType):
                yield function


# Functions that read or write files or settings, call functions of the program, or consume iterators.
_WITH_EFFECTS = frozenset(
    "show_config show_runtime info get_include fromfile fromregex genfromtxt load loadtxt save savetxt savez savez_compressed"
    " printoptions set_printoptions get_printoptions array2string array_repr array_str setbufsize getbufsize"
    " seterr geterr seterrcall geterrcall fromfunction fromiter frompyfunc nested_iters piecewise apply_along_axis apply_over_axes"
    " mask_indices".split()
)
_DATA_METHODS = ("item", "tolist", "tobytes", "dump", "dumps", "tofile", "byteswap", "setflags")

if numpy is not None:
    builds_subclasses(numpy.generic, numpy.dtype)(build_by_value)
    builds(numpy.int64, numpy.float64)(build_scalar)
    constant_slot("mp_subscript", numpy.generic)(_scalar_item)
    constant_slot("nb_index", numpy.integer)(_scalar_index)
    CONVERTING.append(numpy.generic)
    builds_subclasses(numpy.ndarray)(build_array)
    builds(numpy.ufunc, type(numpy.sum))(build_function)
    PURE.add(numpy.dtype)
    for _name, _raw in vars(numpy.ndarray).items():
        if isinstance(_raw, types.MethodDescriptorType):
            HANDLERS[_raw] = _method_handler(_name, _raw)
    for _raw, _name in scalarmath.METHODS.items():
        HANDLERS[_raw] = _scalar_method_handler(_name, _raw)
    for _real in _plain_functions():
        HANDLERS.setdefault(_real, _function_handler(_real))
    builtin(torch.from_numpy)(from_numpy)
    HANDLERS[torch.Tensor.numpy] = tensor_numpy
