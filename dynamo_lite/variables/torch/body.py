"""Functions of the program that are followed as bodies of one graph node.

Input: a tracker of a function and the trackers of its arguments. Output: `CapturedBody`: the finished graph of the body, the values
from outside that it uses, and the structure of its result.
Invariant: a body is followed once, with trackers of its own for the arguments. It must leave every object and tensor from outside as it
was; otherwise the call is a break.
Mirrors `torch/_higher_order_ops/utils.py` and `torch/utils/_pytree.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch.fx import GraphModule

from dynamo_lite.exc import UncapturedOperator, Unsupported, unsupported
from dynamo_lite.graph.bodies import BREAK, Body
from dynamo_lite.graph.core.arguments import MODELS, Packing, packs
from dynamo_lite.graph.core.meta import meta_of_fake
from dynamo_lite.graph.core.values import SymValue
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.generators.generator import GeneratorVariable
from dynamo_lite.variables.objects.instance import InstanceVariable
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker, is_lazy
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.dispatch import Handler, builtin

from .overrides import FunctionModeStack
from .symnode import SymNodeVariable
from .tensor import TensorVariable, ValueVariable

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder
    from dynamo_lite.interp.frame import Frame

# -- structures


class BodyPart:
    """A flattened structure. `build` rebuilds it from tensors; `cls` is the class of a container, `torch.Tensor`, or None for an object
    without tensors inside; `keys` are the keys of a dictionary; `parts` are the structures of the items."""

    __slots__ = ("build", "cls", "keys", "parts")

    def __init__(
        self, build: Callable[[Iterator[VariableTracker]], Any], cls: type | None, parts: Any = (), keys: Any = ()
    ) -> None:
        self.build = build
        self.cls = cls
        self.parts: list[BodyPart] = list(parts)
        self.keys: list[Any] = list(keys)

    def __call__(self, items: Iterator[VariableTracker]) -> Any:
        return self.build(items)

    def built(self, items: Iterator[VariableTracker]) -> list[VariableTracker]:
        """The parts, of tensors."""
        return [part(items) for part in self.parts]

    @property
    def form(self) -> tuple[Any, ...]:
        """The form of a structure: the same for structures that differ in their tensors only."""
        return self.cls, tuple(self.keys), tuple([part.form for part in self.parts])

    @property
    def is_of_tensors(self) -> bool:
        """Whether there is nothing else inside."""
        return self.cls is torch.Tensor or (self.cls is not None and all(part.is_of_tensors for part in self.parts))

    def spread(self, dims: Any) -> list[Any]:
        """The dimension of each tensor, where `dims` has the upper part of the structure; objects that are no tensors have None."""
        if self.cls is torch.Tensor:
            return [dims] if dims is None or type(dims) is int else unsupported(BREAK, "dimensions that do not fit")
        if self.cls is None:
            return [] if dims is None else unsupported(BREAK, "a dimension for what is no tensor")
        if dims is None or type(dims) is int:
            return [dim for part in self.parts for dim in part.spread(dims)]
        if type(dims) is not self.cls or len(dims) != len(self.parts) or set(self.keys) - set(dims):
            unsupported(BREAK, "dimensions that do not fit")
        wanted = [dims[key] for key in self.keys] if self.keys else dims
        return [dim for part, own in zip(self.parts, wanted, strict=True) for dim in part.spread(own)]


def flatten(tx: Frame, vt: VariableTracker, leaves: list[VariableTracker]) -> BodyPart:
    """Append the tensors of a structure to `leaves`; the structure, to be made of other tensors."""
    return Flattening(tx, leaves).of(vt)


class Flattening:
    """Flattens structures as `torch.utils._pytree` does.

    `with_ints`: ints are leaves as well. `is_outside` is given where the function is only called: then what existed before the call is
    kept as it is, and an object that the function has made may be of any class.
    """

    def __init__(
        self,
        tx: Frame,
        leaves: list[VariableTracker],
        with_ints: bool = False,
        is_outside: Callable[[VariableTracker], bool] | None = None,
    ) -> None:
        self.tx = tx
        self.leaves = leaves
        self.with_ints = with_ints
        self.is_outside = is_outside
        self.entered: set[int] = set()

    def of(self, vt: VariableTracker) -> BodyPart:
        """Take one structure apart."""
        if isinstance(vt, TensorVariable) or (self.with_ints and (is_int(vt) or isinstance(vt, SymNodeVariable))):
            self.leaves.append(vt)
            return BodyPart(next, torch.Tensor)
        if isinstance(vt, SymNodeVariable):
            return unsupported(BREAK, "the body returns a symbolic number")
        if isinstance(vt, ConstantVariable) or (self.is_outside is not None and self.is_outside(vt)):
            return BodyPart(lambda items: vt, None)
        if id(vt) in self.entered:
            unsupported(BREAK, "the body returns an object that contains itself, or one object twice")
        self.entered.add(id(vt))
        part = self._node(vt)
        if self.is_outside is None:
            self.entered.discard(id(vt))  # what appears twice is made twice
        return part

    def _node(self, vt: VariableTracker) -> BodyPart:
        kind, cls = type(vt), vt.python_type()
        if kind is DictVariable:
            return self._dictionary(vt)
        if issubclass(kind, TupleVariable | ListVariable):
            parts = [self.of(item) for item in vt.items]
            made = BodyPart(ListVariable, cls, parts)
            if kind is ListVariable:
                made.build = lambda items: ListVariable(made.built(items))
            else:
                made.build = lambda items: TupleVariable(made.built(items), cls)
            return made
        registered = pytree.SUPPORTED_NODES.get(cls)
        if registered is not None:
            return self._registered(vt, registered)
        if vt.source is not None and not vt.mutated:
            return BodyPart(lambda items: vt, None)
        if self.is_outside is not None and kind is InstanceVariable and vt.source is None:
            return self._new_object(vt)
        return unsupported(BREAK, f"the body returns a {cls.__qualname__}")

    def _dictionary(self, vt: DictVariable) -> BodyPart:
        pairs = list(vt.pairs())
        keys = [key for key, _ in pairs]
        made = BodyPart(next, dict, [self.of(value) for _, value in pairs])
        made.keys = [key.as_python_constant() if key.is_python_constant() else key for key in keys]
        made.build = lambda items: _make_dict(self.tx, list(zip(keys, made.built(items), strict=True)))
        return made

    def _registered(self, vt: VariableTracker, node: pytree.NodeDef) -> BodyPart:
        """An object of a class that the program, or torch, has registered."""
        tx = self.tx
        children, context = tx.tr.unpack(tx, tx.call(tx.tr.build_constant_object(node.flatten_fn), [vt]))
        made = BodyPart(next, vt.python_type(), [self.of(child) for child in tx.tr.unpack(tx, children)])
        unflatten = tx.tr.build_constant_object(node.unflatten_fn)
        made.build = lambda items: tx.call(unflatten, [ListVariable(made.built(items)), context])
        return made

    def _new_object(self, vt: InstanceVariable) -> BodyPart:
        """An object that the function has made: its attributes become the tensors that the operator returns."""
        attributes = vt.instance_dict(self.tx)
        if attributes is None or vt.slots:
            return unsupported(BREAK, f"the body returns a {vt.python_type().__qualname__}")
        pairs = list(attributes.pairs())
        made = BodyPart(next, vt.python_type(), [self.of(value) for _, value in pairs])

        def build(items: Iterator[VariableTracker]) -> VariableTracker:
            for (key, _), value in zip(pairs, made.built(items), strict=True):
                attributes.mp_ass_subscript(self.tx, key, value)
            return vt

        made.build = build
        return made


def is_int(vt: VariableTracker) -> bool:
    """Whether this is an int, constant or not."""
    if isinstance(vt, SymNodeVariable):
        return type(vt.proxy) is SymValue and vt.python_type() is int
    return type(vt) is ConstantVariable and type(vt.value) is int


def _make_dict(tx: Frame, pairs: list[tuple[Any, Any]]) -> DictVariable:
    result = DictVariable()
    for key, value in pairs:
        result.mp_ass_subscript(tx, key, value)
    return result


def structure(tx: Frame, vt: VariableTracker) -> Any:
    """The shape of a structure for comparison: types, keys and constants."""
    if isinstance(vt, TensorVariable):
        return torch.Tensor
    if is_int(vt):
        return int
    if isinstance(vt, DictVariable):
        return dict, tuple([(k.as_python_constant(), structure(tx, v)) for k, v in vt.pairs()])
    if isinstance(vt, TupleVariable | ListVariable):
        return vt.python_type(), tuple([structure(tx, item) for item in vt.items])
    return ("constant", vt.as_python_constant()) if vt.is_python_constant() else vt


# -- following a body


def whole(handler: Callable[..., Any], is_always_captured: bool = False) -> Callable[..., Any]:
    """Make a handler break, if at all, before the call that it models: nothing can be resumed inside a body. `is_always_captured`: eager
    execution captures the functions as well, and raises where that fails."""

    @functools.wraps(handler)
    def run(tx: Frame, *args: Any, **kwargs: Any) -> Any:
        step = tx.tr.thread.failing_step()
        try:
            return handler(tx, *args, **kwargs)
        except Unsupported as error:
            error.break_step = step
            if is_always_captured:
                UncapturedOperator.become(error)
            raise

    return run


def models(function: Callable[..., Any]) -> Callable[[Handler], Handler]:
    """Register the handler of a function with bodies."""
    return lambda handler: builtin(function)(fitting(function, whole(handler)))


def fitting(function: Callable[..., Any], handler: Callable[..., Any]) -> Callable[..., Any]:
    """Call a handler only with arguments that fit the signature of the function that it models; for others that function raises."""
    signature = inspect.signature(function)

    @functools.wraps(handler)
    def run(tx: Frame, *args: Any, **kwargs: Any) -> Any:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            unsupported("arguments-mismatch", f"{function.__name__}: {error}")
        return handler(tx, *args, **kwargs)

    return run


class OperatorModel(NamedTuple):
    """The treatment of calls of a higher-order operator: `kind` is one of the three constants below; `unless` describes calls that break
    the graph although the function itself does not."""

    kind: str
    handler: Callable[..., Any]
    unless: str


FOLLOWED = "captured: the function is followed as part of the graph around it"
REGION = "captured: a node with the function as a sub-graph"
NODE = "kept as a node"

UNSHARED = "a result shares memory with an argument or another result"

OPERATORS: dict[str, OperatorModel] = {}
"""The name under which torch registers a higher-order operator, some of which it does when they are first used → its model."""


def operator_model(
    name: str, kind: str, unless: str = "", is_always_captured: bool = False
) -> Callable[[Handler], Handler]:
    """Register the handler of a higher-order operator. Breaks inside of a sub-graph come before the call; see `whole`."""

    def decorate(handler: Handler) -> Handler:
        made = whole(handler, is_always_captured) if kind == REGION else handler
        OPERATORS[name] = OperatorModel(kind, made, unless)
        return handler

    return decorate


class Outside:
    """The state of the traced program when a body is entered: what the frames have, from the innermost one on or from its caller."""

    def __init__(self, tx: Frame, extra: list[Any], of_callers: bool = False) -> None:
        self.tr = tx.tr
        self.n_mutations = len(tx.tr.effects.mutations)
        self.objects: dict[int, tuple[Any, list[Any], dict[str, Any]]] = {}
        pending = [*extra, *tx.tr.effects.mutations]
        frame = tx.parent if of_callers else tx
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
            elif getattr(vt, "is_late", False):
                vt.load_if_short()
            children = list(vt.children())
            self.objects[id(vt)] = (vt, children, _position(vt))
            pending.extend(children)

    def has(self, vt: VariableTracker) -> bool:
        """Whether an object is one of them."""
        return id(vt) in self.objects or (vt.source is not None and not vt.mutated)

    def check(self, changing: Body | None = None) -> None:
        """Break if the body has changed any of it; where it may, if it has put tensors of its own into it."""
        changed = [vt for vt in self.tr.effects.mutations[self.n_mutations :] if not self._is_as_found(vt)]
        for vt, children, position in self.objects.values():
            now = list(vt.children())
            if len(now) != len(children) or not all(map(is_same, now, children)) or _position(vt) != position:
                changed.append(vt)
        for vt in changed:
            if changing is None:
                unsupported(BREAK, f"the body changes {vt.describe() or vt.python_type().__qualname__}")
            if holds_value_of(vt, changing):
                unsupported(BREAK, f"the body puts a tensor into {vt.describe() or vt.python_type().__qualname__}")

    def _is_as_found(self, vt: VariableTracker) -> bool:
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

    def _models(self, vt: VariableTracker, value: object) -> bool:
        if is_lazy(vt) or vt.source is not None:
            return self.tr.heap.get(id(value)) is vt
        return vt.is_python_constant() and vt.as_python_constant() is value


def _position(vt: VariableTracker) -> dict[str, Any]:
    """What an object has beside other objects: how far an iterator has come, where a generator waits."""
    found = {name: value for name, value in vars(vt).items() if type(value) in (int, bool) and name not in _NOTES}
    if isinstance(vt, GeneratorVariable) and vt.frame is not None:
        found["frame"] = vt.frame.ip
    return found


_NOTES = frozenset({"mutated", "mutated_at"})
"""Notes of the analysis about a change, which are there although the object may be as it was."""


def holds_value_of(vt: VariableTracker, body: Body) -> bool:
    """Whether a tensor, or a number, that a body has made is in an object, or in something inside."""
    pending = [vt]
    seen: dict[int, VariableTracker] = {}  # kept alive: some models are made when they are asked for
    while pending:
        vt = pending.pop()
        if not isinstance_of_tracker(vt) or id(vt) in seen:
            continue
        seen[id(vt)] = vt
        if isinstance(vt, TensorVariable | SymNodeVariable) and body.is_made_inside(vt.proxy):
            return True
        pending.extend(vt.children())
    return False


def is_same(v: object, w: object) -> bool:
    """Whether this is one object. Keys of dictionaries are made anew whenever they are asked for."""
    if v is w:
        return True
    if type(v) is not ConstantVariable or type(w) is not ConstantVariable:
        return False
    return type(v.value) is type(w.value) and repr(v.value) == repr(w.value)


def isinstance_of_tracker(vt: VariableTracker) -> bool:
    """Whether this is a model that has been looked at (frames hold other things too)."""
    return issubclass(type(vt), VariableTracker) and not is_lazy(vt)


class CapturedBody:
    """A followed body: its result's structure and tensors; for the options see `Flattening`."""

    def __init__(self, tx: Frame, body: Body, result: VariableTracker, **options: Any) -> None:
        self.tx = tx
        self.body = body
        self.result = result
        self.leaves: list[VariableTracker] = []
        self.build = Flattening(tx, self.leaves, **options).of(result)
        with body:
            for leaf in self.leaves:
                argument_of(tx.tr.graph, leaf)  # one from outside is lifted

    @property
    def lifted(self) -> list[Any]:
        """The values from outside."""
        return list(self.body.lifted)

    def module(self, lifted: list[Any], leaves: list[VariableTracker] | None = None) -> GraphModule:
        """The body as a module that takes its arguments and `lifted`."""
        graph = self.tx.tr.graph
        with self.body:
            nodes = [argument_of(graph, leaf) for leaf in (self.leaves if leaves is None else leaves)]
        return self.body.finish(nodes, lifted)

    def rebuild(self, tensors: list[VariableTracker]) -> VariableTracker:
        """The result with other tensors in it."""
        return self.build(iter(tensors))


def argument_of(graph: GraphBuilder, vt: VariableTracker) -> Any:
    """The argument of a node that stands for a tensor or an int."""
    return vt.value if type(vt) is ConstantVariable else graph.node(vt.proxy)


def capture(
    tx: Frame,
    fn: VariableTracker,
    args: list[Any],
    kwargs: dict[str, Any] | None = None,
    body: Body | None = None,
    with_ints: bool = False,
    only_calls: bool = False,
    runs_once: bool = False,
) -> CapturedBody:
    """Follow a function as a body. `body` is given where it has arguments of its own. `only_calls`: the result is that of the call.
    `runs_once`: see `followed`."""
    extra = [fn, *args, *(kwargs or {}).values()]
    return follow(tx, lambda: tx.call(fn, args, kwargs or {}), extra, body, with_ints, only_calls, runs_once)


def follow(
    tx: Frame,
    call: Callable[[], VariableTracker],
    extra: list[Any],
    body: Body | None = None,
    with_ints: bool = False,
    only_calls: bool = False,
    runs_once: bool = False,
) -> CapturedBody:
    """Make a call as a body; `extra` are objects from outside that the frames need not hold."""
    body, result, outside = followed(tx, call, extra, body, runs_once)
    return CapturedBody(tx, body, result, with_ints=with_ints, is_outside=outside.has if only_calls else None)


def followed(
    tx: Frame,
    call: Callable[[], VariableTracker],
    extra: list[Any],
    body: Body | None = None,
    runs_once: bool = False,
) -> tuple[Body, VariableTracker, Outside]:
    """The body of a call, its result, and the state before the call. `runs_once`: the body runs where the call is, and once, so it may
    change objects, to which it may not give tensors that it makes."""
    outside = Outside(tx, extra)
    body = body or tx.tr.graph.open_body()
    grad = torch.is_grad_enabled()
    with body:
        try:
            result = call()
        except ObservedException as observed:
            unsupported(BREAK, f"the body raises {observed.exc.python_type().__name__}")
    outside.check(body if runs_once else None)
    if torch.is_grad_enabled() != grad:
        unsupported(BREAK, "the body changes the grad mode")
    return body, result, outside


class BodyVariable(VariableTracker):
    """A finished body as an argument of a node."""

    def __init__(self, module: GraphModule) -> None:
        self.module = module

    def python_type(self) -> type:
        return GraphModule


@packs(BodyVariable)
def pack_body(packing: Packing, vt: BodyVariable) -> Any:
    return packing.body(vt.module)


def union(captured: list[CapturedBody]) -> list[Any]:
    return list(dict.fromkeys(value for c in captured for value in c.lifted))


def call_function(tx: Frame, function: object, head: list[Any], values: list[Any]) -> list[VariableTracker]:
    """Add a call of one of `graph.core.functional`'s functions; the tensors that it returns."""
    args = [*head, *map(ValueVariable, values)]
    result = tx.tr.graph.call(tx, "call_function", function, args, memo=False)
    return list(result.items)


def constants(*values: Any) -> list[Any]:
    return [ConstantVariable(v) if type(v) is not tuple else TupleVariable(constants(*v)) for v in values]


# -- arguments and results


def detached(tx: Frame, fakes: list[Any], requires_grad: bool) -> list[Any]:
    """Fakes of the operator's results, which may include ints. The operator is one node of autograd."""
    graph = tx.tr.graph
    wanted = tx.tr.state.records(requires_grad)
    results = []
    for fake in fakes:
        if not isinstance(fake, torch.Tensor):
            results.append(fake)
            continue
        new = fake.detach()
        if wanted and (new.dtype.is_floating_point or new.dtype.is_complex):
            with graph.propagator.mode, torch.enable_grad():
                new = new.requires_grad_().clone()
        results.append(new)
    return results


def needs_grad(values: list[Any]) -> bool:
    return any(v.meta.requires_grad for v in values if hasattr(v, "meta"))


def body_with(tx: Frame, fakes: list[Any], transform: str = "") -> tuple[Body, list[VariableTracker]]:
    """A body with arguments like the given fakes, of which some may be symbolic ints, for a function transform or an operator."""
    body = tx.tr.graph.open_body()
    body.transform = transform
    args = []
    with body:
        for fake in fakes:
            if isinstance(fake, torch.Tensor):
                args.append(MODELS.tensor(body.argument(meta_of_fake(fake), fake)))
            else:
                args.append(MODELS.symbol(body.number(fake)))
    return body, args


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


def fakes_of(tx: Frame, items: list[Any]) -> list[Any]:
    """Fakes like the given tensors, without their history."""
    propagator = tx.tr.graph.propagator
    return [propagator.fake_of(item.proxy).detach().requires_grad_(item.proxy.meta.requires_grad) for item in items]
