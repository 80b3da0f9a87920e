"""`OptimizedModule`: the module that `compile` returns, which is the original module in all but how it is called.

Input: a module and the callables that replace `__call__` and `forward`. Output: an object of a new class, derived from
the module's own. Invariant: it has *the same* `__dict__` as the original. Parameters, buffers, submodules, hooks, the
training flag and every plain attribute are therefore one state: `state_dict()` has the original's keys, `train()`,
`to()` and assignments act on both, and there is nothing to forward or to keep in step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from . import optimized_module_kin as kin


class OptimizedModule:
    """Base of the classes that `wrap_module` makes; `isinstance(m, OptimizedModule)` tells a compiled module from an
    ordinary one.

    `_orig_mod` is the original module.
    """

    __slots__ = ()
    _original: Any
    _rebuild: Callable[[Any], Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # `type(self)(config)` in the user's methods means a new module of the user's class, not another wrapper of this
        # one.
        return type(cls._original)(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Nothing: a registry that the user keeps in `__init_subclass__` must not see the wrapper's class."""

    @property
    def __class__(self) -> type:
        return type(type(self)._original)

    @property
    def _orig_mod(self) -> Any:
        return type(self)._original

    def __setattr__(self, name: str, value: Any) -> None:
        # Trainers put the original back where they took it from. As an ordinary attribute it would become its own submodule.
        if name != "_orig_mod":
            super().__setattr__(name, value)
        elif value is not type(self)._original:
            raise AttributeError("_orig_mod of a compiled module cannot be exchanged; compile the other module")

    @property
    def dynamo_ctx(self) -> Callable[[Any], Any]:
        """What compiles another function, a method for example, as this module was compiled."""
        return type(self)._rebuild

    def __prepare_scriptable__(self) -> Any:
        """What `torch.jit.script` compiles."""
        return type(self)._original

    def __reduce_ex__(self, protocol: int) -> tuple[Any, ...]:
        return type(self)._rebuild, (type(self)._original,)

    def __copy__(self) -> Any:
        return type(self)._rebuild(copy.copy(type(self)._original))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return type(self)._rebuild(copy.deepcopy(type(self)._original, memo))


def wrap_module(
    module: Any, replace: Callable[[FunctionType], Callable[..., Any]], rebuild: Callable[[Any], Any]
) -> Any:
    """A module that shares `module`'s state and whose `__call__` and `forward` are `replace` of those of its class.

    `rebuild(module)` makes the same kind of wrapper for another module, for copies and pickles; it has to be picklable
    for the latter. Each wrapper has a class of its own, so that calling it reaches the replaced function without Python
    code in between.
    """
    base = type(module)
    namespace = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "_original": module,
        "_rebuild": staticmethod(rebuild),
        "__call__": MethodType(replace(base.__call__), module),
    }
    if isinstance(getattr(base, "forward", None), FunctionType):
        namespace["forward"] = MethodType(replace(base.forward), module)
    wrapper = kin.metaclass_of(type(base))(base.__name__, (OptimizedModule, base), namespace)
    kin.add(wrapper)
    wrapped = object.__new__(wrapper)
    object.__setattr__(wrapped, "__dict__", module.__dict__)
    return wrapped
