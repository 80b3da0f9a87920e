"""KeyboardInterrupt at any moment of an analysis: it reaches the program, and everything works afterwards."""

import gc
import random
import signal
import sys
import time

import pytest

from dynamo_lite import _eval_frame
from dynamo_lite.config import config
from dynamo_lite.signals import HandlerRaised, relayed
from tests.helpers.capturing import new_region

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers"),
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),  # an interrupt of a weak reference's callback
]


class Item:
    def __init__(self, x):
        self.x = x

    def plus(self, y):
        return self.x + y


@_eval_frame.Uncaptured
def stop(x):
    return x


def program(n, table):
    items = [Item(i) for i in range(n)]
    total = 0
    for item in items:
        total += item.plus(1)
    table["total"] = total
    stop(total)
    try:
        raise ValueError(total)
    except ValueError as error:
        args = error.args
    return [total, args, sorted(table)]


def new():
    region = new_region()
    return region, region.wrap(program)


def interrupt(signum, frame):
    raise KeyboardInterrupt


def test_interrupts_at_random_moments():
    previous = signal.signal(signal.SIGALRM, interrupt)
    limit, expected, rng = sys.getrecursionlimit(), program(5, {}), random.Random(1)
    interrupts = 0
    try:
        with config.patch(capture_pure_python=True, suppress_errors=False):
            started = time.perf_counter()
            new()[1](5, {})
            duration = time.perf_counter() - started
            for _ in range(60):
                region, captured = new()
                try:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, duration))
                        captured(5, {})
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    interrupts += 1
                assert gc.isenabled()
                assert sys.getrecursionlimit() == limit
                assert _eval_frame.set_region(None) is None
                for _ in range(2):
                    table = {}
                    assert captured(5, table) == expected
                    assert table == {"total": 15}
                assert region.cache_for(program.__code__).entries
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert interrupts > 5


def test_all_handlers_are_put_back_whatever_one_of_them_raises_meanwhile():
    armed, raised = [], []

    def timed_out(signum, frame):
        if armed:
            raised.append(armed.pop())
            raise TimeoutError

    def idle(signum, frame):
        pass

    handlers = {signal.SIGUSR1: idle, signal.SIGALRM: timed_out, signal.SIGPROF: idle}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    try:
        while len(raised) < 300:
            try:
                armed.append(True)
                with relayed():
                    pass
                armed.clear()
            except (HandlerRaised, TimeoutError):
                pass
            assert {number: signal.getsignal(number) for number in handlers} == handlers
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)
