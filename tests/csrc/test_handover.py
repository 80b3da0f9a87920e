"""Values that guards hand over to a GraphCall, on the C level: plain calls, hook frames, failures, lifetimes. Needs no torch."""

import gc
import sys
import types
import weakref

import pytest

from dynamo_lite._eval_frame import Callable, Entry, GraphCall, GuardProgram, Region, set_region
from dynamo_lite.guards.kinds import KINDS


class Value:
    pass


class Holder:
    def __init__(self, name):
        self.value = Value()
        self.value.name = name


def template(holder, x):
    graph = "graph"
    return graph(x)


def failing_template(holder, x):
    x = x + 1
    graph = "graph"
    return graph(x)


def program(graph, extra=()):
    """Hands over holder.value. `extra`: a check of x, evaluated after it."""
    value = (KINDS["DICT_ITEM"], "value", ((KINDS["TYPE_IS"], Value, 1), (KINDS["SAVE"], 0, 1)), ())
    fields = (KINDS["INSTANCE_DICT"], None, (), (value,))
    holder = (KINDS["LOCAL"], 0, ((KINDS["TYPE_IS"], Holder, 0),), (fields,))
    x = ((KINDS["LOCAL"], 1, extra, ()),) if extra else ()
    return GuardProgram(((holder, *x), (), 1), graph, (0,))


class Handing(Region):
    """Compiles a function to a call of `self.run(holder.value, x)`."""

    def __init__(self, run=lambda value, x: (value.name, x), source=template, extra=()):
        super().__init__()
        self.graph = GraphCall(run, 2, (0,))
        self.source = source.__code__
        self.extra = extra

    def callback(self, cache, fn, values):
        if fn is not function:
            return None
        consts = tuple(self.graph if c == "graph" else c for c in self.source.co_consts)
        entry = Entry(program(self.graph, self.extra), self.source.replace(co_consts=consts), None, True)
        cache.add(entry)
        return entry


def function(holder, x):
    return "original", x


def compiled(region):
    return Callable(function, region.cache_for(function.__code__))


def test_first_call_fast_path_and_replaced_values():
    f = compiled(Handing())
    a, b = Holder("a"), Holder("b")
    for _ in range(4):
        assert f(a, 1) == ("a", 1)
        assert f(x=2, holder=b) == ("b", 2)
    a.value = b.value
    assert f(a, 3) == ("b", 3)
    assert len(f.cache.entries) == 1


def test_hook_frames():
    region = Handing()
    a, b = Holder("a"), Holder("b")

    def inner():
        return [function(h, i) for i, h in enumerate((a, b, a, b))]

    previous = set_region(region)
    try:
        results = [inner() for _ in range(3)]
    finally:
        set_region(previous)
    assert results == [[("a", 0), ("b", 1), ("a", 2), ("b", 3)]] * 3


def test_what_is_not_taken_is_dropped():
    f = compiled(Handing(source=failing_template))
    a = Holder("a")
    assert f(a, 1) == ("a", 2)
    before = sys.getrefcount(a.value)
    for _ in range(3):
        with pytest.raises(TypeError):
            f(a, "text")
    after = sys.getrefcount(a.value)
    assert after == before
    value = weakref.ref(a.value)
    del a
    gc.collect()
    assert value() is None


def test_recursion_and_exceptions_in_the_graph():
    holders = [Holder(i) for i in range(5)]
    deepest = []

    def run(value, n):
        if n == 0:
            if deepest:
                raise ZeroDivisionError
            return [value.name]
        return [value.name, *f(holders[n - 1], n - 1)]

    f = compiled(Handing(run))
    for _ in range(3):
        assert f(holders[4], 4) == [4, 3, 2, 1, 0]
    deepest.append(1)
    with pytest.raises(ZeroDivisionError):
        f(holders[4], 4)
    deepest.clear()
    assert f(holders[4], 4) == [4, 3, 2, 1, 0]


def test_calls_between_guards_and_graph():
    class Adds:
        """x + 1 calls the same function with another holder."""

        def __add__(self, other):
            assert f(b, 5) == ("b", 6)
            return "sum"

    a, b = Holder("a"), Holder("b")
    f = compiled(Handing(source=failing_template))
    for _ in range(4):
        assert f(a, Adds()) == ("a", "sum")


def test_a_guard_replaces_the_value_after_it_was_found():
    """The graph gets the object that was checked, alive, whatever guards do afterwards."""
    a = Holder("a")
    armed = []

    def predicate(x):
        if armed:
            a.value = Value()
            a.value.name = "new"
            gc.collect()
        return True

    f = compiled(Handing(extra=((KINDS["PYTHON"], predicate, 2),)))
    for _ in range(3):
        assert f(a, 1) == ("a", 1)
    armed.append(1)
    for _ in range(3):
        assert f(a, 1)[0] in ("a", "new")


def test_a_fresh_entry_that_does_not_hold_runs_the_original():
    class Wrong(Handing):
        def callback(self, cache, fn, values):
            entry = super().callback(cache, fn, values)
            values[0].value = None
            return entry

    f = compiled(Wrong())
    assert f(Holder("a"), 1) == ("original", 1)


def test_code_outside_of_its_entry():
    region = Handing()
    f = compiled(region)
    a = Holder("a")
    assert f(a, 1) == ("a", 1)
    with pytest.raises(RuntimeError, match="only through the function"):
        types.FunctionType(f.cache.entries[0].code, {})(a, 1)
    with pytest.raises(TypeError, match="takes 1 positional"):
        region.graph(1, 2)
    with pytest.raises(TypeError, match="takes 1 positional"):
        region.graph(x=1)


def test_lifetimes():
    class Run:
        def __call__(self, value, x):
            return value.name

    run = Run()
    region = Handing(run)
    f = compiled(region)
    a = Holder("a")
    for _ in range(3):
        assert f(a, 1) == "a"
    run.cycle = f  # compiled graph → callable → cache → entry → code → graph call → compiled graph
    refs = [weakref.ref(o) for o in (run, a.value, region)]
    del a
    gc.collect()
    assert refs[1]() is None, "the entry keeps nothing that it has handed over"
    del run, region, f
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3
