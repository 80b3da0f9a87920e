"""What torch contributes to guards: the metadata of a tensor, and torch's global state.

Input: real tensors. Output: the argument of a `TENSOR` check, the function of a `GLOBAL_STATE` guard.
Invariant: a check gives the same answer whether the C side reads tensors through torch's C shim or by attributes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from dynamo_lite._eval_frame import init_modes, init_requires_grad, init_tensor, read_tensor, set_silent_classes
from dynamo_lite._eval_frame import no_modes as sees_no_modes

# In torch 2.11 streams and events of CUDA die without clearing their weak references, whose own end then writes to freed memory.
set_silent_classes((torch.Stream, torch.Event))

# ----------------------------------------------------------------------------------------------------------------------
# Dispatch keys: what sets a conjugated, functorch, inference ... tensor apart from a plain one.


def dispatch_keys(tensor: torch.Tensor) -> int:
    """The tensor's dispatch key set, as a number."""
    return torch._C._dispatch_keys(tensor).raw_repr()


_HAVE_KEYS = hasattr(torch._C, "_dispatch_keys") and hasattr(torch._C.DispatchKeySet, "raw_repr")

# ----------------------------------------------------------------------------------------------------------------------
# The connection to torch's C shim.


def _library_names() -> tuple[str, ...]:
    """Names by which the loaded libraries of torch can be found; bare ones match what is loaded already."""
    suffix = "dylib" if sys.platform == "darwin" else "so"
    names = [f"libtorch_cpu.{suffix}", f"libc10.{suffix}"]
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    return (*names, *(os.path.join(folder, name) for name in names))


class _Subclass(torch.Tensor):
    """A probe."""


def _probe_tensors() -> list[torch.Tensor]:
    """Tensors of several kinds, sizes and key sets, so that nothing else agrees with all of them by accident."""
    with torch.inference_mode(False), torch.no_grad(), torch.device("cpu"):
        plain = torch.empty(2, 3, 5)
        leaf = torch.empty(7, requires_grad=True)
        with torch.enable_grad():
            result = leaf * 2
        with torch.inference_mode():
            inference = torch.empty(3)
        return [
            plain,
            plain.transpose(0, 2),
            torch.nn.Parameter(torch.empty(4, 1)),
            torch.nn.Parameter(torch.empty(4, 1), requires_grad=False),
            leaf,
            result,
            inference,
            torch.empty(3, device="meta", dtype=torch.int64),
            torch.empty((), dtype=torch.bool),
            torch.empty(2, dtype=torch.complex64).conj(),
            torch.empty(2, 4).as_subclass(_Subclass),
            torch.empty(2, 3, 4, 5, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last),
            torch.empty(3, 2, 4, 6, 5, dtype=torch.float64).transpose(1, 4),
        ]


def _leaves() -> tuple[torch.Tensor, ...]:
    """Four tensors that have never required gradients."""
    with torch.inference_mode(False), torch.device("cpu"):
        return torch.empty(3), torch.empty(4, 5), torch.empty(2, dtype=torch.float64), torch.empty(())


def _connect() -> dict[str, bool]:
    """Let the C side find its way into tensors, and check what it reads there."""
    try:
        tensors = _probe_tensors()
        probes = tuple((t, t._cdata, t.requires_grad, dispatch_keys(t) if _HAVE_KEYS else 0) for t in tensors)
    except (AttributeError, RuntimeError, TypeError):  # this torch, or a mode that is active now, has other ways
        return {}
    plain_types = (torch.Tensor, torch.nn.Parameter)
    found = init_tensor(torch.Tensor, plain_types, _library_names(), probes)
    if found["metadata"] and not all(map(_reads_correctly, tensors)):
        return init_tensor(torch.Tensor, plain_types, (), ())  # disconnect
    return {**found, "requires_grad_in_place": found["requires_grad"] and init_requires_grad(_leaves())}


def _reads_correctly(tensor: torch.Tensor) -> bool:
    read = read_tensor(tensor)
    if read is None:
        return False
    (_, _, index, _), sizes, strides = read
    expected_index = -1 if tensor.device.index is None else tensor.device.index
    return (sizes, strides, index) == (tuple(tensor.shape), tensor.stride(), expected_index)


SHIM: dict[str, bool] = _connect()
"""What the C side reads without going through Python: "metadata", "keys", "requires_grad", and with "layout" and "requires_grad_in_place"
the first and the last again without asking torch."""

# ----------------------------------------------------------------------------------------------------------------------
# Guards.


def tensor_spec(
    tensor: torch.Tensor,
    dynamic_sizes: Iterable[int] = (),
    strides: Sequence[int | None] | None | bool = True,
) -> tuple:
    """The argument of a `TENSOR` check that this tensor passes: type, dtype, device, layout, requires_grad, sizes, strides, keys, codes.

    In `sizes` and `strides` None stands for any number; `keys` is `(function, dispatch key set)` or None; `codes` are the numbers that
    torch's C shim has for dtype, device type, device index and layout, or None: these are then compared by attributes.

    `dynamic_sizes`: dimensions whose size may vary. `strides`: True: as they are, except those that follow from a
    dynamic size, for which the caller must add what it assumes as a predicate; a sequence, where None stands for any
    stride; False or None: not checked.
    """
    dynamic = frozenset(dynamic_sizes)
    sizes = tuple([None if i in dynamic else int(size) for i, size in enumerate(tensor.shape)])
    if tensor.layout is not torch.strided or strides is False:
        strides = None
    elif strides is True:
        strides = _static_strides(tensor, dynamic)
    read = read_tensor(tensor)
    return (
        type(tensor),
        tensor.dtype,
        tensor.device,
        tensor.layout,
        tensor.requires_grad,
        sizes,
        None if strides is None else tuple(strides),
        (dispatch_keys, dispatch_keys(tensor)) if _HAVE_KEYS else None,
        None if read is None else read[0],
    )


def _static_strides(tensor: torch.Tensor, dynamic: frozenset[int]) -> tuple[int | None, ...]:
    """The strides, except those that a dynamic size can change: all larger than that dimension's own."""
    stride = tensor.stride()
    threshold = min((stride[i] for i in dynamic), default=None)
    if threshold is None:
        return stride
    return tuple([None if value > threshold else value for value in stride])


def global_state_check() -> Callable[[], bool]:
    """A function that tells whether torch's global flags (grad mode, autocast, ...) are as they are now."""
    guard = getattr(getattr(torch._C._dynamo, "guards", None), "GlobalStateGuard", None)
    if guard is not None:
        return guard().check
    expected = _global_state()
    return lambda: _global_state() == expected


def _global_state() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        *(f(device) for device in ("cuda", "cpu") for f in (torch.is_autocast_enabled, torch.get_autocast_dtype)),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def is_in_dual_level() -> bool:
    """Whether a level of forward-mode derivatives is open: graphs of compilers know the values of dual tensors only."""
    return getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0


def _has_no_modes() -> bool:
    stacks = torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack()
    return not stacks and torch._C._get_tracing_state() is None and not is_in_dual_level()


def _counts_modes() -> bool:
    """Does the C side see that modes and tracers come and go? A mode that is only pushed and popped has no effect."""
    if not init_modes(_library_names(), vars(torch.autograd.forward_ad)):
        return False
    seen = [sees_no_modes() is _has_no_modes()]
    for mode, push, pop in (
        (BaseTorchFunctionMode(), torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack),
        (object.__new__(TorchDispatchMode), _push_mode, _pop_mode),
    ):
        push(mode)
        try:
            seen.append(sees_no_modes() is False)
        finally:
            pop()
    seen += [_is_seen_while_traced(), sees_no_modes() is _has_no_modes()]
    return all(seen)


def _is_seen_while_traced() -> bool:
    """Whether the C side sees a tracer of torch.jit."""
    if torch._C._get_tracing_state() is not None:
        return sees_no_modes() is False
    seen = []

    def traced(x: torch.Tensor) -> torch.Tensor:
        seen.append(sees_no_modes() is False)
        return x

    torch._C._create_graph_by_tracing(traced, (torch.empty(0, device="cpu"),), lambda value: "", True, False, None, ())
    return seen == [True]


no_modes: Callable[[], bool] = sees_no_modes if _counts_modes() else _has_no_modes
"""Tells whether no torch function mode, no dispatch mode and no tracer of torch.jit is active on this thread, and no dual level open."""
