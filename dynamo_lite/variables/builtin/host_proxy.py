"""Real C code that runs on constants of the traced program.

Input: a C function without effects and the trackers of its arguments. Output: the tracker of its result.
Invariant: no code of the program runs. An instance of a class that derives from an immutable builtin type is passed as its builtin value,
where C code takes only that, or the class defines no special methods; objects of other classes of the program break the graph.
"""

from __future__ import annotations

import functools
import inspect
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

_ASKING = frozenset({"__format__", "format", "format_map", "translate", "__mod__", "__rmod__"})
"""Methods that call special methods of their arguments; of the object itself too, the first one."""


def to_host(tx: Frame, vt: VariableTracker, raw: bool = False) -> Any:
    """The object that C code gets for an argument; `raw`: it takes only the builtin value. Raises `NotConstant` if there is none."""
    if isinstance(vt, ConstantVariable):
        return vt.value
    if vt.is_atom and (raw or defines_nothing(vt.python_type())):
        return vt.atom
    if vt.python_type() in (tuple, list):
        return vt.base([to_host(tx, item, raw) for item in vt.items])
    if is_heap_type(vt.python_type()):
        raise NotConstant(f"{vt!r} is of a class of the program's own")
    return vt.host_copy() if hasattr(vt, "host_copy") else vt.as_python_constant()


@functools.cache
def defines_nothing(cls: type) -> bool:
    """Whether a class that derives from an immutable builtin type leaves all special methods as they are."""
    base = atom_base(cls)
    own = [name for b in mro_of(cls)[: mro_of(cls).index(base)] for name in dict_of(b)]
    return not any(name[:2] == name[-2:] == "__" and name not in _HARMLESS for name in own)


class _Annotated:
    annotated: int


inspect.get_annotations(_Annotated)  # which may leave something in the class
_HARMLESS = frozenset(vars(_Annotated)) | {"__annotations__", "__slots__"}


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
    raw = is_method and function.__name__ not in _ASKING
    raw_self = is_method and function.__name__ != "__format__"
    host_args = [to_host(tx, arg, raw or (raw_self and i == 0)) for i, arg in enumerate(args)]
    host_kwargs = {name: to_host(tx, arg, raw) for name, arg in kwargs.items()} if kwargs else {}
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
