"""dynamo_lite: an independent, bytecode-level Python JIT frontend for PyTorch; a drop-in for `torch.compile`.

Public names only. They are loaded when first used, so that importing the package needs no torch.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import TYPE_CHECKING, Any

from . import own_builtins

own_builtins.install(__path__)

from . import exc  # noqa: E402
from .config import config  # noqa: E402

if TYPE_CHECKING:
    from torch.compiler import (
        CacheInfo,
        NestedCompileRegionOptions,
        cudagraph_mark_step_begin,
        is_exporting,
        keep_portable_guards_unsafe,
        keep_tensor_guards_unsafe,
        load_cache_artifacts,
        nested_compile_region,
        save_cache_artifacts,
        skip_all_guards_unsafe,
        skip_guard_on_all_nn_modules_unsafe,
        skip_guard_on_globals_unsafe,
        skip_guard_on_inbuilt_nn_modules_unsafe,
        wrap_numpy,
    )

    from . import compiler, testing
    from .api import (
        OptimizeContext,
        compile,
        compile_module_,
        disable,
        get_default_backend,
        optimize,
        optimize_assert,
        reset,
        reset_code_caches,
        run,
        set_default_backend,
    )
    from .backends.registry import list_backends, lookup_backend, register_backend
    from .compiler import (
        error_on_graph_break,
        is_dynamo_compiling,
        is_dynamo_supported,
        is_inductor_supported,
        load_compiled_function,
        patch_dynamo_config,
        set_enable_guard_collectives,
    )
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
    from .record import counters
    from .report.explain import explain
    from .report.export import export
    from .report.valid_sizes import valid_sizes

__version__ = "0.1.0"

_HOMES = {
    "api": (
        "OptimizeContext",
        "compile",
        "compile_module_",
        "disable",
        "get_default_backend",
        "optimize",
        "optimize_assert",
        "reset",
        "reset_code_caches",
        "run",
        "set_default_backend",
    ),
    "backends.registry": ("list_backends", "lookup_backend", "register_backend"),
    "compiler": (
        "CacheInfo",
        "NestedCompileRegionOptions",
        "cudagraph_mark_step_begin",
        "error_on_graph_break",
        "is_dynamo_compiling",
        "is_dynamo_supported",
        "is_exporting",
        "is_inductor_supported",
        "keep_portable_guards_unsafe",
        "keep_tensor_guards_unsafe",
        "load_cache_artifacts",
        "load_compiled_function",
        "nested_compile_region",
        "patch_dynamo_config",
        "save_cache_artifacts",
        "set_enable_guard_collectives",
        "skip_all_guards_unsafe",
        "skip_guard_on_all_nn_modules_unsafe",
        "skip_guard_on_globals_unsafe",
        "skip_guard_on_inbuilt_nn_modules_unsafe",
        "wrap_numpy",
    ),
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
    "record": ("counters",),
    "polyfills.registry": ("polyfill", "substitute_in_graph"),
    "report.explain": ("explain",),
    "report.export": ("export",),
    "report.valid_sizes": ("valid_sizes",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_SUBMODULES = ("compiler", "testing")
_INSTEAD = {
    "allow_c_slot": "dynamo_lite.polyfill",
    "bytecode_debugger": "DYNAMO_LITE_DEBUG=1 and dynamo_lite.explain",
    "disable_nested_graph_breaks": "dynamo_lite.config.patch(nested_graph_breaks=False)",
    "get_recursion_limit": "dynamo_lite.config.max_inline_depth",
    "is_dynamo_disable_recursive": "dynamo_lite.disable",
    "override_cudagraphs": 'compile(…, options={"triton.cudagraphs": …})',
    "override_optimization_hint": "dynamo_lite.mark_dynamic",
    "register_hook_for_recompile_user_context": "the recompile reasons of dynamo_lite.explain",
    "replay": "dynamo_lite.explain",
    "reset_recompile_user_contexts": "dynamo_lite.reset",
    "set_recursion_limit": "dynamo_lite.config.max_inline_depth",
    "step_unsupported": "dynamo_lite.graph_break",
}
"""Names of torch's compiler without a counterpart of that name → what to use."""

__all__ = sorted([*_HOME_OF, *_SUBMODULES, "config", "exc"])


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return _load(name)
    home = _HOME_OF.get(name)
    if home is None:
        instead = f"; use {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{instead}")
    value = getattr(_load(home), name)
    globals()[name] = value
    return value


def check_python() -> None:
    """Raises ImportError where the interpreter is another than those whose frames and bytecode are known."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 14):
        raise ImportError(
            f"dynamo_lite runs on CPython 3.11 to 3.14, not on {sys.version.split()[0]}: frames and bytecode differ there"
        )


def _load(name: str) -> Any:
    """Import a module of the package. Garbage is not collected meanwhile: there is none, and to look for it among all that torch has made
    takes longer than the import."""
    check_python()
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(f".{name}", __name__)
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
