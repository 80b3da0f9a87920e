"""Which Python functions are followed and which are left to run.

Input: a function or code object. Output: the reason why it is not captured, or None.
Invariant: leaving a function out is a graph break with a reason, never silent.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
from typing import Any

from dynamo_lite import markers

# Modules that talk to the world, look at frames or manage threads: following them would only reach a C function that breaks.
SKIPPED_MODULES = frozenset(
    """
    asyncio atexit bdb cProfile code codeop concurrent ctypes dis faulthandler gc getpass glob http importlib io linecache
    logging mmap multiprocessing pathlib pdb pickle platform profile pstats runpy select selectors shutil signal socket
    sqlite3 ssl subprocess sys tempfile threading time timeit tokenize trace traceback tracemalloc urllib uuid zipfile
    hypothesis pytest _pytest tqdm
    """.split()
)

# Parts of torch that drive compilers, files or processes rather than compute.
SKIPPED_TORCH = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch._aot_autograd",
    "torch._functorch.aot_autograd",
    "torch._subclasses",
    "torch._ops",
    "torch._library",
    "torch.distributed.fsdp",
    "torch.library",
    "torch.fx",
    "torch.jit",
    "torch.multiprocessing",
    "torch.nn.modules.lazy",
    "torch.nn.parallel.distributed",
    "torch.onnx",
    "torch.package",
    "torch.profiler",
    "torch.serialization",
    "torch.testing._comparison",
    "torch.utils.data",
    "torch.utils.tensorboard",
)

_CALLS_MODULES = ("torch.distributed.fsdp", "torch.nn.parallel.distributed")
"""Parts of torch that are not followed, whose calls of the program's modules are captured: they manage memory and reducers."""
_COMPOSED = {
    "torch.nn.modules.activation": ("MultiheadAttention.forward",),
    "torch.nn.modules.adaptive": ("AdaptiveLogSoftmaxWithLoss.forward",),
    "torch.nn.modules.container": ("Sequential.forward",),
    "torch.nn.modules.transformer": (
        "Transformer.forward",
        "TransformerDecoder.forward",
        "TransformerDecoderLayer.forward",
        "TransformerEncoder.forward",
        "TransformerEncoderLayer.forward",
    ),
}
"""Layers made of others, which are captured as modules of the program are where eager code calls them. A graph of one operator, for each
size of its weights, would cost more than it gains."""

FOLLOWED_TORCH = frozenset(
    {
        "torch._dynamo._trace_wrapped_higher_order_op",  # has a mode by which `torch.nn.attention` rewrites indexing
        "torch.fx._pytree",  # modules made of graphs are called through these
        "torch.fx.graph_module",
        "torch.profiler._utils",  # computes with events
        "torch.profiler.itt",
    }
)

_LEVELS = ("debug", "info", "warning", "error", "critical")

# Functions that are followed although the rest of their module is not: they only look at their arguments, call a function that they are
# given, or make an instance of a class that torch.fx can trace. Each is (module, qualified name of the code).
_FOLLOWED_FUNCTIONS = frozenset(
    {
        ("torch.fx._symbolic_trace", "ProxyableClassMeta.__call__"),
        *[("torch.fx.experimental.symbolic_shapes", name) for name in ("sym_and", "sym_or", "sym_eq")],
        ("torch.jit", "isinstance"),
        ("torch.jit", "strict_fusion.__init__"),
        ("torch.jit", "strict_fusion.__enter__"),
        ("torch.jit", "strict_fusion.__exit__"),
        ("torch.jit._script", "_unwrap_optional"),
        ("torch.jit._trace", "_script_if_tracing.<locals>.wrapper"),
        *[("logging", f"LoggerAdapter.{name}") for name in _LEVELS + ("log", "process", "isEnabledFor")],
    }
)

# Called as they are, these functions have torch.compile capture the functions given, then call an operator. Captured, they call it at once.
ONE_STEP = ("torch._higher_order_ops", "torch.nn.attention.flex_attention")

GENERATOR_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_HERE = os.path.dirname(os.path.abspath(markers.__file__)) + os.sep


def is_internal(code: types.CodeType) -> bool:
    """True for our own code (polyfills): it is not the user's, and never a place to break at."""
    return code.co_filename.startswith(_HERE)


# Hold a lock from 3.14 on, which captured code does not take.
WARNINGS = frozenset({"warnings", "_py_warnings"})


def is_one_step(globals_: dict[str, Any]) -> bool:
    """True for the globals of a module whose functions are run whole or not at all, since they do another thing where they are compiled. A
    break belongs before their call."""
    name = globals_.get("__name__") or ""
    return name.startswith(ONE_STEP) or name in WARNINGS


def why_not_inlined(fn: Any) -> tuple[str, str] | None:
    """(slug, context) of the break that calling a real Python function means, or None to follow it."""
    attributes = fn.__dict__
    if attributes and attributes.get("_torchdynamo_disable"):
        return ("call-skipped-function", markers.told_disabled(fn.__qualname__, attributes.get(markers.REASON)))
    module = fn.__globals__.get("__name__") or ""
    top = module.partition(".")[0]
    if fn.__code__ in markers.FOLLOWED_CODES:
        return None
    is_skipped = top in SKIPPED_MODULES or _is_skipped_torch(module)
    if is_skipped and (module, _qualified_name(fn.__code__)) not in _FOLLOWED_FUNCTIONS:
        return ("call-skipped-function", f"{module}.{fn.__qualname__}")
    return None


def _qualified_name(code: types.CodeType) -> str:
    """The qualified name of the function that a code object is of, or continues."""
    return code.co_qualname.partition(" (resumed at")[0]


def _is_skipped_torch(module: str) -> bool:
    return module.startswith(SKIPPED_TORCH) and module not in FOLLOWED_TORCH


def is_of_torch(globals_: dict[str, Any]) -> bool:
    """True for the globals of a module of torch's."""
    return (globals_.get("__name__") or "").partition(".")[0] == "torch"


def is_of_first_use(fn: Any) -> bool:
    """True for a function that is not followed and that makes another object of its module at the module's first call."""
    return (fn.__globals__.get("__name__"), fn.__qualname__) in _OF_FIRST_USE


_OF_FIRST_USE = frozenset({("torch.nn.modules.lazy", "LazyModuleMixin._infer_parameters")})


def looks_at_callers(fn: Any) -> bool:
    """True for a function that is not followed and that asks who called it: where a warning or a log record comes from."""
    return (fn.__globals__.get("__name__") or "").partition(".")[0] in _CALLER_SEEKERS


_CALLER_SEEKERS = frozenset({"logging", "traceback"})


def is_debugger(fn: Any) -> bool:
    """True for a function of a debugger, which shows the variables of the frames that called it, and goes on in them."""
    name = fn.__globals__.get("__name__") or ""
    return name.partition(".")[0] in _DEBUGGERS or name == "_pytest.debugging"


_DEBUGGERS = frozenset({"bdb", "debugpy", "ipdb", "pdb", "pudb", "pydevd"})


TORCH_MARKERS = {
    ("torch._dynamo.decorators", "graph_break"): markers.graph_break,
    ("torch._dynamo.decorators", "skip_frame"): markers.skip_frame,
    ("torch._dynamo.decorators", "mark_static"): markers.mark_static,
    ("torch._dynamo.external_utils", "is_compiling"): markers.is_compiling,
}
"""Functions that say the same as our markers, by which libraries already talk to torch.compile."""


def transparent_target(fn: Any) -> Any:
    """What a function of torch.compile's own stands for here: our marker, the function that a wrapper compiles, counts calls of or
    gives settings of torch.compile's to, or None.

    Once torch.compile has run in a process, nn.Module.__init__ and __setstate__ are wrapped so that modules are
    counted, and parts of the optimisers are disabled, because it cannot follow them.
    """
    module = fn.__globals__.get("__name__")
    marker = TORCH_MARKERS.get((module, fn.__qualname__))
    if marker is not None:
        return marker
    if str(fn.__dict__.get(markers.REASON)).startswith(_UNABLE):
        return fn._torchdynamo_orig_callable
    if module == _COMPILED and not fn.__dict__.get("_torchdynamo_disable"):
        return fn.__dict__.get("_torchdynamo_orig_callable")
    if (module, fn.__qualname__) == _WITH_SETTINGS:
        return inspect.getclosurevars(fn).nonlocals["func"]
    if module != "torch._dynamo.mutation_guard" or fn.__closure__ is None:
        return None
    contents = [cell.cell_contents for cell in fn.__closure__]
    return contents[0] if len(contents) == 1 and issubclass(type(contents[0]), types.FunctionType) else None


_COMPILED = "torch._dynamo.eval_frame"
_WITH_SETTINGS = ("torch._dynamo.external_utils", "wrap_dunder_call_ctx_manager.<locals>.inner")
_UNABLE = ("optimizer <class 'torch.optim.", "don't trace into fused optimizer")


_WRAPPER = ("torch._dynamo.external_utils", "get_nonrecursive_disable_wrapper.<locals>.nonrecursive_disable_wrapper")


def _wraps_disabled(code: types.CodeType, globals_: dict[str, Any]) -> bool:
    """True for the code that calls what `torch.compiler.disable(recursive=False)` was given."""
    return (globals_.get("__name__"), _qualified_name(code)) == _WRAPPER


def is_called_by_its_wrapper(depth: int) -> bool:
    """Whether a function which torch was told to disable by itself is being called: torch marks the wrapper, and leaves alone what is
    called from there. `depth` is that of the callback of the hook, counted from the caller of this function: below it is who calls."""
    caller = sys._getframe(depth).f_back  # None for what a thread begins with
    return caller is not None and _wraps_disabled(caller.f_code, caller.f_globals)


def why_not_captured(code: types.CodeType, globals_: dict[str, Any]) -> tuple[str, bool] | None:
    """Why a frame reached from eager code is left alone, and whether what it calls is left alone too; None to capture it."""
    module = globals_.get("__name__") or ""
    top = module.partition(".")[0]
    if is_internal(code):
        return "part of the engine", False  # what it calls may end the region, which must not come back
    if code in markers.SKIPPED_CODES or _wraps_disabled(code, globals_):
        return "marked to be skipped", False
    if top in SKIPPED_MODULES or (_is_skipped_torch(module) and not module.startswith(_CALLS_MODULES)):
        return f"module {module}", True
    is_composed = module in _COMPOSED and _qualified_name(code) in _COMPOSED[module]
    if (top == "torch" and not is_composed) or top in sys.stdlib_module_names:
        # These call back into user code: hooks, checkpointed functions, decorators.
        return f"module {module}", False
    if module.startswith("namedtuple_") and code.co_filename == "<string>":
        return "made by collections.namedtuple", True
    if code.co_flags & GENERATOR_FLAGS:
        return "generator or coroutine", False
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return "not a function body", False
    return None
