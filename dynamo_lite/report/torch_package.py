"""While a script runs redirected: the compiler package of torch, `torch._dynamo`, in the script's hands.

Input: the package, from when the script has imported it. Output: its entry points are ours, what the script sets in its `config` is set in
ours too, what it registers as a backend is known here, and `except` of its exceptions catches ours. What is changed of ours ends with the
block; torch's own settings and registrations stay as the script leaves them.
Invariant: the package is never imported for that, and works as before where torch itself uses it (`torch.export`): it gets all settings
and all backends as well, and its exception classes stay.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from dynamo_lite import exc, markers
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
from dynamo_lite.config import ALIASES, config
from dynamo_lite.import_hook import when_imported
from dynamo_lite.messages import is_users, warn_user

from .explain import explain

NAME = "torch." + "_dynamo"


@contextlib.contextmanager
def redirected_package(settings: dict[str, Any]) -> Iterator[None]:
    """Redirect the package for the block: at once where it is loaded, else when the program imports it. `settings` are ours outside of
    the block."""
    with contextlib.ExitStack() as stack:
        stack.callback(when_imported(NAME, functools.partial(_redirect, stack, settings)))
        yield


def _redirect(stack: contextlib.ExitStack, settings: dict[str, Any], package: Any) -> None:
    """Have the package redirected until `stack` ends."""
    stack.enter_context(_entry_points(package))
    stack.enter_context(_exceptions(package.exc))
    stack.enter_context(_settings(package.config, settings))


# Functions


@contextlib.contextmanager
def _entry_points(package: Any) -> Iterator[None]:
    """Ours in place of the functions that compile, forget, or say how to compile, and of those that know backends by name. What only
    marks functions and tensors stays: its marks count here. Functions in the modules below (`torch._dynamo.eval_frame.optimize`)
    stay too: they call each other, and `torch._dynamo.export` captures with them."""

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
        "lookup_backend": functools.partial(_lookup, names.lookup_backend, package.exc.InvalidBackend),
        "list_backends": registry.list_backends,
        "set_default_backend": set_default_backend,
        "get_default_backend": get_default_backend,
    }
    with contextlib.ExitStack() as stack:
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
    # Torch's own register themselves when they are imported; what its factories make (`aot_autograd`) for a program is the program's.
    module = getattr(compiler_fn, "__module__", None) or ""
    of_torch = module.startswith("torch.") and not is_users(sys._getframe(1).f_code.co_filename)
    if not of_torch and name not in registry.list_backends(None):
        registry.register_backend(compiler_fn, name=name, tags=tags)
    return compiler_fn


def _lookup(theirs: Callable[..., Any], unknown: type[Exception], compiler_fn: Any) -> Any:
    """`lookup_backend`: torch's own, which needs no fake values in the graph, else ours."""
    try:
        return theirs(compiler_fn)
    except unknown:
        return registry.lookup_backend(compiler_fn)


# Exceptions


@contextlib.contextmanager
def _exceptions(theirs: Any) -> Iterator[None]:
    """Each of our exception classes is also derived from torch's class of the same name, so that its `except` clauses catch ours. Torch's
    own classes and names stay as they are: torch.export raises them."""
    before: list[tuple[Any, tuple[type, ...]]] = []
    try:
        for name, ours in vars(exc).items():
            their = getattr(theirs, name, None)
            if not (isinstance(ours, type) and issubclass(ours, exc.TorchDynamoException)):
                continue
            if ours.__name__ == name and isinstance(their, type) and not issubclass(ours, their):
                before.append((ours, ours.__bases__))
                ours.__bases__ = (*ours.__bases__, their)
        yield
    finally:
        for ours, bases in reversed(before):
            ours.__bases__ = bases


# Settings


@contextlib.contextmanager
def _settings(theirs: Any, before: dict[str, Any]) -> Iterator[None]:
    """What the program sets in torch's config within the block is set in ours, too, where ours has the key."""
    plain = type(theirs)
    at_first = {key: theirs.__getattr__(key) for key in _shared(theirs)}
    types.ModuleType.__setattr__(theirs, "__class__", _followed(plain, before, at_first))
    try:
        yield
    finally:
        types.ModuleType.__setattr__(theirs, "__class__", plain)


def _shared(theirs: Any) -> list[str]:
    """The names in torch's config that are keys of ours, or aliases, and that may differ without a deprecation."""
    entries = theirs._config
    names = [name for name in (*config.to_dict(), *ALIASES) if name in entries]
    return [name for name in names if not getattr(entries[name], "deprecated", False)]


def _followed(plain: Any, before: dict[str, Any], at_first: dict[str, Any]) -> type:
    """The class of torch's config whose changes ours follows. `before` has our values outside of the block, `at_first` torch's.

    Defaults differ (`suppress_errors`): a value that is put back, by the end of a patch or from a copy of the whole config, is
    no wish of the program. Ours is put back then, too.
    """

    def follow(name: str, value: object, *, put_back: bool) -> None:
        if name not in at_first:
            return
        key = ALIASES.get(name, name)
        ours = before[key] if put_back and value == at_first[name] else value
        try:
            setattr(config, key, ours)
        except TypeError as error:
            warn_user(f"{NAME}.config.{name} = {value!r} has no effect: {error}")

    loading = False
    of_config = plain.__setattr__.__code__.co_filename  # it sets what an alias stands for, and the keys of a patch

    class Followed(plain):  # type: ignore[misc]
        def __setattr__(self, name: str, value: object) -> None:
            # mock.patch deletes the attribute before it puts it back, which hides it.
            hidden = name in at_first and getattr(self._config[name], "hide", False)
            caller = sys._getframe(1).f_code.co_filename
            super().__setattr__(name, value)
            # Torch's own code sets keys for itself: eager higher-order operators do.
            if is_users(caller) or caller == of_config:
                follow(name, value, put_back=hidden or loading)

        def load_config(self, maybe_pickled_config: Any) -> None:
            nonlocal loading
            before_load, loading = loading, True
            try:
                super().load_config(maybe_pickled_config)
            finally:
                loading = before_load

        def patch(self, *args: Any, **kwargs: Any) -> Any:
            made = super().patch(*args, **kwargs)
            made.__class__ = _both(type(made))
            return made

    return Followed


def _both(plain: Any) -> type:
    """The class of a patch of torch's config that puts ours back as well when it ends."""

    class Both(plain):  # type: ignore[misc]
        def __enter__(self) -> None:
            keys = {ALIASES.get(name, name) for name in self.changes}
            known = config.to_dict()
            super().__enter__()
            self.__dict__.setdefault("ours", []).append({key: known[key] for key in keys if key in known})

        def __exit__(self, *exc_info: Any) -> None:
            super().__exit__(*exc_info)
            for key, value in self.__dict__["ours"].pop().items():
                setattr(config, key, value)

    return Both
