"""Sixty small programs over sizes, and what capture has to make of them.

A row: the function; how its arguments are made of a few sizes; the sizes of one series of calls; how many versions that series compiles;
what the last version holds to be constant although it was symbolic at first. All run under `fullgraph` except for those with `breaks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Program(NamedTuple):
    """One row. `versions`: compilations over the whole series; `constants`: text of each specialisation of the last version, as the
    record has it; `low`: the smallest size that the property test draws; `allow`: settings under which it runs."""

    function: Callable[..., Any]
    arguments: Callable[..., tuple[Any, ...]]
    series: list[Any]
    versions: int
    constants: tuple[str, ...] = ()
    breaks: int = 0
    low: int = 0
    allow: tuple[str, ...] = ()


def numbers(*shape: int) -> Tensor:
    """Whole numbers as floats, so that the order of a sum does not matter."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    return ((torch.arange(count) * 7 + 3) % 11 - 4).to(torch.float32).reshape(shape)


def rows(n: int) -> tuple[Any, ...]:
    return (numbers(n, 4),)


def matrix(n: int, m: int) -> tuple[Any, ...]:
    return (numbers(n, m),)


def pair(n: int, m: int) -> tuple[Any, ...]:
    return numbers(n, 4), numbers(m, 4)


def line(n: int) -> tuple[Any, ...]:
    return (numbers(n),)


def row_and_int(n: int, k: int) -> tuple[Any, ...]:
    return numbers(n, 4), k


def images(n: int, m: int) -> tuple[Any, ...]:
    return (numbers(2, 3, n, m),)


GROW = [3, 5, 7, 9]
GROW2 = [(3, 5), (4, 6), (7, 9), (8, 5)]
POOLED = 2 if torch.__version__ >= "2.12" else 4  # versions; older rules of max_pool2d ask for the remainders of sizes

# -- the programs


def broadcast_rows(x):
    return x + x.sum(0, keepdim=True) * x.shape[0]


def broadcast_two(x, y):
    return x.unsqueeze(1) - y.unsqueeze(0)


def broadcast_same(x, y):
    return x + y


def view_flat(x):
    return x.view(-1) * 2


def view_pairs(x):
    return x.view(x.shape[0] * 2, 2).sum(1)


def reshape_inferred(x):
    return x.t().reshape(2, -1).sum(0)


def flatten_heads(x):
    return x.reshape(x.size(0), 2, 2).transpose(1, 2).flatten(1)


def merge_dims(x):
    return x.permute(1, 0).contiguous().view(x.shape[1] * x.shape[0])


def split_halves(x):
    half = x.shape[0] // 2
    a, b = x.split([half, x.shape[0] - half])
    return torch.cat([b, a])


def chunk_in_two(x):
    first, *rest = x.chunk(2)
    return first.sum() + len(rest)


def split_by_three(x):
    return [part.sum(0) for part in x.split(3)]


def unbind_rows(x):
    return sum(x.unbind(0))


def narrow_tail(x):
    return x.narrow(0, x.shape[0] - 2, 2) + 1


def pad_to_eight(x):
    return F.pad(x, (0, 0, 0, -x.shape[0] % 8)).sum(1)


def pad_sides(x):
    return F.pad(x, (1, 2), value=1.0)


def pad_reflect(x):
    return F.pad(x.unsqueeze(0), (2, 2), mode="reflect")


def pad_pair(x, y):
    longest = max(x.shape[0], y.shape[0])
    return F.pad(x, (0, 0, 0, longest - x.shape[0])) + F.pad(y, (0, 0, 0, longest - y.shape[0]))


def causal_mask(x):
    n = x.shape[0]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    return (x @ x.T).masked_fill(~mask, -1.0)


def triangular_mask(x):
    n = x.size(0)
    return torch.triu(torch.full((n, n), float("-inf")), diagonal=1) + (x @ x.T)


def attention(x):
    n = x.shape[0]
    q = x.view(1, n, 2, 2).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).reshape(n, 4)


def attention_scores(x, y):
    scores = x @ y.T / 2
    positions = torch.arange(y.shape[0])
    return scores.masked_fill(positions[None, :] > torch.arange(x.shape[0])[:, None], 0.0)


def key_padding_mask(x):
    lengths = torch.tensor([2, 3])
    return torch.arange(x.shape[0])[None] < lengths[:, None]


def cache_update(x, k):
    old = x[:k]
    return torch.cat([old, x[k:] * 2]), k + x.shape[0]


WEIGHT = torch.ones(2, 3, 3, 3)


def convolve(x):
    return F.conv2d(x, WEIGHT, padding=1).mean((2, 3))


def convolve_with_stride(x):
    out = F.conv2d(x, WEIGHT, stride=2, padding=1)
    return out, out.shape[2] * 2 - x.shape[2]


def pool(x):
    return F.max_pool2d(x, 2, ceil_mode=True)


def adaptive_pool(x):
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


def upsample(x):
    return F.interpolate(x, scale_factor=2, mode="nearest")


def resize_as(x):
    return F.interpolate(F.max_pool2d(x, 2), size=x.shape[-2:], mode="nearest") + x


def same_padding(x):
    return F.conv2d(x, WEIGHT, padding="same").sum(1)


def unfold_windows(x):
    return x.unfold(0, 3, 2).sum(-1)


def every_second(x):
    return x[::2] * x.shape[0]


def step_of_size(x):
    return x.view(-1)[:: x.shape[0]]


def without_ends(x):
    return x[1:-1] + 1


def shifted(x):
    return x[1:] - x[:-1]


def shift_by_size(x):
    n = x.shape[0]
    return x + (n << 1), 1 << n, -100 >> n, n >> (n & 3), 5 if 400 >> (n & 7) else 6


def transposed_stride(x):
    return x.t() + x.t().stride(0), x.stride(0)


def flipped(x):
    return x.flip(0) - x


def as_strided_windows(x):
    n = x.shape[0]
    return x.as_strided((n - 1, 2), (1, 1))


def expanded(x):
    return x[:, :1].expand(-1, x.shape[0]).contiguous()


def arange_of_size(x):
    return torch.arange(x.shape[0]) * 2 + x[:, 0], torch.arange(0, x.numel(), 2)


def linspace_of_size(x):
    return torch.linspace(0, 1, x.shape[0]) * x[:, 0]


def loop_over_rows(x):
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


def loop_over_tensor(x):
    return [row.sum() for row in x]


def comprehension(x):
    return [i * i for i in range(len(x))], x + 1


def branch_on_size(x):
    return x + 1 if x.shape[0] > 4 else x - 1


def branch_on_parity(x):
    if x.shape[0] % 2 == 0:
        return x.view(-1, 8).sum(1)
    return x.sum(1)


def branch_on_equality(x):
    return x @ x if x.shape[0] == x.shape[1] else x @ x.t()


def branch_on_one_size(x):
    return x * 10 if x.shape[0] == 5 else x


def checked(x):
    if x.shape[0] < 2:
        raise ValueError("too few rows")
    return x.mean(0)


def asserted(x):
    assert x.shape[0] % 1 == 0 and x.shape[1] == 4, x.shape
    return x.sum()


def empty_is_fine(x):
    return x.sum(0) if x.numel() else torch.zeros(4)


def squeezed(x):
    return x.squeeze(0).sum(-1)


def size_in_text(x):
    return x + 1, f"{x.shape[0]} rows"


def shape_in_text(x):
    y = x.repeat(2, 1)
    return y, f"{x.shape} and {y.shape[0]!r}", str(y.shape[0] - 1) + "!", {"rows": str(list(y.shape))}


def size_in_unread_text(x):
    message = f"expected no more than 100 rows, found {x.shape[0]}"
    if x.shape[0] > 100:
        raise ValueError(message)
    torch._check(x.shape[0] != 1, lambda: f"{message}, {x.shape}")
    return x.sum(0)


def size_in_text_that_is_compared(x):
    return x + (f"{x.shape[0]} rows" == "no rows") + (str(x.shape[0]) == "few")


def size_in_text_of_known_width(x):
    return x + 1, f"{x.shape[0]:4d}"


def size_in_text_that_is_split(x):
    return x + 1, f"{x.shape[0]:d} rows".split()


def size_in_key(x):
    table = {f"{n} rows": n for n in range(20)}
    return x + table[f"{x.shape[0]} rows"]


def size_in_name(x):
    return x.sum() + len(str(x.shape[0])) + getattr(torch, f"ones{x.shape[0]}", torch.ones)(1)


def int_in_text(x, k):
    return x * k, f"{k} times", f"{k + 1}"


def size_as_key(x):
    return {x.shape[0]: x.sum()}


def size_in_list(x):
    return x.sum(1), list(x.shape), [0] * x.ndim


def size_as_divisor(x):
    return x / x.shape[0] ** 0.5 + x.numel() / 2


def int_argument(x, k):
    return x[:k] * k


def int_arithmetic(x, k):
    return x * (k * 2 + 1) // (k + 1), k // 2, k % 3


def int_as_count(x, k):
    for _ in range(k):
        x = x + 1
    return x


def tile(x, k):
    return x.repeat(k, 1), x.repeat_interleave(2, dim=0)


def one_hot_rows(x):
    n = x.shape[0]
    return torch.eye(n) @ x


def stack_lists(x):
    return torch.stack([x, x * 2], dim=1).view(-1, 4)


def roll_by_size(x):
    return x.roll(x.shape[0] // 2, 0)


def top_half(x):
    return x[:, 0].topk(x.shape[0] // 2).values


def new_buffer(x):
    out = x.new_zeros(x.shape[0] + 1, 4)
    out[1:] = x
    return out


def written_in_place(x):
    x = x.clone()
    x[: x.shape[0] // 2] += 1
    return x


def item_as_factor(x):
    return x * x.sum().item()


def item_as_size(x):
    n = int(x[0, 0].abs().item()) + 1
    return torch.zeros(n, 2)


def mask_read(x):
    return x[x > 0] * 2


def mask_count(x):
    return x.long()[x > 0].sum(), x[x > 0].any()


def mask_written(x):
    x = x.clone()
    x[x < 0] = 0.0
    x[x > 2] += 1
    return x


def nonzero_count(x):
    return (x > 0).nonzero().shape[0] + 1, x * 2


def uneven_batches(x, y):
    return torch.cat([x.sum(0, keepdim=True), y.sum(0, keepdim=True)]), x.shape[0] + y.shape[0]


SIZES_FROM_DATA = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops")

PROGRAMS: dict[str, Program] = {
    p.function.__name__: p
    for p in [
        # broadcasting
        Program(broadcast_rows, rows, GROW, 2),
        Program(broadcast_two, pair, GROW2, 2),
        Program(broadcast_same, pair, [(3, 3), (5, 5), (7, 7), (1, 7), (1, 9)], 3),
        # view and reshape
        Program(view_flat, rows, GROW, 2),
        Program(view_pairs, rows, GROW, 2),
        Program(reshape_inferred, rows, GROW, 2),
        Program(flatten_heads, rows, GROW, 2),
        Program(merge_dims, matrix, GROW2, 2),
        # split and chunk
        Program(split_halves, rows, GROW, 2),
        Program(chunk_in_two, rows, [4, 6, 8, 5], 2),
        Program(split_by_three, rows, [3, 5, 6, 7, 9], 3),
        Program(unbind_rows, rows, [3, 4, 5], 3, ("x.size(0) = 5",)),
        Program(narrow_tail, rows, GROW, 2, low=2),
        # padding
        Program(pad_to_eight, rows, [3, 5, 7, 8, 9], 2),
        Program(pad_sides, matrix, GROW2, 2),
        Program(pad_reflect, rows, GROW, 2),
        Program(pad_pair, pair, [(3, 5), (4, 6), (7, 9), (9, 8), (11, 2)], 2),
        # attention masks
        Program(causal_mask, rows, GROW, 2),
        Program(triangular_mask, rows, GROW, 2),
        Program(attention, rows, GROW, 2, low=1),
        Program(attention_scores, pair, GROW2, 2),
        Program(key_padding_mask, rows, GROW, 2),
        Program(cache_update, row_and_int, [(5, 2), (6, 3), (7, 4), (9, 5)], 2),
        # convolution arithmetic
        Program(convolve, images, GROW2, 2, low=1),
        Program(convolve_with_stride, images, GROW2, 2, low=1),
        Program(pool, images, GROW2, POOLED, low=2),
        Program(adaptive_pool, images, GROW2, 2, low=1),
        Program(upsample, images, GROW2, 2, low=1),
        Program(resize_as, images, GROW2, 2, low=2),
        Program(same_padding, images, GROW2, 2, low=1),
        # striding
        Program(unfold_windows, line, GROW, 2, low=3),
        Program(every_second, rows, GROW, 2),
        Program(step_of_size, rows, GROW, 2, low=1),
        Program(without_ends, rows, GROW, 2),
        Program(shifted, rows, GROW, 2),
        Program(shift_by_size, rows, GROW, 2),
        Program(transposed_stride, matrix, GROW2, 2),
        Program(flipped, rows, GROW, 2),
        Program(as_strided_windows, line, GROW, 2, low=1),
        Program(expanded, rows, GROW, 2),
        # arange and loops
        Program(arange_of_size, rows, GROW, 2),
        Program(linspace_of_size, rows, [3, 4, 5], 3, ("x.size(0) = 5",)),  # torch takes a plain number here
        Program(loop_over_rows, rows, [3, 4, 5], 3, ("x.size(0) = 5",)),
        Program(loop_over_tensor, rows, [3, 4, 5], 3, ("x.size(0) = 5",)),
        Program(comprehension, rows, [3, 4, 5], 3, ("x.size(0) = 5",)),
        # branches
        Program(branch_on_size, rows, [3, 4, 2, 7, 9, 5], 3),
        Program(branch_on_parity, rows, [3, 5, 4, 8, 6], 3),
        Program(branch_on_equality, matrix, [(3, 5), (4, 6), (7, 7), (6, 6)], 3),
        Program(branch_on_one_size, rows, [3, 4, 5, 6, 7], 3, ("x.size(0) = 5",)),
        Program(checked, rows, GROW, 2),
        Program(asserted, rows, GROW, 2),
        Program(empty_is_fine, rows, [3, 5, 0, 7], 3),
        Program(squeezed, rows, [3, 5, 1, 7], 3),
        # sizes as Python values
        Program(size_in_text, rows, GROW, 2),
        Program(shape_in_text, rows, GROW, 2),
        Program(size_in_unread_text, rows, GROW, 2),
        Program(size_in_text_that_is_compared, rows, GROW, 2),
        Program(size_in_text_of_known_width, rows, [3, 4, 5], 2),
        Program(size_in_text_that_is_split, rows, [3, 4, 5], 3, ("x.size(0) = 5",)),
        Program(size_in_key, rows, [3, 4, 5], 3, ("x.size(0) = 5",)),
        Program(size_in_name, rows, [3, 4, 5], 3, ("x.size(0) = 5",)),
        Program(int_in_text, row_and_int, [(4, 3), (4, 4), (4, 5), (4, 8)], 2),
        Program(size_as_key, rows, [3, 4, 5], 2),
        Program(size_in_list, rows, GROW, 2),
        Program(size_as_divisor, rows, GROW, 2),
        # ints
        Program(int_argument, row_and_int, [(9, 3), (9, 4), (9, 5), (9, 8)], 2),
        Program(int_arithmetic, row_and_int, [(4, 3), (4, 4), (4, 5), (4, 8)], 2),
        Program(int_as_count, row_and_int, [(4, 3), (4, 4), (4, 5)], 3, ("k = 5",)),
        Program(tile, row_and_int, [(4, 3), (5, 4), (6, 5)], 2),
        # tensors made from sizes
        Program(one_hot_rows, rows, GROW, 2),
        Program(stack_lists, rows, GROW, 2),
        Program(roll_by_size, rows, GROW, 2),
        Program(top_half, rows, GROW, 2),
        Program(new_buffer, rows, GROW, 2),
        Program(written_in_place, rows, GROW, 2),
        # data
        Program(item_as_factor, rows, GROW, 2, allow=SIZES_FROM_DATA),
        Program(item_as_size, rows, GROW, 2, low=1, allow=SIZES_FROM_DATA),
        Program(mask_read, rows, GROW, 2, allow=SIZES_FROM_DATA),
        Program(mask_count, rows, GROW, 2),
        Program(mask_written, rows, GROW, 2),
        Program(nonzero_count, rows, GROW, 2, allow=SIZES_FROM_DATA),
        Program(uneven_batches, pair, GROW2, 2),
    ]
}
