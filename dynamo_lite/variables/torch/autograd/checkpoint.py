"""Checkpointed functions: `torch.utils.checkpoint.checkpoint` and the operators that compilers make of it.

Input: calls of these. Output: one node whose body the backward pass may compute again.
Invariant: that of `variables.torch.body`.
Mirrors `torch/utils/checkpoint.py` and `torch/_higher_order_ops/wrap.py`.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.autograd import Variable
from torch.utils.checkpoint import check_backward_validity, checkpoint, noop_context_fn

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.bodies import BREAK
from dynamo_lite.graph.core.checkpoints import CONTEXT_FN, PRESERVES_RNG
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import FALSE, TRUE, ConstantVariable, is_constant, is_none
from dynamo_lite.variables.protocol.dispatch import method
from dynamo_lite.variables.stdlib.functools import PartialVariable
from dynamo_lite.variables.stdlib.sysmodule import warn
from dynamo_lite.variables.torch.body import (
    REGION,
    BodyVariable,
    call_function,
    capture,
    models,
    needs_grad,
    operator_model,
)
from dynamo_lite.variables.torch.tensor import TensorVariable

from .autograd_function import applied

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_SET_GRAD = torch._C._set_grad_enabled
_CHECKPOINT_OPTIONS = frozenset({"use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop"})


def _real_callable(vt: VariableTracker) -> Any:
    """The function, or partial of functions and constants, that a tracker stands for."""
    if isinstance(vt, PartialVariable):
        args = [_real_callable(a) for a in vt.args.items]
        keywords = {key.as_python_constant(): _real_callable(value) for key, value in vt.keywords.pairs()}
        return functools.partial(_real_callable(vt.function), *args, **keywords)
    if isinstance(vt, ListVariable):
        return [_real_callable(item) for item in vt.items]
    if not vt.is_python_constant():
        return unsupported(BREAK, f"checkpoint with a context_fn made of a {vt.python_type().__name__}")
    return vt.as_python_constant()


def _is_function(vt: VariableTracker, function: object) -> bool:
    return vt.is_python_constant() and vt.as_python_constant() is function


@models(checkpoint)
def checkpoint_call(tx: Frame, function: Any, *args: Any, **kwargs: Any) -> VariableTracker:
    """`torch.utils.checkpoint.checkpoint`: a body that the backward pass may compute again. Without gradients a plain call. If
    `use_reentrant` is missing, torch warns and takes the reentrant implementation. Our warning names the line of the call; torch's, one of
    its own wrappers."""
    options = {name: kwargs.pop(name) for name in list(kwargs) if name in _CHECKPOINT_OPTIONS}
    context_fn = kwargs.pop("context_fn", None)
    if not is_constant(*options.values()):
        unsupported(BREAK, "checkpoint with options that are not constant")
    known = {name: option.as_python_constant() for name, option in options.items()}
    if known.get("determinism_check", "default") not in ("default", "none"):
        unsupported(BREAK, "checkpoint with options that it refuses")
    is_said = known.get("use_reentrant") is not None
    is_reentrant = not is_said or bool(known["use_reentrant"])
    if not is_said:
        if _NOT_SAID is None:
            unsupported(BREAK, "checkpoint without use_reentrant")
        warn(tx, ConstantVariable(_NOT_SAID))
    if is_reentrant and (kwargs or context_fn is not None or known.get("debug")):
        unsupported(BREAK, "checkpoint with options that it refuses")
    if is_reentrant and not needs_grad([a.proxy for a in args if isinstance(a, TensorVariable)]):
        return _without_gradients(tx, function, list(args))
    tx.tr.state.tells_grad_mode(is_reentrant)
    if not torch.is_grad_enabled():
        return tx.call(function, list(args), kwargs)
    captured = capture(tx, function, list(args), kwargs, only_calls=True)
    lifted = captured.lifted
    if is_reentrant:
        _check_reentrant(args, captured.result)
    module = captured.module(lifted)
    captured.body.run(module, lifted)
    if not captured.leaves:
        return captured.result
    module.meta[PRESERVES_RNG] = bool(known.get("preserve_rng_state", True))
    if not (is_none(context_fn) or _is_function(context_fn, noop_context_fn)):
        module.meta[CONTEXT_FN] = _real_callable(context_fn)
    tensors = call_function(tx, tag_activation_checkpoint, [BodyVariable(module)], lifted)
    return captured.rebuild(tensors)


def _without_gradients(tx: Frame, function: Any, args: list[Any]) -> VariableTracker:
    """A reentrant checkpoint none of whose arguments needs a gradient: torch warns, and runs the function without gradients."""
    tx.call(tx.tr.build_constant_object(check_backward_validity), [TupleVariable(args)])
    grad = tx.tr.state.records()
    if grad:
        tx.tr.state.write(_SET_GRAD, (False,))
    try:
        return applied(tx, tx.call(function, args), args, [])
    finally:
        if grad and tx.tr.state.final is None:
            tx.tr.state.write(_SET_GRAD, (True,))


def _text_without_use_reentrant() -> str | None:
    """The text of torch's warning, taken from its code; None for a version of torch that has none."""
    code: Any = inspect.unwrap(checkpoint).__code__  # type: ignore[attr-defined]
    texts = [text for text in code.co_consts if type(text) is str and "use_reentrant parameter should be" in text]
    return texts[0] if texts else None


_NOT_SAID = _text_without_use_reentrant()


def _check_reentrant(args: Any, result: VariableTracker) -> None:
    """A reentrant checkpoint is an `autograd.Function`: it sees the tensors that are arguments themselves, all its floating-point results
    need gradients, tensors inside of other results get none, and of an argument it returns a view."""
    for item in result.items if result.python_type() is tuple else [result]:
        if isinstance(item, TensorVariable):
            meta = item.proxy.meta
            as_expected = meta.requires_grad or not (meta.dtype.is_floating_point or meta.dtype.is_complex)
            if any(item is arg for arg in args):
                unsupported(BREAK, "reentrant checkpoint that returns an argument")
        else:
            as_expected = item.is_python_constant()
        if not as_expected:
            unsupported(BREAK, "reentrant checkpoint with results that get or lose gradients by it")


def _tagged(tx: Frame, function: object, *args: Any, **kwargs: Any) -> VariableTracker:
    """The operators that compilers make of `checkpoint`."""
    kwargs.pop("use_reentrant", None)
    return checkpoint_call(tx, function, *args, use_reentrant=FALSE, **kwargs)


_Engine = type(Variable._execution_engine)


@method(_Engine.is_checkpoint_valid)
def is_checkpoint_valid(tx: Frame, engine: VariableTracker) -> VariableTracker:
    """Whether a reentrant checkpoint may be computed again here: not where only the gradients of some inputs are asked for."""
    if not _is_valid_now():
        return unsupported(BREAK, "a checkpoint where gradients of inputs are asked for")
    tx.tr.guards.global_state(_is_valid_now, "no gradients of inputs are asked for")
    return TRUE


def _is_valid_now() -> bool:
    return Variable._execution_engine.is_checkpoint_valid()


operator_model("tag_activation_checkpoint", REGION)(_tagged)
operator_model("wrap_activation_checkpoint", REGION)(_tagged)
