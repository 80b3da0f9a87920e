"""dynamo_lite: an independent, bytecode-level Python JIT frontend for PyTorch; a drop-in for `torch.compile`.

Public names only. They are loaded when first used, so that importing the package needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import own_builtins

own_builtins.install(__path__)

from . import exc  # noqa: E402
from .config import config  # noqa: E402

if TYPE_CHECKING:
    from . import testing
    from .api import (
        OptimizeContext,
        compile,
        compile_module_,
        disable,
        optimize,
        optimize_assert,
        reset,
        run,
    )
    from .backends.registry import list_backends, lookup_backend, register_backend
    from .markers import (
        allow_in_graph,
        assume_constant_result,
        disallow_in_graph,
        dont_skip_tracing,
        forbid_in_graph,
        graph_break,
        is_compiling,
        mark_dynamic,
        mark_static,
        mark_static_address,
        mark_unbacked,
        maybe_mark_dynamic,
        nonstrict_trace,
        set_stance,
        skip_frame,
    )
    from .optimized_module import OptimizedModule
    from .polyfills.registry import polyfill, substitute_in_graph
    from .report.explain import explain

__version__ = "0.1.0"

_HOMES = {
    "api": ("OptimizeContext", "compile", "compile_module_", "disable", "optimize", "optimize_assert", "reset", "run"),
    "backends.registry": ("list_backends", "lookup_backend", "register_backend"),
    "markers": (
        "allow_in_graph",
        "assume_constant_result",
        "disallow_in_graph",
        "dont_skip_tracing",
        "forbid_in_graph",
        "graph_break",
        "is_compiling",
        "mark_dynamic",
        "mark_static",
        "mark_static_address",
        "mark_unbacked",
        "maybe_mark_dynamic",
        "nonstrict_trace",
        "set_stance",
        "skip_frame",
    ),
    "optimized_module": ("OptimizedModule",),
    "polyfills.registry": ("polyfill", "substitute_in_graph"),
    "report.explain": ("explain",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_SUBMODULES = ("testing",)

__all__ = sorted([*_HOME_OF, *_SUBMODULES, "config", "exc"])


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
