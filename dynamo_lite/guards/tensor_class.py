"""The methods and operators of `torch.Tensor`, which a program may replace.

Input: the dictionaries of `torch.Tensor` and `torch.nn.Parameter`. Output: a number for what they are now, and a guard that they are so
again; whether captured code can follow them.
Invariant: two moments with the same number have the same attributes, as far as there were any when the first graph was captured; those
that a program adds later change nothing for what was captured without them.
"""

from __future__ import annotations

import itertools
import types
from typing import Any, NamedTuple

import torch

from dynamo_lite._eval_frame import ClassCheck
from dynamo_lite.isa.typeobject import dict_of, mro_of

_CLASSES = (torch.Tensor, torch.nn.Parameter)

_SHOWN_ONLY = frozenset({"__repr__", "__str__", "__format__", "__doc__", "__module__", "__annotations__"})
"""What no captured code calls without a break."""

_SLOTS_OF_TENSORS = frozenset(
    f"__{name}__"
    for name in """
    len getitem setitem iter contains bool index int float complex hash call eq ne lt le gt ge neg pos abs invert
    add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor radd rsub rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow
    rlshift rrshift rand ror rxor iadd isub imul imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor
    getattribute getattr setattr delattr enter exit torch_function new init
    """.split()
)
"""The special methods that models of tensors stand for."""

MOST_KNOWN = 8
"""States that are recognised when they come back: what a program puts in for the time of a call."""

Attributes = list[dict[str, Any]]


class State(NamedTuple):
    """The guard, what there was, whether all of it is torch's own, and whether its special methods are."""

    check: ClassCheck
    attributes: Attributes
    is_torchs_own: bool
    has_torchs_slots: bool


_known: dict[int, State] = {}
_numbers = itertools.count()


def number_of_attributes(cls: type) -> int:
    """The number of what there is now. Guards ask after each change."""
    now = [_attributes(cls) for cls in _CLASSES]
    for number, state in _known.items():
        if all(_holds(a, b) for a, b in zip(state.attributes, now, strict=True)):
            _known[number] = _known.pop(number)  # the newest
            return number
    if len(_known) == MOST_KNOWN:
        del _known[next(iter(_known))]
    foreign = [name for attributes in now for name, raw in attributes.items() if _is_foreign(raw)]
    number = next(_numbers)
    check = ClassCheck(_WATCHED, number_of_attributes, number)
    _known[number] = State(check, now, not foreign, _SLOTS_OF_TENSORS.isdisjoint(foreign))
    return number


def _attributes(cls: type) -> dict[str, Any]:
    """The attribute that each name leads to in a class, those of its bases included."""
    found = {name: raw for base in reversed(mro_of(cls)) for name, raw in dict_of(base).items()}
    return {name: raw for name, raw in found.items() if name not in _SHOWN_ONLY}


def _holds(then: dict[str, Any], now: dict[str, Any]) -> bool:
    return all(now.get(name, _MISSING) is raw for name, raw in then.items())


_MISSING = object()


def _is_foreign(raw: object) -> bool:
    """Whether a function or property is the program's."""
    function = getattr(raw, "fget", None) or getattr(raw, "__func__", None) or raw
    return issubclass(type(function), types.FunctionType) and not (function.__module__ or "").startswith("torch")


_WATCHED = torch.nn.Parameter
"""Its version is another one after a change of torch.Tensor, too."""


def state() -> State:
    """The state now."""
    newest = next(reversed(_known.values()), None)
    return newest if newest is not None and newest.check() else _known[number_of_attributes(_WATCHED)]


def is_torchs_own() -> bool:
    """Whether nothing is the program's: then what is captured holds in other processes as well."""
    return state().is_torchs_own


def can_be_followed() -> bool:
    """Whether captured code does what it does in eager execution: of special methods it knows those of torch only."""
    return state().has_torchs_slots


def check() -> ClassCheck:
    """A guard: the attributes are what they are now."""
    return state().check
