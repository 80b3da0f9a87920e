"""Real C code that runs on constants of the traced program.

Input: a C function without effects and the trackers of its arguments. Output: the tracker of its result.
Invariant: no code of the program runs. An instance of a class that derives from an immutable builtin type is passed as its builtin value,
where C code takes only that, or the class defines no special methods that the code may ask for, which is guarded; objects of other
classes of the program break the graph.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import NotConstant, unsupported
from dynamo_lite.isa.typeobject import dict_of, is_heap_type, mro_of
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.protocol.constant import ATOM_BASES, ATOMIC_TYPES, ConstantVariable, atom_base
from dynamo_lite.variables.protocol.slots import COMPARISONS, SLOTDEFS

from .list import ListVariable
from .tuple import TupleVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

_CONVERTING = {int, float, complex, bytes, str, bin, oct, hex, chr, ord}.union(
    function for function in vars(math).values() if type(function) is types.BuiltinFunctionType
) - {math.prod, getattr(math, "sumprod", None)}
"""Functions that ask an object for a number or for bytes, and for nothing else. (The two last ones multiply.)"""

_CONVERSIONS = frozenset(
    f"__{name}__"
    for name in ("int", "index", "float", "complex", "bytes", "trunc", "floor", "ceil", "buffer", "release_buffer")
)

_ASKING = frozenset({"__format__", "format", "format_map", "translate", "__mod__", "__rmod__"})
"""Methods that call special methods of their arguments."""

_ASKING_SELF = frozenset({"__format__", "__rmod__"})
"""Those that call special methods of the object itself: `__rmod__` puts its text into the other's."""


def defines_nothing(cls: type) -> bool:
    """Whether a class that derives from an immutable builtin type leaves all special methods as they are."""
    return _own_special_methods(cls) <= _HARMLESS


def converts_as_its_base(cls: type) -> bool:
    """Whether such a class leaves those special methods as they are by which C code makes a number or bytes of an object."""
    return not _own_special_methods(cls) & _CONVERSIONS


def _own_special_methods(cls: type) -> set[str]:
    """Those that are found in classes of the program: before the builtin type, or behind it if that has none of this name itself (a
    mixin behind it stands before `object`, whose methods it replaces)."""
    bases, builtin_type = mro_of(cls), atom_base(cls)
    place = bases.index(builtin_type)
    before = {name for b in bases[:place] for name in dict_of(b)}
    behind = {name for b in bases[place + 1 :] if b is not object for name in dict_of(b)}
    return {name for name in before | (behind - set(dict_of(builtin_type))) if name[:2] == name[-2:] == "__"}


def _is_read_past_its_class(cls: type) -> bool:
    """C code that takes only the builtin value takes that of any class."""
    return True


def stays(tx: Frame, cls: type, fits: Callable[[type], bool] = defines_nothing) -> bool:
    """Whether a class is as C code needs it, under the guard that it gets no special methods later."""
    if fits(cls):
        tx.tr.guards.class_check(cls, fits)
        return True
    return False


def to_host(tx: Frame, vt: VariableTracker, fits: Callable[[type], bool] = defines_nothing) -> Any:
    """The object that C code gets for an argument; `fits`: whether it sees nothing but the builtin value of an instance of such a class.
    Raises `NotConstant` if there is none."""
    if isinstance(vt, ConstantVariable):
        return vt.value
    if vt.is_atom and (fits is _is_read_past_its_class or stays(tx, vt.python_type(), fits)):
        return vt.atom
    if vt.python_type() in (tuple, list):
        return vt.base([to_host(tx, item, fits) for item in vt.items])
    if is_heap_type(vt.python_type()):
        raise NotConstant(f"{vt!r} is of a class of the program's own")
    return vt.host_copy() if hasattr(vt, "host_copy") else vt.as_python_constant()


class _Annotated:
    annotated: int


inspect.get_annotations(_Annotated)  # which may leave something in the class
_HARMLESS = frozenset(vars(_Annotated)) | {"__annotations__", "__slots__", "__slotnames__"}  # the last one by `copyreg`


def from_host(tx: Frame, value: Any) -> VariableTracker:
    """The tracker of what C code made."""
    cls = type(value)
    if cls in ATOMIC_TYPES:
        return ConstantVariable(value)
    if cls in (tuple, list):
        items = [from_host(tx, item) for item in value]
        return TupleVariable(items) if cls is tuple else ListVariable(items)
    return tx.tr.wrap_new(value)


def call_host(tx: Frame, function: Any, args: Any, kwargs: dict[str, VariableTracker] | None = None) -> VariableTracker:
    """`function(*args, **kwargs)` by the real C function. Raises `NotConstant`, before the call, for arguments that it can't be given."""
    is_method = getattr(function, "__objclass__", None) in ATOM_BASES
    fits: Callable[[type], bool] = converts_as_its_base if function in _CONVERTING else defines_nothing
    if is_method and function.__name__ not in _ASKING:
        fits = _is_read_past_its_class
    fits_first = _is_read_past_its_class if is_method and function.__name__ not in _ASKING_SELF else fits
    host_args = [to_host(tx, arg, fits if i else fits_first) for i, arg in enumerate(args)]
    host_kwargs = {name: to_host(tx, arg, fits) for name, arg in kwargs.items()} if kwargs else {}
    names_class = any(v.is_atom and not isinstance(v, ConstantVariable) for v in (*args, *(kwargs or {}).values()))
    return run_host(tx, function, host_args, host_kwargs, names_class)


def run_host(
    tx: Frame, function: Any, args: Any = (), kwargs: dict[str, Any] | None = None, names_class: bool = False
) -> VariableTracker:
    """The same on host objects; `names_class`: an error would name the class of one of them, which is another."""
    if any(type(a) in (set, frozenset) for a in args):
        tx.tr.heap.bind_to_process("the order of a set")
    try:
        result = function(*args, **(kwargs or {}))
    except Exception as error:
        if names_class:
            unsupported("call-c-function", f"{function!r}, which raises", error)
        tx.raises_like(error, args, lambda: function(*args, **(kwargs or {})))
    if not _is_plain(result):
        unsupported("call-c-function", f"{function!r} of an object that is no constant")
    return from_host(tx, result)


def _is_plain(value: Any) -> bool:
    """True for constants, and tuples and lists of such."""
    cls = type(value)
    return all(map(_is_plain, value)) if cls in (tuple, list) else cls in ATOMIC_TYPES


def can_be_host(*values: VariableTracker) -> bool:
    """True if each value is a constant, or a list or tuple of such, or derives from an immutable builtin type."""
    return all(
        v.is_atom or v.is_python_constant() or (v.python_type() in (tuple, list) and can_be_host(*v.items))
        for v in values
    )


def declines(function: Any, args: list[VariableTracker]) -> bool:
    """True if `function` is the C half of an operator that knows atoms only, and one of the operands is something else."""
    owner = getattr(function, "__objclass__", None)
    if owner not in ATOM_BASES or not can_be_host(args[0]):
        return False
    kind = SLOTDEFS[function.__name__].kind if function.__name__ in SLOTDEFS else ""
    return kind in COMPARISONS or (kind in ("binary_l", "binary_r") and owner not in (str, bytes))
