"""Sparse tensors: made, changed in place, and their gradients."""

import warnings

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log


def sparse_gradients(x):
    return x.to_dense() * 2


def sparse_made(x):
    made = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 2]]), x, (4, 3), check_invariants=False)
    return made.to_dense() * 2


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (sparse_gradients, lambda: torch.eye(3).to_sparse().requires_grad_()),
        (sparse_gradients, lambda: torch.eye(3).to_sparse_csr().requires_grad_()),
        (sparse_made, lambda: torch.ones(2, requires_grad=True)),
    ],
)
def test_gradients_of_sparse_tensors_are_left_to_eager(fn, make):
    expected, given = make(), make()
    fn(expected).sum().backward()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "backend")
        result = dynamo_lite.compile(fn, backend="aot_eager", fullgraph=True)(given)
    result.sum().backward()
    assert "gradients of torch.sparse" in log.frames[-1].graphs[-1].notes["AOTAutograd"][0]
    assert given.grad.layout is expected.grad.layout
    assert torch.equal(given.grad.to_dense(), expected.grad.to_dense())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("make", [lambda: torch.eye(3).to_sparse(), lambda: torch.eye(3).to_sparse_csr()])
def test_sparse_tensors_that_are_changed_in_place(make):
    expected, given = make(), make()

    def change(s):
        s.mul_(3)
        return s + s

    wanted, result = change(expected), dynamo_lite.compile(change, backend="eager", fullgraph=True)(given)
    assert torch.equal(result.to_dense(), wanted.to_dense())
    assert torch.equal(given.to_dense(), expected.to_dense()) and given.layout is expected.layout
