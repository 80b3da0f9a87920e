"""Inputs that a graph releases while it runs, on the C level: whose references are taken, and when none is. Needs no torch."""

import contextvars
import functools
import sys
import types
import weakref

import pytest

from dynamo_lite._eval_frame import Callable, Entry, GraphCall, GuardProgram, Region


class Thing:
    pass


def original(x):
    raise AssertionError("the entry fits every call")


def template(x):
    graph = "graph"
    return graph(x)


def releasing(run, on_failure=None):
    """A function whose variable, the argument, may be released; what its graph gets otherwise; the call of the graph."""
    plain = []
    call = GraphCall(lambda *args: plain.append(args) or "plain", 1, (), *([] if on_failure is None else [on_failure]))
    call.release(run, (0,))
    consts = tuple(call if c == "graph" else c for c in template.__code__.co_consts)
    cache = Region(None).cache_for(original.__code__)
    cache.add(Entry(GuardProgram(((), (), 0)), template.__code__.replace(co_consts=consts), None))
    return Callable(original, cache), plain, call


def call_with_a_new_thing(code):
    """`assert` would keep the argument."""
    return code(Thing())


def test_a_graph_gets_the_last_references():
    died = []

    def run(inputs):
        ref = weakref.ref(inputs[0], died.append)
        inputs.clear()
        return ref() is None, len(died)

    code, plain, call = releasing(run)
    assert call.boxed is run
    assert call.dropped == (0,)
    assert [call_with_a_new_thing(code) for _ in range(10)] == [(True, i) for i in range(1, 11)]
    assert plain == []


def test_arguments_by_keyword_and_of_methods():
    code, _, _ = releasing(lambda inputs: "released")
    keyword = [code(x=Thing()) for _ in range(3)]
    bound = types.MethodType(code, Thing())
    assert keyword == ["released"] * 3
    assert bound() == "plain"  # the method holds the object


def test_what_somebody_else_holds_is_not_released():
    code, plain, _ = releasing(lambda inputs: "released")
    thing = Thing()
    found = [code(thing), code(*[thing]), code(**{"x": Thing()}), next(map(code, [Thing()]))]
    found += [functools.partial(code)(Thing()), contextvars.copy_context().run(code, Thing())]
    assert found == ["plain"] * 6
    assert [args[0] for args in plain[:2]] == [thing, thing]


def test_nothing_is_released_where_another_code_calls_the_graph():
    _, plain, call = releasing(lambda inputs: "released")
    thing = Thing()
    given = [thing]
    del thing

    def other(x):
        return call(x)

    found = [other(Thing()), *map(call, given), types.MethodType(call, Thing())(), call(Thing())]
    assert found == ["plain"] * 4
    assert len(plain) == 4


def test_nothing_is_released_under_a_profiler_or_a_tracer():
    code, _, call = releasing(lambda inputs: "released")
    for switch in (sys.setprofile, sys.settrace):
        previous = sys.gettrace() if switch is sys.settrace else sys.getprofile()
        switch(lambda *args: None)
        try:
            found = call_with_a_new_thing(code)
        finally:
            switch(previous)
        assert found == "plain"
    assert call_with_a_new_thing(code) == "released"


def test_another_compiled_graph_takes_the_place_of_the_boxed_one():
    code, _, call = releasing(lambda inputs: "released")
    assert call_with_a_new_thing(code) == "released"
    call.compiled = lambda x: "new"
    assert call_with_a_new_thing(code) == "new"
    assert call.boxed is None


def test_what_a_boxed_graph_leaves_in_its_list_dies_after_it():
    refs = []
    code, _, call = releasing(lambda inputs: refs.append(weakref.ref(inputs[0])))
    code(Thing())
    assert refs[0]() is None


@pytest.mark.parametrize("answer", [False, True, "results"])
def test_a_frame_that_has_released_inputs_does_not_start_again(answer):
    def run(inputs):
        raise ValueError

    asked = []

    def on_failure(call, error, args):
        asked.append((type(error), args))
        return answer

    code, _, call = releasing(run, on_failure)
    with pytest.raises(ValueError):
        code(Thing())
    assert asked == [(ValueError, None)]
