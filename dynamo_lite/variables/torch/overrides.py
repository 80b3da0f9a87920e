"""The `__torch_function__` protocol: tensor subclasses and function modes that override torch's functions.

Input: a call of a torch function or operator, or a read of a tensor's C attribute. Output: the result of the override's
`__torch_function__`, which is followed like any method; None if no argument and no mode overrides.
Invariant: while a trace has met neither a subclass nor a mode, its `overrides` is None and nothing here runs. Graphs hold plain tensors:
an input of a subclass is unwrapped on the way in, an output is wrapped on the way out.
Mirrors `torch/csrc/utils/python_arg_parser.cpp` (`handle_torch_function_no_python_arg_parser`, `append_overloaded_arg`),
`torch/csrc/autograd/init.cpp` (the stack of modes), `torch/csrc/utils/disable_torch_function.cpp` and `torch/overrides.py`.
"""

from __future__ import annotations

import contextlib
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import DeviceContext, _device_constructors

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core import modes
from dynamo_lite.graph.core.arguments import MODELS, Overridden, Packing, packs
from dynamo_lite.graph.core.wrapper_tensors import is_followed, is_wrapper
from dynamo_lite.graph.inputs.bare_attributes import SKIPS_NEXT, untold
from dynamo_lite.graph.inputs.fake_inputs import SLUG as FAKE_INPUTS
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import lookup, mro_of, name_of, qualname_of
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.instance import InstanceVariable
from dynamo_lite.variables.objects.subclass import PLAIN_BASES
from dynamo_lite.variables.objects.type import TypeVariable
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import (
    FALSE,
    NONE,
    NOT_IMPLEMENTED,
    ConstantVariable,
    boolean,
    fold,
    is_none,
)
from dynamo_lite.variables.protocol.descr import METHOD_DESCRIPTORS, generic_getattr, refuse_finalizer
from dynamo_lite.variables.protocol.dispatch import HANDLERS, builtin, constructor, method
from dynamo_lite.variables.protocol.wrap import builds_subclasses

from .numpy.models import ArrayVariable, tensor_of_array
from .subclasses.announcements import asks_in_code, declines_by_type_error, is_method_of_tensors, public_function, told
from .subclasses.wrapper_tensor import WrapperTensorVariable, build_wrapper
from .tensor import FOREIGN_OPERANDS, GETTERS, TensorVariable, ValueVariable, class_attribute, is_operand
from .tensor_new import legacy_of_numbers
from .tensor_slots import guard_slots, with_own_slots
from .value_types import with_named_size

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.graph.core.values import TensorValue
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

_C = torch._C

_SKIP_ONE_HOP = getattr(_C, "_skip_one_hop_torch_function", None)

# -- who overrides


def overrides_torch_function(cls: type) -> bool:
    """True for a class with a `__torch_function__` of its own. torch switches that of a class with `__torch_dispatch__` alone off."""
    if cls is torch.Tensor or cls is torch.nn.Parameter:
        return False
    override = lookup(cls, "__torch_function__")
    if type(override) is property:  # torch asks the object, and takes one that raises for one that has none
        unsupported("tensor-subclass", f"{name_of(cls)}.__torch_function__ is a property")
    return override is not None and override is not _C._disabled_torch_function_impl


_CACHED = (torch.overrides.get_default_nowrap_functions, _device_constructors)
_OF_C = "as_subclass _fix_weakref _rev_view_func_unsafe _use_count _view_func _view_func_unsafe".split()
NOT_OVERRIDABLE = frozenset((*_CACHED, *[vars(_C.TensorBase)[name] for name in _OF_C if name in vars(_C.TensorBase)]))
"""Functions that ask nobody: cached ones without arguments, and methods of tensors in `python_variable.cpp` itself."""


def _can_override(vt: VariableTracker) -> bool:
    cls = vt.python_type()
    if not isinstance(vt, TensorVariable | InstanceVariable) or not overrides_torch_function(cls):
        return False
    return not isinstance(vt, WrapperTensorVariable) or is_followed(cls)  # another is asked when the operator runs


def overloaded_arguments(args: list[Any]) -> list[Any]:
    """The arguments whose classes override torch functions, one of each class, subclasses first."""
    found: list[Any] = []
    for arg in args:
        for vt in arg.items if isinstance(arg, TupleVariable | ListVariable) else (arg,):
            if not _can_override(vt):
                continue
            cls = vt.python_type()
            if any(known.python_type() is cls for known in found):
                continue
            index = next((i for i, k in enumerate(found) if issubclass(cls, k.python_type())), len(found))
            found.insert(index, vt)
    return found


class FunctionModeStack(VariableTracker):
    """The modes that the traced code has entered; they are pushed for real when the code that it is replaced by goes on."""

    mutated = True

    def __init__(self, source: GuardNode | None) -> None:
        self.source = source
        self.value = self
        self.modes: list[VariableTracker] = []
        self.around: list[VariableTracker] = []  # those that were active when the frame was entered

    def python_type(self) -> type:
        return list

    def children(self) -> Any:
        return self.modes

    def describe(self) -> str:
        return "the stack of torch's function modes"

    def differs(self) -> bool:
        return self.modes != self.around

    def emit_update(self, cg: Codegen) -> None:
        kept = 0
        while self.around[kept : kept + 1] == self.modes[kept : kept + 1] and kept < len(self.around):
            kept += 1
        for _ in self.around[kept:]:
            cg.load_callable(_C._pop_torch_function_stack)
            cg.asm.call(0)
            cg.asm.pop_top()
        for mode in self.modes[kept:]:
            cg.load_callable(_C._push_on_torch_function_stack)
            cg.load(mode)
            cg.asm.call(1)
            cg.asm.pop_top()


def _nobody_implements(function: Any, overloaded: list[VariableTracker]) -> str:
    """What `handle_torch_function_no_python_arg_parser` says."""
    classes = "".join(f"  - tensor subclass {vt.python_type()!r}\n" for vt in overloaded)
    return (
        f"Multiple dispatch failed for '{_name_in_errors(function)}'; all __torch_function__ handlers returned NotImplemented:\n\n"
        f"{classes}\nFor more information, try re-running with TORCH_LOGS=not_implemented"
    )


def _name_in_errors(function: Any) -> str:
    """A function of torch as its C++ code calls it."""
    owner = getattr(function, "__self__", None)
    if type(owner) is types.GetSetDescriptorType:
        return f"torch.Tensor.{owner.__name__}.{function.__name__}"
    if isinstance(function, METHOD_DESCRIPTORS):
        return f"torch.Tensor.{function.__name__}"
    return f"{function.__module__.replace('torch._C._', 'torch.')}.{function.__name__}"


class Overrides:
    """The modes and subclasses that see torch functions at this point of a trace."""

    def __init__(self, tr: Trace) -> None:
        self.stack = FunctionModeStack(tr.constant_source(tr))
        self.ignores_subclasses = False
        self.ignores_modes = False
        self.skips_next = False  # the next question whether anybody overrides is answered with no

    @property
    def has_mode(self) -> bool:
        """True if a mode is active."""
        return bool(self.stack.modes) and not self.ignores_modes

    def overloaded(self, function: object, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments whose classes torch names in a call. It asks these after the mode; plain tensors, which only a mode hears of, are
        never asked."""
        if self.ignores_subclasses and not self.has_mode:
            return []
        if not kwargs and is_method_of_tensors(function):
            kinds = _kinds(args)
            if self.ignores_subclasses:
                kinds = tuple("plain" if kind == "tensor" else kind for kind in kinds)
            call = told(function, kinds, self.has_mode)
            if call is not None:
                # Methods without arguments, and attributes: the C code hands over its object, whatever its class.
                plain = [arg for i, arg in enumerate(args) if kinds[i] == "plain" and i in call.positions]
                if plain:
                    return plain
                named = [i in call.positions or kind not in ("tensor", "object") for i, kind in enumerate(kinds)]
                args = [arg for arg, is_named in zip(args, named, strict=True) if is_named]
        return [] if self.ignores_subclasses else overloaded_arguments([*args, *kwargs.values()])

    def applies(self, function: object, args: list[Any], kwargs: dict[str, Any]) -> bool:
        """Whether somebody overrides the call."""
        return self.has_mode or bool(self.overloaded(function, args, kwargs))

    def asked_in_code(self, function: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> bool:
        """Whether the code of a Python function of torch asks somebody about this call."""
        if self.skips_next or not (function in HANDLERS and asks_in_code(function.__code__)):
            return False
        if function is torch._assert:  # which asks about no plain tensor
            return bool(self.overloaded(function, args, kwargs))
        return self.applies(function, args, kwargs)

    def dispatch(
        self, tx: Frame, function: VariableTracker, args: list[Any], kwargs: dict[str, Any]
    ) -> VariableTracker | None:
        """Ask the mode, then the arguments. None if nobody overrides."""
        overloaded = self.overloaded(function.value, args, kwargs)
        if not overloaded and not self.has_mode:
            return None
        step = tx.tr.thread.failing_step()
        try:
            return self._ask(tx, function, overloaded, args, kwargs)
        except Unsupported as error:
            # Half of the call can't be resumed: the state of the protocol is the process's, not the frame's.
            error.break_step = step
            raise

    def _ask(
        self, tx: Frame, function: VariableTracker, overloaded: list[Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        classes = TupleVariable([tx.tr.type_of(tx, vt) for vt in overloaded])
        packed = [function, classes, TupleVariable(list(args))]
        if kwargs:  # torch's C code passes none otherwise; the Python function `handle_torch_function`, an empty dict
            packed.append(_dict(tx, kwargs))
        if self.has_mode:
            with self.without_innermost_mode() as mode:
                result = tx.call(mode.tp_getattro(tx, "__torch_function__"), packed)
            if not _is_not_implemented(result):
                return result
            if not all(map(_can_override, overloaded)):
                unsupported("torch-function-mode", "no function mode implements a call, and torch asks a plain tensor")
        for vt in overloaded:
            result = tx.call(vt.tp_getattro(tx, "__torch_function__"), packed)
            if not _is_not_implemented(result):
                return result
        if self.has_mode:
            unsupported("format", "the error that no function mode implements a call, which names the mode")
        return tx.raises(TypeError, _nobody_implements(function.value, overloaded))

    @contextlib.contextmanager
    def below(self, and_modes: bool = False) -> Iterator[None]:
        """Ask no class, as `torch._C.DisableTorchFunctionSubclass` does, and perhaps no mode."""
        before = self.ignores_subclasses, self.ignores_modes
        self.ignores_subclasses, self.ignores_modes = True, self.ignores_modes or and_modes
        try:
            yield
        finally:
            self.ignores_subclasses, self.ignores_modes = before

    def skipping(self) -> contextlib.AbstractContextManager[None]:
        """Call a function in C whose question is the one that `skips_next` is about: it runs below classes and modes."""
        self.skips_next = False
        return self.below(and_modes=True)

    @contextlib.contextmanager
    def without_innermost_mode(self) -> Iterator[VariableTracker]:
        """The innermost mode, taken off the stack while its own method runs."""
        modes = self.stack.modes
        mode = modes.pop()
        try:
            yield mode
        finally:
            modes.append(mode)

    # -- what is not a call of a torch function by name

    def operator(self, tx: Frame, function: object, args: list[Any]) -> VariableTracker | None:
        """An operator on tensors and numbers; None if nobody overrides."""
        if not self.skips_next and not self.applies(function, args, {}):
            return None
        kinds = _kinds(args)
        public = public_function(function, kinds, self.has_mode)
        if public is None:
            return NOT_IMPLEMENTED
        target = tx.tr.build_constant_object(public)
        # `1 - x` calls the method of x.
        if not isinstance(args[0], TensorVariable):
            args = args[::-1]
        try:
            return target.tp_call(tx, args, {})
        except ObservedException as observed:
            if issubclass(observed.exc.python_type(), TypeError) and declines_by_type_error(function, kinds):
                return NOT_IMPLEMENTED
            raise

    def getter(self, tx: Frame, raw: types.GetSetDescriptorType, tensor: TensorVariable) -> VariableTracker | None:
        """A read of an attribute implemented in C."""
        if self.skips_next:
            with self.skipping():
                read = GETTERS.get(raw)
                return read(tx, tensor) if read is not None else None
        return self._accessor(tx, raw.__get__, [tensor])

    def setter(
        self, tx: Frame, raw: types.GetSetDescriptorType, tensor: TensorVariable, value: VariableTracker | None
    ) -> bool:
        """Whether somebody overrides a write to an attribute implemented in C (None: its deletion), and has been asked."""
        function, args = (raw.__delete__, [tensor]) if value is None else (raw.__set__, [tensor, value])
        return self._accessor(tx, function, args) is not None

    def _accessor(self, tx: Frame, function: types.MethodWrapperType, args: list[Any]) -> VariableTracker | None:
        if told(function, _kinds(args), self.has_mode) is None or not self.applies(function, args, {}):
            return None
        return self.dispatch(tx, tx.tr.build_constant_object(announced(tx, function, args)), args, {})


def activate(tr: Trace) -> Overrides:
    """The overrides of a trace, from now on asked about every call."""
    if tr.overrides is None:
        overrides = tr.overrides = Overrides(tr)
        tr.effects.mutations.append(overrides.stack)
        tr.state.guard_modes()  # before `go_below`: torch's guard on its global state includes the switch of the protocol
        overrides.ignores_subclasses = not modes.subclasses_are_asked()
        overrides.ignores_modes = _C._is_torch_function_all_disabled()
        if SKIPS_NEXT is not None:
            tr.state.read(SKIPS_NEXT, ())
        for i, mode in enumerate(modes.take_all()):
            source = tr.source(tr.constant_source(i), ir.CALL, _C._get_function_stack_at)
            overrides.stack.around.append(tr.wrap(mode, source))
        overrides.stack.modes.extend(overrides.stack.around)
    return tr.overrides


def _operate_with_object(tx: Frame, function: Any, args: list[VariableTracker]) -> VariableTracker:
    """An operator of a tensor and an object that is none: its class overrides torch functions, or it is a number (an `IntEnum` member say),
    or the tensor knows nothing of it. An index may be a sequence, or have an `__index__`, as well."""
    if function in (operator.getitem, operator.setitem):
        return tx.tr.graph.call(tx, "call_function", function, args)
    if overloaded_arguments(args):
        result = activate(tx.tr).operator(tx, function, args)
        if result is not None:
            return result
    return tx.tr.graph.call(tx, "call_function", function, args) if all(map(is_operand, args)) else NOT_IMPLEMENTED


FOREIGN_OPERANDS[InstanceVariable] = _operate_with_object


def _meet_overrides(tr: Trace) -> Overrides:
    overrides = activate(tr)
    modes.go_below()
    return overrides


MODELS.meet_modes = activate
MODELS.meet_overrides = _meet_overrides


def _is_not_implemented(vt: VariableTracker) -> bool:
    return isinstance(vt, ConstantVariable) and vt.value is NotImplemented


def _dict(tx: Frame, items: dict[str, Any]) -> VariableTracker:
    result = tx.tr.wrap_new({})
    for name, value in items.items():
        result.mp_ass_subscript(tx, ConstantVariable(name), value)
    return result


def _kinds(args: list[VariableTracker]) -> tuple[str, ...]:
    """What stands at each position of a call, as samples are made for it: "tensor" overrides, a "plain" one does not, and "object"
    overrides and is no tensor. An instance of a subclass of `int` may be a number like others."""

    def kind(vt: VariableTracker) -> str:
        if not isinstance(vt, TensorVariable):
            return "object" if _can_override(vt) else "number"
        return "tensor" if overrides_torch_function(vt.python_type()) else "plain"

    return tuple(map(kind, args))


def announced(tx: Frame, fn: Callable[..., Any], args: list[VariableTracker]) -> Any:
    """The function that overrides see when the program calls `fn`: `__mul__` is `mul`, `nelement` is `numel`."""
    is_short = len(args) == 1 or getattr(fn, "__name__", "").startswith("__")
    if is_short and is_method_of_tensors(fn) and all(map(is_operand, args)):
        return public_function(fn, _kinds(args), tx.tr.overrides.has_mode) or fn
    return fn


# -- tensors of a subclass


def unwrap(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor as a plain one. Guards call this too."""
    with untold():
        return torch.Tensor.as_subclass(tensor, torch.Tensor)  # past a `__getattribute__` of its class


class TensorSubclassVariable(TensorVariable):
    """A tensor of a class with a `__torch_function__`."""

    def __init__(self, proxy: TensorValue, cls: type) -> None:
        super().__init__(proxy)
        self.cls = cls

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        raw = class_attribute(self.cls, name)
        if raw is not class_attribute(torch.Tensor, name):
            found = self.instance_attribute(tx, name) if self.has_attribute(name) else None
            return found if found is not None else generic_getattr(tx, self, name)
        return super().tp_getattro(tx, name)

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(torch.Tensor.as_subclass)
        super().emit_new(cg)
        cg.load_const(self.cls)
        cg.asm.call(2)


@packs(TensorSubclassVariable)
def pack_subclass(packing: Packing, vt: TensorSubclassVariable) -> Any:
    if not packing.builder.tr.overrides.ignores_subclasses:
        raise Overridden(vt.cls)
    return packing.tensor(vt.proxy)


@packs(WrapperTensorVariable)
def pack_wrapper(packing: Packing, vt: WrapperTensorVariable) -> Any:
    overrides = packing.builder.tr.overrides
    if overrides is not None and not overrides.ignores_subclasses and is_followed(vt.cls):
        raise Overridden(vt.cls)
    return packing.tensor(vt.proxy)


def _is_overriding_tensor(cls: type) -> bool:
    """A subclass of which only `__torch_function__` matters: torch below sees a plain tensor."""
    dispatch = getattr(cls, "__torch_dispatch__", None)
    return overrides_torch_function(cls) and dispatch in (None, _C._disabled_torch_dispatch_impl)


def _is_like_plain(cls: type) -> bool:
    """A subclass that takes no part in any protocol: operators give plain tensors."""
    off = _C._disabled_torch_function_impl, _C._disabled_torch_dispatch_impl
    return (cls.__torch_function__, getattr(cls, "__torch_dispatch__", None)) == off


def _build_passive(tr: Trace, value: torch.Tensor, source: GuardNode | None) -> TensorVariable:
    cls = type(value)
    if issubclass(cls, torch.nn.Parameter):
        vt = tr.graph.outside.tensor(value, source)
    else:
        tr.guard(source, ir.TYPE_IS, cls)
        vt = TensorVariable(tr.graph.outside.value(unwrap(value), tr.source(source, ir.CALL, unwrap)))
        vt.source, vt.value = source, value
    vt.cls = cls
    guard_slots(tr, cls)
    return with_own_slots(vt)


@builds_subclasses(torch.Tensor)
def build_tensor_subclass(tr: Trace, value: torch.Tensor, source: GuardNode | None) -> VariableTracker:
    cls = type(value)
    if modes.fake_mode() is not None:
        return unsupported(FAKE_INPUTS, f"{cls.__module__}.{cls.__qualname__} under a FakeTensorMode")
    if is_wrapper(value):
        return build_wrapper(tr, value, source)
    if _is_like_plain(cls):
        return _build_passive(tr, value, source)
    if getattr(cls, "__torch_dispatch__", None) is not _C._disabled_torch_dispatch_impl or not _is_overriding_tensor(
        cls
    ):
        return unsupported("tensor-subclass", f"{cls.__module__}.{cls.__qualname__}")
    _meet_overrides(tr)
    tr.guard(source, ir.TYPE_IS, cls)
    guard_slots(tr, cls)
    plain = tr.graph.outside.value(unwrap(value), tr.source(source, ir.CALL, unwrap))
    vt = with_own_slots(TensorSubclassVariable(plain, cls))
    vt.source, vt.value = source, value
    return vt


def wanted_class(cls: VariableTracker) -> type:
    """The class that a tensor is to be of. Raises `Unsupported` for what is no class."""
    if not isinstance(cls, TypeVariable):
        unsupported("tensor-subclass", f"a {qualname_of(cls.python_type())} as the class of a tensor")
    return cls.as_python_constant()


@method(torch.Tensor.as_subclass)
def as_subclass(tx: Frame, self: TensorVariable, cls: VariableTracker) -> VariableTracker:
    return as_class(tx, self, wanted_class(cls))


def _below(tx: Frame, op: str, target: object, tensor: TensorVariable) -> TensorVariable:
    """Put an operator on a tensor of any class into the graph, below the protocol."""
    return tx.tr.graph.call(tx, op, target, [ValueVariable(tensor.proxy)])


def _refuse_fake(tensor: TensorVariable, cls: type) -> None:
    if tensor.proxy.is_fake or modes.fake_mode() is not None:
        unsupported(FAKE_INPUTS, f"{cls.__qualname__} of a FakeTensor")


def as_class(tx: Frame, tensor: TensorVariable, cls: type) -> VariableTracker:
    """The tensor once more, as an instance of `cls`."""
    _refuse_fake(tensor, cls)
    refuse_finalizer(tx, cls)
    if cls is torch.Tensor or _is_overriding_tensor(cls):
        alias = _below(tx, "call_function", torch.ops.aten.alias.default, tensor)
        if cls is torch.Tensor:
            return alias
        activate(tx.tr)
        guard_slots(tx.tr, cls)
        return with_own_slots(TensorSubclassVariable(alias.proxy, cls))
    return unsupported("tensor-subclass", f"{cls.__module__}.{cls.__qualname__}")


@builtin(torch.Tensor._make_subclass)
def make_subclass(
    tx: Frame,
    cls: VariableTracker,
    data: TensorVariable,
    require_grad: VariableTracker = FALSE,
    **options: VariableTracker,
) -> VariableTracker:
    wanted = wanted_class(cls)
    if options or not isinstance(data, TensorVariable) or not _is_overriding_tensor(wanted):
        return unsupported("tensor-subclass", f"{wanted.__module__}.{wanted.__qualname__}")
    _refuse_fake(data, wanted)
    refuse_finalizer(tx, wanted)
    result = _below(tx, "call_method", "detach", data)
    if require_grad.as_python_constant():
        result = _below(tx, "call_method", "requires_grad_", result)
    activate(tx.tr)
    guard_slots(tx.tr, wanted)
    return with_own_slots(TensorSubclassVariable(result.proxy, wanted))


@constructor(torch.Tensor)
@builtin(_C.TensorBase.__new__)
def new_tensor(tx: Frame, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    wanted = wanted_class(cls)
    plain = [_plain(tx, a) for a in args]
    if wanted is not torch.Tensor and len(plain) == 1 and not kwargs and isinstance(plain[0], TensorVariable):
        return as_class(tx, plain[0], wanted)
    if wanted is torch.Tensor and len(plain) == 1 and isinstance(plain[0], ArrayVariable) and not kwargs:
        dtype = tx.tr.state.read(torch.get_default_dtype, ())
        return tensor_of_array(tx, plain[0], {"dtype": ConstantVariable(dtype)}, copy=False)
    given, named = with_named_size(plain, kwargs)
    made = legacy_of_numbers(tx, given, named, tx.tr.state.read(torch.get_default_dtype, ()), torch.device("cpu"))
    made = made or tx.tr.graph.call(tx, "call_function", torch.Tensor, given, named)
    return made if wanted is torch.Tensor else as_class(tx, made, wanted)


PLAIN_BASES.update(cls for cls in mro_of(torch.Tensor) if cls is not object)


def _plain(tx: Frame, vt: VariableTracker) -> VariableTracker:
    return as_class(tx, vt, torch.Tensor) if isinstance(vt, TensorSubclassVariable) else vt


# -- the stack of modes


@builtin(_C._push_on_torch_function_stack)
def push_mode(tx: Frame, mode: VariableTracker) -> VariableTracker:
    activate(tx.tr).stack.modes.append(mode)
    return NONE


@builtin(_C._pop_torch_function_stack)
def pop_mode(tx: Frame) -> VariableTracker:
    overrides = tx.tr.overrides
    if overrides is None or not overrides.stack.modes:
        return unsupported("torch-function-mode", "a mode that was entered before is left")
    return overrides.stack.modes.pop()


@builtin(_C._get_function_stack_at)
def stack_at(tx: Frame, index: VariableTracker) -> VariableTracker:
    if tx.tr.overrides is None:
        return unsupported("torch-function-mode", "the stack of modes is read")
    return tx.tr.overrides.stack.modes[index.as_python_constant()]


@builtin(_C._disabled_torch_function_impl)
def disabled_torch_function(
    tx: Frame,
    func: VariableTracker,
    types: VariableTracker,
    args: VariableTracker = NONE,
    kwargs: VariableTracker = NONE,
) -> VariableTracker:
    """`THPModule_disable_torch_function`"""
    given, named = _arguments(tx, args, kwargs)
    with activate(tx.tr).below():
        return tx.call(func, given, named)


def skip_one_hop(
    tx: Frame,
    func: VariableTracker,
    types: VariableTracker,
    args: VariableTracker = NONE,
    kwargs: VariableTracker = NONE,
) -> VariableTracker:
    """`THPModule_skip_one_hop_torch_function`"""
    given, named = _arguments(tx, args, kwargs)
    overrides = activate(tx.tr)
    if overrides.skips_next:
        return unsupported("torch-function-mode", "two levels of __torch_function__ are skipped at once")
    step = tx.tr.thread.failing_step()
    overrides.skips_next = True
    try:
        return tx.call(func, given, named)
    except Unsupported as error:
        error.break_step = step  # the state is the process's, not the frame's
        raise
    finally:
        overrides.skips_next = False


if _SKIP_ONE_HOP is not None:
    HANDLERS[_SKIP_ONE_HOP] = skip_one_hop


def _arguments(tx: Frame, args: VariableTracker, kwargs: VariableTracker) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that a `__torch_function__` is given."""
    given = [] if is_none(args) else tx.tr.unpack(tx, args)
    if is_none(kwargs):
        return given, {}
    if not isinstance(kwargs, DictVariable):
        return unsupported("torch-function-mode", f"keyword arguments in a {kwargs.python_type().__qualname__}")
    return given, {name.as_python_constant(): value for name, value in kwargs.pairs()}


_READS: dict[Any, Callable[[Overrides], int | bool]] = {
    _C._len_torch_function_stack: lambda overrides: len(overrides.stack.modes),
    _C._is_torch_function_mode_enabled: lambda overrides: overrides.has_mode,
    _C._is_torch_function_enabled: lambda overrides: not overrides.ignores_subclasses,
}
"""Function that tells about the state of the protocol → its answer where the trace keeps that state."""


def _read_of(
    function: Callable[[], Any], answer: Callable[[Overrides], int | bool]
) -> Callable[[Frame], VariableTracker]:
    def handler(tx: Frame) -> VariableTracker:
        overrides = tx.tr.overrides
        return ConstantVariable(tx.tr.state.read(function, ()) if overrides is None else answer(overrides))

    return handler


for _function, _answer in _READS.items():
    HANDLERS[_function] = _read_of(_function, _answer)


@constructor(torch.device)
def new_device(tx: Frame, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """`THPDevice_pynew`, which asks modes."""
    overrides = tx.tr.overrides
    asked = overrides.dispatch(tx, cls, list(args), kwargs) if overrides is not None and overrides.has_mode else None
    return asked or fold(tx, torch.device, list(args), kwargs)


# A device as a context manager is a mode that gives factory functions their device.


@method(torch.device.__enter__)
def enter_device(tx: Frame, self: VariableTracker) -> VariableTracker:
    """`THPDevice_enter`: not the method of that mode, which puts itself below all others."""
    push_mode(tx, tx.call(tx.tr.build_constant_object(DeviceContext), [self]))
    return self


@method(torch.device.__exit__)
def exit_device(tx: Frame, self: VariableTracker, *exc: VariableTracker) -> VariableTracker:
    """`THPDevice_exit`: whichever mode is the innermost one is left."""
    pop_mode(tx)
    return NONE


def _returns(function: Callable[[], Any]) -> None:
    """Model a cached function without arguments, which always returns the same object."""
    HANDLERS[function] = lambda tx: tx.tr.wrap(function(), tx.tr.constant_source(function()))


for _function in _CACHED:
    _returns(_function)


# -- switching the protocol off


class DisableTorchFunctionVariable(VariableTracker):
    """A `torch._C.DisableTorchFunctionSubclass()` or `torch._C.DisableTorchFunction()`. It can be entered only within one trace."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.source = None
        self.entered: tuple[int, bool, bool] | None = None  # the step to break at, and what was ignored before

    def python_type(self) -> type:
        return self.cls

    def emit_new(self, cg: Codegen) -> None:
        if self.entered is not None:
            raise Unsupported("torch-function-mode", f"a break inside {self.cls.__name__}").at(self.entered[0])
        cg.load_callable(self.cls)
        cg.asm.call(0)


@constructor(_C.DisableTorchFunctionSubclass, _C.DisableTorchFunction)
def new_disable(tx: Frame, cls: VariableTracker) -> VariableTracker:
    return DisableTorchFunctionVariable(cls.as_python_constant())


@method(_C.DisableTorchFunctionSubclass.__enter__, _C.DisableTorchFunction.__enter__)
def enter_disable(tx: Frame, self: DisableTorchFunctionVariable) -> VariableTracker:
    overrides = activate(tx.tr)
    self.entered = (tx.tr.thread.failing_step(), overrides.ignores_subclasses, overrides.ignores_modes)
    overrides.ignores_subclasses = True
    if self.cls is _C.DisableTorchFunction:
        overrides.ignores_modes = True
    return NONE


@method(_C.DisableTorchFunctionSubclass.__exit__, _C.DisableTorchFunction.__exit__)
def exit_disable(tx: Frame, self: DisableTorchFunctionVariable, *exc: VariableTracker) -> VariableTracker:
    _, tx.tr.overrides.ignores_subclasses, tx.tr.overrides.ignores_modes = self.entered
    self.entered = None
    return FALSE


# -- asking whether anybody overrides


def _has_override(tx: Frame, *args: VariableTracker) -> VariableTracker:
    overrides = tx.tr.overrides
    if overrides is not None and overrides.skips_next:
        overrides.skips_next = False
        return FALSE
    if overrides is not None:
        return boolean(overrides.has_mode or (not overrides.ignores_subclasses and _any_overrides(args)))
    return boolean(_any_overrides(args))


def _any_overrides(args: Iterable[VariableTracker]) -> bool:
    return any(overrides_torch_function(vt.python_type()) for vt in args)


HANDLERS[_C._has_torch_function_unary] = HANDLERS[_C._has_torch_function_variadic] = _has_override


@builtin(_C._has_torch_function)
def has_torch_function(tx: Frame, args: VariableTracker) -> VariableTracker:
    return _has_override(tx, *tx.tr.unpack(tx, args))
