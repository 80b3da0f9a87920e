"""rotary-embedding-torch: rotary positions."""

import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb, broadcat

from .program import Programs, leaf

programs = Programs("rotary-embedding-torch")


def heads():
    return leaf(1, 2, 8, 16)


@programs
def queries():
    return RotaryEmbedding(dim=8).rotate_queries_or_keys, (heads(),)


@programs
def queries_with_keys():
    rotary = RotaryEmbedding(dim=8, use_xpos=True)
    return rotary.rotate_queries_and_keys, (heads(), heads())


@programs
def cached():
    rotary = RotaryEmbedding(dim=8, cache_max_seq_len=32)
    return lambda q, k: rotary.rotate_queries_with_cached_keys(q[:, :, -2:], k), (heads(), heads())


@programs
def offset():
    rotary = RotaryEmbedding(dim=8)
    return lambda q: rotary.rotate_queries_or_keys(q, offset=3), (heads(),)


@programs
def learned():
    rotary = RotaryEmbedding(dim=8, learned_freq=True)
    return rotary.rotate_queries_or_keys, (heads(),)


@programs
def axial():
    rotary = RotaryEmbedding(dim=8, freqs_for="pixel", max_freq=16)

    def fn(q):
        return apply_rotary_emb(rotary.get_axial_freqs(4, 2), q)

    return fn, (leaf(1, 4, 2, 16),)


@programs
def frequencies():
    rotary = RotaryEmbedding(dim=8)
    return lambda positions: rotary(positions), (torch.arange(6),)


@programs
def interpolated():
    rotary = RotaryEmbedding(dim=8, interpolate_factor=2.0)
    return rotary.rotate_queries_or_keys, (heads(),)


@programs
def concatenated():
    return lambda a, b: broadcat((a, b), dim=-1), (leaf(2, 1, 4), leaf(1, 3, 4))


@programs
def in_attention():
    rotary, project = RotaryEmbedding(dim=4), torch.nn.Linear(16, 48)

    def fn(x):
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in project(x).chunk(3, -1))
        q, k = rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return fn, (leaf(2, 6, 16),)
