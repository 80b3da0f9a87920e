"""Calls of numpy on arrays: the kind of numpy's result, and the node that computes it with torch.

Input: a function of numpy's, trackers. Output: nodes that call `torch._numpy`, `ArrayVariable`s; a break for functions that it lacks or
computes otherwise.
Invariant: numpy itself, called with samples of the arguments' metadata, tells the kind of the result (array or scalar, dtype, shape,
layout, owner of the memory); a call for which torch has another is a break.
Mirrors `numpy/_core/src/umath` and `torch/_numpy`.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.config import config
from dynamo_lite.exc import NotConstant, Unsupported, gist, unsupported
from dynamo_lite.graph.core import functional
from dynamo_lite.graph.core.storages import is_of_an_input
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.graph.core.varying_floats import present
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.slice import SliceVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import COMPARE_OPS
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import NOT_IMPLEMENTED, TRUE, ConstantVariable
from dynamo_lite.variables.torch.symnode import SymNodeVariable, operand_of
from dynamo_lite.variables.torch.tensor import TensorVariable, ValueVariable, set_operators

from . import powers, ranges, scalarmath
from .arrays import ATTRIBUTES, ArrayVariable, array_in_memory_of, dtype_of, families, with_views
from .layout import is_of_data, layout_of, shape_now, strides_now
from .scalarmath import ScalarVariable, any_within, varies

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame

numpy: Any = sys.modules.get("numpy")


class NumpyCall:
    """A call of numpy's function `real`, of which `path` is the name for `functional.numpy_function`."""

    def __init__(self, path: str, real: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
        self.path = path
        # The name of what computes it in the graph.
        self.function = path
        self.real = real
        self.args = args
        self.kwargs = kwargs
        # Id of a model → it, and what stands for it when numpy is asked.
        self.samples: dict[int, tuple[ArrayVariable, Any]] = {}

    # -- what numpy says

    def expected(self) -> Any:
        """The result of numpy for arguments with these dtypes, shapes and layouts."""
        try:
            args = list(map(self.sample, self.args))
            kwargs = {name: self.sample(value) for name, value in self.kwargs.items()}
        except NotConstant as error:
            return unsupported("numpy", f"{self.path}: {error}")
        result = self._ask(args, kwargs)
        self._check_out(result, args, kwargs)
        return result

    def is_changed(self, vt: ArrayVariable) -> bool:
        """Whether numpy has changed the sample of an array."""
        return self.samples[id(vt)][1].tobytes() != _sample_of(vt).tobytes()

    def _ask(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        with numpy.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return self.real(*args, **kwargs)
            except Exception as error:
                return unsupported("numpy", f"{self.path}: {gist(error)}", error)

    def _check_out(self, result: object, args: list[Any], kwargs: dict[str, Any]) -> None:
        """numpy computes in the dtype of the operands, and converts to that of an array for the result at the end."""
        inputs = args[: self.real.nin] if isinstance(self.real, numpy.ufunc) else args
        out = kwargs.get("out", args[len(inputs)] if len(inputs) < len(args) else None)
        if not isinstance(out, numpy.ndarray):
            return
        natural = self._ask(inputs, {name: value for name, value in kwargs.items() if name != "out"})
        dtype = getattr(natural, "dtype", None)
        if dtype != out.dtype and (dtype is None or dtype.kind != "b"):
            unsupported("numpy", f"{self.path} with a result of another dtype")

    def sample(self, vt: VariableTracker) -> Any:
        """A real object that stands for the argument. Raises `NotConstant` where there is none."""
        if isinstance(vt, ArrayVariable):
            known = self.samples.get(id(vt))
            if known is None:
                known = self.samples[id(vt)] = (vt, _sample_of(vt))
            return known[1]
        if isinstance(vt, ListVariable | TupleVariable):
            items = [self.sample(item) for item in vt.items]
            return items if isinstance(vt, ListVariable) else tuple(items)
        if isinstance(vt, TensorVariable):
            raise NotConstant("a tensor as an argument")
        if isinstance(vt, SymNodeVariable):
            number = present(operand_of(vt))
            if number is None:
                raise NotConstant("a number that data decide as an argument")
            return number
        if isinstance(vt, ScalarVariable):
            return vt.cls(self.sample(vt.number))
        if isinstance(vt, SliceVariable):
            return slice(*map(self.sample, vt.children()))
        return vt.as_python_constant()

    # -- what torch makes

    def enter(self, tx: Frame) -> VariableTracker:
        """Put the call into the graph."""
        named = DictVariable()
        for name, value in self.kwargs.items():
            named.mp_ass_subscript(tx, ConstantVariable(name), self._argument(tx, value, ranges.is_named_place(name)))
        positional = TupleVariable(
            [self._argument(tx, a, ranges.is_place(self.path, i)) for i, a in enumerate(self.args)]
        )
        call = [ConstantVariable(self.function), positional, named]
        return tx.tr.graph.call(tx, "call_function", functional.numpy_function, call)

    def _argument(self, tx: Frame, vt: VariableTracker, is_place: bool) -> VariableTracker:
        """The argument as the graph has it: arrays as tensors, numpy's scalars, whose dtype counts, too; dtypes by name. `is_place`: its
        ints are sizes, positions and axes."""
        if isinstance(vt, ArrayVariable):
            return ValueVariable(vt.proxy)
        if isinstance(vt, ListVariable | TupleVariable):
            items = [self._argument(tx, item, is_place) for item in vt.items]
            return ListVariable(items) if isinstance(vt, ListVariable) else TupleVariable(items)
        if isinstance(vt, ScalarVariable):
            return self._tensor_of(tx, vt.number, numpy.dtype(vt.cls))
        if isinstance(vt, SymNodeVariable) and self.path in _ELEMENTWISE:
            dtypes = [sample.dtype for _, sample in self.samples.values()]
            dtype = numpy.result_type(*dtypes, self.sample(vt)) if dtypes else None
            if vt.python_type() is int and ranges.compares_exactly(self):
                dtype = numpy.dtype(numpy.int64)
            if dtype is not None and (
                dtype.kind == "f" or dtype == numpy.int64
            ):  # others might not have room for the number
                return self._tensor_of(tx, vt, dtype)
        if not vt.is_python_constant():
            return vt if is_place else ranges.within_32_bits(tx, vt)
        value = vt.as_python_constant()
        if isinstance(value, numpy.dtype | type):
            return ConstantVariable(numpy.dtype(value).name)
        dtype = getattr(torch, value.dtype.name, None) if isinstance(value, numpy.generic) else None
        if dtype is None or self.path in _INDEXING:
            return vt
        if is_place and dtype is torch.int64:
            return ConstantVariable(int(value))
        options = {"dtype": ConstantVariable(dtype)}
        scalar = tx.tr.graph.call(tx, "call_function", torch.tensor, [ConstantVariable(value.item())], options)
        return ValueVariable(scalar.proxy)

    @staticmethod
    def _tensor_of(tx: Frame, number: VariableTracker, dtype: Any) -> VariableTracker:
        options = {"dtype": ConstantVariable(getattr(torch, dtype.name))}
        return tx.tr.graph.call(tx, "call_function", torch.full, [TupleVariable([]), number], options)

    # -- the two together

    def result(self, tx: Frame, expected: object, made: VariableTracker) -> VariableTracker:
        """The graph's result as the object that numpy would return."""
        if isinstance(expected, tuple | list):
            items = getattr(made, "items", None)
            if items is None or len(items) != len(expected) or type(expected) not in (tuple, list):
                return unsupported("numpy", f"{self.path} returns another structure")
            results = [self.result(tx, e, r) for e, r in zip(expected, items, strict=True)]
            return TupleVariable(results) if isinstance(expected, tuple) else ListVariable(results)
        given = next((vt for vt, sample in self.samples.values() if sample is expected), None)
        if given is not None:
            if getattr(made, "proxy", None) is not given.proxy and (
                given is not self.args[0] or self.is_changed(given)
            ):
                unsupported("numpy", f"{self.path} does not return its argument")
            return given
        if expected is None and isinstance(made, ArrayVariable):
            return ConstantVariable(None)  # the argument, changed in place
        if not isinstance(expected, numpy.ndarray | numpy.generic):
            if made.is_python_constant() and made.as_python_constant() == expected:
                return ConstantVariable(expected)
            return unsupported("numpy", f"{self.path} returns a {type(expected).__name__}")
        if not isinstance(made, TensorVariable | ArrayVariable):
            return unsupported("numpy", f"{self.path} returns a {made.python_type().__name__}")
        return self._array(tx, expected, made)

    def _array(self, tx: Frame, expected: Any, made: TensorVariable | ArrayVariable) -> ArrayVariable:
        value = self._with_memory_of(tx, expected, made)
        cls = type(expected) if isinstance(expected, numpy.generic) else numpy.ndarray
        array = ArrayVariable(value, cls, made_at=tx.tr.thread.failing_step())
        if not families(made).isdisjoint(families(array)):
            array.memory = getattr(made, "memory", value)
        if dtype_of(array) != expected.dtype or shape_now(value) != expected.shape:
            shape = list(shape_now(value))
            return unsupported("numpy", f"{self.path} gives {dtype_of(array)}{shape} instead of {expected.dtype}")
        if isinstance(expected, numpy.ndarray):
            array.layout = layout_of(expected, value)
            if array.layout.strides is not None and not all(type(n) is int for n in value.meta.shape):
                unsupported("numpy", f"{self.path} lies otherwise in memory")
        return array

    def _with_memory_of(self, tx: Frame, expected: object, made: TensorVariable | ArrayVariable) -> TensorValue:
        """The value with memory of its own, or that of an argument, as numpy's result has it."""
        wanted = [isinstance(expected, numpy.ndarray) and numpy.may_share_memory(expected, s) for _, s in self._given()]
        found = [not families(made).isdisjoint(families(vt)) for vt, _ in self._given()]
        if wanted != found and not any(found) and isinstance(made, TensorVariable):
            viewed = [vt for vt, _ in self._given()][wanted.index(True)]
            tx.tr.effects.provisos.append(CopiedView(tx, viewed, made, f"{self.path} returns a view"))
            return made.proxy
        if wanted != found and any(wanted):
            unsupported("numpy", f"{self.path} has memory in common with other arguments")
        if wanted != found:
            return tx.tr.graph.call(tx, "call_method", "clone", [ValueVariable(made.proxy)]).proxy
        return (
            array_in_memory_of(tx, made).proxy if isinstance(made, ArrayVariable) and made in self.args else made.proxy
        )

    def _given(self) -> list[tuple[ArrayVariable, Any]]:
        return list(self.samples.values())


_INDEXING = ("operator.getitem", "operator.setitem")
_ELEMENTWISE = frozenset(
    {
        *(f"operator.{p}{n}" for n in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow") for p in ("", "i")),
        *(f"operator.{n}" for n in ("eq", "ne", "lt", "le", "gt", "ge")),
        *("add", "subtract", "multiply", "divide", "true_divide", "power", "maximum", "minimum"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    }
)
"""Functions for which a number beside an array has the dtype of the two together."""


class CopiedView:
    """A copy where numpy has a view (`array[::-1]`): nobody can tell as long as neither is written to and only one leaves the frame."""

    def __init__(self, tx: Frame, viewed: ArrayVariable, copy: TensorVariable, why: str) -> None:
        self.viewed, self.copy = families(viewed), families(copy)
        self.writes_before = len(tx.tr.graph.passes.versions.writes)
        self.error = Unsupported("numpy", why).at(tx.tr.thread.failing_step(), tx.tr.thread.user_stack())

    def check(self, tr: Trace, escaping: Iterable[VariableTracker]) -> None:
        """Raise `Unsupported` if somebody could tell."""
        viewed, copies = with_views(self.viewed), with_views(self.copy)
        written = {value for value, _ in tr.graph.passes.versions.writes[self.writes_before :]}
        leaving = {vt.proxy for vt in escaping if not is_lazy(vt) and isinstance(vt, ArrayVariable | TensorVariable)}
        if not written.isdisjoint(viewed | copies):
            raise self.error
        if not leaving.isdisjoint(copies) and (any(map(is_of_an_input, viewed)) or not leaving.isdisjoint(viewed)):
            raise self.error


def warns_at_most() -> bool:
    """Whether numpy's floating-point errors neither raise, nor call a function, nor print (`numpy.errstate`)."""
    return {"ignore", "warn"}.issuperset(numpy.geterr().values())


def call_numpy(
    tx: Frame, path: str, real: Callable[..., Any], args: list[Any], kwargs: dict[str, Any] | None = None
) -> VariableTracker:
    """Put a call into the graph. `real` is numpy's function, `path` its name for `functional.numpy_function`."""
    kwargs = kwargs or {}
    where = kwargs.get("where", TRUE)
    if not config.trace_numpy or not (where.is_python_constant() and where.value is True):
        return unsupported("numpy", path)
    if not warns_at_most():
        return unsupported("numpy", f"{path} where numpy's floating-point errors raise or call a function")
    tx.tr.guards.global_state(warns_at_most, "floating-point errors of numpy's raise nothing")
    call = NumpyCall(path, real, args, kwargs)
    expected = call.expected()
    is_different = path in _DIFFERENT and _DIFFERENT[path](call)
    if is_different or ranges.refuses_exponents(tx, call) or not ranges.have_room(tx, call, expected):
        return unsupported("numpy", f"{path}, which torch computes otherwise")
    powers.settle(tx, call)
    try:
        return call.result(tx, expected, call.enter(tx))
    except Unsupported as error:
        simpler = _simpler(tx, error, args)
        if simpler is None:
            raise
    call = NumpyCall(path, real, simpler, dict(zip(kwargs, _constants(list(kwargs.values())), strict=True)))
    if not _are_alike(expected, call.expected()):
        unsupported("numpy", f"{path} of a sequence")
    return call_numpy(tx, path, real, simpler, call.kwargs)


def _are_alike(v: object, w: object) -> bool:
    """Whether two results of numpy's are of the same kind."""
    if isinstance(v, list | tuple):
        return type(v) is type(w) and len(v) == len(w) and all(map(_are_alike, v, w))
    return type(v) is type(w) and getattr(v, "shape", None) == getattr(w, "shape", None)


def _simpler(tx: Frame, error: Unsupported, args: list[VariableTracker]) -> list[VariableTracker] | None:
    """Arguments that `torch._numpy` takes instead of the given ones (arrays for sequences of arrays, constants for numbers that vary), or
    None."""
    if error.slug not in _RETRIED:
        return None
    if any(isinstance(vt, ListVariable | TupleVariable) and holds_array(vt) for vt in args):
        return [_stacked(tx, vt) for vt in args]
    return _constants(args) if any(map(varies, args)) else None


def _stacked(tx: Frame, vt: VariableTracker) -> VariableTracker:
    """The array that numpy makes of a sequence with arrays in it."""
    if not isinstance(vt, ListVariable | TupleVariable) or not holds_array(vt):
        return vt
    items = [_stacked(tx, item) for item in vt.items]
    return call_numpy(tx, "stack", numpy.stack, [ListVariable(items)])


def _constants(args: list[VariableTracker]) -> list[VariableTracker]:
    return scalarmath.all_constants(args, {})[0]


_RETRIED = frozenset({"data-dependent-operator", "fake-tensor-error", "graph-argument-type", "dynamic-int"})

# -- what torch computes otherwise


def _kinds(call: NumpyCall) -> set[str]:
    """The kinds of dtypes of the arrays among the arguments."""
    return {sample.dtype.kind for _, sample in call.samples.values()}


def _rounds_otherwise(call: NumpyCall) -> bool:
    """Halves, and ints to tens."""
    dtypes = {sample.dtype.char for _, sample in call.samples.values()}
    decimals = call.args[1] if len(call.args) > 1 else call.kwargs.get("decimals", ConstantVariable(0))
    is_plain = decimals.is_python_constant() and type(decimals.value) is int and decimals.value >= 0
    return "e" in dtypes or not is_plain


def _puts_otherwise(call: NumpyCall) -> bool:
    """Positions that are no ints, or are those of the array itself."""
    positions = call.args[1] if len(call.args) > 1 else None
    if isinstance(positions, ArrayVariable):
        return dtype_of(positions).kind not in "iu" or not families(positions).isdisjoint(families(call.args[0]))
    return not (isinstance(positions, ConstantVariable) and type(positions.value) is int)


def _interpolates_otherwise(call: NumpyCall) -> bool:
    """Quantiles asked for with fewer digits than the result has, and those of signed ints, whose differences wrap around in numpy."""
    is_narrow = any(isinstance(vt, ArrayVariable) and dtype_of(vt).char != "d" for vt in call.args[1:])
    return is_narrow or any(sample.dtype.kind == "i" and sample.itemsize < 8 for _, sample in call.samples.values())


def _sums_in_ints(call: NumpyCall) -> bool:
    dtype = call.kwargs.get("dtype")
    return dtype is not None and numpy.dtype(dtype.as_python_constant()).kind in "iub"


def _makes_bins(call: NumpyCall) -> bool:
    """Whether the edges are computed, which rounds in another way."""
    bins = call.args[1] if len(call.args) > 1 else call.kwargs.get("bins")
    return not isinstance(bins, ArrayVariable | ListVariable | TupleVariable)


def _may_drop_sizes(call: NumpyCall) -> bool:
    """Whether it depends on data how many dimensions the result has."""
    return any(is_of_data(vt.proxy) for vt, _ in call.samples.values())


def _is_complex(call: NumpyCall) -> bool:
    return "c" in _kinds(call)


_DIFFERENT: dict[str, Callable[[NumpyCall], bool]] = {
    **dict.fromkeys(("cbrt", "histogram2d", "histogramdd", "modf"), lambda call: True),
    "histogram": _makes_bins,
    **dict.fromkeys(("around", "round", "ndarray.round"), _rounds_otherwise),
    **dict.fromkeys(("put", "ndarray.put"), _puts_otherwise),
    **dict.fromkeys(("percentile", "quantile"), _interpolates_otherwise),
    **dict.fromkeys(("std", "var", "ndarray.std", "ndarray.var"), _sums_in_ints),
    **dict.fromkeys(("float_power", "power", "operator.pow", "operator.ipow"), _is_complex),
    **dict.fromkeys(("squeeze", "ndarray.squeeze"), _may_drop_sizes),
    "angle": lambda call: not _is_complex(call),
}
"""Function → whether `torch._numpy` computes a call of it otherwise than numpy."""


def _sample_of(vt: ArrayVariable) -> Any:
    """An array with the layout of the given one."""
    shape, dtype = shape_now(vt.proxy), dtype_of(vt)
    if vt.is_scalar:
        return dtype.type(0)
    values = numpy.zeros(shape, dtype) if dtype.kind in "iub" else _numbers(shape, dtype)
    sample = functional.laid_out(values, strides_now(vt.proxy, vt.layout)) if shape else values
    sample.flags.writeable = vt.layout.writeable
    return sample


def _numbers(shape: tuple[int, ...], dtype: object) -> Any:
    """Numbers that make a regular matrix."""
    return numpy.asarray(numpy.random.default_rng(0).random(shape) + 0.5, dtype)


def holds_array(vt: VariableTracker) -> bool:
    return any_within(vt, lambda item: isinstance(item, ArrayVariable))


# -- operators, views


def _is_operand(vt: VariableTracker) -> bool:
    if isinstance(vt, ArrayVariable | ListVariable | TupleVariable):
        return True
    return issubclass(vt.python_type(), (int, float, complex, numpy.generic))


def operate(tx: Frame, function: Callable[..., Any], args: list[VariableTracker]) -> VariableTracker:
    """A function of the `operator` module on arrays."""
    return call_numpy(tx, f"operator.{function.__name__}", function, args)


set_operators(ArrayVariable, _is_operand, operate)


def _compare(self: ArrayVariable, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
    if isinstance(other, TensorVariable):
        return NOT_IMPLEMENTED
    return operate(tx, COMPARE_OPS[op], [self, other])


ArrayVariable.tp_richcompare = _compare


def _view(name: str) -> Callable[[Any, ArrayVariable], VariableTracker]:
    real = operator.attrgetter(name)
    return lambda tx, self: call_numpy(tx, f"ndarray.{name}", real, [self])


for _name in ("T", "mT", "imag", "real"):
    if hasattr(getattr(numpy, "ndarray", None), _name):
        ATTRIBUTES[_name] = _view(_name)
