"""What libraries already say to torch.compile is understood inside captured code."""

import dataclasses
import functools
import re
import zlib
from collections import namedtuple

import pytest
import torch
import torch._dynamo
from torch._dynamo.variables.functions import PolyfilledFunctionVariable

import dynamo_lite
from dynamo_lite import markers
from dynamo_lite.exc import UserError
from dynamo_lite.polyfills.registry import POLYFILLS, PURE, known_polyfill
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter, run_both

X = torch.ones(3)


def captured(fn, *args):
    """(result, graphs, ops, slugs of the breaks)."""
    counter = CompileCounter()
    log.reset()
    result = dynamo_lite.compile(fn, backend=counter)(*args)
    return result, counter.frame_count, counter.op_count, [b.slug for b in log.breaks()]


def helper(x):
    return x * 2 + 1


def test_compiler_disable():
    disabled = torch.compiler.disable(helper)
    result, graphs, ops, slugs = captured(lambda x: disabled(x + 1) + 1, X)
    assert torch.equal(result, X + 5)
    assert (graphs, ops, slugs) == (2, 2, ["call-skipped-function"])


def test_compiler_disable_of_one_function_alone():
    """It runs eagerly in each call, what it calls is captured, and so is the function itself where it is called as it was."""
    is_compiling = torch.compiler.is_compiling

    def callee(x):
        return x * (3 if is_compiling() else 5)

    def first(x):
        return callee(x), is_compiling()

    def second(x):
        return callee(x + 1), is_compiling()

    alone = [torch.compiler.disable(fn, recursive=False) for fn in (first, second)]
    for fn, wrapped in zip((first, second), alone, strict=True):
        expected = (3.0 if fn is first else 6.0), False
        result, graphs, ops, slugs = captured(lambda x, call=wrapped: call(x), X)
        assert (result[0][0].item(), result[1]) == expected
        assert (graphs, ops, slugs) == (1, 1, ["call-skipped-function"])
        result, graphs, _, slugs = captured(lambda x, call=fn: call(x), X)
        assert (graphs, slugs, result[1]) == (1, [], True)

    def both(x):
        return alone[1](alone[0](x * 2)[0]) + alone[0](x)

    counter = CompileCounter()
    compiled = dynamo_lite.compile(both, backend=counter)
    for _ in range(3):
        result = compiled(X)
        assert [result[0][0].item(), result[1], result[2][0].item(), result[3]] == [21.0, False, 3.0, False]
    assert counter.frame_count == 2


def test_graph_break():
    def f(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    result, graphs, ops, slugs = captured(f, X)
    assert torch.equal(result, X * 4)
    assert (graphs, ops, slugs) == (2, 2, ["user-requested"])


def test_allow_in_graph():
    def whole(x):
        return x * 2 + 1

    torch._dynamo.allow_in_graph(whole)
    result, graphs, ops, slugs = captured(lambda x: whole(x) + 1, X)
    assert torch.equal(result, X * 4)
    assert (graphs, ops, slugs) == (1, 2, [])


def test_is_compiling():
    def f(x):
        return x * 2 if torch.compiler.is_compiling() and torch._dynamo.is_compiling() else x * 3

    result, graphs, ops, slugs = captured(f, X)
    assert torch.equal(result, X * 2)
    assert (graphs, ops, slugs) == (1, 1, [])


@pytest.mark.parametrize("ask", [torch.compiler.is_compiling, dynamo_lite.is_compiling], ids=["torch", "ours"])
def test_is_compiling_where_there_are_no_operators(ask):
    def helper(n):
        return n + 1 if ask() else n - 1

    class Module(torch.nn.Module):
        def forward(self):
            return ask()

    assert captured(lambda: ask())[0] is True
    assert captured(helper, 1)[0] == 2
    assert captured(lambda n, x: (helper(n), x), 1, X)[0] == (2, X)
    assert captured(Module())[0] is True and captured(lambda n: n + 1, 1)[0] == 2


def test_mark_dynamic():
    marked = torch.ones(4, 3)
    torch._dynamo.mark_dynamic(marked, 0)
    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x: x.sum(0) * 2, backend=counter)
    for x in (marked, torch.ones(7, 3), torch.ones(9, 3)):
        assert torch.equal(compiled(x), x.sum(0) * 2)
    assert counter.frame_count == 1


def test_nonstrict_trace_takes_containers():
    @dynamo_lite.nonstrict_trace
    def inside(parts):
        print(end="")
        return {"sum": parts["a"] + parts["b"][0]}

    result, graphs, _, slugs = captured(lambda x: inside({"a": x, "b": [x * 2]})["sum"] + 1, X)
    assert torch.equal(result, X * 3 + 1)
    assert (graphs, slugs) == (1, [])


def test_dont_skip_tracing():
    namespace = {"__name__": "logging.extra"}
    exec("def helper(x): return x * 2", namespace)
    helper = namespace["helper"]
    assert captured(lambda x: helper(x) + 1, X)[3] == ["call-skipped-function"]
    dynamo_lite.reset()
    dynamo_lite.dont_skip_tracing(helper)
    assert captured(lambda x: helper(x) + 1, X)[1:] == (1, 2, [])


class Holder:
    def __init__(self, x):
        self.x = x

    def method(self):
        return self.x


CALLABLES = {
    "function": (helper, lambda x: helper(x + 1) * 2),
    "C function": (torch.sub, lambda x: torch.sub(x + 1, 1) * 2),
    "with a model": (torch.is_tensor, lambda x: (x + 1) * torch.is_tensor(x)),
    "Python function of torch": (torch.nn.functional.relu, lambda x: torch.nn.functional.relu(x + 1) * 2),
    "method of tensors": (torch.Tensor.sin, lambda x: (x + 1).sin() * 2),
    "operator": (torch.ops.aten.cos.default, lambda x: torch.ops.aten.cos.default(x + 1) * 2),
    "builtin": (len, lambda x: (x + 1) * len([1])),
    "class": (Holder, lambda x: Holder(x + 1).method() * 2),
    "method": (Holder.method, lambda x: Holder(x + 1).method() * 2),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_what_is_disallowed_or_forbidden(name):
    target, call = CALLABLES[name]
    try:
        dynamo_lite.disallow_in_graph(target)
        result, graphs, _, slugs = captured(call, X)
        assert torch.equal(result, call(X)) and graphs >= 2 and slugs[0] == "disallowed-function"
        dynamo_lite.forbid_in_graph(target)
        for error in (UserError, AssertionError):
            with pytest.raises(error, match="must not be called in captured code"):
                dynamo_lite.compile(call, backend="eager")(X)
    finally:
        for marked in (markers.DISALLOWED_IN_GRAPH, markers.FORBIDDEN_IN_GRAPH):
            marked.discard(target)
    result, graphs, _, slugs = captured(call, X)
    assert graphs == 1 and not slugs


@pytest.mark.parametrize("target", [torch.cos, helper], ids=["C function", "function"])
def test_the_last_mark_counts(target):
    def call(x):
        return target(x) * 2

    try:
        for _ in range(2):
            dynamo_lite.forbid_in_graph(target)
            with pytest.raises(UserError, match="must not be called in captured code"):
                captured(call, X)
            dynamo_lite.allow_in_graph(target)
            assert captured(call, X)[1:] == (1, 2, [])
            dynamo_lite.forbid_in_graph(target)
            dynamo_lite.disallow_in_graph([target])
            assert captured(call, X)[3] == ["disallowed-function"]
    finally:
        for marked in (markers.ALLOWED_IN_GRAPH, markers.DISALLOWED_IN_GRAPH, markers.FORBIDDEN_IN_GRAPH):
            marked.discard(target)


def test_what_was_given_to_torchs_functions():
    @torch._dynamo.forbid_in_graph
    def forbidden(x):
        return x + 1

    with pytest.raises(AssertionError, match="forbidden must not be called"):
        dynamo_lite.compile(lambda x: forbidden(x) * 2, backend="eager")(X)
    torch._dynamo.disallow_in_graph(torch.sub)
    try:
        assert captured(lambda x: torch.sub(x + 1, 1) * 2, X)[1:] == (2, 2, ["disallowed-function"])
    finally:
        torch._dynamo.trace_rules._disallowed_callable_ids.remove(id(torch.sub))


@pytest.mark.parametrize("mark", ["mark_dynamic", "maybe_mark_dynamic", "mark_unbacked", "mark_static_address"])
def test_marks_that_are_for_outside_of_captured_code(mark):
    ours, theirs = getattr(dynamo_lite, mark), getattr(torch._dynamo.decorators, mark)
    for function in (ours, theirs):

        def call(x, function=function):
            function(x, 0) if mark != "mark_static_address" else function(x)
            return x + 1

        with pytest.raises(AssertionError, match=f"{mark} must not be called in captured code"):
            dynamo_lite.compile(call, backend="eager")(X)


# -- functions allowed in the graph: what they may take and return

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Point:
    x: torch.Tensor
    y: torch.Tensor


class Factor:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Factor) and self.value == other.value

    def __hash__(self):
        return hash(self.value)


torch.utils._pytree.register_dataclass(Point)
torch.utils._pytree.register_constant(Factor)
THREE = Factor(3.0)
WEIGHT = torch.arange(9.0).reshape(3, 3).requires_grad_()


def whole(fn):
    """`fn`, which cannot be followed, as both engines' `nonstrict_trace` makes it."""

    @functools.wraps(fn)
    def opaque(*args, **kwargs):
        print(end="")
        return fn(*args, **kwargs)

    return torch._dynamo.nonstrict_trace(opaque)


class OwnLinear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return on_module(self.linear, x) + self.inside(x)

    @whole
    def inside(self, x):
        return self.linear(x).sin()


on_module = whole(lambda module, x: module(x))
on_point = whole(lambda point, n: Point(point.x * n, point.y.sin()))
on_pair = whole(lambda pair: Pair(pair.first.sin(), pair.second * 2))
on_constant = whole(lambda factor, x: x * factor.value)
on_nested = whole(lambda parts, *, scale: {"a": [parts["a"] * scale], "n": 2, "none": None})
on_global = whole(lambda x: x @ WEIGHT)
returns_nothing = whole(lambda x: None)
changes = whole(lambda x, same: (x.add_(1), same[0])[0] * 2)

ALLOWED = {
    "module": OwnLinear(),
    "dataclass": lambda x: on_point(Point(x, x.cos()), 2),
    "parts_of_a_dataclass": lambda x: on_point(Point(x, x.cos()), 2).y * 2,
    "namedtuple": lambda x: on_pair(Pair(x, x + 1)),
    "number_in_a_namedtuple": lambda x: on_pair(Pair(x, 4)),
    "constant": lambda x: on_constant(THREE, x),
    "nested": lambda x: on_nested({"a": x, "b": 3}, scale=x.sum()),
    "tensor_from_outside": lambda x: on_global(x),
    "nothing": lambda x: x.sin() if returns_nothing(x) is None else x,
    "change": lambda x: (lambda y: changes(y, [y]) + y)(x.sin()),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_arguments_and_results_of_functions_in_the_graph(name):
    fn = ALLOWED[name]
    assert run_both(fn, torch.ones(3, 3), _fullgraph=True).graph_count == 1
    owned = [*fn.parameters()] if isinstance(fn, torch.nn.Module) else [WEIGHT]
    gradients = []
    for run in (fn, dynamo_lite.compile(fn, backend="eager", fullgraph=True)):
        x = torch.ones(3, 3).requires_grad_()
        for parameter in owned:
            parameter.grad = None
        tensors = [t for t in torch.utils._pytree.tree_leaves(run(x)) if isinstance(t, torch.Tensor)]
        sum(t.sum() for t in tensors).backward()
        gradients.append([t.grad for t in (x, *owned)])
    torch.testing.assert_close(*gradients)


def test_another_constant_is_captured_again():
    factor = Factor(3.0)
    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x, f: on_constant(f, x), backend=counter)
    assert torch.equal(compiled(X, factor), X * 3)
    assert torch.equal(compiled(X, Factor(3.0)), X * 3)
    assert torch.equal(compiled(X, Factor(2.0)), X * 2)
    assert counter.frame_count == 2


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print(end="")
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        print(end="")
        return grad * 3 * ctx.saved_tensors[0] ** 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_autograd_function_allowed_in_the_graph(backend):
    dynamo_lite.allow_in_graph(Cube)
    grads = []
    try:
        for run in (Cube.apply, dynamo_lite.compile(lambda x: Cube.apply(x), backend=backend, fullgraph=True)):
            x = torch.full((3,), 2.0).requires_grad_()
            run(x).sum().backward()
            grads.append(x.grad)
    finally:
        markers.ALLOWED_IN_GRAPH.discard(Cube)
    torch.testing.assert_close(*grads)
    torch.testing.assert_close(grads[0], torch.full((3,), 12.0))


def test_a_graph_with_an_autograd_function_is_printed():
    dynamo_lite.allow_in_graph(Cube)
    try:
        explained = dynamo_lite.explain(lambda x: Cube.apply(x), X)
    finally:
        markers.ALLOWED_IN_GRAPH.discard(Cube)
    assert "Cube" in explained.graphs[0].code
    assert explained.graph_break_count == 0


# -- wrappers of torch.jit, which do nothing outside of scripts


@torch.jit.script_if_tracing
def scripted_if_tracing(x, n: int):
    return x.sin() * n


def ask_jit(x):
    tensor = torch.jit._unwrap_optional(x)
    kinds = torch.jit.isinstance([x], list[torch.Tensor]), torch.jit.isinstance({"a": x}, dict[str, torch.Tensor])
    return tensor * len(torch.jit.annotate(list[int], [1, 2])), kinds


@pytest.mark.parametrize("fn", [lambda x: scripted_if_tracing(x, 2) + 1, ask_jit])
def test_functions_of_jit(fn):
    assert run_both(fn, X, _fullgraph=True).graph_count == 1


@pytest.mark.parametrize("folds", [False, True])
def test_substitute_in_graph(folds):
    original = [zlib.crc32, zlib.adler32][folds]

    @torch.compiler.substitute_in_graph(original, can_constant_fold_through=folds, skip_signature_check=True)
    def stand_in(data, value, /):
        return len(data) + value

    try:
        result, graphs, ops, slugs = captured(lambda x: x + original(b"abc", 2), X)
        assert torch.equal(result, X + (original(b"abc", 2) if folds else 5))
        assert (graphs, ops, slugs) == (1, 1, [])
    finally:
        for table in (POLYFILLS, PolyfilledFunctionVariable._get_polyfill_handlers()):
            table.pop(original)
        PURE.discard(original)


def test_torchs_own_stand_ins_are_not_taken():
    handlers = PolyfilledFunctionVariable._get_polyfill_handlers()
    taken = [stand_in for stand_in in map(known_polyfill, handlers) if stand_in is not None]
    assert handlers and not [stand_in for stand_in in taken if stand_in.__module__.startswith("torch.")]


@pytest.mark.parametrize("disable", [dynamo_lite.disable, torch.compiler.disable])
@pytest.mark.parametrize("reason", ["because I say", None])
def test_the_reason_of_disable_is_told(disable, reason):
    disabled = disable(helper, reason=reason)
    captured(lambda x: disabled(x) + 1, X)
    expected = "helper is disabled" + (" (because I say)" if reason else "")
    assert [b.context for b in log.breaks()] == [expected]


def test_disable_inside_of_captured_code_is_named():
    def f(x):
        return dynamo_lite.disable(lambda y: y + 1)(x) + 1

    result, _, _, slugs = captured(f, X)
    assert torch.equal(result, X + 2)
    assert slugs[0] == "call-skipped-function"
    assert re.match(r"disable\(\) of .*<lambda>", log.breaks()[0].context)


class Asks(torch.nn.Module):
    """Adds another number where it is captured."""

    def forward(self, x):
        return x + (2 if dynamo_lite.is_compiling() else 1)


class AsksToo:
    __call__ = Asks.forward


@pytest.mark.parametrize("cls", [Asks, AsksToo])
def test_objects_that_are_disabled_run_eagerly(cls):
    def f(called, x):
        return called(x * 2) * 3

    compiled = dynamo_lite.compile(f, backend="eager")
    followed, disabled = dynamo_lite.compile(cls(), backend="eager"), dynamo_lite.disable(cls(), reason="slow")
    for _ in range(2):
        assert torch.equal(compiled(followed, X), (X * 2 + 2) * 3)
        assert torch.equal(compiled(disabled, X), (X * 2 + 1) * 3)
    assert [b.context for b in log.breaks()] == [f"{cls.__qualname__} is disabled (slow)"]
