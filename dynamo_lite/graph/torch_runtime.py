"""What `convert` and `tracing` need of torch.

Input: a trace, or a finished graph. Output: the graph builder of a trace; the compiled callable of a graph.
Invariant: `null_runtime` has the same functions.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import sys
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dynamo_lite.backends.aot import FLOATS, raised_by_operator
from dynamo_lite.backends.handed import captured_of, forget_sources, forget_text_of, graph_of
from dynamo_lite.backends.registry import backend_name, call_backend
from dynamo_lite.config import config
from dynamo_lite.exc import ORIGINALS, Restart, RunsEagerly, brief, many
from dynamo_lite.guards import tensor_class
from dynamo_lite.guards.guard_collectives import is_agreed, told_by_all  # noqa: F401
from dynamo_lite.guards.tensor_guards import is_in_dual_level
from dynamo_lite.isa.typeobject import Py_TPFLAGS_HEAPTYPE, dictoffset_of, flags
from dynamo_lite.messages import warn_user
from dynamo_lite.progress import place_of, shown
from dynamo_lite.record import GRAPH_RECORD, CallChain, Function, GraphRecord
from dynamo_lite.record import log as records

from .builder import GraphBuilder
from .core import modes
from .core.boxed import BoxedCallable, boxed_form, may_raise, one_by_one
from .core.checkpoints import forward_of, runnable
from .core.effect import Captured, Compiled, Wrapper, computes
from .core.failure import GraphFailure, raises_on_fakes
from .core.fake import MEMO, is_of_trace
from .core.float_inputs import Lowered
from .core.saved_tensors import closed, see_every_operator
from .core.state import is_one_fake_mode
from .logs.compile_log import CompileLog
from .serialized import (  # noqa: F401
    FINDERS,
    GUARD_FORMS,
    KINDS,
    StoredGraph,
    check_ambient,
    read_guard,
    versions,
    write_ambient,
    write_graph,
    write_guard,
)
from .shapes.formulas import recipe_of  # noqa: F401

_LOOKED_AT = 16  # items of a container

OLDEST_TORCH, NEWEST_TORCH = (2, 11), (2, 13)
"""That the package is tested with. What rests on the inside of torch is probed, and falls back by itself (`guards.tensor_guards`)."""


def warn_if_untested(version: str) -> None:
    """Warn of another torch, once in a process, when the first function is compiled."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    found = tuple(map(int, numbers.groups())) if numbers else NEWEST_TORCH
    if not OLDEST_TORCH <= found <= NEWEST_TORCH:
        kind = "newer" if found > NEWEST_TORCH else "older"
        tested = " to ".join(f"{major}.{minor}" for major, minor in (OLDEST_TORCH, NEWEST_TORCH))
        warn_user(f"torch {version} is {kind} than what dynamo_lite is tested with ({tested}); it may have changed")


warn_if_untested(torch.__version__)

new_graph = GraphBuilder
new_log = CompileLog
read_graph = StoredGraph
modes_back = modes.back
_hook = torch._C._dynamo.eval_frame


@contextlib.contextmanager
def modes_aside() -> Iterator[None]:
    """Have the analysis see no function modes of the program, and hooks of saved tensors no fake ones. The change and its note are one
    call, which needs no memory in between, and what undoes it needs none: neither a signal handler that raises nor a lack of memory
    leaves the thread without them."""
    priors: deque[bool] = deque(maxlen=1)
    try:
        priors.extend(map(_hide_hooks, (True,)))
        with modes.aside():
            yield
    finally:
        if priors:
            _hide_hooks(priors[0])


_hide_hooks = torch._C._autograd._saved_tensors_hooks_set_tracing


def capture_is_off() -> bool:
    """True while torch itself traces the program for export, and under modes that want to see every operator of the dispatcher, hooks
    of saved tensors, or function transforms (the old vmap is one), whose tensors have no data of their own, and levels of forward-mode
    derivatives: they must see the original code. And where torch is about to leave one question to a `__torch_function__` out: an analysis
    asks torch itself."""
    return (
        torch.compiler.is_exporting()
        or skips_next_torch_function()
        or (bool(torch._C._len_torch_dispatch_stack()) and not _is_under_fake_mode())
        or see_every_operator()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or is_in_dual_level()
        or torch._C._dispatch_tls_is_dispatch_key_included("VmapMode")
    )


skips_next_torch_function: Callable[[], bool] = getattr(torch._C, "_peek_should_skip_torch_function", bool)


def _is_under_fake_mode() -> bool:
    """Whether the program calls under its own FakeTensorMode, alone; other modes are there to see what runs, tracers and compilers bring
    their own."""
    return (
        is_one_fake_mode()
        and not is_of_trace(modes.active_fake_mode())
        and not torch.compiler.is_compiling()
        and torch._guards.TracingContext.try_get() is None
    )


def tracer() -> str | None:
    """The key of the setting that says what happens to compiled functions under the tracer of torch that is at work, if one is that
    wants to see the operators of the program: those of torch.jit, and of torch.fx where no dispatch mode does its work."""
    if torch._C._get_tracing_state() is not None:
        return "error_on_nested_jit_trace"
    if torch.fx._symbolic_trace._is_fx_tracing_flag and not torch._C._len_torch_dispatch_stack():
        return "error_on_nested_fx_trace"
    return None


def is_call_of_tracer(function: Any) -> bool:
    """Whether this is what a tracer of torch.fx that is at work has put in the place of `torch.nn.Module.__call__`."""
    patched = isinstance(function, FunctionType) and function.__globals__ is vars(torch.fx._symbolic_trace)
    return patched and tracer() == "error_on_nested_fx_trace"


def refuse_symbolic_trace(what: str) -> None:
    """Raise RuntimeError if `torch.fx.symbolic_trace` asks about something that was compiled: it takes nothing but functions."""
    if tracer() == "error_on_nested_fx_trace":
        raise RuntimeError(f"torch.fx.symbolic_trace of {what}: trace the original ({ORIGINALS})")


def concerns_torch(code: CodeType, globals_: dict[str, Any], values: tuple[Any, ...]) -> bool:
    """Whether a frame that nobody asked for may compute with tensors: it gets some, or names something of torch."""
    return any(_holds_tensor(v, 2) for v in values) or any(_is_torch(globals_.get(name)) for name in code.co_names)


def _is_torch(value: Any) -> bool:
    if issubclass(type(value), ModuleType):
        return value.__name__.partition(".")[0] == "torch"
    return issubclass(type(value), torch.Tensor | torch.nn.Module) or getattr(type(value), "__module__", "").startswith(
        "torch"
    )


def _holds_tensor(value: Any, depth: int) -> bool:
    if issubclass(type(value), torch.Tensor | torch.nn.Module):
        return True
    if depth and type(value) in (list, tuple):
        return any(_holds_tensor(v, depth - 1) for v in value[:_LOOKED_AT])
    if depth and type(value) is dict:
        return any(_holds_tensor(v, depth - 1) for v in itertools.islice(value.values(), _LOOKED_AT))
    if depth and flags(type(value)) & Py_TPFLAGS_HEAPTYPE and dictoffset_of(type(value)):
        return _holds_tensor(object.__getattribute__(value, "__dict__"), depth - 1)
    return False


def holds_tensors(value: Any) -> bool:
    """Whether a value is a tensor, or a list, tuple or dictionary with tensors."""
    if type(value) in (list, tuple, dict):
        items = itertools.islice(value.values() if type(value) is dict else value, _LOOKED_AT)
        return any(map(holds_tensors, items))
    return issubclass(type(value), torch.Tensor)


def has_foreign_slots() -> bool:
    """Whether the program has special methods of its own in the place of torch.Tensor's, which nothing here knows."""
    return not tensor_class.can_be_followed()


def holds_elsewhere() -> bool:
    """Whether the methods of torch.Tensor are what they are in other processes, and tensors have data."""
    has_data = modes.fake_mode() is None and not torch._C._len_torch_dispatch_stack()
    return has_data and tensor_class.is_torchs_own()


def forget() -> None:
    """Drop what is remembered for the whole process: of operators on metadata, by us and by torch, and of facts about sizes."""
    MEMO.clear()
    FakeTensorMode.cache_clear()
    if (shape_env := sys.modules.get(f"{__package__}.shapes.shape_env")) is not None:
        shape_env.forget_answers()


def hide_code(code: CodeType) -> None:
    """Have torch.compile, where it is active around a call of ours, leave this code and all that it calls alone."""
    _hook.set_code_exec_strategy(code, _SKIP)


_SKIP = _hook._FrameExecStrategy(_hook._FrameAction.SKIP, _hook._FrameAction.SKIP)
"""Made once: pybind11 writes to address 0 where there is no memory for an object of its own."""


def compile_graph(
    graph: GraphBuilder | StoredGraph, backend: Any, fullgraph: bool, log: CompileLog, kept: Any = None
) -> tuple[Any, GraphFailure, GraphRecord]:
    """Hand a finished graph to the backend; the compiled callable, what to do when it raises, and the graph's record. `log` is told;
    `kept`: what earlier processes have compiled of it."""
    gm = graph.finish()
    protect = _protector(graph, gm)
    if not computes(backend):
        protect = _as_it_is
    record = GraphRecord(
        records.next_graph_id(),
        graph.op_count,
        graph.node_count,
        backend_name(backend),
        module=weakref.ref(gm),
        code_text=_text(gm),
        origins=_origins(gm),
        branches=list(dict.fromkeys(graph.passes.sizes.branches)),
    )
    gm.meta[GRAPH_RECORD] = record
    log.graph(gm, record, len(graph.example_inputs()))
    sources = torch.fx.graph_module._loader.eval_cache
    known = len(sources)
    started = time.perf_counter()
    graph.propagator.give_to_compilers()
    env = graph.propagator.mode.shape_env
    if env is not None:
        env.begin_backend()
    # An inference mode that a failed compiler has entered may end in any order with others.
    keys = modes.dispatch_keys_kept() if graph.passes.state.has_inference else contextlib.nullcontext()
    with torch._guards.tracing(torch._guards.TracingContext(graph.propagator.mode)):
        try:
            with closed(), keys, shown(functools.partial(_under_way, gm, record)):
                compiled = _compile(graph, gm, backend, fullgraph, kept, env)
            _restart_if_exhausted(env)
        finally:
            graph.passes.state.put_back()
            if env is not None:
                env.end_backend()
            made = list(itertools.islice(reversed(sources), max(len(sources) - known, 0)))
            weakref.finalize(gm, forget_text_of, type(gm))
            weakref.finalize(gm, forget_sources, *made)
    record.compile_seconds = time.perf_counter() - started
    log.compiled(record)
    function = _function_of(compiled)
    running = graph_of(function, gm)
    boxed = _boxed(graph, gm, function)
    if running is None:
        function = _replaced(graph, function, functools.partial(forward_of, gm), is_boxed=False)
    boxed = None if boxed is None else protect(boxed)
    lowered = compiled if isinstance(compiled, Lowered) else None
    failure = GraphFailure(gm, record, fullgraph, protect, graph.passes, boxed, lowered, running)
    return protect(function), failure, record


def _under_way(gm: torch.fx.GraphModule, record: GraphRecord) -> str:
    """What is compiled, for the line of progress."""
    return f"graph {record.id}, {many(record.op_count, 'operator')}, {record.backend} ({place_of(gm)})"


def _boxed(graph: GraphBuilder | StoredGraph, gm: torch.fx.GraphModule, function: Any) -> BoxedCallable | None:
    """The function that runs a graph with a list of its inputs, each of which dies with its last use; None if there is none: a graph that
    takes part in autograd outside of it is a node of AOTAutograd, whose inputs autograd holds."""
    if any(not effect.takes_boxed and effect.call_wrapper() is not None for effect in graph.passes):
        return None
    boxed = boxed_form(function)
    if boxed is None or graph_of(function, gm) is not None:
        return boxed
    if graph.returns_gradients:
        return None
    return _replaced(graph, boxed, functools.partial(_boxed_forward_of, gm), is_boxed=True)


def _replaced(graph: GraphBuilder | StoredGraph, function: Any, captured: Captured, is_boxed: bool) -> Any:
    """What the backend has made, where it may run; elsewhere the captured graph."""
    for effect in graph.passes:
        replacement = effect.replacement()
        if replacement is not None:
            function = replacement(function, captured, is_boxed)
    return function


def _boxed_forward_of(gm: torch.fx.GraphModule) -> BoxedCallable:
    forward = forward_of(gm)
    return boxed_form(forward) or one_by_one(forward)


def boxed_call(failure: GraphFailure, root: CodeType) -> BoxedCallable | None:
    """The function that runs the graph of this failure with a list of its inputs, and lets go of each when it is done with it; None if the
    frame, whose code is `root`, may have to start again, or its program to catch an error."""
    return None if failure.boxed is None or may_raise(failure.gm, root) else failure.boxed


def boxed_again(failure: GraphFailure) -> BoxedCallable | None:
    """The same for a frame of which an earlier process has found that it can let go of its inputs."""
    return failure.boxed


def _protector(graph: GraphBuilder | StoredGraph, gm: torch.fx.GraphModule) -> Wrapper:
    """The wrapper around each function that runs the graph. Raises `Unsupported` where a check of the graph has to be a break."""
    checks, sizes = graph.passes.checks, graph.passes.sizes
    if checks:
        checks.require_undoable(gm, graph.example_inputs(), functools.partial(_wrapped, _wrappers(graph)))
    elif sizes.asserts:  # with checks, the graph as a whole can be undone
        sizes.require_undoable(gm, graph.example_inputs(), functools.partial(_wrapped, _wrappers(graph)))
    return functools.partial(_wrapped, _wrappers(graph))


def _as_it_is(compiled: Compiled) -> Compiled:
    """What a backend returns that computes nothing: there are no tensors around which anything could be done."""
    return compiled


def _wrappers(graph: GraphBuilder | StoredGraph) -> list[Wrapper]:
    """The wrappers of the effects, from the innermost to the outermost."""
    found = [effect.call_wrapper() for effect in graph.passes]
    return [wrapper for wrapper in found if wrapper is not None]


def _wrapped(wrappers: Sequence[Wrapper], compiled: Compiled) -> Compiled:
    for wrap in wrappers:
        compiled = wrap(compiled)
    return compiled


def _compile(
    graph: GraphBuilder | StoredGraph, gm: torch.fx.GraphModule, backend: Any, fullgraph: bool, kept: Any, env: Any
) -> Callable[..., Any]:
    """The callable that the backend makes of the graph. Compilers know no floats that differ from call to call: they get tensors."""
    form = getattr(backend, FLOATS, "items")
    if form == "numbers" or not graph.has_floats:
        fixed = (
            kept if graph.passes.sizes.known is None else None
        )  # what compilers demand of symbols would not be guarded
        inputs = graph.example_inputs()
        strict = fullgraph or not config.suppress_errors
        failed = functools.partial(_backend_failed, graph.passes.sizes, env, gm, inputs, strict, backend_name(backend))
        return call_backend(backend, gm, inputs, fullgraph=fullgraph, kept=fixed, on_failure=failed)
    lowered = Lowered(gm, graph.propagator, form == "tensors")
    weakref.finalize(lowered.module, forget_text_of, type(lowered.module))
    if not lowered.has_operators:
        lowered.compiled = _function_of(lowered.module)
    else:
        compiled = call_backend(
            backend,
            lowered.module,
            lowered.examples(graph.example_inputs()),
            fullgraph=fullgraph,
            on_failure=graph.passes.sizes.without_floats,
        )
        lowered.compiled = _function_of(compiled)
    return lowered


def _backend_failed(
    sizes: Any, env: object, gm: torch.fx.GraphModule, inputs: Sequence[Any], strict: bool, name: str, error: Exception
) -> None:
    """Raise what is to be done where the backend is not to blame for its error; return where it is. AOTAutograd runs the operators of the
    graph, and of its gradients: what it finds wrong with them the program will, in its own time, and may have an `except` for."""
    _restart_if_exhausted(env)
    sizes.without_data(error)
    sizes.with_large_sizes(error)
    if not raised_by_operator(error):
        return
    if not raises_on_fakes(gm, inputs):  # then it is about gradients, or about what AOTAutograd does to the graph
        if strict:
            return
        warn_user(f"backend {name!r} failed, the function runs eagerly: {brief(error)}")
    raise RunsEagerly(brief(error))


def _restart_if_exhausted(env: Any) -> None:
    """Have the frame analysed again, with constants, if the backend has asked too much about sizes, whether or not it failed for that."""
    if env is not None and env.is_exhausted:
        raise Restart("the backend's reasoning about sizes was too much")


def _function_of(compiled: object) -> Any:
    """The `forward` of a graph that the backend returned as a module. A call of the module would also print errors, cut their traceback,
    and run the program's hooks for all modules, which are not for ours."""
    module = getattr(compiled, "__self__", compiled)
    if (
        not isinstance(module, torch.fx.GraphModule)
        or compiled not in (module, module.forward)
        or module._forward_hooks
    ):
        return compiled
    recompile = getattr(module, "real_recompile", None)
    if recompile is not None:
        recompile()
    if captured_of(module) is not module:
        weakref.finalize(module, forget_text_of, type(module))
    return runnable(module).forward


def _origins(gm: torch.fx.GraphModule) -> Callable[[], Counter[CallChain]]:
    """Which calls and lines the graph's operators come from, as long as the graph lives."""
    ref = weakref.ref(gm)

    def origins() -> Counter[CallChain]:
        module = ref()
        found: Counter[CallChain] = Counter()
        for node in module.graph.nodes if module is not None else ():
            place = getattr(node.meta, "place", None) if node.op not in ("placeholder", "output") else None
            chain = []
            while place is not None:
                code = place.code
                chain.append((Function.of(code), place.lineno))
                place = place.caller
            if chain:
                found[tuple(reversed(chain))] += 1
        return found

    return origins


def _text(gm: torch.fx.GraphModule) -> Callable[[], str]:
    """The graph's code, as long as the graph lives."""
    ref = weakref.ref(gm)

    def text() -> str:
        module = ref()
        return module.code if module is not None else ""

    return text
