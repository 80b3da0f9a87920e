"""Exceptions that come up while what follows a graph break is captured: the blocks around the break have their turn."""

import signal
import sys
import threading
import traceback

import pytest
import torch

import dynamo_lite


class Stop(Exception):
    pass


def stop(number, frame):
    raise Stop("late")


@pytest.fixture(params=[stop, signal.default_int_handler], ids=["Exception", "KeyboardInterrupt"])
def armed(request):
    """A backend that is interrupted at its next call where it is armed."""
    previous = signal.signal(signal.SIGINT, request.param)
    times = []

    def backend(gm, inputs):
        if times:
            times.pop()
            signal.raise_signal(signal.SIGINT)
        return gm

    backend.times = times
    yield backend
    signal.signal(signal.SIGINT, previous)


ERRORS = (Stop, KeyboardInterrupt)


def test_a_with_block(armed):
    lock = threading.Lock()

    @dynamo_lite.compile(backend=armed)
    def f(x):
        with lock:
            dynamo_lite.graph_break()
            return x + 1

    for _ in range(2):
        armed.times[:] = [1]
        with pytest.raises(ERRORS) as caught:
            f(torch.ones(1))
        assert not lock.locked()
        names = [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]
        assert "f" in names
        assert not any(
            "dynamo_lite/" in e.filename for e in traceback.extract_tb(caught.tb) if "tests" not in e.filename
        )
    armed.times.clear()
    assert f(torch.ones(1)).tolist() == [2]


def test_except_and_finally(armed):
    seen = []

    @dynamo_lite.compile(backend=armed)
    def f(x, n):
        y = x * 2
        try:
            armed.times[:] = [1]
            dynamo_lite.graph_break()
            return y + n
        except ERRORS as error:
            return y.tolist(), n, type(error) in ERRORS, error.__context__
        finally:
            seen.append(n)

    assert f(torch.ones(1), 3) == ([2.0], 3, True, None)
    assert seen == [3]


def test_in_a_handler(armed):
    @dynamo_lite.compile(backend=armed)
    def f(x):
        try:
            raise ValueError("first")
        except ValueError:
            try:
                armed.times[:] = [1]
                dynamo_lite.graph_break()
                return x + 1
            except ERRORS as error:
                return repr(error.__context__), repr(sys.exception().__context__)

    assert f(torch.ones(1)) == ("ValueError('first')",) * 2


def test_in_an_inlined_function(armed):
    seen = []

    def inner(x):
        try:
            armed.times[:] = [1]
            dynamo_lite.graph_break()
            return x + 1
        finally:
            seen.append("inner")

    @dynamo_lite.compile(backend=armed)
    def f(x):
        try:
            y = inner(x)
        except ERRORS:
            seen.append("outer")
            y = x
        return y * 2

    assert f(torch.ones(1)).tolist() == [2]
    assert seen == ["inner", "outer"]


def test_variables_of_the_frame(armed):
    @dynamo_lite.compile(backend=armed)
    def f(x, n):
        def number():
            return n

        for i in range(2):
            kept = [i, n]
            try:
                armed.times[:] = [1] if i else []
                dynamo_lite.graph_break()
                x = x + 1
            except ERRORS:
                n += 1
                return number(), kept, x.tolist()
        return x

    assert f(torch.ones(1), 5) == (6, [1, 5], [2.0])


def test_where_no_block_is(armed):
    @dynamo_lite.compile(backend=armed)
    def f(x):
        armed.times[:] = [1]
        dynamo_lite.graph_break()
        return x + 1

    with pytest.raises(ERRORS) as caught:
        f(torch.ones(1))
    assert [e.name for e in traceback.extract_tb(caught.value.__traceback__)][1] == "f"
