"""What `torch.autograd.Function` contexts are told: marks of results and of changed arguments, gradients that may be None."""

import enum

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend, run_both, same


class Scale(torch.autograd.Function):
    """Its second result has no gradient, and it wants None for that rather than zeros."""

    @staticmethod
    def forward(x, k):
        return x * k, x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad, none):
        assert none is None
        return grad * ctx.k, None


def test_gradients_that_are_not_materialized():
    counter = CompileCounter()
    w = torch.arange(4.0, requires_grad=True)
    y, z = dynamo_lite.compile(lambda a: Scale.apply(a, 3), backend=counter, fullgraph=True)(w)
    assert counter.frame_count == 1 and y.requires_grad and not z.requires_grad
    (y * 2).sum().backward()
    assert torch.equal(w.grad, torch.full((4,), 6.0))


class Times(torch.autograd.Function):
    """Multiplies in place."""

    @staticmethod
    def forward(ctx, a, k):
        ctx.k = k
        ctx.mark_dirty(a)
        return a.mul_(k)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k, None


class Relu(torch.autograd.Function):
    """Changes its argument, of which it saves the result; returns something new as well."""

    @staticmethod
    def forward(a, w):
        return a.clamp_(min=0), a * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output[0], inputs[1])

    @staticmethod
    def backward(ctx, grad, other):
        result, w = ctx.saved_tensors
        return (grad + other * w) * (result > 0), other * result


class Parts(torch.autograd.Function):
    """Says by None which of its results were used."""

    @staticmethod
    def forward(ctx, a):
        ctx.set_materialize_grads(False)
        return a * 2, a * 3

    @staticmethod
    def backward(ctx, one, two):
        if one is None:
            return None if two is None else two * 30
        return one * 20 if two is None else one * 200 + two


def same_one(a):
    y = a * 2
    z = Times.apply(y, 3.0)
    return z.sum() + (y * y).sum() * (100 if z is y else 1)


def of_a_view(a):
    y = a * 2
    Times.apply(y[1:], 3.0)
    return (y * y).sum()


def with_another(a):
    y = a - 1
    changed, new = Relu.apply(y, torch.ones(4) * 3)
    return (changed * y + new).sum()


def of_an_input(a, buffer):
    changed, new = Relu.apply(buffer, a)
    return changed.sum() + new.sum()


def gradient_inside(a):
    y = a * 2
    Times.apply(y, 3.0)
    return torch.autograd.grad((y * y).sum(), a)[0].sum() + a.sum()


def one_part(a):
    return Parts.apply(a)[0].sum()


def other_part(a):
    return Parts.apply(a)[1].sum()


def both_parts(a):
    one, two = Parts.apply(a)
    return (one * two).sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    "fn", [same_one, of_a_view, with_another, of_an_input, gradient_inside, one_part, other_part, both_parts]
)
def test_one_graph(fn, backend):
    counter = CompileCounterWithBackend(backend)

    def run(fn):
        a = torch.arange(4.0, requires_grad=True)
        buffer = torch.arange(4.0) - 2
        out = fn(a, buffer) if fn_takes_a_buffer else fn(a)
        out.backward()
        return out.detach(), a.grad, buffer.detach(), buffer.requires_grad

    fn_takes_a_buffer = fn is of_an_input
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    for _ in range(2):
        assert same(run(fn), run(compiled), tol=1e-5)
    assert counter.frame_count == 1


def test_a_leaf_is_not_changed():
    a = torch.arange(4.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        dynamo_lite.compile(lambda a: Times.apply(a, 3.0), backend="eager")(a)


class Shifted(torch.autograd.Function):
    """Changes its argument in place and tells nobody, as implementations of sparsemax do."""

    @staticmethod
    def forward(ctx, x, y):
        top, _ = x.max(-1, keepdim=True)
        x -= top
        out = (x * y).clamp(max=3.0)
        ctx.save_for_backward(out, y)
        return out

    @staticmethod
    def backward(ctx, grad):
        out, y = ctx.saved_tensors
        return grad * y, grad * out


def shift_a_result(x, y):
    h = x * 2
    return Shifted.apply(h, y) * h, h


def shift_an_input(x, y):
    return Shifted.apply(x, y), x * 3


def shift_a_view(x, y):
    h = x * 2
    v = h[0:1]
    return Shifted.apply(v, y) + h.detach(), v.detach() * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("fn", [shift_a_result, shift_an_input, shift_a_view])
def test_arguments_that_are_changed_without_a_mark(fn, requires_grad, backend):
    def outcome(run):
        x = torch.arange(12.0).sin().reshape(3, 4).requires_grad_(requires_grad)
        y = torch.ones(3, 4, requires_grad=True)
        results = run(x, y)
        sum(t.sum() for t in results if t.requires_grad).backward()
        return [t.detach() for t in results], x.detach(), x.grad, y.grad

    counter = CompileCounterWithBackend(backend)
    assert same(outcome(dynamo_lite.compile(fn, backend=counter, fullgraph=True)), outcome(fn))
    assert counter.frame_count == 1


def chain(value):
    """The names of a tensor's nodes of autograd."""

    def names(node):
        return (
            None if node is None else (node.name(), type(node).__name__, [names(of) for of, _ in node.next_functions])
        )

    return names(value.grad_fn)


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


class AddInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, grad):
        return grad


@pytest.mark.parametrize("function", [Squared, AddInPlace])
def test_nodes_of_autograd_have_the_names_of_their_functions(function):
    def call(x):
        return function.apply(x * 1) + 1

    def look(x):
        y = function.apply(x * 1)
        return y, y.grad_fn.name(), type(y.grad_fn).__name__

    x = torch.ones(3, requires_grad=True)
    assert chain(dynamo_lite.compile(call, backend="eager")(x)) == chain(call(x))
    assert run_both(look, x).result[1] == f"{function.__name__}Backward"
    compiled = dynamo_lite.compile(call, backend="aot_eager")(x)  # a graph of AOTAutograd is one node
    assert compiled.grad_fn.name() == "CompiledFunctionBackward"


def test_the_class_of_a_function_that_is_made_inside():
    def call(x):
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        return Twice.apply(x)

    x = torch.ones(3, requires_grad=True)
    compiled = dynamo_lite.compile(call, backend="eager")
    assert chain(compiled(x)) == chain(call(x))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Number(enum.IntEnum):
    TWO = 2
    THREE = 3


class Letter(enum.StrEnum):
    A = "a"
    B = "b"


class ByMember(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, member):
        ctx.member = member
        return x * (2 if member in (Colour.RED, Number.TWO, Letter.A) else 3)

    @staticmethod
    def backward(ctx, grad):
        return grad * (5 if ctx.member in (Colour.RED, Number.TWO, Letter.A) else 7), None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("member", [*Colour, *Number, *Letter])
def test_members_of_enumerations_as_arguments(member, backend):
    def call(x, member):
        x.grad = None
        ByMember.apply(x, member).sum().backward()
        return ByMember.apply(x, member), x.grad

    def constant(x):
        return ByMember.apply(x, member)

    for fn, args in ((call, (member,)), (constant, ())):
        run = run_both(fn, torch.ones(3, requires_grad=True), *args, _backend=backend)
        assert run.graph_count == 1 and not run.breaks


class Old(torch.autograd.Function):
    def forward(self, x):
        return x * 2

    def backward(self, grad):
        return grad * 2


OLD = Old()


@pytest.mark.parametrize(
    "call", [lambda x: Old()(x), lambda x: OLD(x), lambda x: Old().forward(x), lambda x: OLD.apply(x)]
)
def test_instances_of_functions_of_the_old_style(call):
    run = run_both(call, torch.ones(3, requires_grad=True))
    assert run.exception is None or "Legacy autograd function with non-static forward" in str(run.exception)


def masked_sum(x, mask):
    return torch.masked.sum(x, dim=0, mask=mask)


def test_reductions_of_torch_masked_make_no_class():
    run = run_both(masked_sum, torch.randn(3, 2), torch.tensor([[True], [False], [True]]), _fullgraph=True)
    assert run.graph_count == 1


def _exp_by(backward):
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

    Exp.backward = staticmethod(backward)
    return Exp


def _partly(ctx, g):
    with torch.no_grad():
        e = ctx.saved_tensors[0].exp()
    return g * e


def _asks(ctx, g):
    return g * (100 if torch.is_grad_enabled() else 10) * ctx.saved_tensors[0]


GRAD_MODES = {
    "once_differentiable": torch.autograd.function.once_differentiable(lambda ctx, g: g * ctx.saved_tensors[0].exp()),
    "no_grad": torch.no_grad()(lambda ctx, g: g * ctx.saved_tensors[0].exp()),
    "no_grad for a part": _partly,
    "asks": _asks,
    "recorded": lambda ctx, g: g * ctx.saved_tensors[0].exp(),
}


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("kind", GRAD_MODES)
def test_the_grad_mode_of_a_backward_that_creates_a_graph(kind, is_inside):
    """`backward` runs with gradients then, but for what it does without them itself."""
    function = _exp_by(GRAD_MODES[kind])

    def gradient(x, weight, apply):
        return torch.autograd.grad((apply(x) * weight).sum(), x, create_graph=True)[0]

    def run(compiler):
        x, weight = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        if is_inside:
            g = compiler(lambda x, weight: gradient(x, weight, function.apply))(x, weight)
        else:
            g = gradient(x, weight, compiler(lambda x: function.apply(x)))
        try:
            again = torch.autograd.grad(g.sum(), (x, weight), allow_unused=True)
        except RuntimeError as error:
            again = str(error)
        return g.detach(), g.requires_grad, again

    assert same(run(lambda fn: fn), run(lambda fn: dynamo_lite.compile(fn, backend="eager", fullgraph=True)))


class Attribute(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, factor):
        return x * 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.factor = inputs

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor + ctx.x * 0, None


class Saving(Attribute):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        ctx.saved_tensors
        return gradient * 2, None


class SavingUnread(Saving):
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None


class SavingNothing(Saving):
    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


def results_of(compile, cls, change, again):
    """The gradients after a change of the second argument, in the function or behind it, and those of a second pass."""

    def fn(x, factor):
        y = cls.apply(x, factor)
        if change == "inside":
            factor.fill_(5)
        return y

    x, factor = torch.ones(2, requires_grad=True), torch.tensor(1.0)
    y = compile(fn)(x, factor)
    if change == "behind":
        factor.fill_(5)
    found = []
    for _ in range(1 + again):
        try:
            y.sum().backward()
            found.append(x.grad.tolist())
        except RuntimeError as error:
            found.append(str(error)[:60])
    return found


@pytest.mark.parametrize("change", ["", "inside", "behind"])
@pytest.mark.parametrize("cls", [Attribute, Saving, SavingUnread, SavingNothing])
def test_what_is_saved_and_what_is_an_attribute(cls, change):
    """Torch examines what was saved when `backward` asks for it, used or not, and nothing else."""
    counter = CompileCounter()
    expected = results_of(lambda fn: fn, cls, change, again=True)
    assert (
        results_of(lambda fn: dynamo_lite.compile(fn, backend=counter, fullgraph=True), cls, change, True) == expected
    )
    assert counter.frame_count == 1


@pytest.mark.parametrize("cls", [Attribute, Saving])
def test_what_is_saved_in_a_transform(cls):
    def gradient(x):
        def inner(a):
            factor = torch.ones(())
            y = cls.apply(a, factor)
            factor.add_(4)
            return y.sum()

        return torch.func.grad(inner)(x)

    compiled = dynamo_lite.compile(gradient, backend="eager", fullgraph=True)
    if cls is Attribute:
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 5.0))
        assert torch.equal(gradient(torch.ones(2)), torch.full((2,), 5.0))
        return
    for fn in (gradient, compiled):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            fn(torch.ones(2))


def test_gradients_through_attributes():
    def second(compile):
        x = torch.ones(2, requires_grad=True)
        y = compile(lambda x: KeepsResult.apply(x))(x)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.sum(), x)[0]

    expected = second(lambda fn: fn)
    assert torch.equal(second(lambda fn: dynamo_lite.compile(fn, backend="eager", fullgraph=True)), expected)


class KeepsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp()
        return ctx.y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.y


@pytest.mark.parametrize("value", [[torch.ones(1)], "text", 3], ids=["list", "str", "int"])
def test_only_tensors_can_be_saved(value):
    class Wrong(SavingNothing):
        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(value)

    fn = dynamo_lite.compile(lambda x: Wrong.apply(x, 1), backend="eager")
    with pytest.raises(TypeError, match="save_for_backward can only save variables, but argument 0 is of type"):
        fn(torch.ones(2, requires_grad=True))
    assert torch.equal(fn(torch.ones(2)), torch.ones(2))
