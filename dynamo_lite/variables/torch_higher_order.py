"""Higher-order operators: control flow, checkpointed functions, regions.

Input: calls of `torch.cond`, loops, scans, `checkpoint`. Output: one graph node each, with the functions as sub-graphs.
Invariant: that of `torch_body`.
Mirrors `torch/_higher_order_ops`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint

from ..exc import unsupported
from ..graph.bodies import BREAK, shares_memory
from ..graph.checkpoints import CONTEXT_FN, PRESERVES_RNG
from .base import VariableTracker
from .constant import is_constant, is_none
from .dispatch import builtin
from .functools import PartialVariable
from .list import ListVariable
from .symnode import SymNodeVariable
from .tensor import TensorVariable
from .torch_body import (
    BodyVariable,
    Captured,
    body_with,
    call_function,
    capture,
    detached,
    fakes_of,
    leaves_of,
    models,
    needs_grad,
    returning,
    structure,
    union,
)
from .tuple import TupleVariable

# -- control flow


def _fake_results(captured: Captured, module: GraphModule, lifted: list[Any]) -> list[Any]:
    results = captured.body.run(module, lifted)
    propagator = captured.tx.tr.graph.propagator
    inputs = [propagator.fake_of(v) for v in [*captured.body.argument_values, *lifted] if hasattr(v, "meta")]
    if shares_memory(results, inputs):
        unsupported(BREAK, "a result of the body is, or is a view of, one of its inputs or another result")
    return results


def _same_metadata(a: Any, b: Any) -> bool:
    return isinstance(a, torch.Tensor) and (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)


def _tensors(tx: Any, *lists: VariableTracker) -> list[list[Any]]:
    """The items of sequences that must be tensors."""
    result = []
    for vt in lists:
        items = tx.tr.unpack(tx, vt)
        if not all(isinstance(item, TensorVariable) for item in items):
            unsupported(BREAK, "an argument that is not a tensor")
        result.append(items)
    return result


def _expect_tensors_and_ints(vt: VariableTracker) -> None:
    if not all(isinstance(v, TensorVariable) or issubclass(v.python_type(), int) for v in leaves_of(vt)[0]):
        unsupported(BREAK, "cond takes and returns tensors and ints")


@models(cond_op)
def cond(tx: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Any = None) -> VariableTracker:
    """`torch.cond`. A condition that is known picks its branch."""
    if not (operands is None or isinstance(operands, TupleVariable | ListVariable)):
        unsupported(BREAK, "operands of cond that are no tuple")
    if not all(callable(fn.as_python_constant()) for fn in (true_fn, false_fn) if fn.is_python_constant()):
        unsupported(BREAK, "a branch of cond that cannot be called")
    args = [] if operands is None else tx.tr.unpack(tx, operands)
    if isinstance(pred, TensorVariable):
        if not pred.proxy.meta.live and pred.proxy.meta.numel() != 1:
            unsupported(BREAK, "cond on a tensor with several elements")
    else:
        known = pred.nb_bool(tx) if isinstance(pred, SymNodeVariable) else pred
        if not known.is_python_constant() or not issubclass(known.python_type(), bool | int | float):
            unsupported(BREAK, f"cond on a {pred.python_type().__name__}")
        return tx.call(true_fn if known.as_python_constant() else false_fn, args)
    _expect_tensors_and_ints(TupleVariable(args))
    branches = [capture(tx, fn, args) for fn in (true_fn, false_fn)]
    for branch in branches:
        _expect_tensors_and_ints(branch.result)
    if structure(tx, branches[0].result) != structure(tx, branches[1].result):
        unsupported(BREAK, "the branches of cond return different structures")
    lifted = union(branches)
    modules = [branch.module(lifted) for branch in branches]
    first, second = [_fake_results(b, m, lifted) for b, m in zip(branches, modules, strict=True)]
    if not all(map(_same_metadata, first, second)):
        unsupported(BREAK, "the branches of cond return tensors with different metadata")
    graph = tx.tr.graph
    nodes = [graph.body_node(m) for m in modules]
    wants_grad = needs_grad(lifted)
    outs = graph.call_with_results(
        tx,
        cond_op,
        [graph.node(pred.proxy), *nodes, tuple([graph.node(v) for v in lifted])],
        {},
        detached(tx, first, wants_grad),
    )
    return branches[0].rebuild(outs)


def _slices(tx: Any, items: list[Any]) -> list[Any]:
    """Fakes of the first slices along dimension 0."""
    with tx.tr.graph.propagator.mode, torch.no_grad():
        slices = [tx.tr.graph.propagator.fake_of(item.proxy).detach()[0].clone() for item in items]
    return [s.requires_grad_(item.proxy.meta.requires_grad) for s, item in zip(slices, items, strict=True)]


def _loop_node(
    tx: Any, op: Any, captured: list[Captured], before: list[list[Any]], make_fakes: Callable[[list[Any]], list[Any]]
) -> list[VariableTracker]:
    """The node `op(*bodies, *lists of tensors, lifted)`; `make_fakes` gives its results from those of the last body."""
    graph = tx.tr.graph
    lifted = union(captured)
    modules = [c.module(lifted) for c in captured]
    results = [_fake_results(c, m, lifted) for c, m in zip(captured, modules, strict=True)][-1]
    fakes = make_fakes(results)
    values = [item.proxy for items in before for item in items]
    args = [graph.body_node(m) for m in modules]
    args.extend(tuple([graph.node(item.proxy) for item in items]) for items in before)
    args.append(tuple([graph.node(v) for v in lifted]))
    return graph.call_with_results(tx, op, args, {}, detached(tx, fakes, needs_grad([*values, *lifted])))


def _expect_like(results: list[Any], expected: list[Any], what: str) -> None:
    if len(results) != len(expected) or not all(map(_same_metadata, results, expected)):
        unsupported(BREAK, f"the body of {what} returns something else than it takes")


@models(while_loop_op)
def while_loop(tx: Any, cond_fn: Any, body_fn: Any, carried: Any, additional: Any) -> VariableTracker:
    (items,) = _tensors(tx, carried)
    if tx.tr.unpack(tx, additional):
        unsupported(BREAK, "while_loop with additional inputs")
    if torch.is_grad_enabled() and needs_grad([i.proxy for i in items]):
        unsupported(BREAK, "while_loop with gradients")
    captured = []
    for fn in (cond_fn, body_fn):
        fakes = fakes_of(tx, items)
        body, args = body_with(tx, fakes)
        captured.append(capture(tx, fn, args, body=body))
    test, step = captured
    known = test.result.proxy.meta if isinstance(test.result, TensorVariable) else None
    if known is None or known.dtype is not torch.bool or known.ndim:
        unsupported(BREAK, "the condition of while_loop is no boolean tensor without dimensions")

    def results(outs: list[Any]) -> list[Any]:
        _expect_like(outs, fakes, "while_loop")
        return outs

    graph = tx.tr.graph
    lifted = union(captured)
    if torch.is_grad_enabled() and needs_grad(lifted):
        unsupported(BREAK, "while_loop with gradients")
    with test.body:
        test_node = graph.node(test.result.proxy)
    test_module = returning(test.body.finish([test_node], lifted))
    step_module = step.module(lifted)
    outs = results(_fake_results(step, step_module, lifted))
    args_ = [graph.body_node(test_module), graph.body_node(step_module), tuple([graph.node(i.proxy) for i in items])]
    args_.append(tuple([graph.node(v) for v in lifted]))
    return step.rebuild(graph.call_with_results(tx, while_loop_op, args_, {}, detached(tx, outs, False)))


@models(associative_scan_op)
def associative_scan(tx: Any, combine_fn: Any, xs: Any, additional_inputs: Any) -> VariableTracker:
    (items,) = _tensors(tx, xs)
    slices = [*_slices(tx, items), *_slices(tx, items)]
    body, args = body_with(tx, slices)
    captured = capture(tx, combine_fn, args, body=body)

    def results(outs: list[Any]) -> list[Any]:
        _expect_like(outs, slices[: len(items)], "associative_scan")
        return fakes_of(tx, items)

    return captured.rebuild(_loop_node(tx, associative_scan_op, [captured], [items], results))


def _stacked(tx: Any, outs: list[Any], length: Any) -> list[Any]:
    with tx.tr.graph.propagator.mode, torch.no_grad():
        return [out.detach().expand(length, *out.shape).clone(memory_format=torch.contiguous_format) for out in outs]


@models(scan_op)
def scan(tx: Any, combine_fn: Any, init: Any, xs: Any, additional_inputs: Any) -> VariableTracker:
    carry, items = _tensors(tx, init, xs)
    fakes = fakes_of(tx, carry)
    body, args = body_with(tx, [*fakes, *_slices(tx, items)])
    captured = capture(tx, combine_fn, args, body=body)

    def results(outs: list[Any]) -> list[Any]:
        _expect_like(outs[: len(fakes)], fakes, "scan")
        return [*outs[: len(fakes)], *_stacked(tx, outs[len(fakes) :], items[0].proxy.meta.shape[0])]

    return captured.rebuild(_loop_node(tx, scan_op, [captured], [carry, items], results))


@models(map_impl)
def map_over(tx: Any, f: Any, xs: Any, pos_args: Any) -> VariableTracker:
    items, rest = _tensors(tx, xs, pos_args)
    body, args = body_with(tx, _slices(tx, items))
    captured = capture(tx, f, [*args, *rest], body=body)
    return captured.rebuild(
        _loop_node(tx, map_impl, [captured], [items], lambda outs: _stacked(tx, outs, items[0].proxy.meta.shape[0]))
    )


# -- checkpoint

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


@models(checkpoint)
def checkpoint_call(tx: Any, function: Any, *args: Any, **kwargs: Any) -> VariableTracker:
    """`torch.utils.checkpoint.checkpoint`: a body that the backward pass may compute again. Without gradients a plain call."""
    options = {name: kwargs.pop(name) for name in list(kwargs) if name in _CHECKPOINT_OPTIONS}
    context_fn = kwargs.pop("context_fn", None)
    if not is_constant(*options.values()):
        unsupported(BREAK, "checkpoint with options that are not constant")
    host = {name: option.as_python_constant() for name, option in options.items()}
    if host.get("determinism_check", "default") not in ("default", "none") or (host.get("use_reentrant") and kwargs):
        unsupported(BREAK, "checkpoint with options that it refuses")
    if not torch.is_grad_enabled():
        return tx.call(function, list(args), kwargs)
    captured = capture(tx, function, list(args), kwargs)
    lifted = captured.lifted
    if host.get("use_reentrant"):
        leaves = [a.proxy for a in args if isinstance(a, TensorVariable)]
        if not needs_grad(leaves):
            unsupported(BREAK, "reentrant checkpoint whose arguments need no gradient")
    module = captured.module(lifted)
    captured.body.run(module, lifted)
    if not captured.leaves:
        return captured.result
    module.meta[PRESERVES_RNG] = bool(host.get("preserve_rng_state", True))
    if not is_none(context_fn):
        module.meta[CONTEXT_FN] = _real_callable(context_fn)
    tensors = call_function(tx, tag_activation_checkpoint, [BodyVariable(module)], lifted)
    return captured.rebuild(tensors)


# -- regions


@builtin(invoke_subgraph_placeholder)
def nested_compile_region(tx: Any, func: Any, *args: Any, **kwargs: Any) -> VariableTracker:
    """A region that torch.compile compiles once: part of the graph around it."""
    return tx.call(func, list(args), kwargs)


@builtin(torch.fx.traceback.annotate)
def annotate(tx: Any, *args: Any) -> VariableTracker:
    """A mark for tools that read the graphs of torch.compile."""
    return tx.call(tx.tr.build_constant_object(contextlib.nullcontext), [])
