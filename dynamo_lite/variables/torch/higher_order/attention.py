"""Attention: `flex_attention`, whose scores and mask come from Python functions, and `SDPAParams`.

Input: calls of the operator to which `torch.nn.attention.flex_attention` leads; the arguments of a scaled dot product attention for which
the program asks whether a kernel takes them. Output: one node with the two functions as bodies; answers that are constants.
Invariant: values from outside that the functions use are further arguments of the node, in the order of the functions' inputs. An answer
about kernels is that of torch for the same metadata and settings.
Mirrors `torch/_higher_order_ops/flex_attention.py`, `torch/csrc/Module.cpp` (`_SDPAParams`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention as flex_attention_op

from dynamo_lite.exc import gist, unsupported
from dynamo_lite.graph.bodies import BREAK
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.graph.core.state import SDP_READS
from dynamo_lite.guards import ir
from dynamo_lite.signals import let_through
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import FALSE, ConstantVariable, is_constant, is_none
from dynamo_lite.variables.protocol.dispatch import builtin, constructor
from dynamo_lite.variables.protocol.native import NativeVariable, emit_call
from dynamo_lite.variables.protocol.wrap import builds
from dynamo_lite.variables.torch.body import (
    REGION,
    CapturedBody,
    body_with,
    capture,
    detached,
    fakes_of,
    needs_grad,
    operator_model,
    returning,
)
from dynamo_lite.variables.torch.overrides import activate
from dynamo_lite.variables.torch.symnode import SymNodeVariable
from dynamo_lite.variables.torch.tensor import TensorVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


@operator_model("flex_attention", REGION)
def flex_attention(
    tx: Frame,
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
    return TupleVariable(graph.operators.call_with_results(tx, flex_attention_op, args, {}, detached(tx, fakes, grads)))


def _captured(tx: Frame, function: VariableTracker, query: TensorVariable, with_score: bool) -> CapturedBody:
    """One of the functions, of a score and the indices of batch, head, query and key, or of the indices alone."""
    meta = query.proxy.meta
    with tx.tr.graph.propagator.mode, without_compiler:
        fakes = [torch.empty((), dtype=torch.int32, device=meta.device) for _ in range(4)]
        if with_score:
            score = torch.empty((), dtype=meta.dtype, device=meta.device)
            fakes.insert(0, score.requires_grad_(tx.tr.state.records(meta.requires_grad)))
    body, args = body_with(tx, fakes, "vmap")  # the operator calls it for all indices at once
    with _indexing_by_tensors(tx):
        captured = capture(tx, function, args, body=body)
    if not isinstance(captured.result, TensorVariable):
        unsupported(BREAK, "a function of flex_attention that returns no tensor")
    return captured


@contextlib.contextmanager
def _indexing_by_tensors(tx: Frame) -> Iterator[None]:
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
    tx: Frame,
    tensors: list[Any],
    modules: list[Any],
    mask_parts: list[Any],
    scale: Any,
    options: Any,
    lifted: list[Any],
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
        return unsupported(BREAK, f"flex_attention on its own: {gist(error)}", error)
    return list(results)


# -- SDPAParams

SDPAParams = torch._C._SDPAParams
_TENSORS = ("query", "key", "value")
_NAMES = (*_TENSORS, "attn_mask", "dropout", "is_causal", "enable_gqa")


class SDPAParamsVariable(NativeVariable):
    """The arguments of a call of `scaled_dot_product_attention`. Nothing can change the object."""

    cls = SDPAParams

    def __init__(self, fields: dict[str, VariableTracker], source: GuardNode | None = None) -> None:
        self.fields = fields
        self.source = source

    def children(self) -> Any:
        return list(self.fields.values())

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return self.fields[name] if name in self.fields else super().tp_getattro(tx, name)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        unsupported("mutation-of-unknown-object", f"SDPAParams.{name}")

    def emit_new(self, cg: Codegen) -> None:
        emit_call(cg, SDPAParams, *self.children())


@builds(SDPAParams)
def build_sdpa_params(tr: Trace, value: object, source: GuardNode | None) -> SDPAParamsVariable:
    tr.guard(source, ir.TYPE_IS, SDPAParams)
    fields = {name: tr.wrap(getattr(value, name), tr.source(source, ir.ATTR, name)) for name in _NAMES}
    return SDPAParamsVariable(fields, source)


@constructor(SDPAParams)
def new_sdpa_params(tx: Frame, cls: VariableTracker, /, *args: VariableTracker) -> VariableTracker:
    """C++ takes the arguments by value: the dropout as a double, both flags as bools."""
    tensors, options = [arg for arg in args[:4] if arg is not args[3] or not is_none(arg)], args[4:]
    if len(args) != len(_NAMES) or not all(isinstance(t, TensorVariable) for t in tensors) or not is_constant(*options):
        return unsupported("graph-argument-type", "SDPAParams of these arguments")
    try:
        numbers = SDPAParams(*[torch.empty(0)] * 3, None, *[a.as_python_constant() for a in options])
    except TypeError:
        return unsupported("graph-argument-type", "SDPAParams of these arguments")
    read = [ConstantVariable(getattr(numbers, name)) for name in _NAMES[4:]]
    return SDPAParamsVariable(dict(zip(_NAMES, (*args[:4], *read), strict=True)))


def _can_use(function: Any) -> None:
    """Model a function that says whether a kernel takes these arguments: the answer follows from metadata and torch's settings."""

    @builtin(function)
    def answer(tx: Frame, params: VariableTracker, debug: VariableTracker = FALSE) -> VariableTracker:
        if not isinstance(params, SDPAParamsVariable) or not is_constant(debug):
            return unsupported("graph-argument-type", function.__name__)
        if debug.as_python_constant():
            return unsupported("call-print", f"{function.__name__}(debug=True)")
        for read in (*SDP_READS, torch.are_deterministic_algorithms_enabled):
            tx.call(tx.tr.build_constant_object(read), [])
        tensors = [f for f in params.fields.values() if isinstance(f, TensorVariable)]
        fakes = iter(fakes_of(tx, tensors))
        values = [
            next(fakes) if isinstance(f, TensorVariable) else f.as_python_constant() for f in params.fields.values()
        ]
        try:
            with tx.tr.graph.propagator.mode:
                return ConstantVariable(function(SDPAParams(*values), False))
        except Exception as error:  # where there is no driver
            tx.raises_like(error)


for _function in (
    torch._C._can_use_flash_attention,
    torch._C._can_use_mem_efficient_attention,
    torch._C._can_use_cudnn_attention,
):
    _can_use(_function)
