"""`torch.autograd.grad` inside of the captured code, and where gradients begin.

Input: calls with tensors. Output: one node with the gradients.
Invariant: outputs and inputs are values of one graph; what the autograd engine would do outside of it (hooks of tensors that existed
before, history of inputs) is none of its business.
Mirrors `torch/autograd/__init__.py`.
"""

from __future__ import annotations

from typing import Any

import torch

from ..exc import unsupported
from ..graph.gradients import SLUG, gradients
from ..guards import ir
from .base import VariableTracker
from .constant import FALSE, NONE, TRUE, is_constant, is_none
from .dispatch import builtin, method
from .tensor import TensorVariable
from .torch_body import whole
from .tuple import TupleVariable

# -- torch.autograd.grad


def _sequence(tx: Any, vt: VariableTracker) -> list[Any]:
    """The tensors of an argument that is one or several."""
    items = [vt] if isinstance(vt, TensorVariable) else tx.tr.unpack(tx, vt)
    if not all(isinstance(item, TensorVariable) for item in items):
        unsupported(SLUG, "grad of something else than tensors")
    return items


def _cotangents(tx: Any, vt: VariableTracker | None) -> Any:
    """Nodes of the given gradients; None where there are none."""
    if is_none(vt):
        return None
    items = [vt] if isinstance(vt, TensorVariable) else tx.tr.unpack(tx, vt)
    if not all(isinstance(item, TensorVariable) or is_none(item) for item in items):
        unsupported(SLUG, "grad with gradients that are no tensors")
    return tuple([None if is_none(item) else tx.tr.graph.node(item.proxy) for item in items])


def _check_hooks(tx: Any, tensors: list[Any]) -> None:
    """Hooks of a tensor that existed before would run only outside."""
    for tensor in tensors:
        if tensor.source is None:
            continue
        if tensor.value._backward_hooks:
            unsupported(SLUG, "a tensor with hooks")
        tx.tr.guard(tx.tr.source(tensor.source, ir.ATTR, "_backward_hooks"), ir.TRUTH, False)


@builtin(torch.autograd.grad)
@whole
def autograd_grad(
    tx: Any,
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
    graph = tx.tr.graph
    options = {
        "retain_graph": NONE if retain_graph is None else retain_graph,
        "create_graph": create_graph,
        "allow_unused": NONE if allow_unused is None else allow_unused,
        "is_grads_batched": is_grads_batched,
        "materialize_grads": materialize_grads,
    }
    if not is_constant(*options.values()):
        unsupported(SLUG, "grad with options that are not constant")
    if graph.scope is not None:
        unsupported(SLUG, "grad in the body of a higher-order operator")
    if tx.tr.state.has_inference:
        unsupported(SLUG, "grad after an inference mode")
    results, wanted = _sequence(tx, outputs), _sequence(tx, inputs)
    _check_hooks(tx, [*results, *wanted])
    nodes = [[graph.node(t.proxy) for t in tensors] for tensors in (results, wanted)]
    cotangents = _cotangents(tx, grad_outputs)
    host = {name: value.as_python_constant() for name, value in options.items()}
    fakes = gradients(graph, *nodes, cotangents, host)
    given = {name: value for name, value in host.items() if value is not None and value is not False}
    arguments = [tuple(nodes[0]), tuple(nodes[1]), cotangents]
    graph.has_gradients = True
    made = graph.call_with_results(tx, torch.autograd.grad, arguments, given, fakes)
    return TupleVariable(made)


# -- requires_grad


@method(torch.Tensor.requires_grad_)
def tensor_requires_grad(tx: Any, self: TensorVariable, requires_grad: VariableTracker = TRUE) -> VariableTracker:
    """`requires_grad_`: a graph's inputs are what they are when it is called."""
    if not requires_grad.is_python_constant():
        return unsupported("tensor-attribute", "requires_grad_ of something that is not constant")
    if bool(requires_grad.as_python_constant()) is self.proxy.meta.requires_grad:
        return self
    if self.source is not None:
        return unsupported("tensor-attribute", "requires_grad_ of an input")
    return tx.tr.graph.call(tx, "call_method", "requires_grad_", [self, requires_grad])
