"""The torch side of an analysis: FX graph, fake tensors, ambient state.

Where torch is not installed, `side` is `no_torch`: the engine then captures pure Python only (its own tests use this).
"""

from importlib.util import find_spec

if find_spec("torch") is not None:
    from . import torch_side as side
else:
    from . import no_torch as side

__all__ = ["side"]
