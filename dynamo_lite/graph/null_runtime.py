"""The graph of a trace where there is no torch: always empty.

Mirrors the functions of `torch_runtime` and the part of `GraphBuilder` that the engine uses.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import CodeType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace


class EmptyGraph:
    """No operators, no inputs, no ambient state."""

    is_empty = True
    op_count = 0
    runs_foreign_code = False
    inputs: tuple[Any, ...] = ()
    outside = SimpleNamespace(int_if_dynamic=lambda value, source: None, float_if_dynamic=lambda value, source: None)
    """Numbers are constants."""

    def __init__(self, tr: Trace) -> None:
        sizes = SimpleNamespace(add_guards=lambda tr: None, who_made_constants=set, are_assumed=False)
        self.state = SimpleNamespace(restore=lambda: None, final_changes=lambda: [])
        self.passes = SimpleNamespace(checks=None, sizes=sizes)

    def paths_to_read(self) -> tuple[Any, ...]:
        """Nothing reads version counters."""
        return ()

    def begin(self) -> None:
        """Nobody looks at operators."""

    def release(self) -> None:
        """There is nothing to let go of."""

    def part_gradients(self, rest: list[Any]) -> None:
        """There are none."""

    def finish(self) -> None:
        """There is no module to make."""


new_graph = EmptyGraph
KINDS: dict[type, Any] = {}
FINDERS: dict[str, Any] = {}
GUARD_FORMS = frozenset({"function"})
modes_aside = modes_back = nullcontext


def capture_is_off() -> bool:
    """Nothing else traces."""
    return False


def tracer() -> None:
    """Nobody traces."""


def refuse_symbolic_trace(what: str) -> None:
    """There is no such tracer."""


def concerns_torch(code: CodeType, globals_: dict[str, Any], values: tuple[Any, ...]) -> bool:
    """There are no tensors."""
    return False


def has_foreign_slots() -> bool:
    """There is no class of tensors."""
    return False


def holds_elsewhere() -> bool:
    """There is no class of tensors that a program could have changed."""
    return True


def forget() -> None:
    """Nothing is remembered."""


def hide_code(code: CodeType) -> None:
    """Nobody else looks at code."""


def holds_tensors(value: object) -> bool:
    """There are no tensors."""
    return False


def release_inputs(failure: object, root: CodeType) -> None:
    """There are no graphs that could."""


def released_again(failure: object, compiled: object) -> NoReturn:
    """There are no graphs that could."""
    raise AssertionError


def compile_graph(graph: EmptyGraph, backend: object, fullgraph: bool, kept: object = None) -> NoReturn:
    """Never reached: an empty graph is not compiled."""
    raise AssertionError("an empty graph has nothing to compile")


def write_ambient(writer: object) -> None:
    """There is no state."""


def check_ambient(reader: object, data: None) -> None:
    """There is no state."""


def write_guard(writer: Any, guard: Any) -> Any:
    """The argument of a relation: a function."""
    return ("function", writer(guard.arg))


def recipe_of(value: object) -> None:
    """There are no sizes."""


def read_guard(reader: Any, form: str, about: object, where: int = -1) -> Any:
    """The argument again."""
    return reader(about)


def write_graph(graph: EmptyGraph, writer: object, write_place: object) -> NoReturn:
    """Never reached."""
    raise AssertionError("an empty graph is not written")


def read_graph(data: object, reader: object, read_place: object, guards: object) -> NoReturn:
    """Never reached."""
    raise AssertionError("an empty graph is not written")


def versions() -> dict[str, Any]:
    """There is nothing whose version counts."""
    return {}
