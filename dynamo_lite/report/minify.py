"""From a graph that a backend gets wrong, or fails on, to the smallest part of it that shows the same.

Input: a graph and its inputs, the name of a backend. Output: a `Repro`, whose `script` runs by itself.
Invariant: each step is one that has been seen to fail in the same way; the program's tensors and random state stay as they are.

Method: delta debugging over the operators of the graph (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, IEEE TSE
28(2), 2002, algorithm ddmin). A part of the graph gets the values that its missing operators had in eager execution as inputs, and returns
what none of its operators uses. Then inputs become random ones, as long as the failure stays.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Node

from dynamo_lite.backends.handed import copy_of
from dynamo_lite.backends.options import is_ours
from dynamo_lite.backends.registry import backend_name, lookup_backend
from dynamo_lite.exc import InvalidBackend, first_line
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.tune.apart import KNOWN_HERE_ONLY, RaceApart, importable
from dynamo_lite.tune.portable import CannotCarry
from dynamo_lite.tune.verify import CannotCopy, Expected, Inputs, undisturbed, wants_gradients

from .repro import RandomInput, script_of

Backend = str | Callable[..., Any]

LACKS_BACKEND = 3
"""The status of the command if it has written a script that needs a backend which it can't carry along."""


@dataclass
class Repro:
    """A graph on which a backend fails, its inputs (tensors, numbers and `RandomInput`s), and how it fails."""

    gm: GraphModule
    inputs: list[Any]
    backend: Backend
    training: bool
    problem: str

    @property
    def op_count(self) -> int:
        """Operators in the graph."""
        return sum(node.op.startswith("call_") for node in self.gm.graph.nodes)

    @property
    def script(self) -> str:
        """A program that shows the failure and ends with status 1 as long as it is there."""
        where = None if self._is_of_package else importable(self.backend)
        return script_of(self.gm, self.inputs, self.name, where, self.training, self.problem)

    @property
    def name(self) -> str:
        """The name of the backend."""
        return backend_name(lookup_backend(self.backend))

    @property
    def lacks_backend(self) -> bool:
        """Whether the script can't run by itself: the backend is known to the program alone."""
        return not self._is_of_package and importable(self.backend) is None

    @property
    def _is_of_package(self) -> bool:
        return is_ours(lookup_backend(self.backend))


def problem_of(
    gm: GraphModule, inputs: Sequence[Any], backend: Backend, training: bool, *, isolate: bool = False
) -> str | None:
    """The fault of the backend on this graph: "failed: …", "wrong: …", with `isolate` also "crashed: …"; None if there is none, or if eager
    execution itself fails."""
    values = [v.make() if isinstance(v, RandomInput) else v for v in inputs]
    with undisturbed(values):
        try:
            expected = Expected(gm.forward, Inputs(values), training, others=False)
        except CannotCopy:
            raise
        except Exception:
            return None
        with without_compiler:
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            for node, value in zip(gm.graph.find_nodes(op="placeholder"), values, strict=True):
                node.meta["example_value"] = mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
        if isolate:
            return _problem_apart(gm, values, backend, training)
        try:
            with tracing(TracingContext(mode)):
                compiled = lookup_backend(backend)(copy_of(gm), list(values))
            return expected.problem_of(compiled)
        except Exception as error:
            return f"failed: {type(error).__name__}: {first_line(error)}"


class CannotIsolate(Exception):
    """No other process has the backend."""


def _problem_apart(gm: GraphModule, values: list[Any], backend: Backend, training: bool) -> str | None:
    name = backend if isinstance(backend, str) else backend_name(backend)
    try:
        race = RaceApart.of(gm, values, training)
        found = race.run([name], 60.0).problem_of(name)
        race.close()
    except CannotCarry:
        return None
    if found is not None and KNOWN_HERE_ONLY in found:
        raise CannotIsolate(f"backend {name!r} is {KNOWN_HERE_ONLY}: leave --isolate out")
    return None if found == "slower" else found


def minify(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    backend: Backend,
    *,
    isolate: bool = False,
    seconds: float = 600.0,
    tell: Callable[[str], None] = lambda text: None,
) -> Repro | None:
    """The smallest failing part of a graph that is found in about `seconds`; None if the backend does nothing wrong on the graph.

    `isolate`: try each part in a process of its own, for backends that bring the process down. `tell` is given a line for each step
    forward. Raises `CannotCopy` for inputs that can't be copied, `InvalidBackend` for an unknown name, and
    `CannotIsolate` for a backend that another process can't import.
    """
    lookup_backend(backend)
    training = wants_gradients(example_inputs)
    problem = problem_of(gm, example_inputs, backend, training, isolate=isolate)
    if problem is None:
        return None
    best = Repro(gm, list(example_inputs), backend, training, problem)
    parts = Parts(gm, example_inputs)
    deadline = time.monotonic() + seconds

    def fails(gm: GraphModule, inputs: list[Any]) -> bool:
        if time.monotonic() > deadline:
            return False
        found = problem_of(gm, inputs, backend, training, isolate=isolate)
        if found is None or _kind(found) != _kind(problem):
            return False
        nonlocal best
        best = Repro(gm, inputs, backend, training, found)
        tell(f"operators: {best.op_count}, inputs: {len(inputs)}, {found}")
        return True

    kept = _ddmin(parts.operators, lambda nodes: fails(*parts.part(nodes)))
    for output in parts.outputs_of(kept):
        if fails(*parts.part(kept, [output])):
            break
    _randomize(best, fails)
    return best


def _kind(problem: str) -> str:
    """ "failed: RuntimeError", "wrong", "crashed: SIGSEGV"."""
    first, _, rest = problem.partition(":")
    return first if first == "wrong" else f"{first}:{rest.partition(':')[0]}"


def _ddmin(items: list[Any], fails: Callable[[list[Any]], bool]) -> list[Any]:
    """A 1-minimal sublist that fails, given that the whole does."""
    pieces = 2
    while len(items) > 1:
        size = -(-len(items) // pieces)
        chunks = [items[i : i + size] for i in range(0, len(items), size)]
        rests = [[x for j, other in enumerate(chunks) if j != i for x in other] for i in range(len(chunks))]
        for candidate, left in [(c, 2) for c in chunks] + [(r, max(pieces - 1, 2)) for r in rests if len(chunks) > 2]:
            if fails(candidate):
                items, pieces = candidate, left
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(items))
    return items


def _randomize(repro: Repro, fails: Callable[[GraphModule, list[Any]], bool]) -> None:
    """Replace the inputs from the program by random ones: all at once, else one after the other."""
    inputs = list(repro.inputs)
    random = [
        RandomInput.like(v, i) if isinstance(v, torch.Tensor) and v.numel() > 16 else v for i, v in enumerate(inputs)
    ]
    if random == inputs or fails(repro.gm, random):
        return
    for i, value in enumerate(random):
        if value is not inputs[i]:
            attempt = [*inputs[:i], value, *inputs[i + 1 :]]
            if fails(repro.gm, attempt):
                inputs = attempt


class Parts:
    """The parts of one graph. `operators`: its nodes that call something; `values`: each node's result in eager execution."""

    def __init__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> None:
        self.gm = gm
        self.values: dict[Node, Any] = {}
        with undisturbed(example_inputs):
            torch.manual_seed(0)
            _Recorder(gm, self.values).run(*Inputs(example_inputs).fresh())
        self.operators = [node for node in gm.graph.nodes if node.op.startswith("call_")]

    def part(self, nodes: Iterable[Node], outputs: Sequence[Node] | None = None) -> tuple[GraphModule, list[Any]]:
        """The graph of some operators, with the operators from which they get values that are no tensors, and its inputs."""
        kept = self._closed(nodes)
        graph, inputs = Graph(), []
        copies: dict[Node, Any] = {}
        needed = [n for n in self.gm.graph.nodes if n in kept or any(user in kept for user in n.users)]
        for node in needed:  # placeholders come first
            if node not in kept and node.op != "get_attr":
                value = self.values[node]
                if isinstance(value, torch.Tensor):
                    copies[node] = graph.placeholder(node.name)
                    inputs.append(value)
                else:
                    copies[node] = value
        for node in needed:
            if node in kept or node.op == "get_attr":
                copies[node] = graph.node_copy(node, copies.__getitem__)
                copies[node].meta = {}
        results: list[Node] = []
        for node in self.outputs_of(kept) if outputs is None else outputs:
            results += _tensors(graph, copies[node], self.values[node])
        graph.output(tuple(results))
        return GraphModule(self.gm, graph), inputs

    def outputs_of(self, nodes: Iterable[Node]) -> list[Node]:
        """The operators that no other one of them uses, and those that the whole graph returns."""
        kept = self._closed(nodes)
        return [n for n in kept if any(u.op == "output" for u in n.users) or not any(user in kept for user in n.users)]

    def _closed(self, nodes: Iterable[Node]) -> dict[Node, None]:
        kept = dict.fromkeys(nodes)
        waiting = list(kept)
        while waiting:
            for used in waiting.pop().all_input_nodes:
                if used not in kept and used.op.startswith("call_") and not _is_plain(self.values[used]):
                    kept[used] = None
                    waiting.append(used)
        return dict.fromkeys(n for n in self.operators if n in kept)


class _Recorder(torch.fx.Interpreter):
    """Keeps a copy of each node's result, before anything changes it."""

    def __init__(self, gm: GraphModule, values: dict[Node, Any]) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.kept = values

    def run_node(self, n: Node) -> Any:
        found = super().run_node(n)
        if isinstance(found, torch.Tensor):
            copy = torch.empty_strided(found.shape, found.stride(), dtype=found.dtype, device=found.device)
            self.kept[n] = copy.copy_(found.detach()).requires_grad_(found.requires_grad)
        else:
            self.kept[n] = found
        return found


def _is_plain(value: object) -> bool:
    """Whether the value can be an input or a constant of a graph."""
    return isinstance(value, torch.Tensor | int | float | bool | str | None | torch.dtype | torch.device | torch.Size)


def _tensors(graph: Graph, node: Node, value: object) -> list[Node]:
    if isinstance(value, torch.Tensor):
        return [node]
    if not isinstance(value, tuple | list):
        return []
    found: list[Node] = []
    for i, item in enumerate(value):
        if isinstance(item, torch.Tensor | tuple | list):
            found += _tensors(graph, graph.call_function(operator.getitem, (node, i)), item)
    return found


class Finder:
    """A backend that looks for a graph that another one fails on. It ends the program, with SystemExit, when it has written the script, and
    when nobody has registered that backend by the first graph: the program may do so."""

    def __init__(
        self, backend: Backend, path: str, *, isolate: bool, seconds: float, tell: Callable[[str], None]
    ) -> None:
        self.backend = backend
        self.path = path
        self.options: dict[str, Any] = {"isolate": isolate, "seconds": seconds, "tell": tell}
        self.graphs = 0

    def __call__(self, gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.graphs += 1
        try:
            repro = minify(gm, example_inputs, self.backend, **self.options)
        except CannotCopy as reason:
            self.options["tell"](f"a graph is passed over: {reason}")
            repro = None
        except (InvalidBackend, CannotIsolate) as error:  # an exception would be a backend's that fails
            self.options["tell"](f"python -m dynamo_lite: error: {error}")
            raise SystemExit(2) from None
        if repro is None:
            return gm.forward
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(repro.script)
        self.options["tell"](f"written to {self.path}")
        if repro.lacks_backend:
            self.options["tell"](
                f"it does not run by itself: the backend {repro.name!r} is defined by the program alone, and no module that can be "
                "imported has it under its name; move it to one, or import it into the script"
            )
            raise SystemExit(LACKS_BACKEND)
        raise SystemExit(1)
