"""Sizes of jagged tensors that stand for their offsets.

Input: tensors of offsets or lengths, real or fake. Output: the number by which torch knows each of them.
Invariant: two such numbers are equal if they stand for one tensor, whatever data that has. Guards read the same register as torch.
Mirrors `torch/nested/_internal/nested_int.py` and `nested_tensor.py` (`get_tensor_symint`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nested._internal import nested_tensor
from torch.nested._internal.nested_int import NestedIntNode

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

_REGISTER = nested_tensor._tensor_symint_registry


def nested_int_of(tensor: torch.Tensor) -> Any:
    """The nested int of a real tensor; None if no jagged tensor has been made with it."""
    return _REGISTER.get(tensor) if tensor.ndim == 1 and _REGISTER.data else None


def ragged_key(tensor: torch.Tensor) -> Any:
    """Guard: what two tensors have in common whose jagged tensors fit each other."""
    known = _REGISTER.get(tensor)
    return id(tensor) if known is None else known


def new_nested_int(number: int, coeff: int = 1) -> torch.SymInt:
    """The nested int of this number."""
    return torch.SymInt(NestedIntNode(number, coeff))


def is_nested(sym: Any) -> bool:
    """True for a nested int, real or symbolic, and for what is computed with one."""
    if not isinstance(sym, torch.SymInt | torch.SymFloat):
        return False
    env = getattr(sym.node, "shape_env", None)
    if env is None:
        return isinstance(sym, torch.SymInt) and sym.node.is_nested_int()
    singleton = import_module(
        "torch.utils._sympy.singleton_int"
    ).SingletonInt  # the algebra is there once there are symbols
    return any(isinstance(env.backed_var_to_val.get(s), singleton) for s in sym.node.expr.free_symbols)


class NewNestedInts:
    """`FakeTensorMode.create_symbolic_nested_int` of the mode of a graph under construction: there are symbols once this needs one."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = ref(builder)
        self.mode = ref(builder.propagator.mode)

    def __call__(self, *, nt_tensor_id: int | None = None) -> Any:
        builder, mode = self.builder(), self.mode()
        if builder is None or mode is None:  # a compiler traces the graph anew
            return FakeTensorMode.create_symbolic_nested_int(mode, nt_tensor_id=nt_tensor_id)
        if nt_tensor_id is None:
            nt_tensor_id = mode.nt_tensor_id_counter
            mode.nt_tensor_id_counter += 1
        return builder.symbols.nested(new_nested_int(nt_tensor_id))
