"""Operators that are defined for all values: whether code may run although the program would not.

Input: operators as they run on fake tensors. Output: the first that can raise, depending on data, or that draws random numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Interpreter, Node
from torch.utils._python_dispatch import TorchDispatchMode

from dynamo_lite.graph.core.operator_names import may_write

if TYPE_CHECKING:
    from torch.fx import GraphModule


class Total(TorchDispatchMode):
    """Watches whether only operators run that are defined for all values, element by element (or, with `reductions`, for those of a whole
    dimension or product); `partial`: the first other one."""

    def __init__(self, reductions: bool = False) -> None:
        super().__init__()
        self.reductions = reductions
        self.partial = ""
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count += 1
        is_total = _is_total(func, args, result) or (self.reductions and func._schema.name in _REDUCTIONS)
        self.partial = self.partial or ("" if is_total else str(func))
        return result


def _is_total(func: Any, args: Any, result: object) -> bool:
    if type(func) is not torch._ops.OpOverload or func.namespace not in ("aten", "prim"):
        return False
    if func.namespace == "prim" or func._schema.name in _COPIES:
        return True
    if func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    if torch.Tag.pointwise not in func.tags:
        is_view = any(argument.alias_info is not None for argument in func._schema.arguments)
        return is_view and not any(isinstance(arg, torch.SymInt) for arg in args)  # `x[n]`
    is_float = isinstance(result, torch.Tensor) and (result.is_floating_point() or result.is_complex())
    return is_float or not func._schema.name.startswith(_RAISES_FOR_INTS)


_COPIES = frozenset({"aten::clone", "aten::_to_copy", "aten::full_like", "aten::zeros_like", "aten::ones_like"})

_REDUCTIONS = frozenset(
    f"aten::{name}"
    for name in (
        "sum mean amax amin max min any all norm linalg_vector_norm var std argmax argmin prod logsumexp dot mm bmm addmm mv"
        " scalar_tensor full zeros ones"
    ).split()
)

_RAISES_FOR_INTS = (
    *("aten::div", "aten::floor_divide", "aten::remainder", "aten::fmod", "aten::pow", "aten::float_power"),
    *("aten::__", "aten::bitwise_left_shift", "aten::bitwise_right_shift"),
)
"""Beginnings of the names of operators that integers divide by zero with, or raise to negative powers."""


_NAMES = frozenset(
    (
        "sum mean max min amax amin any all norm abs neg add sub mul lt le gt ge eq ne logical_and logical_or logical_not isnan"
        " isfinite isinf isclose detach reshape scalar_tensor tensor clone unbind view flatten squeeze unsqueeze exp log"
        " sqrt square sin cos tanh sigmoid relu float double bool var std"
    ).split()
)


def why_partial(node: Node) -> str | None:
    """The name of what a node of a captured graph calls, unless it is known to be defined for all values."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name == "getitem" and not any(isinstance(part, Node) for part in _parts(node.args[1])):
        return None  # its position was looked at when the node was made
    is_partial = node.op.startswith("call") and (name not in _NAMES or may_write(node.target, node.kwargs))
    return name if is_partial else None


def _parts(key: Any) -> list[Any]:
    """The items of a subscript, with the ends of its slices."""
    if isinstance(key, slice):
        return [key.start, key.stop, key.step]
    return [part for item in key for part in _parts(item)] if isinstance(key, tuple | list) else [key]


class BehindNode(Interpreter):
    """Runs a module; `watch` sees the operators behind the node of this name."""

    def __init__(self, module: GraphModule, name: str) -> None:
        super().__init__(module)
        self.name = name
        self.is_behind = False
        self.watch = Total(reductions=True)

    def run_node(self, n: Node) -> Any:
        if not self.is_behind:
            self.is_behind = n.name == self.name
            return super().run_node(n)
        with self.watch:
            return super().run_node(n)
