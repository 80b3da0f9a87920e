"""The stand-in for what the reductions of `torch.masked` put in the place of elements that are left out.

torch's own makes a class of `torch.autograd.Function` at each call, which only masked tensors need.
"""

from __future__ import annotations

import sys
from typing import Any

from .c_calls import leave_to_c
from .registry import polyfill

masked: Any = sys.modules.get("torch.masked._ops")  # this module is imported when a function of that one is called


def fill_masked(op: Any, input: Any, mask: Any, *args: Any) -> Any:
    """The input, with the element that changes no result of `op` where the mask is False."""
    if masked.is_masked_tensor(input):
        leave_to_c()
    if mask is None:
        return input
    neutral = masked._reduction_identity(op.__name__, input, *args)
    return masked._where(masked._input_mask(input, mask=mask), input, neutral)


if masked is not None:
    polyfill(masked._combine_input_and_mask)(fill_masked)
