"""Higher-order operators, checkpoint and function transforms: one graph, with equal results and gradients."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite.testing import run_both

W = torch.arange(9.0).reshape(3, 3) / 10
MODULE = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))


def x():
    return torch.arange(12.0).reshape(4, 3) / 7 - 0.5


def vjp(a):
    out, pull = torch.func.vjp(torch.sin, a)
    return out, pull(out)


def gradient_of_functional_call(a):
    params = {name: p.detach() for name, p in MODULE.named_parameters()}
    return torch.func.grad(lambda p: torch.func.functional_call(MODULE, p, (a,)).sum())(params)


ONE_GRAPH = {
    "cond": lambda a: torch.cond(a.sum() > 0, lambda b: b.sin() @ W, lambda b: b.cos(), (a * 2,)),
    "cond_on_a_constant": lambda a: torch.cond(a.shape[0] > 2, lambda b: b.sin(), lambda b: b.cos(), (a,)),
    "nested_cond": lambda a: torch.cond(
        a.sum() > 0,
        lambda b: torch.cond(b.mean() > 1, lambda c: c @ W, lambda c: c * 2, (b,)),
        lambda b: b.cos(),
        (a + 1,),
    ),
    "while_loop": lambda a: torch.while_loop(
        lambda i, b: i < 5, lambda i, b: (i + 1, b * 2 + W[0]), (torch.tensor(0), a)
    ),
    "scan": lambda a: scan(lambda carry, b: (carry + b, carry * b), torch.zeros(3), a),
    "map": lambda a: map_over(lambda b, c: b * c + 1, a, a[0] + 1),
    "associative_scan": lambda a: associative_scan(lambda b, c: b * c, a, 0, combine_mode="generic"),
    "checkpoint": lambda a: checkpoint(MODULE, a, use_reentrant=False),
    "vmap": lambda a: torch.vmap(lambda row: (row.sum(), row * 2))(a),
    "vmap_in_dims": lambda a: torch.vmap(lambda row, w: row @ w, in_dims=(0, None), out_dims=1)(a, W),
    "vmap_of_module": lambda a: torch.vmap(MODULE)(a),
    "grad": lambda a: torch.func.grad(lambda b: (b @ W).square().sum())(a),
    "grad_and_value": lambda a: torch.func.grad_and_value(lambda b: (b.sum(), {"aux": b * 2}), has_aux=True)(a),
    "argnums": lambda a: torch.func.grad(lambda b, c: (b * c).sum(), argnums=(0, 1))(a, a + 1),
    "per_sample": lambda a: torch.vmap(torch.func.grad(lambda w, r: (r @ w).square().sum()), in_dims=(None, 0))(W, a),
    "second_derivative": lambda a: torch.func.grad(lambda b: torch.func.grad(lambda c: (c**3).sum())(b).sum())(a),
    "jacrev": lambda a: torch.func.jacrev(lambda b: b.sin() * 2)(a),
    "jacfwd": lambda a: torch.func.jacfwd(lambda b: (b.sin(), b.sum()))(a),
    "hessian": lambda a: torch.func.hessian(lambda b: (b**3).sum())(a),
    "jvp": lambda a: torch.func.jvp(torch.sin, (a,), (a * 2,)),
    "vjp": vjp,
    "functional_call": lambda a: torch.func.functional_call(MODULE, dict(MODULE.named_parameters()), (a,)),
    "gradient_of_functional_call": gradient_of_functional_call,
}


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph(name):
    run = run_both(ONE_GRAPH[name], x(), _fullgraph=True)
    assert run.graph_count == 1


WITH_GRADIENTS = {
    "cond": lambda a: torch.cond(a.sum() > 0, lambda b: b.sin() * 2, lambda b: b.cos(), (a * 2,)),
    "checkpoint": lambda a: checkpoint(MODULE, a, use_reentrant=False),
    "reentrant": lambda a: checkpoint(MODULE, a, use_reentrant=True),
    "vmap": lambda a: torch.vmap(MODULE)(a),
    "grad": lambda a: torch.func.grad(lambda b: b.sin().square().sum())(a),
    "jacrev": lambda a: torch.func.jacrev(lambda b: b.sin() ** 2)(a),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients(name, backend):
    fn = WITH_GRADIENTS[name]
    grads = []
    for run in (fn, dynamo_lite.compile(fn, backend=backend, fullgraph=True)):
        MODULE.zero_grad()
        a = x().requires_grad_()
        run(a).sum().backward()
        grads.append([a.grad, *(p.grad for p in MODULE.parameters())])
    torch.testing.assert_close(*grads)


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="the operator of older torch leaves recomputing to the backend")
def test_checkpoint_saves_no_intermediate_result():
    saved = []

    def fn(a):
        return checkpoint(lambda b: b.sin().exp().cos().exp(), a, use_reentrant=False)

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    compiled(x().requires_grad_())
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        compiled(x().requires_grad_())
    assert len(saved) <= 1  # the input


def changes_a_list(a):
    seen = []

    def body(b):
        seen.append(1)
        return b.sin()

    return checkpoint(body, a * 2, use_reentrant=False), seen


def leaks_a_tensor(a):
    seen = {}

    def body(b):
        seen["inner"] = b.sin()
        return b.cos()

    return torch.vmap(body)(a).sum(), len(seen)


def changes_a_tensor(a):
    b = a * 1
    return checkpoint(lambda c: c.add_(1) * 2, b, use_reentrant=False), b


@pytest.mark.parametrize("fn", [changes_a_list, leaks_a_tensor, changes_a_tensor])
def test_effects_of_a_body_are_a_break(fn):
    run = run_both(fn, x().requires_grad_())
    assert [b.slug for b in run.breaks] == ["higher-order-operator"]


def test_checkpoint_without_gradients_is_a_call():
    with torch.no_grad():
        assert run_both(lambda a: checkpoint(torch.sin, a, use_reentrant=False), x(), _fullgraph=True).op_count == 1


# -- state and modules made in the traced code


@pytest.mark.parametrize("context", [torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_state_after_a_graph_that_raises(context):
    def fn(a, i):
        with context():
            return (a @ W).index_select(0, i)

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    compiled(x(), torch.tensor([1]))
    with pytest.raises(IndexError):
        compiled(x(), torch.tensor([99]))
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert torch.autocast_increment_nesting() == 1
    assert torch.autocast_decrement_nesting() == 0


def test_new_module():
    def fn(a):
        model = nn.Sequential(nn.ReLU(), nn.Dropout(0.5)).eval()
        return model(a), model

    assert run_both(fn, x(), _fullgraph=True).graph_count == 1


def test_new_parameters():
    def fn(a):
        linear = nn.Linear(3, 2)
        extra = nn.Parameter(a * 2, requires_grad=False)
        return linear, nn.Parameter(a.clone()), extra, extra.requires_grad, linear.weight.is_leaf

    run_both(fn, x(), _fullgraph=True)
    linear, p, extra, _, _ = dynamo_lite.compile(fn, backend="aot_eager", fullgraph=True)(x())
    assert type(p) is nn.Parameter and p.is_leaf and p.requires_grad and not extra.requires_grad
    assert [n for n, _ in linear.named_parameters()] == ["weight", "bias"]
    linear(x()).sum().backward()
    assert linear.weight.grad is not None
