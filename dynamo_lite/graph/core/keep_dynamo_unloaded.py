"""Keeps torch's own compiler package out of the process while operators run on fake tensors.

Input: nothing. Output: `without_compiler`, a context in which code of torch that looks into that package finds a
stand-in.
Invariant: the stand-ins are only visible inside the context, only while the real package isn't loaded, and any use of
them beyond what fake tensors and symbolic sizes need loads the real thing.

Fake tensors, symbolic sizes and torch's reference implementations import that package (0.7 s) to read a setting and to
mark functions as not to be compiled by it. Loading it must be the user's choice of a backend, not a consequence of
capture.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._guards import Source
from torch._subclasses import meta_utils

from dynamo_lite.import_hook import loaded

PACKAGE = "torch." + "_dynamo"
ATTRIBUTE = PACKAGE.rpartition(".")[2]


def _is_loaded() -> bool:
    return loaded(PACKAGE) not in (None, _stand_in)


def _disable(fn: Callable[..., Any], recursive: bool = True, **options: Any) -> Callable[..., Any]:
    """`disable` of the real package from the moment it is loaded; until then there is nothing that could compile
    `fn`."""
    real: Callable[..., Any] | None = None

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal real
        if real is None:
            if not _is_loaded():
                return fn(*args, **kwargs)
            real = sys.modules[PACKAGE].disable(fn, recursive, **options)
        return real(*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]  # the real package skips what has this mark
    return call


class _StandIn(types.ModuleType):
    """A module with the given attributes; any other attribute loads the real module."""

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name)
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and (name != "__path__" or self is not _stand_in):
            # Tools that look through sys.modules ask for these. The import system asks a package for its __path__.
            raise AttributeError(name)
        _hide()
        return getattr(importlib.import_module(self.__name__), name)


# The settings of torch's compiler that torch itself reads while operators run on fake tensors, at their defaults. One that is missing here
# loads the compiler.
_CONFIG = types.SimpleNamespace(_custom_ops_profile=None, error_on_nested_fx_trace=True)
_stand_in = _StandIn(PACKAGE, config=_CONFIG, disable=_disable)
_validator = _StandIn("torch.fx.experimental.validator", translation_validation_enabled=lambda: False)

_source = _StandIn(
    PACKAGE + ".source",
    RandomValueSource=type("RandomValueSource", (), {}),
    ConstantSource=lambda name: Source(),
    AttrSource=lambda base, member: Source(),
)
_stand_in.__dict__["source"] = _source
"""What makes a fake of a tensor with data asks whether it comes from a random number of the program, and names it for symbolic sizes."""


def _hide() -> None:
    for module in (_stand_in, _validator, _source):
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]
    if torch.__dict__.get(ATTRIBUTE) is _stand_in:
        del torch.__dict__[ATTRIBUTE]


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


class _WithoutCompiler:
    """`loggers` holds (module, name) of functions that write torch's structured trace, one Python stack per symbol;
    they are off inside."""

    def __init__(self) -> None:
        self.depth = 0
        self.loggers: list[tuple[Any, str]] = [(meta_utils, "trace_structured")]
        self.saved: list[Any] = []

    def __enter__(self) -> None:
        self.depth += 1
        if self.depth == 1:
            if PACKAGE not in sys.modules:
                sys.modules[PACKAGE] = _stand_in
                sys.modules.setdefault(_validator.__name__, _validator)
                sys.modules.setdefault(_source.__name__, _source)
                torch.__dict__[ATTRIBUTE] = _stand_in
            if self.loggers:
                self.saved = [getattr(module, name) for module, name in self.loggers]
                for module, name in self.loggers:
                    setattr(module, name, _nothing)

    def __exit__(self, *exc_info: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            if sys.modules.get(PACKAGE) is _stand_in:
                _hide()
            if self.saved:
                for (module, name), function in zip(self.loggers, self.saved, strict=True):
                    setattr(module, name, function)
                self.saved = []


without_compiler = _WithoutCompiler()
