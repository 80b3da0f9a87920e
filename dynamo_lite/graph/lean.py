"""Keeps torch's own compiler package out of the process while operators run on fake tensors.

Input: nothing. Output: `without_compiler`, a context in which code of torch that looks into that package finds a stand-in.
Invariant: the stand-in is only visible inside the context, only while the real package isn't loaded, and any use of it beyond the two
things that fake tensors need loads the real package.

Fake tensors and torch's reference implementations import that package (0.7 s) to read one setting and to mark functions as not to be
compiled by it. Loading it must be the user's choice of a backend, not a consequence of capture.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

PACKAGE = "torch." + "_dynamo"
ATTRIBUTE = PACKAGE.rpartition(".")[2]


def _is_loaded() -> bool:
    return sys.modules.get(PACKAGE, _stand_in) is not _stand_in


def _disable(fn: Callable[..., Any], recursive: bool = True, **options: Any) -> Callable[..., Any]:
    """`disable` of the real package from the moment it is loaded; until then there is nothing that could compile `fn`."""
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
    config = types.SimpleNamespace(_custom_ops_profile=None)
    disable = staticmethod(_disable)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)  # tools that look through sys.modules ask for these; the import system asks for __path__
        _hide()
        return getattr(importlib.import_module(PACKAGE), name)


_stand_in = _StandIn(PACKAGE)


def _hide() -> None:
    if sys.modules.get(PACKAGE) is _stand_in:
        del sys.modules[PACKAGE]
    if torch.__dict__.get(ATTRIBUTE) is _stand_in:
        del torch.__dict__[ATTRIBUTE]


class _WithoutCompiler:
    __slots__ = ()

    def __enter__(self) -> None:
        if PACKAGE not in sys.modules:
            sys.modules[PACKAGE] = _stand_in
            torch.__dict__[ATTRIBUTE] = _stand_in

    def __exit__(self, *exc_info: object) -> None:
        if sys.modules.get(PACKAGE) is _stand_in:
            _hide()


without_compiler = _WithoutCompiler()
