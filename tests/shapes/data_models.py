"""More programs that depend on the data of tensors, in the style of the models that have them: `TABLE` has these and those of
`data_programs`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops import while_loop

from .data_programs import (
    SEEDS,
    STORED,
    TABLE,
    experts,
    floats,
    ints,
    outcome,
    program,
    with_both,
    with_floats,
    with_gradients,
    with_ints,
    with_lengths,
)

__all__ = ["STORED", "TABLE", "outcome"]


def on_masks(fn, *sizes):
    """Calls with floats and a mask of rows, of which some and not all are chosen."""
    rows, *_ = sizes or (6,)
    return fn, [(floats(rows, 4, seed=seed), floats(rows, seed=seed).argsort() < 1 + seed) for seed in SEEDS]


def on_masks_with_gradients(fn):
    return fn, [(x.requires_grad_(), mask) for x, mask in on_masks(fn)[1]]


# ----------------------------------------------------------------------------------------------------------------------
# Training loops and metrics


@program()
def clipped_norm():
    def f(x):
        coefficient = 1.0 / (x.norm().item() + 1e-6)
        return x * min(1.0, coefficient)

    return with_floats(f)


@program(graphs=2)
def running_loss():
    class Meter:
        total, count = 0.0, 0

    meter = Meter()

    def f(x):
        loss = x.pow(2).mean()
        meter.total += loss.item() * x.shape[0]
        meter.count += x.shape[0]
        return loss

    return with_gradients(f)


@program()
def metrics_of_several_losses():
    def f(x):
        losses = {"a": x.abs().mean(), "b": x.pow(2).mean(), "c": x.exp().mean()}
        return sum(losses.values()), {name: loss.item() for name, loss in losses.items()}

    return with_gradients(f)


@program()
def average_of_items():
    def f(x):
        values = [row.mean().item() for row in x]
        return sum(values) / len(values)

    return with_floats(f)


@program()
def accuracy():
    def f(x):
        correct = (x[:, :3].argmax(1) == 1).sum().item()
        return x * 2, 100.0 * correct / x.shape[0]

    return with_floats(f)


@program()
def loss_scale():
    def f(x):
        largest = x.detach().abs().max().item()
        return (x * largest).sum() / largest

    return with_gradients(f)


@program()
def tensor_of_items():
    return with_floats(lambda x: torch.tensor([x.max().item(), x.min().item()]) + 1)


@program()
def full_of_an_item():
    return with_floats(lambda x: torch.full((3,), x.max().item()) * 2)


@program()
def clamp_between_items():
    return with_floats(lambda x: (x * 3).clamp(x.min().item(), x.max().item()))


@program()
def power_of_an_item():
    return with_both(lambda x, n: x.abs() ** n[0].item())


@program()
def flag_of_any():
    return with_floats(lambda x: (x * 2, (x > 1).any().item()))


@program()
def comparison_returned():
    return with_ints(lambda x: (x * 2, x.max().item() == 5, x.min().item() < 2))


@program()
def absolute_item():
    return with_floats(lambda x: x / abs(x.min().item()))


@program()
def integer_division_of_items():
    return with_ints(lambda x: (x // x.max().item(), x.sum().item() // 2))


@program()
def root_of_an_item():
    return with_floats(lambda x: x / math.sqrt(x.abs().sum().item()))


@program()
def rounded_item():
    return with_floats(lambda x: (x * 2, round(x.max().item(), 2)))


# ----------------------------------------------------------------------------------------------------------------------
# Sequences of different lengths


@program()
def causal_mask_of_the_longest():
    def f(lengths):
        n = int(lengths.max())
        return torch.ones(n, n).tril()

    return with_ints(f)


@program()
def crop_to_the_longest():
    return with_both(lambda x, n: x[:, : n.max()] + 1)


@program()
def halves():
    def f(x, n):
        k = n[0].item()
        return torch.cat([x[:, k:], x[:, :k]], 1)

    return with_both(f)


@program()
def padded_by_an_item():
    return with_both(lambda x, n: F.pad(x, (0, n[0].item())))


@program()
def one_hot():
    return with_ints(lambda x: F.one_hot(x, int(x.max()) + 1).float())


@program()
def rotary_positions():
    def f(positions):
        angles = torch.outer(torch.arange(int(positions.max()) + 1).float(), torch.tensor([1.0, 0.1]))
        return angles.cos()[positions]

    return with_ints(f)


@program()
def rows_up_to_lengths():
    def f(x, lengths):
        return torch.stack([x[i, :n].mean() for i, n in enumerate(lengths.tolist())])

    return with_both(f)


@program()
def rows_up_to_lengths_with_gradients():
    fn, calls = rows_up_to_lengths()
    return fn, [(x.requires_grad_(), n) for x, n in calls]


@program()
def last_token():
    return with_both(lambda x, n: x[torch.arange(x.shape[0]), n - 1])


@program()
def cumulated_lengths():
    """As flash attention takes them."""

    def f(lengths):
        return F.pad(lengths.cumsum(0), (1, 0)), lengths.max().item()

    return with_ints(f)


@program()
def unpadded_tokens():
    """As flash attention's `unpad_input` and `pad_input`."""

    def f(x, lengths):
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        indices = mask.flatten().nonzero().flatten()
        tokens = x.flatten()[indices] * 2
        return torch.zeros(x.numel()).index_copy(0, indices, tokens).view_as(x)

    return with_both(f)


@program()
def unpadded_tokens_with_gradients():
    fn, calls = unpadded_tokens()
    return fn, [(x.requires_grad_(), n) for x, n in calls]


@program(graphs=2)
def unpadded_tokens_of_growing_inputs():
    fn, _ = unpadded_tokens()
    return fn, [(floats(n, 8, seed=n), ints(n, seed=n)) for n in (5, 7, 9, 11)]


@program()
def lengths_of_segments():
    def f(ids):
        _, counts = torch.unique_consecutive(ids, return_counts=True)
        return counts.float().mean()

    return with_ints(f, 8)


@program()
def sum_over_a_list_of_lengths():
    def f(x, lengths):
        total = torch.zeros(())
        for n in lengths:
            total = total + x[:, :n].sum()
        return total

    return with_both(f)


@program()
def boxes():
    def f(x, corners):
        y = x.clone()
        for left, right in corners.view(2, 2).tolist():
            y[:, left : left + right] = 0
        return y

    return with_both(f, of_ints=(4,))


@program(graphs=2)
def growing_inputs_up_to_lengths():
    return lambda x, n: x[:, : n.max().item()].sum(1), [(floats(n, 8, seed=n), ints(n, seed=n)) for n in (5, 7, 9, 11)]


@program()
def embedding_of_unique_ids():
    torch.manual_seed(0)
    table = nn.Embedding(6, 3)

    def f(ids):
        values, inverse = torch.unique(ids, return_inverse=True)
        return table(values)[inverse]

    return with_ints(f, 8)


# ----------------------------------------------------------------------------------------------------------------------
# Masks


@program()
def mean_of_a_selection():
    return on_masks_with_gradients(lambda x, mask: x[mask].mean())


@program()
def cross_entropy_of_labelled_rows():
    def f(x, mask):
        labels = mask.long()
        return F.cross_entropy(x[mask], labels[mask])

    return on_masks_with_gradients(f)


@program()
def zero_outside_of_a_mask():
    def f(x, mask):
        y = x.clone()
        y[~mask] = 0
        return y

    return on_masks(f)


@program()
def rows_of_another_tensor():
    def f(x, mask):
        y = torch.zeros_like(x)
        y[mask] = x[mask] * 2
        return y

    return on_masks(f)


@program()
def features_in_the_place_of_tokens():
    """As images in the text of a multimodal model."""

    def f(x, mask):
        features = x.new_ones(6, 4).cumsum(0)[: mask.sum()]
        y = x.clone()
        y[mask] = features
        return y

    return on_masks(f)


@program()
def masked_scatter_of_features():
    return on_masks_with_gradients(lambda x, mask: x.masked_scatter(mask[:, None], torch.ones(6, 4) * 3))


@program()
def index_select_of_a_mask():
    return on_masks(lambda x, mask: x.index_select(0, mask.nonzero().squeeze(-1)))


@program()
def positions_of_a_mask():
    return on_masks(lambda x, mask: torch.stack(torch.where(mask)).T)


@program()
def count_of_a_mask_as_a_size():
    return on_masks(lambda x, mask: torch.zeros(mask.sum().item(), 4) + x[0])


@program()
def selection_viewed():
    return on_masks(lambda x, mask: x[mask].view(-1, 2, 2).transpose(1, 2))


@program()
def argwhere():
    return on_masks(lambda x, mask: torch.argwhere(mask) + 1)


@program()
def unique_rows():
    return with_ints(lambda x: torch.unique(x, dim=0).sum(0), 4, 2)


@program()
def detections():
    """The rows above a threshold, sorted by score."""

    def f(x, mask):
        scores, order = x[:, 0][mask].sort(descending=True)
        return x[mask][order], scores

    return on_masks(f)


@program(graphs=2)
def selection_of_growing_inputs():
    def f(x):
        keep = x[:, 0] > -1
        return x[keep] / keep.sum()

    return with_lengths(f)


@program()
def edges_without_loops():
    """As in graph networks."""

    def f(edges):
        edges = edges.view(2, 4)
        kept = edges[:, edges[0] != edges[1]]
        return torch.zeros(6).index_add(0, kept[0], torch.ones(kept.shape[1]))

    return with_ints(f, 8)


@program()
def pooling_of_graphs():
    def f(x, batch):
        return torch.zeros(batch.max().item() + 1, x.shape[1]).index_add(0, batch, x)

    fn, calls = with_both(f)
    return fn, [(x.requires_grad_(), batch) for x, batch in calls]


@program()
def dense_batch_of_graphs():
    def f(x, batch):
        counts = torch.bincount(batch)
        starts = counts.cumsum(0) - counts
        positions = torch.arange(x.shape[0]) - starts[batch]
        result = torch.zeros(counts.shape[0], x.shape[0], x.shape[1])
        result[batch, positions] = x
        return result

    fn, calls = with_both(f)
    return fn, [(x, batch.sort().values) for x, batch in calls]


# ----------------------------------------------------------------------------------------------------------------------
# Experts


def routed(fn):
    """Calls of a layer of three experts, of which each has tokens."""
    return with_floats(fn, 9, 4)


@program()
def experts_with_capacity():
    """As in switch_transformers: tokens beyond the capacity of their expert are left as they are."""
    modules = experts(3)

    def f(x):
        weights, chosen = x[:, :3].softmax(1).max(1)
        routes = F.one_hot(chosen, 3)
        routes = routes * (routes.cumsum(0) <= 2)
        result = x.clone()
        for i, expert in enumerate(modules):
            mask = routes[:, i].bool()
            result[mask] = expert(x[mask])
        return result * weights[:, None]

    return routed(f)


@program()
def experts_of_two_gates():
    """As in nllb_moe."""
    modules = experts(3)

    def f(x):
        probabilities = x[:, :3].softmax(1)
        gates = F.one_hot(probabilities.topk(2).indices, 3).sum(1) * probabilities
        result = torch.zeros_like(x)
        for i, expert in enumerate(modules):
            tokens = gates[:, i].bool()
            result[tokens] += gates[tokens, i, None] * expert(x[tokens])
        return result

    return routed(f)


@program()
def experts_with_a_shared_one():
    """As in qwen2_moe."""
    *modules, shared = experts(4)

    def f(x):
        weights, chosen = x[:, :3].softmax(1).topk(2)
        weights = weights / weights.sum(-1, keepdim=True)
        result = torch.zeros_like(x)
        for i, expert in enumerate(modules):
            token, slot = torch.where(chosen == i)
            result.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        return result + x[:, :1].sigmoid() * shared(x)

    return routed(f)


@program()
def experts_with_a_shared_one_and_gradients():
    return with_gradients(experts_with_a_shared_one()[0], 9, 4)


@program()
def experts_by_masks_with_gradients():
    return with_gradients(TABLE["experts_by_masks"].make()[0], 9, 4)


@program(graphs=2)
def experts_of_growing_inputs():
    return with_lengths(TABLE["experts_by_where"].make()[0], 9, 12, 15, 19)


@program(graphs=5, whole=False, note="the number of turns, and which expert it is, are Python's")
def experts_that_are_hit():
    """As in mixtral since 2025: which experts have tokens is the number of turns."""
    modules = experts(3)

    def f(x):
        chosen = x[:, :3].argmax(1)
        mask = F.one_hot(chosen, 3).T
        result = torch.zeros_like(x)
        for i in (mask.sum(-1) > 0).nonzero():
            (token,) = torch.where(mask[i.item()])
            result = result.index_add(0, token, modules[i.item()](x[token]))
        return result

    fn, calls = routed(f)
    return fn, calls[:1] * 4


@program(graphs=4, whole=False, note="a branch in each turn")
def experts_that_have_tokens():
    modules = experts(3)

    def f(x):
        chosen = x[:, :3].argmax(1)
        result = torch.zeros_like(x)
        for i, expert in enumerate(modules):
            (token,) = torch.where(chosen == i)
            if token.shape[0] == 0:
                continue
            result[token] = expert(x[token])
        return result

    fn, calls = routed(f)
    return fn, calls[:1] * 4


@program()
def experts_by_counts():
    """As in deepseek_moe: sorted by expert, cut by counts of a known number."""
    modules = experts(3)

    def f(x):
        chosen = x[:, :3].argmax(1)
        order = chosen.argsort(stable=True)
        ends = F.one_hot(chosen, 3).sum(0).cumsum(0).tolist()
        parts, start = [], 0
        for expert, end in zip(modules, ends, strict=True):
            parts.append(expert(x[order[start:end]]))
            start = end
        return torch.empty_like(x).index_copy(0, order, torch.cat(parts))

    return routed(f)


@program()
def experts_as_matrices():
    """As in gpt_oss: every expert on every token."""
    torch.manual_seed(0)
    weights = torch.randn(3, 4, 4)

    def f(x):
        chosen = F.one_hot(x[:, :3].argmax(1), 3).float()
        return torch.einsum("te,eio,ti->to", chosen, weights, x)

    return routed(f)


# ----------------------------------------------------------------------------------------------------------------------
# Branches and loops


@program(graphs=3, whole=False, note="a branch of two sides")
def branch_on_a_sum():
    return with_floats(lambda x: x * 2 if x.sum() > 0 else x - 1)


@program(graphs=1, whole=False, note="the same; the other side is never met")
def mask_of_ones():
    def f(x):
        y = x * 2
        if (x > -9).all():
            return y
        return y.masked_fill(x > -9, 0)

    return with_floats(f)


@program(graphs=2, whole=False, note="the same")
def numbers_that_are_nan():
    def f(x):
        y = x * 2
        if torch.isnan(y).any():
            y = torch.nan_to_num(y)
        return y + 1

    return with_floats(f)


@program()
def larger_of_two_tensors():
    return with_floats(lambda x: max(x.sum(), x.mean()) * 2)


@program(graphs=4, whole=False, note="two branches")
def branch_on_two_tensors():
    def f(x):
        if x.sum() > 0 and x.max() < 99:
            return x + 1
        return x - 1

    return with_floats(f)


@program()
def assertion_on_lengths():
    def f(x, n):
        assert n.max() <= 8
        return x[:, : n.max().item()].sum()

    return with_both(f)


@program()
def explicit_cond():
    return with_floats(lambda x: torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)))


@program()
def explicit_while_loop():
    def f(x):
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))

    return with_floats(f)


@program(graphs=2, whole=False, note="the number of turns is Python's")
def loop_until_small():
    def f(x):
        while x.norm() > 3:
            x = x / 2
        return x

    fn, calls = with_floats(f)
    return fn, calls[:1] * 4


@program(graphs=4, whole=False, note="a branch in each turn")
def decoding_until_finished():
    def f(x):
        tokens, finished = [], torch.zeros(x.shape[0], dtype=torch.bool)
        for _ in range(3):
            token = x.argmax(1)
            finished = finished | (token == 3)
            tokens.append(token)
            if finished.all():
                break
            x = x.roll(1, 1)
        return torch.stack(tokens)

    fn, calls = with_floats(f)
    return fn, calls[:1] * 4


@program(graphs=2, whole=False, note="the same")
def early_exit():
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def f(x):
        for layer in layers:
            x = layer(x)
            if x.softmax(1).max().item() > 0.99:
                break
        return x

    fn, calls = with_floats(f)
    return fn, calls[:1] * 4
