"""The backend `onnxruntime`: parts of the graph by torch's ONNX exporter and ONNX Runtime. For inference.

Input: a graph as `registry` describes it. Output: a callable on the flat inputs. Parameters are inputs of the sessions, so what the program
does to them is seen; or, under `freezing`, initialisers of the models. Data goes in and out by reference (DLPack and IO binding). Raises
NotImplementedError as `parts` does.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_lite.messages import ignored

from .aot import FLOATS
from .parts import MIN_OPERATORS, PartCompiler, compile_parts, outputs_of, validator
from .requirements import Requirements, frozen

if TYPE_CHECKING:
    from torch.fx import GraphModule

ELEMENT_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "bfloat16": 16,
}
"""Name of a dtype → its number in ONNX (`TensorProto.DataType`)."""


def onnxruntime(
    gm: GraphModule, example_inputs: list[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile the parts that ONNX Runtime can take. `options`: "min_operators": smaller parts stay with torch; "freezing": parameters are
    constants."""
    fewest = (options or {}).get("min_operators", MIN_OPERATORS)
    compiler = PartCompiler("onnxruntime", compile_part, frozenset(ELEMENT_TYPES), fewest, decompositions, True)
    return compile_parts(gm, example_inputs, compiler, options)


def freezing(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """`onnxruntime` with parameters as constants."""
    return onnxruntime(gm, example_inputs, options={"freezing": True})


def decompositions() -> Any:
    """torch's exporter takes batch normalisation in training for that of evaluation."""
    import torch
    from torch._decomp import get_decompositions

    return get_decompositions([torch.ops.aten._native_batch_norm_legit_functional])


def compile_part(
    part: object, inputs: list[Any], constants: Mapping[int, Any] | None = None
) -> Callable[..., Sequence[Any]]:
    """A session for a functional ATen graph. Raises the errors of the exporter and of ONNX Runtime."""
    import torch

    constants = constants or {}
    with torch._guards.tracing(None), _quiet():
        program = torch.onnx.export(exported(part), dynamo=True, optimize=True, verbose=False)
    model = program.model_proto
    if len(model.graph.input) != len(inputs):
        raise NotImplementedError("the model has other inputs than the graph")
    for i in sorted(constants, reverse=True):
        model.graph.initializer.append(_initializer(model.graph.input[i].name, constants[i]))
        del model.graph.input[i]
    given = [fake for i, fake in enumerate(inputs) if i not in constants]
    return Session(model.SerializeToString(), given, outputs_of(part))


def _initializer(name: str, value: Any) -> Any:
    import onnx
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        data = value.cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    kind = ELEMENT_TYPES[str(value.dtype).partition(".")[2]]
    return onnx.helper.make_tensor(name, kind, list(value.shape), data, raw=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's log: it raises errors for graphs that it can't export."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with ignored():
            yield
    finally:
        logger.setLevel(level)


def exported(part: Any) -> Any:
    """A graph with all its inputs as the exporter wants it. It is a copy: the exporter rewrites its input."""
    import torch
    from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
    from torch.export.graph_signature import (
        ExportGraphSignature,
        InputKind,
        InputSpec,
        OutputKind,
        OutputSpec,
        SymIntArgument,
        TensorArgument,
    )
    from torch.utils import _pytree as pytree

    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(part.graph, {}))
    module = torch.fx.GraphModule(part, graph)

    def argument(node: Any) -> Any:
        return (TensorArgument if isinstance(node.meta["val"], torch.Tensor) else SymIntArgument)(node.name)

    ends = graph.output_node().args[0]
    ins = [InputSpec(InputKind.USER_INPUT, argument(n), None) for n in graph.find_nodes(op="placeholder")]
    outs = [OutputSpec(OutputKind.USER_OUTPUT, argument(n), None) for n in ends]
    arguments = pytree.tree_structure(((0,) * len(ins), {}))
    call = ModuleCallSignature([], [], arguments, pytree.tree_structure((0,) * len(outs)))
    return ExportedProgram(module, graph, ExportGraphSignature(ins, outs), {}, {}, [ModuleCallEntry("", call)])


class Session:
    """An ONNX model, called with tensors and ints; `inputs` and `outputs` are fakes."""

    def __init__(self, model: bytes, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        import onnxruntime as ort
        import torch

        device = next((v.device for v in inputs if isinstance(v, torch.Tensor) and v.device.type != "cpu"), None)
        device = device or next((v.device for v in outputs if isinstance(v, torch.Tensor)), torch.device("cpu"))
        settings = ort.SessionOptions()
        settings.log_severity_level = 4
        settings.intra_op_num_threads = torch.get_num_threads()
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # torch's threads want the cores
        self.session = ort.InferenceSession(model, settings, providers=providers(device))
        self.device = device
        self.names = [i.name for i in self.session.get_inputs()]
        self.results = [o.name for o in self.session.get_outputs()]
        if len(self.names) != len(inputs) or len(self.results) != len(outputs):
            raise NotImplementedError("the model has other inputs than the graph")
        self.dtypes = [v.dtype if isinstance(v, torch.Tensor) else None for v in outputs]

    def __call__(self, *inputs: Any) -> list[Any]:
        import torch

        binding = self.session.io_binding()
        kept = [self._give(binding, name, value) for name, value in zip(self.names, inputs, strict=True)]
        index = self.device.index or 0
        for name in self.results:
            binding.bind_output(name, self.device.type, index)
        if self.device.type != "cpu":
            torch.cuda.current_stream(self.device).synchronize()  # ONNX Runtime has a stream of its own
        self.session.run_with_iobinding(binding)
        del kept
        return [_take(v, dtype) for v, dtype in zip(binding.get_outputs(), self.dtypes, strict=True)]

    def _give(self, binding: Any, name: str, value: Any) -> Any:
        """Bind an input; the result owns its memory."""
        import torch

        if not isinstance(value, torch.Tensor):
            value = torch.tensor(value, dtype=torch.int64)
        value = value.detach().contiguous().resolve_conj().resolve_neg()
        kind = ELEMENT_TYPES[str(value.dtype).partition(".")[2]]
        binding.bind_input(name, value.device.type, value.device.index or 0, kind, value.shape, value.data_ptr())
        return value


def _take(value: object, dtype: object) -> Any:
    import torch

    found = torch.from_dlpack(value)
    if dtype is None:
        return int(found)
    return found.view(torch.bool) if dtype is torch.bool and found.dtype is torch.uint8 else found


def providers(device: Any) -> list[Any]:
    """The execution providers of ONNX Runtime for a device of torch's. Raises NotImplementedError if the installed one can't."""
    import onnxruntime as ort

    if device.type == "cpu":
        return ["CPUExecutionProvider"]
    if device.type != "cuda" or "CUDAExecutionProvider" not in ort.get_available_providers():
        raise NotImplementedError(f"this ONNX Runtime has no provider for {device.type}; install onnxruntime-gpu")
    return [("CUDAExecutionProvider", {"device_id": device.index or 0}), "CPUExecutionProvider"]


onnxruntime.validate = validator("onnxruntime")
onnxruntime.requirements = Requirements(
    modules=("onnxruntime", "onnx", "onnxscript"),
    distribution="onnxruntime",
    install="dynamo-lite[onnxruntime]; for CUDA onnxruntime-gpu in place of onnxruntime",
    isolate=True,
    cuda_distribution="onnxruntime-gpu",
)
freezing.requirements = frozen(onnxruntime.requirements)
for _backend in (onnxruntime, freezing):
    setattr(_backend, FLOATS, "tensors")
