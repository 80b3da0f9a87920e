"""`flex_attention`: attention whose scores and mask come from Python functions.

Input: calls of the operator to which `torch.nn.attention.flex_attention` leads. Output: one node with the two functions as bodies.
Invariant: what the functions use from outside is passed beside them, in the order in which they take it.
Mirrors `torch/_higher_order_ops/flex_attention.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention as flex_attention_op

from ..exc import unsupported
from ..graph.bodies import BREAK
from ..graph.lean import without_compiler
from ..signals import let_through
from .base import VariableTracker
from .symnode import SymNodeVariable
from .tensor import TensorVariable
from .torch_body import REGION, Captured, body_with, capture, detached, needs_grad, operator_model, returning
from .torch_overrides import activate
from .tuple import TupleVariable


@operator_model("flex_attention", REGION)
def flex_attention(
    tx: Any,
    query: VariableTracker,
    key: VariableTracker,
    value: VariableTracker,
    score_mod: VariableTracker,
    block_mask: VariableTracker,
    scale: VariableTracker,
    kernel_options: VariableTracker,
    score_mod_other_buffers: VariableTracker | None = None,
    mask_mod_other_buffers: VariableTracker | None = None,
) -> VariableTracker:
    graph = tx.tr.graph
    tensors = [query, key, value]
    if not all(isinstance(t, TensorVariable) for t in tensors):
        return unsupported(BREAK, "flex_attention of something else than tensors")
    *mask_parts, mask_mod = tx.tr.unpack(tx, block_mask)
    score = _captured(tx, score_mod, query, with_score=True)
    mask = _captured(tx, mask_mod, query, with_score=False)
    lifted = [body.lifted for body in (score, mask)]
    modules = [returning(c.module(v)) for c, v in zip((score, mask), lifted, strict=True)]
    options = {k.as_python_constant(): v.as_python_constant() for k, v in kernel_options.pairs()}
    fakes = _fake_results(tx, tensors, modules, mask_parts, scale, options, lifted)
    grads = needs_grad([t.proxy for t in tensors] + lifted[0])
    bodies = [graph.body_node(module) for module in modules]
    args = [*(graph.node(t.proxy) for t in tensors), bodies[0]]
    args.append((*(_argument(graph, part) for part in mask_parts), bodies[1]))
    args.extend([_argument(graph, scale), options, *(tuple([graph.node(v) for v in values]) for values in lifted)])
    return TupleVariable(graph.call_with_results(tx, flex_attention_op, args, {}, detached(tx, fakes, grads)))


def _captured(tx: Any, function: VariableTracker, query: TensorVariable, with_score: bool) -> Captured:
    """One of the functions, of a score and the indices of batch, head, query and key, or of the indices alone."""
    meta = query.proxy.meta
    with tx.tr.graph.propagator.mode, without_compiler:
        fakes = [torch.empty((), dtype=torch.int32, device=meta.device) for _ in range(4)]
        if with_score:
            score = torch.empty((), dtype=meta.dtype, device=meta.device)
            fakes.insert(0, score.requires_grad_(meta.requires_grad and torch.is_grad_enabled()))
    body, args = body_with(tx, fakes)
    body.transform = "vmap"  # the operator calls it for all indices at once
    with _indexing_by_tensors(tx):
        captured = capture(tx, function, args, body=body)
    if not isinstance(captured.result, TensorVariable):
        unsupported(BREAK, "a function of flex_attention that returns no tensor")
    return captured


@contextlib.contextmanager
def _indexing_by_tensors(tx: Any) -> Iterator[None]:
    """In these functions `buffer[index]` with an index that is a tensor of one number reads no data."""
    cls = import_module(_MODE_MODULE).TransformGetItemToIndex
    modes = activate(tx.tr).stack.modes
    modes.append(tx.call(tx.tr.build_constant_object(cls), []))
    try:
        yield
    finally:
        modes.pop()


_MODE_MODULE = "torch." + "_dynamo._trace_wrapped_higher_order_op"  # loaded by the module of flex_attention


def _argument(graph: Any, vt: VariableTracker) -> Any:
    if isinstance(vt, TensorVariable | SymNodeVariable):
        return graph.node(vt.proxy)
    return vt.as_python_constant()


def _host(graph: Any, vt: VariableTracker) -> Any:
    if isinstance(vt, TensorVariable):
        return graph.propagator.fake_of(vt.proxy)
    return vt.proxy.sym if isinstance(vt, SymNodeVariable) else vt.as_python_constant()


def _fake_results(
    tx: Any, tensors: list[Any], modules: list[Any], mask_parts: list[Any], scale: Any, options: Any, lifted: list[Any]
) -> list[Any]:
    graph = tx.tr.graph
    propagator = graph.propagator
    propagator.allow_higher_order()
    buffers = [tuple([propagator.fake_of(v) if hasattr(v, "meta") else v.sym for v in values]) for values in lifted]
    try:
        with propagator.mode, without_compiler, propagator.dispatcher(), torch.no_grad():
            results = flex_attention_op(
                *[propagator.fake_of(t.proxy).detach() for t in tensors],
                modules[0],
                (*(_host(graph, part) for part in mask_parts), modules[1]),
                _host(graph, scale),
                options,
                *buffers,
            )
    except Exception as error:
        let_through(error)
        return unsupported(BREAK, f"flex_attention on its own: {error}", error)
    return list(results)
