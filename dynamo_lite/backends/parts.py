"""Backends that compile parts of a graph without gradients: the compiler gets the parts that it supports, torch runs the rest.

Input: a graph as `registry` describes it, and a `PartCompiler`. Output: a callable on the flat inputs. AOTAutograd makes the graph
functional and carries out its writes to inputs. Raises NotImplementedError where gradients are wanted, or no part is taken; the graph's
record says which operators were left to torch, and why.
Invariant: random numbers are drawn by torch, in the order of eager execution; tensors that leave a part have the strides that torch
expects; a part whose results differ from torch's in its first call is left to torch, with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynamo_lite.exc import causes, many
from dynamo_lite.messages import warn_user
from dynamo_lite.record import GRAPH_RECORD

from .aot import aot_autograd, boxed
from .difference import problem
from .freezing import FROZEN, freeze
from .options import refuse_unknown
from .tensor_copies import memory_of

if TYPE_CHECKING:
    from torch.fx import GraphModule

Compiled = Callable[..., Sequence[Any]]

NAMESPACES = frozenset({"aten", "prims"})
OPTIONS = ("min_operators", "freezing")
MIN_OPERATORS = 2
"""A part of fewer is not worth the way there and back."""


@dataclass(frozen=True)
class PartCompiler:
    """`name` of the backend. `compile(part, inputs)`: `part` is a functional ATen graph whose nodes have fakes in `meta["val"]`, `inputs`
    are the fakes of its placeholders; its output is a tuple. The result takes tensors and ints and returns as many tensors and ints.
    `compile` raises for a part that it can't compile. `dtypes`: names of the supported dtypes. `decompositions()`: rules for AOTAutograd.
    `takes_constants`: where parameters are frozen, `compile` is also given {number of an input: frozen tensor}, and the result is called
    without these inputs."""

    name: str
    compile: Callable[..., Compiled]
    dtypes: frozenset[str]
    min_operators: int = MIN_OPERATORS
    decompositions: Callable[[], Any] = field(default=lambda: None)
    takes_constants: bool = False


def compile_parts(
    gm: GraphModule, example_inputs: list[Any], compiler: PartCompiler, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The callable that a backend with this compiler makes of a graph. Of the `options`, "freezing" is read here."""

    def compile_graph(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return _compile_graph(gm, example_inputs, compiler)

    if compiler.takes_constants and (options or {}).get("freezing"):
        return freeze(gm, example_inputs, compile_graph, compile_graph)
    return compile_graph(gm, example_inputs)


def _compile_graph(gm: GraphModule, example_inputs: list[Any], compiler: PartCompiler) -> Callable[..., Any]:
    record = gm.meta.get(GRAPH_RECORD)

    def inference(graph: object, fakes: list[Any]) -> Callable[..., Any]:
        found = Split(graph, compiler, frozen_placeholders(graph, gm, len(example_inputs)))
        if record is not None:
            record.notes[f"left to torch by {compiler.name}"] = found.told  # grows where a first call goes wrong
        return boxed(found.module.forward)

    backend = aot_autograd(refuse_gradients, inference_compiler=inference, decompositions=compiler.decompositions())
    return backend(gm, example_inputs)


def frozen_placeholders(functional: Any, gm: GraphModule, n_inputs: int) -> dict[str, Any]:
    """The frozen tensors by the names of the placeholders that AOTAutograd makes of them: parameters and buffers come before the inputs."""
    tensors = {**dict(gm.named_parameters(remove_duplicate=False)), **dict(gm.named_buffers(remove_duplicate=False))}
    placeholders = functional.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(tensors) + n_inputs:  # inputs that share memory were made one
        return {}
    found = {}
    for node, (name, value) in zip(placeholders, tensors.items(), strict=False):
        fake = node.meta["val"]
        if name.startswith(FROZEN) and (fake.shape, fake.dtype) == (value.shape, value.dtype):
            found[node.name] = plain(value)
    return found


def plain(value: Any) -> Any:
    """A real tensor in its usual order. In AOTAutograd's callbacks a fake mode is active, in which operators on data would make fakes."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        return value.detach().contiguous().resolve_conj().resolve_neg()


def validator(name: str) -> Callable[..., None]:
    """A function that checks the options given to `compile` for a backend of parts; it raises RuntimeError."""

    def validate(options: Mapping[str, Any] | None = None) -> None:
        refuse_unknown(name, options, OPTIONS)

    return validate


def refuse_gradients(graph: object, fakes: list[Any]) -> Any:
    raise NotImplementedError("gradients: this backend is for inference, under torch.no_grad()")


class Split:
    """A graph in parts: `module` runs it, `told` says which operators torch keeps and why. `constants`: values of placeholders, by name,
    that are the same in all calls."""

    def __init__(self, gm: GraphModule, compiler: PartCompiler, constants: Mapping[str, Any] | None = None) -> None:
        self.gm = gm
        self.compiler = compiler
        self.constants = constants or {}
        self.refused: dict[str, str] = {}
        self.taken = 0
        for node in gm.graph.nodes:
            reason = why_not(node, compiler.dtypes)
            if reason is not None:
                self.refused[node.name] = reason
        for node in views_that_leave(gm):
            self.refused.setdefault(node.name, "a view that leaves the graph with its base")
        self.compiled: dict[tuple[str, ...], Compiled] = {}
        self.module = self._split()
        self.told = self._notes()

    def _split(self) -> Any:
        """Each round hands the remaining nodes to the compiler; nodes that it refuses are found one by one, once, and left out of the next
        round."""
        while True:
            module, parts = self._cut()
            known = len(self.refused)
            for part, names in parts.items():
                if names not in self.compiled:
                    self._compile(getattr(module, part), names, self._constants_of(module, part))
            if len(self.refused) == known:
                break
        if not parts:
            raise NotImplementedError(f"none of the graph's operators: {'; '.join(self._notes()) or 'too few'}")
        self.taken = sum(map(len, parts.values()))
        for part, names in parts.items():
            setattr(module, part, _part_module(self.compiled[names], getattr(module, part), self._wrong))
        module.recompile()
        return module

    def _cut(self) -> tuple[Any, dict[str, tuple[str, ...]]]:
        """A copy of the graph with a submodule for each part, and the names of the nodes in each."""
        import torch
        from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
        from torch.fx.passes.operator_support import create_op_support
        from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

        graph = torch.fx.Graph()
        copies: dict[Any, Any] = {}
        graph.output(graph.graph_copy(self.gm.graph, copies))
        original = {copy: node for node, copy in copies.items()}
        module = torch.fx.GraphModule(self.gm, graph)
        support = create_op_support(
            lambda _, node: node.op == "call_function" and original[node].name not in self.refused
        )
        proposed = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True).propose_partitions()
        order = {node: i for i, node in enumerate(graph.nodes)}
        groups = [sorted(p, key=order.__getitem__) for one in proposed for p in _by_stretch(graph, one.nodes)]
        groups = [nodes for nodes in groups if sum(map(_computes, nodes)) >= self.compiler.min_operators]
        names = {f"part_{i}": tuple(original[n].name for n in nodes) for i, nodes in enumerate(groups)}
        fuse_by_partitions(module, [dict.fromkeys(n) for n in groups], prefix="part_", always_return_tuple=True)
        return module, names

    def _constants_of(self, module: Any, part: str) -> dict[int, Any]:
        """The inputs of a part that are constants. Copies of the graph have its names."""
        call = next(node for node in module.graph.nodes if node.op == "call_module" and node.target == part)
        return {i: self.constants[node.name] for i, node in enumerate(call.args) if node.name in self.constants}

    def _compile(self, part: object, names: tuple[str, ...], constants: dict[int, Any]) -> None:
        fakes = fakes_of(part)
        try:
            if constants and self.compiler.takes_constants:
                run = self.compiler.compile(part, fakes, constants)
                self.compiled[names] = _with_constants(run, [i for i in range(len(fakes)) if i not in constants])
            else:
                self.compiled[names] = self.compiler.compile(part, fakes)
        except Exception as error:
            found = self._culprits(part)
            self.refused.update(found or dict.fromkeys(names, reason_of(error)))

    def _culprits(self, part: Any) -> dict[str, str]:
        """The nodes that the compiler refuses also alone."""
        results: dict[Any, str | None] = {}
        found = {}
        originals = {node.name: node for node in self.gm.graph.nodes}
        for node in part.graph.nodes:
            if node.op != "call_function" or not _computes(node):
                continue
            kind = _kind(node)
            if kind not in results:
                results[kind] = self._refusal(alone(part, node))
            if results[kind] is not None:
                for one in (originals[node.name], *originals[node.name].users):
                    if one is originals[node.name] or not _computes(one):  # its items go with it
                        found[one.name] = results[kind]
        return found

    def _refusal(self, one: object) -> str | None:
        try:
            self.compiler.compile(one, fakes_of(one))
        except Exception as error:
            return reason_of(error)
        return None

    def _wrong(self, text: str) -> None:
        self.told.append(text)
        warn_user(f"left to torch: {text}")

    def _notes(self) -> list[str]:
        """For each operator that torch keeps, why."""
        targets = {node.name: str(node.target) for node in self.gm.graph.nodes if _computes(node)}
        told: dict[str, int] = {}
        for name, reason in self.refused.items():
            if name in targets:
                text = f"{targets[name]}: {reason}"
                told[text] = told.get(text, 0) + 1
        return [text if count == 1 else f"{text} ({count} times)" for text, count in told.items()]


def _with_constants(run: Compiled, given: list[int]) -> Compiled:
    return lambda *inputs: run(*[inputs[i] for i in given])


def why_not(node: Any, dtypes: Iterable[str]) -> str | None:
    """Why a node must stay with torch, whatever the compiler; None if it need not."""
    import operator

    import torch

    if node.op != "call_function":
        return None
    if isinstance(node.target, torch._ops.OpOverload):
        if node.target.namespace not in NAMESPACES:
            return f"an operator of {node.target.namespace}"
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            return "it draws random numbers"
        if node.target._schema.is_mutable or node.is_impure():
            return "it has effects"
    elif getattr(operator, getattr(node.target, "__name__", ""), None) is not node.target:
        return "a function of Python"
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        return why_not(node.args[0], dtypes)  # an item stays where its operator does
    gives_several = isinstance(node.meta.get("val"), tuple | list)
    for one in (*(node.users if gives_several else (node,)), *node.all_input_nodes):
        for value in torch.utils._pytree.tree_leaves(one.meta.get("val")):
            reason = _why_not_value(value, dtypes)
            if reason is not None:
                return reason
    return None


def _why_not_value(value: Any, dtypes: Iterable[str]) -> str | None:
    import torch
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    if isinstance(value, torch.SymFloat | torch.SymBool):
        return "a number that is no int"
    if isinstance(value, torch.SymInt):
        return "sizes that depend on data" if free_unbacked_symbols(value) else None
    if not isinstance(value, torch.Tensor):
        return None
    if value.layout is not torch.strided or value.is_quantized:
        return "no plain dense tensor"
    if str(value.dtype).partition(".")[2] not in dtypes:
        return f"{value.dtype}"
    if free_unbacked_symbols(value):
        return "sizes that depend on data"
    if any(isinstance(size, int) and size == 0 for size in value.shape):
        return "no elements"
    return None


def views_that_leave(gm: GraphModule) -> list[Any]:
    """The views on the way to results that share memory with others, or with inputs: only torch makes them so."""
    import torch

    def memory(node: Any) -> int | None:
        value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        return memory_of(value) if isinstance(value, torch.Tensor) and value.layout is torch.strided else None

    ends = [n for n in gm.graph.output_node().args[0] if isinstance(n, torch.fx.Node)]
    known = [memory(n) for n in (*dict.fromkeys(ends), *gm.graph.find_nodes(op="placeholder"))]
    found: dict[Any, None] = {}
    for node in ends:
        while known.count(memory(node)) > 1 and memory(node) is not None:
            base = next((n for n in node.all_input_nodes if memory(n) == memory(node)), None)
            if base is None:
                break
            found[node] = None
            node = base
    return list(found)


def _by_stretch(graph: Any, nodes: Iterable[Any]) -> list[list[Any]]:
    """The nodes of a part, cut at random operators and effects: a part is run at one place, and their order must stay."""
    stretch, found, wanted = 0, {}, set(nodes)
    for node in graph.nodes:
        if node in wanted:
            found.setdefault(stretch, []).append(node)
        elif node.op == "call_function" and why_not(node, ()) in ("it draws random numbers", "it has effects"):
            stretch += 1
    return list(found.values())


def _computes(node: Any) -> bool:
    """Whether a node is an operator on tensors, not a step on the way of numbers and items."""
    return node.op == "call_function" and type(node.target).__name__ == "OpOverload"


def _kind(node: Any) -> Any:
    """Equal for nodes that a compiler treats alike."""
    import torch

    def describe(one: Any) -> str:
        values = torch.utils._pytree.tree_leaves(one.meta.get("val"))
        return ",".join(f"{v.dtype}{len(v.shape)}" if isinstance(v, torch.Tensor) else type(v).__name__ for v in values)

    args = torch.fx.node.map_arg((node.args, node.kwargs), describe)
    return node.target, repr(args)


def alone(gm: GraphModule, node: Any) -> Any:
    """A graph of one node, or of it and its items if it gives several."""
    import torch

    graph = torch.fx.Graph()
    inputs: dict[Any, Any] = {}
    for one in node.all_input_nodes:
        inputs[one] = graph.placeholder(one.name)
        inputs[one].meta = dict(one.meta)
    copy = graph.node_copy(node, inputs.__getitem__)
    ends = [copy]
    if isinstance(node.meta.get("val"), tuple | list):
        items = [u for u in node.users if u.op == "call_function" and not _computes(u)]
        ends = [graph.node_copy(u, {node: copy}.__getitem__) for u in items]
    graph.output(tuple(ends))
    return torch.fx.GraphModule(gm, graph)


def fakes_of(part: Any) -> list[Any]:
    """The fake inputs of a part."""
    return [node.meta["val"] for node in part.graph.find_nodes(op="placeholder")]


def outputs_of(part: Any) -> list[Any]:
    """The fake outputs of a part."""
    return [node.meta["val"] for node in part.graph.output_node().args[0]]


def reason_of(error: BaseException) -> str:
    """The innermost cause of an error, in one line: the first of its message that says more than where in the source it was raised."""
    *_, error = causes(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not _PLACE.match(line)] or lines or [""]
    return f"{type(error).__name__}: {told[0][:300]}"


_PLACE = re.compile(r"(Exception|Check '.*' failed|\[.*\]:?) ?(from|at)? ?\S*:\d*:?$|\[.*\]$")


def _part_module(run: Compiled, part: Any, note: Callable[[str], None]) -> Any:
    """A module that runs a part. Its first call is held against torch: what gives other results is left to torch from then on."""
    import torch

    to_fit = [(i, fit) for i, fit in enumerate(map(_layout, outputs_of(part))) if fit is not None]

    def fitted(*inputs: Any) -> Sequence[Any]:
        outputs = run(*inputs)
        if to_fit:
            outputs = list(outputs)
            for i, fit in to_fit:
                outputs[i] = fit(outputs[i])
        return outputs

    class Part(torch.nn.Module):
        def forward(self, *inputs: Any) -> Sequence[Any]:
            expected = part(*inputs)
            try:
                found = problem(expected, fitted(*inputs))
            except Exception as error:
                found = reason_of(error)
            if found is None:
                self.forward = fitted
            else:
                count = sum(map(_computes, part.graph.nodes))
                note(f"a part of {many(count, 'operator')}, from {_first_target(part)}: {found}")
                self.forward = part.forward
            return expected

    return Part()


def _first_target(part: Any) -> str:
    return next(str(node.target) for node in part.graph.nodes if _computes(node))


def _layout(value: Any) -> Callable[[Any], Any] | None:
    """A function that gives a contiguous tensor the order of strides of this fake; None if the fake is contiguous."""
    import torch
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    if not isinstance(value, torch.Tensor) or value.is_contiguous():
        return None
    hints = [int(s) if isinstance(s, int) else s.node.hint or 0 for s in value.stride()]
    order = sorted(range(value.dim()), key=lambda d: -hints[d])
    back = [order.index(d) for d in range(value.dim())]
    repeated = [d for d in range(value.dim()) if hints[d] == 0 and not guard_or_false(value.shape[d] == 1)]

    def fit(tensor: Any) -> Any:
        shape = tensor.shape
        for d in repeated:
            tensor = tensor.narrow(d, 0, 1)
        tensor = tensor.permute(order).contiguous().permute(back)
        return tensor.expand(shape) if repeated else tensor

    return fit
