"""Torch functions: which callables become graph nodes, and which are answered during the analysis.

Input: a callable of torch. Output: `TorchFunctionVariable` for those that enter the graph; handlers for the rest.
Invariant: the rule is the kind of callable and the module that defines it, not its name: C functions of torch's
operator namespaces, operators of the dispatcher, and the Python functions of `torch.nn.functional`, `torch.functional`
and `torch._tensor` enter the graph; all other Python functions are followed.
Mirrors `torch/csrc/autograd/python_torch_functions_manual.cpp` and `torch/overrides.py`.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch._ops import OpOverload, OpOverloadPacket
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core.arguments import MODELS, Overridden, Packing, packs
from dynamo_lite.graph.core.functional import transforms_around
from dynamo_lite.graph.core.state import READS, SETTINGS, set_deterministic
from dynamo_lite.guards import ir
from dynamo_lite.isa.resume import is_resumed
from dynamo_lite.isa.typeobject import tp_name
from dynamo_lite.markers import is_allowed_in_graph
from dynamo_lite.polyfills.torch_autograd import InferenceMode
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.objects.function import MethodVariable, build_function, call_handler
from dynamo_lite.variables.protocol.abstract import type_name
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import (
    FALSE,
    NONE,
    NOT_IMPLEMENTED,
    ConstantVariable,
    boolean,
    fold,
    is_constant,
    is_flag,
    is_none,
)
from dynamo_lite.variables.protocol.descr import METHOD_DESCRIPTORS, DescriptorVariable, check_object
from dynamo_lite.variables.protocol.dispatch import HANDLERS, builtin, constructor, refuse
from dynamo_lite.variables.protocol.markers import is_compiling, refuse_marked
from dynamo_lite.variables.protocol.wrap import builds, builds_if
from dynamo_lite.variables.stdlib.sysmodule import shows_warnings

from .allow_in_graph import call_allowed
from .data_checks import check
from .graph_args import pack_callable
from .overrides import NOT_OVERRIDABLE, activate, announced, overloaded_arguments
from .symnode import SymNodeVariable, apply_number_function, is_unbacked
from .tensor import FOREIGN_ARGUMENTS, TensorVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

_C = torch._C

# -- the rule

C_NAMESPACES = frozenset({f"torch._C._{name}" for name in ("nn", "linalg", "fft", "special", "sparse", "nested")})
PYTHON_NAMESPACES = frozenset({"torch.nn.functional", "torch.functional", "torch._tensor"})

HIGHER_ORDER = (
    "torch._higher_order_ops",
    *(f"torch._functorch.{name}" for name in ("apis", "eager_transforms", "vmap", "predispatch", "pyfunctorch")),
)
"""Modules whose functions take functions and transform them: calling one is a break until there is a model of it."""

FOLLOWED_MODULES = frozenset(
    f"torch._higher_order_ops.{name}"
    for name in "_invoke_quant associative_scan cond flat_apply invoke_leaf_function invoke_subgraph map scan strict_mode"
    " utils while_loop".split()
)
"""Of these, the modules whose functions are Python around an operator that has a model."""

_OPERATOR_CLASS = "_VariableFunctionsClass."
_known: dict[Any, bool] = {}


def enters_graph(value: Any) -> bool:
    """Whether calls of `value` become one graph node. Cheap: it is asked about every object that is looked at."""
    rule = _RULES.get(type(value))
    if rule is None:
        return False
    known = _known.get(value)
    if known is None:
        known = rule(value)
        if known:
            _known[value] = True
    return known or is_allowed_in_graph(value)


def _builtin_rule(value: types.BuiltinFunctionType) -> bool:
    module = value.__module__
    return module in C_NAMESPACES or (module == "torch" and value.__qualname__.startswith(_OPERATOR_CLASS))


def _function_rule(value: types.FunctionType) -> bool:
    module = value.__module__
    if module in PYTHON_NAMESPACES:
        enters = value not in HANDLERS and value not in FOLLOWED and _has_a_name(value)
    else:
        enters = module is not None and module.startswith(HIGHER_ORDER) and not _is_followed(value)
    return enters and not is_resumed(value.__code__)  # the rest of one is followed


def _has_a_name(value: types.FunctionType) -> bool:
    """Whether the printed graph can name the function. Wrappers around C methods have the name of the method."""
    if value.__module__ == "torch._tensor" and value.__qualname__.startswith("Tensor."):
        return True
    return getattr(sys.modules[value.__module__], value.__name__, None) is value


def _is_followed(value: types.FunctionType) -> bool:
    """Whether a function of the transforms' modules has a model, or leads to operators that have one."""
    return value in HANDLERS or value in FOLLOWED or value.__module__ in FOLLOWED_MODULES


def _descriptor_rule(value: types.MethodDescriptorType | types.WrapperDescriptorType) -> bool:
    return issubclass(value.__objclass__, _C.TensorBase)


_RULES: dict[type, Callable[[Any], bool]] = {
    types.BuiltinFunctionType: _builtin_rule,
    types.FunctionType: _function_rule,
    types.MethodDescriptorType: _descriptor_rule,
    types.WrapperDescriptorType: _descriptor_rule,
    OpOverload: lambda value: True,
    OpOverloadPacket: lambda value: True,
    functools._lru_cache_wrapper: lambda value: value in HANDLERS,
}

FOLLOWED: set[Any] = {torch.func.hessian, mark_compile_region}
"""Python functions of torch's functional modules that are followed rather than put into the graph."""


class TorchFunctionVariable(DescriptorVariable):
    """A callable of torch that enters the graph."""

    def describe(self) -> str:
        owner = getattr(self.value, "__module__", None) or "torch"  # which methods of C have none of
        return f"{owner}.{getattr(self.value, '__qualname__', self.value.__name__)}"

    def tp_descr_get(self, tx: Frame, obj: VariableTracker | None, cls: VariableTracker) -> VariableTracker:
        if obj is None or not isinstance(self.value, (types.FunctionType, *METHOD_DESCRIPTORS)):
            return self
        return MethodVariable(self, obj)

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        fn = self.value
        refuse_marked(fn)
        handler = HANDLERS.get(fn)
        if handler is not None and tx.tr.overrides is None:
            _look_at(args)
        overrides = tx.tr.overrides
        if overrides is not None and overrides.skips_next and not isinstance(fn, types.FunctionType):
            with overrides.skipping():
                return self.tp_call(tx, args, kwargs)
        if overrides is not None and fn not in NOT_OVERRIDABLE and overrides.applies(fn, args, kwargs):
            if isinstance(fn, types.FunctionType):
                return build_function(tx.tr, fn, self.source).tp_call(tx, args, kwargs)  # asks them itself
            _check_self(tx, fn, args)
            public = fn if kwargs else announced(tx, fn, args)
            function = self if public is fn else tx.tr.build_constant_object(public)
            return overrides.dispatch(tx, function, args, kwargs)
        if handler is not None:
            if is_tensor_method(fn) and args and not issubclass(args[0].python_type(), _C.TensorBase):
                _check_self(tx, fn, args)
                return build_function(tx.tr, fn, self.source).tp_call(tx, args, kwargs)
            return call_handler(tx, fn, handler, args, kwargs)
        try:
            if is_allowed_in_graph(fn) and isinstance(fn, types.FunctionType):
                return call_allowed(tx, fn, args, kwargs)
            return call_in_graph(tx, fn, args, kwargs)
        except Overridden:
            return self.tp_call(tx, args, kwargs)
        except Unsupported as error:
            if error.slug in ("data-dependent-operator", "data-dependent-size") and isinstance(fn, types.FunctionType):
                # Perhaps it only checks its arguments.
                return build_function(tx.tr, fn, self.source).tp_call(tx, args, kwargs)
            if error.slug != "graph-argument-type":
                raise
            _check_self(tx, fn, args)
            if tx.tr.overrides is None and overloaded_arguments([*args, *kwargs.values()]):
                activate(tx.tr)
                return self.tp_call(tx, args, kwargs)
            if not isinstance(fn, types.FunctionType):
                raise
            # An argument that no graph can hold, such as a function: follow the Python code.
            return build_function(tx.tr, fn, self.source).tp_call(tx, args, kwargs)

    def tp_repr(self, tx: Frame) -> VariableTracker:
        tx.tr.heap.bind_to_process("the address of a function")
        return ConstantVariable(repr(self.value))

    def tp_str(self, tx: Frame) -> VariableTracker:
        tx.tr.heap.bind_to_process("the address of a function")
        return ConstantVariable(str(self.value))


def _check_self(tx: Frame, fn: Any, args: list[VariableTracker]) -> None:
    """Raise TypeError for a C method of tensors that is called on something else."""
    if args and isinstance(fn, types.MethodDescriptorType):
        check_object(tx, fn, args[0])
    elif (
        args and isinstance(fn, types.WrapperDescriptorType) and not issubclass(args[0].python_type(), fn.__objclass__)
    ):
        what = f"descriptor '{fn.__name__}' requires a '{tp_name(fn.__objclass__)}' object"
        tx.raises(TypeError, f"{what} but received a '{type_name(args[0])}'")


def _look_at(args: list[VariableTracker]) -> None:
    """Give lazy arguments their models: a tensor of a subclass among them changes the call."""
    for arg in args:
        isinstance(arg, TensorVariable)


@packs(TorchFunctionVariable)
def pack_operator(packing: Packing, vt: TorchFunctionVariable) -> Any:
    """Some higher-order operators take an operator as an argument."""
    return packing.constant(vt.value) if isinstance(vt.value, _OPERATORS) else pack_callable(packing, vt)


_OPERATORS = (OpOverload, OpOverloadPacket)


class HigherOrderFunctionVariable(TorchFunctionVariable):
    """A function that takes functions into the graph or transforms them."""

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if self.value not in HANDLERS:
            return unsupported("higher-order-operator-without-model", self.describe())
        return call_handler(tx, self.value, HANDLERS[self.value], args, kwargs)


def call_in_graph(
    tx: Frame, fn: Callable[..., Any], args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """Add a call of `fn` to the graph; a method of tensors as `call_method`."""
    graph = tx.tr.graph
    foreign = next((FOREIGN_ARGUMENTS[a.__class__] for a in args if a.__class__ in FOREIGN_ARGUMENTS), None)
    if foreign is not None:
        args = foreign(tx, fn, args, kwargs)
    if is_tensor_method(fn) and args and isinstance(args[0], TensorVariable):
        return graph.call(tx, "call_method", fn.__name__, args, kwargs)
    return graph.call(tx, "call_function", fn, args, kwargs, memo=_is_torchs_own(fn))


def follow(tx: Frame, fn: types.FunctionType, args: list[Any], kwargs: dict[str, Any] | None) -> VariableTracker:
    """Call a Python function of torch by its code."""
    return build_function(tx.tr, fn, tx.tr.constant_source(fn)).tp_call(tx, args, kwargs or {})


MODELS.follow, MODELS.shows_warnings = follow, shows_warnings


def is_tensor_method(fn: Callable[..., Any]) -> bool:
    """True for methods of `torch.Tensor`, in C or in Python."""
    if isinstance(fn, METHOD_DESCRIPTORS):
        return True
    return (
        isinstance(fn, types.FunctionType)
        and fn.__module__ == "torch._tensor"
        and fn.__qualname__.startswith("Tensor.")
    )


def _is_torchs_own(fn: Callable[..., Any]) -> bool:
    """Whether the result's metadata follows from the arguments' alone. Operators of third parties may do as they
    like."""
    namespace = getattr(fn, "namespace", None)  # of an OpOverload
    if namespace is None:
        namespace = getattr(fn, "_qualified_op_name", "aten::").partition("::")[0]
    return namespace in ("aten", "prims") and not is_allowed_in_graph(fn)


@builds_if(enters_graph)
def build_torch_function(tr: Trace, value: Any, source: GuardNode | None) -> TorchFunctionVariable:
    tr.guard(source, ir.IS, value)
    if type(value) is types.FunctionType and value.__module__.startswith(HIGHER_ORDER):
        return HigherOrderFunctionVariable(value, source)
    return VARIABLES.get(type(value), TorchFunctionVariable)(value, source)


VARIABLES: dict[type, type[TorchFunctionVariable]] = {}
"""Type of a callable of torch → its model, if it has one of its own."""


# -- ambient state


def _state_write(function: Callable[..., Any]) -> Callable[..., VariableTracker]:
    def handler(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        values = [tx.tr.unpack(tx, a) if isinstance(a, ListVariable) else a for a in args]
        if kwargs or not is_constant(*[item for v in values for item in (v if isinstance(v, list) else (v,))]):
            unsupported("grad-mode", function.__name__)
        if function is _C._set_grad_enabled and tx.tr.overrides is not None and tx.tr.overrides.has_mode:
            return tx.tr.overrides.dispatch(tx, tx.tr.build_constant_object(function), list(args), kwargs)
        host = [[i.as_python_constant() for i in v] if isinstance(v, list) else v.as_python_constant() for v in values]
        tx.tr.state.write(function, tuple(host))
        return NONE

    return handler


def _state_read(function: Callable[..., Any]) -> Callable[..., VariableTracker]:
    def handler(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if kwargs or not is_constant(*args):
            unsupported("grad-mode", function.__name__)
        return tx.tr.wrap_new(tx.tr.state.read(function, tuple([a.as_python_constant() for a in args])))

    return handler


for _function in SETTINGS:
    HANDLERS[_function] = _state_write(_function)
for _function in READS:
    HANDLERS[_function] = _state_read(_function)


def _flag(vt: VariableTracker) -> bool:
    return vt.as_python_constant() if is_flag(vt) else unsupported("grad-mode", "a flag that is no bool")


@builtin(torch.use_deterministic_algorithms, _C._set_deterministic_algorithms)
def use_deterministic_algorithms(
    tx: Frame, mode: VariableTracker, *, warn_only: VariableTracker = FALSE
) -> VariableTracker:
    tx.tr.state.write(set_deterministic, ((_flag(mode), _flag(warn_only)),))
    return NONE


class EnteredInferenceVariable(VariableTracker):
    """An inference mode that the traced code has entered."""

    source = None

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled

    def python_type(self) -> type:
        return _C._InferenceMode

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(_enter_inference_mode)
        cg.load_const(self.enabled)
        cg.asm.call(1)


@builtin(_enter_inference_mode)
def enter_inference_mode(tx: Frame, mode: VariableTracker) -> VariableTracker:
    entered = EnteredInferenceVariable(_flag(mode))
    tx.tr.state.enter_inference(entered.enabled, entered)
    return entered


@builtin(_exit_inference_mode)
def exit_inference_mode(tx: Frame, mode: VariableTracker) -> VariableTracker:
    if not isinstance(mode, EnteredInferenceVariable):
        return unsupported("grad-mode", "an inference mode that was entered before is left")
    tx.tr.state.leave_inference(mode)
    return NONE


@constructor(_C._InferenceMode)
def new_inference_mode(tx: Frame, cls: VariableTracker, enabled: VariableTracker) -> VariableTracker:
    parts = [tx.tr.build_constant_object(f) for f in (_enter_inference_mode, _exit_inference_mode)]
    return tx.call(tx.tr.build_constant_object(InferenceMode), [*parts, enabled])


@builtin(torch.autocast_increment_nesting)
def autocast_increment_nesting(tx: Frame) -> VariableTracker:
    tx.tr.state.nest(1)
    return ConstantVariable(1)


@builtin(torch.autocast_decrement_nesting)
def autocast_decrement_nesting(tx: Frame) -> VariableTracker:
    tx.tr.state.nest(-1)
    # The node drops the cache itself when it leaves the outermost region; the caller need not.
    return ConstantVariable(1)


@builtin(torch.clear_autocast_cache)
def clear_autocast_cache(tx: Frame) -> VariableTracker:
    tx.tr.graph.add("call_function", torch.clear_autocast_cache, ())
    return NONE


# -- answers that hold for every analysis


def _existing(paths: str) -> list[Callable[..., Any]]:
    """The functions under these names, as far as this version of torch has them."""
    found = []
    for path in paths.split():
        try:
            found.append(operator.attrgetter(path)(torch))
        except AttributeError:
            continue
    return list(dict.fromkeys(found))


def _always(answer: ConstantVariable, paths: str) -> None:
    for function in _existing(paths):
        HANDLERS[function] = lambda tx, *args, **kwargs: answer


_CUT_SHORT = frozenset(
    function.__code__
    for function in _existing("nn.Module._call_impl distributed.utils._alloc_storage distributed.utils._free_storage")
)
"""Code of torch that leaves out under its own compiler what it does in eager execution."""


def _is_compiling(tx: Frame) -> VariableTracker:
    if tx.code in _CUT_SHORT:
        return FALSE
    return is_compiling(tx)


for _function in _existing("compiler.is_compiling compiler.is_dynamo_compiling _utils.is_compiling"):
    HANDLERS[_function] = _is_compiling
_always(
    FALSE,
    "fx._symbolic_trace.is_fx_tracing fx._symbolic_trace.is_fx_symbolic_tracing jit.is_scripting _jit_internal.is_scripting"
    " jit.is_tracing jit._trace.is_tracing _C._is_tracing compiler.is_exporting",
)
_always(NONE, "_C._get_tracing_state _C._log_api_usage_once _C._log_api_usage_metadata _logging.warning_once")


def _is_transformed(tx: Frame) -> bool:
    """Whether this is in a function that a transform calls. While nothing is, captured code runs under no transform."""
    return bool(transforms_around(tx.tr.graph))


@builtin(_C._are_functorch_transforms_active)
def are_transforms_active(tx: Frame) -> VariableTracker:
    return boolean(_is_transformed(tx))


@builtin(_C._functorch.maybe_current_level, _C._functorch.peek_interpreter_stack)
def current_transform(tx: Frame) -> VariableTracker:
    return (
        unsupported("higher-order-operator", "what a function asks of its transform") if _is_transformed(tx) else NONE
    )


@builtin(torch.is_tensor)
def is_tensor(tx: Frame, obj: VariableTracker) -> VariableTracker:
    return boolean(issubclass(obj.python_type(), torch.Tensor))


def _folded(function: Callable[..., Any]) -> Callable[..., VariableTracker]:
    def handler(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if not is_constant(*args, *kwargs.values()):
            return unsupported("call-c-function", function.__qualname__)
        return fold(tx, function, list(args), kwargs)

    return handler


# What these tell doesn't change while the process runs.
for _function in _existing(
    "cuda.is_available cuda.device_count cuda.get_device_capability cuda.get_device_name cuda.is_bf16_supported"
    " mps.is_available backends.mps.is_available backends.mps.is_built xpu.is_available"
    " xpu.device_count mtia.is_available cpu.is_available backends.cuda.is_built backends.cudnn.is_available"
    " backends.cudnn.version backends.mkldnn.is_available backends.mkl.is_available backends.openmp.is_available"
    " distributed.is_available get_num_threads get_num_interop_threads _C._is_autocast_available"
    " _C._get_privateuse1_backend_name amp.is_autocast_available backends.cuda.is_flash_attention_available"
    " accelerator.is_available _C._get_accelerator _C._accelerator_getAccelerator _C._get_cpu_capability"
    " _C._cpu._get_cpu_capability _C._supported_qengines _C._is_ck_sdpa_available _C._mtia_isBuilt"
    " _C._mtia_getDeviceCount _C._show_config profiler.supported_activities"
):
    HANDLERS[_function] = _folded(_function)


# -- settings that are asked for, and that only functions without a model change


def _ask(function: Callable[[], Any]) -> Any:
    return function()


def _guarded(function: Callable[[], Any]) -> Callable[..., VariableTracker]:
    def handler(tx: Frame) -> VariableTracker:
        node = tx.tr.source(tx.tr.constant_source(function), ir.CALL, _ask)
        return tx.tr.wrap(function(), node)

    return handler


for _function in _existing(
    "cuda.is_initialized _C._cuda_getDevice _C._cuda_isInBadFork"
    " _C._get_qengine _C._get_warnAlways _C._get_onednn_allow_tf32 _C._get_onednn_deterministic"
    " _C._get_blas_preferred_backend _C._get_linalg_preferred_backend _C._get_rocm_fa_preferred_backend"
    " _C._get_cublas_allow_fp16_accumulation _C._get_cublas_allow_fp16_reduced_precision_reduction"
    " _C._get_cublas_allow_bf16_reduced_precision_reduction _C._get_math_sdp_allow_fp16_bf16_reduction"
):
    HANDLERS.setdefault(_function, _guarded(_function))


# -- assertions

_CHECKS = {
    "_check": RuntimeError,
    "_check_value": ValueError,
    "_check_type": TypeError,
    "_check_index": IndexError,
    "_check_not_implemented": NotImplementedError,
}


def _check_handler(error: type[Exception]) -> Callable[..., VariableTracker]:
    def handler(tx: Frame, cond: VariableTracker, message: VariableTracker | None = None) -> VariableTracker:
        if isinstance(cond, TensorVariable):
            return unsupported("data-dependent-assert", cond.describe())
        if isinstance(cond, SymNodeVariable) and is_unbacked(cond.proxy.sym):
            if _has_truths(cond):
                check(tx, cond.as_tensor(tx), True, "data-dependent-assert")
            else:
                tx.tr.graph.passes.sizes.assume(cond.proxy)
            return NONE
        holds = cond.nb_bool(tx) if isinstance(cond, SymNodeVariable) else cond
        if not holds.is_python_constant():
            return unsupported("data-dependent-assert", cond.describe())
        if holds.as_python_constant():
            return NONE
        if is_none(message):
            return tx.raises(error, "Expected cond to be True, but got False. (Could this error message be improved?)")
        text = tx.call(message, [])
        return tx.raises(error, str(text.as_python_constant()))

    return handler


def _has_truths(condition: SymNodeVariable) -> bool:
    """Whether truths that were read from tensors take part in a condition: the algebra would take them for what they should be, and assert
    nothing."""
    node = condition.proxy.sym.node
    ranges = [node.shape_env.var_to_range.get(symbol) for symbol in node.expr.free_symbols]
    return condition.flag is not None or any(r is not None and (r.lower, r.upper) == (0, 1) for r in ranges)


for _name, _error in _CHECKS.items():
    if hasattr(torch, _name):
        HANDLERS[getattr(torch, _name)] = _check_handler(_error)


@builtin(torch._check_tensor_all_with)
def check_tensor_all(
    tx: Frame, error_type: VariableTracker, cond: VariableTracker, message: VariableTracker | None = None
) -> VariableTracker:
    if not isinstance(cond, TensorVariable):
        return tx.raises(TypeError, f"cond must be a tensor, but got {cond.python_type()}")
    if cond.proxy.meta.dtype is not torch.bool:
        return tx.raises(TypeError, f"cond tensor must have dtype torch.bool, but got {cond.proxy.meta.dtype}")
    check(tx, tx.tr.graph.call(tx, "call_function", torch.all, [cond]), True, "data-dependent-assert")
    return NONE


@builtin(torch._check_is_size)
def check_is_size(tx: Frame, i: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    at_least_zero = i.tp_richcompare(tx, ConstantVariable(0), ">=")
    return HANDLERS[torch._check](tx, at_least_zero)


@builtin(torch._assert)
def torch_assert(tx: Frame, condition: VariableTracker, message: VariableTracker) -> VariableTracker:
    if isinstance(condition, TensorVariable):
        check(tx, condition, True, "data-dependent-assert")
        return NONE
    if not (condition.is_python_constant() and condition.as_python_constant()):
        return unsupported("uncaught-exception", "torch._assert")
    return NONE


# -- numbers


def _number_function(function: Callable[..., Any]) -> Callable[..., VariableTracker]:
    def handler(tx: Frame, *args: VariableTracker) -> VariableTracker:
        if is_constant(*args):
            return fold(tx, function, list(args), {})
        result = apply_number_function(tx, function, *args)
        return result if result is not NOT_IMPLEMENTED else unsupported("dynamic-int", function.__name__)

    return handler


for _function in _existing("sym_int sym_float sym_max sym_min sym_not sym_ite sym_sqrt sym_sum"):
    HANDLERS[_function] = _number_function(_function)


# -- what ends the graph


for _slug, _paths in {
    "random-state": "manual_seed seed initial_seed get_rng_state set_rng_state cuda.manual_seed cuda.manual_seed_all"
    " cuda.get_rng_state cuda.set_rng_state",
    "higher-order-operator": "func.functionalize",
    "nested-compiler": "compile jit.script jit.trace jit.fork jit.wait",
}.items():
    refuse(_slug, *_existing(_paths))


# -- callables of other kinds


@builtin(torch.jit.annotate)
def jit_annotate(tx: Frame, the_type: VariableTracker, the_value: VariableTracker) -> VariableTracker:
    return the_value


@builds(torch.jit.ScriptFunction)
def build_script_function(tr: Trace, value: object, source: GuardNode | None) -> VariableTracker:
    """A scripted function is a compiled form of a Python function, which is followed instead."""
    original = getattr(value, "_torchdynamo_inline", None)
    if original is None:
        return unsupported("nested-compiler", "torch.jit.ScriptFunction")
    tr.guard(source, ir.IS, value)
    return tr.build(original, tr.constant_source(original))
