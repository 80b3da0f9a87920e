"""Distributed tensors: the conversions from and to local tensors, and placements.

Input: calls of `DTensor`'s methods with meshes and placements, which no graph can hold; `Placement` objects. Output: one node per call, of
a function that has these built in; placements as constants.
Invariant: placements never change and compare by value; a mesh is known by identity.
Mirrors `torch/distributed/tensor/_api.py` and `placement_types.py`. Loaded when the program has loaded `torch.distributed.tensor`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch._library.opaque_object import is_opaque_type
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from dynamo_lite.exc import unsupported
from dynamo_lite.graph.core.arguments import Packing, packs
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import MISSING, VariableTracker
from dynamo_lite.variables.protocol.constant import NOT_IMPLEMENTED, ConstantVariable, boolean, is_constant, is_none
from dynamo_lite.variables.protocol.descr import DescriptorVariable
from dynamo_lite.variables.protocol.dispatch import builtin, constructor, refuse
from dynamo_lite.variables.protocol.wrap import builds
from dynamo_lite.variables.torch.tensor import TensorVariable

from .wrapper_tensor import WrapperTensorVariable

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

SLUG = "tensor-subclass"
_PLACEMENTS = (Shard, Replicate, Partial)


class PlacementVariable(DescriptorVariable):
    """A placement: a constant."""

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        found = getattr(self.value, name, MISSING)
        if inspect.ismethod(found) or inspect.isroutine(found):
            return PlacementMethodVariable(self.value, name)
        return tx.tr.wrap_new(found) if found is not MISSING else unsupported(SLUG, f"{self.value!r}.{name}")

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if op not in ("==", "!=") or not isinstance(other, PlacementVariable):
            return NOT_IMPLEMENTED
        return boolean((self.value == other.value) is (op == "=="))

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(hash(self.value))

    def tp_repr(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(repr(self.value))

    def emit_new(self, cg: Codegen) -> None:
        cg.load_const(self.value)


class MaskPlacementVariable(PlacementVariable):
    """The placement of what was looked up in a part of a table. It has a mask that others of its kind have too: it stays in the graph."""

    def emit_new(self, cg: Codegen) -> None:
        unsupported(SLUG, f"a placement {self.value!r} behind the graph")


class PlacementMethodVariable(VariableTracker):
    """A method of a placement, which is called for real."""

    def __init__(self, placement: object, name: str) -> None:
        self.method = getattr(placement, name)

    def python_type(self) -> type:
        return type(self.method)

    def tp_call(self, tx: Frame, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if not is_constant(*args, *kwargs.values()):
            return unsupported(SLUG, f"{self.method.__qualname__} of something else than constants")
        host = [a.as_python_constant() for a in args]
        return tx.tr.wrap_new(self.method(*host, **{k: v.as_python_constant() for k, v in kwargs.items()}))


class _Same:
    """Guard: an equal placement."""

    def __init__(self, placement: Any) -> None:
        self.placement = placement

    def __call__(self, value: object) -> bool:
        return type(value) is type(self.placement) and bool(value == self.placement)


@builds(*_PLACEMENTS)
def build_placement(tr: Trace, value: object, source: GuardNode | None) -> PlacementVariable:
    tr.guard(source, ir.PYTHON, _Same(value))
    return PlacementVariable(value, source)


@constructor(*_PLACEMENTS)
def new_placement(tx: Frame, cls: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    if not is_constant(*args, *kwargs.values()):
        return unsupported(SLUG, "a placement made from something else than constants")
    host = [a.as_python_constant() for a in args]
    try:
        return PlacementVariable(
            cls.as_python_constant()(*host, **{k: v.as_python_constant() for k, v in kwargs.items()})
        )
    except TypeError as error:
        return tx.raises_like(error)


# -- calls


class MeshVariable(VariableTracker):
    """A mesh as an argument of a node, and an input of the graph."""

    def __init__(self, mesh: Any, source: GuardNode | None) -> None:
        self.value = mesh
        self.source = source

    def python_type(self) -> type:
        return type(self.value)


def _are_inputs() -> bool:
    """Whether AOTAutograd takes meshes as inputs. Since torch 2.13, where the parts of a `DTensor` are its local tensor and its mesh, it
    does, and requires that the mesh of each `DTensor` that leaves the graph is an input of the graph."""
    return is_opaque_type(DeviceMesh)


@packs(MeshVariable)
def pack_mesh(packing: Packing, vt: MeshVariable) -> Any:
    packing.memorable = False
    node = packing.builder.outside.opaque(vt.value, vt.source)
    packing.values[node] = vt.value
    return node


def _host(tx: Frame, vt: VariableTracker) -> Any:
    """A mesh, placements, or an option."""
    if isinstance(vt, PlacementVariable):
        return vt.value
    if isinstance(vt, TupleVariable | ListVariable):
        return tuple([_host(tx, item) for item in tx.tr.unpack(tx, vt)])
    if issubclass(vt.python_type(), DeviceMesh) and vt.source is not None and not vt.mutated:
        tx.tr.guard(vt.source, ir.IS, vt.value)
        return vt.value
    return vt.as_python_constant() if vt.is_python_constant() else unsupported(SLUG, f"{vt.describe()} for a DTensor")


def _with_tensor_first(function: Callable[..., Any]) -> None:
    """Make nodes of the calls of a function that takes a tensor, possibly a mesh, and constants."""
    signature = inspect.signature(function)

    @builtin(function)
    def handler(tx: Frame, tensor: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        if not isinstance(tensor, TensorVariable):
            return unsupported(SLUG, f"{function.__qualname__} of a {tensor.python_type().__name__}")
        try:
            bound = signature.bind(tensor, *args, **kwargs).arguments
        except TypeError as error:
            return unsupported("arguments-mismatch", function.__qualname__, error)
        mesh = bound.pop("device_mesh", None)
        host = {name: _host(tx, value) for name, value in list(bound.items())[1:]}

        given: list[Any] = [tensor]
        if not is_none(mesh):
            known = _host(tx, mesh)
            if _are_inputs():
                given.append(MeshVariable(known, mesh.source))
            else:
                host["device_mesh"] = known

        def call(tensor: object, *mesh: Any) -> Any:
            return function(tensor, *mesh, **host)

        call.__name__ = call.__qualname__ = function.__name__
        return tx.tr.graph.call(tx, "call_function", call, given, memo=False)


for _function in (DTensor.from_local, DTensor.to_local, DTensor.redistribute, DTensor.full_tensor):
    _with_tensor_first(_function)


# Sends parts of the tensor to other processes.
refuse("disallowed-function", distribute_tensor)


# -- attributes


@builtin(DTensor.placements.fget)
def dtensor_placements(tx: Frame, self: WrapperTensorVariable) -> VariableTracker:
    """`DTensor.placements`, which the guard on a tensor from outside covers."""
    return TupleVariable([_known(p) for p in self.proxy.fake.placements])


def _known(placement: object) -> VariableTracker:
    if isinstance(placement, Partial) and hasattr(placement, "mask_buffer"):
        return MaskPlacementVariable(placement)
    if type(placement) not in _PLACEMENTS:
        return unsupported(SLUG, f"a placement {placement!r}")
    return PlacementVariable(placement)


@builtin(DTensor.device_mesh.fget)
def dtensor_device_mesh(tx: Frame, self: WrapperTensorVariable) -> VariableTracker:
    """`DTensor.device_mesh`."""
    tr = tx.tr
    if self.source is None:
        mesh = self.proxy.fake.device_mesh
        return tr.wrap(mesh, tr.constant_source(mesh))
    spec = tr.source(self.source, ir.ATTR, "_spec")
    return tr.wrap(self.value.device_mesh, tr.source(spec, ir.ATTR, "mesh"))
