"""`torch.autograd.grad` in the captured code, and tensors that begin to require gradients there."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, run_both, same

grad = torch.autograd.grad


def x():
    return torch.arange(12.0).reshape(4, 3) / 7 - 0.5


def weight():
    return torch.tensor([1.0, 0.5, -1.0], requires_grad=True)


def plain(a, w):
    y = (a * w).sin().sum()
    return y.detach(), grad(y, w)


def created(a, w):
    (g,) = grad((a * w).sin().sum(), w, create_graph=True)
    return (g**2).sum()


def second(a, w):
    b = a.clone().requires_grad_()
    (g,) = grad((b**3).sum(), b, create_graph=True)
    return g.detach(), grad(g.sum(), b)


def penalty(a, w):
    b = a.detach().requires_grad_(True)
    out = (b * w).tanh()
    (g,) = grad(out, b, grad_outputs=torch.ones_like(out), create_graph=True, retain_graph=True)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


def unused(a, w):
    v = torch.ones(3) * w.detach()
    return grad((a * w).sum(), [w, v.requires_grad_()], allow_unused=True)


def materialized(a, w):
    v = torch.ones(3).requires_grad_()
    return grad((a * w).sum(), [w, v], materialize_grads=True)


def of_intermediate(a, w):
    y = (a * w).sin()
    z = (y * y).sum()
    return grad(z, y, retain_graph=True), z


def several(a, w):
    return grad([(a * w).sum(), w * 2], w, [None, torch.ones(3)])


def changed_in_place(a, w):
    y = a.clone()
    y[0] = w
    y[1].add_(w)
    return grad((y.mul_(2) ** 2).sum(), w)


def inner_steps(a, w):
    for _ in range(3):
        (g,) = grad(F.mse_loss(a * w, torch.ones(4, 3)), w, create_graph=True)
        w = w - 0.1 * g
    return F.mse_loss(a * w, torch.ones(4, 3))


def under_no_grad(a, w):
    with torch.no_grad():
        b = a * 2
        with torch.enable_grad():
            g = grad((b * w).sin().sum(), w)
        return g, (w * 2).requires_grad


def of_checkpoint(a, w):
    return grad(checkpoint(lambda p, q: (p * q).sin(), a, w, use_reentrant=False).sum(), w)


def with_autocast(a, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = (a @ w[:, None]).sum()
    return grad(z, w)


def hessian(a, w):
    return torch.autograd.functional.hessian(lambda p: (p**3).sum(), a[0])


ONE_GRAPH = [
    *(plain, created, second, penalty, unused, materialized, of_intermediate, several, changed_in_place, inner_steps),
    *(under_no_grad, of_checkpoint, with_autocast, hessian),
]


def outcome(fn):
    """Results of two calls, and the gradients that the last result gives."""
    w, results = weight(), []
    for i in range(2):
        result = fn(x() + i, w)
        results.append(result)
    last = result[-1] if isinstance(result, tuple) else result
    if isinstance(last, torch.Tensor) and last.requires_grad:
        last.backward()
    return results, w.grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", ONE_GRAPH)
def test_one_graph(fn, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    assert same(outcome(fn), outcome(compiled), tol=1e-5)
    assert counter.frame_count == 1


def leaf_returned(a, w):
    b = a.detach().requires_grad_()
    return b, (b**3).sum()


def only_reason(a, w):
    b = a.detach().requires_grad_()
    return b.is_leaf, (b**3).sum()


def of_unused(a, w):
    try:
        return grad((a * 2).sum(), w)
    except RuntimeError as error:
        return str(error)


def used_up(a, w):
    z = ((a * w).sin() ** 2).sum()
    return grad(z, w), z.requires_grad, z


def freed(a, w):
    z = ((a * w).sin() ** 2).sum()
    g = grad(z, w)
    try:
        grad(z, w)
    except RuntimeError as error:
        return "second time" in str(error), g


def input_begins(a, w):
    a.requires_grad_()
    return a.requires_grad, (a * w).sum()


def input_flag(a, w):
    a.requires_grad = True
    return a.is_leaf, (a * w).sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [leaf_returned, only_reason, of_unused, freed, input_begins, input_flag])
def test_breaks_are_right(fn, backend):
    assert same(outcome(fn), outcome(dynamo_lite.compile(fn, backend=backend)), tol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_parameters_stop_and_begin_to_require_gradients(backend):
    def toggled(opt):
        torch.manual_seed(0)
        net = nn.Linear(3, 2)

        def fn(a, flag):
            net.requires_grad_(flag)
            return net(a)

        call = opt(fn)
        return [(call(x(), flag).requires_grad, net.weight.requires_grad) for flag in (False, False, True, False)]

    assert toggled(lambda fn: fn) == toggled(lambda fn: dynamo_lite.compile(fn, backend=backend))


def test_hooks_of_a_tensor_are_seen():
    w = weight()
    compiled = dynamo_lite.compile(lambda a, w: grad((a * w).sum(), w)[0], backend="aot_eager")
    without = compiled(x(), w)
    handle = w.register_hook(lambda g: g * 3)
    assert torch.equal(compiled(x(), w), without * 3)
    handle.remove()
    assert torch.equal(compiled(x(), w), without)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_result_whose_gradients_are_used_up(backend):
    compiled = dynamo_lite.compile(used_up, backend=backend, fullgraph=True)
    for _ in range(2):
        g, requires_grad, z = compiled(x(), weight())
        assert same((g, requires_grad, z), used_up(x(), weight()), tol=1e-5)
        with pytest.raises(RuntimeError, match="second time"):
            z.backward()


def kept_and_changed(a, w):
    y = (a * w).exp()
    z = (y * 2).sum()
    z.backward(retain_graph=True)
    y.add_(1)
    return z, y


def error_of_backward(call):
    with pytest.raises(RuntimeError) as raised:
        call().sum().backward()
    return str(raised.value)


@pytest.mark.parametrize("i", [0, 1])
def test_the_error_of_gradients_whose_tensors_have_changed(i):
    compiled = dynamo_lite.compile(kept_and_changed, backend="eager", fullgraph=True)
    found, expected = (error_of_backward(lambda: fn(x(), weight())[i]) for fn in (compiled, kept_and_changed))
    assert found == expected
    assert "modified by an inplace operation" in found


def chunk_returned(lin, a):
    mu, log = lin(a).chunk(2, 1)
    loss = (mu**2).sum() + log.exp().sum()
    loss.backward()
    return loss.detach(), mu


def split_returned(lin, a):
    mu, log = lin(a).split([1, 2], 1)
    return *grad((mu.sum() * log).sum(), lin.weight), mu, log


def unpacked_rows_returned(lin, a):
    h = lin(a)
    first, second, *_ = h
    (first * second).sum().backward()
    return first, second[1:], h.detach(), h


def last_row_returned(lin, a):
    for row in lin(a):
        row.sum().backward(retain_graph=True)
    row.sum().backward()
    return row


def row_returned_with_its_history(lin, a):
    first, second, *_ = lin(a)
    (first * second).sum().backward(retain_graph=True)
    return first


PIECES = [chunk_returned, split_returned, unpacked_rows_returned, last_row_returned, row_returned_with_its_history]


def about(result):
    """What a program can tell of a result: what it is, what its gradients and a change in place raise."""
    said = []
    for change in (lambda: result.sum().backward(retain_graph=True), lambda: result.add_(1)):
        try:
            change()
        except RuntimeError as error:
            said.append(str(error))
        else:
            said.append(None)
    return result.requires_grad, result._is_view(), str(result.grad_fn and result.grad_fn.name()), said


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", PIECES)
def test_pieces_of_a_tensor_whose_gradients_are_used_up(fn, backend):
    lin = nn.Linear(3, 3)

    def outcome(step):
        lin.zero_grad()
        results = step(lin, x())
        results = results if isinstance(results, tuple) else (results,)
        return [t.detach().clone() for t in results], list(map(about, results)), lin.weight.grad

    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        values, facts, gradient = outcome(compiled)
        assert same((values, gradient), (outcome(fn)[0], outcome(fn)[2]), tol=1e-5) and facts == outcome(fn)[1]


# -- backward


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def simple(m, a):
    loss = m(a).pow(2).sum()
    loss.backward()
    return loss.detach()


def twice(m, a):
    m(a).sum().backward()
    (m(a) ** 2).mean().backward()


def kept(m, a):
    loss = m(a).pow(2).sum()
    loss.backward(retain_graph=True)
    return loss.backward()


def manual_step(m, a):
    loss = m(a).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for p in m.parameters():
            p -= 0.1 * p.grad
            p.grad = None
    return loss.detach()


def attack(m, a):
    b = a.clone().requires_grad_()
    m(b).sum().backward()
    return a + 0.1 * b.grad.sign()


def shared(m, a):
    b, c = m[0].bias, m[2].bias
    (b[:2] + c).backward(a[0, :2])
    return b.grad.stride(), c.grad.is_contiguous()


def hooked_inside(m, a):
    h = m[0](a)
    h.register_hook(lambda g: g * 3)
    m[2](h).sum().backward()


def identity(m, a):
    before = m[0].weight.grad
    m(a).sum().backward()
    return before is None, m[0].weight.grad is before


def some_inputs(m, a):
    m(a).sum().backward(inputs=list(m[0].parameters()))


def one_input(m, a):
    b = a.clone().requires_grad_()
    m(b).sum().backward(inputs=b)
    return b.grad * 2, m[0].weight.grad


def inputs_in_turn(m, a):
    y = m(a)
    first, last = m[0].weight, m[2].weight
    torch.autograd.backward([y, first * 3], [torch.ones_like(y), first], retain_graph=True, inputs=[first, first])
    y.sum().backward(inputs=(last, first))
    return last.grad.sum()


def unreached_input(m, a):
    b = torch.ones(3, requires_grad=True)
    y = m[0](a).sin().sum()
    y.backward(inputs=[m[2].weight, b])
    y.backward()
    return m[2].weight.grad, b.grad


BACKWARD = [
    simple,
    twice,
    kept,
    manual_step,
    attack,
    shared,
    hooked_inside,
    identity,
    some_inputs,
    one_input,
    inputs_in_turn,
    unreached_input,
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", BACKWARD)
def test_backward_in_the_graph(fn, backend):
    def run(opt):
        m = net()
        call = opt(fn)
        results = [call(m, x() + i) for i in range(3)]
        return (
            results,
            [p.grad for p in m.parameters()],
            [p.grad.stride() for p in m.parameters() if p.grad is not None],
        )

    expected = run(lambda f: f)
    assert same(expected, run(lambda f: dynamo_lite.compile(f, backend=backend, fullgraph=True)), tol=1e-5)


def history(m, a):
    b = a.requires_grad_() * 2
    print(end="")
    (b**2).sum().backward()
    return a.grad


def freed_twice(m, a):
    loss = m(a).pow(2).sum()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        return "second time" in str(error)


def creates_graph(m, a):
    (m(a) ** 3).sum().backward(create_graph=True)
    return m[0].weight.grad.requires_grad


def no_inputs(m, a):
    try:
        m(a).sum().backward(inputs=[])
    except RuntimeError as error:
        return str(error)


def input_that_requires_none(m, a):
    try:
        m(a).sum().backward(inputs=[a])
    except RuntimeError as error:
        return str(error)


def inputs_with_history(m, a):
    y = m[0](a)
    z = y.tanh()
    m[2](z).sum().backward(inputs=[z, m[2].bias, y])
    return y.grad * 1, z.grad * 1


def hooked_and_history(m, a):
    m[0].weight.register_hook(lambda g: g * 2)
    y = m[0](a)
    return grad(m[2](y).sum(), [y, m[0].weight])


def no_history(m, a):
    try:
        a.sum().backward()
    except RuntimeError as error:
        return str(error)


BREAKS = [
    history,
    freed_twice,
    creates_graph,
    no_inputs,
    input_that_requires_none,
    inputs_with_history,
    hooked_and_history,
    no_history,
]


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize(  # AOTAutograd's backward graphs have no gradients of their own
    "fn, backend", [(f, b) for f in BREAKS for b in ("eager", "aot_eager") if f is not creates_graph or b == "eager"]
)
def test_backward_that_breaks(fn, backend):

    def run(opt):
        m = net()
        return opt(fn)(m, x()), [p.grad if p.grad is None else p.grad.detach() for p in m.parameters()]

    assert same(run(lambda f: f), run(lambda f: dynamo_lite.compile(f, backend=backend)), tol=1e-5)


def through_history(w, y):
    return grad((y * w).sum(), w)


def only_through_history(w, y):
    return grad((y * 3).sum(), [w, y], allow_unused=True)


def up_to_history(w, y):
    return grad((y * w).sum(), y)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "fn, is_known", [(through_history, False), (only_through_history, False), (up_to_history, True)]
)
def test_an_input_depends_on_another(fn, is_known, backend):
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=is_known)
    results = []
    for call in (fn, compiled):
        w = weight()
        results.append(call(w, w * x()))
    assert same(*results, tol=1e-5)


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_leaves_run_in_backward(register):
    seen = []
    m = net()
    compiled = dynamo_lite.compile(simple, backend="eager")
    compiled(m, x())
    handle = getattr(m[0].weight, register)(lambda t: seen.append(t.shape))
    compiled(m, x())
    handle.remove()
    compiled(m, x())
    assert seen == [(4, 3)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_a_whole_training_step(make, backend):
    def run(opt):
        m = net()
        optimizer = make(m.parameters(), lr=0.1)

        def step(a):
            loss = m(a).pow(2).mean()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach(), norm

        call = opt(step)
        return [call(x() + i) for i in range(4)], list(m.parameters())

    expected = run(lambda f: f)
    assert same(expected, run(lambda f: dynamo_lite.compile(f, backend=backend, fullgraph=True)), tol=1e-5)


def test_views_made_without_gradients_leave_the_graph():
    """Such a view of a parameter is a leaf that requires gradients."""
    weight = torch.nn.Parameter(torch.arange(24.0).reshape(1, 6, 4))

    def fn(a):
        view = weight[:, 1:, :].transpose(1, 2)
        return view, view + a.sum(), view.requires_grad, view.is_leaf

    def under_gradients(a):
        view = weight[:, 1:, :]
        with torch.enable_grad():
            return view * a.sum()

    for backend in ("eager", "aot_eager"):
        with torch.no_grad():
            compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
            result, expected = compiled(torch.ones(3)), fn(torch.ones(3))
        assert same(result, expected)
        assert result[0].requires_grad and result[0].is_leaf and result[0]._base is weight
    with torch.no_grad():
        run = run_both(under_gradients, torch.ones(3))
    assert [b.slug for b in run.breaks] == ["backward-call"]


def test_a_view_made_without_gradients_and_changed():
    """Nobody can say whether it is a leaf."""

    def fn(a, weight):
        with torch.no_grad():
            view = weight.view(-1)
            view.add_(a)
            double = view * 2
        return double, weight.sum() + a

    run = run_both(fn, torch.ones(()), torch.nn.Parameter(torch.arange(4.0)))
    assert {b.slug for b in run.breaks} <= {"fake-tensor-error"}


# -- a break between two tensors and the gradients of one by the other


def asked_after(p):
    y = p * 2
    z = (y * y).sum()
    print(end="")
    return torch.autograd.grad(z, y)


def asked_by_name(p):
    y, w = p.exp(), p.sin()
    z = (y * w).sum() + y.cos().sum()
    print(end="")
    return grad(z, [w, y])


def asked_twice(p):
    y = p.exp()
    z = (y * y).sum()
    print(end="")
    (g,) = torch.autograd.grad(z, y, create_graph=True)
    print(end="")
    return torch.autograd.grad(g.sum() + z, p)


def asked_by_a_callee(p):
    def inner(y):
        z = (y * 3).exp()
        print(end="")
        return z.sum()

    y = p * 2
    return torch.autograd.grad(inner(y), y)


def retained(p):
    y = p * 2
    z = (y * y).sum()
    print(end="")
    y.retain_grad()
    z.backward()
    return y.grad


def hooked(p):
    y = p * 2
    z = (y * y).sum()
    seen = []
    print(end="")
    y.register_hook(seen.append)
    z.backward()
    return seen


def of_an_input(p):
    y = p * 2
    z = (y * y).sum()
    print(end="")
    return torch.autograd.grad(z, p), y


BETWEEN = {
    asked_after: 2,
    asked_by_name: 2,
    asked_twice: 3,
    asked_by_a_callee: 3,
    retained: 2,
    hooked: 2,
    of_an_input: 2,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", BETWEEN)
def test_gradients_between_what_was_made_before_a_break(fn, backend):
    """A compiled graph is one node of autograd: one ends where the other begins."""

    def run(call):
        p = torch.arange(3.0, requires_grad=True)
        return call(p), p.grad

    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter)
    for _ in range(2):
        assert same(run(fn), run(compiled))
    assert counter.frame_count == BETWEEN[fn]


@pytest.mark.skipif(not hasattr(torch.autograd, "enforce_grad_layout_policy"), reason="this torch has one layout")
def test_gradients_that_are_laid_out_otherwise_than_their_leaves():
    def fn(x):
        p = x.permute(2, 0, 1).detach().requires_grad_()
        (p * 2).sum().backward()
        return p

    compiled = dynamo_lite.compile(fn, backend="eager")
    x = torch.ones(2, 3, 4)
    for enforced in (True, False, True):
        with torch.autograd.enforce_grad_layout_policy(enforced):
            assert compiled(x).grad.stride() == fn(x).grad.stride() == ((1, 12, 4) if enforced else (6, 3, 1))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_loss_behind_its_backward_pass_is_a_tensor_like_others(backend):
    """It is no view, may be changed in place, and its node has its own name."""

    def step(x):
        loss = x.exp().sum()
        loss.backward()
        return loss

    compiled = dynamo_lite.compile(step, backend=backend, fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    loss = compiled(x)
    assert repr(loss) == repr(step(x)) and loss.grad_fn.name() == "SumBackward0"
    assert not loss._is_view() and loss._base is None and not loss.is_leaf
    loss += compiled(x)
    assert torch.equal(loss, 2 * step(x)) and loss.grad_fn.name() == "AddBackward0"
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        loss.backward()
    assert loss.detach_().is_leaf


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("inside", [True, False])
def test_an_input_that_is_detached_in_place_behind_its_use(backend, inside):
    """The operator that has kept it for its gradient raises."""

    def fn(a, w):
        t = (a * w).sum()
        a.detach_()
        if inside:
            t.backward()
        return t

    w = weight()
    with pytest.raises(RuntimeError, match="a saved tensor that has been detached in-place"):
        dynamo_lite.compile(fn, backend=backend)(w.sin(), w).backward()
    assert w.grad is None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_input_that_is_detached_in_place_first(backend):
    def fn(a, w):
        a.detach_()
        t = (a * w).sum()
        t.backward()
        return a.requires_grad, t.detach()

    w = weight()
    a = w * 2
    requires_grad, t = dynamo_lite.compile(fn, backend=backend)(a, w)
    assert not requires_grad and not a.requires_grad and t.item() == 4.5 and same(w.grad, w.detach() * 2)


# -- gradients that share memory with each other, or with the tensor that a pass begins with


def sum_of_views(a, b, g):
    (a.view(3) + b.view(3)).tanh().mean().backward()


def parts(a, b, g):
    torch.cat([a, b]).pow(2).mean().backward()


def given_as_view(a, b, g):
    a.view(3).backward(g)


def given(a, b, g):
    a.backward(g)
    (b + 0).backward(g)


def kept_by_a_later_node(a, b, g):
    (a + b.view(3)).pow(2).mean().backward()


def through_views(a, b, g):
    (a.view(3, 1) * b.view(1, 3)).sum().backward()


def memories(*tensors):
    numbers = {}
    return [t is not None and numbers.setdefault(t.untyped_storage().data_ptr(), len(numbers)) for t in tensors]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("begin", [sum_of_views, parts, given_as_view, given, kept_by_a_later_node, through_views])
def test_first_gradients_are_taken_over_with_their_memory(begin, backend):
    def step(a, b, g):
        begin(a, b, g)
        a.grad.add_(1)
        if b.grad is not None:
            b.grad.mul_(2)
        return g * 1

    def outcome(run):
        a, b, g = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3)), torch.ones(3)
        result = [run(a, b, g)]
        first = memories(a.grad, b.grad, g), a.grad._is_view(), a.grad._base is None
        g.mul_(10)
        result.append(run(a, b, g))
        return result, [a.grad, b.grad, g], first, memories(a.grad, b.grad, g)

    assert same(outcome(step), outcome(dynamo_lite.compile(step, backend=backend, fullgraph=True)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_one_gradient_of_several_tensors_is_one_object(backend):
    def step(a, b, g):
        first, second = grad((a + b).pow(2).sum(), (a, b))
        (passed,) = grad(a + 0, a, g)
        (part,) = grad(a.view(3, 1), a, g.view(3, 1))
        part.mul_(3)
        a.grad, b.grad = first, second
        return first is second, len({id(first), id(second)}), passed is g, part is g, a.grad is b.grad, g * 1

    def outcome(run):
        a, b, g = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3)), torch.ones(3)
        return run(a, b, g), a.grad, a.grad is b.grad, g

    assert same(outcome(step), outcome(dynamo_lite.compile(step, backend=backend, fullgraph=True)))
