"""Variables that nothing reads behind a graph break keep what they hold to the end of the function, as in eager execution.

The sweep has a new object of each kind that holds the last reference to another one, and each kind of break.
"""

import textwrap
import weakref

import pytest
import torch

import dynamo_lite

PREFIX = """
import collections, functools, itertools, types, weakref
import dynamo_lite

class Held:
    def method(self):
        return 1

class Box:
    def __init__(self, held):
        self.held = held

class Context:
    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None

@dynamo_lite.disable
def stop(*args):
    return None

@dynamo_lite.disable
def fail():
    raise ValueError

def breaks():
    stop()
    return 1

def closure_of(held):
    def inner():
        return held
    return inner

def generator_of(held):
    yield held

def call(function):
    held = Held()
    ref, box = weakref.ref(held), [held]
    del held
    return function(box, ref)
"""

PROGRAM = """
def f(box, ref):
    held = box.pop()
    unread = {kind}
    {also}
    held = None
    {breaks}
    first = ref() is None
    {breaks}
    return first, ref() is None
"""

KINDS = """
held | [held] | (held, 1) | {1: held} | {held} | [[(held,)]] | [held, 5, 'text'] | Box(held) | held.method | lambda a=held: a
closure_of(held) | functools.partial(stop, held) | slice(held) | collections.deque([held]) | collections.OrderedDict(a=held)
collections.defaultdict(list, a=held) | types.SimpleNamespace(a=held) | ValueError(held) | {held: 1}.keys() | frozenset([held])
type('K', (), {'a': held}) | property(held) | iter([held]) | zip([held]) | map(stop, [held]) | itertools.chain([held])
enumerate([held]) | reversed([held]) | generator_of(held)
"""
BREAKS = {
    "plain": "stop()",
    "in a loop": "for i in range(2): stop()",
    "in a with": "with Context(): stop()",
    "in a try": "try: fail()\nexcept ValueError: pass",
    "in a callee": "breaks()",
    "in a branch": "if stop() is None: stop()",
}


def program(kind, breaks, also=""):
    namespace = {"__name__": "unread"}
    lines = textwrap.indent(breaks, "    ").strip()
    exec(PREFIX + PROGRAM.format(kind=kind, breaks=lines, also=also), namespace)
    return namespace["f"], namespace["call"]


@pytest.mark.parametrize("breaks", BREAKS)
@pytest.mark.parametrize("kind", [kind.strip() for line in KINDS.strip().splitlines() for kind in line.split(" | ")])
def test_what_an_unread_variable_holds_lives_on(kind, breaks):
    function, call = program(kind, BREAKS[breaks])
    assert call(function) == (False, False)
    assert [call(dynamo_lite.compile(function, backend="eager")) for _ in range(3)] == [(False, False)] * 3


@pytest.mark.parametrize("breaks", BREAKS)
def test_what_is_new_too_lives_on_if_a_weak_reference_knows_it(breaks):
    function, call = program("[Held()]", BREAKS[breaks], also="ref = weakref.ref(unread[0])")
    assert call(function) == (False, False)
    assert [call(dynamo_lite.compile(function, backend="eager")) for _ in range(3)] == [(False, False)] * 3


def test_a_variable_that_is_bound_anew_lets_go():
    def f(box, ref):
        unread = [box.pop()]
        dynamo_lite.graph_break()
        first = ref() is None
        unread = 1  # noqa: F841
        return first, ref() is None

    def call(function):
        held = torch.ones(2)
        ref, box = weakref.ref(held), [held]
        del held
        return function(box, ref)

    assert call(f) == (False, True)
    assert [call(dynamo_lite.compile(f, backend="eager")) for _ in range(3)] == [(False, True)] * 3


@pytest.mark.parametrize(("kind", "n"), [("[y]", 1), ("[x, y]", 2)])
def test_a_graph_returns_no_results_for_variables_that_hold_nothing_else(kind, n):
    outputs = []

    def backend(gm, example_inputs):
        outputs.append(len(gm.graph.output_node().args[0]))
        return gm.forward

    namespace = {"dynamo_lite": dynamo_lite}
    exec(
        f"def f(x):\n y = x + 1\n z = y * 2\n unread = {kind}\n y = 0\n dynamo_lite.graph_break()\n return z", namespace
    )
    dynamo_lite.compile(namespace["f"], backend=backend)(torch.ones(2))
    assert outputs == [n]
