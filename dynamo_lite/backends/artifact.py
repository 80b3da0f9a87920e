"""Graphs compiled by Inductor, as plain data and back, without Inductor.

Input: the callable that `compile_fx` returned, and the settings under which it did. Output: data for `marshal`; in another process a
callable on the flat inputs, while torch's compilers are not even imported: that import is most of what their caches leave of a warm start.
Invariant: only what is known through and through is written (`Refused` otherwise, and torch's own caches do the work): graphs on the CPU
that neither record gradients nor change, alias or add anything beside their results, made of C++ kernels and functions of torch. Each
field of torch's own records of a compiled graph is in one of the tables here; one that is not is a reason to refuse.

Data may be used where `settings` is the same. It holds what the key of torch's own caches holds beside the graph and its inputs, which the
guards compare: the settings of the compilers, the variables of the environment that they read, torch's global flags, the processor.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any

from dynamo_lite.exc import Mismatch, Refused

from .aot import BOXED
from .generated import Generated, alias_of, resolved

# ----------------------------------------------------------------------------------------------------------------------
# Settings.

CONFIGS = tuple(
    f"torch.{name}"
    for name in """
    _inductor.config _inductor.config_comms _functorch.config _dynamo.config fx.experimental._config compiler.config
    """.split()
)
"""Modules with settings of torch's compilers."""

VARIABLES = tuple(
    """
    TORCH PYTORCH PT2 INDUCTOR AOT TRITON TVM HALIDE CUTLASS CUTEDSL CUDA CUBLAS CUDNN ROCM HIP ATEN MKL DNNL ONEDNN ONEAPI OMP KMP GOMP CXX
    CC= CPATH CPLUS C_INCLUDE FX_ FAKE_ TENSORIFY PARTITIONER ENABLE_ UNSAFE_ ROLE_RANK _SPLITTER
    """.split()
)
"""The beginnings of the names of environment variables that torch's compilers read."""

WITHOUT_EFFECT = frozenset({"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"})
"""Where files lie; Inductor sets these itself."""

FLAGS = tuple(
    """
    cuda.matmul.fp32_precision cuda.matmul.allow_tf32 cuda.matmul.allow_fp16_reduced_precision_reduction
    cuda.matmul.allow_bf16_reduced_precision_reduction mkldnn.enabled mkldnn.deterministic mkldnn.matmul.fp32_precision
    mkldnn.conv.fp32_precision mkldnn.rnn.fp32_precision
    """.split()
)
"""Flags of `torch.backends` that decide which code is made."""

PLAIN = (str, int, float, bool, type(None))


def settings(mode: str | None = None, options: Mapping[str, Any] | None = None) -> list[Any] | None:
    """All settings on which Inductor's code depends; None if they can't be listed."""
    import torch

    options = dict(options or {})
    environment = _environment()
    if environment is None or not _are_default() or not all(type(value) in PLAIN for value in options.values()):
        return None
    if torch._C._is_any_autocast_enabled():  # AOTAutograd switches it off around compiled graphs
        return None
    return [mode, sorted(options.items()), environment, _flags(), processor()]


def _environment() -> dict[str, str] | None:
    """The variables that torch's compilers have read, or will; None if they have been changed since they may have been read."""
    now = _of_interest(os.environ)
    if CONFIGS[0] not in sys.modules:
        return now
    try:
        with open("/proc/self/environ", "rb") as file:  # as the process began
            first = dict(os.fsdecode(item).partition("=")[::2] for item in file.read().split(b"\0") if item)
    except OSError:
        return None
    return now if _of_interest(first) == now else None


def _of_interest(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(variables.items())
        if f"{name}=".startswith(VARIABLES) and name not in WITHOUT_EFFECT
    }


def _are_default() -> bool:
    """Whether nobody has changed the compilers' settings: nobody can have who has not loaded them."""
    modules = [sys.modules[name] for name in CONFIGS if name in sys.modules]
    return all(
        module._is_default(setting)
        or getattr(module, setting) == module._config[setting].default  # set, to its default
        for module in modules
        for setting in module._config
    )


def _flags() -> list[Any]:
    import torch

    found: list[Any] = [
        torch.get_num_threads(),
        str(torch.get_default_dtype()),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.get_float32_matmul_precision(),
    ]
    for path in FLAGS:
        found.append(str(functools.reduce(lambda at, name: getattr(at, name, None), path.split("."), torch.backends)))
    return found


@functools.cache
def processor() -> str:
    """The kind of processor: kernels are compiled for exactly this one."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = []
            for line in file:
                if not line.strip():
                    break  # the others are alike
                if line.partition(":")[0].strip() in ("model name", "flags", "Features", "CPU part", "isa"):
                    lines.append(line)
    except OSError:
        lines = []
    return "".join(lines) or platform.processor()


# ----------------------------------------------------------------------------------------------------------------------
# Writing.

ANY = object()


def _no(value: object) -> bool:
    """Nothing of it."""
    return value is None or value is False or (hasattr(value, "__len__") and not len(value)) or value == 0


RESULT: dict[str, Any] = {
    "compiled_fw": ANY,
    "compiled_bw": None,
    "aot_joint_graph_str": ANY,
    "aot_forward_graph_str": ANY,
    "aot_backward_graph_str": ANY,
    "min_cut_info_str": ANY,
    "runtime_metadata": ANY,
    "dispatch_wrappers": lambda wrappers: all(
        getattr(wrapper, "needs_post_compile", True) is False for wrapper in wrappers
    ),
    "maybe_subclass_meta": None,
    "num_fw_outs_saved_for_bw": None,
    "indices_of_inps_to_detach": _no,
    "forward_time_taken_ns": ANY,
    "backward_time_taken_ns": ANY,
    "sanitized_aot_config": ANY,
    "guards_expr": _no,
    "serialized_bw_module": None,
}
"""Fields of AOTAutograd's result → the required value, or a function that decides."""

UNCHANGED = ("mutates_data", "mutates_metadata", "mutates_storage_metadata", "mutation_inductor_storage_resize")

METADATA: dict[str, Any] = {
    "input_info": lambda inputs: not any(getattr(info, name) for info in inputs for name in UNCHANGED),
    "output_info": lambda outputs: all(_is_own(info) for info in outputs),
    "num_intermediate_bases": 0,
    "keep_input_mutations": ANY,
    "traced_tangents": ANY,
    "traced_tangents_descs": ANY,
    "subclass_inp_meta": lambda metas: _are_numbered(metas),
    "subclass_fw_graph_out_meta": lambda metas: _are_numbered(metas),
    "subclass_tangent_meta": ANY,
    "is_train": False,
    "traced_tangent_metas": ANY,
    "num_symints_saved_for_bw": ANY,
    "num_tensors_saved_with_no_vc_check": ANY,
    "num_opaque_objects_saved_for_bw": ANY,
    "grad_enabled_mutation": None,
    "deterministic": ANY,
    "static_input_indices": ANY,
    "act_input_indices": _no,
    "tokens": _no,
    "indices_of_inputs_that_requires_grad_with_mutations_in_bw": ANY,
    "bw_donated_idxs": ANY,
    "num_backward_tokens": 0,
    "num_graphsafe_rng_states": 0,
    "graphsafe_rng_state_index": None,
    "graphsafe_rng_device": None,
    "mutated_inp_stream_indices": _no,
    "compile_id_str": ANY,
    "tangent_source_stack_traces": ANY,
    # Computed from the others.
    "mutated_graph_handled_indices": _no,
    "mutated_inp_runtime_indices": _no,
    "num_outputs_aliased": 0,
    "dynamic_outputs": False,
    "is_rng_op_functionalized": False,
}
"""Fields of AOTAutograd's metadata for the run."""

GRAPH: dict[str, Any] = {
    "_fx_graph_cache_key": ANY,
    "_fx_graph_cache_debug_lines": ANY,
    "_time_taken_ns": ANY,
    "current_callable": ANY,
    "recursively_apply_fns": ANY,
    "compiled_fn_runner": ANY,
    "cache_key": ANY,
    "source_code": ANY,
    "runnable_graph_str": ANY,
    "inductor_post_grad_graph_str": ANY,
    "cache_linemap": ANY,
    "device_types": lambda types: set(types) == {"cpu"},
    "device_idxs": _no,
    "mutated_inputs": _no,
    "mutated_input_idxs": _no,
    "constants": _no,
    "frozen_param_names": _no,
    "torchbind_constants": _no,
    "opaque_value_type_classes": _no,
    "output_strides": ANY,
    "disabled_cudagraphs_reason": ANY,
    "metrics_deltas": ANY,
    "counter_deltas": ANY,
    "guards_expr": _no,
    "extern_libs_key": _no,
    "inductor_provenance_mapping_str": ANY,
    "inductor_provenance_stack_traces_str": ANY,
    "cudagraph_info": None,
    "partition_maps": _no,
    "compile_region_name": ANY,
    "fx_kwargs": lambda kwargs: (
        not (kwargs["is_backward"] or kwargs["cpp_wrapper"] or kwargs["cudagraphs"]) and kwargs["is_inference"]
    ),
    "inputs_to_check": _no,
    "_boxed_call": True,
    "_triton_bundle": lambda bundle: bundle is None or not any(bundle.__dict__.values()),
    "_wrap_compiled_regions": False,
    "_defers_input_alignment": ANY,
    "_compile_context": None,
    "_original_gm": None,
    "_serialized_original_gm": None,
}
"""Fields of Inductor's compiled graph."""


def _is_own(info: Any) -> bool:
    """Whether a result shares no memory with something that AOTAutograd would make it of."""
    return info.output_type.name in ("non_alias", "unsafe_view_alias") and not info.dynamic_dims


def _are_numbered(metas: Any) -> bool:
    """Whether the tensors are plain ones, each of which stands for itself."""
    return all(getattr(meta, "unwrapped_idx", meta) == number for number, meta in enumerate(metas))


def _require(thing: Any, fields: dict[str, Any]) -> None:
    unknown = set(thing.__dataclass_fields__) - set(fields)
    if unknown:
        raise Refused(f"{type(thing).__name__} with {', '.join(sorted(unknown))}")
    for name, wanted in fields.items():
        if wanted is ANY or not hasattr(thing, name):
            continue
        value = getattr(thing, name)
        if not (wanted(value) if callable(wanted) else value is wanted or value == wanted):
            raise Refused(f"{type(thing).__name__}.{name}")


def write(compiled: object) -> dict[str, Any]:
    """The data of what `compile_fx` returned. Raises `Refused`."""
    serialize = getattr(compiled, "serialize", None)
    result = serialize() if serialize is not None else None
    if type(result).__name__ != "AOTAutogradResult":
        raise Refused("torch's own caches don't keep it")
    _require(result, RESULT)
    _require(result.runtime_metadata, METADATA)
    graph = _innermost(compiled)
    if type(graph).__name__ != "CompiledFxGraph":
        raise Refused(f"a graph compiled to {type(graph).__name__}")
    _require(graph, GRAPH)
    code = Generated(graph.source_code)
    names = graph.current_callable.__func__.__globals__
    return {
        "code": code.compile(f"<inductor {graph.cache_key}>"),
        "kernels": [(name, _library(names[name])) for name in code.kernels],
        "extern": [(name, alias_of(names["extern_kernels"], name)) for name in code.extern],
        "chains": code.chains,
        "outputs": len(result.runtime_metadata.output_info),
        "label": f"## Call CompiledFxGraph {graph._fx_graph_cache_key} ##",
    }


def _innermost(compiled: Any) -> Any:
    """The callable inside all wrappers of AOTAutograd."""
    while type(compiled).__name__ != "CompiledFxGraph":
        inside = "__wrapped__" if isinstance(compiled, FunctionType) else "compiled_fn"
        if not hasattr(compiled, inside):
            break
        compiled = getattr(compiled, inside)
    return compiled


def _library(kernel: Any) -> bytes:
    """The shared library of a kernel."""
    path = getattr(getattr(kernel, "__self__", None), "__file__", None)
    if type(kernel) is not BuiltinFunctionType or kernel.__name__ != ENTRY or not path:
        raise Refused(f"a kernel that is {kernel!r}")
    with open(path, "rb") as file:
        return file.read()


# ----------------------------------------------------------------------------------------------------------------------
# Reading.

ENTRY = "kernel"
ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"


def read(data: dict[str, Any], library: Callable[[bytes], str]) -> Callable[..., Any]:
    """The callable again; `library` puts a shared library into a file. Raises `Mismatch`, and OSError."""
    import torch

    os.environ[ADDRESS] = str(torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr)  # the kernels ask for it
    names: dict[str, Any] = {"__name__": __name__, "torch": torch}
    for name, contents in data["kernels"]:
        names[name] = _kernel(library(contents))
    extern = {name: resolved(torch, path) for name, path in data["extern"]}
    if extern:
        names["extern_kernels"] = SimpleNamespace(**extern)
    for path in data["chains"]:
        resolved(torch, path)
    exec(data["code"], names)
    runner = _runner(names["call"], data["outputs"], data["label"])
    BOXED[runner] = _runner(names["call"], data["outputs"], data["label"], is_boxed=True)
    return runner


def _kernel(path: str) -> Callable[..., Any]:
    name = f"{os.path.splitext(os.path.basename(path))[0]}.{ENTRY}"
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    try:
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        loader.exec_module(module)
        return getattr(module, ENTRY)
    except (ImportError, AttributeError) as error:
        raise Mismatch(f"a kernel that can't be loaded: {error}") from error


def _runner(call: Callable[[list[Any]], Any], count: int, label: str, is_boxed: bool = False) -> Callable[..., Any]:
    """The wrapper that AOTAutograd and Inductor put around the graph: no gradients are recorded inside, and the profiler sees it.
    `is_boxed`: it takes a list of the inputs."""
    import torch
    from torch.autograd import profiler

    is_grad_enabled, set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled

    def run(*args: Any) -> Any:
        enabled = is_grad_enabled()
        if enabled:
            set_grad_enabled(False)
        try:
            if profiler._is_profiler_enabled:
                with torch._C._profiler._RecordFunctionFast(label, keyword_values={"scope": "user_scope"}):
                    results = call(args[0] if is_boxed else [*args])
            else:
                results = call(args[0] if is_boxed else [*args])
        finally:
            if enabled:
                set_grad_enabled(True)
        if len(results) != count:
            raise AssertionError(f"expected {count} outputs, got {len(results)}")
        return results

    return run
