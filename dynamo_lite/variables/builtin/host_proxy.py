"""Real C code that runs on objects of the traced program.

Input: a C function without effects and the trackers of its arguments. Output: the tracker of its result.
Invariant: the C function gets constants as they are and a `Stand` for each instance of a user class: an object of a class with the same
name, the same immutable builtin base and the same special methods, each of which calls the method of the model. An exception that such a
method raises goes through the C code as one of the same builtin kind, and leaves it as the exception that the method raised.
Mirrors nothing: conversions and formatting of `Objects/` run as they are, so no model repeats them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import NotConstant, unsupported
from dynamo_lite.isa.typeobject import dict_of, is_heap_type, module_of, mro_of, name_of
from dynamo_lite.variables.protocol.abstract import get_attr, get_iter, iter_next
from dynamo_lite.variables.protocol.base import ObservedException, VariableTracker
from dynamo_lite.variables.protocol.constant import ATOM_BASES, ATOMIC_TYPES, ConstantVariable, atom_base
from dynamo_lite.variables.protocol.native import object_repr, object_str
from dynamo_lite.variables.protocol.slots import COMPARISONS, SLOTDEFS

from .list import ListVariable
from .tuple import TupleVariable

if TYPE_CHECKING:
    from dynamo_lite.interp.frame import Frame

FORWARDED = (
    "__abs__ __add__ __and__ __bool__ __bytes__ __call__ __ceil__ __complex__ __contains__ __divmod__ __eq__ __float__ __floor__ "
    "__floordiv__ __format__ __fspath__ __ge__ __getitem__ __gt__ __hash__ __index__ __int__ __invert__ __le__ __len__ "
    "__length_hint__ __lshift__ __lt__ __mod__ __mul__ __ne__ __neg__ __next__ __or__ __pos__ __pow__ __radd__ __rand__ __rdivmod__ "
    "__repr__ __rfloordiv__ __rlshift__ __rmod__ __rmul__ __ror__ __round__ __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__ "
    "__rxor__ __str__ __sub__ __truediv__ __trunc__ __xor__"
).split()
"""Special methods that a stand has if the class of its object has them."""

# C code warns, when the program runs, if one of these returns an instance of a strict subclass.
_STRICT = {"__int__": int, "__index__": int, "__float__": float, "__complex__": complex}


class Stand:
    """Base of all stands; attributes are those of the object."""

    def __getattribute__(self, name: str) -> Any:
        return crossing(self, lambda tx, vt: get_attr(tx, vt, name))


def tracker_of(stand: object) -> VariableTracker:
    """The object that a stand stands for."""
    return object.__getattribute__(stand, "_dl_vt")


class _Escape(BaseException):
    """Takes what ends the analysis, or an error in it, past the C code."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def shielded(function: Any) -> Any:
    """The result of `function`, for C code: an exception of the traced program becomes a host exception of the same kind."""
    try:
        return function()
    except ObservedException as observed:
        kind = next(base for base in mro_of(observed.exc.python_type()) if module_of(base) == "builtins")
        error = _crossing_class(kind).__new__(_crossing_class(kind))
        error.observed = observed
        raise error from None
    except BaseException as error:
        raise _Escape(error) from None


def crossing(stand: object, operation: Any) -> Any:
    """Carry out an operation on the model for C code; its result as a host object, as formatting code wants it if that is where the
    stand is."""
    tx = object.__getattribute__(stand, "_dl_tx")

    def host_result() -> Any:
        result = operation(tx, tracker_of(stand))
        formatted = object.__getattribute__(stand, "__dict__").get("_dl_formatted")
        return to_host(tx, result) if formatted is None else formatted(result)

    return shielded(host_result)


@functools.cache
def _crossing_class(kind: type[BaseException]) -> Any:
    return type(name_of(kind), (kind,), {})


def _forwarder(dunder: str) -> Any:
    strict = _STRICT.get(dunder)

    def method(self: Any, *args: Any) -> Any:
        def operation(tx: Frame, vt: VariableTracker) -> VariableTracker:
            bound = tx.tr.lookup_special(tx, vt, dunder)
            result = tx.call(bound, [from_host(tx, a) for a in args])
            cls = result.python_type()
            if strict is not None and cls is not strict and issubclass(cls, strict):
                unsupported("call-print", f"the warning that {dunder} returned a {name_of(cls)}")
            return result

        return crossing(self, operation)

    return method


class _Iterator:
    """The iterator of a stand."""

    def __init__(self, tx: Frame, vt: VariableTracker) -> None:
        self.tx = tx
        self.iterator = shielded(lambda: get_iter(tx, vt))

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        item = shielded(lambda: iter_next(self.tx, self.iterator))
        if item is None:
            raise StopIteration
        return shielded(lambda: to_host(self.tx, item))


_FORWARDERS = {dunder: _forwarder(dunder) for dunder in FORWARDED}
_FORWARDERS["__iter__"] = lambda self: _Iterator(object.__getattribute__(self, "_dl_tx"), tracker_of(self))
_OBJECT_METHODS = {
    "__repr__": lambda self: crossing(self, object_repr),
    "__str__": lambda self: crossing(self, object_str),
}


def stand_class(tx: Frame, cls: type) -> type:
    """The class of stands for instances of `cls`."""
    known = tx.tr.classes.stands
    found = known.get(cls)
    if found is None:
        found = known[cls] = _make_class(cls)
    return found


def _make_class(cls: type) -> type:
    base = atom_base(cls)
    namespace: dict[str, Any] = {"__module__": module_of(cls)}
    native = () if base is None else mro_of(base)
    if base is None:
        namespace.update(_OBJECT_METHODS)
    for dunder, forwarder in _FORWARDERS.items():
        owner = next((b for b in mro_of(cls) if dunder in dict_of(b)), object)
        if owner is not object and owner not in native:
            # A method set to None stays None: C code finds the slot and says that it can't be used.
            namespace[dunder] = None if owner.__dict__[dunder] is None else forwarder
    if base is None:
        namespace.setdefault("__format__", _FORWARDERS["__format__"])
    bases = (Stand,) if base is None else (Stand, base)
    return type(name_of(cls), bases, namespace)


# -- across


def to_host(tx: Frame, vt: VariableTracker) -> Any:
    """The object that C code gets for an argument. Raises `NotConstant` if no stand is possible."""
    if isinstance(vt, ConstantVariable):
        return vt.value
    if vt.can_stand:
        cls = vt.python_type()
        kind = stand_class(tx, cls)
        stand = atom_base(cls).__new__(kind, vt.atom) if vt.is_atom else object.__new__(kind)
        stand._dl_tx, stand._dl_vt = tx, vt
        return stand
    if vt.python_type() in (tuple, list):
        return vt.base([to_host(tx, item) for item in vt.items])
    if hasattr(vt, "host_copy"):
        if is_heap_type(vt.python_type()):
            raise NotConstant(f"{vt!r} is of a class of the program's own")  # whose name errors tell
        return vt.host_copy()
    return vt.as_python_constant()


def from_host(tx: Frame, value: Any) -> VariableTracker:
    """The tracker of what C code made, or passes to a special method."""
    cls = type(value)
    if cls in ATOMIC_TYPES:
        return ConstantVariable(value)
    if issubclass(cls, Stand):
        return tracker_of(value)
    if cls in (tuple, list):
        items = [from_host(tx, item) for item in value]
        return TupleVariable(items) if cls is tuple else ListVariable(items)
    return tx.tr.wrap_new(value)


def call_host(
    tx: Frame, function: object, args: Any, kwargs: dict[str, VariableTracker] | None = None
) -> VariableTracker:
    """`function(*args, **kwargs)` by the real C function. Raises `NotConstant`, before the call, for arguments that can't be stood for."""
    host_args = [to_host(tx, arg) for arg in args]
    host_kwargs = {name: to_host(tx, arg) for name, arg in kwargs.items()} if kwargs else {}
    return run_host(tx, function, host_args, host_kwargs)


def run_host(tx: Frame, function: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> VariableTracker:
    """The same on what stands for the arguments already."""
    if any(type(a) in (set, frozenset) for a in args):
        tx.tr.heap.bind_to_process("the order of a set")
    try:
        result = function(*args, **(kwargs or {}))
    except _Escape as escape:
        raise escape.error from None
    except Exception as error:
        if hasattr(error, "observed"):
            raise error.observed from None
        tx.raises_like(error, args)
    if not _is_plain(result):
        unsupported("call-c-function", f"{function!r} of an object that is no constant")
    return from_host(tx, result)


def _is_plain(value: Any) -> bool:
    """True if no stand can hide in a value."""
    cls = type(value)
    if cls in (tuple, list):
        return all(map(_is_plain, value))
    return cls in ATOMIC_TYPES or issubclass(cls, Stand)


def can_be_host(*values: VariableTracker) -> bool:
    """True if each value is a constant, can be stood for, or is a list or tuple of such."""
    return all(
        v.can_stand or v.is_python_constant() or (v.python_type() in (tuple, list) and can_be_host(*v.items))
        for v in values
    )


def declines(function: Any, args: list[VariableTracker]) -> bool:
    """True if `function` is the C half of an operator that knows atoms only, and one of the operands is something else."""
    owner = getattr(function, "__objclass__", None)
    if owner not in ATOM_BASES or not can_be_host(args[0]):
        return False
    kind = SLOTDEFS[function.__name__].kind if function.__name__ in SLOTDEFS else ""
    return kind in COMPARISONS or (kind in ("binary_l", "binary_r") and owner not in (str, bytes))
