"""einops: patterns of axes."""

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce

from .program import Programs, image, leaf

programs = Programs("einops")


@programs
def patches():
    return lambda x: rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=8, q=8), (image(),)


@programs
def heads():
    def attend(qkv):
        q, k, v = rearrange(qkv, "b n (three h d) -> three b h n d", three=3, h=4)
        weights = einsum(q, k, "b h i d, b h j d -> b h i j").softmax(-1)
        return rearrange(einsum(weights, v, "b h i j, b h j d -> b h i d"), "b h n d -> b n (h d)")

    return attend, (leaf(2, 5, 48),)


@programs
def pooling():
    return lambda x: reduce(x, "b c (h 2) (w 2) -> b c h w", "max"), (image(),)


@programs
def global_mean():
    return lambda x: reduce(x, "b c h w -> b c", "mean") * 2, (leaf(2, 3, 4, 4),)


@programs
def repeated():
    return lambda x: repeat(x, "b c h w -> (b r) c (h 2) w", r=3), (image(),)


@programs
def packed():
    def classify(x, token):
        sequence, shapes = pack([token, x], "b * d")
        first, rest = unpack(sequence.sin(), shapes, "b * d")
        return first + rest.mean(1)

    return classify, (leaf(2, 5, 8), leaf(2, 8))


@programs
def layers():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3),
        Reduce("b c (h 2) (w 2) -> b c h w", "max"),
        Rearrange("b c h w -> b (c h w)"),
        torch.nn.Linear(6 * 15 * 15, 10),
    )
    return model, (image(),)


@programs
def mixer():
    return EinMix("b t c -> b t c0", weight_shape="c c0", bias_shape="c0", c=8, c0=4), (leaf(2, 5, 8),)


@programs
def ellipsis_():
    return lambda x: rearrange(x, "... (h w) -> ... h w", h=2).sum(-1), (leaf(2, 3, 8),)


@programs
def list_input():
    return lambda x, y: rearrange([x, y], "n b c h w -> b (n c) h w"), (image(), image())
