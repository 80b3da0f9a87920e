"""The backend `inductor`: torch's kernel compiler, through its own entry point `compile_fx`.

Input: a graph as `registry` describes it, `mode` and `options` as `torch.compile` has them. Output: a callable on the
flat inputs.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dynamo_lite.config import config as frontend_config
from dynamo_lite.data_stack import with_room
from dynamo_lite.exc import brief
from dynamo_lite.messages import near_names, warn_user
from dynamo_lite.record import GRAPH_RECORD
from dynamo_lite.signals import let_through

from .aot import BOXED, FLOATS, FUSES_BRANCHES, WRAPS_INTS, boxed_forward, call_with_fakes, load_compiler, run_graph
from .compiled import artifact, data_graphs, kernels, vec_isa
from .compiled.compiled_graph import called_directly
from .freezing import freeze
from .handed import copy_of
from .regions import SEGMENTED, Segmented, compile_regions
from .regions.aten import compile_aten_regions
from .requirements import Requirements, frozen
from .rewrites import cached_guards, pattern_keywords
from .rewrites.patches import Patches
from .rewrites.pooling import count_windows_right
from .rewrites.split_cat import copy_wholes
from .rewrites.unbinding import select_pieces
from .undefined_gradients import UNDEFINED

if TYPE_CHECKING:
    from torch.fx import GraphModule

CACHE_TAG = "dynamo_lite 5"
"""To be counted up where graphs are rewritten in another way."""


def own_keys() -> contextlib.AbstractContextManager[None]:
    """torch's caches on disk keep what this thread compiles apart from what torch.compile has made of an equal graph."""
    from torch.compiler import config

    tag = config.cache_key_tag
    kept: contextlib.AbstractContextManager[None] = config.patch(cache_key_tag=tag.removesuffix(CACHE_TAG) + CACHE_TAG)
    return kept


COMPILING = Patches(
    kernels.substitutes,
    vec_isa.substitutes,
    data_graphs.substitutes,
    cached_guards.substitutes,
    pattern_keywords.substitutes,
)
"""Around what Inductor compiles: the same kernels, sooner, and what it would do wrongly."""

MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def inductor(
    gm: GraphModule,
    example_inputs: list[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    regions: bool | str | None = None,
) -> Callable[..., Any]:
    """Compile the graph and, when it is first needed, its backward. `regions`: instead of `config.compile_regions`. Raises RuntimeError for
    options that Inductor does not know.
    """
    compile_fx = load_compiler("torch._inductor.compile_fx").compile_fx
    compile_lock = _lock_of_late_passes()
    from torch._inductor import config

    patches = config_patches(mode, options)

    def compile_with(freezing: bool) -> Callable[[Any, list[Any]], Callable[..., Any]]:
        settings = {**patches, "freezing": freezing}

        def compile_graph(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
            def compile_copy(graph: object, fakes: list[Any]) -> Callable[..., Any]:
                count_windows_right(graph)
                select_pieces(graph)
                from_data = data_graphs.depends_on_data(gm, fakes)
                inner = data_graphs.compile_around() if from_data else _in_regions(gm)
                rules = data_graphs.decompositions() if from_data else None
                # A backward pass is compiled when it is needed.
                inner = partial(
                    with_room, _or_run_the_backward_pass(COMPILING(_rewritten(inner)), gm, warns=not from_data)
                )
                with compile_lock, COMPILING, own_keys():
                    compiled = compile_fx(
                        graph, fakes, config_patches=settings, inner_compile=inner, decompositions=rules
                    )
                return called_directly(without_disable(compiled))

            return call_with_fakes(compile_copy, gm, example_inputs)

        return compile_graph

    if patches.get("freezing", config.freezing):
        return freeze(gm, example_inputs, compile_with(True), compile_with(False))
    if patches.get("triton.cudagraphs", config.triton.cudagraphs):  # the copies of a region have no addresses in common
        return compile_with(False)(gm, example_inputs)
    if regions is None and mode is not None and mode.startswith("max-autotune"):
        regions = False  # speed is all that counts
    return compile_regions(gm, example_inputs, compile_with(False), regions)


def _or_run_the_backward_pass(
    compile_one: Callable[..., Any], captured: GraphModule, warns: bool
) -> Callable[..., Any]:
    """A backward pass that can't be compiled runs operator by operator: the forward pass has run, and nobody would make another."""

    def compile_or_run(graph: GraphModule, inputs: list[Any], **settings: Any) -> Callable[..., Any]:
        if not (settings.get("is_backward") and frontend_config.suppress_errors):
            return compile_one(graph, inputs, **settings)
        unchanged = copy_of(graph)  # the compiler changes the one that it gets
        try:
            return compile_one(graph, inputs, **settings)
        except Exception as error:
            let_through(error)
            if _draws_again(unchanged):
                raise
            if GRAPH_RECORD in captured.meta:
                captured.meta[GRAPH_RECORD].notes["backward pass not compiled"] = [str(error).partition("\n")[0]]
            if warns:
                warn_user(f"backend 'inductor' failed in the backward pass, which runs eagerly: {brief(error)}")
            return run_graph(unchanged, inputs)

    return compile_or_run


def _draws_again(graph: GraphModule) -> bool:
    """Whether a backward pass computes random numbers of the forward pass again from their seeds, which only Inductor's kernels look at."""
    return any(
        "inductor_rand" in str(node.target) or "inductor_lookup_seed" in str(node.target) for node in graph.graph.nodes
    )


@cache
def _lock_of_late_passes() -> Any:
    """Torch's lock, which a backward pass that is compiled later holds. A forked child has no thread that could release it."""
    from torch._dynamo.convert_frame import compile_lock

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=getattr(compile_lock, "_at_fork_reinit"))  # noqa: B009 (typeshed lacks it)
    return compile_lock


def _rewritten(compile_one: Callable[..., Any]) -> Callable[..., Any]:
    def compile_rewritten(graph: GraphModule, inputs: list[Any], **settings: Any) -> Callable[..., Any]:
        copy_wholes(graph)
        with own_keys():
            return compile_one(graph, inputs, **settings)

    return compile_rewritten


def _in_regions(captured: GraphModule) -> Callable[..., Any]:
    """Inductor's compiler of one ATen graph, which compiles large equal regions once."""
    from torch._inductor.compile_fx import compile_fx_inner

    def compile_one(graph: GraphModule, inputs: list[Any], **settings: Any) -> Callable[..., Any]:
        return compile_aten_regions(graph, inputs, compile_fx_inner, captured, **settings)

    return compile_one


def without_disable(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Call the function inside of `torch._dynamo.disable` directly. `compile_fx` puts that wrapper around its result for callers under
    torch.compile; for all others it costs 4,000 instructions per call.
    """
    from torch._C._dynamo.eval_frame import get_eval_frame_callback

    inside = getattr(compiled, "_torchdynamo_orig_callable", None)
    if inside is None or not getattr(compiled, "_torchdynamo_disable", False):
        return compiled

    def call(*args: Any) -> Any:
        return inside(*args) if get_eval_frame_callback() is None else compiled(*args)

    def call_boxed(inputs: list[Any]) -> Any:
        return inner(inputs) if get_eval_frame_callback() is None else compiled(*inputs)

    inner = boxed_forward(inside)
    if inner is not None:
        BOXED[call] = call_boxed
    call.compiled = compiled  # type: ignore[attr-defined]
    return call


class InductorArtifacts:
    """How a later process gets the compiled graphs of this backend; see `artifact`."""

    name = "inductor"

    @staticmethod
    def settings(regions: bool | str | None = None, **options: Any) -> list[Any] | None:
        """All settings on which the code depends; None if they can't be listed."""
        settings = artifact.settings(**options)
        return (
            None if settings is None else [*settings, frontend_config.compile_regions if regions is None else regions]
        )

    @staticmethod
    def write(compiled: Callable[..., Any]) -> dict[str, Any]:
        """The data of a callable that `inductor` returned. Raises `Refused`."""
        segmented = SEGMENTED.get(compiled) if inspect.isfunction(compiled) else None
        if segmented is not None:
            return segmented.data(InductorArtifacts.write)
        return artifact.write(getattr(compiled, "compiled", compiled))

    @staticmethod
    def read(data: dict[str, Any], library: Callable[[bytes], str]) -> Callable[..., Any]:
        """The callable again; `library` puts a shared library into a file. Raises `Mismatch`, and OSError."""
        if "parts" not in data:
            return artifact.read(data, library)
        parts = [InductorArtifacts.read(part, library) for part in data["parts"]]
        return Segmented(parts, data["steps"], data["results"]).runner()


def recording(gm: GraphModule, example_inputs: list[Any], seen: list[Any]) -> Callable[..., Any]:
    """As `inductor` without options; the ATen graphs that Inductor makes kernels of are appended to `seen`. AOTAutograd's cache is off:
    a program that an earlier process has compiled would come from it without its graphs.
    """
    load_compiler("torch._inductor.compile_fx")
    from torch._functorch import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def inner(graph: object, *args: Any, **kwargs: Any) -> Any:
        seen.append(graph)
        return compile_fx_inner(graph, *args, **kwargs)

    with config.patch(enable_autograd_cache=False):
        return call_with_fakes(lambda graph, fakes: compile_fx(graph, fakes, inner_compile=inner), gm, example_inputs)


def config_patches(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Inductor's settings for a mode and options. Raises RuntimeError for an unknown option or a wrong type."""
    from torch._inductor import config, list_mode_options

    patches = {}
    if mode not in (None, "default"):
        if mode not in list_mode_options():
            raise RuntimeError(f"mode={mode!r}: this torch has {', '.join(list_mode_options())}")
        patches = dict(list_mode_options(mode))
    known = config.get_config_copy()
    for key, value in (options or {}).items():
        key = key.replace("-", "_")
        if key not in known:
            near = near_names(key, known)
            told = f"did you mean {near}? S" if near else "s"
            raise RuntimeError(f"Unexpected optimization option {key}; {told}ee torch._inductor.list_options()")
        expected = config.get_type(key)
        if isinstance(expected, type) and not isinstance(value, expected):
            raise RuntimeError(f"Unexpected type of option {key}: got {type(value).__name__}, need {expected.__name__}")
        patches[key] = value
    return patches


def is_inductor_supported() -> bool:
    """Whether the kernel compiler has its tools: Triton where there is a GPU, else a C++ compiler."""
    import torch

    if torch.cuda.is_available():
        return find_spec("triton") is not None
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception:
        return False
    return True


def validate(
    mode: str | None = None, options: Mapping[str, Any] | None = None, regions: bool | str | None = None
) -> None:
    """Check the arguments that the user gave to `compile`. Raises RuntimeError; imports Inductor only if there are options."""
    if mode not in (None, *MODES):
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    if options:
        config_patches(None, options)


def reset() -> None:
    """Drop the CUDA graphs that Inductor recorded. Nothing to do if it recorded none."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is not None:
        trees.reset_cudagraph_trees()


def max_autotune(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """`inductor` in the mode "max-autotune-no-cudagraphs", as a candidate of its own."""
    return inductor(gm, example_inputs, mode="max-autotune-no-cudagraphs")


def freezing(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """`inductor` with parameters as constants."""
    return inductor(gm, example_inputs, options={"freezing": True})


def reduce_overhead(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """`inductor` in the mode "reduce-overhead": its kernels, launched by CUDA graphs."""
    return inductor(gm, example_inputs, mode="reduce-overhead")


def _why_not() -> str | None:
    """As `is_inductor_supported`, without importing Inductor where the program has not."""
    import torch

    if "torch._inductor" in sys.modules or torch.cuda.is_available():
        supported = is_inductor_supported()
    else:
        supported = shutil.which(os.environ.get("CXX", "g++")) is not None
    return None if supported else "neither Triton nor a C++ compiler"


inductor.validate = validate
inductor.artifacts = InductorArtifacts
inductor.reset = reset
for _backend in (inductor, max_autotune, reduce_overhead, freezing):
    setattr(_backend, FLOATS, "tensors")
    setattr(_backend, FUSES_BRANCHES, True)
    setattr(_backend, WRAPS_INTS, True)
    setattr(_backend, UNDEFINED, True)
inductor.requirements = Requirements(trains=True, check=_why_not, install="g++, or Triton for CUDA")
max_autotune.requirements = inductor.requirements
reduce_overhead.requirements = Requirements(frozenset({"cuda"}), trains=True, check=_why_not, install="Triton")
freezing.requirements = frozen(inductor.requirements)
