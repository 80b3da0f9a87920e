"""The autograd engine inside a graph: what `torch.autograd.grad` returns, and leaves that the graph itself makes.

Input: a builder, the nodes of outputs and inputs. Output: fakes of the gradients, None where there is none.
Invariant: fake tensors of a trace have no history (most are never made), so the graph so far is run once more on fresh ones. A leaf made in
the graph stays in it: a compiled graph is one node of autograd, which ends at the graph's inputs.
Mirrors `torch/autograd/__init__.py` and `torch/csrc/autograd/python_engine.cpp`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import weakref
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from dynamo_lite.backends.branch import branch
from dynamo_lite.exc import Unsupported, gist, unsupported
from dynamo_lite.signals import let_through

from .keep_dynamo_unloaded import without_compiler
from .modes import dispatch_keys_kept, inference_modes_left
from .nodes import run_node
from .saved_tensors import closed, enter
from .state import leave_autocast
from .values import TensorValue, requires_grad

if TYPE_CHECKING:
    from dynamo_lite.graph.builder import GraphBuilder

SLUG = "backward-call"

_OF_THE_PROCESS = frozenset(
    {
        torch.set_autocast_cache_enabled,
        torch.autocast_increment_nesting,
        torch.autocast_decrement_nesting,
        torch.clear_autocast_cache,
        leave_autocast,
    }
)
"""Changes of the ambient state that do not concern fake tensors."""


def gradients(
    builder: GraphBuilder,
    outputs: list[Node],
    inputs: list[Node],
    cotangents: object,
    options: dict[str, Any],
    rerun: Rerun | None = None,
    order: list[int] | None = None,
    are_copied: bool = False,
) -> Gradients:
    """`torch.autograd.grad(outputs, inputs, cotangents, **options)`.

    `rerun`: the run of the graph on fakes to go on with, for a caller that asks in several steps; None: a new one. `order`: a list that
    gets the positions of the gradients that there are, as they arrive. `are_copied`: the caller copies gradients that no leaf takes over,
    so that it does not matter how they lie in memory. Raises `Unsupported` if the call raises, or if data decide how a gradient that is not
    copied lies in memory.
    """
    if has_uneven_branches(builder.graph):
        unsupported(SLUG, "gradients through a branch whose sides give them to different tensors")

    # A whole backward pass, whose leaves can be asked what they do: no later step needs its fakes as they were.
    once = rerun is None and order is not None

    def ask(rerun: Rerun, order: list[int] | None) -> Gradients:
        with rerun.at_the_end(builder.propagator.dispatcher(), SLUG, "grad") as values:
            arguments = map_arg((tuple(outputs), tuple(inputs), cotangents), values.__getitem__)
            with _told(arguments[1], order):
                fakes = list(torch.autograd.grad(*arguments, **(options | {"retain_graph": True} if once else options)))
            kin = _kin(fakes, values)
            taken = [fake is not None and one is None for fake, one in zip(fakes, kin, strict=True)]
            if once and any(kin) and all(leaf.is_leaf for leaf in arguments[1]):
                taken = _taken(*arguments)
            return Gradients(fakes, taken, kin)

    fakes, taken, kin = ask(rerun or Rerun(builder), order)
    if order is not None:  # a pass inside of the pass may have come by as well
        order[:] = [i for i in dict.fromkeys(order) if fakes[i] is not None]
    is_known = [True] * len(fakes)
    branches = [node for node, _, _ in history(builder, outputs) if node.target is branch]
    if branches and (rerun is not None or not _may_try_sides(builder, branches)):
        is_known = [fake is None for fake in fakes]
    elif branches:
        places = list(map(_place, fakes, taken))
        others = [list(map(_place, *ask(way, None)[:2])) for way in _each_way(builder, branches)]
        is_known = [all(place == other[i] for other in others) for i, place in enumerate(places)]
    if not (are_copied or all(is_known)):
        unsupported(SLUG, "gradients through a branch, which decides how they lie in memory")
    return Gradients(fakes, [is_taken and known for is_taken, known in zip(taken, is_known, strict=True)], kin)


class Kin(NamedTuple):
    """A tensor in the memory of a gradient: a value of the graph, or the position of an earlier gradient. `is_same`: the very object."""

    other: TensorValue | int
    is_same: bool


class Gradients(NamedTuple):
    """`taken`: which gradients a leaf that has none keeps instead of a copy. `kin`: for each gradient what it shares memory with; None for
    one whose memory is its own, and for an absent one."""

    fakes: list[Any]
    taken: list[bool]
    kin: list[Kin | None]


def _kin(fakes: list[Any], values: dict[Node, Any]) -> list[Kin | None]:
    """What is in the memory of these gradients: of other ones, or of the values of the graph."""
    same: dict[int, TensorValue | int] = {}
    near: dict[Any, TensorValue | int] = {}
    for node, value in values.items():
        for subject, tensor in _tensors_of(node.meta, value):
            same[id(tensor)] = near[memory_of(tensor)] = subject
    result: list[Kin | None] = []
    for i, fake in enumerate(fakes):
        memory = memory_of(fake)
        if fake is None:
            result.append(None)
        elif id(fake) in same:
            result.append(Kin(same[id(fake)], True))
        else:
            result.append(Kin(near[memory], False) if memory is not None and memory in near else None)
            same[id(fake)] = near[memory] = i
    return result


def _tensors_of(meta: Any, value: Any) -> Iterator[tuple[TensorValue, torch.Tensor]]:
    """The tensors among the results of a node, each with its value in the graph."""
    if isinstance(value, torch.Tensor) and isinstance(getattr(meta, "subject", None), TensorValue):
        yield meta.subject, value
    elif isinstance(value, tuple | list) and getattr(meta, "sequence", None) is not None:
        for known, item in zip(meta.sequence.items, value, strict=False):
            if isinstance(known, TensorValue) and isinstance(item, torch.Tensor):
                yield known, item


def _taken(outputs: tuple[Any, ...], leaves: tuple[Any, ...], cotangents: Any) -> list[bool]:
    """Which leaves take their first gradient over. `AccumulateGrad` decides by what refers to the tensor object, not to its memory, when it
    arrives, so that it is asked."""
    memories: dict[int, Any] = {}

    def note(i: int, gradient: torch.Tensor) -> None:
        # The storage is kept and not the tensor: a reference to that would keep the leaf from taking it over.
        memories[i] = gradient.untyped_storage() if gradient.layout is torch.strided else None

    handles = [leaf.register_hook(functools.partial(note, i)) for i, leaf in enumerate(leaves)]
    torch.autograd.backward(outputs, cotangents, inputs=leaves)
    for handle in handles:
        handle.remove()
    arrived = [memories.get(i) for i in range(len(leaves))]
    return [
        memory is not None and leaf.grad is not None and memory_of(leaf.grad) == memory._cdata
        for leaf, memory in zip(leaves, arrived, strict=True)
    ]


MOST_BRANCHES = 4
"""Through which gradients are computed once for each way that they may take."""


def _may_try_sides(builder: GraphBuilder, branches: list[Node]) -> bool:
    """Whether there are not too many ways through these branches, and none inside of another one."""
    modules = builder.bodies if builder.scope is None else builder.scope.bodies
    graphs = [modules[side.target].graph for node in branches for side in node.args[1:3]]
    return len(branches) <= MOST_BRANCHES and not any(
        graph.find_nodes(op="call_function", target=branch) for graph in graphs
    )


def _each_way(builder: GraphBuilder, branches: list[Node]) -> Iterator[Rerun]:
    """The graph with one side of each branch in its place, for all choices: as a graph that is not compiled runs."""
    for truths in itertools.product([0, 1], repeat=len(branches)):
        rerun = Rerun(builder)
        for node, i in zip(branches, truths, strict=True):
            rerun.instead[node] = functools.partial(_one_side, node, i, rerun.values)
        yield rerun


def _one_side(node: Node, i: int, values: dict[Node, Any]) -> list[Any]:
    """The results of a side of a branch."""
    _, *sides, operands = map_arg(node.args, values.__getitem__)
    return list(sides[i].forward(*operands))


def _place(fake: Any, is_taken: bool) -> Any:
    """How a gradient lies in memory."""
    return fake is not None and (is_taken, fake.layout, fake.layout is torch.strided and fake.stride())


@contextlib.contextmanager
def _told(inputs: tuple[torch.Tensor, ...], order: list[int] | None) -> Iterator[None]:
    """Write down in which order gradients arrive."""
    handles = []
    if order is not None:
        for i, tensor in enumerate(inputs):
            handles.append(tensor.register_hook(lambda grad, i=i: order.append(i)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Rerun:
    """The graph so far run on fakes with a history, which goes on where it ended when more has been added. `instead`: the functions that
    are called in the place of some nodes."""

    def __init__(self, builder: GraphBuilder, instead: Mapping[Node, Callable[[], Any]] | None = None) -> None:
        self.builder = builder
        self.instead = dict(instead or {})
        self.values: dict[Node, Any] = {}
        self._ambient: dict[Any, Any] = {}

    @contextlib.contextmanager
    def at_the_end(self, dispatcher: Any, slug: str, what: str) -> Iterator[dict[Node, Any]]:
        """The values of all nodes, in the ambient state that the graph so far leaves. An exception becomes a break."""
        builder, caches_casts = self.builder, torch.is_autocast_cache_enabled()
        try:
            state, left = builder.state.as_it_was, inference_modes_left(self.values)
            kept = dispatch_keys_kept()  # inside of the dispatcher, which is there since it was made
            # an inference mode sets the grad mode as well: the state is put back around those, and set within those that go on
            with builder.propagator.mode, without_compiler, dispatcher, kept, state({}), left, state(self._ambient):
                torch.set_autocast_cache_enabled(False)
                with closed():
                    self._run()
                self._ambient = builder.state.of_now()
                yield self.values
        except Unsupported:
            raise
        except Exception as error:
            let_through(error)
            unsupported(slug, f"{what}: {gist(error)}", error)
        finally:
            torch.set_autocast_cache_enabled(caches_casts)

    def _run(self) -> None:
        builder, values = self.builder, self.values
        bodies = builder.bodies if builder.scope is None else builder.scope.bodies
        for node in builder.graph.nodes:
            if node in values:
                continue
            if node.op == "placeholder":
                values[node] = _fresh(builder.propagator, node)
            elif node.op == "get_attr":
                values[node] = bodies[node.target]
            elif node in self.instead:
                values[node] = self.instead[node]()
            elif node.op != "output" and node.target not in _OF_THE_PROCESS:
                values[node] = run_node(node, values)


class _Saved:
    """Stands for a tensor that an operator keeps for its gradient; alive as long as the gradient can be computed."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def at_the_end(builder: GraphBuilder, ask: Callable[[dict[Node, Any]], Any], dispatcher: Any = None) -> Any:
    """The result of `ask` for the values of all nodes, as fakes, after a run of the graph so far. `dispatcher`: instead of the trace's."""
    dispatcher = builder.propagator.dispatcher() if dispatcher is None else dispatcher
    with Rerun(builder).at_the_end(dispatcher, SLUG, "the graph on its own") as values:
        found = ask(values)
    return found


def function_name(builder: GraphBuilder, value: TensorValue) -> str | None:
    """The class of the `grad_fn` that eager execution gives a tensor which is no leaf; None where the graph may have another one."""
    node = builder.node(value)
    if node.op == "placeholder" or builder.scope is not None:
        return None

    def ask(values: dict[Node, Any]) -> str | None:
        result = values[node]
        is_rebased = result._is_view() and result._version  # by `as_strided`, where the tensor is no fake
        name = type(result.grad_fn).__name__
        return name if _OF_TORCH.fullmatch(name) and name not in _OF_CAPTURE and not is_rebased else None

    # composite operators as C++ has them: a dispatcher in Python decomposes some of them otherwise
    found: str | None = at_the_end(builder, ask, contextlib.nullcontext())
    return found


_OF_TORCH = re.compile(r"[A-Z]\w*Backward\d+")
_OF_CAPTURE = frozenset({"WhereBackward0", "AliasBackward0"})
"""What stands for branches of the program, and for tensors of a class, in the graph."""


class _Hooks(NamedTuple):
    pack: Callable[[torch.Tensor], Any]
    unpack: Callable[[Any], torch.Tensor]


def is_kept(builder: GraphBuilder, node: Node) -> bool:
    """Whether an operator of the graph so far keeps the value of a node for a gradient that may still be asked for."""
    if torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() is not None:
        return True
    kept: weakref.WeakSet[_Saved] = weakref.WeakSet()

    def pack(tensor: torch.Tensor) -> _Saved:
        saved = _Saved(tensor)
        kept.add(saved)
        return saved

    def ask(values: dict[Node, Any]) -> bool:
        memory = memory_of(values[node])
        return memory is None or any(memory_of(saved.tensor) == memory for saved in kept)

    rerun = Rerun(builder)
    for at in builder.graph.find_nodes(
        op="call_function", target=branch
    ):  # whose operator keeps all that its sides use
        rerun.instead[at] = functools.partial(_both_sides, at, rerun.values)
    with closed():
        enter(_Hooks(pack, attrgetter("tensor")))  # which are called also where those of the program are not
        with rerun.at_the_end(builder.propagator.dispatcher(), SLUG, "the graph on its own") as values:
            found = ask(values)
    return found


UNEVEN = "dynamo_lite_uneven"
"""A key of the `meta` of a branch whose sides give gradients to different tensors: `UNEVEN`, or `INSIDE` if a branch within it decides."""

INSIDE = "inside"


def has_uneven_branches(graph: Graph) -> bool:
    """Whether data decide to which tensors gradients of a graph go."""
    return any(UNEVEN in node.meta for node in graph.find_nodes(op="call_function", target=branch))


def _both_sides(node: Node, values: dict[Node, Any]) -> list[Any]:
    """The results of a branch of the program, with the history of both sides."""
    _, *sides, operands = map_arg(node.args, values.__getitem__)
    pairs = zip(*[side.forward(*operands) for side in sides], strict=True)
    return [_either(*pair) if isinstance(pair[0], torch.Tensor) else pair[0] for pair in pairs]


def _either(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.ones((), dtype=torch.bool, device=one.device), one, other)


def memory_of(value: Any) -> Any:
    """A key of the memory of a tensor: tensors in one memory have the same; None if the memory is unknown."""
    is_strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage()._cdata if is_strided else None


def history(builder: GraphBuilder, outputs: list[Node]) -> Iterator[tuple[Node, Any, bool]]:
    """`(node, its value, whether the history ends there)` of what the gradients of these outputs flow through."""
    seen, pending = set(), list(outputs)
    while pending:
        node = pending.pop()
        subject: Any = getattr(node.meta, "subject", None)
        is_tensor = isinstance(subject, TensorValue)
        if node in seen or (is_tensor and not subject.meta.requires_grad):
            continue
        seen.add(node)
        is_end = is_tensor and (subject in builder.passes.leaves.made or node.op == "placeholder")
        yield node, subject, is_end
        if not is_end:
            pending.extend(node.all_input_nodes)


def may_ask_inside(code: CodeType, namespace: dict[str, Any]) -> bool:
    """Whether code may ask for the gradients of tensors that it has computed: by `torch.autograd.grad`, or by a hook."""
    names = set(code.co_names)
    known = [namespace.get(name) for name in code.co_names]
    is_named = "grad" in names and ("autograd" in names or any(value is torch.autograd for value in known))
    return is_named or not names.isdisjoint(_ASKING) or any(value is torch.autograd.grad for value in known)


_ASKING = frozenset({"register_hook", "retain_grad"})


def first_between(builder: GraphBuilder) -> Node | None:
    """The first operator between two outputs, through which the gradients of one flow to the other. To autograd the outputs of a compiled
    graph have nothing to do with each other."""
    outputs = [node for node in builder.outputs if requires_grad(node)]
    begun = [node for node in outputs if node.op != "placeholder" and not node.meta.subject.meta.is_leaf]
    between: set[Node] = set()
    for output in outputs if len(begun) > 1 else ():
        passed = {node for node, _, _ in history(builder, [output])}
        between.update(user for node in begun if node is not output for user in node.users if user in passed)
    return next((node for node in builder.graph.nodes if node in between), None)


def reached_leaves(builder: GraphBuilder, outputs: list[Node]) -> list[TensorValue]:
    """The leaves to which `backward` of these outputs would add gradients. Breaks if the history of an input goes on outside."""
    found: list[TensorValue] = []
    for _, subject, is_end in history(builder, outputs):
        if is_end:
            if not subject.meta.is_leaf:
                unsupported(SLUG, "backward through an input that has a history")
            found.append(subject)
    return found[::-1]


def saved_tensors(builder: GraphBuilder, hooks: dict[Node, Any], decomposed: bool) -> dict[Node, Any]:
    """The values of all nodes so far, as fakes. `hooks` get what operators save in blocks, by the nodes that begin these; if
    `decomposed`, operators that have a form in Python which compilers follow are taken in it. Raises `Unsupported` if one of them raises.
    """
    instead = {node: functools.partial(enter, given) for node, given in hooks.items()}
    dispatcher = enable_python_dispatcher() if decomposed else contextlib.nullcontext()
    with Rerun(builder, instead).at_the_end(dispatcher, HOOKS, "the block on its own") as values:
        return values


HOOKS = "grad-mode"


def _fresh(propagator: Any, node: Node) -> Any:
    """A new fake for an input: what the graph changes in place must not be changed twice."""
    value = node.meta.subject
    if not isinstance(value, TensorValue):
        return node.meta["example_value"]
    if not value.meta.live:
        return propagator.make_fake(value.meta)
    with torch.no_grad():
        fake = propagator.fake_of(value).detach().clone()
    if not value.meta.requires_grad:
        return fake
    fake.requires_grad_()
    with torch.enable_grad():
        return fake if value.meta.is_leaf else fake.clone()


# -- results whose history is gone
