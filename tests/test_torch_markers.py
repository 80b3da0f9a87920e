"""What libraries already say to torch.compile is understood inside captured code."""

import torch

import dynamo_lite
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
