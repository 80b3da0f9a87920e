"""What `backward` of a function and hooks read of the program's objects is what these are when the gradient is computed."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter

FACTOR = 2


class Settings:
    factor = 2


class Plain:
    def __init__(self):
        self.factor = 2


PLAIN = Plain()
FACTORS = [2]


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * Settings.factor


@pytest.fixture(autouse=True)
def unchanged():
    def set_all():
        global FACTOR
        FACTOR = Settings.factor = PLAIN.factor = FACTORS[0] = 2

    set_all()
    yield set_all
    set_all()


def class_attribute(x):
    y = Scaled.apply(x)
    Settings.factor = 3
    return y


def attribute(x):
    y = x * 1
    y.register_hook(lambda gradient: gradient * PLAIN.factor)
    PLAIN.factor = 5
    return y


def item(x):
    y = x * 1
    y.register_hook(lambda gradient: gradient * FACTORS[0])
    FACTORS[0] = 7
    return y.sin()


def global_variable(x):
    global FACTOR
    y = x * 1
    y.register_hook(lambda gradient: gradient * FACTOR)
    FACTOR = 4
    return y * 2


def new_object(x):
    own = Plain()
    y = x * 1
    y.register_hook(lambda gradient: gradient * own.factor)
    own.factor = 6
    return y


def another_branch(x):
    own = Plain()

    def hook(gradient):
        return gradient * 2 if own.factor == 2 else None

    y = x * 1
    y.register_hook(hook)
    own.factor = 1
    return y


def with_backward(fn):
    def run(x):
        fn(x).sum().backward()
        Settings.factor = PLAIN.factor = FACTORS[0] = 2
        return x.grad

    run.__name__ = f"{fn.__name__}_and_backward"
    return run


CHANGING = [class_attribute, attribute, item, global_variable, new_object, another_branch]


def gradient_of(fn, compiled):
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    result = compiled(x)
    if result is not x.grad:
        result.sum().backward()
    return x.grad


@pytest.mark.parametrize("fn", [*CHANGING, *map(with_backward, CHANGING)], ids=lambda fn: fn.__name__)
def test_changed_afterwards(fn, unchanged):
    expected = gradient_of(fn, fn)
    unchanged()
    actual = gradient_of(fn, dynamo_lite.compile(fn, backend="eager"))
    torch.testing.assert_close(actual, expected)
    assert any("reads what changes later" in (record.context or "") for record in log.breaks())


def changes_something_else(x):
    own = Plain()
    y = Scaled.apply(x)
    y.register_hook(lambda gradient: gradient * own.factor)
    FACTORS[0] = 9
    own.other = 1
    return y


@pytest.mark.parametrize(
    "fn", [changes_something_else, with_backward(changes_something_else)], ids=["outside", "inside"]
)
def test_other_changes_are_no_matter(fn, unchanged):
    expected = gradient_of(fn, fn)
    unchanged()
    counter = CompileCounter()
    torch.testing.assert_close(gradient_of(fn, dynamo_lite.compile(fn, backend=counter)), expected)
    assert counter.frame_count == 1


def test_before_a_break(unchanged):
    def f(x):
        y = Scaled.apply(x * 2)
        Settings.factor = 3
        dynamo_lite.graph_break()
        return y.cos()

    expected = gradient_of(f, f)
    unchanged()
    torch.testing.assert_close(gradient_of(f, dynamo_lite.compile(f, backend="eager")), expected)


def test_an_error_under_fullgraph(unchanged):
    compiled = dynamo_lite.compile(class_attribute, backend="eager", fullgraph=True)
    with pytest.raises(dynamo_lite.exc.Unsupported, match="the backward of .*Scaled reads what changes later"):
        compiled(torch.ones(2, requires_grad=True))


class KeepsLeaf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.cos()


class ReadsGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (5 if ctx.x.grad is None else ctx.x.grad)


def leaf(x):
    KeepsLeaf.apply(x).sum().backward()


def leaf_of_inner_body(x):
    y = KeepsLeaf.apply(x)
    y.register_hook(lambda gradient: torch.cond(gradient.sum() > 0, lambda g: g * x, lambda g: g - x, (gradient,)))
    y.sum().backward()


def step(x):
    x.grad = None
    (KeepsLeaf.apply(x) * 2).sum().backward()
    with torch.no_grad():
        x.sub_(x.grad * 0.5)


def run_at(fn):
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    fn(x)
    return x.detach(), x.grad


@pytest.mark.parametrize("fn", [leaf, leaf_of_inner_body, step], ids=lambda fn: fn.__name__)
def test_a_leaf_that_gets_its_gradient(fn):
    """The graph reads the leaf itself after `backward` was followed first: what `backward` computes is the same."""
    counter = CompileCounter()
    torch.testing.assert_close(run_at(dynamo_lite.compile(fn, backend=counter, fullgraph=True)), run_at(fn))
    assert counter.frame_count == 1


def test_a_gradient_that_changes():
    def f(x):
        y = ReadsGradient.apply(x).sum()
        x.grad = torch.full((2,), 7.0)
        y.backward()

    torch.testing.assert_close(run_at(dynamo_lite.compile(f, backend="eager")), run_at(f))
    with pytest.raises(dynamo_lite.exc.Unsupported, match="the backward of .*ReadsGradient reads what changes later"):
        run_at(dynamo_lite.compile(f, backend="eager", fullgraph=True))


def test_a_leaf_that_changes_in_place():
    def f(x):
        y = KeepsLeaf.apply(x).sum()
        with torch.no_grad():
            x.add_(1)
        y.backward()

    for fn in (f, dynamo_lite.compile(f, backend="eager")):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run_at(fn)


WEIGHT = torch.full((2, 2), 1.01)


def autocast(enabled=True):
    return torch.autocast("cpu", torch.bfloat16, enabled=enabled)


class Mixed(torch.autograd.Function):
    """Its products are in bfloat16 wherever autocast is on, there and where `backward` runs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        with autocast():
            inside = (gradient.float() @ WEIGHT).float()
        with autocast(False):
            outside = gradient.float() @ WEIGHT
        return inside * 3 + outside * 5 + (gradient.float() @ WEIGHT).float()


class Decorated(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x @ WEIGHT

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        return gradient @ WEIGHT.t()


class InFunction(Mixed):
    @staticmethod
    def backward(ctx, gradient):
        return gradient * (3 if torch.is_autocast_enabled("cpu") else 5)


class Leaves(Mixed):
    @staticmethod
    def backward(ctx, gradient):
        torch.set_autocast_enabled("cpu", True)
        return (gradient.float() @ WEIGHT).float()


def in_hook(x):
    y = x * 2

    def hook(gradient):
        with autocast():
            inside = (gradient.float() @ WEIGHT).float()
        return inside + (gradient.float() @ WEIGHT).float()

    y.register_hook(hook)
    return y


def in_unpack_hook(x):
    def unpack(tensor):
        with autocast():
            return (tensor.float() @ WEIGHT).float()

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        return x * x


def left_open(x):
    with autocast():
        y = Mixed.apply(x)
    return y


def in_checkpoint(x):
    return torch.utils.checkpoint.checkpoint(lambda y: Mixed.apply(y) + Decorated.apply(y), x, use_reentrant=False)


def in_grad(x):
    return torch.func.grad(lambda y: Mixed.apply(y).sum())(x) * x


def in_vmap(x):
    with autocast():
        return torch.vmap(torch.func.grad(lambda y: Mixed.apply(y[None]).sum()))(x) * x


def gradient_under(fn, forward, backward):
    x = WEIGHT.clone().requires_grad_()
    with autocast(forward):
        y = fn(x)
    with autocast(backward):
        (gradient,) = torch.autograd.grad((y * 1.01).sum(), x)
    assert torch.is_autocast_enabled("cpu") is False
    return y.detach(), gradient


IN_A_GRAPH = {
    "function": lambda x: Mixed.apply(x),
    "decorated": lambda x: Decorated.apply(x),
    "hook": in_hook,
    "unpack": in_unpack_hook,
    "inside": left_open,
    "checkpoint": in_checkpoint,
    "grad": in_grad,
    "vmap": in_vmap,
}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("name", IN_A_GRAPH)
def test_autocast_in_what_runs_later(name, forward, backward):
    """The state in which it runs need not be that of the call."""
    counter = CompileCounter()
    compiled = dynamo_lite.compile(IN_A_GRAPH[name], backend=counter, fullgraph=True)
    expected = gradient_under(IN_A_GRAPH[name], forward, backward)
    for _ in range(2):
        for result, wanted in zip(gradient_under(compiled, forward, backward), expected, strict=True):
            torch.testing.assert_close(result, wanted, rtol=0, atol=0)
    assert counter.frame_count == 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_autocast_in_backward_under_compilers(backend):
    fn = IN_A_GRAPH["decorated"]
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for result, wanted in zip(gradient_under(compiled, True, False), gradient_under(fn, True, False), strict=True):
        torch.testing.assert_close(result, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("function", [InFunction, Leaves])
def test_backward_that_depends_on_autocast(function):
    fn = dynamo_lite.compile(lambda x: function.apply(x), backend="eager")
    for forward, backward in ((True, False), (False, True)):
        results = [gradient_under(f, forward, backward) for f in (fn, lambda x: function.apply(x))]
        torch.testing.assert_close(*results, rtol=0, atol=0)
    with pytest.raises(dynamo_lite.exc.Unsupported, match="set_autocast_enabled|depends on the state of torch"):
        dynamo_lite.compile(lambda x: function.apply(x), backend="eager", fullgraph=True)(
            torch.ones(2, 2, requires_grad=True)
        )


class Filled(Mixed):
    """New memory is filled with NaN while algorithms are deterministic."""

    @staticmethod
    def backward(ctx, gradient):
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        result = torch.empty_like(gradient)
        torch.use_deterministic_algorithms(before)
        return result


def test_other_settings_in_backward():
    counter = CompileCounter()
    x = torch.ones(2, requires_grad=True)
    try:
        torch.use_deterministic_algorithms(True)
        y = dynamo_lite.compile(lambda x: Filled.apply(x), backend=counter, fullgraph=True)(x)
        torch.use_deterministic_algorithms(False)
        y.sum().backward()
        assert x.grad.isnan().all() and not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert counter.frame_count == 1
