"""flex_attention: score and mask functions as bodies, block masks made outside and inside of captured code."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dynamo_lite
from dynamo_lite.testing import EagerAndRecordGraphs
from tests.helpers.graph_counts import whole

MASK = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 16, 16, device="cpu")


def x(**options):
    return torch.arange(256.0).reshape(1, 2, 16, 8).div(100).requires_grad_(options.get("requires_grad", False))


def test_score_function():
    whole(lambda q: flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + (i - j)), x())


def test_score_function_that_reads_a_tensor():
    def biased(q, bias):
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + bias[h])

    whole(biased, x(), torch.tensor([1.0, 2.0]))


def test_block_mask_from_outside():
    whole(lambda q: flex_attention(q, q, q, block_mask=MASK), x())


def test_block_mask_made_inside():
    def masked(q):
        mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 16, 16, device="cpu")
        return flex_attention(q, q, q, block_mask=mask)

    whole(masked, x())


def test_nested_compile_region():
    @torch.compiler.nested_compile_region
    def region(a):
        return a.sin()

    whole(lambda a: region(a) + region(a), x())


def test_functions_transformed_outside():
    doubled = torch.vmap(torch.vmap(lambda row: row * 2))
    slope = torch.func.grad(lambda a: (a * a).sum())
    both = torch.func.grad_and_value(lambda a: (a * a).sum())
    whole(lambda a: (doubled(a), slope(a), both(a)), x())


def test_checks_of_absent_masks_are_no_nodes():
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    recorder = EagerAndRecordGraphs()
    x = torch.rand(2, 3, 4)
    found = dynamo_lite.compile(attention, backend=recorder)(x, x, x)
    assert torch.equal(found[0], attention(x, x, x)[0])
    assert "_canonical_mask" not in recorder.graphs[0].code
