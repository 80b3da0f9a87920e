"""Collectives that change tensors in place.

Input: the options and calls by which `torch.distributed` has a `ProcessGroup` communicate. Output: the functional operator of the
collective as a node, its result copied where the group would have written it.
Invariant: a collective is in the graph at its place; the copy is made where the program waits. One that is never waited for in the graph
breaks it before the call, and so does whatever the functional operator does otherwise than the group: autograd, other layouts. A group is
known to the graph by its name, which guards compare.
Mirrors `torch/csrc/distributed/c10d/init.cpp`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import Work, distributed_c10d
from torch.distributed.distributed_c10d import ProcessGroup, ReduceOp

from dynamo_lite.exc import Unsupported, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.objects.function import MethodVariable
from dynamo_lite.variables.protocol.abstract import binary_op, get_attr
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import NOT_IMPLEMENTED, TRUE, ConstantVariable, boolean
from dynamo_lite.variables.protocol.descr import DescriptorVariable, PlainObject
from dynamo_lite.variables.protocol.dispatch import CONSTRUCTORS, HANDLERS, builtin, refuse
from dynamo_lite.variables.protocol.wrap import builds
from dynamo_lite.variables.torch.dispatcher_ops import check_unnoticed, notices_errors
from dynamo_lite.variables.torch.tensor import TensorVariable

from .process_groups import GROUP_NAME, GROUP_SIZE, SLUG, ask, functions_of

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

# -- options


class OptionsVariable(PlainObject):
    """The options of a collective, made by the traced code: a record."""

    source = None

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.fields: dict[str, VariableTracker] = {}

    def python_type(self) -> type:
        return self.cls

    def children(self) -> Any:
        return self.fields.values()

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return self.fields.get(name) or unsupported("attribute-of-unknown-object", f"{self.cls.__name__}.{name}")

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        if value is None or type(vars(self.cls).get(name)) is not property:
            unsupported("mutation-of-unknown-object", f"{self.cls.__name__}.{name}")
        self.fields[name] = value

    def emit_new(self, cg: Codegen) -> None:
        cg.load_callable(self.cls)
        cg.asm.call(0)

    def emit_fill(self, cg: Codegen) -> None:
        for name, value in self.fields.items():
            cg.load(value)
            cg.load(self)
            cg.asm.store_attr(name)


for _name in (
    "AllreduceOptions AllreduceCoalescedOptions AllgatherOptions AllToAllOptions BarrierOptions BroadcastOptions GatherOptions"
    " ReduceOptions ReduceScatterOptions ScatterOptions"
).split():
    CONSTRUCTORS[getattr(distributed_c10d, _name)] = lambda tx, cls: OptionsVariable(cls.value)

# -- collectives

_REDUCTIONS = "SUM AVG PRODUCT MIN MAX BAND BOR BXOR".split()


_OF_INTEGERS, _OF_FLOATS = frozenset({"band", "bor", "bxor"}), frozenset({"avg"})


def _reduction(op: Any) -> str | None:
    """What the functional operators call a reduction; None if they know no such one."""
    return next((name.lower() for name in _REDUCTIONS if op == getattr(ReduceOp, name)), None)


class ReductionVariable(DescriptorVariable):
    """A member of `ReduceOp`: a constant."""

    def tp_richcompare(self, tx: Frame, other: VariableTracker, op: str) -> VariableTracker:
        if op not in ("==", "!=") or not isinstance(other, ReductionVariable):
            return NOT_IMPLEMENTED
        return boolean((self.value == other.value) is (op == "=="))

    def tp_hash(self, tx: Frame) -> VariableTracker:
        return ConstantVariable(hash(self.value))


@builds(ReduceOp.RedOpType)
def build_reduction(tr: Trace, value: Any, source: GuardNode | None) -> ReductionVariable:
    tr.guard(tr.source(source, ir.CALL, int), ir.EQUALS, int(value))
    return ReductionVariable(value, source)


class WorkVariable(VariableTracker):
    """The handle of a collective in the graph. `finish` makes the copies, once; `saved` is the break that it saves."""

    source = None

    def __init__(self, finish: Callable[[Frame], None], saved: Unsupported) -> None:
        self.finish: Callable[[Frame], None] | None = finish
        self.saved = saved

    def python_type(self) -> type:
        return Work

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        if name != "wait":
            raise self.saved
        return MethodVariable(tx.tr.build_constant_object(*functions_of(Work, "wait")), self)

    def emit_new(self, cg: Codegen) -> None:
        raise self.saved


@builtin(*functions_of(Work, "wait"))
def work_wait(
    tx: Frame, self: VariableTracker, *timeout: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    if not isinstance(self, WorkVariable):
        return unsupported(SLUG, "Work.wait of a collective before the graph")
    if timeout or kwargs:
        raise self.saved
    if self.finish is not None:
        if notices_errors(tx):
            raise self.saved
        tx.tr.effects.collectives.remove(self)
        self.finish(tx)
        self.finish = None
    return TRUE


def _method(tx: Frame, obj: VariableTracker, name: str, *args: VariableTracker) -> VariableTracker:
    return tx.call(get_attr(tx, obj, name), list(args))


def _check(tx: Frame, tensor: VariableTracker, name: str) -> None:
    """Break where the functional operator would not do what the group does."""
    if not isinstance(tensor, TensorVariable) or type(tensor) is not TensorVariable:
        unsupported(SLUG, f"{name} of a {tensor.python_type().__name__}")
    meta = tensor.proxy.meta
    if meta.layout is not torch.strided or not meta.is_contiguous() or meta.dtype.is_complex:
        unsupported(SLUG, f"{name} of a tensor that is not contiguous")
    if meta.requires_grad and tx.tr.state.read(torch.is_grad_enabled, ()):
        unsupported(SLUG, f"{name}, which writes behind autograd's back, of a tensor that requires gradients")


_COPIED = frozenset({"all_gather_into_tensor", "reduce_scatter_tensor"})
"""Collectives whose results groups, those of gloo at least, copy to the tensor of the program: an ordinary write. (As is the quotient of a
mean.)"""


def _fits(tensor: VariableTracker, result: VariableTracker) -> bool:
    """Whether a group would write the result to the tensor as it is. Sizes that data decide need not be equal, as far as is known."""
    written, made = tensor.proxy.meta, result.proxy.meta
    if (written.dtype, written.device, len(written.shape)) != (made.dtype, made.device, len(made.shape)):
        return False
    equal = [n == m for n, m in zip(written.shape, made.shape, strict=True)]
    if all(type(one) is bool for one in equal):
        return all(equal)
    known = import_module("torch.fx.experimental.symbolic_shapes").guard_or_false
    return all(known(one) for one in equal)


def _begin(
    tx: Frame,
    name: str,
    group: VariableTracker,
    written: list[VariableTracker],
    read: VariableTracker,
    *options: VariableTracker,
    parts: bool = False,
) -> WorkVariable:
    """The node of a collective. When the program waits, the result is copied to the one tensor in `written`, or its `parts` to several."""
    saved = Unsupported(SLUG, f"{name}, for which nothing waits in the graph")
    saved.at(tx.tr.thread.failing_step(), tx.tr.thread.user_stack())
    check_unnoticed(tx, name)
    for tensor in (*written, read):
        _check(tx, tensor, name)
    import_module("torch.distributed._functional_collectives")  # registers what the operators do to fake tensors
    operators = torch.ops._c10d_functional
    group_name = ask(tx, group, GROUP_NAME)
    made = tx.tr.graph.call(tx, "call_function", getattr(operators, name), [read, *options, group_name])
    if not all(_fits(tensor, read if parts else made) for tensor in written):
        unsupported(SLUG, f"{name} between tensors of other shapes or dtypes")

    counts = name in _COPIED or any(one.is_python_constant() and one.as_python_constant() == "avg" for one in options)

    def finish(tx: Frame) -> None:
        done = tx.tr.graph.call(tx, "call_function", operators.wait_tensor, [made])
        each = tx.tr.unpack(tx, _method(tx, done, "chunk", ask(tx, group, GROUP_SIZE))) if parts else [done]
        for target, value in zip(written, each, strict=True):
            # A write to `data` does not count in the `_version` of the tensor, nor does a group's own.
            _method(tx, target if counts else get_attr(tx, target, "data"), "copy_", value)

    work = WorkVariable(finish, saved)
    tx.tr.effects.collectives.append(work)
    return work


def _option(tx: Frame, opts: VariableTracker, name: str) -> VariableTracker:
    if not isinstance(opts, OptionsVariable):
        return unsupported(SLUG, f"a collective with {opts.describe()}")
    return opts.tp_getattro(tx, name)


def _reduction_of(tx: Frame, opts: VariableTracker, tensor: VariableTracker) -> VariableTracker:
    """The name of a reduction. A group refuses bits of floating point numbers, and gloo means of integers, with an error of its own."""
    option = _option(tx, opts, "reduceOp")
    known = _reduction(option.value) if isinstance(option, ReductionVariable) else None
    if known is None:
        return unsupported(SLUG, f"a collective with {option.describe()}")
    dtype = tensor.proxy.meta.dtype if isinstance(tensor, TensorVariable) else None
    if dtype is not None and known in (_OF_INTEGERS if dtype.is_floating_point else _OF_FLOATS):
        unsupported(SLUG, f"{known} of {dtype}")
    return ConstantVariable(known)


def _only(tx: Frame, tensors: VariableTracker) -> VariableTracker:
    """The one item of a list."""
    items = tx.tr.unpack(tx, tensors)
    return items[0] if len(items) == 1 else unsupported(SLUG, "a collective of several tensors")


@builtin(*functions_of(ProcessGroup, "allreduce"))
def allreduce(tx: Frame, self: VariableTracker, tensors: VariableTracker, opts: VariableTracker) -> VariableTracker:
    tensor = _only(tx, tensors)
    return _begin(tx, "all_reduce", self, [tensor], tensor, _reduction_of(tx, opts, tensor))


@builtin(*functions_of(ProcessGroup, "broadcast"))
def broadcast(tx: Frame, self: VariableTracker, tensors: VariableTracker, opts: VariableTracker) -> VariableTracker:
    tensor, root = _only(tx, tensors), _option(tx, opts, "rootRank")
    if (
        root.is_python_constant()
        and not 0 <= root.as_python_constant() < ask(tx, self, GROUP_SIZE).as_python_constant()
    ):
        unsupported(SLUG, "broadcast from a rank that is not in the group")
    return _begin(tx, "broadcast", self, [tensor], tensor, root)


@builtin(*functions_of(ProcessGroup, "all_gather_single", "_allgather_base"))
def all_gather_single(
    tx: Frame, self: VariableTracker, output: VariableTracker, input: VariableTracker, opts: VariableTracker
) -> VariableTracker:
    return _begin(tx, "all_gather_into_tensor", self, [output], input, ask(tx, self, GROUP_SIZE))


@builtin(*functions_of(ProcessGroup, "allgather"))
def allgather(
    tx: Frame, self: VariableTracker, output: VariableTracker, input: VariableTracker, opts: VariableTracker
) -> VariableTracker:
    written = tx.tr.unpack(tx, _only(tx, output))
    size = ask(tx, self, GROUP_SIZE)
    return _begin(tx, "all_gather_into_tensor", self, written, _only(tx, input), size, parts=True)


@builtin(*functions_of(ProcessGroup, "reduce_scatter_single", "_reduce_scatter_base"))
def reduce_scatter_single(
    tx: Frame, self: VariableTracker, output: VariableTracker, input: VariableTracker, opts: VariableTracker
) -> VariableTracker:
    options = [_reduction_of(tx, opts, input), ask(tx, self, GROUP_SIZE)]
    return _begin(tx, "reduce_scatter_tensor", self, [output], input, *options)


@builtin(*functions_of(ProcessGroup, "all_to_all_single", "alltoall_base"))
def all_to_all_single(
    tx: Frame,
    self: VariableTracker,
    output: VariableTracker,
    input: VariableTracker,
    output_splits: VariableTracker,
    input_splits: VariableTracker,
    opts: VariableTracker,
) -> VariableTracker:
    size = ask(tx, self, GROUP_SIZE)
    splits = [_splits(tx, *pair, size) for pair in ((output, output_splits), (input, input_splits))]
    return _begin(tx, "all_to_all_single", self, [output], input, *splits)


def _splits(tx: Frame, tensor: VariableTracker, splits: VariableTracker, size: VariableTracker) -> VariableTracker:
    """How many rows go to, or come from, each rank: equally many where nothing is said."""
    if tx.tr.unpack(tx, splits):
        return splits
    each = binary_op(tx, operator.floordiv, _method(tx, tensor, "size", ConstantVariable(0)), size)
    return ListVariable([each] * size.as_python_constant())


for _name in (
    "barrier monitored_barrier reduce gather scatter alltoall reduce_scatter allreduce_coalesced allgather_coalesced"
    " send recv recv_anysource _start_coalescing _end_coalescing"
).split():
    refuse(SLUG, *functions_of(ProcessGroup, _name), context=f"ProcessGroup.{_name}")


for _name in (
    "all_gather_object gather_object broadcast_object_list scatter_object_list send_object_list recv_object_list"
).split():
    refuse("disallowed-function", getattr(distributed_c10d, _name))

# -- deprecated names


def _follow(function: Any) -> Callable[..., VariableTracker]:
    def handler(tx: Frame, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        return tx.call(tx.tr.build_constant_object(function), list(args), kwargs)

    return handler


for _function in [value for value in vars(distributed_c10d).values() if type(value) is FunctionType]:
    _inner = getattr(_function, "__wrapped__", None)
    if hasattr(_inner, "__deprecated__") and hasattr(_inner, "__wrapped__"):
        # As torch's own functional collectives: captured code does not say that the name is deprecated.
        HANDLERS[_inner] = _follow(_inner.__wrapped__)
