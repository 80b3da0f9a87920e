"""Verification of a compiled graph against eager execution.

Input: a graph's callable, its real inputs: tensors, and numbers for symbolic sizes. Output: None, or the first difference. Compared are
outputs, gradients where the graph is trained, and the inputs that the graph writes to, on the real inputs and on others of the same
distribution; `backends.difference` says which values count as equal.
Invariant: graphs run on copies. Tensors that share memory do so in the copies; a copy of a leaf is a leaf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.fx import GraphModule

from dynamo_lite import random_states
from dynamo_lite.backends.difference import problem
from dynamo_lite.backends.tensor_copies import copy_of, memory_of
from dynamo_lite.graph.core.state import SETTINGS

SEED = 20220


class CannotCopy(Exception):
    """An input is of a kind that has no faithful copy; the message names it."""


class Communicates(CannotCopy):
    """The graph talks to other processes, which would have to run it as often."""


_TALKING = ("_c10d_functional", "c10d", "_dtensor", "torch.distributed")


def check_repeatable(gm: GraphModule) -> None:
    """Raise `Communicates` for a graph with collectives, or with tensors that are distributed over processes."""
    for module in gm.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            made = node.meta.get("example_value")
            origins = (getattr(node.target, "_qualified_op_name", ""), str(node.target), type(made).__module__)
            if any(origin.startswith(_TALKING) for origin in origins):
                raise Communicates(f"{node.name} communicates with other processes")


class Inputs:
    """The inputs of one graph. Memory that the graph does not write to (`settle`) is copied once and shared by all lists.

    Raises `CannotCopy`.
    """

    def __init__(self, examples: Sequence[Any]) -> None:
        for i, value in enumerate(examples):
            _check(i, value)
        self.examples = list(examples)
        self.kept: dict[int, torch.UntypedStorage] = {}

    def fresh(self) -> list[Any]:
        """A new list of inputs, with copies of its own of the tensors that the graph writes to."""
        copies = dict(self.kept)
        return [copy_of(value, copies) for value in self.examples]

    def shuffled(self, generator: torch.Generator) -> list[Any]:
        """A new list with the elements of floating-point inputs in another order: other values of the same distribution. Parameters, and
        tensors that share memory, keep their values."""
        owners = Counter(memory_of(v) for v in self.examples if isinstance(v, torch.Tensor))
        copies: dict[int, torch.UntypedStorage] = {}
        values = [copy_of(value, copies) for value in self.examples]
        for value, example in zip(values, self.examples, strict=True):
            if (
                isinstance(value, torch.Tensor)
                and not isinstance(example, torch.nn.Parameter)
                and (value.is_floating_point() or value.is_complex())
                and owners[memory_of(example)] == 1
            ):
                order = torch.randperm(value.numel(), generator=generator).to(value.device)
                value.detach().copy_(value.detach().reshape(-1)[order].reshape(value.shape))
        return values

    def settle(self, used: Sequence[Any]) -> None:
        """Take a list on which the graph has run: memory that it has not changed needs no further copies."""
        for example, value in zip(self.examples, used, strict=True):
            if isinstance(example, torch.Tensor):
                before, after = example.untyped_storage(), value.untyped_storage()
                if before.size() == after.size() and torch.equal(_bytes(before), _bytes(after)):
                    self.kept[memory_of(example)] = after


def _check(i: int, value: object) -> None:
    if not isinstance(value, torch.Tensor):
        return
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    if not plain or value.is_quantized or value.device.type == "meta" or value.is_neg() or value.is_conj():
        kind = type(value).__name__ if value.layout is torch.strided else str(value.layout)
        raise CannotCopy(f"input {i} is no plain dense tensor ({kind})")


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def wants_gradients(inputs: Iterable[Any]) -> bool:
    """Whether the graph is trained: gradients are recorded, and an input requires them."""
    return torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in inputs)


@contextmanager
def undisturbed(examples: Sequence[Any]) -> Iterator[None]:
    """Put back at the end what backends and verification may change for the whole process: the state of random generators
    (torch's, Python's and numpy's), and torch's settings."""
    devices = {v.device.index for v in examples if isinstance(v, torch.Tensor) and v.device.type == "cuda"}
    kinds = {"cpu", *(v.device.type for v in examples if isinstance(v, torch.Tensor))}
    settings = _settings(kinds)
    with torch.random.fork_rng(devices=sorted(devices)), random_states.kept(random_states.of_process()):
        try:
            yield
        finally:
            for (setting, key), value in settings.items():
                if setting.read(*key) != value:
                    setting.write(*key, value)


def _settings(kinds: Iterable[str]) -> dict[tuple[Any, tuple[Any, ...]], Any]:
    """Part of torch's state, with a kind of device where there is one per device → its value."""
    found = {}
    for setting in SETTINGS.values():
        for key in {0: [()], 1: [(kind,) for kind in kinds]}.get(setting.n_keys, []):
            with suppress(RuntimeError):  # torch refuses to read what was set by both of two ways
                found[setting, key] = setting.read(*key)
    return found


class Expected:
    """The outcome of eager execution on the real inputs and, with `others`, on one more list of inputs."""

    def __init__(self, eager: Callable[..., Any], inputs: Inputs, training: bool, *, others: bool = True) -> None:
        self.inputs = inputs
        self.training = training
        self.devices = {v.device for v in inputs.examples if isinstance(v, torch.Tensor) and v.device.type != "cpu"}
        first = inputs.fresh()
        self.cases = [(inputs.fresh, self.observe(eager, first))]
        self.is_random = problem(self.cases[0][1], self.observe(eager, inputs.fresh(), SEED + 1)) is not None
        inputs.settle(first)
        if others:
            self._add_shuffled(eager)

    def _add_shuffled(self, eager: Callable[..., Any]) -> None:
        def make() -> list[Any]:
            return self.inputs.shuffled(torch.Generator().manual_seed(SEED))

        try:
            self.cases.append((make, self.observe(eager, make())))
        except Exception:  # the program's own operators refuse these values; the real inputs have to do
            return

    def run(self, fn: Callable[..., Any], values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """The outputs, and the gradients of the inputs that require them."""
        if not self.training:
            with torch.no_grad():
                return fn(*values), ()
        with torch.enable_grad():
            outputs = fn(*values)
            wanted = [v for v in values if isinstance(v, torch.Tensor) and v.requires_grad]
            ends = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
            if not ends:
                return outputs, ()
            return outputs, torch.autograd.grad(ends, wanted, [torch.ones_like(e) for e in ends], allow_unused=True)

    def observe(self, fn: Callable[..., Any], values: list[Any], seed: int = SEED) -> list[Any]:
        """The observable outcome of one call: outputs, gradients and inputs, detached."""
        torch.manual_seed(seed)
        outputs, gradients = self.run(fn, values)
        return [v.detach() if isinstance(v, torch.Tensor) else v for v in (*outputs, *gradients, *values)]

    def problem_of(self, fn: Callable[..., Any]) -> str | None:
        """The difference between a backend's callable and eager execution; for graphs with random operators, in shapes and dtypes only."""
        for make, expected in self.cases:
            found = problem(expected, self.observe(fn, make()), values_count=not self.is_random)
            if found is not None:
                return f"wrong: {found}"
        return None

    def synchronize(self) -> None:
        """Wait until the devices have done all their work."""
        for device in self.devices:
            torch.accelerator.synchronize(device)
