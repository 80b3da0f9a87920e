"""Context variables: what they are is guarded, what is set is set when the frame ends."""

import contextvars
import itertools
from contextlib import contextmanager
from contextvars import Context, ContextVar, Token

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter, differences

V = ContextVar("V", default=3)
W = ContextVar("W")


def x():
    return torch.arange(3.0)


def outcome(function, settings):
    """Results, and what both variables are afterwards, of one call per setting in a context of their own."""

    def calls():
        found = []
        for var, value in settings:
            if var is not None:
                var.set(value)
            try:
                found.append(function(x()))
            except Exception as error:
                found.append((type(error), str(error) if "0x" not in str(error) else ""))
            found.append((V.get(), W.get("unset")))
        return found

    return Context().run(calls)


def compare(function, *settings):
    """The number of graphs for one call per setting; all as in eager execution."""
    counter = CompileCounter()
    settings = settings or ((None, None),)
    found = outcome(dynamo_lite.compile(function, backend=counter), settings)
    assert not list(differences(outcome(function, settings), found))
    return counter.frame_count


def reads(t):
    return (t + 1) * V.get(), W.get(5), V.name


def sets_and_resets(t):
    token = V.set(7)
    t = t * V.get()
    V.reset(token)
    return t * V.get()


def sets_in_a_block(t):
    with V.set(7) as token:
        t = t * V.get()
        with V.set(8):
            t = t * V.get()
    return t * V.get(), token.var is V


def raises_in_a_block(t):
    try:
        with V.set(7):
            raise ValueError(V.get())
    except ValueError as error:
        return t * V.get(), error.args


@pytest.mark.parametrize("function", [sets_in_a_block, raises_in_a_block])
def test_a_token_is_a_context_manager_from_3_14_on(function):
    assert compare(function, (V, 2), (V, 2)) == (1 if hasattr(Token, "__enter__") else 0)


def sets(t):
    V.set(V.get() + 7)
    return t * V.get()


def sets_an_object(t):
    W.set([t * 2])
    W.get().append(t)
    return W.get()[0] + 1


def nested(t):
    outer, inner = W.set(1), W.set(2)
    W.reset(inner)
    t = t * W.get()
    W.reset(outer)
    return t


def is_not_set(t):
    try:
        W.get()
    except LookupError as error:
        return t + 1, error.args[0] is W
    return t * 2


@contextmanager
def setting(var, value):
    token = var.set(value)
    try:
        yield
    finally:
        var.reset(token)


def in_a_block(t):
    with setting(V, 5):
        t = t * V.get()
    return t * V.get()


@pytest.mark.parametrize("program", [reads, sets_and_resets, sets, sets_an_object, nested, is_not_set, in_a_block])
def test_one_graph(program):
    assert compare(program) == 1


def test_values_are_guarded():
    assert compare(reads, (None, None), (V, 4), (V, 4), (W, 1), (None, None)) == 3


RATE = ContextVar("RATE", default=2.0)


def test_a_float_that_is_set_is_another_one_than_the_default():
    """It varies from the second version on, whether the first one had the default or what was set."""

    def scaled(t):
        return t * RATE.get()

    assert compare(scaled, (None, None), (RATE, 3.0), (RATE, 4.0), (RATE, 5.0)) == 2
    assert compare(scaled, (RATE, 3.0), (RATE, 4.0), (RATE, 5.0)) == 2


def test_a_default_that_is_set_is_the_same_object():
    default = [1, 2]
    var = ContextVar("var", default=default)

    def changes(t):
        before = var.get()
        before.append(len(before))
        token = var.set([5])
        t = t * len(var.get())
        var.reset(token)
        return t + len(var.get()), before is var.get()

    compiled = dynamo_lite.compile(changes, backend="eager")
    for n in (3, 4, 5):
        if n == 5:
            var.set(default)
        result, is_same = compiled(x())
        assert torch.equal(result, x() + n) and is_same and len(default) == n


def test_a_token_that_goes_on():
    def gives_token(t):
        token = W.set(1)
        return t + W.get(), token

    def run():
        _, token = dynamo_lite.compile(gives_token, backend="eager")(x())
        assert W.get() == 1 and type(token) is Token
        W.reset(token)
        assert W.get("unset") == "unset"

    Context().run(run)


def test_questions_about_a_token_break():
    def program(t):
        token = V.set(7)
        t = t * V.get()
        V.reset(token)
        return t * V.get(), token.old_value, token.var is V

    assert compare(program) == 2


STEPS = {
    "set": "tokens.append(V.set(10 * len(tokens)))",
    "other": "tokens.append(W.set(t * 2))",
    "last": "tokens[-1].var.reset(tokens.pop())",
    "first": "tokens[0].var.reset(tokens[0])",
    "break": "dynamo_lite.graph_break()",
}


@pytest.mark.parametrize("order", list(itertools.product(STEPS, repeat=3)), ids="-".join)
def test_all_orders(order):
    lines = "\n    ".join(STEPS[step] for step in order)
    namespace = {"V": V, "W": W, "dynamo_lite": dynamo_lite}
    exec(
        f"def program(t):\n    tokens = []\n    t = t + V.get()\n    {lines}\n    return t * V.get(), W.get(0), len(tokens)",
        namespace,
    )
    compare(namespace["program"], (None, None), (V, 6), (W, 2))


def test_contexts_break():
    def program(t):
        return t + 1, contextvars.copy_context()[V]

    assert compare(program, (V, 2)) == 1
