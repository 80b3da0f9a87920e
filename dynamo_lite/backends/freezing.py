"""Graphs whose parameters and buffers are constants of the compiled code, as the user asks for by `options={"freezing": True}`.

Input: a graph as `registry` describes it, its real inputs, a compiler. Output: a callable on the flat inputs.
Invariant: each call looks whether the parameters are at the same addresses and have the same versions; if not, the graph runs as it does
without freezing. Changes through `.data`, or by others that share the memory, are not seen: whoever asks for freezing
says that there are none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_lite.messages import warn_user

from .aot import STATIC_ADDRESS

if TYPE_CHECKING:
    from torch.fx import GraphModule

FROZEN = "frozen_"
"""How the names of attributes that were inputs begin; the number follows."""

Compile = Callable[[Any, list[Any]], Callable[..., Any]]


def freeze(
    gm: GraphModule,
    example_inputs: list[Any],
    compile_frozen: Compile,
    compile_plain: Compile,
    even_without_parameters: bool = False,
) -> Callable[..., Any]:
    """`compile_frozen(gm, inputs)` gets a graph that has its parameters as attributes, and the other inputs. Where gradients are recorded,
    or there is nothing to freeze, the graph is compiled by `compile_plain`."""
    import torch

    numbers = frozen_inputs(gm, example_inputs)
    if torch.is_grad_enabled() or not (numbers or even_without_parameters):
        return compile_plain(gm, example_inputs)
    rest = [value for i, value in enumerate(example_inputs) if i not in numbers]
    compiled = compile_frozen(bind(gm, {i: example_inputs[i] for i in numbers}), rest)
    return Frozen(compiled, numbers, example_inputs, lambda: compile_plain(gm, example_inputs)).__call__


def frozen_inputs(gm: GraphModule, example_inputs: Sequence[Any]) -> list[int]:
    """The numbers of the inputs that may become constants: those that keep their address and that the graph does not write to."""
    import torch

    found = []
    for i, (node, value) in enumerate(zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=True)):
        static = node.meta.get(STATIC_ADDRESS, False) or isinstance(value, torch.nn.Parameter)
        if static and type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_inference():
            found.append(i)
    written = written_inputs(gm, example_inputs) if found else set()
    return [i for i in found if i not in written]


def written_inputs(gm: GraphModule, example_inputs: Sequence[Any]) -> set[int]:
    """The numbers of the inputs whose memory the graph may write to, seen by running it on fakes."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad(), torch._guards.tracing(None):
        fakes = [mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in example_inputs]
        before = [f._version if isinstance(f, torch.Tensor) else 0 for f in fakes]
        gm.forward(*fakes)
        return {i for i, f in enumerate(fakes) if isinstance(f, torch.Tensor) and f._version != before[i]}


def bind(gm: GraphModule, values: dict[int, Any]) -> Any:
    """A copy of the graph in which these inputs are attributes."""
    import torch

    root = torch.nn.Module()
    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    for i, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        if i in values:
            name, value = f"{FROZEN}{i}", values[i]
            if isinstance(value, torch.nn.Parameter):
                root.register_parameter(name, value)
            else:
                root.register_buffer(name, value)
            copies[node] = graph.get_attr(name)
    for node in gm.graph.nodes:
        if node not in copies and node.op == "output":
            graph.output(torch.fx.node.map_arg(node.args[0], copies.__getitem__))
        elif node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if node.op == "get_attr" and not hasattr(root, node.target):
                setattr(root, node.target, getattr(gm, node.target))
    bound = torch.fx.GraphModule(root, graph)
    bound.meta = dict(gm.meta)
    return bound


class Frozen:
    """Runs the frozen graph with the parameters that it has frozen, as long as they are what they were, and with others the plain one."""

    def __init__(
        self,
        compiled: Callable[..., Any],
        numbers: Sequence[int],
        example_inputs: Sequence[Any],
        compile_plain: Callable[[], Callable[..., Any]],
    ) -> None:
        import torch

        self.compiled: Callable[..., Any] | None = compiled
        self.compile_plain = compile_plain
        self.plain: Callable[..., Any] | None = None
        self.lock = threading.Lock()
        self.numbers = list(numbers)
        self.rest = [i for i in range(len(example_inputs)) if i not in set(numbers)]
        self.tensors = [example_inputs[i] for i in numbers]
        self.version, self.address = torch.Tensor._version.__get__, torch.Tensor.data_ptr
        self.versions = list(map(self.version, self.tensors))
        self.addresses = list(map(self.address, self.tensors))

    def __call__(self, *args: Any) -> Any:
        if self.compiled is not None:
            if self._are_frozen([args[i] for i in self.numbers]):
                return self.compiled(*[args[i] for i in self.rest])
            with self.lock:
                if self.plain is None:
                    self.plain = self.compile_plain()
                if self.compiled is not None and not self._are_frozen(self.tensors):
                    warn_user("parameters have changed since they were frozen: now they are inputs")
                    self.compiled = None
                    self.tensors = []
        return self.plain(*args)  # type: ignore[misc]

    def _are_frozen(self, given: list[Any]) -> bool:
        return list(map(self.address, given)) == self.addresses and list(map(self.version, given)) == self.versions
