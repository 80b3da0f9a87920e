"""`one_hot` with a number of classes that only the graph knows."""

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same

PROGRAMS = {
    "an item": lambda x, n: F.one_hot(x, n.item()) * 2,
    "what the classes need": lambda x, n: F.one_hot(x, int(x.max()) + 1).sum(0),
    "inferred": lambda x, n: F.one_hot(x).float(),
    "inferred by -1": lambda x, n: F.one_hot(input=x, num_classes=-1).float(),
}


def outcome(fn, x, n):
    """The result, or the error."""
    try:
        return fn(x, n)
    except RuntimeError as error:
        return str(error).partition("\n")[0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_of_classes(name, backend):
    counter = CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(PROGRAMS[name], backend=counter, fullgraph=True, dynamic=True)
    for classes in ([1, 0, 2], [4, 0, 1], [[0, 1, 3]], [-1, 3, 0], [-7, -2, -3], 2):
        for n in (5, 3, -1, 0):
            args = torch.tensor(classes), torch.tensor(n)
            assert same(outcome(compiled, *args), outcome(PROGRAMS[name], *args))
    assert counter.frame_count == 3  # by the number of dimensions


def test_other_tensors_are_left_to_the_operator():
    compiled = dynamo_lite.compile(PROGRAMS["an item"], backend="eager")
    for x in (torch.tensor([], dtype=torch.int64), torch.tensor([1], dtype=torch.int32), torch.tensor([1.0])):
        for n in (3, -1):
            assert same(*(outcome(f, x, torch.tensor(n)) for f in (compiled, PROGRAMS["an item"])))


def test_the_result_lies_in_memory_as_that_of_the_operator():
    x = torch.tensor([[0, 1, 2], [3, 1, 0]]).t()
    for name, fn in PROGRAMS.items():
        if name == "what the classes need":
            continue
        found = dynamo_lite.compile(lambda x, n, fn=fn: fn(x, n).view(-1), backend="eager", fullgraph=True)(
            x, torch.tensor(4)
        )
        assert torch.equal(found, fn(x, torch.tensor(4)).view(-1))
