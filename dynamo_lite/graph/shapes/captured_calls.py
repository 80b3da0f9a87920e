"""The front end of the shape rules for captured calls: the outcome of a call of torch's functions, without a fake tensor.

Input: a function or the name of a method, and arguments in which nodes stand for tensors. Output: the `Propagation` of the
call, or None where it has to be run on fake tensors.
Invariant: an outcome is that of the call on fake tensors; its guards are the same as there, or follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from dynamo_lite.graph.core.meta import intern
from dynamo_lite.graph.core.values import Propagation, SameResult, SymValue, TensorResult, TensorValue

from . import operator_rules, view_rules  # noqa: F401  (they fill the table)
from .meta_tensor import MetaTensor
from .rule_table import CALLS, Written
from .size_algebra import NoRule, SizeAlgebra

if TYPE_CHECKING:
    from dynamo_lite.graph.core.fake import FakeTensorMode

_C = torch._C


def answer_by_rules(mode: FakeTensorMode) -> None:
    """Let the rules answer the calls of a trace, which has no symbols yet, before a fake tensor is made."""
    mode.direct_outcome = outcome
    mode.size_algebra = SizeAlgebra()


def outcome(
    mode: FakeTensorMode,
    target: object,
    args: Sequence[object],
    kwargs: dict[str, object],
    tensors: list[TensorValue],
    values: Mapping[Node, object],
) -> Propagation | None:
    """The outcome of a call; `mode` holds the trace's algebra and metas, the other arguments are those of `propagate`."""
    function = CALLS.get(target)
    if function is None or not function.takes(len(args), kwargs) or _is_altered():
        return None
    call = _Call(tensors, values)
    try:
        given = [call.argument(a) for a in args]
        named = {name: call.argument(a) for name, a in kwargs.items()}
        result = function.rule(mode.size_algebra, *given, **named)
    except NoRule:
        return None
    if type(result) is tuple:
        result = result[0]  # the others are what the ATen operator keeps for its gradient
    with_grad = any(t.meta.requires_grad for t in tensors)
    if type(result) is Written:
        return None if with_grad else call.written(result.tensor)
    index = call.index(result)
    if index is not None:
        return Propagation(SameResult(index))
    base, root = None, result.base
    while root is not None and base is None:
        base, root = call.index(root), root.base
    requires_grad = with_grad and (result.dtype.is_floating_point or result.dtype.is_complex)
    if with_grad and not torch.is_grad_enabled():
        if base is not None:
            return None  # there, views of leaves require gradients all the same
        requires_grad = False
    if mode.symbolic_metas is None:
        key = (result.shape, result.strides, result.offset, result.dtype, result.device)
        return Propagation(TensorResult(intern(*key, requires_grad, not requires_grad), base))
    meta = mode.symbolic_metas.of_meta_tensor(result, requires_grad, not requires_grad)
    return Propagation(TensorResult(meta, base))


def _is_altered() -> bool:
    """Whether the result of a call depends on more than its arguments."""
    return (
        torch.is_inference_mode_enabled()
        or _C._is_any_autocast_enabled()
        or _C._len_torch_function_stack() > 0
        or _C._functorch.peek_interpreter_stack() is not None
    )


class _Call:
    """The arguments of one call."""

    def __init__(self, tensors: list[TensorValue], values: Mapping[Node, object]) -> None:
        self.tensors = tensors
        self.values = values
        self.meta_tensors: list[MetaTensor | None] = [None] * len(tensors)

    def argument(self, arg: Any) -> Any:
        """An argument with meta tensors for tensors. Raises `NoRule` for arguments that no rule knows."""
        kind = type(arg)
        if kind is Node:
            value = self.values[arg]
            if type(value) is TensorValue:
                return self._meta_tensor(value)
            if type(value) is SymValue and type(value.sym) is torch.SymInt:
                return value.sym
            raise NoRule
        if kind is tuple or kind is list:
            return kind([self.argument(item) for item in arg])
        if kind is slice:
            return slice(*[self.argument(item) for item in (arg.start, arg.stop, arg.step)])
        if kind not in _CONSTANTS:
            raise NoRule
        return arg

    def _meta_tensor(self, value: TensorValue) -> MetaTensor:
        i = self.tensors.index(value)
        made, meta = self.meta_tensors[i], value.meta
        if made is None:
            if meta.device.type != "cpu" or (value.fake is not None and value.fake.constant is not None):
                raise NoRule
            made = MetaTensor(meta.shape, meta.stride, meta.offset, meta.dtype, meta.device)
            if meta.live:
                made.origin = meta.now()
            self.meta_tensors[i] = made
        return made

    def index(self, result: object) -> int | None:
        """The position of the tensor argument that the result is."""
        return next((i for i, known in enumerate(self.meta_tensors) if known is result), None)

    def written(self, result: object) -> Propagation | None:
        """The outcome of a call that changes an argument; None if other arguments have the same memory."""
        index = self.index(result)
        if index is None:
            return None
        family = self.tensors[index].family or self.tensors[index : index + 1]
        if sum([t in family for t in self.tensors]) > 1:
            return None
        return Propagation(SameResult(index), (), ((index, 1),))


_CONSTANTS = frozenset(
    {int, float, bool, str, type(None), type(Ellipsis), torch.Size, torch.dtype, torch.memory_format, torch.device}
)
