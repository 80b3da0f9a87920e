"""Names of backends, and the one place where a backend is called.

Input: a name, or a callable `(gm: torch.fx.GraphModule, example_inputs: list) -> callable`. Output: such a callable.
`gm` has flat placeholders (tensors, among them all parameters and buffers, and ints for symbolic sizes) with the fake
value in `meta["example_value"]`, and returns a tuple; `example_inputs` are the real inputs. The result takes the inputs
as `*args`.
Invariant: looking a name up imports nothing of torch's compilers; an adapter does so when it gets its first graph.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from dynamo_lite.config import config
from dynamo_lite.exc import BackendCompilerFailed, InvalidBackend, brief, first_line
from dynamo_lite.markers import current_stance
from dynamo_lite.messages import warn_user
from dynamo_lite.record import GRAPH_RECORD, OF_FAKES
from dynamo_lite.signals import let_through

from .aot import aot_eager
from .cudagraphs import cudagraphs
from .eager import eager
from .handed import on_copies
from .inductor import freezing as inductor_freezing
from .inductor import inductor, max_autotune, reduce_overhead
from .onnxruntime import freezing as onnxruntime_freezing
from .onnxruntime import onnxruntime
from .openvino import freezing as openvino_freezing
from .openvino import openvino
from .options import is_ours, taken
from .regions import compile_chain, find_buckets
from .requirements import Requirements
from .tensorrt import tensorrt
from .torchscript import torchscript

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from .regions.segments import Chain

CompiledFn = Callable[..., Any]
CompilerFn = Callable[..., CompiledFn]

ENTRY_POINT_GROUP = "dynamo_lite.backends"

TORCHS_GROUP = "torch_dynamo_backends"
"""The group in which libraries name their backends for `torch.compile`, which take the same arguments."""

ALIASES = {
    "aot_eager_decomp_partition": "aot_eager",
    "aot_eager_default_partitioner": "aot_eager",
    "eager_debug": "eager",
    "eager_noexcept": "eager",
}
"""Torch's names of backends for debugging → the name of what does the same to the values here."""

_ABSENT = {
    "invoke_subgraph": "; config.compile_regions compiles equal layers once under 'inductor'",
    "pre_dispatch_eager": "; 'eager' runs the captured graph, 'aot_eager' that of AOTAutograd",
    "ts": "; use 'torchscript'",
    "tvm": "",
    "openxla": "",
}
"""Names of torch's backends that nothing here corresponds to → what to use."""

_lock = threading.RLock()
_backends: dict[str, CompilerFn] = {}
_tags: dict[str, tuple[str, ...]] = {}


def register_backend(
    compiler_fn: CompilerFn | None = None, name: str | None = None, tags: Sequence[str] = ()
) -> Callable[..., Any]:
    """Make a backend known by name: `register_backend(fn)`, `@register_backend`, or `@register_backend(name=…,
    tags=…)`.

    `name` defaults to the function's. The tags "debug" and "experimental" keep it out of `list_backends()`. Returns the
    function. Raises TypeError if it is not callable and ValueError if another function has the name.
    """
    if compiler_fn is None:
        return functools.partial(register_backend, name=name, tags=tags)
    if not callable(compiler_fn):
        raise TypeError(f"a backend is a callable (gm, example_inputs), got {type(compiler_fn).__name__}")
    name = name or compiler_fn.__name__
    with _lock:
        if _backends.get(name, compiler_fn) is not compiler_fn:
            raise ValueError(f"there is a backend named {name!r} already")
        _backends[name] = compiler_fn
        _tags[name] = tuple(tags)
    return compiler_fn


@contextlib.contextmanager
def registrations() -> Iterator[None]:
    """What is registered within the block is forgotten at its end."""
    before, before_tags = dict(_backends), dict(_tags)
    try:
        yield
    finally:
        with _lock:
            for table, kept in ((_backends, before), (_tags, before_tags)):
                for name in table.keys() - kept.keys():
                    del table[name]


def list_backends(exclude_tags: Iterable[str] | None = ("debug", "experimental")) -> list[str]:
    """The names that `backend=` takes, sorted, without those that have one of the tags; all of them for None."""
    excluded = set(exclude_tags or ())
    names = {*_backends, *_entry_points(), *_entry_points(TORCHS_GROUP)}
    return sorted(name for name in names if not excluded.intersection(_tags.get(name, ())))


def lookup_backend(compiler_fn: str | CompilerFn) -> CompilerFn:
    """The callable for a name, also for torch's of `ALIASES`; a callable is returned as it is.

    Raises InvalidBackend for an unknown name (it lists the known ones), and whatever loading a third party's entry
    point raises.
    """
    if not isinstance(compiler_fn, str):
        if not callable(compiler_fn):
            raise TypeError(f"backend must be a name or a callable, got {type(compiler_fn).__name__}")
        return compiler_fn
    with _lock:
        if compiler_fn not in _backends:
            entry_point = _entry_points().get(compiler_fn) or _entry_points(TORCHS_GROUP).get(compiler_fn)
            if entry_point is None and compiler_fn in ALIASES:
                return _backends[ALIASES[compiler_fn]]
            if entry_point is None:
                raise InvalidBackend(compiler_fn, list_backends(None), _ABSENT.get(compiler_fn))
            register_backend(entry_point.load(), name=compiler_fn)
        return _backends[compiler_fn]


def requirements_of(name: str) -> Requirements | None:
    """The requirements that a backend states; None if it states none, or is a third party's that can't be loaded."""
    try:
        found = getattr(lookup_backend(name), "requirements", None)
    except ImportError:
        return None
    return found if isinstance(found, Requirements) else None


def describe(name: str) -> tuple[str, str, str]:
    """The line of `doctor` about a backend: the version of its library, the devices on which it can run here, and the reason why it can't,
    with the packages to install. Imports no compiler."""
    try:
        needs = getattr(lookup_backend(name), "requirements", None)
    except Exception as error:  # a third party's, which is to be told and not to end the table
        return "", "", f"no: {type(error).__name__}: {first_line(error)}"
    if not isinstance(needs, Requirements):
        return "", "", ""
    reason = needs.missing()
    devices = ", ".join(needs.usable_devices()) if reason is None else ""
    if reason is not None:
        return needs.version(), devices, f"no: {reason}; needs {needs.install}"
    return needs.version(), devices, f"where it is named: {needs.assumes}" if needs.assumes else ""


def candidates(devices: Iterable[str], training: bool) -> list[str]:
    """The backends that may take part in a race for a graph on these devices, in the order in which they were registered."""
    wanted = set(devices)
    found = []
    for name in dict.fromkeys([*_backends, *_entry_points()]):
        needs = requirements_of(name)
        if needs is None or needs.assumes:
            continue
        if wanted <= needs.devices and needs.trains >= training and needs.missing(wanted) is None:
            found.append(name)
    return found


def with_options(compiler_fn: CompilerFn, **options: Any) -> CompilerFn:
    """`compiler_fn` with the given keyword arguments (`mode`, `options`) wherever they are not None.

    A backend that checks these offers `validate(*, mode=…, options=…)`, called here with those that are given so that a mistake is seen
    at once.
    """
    given = {key: value for key, value in options.items() if value is not None}
    given = taken(compiler_fn, backend_name(compiler_fn), given)
    if not given:
        return compiler_fn
    validate = getattr(compiler_fn, "validate", None)
    if validate is not None:
        validate(**given)
    return functools.update_wrapper(functools.partial(compiler_fn, **given), compiler_fn)


def in_background(compiler_fn: str | CompilerFn, mode: str | None, options: Mapping[str, Any] | None) -> CompilerFn:
    """The compiler whose graphs run eagerly until another process has compiled them with the backend of this name and found it faster.

    `options` are those of "autotune" where that is the backend. Raises InvalidBackend for an unknown name, and RuntimeError for a backend
    without a name, for a mode that no candidate has and for options of another backend: the other process would not have them.
    """
    if not isinstance(compiler_fn, str):
        raise RuntimeError("background=True needs the name of a backend: another process can't have a function")
    if ALIASES.get(compiler_fn, compiler_fn) == "eager":
        return with_options(lookup_backend(compiler_fn), mode=mode, options=options)
    given: dict[str, Any] = {"background": True, **(options or {})}
    if compiler_fn != "autotune":
        if options:
            raise RuntimeError(f"background=True takes no options of {compiler_fn!r}, only those of 'autotune'")
        lookup_backend(compiler_fn)
        given["candidates"] = (_candidate(compiler_fn, mode),)
    return with_options(lookup_backend("autotune"), options=given)


def _candidate(name: str, mode: str | None) -> str:
    """The name under which a backend in a mode takes part in races."""
    if mode is None or mode == "default":
        return name
    found = _IN_MODE.get((name, mode))
    if found is None:
        raise RuntimeError(f"background=True takes no mode={mode!r} of {name!r}")
    return found


_IN_MODE = {
    ("inductor", "max-autotune"): "inductor_max_autotune",
    ("inductor", "max-autotune-no-cudagraphs"): "inductor_max_autotune",
    ("inductor", "reduce-overhead"): "inductor_reduce_overhead",
}


def backend_name(compiler_fn: CompilerFn) -> str:
    """The name for reports: the registered name, else that of the function or its class."""
    function = compiler_fn.func if isinstance(compiler_fn, functools.partial) else compiler_fn
    for name, known in _backends.items():
        if known is function:
            return name
    return getattr(function, "__name__", None) or type(function).__name__


def call_backend(
    compiler_fn: CompilerFn,
    gm: GraphModule,
    example_inputs: list[Any],
    *,
    fullgraph: bool,
    on_failure: Callable[[Exception], None] | None = None,
    kept: object = None,
) -> CompiledFn:
    """Compile `gm`. A backend that raises, or returns something that cannot be called, is replaced by the graph itself.

    That gives one warning with the backend's name and error; under `fullgraph`, or with `config.suppress_errors` off, it raises
    BackendCompilerFailed instead. `on_failure` is
    called before, and may raise something else. `kept` (`warm_cache.artifacts`) has what an earlier process has compiled, if the backend
    can say that as data, and takes it for a later one.
    """
    forced = current_stance().force_backend
    if forced is not None:
        compiler_fn = lookup_backend(forced)
    if OF_FAKES in gm.meta and _needs_data(compiler_fn):
        gm.meta[GRAPH_RECORD].notes[backend_name(compiler_fn)] = [gm.meta[OF_FAKES]]
        return gm.forward
    chain = find_buckets(compiler_fn, gm, example_inputs)
    exchange = None if kept is None else _exchange(compiler_fn, kept, chain)
    known = None if exchange is None else exchange.load()
    if known is not None:
        return known
    try:
        compiled = compile_chain(gm, chain, example_inputs, on_copies(compiler_fn))
        if not callable(compiled):
            raise TypeError(f"the backend returned {type(compiled).__name__}, not a callable")
    except Exception as error:
        let_through(error)
        if on_failure is not None:
            on_failure(error)
        failure = BackendCompilerFailed(compiler_fn, error)
        failure.backend_name = backend_name(compiler_fn)
        lack = _lack_of(compiler_fn)
        if fullgraph or not config.suppress_errors:
            if lack:
                failure.add_note(lack)
            raise failure from error
        lack = lack and f"; {lack}"
        warn_user(f"backend {failure.backend_name!r} failed, the graph runs eagerly: {brief(error)}{lack}")
        return gm.forward
    if exchange is not None:
        exchange.save(compiled)
    return compiled


def _lack_of(compiler_fn: CompilerFn) -> str:
    """What a backend needs that is not here, as `doctor` says it; empty if nothing is known to be missing."""
    needs = getattr(compiler_fn, "requirements", None)
    reason = needs.missing() if isinstance(needs, Requirements) else None
    return f"{reason}: needs {needs.install}" if reason is not None else ""


def _needs_data(compiler_fn: CompilerFn) -> bool:
    """Whether it is one of our own compilers: their compiled graphs need tensors with data."""
    while isinstance(compiler_fn, functools.partial):
        compiler_fn = compiler_fn.func
    return is_ours(compiler_fn) and compiler_fn in _backends.values() and compiler_fn is not eager


def _exchange(compiler_fn: CompilerFn, kept: Any, chain: Chain | None) -> Any:
    """The object that loads and saves the compiled graphs of a backend with its options, those with these segments; None if the backend
    can't write its graphs as data."""
    options: dict[str, Any] = {}
    while isinstance(compiler_fn, functools.partial):
        if compiler_fn.args:
            return None
        options = {**compiler_fn.keywords, **options}
        compiler_fn = compiler_fn.func
    artifacts = getattr(compiler_fn, "artifacts", None)
    return None if artifacts is None else kept.exchange(artifacts, options, chain and chain.lengths)


def reset_backends(others: Iterable[object] = ()) -> None:
    """Call once the function or method `reset` of every registered backend, and of these others, that has one: it drops the state that the
    backend keeps between graphs."""
    with _lock:
        known = list(_backends.values())
    known += [backend for backend in others if not isinstance(backend, str)]
    for backend in {id(backend): backend for backend in known}.values():
        reset = getattr(backend, "reset", None)
        if inspect.ismethod(reset) or (inspect.isfunction(reset) and not isinstance(backend, type)):
            reset()


@functools.cache
def _entry_points(group: str = ENTRY_POINT_GROUP) -> dict[str, EntryPoint]:
    found = {entry_point.name: entry_point for entry_point in entry_points(group=group)}
    if group != ENTRY_POINT_GROUP:
        return found
    # The rooms above this one are known by name only, also where the package is on the path but not installed.
    own = EntryPoint("autotune", f"{__package__.partition('.')[0]}.tune.autotune:autotune", ENTRY_POINT_GROUP)
    return {own.name: own, **found}


# The backends of this package. Races try them in this order: first those that compile in little time, for a race may end before the rest.
register_backend(eager, name="eager", tags=("debug",))
register_backend(aot_eager, name="aot_eager", tags=("debug",))
register_backend(cudagraphs, name="cudagraphs")
register_backend(torchscript, name="torchscript")
register_backend(inductor, name="inductor")
register_backend(reduce_overhead, name="inductor_reduce_overhead")
register_backend(max_autotune, name="inductor_max_autotune")
register_backend(inductor_freezing, name="inductor_freezing")
register_backend(onnxruntime, name="onnxruntime")
register_backend(onnxruntime_freezing, name="onnxruntime_freezing")
register_backend(openvino, name="openvino")
register_backend(openvino_freezing, name="openvino_freezing")
register_backend(tensorrt, name="tensorrt")
