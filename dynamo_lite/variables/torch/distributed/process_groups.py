"""Process groups: what C says about them.

Input: a `ProcessGroup` from outside. Output: its size, rank and names, and the group of a name.
Invariant: an answer is a constant that guards ask for again; the group itself may be another one with the same answers.
Mirrors `torch/csrc/distributed/c10d/init.cpp`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import ProcessGroup

from dynamo_lite.exc import unsupported
from dynamo_lite.guards import ir
from dynamo_lite.variables.protocol.dispatch import HANDLERS, builtin

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame
    from dynamo_lite.variables.protocol.base import VariableTracker

SLUG = "call-c-function"


def functions_of(cls: type, *names: str) -> list[Callable[..., Any]]:
    """The functions of C behind methods and properties of a class, of those names that this torch has."""
    found = [vars(cls)[name] for name in names if name in vars(cls)]
    return [member.fget if type(member) is property else member.__func__ for member in found]


GROUP_SIZE, GROUP_NAME = functions_of(ProcessGroup, "size", "group_name")


def ask(tx: Frame, obj: VariableTracker, function: Callable[..., Any]) -> VariableTracker:
    """What a function of C tells about an object from outside; guards ask again."""
    if obj.source is None:
        return unsupported(SLUG, f"{function.__name__} of a {obj.python_type().__name__} made here")
    return tx.tr.wrap(function(obj.value), tx.tr.source(obj.source, ir.CALL, function))


for _function in functions_of(ProcessGroup, "size", "group_name", "rank", "name", "group_desc", "bound_device_id"):
    HANDLERS[_function] = functools.partial(lambda function, tx, self: ask(tx, self, function), _function)


@functools.cache
def _resolver(name: str) -> Callable[[Any], Any]:
    """The function by which guards ask for the group of a name, given torch's."""

    def resolve(resolve_process_group: Callable[[str], Any]) -> Any:
        try:
            return resolve_process_group(name)
        except RuntimeError:  # destroyed
            return None

    return resolve


@builtin(distributed_c10d._resolve_process_group)
def resolve_process_group(tx: Frame, name: VariableTracker) -> VariableTracker:
    resolve, torchs = _resolver(str(name.as_python_constant())), distributed_c10d._resolve_process_group
    group = resolve(torchs)
    if group is None:
        return unsupported(SLUG, f"the process group {name.as_python_constant()!r}, which does not exist")
    return tx.tr.wrap(group, tx.tr.source(tx.tr.constant_source(torchs), ir.CALL, resolve))
