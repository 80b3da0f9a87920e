"""A program run eagerly and compiled, backward pass included, and what the two leave behind."""

import copy

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_leaves

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same
from tests.helpers import seeds

BACKENDS = ("eager", "aot_eager")


def outcome(fn, args, others=()):
    """The results and their structure, the arguments after the call, and the gradients of arguments and of `others`."""
    for other in others:
        other.grad = None
    seeds.seed()
    args = copy.deepcopy(args)
    result = fn(*args)
    results, structure = tree_flatten(result)
    roots = [t for t in results if isinstance(t, torch.Tensor) and t.requires_grad]
    if roots:
        sum((root.abs() if root.is_complex() else root).sum() for root in roots).backward()
    leaves = [t for t in tree_leaves(args) if isinstance(t, torch.Tensor)]
    grads = [t.grad for t in [*leaves, *others] if t.is_leaf]
    return results, str(structure), [t.detach() for t in leaves], grads


def check(fn, args, others=(), backends=BACKENDS, fullgraph=True, graphs=1):
    """Compiled, a program does what it does eagerly, in so many graphs. Returns the graphs of the last backend."""
    expected = outcome(fn, args, others)
    for name in backends:
        counter = CompileCounterWithBackend(name)
        found = outcome(dynamo_lite.compile(fn, backend=counter, fullgraph=fullgraph), args, others)
        assert same(expected, found), name
        assert counter.frame_count == graphs, name
    return counter.graphs


def check_break(fn, args, others=(), slug="higher-order-operator"):
    """A program whose operator ends the graph: refused where one graph is wanted, else right."""
    with pytest.raises(dynamo_lite.exc.Unsupported) as raised:
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(*copy.deepcopy(args))
    assert raised.value.slug == slug, raised.value
    expected, found = outcome(fn, args, others), outcome(dynamo_lite.compile(fn, backend="eager"), args, others)
    assert same(expected, found)
    return raised.value


def nodes_of(graphs):
    """The names of what all graphs, and the bodies in them, call."""
    modules = [m for graph in graphs for m in graph.modules() if isinstance(m, torch.fx.GraphModule)]
    return {
        str(getattr(n.target, "_name", n.target)) for m in modules for n in m.graph.nodes if n.op == "call_function"
    }
