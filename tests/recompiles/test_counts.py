"""No more graphs than torch.compile, and no fewer operators in them, where inputs vary."""

import json

import pytest

import dynamo_lite

from .counts import STORED, Counts, is_more, run
from .exceptions import EXCEPTIONS
from .programs import PROGRAMS

THEIRS = {name: Counts(*counts) for name, counts in json.loads(STORED.read_text())["counts"].items()}


SAMPLE = [*dict.fromkeys([*EXCEPTIONS, *list(PROGRAMS)[::2]])]
"""What tests run: the exceptions and each second program. `python -m tests.recompiles` runs all."""


@pytest.mark.parametrize("name", SAMPLE)
def test_no_more_graphs_than_torch_compile(name):
    with dynamo_lite.config.patch(debug=True):
        ours = run(name, dynamo_lite.compile)
    theirs = THEIRS[name]
    allowed = EXCEPTIONS.get(name)
    if allowed is None:
        assert not is_more(ours, theirs), f"{ours}, torch.compile {theirs}"
    else:
        assert is_more(ours, theirs), f"an exception that is none: {ours}, torch.compile {theirs}"
        least = theirs.operators if allowed.operators is None else allowed.operators
        assert ours.graphs == allowed.graphs and ours.operators >= least


def test_there_are_counts_and_reasons_for_what_is_there():
    assert THEIRS.keys() == PROGRAMS.keys() and EXCEPTIONS.keys() <= PROGRAMS.keys()


def test_calls_differ():
    """Each program is called often enough to have a version too many."""
    for name, make in PROGRAMS.items():
        _, calls = make()
        assert len(list(calls)) >= 8, name
