"""What models of transformers and timm met, in the small."""

import torch

from dynamo_lite.testing import run_both


def test_types_of_numbers_as_dtypes():
    def f(x):
        size = torch.zeros(3, dtype=int), torch.ones(2, dtype=bool), torch.zeros_like(x, dtype=complex)
        return size, x.to(float), x.sum(dtype=float), torch.softmax(x, -1, dtype=float)

    run = run_both(f, torch.randn(3))
    assert run.graph_count == 1
    assert not run.breaks
    dtypes = {node.kwargs.get("dtype") for node in run.graphs[0].graph.nodes}
    assert {torch.int64, torch.bool, torch.complex128, torch.float64} <= dtypes


def test_a_type_that_the_operator_refuses():
    def f(x):
        try:
            return x.new_zeros(2, device=int)
        except TypeError:
            return x + 1

    run_both(f, torch.randn(3))
