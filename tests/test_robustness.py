"""What must never break a user's program: failures of the engine and of backends, interrupts, threads, limits, other hooks."""

import contextlib
import ctypes
import functools
import gc
import logging
import os
import pkgutil
import random
import signal
import subprocess
import sys
import threading
import warnings
import weakref

import pytest
import torch

import dynamo_lite
from dynamo_lite import _eval_frame
from dynamo_lite.frontend import analysis, convert
from dynamo_lite.record import log
from dynamo_lite.signals import is_lack_of_memory, let_through
from dynamo_lite.testing import CompileCounter
from dynamo_lite.variables.protocol.constant import fold
from tests.helpers import processes

X = torch.ones(3)


def double(x):
    return x * 2


def test_interrupt_during_compilation_leaves_everything_usable():
    interrupts = iter([True, False])

    def backend(gm, inputs):
        if next(interrupts):
            raise KeyboardInterrupt
        return gm.forward

    def f(x):
        with torch.no_grad():
            return x * 2 + torch.ones(3)

    compiled = dynamo_lite.compile(f, backend=backend)
    with pytest.raises(KeyboardInterrupt):
        compiled(X)
    assert torch.is_grad_enabled() and gc.isenabled()
    assert _eval_frame.set_region(None) is None
    assert torch.equal(compiled(X), f(X))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_random_moments_leave_the_state_of_torch_alone():
    stop = _eval_frame.Uncaptured(lambda x: x)

    def f(x):
        with torch.no_grad():
            y = torch.relu(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = y @ y.T
        stop(z.shape)
        return [z.sum(), y * 2]

    def interrupt(signum, frame):
        raise KeyboardInterrupt

    x, rng = torch.ones(3, 4), random.Random(1)
    expected = f(x)
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(30):
            compiled = convert.Region(lambda gm, inputs: gm.forward).wrap(f)
            with contextlib.suppress(KeyboardInterrupt):
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 0.02))
                    compiled(x)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            assert gc.isenabled() and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
            assert torch._C._len_torch_dispatch_stack() == torch._C._len_torch_function_stack() == 0
            assert all(map(torch.equal, compiled(x), expected))
    finally:
        signal.signal(signal.SIGALRM, previous)


class TimeOut(Exception):
    """What time-outs built on signals raise."""


@pytest.fixture
def alarm():
    """Has a signal handler that raises `TimeOut` run at the n-th operator that an analysis propagates."""
    previous = signal.getsignal(signal.SIGALRM)

    def handler(signum, frame):
        raise TimeOut("too late")

    signal.signal(signal.SIGALRM, handler)
    yield handler
    signal.signal(signal.SIGALRM, previous)


def said(caplog):
    """What the engine has logged."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("dynamo_lite")]


def raise_signal_in(monkeypatch, where, name):
    """The handler runs in the midst of a function of the engine, once."""
    original, left = getattr(where, name), [1]

    def interrupted(*args, **kwargs):
        if left:
            left.pop()
            signal.raise_signal(signal.SIGALRM)
        return original(*args, **kwargs)

    monkeypatch.setattr(where, name, interrupted)


INSIDE = [
    pytest.param("dynamo_lite.graph.core.fake.Propagator", "propagate", id="propagation"),
    pytest.param("dynamo_lite.variables.protocol.abstract", "call", id="interpretation"),
    pytest.param("dynamo_lite.graph.torch_runtime", "call_backend", id="before-the-backend"),
    pytest.param("torch._ops.OpOverload", "__call__", id="inside-an-operator"),
    pytest.param("dynamo_lite.frontend.analysis.Analysis", "_learn", id="after-a-break"),
]


def breaks_once(x):
    y = torch.relu(x) + 1
    print(end="")
    return y * 2


@pytest.mark.parametrize("where, name", INSIDE)
def test_what_a_signal_handler_raises_reaches_the_program(monkeypatch, caplog, alarm, where, name):
    compiled = dynamo_lite.compile(breaks_once, backend="aot_eager")
    with monkeypatch.context() as patch:
        raise_signal_in(patch, pkgutil.resolve_name(where.rpartition(".")[0] + ":" + where.rpartition(".")[2]), name)
        try:
            raise KeyError("handled by the program")
        except KeyError as outer:
            with pytest.raises(TimeOut, match="too late") as info:
                compiled(X)
            assert info.value.__context__ is outer
    functions = [entry.name for entry in info.traceback]
    assert functions[0] == "test_what_a_signal_handler_raises_reaches_the_program" and functions[-1] == "handler"
    assert len(functions) == 2
    assert signal.getsignal(signal.SIGALRM) is alarm
    assert not said(caplog) and gc.isenabled()
    assert torch.equal(compiled(X), breaks_once(X))
    assert not said(caplog)


def test_a_signal_handler_that_returns_or_installs_another_one(alarm, monkeypatch):
    seen = []

    def once(signum, frame):
        signal.signal(signal.SIGALRM, later)
        seen.append("once")

    def later(signum, frame):
        seen.append("later")

    signal.signal(signal.SIGALRM, once)
    signal.siginterrupt(signal.SIGALRM, False)
    compiled = dynamo_lite.compile(double, backend="eager")
    with monkeypatch.context() as patch:
        raise_signal_in(patch, analysis.Analysis, "_commit")
        assert torch.equal(compiled(X), X * 2)
    assert seen == ["once"] and signal.getsignal(signal.SIGALRM) is later


def test_what_another_thread_has_had_raised_reaches_the_program(monkeypatch, caplog):
    # A C function, so that the exception comes up in code of the engine.
    set_exception = functools.partial(
        ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.c_ulong(threading.get_ident()), ctypes.py_object(TimeOut)
    )
    compiled = dynamo_lite.compile(double, backend="eager")
    with monkeypatch.context() as patch:
        patch.setattr(analysis.kept, "is_on", set_exception)
        with pytest.raises(TimeOut):
            compiled(X)
    assert not said(caplog)
    assert torch.equal(compiled(X), X * 2)


def test_what_another_thread_has_had_raised_during_a_pure_function_is_not_taken_for_its_error():
    set_exception = functools.partial(ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.c_ulong(threading.get_ident()))
    once = functools.partial(next, map(set_exception, [ctypes.py_object(TimeOut)]), None)
    asked = []

    class Frame:
        def raises_like(self, error, among, again):
            asked.append(type(error))
            let_through(error, again)

    with pytest.raises(TimeOut):
        fold(Frame(), once, [], {})
    assert asked == [TimeOut]


def test_a_report_that_cannot_be_written_is_the_programs_to_know(monkeypatch, caplog):
    read, write = os.pipe()
    os.close(read)
    compiled = dynamo_lite.compile(double, backend="eager")
    with os.fdopen(write, "w", buffering=1) as nobody_reads, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", nobody_reads)
        with dynamo_lite.config.patch(timing=True), pytest.raises(BrokenPipeError):
            compiled(X)
        patch.undo()
        with contextlib.suppress(BrokenPipeError):
            nobody_reads.close()
    assert not said(caplog)
    assert torch.equal(compiled(X), X * 2)


def test_lack_of_memory_during_an_analysis_is_left_to_eager_execution(monkeypatch, caplog):
    def out_of_memory(self, tr):
        raise MemoryError

    compiled = dynamo_lite.compile(double, backend="eager")
    with monkeypatch.context() as patch:
        patch.setattr(analysis.Analysis, "_capture", out_of_memory)
        assert torch.equal(compiled(X), X * 2)
    assert not said(caplog) and not compiled.cache.entries
    compiled(X)
    assert len(compiled.cache.entries) == 1

    def allocates(x):
        try:
            return x, bytearray(1 << 60)
        except MemoryError:
            return x * 3

    compiled = dynamo_lite.compile(allocates, backend="eager")
    assert torch.equal(compiled(X), X * 3)
    assert not said(caplog)


def test_internal_error_runs_eagerly_and_is_logged_once(monkeypatch, caplog):
    def broken(self, result):
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(analysis.Codegen, "finish", broken)
    compiled = dynamo_lite.compile(double, backend="eager", isolate_recompiles=True)
    with caplog.at_level(logging.WARNING, "dynamo_lite"):
        for _ in range(3):
            assert torch.equal(compiled(X), X * 2)
    assert len(caplog.records) == 1
    assert "double" in caplog.text and "a bug of ours" in caplog.text
    with pytest.raises(dynamo_lite.exc.InternalTorchDynamoError, match="a bug of ours"):
        dynamo_lite.compile(double, backend="eager", fullgraph=True)(X)


def test_failing_backend_falls_back_with_one_warning_and_raises_under_fullgraph():
    def failing(gm, inputs):
        raise ValueError("no such kernel")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = dynamo_lite.compile(double, backend=failing)
        assert torch.equal(compiled(X), X * 2)
        assert torch.equal(compiled(X), X * 2)
    messages = [str(w.message) for w in caught if "failed" in str(w.message)]
    assert len(messages) == 1 and "failing" in messages[0] and "no such kernel" in messages[0]
    with pytest.raises(dynamo_lite.exc.BackendCompilerFailed):
        dynamo_lite.compile(double, backend=failing, fullgraph=True)(X)


def test_each_layer_that_breaks_has_a_recompile_limit_of_its_own(caplog):
    class Layer(torch.nn.Module):
        def __init__(self, i):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.i = i

        def forward(self, x):
            y = self.linear(x)
            dynamo_lite.graph_break()
            return torch.relu(y) + self.i

    class Model(torch.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.layers = torch.nn.ModuleList(map(Layer, range(n)))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    n = 2 * dynamo_lite.config.recompile_limit
    model, counter = Model(n), CompileCounter()
    compiled = dynamo_lite.compile(model, backend=counter)
    for batch in (3, 5, 7, 9):
        x = torch.ones(batch, 4)
        assert torch.equal(compiled(x), model(x))
        if batch == 5:
            versions = counter.frame_count
    assert versions >= 2 * n and counter.frame_count == versions
    assert not said(caplog)


def test_recompile_limit_runs_eagerly_with_one_warning(caplog):
    counter = CompileCounter()

    def f(x, name):
        return x + len(name)

    compiled = dynamo_lite.compile(f, backend=counter)
    with caplog.at_level(logging.WARNING, "dynamo_lite"):
        for i in range(12):
            name = "n" * i + str(i)
            assert torch.equal(compiled(X, name), f(X, name))
    assert counter.frame_count == dynamo_lite.config.recompile_limit
    assert len(caplog.records) == 1
    assert "name" in caplog.text and "limit" in caplog.text


def test_recompile_reason_names_the_users_expression():
    def f(x, table):
        return x * table["scale"]

    compiled = dynamo_lite.compile(f, backend="eager")
    compiled(X, {"scale": "a" and 2.0})
    compiled(X, {"scale": 3.0})
    (reason,) = [frame.recompile_reason for frame in log.snapshot() if frame.recompile_reason]
    assert "table['scale']" in reason and "2.0" in reason and "3.0" in reason


def test_threads_share_one_compilation():
    counter = CompileCounter()
    barrier = threading.Barrier(4)
    errors = []

    def f(x, n):
        for i in range(n):
            x = x * i + 1
        if x.sum() > 0:
            x = x + 1
        return x

    compiled = dynamo_lite.compile(f, backend=counter)

    def run(seed):
        try:
            barrier.wait()
            for i in range(100):
                x = torch.full((3 + i % 3,), float(seed))
                assert torch.equal(compiled(x, 3), f(x, 3))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (
        counter.frame_count <= 6
    )  # two graphs, each static at first and dynamic after the sizes changed, and one branch


def test_compiled_inside_compiled_is_one_graph():
    counter = CompileCounter()
    inner = dynamo_lite.compile(double, backend="eager")
    module = torch.nn.Linear(3, 3)
    wrapped = dynamo_lite.compile(module, backend="eager")
    outer = dynamo_lite.compile(lambda x: wrapped(inner(x)) + 1, backend=counter, fullgraph=True)
    assert torch.equal(outer(X), module(X * 2) + 1)
    assert counter.frame_count == 1


def test_together_with_torch_compile():
    ours = dynamo_lite.compile(double, backend="eager")
    theirs = torch.compile(lambda x: ours(x) + 1, backend="eager")
    assert torch.equal(theirs(X), X * 2 + 1)
    inner = torch.compile(lambda x: x * 3, backend="eager")
    outer = dynamo_lite.compile(lambda x: inner(x) + 1, backend="eager")
    assert torch.equal(outer(X), X * 3 + 1)
    assert torch.equal(outer(X), X * 3 + 1)


def test_model_is_freed_with_its_wrapper():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    compiled = dynamo_lite.compile(model, backend="eager")
    compiled(X)
    parameter, owner = weakref.ref(model[0].weight), weakref.ref(model)
    del model, compiled
    gc.collect()
    assert owner() is None and parameter() is None


def test_exception_in_a_graph_restores_the_ambient_state():
    def f(x, index):
        with torch.no_grad():
            return x[index] * 2

    compiled = dynamo_lite.compile(f, backend="eager")
    assert torch.equal(compiled(X, torch.tensor([0])), f(X, torch.tensor([0])))
    with pytest.raises(IndexError):
        compiled(X, torch.tensor([7]))
    assert torch.is_grad_enabled()


def test_deep_recursion_is_bounded():
    def down(x, n):
        return x if n == 0 else down(x + 1, n - 1)

    compiled = dynamo_lite.compile(down, backend="eager")
    assert torch.equal(compiled(X, 30), X + 30)
    assert torch.equal(compiled(X, 400), X + 400)
    with pytest.raises(RecursionError):
        compiled(X, 10**6)


SHORT_OF_MEMORY = '''
import _testcapi, functools
from dynamo_lite import _eval_frame
from dynamo_lite.frontend import convert
from dynamo_lite.config import config

def outcomes(call, places, count=1):
    """What the calls give if the n-th allocation, and so many after it, fail."""
    found = []
    for n in places:
        _testcapi.set_nomemory(n, n + count)
        try:
            result = call()
        except BaseException as error:
            _testcapi.remove_mem_hooks()
            result = type(error)
        else:
            _testcapi.remove_mem_hooks()
        found.append(result)
    return found

def code_objects():
    while True:
        yield (lambda x: x).__code__.replace(co_name="other")

def entry(code):
    return _eval_frame.Entry(_eval_frame.GuardProgram(((), (), 0)), code, None)

# The first cache of a code object; the mark on the code of an entry; the array of entries grows.
region, codes = _eval_frame.Region(), code_objects()
for n in range(12):
    code = next(codes)
    [found] = outcomes(lambda: region.cache_for(code), [n])
    assert found is MemoryError or type(found) is _eval_frame.Cache, found
    assert region.cache_for(code).code is code
cache = region.cache_for(next(codes))
for n in range(40):
    added, before = entry(cache.code.replace(co_name=f"version_{n}")), cache.entries
    for place in range(3):
        if outcomes(functools.partial(cache.add, added), [place])[0] is not MemoryError:
            break
        assert cache.entries == before
    assert set(cache.entries) == {*before, added}

# Guards, records of them, and calls with arguments of all kinds.
class C:
    def __init__(self, value):
        self.value, self.more = value, {"k": [value]}
    def method(self, x):
        return x + self.value

def inner(o, x):
    return o.method(x) + o.more["k"][0]

def f(o, numbers, table, *rest, last=1, **names):
    return inner(o, numbers[1]) + table["a"] + len(rest) + last + len(names)

for count in (1, 5, 3000):
    objects = [C(2) for _ in range(6)]
    with config.patch(capture_pure_python=True, suppress_errors=False):
        g = convert.Region(lambda gm, inputs: gm.forward).wrap(f)
        for o in objects:
            call = lambda: g(o, [1, 2], {"a": 7}, 1, 2, last=3, z=1)
            assert call() == 19, call()
            found = set(outcomes(call, range(60), count))
            assert found <= {MemoryError, 19}, found
            assert call() == 19
        for n in PLACES:
            g = convert.Region(lambda gm, inputs: gm.forward).wrap(f)
            call = lambda: g(objects[0], [1, 2], {"a": 7}, 1, 2, last=3, z=1)
            found = set(outcomes(call, [n], count))
            assert found <= {MemoryError, 19}, (n, count, found)
            assert call() == 19
'''


@pytest.mark.parametrize("first", range(4))
def test_allocations_that_fail(first):
    pytest.importorskip("_testcapi")
    if processes.crashes_without_memory():
        pytest.skip("this CPython crashes where it cannot allocate a generator (3.12.1, 3.13.0)")
    text = SHORT_OF_MEMORY.replace("PLACES", f"range({first} * 7, 2500, 28)")
    done = processes.run(["-X", "faulthandler", "-c", text])
    assert done.returncode == 0, done.stderr


def test_a_lock_that_cannot_be_allocated_is_a_lack_of_memory():
    """`_thread.allocate_lock` says so in its own way, and a context manager whose generator has lost its MemoryError."""
    assert is_lack_of_memory(RuntimeError("generator didn't yield"))
    assert is_lack_of_memory(RuntimeError("can't allocate lock"))
    assert not is_lack_of_memory(RuntimeError("can't allocate"))


INTERRUPTED_IMPORT = """
import signal, sys
import torch
import dynamo_lite

class Alarm:
    def find_spec(self, name, path=None, target=None):
        if name == "sympy.core":
            signal.raise_signal(signal.SIGUSR1)

class TimeOut(Exception):
    pass

def handler(signum, frame):
    raise TimeOut

signal.signal(signal.SIGUSR1, handler)
sys.meta_path.insert(0, Alarm())
assert "sympy" not in sys.modules
compiled = dynamo_lite.compile(lambda x: x * 2 + x.shape[0], backend="eager", dynamic=True)
try:
    compiled(torch.ones(3))
except TimeOut as error:
    print("timed out", error.__traceback__.tb_next is not None)
dynamo_lite.config.suppress_errors = False
print(compiled(torch.ones(4)).tolist())
"""


def test_a_handler_that_raises_while_a_module_is_imported():
    """The import is completed; the exception comes right after it."""
    done = processes.run(["-c", INTERRUPTED_IMPORT])
    assert done.stdout == "timed out True\n[6.0, 6.0, 6.0, 6.0]\n", done.stderr


class Dies:
    """Is told of by C, as a weak reference's callback is, when it goes: nobody can catch what comes up then."""

    def __del__(self):
        signal.raise_signal(signal.SIGALRM)


def test_a_handler_that_raises_where_there_is_no_unraisable_hook(alarm, monkeypatch):
    def commit(self, *args):
        signal.raise_signal(signal.SIGALRM)

    with monkeypatch.context() as patch:
        patch.setattr(analysis.Analysis, "_commit", commit)
        patch.delattr(sys, "unraisablehook")
        with pytest.raises(TimeOut, match="too late"):
            dynamo_lite.compile(double, backend="eager")(X)


@pytest.mark.parametrize("fails", [False, True])
def test_a_handler_that_raises_in_a_callback_of_c(alarm, monkeypatch, fails):
    def commit(self, *args, original=analysis.Analysis._commit):
        dies.clear()
        if fails:
            raise dynamo_lite.exc.InternalTorchDynamoError("something else")
        return original(self, *args)

    dies, hook = [Dies()], sys.unraisablehook
    with monkeypatch.context() as patch:
        patch.setattr(analysis.Analysis, "_commit", commit)
        with pytest.raises(TimeOut, match="too late"):
            dynamo_lite.compile(double, backend="eager")(X)
    assert sys.unraisablehook is hook


# -- python -b and -bb

BYTES_AND_TEXT = """
import torch
import dynamo_lite

@dynamo_lite.compile(backend="eager")
def loop(x, table):
    for key in table:
        x = x * table[key]
    return x, len(table)

@dynamo_lite.compile(backend="eager")
def make(x, text, other):
    if text:
        x = x + 1
    y = x.sum().item() > 0
    return x, [text, other], len(text), text == text, y

for key in b"a", "a", b"a", "a":
    for factor in 3, 4, 5:
        assert loop(torch.ones(2), {key: factor})[0].tolist() == [factor] * 2
for text, other in (b"a", "b"), ("a", b"b"), ("", b""), (b"", "x"), (b"abc", 2.5):
    assert make(torch.ones(2), text, other)[1] == [text, other]
assert dynamo_lite.explain(make)(torch.ones(2), b"a", "b").graph_count > 0
"""


@pytest.mark.parametrize("option", ["-b", "-bb"])
def test_tables_of_ours_never_compare_bytes_with_text(option):
    run = subprocess.run([sys.executable, option, "-c", BYTES_AND_TEXT], capture_output=True, text=True, timeout=120)
    assert (run.stdout, run.stderr, run.returncode) == ("", "", 0)
