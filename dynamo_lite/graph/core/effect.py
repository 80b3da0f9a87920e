"""The interface of one effect around a graph: something that the graph does, or that is done around its call, besides its operators.

Input: the builder of the graph. Output: nodes that the effect adds, wrappers around the compiled graph, plain data for the warm cache.
Invariant: every method has a default that does nothing, so an effect states only its own part. The order of effects is that of the table
`graph.passes.Passes`; one effect reads the state of another through `builder.passes`, without importing it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from dynamo_lite.exc import Refused

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from dynamo_lite.graph.builder import GraphBuilder
    from dynamo_lite.graph.core.values import Propagation, TensorValue

Compiled = Callable[..., Any]
Wrapper = Callable[[Compiled], Compiled]
Captured = Callable[[], Compiled]
"""Gives the function that runs the graph node by node, as it was captured."""


COMPUTES = "dynamo_lite_computes"
"""Attribute of a backend: False if it only records the graph, and the callable that it returns computes nothing."""


def computes(backend: object) -> bool:
    """Whether what a backend returns computes anything."""
    return bool(getattr(backend, COMPUTES, True))


class Replacement(Protocol):
    """Puts a function around the compiled graph that may run the captured one instead. `is_boxed`: both take a list of the inputs."""

    def __call__(self, compiled: Compiled, captured: Captured, is_boxed: bool) -> Compiled: ...


@dataclass(eq=False)
class GraphEffect:
    """One effect around one graph. A graph that was read from the warm cache has no builder: its effects only read their data and wrap."""

    builder: GraphBuilder

    takes_boxed: ClassVar[bool] = False
    """Whether the wrapper around the call also works for a function that takes one list with all inputs."""

    kept: ClassVar[str | None] = None
    """The field that the warm cache keeps, if it is plain data."""

    never_kept: ClassVar[dict[str, str]] = {}
    """The fields with which no graph can be kept, unless they are empty, and how such a graph is called."""

    # -- while the graph is built; only effects that override these are called

    def on_write(
        self, target: object, args: tuple[Any, ...], values: dict[Any, Any], written: list[tuple[TensorValue, int]]
    ) -> None:
        """An operator is about to be added that changes these tensors in place, each so many times."""

    def on_node(self, node: Node, outcome: Propagation, tensors: Sequence[TensorValue]) -> None:
        """An operator on these tensors has been added, and its result has been given to the node."""

    # -- when the graph is complete

    def prepare(self) -> Sequence[Node]:
        """Change the graph, before dead nodes are removed. The nodes that become results of the graph for this effect."""
        return ()

    def finish(self, results: list[Node]) -> None:
        """No operator is added or removed any more but by this method: find out what to do around the call. May change the results."""

    def settle(self, results: list[Node]) -> None:
        """All effects are finished, and these are the results of the compiled graph: none is added. May put others in their place."""

    def annotate(self, module: GraphModule) -> None:
        """The module is made: tell backends about the effect in its `meta`."""

    def paths_to_read(self) -> Iterable[Any]:
        """The paths of values that generated code has to read before it calls the graph."""
        return ()

    # -- around the call

    def replacement(self) -> Replacement | None:
        """The wrapper around what the backend has made, and around nothing else; None if there is none."""
        return None

    def call_wrapper(self) -> Wrapper | None:
        """The wrapper around each function that runs the graph, compiled or captured; None if there is none. It must not hold the effect,
        whose builder holds tensors of the program."""
        return None

    # -- at the end

    def release(self) -> None:
        """The trace is over: let go of the builder, whose tensors are the program's."""
        del self.builder

    # -- in the warm cache

    def write_data(self, writer: Any) -> Any:
        """The effect as plain data; None if there is nothing to keep. Raises `Refused` if it can't be kept."""
        for name, kind in self.never_kept.items():
            if getattr(self, name):
                raise Refused(kind)
        return getattr(self, self.kept) or None if self.kept is not None else None

    def read_data(self, data: Any, reader: Any, graph: Any) -> None:
        """Take over what `write_data` has written, for a `StoredGraph`. Raises `Mismatch` if this process is another one."""
        if self.kept is not None:
            setattr(self, self.kept, data)
