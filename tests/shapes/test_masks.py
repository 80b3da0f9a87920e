"""What a mask selects: forms that stay in the graph, equal bit by bit, and those that break where the mask was applied."""

import operator

import pytest
import torch

import dynamo_lite
from dynamo_lite.exc import Unsupported
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter, differences


def add_in_place(x):
    x[x > 0] += 1.5


def scale(x):
    mask = x < 0.3
    x[mask] = x[mask] * -2 / 3 - 0.1
    return mask


def rows(x):
    x[x[:, 0] > 0] *= 3


def from_another(x):
    y = x * 7
    mask = x > y
    x[mask] = y[mask]
    x[~mask] = -x[~mask]


def written_twice(x):
    x[x > 0.5] = x[x > 0.5].clamp(max=0.75)


def by_a_tensor(x):
    factor = x.abs().max()
    x[x != 0] /= factor


def two_selections(x):
    mask = x > 0
    x[mask] = x[mask] * x[mask] + x.abs()[mask]


def reductions(x):
    whole = (x * 10).round().long()
    mask = x > 0
    return (
        whole[mask].sum(),
        whole[mask].prod(),
        x[mask].any(),
        x[mask].all(),
        (x > 1)[mask].sum(),
        x[mask].count_nonzero(),
    )


def compared(x):
    return (x[x > 0] > 0.5).sum(), (-x[x > 0] < -1).any()


def unused(x):
    x[x > 0]
    return x + 1


def scalar(x):
    x[x < 0] = 0
    x[x > 1] = float("nan")


WHOLE = [
    add_in_place,
    scale,
    rows,
    from_another,
    written_twice,
    by_a_tensor,
    two_selections,
    reductions,
    compared,
    unused,
    scalar,
]


def bits(value):
    return value.view(torch.int32) if isinstance(value, torch.Tensor) and value.dtype is torch.float32 else value


@pytest.mark.parametrize("fn", WHOLE)
def test_masks_in_one_graph(fn):
    dynamo_lite.reset()
    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    torch.manual_seed(0)
    for n in (3, 50, 7, 33):
        x = torch.randn(n, 4)
        x[0, 0], x[-1, -1], x[1, 1] = float("inf"), float("nan"), -0.0
        mine = x.clone()
        assert not list(differences(fn(x), compiled(mine)))
        assert torch.equal(bits(x), bits(mine))
    assert counter.frame_count == 2


def returned(x):
    return x[x > 0]


def summed(x):
    y = x * 2
    return y[y > 0].sum() + 1


def measured(x):
    return len(x[x > 0]), x + 1


def written_between(x):
    mask = x > 0
    chosen = x[mask]
    x.add_(1)
    x[mask] = chosen
    return x


def mask_written_between(x):
    mask = x > 0
    chosen = x[mask]
    mask.zero_()
    x[mask] = chosen[:0]
    return x, chosen


def of_another_mask(x):
    x[x > 0] = x[x < 0].sum()
    return x


def iterated(x):
    return [v + 1 for v in x[x > 1]]


WEIGHT = torch.nn.Parameter(torch.ones(4))


def with_gradients(x):
    y = x * WEIGHT
    y[y > 0] *= 2
    return y.detach()


def stored(x):
    holder = {"chosen": x[x > 0]}
    return holder, torch.relu(holder["chosen"])


BREAKING = [
    returned,
    summed,
    measured,
    written_between,
    mask_written_between,
    of_another_mask,
    iterated,
    with_gradients,
    stored,
]


@pytest.mark.parametrize("fn", BREAKING)
def test_selections_that_are_needed_break_where_they_are_made(fn, monkeypatch):
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(fn, backend="eager")
    monkeypatch.setattr(dynamo_lite.config, "capture_dynamic_output_shape_ops", False)
    monkeypatch.setattr(dynamo_lite.config, "capture_scalar_outputs", False)
    for n in (3, 5, 8):
        x = torch.arange(n * 4.0).reshape(n, 4) - 5
        mine = x.clone()
        assert not list(differences((fn(x), x), (compiled(mine), mine)))
    assert {b.slug for b in log.breaks()} == {"dynamic-shape-operator"}
    line = log.breaks()[0].user_frame
    assert "[" in line.line and line.function == fn.__name__


def test_the_error_names_the_line_of_the_mask():
    with (
        dynamo_lite.config.patch(capture_dynamic_output_shape_ops=False),
        pytest.raises(Unsupported, match=r"y\[y > 0\]\.sum") as info,
    ):
        dynamo_lite.compile(summed, backend="eager", fullgraph=True)(torch.ones(3))
    assert "capture_dynamic_output_shape_ops" in str(info.value)


# -- numbers from data

FROM_DATA = {
    "tolist": lambda x: [n * 2 for n in x.int().tolist()],
    "nested": lambda x: x.view(-1, 1).int().tolist(),
    "item": lambda x: x * x.max().item(),
    "size": lambda x: torch.zeros(int(x.max()) + 1),
    "repeat_interleave": lambda x: torch.arange(3).repeat_interleave(x.int()[:3].abs()),
    "nonzero": lambda x: (x > 0).nonzero().flatten() * 2,
    "nonzero as tuple": lambda x: x[(x > 0).nonzero(as_tuple=True)],
    "where": lambda x: torch.where(x > 0)[0].shape[0] + 1,
    "masked_select": lambda x: torch.masked_select(x, x > 0).sum(),
    "mask": lambda x: x[x > 0].cumsum(0),
}


@pytest.mark.parametrize("allowed", [True, None])
@pytest.mark.parametrize("name", FROM_DATA)
def test_numbers_from_data_stay_in_the_graph_when_allowed(name, allowed):
    fn = FROM_DATA[name]
    inputs = [torch.tensor([1.0, -2.0, 3.0, 2.0]), torch.tensor([4.0, 1.0, 3.0, 5.0])]
    dynamo_lite.reset()
    counter = CompileCounter()
    with dynamo_lite.config.patch(capture_scalar_outputs=allowed, capture_dynamic_output_shape_ops=allowed):
        compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
        for x in inputs:
            assert not list(differences(fn(x), compiled(x)))
    assert counter.frame_count == 1


@pytest.mark.parametrize("name", FROM_DATA)
def test_switched_off_they_break_at_that_operation_only(name):
    def around(x):
        y = torch.relu(x) + 1
        result = fn(y)
        return result, y * 2

    fn = FROM_DATA[name]
    dynamo_lite.reset()
    counter = CompileCounter()
    compiled = dynamo_lite.compile(around, backend=counter)
    x = torch.tensor([1.0, -2.0, 3.0, 2.0])
    with dynamo_lite.config.patch(capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False):
        assert not list(differences(around(x), compiled(x)))
    assert len({(b.user_frame.function, b.user_frame.lineno) for b in log.breaks()}) == 1
    assert counter.frame_count == 2


def test_truth_of_a_tensor():
    def fn(x):
        y = x * 2
        if bool((y > 100).any()):
            return y - 1
        return y + 1

    dynamo_lite.reset()
    compiled = dynamo_lite.compile(fn, backend="eager")
    for x in (torch.ones(3), torch.full((3,), 60.0), torch.ones(3)):
        assert not list(differences(fn(x), compiled(x)))


# -- a number from data is asked for again after a write

WRITES_TO_A_MASK = {
    "item": lambda m, view: m.__setitem__(0, False),
    "method": lambda m, view: m.zero_(),
    "operator": lambda m, view: operator.iand(m, torch.tensor([False, True, True])),
    "view made before": lambda m, view: view.zero_(),
    "view made after": lambda m, view: m[:2].fill_(False),
    "one of several views": lambda m, view: m.view(3, 1)[0].fill_(False),
    "data": lambda m, view: m.data.__setitem__(0, False),
    "detached": lambda m, view: m.detach().__setitem__(0, False),
    "array": lambda m, view: m.numpy().__setitem__(0, False),
    "out": lambda m, view: torch.logical_not(view, out=view),
    "overload": lambda m, view: torch.ops.aten.logical_not_.default(m),
    "list": lambda m, view: torch._foreach_zero_([view]),
    "compiled function": lambda m, view: dynamo_lite.compile(clear)(m),
}


def clear(m):
    m[1:] = False


@pytest.mark.parametrize("is_input", [True, False])
@pytest.mark.parametrize("how", WRITES_TO_A_MASK)
def test_a_mask_that_was_written_to_selects_another_number(how, is_input):
    def fn(x, mask):
        mask = mask if is_input else mask.clone()
        view = mask[:1]
        before = x[mask]
        WRITES_TO_A_MASK[how](mask, view)
        after = x[mask]
        return before, after, len(before) == len(after), after.numel() - before.size(0)

    x, true = torch.tensor([1.0, 2.0, 3.0]), torch.ones(3, dtype=torch.bool)
    compiled = dynamo_lite.compile(fn, backend="eager")
    for _ in range(2):
        assert not list(differences(fn(x, true.clone()), compiled(x, true.clone())))


def shrinking(x, mask):
    lengths = []
    while not lengths or lengths[-1] != x[mask].numel():
        lengths.append(x[mask].numel())
        mask[len(lengths) - 1 :] = False
    return lengths


def nonzero(x, mask):
    view, before = x[:1], len(x.nonzero())
    view.zero_()
    return before == len(x.nonzero())


def distinct(x, mask):
    before = len(x.unique()), len(x.unique_consecutive())
    x.data[0] = 2.0
    return [one == other for one, other in zip(before, (len(x.unique()), len(x.unique_consecutive())), strict=True)]


def number(x, mask):
    numbers = x.long()
    first = numbers[0]
    before = first.item()
    numbers.add_(1)
    return before == first.item(), before - first.item()


def truth(x, mask):
    first = mask[0]
    before = first.item()
    mask[0] = False
    return before == first.item(), before, first.item()


@pytest.mark.parametrize("fn", [shrinking, nonzero, distinct, number, truth])
def test_numbers_that_are_asked_for_again(fn):
    compiled = dynamo_lite.compile(fn, backend="eager")
    for _ in range(2):
        given = [(torch.tensor([1.0, 2.0, 3.0]), torch.ones(3, dtype=torch.bool)) for _ in range(2)]
        assert not list(differences(fn(*given[0]), compiled(*given[1])))


def test_a_side_of_a_branch_writes_to_the_mask():
    def fn(x, mask):
        before = x[mask]
        if x.sum() > 0:
            mask[:2][0] = False
        else:
            x = x * len(x[mask])
        return x, len(before) == len(x[mask])

    with dynamo_lite.config.patch(capture_branches=True):
        compiled = dynamo_lite.compile(fn, backend="eager")
        for x in (torch.ones(3), -torch.ones(3)):
            assert fn(x, x.isfinite())[1] is compiled(x, x.isfinite())[1] is bool(x[0] < 0)


def test_a_write_elsewhere_leaves_the_length():
    def fn(x, mask, count):
        own, before = x * 2, x[mask]
        count.add_(1)
        own.zero_()
        return before + x[mask]

    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    for n in (1.0, 2.0):
        x = torch.tensor([1.0, n, 3.0])
        assert torch.equal(compiled(x, x > 1, torch.zeros(2)), fn(x, x > 1, torch.zeros(2)))
    assert counter.frame_count == 1


@pytest.mark.parametrize("fullgraph", [True, False])
def test_an_input_shares_the_memory_of_the_mask(fullgraph):
    def fn(x, mask, other):
        before = x[mask]
        other[0] = False
        return len(before) == len(x[mask])

    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=fullgraph)
    for share in (lambda m: m.clone(), lambda m: m[:2], lambda m: m):
        mask = torch.ones(3, dtype=torch.bool)
        assert compiled(torch.ones(3), mask, share(mask)) is (share(mask).data_ptr() != mask.data_ptr())
        assert mask.sum() == (2 if share(mask).data_ptr() == mask.data_ptr() else 3)


def loss_of_labelled(x, t):
    return torch.nn.functional.cross_entropy(x[t != -100], t.long()[t != -100])


def copied_outside(x, t):
    y = x.clone()
    y[~(t > 0)] = x[~(t > 0)] * 2
    return y


def views_of_masks(x, t):
    return x.flatten(0, 0)[(t > 0).view(-1)] - x[(t > 0).reshape(-1)] * 2


@pytest.mark.parametrize("fn", [loss_of_labelled, copied_outside, views_of_masks])
def test_a_mask_that_is_computed_twice_selects_as_many(fn):
    x, t = torch.arange(24.0).reshape(6, 4).sin(), torch.tensor([1.0, -100, 2, 0, 3, -100])
    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    for labels in (t, t.flip(0), torch.where(t > 2, -100, t)):
        assert not list(differences(compiled(x, labels), fn(x, labels)))
    assert counter.frame_count == 1


def test_a_mask_of_other_values_may_select_fewer():
    """Equal texts, but `t` is another one by then."""

    def fn(x, t):
        first = x[t > 0]
        t.neg_()
        return first.sum(), x[t > 0] * 2

    x, t = torch.arange(24.0).reshape(6, 4), torch.tensor([1.0, -100, 2, 0, 3, -100])
    compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
    assert not list(differences(compiled(x, t.clone()), fn(x, t.clone())))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_sequences_of_lengths_from_data_are_padded(batch_first, side, backend):
    def fn(x, lengths):
        rows = [x[i, :n] for i, n in enumerate(lengths.tolist())]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first, 0.5, side)

    x = torch.arange(42.0).reshape(3, 7, 2).requires_grad_()
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for lengths in (torch.tensor([2, 4, 1]), torch.tensor([7, 0, 3])):
        result, expected = compiled(x, lengths), fn(x, lengths)
        assert not list(differences(result, expected))
        gradients = [torch.autograd.grad(y.square().sum(), x) for y in (result, expected)]
        assert not list(differences(*gradients))


@pytest.mark.parametrize(
    ("side", "error"),
    [
        ("up", "Expected padding_side to be one of left or right"),
        ("left", "must match the existing size|doesn't match|The size of tensor"),
    ],
)
def test_errors_of_padded_sequences_of_lengths_from_data(side, error):
    def fn(x, lengths):
        rows = [x[i, : lengths[i].item(), : 3 - i] for i in range(2)]
        return torch.nn.utils.rnn.pad_sequence(rows, padding_side=side)

    arguments = torch.zeros(2, 7, 3), torch.tensor([2, 4])
    with pytest.raises(RuntimeError, match=error):
        dynamo_lite.compile(fn, backend="eager")(*arguments)


def pieces(x, y):
    a, b, c = (x > 0).unbind(0)
    return x[0][a], x[1][b], x[2][c]


def turns(x, y):
    return [row[mask] for row, mask in zip(x, y > 0, strict=True)]


def unused_masks(x, y):
    mask = y > 0
    return torch.nonzero(mask), torch.where(y.bool()), x[mask]


def inference(x, y):
    with torch.inference_mode():
        first = x.detach()[y > 0].sum()
    return first.clone() + x[y > 0].sin()


def long_chains(x, y):
    def chain():
        mask = y > 0
        for _ in range(30):
            mask = mask & mask
        return mask

    return x[chain()] + x[chain()]


@pytest.mark.parametrize("fn", [pieces, turns, unused_masks, inference, long_chains])
def test_masks_that_are_no_others(fn):
    x = torch.arange(21.0).reshape(3, 7).sub(8).mul(3).sin()
    mine, theirs = (x.clone().requires_grad_() for _ in range(2))
    y = x.flip(1)
    results = dynamo_lite.compile(fn, backend="eager", fullgraph=True)(mine, y), fn(theirs, y)
    assert not list(differences(*results))


def test_inputs_as_masks():
    def fn(x, a, b):
        return torch.nonzero(a), torch.where(b), torch.nonzero(b)

    arguments = torch.ones(3), torch.tensor([True, False, True]), torch.tensor([False, False, True])
    assert not list(differences(dynamo_lite.compile(fn, backend="eager", fullgraph=True)(*arguments), fn(*arguments)))


def test_a_question_about_strides_that_data_decide():
    def fn(x):
        selected = x.expand(3, 3)[x > 0]
        return selected.t().is_contiguous(), selected * 2

    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter)
    for values in ([1.0, 0, 0], [1.0, 2, 0], [0.0, 0, 0]):
        x = torch.tensor(values)
        assert not list(differences(compiled(x), fn(x)))
    with pytest.raises(Unsupported, match=r"DL004 .*asks for .*which data decide"):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(x)
