"""Libraries whose containers of tensors are leaves for `torch.vmap`, since they put functions of their own in the place of torch's."""

import pytest
import torch
from torch._C._functorch import is_batchedtensor
from torch._functorch import vmap as torch_vmap
from torch._functorch.vmap import _add_batch_dim, _maybe_remove_batch_dim
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite.testing import CompileCounter, run_both, same
from tests.helpers.against_eager import check


class Rows:
    """Tensors that have the first dimensions in common."""

    def __init__(self, tensors, batch_size):
        self.tensors = tensors
        self.batch_size = batch_size

    def __getitem__(self, key):
        return self.tensors[key]

    def map(self, function):
        return Rows({key: function(value) for key, value in self.tensors.items()}, self.batch_size)

    def dim(self):
        return len(self.batch_size)

    def without(self, dim, level):
        sizes = tuple(n for i, n in enumerate(self.batch_size) if i != dim)
        return Rows({k: _add_batch_dim(v, dim, level) for k, v in self.tensors.items()}, sizes)

    def with_dim(self, name, level, size, dim):
        sizes = (*self.batch_size[:dim], size, *self.batch_size[dim:])
        return Rows({k: _maybe_remove_batch_dim(name, v, level, size, dim) for k, v in self.tensors.items()}, sizes)


def is_rows(value):
    return isinstance(value, Rows)


def process(in_dims, args, func):
    flat, spec = pytree.tree_flatten(args, is_leaf=is_rows)
    dims = pytree._broadcast_to_and_flatten(in_dims, spec)
    sizes = [(a.batch_size if is_rows(a) else a.shape)[d] for a, d in zip(flat, dims, strict=True) if d is not None]
    if any(size != sizes[0] for size in sizes):
        raise ValueError("vmap over other sizes")
    return sizes[0], dims, flat, spec


def create(dims, flat, level, spec):
    made = []
    for dim, arg in zip(dims, flat, strict=True):
        if dim is None:
            made.append(arg)
        else:
            made.append(arg.without(dim, level) if is_rows(arg) else _add_batch_dim(arg, dim, level))
    return pytree.tree_unflatten(made, spec)


def unwrap(outputs, out_dims, level, size, func):
    flat, spec = pytree.tree_flatten(outputs, is_leaf=is_rows)
    dims = pytree._broadcast_to_and_flatten(out_dims, spec)
    made = []
    for output, dim in zip(flat, dims, strict=True):
        whole = output.with_dim("f", level, size, dim) if is_rows(output) else None
        made.append(_maybe_remove_batch_dim("f", output, level, size, dim) if whole is None else whole)
    return pytree.tree_unflatten(made, spec)


@pytest.fixture(autouse=True)
def library(monkeypatch):
    pytree.register_pytree_node(Rows, lambda r: (list(r.tensors.values()), (list(r.tensors), r.batch_size)), _made)
    monkeypatch.setattr(torch_vmap, "_process_batched_inputs", process)
    monkeypatch.setattr(torch_vmap, "_create_batched_inputs", create)
    monkeypatch.setattr(torch_vmap, "_unwrap_batched", unwrap)
    yield
    pytree._deregister_pytree_node(Rows)


def _made(tensors, context):
    return Rows(dict(zip(context[0], tensors, strict=True)), context[1])


def rows(a):
    return Rows({"a": a, "b": a + 1}, a.shape[:1])


def active(r):
    return r.map(lambda t: t * 2) if torch._C._are_functorch_transforms_active() else r


X = torch.arange(12.0).reshape(4, 3)
PROGRAMS = {
    "an item": lambda a: torch.vmap(lambda r: r["a"] * r["b"].sum())(rows(a)),
    "its size": lambda a: torch.vmap(lambda r: r["a"] * (len(r.batch_size) + 1))(rows(a)),
    "a result": lambda a: torch.vmap(lambda r: r.map(torch.sin))(rows(a)),
    "a new one": lambda a: torch.vmap(lambda t: Rows({"c": t * 2}, ()))(a),
    "with a tensor": lambda a: torch.vmap(lambda r, t: (r["a"] * t, r), in_dims=(0, 0))(rows(a), a),
    "for all": lambda a: torch.vmap(lambda r, t: r["a"] @ t, in_dims=(None, 0))(rows(a), a),
    "only tensors": lambda a: torch.vmap(lambda t: t * 2, out_dims=1)(a),
    "chunks": lambda a: torch.vmap(lambda t: t * 2, chunk_size=2)(a),
    "in vmap": lambda a: torch.vmap(lambda r: torch.vmap(lambda s: s["a"] * r["b"])(rows(a)))(rows(a)),
    "asks whether it is transformed": lambda a: torch.vmap(active)(rows(a)),
    "asks whether a tensor is batched": lambda a: torch.vmap(
        lambda r: r["a"] * (1 + is_batchedtensor(r["b"] * 2) + 5 * is_batchedtensor(a * 2))
    )(rows(a)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name):
    check(PROGRAMS[name], (X.clone().requires_grad_(),))


@pytest.mark.parametrize("name", ["an item", "a result", "a new one", "with a tensor", "only tensors"])
def test_sizes_that_vary(name):
    fn = PROGRAMS[name]
    backend = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for n in (3, 4, 5, 6):
        a = torch.arange(3.0 * n).reshape(n, 3)
        assert same(pytree.tree_leaves(compiled(a)), pytree.tree_leaves(fn(a)))
    assert backend.frame_count == 2


def test_one_from_outside():
    check(lambda r: torch.vmap(lambda s: s["a"] * (len(s.batch_size) + 1))(r), (rows(X),))


def test_its_own_errors():
    run_both(lambda a: torch.vmap(lambda r, s: r["a"] * s)(rows(a), a.t()), X, _backend="eager")


def test_tensordict():
    tensordict = pytest.importorskip("tensordict")
    given = tensordict.TensorDict({"a": X, "b": X + 1}, batch_size=[4])
    check(lambda t: torch.vmap(lambda u: (u["a"] * len(u.batch_size), u + 1))(t), (given,))
