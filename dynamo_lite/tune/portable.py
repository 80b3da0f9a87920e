"""Graphs and their inputs in files, for another process.

Input: a graph as `backends.registry` describes it, its inputs. Output: a file, and in the other process a `PortableGraph`.
Invariant: the graph that is read has the nodes and names of the one that was written, so that torch's compilers find in their caches in one
process what they have compiled in another; inputs that share memory do so again. Inputs are plain data and tensors; the graph is a
pickle, so only files of one's own are to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import sympy
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.value_ranges import ValueRanges

from dynamo_lite.backends import pickling
from dynamo_lite.backends.aot import STATIC_ADDRESS
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.graph.shapes.symbols import InputSource

from .distribution import Distribution


class CannotCarry(Exception):
    """Another process can't have this graph; the message names the reason."""


@dataclass
class PortableGraph:
    """A graph for a race, real inputs, whether it is trained, the settings under which it runs. `symbols` and `fakes` tell of the inputs
    what `_describe` does, as they are when this is made."""

    gm: torch.fx.GraphModule
    examples: list[Any]
    training: bool
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.symbols: dict[str, tuple[int, bool, int | None, int | None]] = {}
        self.fakes = [_describe(node, self.symbols) for node in self.gm.graph.find_nodes(op="placeholder")]


def dump(job: PortableGraph, file: IO[bytes], *, values: bool = True) -> None:
    """Write a job; without `values` large inputs are described only. Raises `CannotCarry`."""
    try:
        graph = pickling.dumps(_bare(job.gm))
    except Exception as error:  # whatever the reducers of the program's own objects raise
        raise CannotCarry(f"the graph can't be pickled: {error}") from error
    about = (graph, job.symbols, job.fakes, job.training, dict(job.settings))
    torch.save((about, *(([], job.examples) if values else described(job.examples))), file)


def load(file: IO[bytes]) -> PortableGraph:
    """The other side of `dump`. Raises `CannotCarry` if the graph needs something that only the program has."""
    # Before there is a fake mode: `torch.load` makes meta tensors where a tracing context has one.
    (graph, symbols, fakes, training, settings), memories, examples = torch.load(file, weights_only=True)
    examples = made(memories, examples)
    with without_compiler:
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
        known = {name: _symbol(mode.shape_env, name, *about) for name, about in symbols.items()}
        try:
            gm = pickling.loads(graph, mode)
        except Exception as error:  # whatever the program's own modules raise when they are imported
            raise CannotCarry(f"the graph can't be made again: {type(error).__name__}: {error}") from error
        for node, fake, real in zip(gm.graph.find_nodes(op="placeholder"), fakes, examples, strict=True):
            node.meta["example_value"] = _fake(mode, fake, real, known)
            if fake is not None and fake[2]:
                node.meta[STATIC_ADDRESS] = True
    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            module.recompile()
    return PortableGraph(gm, examples, training, settings)


def _bare(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy of the graph without what capture knows about its nodes."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    graph.output(graph.graph_copy(gm.graph, copies))
    for node in graph.nodes:
        node.meta = {}
    copy = torch.fx.GraphModule(gm, graph)
    copy.meta = {}
    for name, child in list(copy.named_children()):
        if isinstance(child, torch.fx.GraphModule):
            setattr(copy, name, _bare(child))
    return copy


# Sizes: a number, or the text of an expression over the symbols.

Size = int | str


def _describe(node: torch.fx.Node, symbols: dict[str, Any]) -> tuple[Any, ...] | None:
    fake = node.meta.get("example_value")
    if isinstance(fake, torch.Tensor):
        if type(fake).__name__ not in ("FakeTensor", "Parameter", "Tensor") or fake.layout is not torch.strided:
            raise CannotCarry(f"{node.name} is no plain dense tensor")
        sizes = [_size(n, symbols) for n in fake.shape]
        strides = [_size(n, symbols) for n in fake.stride()]
        return sizes, strides, bool(node.meta.get(STATIC_ADDRESS, False))
    if isinstance(fake, torch.SymInt):
        return _size(fake, symbols), None, False
    return None


def _size(value: Any, symbols: dict[str, Any]) -> Size:
    if not isinstance(value, torch.SymInt):
        return int(value)
    node = value.node
    for symbol in node.expr.free_symbols:
        hint = node.shape_env.backed_var_to_val.get(symbol)
        if hint is None:
            raise CannotCarry(f"the size {symbol} comes from data")
        bounds = node.shape_env.var_to_range[symbol]
        ends = [int(end) if end.is_Integer else None for end in (bounds.lower, bounds.upper)]
        symbols[str(symbol)] = (int(hint), bool(symbol.is_positive), *ends)
    return str(node.expr)


def _symbol(env: ShapeEnv, name: str, hint: int, positive: bool, low: int | None, high: int | None) -> sympy.Symbol:
    """A symbol of which the same is known."""
    symbol = env.create_symbol(
        hint, InputSource(name), DimDynamic.DYNAMIC, positive=positive or None, do_not_specialize_zero_one=True
    )
    known = env.var_to_range[symbol]
    env.var_to_range[symbol] = known & ValueRanges(
        known.lower if low is None else low, known.upper if high is None else high
    )
    return symbol


def _fake(mode: FakeTensorMode, about: Any, real: Any, known: Mapping[str, sympy.Symbol]) -> Any:
    if about is None:
        return real

    def size(text: Size) -> Any:
        if isinstance(text, int):
            return text
        expr = sympy.sympify(text, locals=dict(known))
        hint = int(expr.subs({s: mode.shape_env.backed_var_to_val[s] for s in expr.free_symbols}))
        return mode.shape_env.create_symintnode(expr, hint=hint)

    sizes, strides, _ = about
    if strides is None:
        return size(sizes)
    with mode:
        fake = torch.empty_strided(
            [size(n) for n in sizes], [size(n) for n in strides], dtype=real.dtype, device=real.device
        )
    if isinstance(real, torch.nn.Parameter):
        return torch.nn.Parameter(fake, real.requires_grad)
    return fake.requires_grad_(real.requires_grad)


# Inputs that are described by their sizes and the distribution of their values.

LARGE_BYTES = 1 << 16


def described(examples: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Descriptions of the large memories of some inputs, and the inputs with plain data in place of tensors in these memories."""
    numbers: dict[int, int] = {}
    memories: list[Any] = []
    found: list[Any] = []
    for value in examples:
        if isinstance(value, torch.Tensor) and value.untyped_storage().nbytes() > LARGE_BYTES:
            storage = value.untyped_storage()
            if storage._cdata not in numbers:
                numbers[storage._cdata] = len(memories)
                memories.append((storage.nbytes(), value.dtype, str(value.device), tuple(Distribution.of(value))))
            place = (value.storage_offset(), tuple(value.shape), value.stride())
            is_parameter = isinstance(value, torch.nn.Parameter)
            value = (numbers[storage._cdata], value.dtype, place, is_parameter, value.requires_grad)
        found.append(value)
    return memories, found


def made(memories: Sequence[Any], examples: Sequence[Any]) -> list[Any]:
    """The inputs again; those that were described have other values of the same distribution."""
    storages = []
    for size, dtype, device, distribution in memories:
        flat = torch.empty(size // dtype.itemsize, dtype=dtype, device=device)
        Distribution(*distribution).fill(flat)
        storages.append(flat.untyped_storage())

    def make(number: int, dtype: torch.dtype, place: Any, is_parameter: bool, requires_grad: bool) -> torch.Tensor:
        value = torch.empty(0, dtype=dtype, device=storages[number].device).set_(storages[number], *place)
        return torch.nn.Parameter(value, requires_grad) if is_parameter else value.requires_grad_(requires_grad)

    return [make(*value) if type(value) is tuple else value for value in examples]


# The state of torch, of this thread and of the process on which a graph's results depend.

_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
}
_AUTOCAST_DEVICES = ("cpu", "cuda")


def settings() -> dict[str, Any]:
    """The settings that the program has chosen."""
    found = {name: read() for name, (read, _) in _SETTINGS.items()}
    found["autocast"] = {d: torch.get_autocast_dtype(d) for d in _AUTOCAST_DEVICES if torch.is_autocast_enabled(d)}
    return found


def apply(found: Mapping[str, Any]) -> None:
    """Give these settings to this process, which has nothing else to do."""
    for name, (read, write) in _SETTINGS.items():
        if read() != found[name]:  # torch tells a default from the same value that was set, and so do its caches
            write(found[name])
    for device, dtype in found["autocast"].items():
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, dtype)
