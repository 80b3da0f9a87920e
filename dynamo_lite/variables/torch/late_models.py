"""Models of what a program need not import.

Input: the modules that the program has imported by the time a trace begins. Output: our modules about them, imported, which fills the
tables of models.
Invariant: a trace imports neither sympy nor a part of torch, numpy or tqdm that the program does without.
"""

from __future__ import annotations

from importlib import import_module

from dynamo_lite.graph.core.arguments import MODELS
from dynamo_lite.import_hook import loaded

_LATE = {
    "numpy.fft": ".numpy.fourier",
    "tqdm.std": "..stdlib.progress_bars",
    "torch.distributed.distributed_c10d": ".distributed.collectives",
    "torch.distributed.tensor": ".subclasses.dtensor",
    "torch.fx.experimental.symbolic_shapes": ".symbolic_shapes",
    "torch.onnx": ".onnx_export",
    "triton.runtime.autotuner": ".triton_kernels",
}
"""Module of the program → our module about it, as long as that is not imported."""


def load_late() -> None:
    """Called when a trace begins."""
    for name in [name for name in _LATE if loaded(name) is not None]:
        import_module(_LATE[name], __package__)
        _LATE.pop(name, None)


MODELS.load_late = load_late
