"""Functions that guards on sizes call, each made from plain data: another process makes the same function from the same data.

Input: the name of a method of tensors; the text of a condition. Output: a function; `recipe_of` returns the data that it was made from.
Invariant: apart from these functions, guards on sizes refer to no object of the process.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch

from dynamo_lite._eval_frame import read_tensor

_GLOBALS: dict[str, Any] = {"math": math, "torch": torch}
_RECIPE = "dynamo_lite_recipe"


def _compiled(text: str) -> CodeType:
    """Code that counts as this package's own: nobody captures it while guards run it."""
    return compile(text, f"{__file__}:formula", "eval")


@functools.cache
def getter(method: str, dim: int) -> Callable[[Any], int]:
    """`tensor.method(dim)`, a size or a stride, without a call of a function mode or a tensor class; one function per method and dim."""
    part = {"size": 1, "stride": 2}[method]

    def get(tensor: object) -> int:
        known = read_tensor(tensor)
        if known is not None:
            return known[part][dim]
        with torch._C.DisableTorchFunction():
            return getattr(tensor, method)(dim)

    get.__name__ = f"{method}_{dim}"
    setattr(get, _RECIPE, ("getter", method, dim))
    return get


def formula(text: str, names: tuple[str, ...]) -> Callable[..., Any]:
    """A Python expression as a function of the names in it."""
    function = eval(_compiled(f"lambda {', '.join(names)}: {text}"), _GLOBALS)
    setattr(function, _RECIPE, ("formula", text, names))
    return function


def recipe_of(value: object) -> tuple[Any, ...] | None:
    """The name in `MAKERS` of the maker of this function, and the maker's arguments; None for other functions."""
    return getattr(value, _RECIPE, None) if type(value) is FunctionType else None


MAKERS: dict[str, Callable[..., Any]] = {"getter": getter, "formula": formula}
