"""Equal regions of a captured graph, each compiled once.

Room: backends. `compile_regions(gm, example_inputs, compile_graph)` finds stretches of a flat graph that compute the same on inputs of
equal metadata (the layers of a transformer, the blocks of a residual network), compiles one of each kind, and calls it in all their places.
What Python did to make the layers does not matter: the graph is complete, so equal regions of it are equal.
"""

from __future__ import annotations

from .chain import SEGMENTED, Segmented, compile_regions

__all__ = ["SEGMENTED", "Segmented", "compile_regions"]
