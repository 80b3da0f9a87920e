"""Equal regions of a captured graph, each compiled once and called in all its places.

Regions are stretches of a flat graph that compute the same on inputs of equal metadata: the layers of a transformer, the blocks of a
residual network. What Python did to make the layers does not matter: the graph is complete, so equal regions of it are equal.

Entry: `chain.compile_regions`. Tests: `tests/backends/`.
"""

from __future__ import annotations

from .chain import SEGMENTED, Segmented, compile_regions

__all__ = ["SEGMENTED", "Segmented", "compile_regions"]
