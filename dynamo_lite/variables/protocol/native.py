"""What the models of builtin types written in C have in common.

Input: nothing. Output: `NativeVariable`, the base of list, dict, set, iterator … models, and the few helpers that
every one of them needs: host numbers from trackers, texts of trackers, emission of calls.
Invariant: `cls` is the object's real type, the builtin one or a subclass of it.
Mirrors the parts of `Objects/object.c` and `Objects/abstract.c` that turn Python objects into C values.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo_lite._eval_frame import program_recursion_limit
from dynamo_lite.exc import NotConstant, unsupported
from dynamo_lite.guards import ir
from dynamo_lite.isa import c_facts

from .abstract import class_path, equal, get_attr, index, type_name
from .base import ObservedException, VariableTracker
from .constant import ATOMIC_TYPES, NONE, ConstantVariable, is_none
from .deferred_str import LateText, mark, unmarked
from .descr import generic_getattr, generic_setattr
from .dispatch import method

if TYPE_CHECKING:
    from dynamo_lite.frontend.codegen import Codegen
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.interp.frame import Frame

MAX_SIZE = 1_000_000
"""The longest sequence that the analysis builds from a count (`[0] * n`)."""

MAX_LOADED = 100_000
"""The longest real container whose items get a model each."""


class NativeVariable(VariableTracker):
    """An instance of a builtin type, or the native part of an instance of a subclass."""

    cls: type = object
    emits_subclasses = False  # `emit_new` makes instances of subclasses, too, with their state

    def tp_getattro(self, tx: Frame, name: str) -> VariableTracker:
        return method_or_attribute(tx, self, self.python_type(), name)

    def tp_setattro(self, tx: Frame, name: str, value: VariableTracker | None) -> None:
        generic_setattr(tx, self, name, value)

    @classmethod
    def from_outside(cls, tr: Trace, value: object, source: GuardNode | None) -> Any:
        """The model of a real object, by its type; its `Lazy` fields are read when first used. To be registered with `builds`."""
        tr.guard(source, ir.TYPE_IS, type(value))
        model = cls.__new__(cls)
        model.load_from(tr, value, source)
        return model

    def load_from(self, tr: Trace, value: Any, source: GuardNode | None) -> None:
        """Stand for the real `value`."""
        self._tr, self.value, self.source = tr, value, source

    def changing(self, tx: Frame) -> None:
        """Announce a change of this object; called before the change."""
        if self.source is not None:
            tx.tr.effects.mutating(self)


def changes_in_place(*methods: Any) -> None:
    """Register methods without arguments that do to the items of a model what they do to those of the real object: `list.reverse`."""
    for descriptor in methods:
        method(descriptor)(_in_place(descriptor.__name__))


def _in_place(name: str) -> Callable[..., VariableTracker]:
    def change(tx: Frame, self: Any, /) -> VariableTracker:
        items = self.items
        self.changing(tx)
        getattr(items, name)()
        return NONE

    return change


def method_or_attribute(tx: Frame, v: VariableTracker, cls: type, name: str) -> VariableTracker:
    """`generic_getattr` with a short way to the methods of a C type that has been asked for this one before."""
    attribute = tx.tr.classes.attributes.get((id(cls), name))
    if attribute is not None and type(attribute.value) is types.MethodDescriptorType:
        return attribute.tp_descr_get(tx, v, None)
    return generic_getattr(tx, v, name)


def host_index(tx: Frame, v: VariableTracker) -> int:
    """`PyNumber_AsSsize_t`: the int that `v` stands for. A symbolic int becomes a constant by a guard, or breaks."""
    return host_int(index(tx, v))


def host_ssize(tx: Frame, v: VariableTracker) -> int:
    """The argument of a C function that takes an int of the size of a pointer (the `n` of `PyArg_Parse`)."""
    n = host_index(tx, v)
    if not -sys.maxsize - 1 <= n <= sys.maxsize:
        tx.raises(OverflowError, "Python int too large to convert to C ssize_t")
    return n


def host_int(v: VariableTracker) -> int:
    """The value of an int tracker."""
    if isinstance(v, ConstantVariable):
        return v.value
    try:
        return v.as_python_constant()
    except NotConstant:
        unsupported("dynamic-int", v.describe())


def host_value(v: VariableTracker, slug: str = "operation-on-unknown-object") -> Any:
    """The constant that `v` stands for; a break of the given kind if it isn't one."""
    try:
        return v.as_python_constant()
    except NotConstant:
        unsupported(slug, f"{type_name(v)} {v.describe()}")


def atom_value(v: VariableTracker, slug: str = "operation-on-unknown-object") -> Any:
    """The value of a constant, or of an instance of a subclass of a builtin type, as one of that type."""
    return v.atom if v.is_atom else host_value(v, slug)


def checked_size(n: int) -> int:
    """`n`, if it is a length that the analysis is willing to build."""
    return n if n <= MAX_SIZE else unsupported("code-size", f"a sequence of {n} items")


def checked_load(n: int) -> int:
    """`n`, if the items of a real container of that length may be looked at one by one."""
    return n if n <= MAX_LOADED else unsupported("code-size", f"a container of {n} items")


def same_or_equal(tx: Frame, v: VariableTracker, w: VariableTracker) -> bool:
    """`abstract.equal` with a short way for the common constants."""
    if v is w:
        return True
    if isinstance(v, ConstantVariable) and isinstance(w, ConstantVariable):
        a, b = v.value, w.value
        if type(a) in ATOMIC_TYPES and type(b) in ATOMIC_TYPES:
            return tx.tr.heap.identical(v, w) if a != a and b != b else a is b or a == b
    return equal(tx, v, w)


def run(tx: Frame, function: Any, *args: Any, **kwargs: Any) -> ConstantVariable:
    """The constant result of a real call on host values; its error becomes one of the traced program."""
    try:
        return ConstantVariable(function(*args, **kwargs))
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        tx.raises_like(error)


@contextlib.contextmanager
def host_table(tx: Frame) -> Iterator[None]:
    """Around an operation of a host dict or set: a RuntimeError, by which the host says that comparing keys changed the
    table, is one of the traced program."""
    try:
        yield
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        tx.raises_like(error)


def optional_attr(tx: Frame, v: VariableTracker, name: str) -> VariableTracker | None:
    """`_PyObject_LookupAttr`: the attribute, None if reading it raises AttributeError."""
    try:
        return get_attr(tx, v, name)
    except ObservedException as error:
        if issubclass(error.exc.python_type(), AttributeError):
            return None
        raise


def object_state(tx: Frame, v: VariableTracker) -> VariableTracker:
    """`_PyObject_GetState`."""
    return tx.call(get_attr(tx, v, "__getstate__"), [])


def raise_with(tx: Frame, cls: type[BaseException], *args: VariableTracker) -> NoReturn:
    """Raise `cls(*args)` in the traced program, args being trackers."""
    tx.raise_exception(tx.call(tx.tr.type_tracker(cls), list(args)))


def set_object(tx: Frame, cls: type[BaseException], value: VariableTracker) -> NoReturn:
    """`PyErr_SetObject`: None is no argument, a tuple is all arguments; an exception of the class is raised itself."""
    exc: Any = value
    if not issubclass(value.python_type(), cls):
        is_tuple = issubclass(value.python_type(), tuple)
        exc = tx.call(tx.tr.type_tracker(cls), [] if is_none(value) else value.items if is_tuple else [value])
        if is_tuple and c_facts.ERROR_KEEPS_TUPLE:
            exc.put(tx, "args", value)
    tx.raise_exception(exc)


def repr_text(tx: Frame, v: VariableTracker) -> str:
    """`repr(v)` as a host string."""
    return atom_value(object_repr(tx, v), "format")


def str_text(tx: Frame, v: VariableTracker) -> str:
    """`str(v)` as a host string."""
    return atom_value(object_str(tx, v), "format")


def object_repr(tx: Frame, v: VariableTracker) -> VariableTracker:
    """`PyObject_Repr`."""
    return _text(tx, v, v.tp_repr, "__repr__")


def object_str(tx: Frame, v: VariableTracker) -> VariableTracker:
    """`PyObject_Str`."""
    return _text(tx, v, v.tp_str or v.tp_repr, "__str__")


def _text(tx: Frame, v: VariableTracker, slot: Any, dunder: str) -> VariableTracker:
    if isinstance(v, ConstantVariable) and slot is None:
        return ConstantVariable(getattr(v.value, dunder)())
    if issubclass(type(v.value), type) and type(v.value).__repr__ is type.__repr__:
        class_path(v.value)
        return ConstantVariable(repr(v.value))
    if slot is None:
        unsupported("object-identity", f"text of a {type_name(v)}, which may contain its address")
    result = slot(tx)
    if not issubclass(result.python_type(), str):
        tx.raises(TypeError, f"{dunder} returned non-string (type {type_name(result)})")
    return result


def readonly(descriptor: Any) -> Callable[..., None]:
    """The setter of a C attribute that can't be set."""

    def refuse(tx: Frame, obj: VariableTracker, value: VariableTracker | None) -> None:
        if type(descriptor) is types.MemberDescriptorType:
            tx.raises(AttributeError, "readonly attribute")
        owner = descriptor.__objclass__
        module = "" if owner.__module__ == "builtins" else f"{owner.__module__}."
        tx.raises(
            AttributeError, f"attribute '{descriptor.__name__}' of '{module}{owner.__name__}' objects is not writable"
        )

    return refuse


SAFE_DEPTH = 200
"""The depth of a text that no program comes near the recursion limit with, wherever it asks for it."""


def _reprs_count_as_frames() -> bool:
    nested: list[Any] = []
    limit = sys.getrecursionlimit()
    if limit > 2000:
        return False  # too much for the C stack, perhaps
    for _ in range(limit):
        nested = [nested]
    try:
        repr(nested)
    except RecursionError:
        return True
    return False


REPRS_COUNT_AS_FRAMES = _reprs_count_as_frames()
"""Whether nested calls of `PyObject_Repr` are known to count against the limit of Python frames; else they have one of their own."""

_active_reprs: dict[int, list[LateText]] = {}


def is_being_printed(v: VariableTracker) -> bool:
    """Whether a `recursive_repr` of this object is under way."""
    return id(v) in _active_reprs


def recursive_repr(tx: Frame, v: VariableTracker, placeholder: str, text: Callable[[], str]) -> VariableTracker:
    """`Py_ReprEnter`: `text()`, or the placeholder for a container that is being printed already. `text` puts `part_text`s together."""
    if id(v) in _active_reprs:
        return ConstantVariable(placeholder)
    depth = len(_active_reprs)
    if depth > program_recursion_limit() and REPRS_COUNT_AS_FRAMES:
        tx.raises(RecursionError, "maximum recursion depth exceeded while getting the repr of an object")
    marks = _active_reprs[id(v)] = []
    try:
        result = text()
        if depth == SAFE_DEPTH:
            unsupported("recursion-limit", f"repr() of a {type_name(v)} within {depth} others")
        return unmarked(tx, result, marks) if marks else ConstantVariable(result)
    finally:
        del _active_reprs[id(v)]


def part_text(tx: Frame, v: VariableTracker) -> str:
    """`repr(v)` for the innermost `recursive_repr`: a host string, which may have marks in it."""
    result = object_repr(tx, v)
    if isinstance(result, LateText):
        return mark(result, _active_reprs[next(reversed(_active_reprs))])
    return atom_value(result, "format")


# -- code generation


def emit_call(cg: Codegen, function: object, *args: VariableTracker) -> None:
    """Push `function(*args)`."""
    cg.load_callable(function)
    for arg in args:
        cg.load(arg)
    cg.asm.call(len(args))


def emit_bare(cg: Codegen, base: type, cls: type) -> None:
    """Push an empty instance of a subclass of a builtin type, made without running its `__init__`."""
    cg.load_callable(base.__new__)
    cg.load_const(cls)
    cg.asm.call(1)


LONG = 64


def emit_list(cg: Codegen, items: list[VariableTracker]) -> None:
    """Push a new list of the items. Many constants are not pushed one by one."""
    if len(items) > LONG and all(type(v) is ConstantVariable and type(v.value) in ATOMIC_TYPES for v in items):
        values = tuple([v.value for v in items])
        cg.asm.build_list(0)
        cg.load_callable(values.__iter__)
        cg.asm.call(0)
        cg.asm.list_extend(1)
    else:
        cg.asm.build_list(emit_all(cg, items))


def emit_all(cg: Codegen, items: Iterable[VariableTracker]) -> int:
    """Push each item; how many there were."""
    n = 0
    for item in items:
        cg.load(item)
        n += 1
    return n
