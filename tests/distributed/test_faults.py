"""Ranks that do not do the same: the results are those of eager execution, and no rank waits for ever."""

import pytest
import torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("no gloo", allow_module_level=True)

import dynamo_lite
from dynamo_lite import _eval_frame
from dynamo_lite.testing import CompileCounter
from tests.distributed import faults, ranks

GRAPHS = {
    "other sizes between collectives": (1, 2),
    "other sizes and guard collectives": (2, 2),
    "other sizes in frames that break and guard collectives": (2, 2),
    "other sizes and compiler collectives": (1, 1),
    "another dtype on one rank": (3, 4),
    "another dtype on one rank and guard collectives": (4, 4),
    "a slow rank": (2, 2),
    "a rank that does not call": (1, 1),
}
"""Graphs by rank, where the set-up is compiled by the counting backend."""


@pytest.fixture(scope="module")
def outcomes():
    return ranks.run(faults.SETUPS, tables=("faults",))


@pytest.mark.parametrize("name", faults.SETUPS)
def test_as_in_eager_execution(name, outcomes):
    assert [outcome.error for outcome in outcomes[name]] == ["", ""]
    assert tuple(outcome.graphs for outcome in outcomes[name]) == GRAPHS.get(name, (0, 0))


@pytest.mark.parametrize("votes", [False, True], ids=["", "guard collectives"])
def test_a_rank_that_is_killed(votes, tmp_path):
    """The other one gets an error at once, not at the end of the time limit."""
    context = torch.multiprocessing.get_context("spawn")
    answers = context.Queue()
    arguments = (f"file://{tmp_path}/store", votes, answers)
    processes = [context.Process(target=faults.rank_that_dies, args=(rank, *arguments)) for rank in range(2)]
    for process in processes:
        process.start()
    step, error, seconds = answers.get(timeout=60)
    for process in processes:
        process.join(10)
    assert step == 2 and seconds < 10
    assert ("rank 0 has asked the others in vain" in error) is votes
    assert [process.exitcode for process in processes] == [0, -9]


def test_a_vote_is_taken_where_there_are_versions():
    votes, others = [], True

    def vote(code, fits):
        votes.append(fits)
        return fits and others

    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x: x + 1, backend=counter)
    _eval_frame.set_guard_vote(vote)
    try:
        graphs = []
        for size, others in ((2, True), (2, True), (2, False), (2, True), (3, True)):
            assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 2.0))
            graphs.append(counter.frame_count)
    finally:
        _eval_frame.set_guard_vote(None)
    assert votes == [True, True, True, False]
    assert graphs == [1, 1, 2, 2, 3]


def test_an_error_of_a_vote_is_that_of_the_call():
    def vote(code, fits):
        raise RuntimeError(code.co_name)

    def f(x):
        return x + 1

    compiled = dynamo_lite.compile(f, backend="eager")
    compiled(torch.ones(2))
    _eval_frame.set_guard_vote(vote)
    try:
        with pytest.raises(RuntimeError, match="f"):
            compiled(torch.ones(2))
    finally:
        _eval_frame.set_guard_vote(None)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
