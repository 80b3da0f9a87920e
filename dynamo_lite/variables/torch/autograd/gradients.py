"""`torch.autograd.grad` inside of the captured code, and the leaves at which gradients begin.

Input: calls with tensors. Output: one node with the gradients.
Invariant: outputs and inputs are values of one graph. Work of the autograd engine outside of the graph (hooks of tensors from outside,
the history of inputs) is not modelled here.
Mirrors `torch/autograd/__init__.py`.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core.autograd import SLUG, gradients, history, reached_leaves
from dynamo_lite.graph.core.functional import transforms_around, with_data
from dynamo_lite.graph.inputs.fake_inputs import SLUG as FAKE_INPUTS
from dynamo_lite.graph.passes.backward_split import Reached, cut_leaf
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.abstract import get_attr
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import FALSE, NONE, TRUE, is_constant, is_flag, is_none
from dynamo_lite.variables.protocol.dispatch import builtin, method
from dynamo_lite.variables.torch.body import whole
from dynamo_lite.variables.torch.subclasses.fake_tensor import FakeTensorVariable
from dynamo_lite.variables.torch.tensor import NewParameterVariable, TensorVariable, set_requires_grad, tensor_grad

from .backward_split import Stages, replaced_gradient
from .hooks import DICTS, leave_before, registered

if TYPE_CHECKING:
    from torch.fx import Node

    from dynamo_lite.interp.frame import Frame

# -- torch.autograd.grad


def _sequence(tx: Frame, vt: VariableTracker) -> list[Any]:
    """The tensors of an argument that is one or several."""
    if issubclass(vt.python_type(), Mapping):
        unsupported(SLUG, "grad of a mapping")
    items = [vt] if isinstance(vt, TensorVariable) else tx.tr.unpack(tx, vt)
    if not all(isinstance(item, TensorVariable) for item in items):
        unsupported(SLUG, "grad of something else than tensors")
    return items


@contextmanager
def _apart(tx: Frame, wanted: list[Any]) -> Iterator[None]:
    """A break here ends the graph before the wanted tensors are made: no gradient flows to one result of a graph from another."""
    try:
        yield
    except Unsupported as error:
        for tensor in wanted:
            if (
                tensor.source is None
                and tensor.proxy.meta.requires_grad
                and tensor.proxy not in tx.tr.graph.passes.leaves.made
            ):
                leave_before(tx.tr, tensor, error)
        raise


def _cotangents(tx: Frame, vt: VariableTracker | None) -> Any:
    """Nodes of the given gradients; None where there are none."""
    if is_none(vt):
        return None
    items = [vt] if isinstance(vt, TensorVariable) else tx.tr.unpack(tx, vt)
    if not all(isinstance(item, TensorVariable) or is_none(item) for item in items):
        unsupported(SLUG, "grad with gradients that are no tensors")
    return tuple([None if is_none(item) else tx.tr.graph.node(item.proxy) for item in items])


def _check_surroundings(tx: Frame) -> None:
    if tx.tr.graph.scope is not None:
        unsupported(SLUG, "gradients in the body of a higher-order operator")
    if tx.tr.state.has_inference:
        unsupported(SLUG, "gradients after an inference mode")
    tx.tr.effects.check_late_bodies()


def _check_hooks(tx: Frame, tensors: list[Any]) -> None:
    """Hooks of a tensor that existed before would run only outside."""
    for tensor in tensors:
        if tensor.source is None:
            continue
        if tensor.value._backward_hooks or any(h.tensor is tensor for h in registered(tx.tr)):
            unsupported(SLUG, "a tensor with hooks")
        tx.tr.guard(tx.tr.source(tensor.source, ir.ATTR, "_backward_hooks"), ir.TRUTH, False)


def _end(tx: Frame, tensor: TensorVariable) -> Node:
    """The node to which all gradients of a tensor come: data that were assigned to it pass theirs on to the tensor as it began."""
    node = tx.tr.graph.node(tensor.proxy)
    while node.target is with_data:
        node = node.args[0]
    return node


def _check_paths(tx: Frame, results: list[Any], wanted: list[Any]) -> None:
    """An input may depend on another in a way that is known only outside; a leaf may have become another one, to which the gradients of
    what was computed before do not come."""
    ends = [value for _, value, is_end in history(tx.tr.graph, results) if is_end]
    for value in ends:
        if value.tracker is not None and _end(tx, value.tracker) is not tx.tr.graph.node(value):
            unsupported(SLUG, "gradients of a leaf that has become another one since")
    begun = [value for value in ends if not value.meta.is_leaf]
    if any(t.source is not None and t.proxy is not value for t in wanted for value in begun):
        unsupported(SLUG, "grad of an input, maybe through another that has a history")


@builtin(torch.autograd.grad)
@whole
def autograd_grad(
    tx: Frame,
    outputs: VariableTracker,
    inputs: VariableTracker,
    grad_outputs: VariableTracker | None = None,
    retain_graph: VariableTracker | None = None,
    create_graph: VariableTracker = FALSE,
    only_inputs: VariableTracker | None = None,
    allow_unused: VariableTracker | None = None,
    is_grads_batched: VariableTracker = FALSE,
    materialize_grads: VariableTracker = FALSE,
) -> VariableTracker:
    """`torch.autograd.grad`."""
    wanted = _sequence(tx, inputs)
    options = {
        "retain_graph": NONE if retain_graph is None else retain_graph,
        "create_graph": create_graph,
        "allow_unused": NONE if allow_unused is None else allow_unused,
        "is_grads_batched": is_grads_batched,
        "materialize_grads": materialize_grads,
    }
    with _apart(tx, wanted):
        return _gradients(tx, outputs, wanted, grad_outputs, options)


def _gradients(
    tx: Frame,
    outputs: VariableTracker,
    wanted: list[Any],
    grad_outputs: VariableTracker | None,
    options: dict[str, Any],
) -> VariableTracker:
    graph = tx.tr.graph
    if not is_constant(*options.values()):
        unsupported(SLUG, "grad with options that are not constant")
    _check_surroundings(tx)
    results = _sequence(tx, outputs)
    _check_hooks(tx, [*results, *wanted])
    nodes = [[graph.node(t.proxy) for t in results], [_end(tx, t) for t in wanted]]
    _check_paths(tx, nodes[0], wanted)
    if _hooks(graph, nodes[0], nodes[1]):
        unsupported(SLUG, "grad through hooks that are to be followed")
    cotangents = _cotangents(tx, grad_outputs)
    host = {name: value.as_python_constant() for name, value in options.items()}
    found = gradients(graph, *nodes, cotangents, host)
    given = {name: value for name, value in host.items() if value is not None and value is not False}
    arguments = [tuple(nodes[0]), tuple(nodes[1]), cotangents]
    graph.passes.gradients.are_asked_for = True
    made = graph.operators.call_with_results(tx, torch.autograd.grad, arguments, given, found.fakes, found.kin)
    return TupleVariable(made)


# -- backward


@builtin(torch.autograd.backward)
def autograd_backward(
    tx: Frame,
    tensors: VariableTracker,
    grad_tensors: VariableTracker | None = None,
    retain_graph: VariableTracker | None = None,
    create_graph: VariableTracker = FALSE,
    grad_variables: VariableTracker | None = None,
    inputs: VariableTracker | None = None,
) -> VariableTracker:
    """`torch.autograd.backward`."""
    return backward(tx, _sequence(tx, tensors), grad_tensors, retain_graph, create_graph, inputs)


@method(torch.Tensor.backward)
def tensor_backward(
    tx: Frame,
    self: TensorVariable,
    gradient: VariableTracker | None = None,
    retain_graph: VariableTracker | None = None,
    create_graph: VariableTracker = FALSE,
    inputs: VariableTracker | None = None,
) -> VariableTracker:
    """`Tensor.backward`."""
    return backward(tx, [self], gradient, retain_graph, create_graph, inputs)


@whole
def backward(
    tx: Frame, outputs: list[Any], given: Any, retain_graph: Any, create_graph: Any, inputs: Any
) -> VariableTracker:
    """Add gradients to the `grad` of the given leaves, or of all leaves that the outputs depend on."""
    wanted = None if is_none(inputs) else _sequence(tx, inputs)
    with _apart(tx, wanted or []):
        return _backward(tx, outputs, given, retain_graph, create_graph, wanted)


def _backward(
    tx: Frame, outputs: list[Any], given: Any, retain_graph: Any, create_graph: Any, wanted: list[Any] | None
) -> VariableTracker:
    graph = tx.tr.graph
    retain_graph = NONE if retain_graph is None else retain_graph
    if not is_constant(retain_graph, create_graph) or create_graph.as_python_constant():
        unsupported(SLUG, "backward that creates a graph")
    _check_surroundings(tx)
    _check_engine(tx)
    nodes = [graph.node(t.proxy) for t in outputs]
    leaves = [value.tracker for value in reached_leaves(graph, nodes)]
    if wanted is not None:
        leaves = _each_once(tx, wanted)
    for leaf in leaves:
        if type(leaf) not in (TensorVariable, FakeTensorVariable, NewParameterVariable):
            unsupported(SLUG, f"backward to a {leaf.python_type().__name__}")
        if graph.passes.fakes.are_there and not leaf.proxy.is_fake:
            unsupported(FAKE_INPUTS, "backward to a tensor that is no FakeTensor")
    options = {"retain_graph": retain_graph.as_python_constant(), "allow_unused": True}
    _check_paths(tx, nodes, [])
    inner = [_end(tx, leaf) for leaf in leaves]
    hooks = _hooks(graph, nodes, inner)
    graph.passes.backward.cut_step = tx.tr.thread.failing_step()
    for i, leaf in enumerate(leaves):
        if leaf.source is not None and leaf.value._backward_hooks:
            inner[i] = cut_leaf(graph, nodes, inner[i])
    if hooks:
        with _without_grad(tx):
            done = functools.partial(_arrive, tx)
            Stages(tx, dict(zip(inner, leaves, strict=True)), options, done).run(
                outputs, _given(tx, outputs, given), hooks
            )
        graph.passes.gradients.are_asked_for = True
        return NONE
    cotangents = _cotangents(tx, given)
    order: list[int] = []
    are_copied = not any(_hooks_of_leaf(tx, leaf, torch.Tensor.register_hook) for leaf in leaves)
    found = gradients(graph, nodes, inner, cotangents, options, order=order, are_copied=are_copied)
    if any(fake is not None and fake.layout is not torch.strided for fake in found.fakes):
        unsupported(SLUG, "backward with sparse gradients")
    graph.passes.gradients.are_asked_for = True
    made = graph.operators.call_with_results(
        tx, torch.autograd.grad, [tuple(nodes), tuple(inner), cotangents], options, found.fakes, found.kin
    )
    with _without_grad(tx):
        for i in order:
            _arrive(tx, leaves[i], made[i], found.taken[i])
    return NONE


_SET_GRAD = torch._C._set_grad_enabled


@contextmanager
def _without_grad(tx: Frame) -> Iterator[None]:
    """Run the block in the grad mode in which autograd calls hooks: off."""
    grad_mode = torch.is_grad_enabled()
    tx.tr.state.write(_SET_GRAD, (False,))
    yield
    tx.tr.state.write(_SET_GRAD, (grad_mode,))


def _hooks(graph: Any, outputs: list[Any], inputs: list[Any]) -> list[Any]:
    """The nodes between these where hooks are to be followed."""
    if not graph.passes.backward.hook_calls and not graph.passes.backward.tensor_hooks:
        return []
    wanted = set(inputs)
    reached = Reached(graph, outputs).hooks()
    return [node for node in reached if wanted & Reached(graph, [node]).nodes]


def _given(tx: Frame, outputs: list[Any], given: VariableTracker | None) -> list[Any]:
    """The gradients that a backward pass begins with."""
    items = [NONE] * len(outputs)
    if not is_none(given):
        items = [given] if isinstance(given, TensorVariable) else tx.tr.unpack(tx, given)
    result = []
    for output, item in zip(outputs, items, strict=True):
        if is_none(item) and output.proxy.meta.ndim == 0:
            item = tx.tr.graph.call(tx, "call_function", torch.ones_like, [output])
        if type(item) not in (TensorVariable, FakeTensorVariable) or item.proxy.meta.shape != output.proxy.meta.shape:
            unsupported(SLUG, "backward of several numbers without gradients")
        result.append(item)
    return result


def _each_once(tx: Frame, wanted: list[Any]) -> list[Any]:
    """The leaves that are to get gradients, each once."""
    if not wanted:
        unsupported(SLUG, "backward to no inputs")
    for tensor in wanted:
        meta = tensor.proxy.meta
        is_known = tensor.source is not None or tensor.proxy in tx.tr.graph.passes.leaves.made
        if not (is_known and meta.is_leaf and meta.requires_grad):
            unsupported(SLUG, "backward to a tensor that is no leaf")
    return list({tensor.proxy: tensor for tensor in wanted}.values())


def _check_engine(tx: Frame) -> None:
    """Refuse settings that observe the engine while it runs: reducers of distributed modules are hooks on its nodes."""
    if torch.is_anomaly_enabled():
        unsupported(SLUG, "backward in anomaly mode")
    if not _is_alone():
        unsupported(
            SLUG,
            "backward where a reducer may wait for gradients"
            if _lays_out_gradients()
            else "gradients laid out otherwise than leaves",
        )
    tx.tr.guards.global_state(_is_alone, "no reducer, no anomaly mode, gradients laid out like their leaves")


def _is_alone() -> bool:
    return not torch.is_anomaly_enabled() and not _has_reducers() and _lays_out_gradients()


_REFERENCES = 3  # to the class of reducers: those of the two modules that have it, and of its MRO
_probe = types.SimpleNamespace(value=object())
_OF_THE_QUESTION = sys.getrefcount(_probe.value) - 1


def _has_reducers() -> bool:
    """Whether there may be a reducer of `DistributedDataParallel`: C code that hangs on the nodes of leaves. Each refers to its class; who
    else does is taken for one."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return False
    return sys.getrefcount(distributed.Reducer) > _REFERENCES + _OF_THE_QUESTION


def _lays_out_gradients() -> bool:
    """Whether `AccumulateGrad` gives a gradient the strides of its leaf: `torch.autograd.enforce_grad_layout_policy`."""
    return _is_layout_enforced is None or _is_layout_enforced()


_is_layout_enforced = getattr(torch._C, "_is_grad_layout_enforcement_enabled", None)


def _hooks_of_leaf(tx: Frame, leaf: TensorVariable, register: Any) -> list[VariableTracker]:
    """The hooks that a leaf has, those that the traced code has registered included."""
    if leaf.source is None:
        return []
    name = DICTS[register]
    real, source = getattr(leaf.value, name), tx.tr.source(leaf.source, ir.ATTR, name)
    if not real:
        tx.tr.guard(source, ir.TRUTH, False)
    hooks = tx.tr.unpack(tx, tx.call(get_attr(tx, tx.tr.wrap(real, source), "values"), [])) if real else []
    return [*hooks, *(h.hook for h in registered(tx.tr) if h.tensor is leaf and h.register is register)]


def _arrive(tx: Frame, leaf: TensorVariable, gradient: TensorVariable, is_taken: bool) -> None:
    """A gradient reaches a leaf: its hooks, `AccumulateGrad`, the hooks after that."""
    try:
        for hook in _hooks_of_leaf(tx, leaf, torch.Tensor.register_hook):
            gradient = replaced_gradient(tx, hook, gradient)
            is_taken = False  # the hook may keep it
        _accumulate(tx, leaf, gradient, is_taken)
        for hook in _hooks_of_leaf(tx, leaf, torch.Tensor.register_post_accumulate_grad_hook):
            if not is_none(tx.call(hook, [leaf])):
                unsupported(SLUG, "a hook after accumulation that returns something")
    except ObservedException as observed:
        unsupported(SLUG, f"a hook raises {observed.exc.python_type().__name__}")


def _accumulate(tx: Frame, leaf: TensorVariable, gradient: TensorVariable, is_taken: bool) -> None:
    """`AccumulateGrad`: the first gradient is kept if it lies in memory like the leaf and nobody else has the tensor, whoever has the
    memory."""
    call = tx.tr.graph.call
    known = tensor_grad(tx, leaf)
    if isinstance(known, TensorVariable):
        call(tx, "call_method", "add_", [known, gradient])
        return
    if not is_taken or gradient.proxy.meta.stride != leaf.proxy.meta.stride:
        copy = call(tx, "call_function", torch.empty_like, [leaf])
        gradient = call(tx, "call_method", "copy_", [copy, gradient])
    elif gradient.proxy.family is not None or _is_view(gradient.proxy.fake):  # which to autograd it is none of
        gradient = call(tx, "call_method", "detach", [gradient])
    leaf.store(tx, "grad", gradient)


def _is_view(fake: Any) -> bool:
    """Whether `torch.autograd.grad` returns a view, perhaps of a tensor that nobody has."""
    return fake is None or fake._is_view()


# -- requires_grad


@method(torch.Tensor.requires_grad_)
def tensor_requires_grad(tx: Frame, self: TensorVariable, requires_grad: VariableTracker = TRUE) -> VariableTracker:
    """`requires_grad_`, which torch refuses within a transform whether it changes anything or not."""
    if transforms := transforms_around(tx.tr.graph):
        return unsupported("tensor-attribute", f"requires_grad_ inside of {transforms[-1]}")
    if not is_flag(requires_grad):
        return unsupported("tensor-attribute", "requires_grad_ of something that is not constant, or no bool")
    if requires_grad.as_python_constant() is self.proxy.meta.requires_grad:
        return self
    return set_requires_grad(tx, self, requires_grad.as_python_constant())
