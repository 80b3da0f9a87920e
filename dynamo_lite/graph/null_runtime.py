"""The graph of a trace where there is no torch: always empty.

Mirrors the functions of `torch_runtime` and the part of `GraphBuilder` that the engine uses.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from dynamo_lite.exc import unsupported

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace


def _no_symbol(value: object, source: object) -> NoReturn:
    unsupported("random-state", "a number that differs from call to call")


class EmptyGraph:
    """No operators, no inputs, no ambient state."""

    is_empty = True
    op_count = 0
    last_node = None
    inputs: tuple[Any, ...] = ()
    outside = SimpleNamespace(
        int_if_dynamic=lambda value, source: None,
        float_if_dynamic=lambda value, source: None,
        symint=_no_symbol,
        symfloat=_no_symbol,
    )
    """Numbers are constants."""

    def __init__(self, tr: Trace) -> None:
        sizes = SimpleNamespace(add_guards=lambda tr: None, who_made_constants=set, are_assumed=False)
        self.state = SimpleNamespace(restore=lambda: None, final_changes=lambda: [])
        self.passes = SimpleNamespace(checks=None, sizes=sizes, random=SimpleNamespace(draws=(0, False)))

    def paths_to_read(self) -> tuple[Any, ...]:
        """Nothing reads version counters."""
        return ()

    def reads_tensors_since(self, last: object) -> bool:
        """There are no tensors."""
        return False

    def begin(self) -> None:
        """Nobody looks at operators."""

    def release(self) -> None:
        """There is nothing to let go of."""

    def part_gradients(self, rest: list[Any]) -> None:
        """There are none."""

    def finish(self) -> None:
        """There is no module to make."""

    def fails_for_good(self, last: object) -> None:
        """No operator raises."""


class NoLog:
    """Nobody is told of an analysis."""

    def __init__(self, *args: object) -> None:
        pass

    def __enter__(self) -> NoLog:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def _ignore(self, *args: object) -> None:
        pass

    begins = restarts = breaks = graph = compiled = sizes = changes = committed = _ignore

    def watched(self, handlers: list[Any]) -> list[Any]:
        """The handlers as they are."""
        return handlers


def _nothing(*args: object) -> None:
    """There are no graphs, tracers, sizes and metadata of operators, and no ambient state."""


def _never(*args: object) -> bool:
    """There are no tensors, and nobody else captures."""
    return False


def _write_function(writer: Any, guard: Any) -> tuple[str, Any]:
    """The argument of a relation between values: a function."""
    return "function", writer(guard.arg)


def _unreachable(*args: object) -> NoReturn:
    """An empty graph is neither compiled nor kept."""
    raise AssertionError("an empty graph has nothing to compile")


new_graph = EmptyGraph
new_log = NoLog
compile_graph = write_graph = read_graph = boxed_again = _unreachable
boxed_call = tracer = refuse_symbolic_trace = forget = hide_code = write_ambient = check_ambient = recipe_of = _nothing
capture_is_off = concerns_torch = has_foreign_slots = holds_tensors = is_call_of_tracer = _never
modes_aside = modes_back = nullcontext
write_guard = _write_function
versions: Callable[[], dict[str, Any]] = dict
KINDS: dict[type, Any] = {}
FINDERS: dict[str, Any] = {}
GUARD_FORMS = frozenset({"function"})


def holds_elsewhere() -> bool:
    """There is no class of tensors that a program could have changed."""
    return True


def is_agreed(code: object, is_made: bool) -> bool:
    """There are no other ranks."""
    return True


def told_by_all(code: object, told: Any) -> list[Any]:
    """As `is_agreed`."""
    return [told]


def read_guard(reader: Any, form: str, about: object, where: int = -1) -> Any:
    """The argument of a relation again."""
    return reader(about)
