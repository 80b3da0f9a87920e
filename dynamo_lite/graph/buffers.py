"""Integers that modules keep in tensors: the value of a buffer of one element is known once the program has asked for it.

Input: the tensors on whose data an operation depends. Output: `Restart`; the buffers that they are computed from then are inputs with
known data (`FakeTensor.constant`), guarded.
Invariant: such a buffer is an int like those among the module's attributes, which are constants too. One whose value changes from one
compilation to the next is data, and so is one whose memory anything else shares: what writes there would not be seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Node

from .. import shapes
from ..exc import Restart
from ..guards import ir
from .values import TensorValue

_ASKED = object()
_VARIES = object()


def known_number(tr: Any, value: torch.Tensor, source: Any) -> bool:
    """Whether the data of an input are known; then guarded. Remembers them for the next compilation."""
    if not _is_kept(value, source):
        return False
    key = ("number", source.path)
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


def _is_kept(value: torch.Tensor, source: Any) -> bool:
    return (
        shapes.is_buffer(source)
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


_OURS = 2  # the tensor, and the storage object that was made to ask


def ask(builder: Any, values: Iterable[TensorValue]) -> None:
    """Analyse again with what these are computed from as known numbers, if that is all that is missing."""
    wanted: dict[Any, None] = {}
    for value in values:
        inputs = _inputs_of(builder, value)
        if inputs and all(_is_kept(real, source) for source, real in inputs):
            wanted |= {("number", source.path): None for source, _ in inputs}
    hints = builder.tr.dynamic_hints
    new = [key for key in wanted if key not in hints]
    if new:
        hints.update(dict.fromkeys(new, _ASKED))
        raise Restart(f"the program reads {new[0][1]}")


def _inputs_of(builder: Any, value: TensorValue) -> list[tuple[Any, Any]]:
    """`(source, real tensor)` of all inputs that a value is computed from."""
    found: dict[Any, Any] = {}
    seen: set[Node] = set()
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if type(item) is TensorValue:
            if item.origin is not None and item.origin[0] == "input":
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
