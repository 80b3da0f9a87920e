"""Exceptions of signal handlers, and those that other threads have raised, while a compiled graph runs: they are errors of none of its
operators, nor of the backend."""

import ctypes
import functools
import gc
import queue
import signal
import threading
import time
import traceback
import warnings
import weakref
from types import FunctionType

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.handed import captured_of

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")


class Stop(Exception):
    pass


class Told(Exception):
    def __init__(self):
        super().__init__("stopped")


class Handler:
    def __init__(self, error):
        self.error = error

    def method(self, number, frame):
        raise self.error

    def __call__(self, *args):
        self.method(*args)


def many(x):
    for i in range(400):
        x = torch.relu(x) + i
    return x


HANDLERS = {
    "method": Handler(Stop()).method,
    "object": Handler(Stop()),
    "class of Python": Handler(TimeoutError("late")),
    "partial": functools.partial(lambda error, number, frame: Handler(error)(number, frame), Stop("s")),
}


@pytest.fixture
def handled():
    """Installs a handler for the test."""
    previous = signal.getsignal(signal.SIGALRM)
    yield lambda handler: signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_signal_while_a_graph_runs(handled, handler, backend):
    captured, x = dynamo_lite.compile(many, backend=backend, fullgraph=True), torch.ones(2)
    expected = captured(x)
    handled(handler)
    for _ in range(3):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        ends = time.monotonic() + 20
        with pytest.raises((Stop, TimeoutError)) as caught:
            while time.monotonic() < ends:
                captured(x)
        assert not hasattr(caught.value, "__notes__")
    assert torch.equal(captured(x), expected)


def interrupted_once(interrupt):
    """A backend whose graphs are interrupted at their first call."""
    todo = [interrupt]

    def backend(gm, inputs):
        def run(*args):
            if todo:
                todo.pop()()
            return gm.forward(*args)

        return run

    return backend


def put_here(cls):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(cls))


put = FunctionType(put_here.__code__, {"ctypes": ctypes, "threading": threading})  # of no module, as code of graphs


def put_in_a_loop(cls):
    threading.Thread(target=put_in, args=(threading.get_ident(), cls)).start()
    while True:
        pass


def put_in(ident, cls):
    time.sleep(0.05)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(cls))


@pytest.mark.parametrize(
    "interrupt",
    [
        lambda: signal.raise_signal(signal.SIGALRM),
        lambda: put(Stop),
        lambda: put(TimeoutError),
        lambda: put_in_a_loop(TimeoutError),
    ],
    ids=["signal", "other thread", "other thread, class of Python", "other thread, in a loop of the backend"],
)
def test_an_interrupted_backend_is_not_replaced(handled, interrupt):
    def f(x, seen):
        seen.append(1)
        return x + 1

    handled(HANDLERS["method"])
    captured, seen = dynamo_lite.compile(f, backend=interrupted_once(interrupt)), []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises((Stop, TimeoutError)):
            captured(torch.ones(2), seen)
        assert captured(torch.ones(2), seen).tolist() == [2, 2]
    assert seen == [1] and not warned


def raising_once(armed):
    """A backend whose code raises the signal when it runs, as often as there are items in a list."""

    def backend(gm, inputs):
        def run(*args):
            if armed:
                armed.pop()
                signal.raise_signal(signal.SIGALRM)
            return gm.forward(*args)

        return run

    return backend


@pytest.mark.parametrize("error", [Stop(), KeyboardInterrupt()], ids=repr)
def test_the_blocks_around_a_graph_break(handled, error):
    lock, seen, armed = threading.Lock(), [], []

    def inner(x):
        with lock:
            dynamo_lite.graph_break()
            return x * 2

    @dynamo_lite.compile(backend=raising_once(armed))
    def f(x, n):
        try:
            y = inner(x)
            return y + n
        except (Stop, KeyboardInterrupt) as caught:
            return caught, lock.locked()
        finally:
            seen.append(n)

    handled(Handler(error))
    x = torch.ones(2)
    assert f(x, 1).tolist() == [3, 3]
    armed.append(1)
    assert f(x, 1) == (error, False)
    names = [entry.name for entry in traceback.extract_tb(error.__traceback__)]
    assert names[:2] == ["f", "inner"] and names.count("inner") == 1
    assert seen == [1, 1]
    assert f(x, 1).tolist() == [3, 3]


@pytest.mark.parametrize("cls", [Stop, Told, TimeoutError])
def test_another_thread_has_an_exception_raised_in_a_graph(cls):
    captured, x, ended = dynamo_lite.compile(many, backend="eager"), torch.ones(2), []
    captured(x)

    def work():
        ends = time.monotonic() + 20
        try:
            while time.monotonic() < ends:
                captured(x)
        except cls:
            ended.append(time.monotonic() < ends)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.05)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(cls))
    thread.join()
    assert ended == [True]


def test_a_signal_while_it_is_found_out_what_has_failed(handled):
    """The graph runs without its backend, to see whether that raises as well."""
    calls = []

    def backend(gm, inputs):
        def run(*args):
            raise ValueError("no kernel")

        captured = captured_of(gm)

        def interrupted(*args, forward=captured.forward):
            calls.append(1)
            signal.raise_signal(signal.SIGALRM)
            return forward(*args)

        captured.forward = interrupted
        return run

    handled(HANDLERS["object"])
    with pytest.raises(Stop):
        dynamo_lite.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert calls == [1]


def test_a_backend_that_fails_without_a_message():
    """A C function raises what it is given, as exceptions of other threads are raised."""

    def backend(gm, inputs):
        def run(*args):
            (_ for _ in ()).throw(KeyError())

        return run

    with pytest.warns(UserWarning, match="failed at run time"):
        assert dynamo_lite.compile(lambda x: x + 1, backend=backend)(torch.ones(2)).tolist() == [2, 2]


@torch.library.custom_op("test_interrupted_graphs::pop", mutates_args=())
def pop(x: torch.Tensor) -> torch.Tensor:
    queue.SimpleQueue().get(False)
    return x.clone()


@pop.register_fake
def _(x):
    return torch.empty_like(x)


def test_an_operator_that_fails_without_a_message():
    def f(x, log):
        y = x * 3
        try:
            dynamo_lite.graph_break()
            log.append("inside")
            y = y * 3
        except queue.Empty:
            log.append("handled")
            return x
        return pop(y)

    log = []
    with pytest.raises(queue.Empty):
        dynamo_lite.compile(f, backend="eager")(torch.ones(2), log)
    assert "handled" not in log


def without_arguments(number, frame):
    del number, frame
    raise Stop


class WithoutArguments:
    def method(self, number, frame):
        del number, frame
        raise Stop

    __call__ = method


@pytest.mark.parametrize(
    "handler",
    [without_arguments, WithoutArguments().method, WithoutArguments(), functools.partial(without_arguments)],
    ids=["function", "method", "object", "partial"],
)
def test_a_handler_that_deletes_its_arguments(handled, handler):
    handled(handler)
    backend = interrupted_once(lambda: signal.raise_signal(signal.SIGALRM))
    with pytest.raises(Stop):
        dynamo_lite.compile(lambda x: x + 1, backend=backend)(torch.ones(2))


@pytest.mark.parametrize("inlined", [False, True])
def test_an_interruption_is_not_kept(handled, inlined):
    class Thing:
        pass

    def inner(x, thing):
        dynamo_lite.graph_break()
        return x * 2

    def outer(x, thing):
        return inner(x, thing) + 1

    def stop(number, frame):
        raise Stop

    def interrupt():
        thing = Thing()
        armed.append(1)
        try:
            captured(x, thing)
        except Stop:
            return weakref.ref(thing)

    armed, x = [], torch.ones(2)
    captured = dynamo_lite.compile(outer if inlined else inner, backend=raising_once(armed))
    captured(x, Thing())
    handled(stop)
    thing = interrupt()
    assert thing is not None and not armed
    gc.collect()
    assert thing() is None
