"""Lifted programs do what the originals do."""

import pytest

from tests.isa.machine import Machine
from tests.isa.programs import PROGRAMS, load, outcome


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
