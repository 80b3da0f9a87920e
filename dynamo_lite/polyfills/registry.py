"""Which Python function stands for which C function.

Input: the real callable (a builtin function, or a method descriptor such as `str.partition`). Output: its stand-in,
or None.
Invariant: a stand-in takes the same arguments as the original wherever `inspect.signature` knows them; one original
has one stand-in.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from dynamo_lite.import_hook import loaded

F = TypeVar("F", bound=Callable[..., Any])

PURE: set[Any] = set()
"""Callables without effects whose result depends on their arguments only: folded when these are constants."""

POLYFILLS: dict[Any, Callable[..., Any]] = {}
"""The real callable → its stand-in."""

STAND_INS: dict[type, type] = {}
"""The real class, written in C → the class in Python that does the work of its objects in captured code."""

MODULES: dict[str, str] = {
    "_bisect": "bisect",
    "_collections": "collections",
    "_functools": "functools",
    "functools": "functools",
    "_heapq": "heapq",
    "itertools": "itertools",
    "builtins": "builtins",
    "math": "math",
    "_operator": "operator",
    "nt": "posix",
    "posix": "posix",
    "torch.masked._ops": "torch_masked",
}
"""Name of the module of a function → module of this package with stand-ins for it; removed once imported."""


def polyfill(original: Any, *, pure: bool = False, check_signature: bool = True) -> Callable[[F], F]:
    """Register the decorated Python function as the stand-in for `original` in captured code.

    `pure`: with constant arguments the original itself is called during capture. Raises TypeError if `original` cannot be called and if the
    parameters differ from those of the original (where these are known), ValueError if the original has a stand-in already.
    """
    if not callable(original):
        raise TypeError(f"expected the function to stand for, got {original!r}")

    def decorate(function: F) -> F:
        if original in POLYFILLS:
            raise ValueError(f"{original!r} has a polyfill already: {POLYFILLS[original]!r}")
        if check_signature:
            _check_signature(original, function)
        POLYFILLS[original] = function
        if pure:
            PURE.add(original)
        return function

    return decorate


C = TypeVar("C", bound=type)


def stands_for(real: type | None) -> Callable[[C], C]:
    """Register the decorated class as what objects of the class `real` are made of in captured code; None where this CPython has no such
    class. To the program they are objects of `real`.

    The decorated class has the methods of the real one that captured code may call, with the same parameters, and its fields are ordinary
    attributes, all set by `__init__`. It says how both are related:
        arguments: names of the fields with which the real class is called where an object leaves the captured code.
        rebuild(cls, field, …): the same as a function, for a state that no such call leads to; `cls` is `real` or a subclass. The
            parameters have the names of fields. A list or dict is still empty then: a container that only the object knows is a tuple.
            With neither, such an object breaks the graph.
        initial: the name of a field that has to be None or False there; an object in another state breaks the graph.
        fields_of(object): the fields of a real object that comes from outside, for objects that never change.
    A class method is another constructor: it fills a new object, which is its first argument.
    """

    def decorate(stand_in: C) -> C:
        if real is not None:
            STAND_INS[real] = stand_in
        return stand_in

    return decorate


def substitute_in_graph(
    original_fn: Any,
    *,
    can_constant_fold_through: bool = False,
    skip_signature_check: bool = False,
    is_embedded_type: bool = False,
) -> Callable[[F], F]:
    """`polyfill` under the name and with the parameters of `torch.compiler.substitute_in_graph`."""
    return polyfill(original_fn, pure=can_constant_fold_through, check_signature=not skip_signature_check)


def find_polyfill(original: Any) -> Callable[..., Any] | None:
    """The stand-in for a real callable, or None."""
    if MODULES:
        owner = getattr(original, "__objclass__", original)
        of_class = issubclass(type(owner), type)  # whose metaclass may have a `__module__` of its own
        module = type.__dict__["__module__"].__get__(owner) if of_class else getattr(owner, "__module__", None)
        home = MODULES.pop(module, None) if type(module) is str else None
        if home is not None:
            importlib.import_module(f"{__package__}.{home}")
    return known_polyfill(original)


def known_polyfill(original: Any) -> Callable[..., Any] | None:
    """As `find_polyfill`, but imports none of ours: what the program has registered, here or with torch's `substitute_in_graph`, and those
    of ours that have been loaded."""
    found = POLYFILLS.get(original)
    registered = getattr(loaded(_OF_TORCH), "PolyfilledFunctionVariable", None)
    if found is None and registered is not None:
        marked = registered._get_polyfill_handlers().get(original)
        found = getattr(marked, "__torch_dynamo_polyfill__", None)
        # Torch's own stand-ins are written for what torch.compile follows; ours are in this package.
        if found is None or (found.__module__ or "").partition(".")[0] == "torch":
            return None
        POLYFILLS[original] = found
        if getattr(marked, "__torch_dynamo_can_constant_fold_through__", False):
            PURE.add(original)
    return found


_OF_TORCH = "torch._dynamo.variables.functions"


def _check_signature(original: Any, function: Any) -> None:
    try:
        expected = inspect.signature(original)
    except (TypeError, ValueError):
        return  # C functions without a text signature
    if _shape(expected) != _shape(inspect.signature(function)):
        raise TypeError(f"{function.__qualname__}{inspect.signature(function)} does not fit {original!r}{expected}")


def _shape(signature: inspect.Signature) -> list[tuple[Any, ...]]:
    """Kind and optionality of each parameter, and the name where it can be used in a call."""
    shape = []
    for p in signature.parameters.values():
        named = p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        shape.append((p.kind, p.name if named else None, p.default is not p.empty))
    return shape
