"""Assignment to the `data` of tensors, and writes to it: memory, identity, gradients and version counters as in eager execution."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same


def tensors():
    """Two parameters and a tensor without gradients."""
    p = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3) + 1)
    return p, torch.nn.Parameter(torch.full((2, 3), 2.0)), torch.arange(6.0).reshape(2, 3) / 3


def decay(p, q, x):
    p.data = p.data * 0.9
    return (p * q).sum()


def of_plain(p, q, x):
    x.data = (x * 0.9).sin()
    return (x * q).sum()


def of_an_input(p, q, x):
    p.data = x
    return (p * q).sum()


def swap(p, q, x):
    p.data, q.data = q.data, p.data
    return (p * q * q).sum()


def returned(p, q, x):
    x.data = x + 1
    return x


def data_returned(p, q, x):
    p.data = p.data + 1
    return p.data


def several(p, q, x):
    for _ in range(3):
        p.data = p.data * 0.5 + 1
    return (p * q).sum()


def used_before(p, q, x):
    y = (p * x).sum()
    p.data = p.data * 0.5
    return y + (p * 3).sum()


def view_before(p, q, x):
    v = x[0]
    x.data = x + 1
    v.add_(10)
    return v * 2, x * 2


def alias_before(p, q, x):
    d = p.data
    p.data = p.data + 1
    d.mul_(5)
    return (p * q).sum(), d * 1


def changed_after(p, q, x):
    x.data = x + 1
    x.mul_(2)
    x[0] = 5
    return (x * q).sum()


def parameter_changed_after(p, q, x):
    p.data = p.data + 1
    with torch.no_grad():
        p.mul_(2)
    return (p * q).sum()


def shared(p, q, x):
    p.data = x
    x.add_(1)
    return (p * q).sum()


def other_sizes(p, q, x):
    x.data = x.double()[:1].t()
    return x * 2, x.dtype, x.stride()


def itself(p, q, x):
    x.data = x
    p.data = p.data
    return (p * x).sum()


def subtracted(p, q, x):
    with torch.no_grad():
        p.data -= 0.1 * x
    return (p * q).sum()


def of_a_result(p, q, x):
    y = p * 2
    y.data = x + 1
    return (y * q).sum()


def without_gradients(p, q, x):
    with torch.no_grad():
        p.data = p.data * 2
        z = p * 3
    return (p * z).sum()


def step(p, q, x):
    ((p * x + q) ** 2).mean().backward()
    for t in (p, q):
        t.data = t.data - 0.1 * t.grad
        t.grad = None
    return p.detach().sum()


def two_steps(p, q, x):
    p.data = p.data * 0.5
    (p * x * q).sum().backward()
    p.data = p.data - p.grad
    loss = (p * q).sum()
    loss.backward()
    p.grad = q.grad = None
    return loss.detach()


def attributes(p, q, x):
    p.data = p.data * 2
    p.tag = 3
    known = p.is_leaf, p.requires_grad, p.grad_fn is None, p.grad is None, isinstance(p, torch.nn.Parameter)
    return (p * q).sum() * p.tag, known


def by_name(p, q, x):
    setattr(p, "data", p.data * 2)
    setattr(q, "data", q.data + 1)
    return (p * q).sum()


def copied(p, q, x):
    p.data.copy_(x)
    return (p * q).sum()


def written(p, q, x):
    p.data[0] = x[1]
    p.data[:, 1] *= 2
    q.data.add_(x, alpha=0.1)
    return (p * q).sum()


def clamped(p, q, x):
    y = (p * x).sum()
    p.data.clamp_(-1, 1)
    return y


def foreach(p, q, x):
    torch._foreach_mul_([p.data, q.data], 0.5)
    return (p * q).sum()


def read(p, q, x):
    return (p.data * q).sum(), p.data.norm()


WHOLE = [
    decay, of_plain, of_an_input, swap, returned, data_returned, several, used_before, view_before, alias_before, changed_after,
    parameter_changed_after, shared, itself, subtracted, of_a_result, without_gradients, step, two_steps, attributes, by_name,
    copied, written, clamped, foreach, read,
]  # fmt: skip


def run(call, make, exact_versions=True):
    """Results and what the tensors are after each of three calls, with gradients of the first result."""
    mine, seen = make(), []
    for _ in range(3):
        for t in mine:
            t.grad = None
        versions = [t._version for t in mine]
        before = [t.data for t in mine]
        results = call(*mine)
        results = results if isinstance(results, tuple) else (results,)
        if results[0].requires_grad:
            results[0].sum().backward()
        tensors = [r for r in results if isinstance(r, torch.Tensor)]
        changes = [t._version - v for t, v in zip(mine, versions, strict=True)]
        seen.append(
            (
                [r.detach().clone() if isinstance(r, torch.Tensor) else r for r in results],
                [(t.detach().clone(), t.grad, t.requires_grad, t.is_leaf, type(t)) for t in mine],
                changes if exact_versions else [n > 0 for n in changes],
                [t.clone() for t in before],
                [_share(t, b) for t in mine for b in (*before, *mine, *tensors)],
                [r is t for r in tensors for t in mine],
            )
        )
        if mine[2].shape != (2, 3):
            mine = make()
    return seen


def _share(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_in_one_graph(fn, backend):
    counter = CompileCounterWithBackend(backend)
    exact = backend == "eager"  # AOTAutograd changes an input once, however often the program does
    compiled = run(dynamo_lite.compile(fn, backend=counter, fullgraph=True), tensors, exact)
    assert same(run(fn, tensors, exact), compiled)
    assert counter.frame_count == 1


@pytest.mark.parametrize("fn", [decay, swap, of_plain], ids=lambda fn: fn.__name__)
def test_what_is_kept_for_gradients_is_not_what_was_assigned(fn):
    """Inductor computes again, when gradients are computed, what it can from the inputs."""
    assert same(run(fn, tensors), run(dynamo_lite.compile(fn, backend="inductor", fullgraph=True), tensors))


def test_other_sizes():
    counter = CompileCounterWithBackend("aot_eager")
    assert same(run(other_sizes, tensors), run(dynamo_lite.compile(other_sizes, backend=counter), tensors))
    assert counter.frame_count == 1


def kept_product(p, q, x):
    y = (p * q).sum()
    p.data = p.data * 0.5
    return y + (p * 3).sum()


def kept_result(p, q, x):
    y = p.sin().sum()
    p.data = p.data * 0.5
    return y


def kept_temporary(p, q, x):
    t = x * 2
    z = (t * q).sum()
    t.data = x * 7
    return z


@pytest.mark.parametrize("fn", [kept_product, kept_result, kept_temporary], ids=lambda fn: fn.__name__)
def test_breaks_before_what_a_gradient_would_notice(fn):
    """An operator that has kept a tensor finds in it what was assigned since."""

    counter = CompileCounterWithBackend("eager")
    opt = dynamo_lite.compile(fn, backend=counter)
    for _ in range(2):
        expected, found = [], []
        for call, into in ((fn, expected), (opt, found)):
            mine = tensors()
            out = call(*mine)
            (out[0] if isinstance(out, tuple) else out).backward()
            into.extend([out, *mine, mine[0].grad, mine[1].grad])
        assert same(expected, found)
    assert counter.frame_count >= 1
    with pytest.raises(Exception, match="assignment"):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(*tensors())


def smaller(p, q, x):
    p.data = p.data[:1] * 1
    return (p * 2).sum(), p.shape


def larger(p, q, x):
    q.data = torch.cat([q.data, x])
    return (q * q).sum() + p.sum(), q.is_leaf


def of_another_rank(p, q, x):
    p.data = x.sum()
    return p * 3, p.ndim


def kept_before(p, q, x):
    y = (p.detach() * q).sum()
    p.data = p.data[:1] * 1
    return y + (p * 3).sum(), p.shape


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [smaller, larger, of_another_rank, kept_before], ids=lambda fn: fn.__name__)
def test_parameters_of_other_sizes(fn, backend):
    """The parameter becomes a leaf of the new size before the graph, so that gradients can reach it."""
    counter = CompileCounterWithBackend(backend)
    expected, found = [], []
    for call, into in ((fn, expected), (dynamo_lite.compile(fn, backend=counter, fullgraph=True), found)):
        mine = tensors()
        out = call(*mine)
        out[0].backward()
        into.extend([out, *mine, mine[0].grad, mine[1].grad, [type(t) for t in mine], [t.is_leaf for t in mine]])
    assert same(expected, found)
    assert counter.frame_count == 1


def test_a_parameter_of_another_size_is_what_it_was_if_the_graph_raises():
    def fn(p, index):
        p.data = torch.ones(5)
        return p[index]

    p = torch.nn.Parameter(torch.zeros(3))
    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    assert compiled(p, torch.tensor([4])).shape == (1,)
    p = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(IndexError):
        compiled(p, torch.tensor([9]))
    assert p.shape == (5,)  # as in eager execution, where the assignment comes first


# -- results that share memory with what gradients need


def data_of_product(y):
    return y.data


def detached(y):
    return y.detach()


def row_of_data(y):
    return y.data[0]


def data_of_row(y):
    return y[0].data


def view_without_gradients(y):
    with torch.no_grad():
        return y[0]


def data_changed(y):
    d = y.data
    d.add_(1)
    return d


def rows(y):
    return y.detach().unbind(0)[1]


RESULTS = [data_of_product, detached, row_of_data, data_of_row, view_without_gradients, data_changed, rows]
MAKE = {"exp": lambda p: p.exp(), "product": lambda p: p * p, "input": lambda p: p, "view": lambda p: p.view(-1, 2)}


def after(call, change):
    """Memory, counters and gradients after a result has been changed where autograd does not look, or does."""
    p = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3) / 4 + 0.5)
    z, d, y = call(p)
    facts = [d.requires_grad, d.is_leaf, d.stride(), _share(d, y), d.detach().clone()]
    version = y._version
    try:
        if change:
            d.mul_(2)
        facts.append(y._version - version)
        z.backward()
    except RuntimeError as error:
        facts.append(str(error)[:40])
    return facts, p.grad, y.detach().clone(), d.detach().clone()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("change", [False, True])
@pytest.mark.parametrize("result", RESULTS)
def test_results_that_share_memory(result, change, backend):
    for make in MAKE.values():

        def fn(p, make=make):
            y = make(p)
            return (y * y).sum(), result(y), y

        if backend == "aot_eager" and result is data_changed and make in (MAKE["input"], MAKE["view"]):
            continue  # AOTAutograd keeps a copy of an input that the graph changes
        compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
        assert same(after(fn, change), after(compiled, change)), result


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_changed_after_a_break(backend):
    """What the graph keeps for gradients is found changed, whether it is a result of the graph or not."""

    def hidden(p):
        y = p * p
        d, z = y.data, (y * y).sum()
        print(end="")
        d.mul_(3)
        return z

    def shown(p):
        y = p.exp()
        d = y.data
        print(end="")
        d.add_(1)
        return y.sum()

    for fn in (hidden, shown):
        p, q = (torch.nn.Parameter(torch.arange(3.0) + 1) for _ in "pq")
        counter = CompileCounterWithBackend(backend)
        expected, found = fn(p), dynamo_lite.compile(fn, backend=counter)(q)
        expected.backward(), found.backward()
        assert same((expected, p.grad), (found, q.grad))
        assert counter.frame_count == 2


def test_what_a_graph_keeps_of_a_tensor_whose_data_it_writes_has_a_counter_of_its_own():
    """Moving averages of a codebook: what is kept for gradients must not be found changed when the buffer's counter is as before."""
    kept = []

    def functional(gm, inputs):
        def run(x, codes):
            changed = codes.clone()
            results = gm(x, changed)
            with torch.no_grad():
                codes.copy_(changed)
            kept.append((codes, codes._version))
            return results

        return run

    def step(x, codes):
        y = (x * codes).sin()
        codes.data.mul_(2)
        codes.data.add_(1)
        return y.sum()

    x, codes = torch.ones(3, requires_grad=True), torch.ones(3)
    codes.add_(1)
    dynamo_lite.compile(step, backend=functional, fullgraph=True)(x, codes)
    assert codes._version == 1 and same(codes, torch.full((3,), 5.0))
    assert all(tensor._version == n for tensor, n in kept)


VIEWS_OF_RESULTS = {
    "transposed": lambda s: s.t(),
    "part": lambda s: s[1:],
    "flat": lambda s: s.view(-1),
    "part of a part": lambda s: s[1:].t()[:, :1],
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", VIEWS_OF_RESULTS)
def test_detached_views_of_results(name, backend):
    """AOTAutograd makes a detached view of a result by what was done to it last alone."""

    def fn(x):
        view = VIEWS_OF_RESULTS[name](x.sin())
        return view.detach(), view, view.detach().t() if view.dim() == 2 else view.data

    def run(call):
        x = torch.arange(9.0).reshape(3, 3).requires_grad_()
        results = call(x)
        shares = results[0].untyped_storage()._cdata == results[1].untyped_storage()._cdata
        results[1].sum().backward()
        return [(r.detach(), r.stride(), r.requires_grad) for r in results], x.grad, shares

    assert same(run(fn), run(dynamo_lite.compile(fn, backend=backend, fullgraph=True)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_elements_that_share_memory_are_not_written(backend):
    def fn(x):
        y = x.clone().expand(2, 3)
        y.mul_(2)
        return y

    with pytest.raises(RuntimeError, match="single memory location"):
        fn(torch.ones(3))
    with pytest.raises(RuntimeError, match="single memory location"):
        dynamo_lite.compile(fn, backend=backend)(torch.ones(3))


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x.squeeze_()])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_another_view_of_assigned_data(change, backend):
    def viewed(p, x):
        x.data = p.detach() * 2
        change(x)
        return x + 1

    outcomes = []
    for fn in (viewed, dynamo_lite.compile(viewed, backend=backend)):
        p, _, x = tensors()
        result = fn(p, x)
        outcomes.append((result, x, x.stride()))
    assert same(*outcomes)
