"""Tensors.

Input: a graph value, or a real tensor with its access path. Output: `TensorVariable`, whose operators become graph
nodes and whose metadata are constants.
Invariant: a tensor has one tracker; an operator that returns its argument returns that tracker. Nothing that depends on
the data of a tensor is ever known.
Mirrors `torch/csrc/autograd/python_variable.cpp`, `python_variable_methods.cpp` and `torch/_tensor.py`.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core import modes
from dynamo_lite.graph.core.arguments import MODELS, Packing, packs
from dynamo_lite.graph.core.autograd import function_name, has_uneven_branches, is_kept
from dynamo_lite.graph.core.functional import text_with_suffix, transforms_around, with_data
from dynamo_lite.graph.core.meta import LiveMeta
from dynamo_lite.graph.core.nodes import made_at
from dynamo_lite.graph.core.operator_names import operator_name
from dynamo_lite.graph.core.storages import advance_version, version_of, versions
from dynamo_lite.graph.core.values import TensorValue, requires_grad
from dynamo_lite.graph.inputs.bare_attributes import grad_of, is_inference_of, is_leaf_of, set_data, set_grad
from dynamo_lite.graph.inputs.buffers import ask, truth
from dynamo_lite.graph.inputs.fake_inputs import SLUG as FAKE_INPUTS
from dynamo_lite.graph.passes.leaves import as_leaf, is_unused
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import dict_of, lookup, mro_of, name_of, qualname_of
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.function import MethodVariable, build_function
from dynamo_lite.variables.protocol.abstract import (
    BINARY_OPS,
    COMPARE_OPS,
    UNARY_OPS,
    binary_op,
    get_iter,
    is_true,
    message_name,
    richcompare,
)
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import NOT_IMPLEMENTED, ConstantVariable, is_flag, is_none
from dynamo_lite.variables.protocol.deferred_str import CopyText, data_text
from dynamo_lite.variables.protocol.descr import GETSETS, generic_getattr, type_attribute
from dynamo_lite.variables.protocol.dispatch import constructor
from dynamo_lite.variables.protocol.hashing import IDENTITY_HASHES
from dynamo_lite.variables.protocol.wrap import builds

from .data_checks import GradFnVariable, checked_truth
from .tensor_slots import TORCHS

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.graph.core.meta import TensorMeta
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

_ABSENT = object()


class TensorVariable(VariableTracker):
    """A tensor or parameter (`cls`). `proxy` is its graph value, `attributes` are the attributes that the traced code has set."""

    cls: type = torch.Tensor
    is_user_made = True  # `__len__` tells overrides that it is called
    attributes: dict[str, VariableTracker | None] | None = None
    replaced: TensorData | None = None  # what was assigned to `data` of a tensor that existed before
    is_told = False  # whether `requires_grad_` was called on a tensor that existed before
    original: TensorValue | None = None  # what such a tensor was before it became another leaf, or got other data
    data_of: Any = None

    def __init__(self, proxy: TensorValue) -> None:
        self.proxy = proxy
        self.source = None
        self.value = MISSING
        proxy.tracker = self

    def settled(self) -> None:
        self.proxy.tracker = self

    def python_type(self) -> type:
        return self.cls

    def sizes(self) -> tuple[int | None, ...]:
        return tuple([n if type(n) is int else None for n in self.proxy.meta.shape])

    def as_proxy(self) -> TensorValue:
        return self.proxy

    def describe(self) -> str:
        where = f"{self.source.path}: " if self.source is not None else ""
        return f"{where}{self.proxy.meta}"

    # -- attributes

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        cls = self.python_type()
        raw = class_attribute(cls, name)
        if cls not in TORCHS or raw is _ABSENT:
            type_attribute(tx, cls, name)  # guards that it stays so; torch's own classes don't change
        kind = type(raw)
        if kind in _METHOD_TYPES:
            # A tensor whose own dictionary hides a method is not worth a guard.
            shadow = self.instance_attribute(tx, name) if self.has_attribute(name) else None
            return shadow if shadow is not None else MethodVariable(tx.tr.build_constant_object(raw), self)
        if kind is types.GetSetDescriptorType and raw.__objclass__ is _BASE:
            if tx.tr.overrides is not None:
                overridden = tx.tr.overrides.getter(tx, raw, self)
                if overridden is not None:
                    return overridden
            getter = GETTERS.get(raw)
            return getter(tx, self) if getter is not None else unsupported("tensor-attribute", f"Tensor.{name}")
        found = self.instance_attribute(tx, name)
        if found is not None:
            return found
        if raw is _ABSENT:
            if class_attribute(cls, "__getattr__") is not _ABSENT:
                return tx.call(generic_getattr(tx, self, "__getattr__"), [ConstantVariable(name)])
            return tx.raises(AttributeError, f"'{message_name(cls)}' object has no attribute '{name}'")
        return generic_getattr(tx, self, name)

    def has_attribute(self, name: str) -> bool:
        """Whether the tensor's `__dict__` has `name` now, not guarded."""
        if self.attributes is not None and name in self.attributes:
            return True
        return self.source is not None and name in self.value.__dict__

    def instance_attribute(self, tx: Frame, name: str) -> VariableTracker | None:
        """The value under `name` in the tensor's `__dict__`."""
        if self.attributes is not None and name in self.attributes:
            return self.attributes[name]
        if self.source is None:
            return None
        attributes = self.value.__dict__
        node = tx.tr.source(tx.tr.source(self.source, ir.INSTANCE_DICT), ir.DICT_ITEM, name)
        if name in attributes:
            tx.tr.expect(node)
            return tx.tr.wrap(attributes[name], node)
        tx.tr.guard(node, ir.ABSENT)
        return None

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        hook = "__setattr__" if value is not None else "__delattr__"
        cls = self.python_type()
        if class_attribute(cls, hook) is not class_attribute(torch.Tensor, hook):
            unsupported("tensor-subclass", f"{qualname_of(cls)}.{hook}")
        raw = class_attribute(cls, name)
        overrides = tx.tr.overrides
        is_getset = overrides is not None and type(raw) is types.GetSetDescriptorType and raw.__objclass__ is _BASE
        if is_getset and overrides.skips_next:
            with overrides.skipping():
                return self.tp_setattro(tx, name, value)
        if is_getset and overrides.setter(tx, raw, self, value):
            return
        setter = SETTERS.get(name)
        if setter is not None:
            setter(tx, self, value)
        elif issubclass(type(raw), (types.GetSetDescriptorType, property)):
            unsupported("tensor-attribute", f"assignment to Tensor.{name}")
        else:
            self.store(tx, name, value)

    def store(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        """Keep an attribute (None: its deletion), to be stored on the real tensor at the end."""
        if value is None and self.instance_attribute(tx, name) is None:
            tx.raises(AttributeError, f"'{message_name(self.python_type())}' object has no attribute '{name}'")
        if self.source is not None:
            tx.tr.effects.mutating(self)
        if self.attributes is None:
            self.attributes = {}
        self.attributes[name] = value

    # -- operators

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if not _is_taken(other):
            return NOT_IMPLEMENTED
        return operate(tx, COMPARE_OPS[op], [self, other])

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return tx.tr.heap.identity_hash(self)

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return (
            data_text(tx, self)
            if tx.tr.overrides is None
            else unsupported("format", self.describe(), origin=made_at(self.proxy))
        )

    def moment(self, tx: Frame) -> object:
        """What is another once the data may have changed."""
        return self.proxy, len(tx.tr.graph.passes.versions.writes)

    def copied_text(self, tx: Frame, spec: str | None) -> CopyText | None:
        """The text that the tensor has now, or that of its number by `spec`, of a copy that nobody writes to; None where it may tell of a
        class or is that of many elements, or where autograd does not say what made the tensor."""
        sizes = self.sizes()
        is_plain = self.python_type() in (torch.Tensor, torch.nn.Parameter) and tx.tr.graph.scope is None
        if not is_plain or sizes is None or None in sizes or math.prod(sizes) > MOST_PRINTED:
            return None
        if spec is None and not _is_as_found(tx):
            return None
        meta, prefix = self.proxy.meta, _PARAMETER if self.python_type() is torch.nn.Parameter else ""
        if not meta.requires_grad:
            return None if prefix else self._copy_of(tx, self, *((str,) if spec is None else (format, spec)))
        detached = tx.tr.graph.call(tx, "call_method", "detach", [self])
        if spec is not None:
            return self._copy_of(tx, detached, format, spec)
        is_leaf = tensor_is_leaf(tx, self).as_python_constant()
        name = None if is_leaf else function_name(tx.tr.graph, self.proxy)
        if meta.layout is not torch.strided or (name is None and not is_leaf):
            return None
        suffix = "requires_grad=True" if name is None else f"grad_fn=<{name}>"
        return self._copy_of(tx, detached, text_with_suffix, prefix, suffix)

    @staticmethod
    def _copy_of(tx: Frame, shown: VariableTracker, function: Any, *constants: str) -> CopyText:
        return CopyText(tx.tr.graph.call(tx, "call_method", "clone", [shown]), function, *constants)

    def nb_bool(self, tx: Frame) -> VariableTracker:
        known = known_item(self)
        if known is MISSING:
            ask(tx.tr.graph, [self.proxy])
            known = truth(tx.tr.graph, self.proxy)
            return checked_truth(tx, self) if known is None else ConstantVariable(known)
        return ConstantVariable(bool(known))

    def nb_index(self, tx: Frame) -> VariableTracker:
        dtype, sizes = self.proxy.meta.dtype, self.sizes()
        has_one = sizes is None or None in sizes or math.prod(sizes) == 1
        if dtype.is_floating_point or dtype.is_complex or not has_one:
            return tx.raises(TypeError, _NO_INDEX)  # as `THPVariable_index_scalar` of torch does
        return self.number(tx, operator.index)

    def nb_int(self, tx: Frame) -> VariableTracker:
        return self.number(tx, int)

    def nb_float(self, tx: Frame) -> VariableTracker:
        return self.number(tx, float)

    def number(self, tx: Frame, convert: Callable[[Any], Any]) -> VariableTracker:
        """The tensor's only element as a Python number."""
        known = known_item(self)
        if known is not MISSING:
            return ConstantVariable(convert(known))
        if not config.capture_scalar_outputs:
            ask(tx.tr.graph, [self.proxy])
        if not has_numbers(tx):
            what = f"{convert.__name__}({self.describe()})"
            unsupported("data-dependent-operator", what, origin=made_at(self.proxy))
        return converted_item(tx, self, convert)

    # -- container

    def mp_length(self, tx: Frame) -> VariableTracker:
        overrides = tx.tr.overrides
        if overrides is not None and overrides.applies(torch.Tensor.__len__, [self], {}):
            asking = torch.Tensor.__len__  # a Python function, which asks them itself
            return build_function(tx.tr, asking, tx.tr.constant_source(asking)).tp_call(tx, [self], {})
        if not self.proxy.meta.ndim:
            return tx.raises(TypeError, "len() of a 0-d tensor")
        return dimension(self, 0)

    def sq_contains(self, tx: Frame, item: VariableTracker) -> VariableTracker:
        return unsupported("data-dependent-operator", "element in tensor", origin=made_at(self.proxy))

    def tp_iter(self, tx: Frame) -> VariableTracker:
        """`Tensor.__iter__`, which itself asks nobody."""
        overrides = tx.tr.overrides
        if overrides is not None and overrides.applies(torch.Tensor.dim, [self], {}):
            ndim = tx.call(self.tp_getattro(tx, "dim"), [])
            if is_true(tx, richcompare(tx, ndim, ConstantVariable(0), "==")):
                tx.raises(TypeError, "iteration over a 0-d tensor")
            return get_iter(tx, tx.call(self.tp_getattro(tx, "unbind"), [ConstantVariable(0)]))
        if not self.proxy.meta.ndim:
            return tx.raises(TypeError, "iteration over a 0-d tensor")
        positions = MODELS.rows_of_nonzero(tx, self)
        if positions is not None:
            return positions
        dimension(self, 0).as_python_constant()  # a graph has as many items as it was captured with
        return tx.tr.graph.call(tx, "call_method", "unbind", [self, ConstantVariable(0)]).tp_iter(tx)

    # -- codegen

    def children(self) -> Any:
        values = [v for v in self.attributes.values() if v is not None] if self.attributes else []
        return values if self.replaced is None else [*values, self.replaced.data]

    def emit_new(self, cg: Codegen) -> None:
        leaf = self._made_leaf(cg)
        if leaf is not None and leaf.input is not None:
            cg.load_source(leaf.input)
        elif leaf is not None or self.cls is torch.nn.Parameter:
            cg.load_callable(as_leaf if self.cls is torch.Tensor else torch.nn.Parameter)
            cg.load_graph_output(cg.tr.graph.output(self))
            cg.load_const(self.proxy.meta.requires_grad)
            cg.asm.call(2)
        else:
            cg.load_graph_output(cg.tr.graph.output(self))

    def _made_leaf(self, cg: Codegen) -> Any:
        """The graph's record of this leaf, if the traced code has made it; None for other tensors."""
        return cg.tr.graph.passes.leaves.made.get(self.proxy) if self.proxy.meta.requires_grad else None

    def emit_fill(self, cg: Codegen) -> None:
        leaf = self._made_leaf(cg)
        if leaf is not None and leaf.input is not None:
            cg.load_graph_output(cg.tr.graph.output(self))
            cg.load(self)
            cg.asm.store_attr("data")
        self.emit_update(cg)

    def _emit_version(self, cg: Codegen) -> None:
        """Advance the version counter by the changes in place since the assignment."""
        try:
            leaf = cg.tr.graph.passes.leaves.made.get(self.proxy)
            n = versions(cg.tr.graph, (*self.replaced.nodes, *(() if leaf is None else leaf.nodes)))
        except Unsupported as error:
            error.break_step = self.mutated_at
            raise
        if n:
            cg.load_callable(advance_version)
            cg.load(self)
            cg.load_const(n)
            cg.asm.call(2)
            cg.asm.pop_top()

    def _emit_store(self, cg: Codegen, name: str, value: VariableTracker) -> None:
        store = _STORES.get(name) if cg.tr.overrides is not None else None
        if store is None:
            cg.load(value)
            cg.load(self)
            cg.asm.store_attr(name)
            return
        cg.load_callable(store)  # who overrides has been asked
        cg.load(self)
        cg.load(value)
        cg.asm.call(2)
        cg.asm.pop_top()

    def emit_update(self, cg: Codegen) -> None:
        if self.replaced is not None:
            if not _are_one_view(self.proxy.meta, self.replaced.data.proxy.meta):  # which the assignment would undo
                what = "change of view of a tensor whose data has been assigned"
                raise Unsupported("tensor-attribute", what).at(self.mutated_at)
            self._emit_store(cg, "data", self.replaced.data)
            self._emit_version(cg)
        if self.is_told:
            cg.load_callable(as_leaf)
            cg.load(self)
            cg.load_const(self.proxy.meta.requires_grad)
            cg.asm.call(2)
            cg.asm.pop_top()
        for name, value in (self.attributes or {}).items():
            if value is not None:
                self._emit_store(cg, name, value)
                continue
            cg.load(self)
            if self.source is not None and name in self.value.__dict__:
                cg.asm.delete_attr(name)
            else:
                cg.asm.pop_top()  # stored by the traced code itself


class TensorData(NamedTuple):
    """The last assignment to the `data` of a tensor: `data` is the assigned tensor; the `nodes` make the values of the tensor after each
    assignment."""

    data: TensorVariable
    nodes: tuple[Any, ...]


class NewParameterVariable(TensorVariable):
    """A parameter that the traced code makes. In the graph it is a leaf like others."""

    cls = torch.nn.Parameter


# -- operators as graph nodes


def torchs_slots(vt: TensorVariable) -> type[TensorVariable]:
    """The model whose slots are torch's own, whatever special methods the tensor's class defines."""
    if not isinstance(vt, TensorVariable):
        unsupported("operation-on-unknown-object", f"a method of tensors, called on a {name_of(vt.python_type())}")
    return getattr(vt.__class__, "torchs", vt.__class__)


_NO_INDEX = "only integer tensors of a single element can be converted to an index"

_PARAMETER = "Parameter containing:\n"
"""What the text of a parameter begins with."""

MOST_PRINTED = 1_000
"""Elements of a tensor that is copied to be printed; texts of larger ones show a part of them."""


def is_operand(vt: VariableTracker) -> bool:
    """Whether a tensor operator accepts an object as its other operand: tensors and numbers. The methods of other objects are asked."""
    if isinstance(vt, TensorVariable) or vt.is_one_of_several:
        return True
    return issubclass(vt.python_type(), _NUMBERS)


def _is_taken(vt: VariableTracker) -> bool:
    """Whether the operators of tensors themselves take an operand: objects whose classes override torch functions as well."""
    if is_operand(vt):
        return True
    return _foreign(vt.__class__) is not None and lookup(vt.python_type(), "__torch_function__") is not None


@functools.cache
def _foreign(model: type[VariableTracker]) -> Callable[..., VariableTracker] | None:
    """What operates on a tensor and an object of this model."""
    return next((FOREIGN_OPERANDS[base] for base in model.__mro__ if base in FOREIGN_OPERANDS), None)


_numpy = sys.modules.get("numpy")
_NUMBERS = (int, float, complex) if _numpy is None else (int, float, complex, _numpy.number, _numpy.bool_)


def has_numbers(tx: Frame) -> bool:
    """Whether a number that data decide is a value of the graph."""
    return tx.tr.graph.passes.sizes.has_numbers


def converted_item(
    tx: Frame, vt: TensorVariable | ValueVariable, convert: Callable[[Any], int | float]
) -> VariableTracker:
    """The only element of a tensor as a number of the graph."""
    item = tx.tr.graph.call(tx, "call_method", "item", [vt])
    return item.nb_float(tx) if convert is float else item.nb_int(tx) if convert is int else item


def operate(tx: Frame, function: Callable[..., Any], args: list[VariableTracker]) -> VariableTracker:
    """A function of the `operator` module on tensors."""
    overrides = tx.tr.overrides
    if overrides is not None:
        result = overrides.operator(tx, function, args)
        if result is not None:
            return result
    foreign = next(filter(None, [_foreign(a.__class__) for a in args]), None)
    if foreign is not None:
        return foreign(tx, function, args)
    return tx.tr.graph.call(tx, "call_function", function, args)


FOREIGN_OPERANDS: dict[type, Callable[..., VariableTracker]] = {}
"""Model of what may stand beside a tensor without being one → function(tx, operator, arguments)."""

FOREIGN_ARGUMENTS: dict[type, Callable[..., list[VariableTracker]]] = {}
"""The same for functions and methods of torch → function(tx, function, arguments, keywords) → the arguments that the graph can have."""


def set_operators(
    model: type[VariableTracker],
    is_operand: Callable[[VariableTracker], bool],
    operate: Callable[[Frame, Callable[..., Any], list[Any]], VariableTracker],
) -> None:
    """Give a model the slots of all operators: `operate(tx, function, operands)` if all are operands."""

    def binary(function: Callable[..., Any]) -> Callable[..., VariableTracker]:
        def slot(tx: Frame, v: VariableTracker, w: VariableTracker) -> VariableTracker:
            return operate(tx, function, [v, w]) if is_operand(v) and is_operand(w) else NOT_IMPLEMENTED

        return slot

    for function, row in BINARY_OPS.items():
        if function is not divmod:
            setattr(model, row.inplace or row.slot, staticmethod(binary(function)))
    for function, (slot, _) in UNARY_OPS.items():
        setattr(model, slot, lambda self, tx, f=function: operate(tx, f, [self]))


set_operators(TensorVariable, _is_taken, operate)


# -- the class

_BASE = torch._C.TensorBase
_METHOD_TYPES = (types.MethodDescriptorType, types.FunctionType, types.WrapperDescriptorType)

_attributes: dict[tuple[type, str], Any] = {}


def class_attribute(cls: type, name: str) -> Any:
    """The raw class attribute of a tensor class. Attributes of torch's own classes don't change: they are cached and not guarded."""
    found = _attributes.get((cls, name))
    if found is None:
        found = next((dict_of(base)[name] for base in mro_of(cls) if name in dict_of(base)), _ABSENT)
        if cls in TORCHS and _is_torchs_own(found):
            _attributes[cls, name] = found
    return found


def _is_torchs_own(raw: object) -> bool:
    if issubclass(type(raw), types.FunctionType):
        return raw.__module__ in ("torch._tensor", "torch.nn.parameter")
    return issubclass(type(raw), (types.MethodDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType))


def known_item(vt: TensorVariable) -> Any:
    """The only element of a tensor that was made from a number, `MISSING` for any other."""
    fake = vt.proxy.fake
    if getattr(fake, "constant", None) is None or not isinstance(fake, FakeTensor):
        return MISSING
    return fake.constant.item()


_TAKE_SIZES = frozenset({"zeros", "ones", "empty", "rand", "randn", "new_zeros", "new_ones", "new_empty"})
"""Operators that read any tensor among their arguments as a number."""


def _numbers(tx: Frame, target: object, args: Sequence[VariableTracker], kwargs: Mapping[str, VariableTracker]) -> Any:
    """`MODELS.numbers`: the arguments with numbers for tensors, where the numbers are known or the graph has others by then; else None."""
    reads = has_numbers(tx) and operator_name(target) in _TAKE_SIZES
    changed = False

    def number(vt: VariableTracker) -> VariableTracker:
        nonlocal changed
        if isinstance(vt, TensorVariable):
            known = known_item(vt)
            changed |= reads or known is not MISSING
            if known is not MISSING:
                return ConstantVariable(known)
            return converted_item(tx, vt, int) if reads else vt
        if type(vt) is TupleVariable or type(vt) is ListVariable:
            return type(vt)([number(item) for item in vt.items])
        return vt

    result = [number(a) for a in args], {name: number(a) for name, a in (kwargs or {}).items()}
    return result if changed else None


MODELS.numbers = _numbers


def dimension(vt: TensorVariable, dim: int) -> VariableTracker:
    """The size of one dimension."""
    meta = vt.proxy.meta
    size = meta.shape[dim]
    return ConstantVariable(size) if not meta.live else MODELS.number(size, ("method", vt.proxy, "size", dim))


# -- attributes implemented in C

Getter = Callable[[Any, TensorVariable], VariableTracker]

GETTERS: dict[Any, Getter] = {}
"""Real getset descriptor → function(tx, tensor tracker)."""

SETTERS: dict[str, Callable[[Any, TensorVariable, VariableTracker | None], None]] = {}
"""Name of a getset descriptor that can be written → function(tx, tensor tracker, value or None)."""


def _getter(*names: str) -> Callable[[Getter], Getter]:
    def decorate(function: Getter) -> Getter:
        for name in names:
            if name in _BASE.__dict__:
                GETTERS[_BASE.__dict__[name]] = function
        return function

    return decorate


def _meta_getter(name: str, read: Callable[[Any], Any]) -> None:
    _getter(name)(lambda tx, self: ConstantVariable(read(self.proxy.meta)))


def metadata(self: TensorVariable, value: object, method: str, *args: Any) -> VariableTracker:
    """The tracker of a number that `self.method(*args)` reads from the metadata; it may be symbolic."""
    if not self.proxy.meta.live:
        return ConstantVariable(value)
    return MODELS.number(value, ("method", self.proxy, method, *args))


for _type in "cpu cuda ipu maia meta mps mtia vulkan xla xpu".split():
    _meta_getter(f"is_{_type}", lambda meta, kind=_type: meta.device.type == kind)
for _name in ("dtype", "device", "layout", "ndim"):
    _meta_getter(_name, operator.attrgetter(_name))
_meta_getter("itemsize", lambda meta: meta.dtype.itemsize)
for _name in ("is_sparse", "is_sparse_csr", "is_mkldnn", "is_quantized", "is_nested"):
    _meta_getter(_name, lambda meta, name=_name: bool(meta.live and getattr(meta.fake, name)))
_meta_getter("_has_symbolic_sizes_strides", lambda meta: False)
_meta_getter("name", lambda meta: None)
_meta_getter("volatile", lambda meta: False)


@_getter("shape")
def tensor_shape(tx: Frame, self: TensorVariable) -> VariableTracker:
    meta = self.proxy.meta
    if not meta.live:
        return MODELS.sequence(tx, torch.Size, [ConstantVariable(n) for n in meta.shape])
    return MODELS.sequence(tx, torch.Size, [dimension(self, i) for i in range(meta.ndim)])


@_getter("nbytes")
def tensor_nbytes(tx: Frame, self: TensorVariable) -> VariableTracker:
    numel = metadata(self, self.proxy.meta.numel(), "numel")
    return binary_op(tx, operator.mul, numel, ConstantVariable(self.proxy.meta.dtype.itemsize))


_READS = {"grad": grad_of, "is_leaf": is_leaf_of}
_STORES = {"grad": set_grad, "data": set_data}


def _own_source(tx: Frame, self: TensorVariable, name: str) -> ir.GuardNode:
    """The path of an attribute that the trace itself reads, about which nobody is asked."""
    if tx.tr.overrides is None:
        return tx.tr.source(self.source, ir.ATTR, name)
    return tx.tr.source(self.source, ir.CALL, _READS[name])


def _tell_grad_mode(tx: Frame, self: TensorVariable) -> None:
    if self.source is None:
        if self.proxy.meta.requires_grad and "jvp" in transforms_around(tx.tr.graph):
            # There the flag says that the tensor depends on an argument, of which autograd itself knows nothing.
            unsupported("tensor-attribute", "whether a tensor requires gradients, inside of jvp")
        tx.tr.state.tells_grad_mode(self.proxy.meta.requires_grad)


@_getter("requires_grad")
def tensor_requires_grad(tx: Frame, self: TensorVariable) -> VariableTracker:
    _tell_grad_mode(tx, self)
    return ConstantVariable(self.proxy.meta.requires_grad)


@_getter("is_leaf")
def tensor_is_leaf(tx: Frame, self: TensorVariable) -> VariableTracker:
    _tell_grad_mode(tx, self)
    if self.source is not None and not self.proxy.meta.live:
        tx.tr.guard(_own_source(tx, self, "is_leaf"), ir.IS, is_leaf_of(self.value))
    return ConstantVariable(_is_leaf(self))


def _is_leaf(self: TensorVariable) -> bool:
    """Whether the tensor of the program is a leaf. In the graph a plain alias, which may be none, stands for a subclass."""
    is_as_it_came = (
        self.source is not None and self.original is None and self.cls not in (torch.Tensor, torch.nn.Parameter)
    )
    return is_leaf_of(self.value) if is_as_it_came else self.proxy.meta.is_leaf


@_getter("grad_fn", "_grad_fn")
def tensor_grad_fn(tx: Frame, self: TensorVariable) -> VariableTracker:
    """Known where it is None; a node of the autograd graph exists only when the graph runs."""
    _tell_grad_mode(tx, self)
    meta = self.proxy.meta
    if not meta.requires_grad:
        return ConstantVariable(None)
    if _is_leaf(self):
        tensor_is_leaf(tx, self)
        return ConstantVariable(None)
    return GradFnVariable()


@_getter("_version")
def tensor_version(tx: Frame, self: TensorVariable) -> VariableTracker:
    """The counter that an input comes with, plus the changes that the graph so far counts; a tensor made inside comes with 0."""
    graph = tx.tr.graph
    is_plain = self.cls in (torch.Tensor, torch.nn.Parameter)
    if not is_plain or self.original is not None or graph.scope is not None or tx.tr.state.has_inference:
        return unsupported("tensor-attribute", "Tensor._version")
    if self.source is not None and is_inference_of(self.value):
        return unsupported("tensor-attribute", "Tensor._version of an inference tensor")
    passes = graph.passes
    is_unsure = passes.assigned.values or passes.versions.decided or has_uneven_branches(graph.graph)
    version = None if is_unsure else version_of(graph, self.proxy)
    if version is None:
        return unsupported("tensor-attribute", "Tensor._version after a change in place")
    if version.input is None:
        return ConstantVariable(version.n)
    node = tx.tr.source(version.input.source, ir.ATTR, "_version")
    graph.passes.data.counters[node] = version.input.node.meta.subject
    came = tx.tr.wrap(version.input.value._version, node)
    return binary_op(tx, operator.add, came, ConstantVariable(version.n)) if version.n else came


@_getter("grad", "_grad")
def tensor_grad(tx: Frame, self: TensorVariable) -> VariableTracker:
    if self.attributes is not None and "grad" in self.attributes:
        return self.attributes["grad"]
    if self.source is not None:
        return tx.tr.wrap(grad_of(self.value), _own_source(tx, self, "grad"))
    if self.proxy.meta.is_leaf:
        return ConstantVariable(None)
    return unsupported("tensor-attribute", "Tensor.grad")


def _graph_attribute(tx: Frame, self: TensorVariable, name: str) -> VariableTracker:
    return tx.tr.graph.call(tx, "call_function", getattr, [self, ConstantVariable(name)])


for _name in ("T", "H", "mT", "mH", "real", "imag"):
    _getter(_name)(lambda tx, self, name=_name: _graph_attribute(tx, self, name))


def _set_grad(tx: Frame, self: TensorVariable, value: VariableTracker | None) -> None:
    if self.source is None and self.proxy not in tx.tr.graph.passes.leaves.made:
        unsupported("tensor-attribute", "assignment to the grad of a tensor made in the graph")
    if isinstance(value, TensorVariable) and value.proxy.is_fake is not self.proxy.is_fake:
        unsupported(FAKE_INPUTS, "assignment of a gradient, where one of the tensors is a FakeTensor")
    if value is not None and not is_none(value):
        mine, other = self.proxy.meta, value.proxy.meta if isinstance(value, TensorVariable) else None
        if value is self or other is None or value.is_one_of_several or _is_of_another_kind(mine, other):
            unsupported("tensor-attribute", f"assignment of {value.describe()} to a grad")
    self.store(tx, "grad", value if value is not None else ConstantVariable(None))


def _set_requires_grad(tx: Frame, self: TensorVariable, value: VariableTracker | None) -> None:
    if value is None or not is_flag(value):
        unsupported("tensor-attribute", "assignment to Tensor.requires_grad")
    if value.as_python_constant() is not self.proxy.meta.requires_grad:
        set_requires_grad(tx, self, value.as_python_constant())


def set_requires_grad(tx: Frame, self: TensorVariable, wanted: bool) -> VariableTracker:
    """`THPVariable_set_requires_grad`. For the graph a tensor from outside is another one from here on; it is told after the graph."""
    graph = tx.tr.graph
    if self.source is None:
        return graph.call(tx, "call_method", "requires_grad_", [self, ConstantVariable(wanted)])
    tensor_is_leaf(tx, self)
    meta = self.proxy.meta
    is_known = self.cls in (torch.Tensor, torch.nn.Parameter) and _is_described(self) and not (meta.live and not wanted)
    if graph.scope is not None or not meta.is_leaf or not is_known or self.proxy.is_inference:
        unsupported("tensor-attribute", "requires_grad_ of an input")
    if wanted and not (meta.dtype.is_floating_point or meta.dtype.is_complex):
        unsupported("tensor-attribute", "requires_grad_ of integers")
    if self.proxy in graph.passes.leaves.made and not is_unused(graph, self.proxy):
        unsupported("tensor-attribute", "requires_grad_ of a leaf of which something has gradients")
    tx.tr.effects.mutating(self)
    self.is_told, original = True, _original(self)
    detached = graph.call(tx, "call_method", "detach", [self])
    if wanted:
        make_leaf(tx, self, detached)
        graph.passes.leaves.made[self.proxy].owner = original
    else:
        self.proxy = detached.proxy
        self.proxy.tracker = self
    return self


def _original(self: TensorVariable) -> TensorValue:
    """The graph value that a tensor begins with."""
    if self.original is None:
        self.original = self.proxy
    return self.original


def _set_data(tx: Frame, self: TensorVariable, value: VariableTracker | None) -> None:
    """`THPVariable_set_data`: the tensor from now on has the other's data; earlier views of it keep theirs."""
    if value is self:
        return
    if not isinstance(value, TensorVariable) or not (_is_described(self) and _is_described(value)):
        unsupported("tensor-attribute", f"assignment to the data of {self.describe()}")
    if value.proxy.is_fake is not self.proxy.is_fake:
        unsupported(FAKE_INPUTS, "assignment to the data of a tensor, of which one is a FakeTensor")
    if value.data_of is not None and value.data_of.is_still(self, value):
        return
    mine, other = self.proxy.meta, value.proxy.meta
    if mine.requires_grad and self.proxy in tx.tr.graph.passes.leaves.made:
        if not is_unused(tx.tr.graph, self.proxy):
            unsupported("tensor-attribute", "assignment to the data of a leaf of which something has gradients")
        _become(tx, self, value)
        return
    _check_replaceable(tx, self, other)
    if mine.requires_grad and _is_of_another_kind(mine, other):
        _become(tx, self, value)
        return
    data = tx.tr.graph.call(tx, "call_method", "detach", [value])
    before = _original(self)
    if mine.requires_grad:
        made = tx.tr.graph.call(tx, "call_function", with_data, [ValueVariable(before), data], memo=False)
        made.proxy.meta = made.proxy.meta.replace(requires_grad=True, is_leaf=mine.is_leaf)
    else:
        made = _graph_attribute(tx, data, "data")
    if self.source is not None:
        tx.tr.effects.mutating(self)
        tx.tr.graph.passes.assigned.values.append(before)
        nodes = () if self.replaced is None else self.replaced.nodes
        self.replaced = TensorData(data, (*nodes, made.proxy.node))
    self.proxy = made.proxy
    self.proxy.tracker = self


def _is_of_another_kind(mine: TensorMeta, other: TensorMeta) -> bool:
    """Whether gradients of a tensor with this data are no gradients of the tensor as it was."""
    return (mine.shape, mine.dtype, mine.device) != (other.shape, other.dtype, other.device)


def _become(tx: Frame, self: TensorVariable, value: TensorVariable) -> None:
    """Assignment of other data to a leaf whose gradients nothing uses yet: from here on it is a new leaf with that data."""
    graph = tx.tr.graph
    before = _original(self)
    data = graph.call(tx, "call_method", "detach", [value])
    make_leaf(tx, self, _graph_attribute(tx, data, "data"))
    if self.source is not None:
        tx.tr.effects.mutating(self)
        graph.passes.assigned.values.append(before)
        self.replaced = TensorData(data, () if self.replaced is None else self.replaced.nodes)
        graph.passes.leaves.made[self.proxy].owner = before


def _is_as_found(tx: Frame) -> bool:
    """Whether the traced code has changed nothing that decides about the texts of tensors: these are made before its changes."""
    options = torch._tensor_str.PRINT_OPTS
    read = {id(thing) for thing in (options, vars(options), torch._tensor_str, vars(torch._tensor_str))}
    changed = any(id(vt.value) in read for vt in tx.tr.effects.mutations)
    return not changed and not tx.tr.state.has_other_default_dtype


def make_leaf(tx: Frame, self: TensorVariable, data: TensorVariable) -> None:
    """From here on the tensor is a leaf that has this data."""
    self.proxy = data.proxy
    self.proxy.tracker = self
    tx.tr.graph.call(tx, "call_method", "requires_grad_", [self])


def _is_described(vt: TensorVariable) -> bool:
    """Whether the metadata say all about a tensor's data."""
    return vt.proxy.meta.interned or type(vt.proxy.meta) is not LiveMeta


def _check_replaceable(tx: Frame, self: TensorVariable, other: TensorMeta) -> None:
    """Break before an assignment to a tensor that an operator has saved for its gradient: it would find the new data in it."""
    graph, mine = tx.tr.graph, self.proxy.meta
    if graph.scope is not None and (self.source is not None or mine.requires_grad):
        unsupported("tensor-attribute", "assignment to the data of a tensor from outside of a body")
    is_leaf_from_outside = self.source is not None and mine.is_leaf
    if mine.requires_grad and _is_of_another_kind(mine, other) and (other.live or not is_leaf_from_outside):
        unsupported("tensor-attribute", f"assignment of {other} to the data of {mine}")
    if self.attributes is not None and "grad" in self.attributes and mine.shape != other.shape:
        unsupported("tensor-attribute", "assignment of other sizes to the data of a tensor with a new gradient")
    node = self.proxy.node
    if node is not None and any(map(requires_grad, node.users)) and is_kept(graph, node):
        unsupported("tensor-attribute", "assignment to the data of a tensor that a gradient may need")


class DataOf(NamedTuple):
    """The origin of a result of `tensor.data`."""

    owner: TensorVariable
    value: TensorValue
    data: TensorValue

    def is_still(self, owner: TensorVariable, data: TensorVariable) -> bool:
        """Whether assigning it to the `data` of that tensor, after operators have changed it in place, changes nothing more."""
        if owner is not self.owner or owner.proxy is not self.value or data.proxy is not self.data:
            return False
        return _are_one_view(owner.proxy.meta, data.proxy.meta)


def _are_one_view(one: TensorMeta, other: TensorMeta) -> bool:
    """Whether two tensors of one memory have the same elements of it in the same places."""
    return (one.shape, one.stride, one.offset) == (other.shape, other.stride, other.offset)


@_getter("data")
def tensor_data(tx: Frame, self: TensorVariable) -> VariableTracker:
    """`THPVariable_get_data`"""
    result = _graph_attribute(tx, self, "data")
    result.data_of = DataOf(self, self.proxy, result.proxy)
    return result


SETTERS.update(grad=_set_grad, requires_grad=_set_requires_grad, data=_set_data)


def _attribute_by_name(name: str) -> tuple[Any, Any]:
    """Getter and setter of a descriptor that the program calls itself."""
    return (
        lambda tx, tensor: tensor.tp_getattro(tx, name),
        lambda tx, tensor, value: tensor.tp_setattro(tx, name, value),
    )


GETSETS.update(
    {raw: _attribute_by_name(n) for n, raw in vars(_BASE).items() if isinstance(raw, types.GetSetDescriptorType)}
)


# -- building


@builds(torch.Tensor)
def build_tensor(tr: Trace, value: torch.Tensor, source: GuardNode | None) -> TensorVariable:
    return tr.graph.outside.tensor(value, source)


@builds(torch.nn.Parameter)
def build_parameter(tr: Trace, value: torch.Tensor, source: GuardNode | None) -> TensorVariable:
    vt = tr.graph.outside.tensor(value, source)
    vt.cls = torch.nn.Parameter
    return vt


@packs(TensorVariable)
def pack_tensor(packing: Packing, vt: TensorVariable) -> Any:
    return packing.tensor(vt.proxy)


class ValueVariable(VariableTracker):
    """A graph value as an argument of a node, whatever it is to the traced program."""

    def __init__(self, proxy: Any) -> None:
        self.proxy = proxy

    def python_type(self) -> type:
        return object


@packs(ValueVariable)
def pack_value(packing: Packing, vt: ValueVariable) -> Any:
    return packing.tensor(vt.proxy) if hasattr(vt.proxy, "meta") else packing.symbol(vt.proxy)


@constructor(torch.nn.Parameter)
def new_parameter(
    tx: Frame, cls: VariableTracker, data: VariableTracker | None = None, requires_grad: VariableTracker | None = None
) -> VariableTracker:
    wanted = requires_grad is None or requires_grad.as_python_constant()
    call = tx.tr.graph.call
    if data is None:
        data = call(tx, "call_function", torch.empty, [ConstantVariable(0)])
    if not isinstance(data, TensorVariable):
        return unsupported("graph-argument-type", f"Parameter of a {name_of(data.python_type())}")
    if data.proxy.is_fake or modes.fake_mode() is not None:
        return unsupported(FAKE_INPUTS, "Parameter of a FakeTensor")
    if wanted and not (data.proxy.meta.dtype.is_floating_point or data.proxy.meta.dtype.is_complex):
        return unsupported("fake-tensor-error", "only floating point parameters can require gradients")
    made = NewParameterVariable(call(tx, "call_method", "detach", [data]).proxy)
    return call(tx, "call_method", "requires_grad_", [made]) if wanted else made


IDENTITY_HASHES.add(torch.Tensor.__hash__)
