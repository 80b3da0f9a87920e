"""Hooks of tensors.

Input: `register_hook` and its relatives on tensors. Output: for a tensor from outside, a replay of the registration after the graph; for
a tensor that the graph makes, a node that registers the hook, which is followed as a body. A hook that does more than compute is kept for
a backward pass in the traced code (`backward_split`).
Invariant: a hook sees all of the gradient. A compiled graph is one node of autograd, so the code after the graph can't register a hook on
a value made inside that other operators of the graph use.
Mirrors `torch/_tensor.py`, `torch/utils/hooks.py` and `torch/csrc/autograd/python_hook.cpp`.
"""

from __future__ import annotations

import operator
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NoReturn, Self

import torch
from torch.fx import Node
from torch.utils.hooks import RemovableHandle

from dynamo_lite.dynamism.dynamic_shapes import may_count
from dynamo_lite.exc import FollowHook, Restart, Unsupported, unsupported
from dynamo_lite.graph.core import functional
from dynamo_lite.graph.core.functional import transforms_around
from dynamo_lite.variables.objects.function import MethodVariable
from dynamo_lite.variables.protocol.abstract import binary_op, get_attr, set_attr
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, is_none
from dynamo_lite.variables.protocol.dispatch import method
from dynamo_lite.variables.torch.body import CapturedBody, cotangent, follow, whole
from dynamo_lite.variables.torch.tensor import TensorVariable

from .late_bodies import LateBody

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame

SLUG = "hook-registration"
T = torch.Tensor
DICTS = {T.register_hook: "_backward_hooks", T.register_post_accumulate_grad_hook: "_post_accumulate_grad_hooks"}
"""Where a tensor has the hooks of each kind."""


class HookHandleVariable(VariableTracker):
    """A `RemovableHandle` that the traced code got, and the registration that it stands for. `node` is in the graph if the tensor is."""

    source = None

    def __init__(self, register: Any, tensor: TensorVariable, hook: VariableTracker, step: int) -> None:
        self.register = register
        self.tensor = tensor
        self.hook = hook
        self.step = step
        self.number: VariableTracker | None = None
        self.node: Node | None = None
        self.cells: list[tuple[Any, Any]] = []  # those that a hook in the graph has read
        self.removed = False
        self.tr: Any = None  # if the graph knows the hook

    def python_type(self) -> type:
        return RemovableHandle

    def children(self) -> Any:
        number = () if self.number is None else (self.number,)
        if self.node is not None:
            return number
        return (self.tensor, *number) if self.removed else (self.tensor, self.hook, *number)

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        if name == "remove":
            return RemoveVariable(tx.tr.build_constant_object(RemovableHandle.remove), self)
        if name == "id" and self.number is not None:
            return self.number
        return unsupported(SLUG, f"RemovableHandle.{name}")

    def remove(self, tx: Frame) -> None:
        """`RemovableHandle.remove`: a hook that no gradient in the graph has met was never there."""
        if self.node is not None and not self.removed:
            graph = tx.tr.graph
            behind = list(graph.graph.nodes)[::-1]
            if any(node.target is torch.autograd.grad for node in behind[: behind.index(self.node)]):
                self.check(tx.tr)
                graph.add("call_function", functional.remove_hook, (self.node,))
            else:
                graph.graph.erase_node(self.node)
        self.removed = True

    def follow(self) -> NoReturn:
        """Analyse again, with this hook, which is in the graph, followed in the backward pass instead."""
        error = Unsupported(SLUG, "a hook of a tensor among others that are followed")
        error.user_stack = self.tr.thread.user_stack()
        raise Restart(error.context, fact=FollowHook(self.step, error))

    def emit_new(self, cg: Codegen) -> None:
        """Register the hook."""
        if self.removed or self.node is not None or self._is_changed():
            raise Unsupported(SLUG, "a handle, or a tensor that is changed in place").at(self.step)
        cg.load_callable(self.register if self.number is None else registered_as)
        if self.number is not None:
            cg.load(self.number)
            cg.load_const(self.register)
        cg.load(self.tensor)
        cg.load(self.hook)
        cg.asm.call(2 if self.number is None else 4)

    emit_fill = None

    def emit_removed(self, cg: Codegen) -> None:
        """Leave the tensor as a hook does that was there for a while."""
        if self._is_changed() and not self.tensor.proxy.meta.is_leaf:
            raise Unsupported(SLUG, "a tensor that is changed in place").at(self.step)
        cg.load_callable(open_dict)
        cg.load(self.tensor)
        cg.load_const(DICTS[self.register])
        cg.load_const(self.number is None)
        cg.asm.call(3)
        cg.asm.pop_top()

    def _is_changed(self) -> bool:
        node = self.tensor.proxy.node
        return node is not None and node.op != "placeholder"

    def check(self, tr: Trace) -> None:
        """Break if a hook in the graph, which has been followed already, would find something else when it is called."""
        if not self.removed and any(cell.content is not content for cell, content in self.cells):
            error = Unsupported(SLUG, "a variable of the hook is stored later")
            tr.graph.end_before(self.tensor.proxy.node, error)


class FollowedHandleVariable(HookHandleVariable):
    """The handle of a hook that only a backward pass in the traced code can call. `node` is that of the tensor."""

    error: Unsupported
    is_used = False  # by an operator before the registration

    def remove(self, tx: Frame) -> None:
        self.removed = True

    def leave(self) -> None:
        """A gradient from outside of the graph will reach the tensor: the hook has to be registered outside as well."""
        if not self.removed:
            self.error.break_step = self.step
            if not self.is_used:
                raise self.error
            leave_before(self.tr, self.tensor, self.error)


class RemoveVariable(MethodVariable):
    """The method `remove` of a handle that the traced code got."""

    def direct_call(self, tx: Frame, args: list[Any]) -> Any:
        return None

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if args or kwargs:
            return super().tp_call(tx, args, kwargs)
        self.self.remove(tx)
        return NONE


def next_number(tx: Frame) -> VariableTracker | None:
    """The number of a handle, by which the counter advances; None where a number that varies may not be used."""
    if not may_count():
        return None
    cls = tx.tr.type_tracker(RemovableHandle)
    number = get_attr(tx, cls, "next_id")
    set_attr(tx, cls, "next_id", binary_op(tx, operator.add, number, ConstantVariable(1)))
    return number


def registered_as(number: int, register: Any, tensor: torch.Tensor, hook: object) -> RemovableHandle:
    """Register a hook under the number that its handle has got before."""
    following = RemovableHandle.next_id
    RemovableHandle.next_id = number
    try:
        return register(tensor, hook)
    finally:
        RemovableHandle.next_id = max(following, RemovableHandle.next_id)


def open_dict(tensor: torch.Tensor, name: str, counts: bool) -> None:
    """Give a tensor the dict that the first hook makes and that stays when the hook is removed. `counts`: the hook's handle has got no
    number yet."""
    RemovableHandle.next_id += counts
    if getattr(tensor, name) is None:
        setattr(tensor, name, OrderedDict())
        if name == "_backward_hooks" and tensor.grad_fn is not None:
            tensor.grad_fn._register_hook_dict(tensor)


class TraceEffectVariable(VariableTracker):
    """Something that generated code does once after the graph, or that is checked then; no object of the program."""

    mutated = True

    def __init__(self, tr: Trace) -> None:
        self.source = tr.constant_source(self)
        self.value = self

    def python_type(self) -> type:
        return type(self)

    @classmethod
    def of(cls, tr: Trace) -> Self:
        """The one of a trace."""
        found = next((vt for vt in tr.effects.mutations if isinstance(vt, cls)), None)
        if found is None:
            found = cls(tr)
            tr.effects.mutations.append(found)
        return found


class RegistrationsVariable(TraceEffectVariable):
    """The hooks that the traced code registers on tensors which existed before, in order."""

    def __init__(self, tr: Trace) -> None:
        super().__init__(tr)
        self.handles: list[HookHandleVariable] = []

    def describe(self) -> str:
        return "tensors that get hooks"

    def children(self) -> Any:
        return [child for handle in self.handles for child in handle.children()]

    def emit_update(self, cg: Codegen) -> None:
        for handle in self.handles:
            if handle.node is not None:
                handle.check(cg.tr)
            elif handle.removed:
                handle.emit_removed(cg)
            else:
                cg.load(handle)
                cg.asm.pop_top()


def registered(tr: Trace) -> list[HookHandleVariable]:
    """The registrations of a trace that stand."""
    return [
        h for vt in tr.effects.mutations if isinstance(vt, RegistrationsVariable) for h in vt.handles if not h.removed
    ]


def _replayed(tx: Frame, register: object, tensor: TensorVariable, hook: VariableTracker) -> HookHandleVariable:
    node = tensor.proxy.node
    if node is not None and node.op != "placeholder":
        unsupported(SLUG, "an input that the graph has changed in place")
    handle = HookHandleVariable(register, tensor, hook, tx.tr.thread.failing_step())
    handle.number = next_number(tx)
    RegistrationsVariable.of(tx.tr).handles.append(handle)
    return handle


@method(T.register_hook)
def register_hook(tx: Frame, self: TensorVariable, hook: VariableTracker) -> VariableTracker:
    """A hook on the gradient."""
    if not self.proxy.meta.requires_grad:
        return tx.raises(RuntimeError, "cannot register a hook on a tensor that doesn't require gradient")
    if self.source is not None:
        return _replayed(tx, T.register_hook, self, hook)
    step, known = tx.tr.thread.failing_step(), tx.tr.facts.followed_hooks
    if step in known:
        return _to_be_followed(tx, self, hook, known[step])
    try:
        return _in_graph(tx, self, hook)
    except Unsupported as error:
        if tx.tr.graph.scope is not None or self.proxy.meta.is_leaf:
            return leave_before(tx.tr, self, error)
        error.user_stack = error.user_stack or tx.tr.thread.user_stack()
        why = f"a hook is followed in the backward pass: {error.context}"
        raise Restart(why, fact=FollowHook(step, error)) from None


def _to_be_followed(tx: Frame, tensor: TensorVariable, hook: VariableTracker, error: Unsupported) -> VariableTracker:
    """A hook that does more than compute: a backward pass in the traced code follows it. `error` says why it is not in the graph."""
    handle = FollowedHandleVariable(T.register_hook, tensor, hook, tx.tr.thread.failing_step())
    handle.number = next_number(tx)
    handle.tr, handle.error = tx.tr, error
    handle.node = tx.tr.graph.node(tensor.proxy)
    handle.is_used = bool(handle.node.users)
    tx.tr.graph.passes.backward.tensor_hooks.setdefault(handle.node, []).append(handle)
    return handle


@whole
def _in_graph(tx: Frame, tensor: TensorVariable, hook: VariableTracker) -> VariableTracker:
    """One node, of the tensor, the hook's body, and the values from outside that the body uses."""
    graph = tx.tr.graph
    if graph.scope is not None:
        unsupported(SLUG, "a hook in the body of a higher-order operator")

    def bodies(tx: Frame) -> list[CapturedBody]:
        body = graph.open_body()
        with body:
            grad = cotangent(body, tensor)
        return [follow(tx, lambda: tx.call(hook, [grad]), [hook], body)]

    late = LateBody(tx.tr, bodies, SLUG, "a hook")
    with tx.tr.state.grad_mode(False):
        (captured,) = late.followed(tx)
    result = captured.result
    if not is_none(result) and not isinstance(result, TensorVariable):
        unsupported(SLUG, "a hook that returns something else than a gradient")
    lifted = captured.lifted
    module = captured.module(lifted)
    captured.body.run(module, lifted)
    handle = HookHandleVariable(T.register_hook, tensor, hook, tx.tr.thread.failing_step())
    handle.number = next_number(tx)
    nodes = [graph.body_node(module), graph.node(tensor.proxy), *map(graph.node, lifted)]
    handle.cells = [(cell, cell.content) for cell in getattr(hook, "closure", ())]
    RegistrationsVariable.of(tx.tr).handles.append(handle)
    handle.node = graph.add_call(tx, functional.register_hook, tuple(nodes), {"name": _name_in_errors(tx, hook)})
    handle.tr = tx.tr
    late.belongs_to(tx.tr, graph.node(tensor.proxy))
    graph.passes.backward.body_hooks[handle.node] = handle
    if tensor.proxy in graph.passes.leaves.made:
        graph.passes.leaves.made[tensor.proxy].has_hooks = True
    return handle


def _name_in_errors(tx: Frame, hook: VariableTracker) -> str:
    """`hook_name` of `torch/csrc/autograd/python_hook.cpp`."""
    if hook.python_type() not in (types.FunctionType, types.MethodType):
        return "<unknown>"
    name = get_attr(tx, hook, "__name__")
    return str(name.as_python_constant()) if name.is_python_constant() else "<unknown>"


@method(T.register_post_accumulate_grad_hook)
def register_post_accumulate_grad_hook(tx: Frame, self: TensorVariable, hook: VariableTracker) -> VariableTracker:
    """A hook after the gradient of a leaf has been added up."""
    if self.source is None or not self.proxy.meta.requires_grad or not self.proxy.meta.is_leaf:
        return unsupported(SLUG, "Tensor.register_post_accumulate_grad_hook of a tensor made in the graph")
    return _replayed(tx, T.register_post_accumulate_grad_hook, self, hook)


@method(T.retain_grad)
def retain_grad(tx: Frame, self: TensorVariable) -> VariableTracker:
    """`retain_grad`: a leaf keeps its gradient anyway; transforms refuse the call."""
    if transforms := transforms_around(tx.tr.graph):
        return unsupported("tensor-attribute", f"retain_grad inside of {transforms[-1]}")
    meta = self.proxy.meta
    if not meta.requires_grad:
        return tx.raises(RuntimeError, "can't retain_grad on Tensor that has requires_grad=False")
    if meta.is_leaf and self.source is None:
        return NONE
    return leave_before(tx.tr, self, Unsupported("tensor-attribute", "Tensor.retain_grad"))


def leave_before(tr: Trace, tensor: TensorVariable, error: Unsupported) -> NoReturn:
    """Break because of something that concerns the gradient of a value made in the graph. If other operators use it, the graph has to end
    before the value is made: so that these are in the next graph."""
    node = tensor.proxy.node
    if tensor.source is not None or node is None or not node.users:
        raise error
    tr.graph.end_before(node, error)
