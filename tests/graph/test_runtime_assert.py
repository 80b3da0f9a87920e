"""What is assumed about numbers that only the graph knows is asserted in it; where that fails, the program runs and raises as it does."""

import math

import pytest
import torch

import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.record import STATS
from dynamo_lite.testing import CompileCounterWithBackend, differences, run_both

CAPTURED = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


def number(x):
    return x[0].to(torch.int64).item()


def checked(check, *message):
    def call(x):
        n = number(x)
        check(n < 3, *message)
        return x + n

    return call


def check_message(x):
    n = number(x)
    torch._check(n < 3, lambda: f"n is {n}")
    return x + n


def check_equal(x):
    n = number(x)
    torch._check(n == 2)
    return torch.zeros(2) + n


def check_size(x):
    n = number(-x)
    torch._check_is_size(n)
    return x + n


def check_two(x):
    a, b = x.to(torch.int64).tolist()
    torch._check(a == b)
    return torch.zeros(a) + torch.ones(b)


def check_nonzero(x):
    found = torch.nonzero(x > 1)
    torch._check(found.shape[0] > 1)
    return found + 1


def check_with_input(x):
    n = number(x)
    torch._check(n <= x.shape[0])
    return x + n


def check_after_changes(x):
    y = x * 2
    y.add_(1)
    torch._check(number(x) < 3)
    return y


PROGRAMS = {
    "check": checked(torch._check),
    "text": checked(torch._check, lambda: "too big"),
    "message": check_message,
    "value": checked(torch._check_value, lambda: "too big"),
    "index": checked(torch._check_index, lambda: "too big"),
    "type": checked(torch._check_type, lambda: "too big"),
    "equal": check_equal,
    "size": check_size,
    "two": check_two,
    "nonzero": check_nonzero,
    "with a size of an input": check_with_input,
    "after changes": check_after_changes,
    "narrow": lambda x: torch.arange(2.0).narrow(0, 0, number(x)),
    "zeros": lambda x: torch.zeros(number(-x)),
    "view": lambda x: torch.arange(8.0).view(number(x), -1),
    "sum": lambda x: torch.zeros(number(x)) + torch.ones(2),
    "slice": lambda x: torch.arange(2.0)[: number(x)],
    "select": lambda x: torch.arange(2.0)[number(x)],
    "repeat": lambda x: x.repeat(number(x)),
    "split": lambda x: torch.arange(6.0).split([number(x), 4]),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_assumptions_about_numbers_of_the_graph(name, backend):
    """One version, whose assumptions hold for some calls, and do not for others."""
    call, counter = PROGRAMS[name], CompileCounterWithBackend(backend)
    compiled = dynamo_lite.compile(call, backend=counter, dynamic=False)
    with config.patch(CAPTURED):
        for values in ((2.0, 2.0), (3.0, 1.0), (2.0, 2.0), (1.0, 1.0), (-1.0, 2.0), (0.0, 5.0), (2.0, 2.0)):
            outcomes = []
            for fn in (call, compiled):
                try:
                    outcomes.append(fn(torch.tensor(values)))
                except Exception as error:
                    outcomes.append((type(error).__name__, str(error)))
            assert not list(differences(*outcomes, tol=1e-6)), values


def test_a_captured_check_is_part_of_the_graph():
    counter = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(PROGRAMS["text"], backend=counter, fullgraph=True)
    with config.patch(CAPTURED):
        compiled(torch.tensor([2.0, 2.0]))
        before = STATS.started_again
        with pytest.raises(RuntimeError, match="too big"):
            compiled(torch.tensor([3.0, 2.0]))
    assert STATS.started_again == before + 1
    (graph,) = counter.graphs
    assert torch.ops.aten._assert_scalar.default in {node.target for node in graph.graph.nodes}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_assertion_behind_what_cannot_be_undone(backend):
    """The change is made, and the error is raised, by the graph; AOTAutograd's form of it raises first, so that the function can start
    again."""

    def call(x):
        x.mul_(2)
        n = number(x)
        torch._check(n < 3, lambda: "too big")
        return x + n

    with config.patch(CAPTURED):
        compiled = dynamo_lite.compile(call, backend=backend)
        assert torch.equal(compiled(torch.tensor([1.0, 1.0])), torch.tensor([4.0, 4.0]))
        x = torch.tensor([2.0, 1.0])
        with pytest.raises(RuntimeError, match="u0 <= 2 does not hold" if backend == "eager" else "too big"):
            compiled(x)
    assert torch.equal(x, torch.tensor([4.0, 2.0]))


def test_numbers_that_no_assumption_is_made_about():
    with config.patch(CAPTURED):
        run = run_both(lambda x: (x + number(x), torch.nonzero(x)), torch.tensor([3.0, 0.0]))
    (graph,) = run.graphs
    assert torch.ops.aten._assert_scalar.default not in {node.target for node in graph.graph.nodes}


UNBACKED = {
    "equal sizes": lambda x, y: (torch._check(x.shape[0] == y.shape[0]), x.sum() + y.sum(), x.shape[0] * y.shape[0]),
    "sum": lambda x, y: (x + y, x.shape[0]),
    "even": lambda x, y: (torch._check(x.shape[0] % 2 == 0), x.view(2, -1).sum(0), x.shape[0] // 2),
    "at most": lambda x, y: (torch._check(x.shape[0] <= 5), x * 2),
    "exactly": lambda x, y: (torch._check(x.shape[0] == 4), x * 2, x.shape[0]),
}


@pytest.mark.parametrize("name", UNBACKED)
def test_assumptions_about_sizes_that_are_marked_unbacked(name):
    """They are guards. A call that they do not hold for runs as it is; so do all others, once that has happened often."""
    call, counter = UNBACKED[name], CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(call, backend=counter)
    sizes = [(4, 4), (6, 6), (4, 4), (4, 1), (1, 4), (5, 5), (4, 5), (4, 4)]
    for n, m in [*sizes, *[(5, 3)] * 10, *sizes]:
        x, y = torch.arange(float(n)), torch.arange(float(m))
        dynamo_lite.mark_unbacked(x, 0)
        dynamo_lite.mark_unbacked(y, 0)
        outcomes = []
        for fn in (call, compiled):
            try:
                outcomes.append(fn(x, y))
            except Exception as error:
                outcomes.append((type(error).__name__, str(error)))
        assert not list(differences(*outcomes)), (n, m)
    assert counter.frame_count <= 5


FLOATS = {
    "truncated": lambda x: (torch._check(int(x.sum()) > 2), torch.ones(int(x.sum())))[1],
    "ceiling": lambda x: (torch._check(math.ceil(x.sum().item()) > 2), x * 2)[1],
    "floor": lambda x: (torch._check(math.floor(x.sum().item()) > 2), x * 2)[1],
    "a float": lambda x: (torch._check(x.sum().item() > 2.5), x * 2)[1],
    "quotient": lambda x: (torch._check(int(x.sum()) / 2 > 1.25), x * 2)[1],
    "remainder": lambda x: (torch._check(int(x.sum()) % 2 == 0), x * 2)[1],
    "power": lambda x: (torch._check(int(x.sum()) ** 2 > 5), x * 2)[1],
    "of two": lambda x: (torch._check(int(x.sum()) >= int(x.max())), x * 2)[1],
    "made float": lambda x: (torch._check(float(int(x.sum())) > 2.5), x * 2)[1],
    "largest": lambda x: (torch._check(max(int(x.sum()), 1) > 2), x * 2)[1],
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", FLOATS)
def test_conditions_of_all_kinds(name, backend):
    call = FLOATS[name]
    compiled = dynamo_lite.compile(call, backend=backend)
    with config.patch(CAPTURED):
        for values in ((4.0, 2.0), (1.0, 0.5), (3.0, 1.0), (-4.0, 2.0), (5.0, 1.5)):
            outcomes = []
            for fn in (call, compiled):
                try:
                    outcomes.append(fn(torch.tensor(values)))
                except RuntimeError as error:
                    outcomes.append(str(error))
            assert not list(differences(*outcomes, tol=1e-6)), values


def test_a_check_whose_message_shows_data():
    """As multimodal models of transformers count their placeholders: the text is needed only where the check fails."""

    def fn(ids, features):
        mask = ids == 7
        count = mask.sum()
        message = f"{count} tokens and {features.shape[0]} features"
        torch._check_tensor_all_with(ValueError, count == features.shape[0], lambda: message)
        if count != features.shape[0]:
            raise ValueError(f"no: {count}")
        return features * 2

    ids = torch.tensor([1, 7, 7, 2])
    run = run_both(fn, ids, torch.ones(2))
    assert run.graph_count == 1 and not run.breaks
    run = run_both(fn, ids, torch.ones(3))
    assert str(run.exception) == "2 tokens and 3 features"


SQUEEZES = {
    "squeeze": lambda x: x.nonzero().squeeze(),
    "squeeze_": lambda x: x.nonzero().squeeze_(),
    "dim": lambda x: x[x > 0].squeeze(-1),
    "dims": lambda x: torch.squeeze(x.nonzero(), (0, 1)),
    "squeeze_copy": lambda x: torch.squeeze_copy(x.nonzero()),
}


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("squeeze", SQUEEZES.values(), ids=SQUEEZES)
def test_how_many_dimensions_are_left(squeeze, fullgraph):
    def f(x):
        found = squeeze(x)
        return found + (10 if found.dim() else 20)

    counter = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(f, backend=counter, fullgraph=fullgraph)
    for x in (torch.eye(3)[0], torch.ones(3), torch.zeros(3)):
        assert not list(differences(compiled(x), f(x)))
    assert counter.frame_count == 1


def test_a_dimension_that_is_known_to_be_one_needs_no_assertion():
    counter = CompileCounterWithBackend("eager")
    compiled = dynamo_lite.compile(lambda x: x.nonzero().squeeze(-1), backend=counter, fullgraph=True)
    for x in (torch.eye(3)[0], torch.ones(3)):
        assert not list(differences(compiled(x), x.nonzero().squeeze(-1)))
    (graph,) = counter.graphs
    assert not graph.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_scalar.default)
