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
