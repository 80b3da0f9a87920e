"""Instructions of the program to the compiler: markers that captured code calls, marks on tensors, and the stance.

Input: calls in the user's program. Output: attributes and sets that the engine reads; it recognises the functions here
by identity. Invariant: outside of captured code every marker is an ordinary function without an effect on values.
Nothing here imports torch or the engine. Attribute names are those of torch's own marks, so `torch.compiler.disable`
and `torch._dynamo.mark_dynamic`, which libraries already call, are honoured, and ours are honoured there.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from .import_hook import loaded
from .messages import refuse_value

T = TypeVar("T")

ALLOWED_IN_GRAPH: set[Any] = set()
"""Callables that become one graph node without being looked into."""

DISALLOWED_IN_GRAPH: set[Any] = set()
"""Callables that end the graph."""

FORBIDDEN_IN_GRAPH: set[Any] = set()
"""Callables that raise when captured code reaches them."""

SKIPPED_CODES: set[types.CodeType] = set()
"""Code objects that run as they are, while the functions that they call may be captured."""

FOLLOWED_CODES: set[types.CodeType] = set()
"""Code objects that are followed whatever the policy says about their module."""

DISABLED = "_torchdynamo_disable"
CONSTANT_RESULT = "_dynamo_marked_constant"
HAS_MARKS = "_has_dynamo_dim_marking"
DYNAMIC = "_dynamo_dynamic_indices"
WEAK_DYNAMIC = "_dynamo_weak_dynamic_indices"
PROPAGATED_DYNAMIC = "_dynamo_propagated_dynamic_indices"
STATIC = "_dynamo_static_indices"
UNBACKED = "_dynamo_unbacked_indices"
STRICT_UNBACKED = "_dynamo_strict_unbacked_indices"
DYNAMIC_RANGE = "_dynamo_dynamic_range"
UNBACKED_BOUNDS = "_dynamo_unbacked_bounds"
SHAPE_IDS = "_dynamo_shape_ids"
STATIC_CLASS = "_dynamo_marked_static"
STATIC_ADDRESS = "_dynamo_static_input_type"


# Markers inside captured code


def graph_break(msg: str = "") -> None:
    """End the graph here. `msg` appears in the reports. Does nothing outside of captured code."""


def skip_frame(msg: str = "") -> None:
    """Run the function that contains this call eagerly, for ever. Does nothing outside of captured code."""


def is_compiling() -> bool:
    """True inside captured code, False when the code runs eagerly."""
    return False


# Marks on functions


def is_allowed_in_graph(fn: Callable[..., Any]) -> bool:
    """Whether `fn` was given to `allow_in_graph`, ours or that of torch.compile (if it was imported at all)."""
    torch_rules = loaded("torch._dynamo.trace_rules")
    return fn in ALLOWED_IN_GRAPH or (torch_rules is not None and id(fn) in torch_rules._allowed_callable_ids)


FORBIDDEN = "_dynamo_forbidden"
"""The attribute that torch's `forbid_in_graph` sets, and `set_stance` on what it decorates."""


def refusal(fn: Callable[..., Any]) -> str | None:
    """Which of `forbid_in_graph` and `disallow_in_graph` a callable was given to, ours or that of torch.compile."""
    torch_rules = loaded("torch._dynamo.trace_rules")
    if _attribute(fn, FORBIDDEN) is True:
        return "forbid_in_graph"
    if torch_rules is None and not DISALLOWED_IN_GRAPH and len(FORBIDDEN_IN_GRAPH) == len(_FORBIDDEN_MARKERS):
        return None
    if any(fn is one for one in FORBIDDEN_IN_GRAPH):
        return "forbid_in_graph"
    if any(fn is one for one in DISALLOWED_IN_GRAPH):
        return "disallow_in_graph"
    if torch_rules is not None and id(fn) in torch_rules._disallowed_callable_ids:
        return "disallow_in_graph"
    return None


def _attribute(fn: Callable[..., Any], name: str) -> Any:
    """An attribute of the callable itself: no base class has given it, and no code of the program is asked."""
    getter = type if isinstance(fn, type) else object
    try:
        namespace = getter.__getattribute__(fn, "__dict__")
    except AttributeError:
        return None
    return namespace.get(name)


def _code_of(fn: object) -> types.CodeType:
    code = getattr(fn, "__code__", None)
    if code is None:
        raise TypeError(f"expected a Python function, got {type(fn).__name__}")
    return code


def _mark_all(target: set[Any], fn: T) -> T:
    """Give `fn`, or each function of a list, the mark of this set in place of the other marks: the last call counts."""
    functions = fn if isinstance(fn, list | tuple) else (fn,)
    for one in functions:
        if not callable(one):
            raise TypeError(f"expected a callable, got {type(one).__name__}")
    for marked in (ALLOWED_IN_GRAPH, DISALLOWED_IN_GRAPH, FORBIDDEN_IN_GRAPH):
        marked.difference_update(functions)
    target.update(functions)
    return fn


def allow_in_graph(fn: T) -> T:
    """Put calls of `fn` (or of each function of a list) into the graph as one node, without following them.

    The function must be free of effects on Python state and work on fake tensors. Returns `fn`. Raises TypeError if it
    is not callable.
    """
    return _mark_all(ALLOWED_IN_GRAPH, fn)


def nonstrict_trace(fn: T) -> T:
    """As `allow_in_graph`: calls of `fn` are nodes whose inside is seen by the backend only. Arguments and results may be nested
    containers of tensors. Returns `fn`. Raises TypeError if it is not callable."""
    return allow_in_graph(fn)


def dont_skip_tracing(fn: T) -> T:
    """Follow `fn` although the module that it comes from is left alone otherwise. Returns `fn`.

    Raises TypeError if `fn` has no Python code.
    """
    code = _code_of(fn)
    FOLLOWED_CODES.add(code)
    SKIPPED_CODES.discard(code)
    return fn


def disallow_in_graph(fn: T) -> T:
    """End the graph at calls of `fn` (or of each function of a list). Returns `fn`; TypeError if it is not callable."""
    return _mark_all(DISALLOWED_IN_GRAPH, fn)


def forbid_in_graph(fn: T) -> T:
    """Raise an error when captured code calls `fn`. Returns `fn`. Raises TypeError if it is not callable."""
    return _mark_all(FORBIDDEN_IN_GRAPH, fn)


def assume_constant_result(fn: T) -> T:
    """Call `fn` once during capture and use its result as a constant, without a guard. Returns `fn`.

    The caller vouches that the result does not change: a wrong promise gives wrong results. Raises TypeError for what cannot be called or
    marked.
    """
    if not callable(fn):
        raise TypeError(f"expected a callable, got {type(fn).__name__}")
    try:
        setattr(fn, CONSTANT_RESULT, True)
    except AttributeError:
        raise TypeError(f"{type(fn).__name__} {fn!r} takes no mark: mark a function that calls it") from None
    return fn


def skip(fn: T) -> T:
    """Run `fn` itself eagerly while the functions that it calls may be captured. Returns `fn`.

    Raises TypeError if `fn` has no Python code.
    """
    code = _code_of(fn)
    SKIPPED_CODES.add(code)
    FOLLOWED_CODES.discard(code)
    return fn


def is_disabled(fn: Callable[..., Any]) -> bool:
    """Whether `fn` was given to `disable` of this package or of torch."""
    return bool(getattr(fn, DISABLED, False))


REASON = "_torchdynamo_disable_msg"
"""The attribute with the reason that was given to `disable`, ours or torch's."""


def told_disabled(name: object, reason: object) -> str:
    """What a break says about a function of this name that is disabled, for the reason given if there is one."""
    return f"{name} is disabled" + (f" ({reason})" if isinstance(reason, str) and reason else "")


# Marks on tensors


class DimRange(NamedTuple):
    """The range that `mark_dynamic` promises for one dimension; None is unbounded. Torch's record has these fields."""

    dim: int
    min: int | None
    max: int | None


Dims = int | Iterable[int]


def _dims(tensor: Any, index: Dims | None) -> tuple[int, ...]:
    """The dimensions meant, counted from the front; all of them for None. Raises IndexError for one that the tensor does not have,
    TypeError for what is no tensor or no dimension."""
    if not callable(getattr(tensor, "dim", None)):
        refuse_value("mark of a dimension", tensor, "a tensor")
    n = tensor.dim()
    if index is None:
        return tuple(range(n))
    dims = (index,) if isinstance(index, int) else tuple(index)
    for dim in dims:
        if not isinstance(dim, int):
            refuse_value("dimension", index, "an int, or several")
        if not -n <= dim < n:
            raise IndexError(f"cannot mark dimension {dim}: the tensor has {n} dimensions")
    return tuple([dim % n for dim in dims])


def _kept(tensor: object, attribute: str, make: Callable[[], T]) -> T:
    """The value of a tensor's attribute, which is made if there is none."""
    value = getattr(tensor, attribute, None)
    if value is None:
        value = make()
        setattr(tensor, attribute, value)
    return value


def _add_marks(tensor: object, attribute: str, index: Dims | None) -> None:
    """Add `index` to the tensor's marked dimensions, and to those of tensors of the same rank inside a wrapper."""
    dims = _dims(tensor, index)
    marked: set[int] = _kept(tensor, attribute, set)
    marked.update(dims)
    setattr(tensor, HAS_MARKS, True)
    for inner in _inner_tensors(tensor):
        _add_marks(inner, attribute, index)


def _inner_tensors(tensor: Any) -> Iterator[Any]:
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        for name in flatten()[0]:
            inner = getattr(tensor, name)
            if getattr(inner, "ndim", None) == tensor.ndim:
                yield inner


@forbid_in_graph
def mark_dynamic(
    t: object,
    index: Dims,
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: list[Any] | None = None,
) -> None:
    """Make the given dimension(s) of `t` symbolic from the first compilation on, within [min, max].

    Call it before the compiled function. If the code can only work for one size, the compilation raises UserError.
    `hint_override` and `specialize_on` are accepted as torch has them and have no effect.
    """
    _add_marks(t, DYNAMIC, index)
    ranges: set[DimRange] = _kept(t, DYNAMIC_RANGE, set)
    ranges.update(DimRange(dim, min, max) for dim in _dims(t, index))


@forbid_in_graph
def maybe_mark_dynamic(t: object, index: Dims) -> None:
    """As `mark_dynamic`, but code that works for one size only makes the dimension constant instead of raising."""
    _add_marks(t, WEAK_DYNAMIC, index)


def mark_static(t: Any, index: Dims | None = None) -> Any:
    """Keep the given dimension(s) of `t` constant (all of them without `index`), even under `dynamic=True`.

    Given a module class instead of a tensor, int attributes of its instances stay constant; the class is returned.
    """
    if isinstance(t, type):
        setattr(t, STATIC_CLASS, True)
        return t
    _add_marks(t, STATIC, index)
    return None


@forbid_in_graph
def mark_unbacked(
    t: object,
    index: Dims,
    hint_override: int | None = None,
    strict: bool = False,
    specialize_on: list[Any] | None = None,
    shape_id: str | None = None,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Make the given dimension(s) of `t` symbolic without looking at the present size, not even for 0 and 1.

    Code that needs the number breaks the graph or fails. `hint_override` and `specialize_on` have no effect.
    """
    _add_marks(t, STRICT_UNBACKED if strict else UNBACKED, index)
    for attribute, value in ((UNBACKED_BOUNDS, (min, max)), (SHAPE_IDS, shape_id)):
        if value not in (None, (None, None)):
            per_dim: dict[int, object] = _kept(t, attribute, dict)
            per_dim.update(dict.fromkeys(_dims(t, index), value))


@forbid_in_graph
def mark_static_address(t: object, guard: bool = False) -> None:
    """Promise that calls pass the tensor at the same address, so that CUDA graphs need not copy it."""
    setattr(t, STATIC_ADDRESS, "guarded" if guard else "unguarded")


# The stance: the behaviour of a call that fits no compiled version

StanceName = Literal[
    "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile"
]


class Stance(NamedTuple):
    """How compiled functions behave now. `force_backend` is used for graphs that are compiled under the stance."""

    name: StanceName = "default"
    force_backend: str | Callable[..., Any] | None = None


_DEFAULT_STANCE = Stance()
_process_stance = _DEFAULT_STANCE
_stance_listeners: list[Callable[[Stance], None]] = []


class _ThreadStance(threading.local):
    override: Stance | None = None


_thread = _ThreadStance()


def current_stance() -> Stance:
    """The stance for this thread: what `run` set for it, else what `set_stance` set for the process."""
    return _thread.override or _process_stance


def on_stance_change(listener: Callable[[Stance], None]) -> None:
    """Call `listener(stance)` whenever the stance of the process changes."""
    _stance_listeners.append(listener)


def _set_process_stance(stance: Stance) -> Stance:
    global _process_stance
    previous, _process_stance = _process_stance, stance
    for listener in _stance_listeners:
        listener(stance)
    return previous


@contextlib.contextmanager
def thread_stance(stance: Stance) -> Iterator[None]:
    """Use `stance` in this thread only."""
    previous, _thread.override = _thread.override, stance
    try:
        yield
    finally:
        _thread.override = previous


@forbid_in_graph
class set_stance:  # a verb, as in torch: plain call, decorator and context manager in one
    """Choose what compiled functions do, for the whole process.

    - `default`: compile when no version fits.
    - `force_eager`: ignore all compiled versions and compile nothing.
    - `eager_on_recompile`: use the versions that exist; where none fits, run eagerly.
    - `fail_on_recompile`: use the versions that exist; where none fits, raise RecompileError.
    - `eager_then_compile`: run the first call of each function eagerly, compile from the second on, with sizes symbolic that have changed.
    - `aot_eager_then_compile`: the same.

    `set_stance("force_eager")` takes effect at once and stays. As a context manager it ends with the block, as a
    decorator it holds during calls of the function. `skip_guard_eval_unsafe` is accepted and has no effect: guards
    always run. Under `force_backend` functions have versions of their own, made by that backend. Raises ValueError for an unknown stance,
    RuntimeError for a `force_backend` with another stance than `default`. Captured code must
    not call it, nor what it decorates.
    """

    def __init__(
        self,
        stance: StanceName = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: str | Callable[..., Any] | None = None,
    ) -> None:
        if stance not in get_args(StanceName):
            raise ValueError(f"unknown stance {stance!r}; there are {', '.join(get_args(StanceName))}")
        if force_backend is not None and stance != "default":
            raise RuntimeError("force_backend needs the default stance: the others compile nothing")
        self.stance = Stance(stance, force_backend)
        self.previous = _set_process_stance(self.stance)

    def __enter__(self) -> None:
        _set_process_stance(self.stance)

    def __exit__(self, *exc_info: object) -> None:
        _set_process_stance(self.previous)

    def __call__(self, fn: Callable[..., T]) -> Callable[..., T]:
        # As a decorator the stance must not stay in force after the definition.
        _set_process_stance(self.previous)
        stance = self.stance

        @functools.wraps(fn)
        def under_stance(*args: Any, **kwargs: Any) -> T:
            previous = _set_process_stance(stance)
            try:
                return fn(*args, **kwargs)
            finally:
                _set_process_stance(previous)

        setattr(under_stance, DISABLED, True)
        setattr(under_stance, FORBIDDEN, True)
        return under_stance


_FORBIDDEN_MARKERS = frozenset(FORBIDDEN_IN_GRAPH)
"""The markers of this module."""
