"""State that AOTAutograd does not see, so that it would compute something else than the graph: it traces without the cache of autocast,
runs what it has made outside of inference modes, puts nodes of its own into the history that anomaly mode watches, takes an input that
is written to, or that has a derivative, for a tensor at the beginning of a storage of its own, and has no
result that tells which side of an inner branch has run.

Input: a builder with its finished graph. Output: a mark on the module for graphs that must run as they were captured; an inference mode
around the call of one whose operators are all in such a mode.
Invariant: a graph without such a state is not run again to find out.
Mirrors `aten/src/ATen/autocast_mode.cpp` (`cached_cast`), `c10/core/InferenceMode.h` and `torch/csrc/autograd/python_anomaly_mode.cpp`.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from dynamo_lite.backends.branch import branch
from dynamo_lite.exc import Unsupported
from dynamo_lite.graph.core.autograd import INSIDE, SLUG, UNEVEN, Rerun
from dynamo_lite.graph.core.effect import Compiled, GraphEffect, Wrapper
from dynamo_lite.graph.core.operator_names import operator_name
from dynamo_lite.graph.core.state import SETTINGS, autocast_depth, leave_autocast
from dynamo_lite.graph.core.storages import is_of_an_input, origin, origins
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.graph.core.writes import arguments, keys_of
from dynamo_lite.record import AS_CAPTURED, IN_INFERENCE

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder


@dataclass(eq=False)
class UnseenState(GraphEffect):
    """`in_inference`: the graph is called within an inference mode. `unseen`: why compilers must not get it."""

    takes_boxed = True
    kept = "in_inference"

    in_inference: bool = False
    unseen: str | None = None

    def settle(self, results: list[Node]) -> None:
        builder = self.builder
        if builder.state.began_in_inference:
            if any(map(_is_normal, results)):
                self.unseen = "a tensor leaves it that is none of the inference mode around it"
        elif builder.state.has_inference and any(map(_is_inference, results)):
            self.in_inference = _is_all_in_inference(builder) and not any(map(_is_normal, results))
            if not self.in_inference:
                self.unseen = "some of its operators are in an inference mode, of which a tensor leaves the graph"
        if torch.is_anomaly_enabled() and builder.records_gradients:
            self.unseen = "anomaly mode names the operators of its history"
            builder.tr.guards.global_state(torch.is_anomaly_enabled, "anomaly mode is on")
        if _may_keep_old_casts(builder) and _keeps_old_casts(builder):
            self.unseen = "autocast goes on with its copy of a leaf that has changed"
        if _asks_for_storage_of_inputs(builder):
            self.unseen = "`as_strided` counts from the beginning of an input's storage"
        if any(node.meta.get(UNEVEN) == INSIDE for node in builder.graph.find_nodes(op="call_function", target=branch)):
            self.unseen = "a branch within a branch decides which tensors get gradients"

    def annotate(self, module: GraphModule) -> None:
        if self.in_inference:
            module.meta[IN_INFERENCE] = True
        if self.unseen is not None:
            module.meta[AS_CAPTURED] = self.unseen

    def call_wrapper(self) -> Wrapper | None:
        return _within_inference if self.in_inference else None


# -- inference mode


def _within_inference(run: Compiled) -> Compiled:
    """`run` makes inference tensors, whether it enters the mode itself or not."""

    def within(*args: Any) -> Any:
        mode = _enter_inference_mode(True)
        try:
            return run(*args)
        finally:
            _exit_inference_mode(mode)

    return within


def _is_inference(node: Node) -> bool:
    value = getattr(node.meta, "subject", None)
    return isinstance(value, TensorValue) and (value.is_inference or any(v.is_inference for v in value.family or ()))


def _is_normal(node: Node) -> bool:
    """Whether a tensor that the graph makes is none of an inference mode: a view of an input that requires gradients, what a
    transform returns, and views of that. (A view of another input is made again from the input.)"""
    value = getattr(node.meta, "subject", None)
    if not isinstance(value, TensorValue) or value.is_input:
        return False
    return value.meta.requires_grad or any(not (v.is_inference or v.is_input) for v in value.family or (value,))


def _is_all_in_inference(builder: GraphBuilder) -> bool:
    """Whether all operators run in an inference mode which the graph has entered."""
    entered: list[bool] = []
    for node in builder.graph.nodes:
        if node.target is _enter_inference_mode:
            entered.append(bool(node.args[0]))
        elif node.target is _exit_inference_mode:
            if not entered:  # of the caller's
                return False
            entered.pop()
        elif node.op in ("call_function", "call_method") and node.target not in _NO_OPERATORS:
            if not (entered and entered[-1]):
                return False
    return True


_NO_OPERATORS = frozenset({*SETTINGS, operator.getitem, torch.autocast_increment_nesting, leave_autocast})


# -- places in storages


def _asks_for_storage_of_inputs(builder: GraphBuilder) -> bool:
    """Whether a graph has `as_strided` of an input (or of a view of one) that is written to, or that has a derivative: the operator and its
    derivative count from the beginning of the storage. What a body is called with is not looked at."""
    written = {origin(value) for value in builder.operators.changed}
    if any(_is_strided(node) and _stands_for_another(node, written) for node in builder.graph.nodes):
        return True
    graphs = [m for body in builder.bodies.values() for m in body.modules() if isinstance(m, GraphModule)]
    return any(_is_strided(node) for graph in graphs for node in graph.graph.nodes)


def _is_strided(node: Node) -> bool:
    name = operator_name(node.target) or getattr(node.target, "__name__", "")
    return node.op in ("call_function", "call_method") and name.startswith("as_strided")


def _stands_for_another(node: Node, written: set[TensorValue]) -> bool:
    """Whether AOTAutograd gives another tensor than an input to an operator."""
    given = [getattr(one.meta, "subject", None) for one in node.all_input_nodes]
    values = [(value, origin(value)) for value in given if isinstance(value, TensorValue)]
    return any(is_of_an_input(first) and (first in written or value.meta.requires_grad) for value, first in values)


# -- the cache of autocast


def _is_cached(value: Any) -> bool:
    """Whether autocast keeps its copy of a tensor."""
    meta = value.meta
    return bool(meta.requires_grad and meta.is_leaf and meta.dtype is torch.float32)


def _may_keep_old_casts(builder: GraphBuilder) -> bool:
    """Whether the graph writes to a leaf that several of its operators use under autocast."""
    sets_it = any(key[0] is torch.set_autocast_enabled for key in builder.state.initial)
    if not (sets_it or torch._C._is_any_autocast_enabled()):
        return False
    written = {leaf for value in builder.operators.changed for leaf in origins(value) if _is_cached(leaf)}
    uses = collections.Counter(_used_under_autocast(builder) if written else ())
    return any(uses[leaf] > 1 for leaf in written)


def _used_under_autocast(builder: GraphBuilder) -> Iterator[Any]:
    initial = builder.state.initial
    is_on = {d: initial.get((torch.set_autocast_enabled, d), torch.is_autocast_enabled(d)) for d in ("cpu", "cuda")}
    for node in builder.graph.nodes:
        if node.target is torch.set_autocast_enabled:
            is_on[node.args[0]] = node.args[1]
        elif any(is_on.values()):
            yield from {getattr(given.meta, "subject", None) for given in node.all_input_nodes}


def _keeps_old_casts(builder: GraphBuilder) -> bool:
    """Whether autocast would cast a leaf again, if it kept no copy, that the graph has written to since it did so first."""
    casts = _Casts(builder)
    changes: dict[Any, Any] = {
        torch.autocast_increment_nesting: functools.partial(casts.nest, 1),
        leave_autocast: functools.partial(casts.nest, -1),
        torch.clear_autocast_cache: casts.first.clear,
    }
    instead = {node: changes[node.target] for node in builder.graph.nodes if node.target in changes}
    for node in builder.graph.find_nodes(op="call_function", target=torch.set_autocast_cache_enabled):
        instead[node] = functools.partial(setattr, casts, "are_kept", node.args[0])
    try:
        with Rerun(builder, instead).at_the_end(_within(builder.propagator.dispatcher(), casts), SLUG, "autocast"):
            return casts.is_old
    except Unsupported:  # nobody knows
        return True


@contextlib.contextmanager
def _within(*contexts: Any) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


class _Casts(TorchDispatchMode):
    """Sees casts of leaves. `first`: id of a leaf → the leaf, and how often its memory had been written to when it was cast first."""

    supports_higher_order_operators = True

    def __init__(self, builder: GraphBuilder) -> None:
        super().__init__()
        key = (torch.set_autocast_cache_enabled,)
        self.are_kept = builder.state.initial.get(key, torch.is_autocast_cache_enabled())
        self.depth = autocast_depth()
        self.written: collections.Counter[int] = collections.Counter()
        self.first: dict[int, tuple[torch.Tensor, int]] = {}
        self.is_old = False

    def nest(self, change: int) -> None:
        """A region begins or ends; the outermost drops the copies."""
        self.depth += change
        if self.depth == 0:
            self.first.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and self.are_kept and _is_leaf(args[0]):
            leaf = args[0]
            n = sum(self.written[key] for key in keys_of([leaf]))
            self.is_old |= self.first.setdefault(id(leaf), (leaf, n))[1] != n
        for _, value, is_changed in arguments(func, args, kwargs) if isinstance(func, torch._ops.OpOverload) else ():
            self.written.update(keys_of(tree_iter(value)) if is_changed else ())
        return func(*args, **kwargs)


def _is_leaf(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and tensor.is_leaf and tensor.dtype is torch.float32
