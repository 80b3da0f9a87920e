"""The surface: `compile`, `optimize` and their relatives, with the keywords and meanings of torch's functions of the
same names.

Input: the user's functions, modules, classes and settings. Output: callables that go through a `convert.Region`.
Invariant: wrapping compiles nothing and imports no backend; all work happens at the first call. What is wrapped with equal settings and
has one `version_sharing` key shares its compiled versions, which live as long as one of these functions or modules.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import inspect
import sys
import threading
import types
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.module import _global_forward_pre_hooks

from . import _eval_frame, markers
from . import warm_cache as kept
from .backends.registry import CompilerFn, in_background, lookup_backend, reset_backends, with_options
from .config import CHOICES, ConfigPatch, config
from .frontend import convert, version_sharing
from .graph import side
from .messages import refuse_value, warn_user
from .optimized_module import OptimizedModule, wrap_module
from .record import log
from .variables.objects.compiled import nested_compiler

Backend = str | CompilerFn


@dataclass(frozen=True)
class Settings:
    """The settings of one `compile` call. Equal settings share compiled versions; picklable if the backend is."""

    backend: Backend = "inductor"
    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str | None = None
    options: tuple[tuple[str, Any], ...] | None = None
    name: str | None = None
    recompile_limit: int | None = None
    isolate: bool = False
    regions: bool | str | None = None
    background: bool = False

    def compiler(self) -> CompilerFn:
        """The backend as a callable. Raises InvalidBackend, or what the backend raises for unknown options."""
        options = dict(self.options) if self.options else None
        if self.background:
            if self.regions is not None:
                raise RuntimeError("background=True takes no regions: the other process would not have them")
            return in_background(self.backend, self.mode, options)
        return with_options(lookup_backend(self.backend), mode=self.mode, options=options, regions=self.regions)

    def new_region(self) -> convert.Region:
        region = convert.Region(
            self.compiler(),
            fullgraph=self.fullgraph,
            dynamic=self.dynamic,
            recompile_limit=self.recompile_limit,
        )
        region.settings = self
        _live_regions.add(region)
        return region

    def region_for(self, owner: object) -> convert.Region:
        """The region for these settings of `owner`, a function or module, and of those that share it; else a fresh one."""
        namespace = getattr(owner, "__dict__", None)
        if self.isolate or not isinstance(namespace, dict) or not _hashable(self):
            return self.new_region()
        with _table_lock:
            table = namespace.get(_TABLE)
            if type(table) is not _RegionTable:
                table = namespace[_TABLE] = _RegionTable()
            share = table.get(self)
            if share is None:
                key = hash(self), version_sharing.key_of(owner)
                share = _shares.get(key)
                if share is None or share.region.settings != self:
                    share = _shares[key] = _Share(self.new_region())
                table[self] = share
                share.region.limits.serve(owner)
            return share.region


class _Share:
    """A region, held by the functions and modules that it serves. The last of them to go takes it out of the table of regions at once,
    while the region itself may be part of a cycle."""

    __slots__ = ("__weakref__", "region")

    def __init__(self, region: convert.Region) -> None:
        self.region = region


_shares: weakref.WeakValueDictionary[tuple[int, Hashable], _Share] = weakref.WeakValueDictionary()
"""By the hash of the settings: a key that held them would keep alive their backend, and with it the globals of the program, whose functions
hold the share. Where two have one hash, the later takes the place."""


class _RegionTable(dict[Settings, _Share]):
    """The regions of one function or module. Compiled code does not travel: copies of the owner get an empty dict."""

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return dict, ()


_TABLE = "_dynamo_lite_regions"
_table_lock = threading.RLock()
_live_regions: weakref.WeakSet[convert.Region] = weakref.WeakSet()


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


# compile

_default_backend: Backend = "inductor"
_overriding: Backend | None = None


@contextlib.contextmanager
def overriding(backend: Backend | None) -> Iterator[None]:
    """Within the block `compile`, `optimize` and their relatives use this backend, whichever they are asked for; modes and options are
    dropped. None: no other than they are asked for. Raises InvalidBackend for an unknown name."""
    global _overriding
    if backend is not None:
        lookup_backend(backend)
    before, _overriding = _overriding, backend
    try:
        yield
    finally:
        _overriding = before


def _settings(**asked: Any) -> Settings:
    if _overriding is not None:
        asked |= {"backend": _overriding, "mode": None, "options": None, "background": False}
    return Settings(**asked)


def settings_of(compiled: Any) -> Settings | None:
    """The settings with which a function, method, module or other callable was compiled; None for anything else."""
    if isinstance(compiled, types.MethodType):
        return settings_of(compiled.__func__)
    if isinstance(compiled, _eval_frame.Callable):
        return getattr(compiled.cache.region, "settings", None)
    if isinstance(compiled, OptimizedModule):
        return compiled._dynamo_lite_rebuild.keywords["settings"]
    if isinstance(compiled, torch.nn.Module):
        return settings_of(compiled._compiled_call_impl)
    return settings_of(vars(compiled).get("__call__")) if isinstance(compiled, type) else None


def compile_with(settings: Settings, model: Any) -> Any:
    """`compile` with settings."""
    return _compile(model, settings)


def set_default_backend(backend: Backend | None) -> None:
    """The backend of later calls of `compile` that name none; None: "inductor". Raises InvalidBackend for an unknown name."""
    global _default_backend
    if backend is not None:
        lookup_backend(backend)
    _default_backend = "inductor" if backend is None else backend


def get_default_backend() -> Backend:
    """The backend of calls of `compile` that name none."""
    return _default_backend


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    regions: bool | str | None = None,
    background: bool = False,
    shapes_spec: object = None,
) -> Any:
    """A version of `model` that runs through captured and compiled graphs. Without `model`: a decorator.

    `model` is a function, method, class, module, or any object with `__call__`; what comes back is of the same kind.

    - `fullgraph`: a graph break raises instead of splitting the graph.
    - `dynamic`: None makes sizes symbolic when they change, True from the start, False never.
    - `backend`: a registered name (that of `set_default_backend` where none is given) or a callable `(gm, example_inputs) -> callable`.
    - `mode`, `options`: passed to the backend; for inductor as in torch. Not both.
    - `name`: a label for reports.
    - `disable`: return `model` as it is.
    - `recompile_limit`: instead of `config.recompile_limit`. `isolate_recompiles`: share nothing with other calls of
      `compile`.
    - `regions`: instead of `config.compile_regions`: whether equal layers are compiled once (True, False or "auto").
    - `background`: graphs run eagerly at once, and compiled from the first call after another process has compiled them, where that is
      faster. With the name of a backend, without options of its own.
    - `shapes_spec`: accepted without effect, with a warning; use the marks.

    Raises InvalidBackend for an unknown name, RuntimeError for options that contradict each other or that the backend
    does not know, and TypeError for a `model` that cannot be called and for keywords of a wrong type. A mode has no effect, and warns, with
    a backend that has none, and so have options with one of ours that takes none.
    """
    _check_keywords(fullgraph, dynamic, mode, options, name, recompile_limit, regions, background)
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if shapes_spec is not None:
        warn_user("shapes_spec has no effect; use mark_dynamic and mark_static")
    settings = _settings(
        backend=backend if backend is not None else _default_backend,
        fullgraph=fullgraph,
        dynamic=dynamic,
        mode=mode,
        options=_plain_options(options),
        name=name,
        recompile_limit=recompile_limit,
        isolate=isolate_recompiles,
        regions=regions,
        background=background,
    )
    if disable or config.disable:
        return model if model is not None else lambda model: model
    if model is None:
        return functools.partial(_compile, settings=settings)
    return _compile(model, settings)


nested_compiler(compile)


def _check_keywords(
    fullgraph: Any,
    dynamic: Any,
    mode: Any,
    options: Any,
    name: Any,
    recompile_limit: Any,
    regions: Any,
    background: Any,
) -> None:
    """Raise TypeError for values of a wrong type: what is said of them at the first call would be said too late."""
    if fullgraph not in (False, True):
        refuse_value("fullgraph", fullgraph, "True or False")
    if dynamic not in (None, False, True):
        refuse_value(
            "dynamic", dynamic, "None (sizes become symbolic when they change), True (from the start) or False (never)"
        )
    if mode is not None and not isinstance(mode, str):
        refuse_value("mode", mode, "a name")
    if options is not None and not isinstance(options, Mapping):
        refuse_value("options", options, "a dict of names and values")
    if name is not None and not isinstance(name, str):
        refuse_value("name", name, "a text")
    if background not in (False, True):
        refuse_value("background", background, "True or False")
    if regions not in (None, *CHOICES["compile_regions"]):
        refuse_value("regions", regions, "True, False or 'auto'")
    if recompile_limit is not None and (not isinstance(recompile_limit, int) or recompile_limit < 1):
        refuse_value("recompile_limit", recompile_limit, "a number of versions, 1 or more")


def _plain_options(options: Mapping[str, Any] | None) -> tuple[tuple[str, Any], ...] | None:
    if options is None:
        return None
    if "guard_filter_fn" in options:
        warn_user("the option guard_filter_fn has no effect: guards always run")
    return tuple((key, value) for key, value in options.items() if key != "guard_filter_fn") or None


def _compile(model: object, settings: Settings) -> Any:
    target = _original(model)
    owner = target
    if isinstance(target, types.MethodType):
        owner = target.__self__ if isinstance(target.__self__, torch.nn.Module) else _original(target.__func__)
    return _replace_calls(target, settings.region_for(owner).wrap, functools.partial(_compile, settings=settings))


def _original(model: Any) -> Any:
    """`model` without the wrappers of an earlier `compile` or `disable`: the outermost one decides, as in torch."""
    if isinstance(model, OptimizedModule):
        return model._orig_mod
    while not isinstance(model, torch.nn.Module | type | types.MethodType) and hasattr(
        model, "_torchdynamo_orig_callable"
    ):
        model = model._torchdynamo_orig_callable
    return model


def _replace_calls(target: Any, replace: Callable[[Any], Any], rebuild: Callable[[Any], Any]) -> Any:
    """`target` with `replace` applied to the Python functions that calling it runs: the one place that knows the kinds
    of callables.

    Functions and methods give a function or method, modules an `OptimizedModule`, classes themselves with `__call__`
    replaced, other objects their bound `__call__`. Raises TypeError for what cannot be called.
    """
    target = _original(target)
    if isinstance(target, types.FunctionType):
        return replace(target)
    if isinstance(target, types.MethodType):
        return types.MethodType(_replace_calls(target.__func__, replace, rebuild), target.__self__)
    if isinstance(target, staticmethod | classmethod):
        return type(target)(_replace_calls(target.__func__, replace, rebuild))
    if isinstance(target, torch.jit.ScriptModule):
        return target
    if isinstance(target, torch.nn.Module):
        if isinstance(target, LazyModuleMixin):
            replace = functools.partial(_initialized_first, replace)
        return wrap_module(target, functools.partial(_replace_slot, replace), rebuild)
    if isinstance(target, type):
        call = _original(inspect.getattr_static(target, "__call__", None))
        if isinstance(call, types.FunctionType):
            target.__call__ = replace(call)
        return target
    if not callable(target):
        raise TypeError(f"expected a function, module or other callable, got {type(target).__name__}")
    call = inspect.getattr_static(type(target), "__call__")
    if isinstance(_original(call), types.FunctionType):
        return _eval_frame.SlotMethod(target, "__call__", functools.partial(_replace_slot, replace), rebuild)
    return replace(_trampoline(target))


def _replace_slot(replace: Callable[[Any], Any], found: Any) -> Any:
    """The replacement of a class's `__call__` or `forward`: a function of the object and the arguments."""
    function = _original(found)
    if isinstance(function, types.FunctionType):
        return replace(function)

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        get = getattr(type(found), "__get__", None)
        return (found if get is None else get(found, self, type(self)))(*args, **kwargs)

    return replace(call)


def _initialized_first(replace: Callable[[Any], Any], function: object) -> Any:
    """A lazy module makes its parameters before anything is captured: what its own hook, the first of all, would do in the call."""
    compiled = replace(function)
    if function is not torch.nn.Module.__call__:
        return compiled

    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, LazyModuleMixin) and self.has_uninitialized_params() and not _global_forward_pre_hooks:
            self._infer_parameters(self, args, kwargs)
        return compiled(self, *args, **kwargs)

    return call


def _trampoline(target: Callable[..., Any]) -> types.FunctionType:
    """A Python function around a callable without bytecode, such as a builtin, so that capture has a frame."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    return functools.update_wrapper(call, target)


def compile_module_(
    module: torch.nn.Module,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    regions: bool | str | None = None,
    background: bool = False,
    shapes_spec: object = None,
) -> torch.nn.Module:
    """Compile `module` in place, as torch's `module.compile()` does: object, class and state stay. Returns it.

    Keywords and errors are those of `compile`; TypeError for anything but a module. Copies and pickles of the module are not compiled.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"compile_module_ expects a module, got {type(module).__name__}; compile takes any callable")
    if not disable and not config.disable:
        module._compiled_call_impl = compile(
            module._call_impl,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            name=name,
            recompile_limit=recompile_limit,
            isolate_recompiles=isolate_recompiles,
            regions=regions,
            background=background,
            shapes_spec=shapes_spec,
        )
    return module


def _reduce(compiled: _eval_frame.Callable) -> str | tuple[Any, ...]:
    """How a compiled function is pickled: by name as other functions are, or as what makes it of a function that has the name."""
    found: Any = sys.modules.get(compiled.__module__)
    for part in compiled.__qualname__.split("."):
        found = getattr(found, part, None)
    settings = getattr(compiled.cache.region, "settings", None)
    if found is not compiled._torchdynamo_orig_callable or settings is None:
        return compiled.__qualname__
    return _compile, (found, settings)


copyreg.pickle(_eval_frame.Callable, _reduce)


# optimize


class OptimizeContext:
    """The result of `optimize(…)`: a decorator, and a context manager that captures the functions that are called inside."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._entered: list[Any] = []

    @functools.cached_property
    def _region(self) -> convert.Region:
        return self.settings.new_region()

    def __call__(self, fn: Callable[..., Any]) -> Any:
        if not callable(fn) and not isinstance(fn, staticmethod | classmethod):
            raise TypeError(
                f"optimize(backend) was called with {type(fn).__name__}, not with a function; "
                "if the backend was meant as the function to optimize, write @optimize()"
            )
        return _compile(fn, self.settings)

    def __enter__(self) -> OptimizeContext:
        self._entered.append(_eval_frame.set_region(self._region))
        return self

    def __exit__(self, *exc_info: object) -> None:
        _eval_frame.set_region(self._entered.pop())


class _NullOptimize(contextlib.nullcontext[None]):
    """`optimize(disable=True)`: changes nothing."""

    def __call__(self, fn: Callable[..., Any]) -> Any:
        return fn


_GRAPH_PARAMETERS = {"gm", "graph_module", "graph", "fx_graph", "fx_module", "fx_g"}
_MODULE_PARAMETERS = {"model", "mod", "module", "model_"}


def _is_backend(candidate: object) -> bool:
    """Whether the positional argument of `optimize` is a backend, and not the function below a bare `@optimize`.

    Both may be plain functions. A backend takes two arguments, the graph module and its inputs, and names them so.
    """
    if isinstance(candidate, _eval_frame.Callable | torch.nn.Module | type):
        return False
    if not isinstance(candidate, types.FunctionType | types.MethodType):
        return True
    parameters = list(inspect.signature(candidate).parameters.values())
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) != 2:
        return False
    graph, inputs = required
    annotation = getattr(graph.annotation, "__name__", str(graph.annotation))
    if annotation.rpartition(".")[2] == "GraphModule" or graph.name in _GRAPH_PARAMETERS:
        return True
    return graph.name in _MODULE_PARAMETERS and inputs.name == "example_inputs"


def optimize(
    backend: str | Callable[..., Any] = "autotune",
    *,
    nopython: bool = False,
    error_on_graph_break: bool | None = None,
    guard_export_fn: object = None,
    guard_fail_fn: object = None,
    guard_filter_fn: object = None,
    disable: bool = False,
    dynamic: bool | None = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    regions: bool | str | None = None,
    background: bool = False,
    shapes_spec: object = None,
) -> Any:
    """`compile` in the older spelling. A decorator with or without arguments, a wrapper, and a context manager:

        @optimize                       @optimize("eager", nopython=True)
        def f(x): …                     def g(x): …

        h = optimize(my_backend)(fn)    with optimize("eager"):
                                            fn(x)

    Without a backend each graph goes to the one that wins a race over it (see `tune.autotune`).

    `nopython` and `error_on_graph_break` are `fullgraph`. The `guard_*` arguments and `shapes_spec` are accepted
    without effect. A plain function as the only argument is taken for a backend if its parameters look like `(gm,
    example_inputs)`; write `@optimize()` or `backend=` to leave no doubt. Errors are those of `compile`.
    """
    if disable or config.disable:
        return _NullOptimize() if _is_backend(backend) else backend
    names_backend = _is_backend(backend)
    _check_keywords(nopython, dynamic, None, None, None, recompile_limit, regions, background)
    settings = _settings(
        backend=backend if names_backend else "autotune",
        fullgraph=nopython or bool(error_on_graph_break),
        dynamic=dynamic,
        recompile_limit=recompile_limit,
        isolate=isolate_recompiles,
        regions=regions,
        background=background,
    )
    if not names_backend:
        return _compile(backend, settings)
    settings.compiler()  # an unknown name is an error here, not at the first call
    return OptimizeContext(settings)


def optimize_assert(backend: str | Callable[..., Any] = "autotune", **kwargs: Any) -> Any:
    """`optimize(backend, nopython=True)`: a graph break raises."""
    return optimize(backend, **{**kwargs, "nopython": True})


# disable and run


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Any:
    """Never capture `fn` nor, with `recursive`, anything that it calls. Without `fn`: a decorator.

    Captured code that calls it breaks the graph there; `reason` is shown in the reports. With `recursive=False` only
    the function's own frame is left alone, and `fn` itself is returned; `wrapping=False` is accepted without effect.
    Raises TypeError for what cannot be called.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason, wrapping=wrapping)
    target = _original(fn)
    if not recursive:
        return markers.skip(target)

    def replace(function: Callable[..., Any]) -> Any:
        uncaptured = _eval_frame.Uncaptured(function)
        setattr(uncaptured, markers.DISABLED, True)
        setattr(uncaptured, markers.REASON, reason)
        return uncaptured

    if isinstance(target, type) and isinstance(target.__init__, types.FunctionType):
        target.__init__ = replace(_original(target.__init__))
    return _replace_calls(target, replace, functools.partial(disable, reason=reason))


def run(fn: Any = None) -> Any:
    """Use what is compiled already and compile nothing: calls that fit no version run eagerly.

    `fn` is a compiled function or module, or a function that calls some; without it: a decorator. The stance holds in
    the calling thread only.
    """
    if fn is None:
        return run
    run_only = markers.Stance("eager_on_recompile")
    call = fn.__call__ if isinstance(fn, torch.nn.Module) else fn

    @functools.wraps(call)
    def under_stance(*args: Any, **kwargs: Any) -> Any:
        with markers.thread_stance(run_only):
            return call(*args, **kwargs)

    setattr(under_stance, markers.DISABLED, True)
    return under_stance


# Global state


def error_on_graph_break(error_on_graph_break: bool) -> ConfigPatch:
    """A context manager and decorator: frames that are compiled inside raise `Unsupported` at a break, or split there.

    It holds for what is compiled inside, not for versions that exist already; in captured code, for the breaks of the code that it
    encloses, the innermost before the others, and `fullgraph=True` before all.
    """
    return config.patch(error_on_graph_break=error_on_graph_break)


def reset() -> None:
    """Forget everything that was compiled, learned and recorded in this process. Settings and registrations stay.

    Compiled callables stay usable and compile again, from nothing: sizes that varied are constants again, and what this process has
    kept on disk for others (compiled versions, winners of races) it does not read itself any more. A backend that has a method or function
    `reset` is told by calling it. Must not be called from captured code.
    """
    reset_code_caches()
    kept.forget()
    reset_backends([region.settings.backend for region in tuple(_live_regions)])
    side.forget()
    log.reset()


def reset_code_caches() -> None:
    """Forget compiled versions, and which sizes vary. Shape rules of operators, the log, and versions in the cache stay."""
    for region in tuple(_live_regions):
        region.reset()


_forced_eager: list[tuple[_eval_frame.Cache, int]] = []
_forced_backend: Any = None


def _apply_stance(stance: markers.Stance) -> None:
    """`force_eager` has to reach calls whose guards hold, which run no Python code: switch their caches off. So has `force_backend`.

    Caches made under the stance stay empty, because `convert` looks at the stance.
    """
    global _forced_backend
    if stance.force_backend is not _forced_backend:
        for region in tuple(_live_regions):
            region.exchange_versions(_forced_backend, stance.force_backend)
        _forced_backend = stance.force_backend
    for cache, state in _forced_eager:
        cache.state = state
    _forced_eager.clear()
    if stance.name == "force_eager":
        _forced_eager.extend((cache, cache.state) for region in tuple(_live_regions) for cache in region.caches)
        for cache, _ in _forced_eager:
            cache.state = _eval_frame.SKIP_ALL


markers.on_stance_change(_apply_stance)
