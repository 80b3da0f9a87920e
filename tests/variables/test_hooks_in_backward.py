"""Backward hooks of modules, followed in a backward pass of the traced code itself."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


def x():
    return torch.arange(12.0).reshape(4, 3) / 7 - 0.5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


class Pair(nn.Module):
    def forward(self, a, factor, ints, b):
        return a * factor, ints + 1, b.sum(0), a - b


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair = Pair()
        self.lin = nn.Linear(3, 6)

    def forward(self, x):
        a, b = self.lin(x).split(3, 1)
        c, ints, d, _ = self.pair(a, 2, torch.arange(3), b)
        return c * d + ints


class Net(nn.Module):
    """Blocks with residuals, a parameter used in several places, and one module called twice."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.scale = nn.Parameter(torch.ones(3))
        self.head = nn.Linear(3, 3)
        self.pairs = Pairs()

    def forward(self, x):
        x = x * self.scale
        for block in self.blocks:
            x = block(x) * self.scale
        return self.head(self.head(x).tanh()) + x


def noting(net, seen):
    net.head.register_full_backward_hook(lambda module, given, got: seen.append((given, got, module is net.head)))
    for block in net.blocks:
        block.register_full_backward_hook(lambda module, given, got: seen.append(given[0].norm()))


def replacing(net, seen):
    net.blocks[1].b.register_full_backward_hook(lambda module, given, got: (given[0] * 2,))
    net.blocks[1].b.register_full_backward_hook(lambda module, given, got: seen.append(given))
    net.blocks[0].register_full_backward_pre_hook(lambda module, got: (got[0] + 1,))
    net.blocks[0].register_full_backward_pre_hook(lambda module, got: seen.append(got))


def everywhere(net, seen):
    for name, module in net.named_modules():
        module.register_full_backward_hook(lambda module, given, got, name=name: seen.append((name, given, got)))
        module.register_full_backward_pre_hook(lambda module, got, name=name: seen.append((name, got)))


def dropping(net, seen):
    net.blocks[1].a.register_full_backward_hook(lambda module, given, got: (None,))


def reading_grad(net, seen):
    def hook(module, given, got):
        seen.append([None if p.grad is None else p.grad.clone() for p in net.parameters()])

    net.blocks[0].register_full_backward_hook(hook)
    net.head.register_full_backward_hook(hook)


def counting(net, seen):
    net.calls = 0
    net.register_buffer("total", torch.zeros(()))

    def hook(module, given, got):
        net.calls += 1
        net.total.add_(got[0].sum())
        module.last = got[0]

    net.blocks[0].register_full_backward_hook(hook)
    net.blocks[1].register_full_backward_hook(hook)
    seen.append(net)


@pytest.mark.parametrize(
    ("add_hooks", "tracked", "backend"),
    [
        *product([noting, replacing, everywhere, dropping, reading_grad, counting], [True], ["eager"]),
        *product([replacing, counting], [True], ["aot_eager"]),
        *product([noting], [False], ["eager", "aot_eager"]),
    ],
)
def test_whole_steps(add_hooks, tracked, backend):
    counter = CompileCounterWithBackend(backend)

    def run(opt):
        torch.manual_seed(0)
        net, seen, results = Net(), [], []
        add_hooks(net, seen)

        @opt
        def step(a):
            net.zero_grad()
            out = net(a)
            loss = F.mse_loss(out, torch.ones_like(out))
            loss.backward()
            return loss, out.detach()

        for i in range(2):
            a = (x() + i).requires_grad_(tracked)
            results.append((step(a)[0].detach(), a.grad))
        if add_hooks is counting:
            seen[:] = [(net.calls, net.total, net.blocks[0].last, net.blocks[1].last)]
        return results, [p.grad for p in net.parameters()], seen

    expected = run(lambda fn: fn)
    compiled = run(lambda fn: dynamo_lite.compile(fn, backend=counter, fullgraph=True))
    assert same(expected, compiled, tol=0 if backend == "eager" else 1e-6)
    assert counter.frame_count <= 2


def check(fn, frames=1, backend="eager", **options):
    """`fn(net, a)` twice, in eager execution and compiled."""
    counter = CompileCounterWithBackend(backend)

    def run(opt):
        torch.manual_seed(0)
        net, results = Net(), []
        call = opt(fn)
        for i in range(2):
            a = (x() + i).requires_grad_()
            net.zero_grad()
            results.append((call(net, a), a.grad))
        return results, [p.grad for p in net.parameters()]

    expected = run(lambda fn: fn)
    assert same(expected, run(lambda fn: dynamo_lite.compile(fn, backend=counter, **options)), tol=1e-6)
    assert counter.frame_count == frames


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_several_arguments_and_results(backend):
    def fn(net, a):
        seen = []
        first = net.pairs.pair.register_full_backward_hook(lambda module, given, got: seen.append((given, got)))
        second = net.pairs.pair.register_full_backward_pre_hook(lambda module, got: (got[0] * 3, *got[1:]))
        net.pairs(a).sum().backward()
        first.remove()
        second.remove()
        return seen

    check(fn, 2, backend=backend, fullgraph=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_registered_inside(backend):
    def fn(net, a):
        seen = []
        handles = [m.register_full_backward_hook(lambda m, given, got: seen.append(got[0])) for m in net.blocks]
        net(a).square().mean().backward()
        for handle in handles:
            handle.remove()
        return seen

    check(fn, 2, backend, fullgraph=True)  # a first backward hook is noted in the module, for good


def test_two_backward_passes():
    def fn(net, a):
        seen = []
        handle = net.blocks[0].register_full_backward_hook(lambda m, given, got: seen.append(got[0]))
        h = net.blocks[0](a)
        y = net.blocks[1](h)
        y.sum().backward(retain_graph=True)
        (h * h).mean().backward()
        handle.remove()
        return seen

    check(fn, 2, fullgraph=True)


def test_gradients_inside_and_outside():
    def step(net, a):
        h = net.blocks[0](a)
        net.blocks[1](h.detach()).sum().backward()
        return h

    def fn(net, a):
        seen = []
        handles = [b.register_full_backward_hook(lambda m, given, got: seen.append(got[0])) for b in net.blocks]
        h = call(net, a)
        h.sum().backward()
        for handle in handles:
            handle.remove()
        return seen, a.grad

    results = []
    for call in (step, dynamo_lite.compile(step, backend="eager", fullgraph=True)):
        torch.manual_seed(0)
        results.append(fn(Net(), x().requires_grad_()))
    assert same(*results)


def test_a_result_whose_history_was_used_and_is_not_gone():
    """`h` can be differentiated afterwards, and what follows it was differentiated inside."""

    def fn(net, a):
        handle = net.blocks[0].register_full_backward_hook(lambda m, given, got: None)
        h = net.blocks[0](a)
        net.blocks[1](h).sum().backward(retain_graph=True)
        handle.remove()
        return h * 2

    results = []
    for call in (fn, dynamo_lite.compile(fn, backend="eager")):
        torch.manual_seed(0)
        net, a = Net(), x().requires_grad_()
        call(net, a).sum().backward()
        results.append((a.grad, [p.grad for p in net.parameters()]))
    assert same(*results)


def test_a_used_up_result():
    def fn(net, a):
        handle = net.blocks[1].register_full_backward_hook(lambda m, given, got: None)
        y = net.blocks[1](net.blocks[0](a))
        y.sum().backward()
        handle.remove()
        return y

    y = dynamo_lite.compile(fn, backend="eager", fullgraph=True)(Net(), x().requires_grad_())
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()


def test_hooks_with_a_break(capsys):
    def fn(net, a):
        handle = net.blocks[1].register_full_backward_hook(lambda m, given, got: print("hook", given[0].shape))
        net(a).sum().backward()
        handle.remove()

    check(fn, 4)
    assert capsys.readouterr().out == "hook torch.Size([4, 3])\n" * 4


def test_hooks_that_raise():
    def hook(module, given, got):
        raise KeyError("no")

    def fn(net, a):
        handle = net.blocks[1].register_full_backward_hook(hook)
        try:
            net(a).sum().backward()
        except KeyError as error:
            return str(error)
        finally:
            handle.remove()

    for call in (fn, dynamo_lite.compile(fn, backend="eager")):
        assert call(Net(), x().requires_grad_()) == "'no'"


def test_the_warning_where_no_argument_requires_gradients():
    net = nn.Linear(3, 3)
    net.register_full_backward_hook(lambda module, given, got: None)

    def fn(a):
        net(a).sum().backward()

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    with pytest.warns(UserWarning, match="Full backward hook is firing") as caught:
        compiled(x())
    assert caught[0].filename == __file__


def clamping(net, seen):
    for p in net.parameters():
        p.register_hook(lambda grad: grad.clamp(-0.1, 0.1))


def in_order(net, seen):
    """Names in the order in which gradients arrive."""
    for name, p in net.named_parameters():
        p.register_hook(lambda grad, name=name: seen.append((name, grad)))
        p.register_post_accumulate_grad_hook(lambda p, name=name: seen.append((name, p.grad.norm())))
    net.blocks[1].register_full_backward_hook(lambda module, given, got: seen.append("block"))


def stepping(net, seen):
    """The optimiser in the backward pass."""
    optimizers = {p: torch.optim.SGD([p], 0.1, momentum=0.9) for p in net.parameters()}

    def hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad()
        seen.append(p)

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(hook)


@pytest.mark.parametrize(
    ("add_hooks", "backend"), [(clamping, "eager"), (in_order, "eager"), (stepping, "eager"), (clamping, "aot_eager")]
)
def test_hooks_of_parameters(add_hooks, backend):
    counter = CompileCounterWithBackend(backend)

    def run(opt):
        torch.manual_seed(0)
        net, seen, results = Net(), [], []
        add_hooks(net, seen)

        @opt
        def step(a):
            loss = net(a).square().mean()
            loss.backward()
            return loss

        for i in range(2):
            a = (x() + i).requires_grad_()
            a.register_hook(lambda grad: grad * 2)
            results.append((step(a).detach(), a.grad))
        return results, [(p.detach(), p.grad) for p in net.parameters()], seen

    expected = run(lambda fn: fn)
    compiled = run(lambda fn: dynamo_lite.compile(fn, backend=counter, fullgraph=True))
    assert same(expected, compiled, tol=1e-6)
    assert counter.frame_count <= 2


def test_hooks_of_a_parameter_registered_inside():
    def fn(net, a):
        seen = []
        first = net.head.weight.register_hook(lambda grad: seen.append(grad))
        second = net.head.weight.register_hook(lambda grad: grad * 2)
        net(a).sum().backward()
        first.remove()
        net(a).sum().backward()
        second.remove()
        return seen

    check(fn, fullgraph=True)


def test_a_parameter_with_hooks_differentiated_inside_and_outside():
    def fn(net, a):
        net(a).sum().backward()
        return net(a)

    results = []
    for call in (fn, dynamo_lite.compile(fn, backend="eager")):
        torch.manual_seed(0)
        net, seen = Net(), []
        net.scale.register_hook(lambda grad, seen=seen: seen.append(grad.clone()))
        a = x().requires_grad_()
        call(net, a).square().sum().backward()
        results.append((a.grad, [p.grad for p in net.parameters()], seen))
    assert same(*results)


def stored(net, a):
    seen = {}
    h = net.blocks[0](a)
    h.register_hook(lambda grad: seen.__setitem__("h", grad))
    (net.blocks[1](h) + h).square().mean().backward()
    return seen["h"]


def several(net, a):
    seen = []
    h = net.blocks[0](a)
    h.register_hook(lambda grad: seen.append(grad))
    handle = h.register_hook(lambda grad: seen.append("no"))
    h.register_hook(lambda grad: grad * 2)
    h.register_hook(lambda grad: seen.append(grad + 1))
    handle.remove()
    y = net.blocks[1](h)
    y.register_hook(lambda grad: seen.append(grad))
    loss = (y * h).sum()
    loss.register_hook(lambda grad: seen.append(grad))
    loss.backward()
    return seen


def of_parts(net, a):
    seen = []
    b, c, d = net.head(a).split(1, 1)
    for part in (b, d):
        part.register_hook(lambda grad: seen.append(grad))
    (b * c + d).sum().backward()
    return seen


def with_those_of_a_module(net, a):
    seen = []
    handle = net.head.register_full_backward_hook(lambda module, given, got: seen.append((given, got)))
    h = net.head(a)
    h.register_hook(lambda grad: seen.append(grad))
    h.tanh().sum().backward()
    handle.remove()
    return seen


def twice(net, a):
    seen = []
    h = net.blocks[0](a)
    h.register_hook(lambda grad: seen.append(grad))
    loss = net.head(h).tanh().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return seen


def asked_for(net, a):
    seen = []
    h = net.blocks[0](a)
    h.register_hook(lambda grad: seen.append(grad))
    return seen, torch.autograd.grad(h.square().sum(), [h, a])


def left(net, a):
    seen = []
    h = net.blocks[0](a)
    h.register_hook(lambda grad: seen.append(grad))
    h.sum().backward(retain_graph=True)
    (h * 2).sum().backward(retain_graph=True)
    return seen, h


@pytest.mark.parametrize("fn", [stored, several, of_parts, with_those_of_a_module, twice, asked_for, left])
def test_hooks_of_tensors_made_inside(fn):
    """Those that do more than compute."""
    counter = CompileCounterWithBackend("eager")

    def run(opt):
        torch.manual_seed(0)
        net, results = Net(), []
        net.head.register_full_backward_hook(lambda module, given, got: None)
        call = opt(fn)
        for i in range(2):
            a = (x() + i).requires_grad_()
            net.zero_grad()
            made = call(net, a)
            if fn is left:
                made[1].sum().backward()
            results.append((made, a.grad))
        return results, [p.grad for p in net.parameters()]

    whole = fn not in (asked_for, left)
    expected = run(lambda fn: fn)
    assert same(expected, run(lambda fn: dynamo_lite.compile(fn, backend=counter, fullgraph=whole)), tol=1e-6)
    assert not whole or counter.frame_count <= 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_gradient_that_a_hook_has_kept_is_not_that_of_the_leaf(backend):
    def fn(net, a):
        seen = []
        handle = net.head.register_full_backward_hook(lambda module, given, got: seen.append(given[0]))
        y = net.head(a)
        y.square().mean().backward(retain_graph=True)
        y.sum().backward()
        handle.remove()
        return seen

    check(fn, 2, backend, fullgraph=True)


def test_two_steps_in_one_call():
    """The second differentiates parameters that the first has changed in place."""

    def run(opt):
        torch.manual_seed(0)
        net, seen = Net(), []
        net.head.register_full_backward_hook(lambda module, given, got: seen.append(got[0].norm()))
        for p in net.parameters():
            p.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        @opt
        def steps(a):
            for _ in range(2):
                optimizer.zero_grad()
                loss = net(a).square().mean()
                loss.backward()
                optimizer.step()
            return loss.detach()

        return steps(x()), [p.detach() for p in net.parameters()], seen

    compiled = run(lambda fn: dynamo_lite.compile(fn, backend="eager", fullgraph=True))
    assert same(run(lambda fn: fn), compiled, tol=1e-6)
