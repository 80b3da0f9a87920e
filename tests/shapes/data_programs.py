"""Programs with numbers, sizes and containers that depend on the data of tensors.

Each function here makes a program anew: the function to compile and the arguments of its calls, whose data differ (and in each third
program the sizes). `graphs`: how many are compiled for all calls together; more than one are versions or breaks, and `note` says why.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils._pytree import tree_leaves

Program = tuple[Callable[..., Any], list[tuple[Any, ...]]]


class Row(NamedTuple):
    """One program of the table. `whole`: whether no graph breaks."""

    make: Callable[[], Program]
    graphs: int
    whole: bool
    note: str


TABLE: dict[str, Row] = {}

STORED = pathlib.Path(__file__).parent / "data_torch_counts.json"
"""Graphs that torch.compile comes to, with its default settings and backend "eager": `python -m tests.shapes.data_torch_counts`."""


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Any]:
    """The result, and the gradients of the leaves among the arguments."""
    result = fn(*args)
    leaves = [a for a in args if a.requires_grad]
    outputs = [t.sum() for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    return result, torch.autograd.grad(sum(outputs), leaves) if leaves else ()


def program(graphs: int = 1, whole: bool = True, note: str = "") -> Callable[[Callable[[], Program]], Any]:
    """Put a program into the table."""

    def put(make: Callable[[], Program]) -> Callable[[], Program]:
        TABLE[make.__name__] = Row(make, graphs, whole, note)
        return make

    return put


def floats(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed), device="cpu").to(
        torch.get_default_device()
    )


def ints(*sizes: int, seed: int = 0, low: int = 1, high: int = 6) -> torch.Tensor:
    numbers = torch.randint(low, high, sizes, generator=torch.Generator().manual_seed(seed), device="cpu")
    return numbers.to(torch.get_default_device())


SEEDS = range(4)


def with_floats(fn: Callable[..., Any], *sizes: int) -> Program:
    """Calls with one float tensor of these sizes, (6, 4) if none are given."""
    return fn, [(floats(*(sizes or (6, 4)), seed=seed),) for seed in SEEDS]


def with_gradients(fn: Callable[..., Any], *sizes: int) -> Program:
    return fn, [(floats(*(sizes or (6, 4)), seed=seed).requires_grad_(),) for seed in SEEDS]


def with_ints(fn: Callable[..., Any], *sizes: int) -> Program:
    return fn, [(ints(*(sizes or (5,)), seed=seed),) for seed in SEEDS]


def with_both(fn: Callable[..., Any], of_floats: tuple[int, ...] = (5, 8), of_ints: tuple[int, ...] = (5,)) -> Program:
    return fn, [(floats(*of_floats, seed=seed), ints(*of_ints, seed=seed)) for seed in SEEDS]


def with_lengths(fn: Callable[..., Any], *lengths: int) -> Program:
    """Calls whose first sizes differ."""
    return fn, [(floats(n, 4, seed=n),) for n in lengths or (5, 7, 9, 11)]


# ----------------------------------------------------------------------------------------------------------------------
# Numbers


@program()
def item_as_factor():
    return with_floats(lambda x: x * x.max().item())


@program()
def item_returned():
    return with_floats(lambda x: (x + 1, x.sum().item()))


@program()
def item_kept_in_a_dict():
    return with_floats(lambda x: {"loss": x.pow(2).mean().item(), "out": torch.relu(x)})


@program()
def int_of_a_tensor():
    return with_ints(lambda x: x + int(x.max()))


@program()
def float_of_a_tensor():
    return with_floats(lambda x: x / (float(x.abs().sum()) + 1))


@program()
def two_items():
    return with_floats(lambda x: x * x.max().item() + x.min().item())


@program()
def arithmetic_of_items():
    def f(x):
        n = x.max().item()
        m = x.min().item()
        return x + (n * 2 - m) / 3 + n**2

    return with_ints(f)


@program()
def item_with_gradients():
    return with_gradients(lambda x: x * x.detach().abs().max().item())


@program()
def gradient_norm():
    def f(x):
        scale = 1.0 / (x.detach().norm().item() + 1e-6)
        return x * scale

    return with_gradients(f)


@program()
def item_in_a_module():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x):
            return self.lin(x) * x.abs().max().item()

    torch.manual_seed(0)
    return with_floats(Scaled())


@program()
def item_stored_on_an_object():
    class Log:
        last = 0.0

    log = Log()

    def f(x):
        log.last = x.sum().item()
        return x * 2

    return with_floats(f)


@program()
def items_in_a_list():
    return with_floats(lambda x: [row.sum().item() for row in x])


@program(graphs=2)
def item_of_growing_inputs():
    return with_lengths(lambda x: x * x.max().item())


@program()
def number_in_a_text():
    return with_ints(lambda x: (x + 1, f"max {x.max().item()}"))


@program()
def checked_number():
    def f(x, n):
        k = n[0].item()
        torch._check(k > 0)
        torch._check(k <= 8)
        return x[:, :k].sum()

    return with_both(f)


# ----------------------------------------------------------------------------------------------------------------------
# Sizes made of numbers


@program()
def arange_of_an_item():
    return with_ints(lambda x: torch.arange(x.max().item()))


@program()
def zeros_of_an_item():
    return with_ints(lambda x: torch.zeros(x.max().item(), 3) + 1)


@program()
def mask_from_lengths():
    def f(lengths):
        return torch.arange(int(lengths.max()))[None, :] < lengths[:, None]

    return with_ints(f)


@program()
def topk_of_an_item():
    return with_both(lambda x, n: torch.topk(x, n[0].item()).values)


@program()
def slice_up_to_an_item():
    return with_both(lambda x, n: x[:, : n.max().item()] * 2)


@program()
def slice_from_an_item():
    return with_both(lambda x, n: x[:, n.max().item() :].sum())


@program()
def select_by_an_item():
    return with_both(lambda x, n: x[:, n[0].item()] * 2)


@program()
def narrow_by_an_item():
    return with_both(lambda x, n: x.narrow(1, 0, n[0].item()).sum(1))


@program()
def assign_to_a_slice_by_data():
    def f(x, n):
        y = x.clone()
        y[:, n[0].item() :] = 0
        return y

    return with_both(f)


@program()
def assign_to_slices_by_data():
    def f(mask, lengths):
        mask = mask.clone()
        for i in range(mask.shape[0]):
            mask[i, lengths[i] :] = 0
        return mask

    return with_both(f)


@program()
def assign_to_slices_by_tolist():
    def f(mask, lengths):
        mask = mask.clone()
        for i, n in enumerate(lengths.tolist()):
            mask[i, n:] = 0
        return mask

    return with_both(f)


@program()
def split_by_tolist():
    def f(sizes):
        x = torch.arange(sizes.sum().item(), dtype=torch.float32)
        return [part.sum() for part in x.split(sizes.tolist())]

    return with_ints(f, 3)


@program()
def sum_of_tolist():
    return with_ints(lambda x: sum(x.tolist()) + x)


@program()
def tolist_returned():
    return with_ints(lambda x: ((x * 2).tolist(), x + 1))


@program()
def tolist_of_two_dimensions():
    return with_ints(lambda x: x.tolist(), 2, 3)


@program()
def repeat_by_an_item():
    return with_both(lambda x, n: x.repeat(n[0].item(), 1))


@program()
def expand_by_an_item():
    return with_both(lambda x, n: x[None].expand(n[0].item(), -1, -1).sum(0))


@program()
def chunks_of_lists():
    def f(x, n):
        a, b, c, d, e = n.tolist()
        return x[:a].sum() + x[:b].sum() + x[:, :c].sum() + x[:, :d].sum() + e

    return with_both(f)


# ----------------------------------------------------------------------------------------------------------------------
# Sizes of results


@program()
def nonzero():
    return with_floats(lambda x: torch.nonzero(x > 0) * 2)


@program()
def nonzero_as_tuple():
    return with_floats(lambda x: x[torch.nonzero(x > 0, as_tuple=True)].sum())


@program()
def where_of_a_condition():
    def f(x):
        rows, columns = torch.where(x > 0)
        return rows + columns

    return with_floats(f)


@program()
def count_of_nonzero():
    return with_floats(lambda x: (torch.nonzero(x > 0).shape[0] + 1, x * 2))


@program()
def boolean_mask():
    return with_floats(lambda x: x[x > 0] * 2)


@program()
def boolean_mask_of_rows():
    return with_floats(lambda x: x[x[:, 0] > 0].sum(0))


@program()
def boolean_mask_with_gradients():
    return with_gradients(lambda x: x[x > 0].sum() * 2)


@program()
def boolean_mask_assigned():
    def f(x):
        y = x.clone()
        y[y > 0] = y[y > 0] * 2 + 1
        return y

    return with_floats(f)


@program()
def masked_loss():
    def f(x):
        target = x.detach() * 0.5
        chosen = x[:, 0] > -0.5
        return nn.functional.mse_loss(x[chosen], target[chosen])

    return with_gradients(f)


@program(graphs=2)
def boolean_mask_of_growing_inputs():
    return with_lengths(lambda x: x[x > 0].cumsum(0))


@program()
def masked_select():
    return with_floats(lambda x: torch.masked_select(x, x > 0).sqrt().sum())


@program()
def unique():
    return with_ints(lambda x: torch.unique(x) * 2, 8)


@program()
def unique_with_counts():
    def f(x):
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        return values[inverse] + counts.max()

    return with_ints(f, 8)


@program()
def unique_consecutive():
    return with_ints(lambda x: torch.unique_consecutive(x) + 1, 8)


@program()
def bincount():
    return with_ints(lambda x: torch.bincount(x).float() / x.numel(), 8)


@program()
def bincount_with_minlength():
    return with_ints(lambda x: torch.bincount(x, minlength=8).cumsum(0), 8)


@program()
def repeat_interleave():
    return with_both(lambda x, n: x.repeat_interleave(n, 0) + 1)


@program()
def repeat_interleave_with_gradients():
    def f(x, n):
        return x.repeat_interleave(n, 0).sum(0)

    return f, [(floats(5, 8, seed=seed).requires_grad_(), ints(5, seed=seed)) for seed in SEEDS]


@program()
def ragged_positions():
    def f(lengths):
        starts = torch.cumsum(lengths, 0) - lengths
        return torch.arange(int(lengths.sum())) - starts.repeat_interleave(lengths)

    return with_ints(f)


@program()
def length_regulator():
    def f(x, durations):
        rows = [part.repeat_interleave(n, 0) for part, n in zip(x, durations, strict=True)]
        return pad_sequence(rows, batch_first=True)

    return f, [(floats(2, 3, 4, seed=seed), ints(2, 3, seed=seed)) for seed in SEEDS]


@program()
def packed_sequence():
    def f(x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        padded, _ = pad_packed_sequence(packed, batch_first=True)
        return padded * 2

    return f, [(floats(3, 6, 4, seed=seed), ints(3, seed=seed)) for seed in SEEDS]


@program()
def packed_lstm():
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 3, batch_first=True)

    def f(x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        padded, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
        return padded

    return f, [(floats(3, 6, 4, seed=seed), ints(3, seed=seed)) for seed in SEEDS]


@program()
def scatter_back():
    def f(x):
        keep = (x[:, 0] > 0).nonzero().squeeze(1)
        return torch.zeros_like(x).index_copy(0, keep, x[keep] * 2)

    return with_floats(f)


@program()
def nonzero_in_a_network():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def f(x):
        chosen = x[:, 0] > -0.5
        return torch.zeros(x.shape[0], 2).masked_scatter(chosen[:, None], net(x[chosen]))

    return with_floats(f)


# ----------------------------------------------------------------------------------------------------------------------
# Experts


def experts(n: int) -> nn.ModuleList:
    torch.manual_seed(0)
    return nn.ModuleList([nn.Linear(4, 4) for _ in range(n)])


@program()
def experts_by_masks():
    """As in switch_transformers."""
    modules = experts(3)

    def f(x):
        chosen = x[:, :3].argmax(1)
        result = torch.zeros_like(x)
        for i, expert in enumerate(modules):
            mask = chosen == i
            result[mask] = expert(x[mask])
        return result

    return with_floats(f)


@program()
def experts_by_where():
    """As in mixtral."""
    modules = experts(3)

    def f(x):
        weights, chosen = torch.topk(x[:, :3].softmax(1), 2)
        mask = nn.functional.one_hot(chosen, 3).permute(2, 1, 0)
        result = torch.zeros_like(x)
        for i, expert in enumerate(modules):
            slot, token = torch.where(mask[i])
            result.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        return result

    return with_floats(f)


@program()
def experts_by_where_with_gradients():
    _, calls = with_gradients(lambda x: x)
    return experts_by_where()[0], calls


@program(
    graphs=4,
    whole=False,
    note="bincount may have more than three counts: the length of the list is Python's; sizes 0 and 1",
)
def experts_by_sorting():
    modules = experts(3)

    def f(x):
        chosen = x[:, :3].argmax(1)
        counts = torch.bincount(chosen, minlength=3).tolist()
        order = chosen.argsort(stable=True)
        parts = x[order].split(counts)
        result = torch.cat([expert(part) for expert, part in zip(modules, parts, strict=True)])
        return torch.empty_like(result).index_copy(0, order, result)

    return with_floats(f)


# ----------------------------------------------------------------------------------------------------------------------
# What Python needs


@program(graphs=3, whole=False, note="which side runs is Python's decision; the number that comes back varies")
def branch_on_an_item():
    def f(x):
        y = x * 2
        n = y.max().item()
        if n > 100:
            return y - n
        return y + n

    return with_floats(f)


@program(graphs=2, whole=False, note="the number of turns is Python's")
def range_of_an_item():
    def f(x, n):
        y = x * 2
        for _ in range(n[0].item()):
            y = y + 1
        return y.sum()

    _, calls = with_both(f)
    return f, calls[:1] * 4


@program(graphs=2, whole=False, note="the length of a list is Python's")
def iteration_over_nonzero():
    def f(x):
        y = x * 2
        return [y[int(i)].sum() for i in (y[:, 0] > 0).nonzero()]

    _, calls = with_floats(f)
    return f, calls[:1] * 4


@program(graphs=2, whole=False, note="a key is Python's")
def key_of_a_dict():
    table = {i: float(i) for i in range(10)}

    def f(x):
        y = x * 2
        return y * table[x.max().item()]

    _, calls = with_ints(f)
    return f, calls[:1] * 4


@program(graphs=2, whole=False, note="output is in the order of eager execution")
def printed_item():
    def f(x):
        y = x * 2
        print(end=str(y.max().item())[:0])
        return y + 1

    return with_floats(f)


@program(note="a branch of which one side only raises is an assertion")
def raise_on_an_item():
    def f(x):
        n = x.max().item()
        if n > 1e6:
            raise ValueError("too large")
        return x * n

    return with_floats(f)


@program()
def equality_as_a_check():
    def f(x):
        if not torch.equal(x + x, x * 2):
            raise ValueError("not equal")
        return x + 1

    return with_floats(f)


@program()
def equality_returned():
    return with_ints(lambda x: (x + 1, torch.equal(x, x * 1), torch.allclose(x / 2, x + 1.0)))


@program()
def legacy_variable():
    return with_floats(lambda x: torch.autograd.Variable(x) * 2)


@program(note="the program says that either answer will do")
def guard_or_false_of_an_item():
    def f(x):
        n = x.max().item()
        return x - 1 if guard_or_false(n > 100) else x + n

    return with_ints(f)


@program(graphs=3, whole=False, note="what is assumed of the number would be asserted behind a change of an input")
def assumption_behind_a_change():
    def f(x, n):
        x.mul_(2)
        return torch.zeros(n.item()) + torch.ones(2)

    return f, [(floats(3), torch.tensor(n)) for n in (2, 1, 2, 1)]
