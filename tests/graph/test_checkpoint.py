"""`torch.utils.checkpoint` with a context function that decides which results are kept, and over the parts of a sequence."""

import functools
import sys
import types
import warnings

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


def written(message):
    """As `warnings` itself, which pytest has replaced."""
    sys.stderr.write(message.category.__name__ + ": " + str(message.message)[:60] + "\n")


@pytest.fixture
def said(monkeypatch, capsys):
    """What some calls return and warn of, where warnings are written as outside of tests."""
    monkeypatch.setattr(warnings, "showwarning", warnings._showwarning_orig)
    monkeypatch.setattr(warnings, "_showwarnmsg_impl", types.FunctionType(written.__code__, vars(warnings)))

    def run(fn, requires_grad):
        found = []
        with warnings.catch_warnings():
            warnings.resetwarnings()
            warnings.simplefilter("always")
            for _ in range(2):
                x, weight = torch.ones(3, requires_grad=requires_grad), torch.full((3,), 2.0, requires_grad=True)
                y = fn(x, weight)
                if y.requires_grad:
                    y.sum().backward()
                found.append(repr((y.detach(), y.requires_grad, y is x, x.grad, weight.grad)))
        return found, capsys.readouterr().err

    return run


def without_grad(x, weight):
    with torch.no_grad():
        return checkpoint(torch.sin, x)


WITHOUT_USE_REENTRANT = {
    "plain": lambda x, weight: checkpoint(torch.sin, x),
    "None": lambda x, weight: checkpoint(torch.sin, x, use_reentrant=None),
    "a parameter": lambda x, weight: checkpoint(lambda t: t * weight, x) * 3,
    "without gradients": without_grad,
}


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("fn", WITHOUT_USE_REENTRANT.values(), ids=WITHOUT_USE_REENTRANT)
def test_without_use_reentrant(fn, requires_grad, said):
    """Torch warns at each call, and takes the reentrant implementation."""
    expected = said(fn, requires_grad)
    assert "the use_reentrant" in expected[1]
    assert said(dynamo_lite.compile(fn, backend="eager", fullgraph=True), requires_grad) == expected


def test_a_parameter_that_is_returned(said):
    """Without gradients torch detaches it in place. (With them its backward has no end.)"""

    def fn(x, weight):
        return checkpoint(lambda t: weight, x)

    assert said(dynamo_lite.compile(fn, backend="eager"), False) == said(fn, False)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_an_argument_that_is_returned(requires_grad, said):
    """A reentrant checkpoint makes a view of it."""

    def fn(x, weight):
        return checkpoint(lambda t: t, x)

    assert said(dynamo_lite.compile(fn, backend="eager"), requires_grad) == said(fn, requires_grad)


@pytest.mark.parametrize("filter", ["always", "error"])
def test_warnings_that_somebody_sees(filter):
    fn = WITHOUT_USE_REENTRANT["plain"]

    def run(fn):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter(filter)
            try:
                fn(torch.ones(3, requires_grad=True), None)
            except UserWarning as warning:
                return str(warning)
        return [str(warning.message) for warning in found]

    expected = run(fn)
    assert len(expected) == 1 or "use_reentrant" in expected
    assert run(dynamo_lite.compile(fn, backend="eager")) == expected
