"""Disturbances of a running program that the harness makes: signals, too little memory, too little stack; and their ends.

Input: the globals of a program, which say what shall happen (`TICKS`, `DISTURBED`, `on_signal`). Invariant: after `restored` builtins,
signal handlers, hooks and limits are what they were.
"""

import builtins
import contextlib
import signal
import sys
import types

from dynamo_lite._eval_frame import Uncaptured
from dynamo_lite.exc import TorchDynamoException
from tests.helpers import processes

try:
    import _testcapi
except ImportError:  # some distributions leave it out
    _testcapi = None

BUILTINS = ("abs", "sum", "divmod", "round", "ord", "missing")
MISSING = object()


class Interrupt(BaseException):
    """What an impatient handler raises."""


class TimeOut(Exception):
    """What a handler for time-outs raises."""


def module():
    """A module of the program's own."""
    made = types.ModuleType("fuzz_mod")
    made.value = 5
    made.fn = lambda x: x
    sys.modules["fuzz_mod"] = made
    return made


@contextlib.contextmanager
def restored(names):
    """Undo what a program may change outside of its globals."""
    replaced = {name: getattr(builtins, name, MISSING) for name in BUILTINS}
    handler = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    imported = sys.modules.get("fuzz_mod", MISSING)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, handler)
        for name, value in replaced.items():
            if value is not MISSING:
                setattr(builtins, name, value)
            elif hasattr(builtins, name):
                delattr(builtins, name)
        if imported is not MISSING:
            sys.modules["fuzz_mod"] = imported
        for handle in names["HANDLES"]:
            handle.remove()
        if "torch" in names:
            names["torch"].set_default_dtype(names["torch"].float32)


def install(names):
    """Install the program's signal handler."""
    if "on_signal" in names:
        signal.signal(signal.SIGUSR1, names["on_signal"])


@contextlib.contextmanager
def ticking(seconds):
    """Have a handler that only counts run all the time."""
    if not seconds:
        yield
        return
    ticks = []
    before = signal.signal(signal.SIGPROF, Uncaptured(lambda signum, frame: ticks.append(None)))
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def interrupted(seconds, is_error):
    """Raise an exception in the block after some time."""

    def handler(signum, frame):
        raise TimeOut if is_error else Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    left = signal.setitimer(signal.ITIMER_REAL, seconds, 5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left)


@contextlib.contextmanager
def short_of_memory(first, count):
    """The allocations from the given number on fail, so many of them; none where CPython itself crashes by that."""
    if _testcapi is None or processes.crashes_without_memory():
        yield
        return
    end = _testcapi.remove_mem_hooks
    _testcapi.set_nomemory(first, first + count)
    try:
        yield
    finally:
        end()


@contextlib.contextmanager
def short_of_stack(frames):
    """Allow so many more frames."""
    before, depth, frame = sys.getrecursionlimit(), 0, sys._getframe()
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    try:
        sys.setrecursionlimit(depth + frames)
    except RecursionError:
        pass  # C calls count as well
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


WAYS = {"interrupt": interrupted, "memory": short_of_memory, "recursion": short_of_stack}


def undergo(fn, arguments, step):
    """Call while something happens. Only an error of the engine is a result."""
    way, *amounts = step
    try:
        with WAYS[way](*amounts):
            fn(*arguments)
    except TorchDynamoException:
        raise
    except (Interrupt, Exception):
        pass
