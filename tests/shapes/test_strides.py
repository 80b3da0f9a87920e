"""Strides that vary: parts of tensors whose own sizes are no inputs, such as a key/value cache that is cropped."""

import random

import pytest
import torch

import dynamo_lite
from dynamo_lite.dynamism.dynamic_shapes import followed_dims
from dynamo_lite.testing import CompileCounter, CompileCounterWithBackend, run_both
from tests.helpers.counting import graphs_per_call

LENGTHS = range(12, 24)


def cropped(length, rows=2):
    """A cache of `length` positions without the last three."""
    return torch.randn(rows, 4, length, 8)[:, :, :-3]


def test_a_cropped_cache_has_two_versions():
    calls = [(torch.randn(2, 4, 3, 8), cropped(n)) for n in LENGTHS]
    assert graphs_per_call(lambda k, q: torch.cat([k, q], 2), calls) == [1, 1] + [0] * 10


def test_the_whole_cache_after_its_parts_and_back():
    """The contiguous one is a version of its own where the operator looks at contiguity."""
    calls = [(cropped(n) if n % 3 else torch.randn(2, 4, n, 8),) for n in LENGTHS]
    assert sum(graphs_per_call(lambda q: q.reshape(2, -1) * 2, calls)) <= 4
    assert sum(graphs_per_call(lambda q: q.sum(2), calls)) == 2


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda n: torch.randn(2, 4, n, 8)[:, :, :5], id="sizes constant"),
        pytest.param(lambda n: cropped(n).transpose(1, 2), id="transposed"),
        pytest.param(lambda n: cropped(n).permute(3, 0, 2, 1), id="permuted"),
        pytest.param(lambda n: torch.randn(2, 1, n, 8)[:, :, :-2].expand(2, 4, n - 2, 8), id="expanded"),
        pytest.param(lambda n: torch.randn(n, n + 3)[:, :-3], id="both sizes"),
        pytest.param(lambda n: torch.randn(n, 2 * n)[:, ::2], id="steps"),
        pytest.param(lambda n: torch.randn(3 * n)[: 2 * n].view(2, n), id="product of a size"),
        pytest.param(lambda n: torch.randn(2, n, n + 1)[:, :, 0], id="selected"),
        pytest.param(lambda n: torch.randn(4, n, 2 * n).diagonal(0, 1, 2), id="diagonal"),
        pytest.param(lambda n: torch.randn(n * 4).unfold(0, 3, n), id="windows"),
    ],
)
def test_views_whose_strides_vary_have_two_versions(view):
    calls = [(view(n),) for n in LENGTHS]
    assert graphs_per_call(lambda q: torch.cat([q * 2, q], 1) + q.sum(), calls) == [1, 1] + [0] * 10


def test_a_stride_is_a_number_of_the_program():
    def f(q):
        return q * q.stride(1) + q.stride(0) // q.size(1)

    assert graphs_per_call(f, [(cropped(n),) for n in LENGTHS]) == [1, 1] + [0] * 10


def test_a_branch_on_contiguity_is_guarded():
    def f(q):
        return q + 1 if q.is_contiguous() else q - 1

    calls = [(cropped(n),) for n in LENGTHS] + [(torch.randn(2, 4, n, 8),) for n in LENGTHS]
    found = graphs_per_call(f, calls)
    assert found[:12] == [1, 1] + [0] * 10 and sum(found) <= 4


def test_a_branch_on_a_stride_is_guarded():
    def f(q):
        return q + 1 if q.stride(0) > 4 * 8 * 17 else q - 1

    found = graphs_per_call(f, [(cropped(n),) for n in (*LENGTHS, *LENGTHS)])
    assert sum(found) == 3 and found[12:] == [0] * 12


def test_a_stride_that_was_made_a_constant_is_reported():
    def f(q):
        return q * 2 if q.stride(0) == 12 else q * 3

    rows = [torch.randn(5, n)[:, :6] for n in (10, 12)]
    stop = dynamo_lite.record.log.listen((frames := []).append)
    try:
        compiled = dynamo_lite.compile(f, backend="eager")
        for row in rows:
            assert torch.equal(compiled(row), f(row))
    finally:
        stop()
    (found,) = frames[-1].specializations
    assert (found.text, found.value) == ("q.stride(0)", 12) and found.user[0] == __file__


def test_strides_do_not_vary_where_sizes_may_not():
    calls = [(torch.randn(2, n)[:, :5],) for n in range(8, 12)]
    with dynamo_lite.config.patch(automatic_dynamic_strides=False):
        assert graphs_per_call(lambda q: q * 2, calls) == [1] * 4
    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda q: q * 2, backend=counter, dynamic=False)
    for call in calls:
        compiled(*call)
    assert counter.frame_count == 4


def test_inputs_that_are_changed():
    """The part is changed in place: so is the tensor that it belongs to."""

    def f(q):
        q.mul_(2)
        return q.view(-1) if q.is_contiguous() else q.t()

    compiled = dynamo_lite.compile(f, backend="aot_eager")
    for n in (10, 11, 12, 13):
        base = torch.randn(6, n)
        expected = base.clone()
        result, eager = compiled(base[:, :5]), f(expected[:, :5])
        assert torch.equal(result, eager) and torch.equal(base, expected) and result.stride() == eager.stride()


def test_a_part_of_a_parameter_keeps_its_strides():
    run = run_both(lambda q: q[:, :3] * 2, torch.nn.Parameter(torch.randn(4, 7)[:, :5]))
    assert run.graph_count == 1 and not run.recompiles


def test_what_strides_follow_from():
    assert followed_dims((2, 3, 4), (12, 4, 1)) == [(2, None), (1, 2), (0, 1)]
    assert followed_dims((2, 3, 4), (15, 5, 1)) == [(2, None), (1, None), (0, 1)]
    assert followed_dims((2, 3, 4), (0, 4, 1)) == [(0, None), (2, None), (1, 2)]
    assert followed_dims((4, 3, 2), (1, 4, 12)) == [(0, None), (1, 0), (2, 1)]


# ----------------------------------------------------------------------------------------------------------------------
# Programs that look at layouts, on views drawn at random: whatever strides come later, results are those of eager execution.


def _in_place(x):
    x.add_(1)
    return x.sum(-1)


PROGRAMS = {
    "elements": lambda x: (x * 2 + 1).relu(),
    "reshape": lambda x: x.reshape(x.size(0), -1) * 2,
    "flatten": lambda x: x.flatten() + 1,
    "contiguous": lambda x: x.contiguous().view(-1) * 2,
    "clone": lambda x: x.clone() + x.clone(memory_format=torch.contiguous_format),
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "stack": lambda x: torch.stack([x, x + 1], -1),
    "transposed sum": lambda x: x.transpose(0, 1) + x.transpose(0, 1).contiguous(),
    "matmul": lambda x: x @ x.transpose(-1, -2),
    "softmax": lambda x: x.softmax(-1),
    "branch on contiguity": lambda x: x + 1 if x.is_contiguous() else x - 1,
    "branch on a transposed one": lambda x: x + 1 if x.transpose(-1, -2).is_contiguous() else x - 1,
    "numbers": lambda x: x * x.stride(0) + x.stride(-1) - x.stride(1),
    "branch on strides": lambda x: x * 2 if x.stride(0) > x.stride(1) else x * 3,
    "branch on products": lambda x: x * 2 if x.stride(0) == x.stride(1) * x.size(1) else x * 3,
    "new": lambda x: torch.empty_like(x).zero_() + x,
    "strides of the result": lambda x: (x * 2).stride(0) * x,
    "slices": lambda x: x[1:, :-1] * 2,
    "in place": _in_place,
    "as it is": lambda x: x.t() if x.dim() == 2 else x.mT,
}


def random_view(rng, rank):
    """A view of a tensor of its own: a part of it, in another order, perhaps with an expanded dimension."""
    sizes = [rng.choice([2, 3, 4, 5]) for _ in range(rank)]
    form = rng.randrange(6)
    if form == 0:
        return torch.randn(sizes)
    if form == 1:
        return torch.randn(sizes[::-1]).permute(*reversed(range(rank)))
    room = [n + rng.choice([0, 0, 1, 2]) for n in sizes]
    steps = [rng.choice([1, 1, 1, 2]) for _ in sizes]
    base = torch.randn([n * step for n, step in zip(room, steps, strict=True)])
    part = base[tuple([slice(0, n * step, step) for n, step in zip(sizes, steps, strict=True)])]
    order = rng.sample(range(rank), rank)
    part = part.permute(order)
    if form == 2:
        dim = rng.randrange(rank)
        return part.narrow(dim, 0, 1).expand(*[4 if d == dim else n for d, n in enumerate(part.shape)])
    return part


def _twin(x):
    """An equal tensor of the same strides in memory of its own."""
    return torch.empty_strided((), ()).set_(x.untyped_storage().clone(), x.storage_offset(), x.shape, x.stride())


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_later_views_have_the_results_of_eager_execution(name, rank):
    rng = random.Random(f"{name}{rank}")
    f = PROGRAMS[name]
    with dynamo_lite.config.patch(recompile_limit=40):
        for backend in ("eager", "aot_eager"):
            compiled = dynamo_lite.compile(f, backend=CompileCounterWithBackend(backend))
            for _ in range(10):
                x = random_view(rng, rank)
                if name == "in place" and 0 in x.stride():
                    continue
                y = _twin(x)
                result, expected = compiled(y), f(x)
                torch.testing.assert_close(result, expected)
                torch.testing.assert_close(y, x)
                assert result.stride() == expected.stride(), (x.shape, x.stride())


LAYOUTS = {
    "contiguous": lambda: torch.randn(4, 6, 3, 5),
    "channels last": lambda: torch.randn(4, 6, 3, 5).to(memory_format=torch.channels_last),
    "part of channels last": lambda: torch.randn(4, 8, 3, 5).to(memory_format=torch.channels_last)[:, :6],
    "transposed": lambda: torch.randn(4, 6, 5, 3).transpose(2, 3),
    "one channel": lambda: torch.randn(4, 1, 3, 5).to(memory_format=torch.channels_last),
    "matrix": lambda: torch.randn(6, 4).t(),
    "volume": lambda: torch.randn(4, 6, 3, 5, 2).to(memory_format=torch.channels_last_3d),
}


NORMALISED = [(kind, name) for kind in ("training", "evaluation", "no statistics") for name in LAYOUTS]
SHUFFLED = [("channel_shuffle", name) for name in LAYOUTS if name not in ("matrix", "one channel")]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind, layout", NORMALISED + SHUFFLED)
def test_kernels_that_lay_out_their_result_anew(kind, layout, dynamic):
    def f(x):
        if kind == "channel_shuffle":
            y = torch.nn.functional.channel_shuffle(x, 2)
        else:
            known = [None, None] if kind == "no statistics" else [x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])]
            y = torch.nn.functional.batch_norm(x, *known, training=kind != "evaluation")
        return y.stride(), y.is_contiguous(), y

    run_both(f, LAYOUTS[layout]().requires_grad_(dynamic), _dynamic=dynamic, _fullgraph=True)
