"""Programs with numbers and sizes that depend on data: results, gradients, graphs and breaks."""

import json

import pytest
import torch

import dynamo_lite
from dynamo_lite.exc import Unsupported
from dynamo_lite.record import STATS, log
from dynamo_lite.testing import CompileCounter, same

from .data_models import STORED, TABLE
from .data_sweep import BACKENDS, SWEEP, run

COMPILED = [*list(TABLE)[::8], "experts_by_masks", "boolean_mask_with_gradients"]
"""What tests give to Inductor."""


@pytest.mark.parametrize("name", TABLE)
def test_graphs(name):
    row = TABLE[name]
    graphs, breaks = run(name, "eager")
    assert (graphs, not breaks) == (row.graphs, row.whole)


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.whole][::2])  # the sweep has all
def test_whole_graphs_under_aot(name):
    graphs, breaks = run(name, "aot_eager", fullgraph=True)
    assert graphs == TABLE[name].graphs and not breaks


@pytest.mark.parametrize("name", COMPILED)
def test_inductor(name):
    run(name, "inductor")


IN_PIECES = {"experts_by_sorting": [4, 5, 5]}
"""A program of which a compiler cannot take the whole graph: split where the numbers are made."""

BRANCHES = {
    "branch_on_an_item": [3, 3, 1],
    "branch_on_a_sum": [3, 3, 1],
    "numbers_that_are_nan": [2, 2, 1],
    "branch_on_two_tensors": [4, 4, 1],
    "loop_until_small": [2, 2, 1],
}
"""Programs whose branches are in the graph by default under Inductor."""


def test_the_sweep_under_three_backends():
    """Of all programs, each of which was equal to eager execution."""
    stored = json.loads(SWEEP.read_text())
    assert stored["backends"] == list(BACKENDS) and stored["graphs"].keys() == TABLE.keys()
    other = {name: found for name, found in stored["graphs"].items() if found != [TABLE[name].graphs] * 3}
    assert other == IN_PIECES | BRANCHES


def test_no_more_graphs_than_torch_compile():
    theirs = json.loads(STORED.read_text())["graphs"]
    assert theirs.keys() == TABLE.keys()
    more = {name for name, row in TABLE.items() if theirs[name] and row.graphs > theirs[name]}
    assert more == {"experts_that_are_hit"}  # where torch.compile captures nothing of the loop
    assert (len(TABLE), sum(row.whole for row in TABLE.values())) == (144, 128)


def test_equality_of_floats():
    """NaN is not equal to itself, in the same memory either; the two zeros are."""

    def fn(x, y):
        return x + 1, torch.equal(x, y), torch.equal(x, x.view(-1)), torch.equal(y, y)

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    for values in ([1.0, 2.0], [0.0, 1.0], [float("nan"), 1.0]):
        x = torch.tensor(values)
        for y in (x, x.clone(), -x):
            assert compiled(x, y)[1:] == fn(x, y)[1:]


def test_the_last_dimension_of_unique():
    def fn(x):
        y = torch.unique_consecutive(x, dim=-1)
        return y + 1, y.dim()

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    result, n = compiled(torch.ones(2, 3, 4))
    assert n == 3 and torch.equal(result, torch.full((2, 3, 1), 2.0))


def test_writes_to_what_data_select():
    """A stride that is the number of selected elements is 0 where there are none; one that is a number from data may be 0 with elements."""

    def selected(x):
        found, values = x.nonzero(), x[x > 0]
        found += 1
        values.mul_(2)
        return found, values

    def repeated(x, n):
        y = torch.zeros(10).as_strided((3,), (n.item(),))
        y += x
        return y

    def expanded(x, n):
        y = x.sum().reshape(1).expand(n.item())
        y += 1
        return y

    compiled = dynamo_lite.compile(selected, backend="eager", fullgraph=True)
    for x in (torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.zeros(3, 3)):
        assert all(map(torch.equal, compiled(x), selected(x)))
    x = torch.ones(3)
    for fn, fine, repeating in [(repeated, 1, 0), (expanded, 1, 2)]:
        compiled = dynamo_lite.compile(fn, backend="eager")
        assert torch.equal(compiled(x, torch.tensor(fine)), fn(x, torch.tensor(fine)))
        for each in (fn, compiled):
            with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
                each(x, torch.tensor(repeating))


# -- the settings


def scaled(x):
    return torch.relu(x) * x.max().item()


@pytest.mark.parametrize("setting, graphs", [(None, 1), (True, 1), (False, 2)])
def test_the_three_values(setting, graphs):
    dynamo_lite.reset()
    counter = CompileCounter()
    with dynamo_lite.config.patch(capture_scalar_outputs=setting):
        compiled = dynamo_lite.compile(scaled, backend=counter)
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3))
    assert counter.frame_count == graphs


def test_a_backend_that_takes_no_numbers_from_data_gets_graphs_without_them():
    graphs = []

    def picky(gm, example_inputs):
        if any(
            isinstance(n.meta.get("example_value"), torch.SymFloat) for n in gm.graph.nodes if n.op != "placeholder"
        ):
            raise RuntimeError("no numbers")
        graphs.append(gm)
        return gm.forward

    dynamo_lite.reset()
    compiled = dynamo_lite.compile(scaled, backend=picky)
    assert torch.equal(compiled(torch.ones(3)), torch.ones(3))
    assert len(graphs) == 2 and [b.slug for b in log.breaks()] == ["data-dependent-operator"]


def test_the_error_names_both_lines_and_the_ways_out():
    def fn(x):
        n = x.max().item()
        return [x + i for i in range(n)]

    with pytest.raises(Unsupported) as info:
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(torch.tensor([3]))
    text = str(info.value)
    assert "n = x.max().item()" in text and "for i in range(n)" in text
    assert all(way in text for way in ("torch._check", "torch.where", "outside"))


def test_assumptions_that_fail_often_become_breaks():
    def fn(n):
        return torch.zeros(n.item()) + torch.ones(2)

    dynamo_lite.reset()
    counter, before = CompileCounter(), STATS.started_again
    compiled = dynamo_lite.compile(fn, backend=counter)
    for n in (2, 1, 1, 1, 1, 1, 2, 1):
        assert torch.equal(compiled(torch.tensor(n)), torch.ones(2))
    assert STATS.started_again == before + 4 and counter.frame_count == 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_bools_that_data_or_sizes_decide_become_tensors(backend):
    def fn(x):
        some, every = bool(x.any()), bool(x.all())
        return (
            torch.tensor(some),
            torch.as_tensor([[some], [every]]),
            torch.tensor((some, True), dtype=torch.uint8),
            torch.tensor([every, 3]),
            torch.tensor([every, 2.5]),
            torch.tensor(x.shape[0] > 3, dtype=torch.float32),
        )

    dynamo_lite.reset()
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for x in (torch.ones(2), torch.zeros(3), torch.arange(4.0)):
        assert same(fn(x), compiled(x))


def test_a_branch_of_which_one_side_raises_is_a_check():
    def fn(x):
        n = x.max().item()
        if n > 5:
            raise ValueError(f"{n} is too large")
        return x * n

    dynamo_lite.reset()
    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.tensor([2, 3])), torch.tensor([6, 9]))
    with pytest.raises(ValueError, match="7 is too large"):
        compiled(torch.tensor([7]))


def test_a_regular_expression_on_an_instance_of_a_class_that_inherits_from_str():
    import re

    class Text(str):
        pass

    text = Text("v12")

    def fn(x):
        match = re.match(r"v(\d+)", text)
        return x + int(match.group(1)), match.string is text

    run_again = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    result, same = run_again(torch.zeros(1))
    assert result.item() == 12 and same


def test_one_setting_on_and_the_other_automatic():
    """The graph asserts something behind a change: that is what was asked for."""

    def fn(x, n):
        x.mul_(2)
        return torch.zeros(n.item()) + torch.ones(2)

    dynamo_lite.reset()
    counter = CompileCounter()
    with dynamo_lite.config.patch(capture_scalar_outputs=True):
        compiled = dynamo_lite.compile(fn, backend=counter)
        assert torch.equal(compiled(torch.ones(1), torch.tensor(2)), torch.ones(2))
    assert counter.frame_count == 1
