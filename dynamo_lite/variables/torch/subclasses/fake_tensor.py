"""`FakeTensor`s of the program.

Input: a real `FakeTensor` with its access path, or a graph value that is one to the program (`graph.inputs.fake_inputs`). Output:
`FakeTensorVariable`.
Invariant: the class is `FakeTensor`; `cls` tells whether it also counts as a `Parameter`. A read of the attributes that operators on data
keep on such a tensor (`constant`, memos) is a break.
Mirrors `torch/_subclasses/fake_tensor.py` (`FakeTensor`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, is_fake

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core import modes
from dynamo_lite.graph.inputs.fake_inputs import SLUG, is_param
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NONE, ConstantVariable, boolean
from dynamo_lite.variables.protocol.descr import type_attribute
from dynamo_lite.variables.protocol.dispatch import builtin
from dynamo_lite.variables.protocol.wrap import builds
from dynamo_lite.variables.torch.tensor import TensorVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame


class FakeTensorVariable(TensorVariable):
    """A tensor without data, of the program's own mode."""

    def python_type(self) -> type:
        return FakeTensor

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        if name in _DEVICES:
            type_attribute(tx, FakeTensor, name)
            return ConstantVariable(self.proxy.meta.device)
        if name == "fake_mode" and self.source is None and modes.fake_mode() is not None:
            return _active_mode(tx)
        if name in _STATE and not (name == "fake_mode" and self.source is not None):
            return unsupported(SLUG, f"FakeTensor.{name}")
        return super().tp_getattro(tx, name)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        if name in _STATE:
            unsupported(SLUG, f"assignment to FakeTensor.{name}")
        super().tp_setattro(tx, name, value)

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return unsupported("format", self.describe())


_DEVICES = ("device", "fake_device")

_STATE = frozenset(
    {
        *(
            "__dict__",
            "fake_mode",
            "_fake_device",
            "constant",
            "real_tensor",
            "pytype",
            "dispatch_keys",
            "_debug_trace",
        ),
        *("nonzero_memo", "item_memo", "unique_memo", "unique_consecutive_memo", "nested_int_memo", "get_nested_int"),
    }
)
"""Attributes in which the class keeps what it knows of a tensor."""


@builds(FakeTensor)
def build_fake_tensor(tr: Trace, value: FakeTensor, source: GuardNode | None) -> TensorVariable:
    vt = tr.graph.outside.tensor(value, source)
    if is_param(value):
        vt.cls = torch.nn.Parameter
    return vt


# -- the mode


_KEY = torch._C._TorchDispatchModeKey.FAKE


def _active_mode(tx: Frame) -> VariableTracker:
    """The mode that the program has active."""
    tx.tr.graph.state.guard_modes()
    mode = modes.fake_mode()
    return NONE if mode is None else tx.tr.wrap(mode, tx.tr.source(tx.tr.constant_source(_KEY), ir.CALL, active_mode))


def active_mode(key: object) -> Any:
    """The dispatch mode on torch's stack that has this key."""
    return torch._C._get_dispatch_mode(key)


@builtin(is_fake)
def torch_is_fake(tx: Frame, x: VariableTracker) -> VariableTracker:
    if not isinstance(x, TensorVariable) or x.__class__ not in (TensorVariable, FakeTensorVariable):
        return unsupported(SLUG, f"is_fake of {x.describe()}")
    return boolean(x.proxy.is_fake)


@builtin(torch._C._get_dispatch_mode)
def get_dispatch_mode(tx: Frame, key: VariableTracker) -> VariableTracker:
    found = _active_mode(tx)
    return found if key.as_python_constant() is _KEY else NONE


@builtin(torch._C._get_dispatch_stack_at)
def get_dispatch_stack_at(tx: Frame, index: VariableTracker) -> VariableTracker:
    found = _active_mode(tx)
    if found is NONE or index.as_python_constant():
        return unsupported("torch-function-mode", "the stack of dispatch modes is read where there is none")
    return found
