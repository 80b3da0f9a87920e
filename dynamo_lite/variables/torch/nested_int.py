"""Nested ints: the size of a jagged tensor in its ragged dimension.

Input: sizes of jagged tensors; real nested ints with their access paths. Output: `NestedIntVariable`.
Invariant: the only fact about a nested int is its equality with others. A new one is read from the size of a tensor after the graph has
run.
Mirrors `torch/nested/_internal/nested_int.py`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.nested._internal import nested_tensor

from dynamo_lite.exc import Restart, unsupported
from dynamo_lite.graph.core.arguments import MODELS
from dynamo_lite.graph.core.nested_int import is_nested
from dynamo_lite.graph.core.values import SymValue
from dynamo_lite.graph.shapes.sizes import size_getter, stride_getter
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.wrap import builds

from .symnode import SymNodeVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

SLUG = "tensor-subclass"


def _refused(what: str) -> Any:
    """A slot that breaks the graph."""
    return lambda self, tx: unsupported(SLUG, f"{what} of a ragged dimension")


class NestedIntVariable(SymNodeVariable):
    """A nested int, or a multiple of one."""

    is_rebuilt = True

    def __init__(self, proxy: SymValue) -> None:
        super().__init__(proxy)
        self.operands = _operands(proxy.origin)

    def python_type(self) -> type:
        return torch.SymInt

    def as_python_constant(self) -> Any:
        return unsupported(SLUG, "the number of a ragged dimension")

    nb_bool = _refused("the truth")
    nb_index = nb_int = nb_float = _refused("the number")
    tp_hash = _refused("the hash")
    tp_repr = _refused("the text")

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return unsupported(SLUG, f"{name} of a ragged dimension")

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        try:
            return super().tp_richcompare(tx, other, op)
        except ValueError as error:  # larger or smaller than what, nobody knows
            return unsupported(SLUG, f"{op} with a ragged dimension", error)

    def children(self) -> Any:
        return self.operands

    def emit_new(self, cg: Codegen) -> None:
        """Read it from the size of its tensor."""
        kind, *parts = self.proxy.origin
        if kind == "method":
            _, name, dim = parts
            cg.load_callable(size_getter(dim) if name == "size" else stride_getter(dim))
        else:
            cg.load_callable(parts[0])
        for operand in self.operands:
            cg.load(operand)
        cg.asm.call(len(self.operands))


def _operands(origin: Any) -> tuple[VariableTracker, ...]:
    """The parts of a nested int: a tensor, or the factors of a product."""
    kind, *parts = origin
    if kind == "method":
        return (parts[0].tracker,)
    if kind == "call":
        return tuple([MODELS.number(n.sym, n.origin) if type(n) is SymValue else ConstantVariable(n) for n in parts[1]])
    return ()


def make_symbol(value: SymValue) -> SymNodeVariable:
    """The model of a symbolic number."""
    if type(value) is not SymValue or not is_nested(value.sym):
        return SymNodeVariable(value)
    if value.origin is None or (value.origin[0] == "call" and value.origin[1] is not operator.mul):
        return unsupported(SLUG, "arithmetic with a ragged dimension")
    return NestedIntVariable(value)


MODELS.symbol = make_symbol


@builds(torch.SymInt)
def build_symint(tr: Trace, value: Any, source: GuardNode | None) -> VariableTracker:
    if not is_nested(value) or hasattr(value.node, "shape_env"):
        return unsupported("graph-argument-type", f"a symbolic number {value}")
    tr.guard(source, ir.TYPE_IS, torch.SymInt)
    vt = NestedIntVariable(SymValue(tr.graph.symbols.nested_int(value, source, source.path), None, ("nested", source)))
    vt.source, vt.value = source, value
    return vt


@builtin(nested_tensor._nt_view_dummy)
def view_dummy(tx: Frame) -> VariableTracker:
    """A jagged tensor that only serves to find operators: there is one in a process, and nothing depends on it."""
    known = nested_tensor._dummy_instance
    if known is None:
        nested_tensor._nt_view_dummy()
        raise Restart("the dummy of jagged tensors has a nested int, which no other may be taken for")
    return tx.tr.build_constant_object(known)
