"""Operators of the program, registered in every way that `torch.library` has."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.library import Library, custom_op, register_autocast, register_autograd, register_fake, register_vmap
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.testing import run_both
from tests.helpers.against_eager import check, check_break, outcome

LIB = Library("library_tests", "FRAGMENT")
ops = torch.ops.library_tests


def x(requires_grad=False):
    return ((torch.arange(6.0) / 5 + 0.1).reshape(2, 3).requires_grad_(requires_grad),)


def define(schema, kernel, key="CompositeExplicitAutograd", fake=None):
    name = schema.partition("(")[0]
    LIB.define(schema)
    LIB.impl(name, kernel, key)
    if fake is not None:
        register_fake(f"library_tests::{name}", fake, lib=LIB)


def save_input(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


@custom_op("library_tests::sine", mutates_args=())
def sine(a: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(a.detach().numpy()))


sine.register_fake(torch.empty_like)
sine.register_autograd(lambda ctx, grad: grad * ctx.saved_tensors[0].cos(), setup_context=save_input)
sine.register_vmap(lambda info, dims, a: (sine(a), dims[0]))


@custom_op("library_tests::increase", mutates_args=("a",))
def increase(a: Tensor, n: int = 1) -> None:
    a.add_(n)


@custom_op("library_tests::increase_and_double", mutates_args=("a",))
def increase_and_double(a: Tensor) -> Tensor:
    return a.add_(1) * 2


increase_and_double.register_fake(torch.empty_like)


@custom_op("library_tests::of_many", mutates_args=())
def of_many(many: list[Tensor], n: int, f: float, s: str, b: bool, other: Tensor | None = None) -> list[Tensor]:
    return [a * n * f + (0 if other is None else other) for a in many]


of_many.register_fake(lambda many, *args, **kwargs: [torch.empty_like(a) for a in many])


@custom_op("library_tests::positions", mutates_args=())
def positions(a: Tensor) -> Tensor:
    return torch.nonzero(a > 0.5)


@positions.register_fake
def _(a):
    n = torch.library.get_ctx().new_dynamic_size()
    return a.new_empty([n, a.dim()], dtype=torch.int64)


@custom_op("library_tests::total", mutates_args=())
def total(a: Tensor) -> int:
    return int(a.sum().item())


total.register_fake(lambda a: torch.library.get_ctx().new_dynamic_size())


@custom_op("library_tests::without_fake", mutates_args=())
def without_fake(a: Tensor) -> Tensor:
    return a.sin()


@torch.library.triton_op("library_tests::sine_and_one", mutates_args=())
def sine_and_one(a: Tensor) -> Tensor:
    return a.sin() + 1


LOG = []


@custom_op("library_tests::log", mutates_args=())
def log(a: Tensor) -> None:
    LOG.append(tuple(a.shape))


log.register_fake(lambda a: None)


def sine_into(a, *, out):
    return out.copy_(a.sin())


def increase_all(many):
    for a in many:
        a.add_(1)


define("opaque(Tensor x) -> Tensor", lambda a: a.sin() * 2, "CPU", torch.empty_like)
define("composite(Tensor x) -> Tensor", lambda a: a.sin() * 2, "CompositeImplicitAutograd")
define("sine_out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", sine_into, fake=lambda a, *, out: out)
define("cosine(Tensor x) -> Tensor", torch.cos)
define("cosine.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", sine_into)
define("add_all_(Tensor(a!) x, Tensor[] ys) -> Tensor(a!)", lambda a, many: a.add_(sum(many)))
define("increase_all(Tensor(a!)[] xs) -> ()", increase_all)
define("flat(Tensor(a) x) -> Tensor(a)", lambda a: a.view(-1))
define("square(Tensor x) -> Tensor", lambda a: a * a)
register_autograd(
    "library_tests::square",
    lambda ctx, grad: grad * 2 * ctx.saved_tensors[0],
    setup_context=save_input,
    lib=LIB,
)
register_vmap("library_tests::square", lambda info, dims, a: (ops.square(a), dims[0]), lib=LIB)
define("product(Tensor x) -> Tensor", lambda a: a @ a.t())
register_autocast("library_tests::product", "cpu", torch.bfloat16, lib=LIB)
define("reduced(Tensor x, str mode, int[] dims, ScalarType t, Device? d=None, Scalar s=1) -> Tensor",
       lambda a, mode, dims, t, d=None, s=1: (a.sum(dims) * s).to(t))  # fmt: skip
define("numbers(Tensor x) -> (int, float, bool, Tensor)", lambda a: (3, 0.5, True, a + 1))
define("argument(Tensor x) -> Tensor", lambda a: a + 1, "CPU", lambda a: a)
define("view(Tensor x) -> Tensor", lambda a: a.reshape(-1).clone(), "CPU", lambda a: a.view(-1))
define("twice(Tensor x) -> (Tensor, Tensor)", lambda a: (a + 1, a + 2), "CPU", lambda a: (a, a))


def with_out(op):
    def fn(a):
        out = torch.empty_like(a)
        result = op(a, out=out)
        return result, out, result is out

    return fn


def in_place(a):
    b = a * 1
    return ops.add_all_(b, [a, a]), b


def of_lists(a):
    b, c = a * 1, a * 2
    ops.increase_all([b, c])
    return b, c


def changes_a_new_tensor(a):
    b = a * 1
    increase(b, 3)
    increase(b[0])
    return b * 2


def under_autocast(a):
    with torch.autocast("cpu", torch.bfloat16):
        return ops.product(a)


def without_gradients(a):
    with torch.no_grad():
        return ops.square(a) * 2


def changes_a_view(a):
    b = ops.flat(a * 1)
    b.add_(1)
    return b


ONE_GRAPH = {
    "out=": with_out(ops.sine_out),
    "an overload with out=": with_out(ops.cosine),
    "in place": in_place,
    "lists in place": of_lists,
    "a view": changes_a_view,
    "an input": lambda a: (increase(a), increase(a[0], 2), a * 2)[2],
    "an input, and a result": lambda a: (increase_and_double(a), a),
    "kinds of arguments": lambda a: of_many([a, a * 2], 3, 0.5, s="s", b=False, other=a),
    "more kinds of arguments": lambda a: ops.reduced(a, "m", (0,), torch.float64, d=a.device, s=a.shape[0]),
    "nothing as a result": lambda a: (log(a), a + 1)[1],
    "opaque": lambda a: ops.opaque(a) + 1,
    "triton_op": lambda a: sine_and_one(a) * 2,
    "vmap": lambda a: (torch.vmap(sine)(a), torch.vmap(ops.square)(a)),
    "vmap without a rule": lambda a: torch.vmap(ops.opaque)(a),
    "autocast": under_autocast,
    "in a branch": lambda a: torch.cond(a.sum() > 0, lambda b: sine(b), lambda b: b * 2, (a,)),
    "a rule that returns the argument": lambda a: (ops.argument(a) + a, ops.argument(a) is a),
    "a rule that returns a view": lambda a: ops.view(a).add_(1),
    "a rule that returns one tensor twice": lambda a: (ops.twice(a)[0] + a, ops.twice(a)[1]),
    "the object of an operator": lambda a: (sine(a), sine is SINE, type(sine).__name__, sine._qualname),
}
WITH_GRADIENTS = {
    "custom_op": lambda a: sine(a) * 2,
    "with keywords": lambda a: sine(a=a) * 2,
    "by its name": lambda a: ops.sine(a) + ops.sine.default(a),
    "composite": lambda a: ops.composite(a) * 2,
    "register_autograd": lambda a: ops.square(a) * a,
    "no_grad": without_gradients,
    "a new tensor changed": changes_a_new_tensor,
    "checkpoint": lambda a: checkpoint(lambda b: sine(b) * 2, a, use_reentrant=False),
    "autograd.grad": lambda a: torch.autograd.grad(ops.square(a).sum(), a)[0],
    "gradients of the kernel": lambda a: ops.cosine(a) * 2,
    "a size": lambda a: sine(a[: a.shape[0] - 1]),
}
SINE = sine


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph(name):
    check(ONE_GRAPH[name], x())


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients(name):
    check(WITH_GRADIENTS[name], x(True))


@pytest.mark.parametrize("name", ["custom_op", "register_autograd", "a new tensor changed"])
def test_inductor(name):
    check(WITH_GRADIENTS[name], x(True), backends=("inductor",))


def test_an_output_of_the_caller():
    check(lambda a, out: ops.sine_out(a, out=out), (*x(), torch.zeros(2, 3)))


def test_outputs_whose_size_depends_on_data():
    with config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        check(lambda a: (positions(a) * 2, a.new_ones(positions(a).shape[0]), a * 2 + total(a)), x())
    with config.patch(capture_dynamic_output_shape_ops=False):
        error = check_break(lambda a: positions(a) * 2, x(), slug="dynamic-shape-operator")
    assert "positions" in str(error)


def test_numbers_as_results():
    """What a rule for fake tensors returns is not what the operator returns for other data."""
    error = check_break(lambda a: ops.numbers(a), x(), slug="data-dependent-operator")
    assert "a number that" in str(error)


def test_an_operator_without_a_rule_for_fake_tensors():
    error = check_break(lambda a: without_fake(a) * 2, x(), slug="fake-tensor-error")
    assert "no fake impl registered" in str(error)


def test_gradients_of_what_a_kernel_calls():
    """Nothing is registered for autograd, which then sees the kernel's own operators. Compilers do not: the graph runs as captured."""
    check(lambda a: ops.opaque(a) * 2, x(True))
    compiled = dynamo_lite.compile(lambda a: ops.opaque(a) * 2, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*x(True)), ops.opaque(*x()) * 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_effects_happen_once_a_call(backend):
    """AOTAutograd would leave out what has no results and changes nothing, as its schema says."""
    compiled = dynamo_lite.compile(lambda a: (log(a), a + 1)[1], backend=backend, fullgraph=True)
    LOG.clear()
    for n in range(1, 4):
        compiled(*x())
        assert LOG == [(2, 3)] * n


# -- kernels, rules and formulas that call compiled code

compiled_sine = dynamo_lite.compile(lambda a: sine(a) * 3, backend="eager")
compiled_plain = dynamo_lite.compile(lambda a: a.sin() * 3, backend="eager")
compiled_by_torch = torch.compile(lambda a: a.sin() * 3, backend="eager")


def calling(function):
    return lambda a: function(a)


for _name, _function in {
    "calls_compiled": calling(compiled_plain),
    "calls_compiled_custom": calling(compiled_sine),
    "calls_torch_compile": calling(compiled_by_torch),
    "is_compiled": compiled_plain,
    "compiles": lambda a: dynamo_lite.compile(lambda b: sine(b) * 2, backend="eager")(a),
}.items():
    define(f"{_name}(Tensor x) -> Tensor", _function, "CPU", torch.empty_like)
    define(f"{_name}_composite(Tensor x) -> Tensor", _function, "CompositeImplicitAutograd")
KERNELS = ("calls_compiled", "calls_compiled_custom", "calls_torch_compile", "is_compiled", "compiles")
define("rule_is_compiled(Tensor x) -> Tensor", compiled_plain, "CPU", compiled_plain)
define("formula_is_compiled(Tensor x) -> Tensor", torch.sin, "CPU", torch.empty_like)
register_autograd(
    "library_tests::formula_is_compiled",
    lambda ctx, grad: grad * compiled_plain(ctx.saved_tensors[0]),
    setup_context=save_input,
    lib=LIB,
)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_that_call_compiled_code(name):
    check(lambda a: getattr(ops, name)(a) + 1, x())
    if name != "calls_torch_compile":
        check(lambda a: getattr(ops, f"{name}_composite")(a) + 1, x(True))


def test_rules_and_formulas_that_are_compiled():
    check(lambda a: ops.rule_is_compiled(a) + 1, x())
    check(lambda a: ops.formula_is_compiled(a) * 2, x(True))


@custom_op("library_tests::kernel_of_object", mutates_args=())
def kernel_of_object(a: Tensor) -> Tensor:
    return compiled_sine(a)


kernel_of_object.register_fake(torch.empty_like)


def test_objects_of_operators_keep_their_identity():
    """The model was that of the operator, and it was put in the object's place where the object left the captured code."""

    def fn(a):
        b = sine(a)
        dynamo_lite.graph_break()
        return sine, kernel_of_object(sine(b))

    found, expected = dynamo_lite.compile(fn, backend="eager")(*x()), fn(*x())
    assert found[0] is sine
    torch.testing.assert_close(found[1], expected[1])
    assert found[0]._opoverload is ops.sine.default  # what only the object has


def test_operators_are_compiled_themselves():
    for op in (ops.square, ops.square.default, sine):
        compiled = dynamo_lite.compile(op, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(*x()), op(*x()))


def test_errors_of_kernels():
    def kernel(a):
        raise ValueError("no")

    define("raises(Tensor x) -> Tensor", kernel, "CPU", torch.empty_like)
    run_both(lambda a: ops.raises(a + 1), *x(), _backend="eager")


def test_the_comparison_sees_another_result():
    expected, found = outcome(lambda a: ops.square(a), x()), outcome(lambda a: ops.square(a) + 1, x())
    assert not dynamo_lite.testing.same(expected, found)
