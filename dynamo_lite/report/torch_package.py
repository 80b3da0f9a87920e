"""While a script runs redirected: the compiler package of torch, `torch._dynamo`, in the script's hands.

Input: the package, from when the script has imported it. Output: its entry points are ours, what the script sets in its `config` is set in
ours too, what it registers as a backend is known here, and `except` of its exceptions catches ours. All of it ends with the block.
Invariant: the package is never imported for that, and works as before where torch itself uses it (`torch.export`): it gets all settings
and all backends as well, and its exception classes stay.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from dynamo_lite import markers
from dynamo_lite.api import (
    error_on_graph_break,
    get_default_backend,
    optimize,
    optimize_assert,
    reset,
    reset_code_caches,
    run,
    set_default_backend,
)
from dynamo_lite.backends import registry

from .explain import explain

NAME = "torch." + "_dynamo"


@contextlib.contextmanager
def redirected_package() -> Iterator[None]:
    """Redirect the package for the block: at once where it is loaded, else when the program imports it."""
    with contextlib.ExitStack() as stack:
        hook = _AfterImport(NAME, functools.partial(_redirect, stack))
        loaded = sys.modules.get(NAME)
        if loaded is not None:
            hook.then(loaded)
        else:
            sys.meta_path.insert(0, hook)
            stack.callback(sys.meta_path.remove, hook)
        yield


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls `then` with a module when it has been imported."""

    def __init__(self, name: str, then: Callable[[types.ModuleType], Any]) -> None:
        self.name = name
        self.then = then

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The spec of the module as others find it, whose loader tells us."""
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: types.ModuleType) -> None:
                execute(module)
                self.then(module)

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


def _redirect(stack: contextlib.ExitStack, package: Any) -> None:
    """Have the package redirected until `stack` ends."""
    stack.enter_context(_entry_points(package))


# Functions


@contextlib.contextmanager
def _entry_points(package: Any) -> Iterator[None]:
    """Ours in place of the functions that compile, forget, or say how to compile, and of those that know backends by name. What only
    marks functions and tensors stays: its marks count here. So do the functions in torch's own modules, whose calls of each other mean
    torch's: `torch._dynamo.export` captures with them."""

    @functools.wraps(package.optimize)
    def redirected_optimize(backend: Any = "inductor", **options: Any) -> Any:
        return optimize(backend, **options)

    @functools.wraps(package.optimize_assert)
    def redirected_assert(backend: Any = "inductor", **options: Any) -> Any:
        return optimize_assert(backend, **options)

    entries: dict[str, Any] = {
        "optimize": redirected_optimize,
        "optimize_assert": redirected_assert,
        "explain": explain,
        "run": run,
        "reset": reset,
        "reset_code_caches": reset_code_caches,
        "set_stance": markers.set_stance,
        "error_on_graph_break": error_on_graph_break,
    }
    names = package.backends.registry
    register = functools.partial(_register, names.register_backend)
    backends: dict[str, Any] = {
        "register_backend": register,
        "register_debug_backend": functools.partial(register, tags=("debug",)),
        "register_experimental_backend": functools.partial(register, tags=("experimental",)),
        "lookup_backend": functools.partial(_lookup, names.lookup_backend),
        "list_backends": registry.list_backends,
        "set_default_backend": set_default_backend,
        "get_default_backend": get_default_backend,
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(registry.registrations())
        for owner, ours in ((package, entries | backends), (names, backends)):
            found = {name: function for name, function in ours.items() if name in vars(owner)}
            stack.enter_context(mock.patch.multiple(owner, **found))
        yield


def _register(theirs: Callable[..., Any], compiler_fn: Any = None, name: str | None = None, tags: Any = ()) -> Any:
    """`register_backend` with both. A backend of torch's own, or of a library for which we have an adapter, is registered with torch only:
    these names mean ours."""
    if compiler_fn is None:
        return functools.partial(_register, theirs, name=name, tags=tags)
    theirs(compiler_fn, name=name, tags=tags)
    name = name or compiler_fn.__name__
    of_torch = (getattr(compiler_fn, "__module__", None) or "").startswith("torch.")
    if not of_torch and name not in registry.list_backends(None):
        registry.register_backend(compiler_fn, name=name, tags=tags)
    return compiler_fn


def _lookup(theirs: Callable[..., Any], compiler_fn: Any) -> Any:
    """`lookup_backend`: torch's own, which takes graphs of any origin, else ours."""
    try:
        return theirs(compiler_fn)
    except Exception:
        return registry.lookup_backend(compiler_fn)
