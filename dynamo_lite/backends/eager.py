"""The backend `eager`: the captured graph, run node by node by torch. For debugging and for measuring capture alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule


def eager(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """The graph's own generated Python code."""
    return gm.forward


eager.dynamo_lite_floats = "numbers"
eager.dynamo_lite_undefined_gradients = True
eager.dynamo_lite_by_operator = True
