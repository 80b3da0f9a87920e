"""The one adapter to AOTAutograd: FX graph in, ATen forward and backward graphs to a pair of compilers, callable out.

Input: a graph as `registry` describes it. Output: a callable on the flat inputs that takes part in autograd.
Invariant: the graph is traced with the fake tensors of its placeholders, so symbolic sizes keep their symbols, and the
caller's graph is not changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import keyword
import operator
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from dynamo_lite._eval_frame import call_moved
from dynamo_lite.data_stack import with_room
from dynamo_lite.exc import TRACEBACK
from dynamo_lite.messages import ignored
from dynamo_lite.record import AS_CAPTURED, GRAPH_RECORD, IN_INFERENCE, UNUSED_RANDOM

from . import late_backward, packed_rnn
from .branch import silenced
from .handed import captured_of, forget_sources
from .rewrites import detached, overwritten, symbol_nodes
from .rewrites.patches import Patches
from .rewrites.recurrent import keep_gradients_and_dropout
from .rewrites.wrapper_views import put_together_anew
from .undefined_gradients import UNDEFINED, Undefined, gradient_paths

if TYPE_CHECKING:
    from torch.fx import GraphModule

STATIC_ADDRESS = "dynamo_lite_static_address"
"""Set to True in the `meta` of a placeholder whose tensor keeps its address from call to call (parameters and buffers).
"""


FLOATS = "dynamo_lite_floats"
"""Name of an attribute of backends: the form of floats that differ from call to call. "numbers": as inputs that are floats. "items" (if
there is none): as inputs that are tensors of one double, from which `item()` in the graph gets the number. "tensors": such tensors
take part in the operators themselves wherever they can."""


FUSES_BRANCHES = "dynamo_lite_fuses_branches"
"""Name of an attribute of backends, True where a branch on data inside a graph is at least as fast as one between two graphs: the default
of `config.capture_branches`, by `benchmarks/branches.py`."""


WRAPS_INTS = "dynamo_lite_wraps_ints"
"""Name of an attribute of backends, True where whole numbers that the graph computes have 64 bits: Python's have as many as they need."""


JOINT_GRAPHS = Patches(symbol_nodes.substitutes, overwritten.substitutes, detached.substitutes)
"""Around what AOTAutograd traces, and takes apart into forward and backward pass."""

BoxedCallable = Callable[[list[Any]], Any]

BOXED: weakref.WeakKeyDictionary[Callable[..., Any], BoxedCallable] = weakref.WeakKeyDictionary()
"""Compiled graph → the same with one list of the inputs as its argument, which it empties (torch's boxed calling convention):
it holds no input longer than it needs it. This is no attribute of the function, because `functools.wraps` would copy that to wrappers."""


def aot_autograd(
    fw_compiler: Callable[..., Any],
    bw_compiler: Callable[..., Any] | None = None,
    inference_compiler: Callable[..., Any] | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """A backend whose forward and backward ATen graphs are compiled by the functions given, each `(gm, example_inputs)
    -> callable`. What they return takes the inputs as `*args`, or in one list, which it empties, if it has the attribute `_boxed_call`.

    `bw_compiler` and `inference_compiler` default to `fw_compiler`. `options` are passed to AOTAutograd
    (`partition_fn`, `decompositions`, `keep_inference_input_mutations`).
    """

    given = {"fw_compiler": fw_compiler, "bw_compiler": bw_compiler, "inference_compiler": inference_compiler}
    compilers = {name: lambda gm, fakes, one=one or fw_compiler: boxed(one(gm, fakes)) for name, one in given.items()}

    def backend(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        simplified = load_compiler("torch._functorch.aot_autograd").aot_module_simplified
        return call_with_fakes(
            lambda graph, fakes: simplified(graph, fakes, **compilers, **options), gm, example_inputs
        )

    setattr(backend, FLOATS, "tensors")
    setattr(backend, UNDEFINED, True)
    return backend


def boxed(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` as AOTAutograd calls it: with one list, emptied so that it keeps nothing alive. What takes one already is returned."""
    if getattr(run, "_boxed_call", False):
        return run

    def call(inputs: list[Any]) -> Any:
        values = tuple(inputs)
        inputs.clear()
        return run(*values)

    call._boxed_call = True
    return call


def load_compiler(name: str) -> ModuleType:
    """A module of torch's compilers, imported in a thread of its own if need be.

    Modules of torch._dynamo call `torch.fx.wrap`, which leaves a reference cycle that holds the frame of the module. Through `f_back`
    that frame holds all that wait for the import: until the next garbage collection those would keep the arguments of the program's call.
    """
    if name not in sys.modules:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(with_room, _import_silently, name).result()
    return sys.modules[name]


def _import_silently(name: str) -> None:
    """Import a module of torch's compilers. What those warn of meanwhile (deprecated parts of torch that they use) is nothing that the
    program has done, and must not fail the import, which filters that raise would do."""
    with ignored():
        import_module(name)


def raised_by_operator(error: BaseException) -> bool:
    """Whether AOTAutograd raised an error while it ran the operators of the graph, and those of its gradients, on fake tensors: before
    any compiler saw them. (Its own texts of graphs may be wrong as well, where the name of a keyword is none that Python's grammar takes.)
    """
    if isinstance(error, SyntaxError):
        return False
    tracing = {
        getattr(function, "__code__", None)
        for module, names in _STAGES_BEFORE_COMPILERS.items()
        for function in [getattr(sys.modules.get(module), name, None) for name in names]
    }
    traceback = TRACEBACK.__get__(error)
    while traceback is not None:
        if traceback.tb_frame.f_code in tracing:
            return True
        traceback = traceback.tb_next
    return False


_STAGES_BEFORE_COMPILERS = {
    "torch._functorch.aot_autograd": ("create_aot_state",),
    "torch._functorch._aot_autograd.graph_compile": ("aot_stage1_graph_capture",),
}
"""Modules of torch's and functions in them that run the graph on fake tensors. (Those that call compilers are called aot_stage2.)"""


def call_with_fakes(compiler: Callable[..., Any], gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """`compiler(copy of gm, fake inputs)` inside a tracing context, with the static inputs marked for AOTAutograd; the graph as it was
    captured where AOTAutograd would compute something else.

    The copy matters: the compilers rewrite the graph that they get, while reports and the fallback need it as captured. In the copy random
    numbers that nobody uses are results, without gradients: AOTAutograd would not draw them.
    """
    import torch
    from torch._guards import TracingContext, detect_fake_mode, tracing

    placeholders = gm.graph.find_nodes(op="placeholder")
    fakes = [node.meta.get("example_value", real) for node, real in zip(placeholders, example_inputs, strict=True)]
    nodes, copies = torch.fx.Graph(), {}
    results = nodes.graph_copy(gm.graph, copies)
    unused = [
        _a_tensor(nodes, node, copies[node]) for node in gm.graph.nodes if node.name in gm.meta.get(UNUSED_RANDOM, ())
    ]
    paths = gradient_paths(gm, fakes)
    conditions = [] if paths is None else [copies[node] for node in paths.conditions]
    nodes.output((*results, *conditions, *unused))
    graph = torch.fx.GraphModule(gm, nodes)
    graph.meta = dict(gm.meta)
    unseen = gm.meta.get(AS_CAPTURED) or _sparse_gradients(gm) or _symbolic_resizes(gm) or put_together_anew(graph)
    if unseen is not None:
        if GRAPH_RECORD in gm.meta:
            gm.meta[GRAPH_RECORD].notes["AOTAutograd"] = [unseen]
        return gm.forward
    keep_gradients_and_dropout(graph)
    _mark_static_inputs(graph, placeholders, example_inputs)
    context = TracingContext.try_get() or TracingContext(detect_fake_mode(fakes))
    _provide_symbols(context.fake_mode)
    _forget_fresh_symbols(context.fake_mode)
    _allow_numbers_of_data(context.fake_mode)
    # Autograd runs in anomaly mode: another attempt may follow.
    without_anomalies = ignored("Error detected in ")
    with (
        tracing(context),
        _without_hooks(),
        _backward_outside_of_autocast(graph),
        _inference_of(graph),
        JOINT_GRAPHS,
        _making(captured_of(gm)),
        without_anomalies,
    ):
        compiled = compiler(graph, fakes)
    late_backward.expect(context, gm)
    call = _as_captured(compiled, len(unused))
    return call if paths is None else _keeping_undefined(call, Undefined(paths))


def _as_captured(compiled: Callable[..., Any], unused: int) -> Callable[..., Any]:
    """The callable without the last results, if they are `unused`."""
    inner = BOXED.get(compiled) or boxed_forward(compiled)
    if not unused:
        if inner is not None:
            BOXED[compiled] = inner
        return compiled

    def call(*args: Any) -> Any:
        return compiled(*args)[:-unused]

    def call_boxed(inputs: list[Any]) -> Any:
        return inner(inputs)[:-unused]

    if inner is not None:
        BOXED[call] = call_boxed
    return call


def _keeping_undefined(compiled: Callable[..., Any], undefined: Undefined) -> Callable[..., Any]:
    call = undefined.around(compiled)
    if compiled in BOXED:
        BOXED[call] = undefined.around(BOXED[compiled])
    return call


def boxed_forward(compiled: Callable[..., Any]) -> BoxedCallable | None:
    """The function with one list of inputs behind the function that `aot_module_simplified` returned, which takes them one by one, as
    modules do, and so holds them. None if that adds inputs of its own, or is another function."""
    code = getattr(compiled, "__code__", None)
    if code is None or code.co_qualname != "aot_module_simplified.<locals>.forward":
        return None
    outer = dict(zip(code.co_freevars, [cell.cell_contents for cell in compiled.__closure__], strict=True))
    inner = outer.pop("compiled_fn", None)
    return inner if getattr(inner, "_boxed_call", False) and not any(outer.values()) else None


def _a_tensor(nodes: Any, captured: Any, copy: Any) -> Any:
    """A node with a tensor that an operator returns, the first of several, as it is then: later ones may overwrite it. It has no gradient:
    as a result of the graph it would get zeros, and they would go on to the inputs."""
    is_tensor = getattr(getattr(captured.meta, "subject", None), "meta", None) is not None
    with nodes.inserting_after(copy):
        drawn = copy if is_tensor else nodes.call_function(operator.getitem, (copy, 0))
    with nodes.inserting_after(drawn):
        detached = nodes.call_method("detach", (drawn,))
    if len(drawn.users) == 1:
        return detached
    with nodes.inserting_after(detached):
        return nodes.call_method("clone", (detached,))


@contextlib.contextmanager
def _without_hooks() -> Iterator[None]:
    """Hide the caller's hooks of saved tensors: AOTAutograd would make those that are graph modules part of the graph for good."""
    import torch

    autograd = torch._C._autograd
    taken = []
    while (top := autograd._top_saved_tensors_default_hooks(True)) is not None:
        taken.append(top)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for hooks in reversed(taken):
            autograd._push_saved_tensors_default_hooks(*hooks)


def _backward_outside_of_autocast(graph: GraphModule) -> contextlib.AbstractContextManager[None]:
    """Trace the backward pass of a graph that turns autocast off somewhere without the autocast of the call, as torch advises to run it,
    unless the program has chosen: gradients of products in float32 would be rounded to bfloat16. Not where the graph has bodies: a
    backward pass that the program has written may need the autocast of the call."""
    import torch
    from torch._functorch import config

    settings = graph.graph.find_nodes(op="call_function", target=torch.set_autocast_enabled)
    turns_off = any(node.args[-1] is False for node in settings)
    bodies = [child for child in graph.children() if isinstance(child, torch.fx.GraphModule)]
    if not turns_off or bodies or config.backward_pass_autocast != "same_as_forward":
        return contextlib.nullcontext()
    outside: contextlib.AbstractContextManager[None] = config.patch(backward_pass_autocast="off")
    return outside


def _inference_of(graph: GraphModule) -> contextlib.AbstractContextManager[Any]:
    """The mode to trace in. AOTAutograd fails where it makes views in an inference mode that begins in the graph."""
    import torch
    from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

    if not graph.meta.get(IN_INFERENCE):
        return contextlib.nullcontext()
    for target in (_exit_inference_mode, _enter_inference_mode):
        for node in graph.graph.find_nodes(op="call_function", target=target):
            graph.graph.erase_node(node)
    graph.recompile()
    return torch.inference_mode()


def _provide_symbols(mode: Any) -> None:
    """Give the mode an environment for symbols, without any symbol: AOTAutograd and Inductor cache only graphs that have one."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    if mode is not None and mode.shape_env is None:
        mode.shape_env = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)


def _forget_fresh_symbols(mode: Any) -> None:
    """Drop the unbacked symbols that the capture has made: the compiler's trace makes its own, and would wait for the results of these."""
    if mode is not None:
        mode.shape_env.pending_fresh_unbacked_symbols.clear()
        mode.shape_env.ignorable_fresh_unbacked_symbols.clear()


def _allow_numbers_of_data(mode: Any) -> None:
    """Let compilers trace numbers that depend on data: the setting was applied when the program was captured, and the gradient of
    `while_loop` counts with such a number whatever the setting is."""
    if mode is not None:
        settings = mode.shape_env.settings
        mode.shape_env.settings = dataclasses.replace(
            settings, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True
        )


def _sparse_gradients(gm: GraphModule) -> str | None:
    """What keeps a graph as it was captured: AOTAutograd loses the gradients of sparse tensors, and ends the process where compressed ones
    take part in autograd."""
    import torch

    dense = (torch.strided, torch.jagged)
    for node in gm.graph.nodes:
        known = getattr(getattr(node.meta, "subject", None), "meta", None)
        if known is not None and known.live and known.requires_grad and known.layout not in dense:
            return f"gradients of {known.layout} tensors are not those of AOTAutograd"
    return None


def _symbolic_resizes(gm: GraphModule) -> str | None:
    """The same for an operator that resizes a tensor from or to sizes that vary: the form that AOTAutograd makes of it changes nothing, and
    its kernels want plain numbers."""
    for node in gm.graph.nodes:
        name = node.target if type(node.target) is str else getattr(node.target, "__name__", "")
        if name.partition(".")[0] in ("resize_", "resize_as_"):
            known = [getattr(given.meta, "subject", None) for given in node.all_input_nodes]
            sizes = [
                n
                for value in known
                for n in ((*value.meta.shape, *value.meta.stride) if hasattr(value, "meta") else (value,))
            ]
            if name == "resize_as_" or any(type(n) is not int for n in sizes):
                return f"{name} with sizes that vary"
    return None


def _mark_static_inputs(graph: Any, captured: list[Any], example_inputs: list[Any]) -> None:
    """Tell AOTAutograd which inputs keep their address, in the form in which it reads that from a graph.

    It wants `_param_name_to_source` (parameters are placeholders but for those that `freezing` binds), a `_dynamo_source` per
    placeholder, and the mark in the placeholder's `tensor_dict`. CUDA graphs then read these inputs in place, and
    Inductor does not copy unaligned ones.
    """
    import torch
    from torch._guards import CompileContext, CompileId

    graph.meta["dynamo_compile_id"] = CompileContext.current_compile_id() or CompileId(frame_id=0, frame_compile_id=0)
    bound = [*dict(graph.named_parameters(remove_duplicate=False)), *dict(graph.named_buffers(remove_duplicate=False))]
    graph._param_name_to_source = {name: Bound(name) for name in bound}
    placeholders = graph.graph.find_nodes(op="placeholder")
    for node in placeholders:
        node._dynamo_source = None
    for node, source, real in zip(placeholders, captured, example_inputs, strict=True):
        static = (
            source.meta.get(STATIC_ADDRESS, False)
            or isinstance(real, torch.nn.Parameter)
            or getattr(real, "_dynamo_static_input_type", None) is not None
        )
        if static:
            node.meta["tensor_dict"] = {**node.meta.get("tensor_dict", {}), "_dynamo_static_input_type": "unguarded"}


class Bound(NamedTuple):
    """A parameter that is no input any more, where AOTAutograd asks for its source."""

    name: str


def aot_eager(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """The backend `aot_eager`: AOTAutograd's ATen graphs, run node by node. Tells capture and compiler apart."""
    from torch.fx._lazy_graph_module import _use_lazy_graph_module

    with _use_lazy_graph_module(True):  # some graphs have no source text before `_give_names`
        return _AOT_EAGER(gm, example_inputs)


def _give_names(gm: GraphModule) -> None:
    """Put functions in place of the calls that torch.fx can't write: in `torch.ops.aten.random.from` there is a keyword, and the name of an
    argument may be one."""
    named = [
        node
        for node in gm.graph.nodes
        if keyword.iskeyword(getattr(node.target, "_overloadname", "")) or any(map(keyword.iskeyword, node.kwargs))
    ]
    for node in named:
        node.target = _as_function(node.target, tuple(node.kwargs))
        node.args, node.kwargs = (*node.args, *node.kwargs.values()), {}
    if named:
        gm.recompile()


def _drop_effects_of_the_forward(gm: GraphModule) -> None:
    """Remove from a backward graph the nodes with an effect in the forward pass: draws of random numbers, assertions. AOTAutograd copies
    what can be computed from saved values into both, and its removal of dead code keeps effects, with all that they are computed from."""
    tags = {node.meta.get("partitioner_tag") for node in gm.graph.nodes if node.op == "placeholder"}
    if "is_backward" not in tags:
        return
    for node in reversed(gm.graph.nodes):
        is_of_forward = node.op == "call_function" and node.meta.get("partitioner_tag") == "is_forward"
        schema = getattr(node.target, "_schema", None)
        if is_of_forward and not node.users and not (schema is None or schema.is_mutable):
            gm.graph.erase_node(node)
    gm.recompile()


def _as_function(operator: Any, names: tuple[str, ...]) -> Callable[..., Any]:
    """`operator` with the last arguments given as those of these names."""

    def call(*args: Any) -> Any:
        first = len(args) - len(names)
        return operator(*args[:first], **dict(zip(names, args[first:], strict=True)))

    call.__name__ = call.__qualname__ = str(operator).replace(".", "_")
    return call


ORIGINS: dict[str, dict[int, str]] = {}
"""File name of a graph of AOTAutograd that runs as it is → line, counted from its first → node of the captured graph it is from."""


FIRST_EFFECTS: dict[str, tuple[weakref.ref[GraphModule], int]] = {}
"""File name of a forward graph of AOTAutograd that runs as it is → the captured graph that it is all of, and the first line, counted as
above, of an operator that leaves a trace when it has begun."""


class _Captured(threading.local):
    graph: GraphModule | None = None


_captured = _Captured()


@contextlib.contextmanager
def _making(gm: GraphModule) -> Iterator[None]:
    """Forward graphs that are made meanwhile, by this thread, are made of all of `gm`."""
    before, _captured.graph = _captured.graph, gm
    try:
        yield
    finally:
        _captured.graph = before


def _leaves_trace(node: Any) -> bool:
    """Whether an operator may change what outlives the graph: its inputs, the state of a generator, something that torch doesn't know."""
    if node.op != "call_function" or getattr(node.target, "__module__", None) == "_operator":
        return node.op == "call_module"
    # `with_effects(token, operator, …)` keeps operators in their order
    called = node.args[1] if getattr(node.target, "__name__", None) == "with_effects" else node.target
    if not hasattr(called, "_schema") or called.namespace not in NAMESPACES or called._schema.is_mutable:
        return True
    return any(tag.name == "nondeterministic_seeded" for tag in called.tags)


NAMESPACES = frozenset({"aten", "prims", "prim", "torchvision", "torchaudio", packed_rnn.NAMESPACE})
"""Where operators do nothing but what their schema says. Others may talk to the world (collectives, custom operators)."""


def _note_origins(gm: GraphModule) -> None:
    code, nodes = type(gm).forward.__code__, list(gm.graph.nodes)
    lines = gm.__dict__.get("_lineno_map") or {}
    if _captured.graph is not None:
        effects = [line for line, i in lines.items() if i is not None and _leaves_trace(nodes[i])]
        FIRST_EFFECTS[code.co_filename] = weakref.ref(_captured.graph), min(effects, default=sys.maxsize)
    made = {line: nodes[i].meta.get("from_node") for line, i in lines.items() if i is not None}
    ORIGINS[code.co_filename] = {line: sources[-1].name for line, sources in made.items() if sources}


def _forget(filename: str) -> None:
    """The graph with this text is gone."""
    forget_sources(filename)
    ORIGINS.pop(filename, None)
    FIRST_EFFECTS.pop(filename, None)


def run_graph(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """The graph as AOTAutograd wants it: one list of inputs, emptied, so that it keeps no saved activation alive."""
    _drop_effects_of_the_forward(gm)
    _give_names(gm)
    for body in gm.modules():
        if hasattr(type(body), "_wrapped_call"):
            silenced(body)
    if hasattr(gm, "real_recompile"):
        gm.real_recompile()  # until then `forward` calls the module, and hooks for all modules
    # A backward pass is made late, when nobody takes note of new sources any more.
    _note_origins(gm)
    forward = type(gm).forward
    weakref.finalize(gm, _forget, forward.__code__.co_filename)

    def run(inputs: list[Any]) -> Any:
        inputs.insert(0, gm)
        return call_moved(forward, inputs)

    run._boxed_call = True
    return run


setattr(aot_eager, FLOATS, "tensors")
setattr(aot_eager, UNDEFINED, True)
_AOT_EAGER = aot_autograd(run_graph, keep_inference_input_mutations=True)
