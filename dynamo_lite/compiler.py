"""The rest of `torch.compiler` and of what `torch._dynamo` offers at its top: `from dynamo_lite import compiler`.

Input: calls of programs written for torch's compiler. Output: what those functions do here.
Invariant: a name that torch has works, or raises an error that says what to use; nothing is silently ignored that would change results.
Names of torch that belong to the kernel compiler, or to operators that capture knows, are torch's own objects.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.compiler
from torch.compiler import _cache

from .api import (
    compile,
    disable,
    error_on_graph_break,
    get_default_backend,
    reset,
    reset_code_caches,
    set_default_backend,
)
from .backends.inductor import is_inductor_supported
from .backends.registry import list_backends
from .config import ConfigPatch, config
from .guards import guard_collectives
from .markers import allow_in_graph, assume_constant_result, is_compiling, set_stance
from .polyfills.registry import substitute_in_graph

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "disable",
    "error_on_graph_break",
    "get_default_backend",
    "is_compiling",
    "is_dynamo_compiling",
    "is_dynamo_supported",
    "is_inductor_supported",
    "list_backends",
    "load_compiled_function",
    "patch_dynamo_config",
    "reset",
    "reset_code_caches",
    "set_default_backend",
    "set_enable_guard_collectives",
    "set_stance",
    "substitute_in_graph",
]

OF_TORCH = (
    "CacheInfo",
    "NestedCompileRegionOptions",
    "cudagraph_mark_step_begin",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "load_cache_artifacts",
    "nested_compile_region",
    "save_cache_artifacts",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "wrap_numpy",
)
"""Names that are torch's own objects. The guard filters may be given to `compile`, which says that guards always run."""

is_dynamo_compiling = is_compiling


def __getattr__(name: str) -> Any:
    if name in OF_TORCH:
        owner = torch.compiler if hasattr(torch.compiler, name) else _cache  # where older torch has CacheInfo
        value = globals()[name] = getattr(owner, name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in OF_TORCH if hasattr(torch.compiler, name) or hasattr(_cache, name))])


def patch_dynamo_config(
    arg1: str | dict[str, Any] | tuple[tuple[str, Any], ...] | None = None, arg2: object = None, **kwargs: Any
) -> ConfigPatch:
    """`config.patch` in torch's spelling, which takes pairs as well."""
    return config.patch(dict(arg1) if isinstance(arg1, tuple) else arg1, arg2, **kwargs)


def is_dynamo_supported() -> bool:
    """Whether this interpreter can run captured code: yes, or the package could not have been imported."""
    return True


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Have all ranks compile where one does: each call of a function that has compiled versions asks the other ranks of the default
    process group, by one collective, whether a version fits there too; if not everywhere, all compile. Ranks must call the same compiled
    functions in the same order; a call raises RuntimeError when another rank does not answer within the time limit of process groups.
    Returns whether it was on before."""
    return guard_collectives.set_enabled(enabled)


def load_compiled_function(*args: Any, **kwargs: Any) -> Any:
    """Raises NotImplementedError: compiled functions are not stored."""
    raise NotImplementedError(
        "compiled functions are not stored in files: export the model with torch.export, or keep the kernel compiler's results with "
        "save_cache_artifacts() and load_cache_artifacts()"
    )
