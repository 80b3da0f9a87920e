"""Propagation of metadata: what an operator's outputs look like, without data.

Input: an operator, arguments with FX nodes in them, and the graph values of these nodes. Output: a `Propagation`: the
metas of the results, which of them are or view an argument, and how arguments changed.
Invariant: `Propagator.propagate` is the only place that runs operators on fake tensors; when it raises it leaves no
trace. An outcome is remembered only if it follows from the operator, the ambient state and interned metas alone.

Fake tensors are made when an operator really has to be run: most calls in a network repeat an earlier call with equal
metadata.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorConverter,
    FakeTensorMode,
    in_kernel_invocation_manager,
)
from torch.fx import Node
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from dynamo_lite.exc import Unsupported, asked_for, asks_for_data, gist, unsupported
from dynamo_lite.markers import is_allowed_in_graph
from dynamo_lite.messages import unshown
from dynamo_lite.record import STATS
from dynamo_lite.signals import let_through

from .custom_operators import as_declared, is_foreign
from .keep_dynamo_unloaded import without_compiler
from .meta import LiveMeta, TensorMeta, meta_of_fake
from .modes import dispatch_keys_kept
from .values import (
    ArgumentResult,
    ConstantResult,
    Propagation,
    SameResult,
    SequenceResult,
    SymResult,
    SymValue,
    TensorResult,
    TensorValue,
)
from .wrapper_tensors import is_wrapper, mask_buffers, memories_of
from .writes import effects_of, note_writes

# -- the mode


class PropagationMode(FakeTensorMode):
    """A `FakeTensorMode` that costs little to make and does not import torch's own compiler, as the constructor of
    its base does."""

    def __init__(self, shape_env: Any = None) -> None:
        TorchDispatchMode.__init__(self)
        self.allow_fallback_kernels = True
        self.propagate_real_tensors = False
        self.fake_tensor_converter = FakeTensorConverter(copy_data=False, export=False)
        self.static_shapes = shape_env is None
        self.allow_scalar_outputs = False
        self._allow_unsafe_data_ptr_access = True
        self.allow_meta = True
        self.cache_enabled = True
        self.cache_crosscheck_enabled = False
        self.allow_non_fake_inputs = False
        self.in_kernel_invocation = False
        self.enter_stack: list[Any] = []
        self.shape_env = shape_env
        self.symbolic_metas: Any = None  # `SymbolicMetas`, once there are symbols
        self.aten_rules: Any = None  # `shapes.rule_table.ATEN_RULES`,
        self.direct_outcome: Any = None  # `shapes.captured_calls.outcome`, and its
        self.size_algebra: Any = None  # `SizeAlgebra`
        self.items_read = 0  # how often an operator has asked for the data of a tensor
        self.is_random = False  # whether an operator has drawn random numbers
        self.asked: list[Any] = []  # tensors that may remember numbers that their data decide (`DataMemos`)
        self.misled: str | None = None  # why compilers, which go by the rules for fake tensors, would be wrong
        self.written: list[Any] = []  # tensors whose counters may not tell that an operator has changed them
        self._stack_trace: list[Any] = []
        self._stack = ""
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE
        counter = torch.nested._internal.nested_tensor._tensor_id_counter
        self.nt_tensor_id_initial_count = self.nt_tensor_id_counter = counter


def is_of_trace(mode: FakeTensorMode) -> bool:
    """Whether a mode is that of a trace, whatever its class is by now."""
    return "items_read" in vars(mode)


_ITEM = torch.ops.aten._local_scalar_dense.default
_LIFTS = frozenset({torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default})


_UNLIKE_FAKES = frozenset(
    getattr(getattr(torch.ops.aten, name), overload)
    for name in (
        "to_mkldnn quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel empty_quantized _empty_affine_quantized"
        " _empty_per_channel_affine_quantized _make_per_tensor_quantized_tensor _make_per_channel_quantized_tensor"
        " mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight"
    ).split()
    for overload in getattr(torch.ops.aten, name).overloads()
)
"""Operators that make tensors of layouts, or quantised ones, which no fake tensor is."""


def _dispatch(self: FakeTensorMode, func: Any, classes: object, args: Any = (), kwargs: Any = None) -> Any:
    if type(func) is not OpOverload:
        return _follow_higher_order_rule(self, func, args, kwargs or {})
    if func in _LIFTS and type(args[0]) is torch.Tensor:
        return _lift(self, args[0])
    if func is _ITEM:
        self.items_read += 1
    if func in _UNLIKE_FAKES:
        unsupported("sparse-or-quantized", f"what {func.name().partition('::')[2]} makes")
    _note(self, func, args, kwargs)
    if self.aten_rules is not None and not kwargs:
        rule = self.aten_rules.get(func)
        if rule is not None and type(args[0]) is FakeTensor:  # a wrapper comes here before its class has been asked
            result = rule(self.size_algebra, *args)
            if result is not None:
                return result
    place = _DIMENSIONS.get(func)
    if place is not None:
        args = _from_the_front(args, place)
    result = _by_rule(self, func, classes, args, kwargs)
    suggested = _LAID_OUT_ANEW.get(func)
    return result if suggested is None else _laid_out(self, result, args[0], suggested)


def _follow_higher_order_rule(self: FakeTensorMode, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of an operator that takes functions or kernels, which the rule of another operator calls (`triton_op`)."""
    rule = func.py_kernels.get(FakeTensorMode) or func.python_key_table.get(FakeTensorMode)
    if rule is None:
        raise NotImplementedError(f"{func} has no rule for fake tensors")
    return rule(self, *args, **kwargs)


_DIMENSIONS = {torch.ops.aten.unique_dim.default: 1, torch.ops.aten.unique_consecutive.default: 3}
"""Operators whose rules of torch count a dimension from the front only (2.13) → the position of that argument."""


def _format_of_batch_norm(x: FakeTensor) -> torch.memory_format:
    if x.is_contiguous():
        return torch.contiguous_format
    channels_last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    is_it = channels_last is not None and x.is_contiguous(memory_format=channels_last)
    return channels_last if is_it else suggest_memory_format(x)


_LAID_OUT_ANEW: dict[OpOverload, Callable[[FakeTensor], torch.memory_format]] = {
    torch.ops.aten.channel_shuffle.default: suggest_memory_format,
    torch.ops.aten.native_batch_norm.default: _format_of_batch_norm,
    torch.ops.aten._native_batch_norm_legit.default: _format_of_batch_norm,
    torch.ops.aten._native_batch_norm_legit.no_stats: _format_of_batch_norm,
    torch.ops.aten._native_batch_norm_legit_no_training.default: _format_of_batch_norm,
}
"""Operators whose kernels for the CPU lay out their (first) result anew, where torch's rules give it the strides of the argument, or
others → the format that they choose for an argument."""


def _laid_out(
    mode: FakeTensorMode, result: Any, x: FakeTensor, suggested: Callable[[FakeTensor], torch.memory_format]
) -> Any:
    """What such an operator returns, with its strides."""
    algebra = mode.size_algebra
    if x.fake_device.type != "cpu" or not (algebra is None or algebra.is_not_contiguous(x)):
        return result
    first = result if isinstance(result, FakeTensor) else result[0]
    with mode:
        made = torch.empty_like(first, memory_format=suggested(x))
    return made if first is result else (made, *result[1:])


def _from_the_front(args: Any, place: int) -> Any:
    """The arguments of an operator with the dimension counted from the front."""
    if len(args) <= place or args[place] is None or args[place] >= 0:
        return args
    return *args[:place], args[place] + args[0].dim(), *args[place + 1 :]


def _plain_dispatch(self: FakeTensorMode, func: Any, classes: object, args: object = (), kwargs: object = None) -> Any:
    _note(self, func, args, kwargs)
    return _by_rule(self, func, classes, args, kwargs)


def _follow_rule(self: FakeTensorMode, func: Any, classes: object, args: Any, kwargs: Any) -> Any:
    """The result of torch's rule. Operators that are made of others get here in inference mode only; they run as they do in eager
    execution, which may return the argument itself (dropout outside of training) where a rule gives a new tensor."""
    if torch.is_inference_mode_enabled() and _is_composite(func):
        with self:
            return func._op_dk(_COMPOSITE, *args, **kwargs)
    return self.dispatch(func, classes, args, kwargs)


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@functools.cache
def _is_composite(func: OpOverload) -> bool:
    name = (
        func.name()
    )  # `prim.device` and its like, which C++ asks of a fake tensor, are no operators of the dispatcher
    return torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(name, _COMPOSITE)


def _by_rule(mode: FakeTensorMode, func: Any, classes: object, args: object, kwargs: object) -> Any:
    """What the operator returns: by torch's rule, and as it is declared."""
    result = _follow_rule(mode, func, classes, args, kwargs or {})
    if not is_foreign(func):
        return result
    result, is_other = as_declared(mode, func, args, kwargs, result)
    if is_other:
        mode.misled = f"the rule of {func} for fake tensors returns what the operator does not"
    return result


def _note(self: FakeTensorMode, func: Any, args: Any, kwargs: Any) -> None:
    effects = effects_of(func)
    if effects is not None:
        self.is_random = self.is_random or effects.is_random
        if effects.asks:
            self.asked.append(args[0])
        if effects.names:
            self.written += note_writes(func, effects, args, kwargs or {})


def _lift(mode: FakeTensorMode, real: torch.Tensor) -> FakeTensor:
    """The fake of a tensor made from Python numbers; a single number stays known."""
    return fake_of_known(mode, real, real if real.numel() == 1 and real.device.type == "cpu" else None)


def fake_of_known(mode: FakeTensorMode, real: torch.Tensor, known: torch.Tensor | None) -> FakeTensor:
    """A fake of a tensor whose data are those of `known`."""
    sample = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="meta")
    fake = FakeTensor(mode, sample, real.device, constant=known)
    if known is not None:
        mode.fake_tensor_converter.add_constant_storage_mapping(fake)
    return fake


# Set after the class exists: the base wraps what a class body defines, for the benefit of torch's own compiler, at a
# price per operator.
PropagationMode.__torch_dispatch__ = _dispatch
PropagationMode.supports_higher_order_operators = True


# -- outcomes

MEMO: dict[Any, Propagation] = {}
"""(operator, ambient state, arguments with metas) → outcome, for the whole process."""

MAX_MEMO = 100_000


_NOTHING = contextlib.nullcontext()

# Expected failures are graph breaks; torch logs each with a traceback.
_log = logging.getLogger("torch._subclasses.fake_tensor")


class Propagator:
    """The fake tensors of one trace."""

    def __init__(self) -> None:
        self.mode = PropagationMode()
        self.memo: dict[Any, Propagation] = {}  # like MEMO, of calls with symbolic sizes
        self.masks: list[Any] = []  # `mask_buffers` of results
        self.follows_warnings = False  # whether `GivesWarning` is asked for
        self.allows_any_device = False  # whether the graph runs on tensors without data, which can be on any

    def allow_higher_order(self) -> None:
        """From now on the mode is a plain `FakeTensorMode`: higher-order operators find their rule by the exact type."""
        self.give_to_compilers()
        self.mode.__torch_dispatch__ = types.MethodType(_plain_dispatch, self.mode)

    def give_to_compilers(self) -> None:
        """From now on the mode is one of torch's in every respect."""
        self.mode.__class__ = FakeTensorMode
        self.mode.__dict__.pop("__torch_dispatch__", None)

    # -- fake tensors

    def fake_of(self, value: TensorValue) -> FakeTensor:
        """The fake tensor of a value; made when first needed, in an inference mode only if the tensor was."""
        if value.fake is None:
            if value.is_inference or not torch.is_inference_mode_enabled():
                value.fake = self.make_fake(value.meta)
            else:
                with torch.inference_mode(False):
                    value.fake = self.make_fake(value.meta)
        return value.fake

    def argument_of(self, value: TensorValue | SymValue) -> Any:
        """What stands for a value of the graph in a call on fake tensors."""
        return value.sym if isinstance(value, SymValue) else self.fake_of(value)

    def make_fake(self, meta: Any) -> FakeTensor:
        """A new fake tensor with the given metadata."""
        if meta.live:
            fake = meta.make_fake()
            return self._inner_symbolic(meta, fake) if meta.requires_grad and not meta.is_leaf else fake
        if meta.requires_grad and not meta.is_leaf:
            return self._inner_fake(meta)
        sample = torch.empty(span(meta), dtype=meta.dtype, device="meta")
        fake = FakeTensor(self.mode, sample.as_strided(meta.shape, meta.stride, meta.offset), meta.device)
        return fake.requires_grad_() if meta.requires_grad else fake

    def _inner_fake(self, meta: TensorMeta) -> FakeTensor:
        """A fake tensor inside an autograd graph, where in-place operators are allowed."""
        options: dict[str, Any] = {"dtype": meta.dtype, "device": meta.device, "requires_grad": True}
        with self.mode, without_compiler, torch.enable_grad():
            whole = torch.empty_strided(meta.shape, meta.stride, **options).clone()
            if whole.stride() == meta.stride and not meta.offset:
                return whole  # no view: some functions change nothing that is one
            leaf = torch.empty(span(meta), **options)
            return leaf.clone().as_strided(meta.shape, meta.stride, meta.offset)

    def _inner_symbolic(self, meta: Any, fake: FakeTensor) -> FakeTensor:
        """`_inner_fake` for a leaf with symbolic sizes."""
        algebra = self.mode.size_algebra
        with self.mode, without_compiler, torch.enable_grad(), self.dispatcher():
            if not meta.interned or algebra.is_without_gaps(fake):
                return fake.clone()
            span = algebra.span(meta.shape, meta.stride, meta.offset)
            leaf = torch.empty(span, dtype=meta.dtype, device=meta.device, requires_grad=True)
            return leaf.clone().as_strided(meta.shape, meta.stride, meta.offset)

    def symbolic_fake(self, shape: Sequence[Any], stride: Sequence[Any], real: torch.Tensor) -> FakeTensor:
        """The fake of a real tensor with symbolic sizes."""
        with without_compiler, in_kernel_invocation_manager(self.mode), no_dispatch():
            sample = torch.empty_strided(shape, stride, dtype=real.dtype, device="meta")
            fake = FakeTensor(self.mode, sample, real.device)
        if real.requires_grad:
            fake.requires_grad_()
            if not real.is_leaf:
                with self.mode, without_compiler, torch.enable_grad():
                    fake = fake.clone()
        return fake

    def slow_fake(self, real: torch.Tensor) -> FakeTensor:
        """The fake of a tensor that no interned meta describes. Raises `Unsupported` if there is none."""
        try:
            if real.layout is torch._mkldnn:
                raise NotImplementedError("its fake would be one of a strided tensor")
            with without_compiler:
                return self.mode.from_tensor(real, static_shapes=True)
        except Exception as error:
            let_through(error)
            layout = "whose parts have sizes of their own" if real.is_nested else f"of layout {real.layout}"
            unsupported("sparse-or-quantized", f"{type(real).__name__} {layout}", error)

    # -- propagation

    def propagate(
        self,
        op: str,
        target: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[TensorValue],
        values: dict[Node, Any],
        key: Any,
        memo: dict[Any, Propagation],
    ) -> tuple[Propagation, list[FakeTensor] | None]:
        """The results of `target(*args, **kwargs)`, and its changes.

        `op` is "call_function" or "call_method"; nodes in the arguments stand for `values`, `tensors` are those among them in order of
        appearance; `key` names the call for `memo`, None if it must not be remembered. The second result lists the fake tensors of the
        `TensorResult`s in order, None if the outcome was remembered. Raises `Unsupported`.
        """
        if key is not None:
            outcome = memo.get(key)
            if outcome is not None:
                STATS.memo_hits += 1
                return outcome, None
            outcome = self._direct(op, target, args, kwargs, tensors, values)
            if outcome is not None:
                STATS.by_rule += 1
                memo[key] = outcome
                return outcome, None
        STATS.fake_calls += 1
        fakes = [self.fake_of(t) for t in tensors]
        if key is not None and any(f.constant is not None for f in fakes):
            key = None
        versions = _versions(fakes)
        self.mode.written.clear()
        self.mode.is_random = False
        asked = self.mode.items_read, len(self.mode.asked)
        result = self._run(op, target, args, kwargs, values)
        if asked != (self.mode.items_read, len(self.mode.asked)):
            key = None  # a number of the data, which another tensor of the same metadata need not have
        new: list[FakeTensor] = []
        changes, written = _changes(tensors, fakes, versions, target, self.mode.written)
        first = _first_of_each_memory(list(written), fakes) if len(written) > 1 else list(written)
        if len(first) < len(written):
            key = None  # others of the same metadata may be of different memory
        counted = tuple([(i, written[i]) for i in first])
        outcome = Propagation(_describe(result, fakes, new, target), changes, counted, self.mode.is_random)
        for made in new:
            if not isinstance(made, FakeTensor):
                self.masks += mask_buffers(made)
        if any(f.device.type not in _ALWAYS_PRESENT and not _is_present(f.device.type) for f in new):
            if not self.allows_any_device:
                device = next(f.device for f in new if f.device.type not in _ALWAYS_PRESENT)
                unsupported("fake-tensor-error", f"{_name(target)} on {device}, which is not available")
            key = None
        if key is not None and not any(f.constant is not None for f in new) and _is_memorable(outcome):
            if len(memo) >= MAX_MEMO:
                memo.clear()
            memo[key] = outcome
        return outcome, new

    def _direct(
        self, op: str, target: object, args: object, kwargs: object, tensors: list[TensorValue], values: dict[Node, Any]
    ) -> Propagation | None:
        """The outcome of a call that follows from the metadata of its arguments by a shape rule; else None."""
        find = self.mode.direct_outcome
        if find is None:
            return None
        try:
            with without_compiler:
                return find(self.mode, target, args, kwargs, tensors, values)
        except Exception as error:
            _refuse(target, error)

    def _run(self, op: str, target: Any, args: object, kwargs: Any, values: dict[Node, Any]) -> Any:
        host = self.substitute(args, values)
        host_kwargs = {name: self.substitute(arg, values) for name, arg in kwargs.items()} if kwargs else {}
        was_disabled = _log.disabled
        _log.disabled = True
        # The cache of autocast would keep casts of fake parameters.
        caches_casts = torch._C._is_any_autocast_enabled() and torch.is_autocast_cache_enabled()
        if caches_casts:
            torch.set_autocast_cache_enabled(False)
        try:
            with dispatch_keys_kept(), self.mode, without_compiler, self.dispatcher(), warnings_kept() as said:
                if op == "call_method":
                    result = getattr(host[0], target)(*host[1:], **host_kwargs)
                else:
                    result = target(*host, **host_kwargs)
                made = _given(result, host, host_kwargs)
            if (
                self.follows_warnings
                and op == "call_function"
                and _is_of_python(target)
                and not all(map(_is_of_c, said))
            ):
                raise GivesWarning("call-print", f"a warning of {_name(target)}")
            return made
        except Unsupported:
            raise
        except Exception as error:
            if self._may_read_real_tensors(target, error):
                return self._run_on_real_tensors(op, target, args, kwargs, values)
            _refuse(target, error)
        finally:
            _log.disabled = was_disabled
            if caches_casts:
                torch.set_autocast_cache_enabled(True)

    def _may_read_real_tensors(self, target: Any, error: Exception) -> bool:
        """Whether what failed is a function that the program allows in graphs, because of tensors that it does not get as arguments."""
        if self.mode.allow_non_fake_inputs or not isinstance(target, types.FunctionType):
            return False
        functions: tuple[Any, ...] = (
            target,
            getattr(target, "__wrapped__", None),
        )  # one may be called through another, on leaves
        return "allow_non_fake_inputs" in str(error) and any(map(is_allowed_in_graph, functions))

    def _run_on_real_tensors(
        self, op: str, target: object, args: object, kwargs: object, values: dict[Node, Any]
    ) -> Any:
        """As `_run`; so are the bodies that the call is in. Compilers would take these tensors for constants, whose gradients are lost."""
        self.mode.allow_non_fake_inputs = True
        try:
            result = self._run(op, target, args, kwargs, values)
        except BaseException:
            self.mode.allow_non_fake_inputs = False
            raise
        self.mode.misled = f"{_name(target)} uses tensors that are not its arguments"
        return result

    def dispatcher(self) -> Any:
        """Operators that take symbolic sizes apart do so in Python."""
        return _NOTHING if self.mode.shape_env is None else enable_python_dispatcher()

    def substitute(self, arg: Any, values: dict[Node, Any]) -> Any:
        """An argument with fake tensors and symbolic numbers in the place of nodes."""
        kind = type(arg)
        if kind is Node:
            value = values[arg]
            kind = type(value)
            return value.fake if kind is TensorValue else value.sym if isinstance(value, SymValue) else value
        if kind is tuple or kind is list:
            return kind([self.substitute(item, values) for item in arg])
        if kind is dict:
            return {name: self.substitute(item, values) for name, item in arg.items()}
        if kind is slice:
            return slice(*[self.substitute(item, values) for item in (arg.start, arg.stop, arg.step)])
        return arg


class GivesWarning(Unsupported):
    """A Python function of torch gives a warning, whose line is that of its caller."""


@contextlib.contextmanager
def warnings_kept() -> Iterator[list[warnings.WarningMessage]]:
    """What a run on fake tensors warns of is not shown: the run for real will warn of it, of what it would say only once too."""
    with _WARN_ALWAYS, unshown() as said:
        yield said


class _WarnAlways:
    """Sets `torch.set_warn_always`, which is the process's: the first of several threads sets it, the last one puts back what it was."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, False

    def __enter__(self) -> None:
        with self.lock:
            if self.users == 0:
                self.before = torch.is_warn_always_enabled()
                torch.set_warn_always(True)
            self.users += 1

    def __exit__(self, *exc_info: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                torch.set_warn_always(self.before)


_WARN_ALWAYS = _WarnAlways()


def _is_of_c(message: warnings.WarningMessage) -> bool:
    """Whether torch's C++ code has said it."""
    return "(Triggered internally at " in str(message.message)


def _is_of_python(target: object) -> bool:
    return type(target) is types.FunctionType and not is_allowed_in_graph(target)


def _given(result: object, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result, or which of the lists among the arguments it is."""
    if type(result) is list or type(result) is tuple:
        given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
        for key, arg in given:
            if arg is result and arg:  # there is one empty tuple
                return ArgumentResult(key)
    return result


def span(meta: TensorMeta) -> int:
    """The number of elements of storage that a tensor reaches."""
    reach = sum((n - 1) * s for n, s in zip(meta.shape, meta.stride, strict=True))
    return meta.offset + 1 + reach if meta.numel() else meta.offset


def _refuse(target: object, error: Exception) -> NoReturn:
    """Turn what an operator raised on fake tensors into the break that runs it for real."""
    let_through(error)
    for cls, slug in _FAILURES.items():
        if isinstance(error, cls):
            unsupported(slug, _name(target), error)
    if asks_for_data(error):
        unsupported("data-dependent-size", f"{_name(target)} {asked_for(error)}", error)
    unsupported("fake-tensor-error", f"{_name(target)}: {gist(error)}", error)


_FAILURES = {
    DataDependentOutputException: "data-dependent-operator",
    DynamicOutputShapeException: "dynamic-shape-operator",
}


def _name(target: object) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", None) or str(target)


def _versions(fakes: list[FakeTensor]) -> list[int]:
    try:
        return [f._version for f in fakes]
    except RuntimeError:  # inference tensors have no version
        return [-1] * len(fakes)


def _changes(
    tensors: list[TensorValue], fakes: list[FakeTensor], versions: list[int], target: object, noted: list[Any]
) -> tuple[tuple[tuple[int, Any], ...], dict[int, int]]:
    """The arguments whose metadata is another after the call, and those whose data is, with how often they were changed."""
    suspicious = _name(target).endswith("_")
    memories = set().union(*map(memories_of, noted))
    changed = []
    written = {}
    for i, (value, fake, version, after) in enumerate(zip(tensors, fakes, versions, _versions(fakes), strict=True)):
        if version != after or (suspicious and after < 0) or (memories and not memories.isdisjoint(memories_of(fake))):
            written[i] = after - version
        if (suspicious or i in written or after < 0) and value.meta.interned:
            meta = _meta_after(value.meta, fake)
            if meta is not value.meta:
                changed.append((i, meta))
    return tuple(changed), written


def _first_of_each_memory(positions: Sequence[int], fakes: list[FakeTensor]) -> list[int]:
    seen: set[int] = set()
    found = []
    for i in positions:
        memories = memories_of(fakes[i])
        if seen.isdisjoint(memories):
            found.append(i)
        seen |= memories
    return found


def _meta_after(before: TensorMeta, fake: FakeTensor) -> TensorMeta | LiveMeta:
    """The meta of a tensor that was changed in place. Torch doesn't say whether a view that was made without gradients still is a leaf;
    a change without gradients leaves that as it was."""
    try:
        return meta_of_fake(fake)
    except Unsupported:
        if torch.is_grad_enabled() or (fake.shape, fake.stride()) != (before.shape, before.stride):
            raise
        return before


def _describe(result: Any, fakes: list[FakeTensor], new: list[FakeTensor], target: object) -> Any:
    """The result as data; its new fake tensors are appended to `new` in order."""
    if isinstance(result, FakeTensor) or is_wrapper(result):
        for i, fake in enumerate(fakes):
            if fake is result:
                return SameResult(i)
        new.append(result)
        return TensorResult(meta_of_fake(result), _base_index(result, fakes))
    kind = type(result)
    if kind is ArgumentResult:
        return result
    if kind is tuple or kind is list or (isinstance(result, tuple) and kind is not torch.Size):
        return SequenceResult(kind, tuple([_describe(item, fakes, new, target) for item in result]))
    if kind is dict and all(type(key) in (str, int) for key in result):
        values = tuple([_describe(item, fakes, new, target) for item in result.values()])
        return SequenceResult(dict, values, tuple(result))
    if isinstance(result, torch.SymInt | torch.SymFloat | torch.SymBool):
        return SymResult(result)
    if kind is torch.Size and not all(type(n) is int for n in result):
        return SequenceResult(kind, tuple([_describe(item, fakes, new, target) for item in result]))
    if kind in _CONSTANT_TYPES:
        return ConstantResult(result)
    return unsupported("graph-argument-type", f"{_name(target)} returns {kind.__name__}")


_ALWAYS_PRESENT = frozenset({"cpu", "meta"})


def _is_present(device_type: str) -> bool:
    """Whether there is such a device. Fake tensors can be on any; the operator that would make a real one raises."""
    module = getattr(torch, device_type, None)
    is_available = getattr(module, "is_available", None)
    return is_available is None or is_available()


_CONSTANT_TYPES = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        torch.Size,
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        torch.qscheme,
    }
)


def _base_index(result: FakeTensor, fakes: list[FakeTensor]) -> int | None:
    if not result._is_view():
        return None
    base = result._base
    for i, fake in enumerate(fakes):
        if base is fake or (fake._is_view() and fake._base is base):
            return i
    return None


def _is_memorable(outcome: Propagation) -> bool:
    return _is_interned(outcome.result) and all(meta.interned for _, meta in outcome.changes)


def _is_interned(result: Any) -> bool:
    kind = type(result)
    if kind is TensorResult:
        return result.meta.interned
    if kind is SequenceResult:
        return all(_is_interned(item) for item in result.items)
    return kind is not SymResult
