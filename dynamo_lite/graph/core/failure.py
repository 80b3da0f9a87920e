"""What to do when a compiled graph raises.

Input: the graph as captured, its arguments, the error. Output: the answer that `csrc/graph.h` wants: True, the frame starts again as
ordinary Python; False, the error goes on; the graph's results, computed without the backend; or an exception that is raised in the place
of the error, which a signal handler of the program has raised meanwhile.
Invariant: a frame starts again only if the graph has left no trace. Which operators have run is known if the graph itself ran
(`<eval_with_key>` is in the traceback); a backend may have run all of them. What they change is found out by running them once more
on fake tensors, here, so that neither a capture nor a call that succeeds pays for it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from dynamo_lite.backends.aot import FIRST_EFFECTS, NAMESPACES, ORIGINS
from dynamo_lite.backends.branch import branch
from dynamo_lite.exc import TRACEBACK, brief
from dynamo_lite.isa.eager_fallback import put_place, without_own
from dynamo_lite.messages import warn_user
from dynamo_lite.record import STATS, GraphRecord
from dynamo_lite.signals import HandlerRaised, is_interruption, let_through, relayed

from . import modes
from .fake import Propagator, warnings_kept
from .float_inputs import Lowered
from .keep_dynamo_unloaded import without_compiler
from .nodes import run_node
from .saved_tensors import hooks_around
from .values import SymValue, TensorValue
from .writes import arguments

_ASSUMED = re.compile(r"^(?:Eq\(|Ne\()?[^a-zA-Z]*u\d+\b")
"""What Inductor raises where data do not go with what it has concluded of sizes: the text of the condition."""

OVERWRITES = frozenset(
    """
    copy_ fill_ zero_ masked_fill_ masked_scatter_ index_fill_ index_copy_ index_put_ _index_put_impl_ scatter_
    """.split()
)
"""In-place operators that may raise half way, and come to the same when they are repeated; pointwise ones raise before they begin."""

RAISED_HALF_WAY: dict[str, type[Exception] | None] = {
    **dict.fromkeys(("copy_", "fill_", "zero_", "masked_fill_"), None),
    **dict.fromkeys(("index_put_", "_index_put_impl_", "index_fill_", "index_copy_", "index_add_", "put_"), IndexError),
}
"""In-place operators → what their kernels for the CPU raise once they have begun (torch 2.13); whatever else they raise, of shapes that do
not fit say, they raise before. `scatter_` and `masked_scatter_` raise the same class at both times."""

DIVISIONS = frozenset({"floor_divide_", "remainder_", "fmod_", "div_", "divide_"})
"""Pointwise operators that find a zero, among integers, half way."""

OWN_MODULES = ("torch", "_operator", "operator", "builtins", "math", "dynamo_lite")


class CheckFailed(Exception):
    """An assumption of the trace about tensor data does not hold."""


class GraphFailure:
    """The `on_failure` of one graph, whose record is `record`. `compiled` is what the backend made of `gm`; `protect` keeps torch's ambient
    state and looks at the results of `checks`. `boxed`: what lets go of the inputs while it runs; None if nothing does. `lowered`: what the
    backend was given in the place of `gm`. `running`: the graph whose operators `compiled` runs one by one, which may be a copy that the
    backend has rewritten; None for other callables."""

    def __init__(
        self,
        gm: GraphModule,
        record: GraphRecord,
        fullgraph: bool,
        protect: Callable[[Any], Any],
        passes: Any,
        boxed: Callable[[list[Any]], Any] | None = None,
        lowered: Lowered | None = None,
        running: GraphModule | None = None,
    ) -> None:
        self.gm = gm
        self.record = record
        self.fullgraph = fullgraph
        self.protect = protect
        self.checks = passes.checks
        self.sizes = passes.sizes
        self.boxed = boxed
        self.lowered = lowered
        self.running = running
        # (graph, index of a node, class of an error, whether an input has a history) → what it leaves when it raises
        self.traces: dict[tuple[GraphModule, int, type[Exception], bool], LeftByTrace] = {}
        self.replaced: list[Any] = []  # calls in progress may still use it

    def __call__(self, call: object, error: Exception, args: tuple[Any, ...] | None) -> Any:
        """`args`: None if the graph has let go of its inputs."""
        if isinstance(error, CheckFailed):
            self.checks.failed()
            return self._start_again()
        if is_interruption(error):
            return False
        try:
            with relayed():
                return self._answer(call, error, args)
        except HandlerRaised as raised:
            return raised.error

    def _answer(self, call: object, error: Exception, args: tuple[Any, ...] | None) -> Any:
        graph, index = self._failed_node(TRACEBACK.__get__(error))
        node = None if index is None else list(graph.graph.nodes)[index]
        if args is None:
            return self._pass_on(error, node, "let go of its inputs")
        if hooks_around() is not None:  # perhaps they have raised it themselves, as checkpoints do
            return self._pass_on(error, node, "called hooks of saved tensors")
        self.sizes.failed()
        if index is None:
            trace = self._trace(graph, len(graph.graph.nodes) - 1, error, args)
            if trace is None:
                return self._without_backend(call, error, args)
            if self._is_before_effects(TRACEBACK.__get__(error)):
                return self._start_again()  # ordinary Python finds out whether the program or the backend is to blame
            return self._pass_on(error, None, trace)
        trace = self._trace(graph, index, error, args)
        return self._start_again() if trace is None else self._pass_on(error, node, trace)

    @staticmethod
    def _start_again() -> bool:
        STATS.started_again += 1
        return True

    def _failed_node(self, traceback: TracebackType | None) -> tuple[GraphModule, int | None]:
        """The graph that was running, if one was, and the index of the node in it that raised; else the captured graph."""
        parts: list[tuple[GraphModule, Sequence[int] | None]] = [(self.gm, None)]
        if self.running is not None:
            parts.append((self.running, None))
        if self.lowered is not None:
            parts += self.lowered.parts()
        running = {type(module).forward.__code__: (module, found) for module, found in parts}
        while traceback is not None:
            code = traceback.tb_frame.f_code
            module, origins = running.get(code, (None, None))
            lines = None if module is None else module.__dict__.get("_lineno_map")
            if module is not None and lines is not None:
                index = lines.get(traceback.tb_lineno - code.co_firstlineno)
                if index is not None and index >= len(module.graph.nodes):  # the backend goes on rewriting
                    index = None
                return (module, index) if index is None or origins is None else (self.gm, origins[index])
            traceback = traceback.tb_next
        return self.gm, None

    def _origin(self, traceback: TracebackType | None) -> Node | None:
        """The node from which AOTAutograd has made the one that raised. Which others have run before it is not known."""
        name = None
        while traceback is not None and name is None:
            code = traceback.tb_frame.f_code
            name = ORIGINS.get(code.co_filename, {}).get(traceback.tb_lineno - code.co_firstlineno)
            traceback = traceback.tb_next
        if name is None:
            return None
        given = self.gm if self.lowered is None else self.lowered.module
        numbers = range(len(given.graph.nodes)) if self.lowered is None else self.lowered.origins
        index = next((i for node, i in zip(given.graph.nodes, numbers, strict=False) if node.name == name), None)
        return None if index is None else list(self.gm.graph.nodes)[index]

    def _is_before_effects(self, traceback: TracebackType | None) -> bool:
        """Whether AOTAutograd's form of the graph has raised before its first operator that leaves a trace. (What the graph writes to its
        inputs is written at the end of that form, or behind it.)"""
        given = self.gm if self.lowered is None else self.lowered.module
        while traceback is not None:
            code = traceback.tb_frame.f_code
            captured, first = FIRST_EFFECTS.get(code.co_filename, (None, 0))
            if captured is not None:
                return captured() is given and traceback.tb_lineno - code.co_firstlineno < first
            traceback = traceback.tb_next
        return False

    def _trace(self, graph: GraphModule, last: int, error: Exception, args: tuple[Any, ...]) -> str | None:
        """The reason why the frame can't start again when the node number `last` of the graph raised this; None if nothing has changed."""
        if self.checks:
            return None  # such a graph can be undone
        key = (graph, last, type(error), any(_has_history(a) for a in args))
        left = self.traces.get(key)
        if left is None:
            with modes.fake_mode_aside():
                left = trace_left(graph, last, args, self.protect, raised=type(error))
            if left.refused is None:  # an operator may refuse some sizes and numbers only
                self.traces[key] = left
        return left.reason if left.refused is not type(error) else None

    def _without_backend(self, call: Any, error: Exception, args: tuple[Any, ...]) -> Any:
        self.gm.real_recompile()
        run = self.protect(self.gm.forward)
        try:
            results = run(*args)
        except Exception as own:
            # Not from this frame on, which is still running: a look at its variables would outlive `own` in them.
            if is_interruption(own, 1):
                return own
            return self._start_again()  # the program's own error
        if type(error) is RuntimeError and _ASSUMED.search(str(error)):
            return results
        if self.fullgraph:
            error.add_note(f"backend {self.record.backend!r} raised this where eager execution succeeds")
            return False
        warn_user(f"backend {self.record.backend!r} failed at run time, the graph runs eagerly: {brief(error)}")
        self.replaced.append(call.compiled)
        call.compiled = run
        return results

    def _pass_on(self, error: Exception, node: Node | None, trace: str) -> bool:
        STATS.errors_passed_on += 1
        TRACEBACK.__set__(error, without_own(TRACEBACK.__get__(error)))
        if node is None:
            node = self._origin(TRACEBACK.__get__(error))
        if node is not None:
            put_place(error, getattr(node.meta, "place", None))
        error.add_note(
            f"This was raised in a compiled graph that may have {trace}. So the function could not start again as\n"
            "ordinary Python: what it changed in Python objects before this operator is lost, and no `except` of its own\n"
            "has seen the error."
        )
        return False


class LeftByTrace(NamedTuple):
    """The lasting change of a graph (None: there is none), the node that made it, and the devices from whose generators the graph has
    drawn. `refused`: the class of the error that the last node raises on fakes as well; nothing has changed then. Schemas tell what is
    written; `Tensor._version` does not: some operators write part of their data and then raise, which counts nothing."""

    reason: str | None
    node: int = -1
    random_devices: tuple[torch.device, ...] = ()
    refused: type[Exception] | None = None


def trace_left(
    gm: GraphModule,
    last: int,
    args: object,
    protect: Callable[[Any], Any],
    first_check: int | None = None,
    raised: type[Exception] | None = None,
) -> LeftByTrace:
    """The lasting changes of the nodes up to number `last`, which raises an error of class `raised`, if that is known. `first_check`: the
    node from which on nothing is known of the data; random numbers are put back."""
    watch = _Watch(first_check, raised)
    found: list[str] = []
    refused = None

    def run() -> None:
        try:
            _run_on_fakes(gm, last, args, watch)
        except _Trace as trace:
            found.append(str(trace))
        raise _Done

    try:
        protect(run)()
    except _Done:
        pass
    except Exception as error:
        let_through(error)
        found.append(f"changed something ({type(error).__name__} on fake tensors)")
        refused = type(error) if watch.is_last else None
    return LeftByTrace(found[0] if found else None, watch.node, tuple(watch.random_devices), refused)


def raises_on_fakes(gm: GraphModule, args: Sequence[Any]) -> bool:
    """Whether the graph raises whatever the data are."""
    watch = _Anything(None)
    try:
        _run_on_fakes(gm, len(gm.graph.nodes), args, watch)
    except _Trace:
        return False
    except Exception:
        return True
    return False


class _Done(Exception):
    """Ends a run on fake tensors in such a way that the ambient state is put back."""


class _Trace(Exception):
    """An operator has changed something that outlives the graph."""


def _run_on_fakes(gm: GraphModule, last: int, args: Any, watch: _Watch) -> None:
    propagator = Propagator()
    if any(_is_about_number(node) for module in gm.modules() for node in getattr(module, "graph", gm.graph).nodes):
        shapes = import_module("torch.fx.experimental.symbolic_shapes")  # which most processes do without
        propagator.mode.shape_env = shapes.ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    fakes = [propagator.slow_fake(a) if isinstance(a, torch.Tensor) else a for a in args]
    grads = [_grad(f) for f in fakes]
    inputs = iter(fakes)
    has_history = watch.first_check is not None or any(_has_history(a) for a in args)
    values: dict[Node, Any] = {}
    propagator.give_to_compilers()
    watch.inputs = set(_storages([*fakes, *grads]))
    leaves = _Leaves(fakes)
    kept, left = modes.dispatch_keys_kept(), modes.inference_modes_left(values)
    with kept, propagator.mode, without_compiler, propagator.dispatcher(), watch, warnings_kept(), left:
        for i, node in enumerate(gm.graph.nodes):
            if i > last or node.op == "output":
                break
            watch.node, watch.is_last = i, i == last
            if has_history and node.target is torch.autograd.grad:
                raise _Trace("run a backward pass")
            values[node] = next(inputs) if node.op == "placeholder" else _run_node(gm, node, values)
            leaves.meet(values[node])
    if any(_grad(f) is not g for f, g in zip(fakes, grads, strict=True)):
        watch.node = 0  # one that is not known
        raise _Trace("changed gradients")


def _is_about_number(node: Node) -> bool:
    """Whether a node stands for a number that varies, asserts something of one, or gives a tensor with a size that data decide."""
    subject = getattr(node.meta, "subject", None)
    if isinstance(subject, SymValue) or node.target is torch.ops.aten._assert_scalar.default:
        return True
    shapes = sys.modules.get("torch.fx.experimental.symbolic_shapes")  # without it there are no such sizes
    if shapes is None or not isinstance(subject, TensorValue) or not subject.meta.live:
        return False
    return bool(shapes.free_unbacked_symbols(subject.fake))


class _Leaves:
    """Raises `_Trace` where a backward pass accumulates the gradient of one of these tensors."""

    def __init__(self, values: list[Any]) -> None:
        self.unmet = {id(v) for v in values}

    def meet(self, value: Any) -> None:
        """A node gives this, which may have begun to require gradients by it."""
        if id(value) in self.unmet and isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad:
            self.unmet.discard(id(value))
            value.register_post_accumulate_grad_hook(_accumulated)


def _accumulated(leaf: torch.Tensor) -> NoReturn:
    raise _Trace("accumulated gradients")


def _run_node(gm: GraphModule, node: Node, values: dict[Node, Any]) -> Any:
    if node.op == "get_attr":
        return getattr(gm, node.target)
    if node.op == "call_function" and not is_own(node.target):
        raise _Trace("run a function that torch does not know")
    if node.target is branch:
        _, *sides, operands = map_arg(node.args, values.__getitem__)
        return [side.forward(*operands) for side in sides][0]
    return run_node(node, values)


def _has_history(value: Any) -> bool:
    """Whether a backward pass from this tensor would free what others want to use, or run hooks."""
    return isinstance(value, torch.Tensor) and value.requires_grad and bool(not value.is_leaf or value._backward_hooks)


def _grad(value: Any) -> Any:
    return value.grad if isinstance(value, torch.Tensor) and value.is_leaf else None


def is_own(target: Any) -> bool:
    """Whether what a node calls is torch's or Python's, and does nothing but what it says."""
    target = getattr(target, "__wrapped__", target)
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        name = target.name() if isinstance(target, torch._ops.OpOverload) else target._qualified_op_name
        return name.partition("::")[0] in NAMESPACES
    return (getattr(target, "__module__", None) or "torch").partition(".")[0] in OWN_MODULES


class _Watch(TorchDispatchMode):
    """Raises `_Trace` for an operator that consumes random numbers, or writes to one of the inputs in such a way that it can't be
    undone by starting again. In a graph with checks (from node `first_check` on) random numbers can, but not what fails on a device."""

    supports_higher_order_operators = True

    def __init__(self, first_check: int | None, raised: type[Exception] | None = None) -> None:
        super().__init__()
        self.first_check = first_check
        self.raised = raised
        self.inputs: set[int] = set()
        self.read: set[int] = set()
        self.node = 0
        self.is_last = False
        # whether the last node has called an operator that may write, which is taken for the one that raised
        self.has_written = False
        self.random_devices: dict[torch.device, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            return self._follow(func, args)
        if not isinstance(func, torch._ops.OpOverload) or func.namespace not in NAMESPACES:
            raise _Trace(f"run {func}")
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        if is_random and (self.first_check is None or _has_generator(args, kwargs)):
            raise _Trace("consumed random numbers")
        if func.namespace != "prim":  # those tell metadata
            self._look(func, args, kwargs)
        if self.first_check is not None and self.node > self.first_check and _may_fail_on_device(func, args, kwargs):
            raise _Trace(f"run {func}, which may fail on the device")
        result = func(*args, **kwargs)
        if is_random:
            self.random_devices.update((t.device, None) for t in tree_iter(result) if isinstance(t, torch.Tensor))
        return result

    def _follow(self, func: Any, args: tuple[Any, ...]) -> Any:
        """The results of a loop or a branch whose bodies do nothing but what their operators do. Which operator of a body raises is not
        known: some may have run several times."""
        bodies = [arg for arg in args if isinstance(arg, GraphModule)]
        if self.raised is None or func.name() not in _FOLLOWED or len(bodies) != 2:
            raise _Trace(f"run {func}")  # where nothing has raised yet: a loop on wrong data might not end
        given = [arg for arg in args if isinstance(arg, tuple | list)]
        was_last, self.is_last = self.is_last, False
        with self:
            for body in bodies:
                body.forward(*[item for items in given for item in items])
        self.is_last = was_last
        return func(*args)

    def _look(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.has_written:  # another one follows it, so it need not have been the one
            raise _Trace("changed a tensor in place")
        written: list[Any] = []
        others: list[Any] = []
        combines = False
        for name, value, is_written in arguments(func, args, kwargs):
            (written if is_written else others).append(value)
            combines = combines or name == "reduce" or (name == "accumulate" and value)
        changed = self.inputs.intersection(_storages(written))
        read = set(_storages(others))
        if changed and not (
            self.is_last
            and (
                self._had_not_begun(func, written, others)
                or self._comes_to_the_same(func, combines, written, changed, read)
            )
        ):
            raise _Trace("changed a tensor in place")
        self.has_written = bool(changed)
        if not _is_view(func):
            self.read |= read

    def _had_not_begun(self, func: Any, written: list[Any], others: list[Any]) -> bool:
        """For the operator that raises: it has found something wrong with its arguments, before it wrote anything."""
        name = func._schema.name.partition("::")[2]
        if name not in RAISED_HALF_WAY or self.raised not in (RuntimeError, IndexError):
            return False
        if any(t.device.type != "cpu" for t in tree_iter((written, others)) if isinstance(t, torch.Tensor)):
            return False
        is_by_masks = "index_put" in name and all(t is None or t.dtype is torch.bool for t in others[0])
        return is_by_masks or self.raised is not RAISED_HALF_WAY[name]

    def _comes_to_the_same(
        self, func: Any, combines: bool, written: list[Any], changed: set[int], read: set[int]
    ) -> bool:
        """For the operator that raises: it has changed nothing, or what it did is done again and nothing has seen it."""
        name = func._schema.name.partition("::")[2]
        if torch.Tag.pointwise in func.tags:
            return name not in DIVISIONS or all(t.is_floating_point() for t in written)
        return name in OVERWRITES and not combines and not changed & (self.read | read)


_FOLLOWED = frozenset({"while_loop", "cond"})
"""Higher-order operators with two bodies, which get all operands."""


class _Anything(_Watch):
    """Lets operators change what they like: the graph is not going to run."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _has_generator(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(isinstance(value, torch.Generator) for value in tree_iter((args, kwargs)))


def _may_fail_on_device(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator may find something wrong with data that is not in the host's memory, which ends all use of that device: one
    that takes positions, or probabilities."""
    if torch.Tag.pointwise in func.tags or _is_view(func):
        return False
    tensors = [t for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)]
    if all(t.device.type == "cpu" for t in tensors):
        return False
    if torch.Tag.nondeterministic_seeded in func.tags or "assert" in func._schema.name:
        return True
    return len(tensors) > 1 and any(not t.is_floating_point() and not t.is_complex() for t in tensors)


def _is_view(func: Any) -> bool:
    infos = [argument.alias_info for argument in func._schema.arguments]
    return any(info is not None and not info.is_write for info in infos)


def _storages(values: object) -> Iterator[int]:
    for value in tree_iter(values):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            yield value.untyped_storage()._cdata
