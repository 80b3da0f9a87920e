"""What torch's caches on disk ask about sizes before they give a compiled graph.

Input: the inputs of a graph, for which a cache writes down, or asks, the guards that compiling it has made. Output: the symbols that these
are about.
Invariant: an entry is given only where its guards hold, and these become guards of whoever gets it. The caches (torch 2.13) look for
symbols among the inputs only, where torch.compile has them. Ours are sizes of tensors: entries had no guards, and one that was compiled
for an even size (`x[:, ::2].reshape(-1, 4)` is a view) was given for odd ones, to later processes too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .patches import Substitute


def substitutes() -> Iterator[Substitute]:
    """For `Patches`."""
    from torch._inductor.codecache import GuardedCache

    yield Substitute(GuardedCache, "_filter_backed_symints", _and_sizes)


def _and_sizes(original: Any) -> Any:
    def _filter_backed_symints(cls: type, inputs: Sequence[Any]) -> list[Any]:
        found: list[Any] = original.__func__(cls, [*inputs, *_sizes(inputs)])
        return found

    return classmethod(_filter_backed_symints)


def _sizes(inputs: Sequence[Any]) -> list[Any]:
    """One size or stride for each symbol, in the order of the inputs. What compiling has found a symbol to be must not matter: an entry
    says `t0`, `t1`, …, and is asked before that is known."""
    import torch

    sizes: dict[Any, Any] = {}
    for tensor in inputs:
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
            for size in (*tensor.shape, *tensor.stride()):
                if isinstance(size, torch.SymInt) and size.node._expr.is_Symbol:
                    sizes.setdefault(size.node._expr, size)
    return list(sizes.values())
