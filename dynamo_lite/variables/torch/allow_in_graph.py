"""Functions given to `allow_in_graph` or `nonstrict_trace`: each call is one node of the graph, and the function is not followed.

Input: calls of such functions. Output: a node, and the trackers of what the call returns.
Invariant: the node gets only values that a graph can hold. Objects of classes registered with `torch.utils._pytree` are flattened before
the node and rebuilt in the call; modules and constants of the program are guarded.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa.typeobject import qualname_of
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable

from .symnode import SymNodeVariable
from .tensor import TensorVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

Builder = Callable[[Iterator[Any]], Any]
"""Makes an argument of the values of the graph that it holds."""


def call_allowed(
    tx: Frame, fn: Callable[..., Any], args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """A node of the graph that calls `fn`. Objects of classes registered with `torch.utils._pytree` are flattened and rebuilt in
    the call; modules are the program's own objects."""
    if all(map(_is_argument, [*args, *kwargs.values()])):
        try:
            return tx.tr.graph.call(tx, "call_function", fn, args, kwargs, memo=False)
        except Unsupported as error:
            if error.slug != "graph-argument-type":
                raise
    leaves: list[VariableTracker] = []
    make_args = [_builder(tx, arg, leaves) for arg in args]
    make_kwargs = {name: _builder(tx, arg, leaves) for name, arg in kwargs.items()}
    specs: list[pytree.TreeSpec] = []

    @functools.wraps(fn)
    def on_leaves(*values: Any) -> list[Any]:
        items = iter(values)
        host_args = [make(items) for make in make_args]
        result = fn(*host_args, **{name: make(items) for name, make in make_kwargs.items()})
        results, spec = pytree.tree_flatten(result)
        if specs and spec != specs[0]:
            raise RuntimeError(f"{fn.__qualname__} returned another structure than while it was captured")
        specs[:] = [spec]
        return results

    results = tx.tr.graph.call(tx, "call_function", on_leaves, leaves, {}, memo=False)
    return _made_of(tx, specs[0], iter(results.items))


def _is_argument(vt: VariableTracker) -> bool:
    """Whether a node can have this as an argument."""
    if isinstance(vt, ListVariable | TupleVariable):
        return vt.python_type() in (list, tuple, torch.Size) and all(map(_is_argument, vt.items))
    if type(vt) is DictVariable:
        return all(_is_argument(value) for _, value in vt.pairs())
    return isinstance(vt, TensorVariable | SymNodeVariable | ConstantVariable)


def _builder(tx: Frame, vt: VariableTracker, leaves: list[VariableTracker]) -> Builder:
    """Append the values of the graph in an argument to `leaves`."""
    if isinstance(vt, TensorVariable | SymNodeVariable):
        leaves.append(vt)
        return next
    if vt.is_python_constant():
        value = vt.as_python_constant()
        return lambda items: value
    cls = vt.python_type()
    if type(vt) is DictVariable:
        makers = {key.as_python_constant(): _builder(tx, value, leaves) for key, value in vt.pairs()}
        return lambda items: {key: make(items) for key, make in makers.items()}
    if cls is list or cls is tuple:
        parts = [_builder(tx, item, leaves) for item in vt.items]
        return lambda items: cls([make(items) for make in parts])
    if pytree.is_constant_class(cls):
        return _existing_object(tx, vt, ir.EQUALS)
    if issubclass(cls, nn.Module):
        return _existing_object(tx, vt, ir.IS)
    node = _registration(cls)
    if node is None:
        return unsupported("graph-argument-type", f"{qualname_of(cls)} {vt.describe()}")
    children, context = tx.tr.unpack(tx, tx.call(tx.tr.build_constant_object(node.flatten_fn), [vt]))
    inner = _builder(tx, ListVariable(tx.tr.unpack(tx, children)), leaves)
    make_context = _builder(tx, context, leaves)
    return lambda items: node.unflatten_fn(inner(items), make_context(items))


def _registration(cls: type) -> Any:
    return pytree.SUPPORTED_NODES.get(namedtuple if pytree.is_namedtuple_class(cls) else cls)


def _existing_object(tx: Frame, vt: VariableTracker, check: int) -> Builder:
    """An object of the program, which has to be as it was found."""
    real = getattr(vt, "value", None)
    parts = real.modules() if issubclass(type(real), nn.Module) else ()
    states = [getattr(owner, "__dict__", {}) for owner in (real, *parts)]
    held = {id(part) for state in states for part in (state, *state.values())}
    changed = any(id(getattr(change, "value", None)) in held for change in tx.tr.effects.mutations)
    if vt.source is None or vt.mutated or changed:
        return unsupported("graph-argument-type", f"{qualname_of(vt.python_type())} {vt.describe()}")
    tx.tr.guard(vt.source, check, real)
    return lambda items: real


def _made_of(tx: Frame, spec: pytree.TreeSpec, items: Iterator[VariableTracker]) -> VariableTracker:
    """The tracker of a structure, from the trackers of its leaves."""
    if spec.is_leaf():
        return next(items)
    children = [_made_of(tx, child, items) for child in spec.children()]
    if spec.type is tuple:
        return TupleVariable(children)
    if spec.type is list:
        return ListVariable(children)
    unflatten = tx.tr.build_constant_object(pytree.SUPPORTED_NODES[spec.type].unflatten_fn)
    return tx.call(unflatten, [ListVariable(children), tx.tr.wrap_new(spec.context)])
