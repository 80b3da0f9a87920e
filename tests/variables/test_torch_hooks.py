"""Hooks of tensors: in the graph, or registered after it where the tensor existed before."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same


def x():
    return (torch.arange(12.0).reshape(4, 3) / 7 - 0.5).requires_grad_()


seen = []


def on_result(a):
    y = a * 2
    y.register_hook(lambda g: g * 10)
    return y


def used_before(a):
    y = a * 2
    z = y.sin()
    y.register_hook(lambda g: g * z.detach())
    return z.sum()


def two(a):
    y = a * 2
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: g * 3)
    return (y * y).sum()


def removed(a):
    y = a * 2
    y.register_hook(lambda g: g * 10).remove()
    handle = a.register_hook(lambda g: g * 7)
    handle.remove()
    return (y * y).sum()


def on_input(a):
    a.register_hook(lambda g: seen.append(g.sum().item()))
    return (a * a).sum()


def order_on_input(a):
    a.register_hook(lambda g: g + 1)
    a.register_hook(lambda g: g * 3)
    return (a * a).sum()


def accumulated(a):
    a.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))
    return (a * a).sum()


def gradient_inside(a):
    y = a * 2
    y.register_hook(lambda g: g * 10)
    return torch.autograd.grad((y * y).sum(), a)[0].sum() + (a * a).sum()


def no_gradient(a):
    try:
        (a.detach() * 2).register_hook(lambda g: g)
    except RuntimeError as error:
        seen.append(str(error))
    return a.sum()


def effect(a):
    y = a * 2
    z = y.sin()
    y.register_hook(lambda g: seen.append(g.sum().item()))
    return z.sum()


def effect_used_afterwards(a):
    y = (a + 1) * 2
    y.register_hook(lambda g: seen.append(g.sum().item()))
    return (y.sin() * y).sum()


def raises(a):
    def hook(g):
        if g.isnan().any():
            raise ValueError

    y = (a + 1) * 2
    y.register_hook(hook)
    return (y.sin() * y).sum()


def variable_stored_later(a):
    factor = 2
    y = a * 2
    z = y.sin()
    y.register_hook(lambda g: g * factor)
    factor = 5
    return z.sum()


def input_changed(a):
    b = a * 1
    print(end="")
    b.register_hook(lambda g: g * 3)
    b.mul_(2)
    return (b * b).sum()


def retained(a):
    y = a * 2
    z = y.sin()
    y.retain_grad()
    return z.sum(), y


WHOLE = [on_result, used_before, two, removed, on_input, order_on_input, accumulated, gradient_inside]
SPLIT = [no_gradient, effect, effect_used_afterwards, raises, variable_stored_later, input_changed, retained]


def outcome(fn):
    """Gradients of three calls, two of them on one tensor, and what hooks noted."""
    seen.clear()
    results = []
    for a in (x(), x() * 2):
        a = a.detach().requires_grad_()
        for _ in range(2):
            out = fn(a)
            loss, rest = out if isinstance(out, tuple) else (out, None)
            loss.sum().backward()
            results.append((loss.detach(), a.grad.clone(), None if rest is None else rest.grad))
    return results, list(seen)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", WHOLE + SPLIT)
def test_as_in_eager(fn, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=fn in WHOLE)
    assert same(outcome(fn), outcome(compiled), tol=1e-5)
    assert counter.frame_count == 1 or fn in SPLIT


@pytest.mark.parametrize("fn", [effect_used_afterwards, raises])
def test_the_graph_ends_at_the_registration(fn):
    """What uses the value only comes after it: both parts are captured."""
    counter = CompileCounterWithBackend("eager")
    assert same(outcome(fn), outcome(dynamo_lite.compile(fn, backend=counter)), tol=1e-5)
    assert (counter.frame_count, counter.op_count) == (2, 5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_parameters_and_handles(backend):
    class Layer(nn.Linear):
        def forward(self, a):
            return F.linear(a, self.weight), self.weight.register_hook(lambda g: g * 2)

    def run(opt):
        torch.manual_seed(0)
        layer = Layer(3, 3)
        call, grads = opt(layer), []
        for keep in (True, False, True):
            out, handle = call(x())
            if not keep:
                handle.remove()
            out.sum().backward()
            handle.remove()
            grads.append(layer.weight.grad.clone())
        return grads

    compiled = run(lambda fn: dynamo_lite.compile(fn, backend=backend, fullgraph=True))
    assert same(run(lambda fn: fn), compiled, tol=1e-5)


def test_numbers_of_handles():
    """They are those of eager execution, in whatever order hooks are registered and the graph runs."""

    def fn(net, a):
        y = net(a)
        on_result = y.register_hook(lambda g: g * 2)
        kept = a.register_hook(lambda g: g * 3)
        a.register_hook(lambda g: g + 1).remove()
        with net.register_forward_hook(lambda m, args, out: out + 1) as on_module:
            z = net(y)
        return z.sum(), kept, (on_result.id, kept.id, on_module.id)

    def run(call):
        torch.manual_seed(0)
        net, results, before = nn.Linear(3, 3), [], RemovableHandle.next_id
        for _ in range(4):
            a = x()
            z, kept, ids = call(net, a)
            z.backward()
            results.append((z, a.grad, [i - before for i in ids], kept.id == ids[1]))
            kept.remove()
            assert not a._backward_hooks
        return results, RemovableHandle.next_id - before

    counter = CompileCounterWithBackend("eager")
    assert same(run(fn), run(dynamo_lite.compile(fn, backend=counter, fullgraph=True)))
    assert counter.frame_count == 1


def by_a_backward(y, x):
    y.sum().backward()
    return x.grad


def by_grad(y, x):
    return torch.autograd.grad(y.sum(), x)[0]


def removed_behind(x, gradient):
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    try:
        found = gradient(y, x).clone()
    finally:
        handle.remove()
    return found


def removed_by_a_block(x, gradient):
    y = x * 2
    with y.register_hook(lambda g: g * 10):
        found = gradient(y, x).clone()
    return found


def removed_between(x, gradient):
    y = x * 2
    handles = [y.register_hook(lambda g: g * 10), y.register_hook(lambda g: g + 1)]
    z = y * y
    first = torch.autograd.grad(z.sum(), x, retain_graph=True)[0]
    handles[0].remove()
    second = torch.autograd.grad(z.sum(), x, retain_graph=True)[0]
    handles[1].remove()
    return first, second, gradient(z, x)


def removed_in_each_turn(x, gradient):
    found = []
    for i in range(3):
        y = x * 2
        handle = y.register_hook(lambda g, i=i: g * (i + 1))
        found.append(gradient(y, x).clone())
        handle.remove()
    return found


def removed_from_a_leaf(x, gradient):
    weight = nn.Parameter(torch.ones(3))
    handle = weight.register_hook(lambda g: g * 10)
    found = gradient(x.detach() * weight, weight).clone()
    handle.remove()
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("gradient", [by_a_backward, by_grad])
@pytest.mark.parametrize(
    "fn", [removed_behind, removed_by_a_block, removed_between, removed_in_each_turn, removed_from_a_leaf]
)
def test_a_hook_is_removed_behind_the_gradient(fn, gradient, backend):
    """It has been called by then."""
    counter = CompileCounterWithBackend(backend)
    expected = fn(torch.ones(3, requires_grad=True), gradient)
    assert same(
        expected, dynamo_lite.compile(fn, backend=counter, fullgraph=True)(torch.ones(3, requires_grad=True), gradient)
    )
    assert counter.frame_count == 1


def test_what_a_removed_hook_reads_is_what_it_was_at_the_gradient():
    def fn(x):
        factor, y = 2, x * 2
        handle = y.register_hook(lambda g: g * factor)
        factor = 5
        found = torch.autograd.grad(y.sum(), x)[0]
        handle.remove()
        factor = 7
        return found * factor

    x = torch.ones(3, requires_grad=True)
    assert same(fn(x), dynamo_lite.compile(fn, backend="eager")(x))


class Cutting:
    def __call__(self, grad):
        return grad[:1]

    def method(self, grad):
        return grad[:1]


def cutting(grad):
    return grad[:1]


@pytest.mark.parametrize("make", [lambda: cutting, lambda: lambda grad: grad[:1], lambda: Cutting().method, Cutting])
def test_an_error_about_what_a_hook_returns_names_the_hook(make):
    def fn(x):
        y = x * 2
        y.register_hook(make())
        try:
            y.sum().backward()
        except RuntimeError as error:
            return str(error)

    x = torch.ones(3, requires_grad=True)
    assert dynamo_lite.compile(fn, backend="eager")(x) == fn(x)


@pytest.mark.parametrize("register", [torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook])
@pytest.mark.parametrize("is_followed", [True, False])
def test_a_removed_hook_leaves_its_dict(register, is_followed):
    name = "_backward_hooks" if register is torch.Tensor.register_hook else "_post_accumulate_grad_hooks"

    def fn(p):
        handle = register(p, lambda given: None)
        if is_followed:
            (p * 2).sum().backward()
        handle.remove()
        return p * 3

    counter = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    p = torch.ones(2, requires_grad=True)
    for _ in range(2):
        p.grad = None
        compiled(p)
        hooks = getattr(p, name)
        assert type(hooks) is OrderedDict and not hooks
    assert counter.frame_count == 1
    seen.clear()
    with register(p, seen.append):
        (p * 2).sum().backward()
    assert len(seen) == 1 and getattr(p, name) is hooks


def test_a_hook_removed_from_an_input_with_a_history_leaves_its_dict():
    def fn(a):
        a.register_hook(lambda g: g * 7).remove()
        return a.sin()

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    for call in (fn, compiled, compiled):
        leaf = x()
        a = leaf * 1
        result = call(a).sum()
        a.register_hook(lambda g: g * 2)
        result.backward()
        assert len(a._backward_hooks) == 1 and same(leaf.grad, 2 * leaf.detach().cos())
