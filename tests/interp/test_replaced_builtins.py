"""Programs that replace builtins and functions of the standard library: captured code sees them, the engine does not."""

import builtins
import contextlib
import gc
import sys
import threading
import time
import types

import pytest

from dynamo_lite import own_builtins
from dynamo_lite.config import config
from dynamo_lite.interp.frame import Frame
from dynamo_lite.record import log
from tests.helpers.capturing import captured, same, wrapped

SETTINGS = {"capture_pure_python": True, "debug": True}  # a failure of the engine is an error


@contextlib.contextmanager
def replaced(name, value):
    original = builtins.__dict__[name]
    builtins.__dict__[name] = value
    try:
        yield
    finally:
        builtins.__dict__[name] = original


def test_the_package_has_its_own():
    assert Frame.run.__builtins__ is own_builtins.OWN is not builtins.__dict__
    assert own_builtins.are_intact()


def test_replaced_between_calls():
    run = captured(lambda x: len(x) + 1)
    assert run([1, 2]) == 3
    with replaced("len", lambda x: 100):
        result = run([1, 2])
    assert result == 101
    assert run([1, 2]) == 3


def test_replaced_during_the_call():
    def f(x):
        original = builtins.len
        first = len(x)
        builtins.len = lambda x: 50
        try:
            second = len(x)
        finally:
            builtins.len = original
        return first, second, len(x)

    assert captured(f)([1]) == (1, 50, 1)


EVERYTHING = [name for name in own_builtins._SHARED if name not in ("BaseException", "Exception", "RuntimeError")]


def test_all_functions_replaced_while_captured_code_runs():
    names = builtins.__dict__
    functions = {name: names[name] for name in EVERYTHING if isinstance(names[name], types.BuiltinFunctionType)}
    broken = dict.fromkeys(functions)

    def f(x):
        builtins.__dict__.update(broken)
        try:
            made = [k + 1 for k in x]
            iterator = made.__iter__()
            iterator.__next__()
            table = {k: str(k) for k in made}
            g = (k for k in table.values())
        finally:
            builtins.__dict__.update(functions)
        return made, list(iterator), table, list(g)

    for run in (f, captured(f)):
        assert run([1, 2]) == ([2, 3], [3], {2: "2", 3: "3"}, ["2", "3"])


def test_a_replaced_print_does_not_end_capture():
    run = captured(lambda x: x + 1)
    log.reset()
    with replaced("print", lambda *args: None):
        assert run(1) == 2
    assert len(log.snapshot()) == 1


def test_while_isinstance_is_broken_nothing_is_captured():
    run = wrapped(lambda x: x + 1)
    log.reset()
    with config.patch(capture_pure_python=True), replaced("isinstance", None):
        result = run(1)
    assert result == 2
    assert not log.snapshot()


def test_import_hook_is_called():
    seen = []
    original = builtins.__import__

    def hook(name, *rest):
        seen.append(name)
        return original(name, *rest)

    def f():
        import math

        return math.pi

    run = captured(f)
    run()
    with replaced("__import__", hook):
        for _ in range(2):
            run()
    assert seen == ["math"] * 2


def test_import_finds_what_is_in_sys_modules(monkeypatch):
    def f():
        import colorsys

        return colorsys

    run = captured(f)
    stand_in = types.ModuleType("colorsys")
    import colorsys

    assert run() is colorsys
    monkeypatch.setitem(sys.modules, "colorsys", stand_in)
    assert run() is stand_in
    monkeypatch.setitem(sys.modules, "colorsys", None)
    with pytest.raises(ModuleNotFoundError):
        run()


def test_class_statement_calls_what_the_builtins_have():
    original = builtins.__build_class__
    made = []

    def build(body, name, *bases, **keywords):
        made.append(name)
        return original(body, name, *bases, **keywords)

    def f():
        class A:
            pass

        return A.__name__

    with replaced("__build_class__", build):
        assert captured(f)() == "A"
    assert made == ["A"]


def test_functions_keep_the_builtins_they_were_made_with():
    namespace = {}
    exec("def f(): return len((1, 2))", namespace)
    run = captured(namespace["f"])
    assert run() == 2
    namespace["__builtins__"] = {"len": lambda x: 7}
    assert run() == 2
    exec("def g(): return len((1, 2))", namespace)
    assert captured(namespace["g"])() == 7


def test_replaced_clock_and_collector_are_not_touched(monkeypatch):
    def forbidden(*args):
        raise AssertionError("called by the engine")

    run = captured(lambda x: x + 1)
    for module, name in ((time, "perf_counter"), (time, "time"), (gc, "disable"), (gc, "enable"), (gc, "isenabled")):
        monkeypatch.setattr(module, name, forbidden)
    monkeypatch.setattr(sys, "setrecursionlimit", forbidden)
    assert run(1) == 2


@pytest.mark.parametrize("collects", [True, False])
def test_the_process_is_left_as_it_was(collects):
    limit = sys.getrecursionlimit()
    barrier = threading.Barrier(4)
    (gc.enable if collects else gc.disable)()
    try:

        def work(k):
            code = compile(f"def f(x):\n return [x + i for i in range({k})]", f"<work {k}>", "exec")
            namespace = {}
            exec(code, namespace)
            barrier.wait()
            assert wrapped(namespace["f"])(1) == [1 + i for i in range(k)]

        threads = [threading.Thread(target=work, args=(200 + i,)) for i in range(4)]
        with config.patch(SETTINGS):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert gc.isenabled() is collects
        assert sys.getrecursionlimit() == limit
    finally:
        gc.enable()


class TestReplacedForAWhile:
    def test_builtin_replaced_for_a_while(self):
        @contextlib.contextmanager
        def swapped():
            real = builtins.hex
            builtins.hex = 5
            try:
                yield
            finally:
                builtins.hex = real

        def program():
            with swapped():
                x = hex
            return hex, x

        same(program)

    def test_dictionary_of_a_module(self):
        def program():
            names = builtins.__dict__
            real = names["hex"]
            del names["hex"]
            try:
                return hex
            except NameError:
                return "gone"
            finally:
                names["hex"] = real

        same(program)
