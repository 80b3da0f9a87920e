"""Integers that modules keep in tensors: the value of a buffer with one element is known once the program has asked for it.

Input: the tensors whose data an operation needs. Output: `Restart`, after which the buffers that they are computed from are inputs with
known data (`FakeTensor.constant`), guarded; or the truth of a comparison.
Invariant: such a buffer is treated like an int attribute of the module, which is a constant too. If its value changes between two
compilations it is data, and guards demand only that each branch goes as it did. If anything else shares its memory it is data altogether,
since writes through that memory would not be seen. The number in another input is known only to operators that read it from the tensor
themselves (`input_number`); it may vary like the numbers among the arguments of a frame.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from dynamo_lite.dynamism import dynamic_shapes
from dynamo_lite.exc import NumbersSeen, Restart
from dynamo_lite.graph.core import modes
from dynamo_lite.graph.core.operator_names import operator_name
from dynamo_lite.graph.core.values import TensorValue
from dynamo_lite.guards import ir

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.graph.builder import GraphBuilder
    from dynamo_lite.guards.ir import GuardNode

_DATA = "data"  # the kind of what is remembered of a buffer with one element
_ASKED = object()
_VARIES = object()


def known_number(tr: Trace, value: torch.Tensor, source: GuardNode) -> bool:
    """Whether the data of an input are known; then guarded. Remembers them for the next compilation."""
    if not _is_kept(value, source):
        return False
    key = _DATA, source.steps
    seen = tr.dynamic_hints.get(key, _VARIES)
    if seen is _VARIES:
        return False
    number = number_of(value)
    if number is None or (seen is not _ASKED and seen != number):
        tr.dynamic_hints[key] = _VARIES
        return False
    tr.dynamic_hints[key] = number
    tr.guard(tr.source(source, ir.CALL, number_of), ir.EQUALS, number)
    return True


def _is_kept(value: torch.Tensor, source: GuardNode) -> bool:
    return (
        dynamic_shapes.is_buffer(source)
        and type(value) is torch.Tensor
        and value.numel() == 1
        and value.device.type == "cpu"
        and value.dtype in _INTEGERS
    )


_INTEGERS = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


def number_of(tensor: torch.Tensor) -> int | None:
    """The only element, None if other tensors share the memory."""
    with torch._C.DisableTorchFunction():
        users = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
        return tensor.item() if users <= _OURS else None


def input_number(builder: GraphBuilder, value: TensorValue, real: object) -> int | None:
    """The number in a tensor without dimensions that the frame is given and the graph does not change; None for any other tensor. Guards
    have to read it again with `number_of`."""
    meta = value.meta
    if meta.ndim or meta.dtype is not torch.int64 or meta.device.type != "cpu" or type(real) is not torch.Tensor:
        return None
    if value.origin is None or value.origin[0] != "input" or builder.scope is not None:
        return None
    if modes.around() or modes.fake_mode() is not None:
        return None
    return None if _may_be_changed(builder, value) else number_of(real)


_OURS = 2  # the tensor, and the storage object that was made to ask


def ask(builder: GraphBuilder, values: Sequence[TensorValue]) -> None:
    """Analyse again with what these are computed from as known numbers, if that is all that is missing."""
    if modes.around() or modes.fake_mode() is not None or any(value.is_fake for value in values):
        return
    wanted: dict[Any, GuardNode] = {}
    for value in values:
        inputs = _inputs_of(builder, value)
        if inputs and all(_is_kept(real, source) for source, real in inputs):
            wanted |= {(_DATA, source.steps): source for source, _ in inputs}
    hints = builder.tr.dynamic_hints
    new = [key for key in wanted if key not in hints]
    if new:
        why = f"the program reads {wanted[new[0]].path}"
        raise Restart(why, fact=NumbersSeen(dict.fromkeys(new, _ASKED)))


def _inputs_of(builder: GraphBuilder, value: TensorValue) -> list[tuple[Any, Any]]:
    """`(source, real tensor)` of all inputs that a value is computed from."""
    found: dict[Any, Any] = {}
    seen: set[Node] = set()
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if type(item) is TensorValue:
            if item.is_input:
                found[item.origin[1]] = item.origin[2]
            node = item.node or (item.origin[1] if item.origin[0] == "item" else None)
        else:
            node = item
        if node is None or node in seen:
            continue
        seen.add(node)
        subject = getattr(node.meta, "subject", None)
        if type(subject) is TensorValue and subject is not item:
            pending.append(subject)
        elif node.op == "placeholder" and type(subject) is not TensorValue:
            return []  # a number that varies
        pending.extend(node.all_input_nodes)
    return list(found.items())


def truth(builder: GraphBuilder, value: TensorValue) -> bool | None:
    """The truth of a tensor that is computed from such integers alone, guarded; None for any other."""
    if builder.scope is not None or modes.around() or modes.fake_mode() is not None or value.is_fake:
        return None
    inputs = _inputs_of(builder, value)
    if not inputs or any(not _is_kept(real, source) or number_of(real) is None for source, real in inputs):
        return None
    sources = [source for source, _ in inputs]
    steps = _steps(builder, builder.node(value), sources)
    if steps is None:
        return None
    found = _evaluate(steps, [real for _, real in inputs])
    text = f"a comparison of {', '.join(source.path for source in sources)} is {found}"
    builder.tr.guards.predicate(functools.partial(_holds, steps, found), sources, text, builder.tr.thread.here())
    return found


class _Step(NamedTuple):
    """An operator on results of earlier steps (their positions, the inputs first) and numbers."""

    function: Any
    operands: tuple[tuple[bool, Any], ...]  # whether it is a result; which one, or the number


def _steps(builder: GraphBuilder, last: Node, sources: list[Any]) -> list[_Step] | None:
    """How the value of a node is computed from these inputs; None if anything but operators that are listed takes part."""
    steps: list[_Step] = []
    at: dict[Node, int] = {}

    def position(node: Node) -> int | None:
        if node not in at:
            found = _input(builder, node, sources) if node.op == "placeholder" else operate(node)
            if found is None:
                return None
            at[node] = found
        return at[node]

    def operate(node: Node) -> int | None:
        function = getattr(torch.Tensor, operator_name(node.target) or "", None)
        if function not in _COMPARING or node.kwargs:
            return None
        operands = [(True, position(arg)) if isinstance(arg, Node) else (False, arg) for arg in node.args]
        if any(operand is None or type(operand) not in _NUMBERS for _, operand in operands):
            return None
        steps.append(_Step(function, tuple(operands)))
        return len(sources) + len(steps) - 1

    return None if position(last) is None else steps


def _input(builder: GraphBuilder, node: Node, sources: list[Any]) -> int | None:
    """Which input a placeholder is, if nothing in the graph has written to it."""
    value = node.meta.subject
    if _may_be_changed(builder, value):
        return None
    return next(i for i, source in enumerate(sources) if source is value.origin[1])


def _may_be_changed(builder: GraphBuilder, value: TensorValue) -> bool:
    """Whether the graph writes to an input, or has views through which it could."""
    return value.family is not None or any(other is value for other in builder.operators.written)


_NUMBERS = (int, bool, float)
_COMPARING = frozenset(
    getattr(torch.Tensor, name)
    for name in "eq ne lt le gt ge add sub mul remainder logical_not logical_and logical_or".split()
)


def _holds(steps: list[_Step], expected: bool, *tensors: torch.Tensor) -> bool:
    return all(number_of(t) is not None for t in tensors) and _evaluate(steps, tensors) is expected


def _evaluate(steps: list[_Step], tensors: Sequence[torch.Tensor]) -> bool:
    values: list[Any] = list(tensors)
    with torch._C.DisableTorchFunction():
        for function, operands in steps:
            values.append(function(*[values[item] if is_result else item for is_result, item in operands]))
        return bool(values[-1])
