"""Functions of the program followed as bodies of one graph node.

Input: a tracker of a function and the trackers of its arguments. Output: `Captured`: the finished graph of the body, the values from
outside that it uses, and its result's structure.
Invariant: a body is followed once, with trackers of its own arguments; it must leave every object from outside as it was, and it must
not change tensors from outside: otherwise the call is a break.
Mirrors `torch/_higher_order_ops/utils.py` and `torch/utils/_pytree.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import SUPPORTED_NODES, TreeSpec, tree_flatten

from ..exc import Unsupported, unsupported
from ..graph.arguments import Packing, packs
from ..graph.bodies import BREAK, Body
from ..graph.builder import MODELS
from ..graph.meta import meta_of_fake
from .base import ObservedException, VariableTracker, is_lazy
from .constant import ConstantVariable
from .dict import DictVariable
from .dispatch import builtin
from .instance import InstanceVariable
from .list import ListVariable
from .symnode import SymNodeVariable
from .tensor import TensorVariable, ValueVariable
from .torch_overrides import FunctionModeStack
from .tuple import TupleVariable, real_tuple

# -- structures


def flatten(tx: Any, vt: VariableTracker, leaves: list[VariableTracker]) -> Callable[[Iterator[VariableTracker]], Any]:
    """Append the tensors of a structure to `leaves`; a function that makes the structure from other tensors."""
    if isinstance(vt, TensorVariable):
        leaves.append(vt)
        return next
    kind = type(vt)
    if kind is DictVariable:
        pairs = [(key, flatten(tx, value, leaves)) for key, value in vt.pairs()]
        return lambda items: _make_dict(tx, [(key, build(items)) for key, build in pairs])
    if issubclass(kind, TupleVariable | ListVariable):
        builders = [flatten(tx, item, leaves) for item in vt.items]
        if kind is ListVariable:
            return lambda items: ListVariable([build(items) for build in builders])
        return lambda items: TupleVariable([build(items) for build in builders], vt.python_type())
    if isinstance(vt, SymNodeVariable):
        unsupported(BREAK, "the body returns a symbolic number")
    if vt.python_type() in SUPPORTED_NODES and not isinstance(vt, ConstantVariable):
        unsupported(BREAK, f"a {vt.python_type().__qualname__} in the arguments or results of the body")
    if isinstance(vt, ConstantVariable) or (vt.source is not None and not vt.mutated):
        return lambda items: vt
    return unsupported(BREAK, f"the body returns a {vt.python_type().__qualname__}")


def mirror(vt: VariableTracker) -> Any:
    """The same structure of real containers, with trackers as leaves, for the functions of `torch.utils._pytree`. What `flatten`
    refuses is a leaf."""
    if isinstance(vt, TensorVariable):
        return vt
    if type(vt) is DictVariable:
        return {key.as_python_constant(): mirror(value) for key, value in vt.pairs()}
    if type(vt) is ListVariable:
        return list(map(mirror, vt.items))
    if type(vt) is TupleVariable:
        return real_tuple(vt.python_type(), tuple(map(mirror, vt.items)))
    return vt


def leaves_of(vt: VariableTracker) -> tuple[list[VariableTracker], TreeSpec]:
    """The leaves of a structure, and what `torch.utils._pytree` says of its form."""
    return tree_flatten(mirror(vt), is_leaf=lambda value: isinstance(value, VariableTracker))


def _make_dict(tx: Any, pairs: list[tuple[Any, Any]]) -> DictVariable:
    result = DictVariable()
    for key, value in pairs:
        result.mp_ass_subscript(tx, key, value)
    return result


def structure(tx: Any, vt: VariableTracker) -> Any:
    """The shape of a structure for comparison: types, keys and constants; None for a tensor."""
    if isinstance(vt, TensorVariable):
        return None
    if isinstance(vt, DictVariable):
        return dict, tuple([(k.as_python_constant(), structure(tx, v)) for k, v in vt.pairs()])
    if isinstance(vt, TupleVariable | ListVariable):
        return vt.python_type(), tuple([structure(tx, item) for item in vt.items])
    return vt.as_python_constant() if vt.is_python_constant() else vt


# -- following a body


def whole(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Make a handler break, if at all, before the call that it models: nothing can be resumed inside a body."""

    @functools.wraps(handler)
    def run(tx: Any, *args: Any, **kwargs: Any) -> Any:
        step = tx.tr.failing_step()
        try:
            return handler(tx, *args, **kwargs)
        except Unsupported as error:
            error.break_step = step
            raise

    return run


def models(function: Any) -> Callable[[Any], Any]:
    """Register the handler of a function with bodies."""
    return lambda handler: builtin(function)(fitting(function, whole(handler)))


def fitting(function: Any, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Have a handler called with what fits the signature of the function that it stands for, else the function raises its own error."""
    signature = inspect.signature(function)

    @functools.wraps(handler)
    def run(tx: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            unsupported("arguments-mismatch", f"{function.__name__}: {error}")
        return handler(tx, *args, **kwargs)

    return run


class Outside:
    """What the traced program has when a body is entered."""

    def __init__(self, tx: Any, extra: list[Any]) -> None:
        self.tr = tx.tr
        self.n_mutations = len(tx.tr.mutations)
        self.objects: dict[int, tuple[Any, list[Any]]] = {}
        pending = [*extra, *tx.tr.mutations]
        frame = tx
        while frame is not None:
            pending.extend(frame.locals)
            pending.extend(frame.stack)
            frame = frame.parent
        while pending:
            vt = pending.pop()
            if not isinstance_of_tracker(vt) or id(vt) in self.objects or (vt.source is not None and not vt.mutated):
                continue
            if isinstance(vt, InstanceVariable) and vt.source is None:
                vt.instance_dict(tx)  # made when first asked for, which is no change
            children = list(vt.children())
            self.objects[id(vt)] = (vt, children)
            pending.extend(children)

    def check(self) -> None:
        """Break if the body has changed any of it."""
        for vt in self.tr.mutations[self.n_mutations :]:
            if not self._is_as_found(vt):
                unsupported(BREAK, f"the body changes {vt.describe()}")
        for vt, children in self.objects.values():
            now = list(vt.children())
            if len(now) != len(children) or not all(map(is_same, now, children)):
                unsupported(BREAK, f"the body changes {vt.describe() or vt.python_type().__qualname__}")

    def _is_as_found(self, vt: Any) -> bool:
        """Whether a dictionary that existed before the frame has its old items again, as after `functional_call`; whether the modes that
        are met in the body are those around the frame."""
        if isinstance(vt, FunctionModeStack):
            return vt.modes == vt.around
        if not isinstance(vt, DictVariable) or type(vt.value) is not dict:
            return False
        pairs = [(key.as_python_constant(), value) for key, value in vt.pairs() if key.is_python_constant()]
        return [key for key, _ in pairs] == list(vt.value) and all(
            self._models(value, vt.value[key]) for key, value in pairs
        )

    def _models(self, vt: Any, value: Any) -> bool:
        if is_lazy(vt) or vt.source is not None:
            return self.tr.heap.get(id(value)) is vt
        return vt.is_python_constant() and vt.as_python_constant() is value


def is_same(v: Any, w: Any) -> bool:
    """Whether this is one object. Keys of dictionaries are made anew whenever they are asked for."""
    if v is w:
        return True
    if type(v) is not ConstantVariable or type(w) is not ConstantVariable:
        return False
    return type(v.value) is type(w.value) and repr(v.value) == repr(w.value)


def isinstance_of_tracker(vt: Any) -> bool:
    """Whether this is a model that has been looked at (frames hold other things too)."""
    return issubclass(type(vt), VariableTracker) and not is_lazy(vt)


class Captured:
    """A followed body: its result's structure and tensors."""

    def __init__(self, tx: Any, body: Body, result: VariableTracker) -> None:
        self.tx = tx
        self.body = body
        self.result = result
        self.leaves: list[VariableTracker] = []
        self.build = flatten(tx, result, self.leaves)

    @property
    def lifted(self) -> list[Any]:
        """The values from outside."""
        return list(self.body.lifted)

    def module(self, lifted: list[Any], leaves: list[VariableTracker] | None = None) -> GraphModule:
        """The body as a module that takes its arguments and `lifted`."""
        graph = self.tx.tr.graph
        with self.body:
            nodes = [graph.node(leaf.proxy) for leaf in (self.leaves if leaves is None else leaves)]
        return self.body.finish(nodes, lifted)

    def rebuild(self, tensors: list[VariableTracker]) -> VariableTracker:
        """The result with other tensors in it."""
        return self.build(iter(tensors))


def capture(
    tx: Any, fn: VariableTracker, args: list[Any], kwargs: dict[str, Any] | None = None, body: Body | None = None
) -> Captured:
    """Follow a function as a body. `body` is given where it has arguments of its own."""
    return follow(tx, lambda: tx.call(fn, args, kwargs or {}), [fn, *args, *(kwargs or {}).values()], body)


def follow(tx: Any, call: Callable[[], VariableTracker], extra: list[Any], body: Body | None = None) -> Captured:
    """Make a call as a body; `extra` are objects from outside that the frames need not hold."""
    outside = Outside(tx, extra)
    body = body or tx.tr.graph.open_body()
    grad = torch.is_grad_enabled()
    with body:
        try:
            result = call()
        except ObservedException as observed:
            unsupported(BREAK, f"the body raises {observed.exc.python_type().__name__}")
    outside.check()
    if torch.is_grad_enabled() != grad:
        unsupported(BREAK, "the body changes the grad mode")
    return Captured(tx, body, result)


class BodyVariable(VariableTracker):
    """A finished body as an argument of a node."""

    def __init__(self, module: GraphModule) -> None:
        self.module = module

    def python_type(self) -> type:
        return GraphModule


@packs(BodyVariable)
def pack_body(packing: Packing, vt: BodyVariable) -> Any:
    return packing.body(vt.module)


def union(captured: list[Captured]) -> list[Any]:
    return list(dict.fromkeys(value for c in captured for value in c.lifted))


def call_function(tx: Any, function: Any, head: list[Any], values: list[Any]) -> list[VariableTracker]:
    """Add a call of one of `graph.functional`'s functions; the tensors that it returns."""
    args = [*head, *map(ValueVariable, values)]
    result = tx.tr.graph.call(tx, "call_function", function, args, memo=False)
    return list(result.items)


def constants(*values: Any) -> list[Any]:
    return [ConstantVariable(v) if type(v) is not tuple else TupleVariable(constants(*v)) for v in values]


# -- arguments and results


def detached(tx: Any, fakes: list[Any], requires_grad: bool) -> list[Any]:
    """Fakes of the operator's results. It has an autograd node of its own."""
    graph = tx.tr.graph
    wanted = requires_grad and torch.is_grad_enabled()
    results = []
    for fake in fakes:
        new = fake.detach()
        if wanted and (new.dtype.is_floating_point or new.dtype.is_complex):
            with graph.propagator.mode, torch.enable_grad():
                new = new.requires_grad_().clone()
        results.append(new)
    return results


def needs_grad(values: list[Any]) -> bool:
    return any(v.meta.requires_grad for v in values if hasattr(v, "meta"))


def body_with(tx: Any, fakes: list[Any]) -> tuple[Body, list[VariableTracker]]:
    """A body with arguments like the given fakes."""
    body = tx.tr.graph.open_body()
    with body:
        values = [body.argument(meta_of_fake(fake), fake) for fake in fakes]
    return body, [MODELS.tensor(v) for v in values]


def cotangent(body: Body, tensor: TensorVariable) -> VariableTracker:
    """An argument of the body that is like the gradient of a tensor. Called inside of the body."""
    meta = tensor.proxy.meta
    if meta.live:
        fake = meta.fake.detach()
        return MODELS.tensor(body.argument(meta_of_fake(fake), fake))
    return MODELS.tensor(body.argument(meta.replace(requires_grad=False, is_leaf=True, offset=0)))


def returning(module: GraphModule) -> GraphModule:
    """The module with its only result instead of a tuple of one."""
    output = next(iter(reversed(module.graph.nodes)))
    output.args = output.args[0]
    module.recompile()
    return module


def fakes_of(tx: Any, items: list[Any]) -> list[Any]:
    """Fakes like the given tensors, without their history."""
    propagator = tx.tr.graph.propagator
    return [propagator.fake_of(item.proxy).detach().requires_grad_(item.proxy.meta.requires_grad) for item in items]
