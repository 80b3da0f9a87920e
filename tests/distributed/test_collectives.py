"""Collectives in graphs, in two processes."""

import pytest
import torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("no gloo", allow_module_level=True)

from torch.distributed import _functional_collectives as functional

import dynamo_lite
from dynamo_lite.testing import CompileCounter
from tests.distributed import collectives, ranks

COUNTS = {
    "work that leaves the graph": (1, 1),
    "work that nobody waits for in the graph": (1, 1),
    "python objects": (1, 1),
    "other groups": (2, 0),
    "gradients averaged by hand": (2, 0),
    "inplace collective of a tensor with a history": (2, 1),
    "sizes from data": (4, 2),
    "module with a split table": (1, 0),
    "rows of a split table that leave the graph": (0, 1),
    "rows of a split table before a break": (1, 3),
}
"""Set-up → graphs, kinds of breaks. All others are one graph for one size and one for any other."""


@pytest.fixture(scope="module", params=["eager", "aot_eager"])
def outcomes(request):
    items = [
        item for item in request.session.items if "outcomes" in getattr(getattr(item, "callspec", None), "params", ())
    ]
    wanted = {item.callspec.params["name"] for item in items if item.callspec.params["outcomes"] == request.param}
    return ranks.run([name for name in collectives.SETUPS if name in wanted], backend=request.param)


@pytest.mark.parametrize("name", collectives.SETUPS)
def test_as_in_eager_execution(name, outcomes):
    for outcome in outcomes[name]:
        assert outcome.error == ""
        counts = (outcome.graphs, len(outcome.breaks))
        assert counts == COUNTS.get(name, (1 if name in collectives.SHAPED else 2, 0))


def test_a_version_is_used_again_by_the_next_group_of_its_name(tmp_path):
    counter = CompileCounter()

    def f(x):
        y = x + 1
        torch.distributed.all_reduce(y)
        return y * torch.distributed.get_world_size()

    compiled = dynamo_lite.compile(f, backend=counter, fullgraph=True)
    for n in range(2):
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / str(n)}", rank=0, world_size=1)
        try:
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        finally:
            torch.distributed.destroy_process_group()
    assert counter.frame_count == 1


@pytest.fixture
def alone(tmp_path):
    """A group of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def reduced(x):
    torch.distributed.all_reduce(x)
    return x + 1


def gathered(x):
    out = [torch.empty_like(x)]
    torch.distributed.all_gather(out, x)
    return out[0]


def averaged(x):
    torch.distributed.all_reduce(x, torch.distributed.ReduceOp.AVG)
    return x


@pytest.mark.parametrize(
    ("function", "backend"),
    [(reduced, "eager"), (reduced, "aot_eager"), (gathered, "eager"), (gathered, "aot_eager"), (averaged, "eager")],
)
def test_a_write_of_a_group_counts_as_in_eager_execution(function, backend, alone):
    def run(call):
        x = torch.ones(2)
        return call(x)._version, x._version

    assert run(dynamo_lite.compile(function, backend=backend, fullgraph=True)) == run(function)


def test_parameters_broadcast_between_the_passes_keep_their_gradients(alone):
    weight = torch.ones(2, requires_grad=True)
    loss = (weight * torch.ones(2, requires_grad=True)).sum()

    @dynamo_lite.compile(backend="eager", fullgraph=True)
    def sync():
        with torch.no_grad():
            torch.distributed.broadcast(weight, 0)

    sync()
    loss.backward()
    assert torch.equal(weight.grad, torch.ones(2))


def run_both(function, *arguments):
    """The results, or classes of errors, of a call in eager execution and compiled; the graphs."""
    counter, found = CompileCounter(), []
    for call in (function, dynamo_lite.compile(function, backend=counter)):
        try:
            found.append(call(*[a.clone() for a in arguments]))
        except Exception as error:
            found.append(type(error))
    return *found, counter.frame_count


def gathered_to(dtype, x):
    out = torch.zeros(x.shape, dtype=dtype)
    torch.distributed.all_gather_into_tensor(out, x * 2)
    return out


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_a_result_is_not_converted(dtype, alone):
    eager, compiled, graphs = run_both(lambda x: gathered_to(dtype, x), torch.ones(3))
    assert eager is compiled is RuntimeError and graphs == 1


@pytest.mark.parametrize("communicate", [
    lambda y: torch.distributed.broadcast(y, 5),
    lambda y: torch.distributed.all_reduce(y, torch.distributed.ReduceOp.BAND),
    lambda y: torch.distributed.all_reduce(y.long(), torch.distributed.ReduceOp.AVG),
], ids=["root", "bits", "mean"])  # fmt: skip
def test_arguments_that_groups_refuse(communicate, alone):
    seen = []

    def f(x):
        seen.append(1)
        communicate(x * 2)

    eager, compiled, _ = run_both(f, torch.ones(2))
    assert eager is compiled and issubclass(eager, Exception) and seen == [1, 1]


class Noting:
    """Notes how often its block ends, and by what."""

    def __init__(self, seen):
        self.seen = seen

    def __enter__(self):
        return self

    def __exit__(self, cls, error, traceback):
        self.seen.append(cls)


def in_try(x, seen):
    try:
        torch.distributed.all_reduce(x * 2)
    except RuntimeError:
        seen.append("caught")
    return x + 1


def in_with(x, seen):
    with Noting(seen):
        torch.distributed.all_reduce(x * 2)
    return x + 1


def in_try_of_the_caller(x, seen):
    try:
        return functional.all_reduce(x * 2, "sum", torch.distributed.group.WORLD) + 1
    finally:
        seen.append("left")


def awaited_in_try(x, seen):
    work = torch.distributed.all_reduce(x * 2, async_op=True)
    try:
        work.wait()
    except ValueError:
        seen.append("caught")
    return x + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])  # gloo has no sums of the latter
@pytest.mark.parametrize("function", [in_try, in_with, in_try_of_the_caller, awaited_in_try])
def test_errors_get_to_the_blocks_around_a_collective(function, dtype, alone):
    notes = []

    def f(x):
        notes.append([])
        return function(x * 3, notes[-1])

    eager, compiled, graphs = run_both(f, torch.ones(2, dtype=dtype))
    assert eager is compiled if isinstance(eager, type) else torch.equal(eager, compiled)
    assert notes[0] == notes[1] and graphs > 0


def test_blocks_that_notice_nothing(alone):
    def f(x):
        with torch.no_grad(), torch.autocast("cpu"), torch.profiler.record_function("sum"):
            try:
                return reduced(x * 2)
            except KeyError:
                return x

    counter = CompileCounter()
    assert torch.equal(dynamo_lite.compile(f, backend=counter, fullgraph=True)(torch.ones(2)), torch.full((2,), 3.0))
    assert torch.equal(dynamo_lite.compile(f, backend=counter)(torch.ones(2)), torch.full((2,), 3.0))
    assert counter.frame_count == 2
