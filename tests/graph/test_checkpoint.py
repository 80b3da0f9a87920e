"""`torch.utils.checkpoint` with a context function that decides which results are kept, and over the parts of a sequence."""

import functools

import pytest
import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import dynamo_lite


def keep_matmul(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


def selective(w):
    contexts = functools.partial(create_selective_checkpoint_contexts, keep_matmul)
    return checkpoint(lambda a: (a @ a).sin(), w, use_reentrant=False, context_fn=contexts)


def by_list(w):
    contexts = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    return checkpoint(lambda a: (a @ a).sin(), w, use_reentrant=False, context_fn=contexts)


def sequential(w):
    return checkpoint_sequential([torch.sin, torch.cos], 2, w, use_reentrant=False)


def drops(a):
    return torch.nn.functional.dropout(a.sin(), 0.5, True) * a


def dropout(w):
    return checkpoint(drops, w, use_reentrant=False)


def nested(w):
    return checkpoint(lambda a: checkpoint(drops, a, use_reentrant=False).cos(), w * 2, use_reentrant=False)


@pytest.mark.parametrize("fn", [dropout, nested])
def test_the_same_random_numbers_again(fn):
    def run(f):
        torch.manual_seed(0)
        w = torch.arange(16.0).reshape(4, 4).div(16).requires_grad_()
        out = f(w)
        out.sum().backward()
        return out.detach(), w.grad

    torch.testing.assert_close(run(dynamo_lite.compile(fn, backend="eager", fullgraph=True)), run(fn))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [selective, by_list, sequential])
def test_gradients(fn, backend):
    def gradient(f):
        w = torch.arange(16.0).reshape(4, 4).div(16).requires_grad_()
        f(w).sum().backward()
        return w.grad

    torch.testing.assert_close(gradient(dynamo_lite.compile(fn, backend=backend, fullgraph=True)), gradient(fn))
