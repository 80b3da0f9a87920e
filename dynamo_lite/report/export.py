"""`export(fn, *args)`: the whole of a function or module as one graph that stands by itself.

Input: a function or module, and arguments, real, fake or on the meta device. Output: an `Exported`: a graph module over the flat inputs,
the trees of inputs and outputs, and the guards on the inputs as preconditions.
Invariant: the program is captured, not run: no operator computes anything and nothing outside is changed. Where that cannot be one graph
without effects on Python objects, an error names the user's line. Effects on the module itself that only the first call has, and that
make no difference to the second one, are none: that is found out on a copy, which shares the parameters.
"""

from __future__ import annotations

import _random
import contextlib
import copy
import dataclasses
import functools
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import base_types
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree

from dynamo_lite import markers
from dynamo_lite.api import compile
from dynamo_lite.breaks import UserFrame, format_location
from dynamo_lite.config import config
from dynamo_lite.dynamism.mark_constraints import spoken_path
from dynamo_lite.exc import NotConstant, UserError, UserErrorType
from dynamo_lite.graph.core.state import STATE_TEXT, runs_protected
from dynamo_lite.graph.passes.checks import CHECKS
from dynamo_lite.guards import ir
from dynamo_lite.guards.mirror import GuardFailure, demand_of, explain_miss, step
from dynamo_lite.messages import is_of_program
from dynamo_lite.record import Specialization, log
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.objects.traceback_object import TracebackVariable
from dynamo_lite.variables.stdlib.printing import LateOutput
from dynamo_lite.variables.torch.data.extremes import ExtremeChoice

from .export_shapes import (
    Equality,
    InputPlace,
    by_name,
    check_relations,
    has_signature,
    marked,
    named,
    takes_any_keywords,
)
from .shown_results import DECIDES, Used, is_in_context, shown

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace
    from dynamo_lite.guards.ir import GuardNode
    from dynamo_lite.variables.protocol.base import VariableTracker


@dataclass
class Exported:
    """The result of `export`. Calling it checks the trees and the preconditions, and runs the graph.

    `graph_module` takes the leaves of `((args), kwargs)` in the order of `in_spec` and returns those of the result in the order of
    `out_spec`; parameters, buffers and other tensors are its attributes. `preconditions` are the conditions on the inputs as text,
    `specializations` say which line made constants of numbers. `settings`: those of torch that the graph changes for a while;
    `has_any_keywords`: whether the program sees in which order keyword arguments are given.
    """

    graph_module: GraphModule
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    preconditions: list[str]
    specializations: list[Specialization]
    left_out: list[str]
    check: Callable[..., list[GuardFailure]]
    settings: tuple[Any, ...] = ()
    has_any_keywords: bool = False

    @property
    def graph(self) -> Graph:
        return self.graph_module.graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        positional, keywords = self.in_spec.children()
        if not self.has_any_keywords:
            kwargs = _in_order(kwargs, keywords, deep=False)
        # The guards look at the order of keys where the program does.
        given = tuple(map(_in_order, args, positional.children())) if len(args) == positional.num_children else args
        leaves, spec = pytree.tree_flatten((given, _in_order(kwargs, keywords)))
        if spec != self.in_spec:
            raise ValueError(f"the inputs have another structure: expected {self.in_spec}, got {spec}")
        failures = self.check(args, kwargs)
        if failures:
            raise ValueError("the inputs do not meet the preconditions:\n" + "\n".join(f"  {f}" for f in failures))
        # torch.fx's own call would print the code of the graph where an assertion of the program fails.
        run = functools.partial(torch.nn.Module.__call__, self.graph_module)
        results = runs_protected(self.settings, run, leaves)
        return pytree.tree_unflatten(results, self.out_spec)


def _in_order(value: Any, spec: pytree.TreeSpec, deep: bool = True) -> Any:
    """The same containers, with the keys of dicts in the order of the example; those that have other keys as they are."""
    children = spec.children()
    if type(value) is not spec.type or spec.type not in (dict, list, tuple) or len(value) != len(children):
        return value
    if spec.type is not dict:
        return spec.type(map(_in_order, value, children))
    if set(value) != set(spec.context):
        return value
    return {
        key: _in_order(value[key], child) if deep else value[key]
        for key, child in zip(spec.context, children, strict=True)
    }


logger = logging.getLogger("dynamo_lite")

LOGGING = ("debug", "info", "warning", "error", "exception", "critical", "log")


HANDLES = torch.utils.hooks.RemovableHandle
"""It counts all hooks of the process. Nothing depends on the numbers that they get."""


class RefusedChange(NamedTuple):
    """A change that an exported graph can't make. `owner`: the changed object; `message`: what the program does, without owners; `advice`;
    `place`: the user's line; `is_certain`: whether every call makes it."""

    owner: str
    message: str
    advice: str
    place: UserFrame | None
    is_certain: bool = False


RESULTS_ONLY = "return the new value instead: an exported graph has results only"
RETURN_ITSELF = "return the tensor or the number itself, and do this outside of what is exported"
RETURN_NEW = "have both sides make a new tensor (y.clone()), or choose by torch.where"
IN_PLACE = "change a buffer in place (self.n += 1, self.n.copy_(…)), or return the new value"
HOOK_OUTSIDE = "register hooks outside of what is exported"
SET_OUTSIDE = "set it for a block only (with torch.no_grad(), …), or outside of what is exported"
NO_OUTPUT = "give it to a logger, whose messages are left out, or write it outside of what is exported"
NO_RANDOM_STATE = "draw with torch (torch.rand, torch.randint), or draw outside and pass the number in a tensor"

Steps = list[tuple[int, Any]]
"""The way from a module to something in it: kinds and arguments of guard nodes."""


class _Changes:
    """A backend that computes nothing: the code around the graph stores fakes."""

    dynamo_lite_floats = "numbers"
    dynamo_lite_computes = False
    dynamo_lite_ignores = frozenset({getattr(logging.Logger, name) for name in LOGGING})

    def __call__(self, gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        results, checks = _results(gm)
        fakes = (*[node.meta["example_value"] for node in results], *[False for _ in checks])
        return lambda *args: fakes

    def dynamo_lite_leaves_out(self, tr: Trace) -> None:
        """At the end of the capture: drop the one change that is not of the copy."""
        tr.effects.mutations[:] = [vt for vt in tr.effects.mutations if vt.value is not HANDLES]


def _results(gm: GraphModule) -> tuple[Sequence[Node], Sequence[Node]]:
    """The nodes of a graph's results, and of those of its checks."""
    nodes = next(node for node in gm.graph.nodes if node.op == "output").args[0]
    conditions = gm.meta.get(CHECKS)
    n = len(nodes) - (conditions.n_results if conditions is not None else 0)
    return nodes[:n], nodes[n:]


class _Capture:
    """A backend that keeps the graph, and computes nothing: its outputs only show where they end up.

    Of the objects that the program changes, `left_out` names those that no result depends on, `refused` says of the others what is changed
    and where; `changed` are the ways to all of them from the module, `owner`, None for an object that does not belong to it.
    """

    dynamo_lite_floats = "numbers"
    dynamo_lite_computes = False
    dynamo_lite_ignores = _Changes.dynamo_lite_ignores

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.left_out: list[str] = []
        self.refused: list[RefusedChange] = []
        self.changed: list[Steps | None] = []
        self.gm: GraphModule | None = None
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.has_run = False
        self.returned_at: UserFrame | None = None
        self.hangs_on_grad_mode = False
        self.settings: tuple[Any, ...] = ()
        self.makes_leaves = False
        self.chosen_at: UserFrame | None = None  # where data decide which object something is
        self.function: Any = None  # whose frame it was, which may be a wrapper of the one that is exported

    def __call__(self, gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.gm, self.inputs = gm, list(example_inputs)
        results, checks = _results(gm)
        self.outputs = [shown(node) for node in results]
        given = (*self.outputs, *[False for _ in checks])

        def run(*args: object) -> tuple[Any, ...]:
            self.has_run = True
            return given

        return run

    def dynamo_lite_leaves_out(self, tr: Trace) -> None:
        """At the end of the capture: drop all changes, and take note of those that results depend on, of this call or of a later one."""
        self.left_out, self.refused, self.changed = [], [], []
        self.returned_at = tr.root.returned_at
        self.hangs_on_grad_mode = tr.state.hangs_on_grad_mode
        self.settings = tuple(tr.state.initial)
        self.makes_leaves = bool(tr.graph.passes.leaves.made)
        chosen = [proviso.error for proviso in tr.effects.provisos if isinstance(proviso, ExtremeChoice)]
        self.chosen_at = next((_place_in(error.user_stack) for error in reversed(chosen)), None)
        self.function = tr.root.function
        for vt in tr.effects.mutations:
            if not vt.differs():
                continue
            owner = vt.describe().removesuffix(".__dict__")
            if not _is_attributes(vt):
                self.refused.append(_change(vt, owner, tr.effects.stacks.get(id(vt), [])))
            elif vt.carries_over() or self._is_of_an_argument(tr, vt.source):
                self.refused.append(_change(vt, f"attributes of {owner}", tr.effects.stacks.get(id(vt), [])))
            else:
                self.left_out.append(owner)
            if vt.value is not HANDLES:
                self.changed.append(self._steps(tr, vt.source))
        tr.effects.mutations.clear()
        for function, args in tr.state.final_changes():
            stack = next((stack for key, stack in tr.state.places.items() if key == (function, *args[:-1])), [])
            by = "an inference mode" if function is None else function.__name__
            message = f"the program leaves a setting of torch changed, by {by}"
            change = RefusedChange(
                "", f"{message}, and an exported graph changes none", SET_OUTSIDE, _place_in(stack), is_certain=True
            )
            self.refused.append(change)
            raise self.refusal()  # the code behind the graph would change it

    def _is_of_an_argument(self, tr: Trace, source: GuardNode | None) -> bool:
        root = source.root
        return root.kind == ir.LOCAL and tr.root.values[root.arg] is not self.owner

    def refusal(self) -> UserError:
        """The error to raise because of the changes."""
        lines = []
        for message, advice in dict.fromkeys((change.message, change.advice) for change in self.refused):
            alike = [change for change in self.refused if change.message == message]
            lines.append(message.format(", ".join(dict.fromkeys(change.owner for change in alike))))
            for place in dict.fromkeys(change.place for change in alike):
                lines += format_location(place) if place is not None else []
            lines.append(f"  do:  {advice}")
        return UserError(UserErrorType.ANTI_PATTERN, "\n".join(lines))

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """While the code behind the graph runs: what it does with the graph's results, other than return them, is refused."""
        self.has_run = False
        try:
            yield
        except Exception as error:
            if not self.has_run:
                raise
            use = self._use(error)
            message = f"what the program does with a result of the graph is not in the graph: it {use}"
            if use == DECIDES:
                raise self.refusal_of_result(message, RETURN_NEW, self.chosen_at) from None
            raise self.refusal_of_result(message) from None

    def _use(self, error: Exception) -> str:
        """What the code behind the graph has done with a result, which raised this."""
        if isinstance(error, Used):
            return str(error.args[0])
        if self.makes_leaves:
            return "makes a tensor of it that requires gradients by itself (requires_grad_, torch.nn.Parameter)"
        return f"gives it to what needs the tensor itself ({type(error).__name__})"

    def refusal_of_result(
        self, message: str, advice: str = RETURN_ITSELF, place_of_use: UserFrame | None = None
    ) -> UserError:
        """The error to raise because of what the program returns."""
        found = place_of_use or self.returned_at
        place = format_location(found) if found is not None else []
        return UserError(UserErrorType.INVALID_OUTPUT, "\n".join([message, *place, f"  do:  {advice}"]))

    def dynamo_lite_raises(self, exc: Any) -> None:
        """The program raises this: there is nothing to export."""
        entry = exc.state.get("__traceback__")
        while isinstance(entry, TracebackVariable) and isinstance(entry.next, TracebackVariable):
            entry = entry.next
        message = f"the program raises {_text_of_exception(exc)}"
        if isinstance(entry, TracebackVariable):
            code = entry.frame.frame.code
            place = UserFrame(code.co_filename, entry.lineno, code.co_name)
            message = "\n".join([message, *format_location(place)])
        raise UserError(UserErrorType.INVALID_INPUT, message)

    def _steps(self, tr: Trace, source: GuardNode | None) -> Steps | None:
        if source.root.kind != ir.LOCAL or self._is_of_an_argument(tr, source):
            return None
        steps = []
        while source.parent is not None:
            steps.append((source.kind, source.arg))
            source = source.parent
        return steps[::-1]


def _place_in(stack: list[UserFrame]) -> UserFrame | None:
    return next((frame for frame in reversed(stack) if is_of_program(frame.filename)), None)


def _change(vt: VariableTracker, owner: str, stack: list[UserFrame]) -> RefusedChange:
    """What is told of the change of an object."""
    place = _place_in(stack)
    if isinstance(vt, LateOutput):
        function = vt.place.rpartition(": ")[2]
        return RefusedChange(
            function, "the program calls {}, and an exported graph writes nothing", NO_OUTPUT, place, is_certain=True
        )
    if issubclass(type(vt.value), _random.Random):
        message = "the program changes the state of a random number generator of Python"
        return RefusedChange(owner, message, NO_RANDOM_STATE, place, is_certain=True)
    if owner.endswith("hooks") or vt.value is HANDLES:
        return RefusedChange(owner, "the program registers hooks ({})", HOOK_OUTSIDE, place)
    advice = IN_PLACE if owner.endswith("._buffers") else RESULTS_ONLY
    return RefusedChange(owner, "the program changes {}", advice, place)


def _text_of_exception(exc: Any) -> str:
    try:
        args = exc.state["args"].as_python_constant()
    except (KeyError, NotConstant):
        args = ()
    return ": ".join([exc.python_type().__qualname__, *map(str, args)])


def _is_attributes(vt: VariableTracker) -> bool:
    return vt.source.kind == ir.INSTANCE_DICT and isinstance(vt, DictVariable)


def export(fn: Callable[..., Any], *args: Any, dynamic_shapes: object = None, **kwargs: Any) -> Exported:
    """Capture `fn(*args, **kwargs)` as one whole graph.

    `dynamic_shapes` says which sizes may vary, as in torch.export: a dict by parameter name, or a sequence in the order of the arguments,
    of specifications of each tensor's dimensions: `{0: spec}` or a sequence, `spec` being a `torch.export.Dim` or "dynamic" (must vary),
    `Dim.AUTO` (may vary), or None (constant). All other sizes are constants.

    Attributes of modules and other objects, the arguments apart, that the program sets without having read them are left out; so are
    messages to loggers, and what a module changes in itself in its first call, if the second one changes nothing and is the same graph.
    Raises `Unsupported` at the line where the graph would break, and `UserError` where the program raises, where a size that must vary
    does not, where arguments are of an unknown device, where the program changes other objects that outlive the call (a random number
    generator of Python is one), where it writes something, or where the result holds other objects than tensors and constants.
    """
    if not has_signature(fn):
        message = f"{fn} does not tell its parameters\n  do:  export a Python function that calls it (lambda x: f(x))"
        raise UserError(UserErrorType.INVALID_INPUT, message)
    leaves, in_spec = pytree.tree_flatten((args, kwargs))
    call = _Call([_stand(leaf) for leaf in leaves], in_spec, dynamic_shapes)
    exported, capture = _exported(fn, call)
    if capture.refused:
        if not _changes_once(fn, call, exported, capture.changed):
            raise capture.refusal()
        exported.left_out += [change.owner for change in capture.refused]
    return exported


class _Call(NamedTuple):
    """The arguments to export for: what stands for their leaves, their tree, and which sizes vary."""

    stands: list[Any]
    in_spec: pytree.TreeSpec
    dynamic_shapes: Any

    def run(self, fn: Any, backend: Any) -> tuple[Any, Any, list[InputPlace], dict[str, Any]]:
        """Capture a function and run the compiled version. Returns the compiled function, its result, the sizes that have a `Dim` with a
        name, and the tensors that stood for parameters and buffers."""
        args, kwargs = pytree.tree_unflatten(self.stands, self.in_spec)
        compiled = compile(fn, backend=backend, fullgraph=True, dynamic=False, isolate_recompiles=True)
        state = _state_of(fn)
        with contextlib.ExitStack() as stack:
            # A graph that stands by itself may well have numbers and sizes that only data decide: nobody else would run that operator.
            numbers = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
            stack.enter_context(config.patch(numbers, capture_pure_python=True))  # what is not captured would run
            dims = stack.enter_context(marked(fn, args, kwargs, self.dynamic_shapes))
            if any(isinstance(t, FakeTensor) for t in state.values()):
                state = {name: _stand(t) for name, t in state.items()}
                stack.enter_context(_reparametrize_module(fn, state))
            return compiled, compiled(*args, **kwargs), dims, state


def _exported(fn: Callable[..., Any], call: _Call) -> tuple[Exported, _Capture]:
    """The captured graph of a call, and the changes that the call would make."""
    capture = _Capture(fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None))
    with log.recording() as frames:
        with capture.showing():
            compiled, result, dims, state = call.run(fn, capture)
            capture.has_run = True
            flat, out_spec = pytree.tree_flatten(result)
    if any(change.is_certain for change in capture.refused):
        raise capture.refusal()
    frame = next((f for f in frames if f.guards is not None), None)
    guards = frame.guards.guards() if frame is not None else None
    if guards is None:
        raise UserError(
            UserErrorType.INVALID_INPUT, "nothing was captured; is the function a Python function or a module?"
        )
    check_relations(dims, guards.sizes)
    own = _state_of(fn)
    if is_in_context(out_spec):
        message = "what the program returns has a result of the graph outside of the leaves that torch's pytrees give"
        raise capture.refusal_of_result(message, "let its flatten function give it among the leaves")
    module = _Assembly(capture, call.stands, state, own, guards.sizes).build(flat)
    bind = _binder(fn, capture.function)
    equalities = [Equality(places) for places in by_name(dims).values() if len(places) > 1]
    is_input = _is_argument_of_module if own is not _NO_STATE else _is_argument
    conditions = [guard for guard in guards if not guard.guarded or any(map(is_input, guard.guarded))]
    paths = {guard.path or guard.text for guard in conditions}.union(
        *[_paths_to(n) for g in conditions for n in g.guarded if is_input(n)]
    )
    settings = _settings()
    follows_grad_mode = not capture.hangs_on_grad_mode and not _has_inner_switch(module)

    def check(args: object, kwargs: object, compiled: Any = compiled) -> list[GuardFailure]:
        """`compiled` is kept, because the guards live as long as it does."""
        now = _settings()
        with torch.set_grad_enabled(settings[GRAD_MODE] if follows_grad_mode else now[GRAD_MODE]):
            misses = explain_miss(guards, *bind(args, kwargs))
        return [
            *[_with_settings(f, settings, now) for f in misses if f.path in paths],
            *_unequal(equalities, fn, args, kwargs),
        ]

    conditions.sort(key=lambda guard: bool(guard.guarded))  # torch's settings first
    texts = list(dict.fromkeys([*[_condition(guard, fn) for guard in conditions], *map(str, equalities)]))
    told = texts, frame.specializations, capture.left_out
    exported = Exported(module, call.in_spec, out_spec, *told, check, capture.settings, takes_any_keywords(fn))
    return exported, capture


def _unequal(equalities: list[Equality], fn: Any, args: Any, kwargs: Any) -> list[GuardFailure]:
    if not equalities:
        return []
    given = named(fn, args, kwargs)
    return [failure for equal in equalities for failure in equal.failures(given)]


def _condition(guard: Any, fn: Any) -> str:
    """A condition on the inputs, or on torch's settings, as text."""
    demand = demand_of(guard)
    if guard.kind in (ir.PREDICATE, ir.GLOBAL_STATE) and guard.text:  # it names its values
        return demand
    return f"{', '.join([spoken_path(node, fn) for node in guard.guarded])}: {demand}"


GRAD_MODE = "is_grad_enabled()"


def _settings() -> dict[str, Any]:
    """What the guard on torch's global state looks at that programs set, now."""
    return {
        GRAD_MODE: torch.is_grad_enabled(),
        "is_autocast_enabled('cpu')": torch.is_autocast_enabled("cpu"),
        "is_autocast_enabled('cuda')": torch.is_autocast_enabled("cuda"),
        "get_default_dtype()": torch.get_default_dtype(),
        "are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
    }


def _with_settings(failure: GuardFailure, then: dict[str, Any], now: dict[str, Any]) -> GuardFailure:
    """A failure of the guard on all of torch's global state says what is another one than when the function was exported."""
    names = [name for name in then if then[name] != now[name]]
    if failure.path != STATE_TEXT or not names:
        return failure
    expected, found = (", ".join(f"{name} == {values[name]}" for name in names) for values in (then, now))
    return dataclasses.replace(failure, expected=f"{expected}, as when it was exported", found=found)


def _has_inner_switch(module: GraphModule) -> bool:
    """Whether a graph inside of the graph sets the grad mode."""
    inner = [part.graph for part in module.modules() if isinstance(part, GraphModule) and part is not module]
    return any(node.target is torch._C._set_grad_enabled for graph in inner for node in graph.nodes)


def _is_argument(node: Any) -> bool:
    """Whether something is, or hangs on, an argument: all else is as it was when the graph was made."""
    return bool(node.root.kind == ir.LOCAL)


def _is_argument_of_module(node: Any) -> bool:
    return _is_argument(node) and node.root.arg != 0


def _paths_to(node: Any) -> Iterator[str]:
    while node is not None:
        yield node.path
        node = node.parent


# -- changes in the first call only


def _changes_once(fn: Callable[..., Any], call: _Call, first: Exported, changed: list[Steps | None]) -> bool:
    """Whether only the first call changes objects: after it a call changes nothing, and computes the same."""
    if not isinstance(fn, torch.nn.Module) or None in changed:
        return False
    try:
        other = copy.deepcopy(fn, {id(tensor): tensor for tensor in _state_of(fn).values()})
        if any(_reach(other, steps) is _reach(fn, steps) for steps in changed):
            return False
        call.run(other, _Changes())
        second, capture = _exported(other, call)
    except Exception as error:
        logger.debug("what the first call changes cannot be tried out: %r", error)
        return False
    return not capture.refused and _is_same(first, second)


def _reach(module: torch.nn.Module, steps: Steps) -> Any:
    value: Any = module
    for kind, arg in steps:
        value = step(kind, value, arg)
    return value


def _is_same(one: Exported, other: Exported) -> bool:
    """Whether two exported graphs do the same, under the same conditions."""
    graphs, tensors = zip(*[_contents(exported.graph_module) for exported in (one, other)], strict=True)
    return (
        graphs[0] == graphs[1]
        and one.out_spec == other.out_spec
        and set(one.preconditions) == set(other.preconditions)
        and tensors[0].keys() == tensors[1].keys()
        and all(tensor is tensors[1][name] for name, tensor in tensors[0].items())
    )


def _contents(module: GraphModule) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """The code of the graphs in it, and the tensors."""
    graphs = {name: part.code for name, part in module.named_modules() if isinstance(part, GraphModule)}
    return graphs, _state_of(module)


_NO_STATE: dict[str, Any] = {}


def _state_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """The parameters and buffers of a module by name."""
    if not isinstance(fn, torch.nn.Module):
        return _NO_STATE
    return {**dict(fn.named_parameters(remove_duplicate=False)), **dict(fn.named_buffers(remove_duplicate=False))}


def _stand(leaf: Any) -> Any:
    """The tensor that is captured in the place of a fake one: a real one with its sizes, whose memory nobody touches."""
    if not isinstance(leaf, FakeTensor):
        return leaf
    sizes, strides = ([int(n) for n in numbers] for numbers in (leaf.shape, leaf.stride()))
    try:
        stand = torch.empty_strided(sizes, strides, dtype=leaf.dtype, device=leaf.device)
    except (RuntimeError, AssertionError) as error:
        message = f"a fake tensor on {leaf.device} cannot be captured here: {error}\n  do:  use the meta device"
        raise UserError(UserErrorType.INVALID_INPUT, message) from error
    if isinstance(leaf, torch.nn.Parameter):
        return torch.nn.Parameter(stand, leaf.requires_grad)
    varying = [dim for dim, size in enumerate(leaf.shape) if type(size) is not int]
    if varying:
        markers.mark_dynamic(stand, varying)
    return stand.requires_grad_(leaf.requires_grad)


# -- the graph that stands by itself


class _Assembly:
    """Puts the captured graph into one whose inputs are the leaves of the arguments."""

    def __init__(
        self, capture: _Capture, leaves: list[Any], state: dict[str, Any], own: dict[str, Any], numbers: Any
    ) -> None:
        self.capture = capture
        self.leaves = leaves
        self.names = {id(tensor): name for name, tensor in reversed(state.items())}
        self.own = own
        self.numbers = numbers
        self.root = torch.nn.Module()
        self.graph = Graph()
        self.inputs = [self.graph.placeholder(f"input_{i}") for i in range(len(leaves))]
        self.by_leaf = {id(leaf): node for leaf, node in reversed(list(zip(leaves, self.inputs, strict=True)))}
        self.attributes: dict[int, Node] = {}

    def build(self, flat: list[Any]) -> GraphModule:
        """The module. `flat`: the leaves of the result."""
        known: dict[Node, Node] = {}
        returned: Sequence[Any] = ()
        if self.capture.gm is not None:
            captured = self.capture.gm.graph
            for node, value in zip(captured.find_nodes(op="placeholder"), self.capture.inputs, strict=True):
                known[node] = self.value(value) if isinstance(value, torch.Tensor) else self.size(node)
            for node in captured.nodes:
                if node.op == "get_attr":
                    setattr(self.root, node.target, getattr(self.capture.gm, node.target))
                if node.op not in ("placeholder", "output"):
                    known[node] = self.graph.node_copy(node, known.__getitem__)
            returned, _ = _results(self.capture.gm)
            self.assert_conditions(known)
            if not self.capture.hangs_on_grad_mode:
                self.put_back_grad_mode()
        outputs = {id(given): known[node] for given, node in zip(self.capture.outputs, returned, strict=True)}
        self.graph.output([outputs[id(leaf)] if id(leaf) in outputs else self.value(leaf) for leaf in flat])
        return GraphModule(self.root, self.graph)

    def put_back_grad_mode(self) -> None:
        """Blocks of `torch.no_grad()` leave the grad mode in which the graph is called, which may be another one than it was made in."""
        ends = [
            node
            for node in self.graph.nodes
            if node.target is torch._C._set_grad_enabled and node.op == "call_function" and node.args[0] is True
        ]
        if ends:
            with self.graph.inserting_after(self.inputs[-1]) if self.inputs else self.graph.inserting_before():
                before = self.graph.call_function(torch.is_grad_enabled)
            for node in ends:
                node.args = (before,)

    def assert_conditions(self, known: dict[Node, Node]) -> None:
        """Where the program raises because of data, the graph does."""
        conditions = self.capture.gm.meta.get(CHECKS)
        for failing, line in conditions.failing if conditions is not None else ():
            holds = self.graph.call_function(torch.logical_not, (known[failing],))
            message = f"the data are such that the program raises at\n{line}"
            self.graph.call_function(torch._assert_async, (holds, message))

    def value(self, value: object) -> Any:
        """An input, an attribute for any other tensor, a constant."""
        if not isinstance(value, torch.Tensor):
            if value is not None and type(value) not in base_types:
                name = type(value).__qualname__
                message = f"the result holds a {name}, which is no tensor, no constant and no container that torch's pytrees know"
                advice = f"return what is in it, or register {name} by torch.utils._pytree.register_pytree_node"
                raise self.capture.refusal_of_result(message, advice)
            return value
        if id(value) in self.by_leaf:
            return self.by_leaf[id(value)]
        if id(value) not in self.attributes:
            name = self.names.get(id(value))
            target = name.replace(".", "_") if name is not None else f"constant_{len(self.attributes)}"
            kept = self.own.get(name, value) if name is not None else value
            if isinstance(kept, torch.nn.Parameter):
                self.root.register_parameter(target, kept)
            else:
                self.root.register_buffer(target, kept)
            self.attributes[id(value)] = self.graph.get_attr(target)
        return self.attributes[id(value)]

    def size(self, node: Node) -> Node:
        """The size of an input that a symbolic input of the captured graph stands for."""
        symbol = str(node.meta["example_value"])
        number = next((n for n in self.numbers if n.symbol == symbol and n.owner is not None), None)
        if number is None:
            message = f"the graph needs a number that is no size of a tensor: {node.name}\n  do:  pass it in a tensor"
            raise UserError(UserErrorType.INVALID_INPUT, message)
        return self.graph.call_method("size", (self.value(number.owner()), number.dim))


def _binder(fn: Any, function: Any) -> Callable[[Any, Any], tuple[tuple[Any, ...], Any]]:
    """From arguments to the values of the variables of the captured function, to which `fn` led, and its closure."""
    if isinstance(fn, torch.nn.Module):
        return lambda args, kwargs: ((fn, args, kwargs), None)
    code = function.__code__
    names = code.co_varnames[
        : code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    ]
    is_call_of_object = inspect.getattr_static(type(fn), "__call__", None) is function
    receiver = (fn,) if is_call_of_object else (fn.__self__,) if hasattr(fn, "__self__") else ()

    def bind(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], Any]:
        bound = inspect.signature(function, follow_wrapped=False).bind(*receiver, *args, **kwargs)
        bound.apply_defaults()
        return tuple([bound.arguments[name] for name in names]), function.__closure__

    return bind
