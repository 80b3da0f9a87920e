"""Graphs and their inputs in files, for another process.

Input: a graph as `backends.registry` describes it, its inputs. Output: a file, and in the other process a `PortableGraph`.
Invariant: the graph that is read has the nodes and names of the one that was written, so that torch's compilers find in their caches in one
process what they have compiled in another; inputs that share memory do so again. What the inputs are is plain data and tensors; the
graph is a pickle, so only files of one's own are to be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """The graph has something that another process can't have; the message names it."""


@dataclass
class PortableGraph:
    """A graph for a race, real inputs, whether it is trained, the settings under which it runs."""

    gm: torch.fx.GraphModule
    examples: list[Any]
    training: bool
    settings: Mapping[str, Any]


def dump(job: PortableGraph, file: IO[bytes], *, values: bool = True) -> None:
    """Write a job; without `values` large inputs are described only. Raises `CannotCarry`."""
    symbols: dict[str, tuple[int, bool, int | None, int | None]] = {}
    placeholders = job.gm.graph.find_nodes(op="placeholder")
    fakes = [_describe(node, symbols) for node in placeholders]
    try:
        graph = pickling.dumps(_bare(job.gm))
    except Exception as error:  # whatever the reducers of the program's own objects raise
        raise CannotCarry(f"the graph can't be pickled: {error}") from error
    about = (graph, symbols, fakes, job.training, dict(job.settings))
    torch.save((about, job.examples if values else described(job.examples)), file)


def load(file: IO[bytes]) -> PortableGraph:
    """The other side of `dump`. Raises `CannotCarry` if the graph needs something that only the program has."""
    # Before there is a fake mode: `torch.load` makes meta tensors where a tracing context has one.
    (graph, symbols, fakes, training, settings), examples = torch.load(file, weights_only=True)
    examples = made(examples)
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


# Inputs of which only the kind is kept: sizes, and the distribution of the values.

LARGE_BYTES = 1 << 16
_DESCRIBED = "dynamo_lite described"


def described(examples: Sequence[Any]) -> list[Any]:
    """Plain data in place of tensors in large memory. What shares memory will do so again."""
    numbers: dict[int, int] = {}
    found: list[Any] = []
    for value in examples:
        if not isinstance(value, torch.Tensor) or value.untyped_storage().nbytes() <= LARGE_BYTES:
            found.append(value)
            continue
        storage = value.untyped_storage()
        number = numbers.setdefault(storage._cdata, len(numbers))
        place = (value.storage_offset(), list(value.shape), list(value.stride()))
        kind = (isinstance(value, torch.nn.Parameter), value.requires_grad)
        found.append(
            (
                _DESCRIBED,
                number,
                storage.nbytes(),
                str(value.device),
                value.dtype,
                tuple(Distribution.of(value)),
                place,
                kind,
            )
        )
    return found


def made(examples: Sequence[Any]) -> list[Any]:
    """The inputs again; those that were described have other values of the same distribution."""
    storages: dict[int, torch.UntypedStorage] = {}
    return [_made(value, storages) if type(value) is tuple else value for value in examples]


def _made(about: tuple[Any, ...], storages: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    _, number, size, device, dtype, values, (offset, sizes, strides), (is_parameter, requires_grad) = about
    if number not in storages:
        flat = torch.empty(size // dtype.itemsize, dtype=dtype, device=device)
        Distribution(*values).fill(flat)
        storages[number] = flat.untyped_storage()
    value = torch.empty(0, dtype=dtype, device=device).set_(storages[number], offset, sizes, strides)
    return torch.nn.Parameter(value, requires_grad) if is_parameter else value.requires_grad_(requires_grad)


# What a graph's results depend on besides its inputs.


def settings() -> dict[str, Any]:
    """The state of torch, of this thread and of the process, that the program has chosen."""
    found: dict[str, Any] = {
        "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "dtype": str(torch.get_default_dtype()).partition(".")[2],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "autocast": {
            device: str(torch.get_autocast_dtype(device)).partition(".")[2]
            for device in ("cpu", "cuda")
            if torch.is_autocast_enabled(device)
        },
    }
    return found


def apply(found: Mapping[str, Any]) -> None:
    """Have this process, which has nothing else to do, run under such settings."""
    torch.set_grad_enabled(found["gradients"])
    torch.set_num_threads(found["threads"])
    torch.set_default_dtype(getattr(torch, found["dtype"]))
    torch.use_deterministic_algorithms(found["deterministic"])
    torch.set_float32_matmul_precision(found["precision"])
    for device, dtype in found["autocast"].items():
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, getattr(torch, dtype))
