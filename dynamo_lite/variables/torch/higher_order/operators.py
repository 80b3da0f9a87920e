"""Higher-order operators that are neither control flow nor checkpoints.

Input: calls of operators that call a function, or another operator, in a way of their own. Output: three kinds of captures. *Followed*:
the operator only calls the function, and so does the trace. *Regions*: compilers are to see which operators belong together, so there is
one node with the function as a sub-graph. *Nodes*: operators without functions among their arguments enter the graph as they are.
Invariant: an operator that is in none of the tables is a break, which says why.
Mirrors `torch/_higher_order_ops`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._higher_order_ops.base_hop import BaseHOP
from torch._higher_order_ops.flat_apply import impl as flat_apply_impl
from torch._higher_order_ops.foreach_map import _foreach_map, foreach_map
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder
from torch._ops import HigherOrderOperator
from torch.fx import Node

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.bodies import BREAK, shares_memory
from dynamo_lite.guards import ir
from dynamo_lite.polyfills import torch_higher_order_ops as polyfills
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ATOMIC_TYPES, TRUE
from dynamo_lite.variables.protocol.dispatch import HANDLERS, builtin
from dynamo_lite.variables.protocol.wrap import builds_subclasses
from dynamo_lite.variables.torch.autograd.autograd_function import function_apply
from dynamo_lite.variables.torch.body import (
    FOLLOWED,
    NODE,
    OPERATORS,
    REGION,
    capture,
    detached,
    models,
    needs_grad,
    operator_model,
    whole,
)
from dynamo_lite.variables.torch.functions import HigherOrderFunctionVariable
from dynamo_lite.variables.torch.tensor import TensorVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

WITHOUT_MODEL = "higher-order-operator-without-model"

# -- operators that only call the function


def _call(tx: Frame, function: object, args: list[VariableTracker], kwargs: dict[str, Any] | None = None) -> Any:
    return tx.call(tx.tr.build_constant_object(function), args, kwargs or {})


@operator_model("wrap", FOLLOWED)
def call_wrapped(tx: Frame, func: VariableTracker, *args: Any, **kwargs: Any) -> VariableTracker:
    return tx.call(func, list(args), kwargs)


@operator_model("wrap_with_set_grad_enabled", FOLLOWED)
def call_with_grad_mode(tx: Frame, enable_grad: Any, wrapped_func: Any, *args: Any, **kwargs: Any) -> VariableTracker:
    functions = [tx.tr.build_constant_object(f) for f in (torch.is_grad_enabled, torch._C._set_grad_enabled)]
    return _call(tx, polyfills.call_with_setting, [*functions, enable_grad, wrapped_func, *args], kwargs)


@operator_model("wrap_with_autocast", FOLLOWED)
def call_with_autocast(
    tx: Frame,
    device_type: Any,
    dtype: Any,
    enabled: Any,
    cache_enabled: Any,
    wrapped_func: Any,
    *args: Any,
    **kwargs: Any,
) -> VariableTracker:
    context = _call(tx, torch.autocast, [device_type, dtype, enabled, cache_enabled])
    return _call(tx, polyfills.call_within, [context, wrapped_func, *args], kwargs)


@operator_model("dynamo_bypassing_wrapper", FOLLOWED, "the wrapper, which is followed as well, breaks the graph")
def bypassing_wrapper(
    tx: Frame, wrapper_fn_or_key: VariableTracker, inner_fn: VariableTracker, *args: Any, **kwargs: Any
) -> VariableTracker:
    """The wrapper is followed as well: where only the function is captured, it gets the tensors that the function uses from outside as
    further arguments."""
    return _call(tx, polyfills.dynamo_bypassing_wrapper, [wrapper_fn_or_key, inner_fn, *args], kwargs)


@operator_model("flat_apply", FOLLOWED)
def apply_to_leaves(
    tx: Frame, func: Any, in_spec: Any, *flat_args: Any, checked_output: Any = TRUE, **_unused: Any
) -> VariableTracker:
    return _call(tx, flat_apply_impl, [func, in_spec, TupleVariable(list(flat_args)), checked_output])


@operator_model("register_hook", FOLLOWED)
def register_hook(tx: Frame, tensor: Any, hook_body: Any, *freevars: Any) -> VariableTracker:
    return _call(tx, polyfills.register_hook, [tensor, hook_body, *freevars])


@operator_model("custom_function_call", FOLLOWED)
def call_custom_function(tx: Frame, autograd_function: object, *args: Any, **kwargs: Any) -> VariableTracker:
    return function_apply(tx, autograd_function, *args, **kwargs)


def _without_gradients(tx: Frame, name: str, *values: Any) -> None:
    """Break for a call whose results raise in a backward pass, so that the operator itself raises there."""
    tensors = [v.proxy for v in values if isinstance(v, TensorVariable)]
    if tx.tr.state.records(needs_grad(tensors)):
        unsupported(WITHOUT_MODEL, f"{name} of tensors that require gradients, of which it has none")


@operator_model("trace_wrapped", FOLLOWED, "an argument requires gradients")
def call_trace_wrapped(tx: Frame, *args: Any, fn: VariableTracker, **kwargs: Any) -> VariableTracker:
    _without_gradients(tx, "trace_wrapped", *args)
    return tx.call(fn, list(args), kwargs)


@operator_model("run_const_graph", FOLLOWED, "an argument requires gradients")
def call_const_graph(tx: Frame, graph: Any, args: Any) -> VariableTracker:
    items = tx.tr.unpack(tx, args)
    _without_gradients(tx, "run_const_graph", *items)
    return tx.call(graph, items)


# -- regions

MakeArguments = Callable[[Node, list[Node]], tuple[tuple[Any, ...], dict[str, Any]]]


def _region(
    tx: Frame,
    op: object,
    fn: VariableTracker,
    args: list[VariableTracker],
    make: MakeArguments,
    takes_gradients: bool = True,
) -> VariableTracker:
    """Call a function as the body of one node `op`, whose arguments `make` puts together from the node of the body and those of the tensors
    that it uses. The operator returns new tensors, all of which have gradients or none; where the function does not, it is followed
    as part of the graph around it, as where there are gradients that compilers cannot take of the operator."""
    graph = tx.tr.graph
    captured = capture(tx, fn, args, only_calls=True)
    lifted = captured.lifted
    module = captured.module(lifted)
    results = captured.body.run(module, lifted)
    inputs = [graph.propagator.fake_of(value) for value in lifted if hasattr(value, "meta")]
    with_grad = tx.tr.state.records(needs_grad(lifted))
    is_like_operator = all(r.requires_grad == with_grad for r in results) and not shares_memory(results, inputs)
    if not captured.leaves or not is_like_operator or (with_grad and not takes_gradients):
        return tx.call(fn, args)
    node_args, kwargs = make(graph.body_node(module), [graph.node(value) for value in lifted])
    outs = graph.operators.call_with_results(tx, op, list(node_args), kwargs, detached(tx, results, with_grad))
    return captured.rebuild(outs)


def _host(vt: VariableTracker, what: str) -> Any:
    if not vt.is_python_constant():
        unsupported(BREAK, f"{what} that is not constant")
    return vt.as_python_constant()


@operator_model("strict_mode", REGION)
def call_strictly(tx: Frame, callable: Any, operands: Any) -> VariableTracker:
    op = torch.ops.higher_order.strict_mode
    return _region(tx, op, callable, tx.tr.unpack(tx, operands), lambda body, nodes: ((body, tuple(nodes)), {}))


@operator_model("hints_wrapper", REGION)
def call_with_hints(tx: Frame, body_fn: Any, args: Any, kwargs: Any, hints: Any) -> VariableTracker:
    if not isinstance(kwargs, DictVariable) or not isinstance(hints, DictVariable) or list(kwargs.pairs()):
        return unsupported(BREAK, "hints_wrapper with other arguments than it takes")
    known = {_host(key, "a hint"): _host(value, "a hint") for key, value in hints.pairs()}
    op = torch.ops.higher_order.hints_wrapper
    items = tx.tr.unpack(tx, args)
    return _region(tx, op, body_fn, items, lambda body, nodes: ((body, tuple(nodes), {}), {"hints": known}))


def base_hop(
    tx: Frame, op: BaseHOP, fn: VariableTracker, operands: list[VariableTracker], options: dict[str, VariableTracker]
) -> VariableTracker:
    """An operator that calls its function with the operands, under options for compilers."""
    known = {name: _option(value, name, tx) for name, value in options.items()}
    objects = {name: value for name, value in known.items() if isinstance(value, _Fields)}

    def make(body: Node, values: list[Node]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        made = {name: tx.tr.graph.add_option(value.cls, value.fields) for name, value in objects.items()}
        return (body, *values), {**known, **made}

    # AOTAutograd cannot keep such an object for the backward pass.
    return _region(tx, op, fn, operands, make, takes_gradients=not objects)


class _Fields(NamedTuple):
    """An instance of a dataclass of torch's, which a node makes."""

    cls: type
    fields: dict[str, Any]


def _option(vt: VariableTracker, name: str, tx: Frame) -> Any:
    if vt.is_python_constant() and type(vt.as_python_constant()) in ATOMIC_TYPES:
        return vt.as_python_constant()
    cls = vt.python_type()
    if cls is not _InvokeQuant:
        return unsupported(BREAK, f"option {name} that is a {cls.__qualname__}")
    return _Fields(cls, {f: _host(vt.tp_getattro(tx, f), name) for f in cls.__dataclass_fields__})


_InvokeQuant = torch._higher_order_ops.InvokeQuant


def _base_hop_handler(op: BaseHOP) -> Callable[..., VariableTracker]:
    def call(tx: Frame, subgraph: Any, *operands: Any, **kwargs: Any) -> VariableTracker:
        return base_hop(tx, op, subgraph, list(operands), kwargs)

    return call


for _name in ("foreach_map", "invoke_quant", "invoke_quant_packed"):
    operator_model(_name, REGION)(_base_hop_handler(torch._ops._higher_order_ops[_name]))


@models(foreach_map)
def call_foreach_map(tx: Frame, op: Any, *operands: Any, **kwargs: Any) -> VariableTracker:
    function = tx.tr.build_constant_object(polyfills.foreach_map)
    return base_hop(tx, _foreach_map, function, [op, *operands], kwargs)


@builtin(invoke_subgraph_placeholder)
def nested_compile_region(tx: Frame, func: VariableTracker, *args: Any, **kwargs: Any) -> VariableTracker:
    """A region that torch.compile compiles once: part of the graph around it."""
    return tx.call(func, list(args), kwargs)


@builtin(torch.fx.traceback.annotate)
def annotate(tx: Frame, *args: Any) -> VariableTracker:
    """A mark for tools that read the graphs of torch.compile."""
    return tx.call(tx.tr.build_constant_object(contextlib.nullcontext), [])


# -- operators that enter the graph as they are


def _as_node(name: str) -> None:
    def call(tx: Frame, *args: Any, **kwargs: Any) -> VariableTracker:
        graph = tx.tr.graph
        graph.propagator.allow_higher_order()
        op = getattr(torch.ops.higher_order, name)
        return graph.call(tx, "call_function", op, list(args), kwargs, memo=False)

    operator_model(name, NODE)(call)


for _name in (
    "_export_tracepoint",
    "auto_functionalized",
    "auto_functionalized_v2",
    "inline_asm_elementwise",
    "out_dtype",
    "print",
    "run_dtensor_rng_op",
    "run_with_rng_state",
    "with_effects",
):
    _as_node(_name)


# -- all of them

REFUSED = {
    "aoti_call_delegate": "it calls code that was compiled ahead of time for torch.export",
    "autograd_function_apply": "compilers make it of autograd.Function; call the function's apply",
    "call_torchbind": "objects of TorchScript classes are no values of a graph",
    "control_deps": "the kernel compiler makes it",
    "executorch_call_delegate": "it calls a module that was lowered by ExecuTorch",
    "flex_attention_backward": "compilers make it of the gradient of flex_attention",
    "graphsafe_run_with_rng_state": "a generator object is no value of a graph",
    "inductor_compiled_code": "it calls code that is compiled already",
    "invoke_leaf_function": "compilers make it of torch._dynamo.leaf_function",
    "invoke_subgraph": "compilers make it of nested_compile_region",
    "local_map_hop": "compilers make it of torch.distributed.tensor.experimental.local_map",
    "run_and_save_rng_state": "its result is the state of a generator, which capture would read too early",
    "triton_kernel_wrapper_functional": "compilers make it of calls of Triton kernels",
    "triton_kernel_wrapper_mutation": "compilers make it of calls of Triton kernels",
}
"""Operators that always break the graph, by name, and why."""


class HigherOrderOperatorVariable(HigherOrderFunctionVariable):
    """An operator that has a model."""

    def direct_call(self, tx: Frame, args: list[VariableTracker]) -> Any:
        """`wrap` is a call of its first argument: a graph break inside can be resumed."""
        return args[0].direct_call(tx, args[1:]) if args and self.value.name() == "wrap" else None


@builds_subclasses(HigherOrderOperator)
def build_higher_order(tr: Trace, value: HigherOrderOperator, source: GuardNode | None) -> VariableTracker:
    if not has_model(value):
        return unsupported(WITHOUT_MODEL, f"{value.name()}: {why_refused(value)}")
    tr.guard(source, ir.IS, value)
    return HigherOrderOperatorVariable(value, source)


def has_model(value: HigherOrderOperator) -> bool:
    """Whether calls of an operator are captured. From then on its handler is found under the operator itself."""
    if value in HANDLERS:
        return True
    name = value.name()
    if name in OPERATORS and torch._ops._higher_order_ops.get(name) is value:
        HANDLERS[value] = OPERATORS[name].handler
    elif isinstance(value, BaseHOP):
        HANDLERS[value] = whole(_base_hop_handler(value))
    return value in HANDLERS


def why_refused(value: HigherOrderOperator) -> str:
    """Why an operator without a model ends the graph."""
    return REFUSED.get(value.name(), "capture knows nothing of it")


def support(value: HigherOrderOperator) -> tuple[str, str]:
    """The treatment of calls of an operator, and the calls that break the graph nevertheless."""
    model = OPERATORS.get(value.name())
    if model is not None and has_model(value):
        return model.kind, model.unless
    return (REGION, "") if has_model(value) else (f"breaks because {why_refused(value)}", "")
