"""The torch side of an analysis: FX graph, fake tensors, ambient state.

Where torch is not installed, `side` is `null_runtime`: the engine then captures pure Python only (its own tests use this).

Entry: `builder.GraphBuilder`. Tests: `tests/graph/`.
"""

from importlib.util import find_spec

from .runtime import Runtime

side: Runtime
if find_spec("torch") is not None:
    from . import torch_runtime

    side = torch_runtime
else:
    from . import null_runtime

    side = null_runtime

__all__ = ["side"]
