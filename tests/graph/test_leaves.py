"""Leaves that the traced code makes: parameters, modules built in forward, tensors that begin to require gradients."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same


def x():
    return torch.arange(6.0).reshape(2, 3)


def used(a):
    return nn.Parameter(torch.ones(3)) * a


def used_and_returned(a):
    p = nn.Parameter(a.sin())
    return p, p * 2 + a


def of_an_input(a):
    p = nn.Parameter(a)
    return p, p * 2


def of_a_parameter(a):
    p = nn.Parameter(torch.ones(3))
    q = nn.Parameter(p * 2)
    return p * a, q * a, q


def not_required(a):
    p = nn.Parameter(torch.ones(3), requires_grad=False)
    return p, p * a


def layer(a):
    return nn.Linear(3, 4)(a)


def layer_returned(a):
    layer = nn.Linear(3, 4)
    return layer, layer(a).sum()


def layers(a):
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4), nn.Linear(4, 2))(a)


def of_another_dtype(a):
    layer = nn.Linear(3, 4).double()
    return layer, layer(a.double())


def under_no_grad(a):
    layer = nn.Linear(3, 4)
    with torch.no_grad():
        return layer(a), layer.weight


def changed(a):
    p = nn.Parameter(torch.ones(3))
    with torch.no_grad():
        p.mul_(3)
    y = p * a
    return y, p


def begins(a):
    b = a.detach().requires_grad_()
    return b, (b**3).sum()


def only_reason(a):
    b = a.detach().requires_grad_()
    return b.is_leaf, (b**3).sum()


def by_keyword(a):
    b = torch.ones(3, requires_grad=True)
    return b, b * a, torch.tensor([1.0, 2.0], requires_grad=True)


def by_attribute(a):
    b = a + 1
    b.requires_grad = True
    return b.requires_grad, b.grad, b * 2


def alone(a):
    return torch.zeros(3).requires_grad_(), nn.Parameter(a + 1)


def gradient_inside(a):
    p = nn.Parameter(torch.ones(3))
    (p * a).sum().backward()
    return p, p.grad * 2


def penalty(a):
    p = nn.Parameter(torch.ones(3))
    (g,) = torch.autograd.grad((p * a).pow(2).sum(), p, create_graph=True)
    return g.pow(2).sum(), p


def other_data(a):
    p = nn.Parameter(torch.ones(3))
    p.data = a[0].double()
    return p, p * 2


def toggled(a):
    p = nn.Parameter(torch.ones(3)).requires_grad_(False)
    return p, p * a


def shared_memory(a):
    b = a * 1
    p = nn.Parameter(b)
    c = p * 2
    b.add_(1)
    return p, b, c


ONE_GRAPH = [
    *(
        used,
        used_and_returned,
        of_an_input,
        of_a_parameter,
        not_required,
        layer,
        layer_returned,
        layers,
        of_another_dtype,
    ),
    *(
        under_no_grad,
        changed,
        begins,
        only_reason,
        by_keyword,
        by_attribute,
        alone,
        gradient_inside,
        penalty,
        other_data,
    ),
    *(toggled, shared_memory),
]


def tensors(value):
    if isinstance(value, nn.Module):
        return list(value.parameters())
    if isinstance(value, tuple | list):
        return [t for item in value for t in tensors(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def outcome(fn):
    """Results of two calls with what autograd knows of them, and the gradients that come of them."""
    seen = []
    for i in range(2):
        torch.manual_seed(i)
        a = x() + i
        result = fn(a)
        found = tensors(result)
        seen.append((a, found))
        seen += [
            (type(t), t.requires_grad, t.is_leaf, t.dtype, t.untyped_storage().data_ptr() == a.data_ptr())
            for t in found
        ]
        wanted = [t for t in found if t.requires_grad and not t.is_leaf]
        if wanted:
            sum(t.sum().double() for t in wanted).backward()
            seen.append([t.grad for t in found if t.is_leaf])
    return seen


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", ONE_GRAPH)
def test_one_graph(fn, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    assert same(outcome(fn), outcome(compiled), tol=1e-5)
    assert counter.frame_count == 1


def hooked(a):
    p = nn.Parameter(torch.ones(3))
    p.register_hook(lambda g: g * 2)
    return p, p * a


def used_before_other_data(a):
    p = nn.Parameter(torch.ones(3))
    y = p * a
    p.data = torch.zeros(3)
    return p, y


def twice(a):
    p = torch.ones(3).requires_grad_()
    y = p * a
    p = y.detach().requires_grad_(False)
    return p.requires_grad_(), y


def differentiable_view(a):
    p = nn.Parameter(torch.ones(2, 3))
    view = p[0]
    return p, view, view * a


def filled_by_rows(a):
    p = nn.Parameter(torch.zeros(2, 3))
    with torch.no_grad():
        p[0] = a[0]
        p[1].fill_(2)
    return p * a, p


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [hooked, used_before_other_data, twice, differentiable_view, filled_by_rows])
def test_in_pieces(fn, backend):
    assert same(outcome(fn), outcome(dynamo_lite.compile(fn, backend=backend)), tol=1e-5)


class Late(nn.Module):
    """A module that makes what it needs at its first call."""

    def __init__(self):
        super().__init__()
        self.layer = None

    def forward(self, a):
        if self.layer is None:
            self.layer = nn.Linear(a.shape[-1], 2)
            self.scale = nn.Parameter(torch.ones(2))
        return self.layer(a) * self.scale


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_parameters_made_at_the_first_call_are_trained(backend):
    def run(opt):
        torch.manual_seed(0)
        net = Late()
        call, results = opt(net), []
        for i in range(3):
            results.append(call(x() + i))
            results[-1].pow(2).sum().backward()
            if i == 0:
                first = list(net.parameters())
                optimizer = torch.optim.SGD(first, lr=0.01)
            optimizer.step()
            optimizer.zero_grad()
        assert all(p is q for p, q in zip(first, net.parameters(), strict=True))
        return results, first

    counter = CompileCounterWithBackend(backend)
    assert same(run(lambda f: f), run(lambda f: dynamo_lite.compile(f, backend=counter, fullgraph=True)), tol=1e-5)
    assert counter.frame_count == 2


def test_only_as_many_inputs_as_gradients_need():
    counter = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(layers, backend=counter, fullgraph=True)
    assert compiled(x()).requires_grad
    assert len(counter.graphs[0].graph.find_nodes(op="placeholder")) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_stacked_modules(backend):
    models = [nn.BatchNorm1d(3) for _ in range(3)]

    def fn(a):
        params, buffers = stack_module_state(models)
        call = lambda p, b: functional_call(models[0], (p, b), (a,))  # noqa: E731
        return params, buffers, vmap(call)(params, buffers)

    def run(call):
        params, buffers, y = call(x())
        y.sum().backward()
        return params, buffers, y, [(p.is_leaf, p.requires_grad, p.grad) for p in params.values()]

    for model in models:
        model.eval()
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    for _ in range(2):
        assert same(run(fn), run(compiled), tol=1e-5)
    assert counter.frame_count == 1


# -- tensors from outside that become leaves of another kind


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def to_double(m, a):
    return m.double()(a.double())


def to_bfloat16(m, a):
    return m.to(torch.bfloat16)(a.bfloat16()), [p.dtype for p in m.parameters()]


def there_and_back(m, a):
    return m.half().float()(a)


def converted_only(m, a):
    with torch.no_grad():
        y = m(a)
    m.double()
    return y


def converted_under_no_grad(m, a):
    with torch.no_grad():
        return m.double()(a.double())


def converted_and_changed(m, a):
    m.double()
    with torch.no_grad():
        for p in m.parameters():
            p.mul_(2)
    return m(a.double())


def frozen(m, a):
    m.requires_grad_(False)
    return m(a)


def partly_frozen(m, a):
    m[0].requires_grad_(False)
    return m(a), [p.requires_grad for p in m.parameters()]


def frozen_after_use(m, a):
    y = m(a)
    m[2].weight.requires_grad = False
    return y


def thawed(m, a):
    m.requires_grad_(False)
    y = m(a)
    m.requires_grad_(True)
    return y.requires_grad, m(a)


def input_begins(m, a):
    a.requires_grad_()
    return a.requires_grad, a.is_leaf, a.grad, m(a * 2)


def input_begins_by_attribute(m, a):
    b = a.sin()
    a.requires_grad = True
    return m(a) + b[:, :2]


def input_gradient(m, a):
    a.requires_grad_(True)
    y = m(a).pow(2).sum()
    (g,) = torch.autograd.grad(y, a, create_graph=True)
    return y + g.norm()


def input_backward(m, a):
    a.requires_grad_(True)
    m(a).pow(2).sum().backward()
    return a.grad * 2


def stepped(m, a):
    """An attack by gradients."""
    delta = torch.zeros_like(a, requires_grad=True)
    for _ in range(2):
        m(a + delta).pow(2).sum().backward()
        delta.data = (delta + 0.1 * delta.grad.sign()).clamp(-0.2, 0.2)
        delta.grad = None
    return delta.detach()


CHANGED = [
    *(to_double, to_bfloat16, there_and_back, converted_only, converted_under_no_grad, converted_and_changed, frozen),
    *(partly_frozen, frozen_after_use, thawed, input_begins, input_begins_by_attribute, input_gradient, input_backward),
]


def after(fn, opt, make=net):
    """The results of two calls, each on a module and an input of its own, and all that autograd knows of these."""
    call, seen = opt(fn), []
    for i in range(2):
        m, a = make(), x() + i
        params = list(m.parameters())
        result = call(m, a)
        loss = [t for t in tensors(result) if t.requires_grad]
        if loss:
            sum(t.double().sum() for t in loss).backward()
        seen.append((result, a, a.requires_grad, a.grad, m.state_dict()))
        assert all(p is q for p, q in zip(params, m.parameters(), strict=True))
        seen.append([(type(p), p.dtype, p.requires_grad, p.is_leaf, p.grad) for p in params])
    return seen


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", CHANGED)
def test_changed_in_one_graph(fn, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = after(fn, lambda f: dynamo_lite.compile(f, backend=counter, fullgraph=True))
    assert same(after(fn, lambda f: f), compiled, tol=1e-5)
    assert counter.frame_count == 1


def filled_by_rows_of_a_module(m, a):
    w = m[0].weight
    with torch.no_grad():
        w[0] = 1
        w[1].fill_(2)
    return m(a)


def used_in_both_kinds(m, a):
    y = m[0](a)
    return y, m.double()(a.double())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [used_in_both_kinds, stepped, filled_by_rows_of_a_module])
def test_changed_in_pieces(fn, backend):
    assert same(after(fn, lambda f: f), after(fn, lambda f: dynamo_lite.compile(f, backend=backend)), tol=1e-5)


def test_a_graph_that_raises_leaves_no_trace():
    def fn(m, a, index):
        a.requires_grad_()
        m.double()
        return m(a.double())[index]

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    compiled(net().eval(), x(), torch.tensor([0]))
    m, a = net().eval(), x()
    with pytest.raises(IndexError):
        compiled(m, a, torch.tensor([7]))
    assert a.requires_grad and same(m.state_dict(), net().double().state_dict())


def test_an_input_with_sizes_that_vary():
    def fn(a):
        a.requires_grad_()
        return (a * 2).sum()

    counter = CompileCounterWithBackend("aot_eager")
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True, dynamic=True)
    for n in (3, 5, 8):
        a = torch.arange(float(n))
        compiled(a).backward()
        assert torch.equal(a.grad, torch.full((n,), 2.0))
    assert counter.frame_count == 1
