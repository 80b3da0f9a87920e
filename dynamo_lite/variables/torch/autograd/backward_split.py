"""Backward passes of the traced code through calls of modules that have backward hooks.

Input: the tensors that are differentiated, and the leaves. Output: nodes for the stages of the pass; between them, the hooks are followed
as calls that the traced code makes.
Invariant: a hook is called when autograd would call it, with the gradients that have arrived by then; leaves whose gradient
is complete have it by then.
Mirrors `torch/utils/hooks.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core import module_hooks
from dynamo_lite.graph.core.autograd import SLUG, Rerun, gradients
from dynamo_lite.graph.core.values import requires_grad
from dynamo_lite.graph.passes.backward_split import HOOKS, Reached, cut, last_item
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.torch.subclasses.fake_tensor import FakeTensorVariable
from dynamo_lite.variables.torch.tensor import TensorVariable

from .hooks import TraceEffectVariable
from .module_hooks import BackwardHookVariable, hooks_of

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame


class WarningsVariable(TraceEffectVariable):
    """Warnings that a backward pass gives, in generated code."""

    def emit_update(self, cg: Codegen) -> None:
        cg.load_callable(module_hooks.warn_of_no_arguments)
        cg.asm.call(0)
        cg.asm.pop_top()


class Stages:
    """One backward pass. `pending` has the gradients that have arrived at tensors whose turn has not come; `done` gets a leaf, its gradient
    and whether the leaf may keep that."""

    def __init__(
        self,
        tx: Frame,
        leaves: dict[Node, TensorVariable],
        options: dict[str, Any],
        done: Callable[[Any, Any, bool], None],
    ) -> None:
        self.tx = tx
        self.graph = tx.tr.graph
        self.options = options
        self.done = done
        self.leaves = leaves
        self.rerun = Rerun(self.graph)
        self.pending: dict[Node, VariableTracker] = {}
        self.own: set[VariableTracker] = set()
        self.got: dict[Node, VariableTracker] = {}  # by calls of modules: the gradients of their results

    def run(self, outputs: list[TensorVariable], cotangents: list[VariableTracker], hooks: list[Node]) -> None:
        """The whole pass."""
        nodes = cut(self.graph, [self.graph.node(output.proxy) for output in outputs], hooks)
        for node, cotangent in zip(nodes, cotangents, strict=True):
            self._add(node, cotangent)
        self.reached = Reached(self.graph, list(self.pending))
        end = len(self.reached.position)
        for hook in reversed(hooks):
            self._stage(hook, end)
            # A tensor with hooks has its turn after them; what stands for the hooks of a module has no other.
            end = self.reached.position[hook] if hook.target in HOOKS else self.reached.position[last_item(hook)] + 1
            self._settle(end)
            self._call_tensor_hooks(hook)
            if hook.target in HOOKS:
                self._call_hooks(hook)
            self._settle(end)
        self._stage(None, end)
        self._settle(-1)

    def _add(self, node: Node, gradient: VariableTracker) -> None:
        """A gradient arrives."""
        known = self.pending.get(node)
        self.pending[node] = (
            gradient if known is None else self.graph.call(self.tx, "call_function", torch.add, [known, gradient])
        )

    # -- between hooks

    def _stage(self, hook: Node | None, end: int) -> None:
        """The nodes between a hook and `end`."""
        position = self.reached.position
        begin = -1 if hook is None else position[last_item(hook)]
        cuts = {} if hook is None else {made: node for node, made in self.graph.passes.backward.cuts[hook].items()}

        def is_inside(node: Node) -> bool:
            return begin < position[node] < end and node not in cuts and node not in self.leaves

        outputs = [node for node in self.pending if is_inside(node)]
        if outputs:
            ends = [*(made for made in cuts if made in self.reached.nodes), *self.leaves]
            inputs = [node for node in ends if any(map(is_inside, self.reached.users(node)))]
            if inputs:
                self._grad([*outputs, *(node for node in inputs if node in self.pending)], inputs)
            for node in outputs:
                del self.pending[node]
        for made, node in cuts.items():
            if made in self.pending:
                self._add(node, self.pending.pop(made))

    def _grad(self, outputs: list[Node], inputs: list[Node]) -> None:
        graph = self.graph
        cotangents = tuple([graph.node(self.pending[node].proxy) for node in outputs])
        order: list[int] = []
        fakes, taken, _ = gradients(graph, outputs, inputs, cotangents, self.options, self.rerun, order)
        arguments = [tuple(outputs), tuple(inputs), cotangents]
        made = graph.operators.call_with_results(self.tx, torch.autograd.grad, arguments, self.options, fakes)
        self.rerun.values[graph.last_node] = tuple(fakes)
        graph.passes.backward.stages.add(graph.last_node)
        for i in order:
            if made[i].proxy.fake.layout is not torch.strided:
                unsupported(SLUG, "backward with sparse gradients")
            self.pending.pop(inputs[i], None)  # in the order in which they arrive
            self.pending[inputs[i]] = made[i]
            if taken[i]:
                self.own.add(made[i])

    def _settle(self, end: int) -> None:
        """Give the leaves their gradients that are used by nothing before `end`."""
        position = self.reached.position
        for node in [node for node in self.pending if node in self.leaves]:
            if all(position[user] >= end for user in self.reached.users(node)):
                gradient = self.pending.pop(node)
                self.done(self.leaves[node], gradient, gradient in self.own)

    # -- hooks

    def _call_tensor_hooks(self, call: Node) -> None:
        for node in (call, *call.users):
            hooks = (
                self.graph.passes.backward.tensor_hooks.get(node, ()) if node is call or node.args[0] is call else ()
            )
            for hook in hooks:
                if not hook.removed:
                    if node not in self.pending:
                        unsupported(SLUG, "a hook of a tensor to which no gradient comes")
                    self.own.discard(self.pending[node])
                    self.pending[node] = replaced_gradient(self.tx, hook.hook, self.pending[node])

    def _call_hooks(self, node: Node) -> None:
        call, tensors = node.args[0], node.args[3 if node.target is module_hooks.arguments else 4 :]
        items = {item.args[1]: item for item in node.users if item.target is operator.getitem}
        grads = [self.pending.pop(items[i], None) if i in items else None for i in range(len(tensors))]
        if all(grad is None for grad in grads):
            unsupported(SLUG, "hooks of a module to which no gradient comes")
        self.own.difference_update(grads)  # hooks may keep them
        hook = self.graph.passes.backward.hook_calls[call].hook
        call_all = self._on_arguments if node.target is module_hooks.arguments else self._on_results
        try:
            new = call_all(hook, node, grads)
        except ObservedException as observed:
            unsupported(SLUG, f"a backward hook raises {observed.exc.python_type().__name__}")
        for tensor, grad, given in zip(tensors, grads, new, strict=True):
            if not is_none(given):
                check_like(grad, given)
                if requires_grad(tensor):
                    self._add(tensor, given)

    def _on_results(self, hook: BackwardHookVariable, node: Node, grads: list[Any]) -> list[VariableTracker]:
        tx, (call, n_args, n, positions) = self.tx, node.args[:4]
        module = hook.tp_getattro(tx, "module")
        hooks, pre_hooks = hooks_of(tx, hook)
        got = _spread(grads, positions, n)
        for pre_hook in pre_hooks:
            got = self._replaced(got, tx.call(pre_hook, [module, got]))
        if hook.tracks_arguments:
            self.got[call] = got
        else:
            tx.tr.effects.mutations.append(WarningsVariable(tx.tr))
            nothing = _spread([], (), n_args)
            for each in hooks:
                given = tx.call(each, [module, nothing, got])
                if not is_none(given) and not all(map(is_none, tx.tr.unpack(tx, given))):
                    unsupported(SLUG, "a backward hook that returns gradients where no argument requires them")
        items = tx.tr.unpack(tx, got)
        return [items[i] for i in positions]

    def _on_arguments(self, hook: BackwardHookVariable, node: Node, grads: list[Any]) -> list[VariableTracker]:
        tx, (call, n_args, positions) = self.tx, node.args[:3]
        got = self.got.pop(call, None)
        for i, tensor in enumerate(node.args[3:]):
            if grads[i] is None:  # as `Function` fills in
                grads[i] = self._zeros_like(tensor.meta.subject.tracker)
        given = _spread(grads, positions, n_args)
        if got is not None:  # by way of the call's results
            hooks, _ = hooks_of(tx, hook)
            for each in hooks:
                given = self._replaced(given, tx.call(each, [hook.tp_getattro(tx, "module"), given, got]))
        items = tx.tr.unpack(tx, given)
        return [items[i] for i in positions]

    def _zeros_like(self, tensor: VariableTracker) -> VariableTracker:
        options = {"memory_format": ConstantVariable(torch.contiguous_format)}
        return self.graph.call(self.tx, "call_function", torch.zeros_like, [tensor], options)

    def _replaced(self, grads: VariableTracker, new: VariableTracker) -> VariableTracker:
        """The gradients after a hook."""
        if is_none(new):
            return grads
        if len(self.tx.tr.unpack(self.tx, new)) != len(self.tx.tr.unpack(self.tx, grads)):
            unsupported(SLUG, "a backward hook that returns another number of gradients")
        return new


def _spread(grads: list[Any], positions: tuple[int, ...], n: int) -> TupleVariable:
    items: list[VariableTracker] = [NONE] * n
    for i, grad in zip(positions, grads, strict=True):
        items[i] = NONE if grad is None else grad
    return TupleVariable(items)


def replaced_gradient(tx: Frame, hook: VariableTracker, gradient: VariableTracker) -> VariableTracker:
    """The gradient after a hook of a tensor."""
    try:
        new = tx.call(hook, [gradient])
    except ObservedException as observed:
        unsupported(SLUG, f"a hook raises {observed.exc.python_type().__name__}")
    if is_none(new):
        return gradient
    check_like(gradient, new)
    return new


def check_like(grad: Any, given: VariableTracker) -> None:
    """Break for a value that autograd refuses as a gradient."""
    if grad is None or type(given) not in (TensorVariable, FakeTensorVariable):
        unsupported(SLUG, "a backward hook that returns a gradient for none, or something else")
    old, new = grad.proxy.meta, given.proxy.meta
    if (old.shape, old.dtype, old.device) != (new.shape, new.dtype, new.device):
        unsupported(SLUG, "a backward hook that returns a gradient of another kind")
