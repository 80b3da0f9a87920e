"""What operators write to where no version counter of a fake tensor tells: lists of tensors, running statistics."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.exc import Unsupported
from dynamo_lite.graph.passes import input_aliasing
from dynamo_lite.testing import CompileCounterWithBackend, run_both, same
from tests.helpers.capturing import new_region


def x():
    return torch.arange(6.0).reshape(2, 3) + 1


def foreach(a, b):
    torch._foreach_add_([a], 1)
    return b * 2


def foreach_of_views(a, b):
    torch._foreach_mul_((a.view(-1)[:2], a[1]), 3)
    return b * 2


def foreach_copy(a, b):
    torch._foreach_copy_([a], [a * 5])
    return b * 2


def foreach_by_schema(a, b):
    torch.ops.aten._foreach_addcmul_([a], [a.clone()], [a.clone()], 2)
    return b * 2


def fused(a, b):
    torch._fused_sgd_(
        [a], [torch.ones_like(a)], [], weight_decay=0.0, momentum=0.0, lr=0.5, dampening=0.0, nesterov=False,
        maximize=False, is_first_step=False,
    )  # fmt: skip
    return b * 2


def batch_norm(a, b):
    y = F.batch_norm(torch.arange(12.0).reshape(4, 3), a[0], a[1], training=True)
    return y, b * 2


def batch_norm_in_place(a, b):
    F.instance_norm(torch.arange(12.0).reshape(2, 3, 2), a[0], a[1])
    return b * 2


def in_a_function(a, b):
    torch.nn.utils.vector_to_parameters(a.view(-1) + 1, [b])
    return a * 2


def beside_a_branch(a, b):
    c = torch.cond(a.sum() > 3, lambda t: t * 2, lambda t: t * 3, (a,))
    torch._foreach_add_([a], 1)
    return b * 2, c


CHANGES = [
    foreach, foreach_of_views, foreach_copy, foreach_by_schema, fused, batch_norm, batch_norm_in_place, in_a_function, beside_a_branch,
]  # fmt: skip


def alias():
    a = x()
    return a, a.view(-1)


def row():
    a = x()
    return a, a[0]


def apart():
    return x(), x()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", CHANGES)
def test_a_change_shows_in_what_shares_memory(fn, backend):
    makes = (apart,) if fn is in_a_function else (alias, row, apart, alias)
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter)
    for make in makes:
        mine, theirs = make(), make()
        assert same(fn(*mine), compiled(*theirs), tol=1e-5)
        assert same(mine, theirs, tol=1e-5)
    assert counter.frame_count <= 3  # one for each shape of the second


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_counted_after_an_assignment_to_data(backend):
    def fn(p, a):
        p.data = a * 2
        with torch.no_grad():
            torch._foreach_add_([p], 1)
            torch._foreach_mul_([p], 2)
        return p * 1

    def run(call):
        p, found = torch.nn.Parameter(x()), []
        for _ in range(2):
            found += [call(p, x()).detach(), p._version, p.detach().clone()]
        return found

    counter = CompileCounterWithBackend(backend)
    assert same(run(fn), run(dynamo_lite.compile(fn, backend=counter, fullgraph=True)))
    assert counter.frame_count == 1


def test_batch_norm_for_inference_changes_nothing(monkeypatch):
    """Nothing has to be looked at when the graph is called."""

    def fn(a, mean, var):
        return F.batch_norm(a, mean, var, training=False)

    monkeypatch.setattr(input_aliasing, "apart", None)
    args = torch.arange(12.0).reshape(4, 3), torch.zeros(3), torch.ones(3)
    assert same(fn(*args), dynamo_lite.compile(fn, backend="aot_eager", fullgraph=True)(*args))


def overlapping(a, b):
    y = a * 2
    torch._foreach_add_([y[0], y, y[1]], [b[0], b, b[1]])
    return y


def twice(a, b):
    y = a * 2
    torch._foreach_add_([y, y], b)
    return y


def read_as_well(a, b):
    y = a * 2
    torch._foreach_add_([y[0], b[0]], [b[0], y[0]])
    return y * b


def with_its_data(a, b):
    y = a * 2
    torch._foreach_mul_([y, y.data], b)
    return y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [overlapping, twice, read_as_well, with_its_data])
def test_one_after_another(fn, backend):
    """The tensors of a list are changed in its order."""
    compiled = dynamo_lite.compile(fn, backend=backend)
    for _ in range(2):
        mine, theirs = apart(), apart()
        if fn in (twice, with_its_data):
            mine, theirs = (mine[0], torch.tensor(2.0)), (theirs[0], torch.tensor(2.0))
        assert same(fn(*mine), compiled(*theirs))
        assert same(mine, theirs)


def test_parts_of_one_tensor_in_one_graph():
    def fn(a, b):
        y = a * 2
        torch._foreach_add_([y[0], y[1]], [b[1], b[0]])
        torch._foreach_mul_([y, b], [y, b])
        return y

    counter = CompileCounterWithBackend("aot_eager")
    assert same(fn(*apart()), dynamo_lite.compile(fn, backend=counter, fullgraph=True)(*apart()))
    assert counter.frame_count == 1


# -- results of another dtype than `out=`

OUT = {
    "add": (lambda x, o: torch.add(x, x, alpha=2, out=o), True),
    "comparison": (lambda x, o: torch.eq(x, 1, out=o), True),
    "equal dtypes": (lambda x, o: torch.add(o, o, out=o), True),
    "numbers": (lambda x, o: torch.arange(9, out=o.view(9)), True),
    "neg": (lambda x, o: torch.neg(x, out=o), False),
    "triu": (lambda x, o: torch.triu(x, out=o), False),
    "sum": (lambda x, o: torch.sum(x, 0, keepdim=True, out=o[:1]), False),
    "qr": (lambda x, o: torch.linalg.qr(x, out=(o, o.clone())), False),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", OUT)
def test_out_of_another_dtype(name, backend):
    """Some operators cast their result and others raise. Fake tensors and compilers cast it for all; those who may raise run eagerly."""
    fn, is_whole = OUT[name]
    found = []
    for call in (fn, dynamo_lite.compile(fn, backend=backend)):
        x, out = torch.rand(3, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(3, 3, dtype=torch.float64)
        try:
            result = call(x, out)
        except RuntimeError as error:
            result = str(error)
        found.append((result, x, out))
    assert same(*found)
    with contextlib.nullcontext() if is_whole else pytest.raises(Unsupported, match="with out= of"):
        dynamo_lite.compile(fn, backend=backend, fullgraph=True)(x, out)


# -- `out=` that is not contiguous

STRIDED = {
    "add": (lambda o, *a: torch.add(*a, out=o), ((5,), (5,)), (5,), True),
    "mv": (lambda o, *a: torch.mv(*a, out=o), ((5, 5), (5,)), (5,), True),
    "matmul": (lambda o, *a: torch.matmul(*a, out=o), ((5,), (5, 5)), (5,), False),
    "linear": (lambda o, *a: torch._C._nn.linear(*a, out=o), ((5,), (4, 5)), (4,), False),
    "gelu": (lambda o, *a: torch._C._nn.gelu(*a, out=o), ((5, 5),), (5, 5), False),
    "an overload": (lambda o, *a: torch.ops.aten.gelu.out(*a, out=o), ((5, 5),), (5, 5), False),
    "narrow_copy": (lambda o, a: torch.narrow_copy(a, 0, 1, 2, out=o), ((5, 5),), (2, 5), False),
    "randn": (lambda o, a: torch.randn(20, out=o), ((20,),), (20,), False),
    "normal": (lambda o, a: torch.normal(a, 2.0, out=o), ((20,),), (20,), False),
    "avg_pool3d": (lambda o, a: torch._C._nn.avg_pool3d(a, 2, out=o), ((2, 4, 4, 4),), (2, 2, 2, 2), False),
    "ihfftn": (lambda o, a: torch.fft.ihfftn(a, out=o), ((4, 4),), (4, 3), False),
    "pinv": (lambda o, a: torch.linalg.pinv(a, out=o), ((4, 4),), (4, 4), False),
}


@pytest.mark.filterwarnings("ignore:An output with one or more")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", STRIDED)
def test_out_that_is_not_contiguous(name, backend):
    """Some kernels don't write as the strides of `out=` say. What they leave in memory is what the program sees."""
    fn, shapes, shape, is_whole = STRIDED[name]
    arguments = [torch.rand(shape, generator=torch.Generator().manual_seed(0)) for shape in shapes]
    dtype = torch.complex64 if name == "ihfftn" else torch.float32
    found = []
    for call in (fn, dynamo_lite.compile(fn, backend=backend)):
        base = torch.zeros(*shape, 2, dtype=dtype)
        out = base[..., 0]
        torch.manual_seed(0)
        found.append((call(out, *arguments), out, base, out.stride(), torch.get_rng_state()))
    assert same(*found)
    with contextlib.nullcontext() if is_whole else pytest.raises(Unsupported, match="not contiguous"):
        dynamo_lite.compile(fn, backend=backend, fullgraph=True)(
            torch.zeros(*shape, 2, dtype=dtype)[..., 0], *arguments
        )


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_several_out_that_are_resized(shape, backend):
    """The operators write to each of a list."""
    x, outs = torch.rand(shape), [torch.empty(0) for _ in range(3)]
    assert dynamo_lite.compile(lambda x, o: torch.unbind_copy(x, 0, out=o), backend=backend)(x, outs) is None
    assert same(outs, list(x.unbind()))
    with pytest.raises(Unsupported, match="unbind_copy resizes an input"):
        dynamo_lite.compile(lambda x, o: torch.unbind_copy(x, 0, out=o), fullgraph=True)(x, [torch.empty(0) for _ in x])


def test_which_argument_a_result_is_does_not_come_from_a_call_with_one_tensor_twice():
    def one(t):
        return torch.add(t, 1, out=t)

    def two(t, u):
        return torch.add(t, 1, out=u)

    compile_ = new_region().wrap
    t, u = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0])
    assert compile_(one)(t) is t
    assert compile_(two)(t, u) is u
    assert u.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "change", [lambda b: b.unsqueeze_(0), lambda b: b.t_(), lambda b: b.unsqueeze_(0).unsqueeze_(0)]
)
def test_an_input_that_is_written_to_before_it_becomes_another_view(backend, change):
    def f(a, b):
        b.add_(1)
        change(b)
        return a * 2 + b, b.shape

    run_both(f, torch.ones(3, 3, requires_grad=True), torch.arange(9.0).view(3, 3), _backend=backend, _calls=1)


def of_an_input(a):
    y = F.dropout(a, 0.5, False)
    y += 1
    return y, a * 2


def of_a_view(a):
    y = F.dropout(a.t()[0], 0.5, False)
    y += 1
    return a * 2, y.sin()


def of_no_part(a):
    y = torch.dropout(a, 0.0, True)
    z = F.dropout(y, 0.5, False)
    z.mul_(3)
    a.detach().add_(1)
    return a, y, z


def of_a_result(a):
    z = a * 2
    y = F.dropout(z, 0.5, False)
    y += 1
    return y, z.contiguous(), a


def in_a_module(a):
    return torch.nn.Sequential(torch.nn.Dropout(), torch.nn.ReLU(inplace=True)).eval()(a)


@pytest.mark.parametrize("kind", ["plain", "gradients", "inference"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [of_an_input, of_a_view, of_no_part, of_a_result, in_a_module])
def test_an_operator_that_returns_its_argument_which_is_written_to(fn, backend, kind):
    """AOTAutograd takes what a dropout returns for a new tensor."""

    def run(f):
        with torch.inference_mode(kind == "inference"):
            leaf = (x() - 4).requires_grad_(kind == "gradients")
            a = leaf * 1
            results = f(a)
        results = results if isinstance(results, tuple) else (results,)
        if kind == "gradients":
            sum(result.sin().sum() for result in results).backward()
        return [r.detach() for r in results], [r is a for r in results], a.detach(), leaf.grad

    assert same(run(fn), run(dynamo_lite.compile(fn, backend=backend, fullgraph=True)))


def moved_by(n):
    def f(a):
        a[n:] = a[: a.shape[0] - n]

    return f


OVERLAPPING = {
    "in place": lambda a: a[1:].mul_(a[:-1]),
    "out": lambda a: torch.mul(a[:-1], 2, out=a[1:]),
    "another operand": lambda a: a[1:].addcmul_(torch.ones(3), a[:-1]),
    "items": moved_by(1),
}
APART = {
    "halves": moved_by(2),
    "every second": lambda a: a[::2].mul_(a[1::2]),
    "the same": lambda a: torch.add(a.view(2, 2), a.view(2, 2), out=a.view(2, 2)),
    "added to items": lambda a: [a.__setitem__(i, a[i + 1] * 2 + a[i]) for i in range(3)],
    "a copy": lambda a: a[1:].mul_(a[:-1].clone()),
    "one element": lambda a: a.fill_(a[1]),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", [*OVERLAPPING, *APART])
def test_an_operator_that_writes_where_it_reads(name, backend):
    """Compilers compute the result before they write it; eager execution refuses, or reads what it has written."""
    fn = OVERLAPPING.get(name) or APART[name]

    def run(f):
        a = torch.arange(1.0, 5.0)
        try:
            f(a)
        except RuntimeError as error:
            return str(error), a
        return None, a

    expected = run(fn)
    assert same(run(dynamo_lite.compile(fn, backend=backend)), expected)
    if name in APART:
        assert same(run(dynamo_lite.compile(fn, backend=backend, fullgraph=True)), expected)
