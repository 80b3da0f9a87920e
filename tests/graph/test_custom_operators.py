"""Operators of the program: looked up inside, with fake implementations of all kinds, with kernels that call compiled functions."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter, run_both, same

OPERATORS = torch.library.Library("custom_operators", "DEF")


def define(schema, implementation, fake):
    name = schema.partition("(")[0]
    OPERATORS.define(schema)
    OPERATORS.impl(name, implementation, "CompositeExplicitAutograd")
    torch.library.register_fake(f"custom_operators::{name}", fake, lib=OPERATORS)


def empty(x, *args):
    return torch.empty_like(x)


def some(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


for _name in ("twice", "default", "named", "got", "had"):
    define(f"{_name}(Tensor x) -> Tensor", lambda x: x * 2, empty)
define("times.one(Tensor x) -> Tensor", lambda x: x * 2, empty)
define("times.two(Tensor x, int n) -> Tensor", lambda x, n: x * n, empty)
define("into(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", lambda x, out: out.copy_(x * 2), lambda x, out: out)
define("pair(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 2, x + 1), lambda x: (empty(x), empty(x)))
define(
    "many(Tensor[] xs, int? n=None) -> Tensor[]",
    lambda xs, n=None: [x * 2 for x in xs],
    lambda xs, n=None: [empty(x) for x in xs],
)
define("positive(Tensor x) -> Tensor", lambda x: x[x > 0].clone(), some)
define("itself(Tensor x) -> Tensor", lambda x: x * 2, lambda x: x)
define("part(Tensor x) -> Tensor", lambda x: x[:2] * 2, lambda x: x[:2])
define("parts(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 2, x * 3), lambda x: (x, x))


def into(x):
    out = torch.empty_like(x)
    result = torch.ops.custom_operators.into(x, out=out)
    return result, result is out


LOOKED_UP = {
    "packet": lambda x: torch.ops.custom_operators.twice(x) + 1,
    "overload": lambda x: torch.ops.custom_operators.default.default(x),
    "overloads": lambda x: torch.ops.custom_operators.times(x) + torch.ops.custom_operators.times.two(x, 3),
    "getattr": lambda x: getattr(getattr(torch.ops, "custom_operators"), "got")(x),
    "hasattr": lambda x: (
        x + 1,
        hasattr(torch.ops.custom_operators, "had"),
        hasattr(torch.ops.custom_operators, "none"),
    ),
    "out": into,
    "out argument": lambda x: torch.ops.custom_operators.into(x + 1, out=x),
    "several results": lambda x: torch.ops.custom_operators.pair(x),
    "list": lambda x: torch.ops.custom_operators.many([x, x + 1], 3),
    "name": lambda x: (
        torch.ops.custom_operators.named.default.name(),
        torch.ops.custom_operators.times.overloads(),
        x + 1,
    ),
    "other operators": lambda x: torch.ops.aten.special_bessel_j0(x) + torch.ops.prims.digamma(x),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_operators_are_found_inside(name):
    """First inside: eager execution, which keeps what it has found, comes after it."""
    call, counter = LOOKED_UP[name], CompileCounter()
    compiled = dynamo_lite.compile(call, backend=counter, fullgraph=True)
    found, again = compiled(torch.arange(3.0)), compiled(torch.arange(3.0))
    assert same(call(torch.arange(3.0)), found) and same(found, again) and counter.frame_count == 1


def test_operators_that_are_defined_later():
    compiled = dynamo_lite.compile(lambda x: (x + 1, hasattr(torch.ops.custom_operators, "later")), backend="eager")
    assert compiled(torch.ones(2))[1] is False
    define("later(Tensor x) -> Tensor", lambda x: x * 2, empty)
    assert compiled(torch.ones(2))[1] is True


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.ops.custom_operators.missing(x),
        lambda x: torch.ops.no_such_namespace.missing(x),
        lambda x: torch.ops.custom_operators.twice.missing(x),
    ],
)
def test_operators_that_there_are_not(call):
    run = run_both(call, torch.ones(2))
    assert isinstance(run.exception, AttributeError) and not any(frame.skipped for frame in run.frames)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sizes_that_depend_on_data(backend):
    with config.patch(capture_dynamic_output_shape_ops=True):
        run = run_both(lambda x: torch.ops.custom_operators.positive(x) + 1, torch.arange(-2.0, 3.0), _backend=backend)
    assert run.graph_count == 1 and not run.breaks
    run_both(lambda x: torch.ops.custom_operators.positive(x) + 1, torch.arange(-2.0, 3.0), _backend=backend)


LYING = {
    "result": lambda x: torch.ops.custom_operators.itself(x),
    "used": lambda x: torch.ops.custom_operators.itself(x) + x,
    "twice": lambda x: (torch.ops.custom_operators.itself(x), torch.ops.custom_operators.itself(x) + 1),
    "view": lambda x: (torch.ops.custom_operators.part(x), x),
    "several": lambda x: (torch.ops.custom_operators.parts(x), x + 1),
    "of a result": lambda x: torch.ops.custom_operators.itself(x + 1) * x,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", LYING)
def test_fake_implementations_that_return_their_arguments(name, backend):
    """Operators whose schema says that results are new do not do that."""
    run = run_both(LYING[name], torch.arange(3.0), _backend=backend)
    assert run.graph_count == 1 and not run.breaks


@torch.library.custom_op("custom_operators_2::total", mutates_args=())
def total(x: torch.Tensor) -> float:
    return float(x.sum())


@total.register_fake
def _(x):
    return 0.0


def test_a_number_that_an_operator_returns_is_not_that_of_its_fake():
    for call in (lambda x: x * total(x), lambda x: x + 1 if total(x) > 1 else x - 1):
        run = run_both(call, torch.arange(3.0))
        assert "data-dependent-operator" in {record.slug for record in run.breaks}


def helper(x):
    return x.sin() * 2


compiled_helper = dynamo_lite.compile(helper, backend="eager")


@torch.library.custom_op("custom_operators_2::helped", mutates_args=())
def helped(x: torch.Tensor) -> torch.Tensor:
    return compiled_helper(x) + 1


@helped.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_kernels_that_call_compiled_functions(backend):
    for call in (lambda x: helped(x) * 2, lambda x: torch.ops.custom_operators_2.helped(x) * 2):
        run = run_both(call, torch.arange(3.0), _backend=backend)
        assert run.graph_count == 1 and not run.breaks


def test_compiled_custom_operators():
    frames = []
    stop = log.listen(frames.append)
    try:
        compiled, x = dynamo_lite.compile(helped, backend="eager"), torch.arange(3.0)
        for _ in range(2):
            assert torch.equal(compiled(x), helped(x))
        assert torch.equal(
            dynamo_lite.compile(lambda x: compiled(x) * 2, backend="eager", fullgraph=True)(x), helped(x) * 2
        )
    finally:
        stop()
    assert not any(frame.skipped or frame.breaks for frame in frames)
    assert run_both(lambda x: (helped._name, helped(x)), x).graph_count == 1
