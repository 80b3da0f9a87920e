"""`torch.autograd.Function` in all forms: what `forward` takes, keeps, marks and returns, what `backward` returns, and transforms."""

import enum
from collections import namedtuple

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.func import grad, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite.testing import run_both
from tests.helpers.against_eager import check, check_break

torch.manual_seed(0)
W = torch.arange(9.0).reshape(3, 3) / 7
P = nn.Parameter(torch.arange(9.0).reshape(3, 3) / 5)
LINEAR = nn.Linear(3, 3)
PARAMETERS = (P, *LINEAR.parameters())
Pair = namedtuple("Pair", "a b")


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Settings:
    factor = 3


def x(requires_grad=True):
    return ((torch.arange(6.0) / 5 + 0.1).reshape(2, 3).requires_grad_(requires_grad),)


def function(forward, backward, setup_context=None, **members):
    """`apply` of a class with these methods."""
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward), **members}
    if setup_context is not None:
        members["setup_context"] = staticmethod(setup_context)
    return type("Written", (Function,), members).apply


def saving(*kept):
    """A `forward` of two tensors that keeps what is named, and computes their product."""

    def forward(ctx, a, b):
        made = {"a": a, "b": b, "sum": a + b, "none": None, "global": W}
        ctx.save_for_backward(*[made[name] for name in kept])
        return a * b

    return forward


def sine(ctx, a):
    ctx.save_for_backward(a)
    return a.sin()


def by_cosine(ctx, grad):
    return grad * ctx.saved_tensors[0].cos()


def doubled(ctx, grad, *others):
    return grad * 2


def keeping(name, make):
    """A `forward` that leaves something on `ctx`."""

    def forward(ctx, a, *args):
        setattr(ctx, name, make(a, *args))
        return a.sin()

    return forward


def marking(mark, make):
    """A `forward` that marks some of its results."""

    def forward(ctx, a):
        results, marked = make(a)
        getattr(ctx, mark)(*marked)
        return results

    return forward


def shifted(ctx, a):
    ctx.mark_dirty(a)
    return a.add_(1)


def without_gradients_made_of_nothing(ctx, a):
    ctx.set_materialize_grads(False)
    return a * 2, a * 3


def of_those_there_are(ctx, first, second):
    return (0 if first is None else first * 2) + (0 if second is None else second * 3)


def where_wanted(ctx, grad):
    a, b = ctx.saved_tensors
    return grad * b if ctx.needs_input_grad[0] else None, grad * a if ctx.needs_input_grad[1] else None


def mask_and_value(a):
    mask = (a > 0.5).float()
    return (a.sin(), mask), [mask]


def index_and_value(a):
    index = a.argmax(1)
    return (a.sin(), index), [index]


def one_twice(ctx, a):
    b = a * 2
    return b, b


def exponential(ctx, a):
    b = a.exp()
    ctx.save_for_backward(b)
    return b


def masked(ctx, a):
    mask = torch.rand(2, 3)
    ctx.save_for_backward(mask)
    return a * mask


two_sines = function(lambda ctx, a: (a.sin(), a.cos()), lambda ctx, g, h: g * 2 + h * 3)
basic = function(sine, by_cosine)
add_one = function(shifted, doubled)
by_two = function(lambda ctx, a, k=None: a * 2, lambda ctx, g: (g * 2, None))

FORMS = {
    "a saved input": basic,
    "setup_context": function(lambda a: a.sin(), by_cosine, lambda ctx, inputs, output: ctx.save_for_backward(*inputs)),
    "a default in setup_context": function(
        lambda a, n=3: a * n,
        lambda ctx, g: (g * ctx.n, None),
        lambda ctx, inputs, output: setattr(ctx, "n", inputs[1]),
    ),
    "a saved result": function(exponential, lambda ctx, g: g * ctx.saved_tensors[0]),
    "a saved tensor of its own": function(saving("sum"), lambda ctx, g: (g * ctx.saved_tensors[0], None)),
    "a saved None": function(
        saving("a", "none"), lambda ctx, g: (g * 2 if ctx.saved_tensors[1] is None else g, ctx.saved_tensors[0] * g)
    ),
    "a saved tensor from outside": function(saving("global"), lambda ctx, g: (g @ ctx.saved_tensors[0], None)),
    "to_save": function(lambda ctx, a: (ctx.save_for_backward(a), a * len(ctx.to_save))[1], lambda ctx, g: g),
    "a saved tensor is the gradient": function(
        saving("a", "b"), lambda ctx, g: (ctx.saved_tensors[1], ctx.saved_tensors[0])
    ),
    "the gradient itself": function(lambda ctx, a: a.clone(), lambda ctx, g: g),
    "a gradient from outside": function(lambda ctx, a: a @ W, lambda ctx, g: P[:2] * 1),
    "no gradient": function(lambda ctx, a: a * 2, lambda ctx, g: None),
    "more gradients that are None": function(lambda ctx, a: a * 2, lambda ctx, g: (g, None, None)),
    "a gradient of another type": function(lambda ctx, a: a * 2, lambda ctx, g: g.double()),
    "a constant on ctx": (lambda apply: lambda a: apply(a, 3))(
        function(keeping("n", lambda a, n: n), lambda ctx, g: (g * ctx.n, None))
    ),
    "an enum on ctx": (lambda apply: lambda a: apply(a, Colour.BLUE))(
        function(keeping("c", lambda a, c: c), lambda ctx, g: (g * ctx.c.value if ctx.c is Colour.BLUE else g, None))
    ),
    "a tensor on ctx": function(keeping("t", lambda a: a), lambda ctx, g: g * ctx.t.cos()),
    "a made tensor on ctx": function(keeping("t", lambda a: a.cos()), lambda ctx, g: g * ctx.t),
    "a list on ctx": function(keeping("l", lambda a: [a, 2]), lambda ctx, g: g * ctx.l[0].cos() * ctx.l[1]),
    "sizes on ctx": function(keeping("s", lambda a: a.shape), lambda ctx, g: g.reshape(ctx.s) * 2),
    "a function on ctx": (lambda apply: lambda a: apply(a, lambda g: g * 5))(
        function(keeping("f", lambda a, f: f), lambda ctx, g: (ctx.f(g), None))
    ),
    "attributes of ctx": function(
        keeping("n", lambda a: 1), lambda ctx, g: g * (2 if hasattr(ctx, "n") and not hasattr(ctx, "m") else 5)
    ),
    "a module": (lambda apply: lambda a: apply(a, LINEAR))(
        function(lambda ctx, a, m: (setattr(ctx, "m", m), m(a))[1], lambda ctx, g: (g @ ctx.m.weight, None))
    ),
    "an object": (lambda apply: lambda a: apply(a, Settings()))(
        function(lambda ctx, a, s: a * s.factor, lambda ctx, g: (g * 2, None))
    ),
    "None as an argument": lambda a: by_two(a, None),
    "text as an argument": lambda a: by_two(a, "text"),
    "a tuple as an argument": lambda a: by_two(a, (2, 3)),
    "tensors in a list as an argument": (lambda apply: lambda a: apply(a, [a.detach()]))(
        function(lambda ctx, a, others: a * others[0], lambda ctx, g: (g * 2, None))
    ),
    "a keyword": lambda a: by_two(a, k=4),
    "a tensor as a keyword": (lambda apply: lambda a: apply(a, k=a * 3))(
        function(lambda ctx, a, k=None: a * k, lambda ctx, g: (g * 2, g * 5))
    ),
    "a default": function(lambda ctx, a, k=3: a * k, lambda ctx, g: (g * 2,)),
    "one tensor as two arguments": (lambda apply: lambda a: apply(a, a))(
        function(lambda ctx, a, b: a * b, lambda ctx, g: (g * 2, g * 3))
    ),
    "many arguments": (lambda apply: lambda a: apply(a, a * 2))(
        function(lambda ctx, *many: many[0] * many[1], lambda ctx, g: (g * 2, g * 3))
    ),
    "a parameter": (lambda apply: lambda a: apply(a, P))(
        function(
            lambda ctx, a, w: (ctx.save_for_backward(a, w), a @ w)[1],
            lambda ctx, g: (g @ ctx.saved_tensors[1].t(), ctx.saved_tensors[0].t() @ g),
        )
    ),
    "a parameter of a closure": function(lambda ctx, a: a @ P, lambda ctx, g: g * 2),
    "which gradients are wanted": (lambda apply: lambda a: apply(a, W[:2]))(function(saving("a", "b"), where_wanted)),
    "two results": two_sines,
    "one of two results": lambda a: two_sines(a)[0],
    "the argument": function(lambda ctx, a: a, doubled),
    "the argument, if nothing wants gradients": (lambda apply: lambda a: apply(a.detach()).add_(1))(
        function(lambda ctx, b: b, doubled)
    ),
    "a view": function(lambda ctx, a: a.view(-1), lambda ctx, g: g.view(2, 3) * 2),
    "one result twice": function(one_twice, lambda ctx, g, h: g * 2 + h * 3),
    "a number as a result": function(lambda ctx, a: (a * 2, 3), doubled),
    "None as a result": function(lambda ctx, a: (a * 2, None), doubled),
    "a list as a result": function(lambda ctx, a: [a * 2, a * 3], doubled),
    "tensors inside of a result": function(lambda ctx, a: (a * 2, {"x": a * 3, "y": a}), doubled),
    "a named tuple as a result": function(lambda ctx, a: Pair(a * 2, a * 3), lambda ctx, g, h: g * 2 + h * 3),
    "a result of another type": function(lambda ctx, a: torch.complex(a, a), lambda ctx, g: g.real * 2),
    "half precision": function(lambda ctx, a: a.half(), lambda ctx, g: g.float() * 2),
    "nothing of the argument": function(lambda ctx, a: torch.ones(3), lambda ctx, g: g.sum() * torch.ones(2, 3)),
    "mark_non_differentiable": function(marking("mark_non_differentiable", mask_and_value), doubled),
    "integers that are marked": function(marking("mark_non_differentiable", index_and_value), doubled),
    "mark_dirty": lambda a: add_one(a * 1),
    "mark_dirty of a view": lambda a: (lambda b: (add_one(b[0]), b))(a * 1),
    "set_materialize_grads": (lambda apply: lambda a: apply(a)[0])(
        function(without_gradients_made_of_nothing, of_those_there_are)
    ),
    "once_differentiable": function(sine, once_differentiable(by_cosine)),
    "the grad mode inside": function(
        lambda ctx, a: a * (100 if torch.is_grad_enabled() else 2),
        lambda ctx, g: g * (100 if torch.is_grad_enabled() else 3),
    ),
    "a function inside": function(lambda ctx, a: basic(a) * 2, lambda ctx, g: basic(g)),
    "random numbers": function(masked, lambda ctx, g: g * ctx.saved_tensors[0]),
    "class methods": type(
        "OfClass",
        (Function,),
        {
            "factor": 4,
            "forward": classmethod(lambda cls, ctx, a: a * cls.factor),
            "backward": classmethod(lambda cls, ctx, g: g * cls.factor),
        },
    ).apply,
    "custom_fwd": function(
        torch.amp.custom_fwd(lambda ctx, a: a * 2, device_type="cpu"), torch.amp.custom_bwd(doubled, device_type="cpu")
    ),
    "in a checkpoint": lambda a: checkpoint(lambda b: basic(b) * 2, a, use_reentrant=False),
    "no_grad around": torch.no_grad()(lambda a: basic(a)),
    "a second derivative": lambda a: torch.autograd.grad(basic(a).sum(), a, create_graph=True)[0],
}
OF_TWO = ("a saved tensor of its own", "a saved None", "a saved tensor from outside", "a saved tensor is the gradient")


@pytest.mark.parametrize("name", FORMS)
def test_one_graph(name):
    fn = FORMS[name]
    check((lambda a: fn(a, a * 2)) if name in OF_TWO else lambda a: fn(a), x(), PARAMETERS)


@pytest.mark.parametrize(
    "name", ["setup_context", "mark_dirty", "two results", "a module", "a saved tensor is the gradient"]
)
def test_inductor(name):
    fn = FORMS[name]
    check((lambda a: fn(a, a * 2)) if name in OF_TWO else lambda a: fn(a), x(), PARAMETERS, backends=("inductor",))


def test_an_argument_that_is_changed():
    check(lambda a: add_one(a), x(False))
    run = run_both(lambda a: add_one(a) is a, *x(False), _fullgraph=True)
    assert run.result is True


def test_the_argument_is_not_the_result():
    """`apply` returns a view of it, whether or not gradients are wanted."""
    same = function(lambda ctx, a: a, doubled)
    for wanted in (False, True):
        run = run_both(lambda a: same(a) is a, *x(wanted), _fullgraph=True)
        assert run.result is False


def in_a_dictionary(ctx, a):
    b, c = a * 2, a * 3
    return b, {"b": b, "c": c}, [c]


def same_places(result):
    """Where the tensors in a result are the same."""
    leaves = torch.utils._pytree.tree_leaves(result)
    return [[a is b for a in leaves] for b in leaves]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "forward",
    [
        one_twice,
        in_a_dictionary,
        lambda ctx, a: (a, a),
        marking("mark_non_differentiable", lambda a: ((a.sin(),) * 2, [a])),
    ],
    ids=["twice", "in a dictionary", "an argument", "marked"],
)
def test_which_results_are_the_same(forward, backend):
    fn = function(forward, lambda ctx, *grads: sum(g * k for k, g in enumerate(grads, 2) if g is not None))

    def f(a):
        result = fn(a)
        return same_places(result), [b.requires_grad for b in torch.utils._pytree.tree_leaves(result)], result

    def gradient(run):
        (a,) = x()
        same, wanted, result = run(a)
        assert same_places(result) == same
        if wanted[0]:
            sum(b.sum() for b in torch.utils._pytree.tree_leaves(result) if b.requires_grad).backward()
        return same, wanted, a.grad

    assert repr(gradient(dynamo_lite.compile(f, backend=backend, fullgraph=True))) == repr(gradient(f))


def test_which_inputs_need_gradients_in_either_grad_mode():
    scaled = function(lambda ctx, a: a * (2 if ctx.needs_input_grad[0] else 3), doubled)
    for enabled in (True, False):
        for needs in (True, False):
            with torch.set_grad_enabled(enabled):
                check(lambda a: (scaled(a), scaled(a * P[0])), x(needs))


LOG = []


def test_effects_of_forward_and_of_backward():
    counted = function(lambda ctx, a: (LOG.append(a.shape[0]), a.sin())[1], doubled)
    check(lambda a: counted(a), x())
    LOG.clear()
    compiled = dynamo_lite.compile(lambda a: counted(a), backend="eager", fullgraph=True)
    for n in range(1, 4):
        compiled(*x())
        assert LOG == [2] * n
    check_break((lambda apply: lambda a: apply(a))(function(lambda ctx, a: (LOG.append(a.sin()), a)[1], doubled)), x())
    check_break((lambda apply: lambda a: apply(a))(function(sine, lambda ctx, g: (LOG.append(1), g)[1])), x())


def test_a_class_made_inside_breaks():
    run = run_both(lambda a: function(sine, by_cosine)(a + 1), *x())
    assert {found.slug for found in run.breaks} <= {"class-definition", "call-c-function"} and run.breaks


RAISES = {
    "too few gradients": lambda a: by_two(a, 1, 2),
    "too many gradients": (lambda apply: lambda a: apply(a))(function(lambda ctx, a: a * 2, lambda ctx, g: (g, g))),
    "too few gradients for keywords": (lambda apply: lambda a: apply(a, k=4))(
        function(lambda ctx, a, k: a * k, lambda ctx, g: (g,))
    ),
    "a gradient of another size": (lambda apply: lambda a: apply(a))(
        function(lambda ctx, a: a.sum(), lambda ctx, g: g)
    ),
    "a gradient that is no tensor": (lambda apply: lambda a: apply(a))(
        function(lambda ctx, a: a * 2, lambda ctx, g: 3)
    ),
    "an argument that is changed and not returned": (lambda apply: lambda a: apply(a * 1))(
        function(lambda ctx, b: (ctx.mark_dirty(b), b.add_(1), b * 2)[2], doubled)
    ),
    "arguments that do not fit": (lambda apply: lambda a: apply(a, a))(
        function(lambda a: a, doubled, lambda ctx, inputs, output: None)
    ),
}


@pytest.mark.parametrize("name", RAISES)
def test_errors_are_those_of_eager_execution(name):
    messages = []
    for run in (RAISES[name], dynamo_lite.compile(RAISES[name], backend="eager")):
        with pytest.raises((RuntimeError, TypeError)) as raised:
            run(*x()).sum().backward()
        messages.append((type(raised.value), str(raised.value)))
    assert messages[0] == messages[1]


# -- transforms


class Generated(Function):
    """Its derivative is not that of what it computes, so a capture that leaves `backward` out is wrong."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a, n=2):
        return a.sin() * n, a.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[1])
        ctx.n = inputs[1]

    @staticmethod
    def backward(ctx, g, h):
        a, b = ctx.saved_tensors
        return g * a.cos() * 7 * ctx.n + h * b, None


class Pushed(Function):
    @staticmethod
    def forward(a, b):
        return a * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b * 5, g * a

    @staticmethod
    def jvp(ctx, s, t):
        a, b = ctx.saved_tensors
        return s * b * 3 + a * t


def generated(a):
    first, second = Generated.apply(a)
    return (first + second).sum()


TRANSFORMED = {
    "grad": grad(generated),
    "grad of grad": grad(lambda a: grad(generated)(a).sum()),
    "vjp": lambda a: vjp(Generated.apply, a)[1]((a, a)),
    "jacrev": lambda a: jacrev(lambda b: Generated.apply(b)[0])(a),
    "vmap": lambda a: vmap(lambda r: Generated.apply(r, 3))(a),
    "vmap of grad": vmap(grad(generated)),
    "grad of vmap": grad(lambda a: vmap(generated)(a).sum()),
    "jvp": lambda a: jvp(Pushed.apply, (a, a * 2), (a, a)),
    "jvp of one": lambda a: jvp(lambda b: Pushed.apply(b, W[:2]), (a,), (a,)),
    "grad with jvp": grad(lambda a: Pushed.apply(a, a * 2).sum()),
    "score of attention": lambda a: flex_attention(QKV, QKV, QKV, score_mod=lambda s, b, h, q, k: s + P[q % 3, k % 3]),
}
QKV = torch.arange(256.0).reshape(1, 2, 16, 8).div(100)


@pytest.mark.parametrize("name", TRANSFORMED)
def test_in_transforms(name):
    if name == "score of attention":
        with torch.no_grad():
            check(TRANSFORMED[name], x(False))
    else:
        check(TRANSFORMED[name], x(False))


class WithRule(Generated):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, a, n):
        first, second = Generated.apply(a, n)
        return (first * 11, second), (in_dims[0], in_dims[0])


class WithoutRule(Generated):
    generate_vmap_rule = False


def test_transforms_that_are_refused():
    """A rule of the program's gets the tensors of all examples; without one torch raises, as it does without `setup_context`."""
    check_break(lambda a: vmap(lambda r: WithRule.apply(r, 2))(a), x(False), slug="autograd-function")
    for fn in (vmap(lambda r: WithoutRule.apply(r)), vmap(basic), jacfwd(lambda a: Generated.apply(a)[0])):
        with pytest.raises(dynamo_lite.exc.Unsupported):
            dynamo_lite.compile(fn, backend="eager", fullgraph=True)(*x(False))
        run_both(lambda a, fn=fn: fn(a), *x(False), _backend="eager")
