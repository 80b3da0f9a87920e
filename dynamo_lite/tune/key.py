"""The name of a graph in the store: equal for graphs, inputs and machines for which the same backend is the fastest.

Input: a graph, its real inputs. Output: a hexadecimal digest of: operators and how they are connected (not the names of nodes),
constants, subgraphs; per input its dtype, device, layout, sizes (symbolic ones to the next power of two) and whether gradients are wanted;
name of the device and number of threads; versions of what compiles.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch

from dynamo_lite import __version__
from dynamo_lite.backends.compiled.artifact import processor
from dynamo_lite.graph.serialized import versions


def graph_key(gm: torch.fx.GraphModule, examples: Sequence[Any], training: bool) -> str:
    """64 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in (*_environment(), str(torch.get_num_threads()), str(training), *map(_input, examples), *_graph(gm)):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


@cache
def _environment() -> tuple[str, ...]:
    python = ".".join(map(str, sys.version_info[:2]))
    return (__version__, python, platform.machine(), processor(), repr(sorted(versions().items())))


def _input(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {_bucket(value) if type(value) is int else ''}"
    sizes = "x".join(str(_bucket(size) if size > 64 else size) for size in value.shape)
    return f"{type(value).__name__} {value.dtype} {value.device} {value.layout} {sizes} {value.is_contiguous()} {value.requires_grad}"


def _bucket(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()


def _graph(gm: torch.fx.GraphModule) -> Iterator[str]:
    number = {node: f"%{i}" for i, node in enumerate(gm.graph.nodes)}
    for node in gm.graph.nodes:
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: _Named(number[n]))
        yield f"{node.op} {_target(gm, node)} {arguments!r}" if node.op != "placeholder" else "placeholder"


class _Named:
    """A node in the text of another's arguments."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _target(gm: torch.fx.GraphModule, node: torch.fx.Node) -> str:
    if node.op in ("get_attr", "call_module"):
        value = gm
        for name in node.target.split("."):
            value = getattr(value, name)
        if isinstance(value, torch.fx.GraphModule):
            return " ".join(_graph(value))
        return _input(value) if isinstance(value, torch.Tensor) else type(value).__qualname__
    if isinstance(node.target, str):
        return node.target
    module = getattr(node.target, "__module__", "")
    return f"{module}.{getattr(node.target, '__qualname__', None) or node.target}"
