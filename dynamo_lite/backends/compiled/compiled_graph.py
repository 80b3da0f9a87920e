"""Inductor's compiled graph: what torch's records say of it, and a way to call it without the wrappers around it.

Input: the callable that `compile_fx` returned, or the innermost function of a graph. Output: the records; a callable on the flat inputs.
Invariant: only what is known through and through is called directly (`Refused` otherwise): graphs on the CPU and CUDA that neither record
gradients nor change, alias or add anything beside their results. For them AOTAutograd's wrappers and `CompiledFxGraph.__call__` have no
work but to switch gradients off and to tell the profiler, and take eight microseconds for it. Each field of torch's records is in one of
the tables here; one that is not is a reason to refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from dynamo_lite.backends.aot import BOXED
from dynamo_lite.exc import Refused

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
    "output_info": lambda outputs: all(_is_alone(info) and not info.dynamic_dims for info in outputs),
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


def _is_alone(info: Any) -> bool:
    """Whether a result shares no memory with something that AOTAutograd would make it of."""
    return info.output_type.name in ("non_alias", "unsafe_view_alias")


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


HERE = (
    {**RESULT, "guards_expr": ANY},
    {
        **METADATA,
        "output_info": lambda outputs: all(_is_alone(info) for info in outputs),
        "dynamic_outputs": ANY,  # tensors would be marked as dynamic, for torch.compile
    },
    {
        **GRAPH,
        "guards_expr": ANY,
        "constants": ANY,
        "device_types": lambda types: set(types) <= {"cpu", "cuda"},
        "device_idxs": ANY,
        "inputs_to_check": ANY,  # the callable aligns them
        "_triton_bundle": ANY,
    },
)
"""What is required of a graph that the process that has compiled it calls: it has the constants and the kernels, and is asked for no
guards."""


def records_of(compiled: Any, here: bool = False) -> tuple[Any, Any]:
    """AOTAutograd's metadata for the run, and Inductor's graph. `here`: it is to be called in this process only. Raises `Refused`."""
    of_result, of_metadata, of_graph = HERE if here else (RESULT, METADATA, GRAPH)
    serialize = getattr(compiled, "serialize", None)
    result = serialize() if serialize is not None else None
    if type(result).__name__ != "AOTAutogradResult":
        raise Refused("torch's own caches don't keep it")
    _require(result, of_result)
    _require(result.runtime_metadata, of_metadata)
    graph = _innermost(compiled)
    if type(graph).__name__ != "CompiledFxGraph":
        raise Refused(f"a graph compiled to {type(graph).__name__}")
    _require(graph, of_graph)
    return result.runtime_metadata, graph


def _innermost(compiled: Any) -> Any:
    """The callable inside all wrappers of AOTAutograd."""
    while type(compiled).__name__ != "CompiledFxGraph":
        inside = "__wrapped__" if isinstance(compiled, FunctionType) else "compiled_fn"
        if not hasattr(compiled, inside):
            break
        compiled = getattr(compiled, inside)
    return compiled


def label_of(graph: Any) -> str:
    """The name under which the profiler sees calls of the graph."""
    return f"## Call CompiledFxGraph {graph._fx_graph_cache_key} ##"


def called_directly(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A callable that does what `compiled` does; itself where that is not known. (`compiled.compiled` is what `compile_fx` returned.)"""
    wrapped = getattr(compiled, "compiled", compiled)
    try:
        metadata, graph = records_of(wrapped, here=True)
    except Refused:
        return compiled
    run = runner(graph.current_callable, len(metadata.output_info), label_of(graph), compiled)
    run.compiled = wrapped  # type: ignore[attr-defined]
    return run


def runner(
    call: Callable[[list[Any]], Any], count: int, label: str, under_torch: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """The wrapper that AOTAutograd and Inductor put around the graph: no gradients are recorded inside, and the profiler sees it.
    `under_torch`: what is called instead where torch.compile is active around the call, and would follow the code of the graph."""
    run = _runner(call, count, label, under_torch, is_boxed=False)
    BOXED[run] = _runner(call, count, label, under_torch, is_boxed=True)
    return run


def _runner(
    call: Callable[[list[Any]], Any], count: int, label: str, under_torch: Callable[..., Any] | None, is_boxed: bool
) -> Callable[..., Any]:
    """`is_boxed`: it takes a list of the inputs."""
    import torch
    from torch._C._dynamo.eval_frame import get_eval_frame_callback
    from torch.autograd import profiler

    is_grad_enabled, set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled

    def run(*args: Any) -> Any:
        if under_torch is not None and get_eval_frame_callback() is not None:
            return under_torch(*(args[0] if is_boxed else args))
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
