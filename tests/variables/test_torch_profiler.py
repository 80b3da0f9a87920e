"""Profilers, and annotations for them, inside and around compiled functions."""

import pytest
import torch
from torch.autograd import profiler
from torch.profiler import itt, record_function

import dynamo_lite
from dynamo_lite.testing import CompileCounter, run_both


def x():
    return torch.arange(6.0)


def by_hand(t):
    block = torch.profiler.profile()
    block.__enter__()
    t = t * 2
    block.__exit__(None, None, None)
    return t


def left_by_an_exception(t):
    try:
        with torch.profiler.profile():
            t = t * 2
            raise ValueError
    except ValueError:
        return t, torch.autograd._profiler_enabled()


def ranges(t):
    itt.range_push("a")
    t = t * 2
    itt.mark("b")
    return t + 1, itt.range_pop(), itt.is_available()


def within(make):
    def block(t):
        with make() as entered:
            t = t * 2
        return t, entered is None

    return block


@record_function("decorated")
def decorated(t):
    return t * 3


WHOLE = {
    "profile": within(torch.profiler.profile),
    "options": within(
        lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True)
    ),
    "autograd": within(profiler.profile),
    "kineto": within(lambda: profiler.profile(use_kineto=True, record_shapes=True)),
    "disabled": within(lambda: profiler.profile(enabled=False)),
    "emit_itt": within(lambda: profiler.emit_itt(enabled=False)),
    "emit_nvtx": within(lambda: profiler.emit_nvtx(enabled=False)),
    "record_function": within(lambda: record_function("a", "b")),
    "fast": within(lambda: torch._C._profiler._RecordFunctionFast("a")),
    "itt.range": within(lambda: itt.range("a {}", 3)),
    "itt": ranges,
    "by hand": by_hand,
    "exception": left_by_an_exception,
    "decorated": decorated,
}


@pytest.mark.parametrize("name", WHOLE)
def test_left_out(name):
    block = WHOLE[name]
    run = run_both(lambda t: (block(t + 1), t + 2), x())
    assert run.graph_count == 1 and not run.breaks


def asked(t):
    with torch.profiler.profile() as p:
        t = t * 2
    return t + 1, [e.key for e in p.key_averages() if e.key == "aten::mul"]


def calls_back(t, found):
    with torch.profiler.profile(on_trace_ready=lambda p: found.append(1)):
        t = t * 2
    return t + 1, found


def breaks_inside(t):
    with torch.profiler.profile():
        t = t * 2
        dynamo_lite.graph_break()
    return t + 1


@pytest.mark.parametrize(("program", "args"), [(asked, ()), (calls_back, ([],)), (breaks_inside, ())])
def test_runs_where_it_can_be_told(program, args):
    """Somebody reads what the profiler has seen, or it would go on in code that is not captured: then it is a real one."""
    run = run_both(lambda *args: program(*args), x(), *args)
    assert {b.slug for b in run.breaks} <= {"call-skipped-function", "user-requested"} and run.breaks


def test_a_profiler_around_the_frame():
    """Profilers exclude each other, so one around the frame is told by a guard; of a frame without one it sees the graph."""

    def block(t):
        with torch.profiler.profile():
            return t * 2

    counter, plain = CompileCounter(), CompileCounter()
    compiled, other = dynamo_lite.compile(block, backend=counter), dynamo_lite.compile(lambda t: t * 3, backend=plain)
    compiled(x())
    assert counter.frame_count == 1
    with torch.profiler.profile() as around:
        other(x())
        other(x())
    assert plain.frame_count == 1 and sum(e.count for e in around.key_averages() if e.key == "aten::mul") >= 2

    def is_on(t):
        return t + 1, torch.autograd._profiler_enabled()

    compiled = dynamo_lite.compile(is_on, backend="eager", fullgraph=True)
    assert compiled(x())[1] is False
    with torch.profiler.profile():
        assert compiled(x())[1] is True


def test_record_function_around_a_break():
    def fn(a):
        with record_function("block"):
            a = a + 1
            dynamo_lite.graph_break()
            a = a * 2
        return a

    def whole(a):
        with record_function("block"):
            return a + 1

    a = torch.ones(2)
    torch.testing.assert_close(dynamo_lite.compile(fn, backend="eager")(a), fn(a))
    torch.testing.assert_close(dynamo_lite.compile(whole, backend="eager", fullgraph=True)(a), whole(a))
