"""The table of `programs`: versions, specialisations, results; and sizes drawn at random against eager execution."""

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import differences

from .programs import PROGRAMS


def sizes_of(row):
    return row if isinstance(row, tuple) else (row,)


def compiled(program):
    dynamo_lite.reset()
    return dynamo_lite.compile(program.function, backend="eager", fullgraph=not program.breaks)


def test_there_are_sixty():
    assert len(PROGRAMS) >= 60


@pytest.mark.parametrize("name", PROGRAMS)
def test_series(name):
    program = PROGRAMS[name]
    with dynamo_lite.config.patch(**dict.fromkeys(program.allow, True)):
        run = compiled(program)
        for row in program.series:
            args = program.arguments(*sizes_of(row))
            assert not list(differences(program.function(*args), run(*program.arguments(*sizes_of(row)))))
    frames = log.snapshot()
    assert [f.skipped for f in frames] == [None] * program.versions
    assert sum(len(f.breaks) for f in frames) == program.breaks
    assert tuple(f"{s.text} = {s.value}" for s in frames[-1].specializations) == program.constants
    assert all(s.user[0] == program.function.__code__.co_filename for s in frames[-1].specializations)


def outcome(function, args):
    """The result, or the exception, and the arguments after the call."""
    try:
        return function(*args), args
    except Exception as error:
        return type(error), args


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_any_sizes(name, dynamic):
    program = PROGRAMS[name]
    width = len(sizes_of(program.series[0]))
    rows = st.lists(st.tuples(*[st.integers(program.low, 11)] * width), min_size=3, max_size=6)

    @settings(
        max_examples=2,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(rows)
    def holds(series):
        dynamo_lite.reset()
        run = dynamo_lite.compile(program.function, backend="eager", dynamic=dynamic)
        for row in series:
            expected = outcome(program.function, program.arguments(*row))
            found = outcome(run, program.arguments(*row))
            assert not list(differences(expected, found)), row

    with dynamo_lite.config.patch(**dict.fromkeys(program.allow, True), suppress_errors=False, recompile_limit=20):
        holds()
    torch.manual_seed(0)
