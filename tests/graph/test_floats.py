"""Floats that change from call to call: results equal to eager execution whatever the number, without a version per number."""

import math
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch._higher_order_ops import while_loop
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend, differences, same
from tests.helpers.capturing import wrapped

NUMBERS = (0.1, 0.2, 0.3, 0.7, 1e-9, 0.0, -0.0, -3.5, float("inf"), float("nan"), 1e30)


def same_number(x, y):
    return type(x) is type(y) and repr(x) == repr(y)


def check(fn, numbers=NUMBERS, backend="eager", versions=2, exact=True):
    """Call `fn(x, number)` both ways; it returns a tensor, or a tuple of tensors and numbers."""
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter)
    x = torch.randn(3, generator=torch.Generator().manual_seed(0))
    for number in numbers:
        expected, got = fn(x, number), compiled(x, number)
        for e, g in zip(*(r if isinstance(r, tuple) else (r,) for r in (expected, got)), strict=True):
            if isinstance(e, torch.Tensor):
                tolerance = {"rtol": 0, "atol": 0} if exact else {}
                torch.testing.assert_close(g, e, equal_nan=True, **tolerance)
            else:
                assert same_number(e, g)
    assert counter.frame_count <= versions
    return counter


def _with_item(x, key, value):
    x[key] = value
    return x


OPERATORS = {
    "mul": lambda x, f: x * f,
    "rsub": lambda x, f: f - x,
    "rdiv": lambda x, f: f / x,
    "rpow": lambda x, f: abs(f) ** x,
    "iadd": lambda x, f: x.clone().add_(f),
    "alpha": lambda x, f: x.add(x, alpha=f),
    "alpha in place": lambda x, f: x.clone().sub_(x, alpha=-f),
    "with alpha": lambda x, f: torch.add(x, f, alpha=3) * x.clone().sub_(f * 2, alpha=0.5) * torch.sub(f, x, alpha=3),
    "with alpha of itself": lambda x, f: torch.add(x, f, alpha=f),
    "alpha and ints": lambda x, f: torch.add(torch.arange(3), 1.5, alpha=f) + torch.add(f, torch.arange(3), alpha=2),
    "alpha of ints": lambda x, f: torch.add(x, torch.arange(3), alpha=f) + x.addcmul(torch.arange(3), x[0], value=f),
    "addcdiv": lambda x, f: x.addcdiv(x, x + 9, value=f),
    "addcmul": lambda x, f: x.clone().addcmul_(x, x, value=f),
    "lerp": lambda x, f: x.lerp(x * 2, f),
    "clamp": lambda x, f: x.clamp(max=f),
    "where": lambda x, f: torch.where(x > f, x, f),
    "masked_fill": lambda x, f: x.masked_fill(x > 0, f),
    "int tensor": lambda x, f: torch.arange(3) * f,
    "number in a tensor": lambda x, f: x.sum() * f,
    "compare": lambda x, f: x.sum() > f,
    "fill": lambda x, f: torch.zeros(2).fill_(f),
    "full": lambda x, f: torch.full((2,), f),
    "foreach": lambda x, f: tuple(torch._foreach_mul([x, x.sum()], f)),
    "foreach sum": lambda x, f: tuple(torch._foreach_add([x, x], [x, x], alpha=f)),
    "foreach difference": lambda x, f: tuple(torch._foreach_sub([x, x], f)),
    "foreach addcdiv": lambda x, f: tuple(torch._foreach_addcdiv([x], [x], [x + 9], f)),
    "foreach lerp": lambda x, f: tuple(torch._foreach_lerp([x], [x * 2], f)),
    "item of a tensor": lambda x, f: _with_item(x.clone(), 0, f),
    "items of a tensor": lambda x, f: _with_item(x.outer(x), (slice(None), slice(1, None)), f),
    "masked items of a tensor": lambda x, f: _with_item(x.clone(), x > 0, f),
    "index_fill": lambda x, f: x.index_fill(0, torch.tensor([1]), f),
    "scatter": lambda x, f: x.scatter(0, torch.tensor([1]), f),
    "scalar_tensor": lambda x, f: x * torch.scalar_tensor(f),
    "tensor": lambda x, f: x * torch.tensor(f),
    "tensor of several": lambda x, f: x * torch.tensor([f, -f, 1.0]),
    "new_tensor": lambda x, f: x * x.new_tensor([f, 1.0, f]),
    "parameter": lambda x, f: x * torch.nn.Parameter(torch.tensor([f])),
    "elu": lambda x, f: torch.nn.functional.elu(x, f),
    "leaky_relu": lambda x, f: torch.nn.functional.leaky_relu(x, f),
    "threshold": lambda x, f: torch.nn.functional.threshold(x, f, 0.0),
    "softmax": lambda x, f: torch.nn.functional.gumbel_softmax(x * 0, tau=f).isnan(),
    "half": lambda x, f: x.bfloat16() * f,
    "complex": lambda x, f: x.to(torch.complex64) * f,
    "item": lambda x, f: (
        torch.softmax(x, 0) * torch.nn.functional.relu(x) + torch.nn.functional.hardtanh(x, -1.0, 1.0 + abs(f))
    ),
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator(operator):
    check(OPERATORS[operator], versions=8 if operator == "item" else 4)


@pytest.mark.parametrize("operator", [n for n in OPERATORS if n != "item"])
def test_operator_behind_a_compiler(operator):
    check(OPERATORS[operator], NUMBERS[:5], "aot_eager", exact=False)


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_behind_a_backend_of_the_user(operator):
    graphs = []

    def backend(gm, example_inputs):
        assert all(isinstance(i, torch.Tensor) for i in example_inputs)
        graphs.append(gm)
        return gm.forward

    compiled = dynamo_lite.compile(OPERATORS[operator], backend=backend)
    x = torch.randn(3)
    for number in NUMBERS[:5]:
        torch.testing.assert_close(compiled(x, number), OPERATORS[operator](x, number), rtol=0, atol=0)
    assert len(graphs) <= (5 if operator == "item" else 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sum_with_a_number_of_data_and_alpha(backend, monkeypatch):
    monkeypatch.setattr(config, "capture_scalar_outputs", True)

    def f(x):
        total = x.sum().item()
        return torch.add(x, total, alpha=3), torch.sub(total / 2, x, alpha=0.5)

    compiled = dynamo_lite.compile(f, backend=backend)
    for n in (2, 3):
        assert same(f(torch.ones(n)), compiled(torch.ones(n)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_alpha_that_integers_refuse(backend):
    compiled = dynamo_lite.compile(lambda x, f: torch.add(x, x, alpha=f), backend=backend)
    for number in (0.1, 0.2, 0.3):
        with pytest.raises(RuntimeError, match="must not be a floating point number"):
            compiled(torch.arange(3), number)


def test_behind_inductor():
    check(lambda x, f: x.add(x * f, alpha=math.exp(-f)), NUMBERS[:5], "inductor", exact=False)


def test_numbers_are_computed_as_the_program_does():
    def fn(x, f):
        g = (f + 0.1) - 0.1
        h = math.cos(g) * math.exp(-f) / 3.0
        return x * h, g, h, g - f, -f, abs(h)

    check(fn, (0.1, 0.7, 0.3, 1e16, -2.5, 1e-20))
    check(fn, (0.1, 0.7, 0.3, 1e16, -2.5, 1e-20), "aot_eager", exact=False)


def test_decisions_are_those_of_the_program():
    def fn(x, f):
        if 0.1 + 0.2 + f - f == 0.3:
            return x + 1
        if f > 0.5 and math.isfinite(f):
            return x * f, math.floor(f), round(f), f // 0.3, f % 0.3
        return x - f

    check(fn, (0.1, 0.2, 0.5, 0.50000001, 0.7, 0.9, 1.2, 2.7, 1e17, float("inf")), versions=8)


def test_errors_are_raised():
    compiled = dynamo_lite.compile(lambda x, f: x * (1 / f), backend="eager")
    x = torch.ones(2)
    for f in (2.0, 4.0, 5.0):
        assert torch.equal(compiled(x, f), x * (1 / f))
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        compiled(x, 0.0)
    assert torch.equal(compiled(x, 8.0), x / 8)


def test_text_needs_the_number():
    def fn(x, f):
        return x * f, f"{f:.3f}"

    compiled = dynamo_lite.compile(fn, backend="eager")
    for f in (0.1, 0.2, 0.3):
        assert compiled(torch.ones(1), f)[1] == f"{f:.3f}"


def test_with_sizes():
    def fn(x, f):
        scale = f / math.sqrt(x.shape[0])
        return x * scale, scale

    compiled = dynamo_lite.compile(fn, backend=(counter := CompileCounter()), dynamic=True)
    for n, f in ((3, 0.5), (4, 0.25), (5, 0.125), (9, 3.0)):
        x = torch.ones(n)
        expected, got = fn(x, f), compiled(x, f)
        assert torch.equal(expected[0], got[0])
        assert expected[1] == got[1]
    assert counter.frame_count <= 2


def test_function_of_a_quotient_of_ints():
    class Clock:
        time = 0

    def fn(x, clock):
        clock.time += 1
        return x * math.cos(math.pi * clock.time / 10)

    compiled = dynamo_lite.compile(fn, backend=(counter := CompileCounter()))
    clocks = Clock(), Clock()
    for _ in range(6):
        assert torch.equal(compiled(torch.ones(1), clocks[0]), fn(torch.ones(1), clocks[1]))
    assert counter.frame_count <= 3


def test_root_of_a_size():
    compiled = dynamo_lite.compile(
        lambda x: x.flatten() / math.sqrt(x.flatten().shape[0]),
        backend=(counter := CompileCounterWithBackend("aot_eager")),
        dynamic=True,
    )
    for n in (2, 3, 5, 7):
        x = torch.randn(n, n)
        torch.testing.assert_close(compiled(x), x.flatten() / n)
    assert counter.frame_count == 1


def test_in_containers_and_attributes():
    class Box:
        f = 0.0

    def fn(x, box, pair):
        box.f = box.f * 2.0
        return x * pair[0] + pair[1]["f"]

    compiled = dynamo_lite.compile(fn, backend=(counter := CompileCounter()))
    for f in (0.5, 1.5, 2.5, 3.5):
        boxes = Box(), Box()
        boxes[0].f = boxes[1].f = f
        args = (f, {"f": f + 1})
        assert torch.equal(compiled(torch.ones(2), boxes[0], args), fn(torch.ones(2), boxes[1], args))
        assert boxes[0].f == boxes[1].f
    assert counter.frame_count == 2


class _Annealed(torch.nn.Module):
    """A module with floats of its own, and in what it holds."""

    def __init__(self, tau):
        super().__init__()
        self.tau, self.table, self.items, self.options = 0.0, {}, [0.0], SimpleNamespace()
        self.set(tau)

    def set(self, tau):
        self.tau = self.table["t"] = self.items[0] = self.options.t = tau

    def forward(self, x):
        return x / self.tau + x * self.table["t"] - x / self.items[0] * self.options.t


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_bounds_of_a_function_of_torch(backend):
    """It raises for some of them: what it decides is guarded."""
    compiled = dynamo_lite.compile(
        torch.nn.functional.hardtanh, backend=(counter := CompileCounterWithBackend(backend)), fullgraph=True
    )
    x = torch.arange(-3.0, 3.0)
    for f in (0.5, 1.5, 2.5, 3.5):
        assert torch.equal(compiled(x, -f, f), x.clamp(-f, f))
    assert counter.frame_count == 2
    with pytest.raises(ValueError, match="min_val cannot be greater than max_val"):
        compiled(x, 0.5, -0.5)


def test_a_tensor_of_a_float_that_is_out_of_range():
    """`torch.tensor` makes it infinite, where other operators raise."""
    check(lambda x, f: torch.tensor([f, 1.0]), (1.0, 2.0, 1e39, -1e300, 3e38, float("inf"), float("nan")), versions=5)


def test_what_is_read_from_a_tensor_of_a_float():
    check(lambda x, f: (x * torch.tensor(f).item(), torch.tensor([f])[0].item()), (0.1, 0.7, 2.5))
    check(lambda x, f: x * 2 if torch.tensor(f) > 1 else x * 3, (0.1, 0.7, 2.5, 0.3), versions=4)
    check(lambda x, f: x.new_zeros(int(torch.tensor(f))), (1.5, 2.5, 4.5), versions=4)


@pytest.mark.parametrize("place", ["itself", "method", "child", "closure"])
def test_floats_of_modules(place):
    module = _Annealed(5.5)
    fn = {
        "itself": lambda: module,
        "method": lambda: module.forward,
        "child": lambda: torch.nn.Sequential(module, torch.nn.ReLU()),
        "closure": lambda: lambda x: module(x) * module.tau,
    }[place]()
    compiled = dynamo_lite.compile(fn, backend=(counter := CompileCounter()), fullgraph=True)
    for i in range(12):
        module.set(5.5 * 0.9**i)
        x, y = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
        (found := compiled(x)).sum().backward()
        (expected := fn(y)).sum().backward()
        assert torch.equal(found, expected)
        assert torch.equal(x.grad, y.grad)
    assert counter.frame_count == 2


def test_floats_that_only_differ_between_modules_are_constants():
    counter = CompileCounterWithBackend("eager")
    modules = [_Annealed(i + 0.5) for i in range(5)]
    compiled = [dynamo_lite.compile(module, backend=counter) for module in modules]
    x = torch.ones(2)
    for _ in range(2):
        for module, fn in zip(modules, compiled, strict=True):
            assert torch.equal(fn(x), module(x))
    assert [len(graph.graph.find_nodes(op="placeholder")) for graph in counter.graphs] == [1] * 5
    for module, fn in zip(modules, compiled, strict=True):
        module.set(module.tau / 3)
        assert torch.equal(fn(x), module(x))
    assert counter.frame_count == 6


def test_gradients():
    def fn(x, f):
        return (x * f).pow(2).sum() / (1 + f)

    for backend in ("eager", "aot_eager"):
        compiled = dynamo_lite.compile(fn, backend=backend)
        for f in (0.5, 1.5, 2.5):
            x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
            compiled(x, f).backward()
            fn(y, f).backward()
            torch.testing.assert_close(x.grad, y.grad)


DECIDING = {
    "norm": lambda x, f: torch.norm(x, p=f),
    "norm of a vector": torch.linalg.vector_norm,
    "normalize": lambda x, f: torch.nn.functional.normalize(x, p=f, dim=0),
    "dist": lambda x, f: torch.dist(x, 2 * x, f),
    "renorm": lambda x, f: x[None].renorm(f, 0, 0.1),
    "renorm_": lambda x, f: x[None].clone().renorm_(f, 0, 0.1),
    "var": lambda x, f: x.var(correction=f),
    "std_mean": lambda x, f: torch.std_mean(x, correction=f),
}


@pytest.mark.parametrize("function", DECIDING.values(), ids=DECIDING)
def test_a_float_that_decides_which_computation_it_is(function):
    """Decompositions compare it with constants: it is one from the start, and no graph fails in AOTAutograd."""
    assert check(function, (1.5, 1.25, 1.75), "aot_eager", versions=3, exact=False).frame_count == 3


BESIDE_DECIDING = {
    "renorm": lambda x, f: x[None].renorm(2, 0, abs(f)),
    "renorm by names": lambda x, f: torch.renorm(x[None], p=2, dim=0, maxnorm=abs(f)),
    "renorm_": lambda x, f: x[None].clone().renorm_(2, 0, abs(f)),
    "multi_margin_loss": lambda x, f: torch.nn.functional.multi_margin_loss(x[None], torch.tensor([1]), margin=f),
}


@pytest.mark.parametrize("function", BESIDE_DECIDING.values(), ids=BESIDE_DECIDING)
def test_a_float_beside_one_that_decides_which_computation_it_is(function):
    check(function, (0.1, 0.2, 0.3, 0.7, 1.5), "aot_eager", exact=False)


def test_can_be_switched_off():
    with dynamo_lite.config.patch(specialize_float=True):
        compiled = dynamo_lite.compile(lambda x, f: x * f, backend=(counter := CompileCounter()))
        for f in (0.1, 0.2, 0.3):
            compiled(torch.ones(1), f)
    assert counter.frame_count == 3


def test_dropout_and_steps_of_a_range():
    def fn(x, f):
        return torch.arange(0.0, f, 0.5), torch.nn.functional.dropout(x, f / 10, training=False)

    check(fn, (1.0, 2.0, 3.0, 4.0), versions=4)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_number_that_the_graph_reads_after_a_change_in_place(backend):
    def fn(x, steps, rate):
        torch._foreach_add_([steps], 1.0)
        return x * rate * (1 / steps.item() ** 0.5)

    with dynamo_lite.config.patch(capture_scalar_outputs=True):
        compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
        for rate in (0.5, 0.25, 0.125):
            ours, theirs = torch.tensor(0.0), torch.tensor(0.0)
            torch.testing.assert_close(compiled(torch.ones(2), ours, rate), fn(torch.ones(2), theirs, rate))
            assert ours == theirs == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_extremes_of_numbers_that_only_the_graph_knows(backend):
    def fn(x):
        norm = x.norm().item()
        return x * max(1.0, norm), x * min(norm, 2.0, 0.5 + norm)

    with dynamo_lite.config.patch(capture_scalar_outputs=True):
        compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
        for x in (torch.ones(2), torch.ones(2) * 0.1, torch.ones(2) * 9, torch.full((2,), float("nan"))):
            torch.testing.assert_close(compiled(x), fn(x), equal_nan=True)


INTS_OF_FLOATS = {
    "int": lambda x, f: (torch.ones(int(f)) + x[0], int(f)),
    "floor": lambda x, f: (torch.ones(math.floor(f)) * f, math.floor(f)),
    "ceil": lambda x, f: (torch.ones(math.ceil(f)) * f, math.ceil(f) + 1),
    "trunc": lambda x, f: (x * math.trunc(f), f),
    "round": lambda x, f: (x * round(f), round(f)),
    "of what is computed": lambda x, f: (torch.ones(int(f * 2 + 0.5)) * f, int(f * 2 + 0.5)),
    "of numpy": lambda x, f: (torch.ones(int(numpy.sqrt(f) * 6)) * f, int(x.size(0) * numpy.sqrt(1.0 + f))),
    "of several": lambda x, f: (x * (int(f) + math.ceil(f) + int(f / 3)), int(f)),
    "as a size and a position": lambda x, f: (torch.arange(int(f) + 3)[int(f)] + x, f),
}


@pytest.mark.parametrize("name", INTS_OF_FLOATS)
def test_ints_of_floats_vary_with_them(name):
    fn = INTS_OF_FLOATS[name]
    check(fn, (2.5, 3.5, 4.5, 6.999, 12.0, 100.25))
    compiled = dynamo_lite.compile(fn, backend="eager")
    for number in (2.5, 3.5, float("nan"), float("inf"), 4.5):
        if math.isfinite(number):
            torch.testing.assert_close(compiled(torch.ones(3), number), fn(torch.ones(3), number))
            continue
        with pytest.raises((ValueError, OverflowError), match="cannot convert float"):
            compiled(torch.ones(3), number)


def test_an_int_of_a_float_is_guarded_where_it_decides():
    def fn(x, f):
        return x * 2 if int(f) == 3 else x * 3

    check(fn, (2.5, 3.5, 3.75, 3.25, 4.5, 5.5), versions=4)


def test_an_int_of_two_floats_is_a_constant():
    def fn(x, f):
        return x * int(f * f)

    check(fn, (2.0, 3.0, 4.0))
    check(lambda x, pair: x * int(pair[0] * pair[1]), ((2.5, 3.5), (3.5, 4.5), (4.5, 5.5)), versions=3)


def test_a_quotient_by_a_float_that_becomes_zero():
    def program(t, x):
        1.0 / x
        return t * (2.0**x)

    compiled = wrapped(program)
    t = torch.ones(2)
    for x in (1.0, 2.5, 3.5, 0.5):
        assert torch.equal(compiled(t, x), program(t, x))
    with pytest.raises(ZeroDivisionError):
        compiled(t, 0.0)
    with pytest.raises(OverflowError):
        compiled(t, 5000.0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_methods_of_varying_floats_are_nodes(backend):
    """torch.fx cannot write a call of `float.__round__`."""

    def program(x, a):
        b = round(a, 1)
        return x * b, b, a.__round__(2)

    with config.patch(debug=True):
        captured = dynamo_lite.compile(program, backend=backend, fullgraph=True)
        for a in (0.0, -1.26, 2.345, 3.9999):
            x = torch.ones(2, dtype=torch.float64)
            (t, *numbers), (u, *expected) = captured(x, a), program(x, a)
            assert torch.equal(t, u) and numbers == expected


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.factor * g, None


def _checkpointed(body):
    return lambda x, a: checkpoint(body, x, a, use_reentrant=False)


BODIES = {
    "checkpoint": lambda x, a: checkpoint(lambda y: y.sin() * a, x, use_reentrant=False),
    "an argument of a checkpoint": _checkpointed(lambda y, b: y.sin() * b),
    "a dropout in a checkpoint": _checkpointed(lambda y, b: torch.dropout(y, 0.5, True).sin() * b),
    "a dropout, and a float behind": lambda x, a: checkpoint(torch.nn.Dropout(), x.sin(), use_reentrant=False) * a,
    "vmap": lambda x, a: torch.vmap(lambda row: row * a)(x),
    "grad": lambda x, a: torch.func.grad(lambda y: (y * y * a).sum())(x),
    "a Function": lambda x, a: _Reversed.apply(x * 2, a),
}

STRICT = {
    "cond": lambda x, a: torch.cond(x.sum() > 0, lambda x: x * a, lambda x: x - a, (x,)),
    "while_loop": lambda x, a: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * a), (torch.tensor(0), x * 1))[1],
}


def _of_its_own(gm, example_inputs):
    """A backend that does not say how it wants floats."""
    return gm.forward


@pytest.mark.parametrize("number", [float, numpy.float64])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", _of_its_own])
@pytest.mark.parametrize("name", [*BODIES, *STRICT])
def test_floats_in_bodies(name, backend, number):
    """A body gets a float that varies from outside; operators that take tensors only have a version per number."""
    fn = (BODIES | STRICT)[name]
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter)
    for a in (0.5, 0.25, 2.0, 3.0):
        found = []
        for call in (fn, compiled):
            x = torch.linspace(0.5, 1, 6).reshape(2, 3).requires_grad_(name != "while_loop")
            torch.manual_seed(0)
            y = call(x, number(a))
            if y.requires_grad:
                y.sum().backward()
            found.append((y, x.grad))
        assert same(*found)
    assert counter.frame_count == (4 if name in STRICT else 1 if number is numpy.float64 else 2)


@pytest.mark.parametrize("numbers", [(0, 0.5, 0.25, 1.75, 3.0), (0.5, 0, 2, 3, 5), (1, 2.5, 3, 1.25, 4, 0.75)])
def test_an_int_comes_before_floats(numbers):
    """The first number of each kind is a constant."""
    check(lambda x, number: (x * number, number + 1), numbers, versions=4)


def test_a_setting_that_is_off_and_then_on_is_a_constant():
    def fn(x, decay):
        return x * (1 - decay)

    counter = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(fn, backend=counter)
    for decay in (0, 0.1, 0, 0.1):
        assert torch.equal(compiled(torch.ones(2), decay), fn(torch.ones(2), decay))
    assert [len(graph.graph.find_nodes(op="placeholder")) for graph in counter.graphs] == [1, 1]


@pytest.mark.parametrize("context", [lambda fn: fn, torch.no_grad()])
@pytest.mark.parametrize("in_object", [False, True])
def test_a_sum_that_begins_as_an_int(in_object, context):
    """Each turn of the loop over batches goes on behind a break, where the sum is another float at each call."""

    def evaluate(weight, batches):
        meter, total, right = SimpleNamespace(sum=0), 0, 0
        for x, y in batches:
            dynamo_lite.graph_break()
            out = x @ weight
            loss = torch.nn.functional.cross_entropy(out, y).item()
            if in_object:
                meter.sum += loss * len(x)
            else:
                total += loss * len(x)
            right += (out.argmax(1) == y).sum().item()
        return meter.sum, total, right

    evaluate = context(evaluate)
    batches = [(torch.randn(4, 3), torch.randint(0, 3, (4,))) for _ in range(3)]
    counter = CompileCounter()
    compiled = dynamo_lite.compile(evaluate, backend=counter)
    counts = []
    for scale in (1, 2, 3, 4, 5, 6):
        weight = torch.eye(3) * scale
        assert compiled(weight, batches) == pytest.approx(evaluate(weight, batches))
        counts.append(counter.frame_count)
    assert counts[-1] == counts[2] <= 6


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_draws_that_nobody_uses_beside_a_float_that_varies(backend):
    def fn(x, scale):
        torch.randperm(3)
        return x * scale

    compiled = dynamo_lite.compile(fn, backend=backend)
    for scale in (0.5, 0.7, 0.9):
        drawn = []
        for call in (compiled, fn):
            torch.manual_seed(0)
            drawn.append((call(torch.ones(3), scale), torch.rand(2)))
        assert not list(differences(*drawn))


class Divided(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, divisor):
        return x / divisor / math.sqrt(x.shape[0])

    @staticmethod
    def backward(ctx, grad):
        return grad * math.sqrt(grad.shape[0]), None


IN_BODIES = {
    "function": lambda x: Divided.apply(x, math.sqrt(x.shape[0])),
    "checkpoint": lambda x: checkpoint(lambda a: a.sin() / math.sqrt(a.shape[0]), x, use_reentrant=False),
    "argument": lambda x: checkpoint(lambda a, g: a.sin() / g, x, math.sqrt(x.shape[0]), use_reentrant=False),
    "vmap": lambda x: torch.vmap(lambda row: row * math.sin(x.shape[0]))(x),
    "grad": lambda x: torch.autograd.grad((x.sin() / math.sqrt(x.shape[0])).sum(), x, create_graph=True)[0],
    "func.grad": lambda x: torch.func.grad(lambda a: (a.sin() / math.sqrt(a.shape[0])).sum())(x),
    "cond": lambda x: torch.cond(x.sum() > 0, lambda a: a / math.sqrt(x.shape[0]), lambda a: a * 2, (x,)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", IN_BODIES.values(), ids=IN_BODIES)
def test_functions_of_sizes_in_bodies(fn, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    for size in (2, 3, 5, 7):
        x = torch.randn(size, 4, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        result, expected = compiled(x), fn(y)
        assert torch.equal(result, expected)
        result.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert counter.frame_count == 2
