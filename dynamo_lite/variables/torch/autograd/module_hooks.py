"""Full backward hooks of modules.

Input: calls of the methods of `BackwardHook`, which `Module.__call__` makes where a module has such hooks. Output: nodes through which the
tensors of the call go.
Invariant: where gradients are computed outside, the hooks are the program's functions, known by identity, and run as they are; a
backward pass in the traced code follows them (`backward_split`). Hooks that the traced code has made are for such a pass alone.
Mirrors `torch/utils/hooks.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.hooks import BackwardHook

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core import modes, module_hooks
from dynamo_lite.graph.core.arguments import Packing, packs
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.objects.instance import InstanceVariable
from dynamo_lite.variables.objects.subclass import INSTANCE_MODELS
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.torch.body import constants
from dynamo_lite.variables.torch.tensor import TensorVariable

from .hooks import next_number

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.interp.frame import Frame

SLUG = "hook-registration"


class BackwardHookVariable(InstanceVariable):
    """A `BackwardHook`; `call` is its node in the graph."""

    call: HookCallVariable | None = None
    n_args = 0
    tracks_arguments = False

    def emit_new(self, cg: Codegen) -> None:
        if self.call is not None:
            raise Unsupported(SLUG, "the graph ends inside of a module with backward hooks").at(self.call.step)
        super().emit_new(cg)


INSTANCE_MODELS[BackwardHook] = BackwardHookVariable


class HookCallVariable(VariableTracker):
    """A `module_hooks.Call` of the graph. `host` is one for the propagation of metadata. Unless it is registered, nobody outside knows the
    hooks."""

    def __init__(self, hook: BackwardHookVariable, node: Any, host: Any, step: int, is_registered: bool) -> None:
        self.hook = hook
        self.node = node
        self.host = host
        self.step = step
        self.is_registered = is_registered

    def python_type(self) -> type:
        return module_hooks.HookedCall


@packs(HookCallVariable)
def pack_hook_call(packing: Packing, vt: HookCallVariable) -> Any:
    packing.memorable = False
    packing.values[vt.node] = vt.host
    return vt.node


@builtin(BackwardHook.setup_input_hook)
def setup_input_hook(tx: Frame, self: BackwardHookVariable, args: VariableTracker) -> VariableTracker:
    """`BackwardHook.setup_input_hook`. Without gradients it only notes how many arguments there are."""
    items = tx.tr.unpack(tx, args)
    self.n_args = len(items)
    if not _are_tracked(tx, items):
        self.tp_setattro(tx, "n_inputs", ConstantVariable(len(items)))
        return args
    made = _through(tx, self, module_hooks.arguments, items, len(items))
    self.tracks_arguments = True
    return TupleVariable(made, args.python_type())


@builtin(BackwardHook.setup_output_hook)
def setup_output_hook(tx: Frame, self: BackwardHookVariable, args: VariableTracker) -> VariableTracker:
    """`BackwardHook.setup_output_hook`."""
    is_tuple = issubclass(args.python_type(), tuple)
    items = tx.tr.unpack(tx, args) if is_tuple else [args]
    if not _are_tracked(tx, items):
        return args
    made = _through(tx, self, module_hooks.results, items, self.n_args, len(items))
    return TupleVariable(made, args.python_type()) if is_tuple else made[0]


def _are_tracked(tx: Frame, items: list[VariableTracker]) -> bool:
    return tx.tr.state.records(any(isinstance(i, TensorVariable) and i.proxy.meta.requires_grad for i in items))


def _through(
    tx: Frame, hook: BackwardHookVariable, function: object, items: list[VariableTracker], *sizes: int
) -> list[VariableTracker]:
    """The items, with each tensor replaced by a result of a new node."""
    if tx.tr.graph.scope is not None:
        unsupported(SLUG, "a module with backward hooks in the body of a higher-order operator")
    if hook.source is not None:
        unsupported(SLUG, "a hook that existed before")
    if modes.fake_mode() is not None or any(isinstance(i, TensorVariable) and i.proxy.is_fake for i in items):
        unsupported(SLUG, "a module with backward hooks that gets FakeTensors")
    if hook.call is None:
        hook.call = _new_call(tx, hook)
    next_number(tx)  # of the handle that the hook of the node of autograd has
    positions = [i for i, item in enumerate(items) if isinstance(item, TensorVariable)]
    head = [hook.call, *constants(*sizes, tuple(positions))]
    made = tx.tr.graph.call(tx, "call_function", function, [*head, *(items[i] for i in positions)], memo=False)
    result = list(items)
    for i, tensor in zip(positions, made.items, strict=True):
        result[i] = tensor
    return result


def _new_call(tx: Frame, hook: BackwardHookVariable) -> HookCallVariable:
    module = hook.tp_getattro(tx, "module")
    hooks, pre_hooks = hooks_of(tx, hook)
    graph = tx.tr.graph
    args: tuple[Any, ...] = ()
    if all(map(_is_real, [module, *hooks, *pre_hooks])):
        module, hooks, pre_hooks = _real(tx, module), [_real(tx, h) for h in hooks], [_real(tx, h) for h in pre_hooks]
        try:
            registration = module_hooks.Registration(module, hooks, pre_hooks)
        except TypeError as error:
            return unsupported(SLUG, "a hook that nothing can refer to weakly", error)
        graph.passes.hooks.registrations.append(registration)
        args = (registration.number,)
    node = graph.add_call(tx, module_hooks.HookedCall, args)
    call = HookCallVariable(hook, node, module_hooks.HookedCall(), tx.tr.thread.failing_step(), bool(args))
    graph.passes.backward.hook_calls[node] = call
    return call


def hooks_of(tx: Frame, hook: BackwardHookVariable) -> list[list[VariableTracker]]:
    """The backward hooks and the backward pre-hooks."""
    return [tx.tr.unpack(tx, hook.tp_getattro(tx, name)) for name in ("user_hooks", "user_pre_hooks")]


def _is_real(vt: VariableTracker) -> bool:
    return vt.source is not None and vt.value is not MISSING


def _real(tx: Frame, vt: VariableTracker) -> Any:
    """An object that existed before, guarded by its identity."""
    tx.tr.guard(vt.source, ir.IS, vt.value)
    return vt.value
