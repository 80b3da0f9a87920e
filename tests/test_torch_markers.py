"""What libraries already say to torch.compile is understood inside captured code."""

import pytest
import torch
import torch._dynamo

import dynamo_lite
from dynamo_lite import markers
from dynamo_lite.exc import UserError
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter

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
