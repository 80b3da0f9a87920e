"""Higher-order operators and function transforms: functions captured as bodies.

Input: calls of `torch.cond`, loops, scans, `checkpoint`, `torch.func`. Output: one graph node each, with the functions as sub-graphs.
Invariant: a body is followed once, with trackers of its own arguments; it must leave every object from outside as it was, and it must
not change tensors from outside: otherwise the call is a break.
Mirrors `torch/_higher_order_ops`, `torch/_functorch/apis.py` and `eager_transforms.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint

from ..exc import Unsupported, unsupported
from ..graph import functional
from ..graph.bodies import BREAK, Body, shares_memory
from ..graph.builder import Packing, packs
from ..graph.lean import without_compiler
from ..graph.meta import meta_of_fake
from .base import ObservedException, VariableTracker, is_lazy
from .constant import ConstantVariable, is_constant, is_none
from .dict import DictVariable
from .dispatch import builtin
from .list import ListVariable
from .symnode import SymNodeVariable
from .tensor import TensorVariable
from .tuple import TupleVariable

_FUNCTION_TYPE = type(lambda: None)


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
    if isinstance(vt, ConstantVariable) or (vt.source is not None and not vt.mutated):
        return lambda items: vt
    return unsupported(BREAK, f"the body returns a {vt.python_type().__qualname__}")


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
    return lambda handler: builtin(function)(whole(handler))


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
            children = list(vt.children())
            self.objects[id(vt)] = (vt, [identity(child) for child in children])
            pending.extend(children)

    def check(self) -> None:
        """Break if the body has changed any of it."""
        for vt in self.tr.mutations[self.n_mutations :]:
            if not self._is_as_found(vt):
                unsupported(BREAK, f"the body changes {vt.describe()}")
        for vt, children in self.objects.values():
            if [identity(child) for child in vt.children()] != children:
                unsupported(BREAK, f"the body changes {vt.describe() or vt.python_type().__qualname__}")

    def _is_as_found(self, vt: Any) -> bool:
        """Whether a dictionary that existed before the frame has its old items again, as after `functional_call`."""
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


def identity(vt: Any) -> Any:
    """What tells a tracker from others; keys of dictionaries are made anew whenever they are asked for."""
    return (type(vt.value), repr(vt.value)) if type(vt) is ConstantVariable else id(vt)


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


class ValueVariable(VariableTracker):
    """A graph value as an argument of a node."""

    def __init__(self, proxy: Any) -> None:
        self.proxy = proxy

    def python_type(self) -> type:
        return object


@packs(ValueVariable)
def pack_value(packing: Packing, vt: ValueVariable) -> Any:
    return packing.tensor(vt.proxy) if hasattr(vt.proxy, "meta") else packing.symbol(vt.proxy)


def _union(captured: list[Captured]) -> list[Any]:
    return list(dict.fromkeys(value for c in captured for value in c.lifted))


def _call_function(tx: Any, function: Any, head: list[Any], values: list[Any]) -> list[VariableTracker]:
    """Add a call of one of `graph.functional`'s functions; the tensors that it returns."""
    args = [*head, *map(ValueVariable, values)]
    result = tx.tr.graph.call(tx, "call_function", function, args, memo=False)
    return list(result.items)


def _constants(*values: Any) -> list[Any]:
    return [ConstantVariable(v) if type(v) is not tuple else TupleVariable(_constants(*v)) for v in values]


# -- control flow


def _fake_results(captured: Captured, module: GraphModule, lifted: list[Any]) -> list[Any]:
    results = captured.body.run(module, lifted)
    propagator = captured.tx.tr.graph.propagator
    inputs = [propagator.fake_of(v) for v in [*captured.body.argument_values, *lifted] if hasattr(v, "meta")]
    if shares_memory(results, inputs):
        unsupported(BREAK, "a result of the body is, or is a view of, one of its inputs or another result")
    return results


def _same_metadata(a: Any, b: Any) -> bool:
    return isinstance(a, torch.Tensor) and (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)


def _detached(tx: Any, fakes: list[Any], requires_grad: bool) -> list[Any]:
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


def _needs_grad(values: list[Any]) -> bool:
    return any(v.meta.requires_grad for v in values if hasattr(v, "meta"))


def _tensors(tx: Any, *lists: VariableTracker) -> list[list[Any]]:
    """The items of sequences that must be tensors."""
    result = []
    for vt in lists:
        items = tx.tr.unpack(tx, vt)
        if not all(isinstance(item, TensorVariable) for item in items):
            unsupported(BREAK, "an argument that is not a tensor")
        result.append(items)
    return result


@models(cond_op)
def cond(tx: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Any = None) -> VariableTracker:
    """`torch.cond`. A condition that is known picks its branch."""
    args = [] if operands is None else tx.tr.unpack(tx, operands)
    if not isinstance(pred, TensorVariable):
        known = pred.nb_bool(tx) if isinstance(pred, SymNodeVariable) else pred
        if not known.is_python_constant():
            unsupported(BREAK, f"cond on a {pred.python_type().__name__}")
        return tx.call(true_fn if known.as_python_constant() else false_fn, args)
    branches = [capture(tx, fn, args) for fn in (true_fn, false_fn)]
    if structure(tx, branches[0].result) != structure(tx, branches[1].result):
        unsupported(BREAK, "the branches of cond return different structures")
    lifted = _union(branches)
    modules = [branch.module(lifted) for branch in branches]
    first, second = [_fake_results(b, m, lifted) for b, m in zip(branches, modules, strict=True)]
    if not all(map(_same_metadata, first, second)):
        unsupported(BREAK, "the branches of cond return tensors with different metadata")
    graph = tx.tr.graph
    nodes = [graph.body_node(m) for m in modules]
    needs_grad = _needs_grad(lifted)
    outs = graph.call_with_results(
        tx,
        cond_op,
        [graph.node(pred.proxy), *nodes, tuple([graph.node(v) for v in lifted])],
        {},
        _detached(tx, first, needs_grad),
    )
    return branches[0].rebuild(outs)


def _body_with(tx: Any, fakes: list[Any]) -> tuple[Body, list[VariableTracker]]:
    """A body with arguments like the given fakes."""
    body = tx.tr.graph.open_body()
    with body:
        values = [body.argument(meta_of_fake(fake), fake) for fake in fakes]
    return body, [TensorVariable(v) for v in values]


def _fakes(tx: Any, items: list[Any]) -> list[Any]:
    propagator = tx.tr.graph.propagator
    return [propagator.fake_of(item.proxy).detach().requires_grad_(item.proxy.meta.requires_grad) for item in items]


def _slices(tx: Any, items: list[Any]) -> list[Any]:
    """Fakes of the first slices along dimension 0."""
    with tx.tr.graph.propagator.mode, torch.no_grad():
        slices = [tx.tr.graph.propagator.fake_of(item.proxy).detach()[0].clone() for item in items]
    return [s.requires_grad_(item.proxy.meta.requires_grad) for s, item in zip(slices, items, strict=True)]


def _loop_node(
    tx: Any, op: Any, captured: list[Captured], before: list[list[Any]], make_fakes: Callable[[list[Any]], list[Any]]
) -> list[VariableTracker]:
    """The node `op(*bodies, *lists of tensors, lifted)`; `make_fakes` gives its results from those of the last body."""
    graph = tx.tr.graph
    lifted = _union(captured)
    modules = [c.module(lifted) for c in captured]
    results = [_fake_results(c, m, lifted) for c, m in zip(captured, modules, strict=True)][-1]
    fakes = make_fakes(results)
    values = [item.proxy for items in before for item in items]
    args = [graph.body_node(m) for m in modules]
    args.extend(tuple([graph.node(item.proxy) for item in items]) for items in before)
    args.append(tuple([graph.node(v) for v in lifted]))
    return graph.call_with_results(tx, op, args, {}, _detached(tx, fakes, _needs_grad([*values, *lifted])))


def _expect_like(results: list[Any], expected: list[Any], what: str) -> None:
    if len(results) != len(expected) or not all(map(_same_metadata, results, expected)):
        unsupported(BREAK, f"the body of {what} returns something else than it takes")


@models(while_loop_op)
def while_loop(tx: Any, cond_fn: Any, body_fn: Any, carried: Any, additional: Any) -> VariableTracker:
    (items,) = _tensors(tx, carried)
    if tx.tr.unpack(tx, additional):
        unsupported(BREAK, "while_loop with additional inputs")
    if torch.is_grad_enabled() and _needs_grad([i.proxy for i in items]):
        unsupported(BREAK, "while_loop with gradients")
    captured = []
    for fn in (cond_fn, body_fn):
        fakes = _fakes(tx, items)
        body, args = _body_with(tx, fakes)
        captured.append(capture(tx, fn, args, body=body))
    test, step = captured
    if not isinstance(test.result, TensorVariable) or test.result.proxy.meta.dtype is not torch.bool:
        unsupported(BREAK, "the condition of while_loop is no boolean tensor")

    def results(outs: list[Any]) -> list[Any]:
        _expect_like(outs, fakes, "while_loop")
        return outs

    graph = tx.tr.graph
    lifted = _union(captured)
    if torch.is_grad_enabled() and _needs_grad(lifted):
        unsupported(BREAK, "while_loop with gradients")
    with test.body:
        test_node = graph.node(test.result.proxy)
    test_module = _returning(test.body.finish([test_node], lifted), test_node)
    step_module = step.module(lifted)
    outs = results(_fake_results(step, step_module, lifted))
    args_ = [graph.body_node(test_module), graph.body_node(step_module), tuple([graph.node(i.proxy) for i in items])]
    args_.append(tuple([graph.node(v) for v in lifted]))
    return TupleVariable(graph.call_with_results(tx, while_loop_op, args_, {}, _detached(tx, outs, False)))


def _returning(module: GraphModule, node: Any) -> GraphModule:
    """The module with one result instead of a tuple of one."""
    output = next(iter(reversed(module.graph.nodes)))
    output.args = (node,)
    module.recompile()
    return module


@models(associative_scan_op)
def associative_scan(tx: Any, combine_fn: Any, xs: Any, additional_inputs: Any) -> VariableTracker:
    (items,) = _tensors(tx, xs)
    slices = [*_slices(tx, items), *_slices(tx, items)]
    body, args = _body_with(tx, slices)
    captured = capture(tx, combine_fn, args, body=body)

    def results(outs: list[Any]) -> list[Any]:
        _expect_like(outs, slices[: len(items)], "associative_scan")
        return _fakes(tx, items)

    return captured.rebuild(_loop_node(tx, associative_scan_op, [captured], [items], results))


def _stacked(tx: Any, outs: list[Any], length: Any) -> list[Any]:
    with tx.tr.graph.propagator.mode, torch.no_grad():
        return [out.detach().expand(length, *out.shape).clone(memory_format=torch.contiguous_format) for out in outs]


@models(scan_op)
def scan(tx: Any, combine_fn: Any, init: Any, xs: Any, additional_inputs: Any) -> VariableTracker:
    carry, items = _tensors(tx, init, xs)
    fakes = _fakes(tx, carry)
    body, args = _body_with(tx, [*fakes, *_slices(tx, items)])
    captured = capture(tx, combine_fn, args, body=body)

    def results(outs: list[Any]) -> list[Any]:
        _expect_like(outs[: len(fakes)], fakes, "scan")
        return [*outs[: len(fakes)], *_stacked(tx, outs[len(fakes) :], items[0].proxy.meta.shape[0])]

    return captured.rebuild(_loop_node(tx, scan_op, [captured], [carry, items], results))


@models(map_impl)
def map_over(tx: Any, f: Any, xs: Any, pos_args: Any) -> VariableTracker:
    items, rest = _tensors(tx, xs, pos_args)
    body, args = _body_with(tx, _slices(tx, items))
    captured = capture(tx, f, [*args, *rest], body=body)
    return captured.rebuild(
        _loop_node(tx, map_impl, [captured], [items], lambda outs: _stacked(tx, outs, items[0].proxy.meta.shape[0]))
    )


# -- checkpoint

_CHECKPOINT_OPTIONS = frozenset({"use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop"})


@models(checkpoint)
def checkpoint_call(tx: Any, function: Any, *args: Any, **kwargs: Any) -> VariableTracker:
    """`torch.utils.checkpoint.checkpoint`: a body that the backward pass may compute again. Without gradients a plain call."""
    options = {name: kwargs.pop(name) for name in list(kwargs) if name in _CHECKPOINT_OPTIONS}
    if "context_fn" in kwargs or not is_constant(*options.values()):
        unsupported(BREAK, "checkpoint with a context_fn")
    if not torch.is_grad_enabled():
        return tx.call(function, list(args), kwargs)
    captured = capture(tx, function, list(args), kwargs)
    lifted = captured.lifted
    reentrant = options.get("use_reentrant")
    if reentrant is not None and reentrant.as_python_constant():
        leaves = [a.proxy for a in args if isinstance(a, TensorVariable)]
        if not _needs_grad(leaves):
            unsupported(BREAK, "reentrant checkpoint whose arguments need no gradient")
    module = captured.module(lifted)
    captured.body.run(module, lifted)
    if not captured.leaves:
        return captured.result
    tensors = _call_function(tx, tag_activation_checkpoint, [BodyVariable(module)], lifted)
    return captured.rebuild(tensors)


# -- function transforms


class TransformedVariable(VariableTracker):
    """What `torch.vmap(f, …)`, `torch.func.grad(f, …)` and the like return."""

    def __init__(self, transform: Any, call: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.transform = transform
        self.call = call
        self.args = args
        self.kwargs = kwargs

    def python_type(self) -> type:
        return _FUNCTION_TYPE

    def children(self) -> Any:
        return [*self.args, *self.kwargs.values()]

    def tp_call(self, tx: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        return whole(self.call)(tx, self, args, kwargs)

    def tp_getattro(self, tx: Any, name: str) -> VariableTracker:
        fn = self.args[0]
        return (
            fn.tp_getattro(tx, name)
            if fn.tp_getattro
            else unsupported(BREAK, f"attribute {name} of a transformed function")
        )

    def emit_new(self, cg: Any) -> None:
        cg.load_callable(self.transform)
        for arg in (*self.args, *self.kwargs.values()):
            cg.load(arg)
        cg.asm.call(len(self.args) + len(self.kwargs), tuple(self.kwargs))

    def option(self, name: str, position: int, default: Any) -> Any:
        """A constant option of the transform."""
        found = self.kwargs.get(name)
        if found is None and len(self.args) > position:
            found = self.args[position]
        if found is None:
            return default
        if not found.is_python_constant():
            unsupported(BREAK, f"{name} of a transform is not constant")
        return found.as_python_constant()


def _transform(function: Any) -> Callable[[Any], Any]:
    """Register what calling the result of a transform does."""

    def decorate(call: Any) -> Any:
        @builtin(function)
        def make(tx: Any, func: Any, *args: Any, **kwargs: Any) -> VariableTracker:
            return TransformedVariable(function, call, [func, *args], kwargs)

        return call

    return decorate


class Arguments:
    """The arguments of a transformed function, taken apart: the tensors and how to put others in their place."""

    def __init__(self, tx: Any, args: list[Any]) -> None:
        self.leaves: list[Any] = []
        self.spans: list[range] = []
        self.builders = []
        for arg in args:
            start = len(self.leaves)
            self.builders.append(flatten(tx, arg, self.leaves))
            self.spans.append(range(start, len(self.leaves)))

    def rebuild(self, leaves: list[Any]) -> list[Any]:
        """The arguments with other tensors."""
        items = iter(leaves)
        return [build(items) for build in self.builders]

    def rebuild_one(self, position: int, leaves: Any) -> Any:
        """One argument with other tensors."""
        return self.builders[position](iter(leaves))


def _in_dims(dims: Any, n_args: int, spans: list[range], args: list[Any]) -> list[Any]:
    """The batched dimension of each tensor among the arguments."""
    if dims is None or isinstance(dims, int):
        return [dims for span in spans for _ in span]
    if len(dims) != n_args:
        unsupported(BREAK, "in_dims does not fit the arguments")
    result: list[Any] = []
    for dim, span in zip(dims, spans, strict=True):
        flat = [dim] * len(span) if dim is None or isinstance(dim, int) else _leaves_of(dim)
        if len(flat) != len(span):
            unsupported(BREAK, "in_dims does not fit the arguments")
        result.extend(flat)
    return result


def _leaves_of(dims: Any) -> list[Any]:
    if isinstance(dims, dict):
        dims = list(dims.values())
    return [leaf for d in dims for leaf in _leaves_of(d)] if isinstance(dims, tuple | list) else [dims]


def _example(propagator: Any, leaf: Any, dim: int | None) -> Any:
    """The fake of one example: the tensor without its batch dimension, which may be empty."""
    fake = propagator.fake_of(leaf.proxy).detach()
    if dim is not None:
        shape, stride = list(fake.shape), list(fake.stride())
        if not -len(shape) <= dim < len(shape):
            unsupported(BREAK, "in_dims does not fit the arguments")
        del shape[dim], stride[dim]
        with propagator.mode, without_compiler, torch.no_grad():
            fake = torch.empty_strided(shape, stride, dtype=fake.dtype, device=fake.device)
    return fake.requires_grad_(leaf.proxy.meta.requires_grad)


@_transform(torch.vmap)
def call_vmap(tx: Any, transformed: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
    """`vmap(f, in_dims, out_dims, randomness, chunk_size)(*args)`: the body sees one example."""
    if kwargs:
        unsupported(BREAK, "keyword arguments of a vmapped function")
    given = Arguments(tx, args)
    in_dims = _in_dims(transformed.option("in_dims", 1, 0), len(args), given.spans, args)
    propagator = tx.tr.graph.propagator
    fakes = []
    for leaf, dim in zip(given.leaves, in_dims, strict=True):
        fakes.append(_example(propagator, leaf, dim))
    body, leaves = _body_with(tx, fakes)
    body.is_transformed = True
    captured = capture(tx, transformed.args[0], given.rebuild(leaves), body=body)
    lifted = captured.lifted
    module = captured.module(lifted)
    dims = (*in_dims, *[None] * len(lifted))
    out_dims = transformed.option("out_dims", 2, 0)
    flat_out = tuple(_leaves_of(out_dims)) if not isinstance(out_dims, int) else (out_dims,) * len(captured.leaves)
    if len(flat_out) != len(captured.leaves):
        unsupported(BREAK, "out_dims does not fit the results")
    head = [BodyVariable(module), *_constants(dims, flat_out, transformed.option("randomness", 3, "error"))]
    head.extend(_constants(transformed.option("chunk_size", 4, None)))
    values = [*(leaf.proxy for leaf in given.leaves), *lifted]
    return captured.rebuild(_call_function(tx, functional.vmap, head, values))


def _differentiated(
    tx: Any, fn: Any, args: list[Any], kwargs: dict[str, Any], argnums: tuple[int, ...]
) -> tuple[Arguments, Captured, tuple[int, ...]]:
    """Follow a function that is to be differentiated: the tensors of the arguments `argnums` need a gradient."""
    given = Arguments(tx, args)
    argnums = tuple([a % len(args) for a in argnums])
    wrt = tuple([i for a in argnums for i in given.spans[a]])
    fakes = _fakes(tx, given.leaves)
    for i in wrt:
        if not (fakes[i].dtype.is_floating_point or fakes[i].dtype.is_complex):
            unsupported(BREAK, "derivative by an integer tensor")
        fakes[i].requires_grad_()
    body, leaves = _body_with(tx, fakes)
    body.is_transformed = True
    with tx.tr.state.grad_mode(True):
        captured = capture(tx, fn, given.rebuild(leaves), kwargs, body)
    return given, captured, wrt


def _numbers(argnums: Any) -> tuple[int, ...]:
    return argnums if isinstance(argnums, tuple) else (argnums,)


def _main_and_aux(tx: Any, captured: Captured, has_aux: bool) -> tuple[int, Any, Any]:
    """How many tensors the differentiated result has, and builders for it and for the auxiliary one."""
    if not has_aux:
        return len(captured.leaves), captured.build, None
    parts = captured.result.items if isinstance(captured.result, TupleVariable) else []
    if len(parts) != 2:
        unsupported(BREAK, "has_aux without a pair")
    leaves: list[Any] = []
    main = flatten(tx, parts[0], leaves)
    return len(leaves), main, flatten(tx, parts[1], [])


def _values(given: Arguments, lifted: list[Any]) -> list[Any]:
    return [*(leaf.proxy for leaf in given.leaves), *lifted]


def _gradient(tx: Any, transformed: Any, args: list[Any], kwargs: dict[str, Any], with_value: bool) -> VariableTracker:
    argnums = transformed.option("argnums", 1, 0)
    has_aux = transformed.option("has_aux", 2, False)
    given, captured, wrt = _differentiated(tx, transformed.args[0], args, kwargs, _numbers(argnums))
    n, main, aux = _main_and_aux(tx, captured, has_aux)
    if n != 1:
        unsupported(BREAK, "gradient of something else than one number")
    lifted = captured.lifted
    head = [BodyVariable(captured.module(lifted)), *_constants(wrt)]
    outs = _call_function(tx, functional.grad, head, _values(given, lifted))
    items = iter(outs)
    grads = [given.builders[a % len(args)](items) for a in _numbers(argnums)]
    result = TupleVariable(grads) if isinstance(argnums, tuple) else grads[0]
    value = main(items)
    extra = aux(items) if has_aux else None
    if with_value:
        return TupleVariable([result, TupleVariable([value, extra]) if has_aux else value])
    return TupleVariable([result, extra]) if has_aux else result


@_transform(torch.func.grad)
def call_grad(tx: Any, transformed: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
    return _gradient(tx, transformed, args, kwargs, False)


@_transform(torch.func.grad_and_value)
def call_grad_and_value(tx: Any, transformed: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
    return _gradient(tx, transformed, args, kwargs, True)


def _jacobian(mode: str) -> Any:
    def call(tx: Any, transformed: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        argnums = transformed.option("argnums", 1, 0)
        has_aux = transformed.option("has_aux", 2, False)
        given, captured, wrt = _differentiated(tx, transformed.args[0], args, kwargs, _numbers(argnums))
        n, main, aux = _main_and_aux(tx, captured, has_aux)
        lifted = captured.lifted
        head = [BodyVariable(captured.module(lifted)), *_constants(mode, wrt, n)]
        items = iter(_call_function(tx, functional.jacobian, head, _values(given, lifted)))
        rows = []
        for _ in range(n):
            row = [given.builders[a % len(args)](items) for a in _numbers(argnums)]
            rows.append(TupleVariable(row) if isinstance(argnums, tuple) else row[0])
        result = main(iter(rows))
        return TupleVariable([result, aux(items)]) if has_aux else result

    return call


_transform(torch.func.jacrev)(_jacobian("jacrev"))
_transform(torch.func.jacfwd)(_jacobian("jacfwd"))


def _is_true(vt: Any) -> bool:
    return vt is not None and not is_none(vt) and bool(vt.as_python_constant())


@models(torch.func.jvp)
def call_jvp(
    tx: Any, func: Any, primals: Any, tangents: Any, *, strict: Any = None, has_aux: Any = None
) -> VariableTracker:
    args = tx.tr.unpack(tx, primals)
    tangent_leaves: list[Any] = []
    flatten(tx, tangents, tangent_leaves)
    given, captured, wrt = _differentiated(tx, func, args, {}, tuple(range(len(args))))
    n, main, aux = _main_and_aux(tx, captured, _is_true(has_aux))
    lifted = captured.lifted
    head = [BodyVariable(captured.module(lifted)), *_constants(wrt, n), TupleVariable(tangent_leaves)]
    items = iter(_call_function(tx, functional.jvp, head, _values(given, lifted)))
    result = [main(items), main(items)]
    return TupleVariable([*result, aux(items)] if aux is not None else result)


class PullbackVariable(VariableTracker):
    """The second result of `torch.func.vjp`. Each call differentiates the body anew."""

    def __init__(self, given: Arguments, captured: Captured, module: GraphModule, wrt: tuple[int, ...], n: int) -> None:
        self.given = given
        self.captured = captured
        self.module = module
        self.wrt = wrt
        self.n = n

    def python_type(self) -> type:
        return _FUNCTION_TYPE

    def tp_call(self, tx: Any, args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
        leaves: list[Any] = []
        for arg in args:
            flatten(tx, arg, leaves)
        if len(leaves) != self.n:
            unsupported(BREAK, "cotangents do not fit the results")
        head = [BodyVariable(self.module), *_constants(self.wrt, self.n), TupleVariable(leaves)]
        outs = _call_function(tx, functional.vjp, head, _values(self.given, self.captured.lifted))
        return TupleVariable(self.given.rebuild(outs))

    def emit_new(self, cg: Any) -> None:
        unsupported("reconstruct", "the function that torch.func.vjp returns")


@models(torch.func.vjp)
def call_vjp(tx: Any, func: Any, *primals: Any, has_aux: Any = None) -> VariableTracker:
    given, captured, wrt = _differentiated(tx, func, list(primals), {}, tuple(range(len(primals))))
    n, main, aux = _main_and_aux(tx, captured, _is_true(has_aux))
    lifted = captured.lifted
    module = captured.module(lifted)
    if len(wrt) != len(given.leaves):
        unsupported(BREAK, "vjp")
    zeros = _call_function(tx, functional.run, [BodyVariable(module)], _values(given, lifted))
    items = iter(zeros)
    result = [main(items), PullbackVariable(given, captured, module, wrt, n)]
    return TupleVariable([*result, aux(items)] if aux is not None else result)
