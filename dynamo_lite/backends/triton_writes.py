"""Which of its tensors a Triton kernel writes to.

Input: a kernel and values for its parameters. Output: the names of the parameters whose tensors it writes to, by torch's own analysis of
Triton's intermediate representation; all tensors where that analysis fails.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any


def written_tensors(kernel: Any, arguments: Mapping[str, Any]) -> frozenset[str]:
    """`arguments`: a value for each parameter that no configuration sets; tensors stand for all with their dtype."""
    from torch._higher_order_ops import triton_kernel_wrap

    logger = logging.getLogger(triton_kernel_wrap.__name__)
    is_disabled, logger.disabled = logger.disabled, True  # what fails there is no fault of the program
    try:
        return frozenset(triton_kernel_wrap.identify_mutated_tensors(kernel, dict(arguments), {}))
    finally:
        logger.disabled = is_disabled
