"""Hooks of modules: run as in eager execution wherever and whenever they are added and removed."""

import gc
import warnings
import weakref
from collections import OrderedDict
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.modules import module as global_hooks
from torch.utils.hooks import RemovableHandle

import dynamo_lite
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend, same


def x():
    return torch.arange(12.0).reshape(4, 3) / 7 - 0.5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 2)

    def forward(self, x):
        return self.b(self.a(x).relu())


class Registering(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, x):
        handle = self.a.register_forward_hook(lambda module, args, out: out * 2)
        y = self.a(x)
        handle.remove()
        return y + self.a(x)


class Raising(nn.Module):
    def forward(self, x):
        raise ValueError("no")


def steps(call, net):
    """Results and gradients of two training steps."""
    results = []
    for i in range(2):
        out = call(x() + i)
        out.sum().backward()
        results.append(out.detach())
    return results, [p.grad.clone() for p in net.parameters()]


def names(seen):
    return lambda module, *rest: seen.append(type(module).__name__)


def first_last(opt, net, seen):
    net.a.register_forward_hook(lambda module, args, out: out * 2)
    net.a.register_forward_hook(lambda module, args, out: out + 1, prepend=True)
    return steps(opt(net), net)


def added_and_removed(opt, net, seen):
    call = opt(net)
    results = [steps(call, net)]
    handle = net.a.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    results.append(steps(call, net))
    net.b.register_forward_hook(names(seen))
    results.append(steps(call, net))
    handle.remove()
    return results, steps(call, net)


def full_backward(opt, net, seen):
    handle = net.a.register_full_backward_hook(lambda module, given, got: seen.append(got[0].sum().item()))
    net.b.register_full_backward_pre_hook(lambda module, got: (got[0] * 3,))
    call = opt(net)
    results = steps(call, net)
    handle.remove()
    return results, steps(call, net)


def for_all_modules(register, hook):
    def run(opt, net, seen):
        call = opt(net)
        results = steps(call, net)
        handle = register(hook(seen))
        try:
            during = steps(call, net)
        finally:
            handle.remove()
        return results, during, steps(call, net)

    return run


SCENARIOS = {
    "prepend": first_last,
    "added and removed": added_and_removed,
    "full backward": full_backward,
    "all forward": for_all_modules(global_hooks.register_module_forward_hook, names),
    "all pre": for_all_modules(global_hooks.register_module_forward_pre_hook, lambda seen: lambda m, a: (a[0] + 1,)),
    "all backward": for_all_modules(global_hooks.register_module_full_backward_hook, names),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_as_in_eager(name, backend):
    def run(opt):
        torch.manual_seed(0)
        seen = []
        return SCENARIOS[name](opt, Net(), seen), seen

    assert same(run(lambda fn: fn), run(lambda fn: dynamo_lite.compile(fn, backend=backend)), tol=1e-5)


def test_registered_and_removed_in_forward():
    net = Registering()
    expected = [net(x() + i) for i in range(3)]
    counter = CompileCounter()
    compiled = dynamo_lite.compile(net, backend=counter, fullgraph=True)
    assert same(expected, [compiled(x() + i) for i in range(3)])
    assert counter.frame_count == 1
    assert not net.a._forward_hooks


def double(module, args, out):
    return out * 2


def ignore(module, *grads):
    return None


class Hooked:
    """A context in which a module has a hook."""

    def __init__(self, module, hook):
        self.module = module
        self.hook = hook

    def __enter__(self):
        self.handle = self.module.register_forward_hook(self.hook)
        return self

    def __exit__(self, *exception):
        self.handle.remove()


def forward(net, x):
    handle = net.register_forward_hook(double)
    y = net(x)
    handle.remove()
    return y + net(x)


def forward_pre(net, x):
    handle = net.a.register_forward_pre_hook(lambda module, args, kwargs: ((args[0] + 1,), kwargs), with_kwargs=True)
    y = net(x)
    handle.remove()
    return y


def always(net, x):
    handle = net.b.register_forward_hook(lambda m, a, k, out: out + len(k), with_kwargs=True, always_call=True)
    try:
        return net(x)
    finally:
        handle.remove()


def of_all_modules(net, x):
    handle = global_hooks.register_module_forward_hook(double)
    y = net(x)
    handle.remove()
    return y - net(x)


def in_with(net, x):
    with net.register_forward_hook(double), Hooked(net.a, double):
        y = net(x)
    return y + len(net._forward_hooks) + len(net.a._forward_hooks)


def everywhere(net, x):
    seen = []
    handles = [m.register_forward_hook(lambda m, a, out: seen.append(out.sum())) for m in net.modules()]
    y = net(x)
    for handle in handles:
        handle.remove()
    return y, seen


def in_order(net, x):
    first = net.register_forward_hook(double)
    second = net.register_forward_hook(lambda m, a, out: out + 3, prepend=True)
    y, ids = net(x), list(net._forward_hooks)
    first.remove()
    z = net(x)
    second.remove()
    return y, z, [i - first.id for i in ids]


def full_backward_here(net, x):
    handle = net.a.register_full_backward_hook(ignore)
    y = net(x)
    handle.remove()
    return y


def numbers(net, x):
    handle = net.register_forward_hook(double)
    handle.remove()
    return x + 1, handle.id, handle.id in net._forward_hooks


def raising(net, x):
    handle = net.register_forward_hook(double)
    try:
        y = net(x)
        raise ValueError(y)
    except ValueError as error:
        return error.args[0]
    finally:
        handle.remove()


IN_ONE_CALL = [
    forward, forward_pre, always, of_all_modules, in_with, everywhere, in_order, full_backward_here, numbers, raising,
]  # fmt: skip


@pytest.mark.parametrize("fn", IN_ONE_CALL, ids=lambda fn: fn.__name__)
def test_registered_and_removed_in_one_call(fn):
    def run(call):
        torch.manual_seed(0)
        net, results, before = Net(), [], RemovableHandle.next_id
        for i in range(4):
            made = call(net, (x() + i).requires_grad_())
            (made[0] if isinstance(made, tuple) else made).sum().backward()
            results.append(made)
        if fn is numbers:
            results = [(y, number - before, known) for y, number, known in results]
        assert not net._forward_hooks and not net.a._forward_hooks and not net.a._backward_hooks
        return results, [p.grad for p in net.parameters()], RemovableHandle.next_id - before

    counter = CompileCounter()
    compiled = run(dynamo_lite.compile(fn, backend=counter, fullgraph=True))
    assert same(run(fn), compiled)
    # A first backward hook is noted in the module, for good.
    assert counter.frame_count == (2 if fn is full_backward_here else 1)


def test_hooks_that_are_kept():
    """Two versions for what was there before, and one for all numbers."""

    def fn(net, x, kept):
        if kept:
            kept.pop().remove()
        kept.append(net.register_forward_hook(double))
        return net(x)

    def run(call):
        torch.manual_seed(0)
        net, kept, before = Net(), [], RemovableHandle.next_id
        results = [call(net, x() + i, kept) for i in range(6)]
        assert list(net._forward_hooks.values()) == [double]
        assert list(net._forward_hooks) == [kept[0].id] == [before + 5]
        kept[0].remove()
        return results, net(x())

    counter = CompileCounter()
    assert same(run(fn), run(dynamo_lite.compile(fn, backend=counter, fullgraph=True)))
    assert counter.frame_count == 3


def test_a_break_between_registration_and_removal():
    def fn(net, x):
        handle = net.register_forward_hook(double)
        y = net(x)
        dynamo_lite.graph_break()
        y = net(y[:, :1] * x)
        handle.remove()
        return y + net(x)

    net = Net()
    expected = [fn(net, x() + i) for i in range(5)]
    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter)
    assert same(expected, [compiled(net, x() + i) for i in range(5)])
    assert not net._forward_hooks
    assert counter.frame_count == 3  # that of the second part once more, for all numbers


def test_always_called():
    seen = []
    net = Raising()
    net.register_forward_hook(lambda module, args, out: seen.append(1), always_call=True)

    def catch(a):
        try:
            net(a)
        except ValueError:
            return a + 1

    compiled = dynamo_lite.compile(catch, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x()), x() + 1) and torch.equal(compiled(x()), x() + 1)
    assert seen == [1, 1]


def test_an_ordered_dict_has_its_own_order():
    d = OrderedDict(a=1, b=2)
    d.move_to_end("b", last=False)
    compiled = dynamo_lite.compile(lambda d, t: [t * v for v in d.values()], backend="eager", fullgraph=True)
    assert [t.item() for t in compiled(d, torch.ones(()))] == [2, 1]
    d.move_to_end("a", last=False)
    assert [t.item() for t in compiled(d, torch.ones(()))] == [1, 2]


class Halves(nn.Module):
    """Several arguments and results, not all of them tensors or with gradients."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, a, k, ints):
        return a * self.w, k, ints + 1, a.sum(0)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Halves()

    def forward(self, a):
        one, k, ints, two = self.part(a, 2, torch.arange(3))
        return one * k + two * ints


class Talking(nn.Linear):
    def forward(self, a):
        print(end="")
        return super().forward(a)


def noting(net, seen):
    net.a.register_full_backward_hook(lambda module, given, got: seen.append((given, got, module is net.a)))


def replacing(net, seen):
    net.b.register_full_backward_hook(lambda module, given, got: (given[0] * 2,))
    net.b.register_full_backward_hook(lambda module, given, got: seen.append(given))
    net.b.register_full_backward_pre_hook(lambda module, got: (got[0] + 1,))
    net.b.register_full_backward_pre_hook(lambda module, got: seen.append(got))


def everywhere(net, seen):
    for module in net.modules():
        module.register_full_backward_hook(lambda module, given, got: seen.append((type(module).__name__, got)))


def storing(net, seen):
    def hook(module, given, got):
        module.gradient = got[0].clone()
        seen.append(module.gradient)

    net.a.register_full_backward_hook(hook)


def in_parts(net, seen):
    net.a = Pair()
    net.a.part.register_full_backward_hook(lambda module, given, got: seen.append((given, got)))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    ("add_hooks", "backend", "tracked"),
    [
        *product([noting, replacing, everywhere, storing, in_parts], ["eager", "aot_eager"], [True, False]),
        (in_parts, "inductor", True),
    ],
)
def test_full_backward_hooks_in_one_graph(add_hooks, backend, tracked):
    counter = CompileCounterWithBackend(backend)

    def run(opt):
        torch.manual_seed(0)
        net, seen, results = Net(), [], []
        add_hooks(net, seen)
        call = opt(net)
        for i in range(2):
            a = (x() + i).requires_grad_(tracked)
            out = call(a)
            out.sum().backward()
            results.append((out.detach(), a.grad))
        return results, [p.grad for p in net.parameters()], seen

    compiled = run(lambda net: dynamo_lite.compile(net, backend=counter, fullgraph=True))
    assert same(run(lambda net: net), compiled, tol=1e-5)
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_hooks_removed_before_backward_still_run_and_then_die(backend):
    net, seen = Net(), []

    def hook(module, given, got):
        seen.append(got[0].sum().item())

    handle = net.a.register_full_backward_hook(hook)
    compiled = dynamo_lite.compile(net, backend=backend, fullgraph=True)
    out = compiled(x())
    handle.remove()
    ref = weakref.ref(hook)
    del hook
    gc.collect()
    out.sum().backward()
    assert len(seen) == 1
    del out
    gc.collect()
    assert ref() is None
    compiled(x()).sum().backward()
    assert len(seen) == 1


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_break_inside_of_a_module_with_backward_hooks(backend):
    def run(opt):
        torch.manual_seed(0)
        net, seen = Net(), []
        net.a = Talking(3, 3)
        noting(net, seen)
        return steps(opt(net), net), seen

    assert same(run(lambda fn: fn), run(lambda fn: dynamo_lite.compile(fn, backend=backend)), tol=1e-5)


def test_hooks_that_return_what_they_must_not():
    net = Net()
    net.b.register_full_backward_hook(lambda module, given, got: (given[0], None))
    for backend in ("eager", "aot_eager"):
        out = dynamo_lite.compile(net, backend=backend, fullgraph=True)(x())
        with pytest.raises(RuntimeError, match="invalid number of grad"):
            out.sum().backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_warning_of_a_module_without_gradients_of_arguments_comes_in_each_backward_pass(backend):
    def said(model):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                result = model(torch.ones(1, 3))
                assert not len(caught) % 3
                result.sum().backward()
        return [(str(w.message), w.filename, w.lineno) for w in caught]

    def warn(what):
        warnings.warn(what)

    model = torch.nn.Linear(3, 2)
    model.register_full_backward_hook(lambda module, given, got: warn("own"))
    model.register_full_backward_pre_hook(lambda module, got: warn("own before"))
    expected = said(model)
    assert len(expected) == 9
    assert said(dynamo_lite.compile(model, backend=backend, fullgraph=True)) == expected
    for again in (model, dynamo_lite.compile(model, backend=backend)):
        result = again(torch.ones(1, 3)).sum()
        with warnings.catch_warnings(), pytest.raises(UserWarning, match="hook is firing"):
            warnings.filterwarnings("error", "Full backward hook")
            result.backward()


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_gradient_for_arguments_that_want_none(backend):
    model = torch.nn.Linear(3, 2)
    model.register_full_backward_hook(lambda module, given, got: (torch.ones(1, 3),))
    for run in (model, dynamo_lite.compile(model, backend=backend, fullgraph=True)):
        with pytest.raises(RuntimeError, match="should always return None"):
            run(torch.ones(1, 3)).sum().backward()


def test_the_place_of_a_warning_about_a_module_without_gradients_of_arguments():
    def place(model):
        result = model(torch.ones(1, 3))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result.sum().backward()
        return [(str(w.message), w.filename, w.lineno) for w in caught]

    model = torch.nn.Linear(3, 2)
    model.register_full_backward_hook(lambda module, given, got: None)
    expected = place(model)
    assert len(expected) == 1
    assert place(dynamo_lite.compile(model, backend="eager", fullgraph=True)) == expected


@pytest.mark.parametrize(
    ("layer", "graphs"),
    [(lambda: nn.Linear(4, 4), (0, 0)), (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (1, 14))],
    ids=["Linear", "TransformerEncoderLayer"],
)
def test_a_layer_made_of_others_behind_a_break_in_its_own_call_is_one_graph(layer, graphs):
    module, x = layer().eval(), torch.randn(2, 3, 4)
    module.register_forward_pre_hook(dynamo_lite.disable(lambda module, args: None))
    counter = CompileCounter()
    compiled = dynamo_lite.compile(module, backend=counter)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), module(x))
    assert (counter.frame_count, counter.op_count) == graphs
