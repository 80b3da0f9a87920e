"""Which functions and modules share their compiled versions.

Input: what was given to `compile`. Output: a key. Closures of one factory, instances of one class and layers of one shape have equal
keys.
Invariant: the key decides about sharing alone; whether a version holds for a call is decided by its guards. A key contains ids, so it is
valid as long as the objects live of which it was made.

With versions, recompile limits and the memory of sizes that vary are shared. So closures over data share, whatever the data are, and
closures over other functions do not: each needs versions of its own, and so does a decorator's wrapper for each function that it wraps.
Modules share if they have the same classes and sizes of parameters all the way down.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Hashable, Iterator
from typing import Any

import torch

from dynamo_lite import _eval_frame

DEEPEST = 8
"""Functions within functions that are looked into."""


_PARTS_OF_PROGRAMS = (type, types.BuiltinFunctionType, types.ModuleType, types.FunctionType)
"""Types of what is part of a program rather than its data."""


_WRAPPERS = (_eval_frame.Callable, _eval_frame.UncapturedFunction, _eval_frame.Uncaptured)


def key_of(value: object) -> Hashable:
    """The key of a function, a module or another callable."""
    return _key(value, 0)


def _key(value: Any, depth: int) -> Hashable:
    if issubclass(type(value), torch.nn.Module):
        with torch._C.DisableTorchFunctionSubclass():
            return tuple(_parts_of_module(value, set()))
    if depth < DEEPEST:
        if type(value) in _WRAPPERS:
            value = value.__wrapped__
        if type(value) is types.FunctionType:
            return _key_of_function(value, depth)
        if type(value) is types.MethodType:
            return _key(value.__func__, depth + 1), _key(value.__self__, depth + 1)
        if type(value) is functools.partial:
            return "partial", _key(value.func, depth + 1)
    if issubclass(type(value), _PARTS_OF_PROGRAMS):
        return id(value)
    return id(type(value))


def _key_of_function(function: types.FunctionType, depth: int) -> Hashable:
    cells = [_key_of_cell(cell, depth + 1) for cell in function.__closure__ or ()]
    return id(function.__code__), id(function.__globals__), *cells


def _key_of_cell(cell: types.CellType, depth: int) -> Hashable:
    try:
        return _key(cell.cell_contents, depth)
    except ValueError:  # empty so far
        return None


def _parts_of_module(module: torch.nn.Module, seen: set[int]) -> Iterator[Hashable]:
    """The class of a module, the sizes of its parameters and buffers, and its submodules."""
    yield id(type(module))
    if id(module) in seen:
        return
    seen.add(id(module))
    state = object.__getattribute__(module, "__dict__")
    for kind in ("_parameters", "_buffers"):
        for name, tensor in state.get(kind, {}).items():
            yield name, _sizes(tensor)
    for name, child in state.get("_modules", {}).items():
        yield name
        if child is not None:
            yield from _parts_of_module(child, seen)
    yield None


def _sizes(tensor: Any) -> Hashable:
    try:
        return str(tensor.dtype), tuple(map(int, tensor.shape))
    except (AttributeError, RuntimeError, TypeError, ValueError):  # nothing, no sizes yet, or sizes that are no ints
        return type(tensor).__name__
