"""Exceptions of signal handlers, and those that other threads have raised, while a compiled graph runs: they are errors of none of its
operators, nor of the backend."""

import ctypes
import functools
import signal
import threading
import time
import traceback
import warnings

import pytest
import torch

import dynamo_lite

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


def put(cls):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(cls))


@pytest.mark.parametrize(
    "interrupt",
    [lambda: signal.raise_signal(signal.SIGALRM), lambda: put(Stop), lambda: put(TimeoutError)],
    ids=["signal", "other thread", "other thread, class of Python"],
)
def test_an_interrupted_backend_is_not_replaced(handled, interrupt):
    def f(x, seen):
        seen.append(1)
        return x + 1

    handled(HANDLERS["method"])
    captured, seen = dynamo_lite.compile(f, backend=interrupted_once(interrupt)), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((Stop, TimeoutError)):
            captured(torch.ones(2), seen)
        assert captured(torch.ones(2), seen).tolist() == [2, 2]
    assert seen == [1]


@pytest.mark.parametrize("error", [Stop(), KeyboardInterrupt()], ids=repr)
def test_the_blocks_around_a_graph_break(handled, error):
    lock, seen, armed = threading.Lock(), [], []

    def backend(gm, inputs):
        def run(*args):
            if armed:
                armed.pop()
                signal.raise_signal(signal.SIGALRM)
            return gm.forward(*args)

        return run

    def inner(x):
        with lock:
            dynamo_lite.graph_break()
            return x * 2

    @dynamo_lite.compile(backend=backend)
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

        def interrupted(*args, forward=gm.forward):
            calls.append(1)
            signal.raise_signal(signal.SIGALRM)
            return forward(*args)

        gm.forward = interrupted
        return run

    handled(HANDLERS["object"])
    with pytest.raises(Stop):
        dynamo_lite.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert calls == [1]
