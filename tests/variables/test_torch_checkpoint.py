"""`torch.utils.checkpoint` in its forms: results, gradients and random numbers are those of eager execution."""

import functools
from collections import namedtuple

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, run_both

Pair = namedtuple("Pair", "first second")
MATRIX_PRODUCTS = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return self.dropout(self.linear(x)).relu() * scale


class Weighted:
    """A callable object that is no module."""

    def __init__(self):
        self.weight = torch.randn(4, 4, requires_grad=True)

    def __call__(self, x):
        return (x @ self.weight).sin()

    def cosine(self, x):
        return (x @ self.weight).cos()


class Model(nn.Module):
    def __init__(self, run):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.stack = nn.Sequential(*[Layer() for _ in range(4)])
        self.run = run

    def forward(self, x):
        return self.run(self, x)


def keep_products(context, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in MATRIX_PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE


def selective_contexts():
    return create_selective_checkpoint_contexts(keep_products)


WEIGHTED = Weighted()


def families(reentrant):
    run = functools.partial(checkpoint, use_reentrant=reentrant)
    return {
        "module": lambda m, x: run(m.layers[0], x).sin(),
        "method": lambda m, x: run(m.layers[0].forward, x),
        "bound_call": lambda m, x: run(m.layers[0].__call__, x),
        "partial": lambda m, x: run(functools.partial(m.layers[0], scale=2.0), x),
        "callable_object": lambda m, x: run(WEIGHTED, x),
        "method_of_an_object": lambda m, x: run(WEIGHTED.cosine, x),
        "torch_function": lambda m, x: run(torch.sin, x),
        "closure": lambda m, x: (lambda y: run(lambda a: (a * y).sin(), x))(x.exp()),
        "sequential": lambda m, x: checkpoint_sequential(m.stack, 2, x, use_reentrant=reentrant),
        "sequential_of_a_list": lambda m, x: checkpoint_sequential(list(m.stack), 3, x, use_reentrant=reentrant),
        "loop": lambda m, x: functools.reduce(lambda h, layer: run(layer, h), m.layers, x),
        "nested": lambda m, x: run(lambda a: run(m.layers[0], a.sin()).cos(), x),
        "tuple": lambda m, x: run(lambda a: (a.sin(), a.cos(), 3), x),
        "identity": lambda m, x: run(lambda a: a, x) * 2,
        "view": lambda m, x: run(lambda a: a.view(-1), x).sin(),
        "other_arguments": lambda m, x: run(lambda a, none, n, text: a.sin() * n, x, None, 3, "text"),
        "no_random_state": lambda m, x: run(lambda a: a.sin().cos(), x, preserve_rng_state=False),
    }


FORMS = {f"{name}-{kind}": (form, 1) for kind in (False, True) for name, form in families(kind).items()}
FORMS |= {
    "keywords": (lambda m, x: checkpoint(m.layers[0], x, scale=x.sum(), use_reentrant=False), 1),
    "dict": (lambda m, x: checkpoint(lambda a: {"a": a.sin(), "b": [a.cos()]}, x, use_reentrant=False), 1),
    "namedtuple": (lambda m, x: checkpoint(lambda a: Pair(a.sin(), a.cos()), x, use_reentrant=False), 1),
    "no_gradient_of_x": (lambda m, x: checkpoint(m.layers[0], x.detach(), use_reentrant=False), 1),
    "no_early_stop": (lambda m, x: checkpoint(m.layers[0], x, use_reentrant=False, early_stop=False), 1),
    "no_contexts": (lambda m, x: checkpoint(m.layers[0], x, use_reentrant=False, context_fn=noop_context_fn), 1),
    "operators_kept": (
        lambda m, x: checkpoint(
            m.layers[0],
            x,
            use_reentrant=False,
            context_fn=functools.partial(create_selective_checkpoint_contexts, MATRIX_PRODUCTS),
        ),
        1,
    ),
    "policy": (lambda m, x: checkpoint(m.layers[0], x, use_reentrant=False, context_fn=selective_contexts), 1),
}

# A reentrant checkpoint is an autograd.Function: what it returns has gradients that its body's results alone do not have, and the reverse.
ONLY_EAGER = {
    "dict": lambda m, x: checkpoint(lambda a: {"a": a.sin()}, x, use_reentrant=True),
    "list": lambda m, x: checkpoint(lambda a: [a.sin()], x, use_reentrant=True),
    "namedtuple": lambda m, x: checkpoint(lambda a: Pair(a.sin(), a.cos()), x, use_reentrant=True),
    "nested_tuple": lambda m, x: checkpoint(lambda a: (a.sin(), (a.cos(),)), x, use_reentrant=True),
    "detached": lambda m, x: checkpoint(lambda a: (a.sin(), a.detach() * 2), x, use_reentrant=True),
    "unconnected": lambda m, x: checkpoint(lambda a: (a.sin(), torch.ones(3)), x, use_reentrant=True),
}


def outcome(fn, model):
    """What two training steps compute: results, which of them need gradients, gradients, and the next random number."""
    torch.manual_seed(1)
    seen = []
    for _ in range(2):
        x = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
        model.zero_grad()
        result = fn(x)
        tensors = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        sum((t * t).sum() for t in tensors if t.requires_grad).backward()
        grads = [None if p.grad is None else p.grad.clone() for p in (x, *model.parameters())]
        kinds = [(type(result), t.requires_grad) for t in tensors]
        seen.append((result, kinds, grads, torch.rand(1)))
    return torch.utils._pytree.tree_flatten(seen)


def check(form, backend, graphs):
    plain, model = Model(form), Model(form)
    expected, spec = outcome(plain, plain)
    counter = CompileCounterWithBackend(backend)
    found, found_spec = outcome(dynamo_lite.compile(model, backend=counter), model)
    assert str(found_spec) == str(spec)
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, other)
        else:
            assert one == other
    assert counter.frame_count == graphs


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", FORMS)
def test_forms(name, backend):
    form, graphs = FORMS[name]
    check(form, backend, graphs)


@pytest.mark.parametrize("name", ONLY_EAGER)
def test_results_of_reentrant_checkpoints_that_get_or_lose_gradients(name):
    run = run_both(Model(ONLY_EAGER[name]), torch.ones(4, 4).requires_grad_())
    assert [b.slug for b in run.breaks] == ["higher-order-operator"]


def test_is_checkpoint_valid():
    engine = torch.autograd.Variable._execution_engine

    def fn(x):
        return x.sin() if engine.is_checkpoint_valid() else x.cos()

    assert run_both(fn, torch.ones(3), _fullgraph=True).graph_count == 1
