"""Lifted programs do what the originals do."""

import pytest
from machine import Machine
from programs import PRELUDE, PROGRAMS


def load(name):
    space = {}
    exec(compile(PRELUDE, "<prelude>", "exec"), space)
    exec(compile(PROGRAMS[name], f"<{name}>", "exec"), space)
    return space


def outcome(function, space):
    try:
        value = ("returned", function())
    except Exception as error:
        value = ("raised", type(error), error.args, type(error.__context__), type(error.__cause__))
    return repr(value), repr(space["log"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_outcome(name):
    space = load(name)
    expected = outcome(space["f"], space)
    space = load(name)
    machine = Machine(space["f"], space["f"].__defaults__ or ())
    assert outcome(machine.run, space) == expected
    if expected[0].startswith("('returned"):
        assert machine.stack == []
        assert machine.handled is None
