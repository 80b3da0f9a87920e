"""Hooks of the tensors that autograd saves, inside of the captured code.

Input: the calls that `torch.autograd.graph.saved_tensors_hooks` makes when its block begins and ends. Output: two nodes, the first with
the hooks as bodies.
Invariant: at the end of the block the graph is run on fake tensors, which shows the tensors that its operators save. The hooks are
followed once for each kind of these. They must change nothing, and must read nothing that changes before their real call; otherwise the
graph breaks before the block. Attributes of Python objects that they use are read when the function runs.
Mirrors `torch/autograd/graph.py` and `torch/csrc/autograd/init.cpp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.graph.core.arguments import MODELS
from dynamo_lite.graph.core.autograd import HOOKS, saved_tensors
from dynamo_lite.graph.core.meta import meta_of_fake
from dynamo_lite.graph.core.saved_tensors import Recorder, Saved, pop_hooks, push_hooks
from dynamo_lite.graph.core.state import AmbientState, set_disabled_hooks
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.variables.objects.module import GlobalsNamespace
from dynamo_lite.variables.protocol.base import VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import NONE, is_constant
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.stdlib.builtins import builtin_callable
from dynamo_lite.variables.torch.body import CapturedBody, cotangent, follow, is_same, union
from dynamo_lite.variables.torch.tensor import TensorVariable

from .hooks import TraceEffectVariable
from .late_bodies import follow_later

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.interp.frame import Frame

_A = torch._C._autograd


@builtin(_A._saved_tensors_hooks_disable)
def disable_saved_tensors_hooks(tx: Frame, message: VariableTracker, *options: VariableTracker) -> VariableTracker:
    if options or not is_constant(message) or _innermost(tx) is not None:
        return unsupported(HOOKS, "disable_saved_tensors_hooks")
    tx.tr.state.write(set_disabled_hooks, (message.as_python_constant(),))
    return NONE


@builtin(_A._saved_tensors_hooks_enable)
def enable_saved_tensors_hooks(tx: Frame) -> VariableTracker:
    tx.tr.state.write(set_disabled_hooks, (None,))
    return NONE


@builtin(_A._push_saved_tensors_default_hooks)
def push_saved_tensors_hooks(tx: Frame, pack: VariableTracker, unpack: VariableTracker) -> VariableTracker:
    """The block begins."""
    disabled = tx.tr.state.read(_A._saved_tensors_hooks_get_disabled_error_message, ())
    if disabled is not None:
        return tx.raises(RuntimeError, disabled)
    if not (builtin_callable(tx, pack).value and builtin_callable(tx, unpack).value):
        return unsupported(HOOKS, "saved_tensors_hooks that cannot be called")
    if tx.tr.graph.scope is not None:
        return unsupported(HOOKS, "saved_tensors_hooks in the body of a higher-order operator")
    RegionsVariable.of(tx.tr).regions.append(HookedRegion(tx, pack, unpack))
    return NONE


@builtin(_A._pop_saved_tensors_default_hooks)
def pop_saved_tensors_hooks(tx: Frame) -> VariableTracker:
    """The block ends."""
    region = _innermost(tx)
    if region is None or tx.tr.graph.scope is not None:
        return unsupported(HOOKS, "the end of a block with saved_tensors_hooks that began before")
    try:
        region.end(tx)
    except Unsupported as error:
        error.break_step = region.step
        raise
    return NONE


def _innermost(tx: Frame) -> HookedRegion | None:
    return next((r for r in reversed(tx.tr.graph.passes.saved_hooks.regions) if r.is_open), None)


class RegionsVariable(TraceEffectVariable):
    """The blocks of a trace, which are checked once more when the trace ends."""

    def __init__(self, tr: Trace) -> None:
        super().__init__(tr)
        self.regions: list[HookedRegion] = tr.graph.passes.saved_hooks.regions

    def describe(self) -> str:
        return "saved_tensors_hooks"

    def emit_update(self, cg: Codegen) -> None:
        for region in self.regions:
            region.check(cg.tr)


class HookedRegion:
    """One block."""

    def __init__(self, tx: Frame, pack: VariableTracker, unpack: VariableTracker) -> None:
        self.hooks = (pack, unpack)
        self.step = tx.tr.thread.failing_step()
        self.begin: Node = tx.tr.graph.add_call(tx, push_hooks, ())
        self.is_open = True
        self.n_mutations = len(tx.tr.effects.mutations)
        self.found = [(vt, list(vt.children())) for vt in reachable(self.hooks)]

    # -- the end of the block

    def end(self, tx: Frame) -> None:
        """Follow the hooks for the tensors that the block's operators save."""
        graph = tx.tr.graph
        end = graph.add_call(tx, pop_hooks, ())
        self.is_open = False
        self._refuse_bodies(end)
        recorder, other, mute = Recorder(_ambient), Recorder(lambda: None), Recorder(lambda: None)
        around = dict.fromkeys([region.begin for region in graph.passes.saved_hooks.regions if region.is_open], mute)
        # Operators with decompositions in Python (dropout) save other tensors under AOTAutograd than in eager execution.
        decomposed = graph.propagator.mode.shape_env is not None
        saved_tensors(graph, {**around, self.begin: other}, not decomposed)
        values = saved_tensors(graph, {**around, self.begin: recorder}, decomposed)
        if list(map(_kind, recorder.seen)) != list(map(_kind, other.seen)):
            unsupported(HOOKS, "saved_tensors_hooks around an operator that saves something else under a compiler")
        if any(others != _ambient()[1] for _, (_, others) in recorder.seen):
            unsupported(HOOKS, "saved_tensors_hooks around changes of torch's state")
        self.check(tx.tr)
        if recorder.seen:
            self._fill(tx, recorder.seen, values)
        else:
            graph.graph.erase_node(self.begin)
            graph.graph.erase_node(end)
        self.check(tx.tr)

    def _refuse_bodies(self, end: Node) -> None:
        """Refuse operators with bodies, which save tensors in other ways."""
        node = self.begin.next
        while node is not end:
            is_body = node.op == "get_attr" and not all(user.target is push_hooks for user in node.users)
            if is_body or node.target is torch.autograd.grad:
                unsupported(
                    HOOKS, f"saved_tensors_hooks around {getattr(node.target, '__name__', 'a higher-order operator')}"
                )
            node = node.next

    def _fill(self, tx: Frame, seen: list[Any], values: dict[Node, Any]) -> None:
        graph = tx.tr.graph
        inputs = {id(values[i.node]): i.node.meta.subject for i in graph.inputs if i.node in values}
        pairs: dict[Any, tuple[int, CapturedBody, CapturedBody]] = {}
        saved = []
        for tensor, (autocast, _) in seen:
            outer = inputs.get(id(tensor))
            meta = meta_of_fake(tensor)
            key = outer if outer is not None else meta if meta.interned else (tensor.dtype, str(tensor.shape))
            key = key, autocast
            if key not in pairs:
                with tx.tr.state.autocast(autocast):
                    pairs[key] = (len(pairs), *self._follow(tx, tensor, meta, outer))
            saved.append((pairs[key][0], outer, tensor))
        bodies = [captured for _, *pair in pairs.values() for captured in pair]
        lifted = list(dict.fromkeys([*union(bodies), *(outer for _, outer, _ in saved if outer is not None)]))
        modules = []
        for captured in bodies:
            module = captured.module(lifted)
            with tx.tr.state.grad_mode(False):
                captured.body.run(module, lifted)
            modules.append(module)
        self._write(graph, [_known(number, outer, tensor, lifted) for number, outer, tensor in saved], modules, lifted)

    def _follow(
        self, tx: Frame, tensor: object, meta: Any, outer: TensorValue | None
    ) -> tuple[CapturedBody, CapturedBody]:
        """The bodies of `pack` for one tensor and of `unpack` for its result. A tensor from outside is passed as the same object."""
        graph = tx.tr.graph
        pack, unpack = self.hooks
        if not isinstance(tensor, torch._subclasses.FakeTensor):
            unsupported(HOOKS, f"hooks of a saved {type(tensor).__name__}")
        body = graph.open_body()
        with body:
            argument = MODELS.tensor(body.argument(meta, tensor if meta.live else None))
        if outer is not None:
            argument = outer.tracker
        with tx.tr.state.grad_mode(False):
            packed = follow(tx, lambda: tx.call(pack, [argument]), [pack, unpack, argument], body)

        def unpacking(tx: Frame) -> list[CapturedBody]:
            after = graph.open_body()
            with after:
                structure = packed.rebuild([cotangent(after, leaf) for leaf in packed.leaves])
            return [follow(tx, lambda: tx.call(unpack, [structure]), [pack, unpack, structure], after)]

        with tx.tr.state.grad_mode(False):
            (unpacked,) = follow_later(tx, unpacking)
        if not isinstance(unpacked.result, TensorVariable):
            unsupported(HOOKS, "an unpack hook that returns no tensor")
        return packed, unpacked

    def _write(self, graph: Any, saved: list[tuple[Any, ...]], modules: list[Any], lifted: list[Any]) -> None:
        """Give the first node its arguments, which have to be there before the block."""
        with graph.graph.inserting_before(self.begin):
            nodes = [graph.body_node(module) for module in modules]
            outer = [graph.node(value) for value in lifted]
        before, node = set(), self.begin
        while node.op != "root":
            before.add(node)
            node = node.prev
        if not before.issuperset(outer):
            unsupported(HOOKS, "saved_tensors_hooks that use a tensor which the block makes or changes")
        pairs = tuple(zip(nodes[::2], nodes[1::2], strict=True))
        self.begin.args = (tuple(saved), pairs, tuple(outer))

    # -- what the hooks find

    def check(self, tr: Trace) -> None:
        """Break before the block if the hooks would have found, or would find, something else than at its end."""
        context = "a block with saved_tensors_hooks that the graph does not end" if self.is_open else None
        for vt, children in self.found:
            now = list(vt.children())
            if len(now) != len(children) or not all(map(is_same, now, children)):
                context = (
                    f"saved_tensors_hooks that use {vt.describe() or vt.python_type().__qualname__}, which changes"
                )
        changed = tr.effects.mutations[self.n_mutations :]
        if changed:
            known = {id(vt) for vt in reachable(self.hooks, with_outside=True)}
            if any(id(vt) in known or isinstance(vt, GlobalsNamespace) for vt in changed):
                context = "saved_tensors_hooks that use an object which changes"
        if context is not None:
            raise Unsupported(HOOKS, context).at(self.step)


def _ambient() -> tuple[Any, Any]:
    """The state in which a hook is called: autocast (which operators that cast switch off), and the rest without the grad mode."""
    _, inference, autocast, *others = AmbientState.compute_key()
    return autocast, (inference, *others)


def _kind(seen: tuple[Any, Any]) -> Any:
    return seen[0].dtype, str(tuple(seen[0].shape))


def _known(number: int, outer: object, tensor: Any, lifted: list[Any]) -> tuple[Any, ...]:
    fixed = all(type(n) is int for n in tensor.shape)
    place = None if outer is None else lifted.index(outer)
    return tuple(Saved(number, place, tensor.dtype, tuple(tensor.shape) if fixed else None))


def reachable(roots: Any, with_outside: bool = False) -> list[VariableTracker]:
    """The objects reachable from these: only objects that the traced code has made or changed, or (`with_outside`) all known ones."""
    found: dict[int, Any] = {}
    pending = list(roots)
    while pending:
        vt = pending.pop()
        if not issubclass(type(vt), VariableTracker) or is_lazy(vt) or id(vt) in found:
            continue
        if vt.source is not None and not vt.mutated and not with_outside:
            continue
        found[id(vt)] = vt
        pending.extend(vt.children())
    return list(found.values())
