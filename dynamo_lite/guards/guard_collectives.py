"""All processes of a program use a version, or all compile; what they tell each other when they do.

Input: a call of a function that has versions, or an analysis that has ended; whether a version fits, or was made, here. Output: whether
it is so in every process of the default group.
Invariant: one collective for each call of a function, or of what continues one, that has versions, and for each analysis; none without a
process group. The program's collectives are not mixed with these: they have a group of their own.
"""

from __future__ import annotations

import weakref
from types import CodeType
from typing import Any

import torch
from torch import distributed
from torch.utils._python_dispatch import _disable_current_modes

from dynamo_lite import _eval_frame
from dynamo_lite.exc import first_line
from dynamo_lite.messages import short_path


class _State:
    is_on = False


_state = _State()
_groups: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""Default group → the group of the same processes that votes."""


def set_enabled(enabled: bool) -> bool:
    """Switch the agreement on or off. Returns whether it was on."""
    previous = _eval_frame.set_guard_vote(_all_fit if enabled else None)
    _state.is_on = enabled
    return previous is not None


def is_agreed(code: CodeType, is_made: bool) -> bool:
    """Whether all processes have made a version of this code, or none, now that this one has or has not. Raises as `_ask`."""
    return not _state.is_on or any(_ask(code, is_made))


def _all_fit(code: CodeType, fits: bool) -> bool:
    return _ask(code, fits)[0]


def _ask(code: CodeType, answer: bool) -> tuple[bool, bool]:
    """Whether all processes answer yes, whether all answer no. Raises RuntimeError if another process does not answer in time."""
    if _is_alone():
        return answer, not answer
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        group = group_of_ranks()
        device = distributed.distributed_c10d._get_object_coll_device(group)
        answers = torch.tensor([answer, not answer], dtype=torch.int32, device=device)
        try:
            distributed.all_reduce(answers, distributed.ReduceOp.MIN, group)
            every, none = answers.tolist()
        except RuntimeError as error:
            raise RuntimeError(
                f"rank {distributed.get_rank()} has asked the others in vain whether they have a compiled version of {_place(code)}: "
                f"{first_line(error)}. With guard collectives all ranks have to call the same compiled functions in the same order, "
                "as long as any of them runs"
            ) from error
    return bool(every), bool(none)


def told_by_all(code: CodeType, told: Any) -> list[Any]:
    """What each process that compiles this code has to tell, as plain data. Raises RuntimeError if another one does not, or compiles
    something else."""
    if _is_alone():
        return [told]
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        found: list[Any] = [None] * distributed.get_world_size()
        try:
            distributed.all_gather_object(found, (_place(code), told), group_of_ranks())
        except RuntimeError as error:
            raise RuntimeError(
                f"rank {distributed.get_rank()} compiles {_place(code)} and has asked the others in vain for their sizes: "
                f"{first_line(error)}. {_TOGETHER}"
            ) from error
    for rank, (place, _) in enumerate(found):
        if place != _place(code):
            raise RuntimeError(
                f"rank {distributed.get_rank()} compiles {_place(code)} while rank {rank} compiles {place}. {_TOGETHER}"
            )
    return [each for _, each in found]


_TOGETHER = (
    "With config.enable_compiler_collectives all ranks have to compile the same functions in the same order: "
    "dynamo_lite.set_enable_guard_collectives(True) has all compile where one does"
)


def _is_alone() -> bool:
    return not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1


def _place(code: CodeType) -> str:
    return f"{code.co_qualname} ({short_path(code.co_filename)}:{code.co_firstlineno})"


def group_of_ranks() -> Any:
    """The group that ranks agree through: those of the default group, with its time limit. All ranks make it together."""
    default = distributed.group.WORLD
    found = _groups.get(default)
    if found is None:
        device = distributed.distributed_c10d._get_object_coll_device(default)
        found = _groups[default] = distributed.new_group(
            backend="gloo" if distributed.is_gloo_available() else None,
            timeout=default._get_backend(torch.device(device)).options._timeout,
        )
    return found
