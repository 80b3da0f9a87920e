"""Random numbers drawn by captured code: those of eager execution, and the generators are left in the same state."""

import random

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.registry import lookup_backend
from dynamo_lite.testing import CompileCounterWithBackend, same

numpy = pytest.importorskip("numpy")


def generator():
    return torch.Generator().manual_seed(11)


def seeded():
    a = torch.randn(2)
    torch.manual_seed(3)
    b = torch.randn(3)
    torch.manual_seed(4)
    return a, b, torch.rand(2), torch.initial_seed()


def seed_returns_the_generator():
    g = torch.manual_seed(3)
    return torch.randn(3), g.initial_seed(), g is torch.default_generator


def given(g):
    return torch.randn(3, generator=g), torch.rand(2, generator=g), torch.randperm(5, generator=g), g.device.type


def made_inside():
    g = torch.Generator()
    g.manual_seed(5)
    return torch.randn(3, generator=g), torch.randint(0, 9, (4,), generator=g), g


def state_of_a_generator(g):
    state = g.get_state()
    a = torch.randn(2, generator=g)
    g.set_state(state)
    return a, torch.randn(2, generator=g), state


def state_of_the_process():
    state = torch.get_rng_state()
    a = torch.randn(3)
    torch.set_rng_state(state)
    return a, torch.randn(3)


def forked():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        a = torch.randn(2)
    return a, torch.randn(2)


def in_place(g):
    x = torch.empty(3)
    x.normal_(generator=g)
    y = x.clone().uniform_()
    w = torch.nn.init.kaiming_uniform_(torch.empty(2, 2))
    return x, y, w, torch.empty(2).bernoulli_(0.5, generator=g), torch.multinomial(torch.ones(4), 2, generator=g)


def dropout():
    return torch.nn.functional.dropout(torch.ones(20), 0.5), torch.rrelu(torch.randn(5), training=True)


def default_generator():
    return torch.randn(2, generator=torch.default_generator), torch.default_generator.initial_seed()


def of_python():
    return torch.ones(2) * random.random(), random.choice([1, 2, 3]), random.uniform(0, 1), random.gauss(0, 1)


def of_python_seeded():
    random.seed(3)
    return random.random(), random.randint(0, 5), torch.randn(2) * random.random()


def state_of_python():
    state = random.getstate()
    a = random.random()
    random.setstate(state)
    return a, random.random(), torch.ones(1)


def of_numpy():
    numpy.random.seed(3)
    return torch.ones(2) * float(numpy.random.rand()), numpy.random.randn(3).tolist()


def of_numpy_unseeded():
    return torch.ones(2) * numpy.random.rand()


def numpy_generator():
    return numpy.random.default_rng(3).random(3).tolist(), torch.ones(2)


def everything():
    random.seed(1)
    numpy.random.seed(2)
    torch.manual_seed(3)
    return torch.randn(2), random.random(), numpy.random.rand()


WITHOUT = [
    seeded, seed_returns_the_generator, made_inside, state_of_the_process, forked, dropout, default_generator, of_python, of_python_seeded,
    state_of_python, of_numpy, of_numpy_unseeded, numpy_generator, everything,
]  # fmt: skip
WITH = [given, state_of_a_generator, in_place]


def plain(value):
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [plain(v) for v in value] if isinstance(value, tuple | list) else value


def run(fn, make_args):
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    args = make_args()
    results = [plain(fn(*args)) for _ in range(3)]
    return results, plain(args), torch.get_rng_state().tolist(), random.getstate(), plain(numpy.random.get_state()[1:])


def arguments(fn):
    return (generator(),) if fn in WITH else ()


@pytest.mark.parametrize("fn", [*WITHOUT, *WITH], ids=lambda fn: fn.__name__)
def test_same_numbers(fn):
    expected = run(fn, lambda: arguments(fn))
    got = run(dynamo_lite.compile(fn, backend="eager"), lambda: arguments(fn))
    numpy.testing.assert_equal(got, expected)


def test_random_object():
    def fn(r):
        return torch.ones(2) * r.random(), r.gauss(0, 1)

    compiled = dynamo_lite.compile(fn, backend="eager")
    mine, other = random.Random(3), random.Random(3)
    for _ in range(3):
        assert plain(compiled(mine)) == plain(fn(other))
    assert mine.getstate() == other.getstate()


def test_numbers_of_one_call_differ_from_those_of_the_next():
    compiled = dynamo_lite.compile(lambda: torch.rand(4), backend="aot_eager")
    assert not torch.equal(compiled(), compiled())


def unused_numbers():
    torch.rand(3)
    return torch.rand(3)


def unused_dropout(a=None):
    x = torch.ones(4) if a is None else a
    torch.nn.functional.dropout(x) * 2
    torch.empty(3).normal_()
    y = torch.nn.functional.dropout(x, 0.3)
    torch.randn(2).max(0)
    return y


def unused_among_several():
    torch.native_dropout(torch.ones(3), 0.5, True)
    return torch.randint(9, (5,)), torch.randperm(4)


def unused_but_for_a_view():
    shape = torch.randn(2, 3).transpose(0, 1).shape
    zeros = torch.zeros(3)
    zeros[:2].normal_()
    return torch.randn(shape)


def unused_but_for_its_shape():
    a = torch.arange(6.0)
    a[:1].expand_as(torch.randn(6))
    shaped = a.view_as(torch.randn(2, 3)), a.reshape_as(torch.randn(3, 2)), torch.broadcast_tensors(a, torch.rand(6))[0]
    return *shaped, a.int().type_as(torch.rand(1)), a.to(torch.rand(1).double()), torch.rand(1).new_tensor([1, 2])


def unused_by_a_derivative():
    x, y = torch.randn(3), torch.randn(3)
    return torch.func.jacfwd(lambda x, y: x + y**2, argnums=1)(x, y), torch.randn(3)


def overwritten():
    a = torch.randn(3)
    a.zero_()
    b = torch.empty(3).bernoulli_(0.5).div_(0.5)
    return a + b, torch.rand(3)


def overwritten_by_what_reads_nothing():
    a = torch.empty(3).normal_()
    torch.nn.functional.normalize(torch.ones(3), dim=0, out=a)
    return a, torch.rand(3)


def overwritten_after_use():
    a = torch.nn.functional.normalize(torch.empty(3).normal_(), dim=0)
    b = torch.ones(3) * 2
    torch.mul(b, b, out=a)
    return a, torch.rand(3)


def overwritten_argument(a=None):
    a = torch.ones(3) if a is None else a
    a.normal_()
    a.fill_(2)
    return a + torch.rand(3), a


def overwritten_in_part():
    a = torch.randn(4)
    a[:2].zero_()
    return a, torch.rand(3)


OVERWRITTEN = [
    overwritten,
    overwritten_by_what_reads_nothing,
    overwritten_after_use,
    overwritten_argument,
    overwritten_in_part,
]


@pytest.mark.parametrize(
    "fn",
    [
        unused_numbers,
        unused_dropout,
        unused_among_several,
        unused_but_for_a_view,
        unused_but_for_its_shape,
        unused_by_a_derivative,
        *OVERWRITTEN,
    ],
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_numbers_that_nobody_uses_are_drawn(fn, backend):
    def run(call, *args):
        torch.manual_seed(0)
        return [call(*args), call(*args), torch.rand(2)]

    counter = CompileCounterWithBackend(backend)
    assert same(run(fn), run(dynamo_lite.compile(fn, backend=counter, fullgraph=True)))
    assert counter.frame_count == 1


def test_numbers_that_nobody_uses_with_gradients():
    def run(call):
        torch.manual_seed(0)
        a = torch.ones(4, requires_grad=True)
        y = call(a)
        y.sum().backward()
        return y, a.grad, torch.rand(2)

    compiled = dynamo_lite.compile(unused_dropout, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        assert same(run(unused_dropout), run(compiled))


@pytest.mark.parametrize(
    "draw",
    [
        lambda x, w: torch.nn.functional.dropout(x.sqrt()),
        lambda x, w: torch.nn.functional.dropout(w.sqrt()),
        lambda x, w: torch.nn.functional.dropout(x * w).detach(),
        lambda x, w: torch.nn.functional.rrelu(x, training=True),
        lambda x, w: torch.native_dropout(w.sqrt(), 0.5, True),
        lambda x, w: torch.normal(w.sqrt(), 1.0),
        lambda x, w: torch.nn.functional.dropout(w.sqrt(), inplace=True).mul_(2),
    ],
)
def test_numbers_that_nobody_uses_have_no_gradients(draw):
    """Zeros for them would make the gradient of `sqrt` nan, and that of `x` zeros."""

    def fn(x, w):
        draw(x, w)
        return w * 2

    def run(call):
        torch.manual_seed(0)
        x, w = (torch.zeros(3, requires_grad=True) for _ in range(2))
        call(x, w).sum().backward()
        return x.grad, w.grad, torch.rand(2)

    assert same(run(fn), run(dynamo_lite.compile(fn, backend="aot_eager", fullgraph=True)))


def test_operators_whose_name_is_a_keyword():
    """`random_(0, 4)` is `torch.ops.aten.random.from`, which is no Python."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(lookup_backend("aot_eager")(gm, example_inputs))
        return graphs[-1]

    def fn(x):
        return x * torch.empty(3, dtype=torch.long).random_(0, 4)

    def run(call):
        torch.manual_seed(0)
        x = torch.ones(3, requires_grad=True)
        y = call(x)
        y.sum().backward()
        return y, x.grad

    assert same(run(fn), run(dynamo_lite.compile(fn, backend=backend)))
    assert len(graphs) == 1


def test_a_backward_pass_draws_nothing_of_the_forward():
    """An assertion in the forward pass is no reason to compute in the backward pass what it asserts."""

    def fn(a):
        rows = torch.randperm(4)[:2]
        torch._assert_async((rows >= 0).all(), "rows")
        return a[:2] * 2

    compiled = dynamo_lite.compile(fn, backend="aot_eager", fullgraph=True)
    outcomes = []
    for call in (fn, compiled):
        torch.manual_seed(0)
        a = torch.ones(4, requires_grad=True)
        y = call(a)
        y.sum().backward()
        outcomes.append([y, a.grad, torch.rand(2)])
    assert same(*outcomes)
