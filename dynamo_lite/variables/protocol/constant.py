"""Constants: objects whose whole value the analysis knows.

Input: an immutable Python value. Output: `ConstantVariable`; operations on constants are carried out for real (`fold`).
Invariant: a constant's value never changes, so it needs no heap entry; equal constants may be distinct trackers.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import NotConstant
from dynamo_lite.isa.typeobject import mro_of

from .base import ObservedException, VariableTracker

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

# Types whose instances are immutable all the way down and compare by value.
ATOMIC_TYPES = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented)})

ATOM_BASES = (int, float, complex, str, bytes)
"""Those of them that user classes may derive from and that have a value."""


def atom_base(cls: type) -> type | None:
    """The type of immutable values whose value the instances of `cls` have."""
    return next((base for base in mro_of(cls) if base in ATOM_BASES), None)


class ConstantVariable(VariableTracker):
    """An immutable value: number, string, bytes, None, Ellipsis, NotImplemented, or an object registered as a literal
    (`torch.dtype`, enum members, code objects …). `folds`: what C code does with the value runs no code of the program."""

    folds = True

    def __init__(self, value: Any, source: GuardNode | None = None) -> None:
        self.value = value
        self.source = source

    def python_type(self) -> type:
        return type(self.value)

    def is_python_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def as_proxy(self) -> Any:
        return self.value

    def describe(self) -> str:
        return repr(self.value)

    def emit_new(self, cg: Codegen) -> None:
        cg.load_const(self.value)


class TypedSlot:
    """A slot that constants of some types have and others lack, so that `ConstantVariable(1).tp_iter` is None.

    Subclasses (enum members with a mixed-in type) inherit the slot of their base.
    """

    def __init__(self) -> None:
        self.functions: dict[type, Any] = {}

    def __get__(self, vt: ConstantVariable | None, owner: object = None) -> Any:
        if vt is None:
            return self
        cls = type(vt.value)
        try:
            function = self.functions[cls]
        except KeyError:
            function = self.functions[cls] = next((self.functions[b] for b in mro_of(cls) if b in self.functions), None)
        return None if function is None else MethodType(function, vt)

    def __call__(self, vt: ConstantVariable, *args: Any) -> Any:
        return self.__get__(vt)(*args)


def constant_slot(slot: str, *types: type) -> Callable[[Any], Any]:
    """Register a slot function `(vt, tx, …)` for constants; without types, for all of them."""

    def decorate(function: object) -> Any:
        if not types:
            setattr(ConstantVariable, slot, function)
            return function
        typed = ConstantVariable.__dict__.get(slot)
        if typed is None:
            typed = TypedSlot()
            setattr(ConstantVariable, slot, typed)
        typed.functions.update(dict.fromkeys(types, function))
        return function

    return decorate


NONE = ConstantVariable(None)
TRUE = ConstantVariable(True)
FALSE = ConstantVariable(False)
NOT_IMPLEMENTED = ConstantVariable(NotImplemented)


def is_flag(vt: VariableTracker) -> bool:
    """Whether this is True or False, which some functions in C demand of an argument."""
    return vt.is_python_constant() and vt.python_type() is bool


def boolean(value: object) -> ConstantVariable:
    """The constant True or False."""
    return TRUE if value else FALSE


def is_none(v: VariableTracker | None) -> bool:
    """True for an argument that is absent or the constant None."""
    return v is None or (isinstance(v, ConstantVariable) and v.value is None)


def is_constant(*values: VariableTracker) -> bool:
    """True if every value is a Python constant."""
    return all(v.is_python_constant() for v in values)


def fold(tx: Frame, fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> VariableTracker:
    """Call `fn` for real on constant trackers and wrap the result; an exception becomes one of the traced program.

    Raises `NotConstant` if an argument is no constant, `Unsupported` if the result can't be modelled.
    """
    host_args = [a.value if type(a) is ConstantVariable else a.as_python_constant() for a in args]
    if any(type(a) is frozenset for a in host_args):
        tx.tr.heap.bind_to_process("the order of a set")
    host_kwargs = {k: v.as_python_constant() for k, v in kwargs.items()}
    try:
        result = fn(*host_args, **host_kwargs)
    except (NotConstant, ObservedException):
        raise
    except Exception as error:
        tx.raises_like(error, host_args, lambda: fn(*host_args, **host_kwargs))
    if type(result) in ATOMIC_TYPES:
        return ConstantVariable(result)
    return tx.tr.wrap_new(result)
