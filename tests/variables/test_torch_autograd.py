"""`torch.autograd.Function` under gradients: forward and backward in one graph."""

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounterWithBackend, run_both


def x():
    return torch.arange(12.0).reshape(4, 3) / 7 - 0.5


class Mul(Function):
    @staticmethod
    def forward(ctx, a, b, k):
        ctx.save_for_backward(a, b)
        ctx.k = k
        return a * b * k

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b * ctx.k if ctx.needs_input_grad[0] else None, g * a * ctx.k * 2, None


class Exp(Function):
    @staticmethod
    def forward(a):
        return a.exp(), a.argmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        r, i = output
        ctx.mark_non_differentiable(i)
        ctx.save_for_backward(r)

    @staticmethod
    @once_differentiable
    def backward(ctx, g, gi):
        return g * ctx.saved_tensors[0] * 3


class Ste(Function):
    @staticmethod
    def forward(ctx, a):
        return a.round()

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1, 1)


class Ident(Function):
    @staticmethod
    def forward(ctx, a):
        ctx.mid = a * 2
        return a

    @staticmethod
    def backward(ctx, g):
        return g * ctx.mid


class Effect(Function):
    calls = []

    @staticmethod
    def forward(ctx, a):
        Effect.calls.append(1)
        return a * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


ONE_GRAPH = {
    "saved tensors, an attribute, the same tensor twice": lambda a: Mul.apply(a, a * 2, 3) + Mul.apply(a, a, 2),
    "one input without gradient": lambda a: Mul.apply(a.detach(), a * 2, 3),
    "setup_context, non-differentiable output": lambda a: Exp.apply(a)[0] * Exp.apply(a)[1][:, None],
    "nothing saved": lambda a: Ste.apply(a * 3),
    "returns its input": lambda a: Ident.apply(a * 3),
    "keyword of another call": lambda a: Ste.apply(Mul.apply(a, a.cos(), 2)).relu(),
}


def gradients(fn, a):
    a = a.clone().requires_grad_()
    out = fn(a)
    out.sum().backward()
    return out.detach(), a.grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ONE_GRAPH)
def test_gradients(name, backend):
    fn = ONE_GRAPH[name]
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    torch.testing.assert_close(gradients(compiled, x()), gradients(fn, x()))
    assert torch.is_grad_enabled()


def test_second_derivative():
    def second(fn):
        a = x().requires_grad_()
        (g,) = torch.autograd.grad(fn(a).sum(), a, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), a)
        return h

    def fn(a):
        return Ident.apply(a * a)

    torch.testing.assert_close(second(dynamo_lite.compile(fn, backend="eager", fullgraph=True)), second(fn))


def test_effects_of_forward():
    """It runs once a call, so what it does to Python objects is done after the graph."""

    def fn(a):
        return Effect.apply(a * 3)

    run = run_both(fn, x().requires_grad_(), _fullgraph=True)
    assert not run.breaks
    torch.testing.assert_close(gradients(dynamo_lite.compile(fn, backend="eager"), x()), gradients(fn, x()))


class Assign(Function):
    """Writes to an argument behind autograd's back, and does not say so."""

    @staticmethod
    def forward(ctx, scratch, value, index):
        ctx.index = index
        scratch.data[index] = value
        return scratch

    @staticmethod
    def backward(ctx, g):
        return g, g[ctx.index], None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_forward_that_writes_to_the_data_of_an_argument_is_a_break(backend):
    def f(a):
        scratch = a.new_zeros(3, 4)
        scratch = Assign.apply(scratch, a.sin(), (..., 0))
        for i in range(1, 4):
            scratch = Assign.apply(scratch, (scratch[..., :i] * a.sum()).sum(-1).tanh(), (..., i))
            dynamo_lite.graph_break()
        return scratch[..., -1] + scratch.sum(-1)

    def results(function):
        a = torch.arange(3.0).requires_grad_()
        out = function(a)
        out.sum().backward()
        return out, a.grad

    counter = CompileCounterWithBackend(backend)
    captured = dynamo_lite.compile(f, backend=counter)
    torch.testing.assert_close(results(captured), results(f))
    breaks = {b.slug for b in log.breaks()}
    assert "higher-order-operator" in breaks
    assert counter.frame_count > 1


# -- what backward returns


class ReturnsSaved(torch.autograd.Function):
    """`backward` returns tensors that `forward` saved, as they are."""

    @staticmethod
    def forward(ctx, x, y):
        result = x * y
        ctx.save_for_backward(result, y)
        return result

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors


class ReturnsAttribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.ones = torch.ones(3)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return ctx.ones


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "fn", [lambda x: ReturnsSaved.apply(x.sin(), x), lambda x: ReturnsSaved.apply(x, x), ReturnsAttribute.apply]
)
def test_backward_that_returns_what_was_there(fn, backend):
    grads = []
    for run in (fn, dynamo_lite.compile(lambda x: fn(x), backend=backend, fullgraph=True)):
        x = torch.arange(3.0).requires_grad_()
        (run(x) * 3).sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)
