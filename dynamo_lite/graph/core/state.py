"""Torch's ambient state during an analysis: grad mode, autocast, default dtype, deterministic algorithms.

Input: the calls by which the traced code reads and changes it. Output: constants for reads; for changes, graph nodes,
and what is still changed at the end.
Invariant: the process has the state that the traced code has at this point (operators on fake tensors depend on it)
until `restore` puts back what was found. The graph leaves the state as it found it; the code after the graph makes the
lasting changes.

Only the setters in C are modelled: context managers such as `torch.no_grad` are Python classes, which the trace follows. So a graph break
inside their blocks needs nothing special.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import grad_mode
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.fx import Node

from dynamo_lite.backends.regions import bucket_limits
from dynamo_lite.breaks import UserFrame
from dynamo_lite.exc import Unsupported, gist, unsupported
from dynamo_lite.guards import tensor_class
from dynamo_lite.guards.tensor_guards import global_state_check, no_modes
from dynamo_lite.signals import let_through

from . import modes
from .effect import Compiled, GraphEffect, Wrapper

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

_C = torch._C


_SDP_BACKENDS = tuple(
    [
        name
        for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")
        if hasattr(_C, f"_set_sdp_use_{name}")
    ]
)


_CUDNN_FLAGS = tuple(
    [
        name
        for name in ("enabled", "benchmark", "deterministic", "allow_tf32", "depthwise_kernel")
        if hasattr(_C, f"_set_cudnn_{name}")
    ]
)
_HAVE_CUDNN_LIMIT = hasattr(_C, "_cuda_get_cudnn_benchmark_limit")  # in builds with CUDA
_HAVE_FP32_PRECISION = hasattr(_C, "_set_fp32_precision_setter")


class Setting(NamedTuple):
    """How one part of the state is written and read: `write(*key, value)`, `read(*key)`; the key has `n_keys`
    arguments."""

    write: Callable[..., Any]
    read: Callable[..., Any]
    n_keys: int = 0


def set_deterministic(algorithms: tuple[bool, bool]) -> None:
    """Switch deterministic algorithms: `(on, only warn)`."""
    torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])


def get_deterministic() -> tuple[bool, bool]:
    """Whether deterministic algorithms are on, and only warn."""
    return _C._get_deterministic_algorithms(), _C._get_deterministic_algorithms_warn_only()


def set_disabled_hooks(message: str | None) -> None:
    """Have `saved_tensors_hooks` raise with this message; None allows them."""
    if message is None:
        _C._autograd._saved_tensors_hooks_enable()
    else:
        _C._autograd._saved_tensors_hooks_disable(message)


def _pair(name: str, read: str | None = None) -> Setting:
    return Setting(getattr(_C, f"_set_{name}"), getattr(_C, read or f"_get_{name}"))


SETTINGS: dict[Callable[..., Any], Setting] = {
    setting.write: setting
    for setting in (
        Setting(_C._set_grad_enabled, torch.is_grad_enabled),
        Setting(torch.set_autocast_enabled, torch.is_autocast_enabled, 1),
        Setting(torch.set_autocast_dtype, torch.get_autocast_dtype, 1),
        Setting(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled),
        Setting(_C._set_default_dtype, torch.get_default_dtype),
        Setting(_C._set_deterministic_fill_uninitialized_memory, _C._get_deterministic_fill_uninitialized_memory),
        Setting(set_deterministic, get_deterministic),
        Setting(set_disabled_hooks, _C._autograd._saved_tensors_hooks_get_disabled_error_message),
        *(_pair(f"sdp_use_{name}", f"_get_{name}_sdp_enabled") for name in _SDP_BACKENDS),
        _pair("sdp_priority_order"),
        *([Setting(_C._set_fp32_precision_setter, _C._get_fp32_precision_getter, 2)] if _HAVE_FP32_PRECISION else ()),
        *(_pair(f"cudnn_{name}") for name in _CUDNN_FLAGS),
        *(
            [Setting(_C._cuda_set_cudnn_benchmark_limit, _C._cuda_get_cudnn_benchmark_limit)]
            if _HAVE_CUDNN_LIMIT
            else ()
        ),
        *(_pair(name) for name in ("cublas_allow_tf32", "float32_matmul_precision", "mkldnn_enabled")),
    )
}
"""The C function that changes a part of the state → the part. Reads are folded wherever they are (`READS`)."""

READS: frozenset[Callable[..., Any]] = frozenset(
    {
        *(setting.read for setting in SETTINGS.values()),
        torch.is_autocast_cpu_enabled,
        torch.get_autocast_cpu_dtype,
        torch.get_autocast_gpu_dtype,
        torch.is_inference_mode_enabled,
        _C._get_deterministic_algorithms,
        _C._get_deterministic_algorithms_warn_only,
        _C._is_any_autocast_enabled,
        _C._len_torch_dispatch_stack,
    }
)
"""C functions that only read the state."""

# What the guard on torch's global state looks at by itself. (`torch.get_autocast_dtype` is missing: it compares that only where autocast is
# on.)
_COVERED = frozenset(
    {
        torch.is_grad_enabled,
        torch.is_autocast_enabled,
        torch.is_autocast_cache_enabled,
        torch.get_default_dtype,
        _C._get_deterministic_algorithms,
        _C._get_deterministic_algorithms_warn_only,
        _C._get_cublas_allow_tf32,
        _C._len_torch_function_stack,
        _C._is_torch_function_mode_enabled,
        _C._is_any_autocast_enabled,
    }
)

STATE_TEXT = "torch's global state (grad mode, autocast, default dtype, ...)"

_DEFAULT_DTYPE = (_C._set_default_dtype,)
_KNOWN_LATER = (_C._set_grad_enabled, _C._set_default_dtype)
"""Settings that what runs later does not find as they happen to be: nobody changes the second there."""


def another(value: object) -> Any:
    """Another value that a setting may have; None if none is known."""
    if isinstance(value, str):
        return _OTHER_NAMES.get(value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, torch.dtype):
        return torch.float16 if value is torch.bfloat16 else torch.bfloat16
    if isinstance(value, tuple):  # of `set_deterministic`: programs that put back the first may not put back the second
        return (not value[0], *value[1:])
    return value[::-1] if isinstance(value, list) and len(value) > 1 else None


_OTHER_NAMES = {"highest": "high", "high": "highest", "medium": "high"}
"""Precisions of products → another one."""

_AUTOCAST_DEVICES = ("cpu", "cuda")


def leave_autocast() -> None:
    """The second half of leaving an autocast region, after the reset of flags: outside of the last region the cache of casts is dropped."""
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()


class AmbientState(GraphEffect):
    """The state of one trace. `key` identifies it for the memo of propagated operators."""

    takes_boxed = True

    def __init__(self, builder: GraphBuilder) -> None:
        super().__init__(builder)
        self.initial: dict[tuple[Any, ...], Any] = {}
        self.final: dict[tuple[Any, ...], Any] | None = None
        self.nesting = 0
        self.writes = False
        self.guarded: set[Any] = set()
        self.grad_mode_uses = 0  # how many times the traced code has asked for it, or set it
        # whether it would be followed otherwise in the other grad mode, `torch.no_grad()` blocks apart
        self.hangs_on_grad_mode = False
        self.began_in_inference = torch.is_inference_mode_enabled()
        self.has_inference = False
        self.has_inference_tensors = False
        self.inference: list[OpenInferenceMode] = []
        self._key: Any = None
        # where each part was changed last, for a backend that leaves changes out
        self.places: dict[tuple[Any, ...], list[UserFrame]] = {}
        self._dtype_step: int | None = None  # when the default dtype was set last
        self._last: tuple[Any, tuple[Any, ...], Any] | None = None
        self._hangs_on: dict[tuple[Any, ...], Any] | None = None  # see `later`

    # -- reading

    @property
    def key(self) -> Any:
        """Equal keys mean that operators behave alike. The first use guards the state."""
        if self._key is None:
            self.guard_modes()
            self._key = self.compute_key()
        return self._key

    @property
    def has_other_default_dtype(self) -> bool:
        """Whether the default dtype is another one than where the graph begins."""
        return self._dtype_step is not None and self.initial[_DEFAULT_DTYPE] != torch.get_default_dtype()

    @contextlib.contextmanager
    def first_default_dtype(self) -> Iterator[None]:
        """The default dtype with which the graph runs."""
        now = torch.get_default_dtype()
        torch.set_default_dtype(self.initial[_DEFAULT_DTYPE])
        try:
            yield
        finally:
            torch.set_default_dtype(now)

    def refuse_default_dtype(self) -> NoReturn:
        """Break where the default dtype was set."""
        error = Unsupported("grad-mode", "operators under a default dtype that has just been set")
        error.break_step = self._dtype_step
        raise error

    @staticmethod
    def compute_key() -> tuple[Any, ...]:
        """The state that operators depend on, now."""
        autocast: Any = _C._is_any_autocast_enabled()
        if autocast:
            autocast = tuple([(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _AUTOCAST_DEVICES])
        return (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            autocast,
            torch.get_default_dtype(),
            _C._get_deterministic_algorithms(),
            *(read() for read in SDP_READS),
            _default_devices(),
        )

    def guard_modes(self) -> None:
        if "basics" in self.guarded:
            return
        self.guarded.add("basics")
        guards = self.builder.tr.guards
        guards.global_state(global_state_check(), STATE_TEXT)
        around = modes.around() or modes.stack()
        is_bare = not around and modes.fake_mode() is None
        guards.global_state(no_modes if is_bare else _same_modes(around), "the same modes are active")
        guards.global_state(tensor_class.check(), "the methods of torch.Tensor are the same")
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self._guard(bucket_limits, (), bucket_limits())

    def read(self, function: Any, args: tuple[Any, ...]) -> Any:
        """The present value, guarded unless the traced code itself has set it."""
        if function is torch.is_grad_enabled:
            self._note_grad_mode(False)
        if function is _C._len_torch_dispatch_stack:
            self.guard_modes()
            return int(modes.fake_mode() is not None)
        function, args = _ALIASES.get((function, *args), (function, args))
        value = self._really(function, args)
        if function is torch.is_inference_mode_enabled and self.has_inference:
            return value
        write = _WRITE_OF.get(function)
        if write is not None:
            self._note((write, *args), value)
        elif function is _C._get_deterministic_algorithms:
            self._note((set_deterministic,), get_deterministic())
        elif self._hangs_on is not None and function is _C._is_any_autocast_enabled:
            unsupported("grad-mode", "what runs later asks whether autocast is on for any device")
        if write is None or (write, *args) not in self.initial:
            self._guard(function, args, value)
        return value

    def _really(self, function: Any, args: tuple[Any, ...]) -> Any:
        """Call a function of torch. What it raises it raises in the traced code."""
        try:
            return function(*args)
        except Exception as error:
            frame: Any = self.builder.tr.thread.frame
            return frame.raises_like(error)

    def _guard(self, function: Any, args: tuple[Any, ...], value: object) -> None:
        self.guard_modes()
        if function not in _COVERED and (function, args) not in self.guarded:
            self.guarded.add((function, args))
            text = f"{function.__name__}({', '.join(map(repr, args))}) == {value!r}"
            self.builder.tr.guards.global_state(self.reading(function, args, value), text)

    def _note_grad_mode(self, enables: bool) -> None:
        """The traced code asks for the grad mode or sets it. Blocks of `torch.no_grad()`, which put back what they have found, are the same
        whatever that is, except that there is nothing to see of them where it is off already."""
        self.grad_mode_uses += 1
        frame: Any = self.builder.tr.thread.frame
        is_of_block = frame is not None and frame.code.co_filename == grad_mode.__file__
        leaves = is_of_block and any(f is not None and f.code.co_name == "__exit__" for f in (frame, frame.parent))
        is_on = self.initial.get((_C._set_grad_enabled,), torch.is_grad_enabled())
        self.hangs_on_grad_mode |= not is_of_block or not is_on or (enables and not leaves)

    def tells_grad_mode(self, recorded: bool) -> None:
        """The traced code asks a tensor of the graph whether it takes part in autograd."""
        is_on = self.initial.get((_C._set_grad_enabled,), torch.is_grad_enabled())
        self.hangs_on_grad_mode |= recorded or not is_on

    def records(self, needs: bool = True) -> bool:
        """Whether autograd records now, for a model that does something else where it does. `needs`: whether any tensor in question needs
        gradients."""
        is_recorded = needs and torch.is_grad_enabled()
        self.tells_grad_mode(is_recorded)
        return is_recorded

    @staticmethod
    def reading(function: Any, args: tuple[Any, ...], value: object) -> Callable[[], bool]:
        """A function that tells whether a part of the state is still `value`."""

        def unchanged() -> bool:
            return function(*args) == value

        unchanged.__dict__["reads"] = (function, args, value)
        return unchanged

    # -- changing

    def write(self, function: Any, args: tuple[Any, ...]) -> None:
        """Carry out a change, for the rest of the trace and in the graph."""
        if function is _C._set_grad_enabled:
            self._note_grad_mode(args[-1] is not False)
        setting = SETTINGS[function]
        if len(args) != setting.n_keys + 1:
            unsupported("grad-mode", f"{function.__name__}{args}")
        if self.inference and function is _C._set_grad_enabled and args[-1]:
            unsupported("grad-mode", "gradients are enabled inside of an inference mode")
        key = (function, *args[:-1])
        try:
            before = setting.read(*args[:-1])
        except Exception as error:  # the exception is that of the setter
            let_through(error)
            unsupported("grad-mode", f"{function.__name__}{args}: {gist(error)}", error)
        if key not in self.initial:
            self._guard(setting.read, args[:-1], before)
            self.initial[key] = before
        if self._hangs_on is not None and another(before) is None:
            unsupported(
                "grad-mode", f"what runs later sets {function.__name__}, for whose state of then nothing is known"
            )
        self._note(key, before)
        value = args[-1]
        self._note_place(key)
        if key == _DEFAULT_DTYPE:
            self._dtype_step = self.builder.tr.thread.failing_step()
        self._really(function, args)
        self._write_node(key, before, value)
        self._key = None

    def _write_node(self, key: tuple[Any, ...], before: Any, value: object) -> None:
        """One node per change that an operator sees. (The default dtype is none: compilers keep operators without the dtype that they
        had by default.)"""
        if key == _DEFAULT_DTYPE:
            return
        builder = self.builder
        if self._last is not None and self._last[1] == key and builder.last_node is self._last[0]:
            node, _, before = self._last
            builder.graph.erase_node(node)
            self._last = None
        if before != value or (self._hangs_on is not None and key in self._hangs_on):
            self.writes = True
            node = builder.add("call_function", key[0], (*key[1:], value))
            self._last = (node, key, before)

    def _note_place(self, key: tuple[Any, ...]) -> None:
        if self.builder.tr.effects.keeps_stacks:
            self.places[key] = self.builder.tr.thread.user_stack()

    def nest(self, change: int) -> None:
        """Enter (1) or leave (-1) an autocast region. The depth of the process changes when the graph runs."""
        self.guard_modes()
        self._note_place((_NESTING[change],))
        self.nesting += change
        self.writes = True
        self.builder.add("call_function", _NESTING[change])

    def grad_mode(self, enabled: bool) -> AbstractContextManager[None]:
        """Analyse with another grad mode which the code that will run this part of the graph sets by itself."""
        return self._other({(_C._set_grad_enabled,): enabled})

    def autocast(self, wanted: Any) -> AbstractContextManager[None]:
        """Analyse with another state of autocast, as `compute_key` has it, in which this part of the graph will run."""
        other: dict[tuple[Any, ...], Any] = {}
        for i, device in enumerate(_AUTOCAST_DEVICES):
            dtype = torch.get_autocast_dtype(device)
            enabled, wanted_dtype = wanted[i] if wanted else (False, dtype)
            if enabled != torch.is_autocast_enabled(device):
                other[torch.set_autocast_enabled, device] = enabled
            if wanted_dtype != dtype:
                other[torch.set_autocast_dtype, device] = wanted_dtype
        return self._other(other)

    @contextlib.contextmanager
    def later(self, others: dict[tuple[Any, ...], Any] | None = None) -> Iterator[dict[tuple[Any, ...], Any]]:
        """Analyse what will run in a state that is not known yet: each change is a node, also one to the value of now. `others`: settings
        to analyse it with. Yields what it reads or changes, with the values before; the grad mode is known."""
        outer, self._hangs_on = self._hangs_on, {}
        found = self._hangs_on
        try:
            with self._other(others or {}):
                yield found
        finally:
            self._hangs_on = outer
            if outer is not None:
                for key, value in found.items():
                    outer.setdefault(key, value)

    def _note(self, key: tuple[Any, ...], value: object) -> None:
        if self._hangs_on is not None and another(value) is not None and key[0] not in _KNOWN_LATER:
            self._hangs_on.setdefault(key, value)

    @contextlib.contextmanager
    def _other(self, settings: dict[tuple[Any, ...], Any]) -> Iterator[None]:
        """Analyse with other settings. What is inside may read and set them as well."""
        self.guard_modes()
        before = {key: SETTINGS[key[0]].read(*key[1:]) for key in settings}
        for key, value in settings.items():
            self.initial.setdefault(key, before[key])
            key[0](*key[1:], value)
        self._key = None
        try:
            yield
        finally:
            if self.final is None:
                for key, value in before.items():
                    key[0](*key[1:], value)
            self._key = None

    def of_now(self) -> dict[Any, Any]:
        """The state now, as far as the graph may have changed it."""
        return {key: SETTINGS[key[0]].read(*key[1:]) for key in self.initial}

    @contextlib.contextmanager
    def as_it_was(self, then: dict[Any, Any]) -> Iterator[None]:
        """The state as `of_now` has told it, that in which the graph begins where it has not; afterwards that of now."""
        now = self.of_now()
        try:
            for key, value in (self.initial | then).items():
                key[0](*key[1:], value)
            yield
        finally:
            for key, value in now.items():
                key[0](*key[1:], value)

    def enter_inference(self, enabled: bool, holder: Any) -> None:
        """Enter an inference mode. `holder`: what stands for it in the traced code."""
        self.hangs_on_grad_mode = True
        if not self.has_inference:
            self.has_inference = True
            self._guard(torch.is_inference_mode_enabled, (), torch.is_inference_mode_enabled())
        # It sets the grad mode as well, and puts it back.
        self.initial.setdefault(_GRAD_MODE, torch.is_grad_enabled())
        node = self.builder.add("call_function", _enter_inference_mode, (enabled,))
        found = self.of_now()
        self.inference.append(OpenInferenceMode(node, _enter_inference_mode(enabled), holder, enabled, found))
        self._key = None

    def leave_inference(self, holder: object) -> None:
        """Leave the innermost inference mode. Refuses any other."""
        if not self.inference or self.inference[-1].holder is not holder:
            unsupported("grad-mode", "an inference mode that is not the innermost one is left")
        mode = self.inference.pop()
        _exit_inference_mode(mode.entered)
        self.builder.add("call_function", _exit_inference_mode, (mode.node,))
        self._key = None

    # -- the end

    def call_wrapper(self) -> Wrapper | None:
        """Puts the state back when the graph raises half way."""
        return functools.partial(_protect, tuple(self.initial.items())) if self.writes else None

    def write_data(self, writer: Any) -> Any:
        initial = [(writer.value(key), writer.value(value)) for key, value in self.initial.items()]
        return (initial, self.writes) if initial or self.writes else None

    def read_data(self, data: Any, reader: Any, graph: Any) -> None:
        initial, self.writes = data
        self.initial = {reader.value(key): reader.value(value) for key, value in initial}

    def put_back(self) -> None:
        """Restore the state that was found, in case a compiler that ran the graph failed half way."""
        for key, value in self.initial.items():
            if SETTINGS[key[0]].read(*key[1:]) != value:
                key[0](*key[1:], value)

    def restore(self) -> None:
        """Put back the state that was found. What the traced code left is kept for `final_changes`."""
        if self.final is None:
            self.final = self.of_now()  # before the modes put back what they have found
            for mode in reversed(self.inference):
                _exit_inference_mode(mode.entered)
            for key, value in self.initial.items():
                key[0](*key[1:], value)

    @property
    def _final(self) -> dict[Any, Any]:
        return self.of_now() if self.final is None else self.final

    def prepare(self) -> Sequence[Node]:
        """Have the graph put back what it changed."""
        for mode in reversed(self.inference):
            self.builder.add("call_function", _exit_inference_mode, (mode.node,))
        left = self._final
        if self.inference:  # the outermost one has put back the grad mode
            left = left | {_GRAD_MODE: self.inference[0].found[_GRAD_MODE]}
        for key, value in _differing(self.initial, left):
            self._write_node(key, value, self.initial[key])
        for _ in range(abs(self.nesting)):
            self.builder.add("call_function", _NESTING[-1 if self.nesting > 0 else 1])
        return ()

    def final_changes(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """The calls that bring the process to the state in which the traced code left it. Between them, as `(None, (holder,))`, are open
        inference modes, each of which puts back at its end what it has found."""
        calls: list[tuple[Any, tuple[Any, ...]]] = []
        now = self.initial
        for mode in self.inference:
            calls += _calls(now, now | mode.found)
            calls.append((None, (mode.holder,)))
            now = now | mode.found | {_GRAD_MODE: not mode.enabled}
        calls += _calls(now, self._final)
        calls.extend([(_NESTING[1 if self.nesting > 0 else -1], ())] * abs(self.nesting))
        if self.builder.tr.overrides is not None:
            calls = [(_BELOW_MODES.get(function, function), args) for function, args in calls]
        return calls


class OpenInferenceMode(NamedTuple):
    """An inference mode that the traced code has entered. `node`: its value in the graph; `entered`: that of the process; `holder`: what
    stands for it in the traced code; `found`: the settings before."""

    node: Node
    entered: Any
    holder: Any
    enabled: bool
    found: dict[Any, Any]


def set_grad_enabled_below_modes(enabled: bool) -> None:
    """`torch._C._set_grad_enabled`, of which function modes are told, where they have been told."""
    with _C.DisableTorchFunction():
        _C._set_grad_enabled(enabled)


_GRAD_MODE = (_C._set_grad_enabled,)
_BELOW_MODES = {_C._set_grad_enabled: set_grad_enabled_below_modes}


def _differing(before: dict[Any, Any], after: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return [(key, value) for key, value in after.items() if value != before[key]]


def _calls(before: dict[Any, Any], after: dict[Any, Any]) -> list[tuple[Any, tuple[Any, ...]]]:
    """The calls between two states."""
    return [(key[0], (*key[1:], value)) for key, value in _differing(before, after)]


def _protect(initial: tuple[Any, ...], compiled: Compiled) -> Compiled:
    def protected(*args: Any) -> Any:
        depth = autocast_depth()
        try:
            return compiled(*args)
        except BaseException:
            for key, value in initial:
                key[0](*key[1:], value)
            for _ in range(autocast_depth() - depth):
                leave_autocast()
            raise

    return protected


def runs_protected(keys: Sequence[tuple[Any, ...]], compiled: Compiled, args: Sequence[Any]) -> Any:
    """Call something that changes the settings with these keys; if it raises half way, they are what they are now."""
    return _protect(tuple([(key, SETTINGS[key[0]].read(*key[1:])) for key in keys]), compiled)(*args)


def autocast_depth() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


SDP_READS = tuple([getattr(_C, f"_get_{name}_sdp_enabled") for name in _SDP_BACKENDS])
_WRITE_OF = {setting.read: setting.write for setting in SETTINGS.values()}
_ALIASES = {
    (torch.is_autocast_enabled,): (torch.is_autocast_enabled, ("cuda",)),
    (torch.is_autocast_cpu_enabled,): (torch.is_autocast_enabled, ("cpu",)),
    (torch.get_autocast_cpu_dtype,): (torch.get_autocast_dtype, ("cpu",)),
    (torch.get_autocast_gpu_dtype,): (torch.get_autocast_dtype, ("cuda",)),
}
"""Reads that have another name for the same part of the state."""
_NESTING = {1: torch.autocast_increment_nesting, -1: leave_autocast}


def _default_devices() -> Any:
    """The active contexts of a default device."""
    return tuple([mode.device for mode in modes.stack()])


def _kind_of_mode(mode: Any) -> Any:
    return mode.device if modes.is_device_context(mode) else type(mode)


def is_one_fake_mode() -> bool:
    """Whether a `FakeTensorMode` is the only dispatch mode on torch's stack."""
    return _C._len_torch_dispatch_stack() == 1 and type(modes.active_fake_mode()) is FakeTensorMode


def _same_modes(around: tuple[Any, ...]) -> Callable[[], bool]:
    """Tells whether the stack of function modes has modes of the same kinds again, and whether there is a `FakeTensorMode` of the same
    kind if there was one. What they depend on is guarded where it is read."""
    expected = list(map(_kind_of_mode, around))
    takes_real = None if modes.fake_mode() is None else modes.fake_mode().allow_non_fake_inputs

    def same_dispatch_modes() -> bool:
        if takes_real is None:
            return not _C._len_torch_dispatch_stack()
        return is_one_fake_mode() and modes.active_fake_mode().allow_non_fake_inputs == takes_real

    return lambda: (
        same_dispatch_modes()
        and _C._get_tracing_state() is None
        and list(map(_kind_of_mode, modes.stack())) == expected
    )
