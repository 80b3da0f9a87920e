"""`torch.onnx`: captured code is not being exported.

Input: a call. Output: its answer, which holds for every analysis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.onnx

from dynamo_lite.variables.protocol.constant import FALSE
from dynamo_lite.variables.protocol.dispatch import builtin

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame
    from dynamo_lite.variables.protocol.base import VariableTracker


@builtin(torch.onnx.is_in_onnx_export)
def is_in_onnx_export(tx: Frame) -> VariableTracker:
    return FALSE
