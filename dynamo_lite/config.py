"""Settings of the compiler: one dataclass, one instance, scoped overrides.

`dynamo_lite.config` *is* the instance: `config.recompile_limit = 16` sets a key for the process, and
`config.patch(recompile_limit=16)` sets it for a `with` block or the calls of a decorated function. Names and meanings
are those of `torch._dynamo.config` where it has the key. Each field can be preset by the environment variable
`DYNAMO_LITE_<KEY>`, read once at import.

Threads: a key has one value for the whole process, as in `torch._dynamo.config`; reads are plain attribute reads
without a lock. `patch` restores the value that it found on entry, so two threads that patch the *same* key at the same
time see each other's value; different keys do not disturb each other.

Invariant: assigning or patching a name that is no field raises AttributeError with the nearest names, a value of another type
TypeError with those that are accepted; a mistake is never silent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import json
import operator
import os
import unittest
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, get_args, get_type_hints

from .messages import near_names, refuse_value

ENVIRONMENT_PREFIX = "DYNAMO_LITE_"

ALIASES: dict[str, str] = {
    "cache_size_limit": "recompile_limit",
    "accumulated_cache_size_limit": "accumulated_recompile_limit",
    "fail_on_cache_limit_hit": "fail_on_recompile_limit_hit",
}
"""Old names of keys; reading and writing one is reading and writing the key itself."""


@dataclasses.dataclass(repr=False)
class AcceptedKeys:
    """Keys of `torch._dynamo.config` that may be set and have no effect: the feature is always on here, or does not exist."""

    allow_ignore_mark_dynamic: bool = False
    allow_rnn: bool = True
    do_not_emit_runtime_asserts: bool = False
    dynamic_shapes: bool = True
    enable_cpp_guard_manager: bool = True
    enable_cpp_symbolic_shape_guards: bool = False
    enable_faithful_generator_behavior: bool = True
    enable_trace_contextlib: bool = True
    enable_trace_load_build_class: bool = True
    enable_trace_unittest: bool = True
    guard_nn_modules: bool = True
    inline_inbuilt_nn_modules: bool = True
    prefer_deferred_runtime_asserts_over_guards: bool = False
    report_guard_failures: bool = True
    rewrite_assert_with_torch_assert: bool = True
    skip_fsdp_guards: bool = True
    skip_nnmodule_hook_guards: bool = True
    trace_numpy: bool = True
    use_lazy_graph_module: bool = False


ACCEPTED = frozenset(field.name for field in dataclasses.fields(AcceptedKeys))


@dataclasses.dataclass(repr=False)
class Config(AcceptedKeys):
    """Every setting with its default. Instances hold plain attributes, because the engine reads them on hot paths."""

    # Recompilation
    recompile_limit: int = 8  # compiled versions of one code object, per module instance; then it runs eagerly
    accumulated_recompile_limit: int = 256  # the same, over all module instances
    fail_on_recompile_limit_hit: bool = False  # raise FailOnRecompileLimitHit instead of running eagerly
    error_on_recompile: bool = False  # any recompilation raises RecompileError

    # Shapes and numbers
    assume_static_by_default: bool = True  # sizes are constants until they change
    automatic_dynamic_shapes: bool = True  # a size or int that changed becomes symbolic at the recompile
    automatic_dynamic_strides: bool = True  # so does a stride that no size explains, also beside a symbolic size
    automatic_dynamic_shapes_mark_as: str = "dynamic"  # or "unbacked": nothing may depend on the value of the number
    specialize_zero_one: bool = True  # sizes 0 and 1 are constants
    use_duck_shape: bool = True  # sizes that are equal at first are one symbol
    specialize_int: bool = False  # ints are always constants
    specialize_float: bool = False  # floats are always constants, also those that change
    force_parameter_static_shapes: bool = True  # sizes of parameters stay constants
    force_nn_module_property_static_shapes: bool = True  # ints that are attributes of modules stay constants
    allow_unspec_int_on_nn_module: bool = False  # overrides the previous key for ints
    symbolic_effort: int | None = 10_000  # nodes of expressions evaluated about sizes; then facts are taken as asked
    # Off, on, or None, automatic: under fullgraph, and elsewhere as long as nothing in Python needs the number or the size
    capture_scalar_outputs: bool | None = None  # .item() becomes a graph value instead of a break
    capture_dynamic_output_shape_ops: bool | None = None  # nonzero() and the like become graph nodes instead of breaks

    # Processes that compile a function tell each other the sizes and ints of its arguments: what differs between them is symbolic
    enable_compiler_collectives: bool = False
    # Graphs in DistributedDataParallel are cut where a bucket of gradients is full. "ddp_optimizer" is True; all else is False
    optimize_ddp: bool | str = True

    # Capture
    capture_checks: bool = (
        True  # a branch of which one side only raises is followed on the other, and tested after the graph
    )
    # Both sides of a branch on data become part of the graph: never, always, or None, automatic: under fullgraph, under inductor
    capture_branches: bool | str | None = None
    # print() and log records of constants and numbers run behind the graph instead of breaking it: always, never, or "auto", where an
    # operator that raises can't make them lost; True: clocks are read around the graph, too
    stitch: bool | str = "auto"
    error_on_graph_break: bool = False  # a break raises, as under fullgraph=True
    nested_graph_breaks: bool = True  # a break in an inlined callee splits there, not at the outermost call
    max_inline_depth: int = 200  # nested calls that are followed before a break
    max_steps: int = 3_000_000  # instructions followed in one frame and its callees before a break
    max_idle_steps: int = 200_000  # the same, and items iterated over, without a torch operation among them
    capture_pure_python: bool = False  # compile frames that hold no tensor operation at all

    error_on_nested_jit_trace: bool = True  # torch.jit.trace of compiled functions raises; False: they run as they are
    error_on_nested_fx_trace: bool = True  # the same for torch.fx.symbolic_trace

    # Choice of backends
    # inductor compiles equal layers of a graph once: always, never, or "auto", where that saves much and costs next to nothing
    compile_regions: bool | str = "auto"
    tune_store: str = ""  # file of the choices that races have led to; empty: beside the cache

    # Cache
    cache: bool = True  # keep compiled versions for the next process, and look for those of earlier ones
    cache_dir: str = ""  # where; empty: in the user's cache directory (XDG_CACHE_HOME)

    # Errors and insight
    suppress_errors: bool = (
        True  # an internal error runs the frame eagerly, once logged, and so does one of a backend; False raises them
    )
    verbose: bool = False  # longer logs and errors
    debug: bool = False  # internal errors are raised, and tracebacks keep the compiler's own frames
    strict_guards: bool = False  # run the C guard program and its Python mirror on every call, and compare
    timing: bool = False  # print what each compilation took
    progress: bool = True  # a line about compilations that take long, where stderr is a terminal
    disable: bool = False  # everything runs eagerly

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _DEFAULTS:
            name = _canonical(name)
        _check(name, value)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> NoReturn:
        # It costs every read 40 ns, of which a compilation has some hundred and a compiled call none.
        raise _unknown(name)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"config.{name} cannot be deleted; its default is {_DEFAULTS[_canonical(name)]!r}")

    def __repr__(self) -> str:
        changed = [f"{key}={value!r}" for key, value in self.changed().items()]
        return f"dynamo_lite.config({', '.join(changed)})"

    def changed(self) -> dict[str, Any]:
        """The keys whose value is not the default."""
        return {key: getattr(self, key) for key, default in _DEFAULTS.items() if getattr(self, key) != default}

    def to_dict(self) -> dict[str, Any]:
        """All keys and their values."""
        return {key: getattr(self, key) for key in _DEFAULTS}

    def get_config_copy(self) -> dict[str, Any]:
        """`to_dict`, in torch's spelling."""
        return self.to_dict()

    def shallow_copy_dict(self) -> dict[str, Any]:
        """The same: no value has parts."""
        return self.to_dict()

    def codegen_config(self) -> str:
        """Lines of Python that set the keys whose value is not the default."""
        return "\n".join(f"dynamo_lite.config.{key} = {value!r}" for key, value in self.changed().items())

    def save_config(self) -> bytes:
        """All keys and their values as JSON, for `load_config`."""
        return json.dumps(self.to_dict()).encode()

    def load_config(self, saved: bytes | str | Mapping[str, Any]) -> None:
        """Set the keys to what `save_config` or a copy has kept; keys that it lacks stay. Sets none and raises where one is unknown
        (AttributeError) or has a value that it can't have (TypeError), and for bytes that are no JSON (ValueError)."""
        changes = saved if isinstance(saved, Mapping) else json.loads(saved)
        if not isinstance(changes, Mapping):
            refuse_value("saved", saved, "what save_config gave, or a dict")
        for key, value in self.patch(changes).changes.items():  # all are checked before one is set
            setattr(self, key, value)

    def get_hash(self) -> bytes:
        """A digest of all keys and their values, the same in every process."""
        return hashlib.sha256(self.save_config()).digest()

    def reset(self) -> None:
        """Every key back to its default (environment variables are not read again)."""
        for key, default in _DEFAULTS.items():
            setattr(self, key, default)

    def patch(self, key: str | Mapping[str, Any] | None = None, value: object = None, /, **changes: Any) -> ConfigPatch:
        """Override keys for a while: `patch(key=v, …)`, `patch({"key": v})` or `patch("key", v)`.

        The result is a context manager and a decorator; it may be entered again and nested. Unknown keys raise
        AttributeError, and values that a key can't have TypeError, here and not at the time of entry.
        """
        if isinstance(key, str):
            changes = {key: value, **changes}
        elif key is not None:
            changes = {**key, **changes}
        changes = {_canonical(name): new for name, new in changes.items()}
        for name, new in changes.items():
            _check(name, new)
        return ConfigPatch(self, changes)


class ConfigPatch(contextlib.ContextDecorator):
    """The result of `Config.patch`. Entering saves the present values, leaving restores them in reverse order."""

    def __init__(self, target: Config, changes: dict[str, Any]) -> None:
        self._target = target
        self._changes = changes
        self._saved: list[dict[str, Any]] = []

    @property
    def changes(self) -> dict[str, Any]:
        """The keys and values that are set inside."""
        return dict(self._changes)

    def __call__(self, func: Any) -> Any:
        """The function under the patch; of a `unittest.TestCase`, the class itself, whose tests then run under it, with what is set up for
        them and for the class. Raises TypeError for another class, of which it is not clear what should run under it, and for what runs in
        steps: others would run under the patch between these."""
        if inspect.isgeneratorfunction(func) or inspect.iscoroutinefunction(func) or inspect.isasyncgenfunction(func):
            raise TypeError(
                f"config.patch decorates no generators or coroutines such as {func.__name__}: use `with` inside"
            )
        if not isinstance(func, type):
            return super().__call__(func)
        if not issubclass(func, unittest.TestCase):
            raise TypeError(
                f"config.patch decorates functions and subclasses of unittest.TestCase, not the class {func.__name__}: decorate its methods"
            )
        set_up = inspect.getattr_static(func, "setUpClass")

        @functools.wraps(set_up)
        def set_up_class(cls: type[unittest.TestCase]) -> None:
            patch = self._recreate_cm()
            patch.__enter__()
            # Runs after `tearDownClass`, and where `setUpClass` raises.
            cls.addClassCleanup(patch.__exit__, None, None, None)
            set_up.__get__(None, cls)()

        func.setUpClass = classmethod(set_up_class)  # type: ignore[method-assign]
        return func

    def _recreate_cm(self) -> ConfigPatch:
        # A decorated function may call itself or run in several threads: each call gets its own saved values.
        return ConfigPatch(self._target, self._changes)

    def __enter__(self) -> None:
        self._saved.append({key: getattr(self._target, key) for key in self._changes})
        for key, value in self._changes.items():
            setattr(self._target, key, value)

    def __exit__(self, *exc_info: object) -> None:
        for key, value in self._saved.pop().items():
            setattr(self._target, key, value)


AT_LEAST_ONE = frozenset(
    """
    recompile_limit accumulated_recompile_limit max_inline_depth max_steps max_idle_steps symbolic_effort
    """.split()
)

CHOICES: dict[str, tuple[object, ...]] = {
    "automatic_dynamic_shapes_mark_as": ("dynamic", "unbacked"),
    "capture_branches": ("where", "cond", True, False, None),
    "compile_regions": ("auto", True, False),
    "optimize_ddp": (
        True,
        False,
        "ddp_optimizer",
        "python_reducer",
        "python_reducer_without_compiled_forward",
        "no_optimization",
    ),
    "stitch": ("auto", True, False),
}
"""Keys that have one of a few values."""


def _fits(value: object, expected: tuple[type, ...]) -> bool:
    """Whether a value is of one of these types; bools are no numbers."""
    return type(value) in expected or (type(value) is not bool and isinstance(value, expected))


def _described(expected: tuple[type, ...]) -> str:
    names = {bool: "True or False", int: "an int", float: "a number", str: "a text", type(None): "None"}
    return " or ".join(names.get(one, one.__name__) for one in expected)


def _is_accepted(name: str, value: object) -> bool:
    """Whether the key may have this value."""
    if not _fits(value, _TYPES[name]) or value not in CHOICES.get(name, (value,)):
        return False
    return name not in AT_LEAST_ONE or value is None or bool(value >= 1)  # type: ignore[operator]


def _accepted(name: str) -> str:
    """The values of a key in words."""
    words = " or ".join(map(repr, CHOICES.get(name, ()))) or _described(_TYPES[name])
    return f"{words}, 1 or more" if name in AT_LEAST_ONE else words


def _check(name: str, value: object) -> None:
    """Raise TypeError if the key can't have this value."""
    if not _is_accepted(name, value):
        refuse_value(f"config.{name}", value, _accepted(name))


def _unknown(name: str) -> AttributeError:
    near = near_names(name, [*_DEFAULTS, *ALIASES])
    hint = f"; did you mean {near}?" if near else ""
    return AttributeError(f"dynamo_lite.config has no key {name!r}{hint}", name=name, obj=None)


def _canonical(name: str) -> str:
    """The field behind a name or an alias. Raises AttributeError with near misses for anything else."""
    name = ALIASES.get(name, name)
    if name not in _DEFAULTS:
        raise _unknown(name)
    return name


def _parse(text: str, types: tuple[type, ...]) -> Any:
    """The value of an environment variable for a key of these types; a text where it is of none of them. Raises ValueError for what
    should be a bool."""
    lowered = text.strip().lower()
    if type(None) in types and lowered in ("none", "auto"):
        return None
    if bool in types:
        if lowered in ("1", "true", "yes", "on"):
            return True
        if lowered in ("", "0", "false", "no", "off"):
            return False
        if str not in types:
            raise ValueError(f"expected 0 or 1, got {text!r}")
    if int in types:
        with contextlib.suppress(ValueError):
            return int(text)
    return text


def unknown_variables(environ: Iterable[str]) -> list[str]:
    """The environment variables with our prefix that are no setting."""
    known = {ENVIRONMENT_PREFIX + key.upper() for key in (*_DEFAULTS, *ALIASES)}
    return [name for name in environ if name.startswith(ENVIRONMENT_PREFIX) and name not in known]


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """The overrides that the environment holds. A malformed value, and a name that is nearly one of a key, is reported and ignored."""
    found = {}
    for name in unknown_variables(environ):
        if near := near_names(name.removeprefix(ENVIRONMENT_PREFIX), map(str.upper, _DEFAULTS)):
            warnings.warn(f"{name} is no setting; did you mean {ENVIRONMENT_PREFIX}{near.split()[0]}?", stacklevel=2)
    # Where both are there, the key's own name counts.
    for alias, key in (ALIASES | {key: key for key in _TYPES}).items():
        name = ENVIRONMENT_PREFIX + alias.upper()
        text = environ.get(name)
        if text is None:
            continue
        try:
            value = _parse(text, _TYPES[key])
            if not _is_accepted(key, value):
                raise ValueError(f"expected {_accepted(key)}, got {text!r}")
            found[key] = value
        except ValueError as error:
            warnings.warn(f"{name} is ignored: {error}", stacklevel=2)
    return found


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Config)}

_HINTS = get_type_hints(Config)
_TYPES: dict[str, tuple[type, ...]] = {key: get_args(_HINTS[key]) or (_HINTS[key],) for key in _DEFAULTS}

# Properties rather than a case of `__getattr__`: assignments and `dir` see them as well.
for _alias, _key in ALIASES.items():
    setattr(Config, _alias, property(operator.attrgetter(_key)))

config = Config(**_from_environment(os.environ))
