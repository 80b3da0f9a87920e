"""Higher-order operators, all that torch has: what they capture, with bodies of every form, gradients, and what they refuse."""

import functools
import itertools
import pickle

import pytest
import torch
import torch._higher_order_ops as operators
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.base_hop import BaseHOP
from torch._higher_order_ops.flat_apply import flat_apply, func_to_graphable, to_graphable
from torch._higher_order_ops.foreach_map import foreach_map
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.strict_mode import strict_mode
from torch._higher_order_ops.while_loop import while_loop
from torch._higher_order_ops.wrap import wrap
from torch._ops import HigherOrderOperator
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite.report import support
from dynamo_lite.testing import run_both
from dynamo_lite.variables.torch.body import FOLLOWED, NODE, REGION
from tests.helpers.against_eager import check, check_break, nodes_of, outcome

hop = torch.ops.higher_order
W = torch.arange(16.0).reshape(4, 4) / 10
P = nn.Parameter(torch.arange(16.0).reshape(4, 4) / 20)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.factor = 3

    def forward(self, a):
        return self.linear(a) * self.factor


torch.manual_seed(0)
MODULE = Scaled()
PARAMETERS = (P, *MODULE.parameters())


def x(requires_grad=True):
    return (torch.arange(16.0).reshape(4, 4).div(7).sub(0.5).requires_grad_(requires_grad),)


def with_defaults(a, k=W, *, m=2.0):
    return a * k * m


def partly_without_gradients(a):
    with torch.no_grad():
        b = a.sin()
    return a * b


def breaks(a):
    dynamo_lite.graph_break()
    return a.sin()


def raises(a):
    raise ValueError("no")


def bodies_of(f):
    """What a function of one tensor may be, as an argument of `f`: what captures a function gives a function."""

    def appends(a):
        seen = []

        def body(b):
            seen.append(1)
            return b.sin()

        return f(body)(a), seen

    def counts(a):
        n = 0

        def body(b):
            nonlocal n
            n += 1
            return b.sin()

        return f(body)(a), n

    def in_a_closure(a):
        y = a * 3
        return f(lambda b: b.sin() @ y)(a)

    def changes_an_argument(a):
        c = a * 1
        return f(lambda b: b.mul_(2) + 1)(c), c

    def changes_a_closure(a):
        c = a * 1
        return f(lambda b: c.mul_(2) + b)(a), c

    return {
        "plain": lambda a: f(lambda b: b.sin() * 2)(a),
        "function of torch": lambda a: f(torch.sin)(a),
        "closure": in_a_closure,
        "global tensor": lambda a: f(lambda b: b.sin() @ W)(a),
        "parameter": lambda a: f(lambda b: b.sin() @ P)(a),
        "module": lambda a: f(MODULE)(a),
        "method": lambda a: f(MODULE.forward)(a),
        "defaults": lambda a: f(with_defaults)(a),
        "partial": lambda a: f(functools.partial(with_defaults, m=3))(a),
        "tuple": lambda a: f(lambda b: (b.sin(), b.cos()))(a),
        "nested structure": lambda a: f(lambda b: {"x": [b.sin()], "y": (b.cos(),)})(a),
        "constant": lambda a: f(lambda b: (b.sin(), 3))(a),
        "None": lambda a: f(lambda b: (b.sin(), None))(a),
        "size": lambda a: f(lambda b: b.sin() * b.shape[0])(a),
        "no_grad inside": lambda a: f(partly_without_gradients)(a),
        "change of its own tensor": lambda a: f(lambda b: b.clone().add_(1).sin())(a),
        "random numbers": lambda a: f(lambda b: nn.functional.dropout(b * 2, 0.5))(a),
        "view": lambda a: f(lambda b: b.t())(a * 1),
        "identity": lambda a: f(lambda b: b)(a * 1),
        "one result twice": lambda a: f(lambda b: [b.sin()] * 2)(a),
        "nothing of the argument": lambda a: f(lambda b: P * 2)(a),
        "changed argument": changes_an_argument,
        "changed closure": changes_a_closure,
        "appended": appends,
        "nonlocal": counts,
        "break": lambda a: f(breaks)(a),
        "exception": lambda a: f(raises)(a),
    }


EFFECTS = ("changed argument", "changed closure", "appended", "nonlocal")
CALLERS = {
    "wrap": lambda fn: lambda a: wrap(fn, a),
    "wrap_with_set_grad_enabled": lambda fn: lambda a: hop.wrap_with_set_grad_enabled(True, fn, a),
    "wrap_with_autocast": lambda fn: lambda a: hop.wrap_with_autocast("cpu", torch.bfloat16, True, True, fn, a),
    "dynamo_bypassing_wrapper": lambda fn: lambda a: hop.dynamo_bypassing_wrapper(lambda f: lambda *b: f(*b), fn, a),
    "nested_compile_region": lambda fn: lambda a: torch.compiler.nested_compile_region(fn)(a),
    "checkpoint": lambda fn: lambda a: checkpoint(fn, a, use_reentrant=False),
    "InvokeQuant": lambda fn: lambda a: operators.InvokeQuant()(fn, a, scheme="s"),
}
FOLLOWED_CALLERS = ("wrap", "wrap_with_set_grad_enabled", "wrap_with_autocast", "dynamo_bypassing_wrapper")
MARKS = ("nested_compile_region",)  # cannot be put on bound methods and modules


NO_FUNCTIONS = ("module", "method", "partial", "function of torch")  # marks are attributes of functions of Python
BODIES = [(c, b) for c in CALLERS for b in bodies_of(lambda f: f) if c not in MARKS or b not in NO_FUNCTIONS]


@pytest.mark.parametrize("caller, body", BODIES)
def test_bodies(caller, body):
    fn = bodies_of(CALLERS[caller])[body]
    if body in ("break", "exception"):
        expected = run_both(fn, *x(), _backend="eager")
        assert body == "exception" or expected.breaks
    elif body in EFFECTS and caller not in (*FOLLOWED_CALLERS, *MARKS):
        check_break(fn, x(), PARAMETERS)
    else:
        check(fn, x(), PARAMETERS)


REGIONS = {
    "strict_mode": lambda fn: lambda a: strict_mode(fn, (a,)),
    "hints_wrapper": lambda fn: lambda a: hop.hints_wrapper(fn, (a,), {}, hints={"unroll": 2}),
    "invoke_quant": lambda fn: lambda a: operators.InvokeQuant()(fn, a),
    "cond": lambda fn: lambda a: torch.cond(a.sum() > 0, fn, fn, (a,)),
    "map": lambda fn: lambda a: map_over(lambda b: fn(b.expand(4, 4)), a),
}
NEW_RESULTS = [
    *("plain", "closure", "global tensor", "parameter", "module", "method", "defaults", "partial", "tuple"),
    *("nested structure", "size", "no_grad inside", "change of its own tensor"),
]


@pytest.mark.parametrize("body", NEW_RESULTS)
@pytest.mark.parametrize("region", REGIONS)
def test_regions(region, body):
    """These are nodes with the function as a sub-graph, whatever tensors it uses."""
    fn = bodies_of(REGIONS[region])[body]
    with torch.no_grad():
        graphs = check(fn, x(False))
    assert nodes_of(graphs) & {"strict_mode", "hints_wrapper", "invoke_quant_packed", "cond", "map_impl"}
    if region in ("cond", "map"):
        check(fn, x(), PARAMETERS)


@pytest.mark.parametrize("body", ["view", "identity"])
def test_results_that_share_memory(body):
    """New tensors are all that the operator can return: where only compilers are to see it, the function is followed."""
    for region in ("strict_mode", "hints_wrapper", "invoke_quant"):
        with torch.no_grad():
            check(bodies_of(REGIONS[region])[body], x(False))


@pytest.mark.parametrize("body", EFFECTS)
@pytest.mark.parametrize("region", ["cond", "map"])
def test_effects_of_bodies_of_control_flow(region, body):
    """What torch refuses in eager execution as well is refused by it: the call runs whole as it is."""
    fn = bodies_of(REGIONS[region])[body]
    for run in (fn, dynamo_lite.compile(fn, backend="eager"), dynamo_lite.compile(fn, backend="eager", fullgraph=True)):
        with pytest.raises((RuntimeError, dynamo_lite.exc.Unsupported)) as raised:
            run(*x())
        expected = dynamo_lite.exc.Unsupported if run is not fn and run.__wrapped__ is None else Exception
        assert isinstance(raised.value, expected)


@pytest.mark.parametrize("make", [iter, lambda items: (item for item in items), itertools.cycle])
def test_bodies_that_move_an_iterator_from_outside(make):
    """The side that is not taken must not move it either: torch refuses what the analysis leaves to it."""

    def fn(a):
        numbers = make([1.0, 2.0, 3.0])
        b = torch.cond(a.sum() > 0, lambda a: a + next(numbers), lambda a: a * 2.0, (a,))
        return b + next(numbers)

    for run in (fn, dynamo_lite.compile(fn, backend="eager"), dynamo_lite.compile(fn, backend="eager", fullgraph=True)):
        with pytest.raises((RuntimeError, dynamo_lite.exc.Unsupported)):
            run(*x())


# -- arguments

ARGUMENTS = {
    "keyword": lambda a: wrap(lambda b, *, c: b + c, a, c=a * 2),
    "structure": lambda a: wrap(lambda d, c: d["x"] + c[0], {"x": a}, [a]),
    "number": lambda a: wrap(lambda b, n: b * n, a, 3),
    "nested": lambda a: wrap(lambda b: wrap(lambda c: c.sin() + b, b), a),
    "cond inside": lambda a: wrap(lambda b: torch.cond(b.sum() > 0, torch.sin, torch.cos, (b,)), a),
    "cond in cond": lambda a: torch.cond(
        a.sum() > 0, lambda b: torch.cond(b.mean() > 1, lambda c: c @ P, lambda c: c * 2, (b,)), torch.cos, (a,)
    ),
    "checkpoint in checkpoint": lambda a: checkpoint(
        lambda b: checkpoint(lambda c: (c @ P).sin(), b.cos(), use_reentrant=False) * 2, a, use_reentrant=False
    ),
    "map in cond": lambda a: torch.cond(a.sum() > 0, lambda b: map_over(lambda r: r @ P, b), lambda b: b * 2, (a,)),
    "cond with keywords": lambda a: torch.cond(
        pred=a.sum() > 0, true_fn=lambda b: b.sin(), false_fn=lambda b: b.cos(), operands=(a,)
    ),
    "cond without operands": lambda a: torch.cond(a.sum() > 0, lambda: a.sin(), lambda: a @ P),
    "cond of structures": lambda a: torch.cond(
        a.sum() > 0, lambda d: {"y": d["x"].sin()}, lambda d: {"y": d["x"].cos()}, ({"x": a},)
    ),
    "cond on one element": lambda a: torch.cond((a.sum() > 0).reshape(1), torch.sin, torch.cos, (a,)),
    "cond on a constant": lambda a: torch.cond(True, torch.sin, torch.cos, (a,)),
    "cond on a size": lambda a: torch.cond(a.shape[0] > 3, torch.sin, torch.cos, (a,)),
    "map of structures": lambda a: map_over(lambda d: {"y": d["x"] * 2, "z": (d["x"] + 1,)}, {"x": a}),
    "map with a tensor": lambda a: map_over(lambda b, c: b * c + 1, a, a[0] + 1),
    "map with a number": lambda a: map_over(lambda b, n: b * n, a, 3),
    "map with a size": lambda a: map_over(lambda b, n: b * n, a, a.shape[0]),
    "scan backwards": lambda a: scan(lambda c, b: (c + b, c * b), torch.zeros(4), a, dim=1, reverse=True),
    "scan of structures": lambda a: scan(
        lambda c, b: ({"x": c["x"] + b[0]}, (c["x"] * b[0], b[1].sin())), {"x": torch.zeros(4)}, (a, a)
    ),
    "scan with a parameter": lambda a: scan(lambda c, b: (c + b @ P, c * b), torch.zeros(4), a),
    "associative_scan with a tensor": lambda a: associative_scan(
        lambda b, c: b * c + W[0] * a[0], a, 0, combine_mode="generic"
    ),
    "associative_scan of structures": lambda a: associative_scan(
        lambda b, c: {"x": b["x"] * c["x"]}, {"x": a}, 1, reverse=True, combine_mode="generic"
    ),
    "foreach_map": lambda a: foreach_map(lambda b, c: b @ P + c, [a, a * 2], 2.0),
    "register_hook": lambda a: hop.register_hook(a * 2, lambda g, s: g * s, 3).sin(),
    "custom_function_call": lambda a: hop.custom_function_call(Sine, a),
}


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() * 2


def loop(test, step, *carried):
    return torch.while_loop(test, step, carried)


LOOPS = {
    "tensors": lambda a: loop(lambda i, b: i < 3, lambda i, b: (i + 1, b * 2), torch.tensor(0), a),
    "an int (no gradients)": lambda a: loop(lambda i, b: i < 3, lambda i, b: (i + 1, b * i), 1, a),
    "structures": lambda a: loop(
        lambda i, d: i < 3, lambda i, d: (i + 1, {"x": d["x"] * 2}), torch.tensor(0), {"x": a}
    ),
    "tensors from outside": lambda a: loop(
        lambda i, b: b.sum() < W.sum() * 9, lambda i, b: (i + a.sum(), b.abs() + W), torch.tensor(0.0), a.abs()
    ),
    "a parameter": lambda a: loop(lambda i, b: i < 3, lambda i, b: (i + 1, b @ P), torch.tensor(0), a),
    "a module": lambda a: loop(lambda i, b: i < 3, lambda i, b: (i + 1, MODULE(b)), torch.tensor(0), a),
    "no turn": lambda a: loop(lambda i, b: i < 0, lambda i, b: (i + 1, b * 2), torch.tensor(0), a),
    "additional inputs": lambda a: hop.while_loop(
        lambda i, b, c: i < 3, lambda i, b, c: (i + 1, b * c), (torch.tensor(0), a), (W,)
    ),
    "all turns (no gradients)": lambda a: hop.while_loop_stack_output(
        lambda i, b: i < 3, lambda i, b: (i + 1, b * 2), (torch.tensor(0), a), ()
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name):
    if name == "foreach_map":  # eager execution has no gradient of it
        with torch.no_grad():
            check(ARGUMENTS[name], x(False))
    else:
        check(ARGUMENTS[name], x(), PARAMETERS)


@pytest.mark.parametrize("name", LOOPS)
def test_while_loop(name):
    check(LOOPS[name], x("no gradients" not in name), PARAMETERS)


def test_branches_that_return_other_numbers_and_sizes():
    with torch.no_grad():
        for a in (x(False)[0], -x(False)[0]):
            check(lambda a: torch.cond(a.sum() > 0, lambda b: (b.sin(), 1), lambda b: (b.cos(), 2), (a,)), (a,))
            check(lambda a: torch.cond(a.sum() > 0, lambda b: b[:2].clone(), lambda b: b[:3].clone(), (a,)), (a,))


def test_branches_that_return_the_same_number():
    """It is not looked for in the results of the operator."""
    with torch.no_grad():
        check(lambda a: torch.cond(a.sum() > 0, lambda b: (b.sin(), 7), lambda b: (b.cos(), 7), (a,)), x(False))


SHARING = {
    "an argument of cond": lambda a: torch.cond(a.sum() > 3, lambda b: b, lambda b: b.sin(), (a,)),
    "a view of an argument of cond": lambda a: torch.cond(a.sum() > 3, lambda b: b.t(), lambda b: b.sin(), (a,)),
    "a slice in scan": lambda a: scan(lambda c, b: (c + b, b), torch.zeros(4), a),
    "a carry in scan": lambda a: scan(lambda c, b: (c.sin(),) * 2, torch.zeros(4), a),
    "a slice in map": lambda a: map_over(lambda b: (b, b * 2), a),
}


@pytest.mark.parametrize("name", SHARING)
def test_shared_memory_raises_as_it_does_eagerly(name):
    """Captured code calls the operator at once; these functions, run as they are, have torch.compile capture the bodies first. A break
    inside runs them whole."""
    fn = SHARING[name]
    compiled = dynamo_lite.compile(fn, backend="eager")
    messages = []
    for run in (fn, compiled):
        with pytest.raises(Exception, match="aliasing") as raised:
            run(*x())
        messages.append(type(raised.value))
    assert messages[0] is messages[1]
    with pytest.raises(dynamo_lite.exc.Unsupported, match="shares memory|is a view of"):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(*x())


def test_a_break_inside_of_wrap_is_one_split():
    run = run_both(lambda a: wrap(breaks, a + 1) * 2, *x(False))
    assert run.graph_count == 2 and len(run.breaks) == 1


def test_printing_comes_in_order(capsys):
    def fn(a):
        hop.print("first {} {size}", 1, size=a.shape[0])
        b = a.sin()
        hop.print("then {}", b.detach().sum() * 0)
        return b

    for backend in ("eager", "aot_eager"):
        dynamo_lite.compile(fn, backend=backend, fullgraph=True)(*x())
        assert capsys.readouterr().out.splitlines() == ["first 1 4", "then 0.0"]


def test_a_check_that_fails_behind_printing_prints_once(capsys):
    """A graph that has printed is not run again."""

    def fn(a):
        hop.print("here")
        if (a > 100).any():
            raise ValueError("too large")
        return a.sin()

    compiled = dynamo_lite.compile(fn, backend="eager")
    compiled(*x(False))
    capsys.readouterr()
    with pytest.raises(ValueError):
        compiled(x(False)[0] + 200)
    assert capsys.readouterr().out.splitlines() == ["here"]


class Doubled(BaseHOP):
    def __init__(self):
        super().__init__("test_doubled")


def test_an_operator_of_the_program():
    """Of those of the program, such as derive from torch's class for operators that only call their function are captured."""
    doubled = Doubled()
    try:
        graphs = check_compiled_only(lambda a: doubled(lambda b: b @ W, a, level=1), x(False))
        assert "test_doubled" in nodes_of(graphs)
    finally:
        del torch._ops._higher_order_ops["test_doubled"]


def check_compiled_only(fn, args):
    """For operators that take functions only where they are compiled."""
    backend = dynamo_lite.testing.EagerAndRecordGraphs()
    result = dynamo_lite.compile(fn, backend=backend, fullgraph=True)(*args)
    torch.testing.assert_close(result, args[0] @ W)
    return backend.graphs


class Unknown(HigherOrderOperator):
    def __init__(self):
        super().__init__("test_unknown")

    def __call__(self, fn, *args):
        return fn(*args)


def test_an_unknown_operator_says_what_it_is():
    unknown = Unknown()
    del torch._ops._higher_order_ops["test_unknown"]
    error = check_break(lambda a: unknown(torch.sin, a * 2), x(), slug="higher-order-operator-without-model")
    assert "test_unknown: capture knows nothing of it" in str(error)


def test_gradients_of_an_associative_scan():
    """Those of the recurrence, where the items of the result depend on each other; torch's operator gives others."""

    def scanned(decay, step):
        return hop.associative_scan(lambda a, b, c, d: (a * c, c * b + d), [decay, step], ())[1].sin()

    def repeated(decay, step):
        states = [step[0]]
        for d, s in zip(decay[1:], step[1:], strict=True):
            states.append(d * states[-1] + s)
        return torch.stack(states).sin()

    def outcomes(run):
        leaves = [x.clone().requires_grad_() for x in torch.rand(2, 5, 3, generator=torch.Generator().manual_seed(0))]
        result = run(*leaves)
        return result, torch.autograd.grad(result.sum(), leaves)

    for backend in ("eager", "aot_eager"):
        compiled = dynamo_lite.compile(scanned, backend=backend, fullgraph=True)
        torch.testing.assert_close(outcomes(compiled), outcomes(repeated))
    assert nodes_of(check(scanned, torch.rand(2, 5, 3).unbind())) >= {"associative_scan"}


# -- the table of the documentation

LIBRARY = torch.library.Library("higher_order_tests", "FRAGMENT")
LIBRARY.define("increase(Tensor(a!) x) -> ()")
LIBRARY.define("copy(Tensor x) -> Tensor")
LIBRARY.impl("increase", lambda a: [None for _ in [a.add_(1)]][0], "CompositeExplicitAutograd")
LIBRARY.impl("copy", lambda a: a.clone(), "CompositeExplicitAutograd")
custom = torch.ops.higher_order_tests
CALLED, CALLED_SPEC = func_to_graphable(lambda d, b: d["x"] + b)
LEAVES, LEAVES_SPEC = to_graphable((({"x": W}, W), {}))
GRAPH = torch.fx.symbolic_trace(lambda a: (a.sin() * 2,))
TOKEN = torch.tensor([])
QKV = torch.arange(256.0).reshape(1, 2, 16, 8).div(100)

SAMPLES = {
    "_export_tracepoint": lambda a: hop._export_tracepoint(a, kind="module_call_inputs", path="p"),
    "associative_scan": lambda a: hop.associative_scan(lambda b, c: [b * c], [a], ()),
    "auto_functionalized": lambda a: hop.auto_functionalized(custom.increase.default, x=a),
    "auto_functionalized_v2": lambda a: hop.auto_functionalized_v2(
        custom.increase.default, _x_base_index=0, _x_alias=True, _all_bases=[a]
    ),
    "cond": lambda a: torch.cond(a.sum() > 0, torch.sin, torch.cos, (a,)),
    "custom_function_call": lambda a: hop.custom_function_call(Sine, a),
    "dynamo_bypassing_wrapper": lambda a: hop.dynamo_bypassing_wrapper(lambda f: f, torch.sin, a),
    "flat_apply": lambda a: flat_apply(CALLED_SPEC, LEAVES_SPEC, a, a * 2),
    "flex_attention": lambda a: flex_attention(QKV, QKV, QKV, score_mod=lambda s, b, h, q, k: s + q - k),
    "foreach_map": lambda a: foreach_map(lambda b, c: b + c, [a, a * 2], [a, a]),
    "hints_wrapper": lambda a: hop.hints_wrapper(torch.sin, (a,), {}, hints={"k": 1}),
    "invoke_quant": lambda a: hop.invoke_quant(GRAPH, a, scheme="s"),
    "invoke_quant_packed": lambda a: operators.InvokeQuant()(lambda b: b.sin() @ W, a),
    "map_impl": lambda a: map_over(lambda b: b * 2, a),
    "out_dtype": lambda a: hop.out_dtype(torch.ops.aten.mul.Tensor, torch.float64, a, a),
    "print": lambda a: (hop.print("{}", 1), a.sin())[1],
    "register_hook": lambda a: hop.register_hook(a * 2, lambda g: g * 3),
    "run_const_graph": lambda a: hop.run_const_graph(GRAPH, (a,)),
    "run_with_rng_state": lambda a: hop.run_with_rng_state(TORCH_STATE, torch.ops.aten.rand_like.default, a),
    "scan": lambda a: scan(lambda c, b: (c + b, c * b), torch.zeros(4), a),
    "strict_mode": lambda a: strict_mode(lambda b: b.sin(), (a,)),
    "tag_activation_checkpoint": lambda a: hop.tag_activation_checkpoint(GRAPH, a),
    "trace_wrapped": lambda a: hop.trace_wrapped(a, fn=lambda g: g * 2),
    "while_loop": LOOPS["tensors"],
    "while_loop_stack_output": LOOPS["all turns (no gradients)"],
    "with_effects": lambda a: hop.with_effects(TOKEN, custom.copy.default, a),
    "wrap": lambda a: wrap(torch.sin, a),
    "wrap_activation_checkpoint": lambda a: hop.wrap_activation_checkpoint(GRAPH, a),
    "wrap_with_autocast": lambda a: hop.wrap_with_autocast("cpu", torch.bfloat16, True, True, torch.matmul, a, a),
    "wrap_with_set_grad_enabled": lambda a: hop.wrap_with_set_grad_enabled(False, torch.sin, a),
}
TORCH_STATE = torch.get_rng_state()
NAMES = {"wrap_activation_checkpoint": "tag_activation_checkpoint"}
ON_GPUS = {"inline_asm_elementwise", "run_dtensor_rng_op"}
NEEDS_GRADIENTS = {"tag_activation_checkpoint", "wrap_activation_checkpoint", "register_hook", "custom_function_call"}
TABLE = {name: (becomes, unless) for name, becomes, unless in support.operators()}
CAPTURED = [name for name, (becomes, _) in TABLE.items() if becomes in (FOLLOWED, REGION, NODE)]


def test_every_captured_operator_has_a_sample():
    assert {*CAPTURED} == {*SAMPLES, *ON_GPUS}


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_table_says_what_happens(name):
    with torch.set_grad_enabled(name in NEEDS_GRADIENTS):
        graphs = check(SAMPLES[name], x(name in NEEDS_GRADIENTS), backends=("aot_eager", "eager"))
    becomes = TABLE[name][0]
    assert (NAMES.get(name, name) in nodes_of(graphs)) == (becomes != FOLLOWED), nodes_of(graphs)


@pytest.mark.parametrize("name", sorted({*TABLE} - {*CAPTURED}))
def test_operators_of_the_table_that_break(name):
    becomes, unless = TABLE[name]
    assert becomes.startswith("breaks because ") and not unless and "knows nothing" not in becomes
    operator = torch._ops._higher_order_ops[name]
    with pytest.raises(dynamo_lite.exc.Unsupported, match=name) as raised:
        dynamo_lite.compile(lambda a: operator(torch.sin, a), backend="eager", fullgraph=True)(*x())
    assert raised.value.slug == "higher-order-operator-without-model"


@pytest.mark.parametrize(
    "name", ["cond", "while_loop", "scan", "map_impl", "tag_activation_checkpoint", "wrap", "print"]
)
def test_inductor(name):
    with torch.set_grad_enabled(name in NEEDS_GRADIENTS):
        check(SAMPLES[name], x(name in NEEDS_GRADIENTS), backends=("inductor",))


def test_outcome_sees_differences():
    """The comparison that these tests make would fail."""
    assert not dynamo_lite.testing.same(outcome(lambda a: a * 2, x()), outcome(lambda a: a * 3, x()))
    assert not dynamo_lite.testing.same(outcome(lambda a: a * 1, x()), outcome(lambda a: a.detach() * 1, x()))


CALLED: list[int] = []


@pytest.mark.parametrize(
    "program",
    [
        lambda a: torch.cond(a.sum() > 0, lambda b: (b.sin(), None), lambda b: (b.cos(), None), (a,)),
        lambda a: torch.cond(a.sum() > 0, lambda b: (CALLED.append(1), b.sin())[1], lambda b: b.cos(), (a,)),
        lambda a: while_loop(lambda b: b.sum() < 9, lambda b: (CALLED.append(1), b + 1)[1], (a,)),
        lambda a: scan(lambda b, c: (CALLED.append(1), (b + c, b * c))[1], a, a.expand(3, 3)),
    ],
)
def test_an_operator_that_eager_execution_refuses_as_well(program):
    """Whoever catches torch's exception for it catches ours, which is a break like others."""
    with pytest.raises(dynamo_lite.exc.UncapturedHigherOrderOpError) as raised:
        dynamo_lite.compile(program, backend="eager", fullgraph=True)(torch.ones(3))
    assert isinstance(raised.value, dynamo_lite.exc.Unsupported) and raised.value.code == "DL086"
    assert isinstance(pickle.loads(pickle.dumps(raised.value)), dynamo_lite.exc.UncapturedHigherOrderOpError)
