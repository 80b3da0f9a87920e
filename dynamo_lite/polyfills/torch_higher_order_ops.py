"""Stand-ins for `torch._higher_order_ops`: operators that, run as they are, only call the function given.

The package knows no torch: what these need of it is passed to them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

Function = Callable[..., Any]


def call_within(context: AbstractContextManager[Any], function: Function, /, *args: Any, **kwargs: Any) -> Any:
    """`wrap_with_autocast`"""
    with context:
        return function(*args, **kwargs)


def call_with_setting(
    read: Function, write: Function, wanted: Any, function: Function, /, *args: Any, **kwargs: Any
) -> Any:
    """`wrap_with_set_grad_enabled`: a function that raises leaves the setting as it is."""
    before = read()
    write(wanted)
    result = function(*args, **kwargs)
    write(before)
    return result


def dynamo_bypassing_wrapper(wrapper_fn_or_key: Any, inner_fn: Any, *args: Any, **kwargs: Any) -> Any:
    """`dynamo_bypassing_wrapper`"""
    wrapper = inner_fn.meta[wrapper_fn_or_key] if isinstance(wrapper_fn_or_key, str) else wrapper_fn_or_key
    return wrapper(inner_fn)(*args, **kwargs)


def register_hook(tensor: Any, hook_body: Function, *freevars: Any) -> Any:
    """`register_hook`"""
    tensor.register_hook(lambda grad: hook_body(grad, *freevars))
    return tensor


def foreach_map(op: Function, *operands: Any) -> Any:
    """What `foreach_map` computes: `op` for the items of lists and for all other operands as they are."""
    if not any(isinstance(operand, list | tuple) for operand in operands):
        return op(*operands)
    columns = [operand if isinstance(operand, list | tuple) else itertools.repeat(operand) for operand in operands]
    return [op(*row) for row in zip(*columns, strict=False)]
