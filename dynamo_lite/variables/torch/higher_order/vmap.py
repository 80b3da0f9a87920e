"""`torch.vmap` where a library has replaced functions of torch by its own: its containers of tensors are then leaves, which
add and remove the batch dimension themselves.

Input: a call of a vmapped function. Output: the tensors that get a batch dimension, with the dimensions, and the body; after the node, the
result as the library makes it.
Invariant: the library's functions are followed; what they ask of torch's interpreter is answered here. They are followed twice where they
remove dimensions: once to find the tensors that leave the body, once to make the result from the results of the node.
Mirrors `torch/_functorch/vmap.py`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.bodies import BREAK, Body
from dynamo_lite.graph.core.arguments import MODELS
from dynamo_lite.graph.core.meta import meta_of_fake
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable, boolean
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.torch.body import CapturedBody, follow
from dynamo_lite.variables.torch.functions import FOLLOWED
from dynamo_lite.variables.torch.tensor import TensorVariable, dimension

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_vmap = attrgetter("_functorch.vmap")(torch)
_predispatch = attrgetter("_functorch.predispatch")(torch)
_C = torch._C._functorch
_REPLACEABLE = ("_process_batched_inputs", "_create_batched_inputs", "_unwrap_batched")

FOLLOWED.update(
    getattr(_vmap, name)
    for name in (*_REPLACEABLE, "_get_name", "_maybe_remove_batch_dim", "_validate_and_get_batch_size", "_as_tuple")
)


def is_replaced() -> bool:
    """Whether a library has replaced functions of torch's module."""
    return any(getattr(_vmap, name).__module__ != _vmap.__name__ for name in _REPLACEABLE)


class Level:
    """One vmap: the tensors that get a batch dimension, the tensors that lose it, and the results of the node, once there is one."""

    def __init__(self, body: Body, batch_size: VariableTracker) -> None:
        self.body = body
        self.batch_size = batch_size
        self.added: list[tuple[TensorValue, int]] = []
        self.removed: list[tuple[TensorVariable, int]] = []
        self.results: list[VariableTracker] | None = None


_levels: list[Level] = []


class Vmapped:
    """A vmapped call that the library's functions make."""

    def __init__(
        self, tx: Frame, func: Any, in_dims: object, out_dims: object, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        self.tx = tx
        self.func = func
        self.out_dims = tx.tr.wrap_new(out_dims)
        wrapped = tx.tr.wrap_new(in_dims)
        batch_size, *self.batched = tx.tr.unpack(tx, self._call(0, [wrapped, TupleVariable(args), func]))
        self.batch_size = batch_size
        self.level = Level(tx.tr.graph.open_body(), batch_size)
        self.level.body.transform = "vmap"
        self.result: Any = None
        self.captured: CapturedBody = follow(
            tx, lambda: self._in_body(kwargs), [func, *args, *kwargs.values()], self.level.body
        )

    def _call(self, which: int, args: list[Any]) -> VariableTracker:
        function = getattr(_vmap, _REPLACEABLE[which])
        return self.tx.call(self.tx.tr.build_constant_object(function), args)

    def _in_body(self, kwargs: dict[str, Any]) -> VariableTracker:
        dims, flat, spec = self.batched
        number = ConstantVariable(len(_levels) + 1)
        _levels.append(self.level)
        try:
            args = self.tx.tr.unpack(self.tx, self._call(1, [dims, flat, number, spec]))
            self.result = self.tx.call(self.func, args, kwargs)
            self._unwrapped(number)
        finally:
            _levels.pop()
        return TupleVariable([tensor for tensor, _ in self.level.removed])

    def _unwrapped(self, number: VariableTracker) -> VariableTracker:
        return self._call(2, [self.result, self.out_dims, number, self.batch_size, self.func])

    def finish(self, results: list[VariableTracker]) -> VariableTracker:
        """The result of the call, made of the results of the node."""
        self.level.results = list(results)
        _levels.append(self.level)
        try:
            return self._unwrapped(ConstantVariable(len(_levels)))
        finally:
            _levels.pop()


def _level(number: VariableTracker) -> Level:
    if not _levels or number.as_python_constant() != len(_levels):
        unsupported(BREAK, "the batch dimension of another vmap")
    return _levels[-1]


@builtin(_C._add_batch_dim, _predispatch._add_batch_dim)
def add_batch_dim(tx: Frame, tensor: Any, in_dim: Any, level: Any) -> VariableTracker:
    """The tensor without the dimension: one example."""
    current = _level(level)
    dim = in_dim.as_python_constant()
    propagator = tx.tr.graph.propagator
    fake = propagator.fake_of(tensor.proxy).detach()
    shape, stride = list(fake.shape), list(fake.stride())
    del shape[dim], stride[dim]
    with propagator.mode, torch.no_grad():
        example = torch.empty_strided(shape, stride, dtype=fake.dtype, device=fake.device)
    example.requires_grad_(tensor.proxy.meta.requires_grad)
    current.added.append((tensor.proxy, dim))
    made = current.body.argument(meta_of_fake(example), example)
    return MODELS.tensor(made)


@builtin(_C._remove_batch_dim, _predispatch._remove_batch_dim)
def remove_batch_dim(tx: Frame, tensor: Any, level: Any, batch_size: Any, out_dim: Any) -> VariableTracker:
    """The tensors of all examples; as long as there is no node for them something that is like it."""
    current = _level(level)
    if current.results is not None:
        return current.results.pop(0)
    dim = out_dim.as_python_constant()
    current.removed.append((tensor, dim))
    sizes = [dimension(tensor, i) for i in range(tensor.proxy.meta.ndim)]
    sizes.insert(dim % (len(sizes) + 1), current.batch_size)
    unsqueezed = tx.call(tx.tr.build_constant_object(torch.unsqueeze), [tensor, out_dim])
    return tx.call(tx.tr.build_constant_object(torch.Tensor.expand), [unsqueezed, ListVariable(sizes)])


@builtin(_C.is_batchedtensor)
def is_batchedtensor(tx: Frame, tensor: Any) -> VariableTracker:
    """Whether a tensor is computed from one that has been given a batch dimension."""
    return boolean(isinstance(tensor, TensorVariable) and any(_leads_to(level, tensor.proxy) for level in _levels))


def _leads_to(level: Level, value: TensorValue) -> bool:
    body = level.body
    node = body.lifted.get(value)
    if node is None:
        node = value.origin[1] if value.node is None and value.origin and value.origin[0] == "item" else value.node
    pending, seen = [node] if node is not None and node.graph is body.graph else [], set()
    while pending:
        node = pending.pop()
        if node in body.arguments:
            return True
        if node not in seen:
            seen.add(node)
            pending += node.all_input_nodes
    return False
