"""Equal regions of a captured graph, each compiled once and called in all its places.

Regions are stretches of a flat graph that compute the same on inputs of equal metadata: the layers of a transformer, the blocks of a
residual network. What Python did to make the layers does not matter: the graph is complete, so equal regions of it are equal.
`buckets` cuts graphs in the same way for the all-reduces of `DistributedDataParallel`.

Entry: `chain.compile_regions`, `buckets.find_buckets`. Tests: `tests/backends/`.
"""

from __future__ import annotations

from .buckets import BY_OPERATOR, bucket_limits, find_buckets, in_buckets
from .chain import SEGMENTED, Segmented, compile_chain, compile_regions

__all__ = [
    "BY_OPERATOR",
    "SEGMENTED",
    "Segmented",
    "bucket_limits",
    "compile_chain",
    "compile_regions",
    "find_buckets",
    "in_buckets",
]
