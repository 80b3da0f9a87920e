"""The backend `openvino`: parts of the graph by OpenVINO's PyTorch frontend, on the CPU. For inference.

Input: a graph as `registry` describes it. Output: a callable on the flat inputs. Parameters are inputs of the models, so what the program
does to them is seen; or, under `freezing`, constants of the models. Raises NotImplementedError as `parts` does.
Invariant: whole numbers of 64 bits and doubles stay with torch: OpenVINO's CPU plugin computes them in 32 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .aot import FLOATS
from .parts import MIN_OPERATORS, PartCompiler, compile_parts, outputs_of, validator
from .requirements import Requirements, frozen

if TYPE_CHECKING:
    from torch.fx import GraphModule

DTYPES = frozenset({"float32", "float16", "bfloat16", "int32", "bool"})


def openvino(
    gm: GraphModule, example_inputs: list[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile the parts that OpenVINO can take. `options`: "min_operators": smaller parts stay with torch; "freezing": parameters are
    constants."""
    fewest = (options or {}).get("min_operators", MIN_OPERATORS)
    compiler = PartCompiler("openvino", compile_part, DTYPES, fewest, decompositions, True)
    return compile_parts(gm, example_inputs, compiler, options)


def freezing(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """`openvino` with parameters as constants."""
    return openvino(gm, example_inputs, options={"freezing": True})


def decompositions() -> Any:
    """The frontend's own list, and batch normalisation in training, which it takes for that of evaluation."""
    import torch
    from openvino.frontend.pytorch.torchdynamo.export_decompositions import get_export_decomposition_list
    from torch._decomp import get_decompositions

    return get_decompositions([*get_export_decomposition_list(), torch.ops.aten._native_batch_norm_legit_functional])


def compile_part(
    part: object, inputs: list[Any], constants: Mapping[int, Any] | None = None
) -> Callable[..., Sequence[Any]]:
    """A model for a functional ATen graph. Raises the errors of OpenVINO."""
    import torch
    from openvino import PartialShape, Type
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder
    from openvino.op import Constant
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    frontend = FrontEndManager().load_by_framework("pytorch")
    with torch._guards.tracing(None):
        # The decoder has to live until the end of the conversion.
        decoder = TorchFXPythonDecoder(_with_contiguous_inputs(part), dynamic_shapes=True)
        model = frontend.convert(frontend.load(decoder))
    for given, fake in zip(model.inputs, inputs, strict=True):
        is_tensor = isinstance(fake, torch.Tensor)
        given.get_node().set_element_type(_element_type(fake.dtype) if is_tensor else Type.i64)
        sizes = [size if isinstance(size, int) else -1 for size in fake.shape] if is_tensor else []
        given.get_node().set_partial_shape(PartialShape(sizes))
    parameters = [given.get_node() for given in model.inputs]
    for i, value in (constants or {}).items():
        with unset_fake_temporarily():
            constant = Constant(_view(value))
        parameters[i].output(0).replace(constant.output(0))
        model.remove_parameter(parameters[i])
    model.validate_nodes_and_infer_types()
    # Exactly float32, and never more threads than torch has: the plugin would take bfloat16 where the processor is faster with it.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    return Model(_core().compile_model(model, "CPU", settings), outputs_of(part))


def _with_contiguous_inputs(part: Any) -> Any:
    """A copy of the graph for the frontend, which would expect data in the order of the inputs' strides; `Model` hands it contiguous."""
    import torch

    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(part.graph, {}))
    for node in graph.find_nodes(op="placeholder"):
        if isinstance(node.meta["val"], torch.Tensor):
            node.meta = {"val": node.meta["val"].contiguous()}
    return torch.fx.GraphModule(part, graph)


@functools.cache
def _core() -> Any:
    from openvino import Core

    return Core()


def _element_type(dtype: object) -> Any:
    from openvino import Type

    kind = {
        "float32": Type.f32,
        "float16": Type.f16,
        "bfloat16": Type.bf16,
        "int32": Type.i32,
        "int64": Type.i64,
        "bool": Type.boolean,
    }
    return kind[str(dtype).partition(".")[2]]


class Model:
    """A compiled model, called with tensors and ints; `outputs` are fakes. Calls at the same time have requests of their own."""

    def __init__(self, compiled: Any, outputs: Sequence[Any]) -> None:
        import torch

        self.compiled = compiled
        self.dtypes = [v.dtype if isinstance(v, torch.Tensor) else None for v in outputs]
        self.shapes = [_fixed(v) for v in outputs]
        self.idle: list[Any] = []

    def __call__(self, *inputs: Any) -> list[Any]:
        import torch

        request = self.idle.pop() if self.idle else self.compiled.create_infer_request()
        given = [_plain(value) for value in inputs]  # OpenVINO does not hold the memory
        for i, value in enumerate(given):
            request.set_input_tensor(i, _view(value))
        results = []
        for i, (shape, dtype) in enumerate(zip(self.shapes, self.dtypes, strict=True)):
            results.append(torch.empty(shape, dtype=dtype) if shape is not None else None)
            if shape is not None:
                request.set_output_tensor(i, _view(results[i]))
        request.infer()
        for i, dtype in enumerate(self.dtypes):
            if results[i] is None:
                results[i] = _copy(request.get_output_tensor(i), dtype)
        self.idle.append(request)
        return results


def _plain(value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return torch.tensor(value, dtype=torch.int64)
    return value.detach().contiguous().resolve_neg()


def _fixed(value: Any) -> tuple[int, ...] | None:
    """The sizes of an output that has always the same ones."""
    import torch

    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
        return None
    return tuple(value.shape)


def _view(value: Any) -> Any:
    """OpenVINO's tensor over the memory of one of torch's. numpy has no bfloat16: the bits go as whole numbers."""
    import torch
    from openvino import Shape, Tensor, Type

    if value.dtype is torch.bfloat16:
        return Tensor(value.view(torch.int16).numpy(), Shape(list(value.shape)), Type.bf16)
    return Tensor(value.numpy(), shared_memory=True)


def _copy(found: Any, dtype: object) -> Any:
    import torch

    if dtype is None:
        return int(found.data)
    result = torch.empty(tuple(found.shape), dtype=dtype)
    found.copy_to(_view(result))
    return result


openvino.validate = validator("openvino")
openvino.requirements = Requirements(
    frozenset({"cpu"}),
    modules=("openvino",),
    distribution="openvino",
    install="dynamo-lite[openvino]",
    isolate=True,
)
freezing.requirements = frozen(openvino.requirements)
for _backend in (openvino, freezing):
    setattr(_backend, FLOATS, "tensors")
