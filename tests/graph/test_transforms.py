"""`torch.func`: transforms as nodes, each configuration a version of its own, structures, what they refuse, and transforms around
compiled functions."""

import types
from collections import OrderedDict, defaultdict, deque, namedtuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.testing import CompileCounter, run_both, same
from tests.helpers.against_eager import check, outcome

torch.manual_seed(0)
W = torch.arange(9.0).reshape(3, 3) / 10
LINEAR = nn.Linear(3, 3)
MODELS = [nn.Linear(3, 2) for _ in range(3)]


def x(requires_grad=True):
    return (torch.arange(12.0).reshape(4, 3).div(7).sub(0.5).requires_grad_(requires_grad),)


# -- one graph


def pulled_back(f, *primals, **options):
    out, pull, *aux = vjp(f, *primals, **options)
    return out, pull(out), pull(pytree.tree_map(lambda t: t * 2, out)), aux


def ensemble(a):
    params, buffers = stack_module_state(MODELS)
    return vmap(lambda p, b, r: functional_call(MODELS[0], (p, b), (r,)), in_dims=(0, 0, None))(params, buffers, a)


def per_sample(a):
    params = {name: p.detach() for name, p in LINEAR.named_parameters()}
    return vmap(grad(lambda p, r: functional_call(LINEAR, p, (r,)).square().sum()), in_dims=(None, 0))(params, a)


def without_gradients_outside(a):
    with torch.no_grad():
        return grad(lambda b: (b @ W).square().sum())(a)


def without_gradients_inside(a):
    def f(b):
        with torch.no_grad():
            c = b.sin()
        return (b * c).sum()

    return grad(f)(a)


def linearized(a):
    out, push = linearize(lambda b: {"y": b.sin(), "z": b.sum()}, a)
    return out, push(a), push(a * 2)


ONE_GRAPH = {
    "in_dims": lambda a: vmap(lambda r, w: r + w.sum(), in_dims=(-1, None), out_dims=-1)(a, W),
    "in_dims of a structure": lambda a: vmap(lambda d: d["a"] * d["b"], in_dims=({"a": 0, "b": None},))(
        {"a": a, "b": a[0]}
    ),
    "in_dims of the upper part": lambda a: vmap(lambda p, w: p[0] + p[1][0] * w, in_dims=(0, None))((a, [a]), a[0]),
    "out_dims of the upper part": lambda a: vmap(lambda r: ({"a": r, "b": r * 2}, r + 1), out_dims=(1, 0))(a),
    "out_dims that are none": lambda a: vmap(lambda r: (r * 2, W * 2, 3), out_dims=(0, None, None))(a),
    "one out_dim of one result": lambda a: vmap(lambda r: r * 2, out_dims=(1,))(a),
    "keyword arguments": lambda a: vmap(lambda r, *, w: (r * w).sum())(a, w=a),
    "chunks": lambda a: vmap(lambda r: r * 2, chunk_size=3)(a),
    "random numbers": lambda a: vmap(lambda r: r + torch.rand(3), randomness="different")(a),
    "vmap of vmap": lambda a: vmap(lambda r: vmap(lambda s: (r * s).sum())(a))(a),
    "vmap of a module": lambda a: vmap(LINEAR)(a),
    "vmap of a method": lambda a: vmap(torch.Tensor.sum)(a),
    "gradient by several": lambda a: grad(lambda b, c: (b * c).sum(), argnums=(0, -1))(a, a * 2),
    "gradient of a dictionary": lambda a: grad(lambda d: (d["a"] * d["b"]).sum())({"a": a, "b": a * 2}),
    "gradient by what is not used": lambda a: grad(lambda b, c: c.sum(), argnums=(0, 1))(a, a),
    "gradient with keywords": lambda a: grad(lambda b, *, c: (b * c).sum())(a, c=a * 2),
    "third derivative": lambda a: grad(lambda b: grad(lambda c: grad(lambda d: (d**4).sum())(c).sum())(b).sum())(a),
    "no_grad around": without_gradients_outside,
    "no_grad inside": without_gradients_inside,
    "detach": lambda a: grad(lambda b: (b * b.detach()).sum())(a),
    "value and aux": lambda a: grad_and_value(lambda b: ((b * b).sum(), {"z": b * 2}), has_aux=True)(a),
    "jacrev": lambda a: jacrev(lambda b, c: {"y": b @ c.T, "z": b.sum()}, argnums=(0, 1))(a, a),
    "jacfwd": lambda a: jacfwd(lambda b: (b.sin(), b * 2), has_aux=True)(a),
    "random numbers in jacfwd": lambda a: jacfwd(lambda b: b.sin() * torch.rand(3), randomness="same")(a),
    "hessian": lambda a: hessian(lambda b, c: (b**3 * c).sum(), argnums=1)(a, a),
    "jacfwd of jacrev": lambda a: jacfwd(jacrev(lambda b: b.sin().sum()))(a),
    "jvp": lambda a: jvp(lambda d: (d["a"].sin(), d["a"] * 2), ({"a": a},), ({"a": a},), has_aux=True),
    "jvp of grad": lambda a: jvp(grad(lambda b: b.sin().sum()), (a,), (a,)),
    "vjp": lambda a: pulled_back(lambda b, c: {"u": b * c, "v": b.cos()}, a, a + 1),
    "vjp with aux": lambda a: pulled_back(lambda b: (b.sin(), b * 2), a, has_aux=True),
    "vmap of a pullback": lambda a: vmap(vjp(lambda b: b.sin() * 2, a[0])[1])(torch.eye(3)),
    "grad of vmap": lambda a: grad(lambda b: vmap(lambda r: r.sin().sum())(b).sum())(a),
    "vmap of grad": lambda a: vmap(grad(lambda r: r.sin().sum()))(a),
    "functional_call": lambda a: functional_call(LINEAR, [dict(LINEAR.named_parameters())], kwargs={"input": a}),
}
WITHOUT_GRADIENTS = {"linearize": linearized, "ensemble": ensemble, "per sample": per_sample}


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph(name):
    check(ONE_GRAPH[name], x(), tuple(LINEAR.parameters()))


@pytest.mark.parametrize("name", WITHOUT_GRADIENTS)
def test_one_graph_without_gradients(name):
    with torch.no_grad():
        check(WITHOUT_GRADIENTS[name], x(False))


@pytest.mark.parametrize("name", ["in_dims", "gradient by several", "hessian", "jvp", "vjp", "functional_call"])
def test_inductor(name):
    check(ONE_GRAPH[name], x(), tuple(LINEAR.parameters()), backends=("inductor",))


# -- structures of registered classes


class Box:
    """A class that the program registers, as libraries of dictionaries of tensors do."""

    def __init__(self, a, tag="t"):
        self.a = a
        self.tag = tag


pytree.register_pytree_node(Box, lambda box: ([box.a], box.tag), lambda children, tag: Box(children[0], tag))
Pair = namedtuple("Pair", "a b")
KINDS = {
    "OrderedDict": (lambda a: OrderedDict(a=a), lambda d: d["a"]),
    "defaultdict": (lambda a: defaultdict(int, a=a), lambda d: d["a"]),
    "deque": (lambda a: deque([a]), lambda d: d[0]),
    "namedtuple": (lambda a: Pair(a, a * 1), lambda d: d.a + d.b),
    "registered": (Box, lambda d: d.a),
}


def uses_of(make, get):
    return {
        "argument of vmap": lambda a: vmap(lambda d: get(d).cumsum(0), in_dims=1)(make(a)),
        "result of vmap": lambda a: vmap(lambda r: make(r * 2), out_dims=1)(a),
        "gradient": lambda a: grad(lambda d: get(d).sin().sum())(make(a)),
        "jacobian": lambda a: jacrev(lambda d: make(get(d).sin()))(make(a[0])),
        "pullback": lambda a: vjp(lambda d: make(get(d).sin()), make(a))[1](make(a)),
    }


@pytest.mark.parametrize("use", uses_of(None, None))
@pytest.mark.parametrize("kind", KINDS)
def test_structures(kind, use):
    make, get = KINDS[kind]
    check(uses_of(make, get)[use], x(False))


@pytest.mark.parametrize("kind", KINDS)
def test_structures_from_outside(kind):
    """They were taken for constants: their tensors were not batched, and not differentiated."""
    make, get = KINDS[kind]
    check(lambda d: vmap(lambda e: get(e).cumsum(0), in_dims=1)(d), (make(x(False)[0]),))
    check(lambda d: get(grad(lambda e: get(e).sin().sum())(d)), (make(x(False)[0]),))


# -- configurations


def two(b, c):
    return (b * c.sin()).sum()


CONFIGURATIONS = {
    "vmap in_dims": (lambda a, c: vmap(lambda r: r.cumsum(0), in_dims=c)(a), 0, 1),
    "vmap in_dims of several": (lambda a, c: vmap(lambda r, s: r + s.cumsum(0), in_dims=c)(a, a), (0, 1), (1, 0)),
    "vmap in_dims with None": (lambda a, c: vmap(lambda r, s: r + s.sum(), in_dims=c)(a, a), (0, None), (None, 0)),
    "vmap out_dims": (lambda a, c: vmap(lambda r: r * 2, out_dims=c)(a), 0, 1),
    "vmap out_dims of several": (lambda a, c: vmap(lambda r: (r * 2, r), out_dims=c)(a), (0, 1), (1, 0)),
    "vmap randomness": (lambda a, c: vmap(lambda r: r + torch.rand(3), randomness=c)(a), "same", "different"),
    "vmap chunk_size": (lambda a, c: vmap(lambda r: r * 2, chunk_size=c)(a), 1, 2),
    "vmap without chunks": (lambda a, c: vmap(lambda r: r * 2, chunk_size=c)(a), None, 2),
    "vmap of vmap": (lambda a, c: vmap(vmap(lambda r: r * 2), in_dims=c)(a), 0, 1),
    "grad argnums": (lambda a, c: grad(two, argnums=c)(a, a + 1), 0, 1),
    "grad argnums of several": (lambda a, c: grad(two, argnums=c)(a, a + 1), (0, 1), (1,)),
    "grad has_aux": (
        lambda a, c: grad(lambda b: ((b * b).sum(), b) if c else (b * b).sum(), has_aux=c)(a),
        True,
        False,
    ),
    "grad_and_value argnums": (lambda a, c: grad_and_value(two, argnums=c)(a, a + 1), 0, 1),
    "grad of vmap": (lambda a, c: grad(lambda b: vmap(lambda r: r.cumsum(0).sin().sum(), in_dims=c)(b).sum())(a), 0, 1),
    "jacrev argnums": (lambda a, c: jacrev(torch.matmul, argnums=c)(a, a + 1), 0, 1),
    "jacrev has_aux": (lambda a, c: jacrev(lambda b: (b.sin(), b) if c else b.sin(), has_aux=c)(a), True, False),
    "jacrev chunk_size": (lambda a, c: jacrev(torch.sin, chunk_size=c)(a), 1, 2),
    "jacfwd argnums": (lambda a, c: jacfwd(torch.matmul, argnums=c)(a, a + 1), 0, 1),
    "jacfwd has_aux": (lambda a, c: jacfwd(lambda b: (b.sin(), b) if c else b.sin(), has_aux=c)(a), True, False),
    "jacfwd randomness": (
        lambda a, c: jacfwd(lambda b: b.sin() * torch.rand(3), randomness=c)(a),
        "same",
        "different",
    ),
    "hessian argnums": (lambda a, c: hessian(lambda b, d: (b**3 * d).sum(), argnums=c)(a, a + 1), 0, 1),
    "jvp strict": (lambda a, c: jvp(torch.sin, (a,), (a,), strict=c), True, False),
    "jvp has_aux": (lambda a, c: jvp(lambda b: (b.sin(), b) if c else b.sin(), (a,), (a,), has_aux=c), True, False),
    "vjp has_aux": (
        lambda a, c: pulled_back(lambda b: (b.sin(), b) if c else b.sin(), a, has_aux=c),
        True,
        False,
    ),
    "functional_call tie_weights": (
        lambda a, c: functional_call(LINEAR, {"weight": a}, (a,), tie_weights=c),
        True,
        False,
    ),
    "functional_call strict": (
        lambda a, c: functional_call(LINEAR, {"weight": a, "bias": a[0]}, (a,), strict=c),
        True,
        False,
    ),
}
BOX = types.SimpleNamespace(configuration=None)


def ways_of(fn):
    """How a configuration comes to a function: functions to compile, and how to call them."""
    cell = [None]

    def of_attribute(run, a, c):
        BOX.configuration = c
        return run(a)

    def of_cell(run, a, c):
        cell[0] = c
        return run(a)

    return {
        "argument": (fn, lambda run, a, c: run(a, c)),
        "attribute": (lambda a: fn(a, BOX.configuration), of_attribute),
        "item": (lambda a: fn(a, cell[0]), of_cell),
    }


@pytest.mark.parametrize("way", ways_of(None))
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_each_configuration_is_compiled_once(name, way):
    fn, first, second = CONFIGURATIONS[name]
    to_compile, call = ways_of(fn)[way]
    a = W - 0.4
    counter = CompileCounter()
    compiled = dynamo_lite.compile(to_compile, backend=counter, fullgraph=True)
    for configuration in (first, second, first, second, second, first):
        torch.manual_seed(0)
        expected = fn(a, configuration)
        torch.manual_seed(0)
        assert same(expected, call(compiled, a, configuration)), configuration
    assert counter.frame_count == 2


def test_transforms_made_outside_are_told_apart():
    """A transformed function is known by what it was made of."""
    rows, columns = vmap(lambda r: r.cumsum(0)), vmap(lambda r: r.cumsum(0), in_dims=1)
    slope = grad(lambda b: b.sin().sum())
    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda f, a: f(a), backend=counter, fullgraph=True)
    for transformed in (rows, columns, slope, rows, columns, slope):
        torch.testing.assert_close(compiled(transformed, W), transformed(W))
    assert counter.frame_count == 3


# -- what is captured may not be written to

BUFFER, TABLE, NORM = torch.zeros(3), nn.Embedding(4, 3, max_norm=0.1), nn.BatchNorm1d(3)
WRITES = {
    "add_": lambda a: BUFFER.add_(1),
    "copy_": lambda a: BUFFER.copy_(a.detach()),
    "an item": lambda a: BUFFER.__setitem__(0, 1.0),
    "a view": lambda a: BUFFER[1:].copy_(torch.ones(2)),
    "data": lambda a: BUFFER.data.add_(1),
    "buffers of a module": lambda a: NORM(a.expand(2, 3)),
    "rows of a table": lambda a: TABLE(torch.tensor([1, 2])),
}
DIFFERENTIATED = {
    "grad": grad,
    "grad_and_value": grad_and_value,
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "hessian": hessian,
    "vmap of grad": lambda f: lambda a: vmap(grad(f))(a.expand(2, 3)),
    "grad of grad": lambda f: grad(lambda a: grad(f)(a).sum()),
    "vjp without its function": lambda f: lambda a: vjp(f, a)[0],
    "vjp": lambda f: lambda a: vjp(f, a)[1](a.sum()),
    "jvp": lambda f: lambda a: jvp(f, (a,), (a,)),
}


def written():
    return [t.detach().clone() for t in (BUFFER, *TABLE.parameters(), *NORM.buffers())]


@pytest.mark.parametrize("write, transform", [(w, "grad") for w in WRITES] + [("add_", t) for t in DIFFERENTIATED])
def test_writes_to_captured_tensors_are_refused(write, transform):
    """Torch refuses to change what it has not wrapped; a body gets captured tensors as arguments, which it wraps."""
    transformed = DIFFERENTIATED[transform](lambda a: (WRITES[write](a), a.square().sum())[1])
    before = written()
    run = run_both(lambda a: transformed(a), torch.ones(3), _backend="eager")
    assert "mutate a captured Tensor" in str(run.exception)
    assert same(before, written())


def test_writes_to_arguments_are_made():
    def f(a, b):
        b.add_(1)
        return (a * b).sum()

    check(lambda a, b: grad(f)(a, b), (torch.ones(3), torch.zeros(3)))


# -- how often a function runs


def pulled_by_drawn_numbers(a):
    out, pull = vjp(lambda b: b * torch.rand(3), a)
    return out, pull(a), pull(a), torch.rand(1)


def pulled_behind_a_write(a):
    result, pull = vjp(lambda c: (c.detach().add_(1), c * 2)[1], a)
    return result, pull(result)


RUN_AGAIN = {
    "a write": lambda a, b: (linearize(lambda c: (b.add_(1), c * 2)[1], a)[0], b),
    "a write to a view": lambda a, b: (linearize(lambda c: (b[1:].add_(1), c * 2)[1], a)[0], b),
    "random numbers": lambda a, b: (linearize(lambda c: c * torch.rand(3), a)[0], torch.rand(1)),
    "dropout": lambda a, b: (linearize(nn.functional.dropout, a)[0], torch.rand(1)),
    "random numbers and the derivative": lambda a, b: linearize(lambda c: c * torch.rand(3), a)[1](a),
    "random numbers of vjp": lambda a, b: pulled_by_drawn_numbers(a),
    "a write of vjp": lambda a, b: (pulled_behind_a_write(a), a),
}


@pytest.mark.parametrize("name", RUN_AGAIN)
def test_effects_of_functions_that_run_again(name):
    """Linearize runs its function twice, and what vjp returns does not run it: a node does neither."""
    results = []
    for run in (RUN_AGAIN[name], dynamo_lite.compile(RUN_AGAIN[name], backend="eager")):
        torch.manual_seed(0)
        b = torch.zeros(3)
        results.append((run(torch.ones(3), b), run(torch.ones(3), b), b))
    assert same(*results)
    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(RUN_AGAIN[name], backend="eager", fullgraph=True)(torch.ones(3), torch.zeros(3))


LOG = []


class Counted(nn.Linear):
    calls = 0

    def forward(self, a):
        self.calls += 1
        LOG.append(tuple(a.shape))
        return super().forward(a)


COUNTED = Counted(3, 3)


def counted(a):
    return functional_call(COUNTED, dict(COUNTED.named_parameters()), (a,)).square().sum()


RUN_ONCE = {
    "grad": grad,
    "grad_and_value": grad_and_value,
    "vjp": lambda f: lambda a: vjp(f, a)[1](torch.ones(())),
    "jvp": lambda f: lambda a: jvp(f, (a,), (a,)),
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "vmap": vmap,
    "hessian": hessian,
    "vmap of grad": lambda f: vmap(grad(f)),
}


@pytest.mark.parametrize("name", RUN_ONCE)
@pytest.mark.parametrize("dynamic", [False, True])
def test_effects_of_functions_that_run_once(name, dynamic):
    found = []
    program = lambda a: RUN_ONCE[name](counted)(a)  # noqa: E731
    for run in (program, dynamo_lite.compile(program, backend="eager", fullgraph=True, dynamic=dynamic or None)):
        LOG.clear()
        COUNTED.calls = 0
        results = [run(torch.ones(n, 3)) for n in (2, 4)]
        found.append((results, COUNTED.calls, list(LOG)))
    assert same(*found, tol=1e-6)
    assert COUNTED.calls == 2


@pytest.mark.parametrize(
    "effect",
    [
        lambda v: LOG.append(v),
        lambda v: LOG.append([v.detach() * 2]),
        lambda v: setattr(W, "tag", v),
        lambda v: LOG.append(f"{v.sum().item():.1f}"),
    ],
)
def test_effects_with_what_the_function_has_computed(effect):
    def f(a):
        return grad(lambda v: (effect(v), v.sin().sum())[1])(a)

    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
    run_both(f, torch.ones(3))
    LOG.clear()
    W.__dict__.clear()


@pytest.mark.parametrize("again", [lambda f: vmap(f, chunk_size=1), lambda f: lambda a: linearize(f, a)[0]])
def test_effects_of_functions_that_run_several_times(again):
    LOG.clear()
    dynamo_lite.compile(lambda a: again(counted)(a), backend="eager")(torch.ones(2, 3))
    assert len(LOG) == 2


@pytest.mark.parametrize("name", ["jvp", "jacfwd", "hessian", "grad", "vmap"])
def test_the_program_asks_whether_an_argument_requires_gradients(name):
    transform = jacfwd if name == "jacfwd" else RUN_ONCE[name]
    program = lambda a: transform(lambda v: (v * 2 if v.requires_grad else v * 3).sin().sum())(a)  # noqa: E731
    run_both(program, torch.ones(3))


# -- what is refused, and raised

RAISES = {
    "random numbers": lambda a: vmap(lambda r: r + torch.rand(3))(a),
    "a result that is no tensor": lambda a: vmap(lambda r: (r, 3))(a),
    "None as a result": lambda a: vmap(lambda r: (r, None))(a),
    "a branch on data": lambda a: vmap(lambda r: r if r.sum() > 0 else -r)(a),
    "item": lambda a: vmap(lambda r: r * r[0].item())(a),
    "in_dims that do not fit": lambda a: vmap(lambda r: r, in_dims=(0, 0))(a),
    "in_dims of a number": lambda a: vmap(lambda r, n: r * n, in_dims=(0, 0))(a, 3),
    "sizes that differ": lambda a: vmap(lambda r, s: r, in_dims=(0, 1))(a, a),
    "gradient of a tensor": lambda a: grad(lambda b: b * 2)(a),
    "gradient of a list": lambda a: grad(lambda b: [b.sum()])(a),
    "value of a dictionary": lambda a: grad_and_value(lambda b: {"l": b.sum()})(a),
    "gradient of a list with aux": lambda a: grad(lambda b: ([b.sum()], b), has_aux=True)(a),
    "gradient of a tuple": lambda a: grad(lambda b: (b.sum(),))(a),
    "gradient by integers": lambda a: grad(lambda b: b.sum())(a.long()),
    "gradient by a number": lambda a: grad(lambda d: d[0].sum() * d[1])((a, 2)),
    "requires_grad_": lambda a: grad(lambda b: b.requires_grad_().sum())(a),
    "requires_grad_ of what is captured": lambda a: jvp(lambda b: (W.requires_grad_(False), b.sum())[1], (a,), (a,)),
    "requires_grad_ in vjp": lambda a: vjp(lambda b: b.requires_grad_().sum(), a)[0],
    "retain_grad": lambda a: grad(lambda b: (b.retain_grad(), b.sum())[1])(a),
    "an array in vmap": lambda a: vmap(lambda r: torch.from_numpy(r.numpy()))(a),
    "an array in grad": lambda a: grad(lambda b: (b * torch.from_numpy(b.detach().numpy())).sum())(a),
    "a function of numpy": lambda a: grad(lambda b: (b * np.sin(b.detach())).sum())(a),
    "strict jvp": lambda a: jvp(lambda b: torch.ones(2), (a,), (a,), strict=True),
    "jacobian of a number": lambda a: jacrev(lambda b: (b * 2, 3))(a),
    "aux with a number": lambda a: grad(lambda b: (b.sum(), {"z": b, "n": 1}), has_aux=True)(a),
    "aux that is None": lambda a: grad_and_value(lambda b: (b.sum(), None), has_aux=True)(a),
    "aux of vjp": lambda a: vjp(lambda b: (b.sum(), 1.5), a, has_aux=True)[2],
    "aux of jvp": lambda a: jvp(lambda b: (b.sum(), "s"), (a,), (a,), has_aux=True),
    "aux of jacrev": lambda a: jacrev(lambda b: (b.sum(), 1), has_aux=True)(a),
    "aux of jacfwd": lambda a: jacfwd(lambda b: (b.sum(), [1]), has_aux=True)(a),
}


@pytest.mark.parametrize("name", RAISES)
def test_errors_are_those_of_eager_execution(name):
    assert run_both(RAISES[name], *x(False), _backend="eager").exception is not None
    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(RAISES[name], backend="eager", fullgraph=True)(*x(False))


def test_the_function_that_vjp_returns_may_leave():
    """Then `vjp` is not captured: its result holds what torch keeps for it."""
    (found,) = dynamo_lite.compile(lambda a: vjp(torch.sin, a * 2)[1], backend="eager")(W)(W)
    torch.testing.assert_close(found, vjp(torch.sin, W * 2)[1](W)[0])


def breaks_inside(a):
    def f(r):
        dynamo_lite.graph_break()
        return r.sin().sum()

    return vmap(f)(a + 1), grad(lambda b: f(b))(a) * 2


def test_a_break_inside_comes_before_the_transform():
    run = run_both(breaks_inside, *x(False))
    assert [b.slug for b in run.breaks] == ["user-requested"] * 2
    assert run.graph_count == 2


def test_hooks_for_all_modules_do_not_see_bodies():
    """A body is a module of torch.fx in the graph; eager execution has no such module."""
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    try:
        expected = outcome(lambda a: vmap(grad(lambda r: LINEAR(r).sum()))(a), x(False))
        names = list(seen)
        seen.clear()
        found = outcome(
            dynamo_lite.compile(lambda a: vmap(grad(lambda r: LINEAR(r).sum()))(a), backend="eager"), x(False)
        )
    finally:
        handle.remove()
    assert same(expected, found)
    assert "GraphModule" not in seen and set(seen) <= set(names)


# -- around compiled functions

INNER = {
    "pointwise": lambda r: r.sin() * 2,
    "product": lambda r: r @ W,
    "module": LINEAR,
    "size": lambda r: r * r.shape[0],
    "in place": lambda r: r.clone().mul_(2),
    "vmap": lambda r: vmap(lambda e: e * 2)(r),
    "gradient": lambda r: grad(lambda e: (e**2).sum())(r),
    "asks for gradients": lambda r: r * 2 if r.requires_grad else r * 3,
}
OUTER = {
    "vmap": lambda f: vmap(f)(W),
    "grad": lambda f: grad(lambda a: f(a).sum())(W),
    "jvp": lambda f: jvp(f, (W,), (W,)),
    "vjp": lambda f: vjp(f, W)[1](W),
    "jacrev": lambda f: jacrev(f)(W[0]),
    "jacfwd": lambda f: jacfwd(f)(W[0]),
    "vmap of grad": lambda f: vmap(grad(lambda a: f(a).sum()))(W),
    "and none": lambda f: (vmap(f)(W), f(W), vmap(f)(W), f(W)),
}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
def test_transforms_around_compiled_functions(inner, outer):
    """Under a transform a compiled function runs as it is; what was captured without one is used without one."""
    expected = OUTER[outer](INNER[inner])
    for backend in ("eager", "aot_eager"):
        assert same(expected, OUTER[outer](dynamo_lite.compile(INNER[inner], backend=backend)))


def doubled_sine(t):
    return t.sin() * t


AROUND = {
    "vmap": lambda f, x: torch.vmap(f)(x),
    "jvp": lambda f, x: sum(torch.func.jvp(f, (x[0],), (x[1],))),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x[0]),
    "vmap of grad": lambda f, x: torch.vmap(torch.func.grad(lambda row: f(row).sum()))(x),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", AROUND)
def test_transforms_of_the_program_around_a_compiled_function(name, backend):
    compiled = dynamo_lite.compile(doubled_sine, backend=backend)
    for warm in (False, True):
        if warm:
            compiled(torch.ones(4))
            compiled(torch.ones(4, requires_grad=True))
        for requires_grad in (False, True):
            x = torch.linspace(-1, 2, 12).reshape(3, 4).requires_grad_(requires_grad)
            expected, got = AROUND[name](doubled_sine, x), AROUND[name](compiled, x)
            torch.testing.assert_close(got, expected)
            if requires_grad:
                torch.testing.assert_close(*(torch.autograd.grad(r.sum(), x) for r in (got, expected)))


@pytest.mark.parametrize("f", [lambda t: t[t.argmax()], lambda t: t[: t.argmax()].sum()])
def test_a_break_inside_does_not_tell_of_torchs_settings(f):
    with pytest.raises(dynamo_lite.exc.Unsupported) as caught:
        dynamo_lite.compile(lambda a: vmap(f)(a), backend="eager", fullgraph=True)(torch.randn(2, 3))
    text = str(caught.value)
    assert not any(word in text for word in ("TORCH", "Caused by", "unhinted", "bug report", "http")), text


def test_dual_numbers_are_left_to_eager_execution_and_named():
    def f(a):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(a, a)
            return forward_ad.unpack_dual(dual * dual).tangent

    breaks = run_both(f, torch.randn(3)).breaks
    told = {b.slug for b in breaks if "forward_ad" in b.context}
    assert told == {"higher-order-operator-without-model"} and "opcode" not in {b.slug for b in breaks}
    assert "torch.func.jvp" in breaks[0].context


def tangent_inside(a):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(forward_ad.make_dual(a, a * 2).exp()).tangent


def old_vmap(a):
    return torch._vmap_internals._vmap(lambda t: t.exp() + a)(torch.stack([a, a + 1]))


def forward_jacobian(a):
    return torch.autograd.functional.jacobian(lambda t: t.exp().sum(0), a, strategy="forward-mode", vectorize=True)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [tangent_inside, old_vmap, forward_jacobian])
def test_compilers_get_no_dual_tensors_nor_those_of_the_old_vmap(fn, backend):
    compiled, a = dynamo_lite.compile(fn, backend=backend), torch.randn(2, 2)
    for _ in range(2):
        torch.testing.assert_close(compiled(a), fn(a))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_version_that_fits_within_a_dual_level(backend):
    compiled, a = dynamo_lite.compile(lambda a: a.exp() * 2, backend=backend), torch.randn(3)
    expected = compiled(a)
    with forward_ad.dual_level():
        dual = compiled(forward_ad.make_dual(a, torch.ones(3)))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, expected)
    torch.testing.assert_close(torch._vmap_internals._vmap(compiled)(a), expected)


def behind_a_change(make, change):
    """What the function that `make` returns gives where its operands have been changed in place."""

    def f(a, ct):
        b = a * 2
        out, pull = make(b)
        change(a, b, out)
        return pull(ct), out

    return f


PULLED_LATE = {
    "an argument": (lambda b: vjp(torch.exp, b), lambda a, b, out: b.add_(1)),
    "a view of it": (lambda b: vjp(torch.exp, b), lambda a, b, out: b.view(-1).add_(1)),
    "what the body reads": (
        lambda b: vjp(lambda t: torch.where(b > 0, t, t * t), b.clone()),
        lambda a, b, out: b.neg_(),
    ),
    "a result": (lambda b: vjp(torch.exp, b), lambda a, b, out: out.add_(1)),
    "linearize": (lambda b: linearize(lambda t: t * t.sin(), b), lambda a, b, out: b.add_(1)),
    "something else": (lambda b: vjp(torch.exp, b), lambda a, b, out: (b + 1).add_(1)),
    "something that reads the result": (
        lambda b: vjp(torch.exp, b),
        lambda a, b, out: torch.zeros(3).add_(out).mul_(b),
    ),
}


@pytest.mark.parametrize("name", PULLED_LATE)
def test_a_pullback_behind_a_change_in_place(name):
    result = run_both(behind_a_change(*PULLED_LATE[name]), torch.tensor([1.0, -2.0, 3.0]), torch.ones(3))
    assert bool(result.breaks) == (not name.startswith("something"))


def test_the_rest_of_a_transform_behind_a_break():
    def f(a):
        return torch.func.debug_unwrap(a) * 2

    with config.patch(suppress_errors=False):
        run_both(f, *x())
