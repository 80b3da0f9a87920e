"""`OptimizedModule`: the module that `compile` returns, which differs from the original module only in how it is called.

Input: a module, and replacements of the functions that a call of it runs. Output: an object of a class derived from the module's own.
Invariant: it has *the same* `__dict__` as the original, and the class of the original decides what a call runs, at each call. Parameters,
buffers, submodules, hooks, the training flag and every plain attribute are therefore one state: `state_dict()` has the original's keys,
`train()`, `to()` and assignments act on both, and there is nothing to forward or to keep in step. It is the only strong reference that
leads to the original: both die together.
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from torch.nn import Module

from . import optimized_module_kin as kin
from ._eval_frame import SlotDescriptor, SlotMethod, call_by_slot
from .graph import side


class OptimizedModule:
    """Base of the classes of compiled modules; `isinstance(m, OptimizedModule)` tells a compiled module from an ordinary one.

    `_orig_mod` is the original module. `__class__` is its class, also to assign to.
    """

    __slots__ = ()
    _dynamo_lite_original: Any
    _dynamo_lite_rebuild: Callable[[Any], Any]
    _dynamo_lite_call: Any
    _dynamo_lite_forward: Any
    _dynamo_lite_base: type

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # `type(self)(config)` in the user's methods means a new module of the user's class, not another wrapper of this
        # one.
        return cls._dynamo_lite_base(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Nothing: a registry that the user keeps in `__init_subclass__` must not see the wrapper's class."""

    @property
    def __class__(self) -> type:
        return type(self._dynamo_lite_original)

    @__class__.setter
    def __class__(self, cls: type) -> None:
        self._dynamo_lite_original.__class__ = cls
        _follow(self)

    @property
    def _orig_mod(self) -> Any:
        return self._dynamo_lite_original

    def __getattribute__(self, name: str) -> Any:
        # Names of this class are found here, those of every module by what `self` is, so that `m.eval()` is `m`, and all others by
        # `__getattr__`: only there is the original asked. Asked here, the program's own `__getattr__` would run twice.
        if name in _OURS:
            return object.__getattribute__(self, name)
        if name not in _OF_EVERY_MODULE:
            raise AttributeError(name)
        original = object.__getattribute__(self, "_dynamo_lite_original")
        if type(original).__getattribute__ is object.__getattribute__:
            return object.__getattribute__(self, name)
        found = getattr(original, name)
        of_original = type(found) is MethodType and found.__self__ is original
        return MethodType(found.__func__, self) if of_original else found

    def __getattr__(self, name: str) -> Any:
        # The program's own methods run with the original as `self`, as `forward` does: what they do to the class, to slots, or to tables
        # with `self` as a key is seen there.
        return getattr(object.__getattribute__(self, "_dynamo_lite_original"), name)

    def __setattr__(self, name: str, value: object) -> None:
        # Trainers put the original back where they took it from. As an ordinary attribute it would become its own submodule.
        if name in ("__class__", "forward"):
            super().__setattr__(name, value)
        elif name != "_orig_mod":
            setattr(self._dynamo_lite_original, name, value)
        elif value is not self._dynamo_lite_original:
            raise AttributeError("_orig_mod of a compiled module cannot be exchanged; compile the other module")

    def __delattr__(self, name: str) -> None:
        delattr(self._dynamo_lite_original, name)

    @property
    def dynamo_ctx(self) -> Callable[[Any], Any]:
        """A compiler of other functions, methods for example, with the settings of this module."""
        return self._dynamo_lite_rebuild

    def __prepare_scriptable__(self) -> Any:
        """The object that `torch.jit.script` compiles."""
        return self._dynamo_lite_original

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        return self._dynamo_lite_rebuild, (self._dynamo_lite_original,)

    def __copy__(self) -> Any:
        return self._dynamo_lite_rebuild(copy.copy(self._dynamo_lite_original))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._dynamo_lite_rebuild(copy.deepcopy(self._dynamo_lite_original, memo))


SLOTS = ("_dynamo_lite_original", "_dynamo_lite_rebuild", "_dynamo_lite_call", "_dynamo_lite_forward")
# What a class has that its instances are asked for by mistake; those of the wrapper's class are none of the original.
_OF_CLASSES = {"__annotations__", "__slots__", "__weakref__"}
_OURS = frozenset((*vars(OptimizedModule), *SLOTS, "__dict__", "__call__", "forward")) - _OF_CLASSES
_OF_EVERY_MODULE = frozenset(dir(Module)) - _OF_CLASSES


class _WithSlots(OptimizedModule):
    """The base of all classes of compiled modules. The class of an instance can be exchanged for another of these."""

    __slots__ = SLOTS


_classes: weakref.WeakValueDictionary[int, type] = weakref.WeakValueDictionary()
"""By id of a module's class: the class of its compiled modules, as long as there is one."""


def _class_for(base: type) -> type:
    """The class of the compiled modules of a class."""
    found = _classes.get(id(base))
    if found is None:
        found = _classes[id(base)] = _new_class(base)
    return found


def _new_class(base: type) -> type:
    namespace: dict[str, Any] = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__slots__": (),
        "_dynamo_lite_base": base,
    }
    metaclass = kin.metaclass_of(type(base))
    try:
        made = metaclass(base.__name__, (_WithSlots, base), namespace)
        members: Any = vars(_WithSlots)
    except TypeError:  # the module's class has slots as well
        made = metaclass(base.__name__, (OptimizedModule, base), {**namespace, "__slots__": SLOTS})
        members = vars(made)
    for name, slot in (("__call__", "_dynamo_lite_call"), ("forward", "_dynamo_lite_forward")):
        if name == "__call__" or isinstance(getattr(base, name, None), FunctionType):
            type.__setattr__(made, name, SlotDescriptor(members[slot], _follow, base, name, _check_reader))
    kin.add(made)
    call_by_slot(made)
    return made


def _check_reader(function: Any) -> None:
    """Somebody asks what kind of function the method is. `torch.fx.symbolic_trace` does, and takes nothing but functions."""
    side.refuse_symbolic_trace(function.__qualname__)


def _follow(wrapped: OptimizedModule) -> None:
    """The original module is of another class now: so is the compiled one."""
    _SET_CLASS(wrapped, _class_for(type(wrapped._dynamo_lite_original)))


_SET_CLASS: Any = vars(object)["__class__"].__set__


def _replace_call(
    wrapped: weakref.ref[Any], replace: Callable[[Any], Any], found: Callable[..., Any]
) -> Callable[..., Any]:
    """The replacement of the `__call__` of modules. What a tracer puts in their class asks which module is called, by the paths of those
    that it has found in the model: there the compiled module is, not the original."""
    if not side.is_call_of_tracer(found):
        return replace(found)

    def call(original: Any, /, *args: Any, **kwargs: Any) -> Any:
        compiled = wrapped()
        return found(original if compiled is None else compiled, *args, **kwargs)

    return call


def wrap_module(module: Any, replace: Callable[[Any], Any], rebuild: Callable[[Any], Any]) -> Any:
    """A module that shares `module`'s state and runs `replace(method)` for the `__call__` and `forward` of the class of `module`.

    `rebuild(module)` makes the same kind of wrapper for another module, for copies and pickles; it has to be picklable for the latter.
    """
    wrapped = object.__new__(_class_for(type(module)))
    values = (
        module,
        rebuild,
        SlotMethod(module, "__call__", functools.partial(_replace_call, weakref.ref(wrapped), replace), rebuild),
        SlotMethod(module, "forward", replace, rebuild),
    )
    for name, value in zip(SLOTS, values, strict=True):
        object.__setattr__(wrapped, name, value)
    object.__setattr__(wrapped, "__dict__", module.__dict__)
    return wrapped
