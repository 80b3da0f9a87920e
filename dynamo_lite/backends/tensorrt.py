"""The backend `tensorrt`: the graph exported and built into TensorRT engines by torch_tensorrt. For inference on CUDA.

Input: a graph as `registry` describes it. Output: a callable on the flat inputs. Parameters are constants of the engines, as in `freezing`;
with others the graph runs eagerly. torch_tensorrt itself divides the graph and leaves to torch what TensorRT can't take. Raises
NotImplementedError for graphs with gradients, those that write to their inputs, and those that take sizes as numbers.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .aot import FLOATS
from .freezing import freeze, written_inputs
from .options import refuse_unknown
from .requirements import Requirements

if TYPE_CHECKING:
    from torch.fx import GraphModule

OPTIONS = ("precision", "largest", "cache_dir", "min_operators")
PRECISIONS = ("float32", "float16", "bfloat16")
LARGEST = 4
"""A size that varies may grow to so many times its first value."""


def tensorrt(
    gm: GraphModule, example_inputs: list[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """`options`: "precision": "float16" or "bfloat16" let engines compute in these too; "largest": sizes that vary may grow by this factor
    (a larger one runs eagerly); "cache_dir": where engines are kept for later processes; "min_operators": smaller parts stay with torch."""
    import torch

    if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in example_inputs):
        raise NotImplementedError("gradients: this backend is for inference, under torch.no_grad()")
    if any(not isinstance(value, torch.Tensor) for value in example_inputs):
        raise NotImplementedError("sizes as numbers")
    if written_inputs(gm, example_inputs):
        raise NotImplementedError("the graph writes to its inputs")

    def build(bound: object, inputs: list[Any]) -> Callable[..., Any]:
        return compile_engines(bound, inputs, options or {})

    with torch.no_grad():
        return freeze(gm, example_inputs, build, lambda gm, _: gm.forward, even_without_parameters=True)


def validate(options: Mapping[str, Any] | None = None) -> None:
    """Check the arguments that the user gave to `compile`. Raises RuntimeError."""
    refuse_unknown("tensorrt", options, OPTIONS)
    options = options or {}
    if options.get("precision", "float32") not in PRECISIONS:
        raise RuntimeError(f"precision={options['precision']!r}: expected one of {', '.join(PRECISIONS)}")


def compile_engines(bound: Any, inputs: Sequence[Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """The callable that torch_tensorrt makes of a graph with its parameters as attributes. Raises what torch.export and torch_tensorrt
    raise."""
    import torch
    import torch_tensorrt

    fakes = [node.meta["example_value"] for node in bound.graph.find_nodes(op="placeholder")]
    factor = options.get("largest", LARGEST)
    with torch._guards.tracing(None):
        program = torch.export.export(bound, tuple(inputs), dynamic_shapes=tuple(map(_dimensions, fakes)))
        precisions = {torch.float32, getattr(torch, options.get("precision", "float32"))}
        settings: dict[str, Any] = {"enabled_precisions": precisions, "truncate_double": False}
        if "min_operators" in options:
            settings["min_block_size"] = options["min_operators"]
        if "cache_dir" in options:
            settings["cache_built_engines"] = settings["reuse_cached_engines"] = True
            settings["immutable_weights"] = False  # engines of these graphs are not kept
            settings["engine_cache_dir"] = str(pathlib.Path(options["cache_dir"]).expanduser())
        specified = [_specified(torch_tensorrt.Input, f, value, factor) for f, value in zip(fakes, inputs, strict=True)]
        return torch_tensorrt.dynamo.compile(program, inputs=specified, **settings)


def _dimensions(fake: Any) -> dict[int, Any]:
    """For torch.export: the dimensions that vary."""
    import torch

    return {d: torch.export.Dim.DYNAMIC for d, size in enumerate(fake.shape) if not isinstance(size, int)}


def _specified(kind: Any, fake: Any, value: Any, factor: int) -> Any:
    """For TensorRT: an input, and between which sizes it stays."""
    if all(isinstance(size, int) for size in fake.shape):
        return kind(shape=tuple(value.shape), dtype=value.dtype)
    ranges = [
        (n, n, n) if isinstance(s, int) else (2, n, n * factor) for s, n in zip(fake.shape, value.shape, strict=True)
    ]
    smallest, usual, largest = zip(*ranges, strict=True)
    return kind(min_shape=smallest, opt_shape=usual, max_shape=largest, dtype=value.dtype)


tensorrt.validate = validate
tensorrt.requirements = Requirements(
    frozenset({"cuda"}),
    modules=("torch_tensorrt",),
    distribution="torch-tensorrt",
    install="dynamo-lite[tensorrt]",
    isolate=True,
    assumes="parameters do not change through .data",
)
setattr(tensorrt, FLOATS, "tensors")
