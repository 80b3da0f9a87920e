"""Control flow operators: `cond`, `while_loop`, `map`, `scan`, `associative_scan`.

Input: calls of these. Output: one graph node each, with the functions as sub-graphs.
Invariant: that of `variables.torch.body`.
Mirrors `torch/_higher_order_ops/cond.py`, `while_loop.py`, `map.py`, `scan.py` and `associative_scan.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan_op, generic_associative_scan
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op, while_loop_stack_output_op
from torch.fx import GraphModule

from dynamo_lite.backends.branch import branch
from dynamo_lite.exc import gist, unsupported
from dynamo_lite.graph.bodies import BREAK, shares_memory
from dynamo_lite.graph.core.keep_dynamo_unloaded import without_compiler
from dynamo_lite.graph.core.storages import origin
from dynamo_lite.graph.core.values import SymValue, TensorValue
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.tuple import TupleVariable
from dynamo_lite.variables.protocol.base import VariableTracker
from dynamo_lite.variables.torch.body import (
    REGION,
    UNSHARED,
    CapturedBody,
    Flattening,
    argument_of,
    body_with,
    capture,
    detached,
    fakes_of,
    is_int,
    needs_grad,
    operator_model,
    returning,
    structure,
    union,
)
from dynamo_lite.variables.torch.symnode import SymNodeVariable, is_unbacked, scalar_tensor
from dynamo_lite.variables.torch.tensor import TensorVariable

if TYPE_CHECKING:
    from torch._ops import HigherOrderOperator

    from dynamo_lite.graph.builder import GraphBuilder
    from dynamo_lite.interp.frame import Frame

# -- bodies


def _fake_results(
    captured: CapturedBody, module: GraphModule, lifted: list[Any], changed: Sequence[Any] = ()
) -> list[Any]:
    results = captured.body.run(module, lifted, changed)
    propagator = captured.tx.tr.graph.propagator
    inputs = [propagator.fake_of(v) for v in [*captured.body.argument_values, *lifted] if hasattr(v, "meta")]
    if shares_memory(results, inputs):
        unsupported(BREAK, "a result of the body is, or is a view of, one of its inputs or another result")
    return results


def _same_metadata(a: object, b: object) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) == isinstance(b, torch.Tensor)
    return (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)


def _tensors(tx: Frame, *lists: VariableTracker) -> list[list[Any]]:
    """The items of sequences that must be tensors."""
    result = []
    for vt in lists:
        items = tx.tr.unpack(tx, vt)
        if not all(isinstance(item, TensorVariable) for item in items):
            unsupported(BREAK, "an argument that is not a tensor")
        result.append(items)
    return result


def _lifted(captured: list[CapturedBody], changed: Sequence[Any] = ()) -> list[Any]:
    """The values from outside that the bodies use: tensors and ints. These operators take no other numbers: floats that vary become
    constants, and those that data decide are read from tensors, as bools are."""
    tensors: dict[SymValue, TensorValue] = {}
    for one in captured:
        one.body.fix_floats()
        for value in list(one.lifted):
            if isinstance(value, SymValue) and type(value.sym) is not torch.SymInt:
                if value not in tensors:
                    tensors[value] = scalar_tensor(one.tx, SymNodeVariable(value)).proxy
                one.body.read_from(value, tensors[value])
    _share_memory(captured, set(map(origin, changed)))
    return union(captured)


def _share_memory(captured: list[CapturedBody], changed: set[TensorValue]) -> None:
    """Where the bodies use several tensors in one memory, which the operators refuse, give them the first one, of which they make views. Of
    what the bodies change they have copies."""
    memories: dict[TensorValue, list[TensorValue]] = {}
    for value in union(captured):
        if isinstance(value, TensorValue):
            memories.setdefault(origin(value), []).append(value)
    for memory, values in memories.items():
        for value in values if len(values) > 1 and memory not in changed else ():
            for one in captured:
                if value in one.body.lifted:
                    one.body.view_again(value)


def _nodes(graph: GraphBuilder, values: list[Any]) -> tuple[Any, ...]:
    return tuple([graph.node(v) for v in values])


# -- cond


@operator_model("cond", REGION, f"{UNSHARED}; the branches return different structures", is_always_captured=True)
def cond(
    tx: Frame,
    pred: VariableTracker,
    true_fn: VariableTracker,
    false_fn: VariableTracker,
    operands: VariableTracker | None = None,
) -> VariableTracker:
    """`torch.cond`. A condition that is known picks its branch."""
    _check_cond(pred, true_fn, false_fn, operands)
    args = [] if operands is None else tx.tr.unpack(tx, operands)
    if not isinstance(pred, TensorVariable) and not _is_unknown(pred):
        known = pred.nb_bool(tx) if isinstance(pred, SymNodeVariable) else pred
        if not known.is_python_constant() or not issubclass(known.python_type(), bool | int | float):
            unsupported(BREAK, f"cond on a {pred.python_type().__name__}")
        return tx.call(true_fn if known.as_python_constant() else false_fn, args)
    _expect_tensors_and_ints(tx, TupleVariable(args))
    branches = [capture(tx, fn, args, with_ints=True) for fn in (true_fn, false_fn)]
    for side in branches:
        _expect_tensors_and_ints(tx, side.result)
    if structure(tx, branches[0].result) != structure(tx, branches[1].result):
        unsupported(BREAK, "the branches of cond return different structures")
    return Branches(tx, pred, branches).node()


class Branches:
    """The followed sides of a branch, of which `pred` takes the first if it is true; `results` are fakes of what each returns. `changed`:
    tensors from outside of which the sides change copies."""

    def __init__(
        self,
        tx: Frame,
        pred: TensorVariable | SymNodeVariable,
        sides: list[CapturedBody],
        changed: Sequence[Any] = (),
    ) -> None:
        self.tx, self.pred, self.sides = tx, pred, sides
        self.lifted = _lifted(sides, changed)
        self.modules = [side.module(self.lifted) for side in sides]
        self.results = [
            _fake_results(side, m, self.lifted, changed) for side, m in zip(sides, self.modules, strict=True)
        ]

    def node(self, of_program: bool = False) -> VariableTracker:
        """The result of a node of `torch.cond`, all of whose tensors require gradients if one does. `of_program`: a branch of the program,
        whose tensors do as those of the sides."""
        tx, graph = self.tx, self.tx.tr.graph
        same = all(map(_are_equal, *self.results))
        results = self.results[0] if same else _merged(tx, self.pred, self.modules, self.lifted)
        args = [graph.node(self.pred.proxy), *map(graph.body_node, self.modules), _nodes(graph, self.lifted)]
        fakes = detached(tx, results, needs_grad(self.lifted))
        made = graph.operators.call_with_results(tx, branch if of_program else cond_op, args, {}, fakes)
        for i, sides in enumerate(zip(*self.results, strict=True) if of_program else ()):
            is_recorded = isinstance(made[i], TensorVariable) and made[i].proxy.meta.requires_grad
            if is_recorded and not any(result.requires_grad for result in sides):
                made[i] = graph.call(tx, "call_method", "detach", [made[i]])
        return self.sides[0].rebuild(made)


def _check_cond(
    pred: VariableTracker, true_fn: VariableTracker, false_fn: VariableTracker, operands: VariableTracker | None
) -> None:
    """Break for arguments that the operator refuses."""
    if not (operands is None or isinstance(operands, TupleVariable | ListVariable)):
        unsupported(BREAK, "operands of cond that are no tuple")
    if not all(callable(fn.as_python_constant()) for fn in (true_fn, false_fn) if fn.is_python_constant()):
        unsupported(BREAK, "a branch of cond that cannot be called")
    if isinstance(pred, TensorVariable) and not pred.proxy.meta.live and pred.proxy.meta.numel() != 1:
        unsupported(BREAK, "cond on a tensor with several elements")


def _expect_tensors_and_ints(tx: Frame, vt: VariableTracker) -> None:
    if not Flattening(tx, [], with_ints=True).of(vt).is_of_tensors:
        unsupported(BREAK, "cond takes and returns tensors and ints")


def _is_unknown(pred: VariableTracker) -> bool:
    return isinstance(pred, SymNodeVariable) and is_unbacked(pred.proxy.sym)


def _are_equal(one: object, other: object) -> bool:
    """Whether the branches return the same number, or tensors of the same kind."""
    return one == other if type(one) is int and type(other) is int else _is_tensor_like(one, other)


def _is_tensor_like(one: object, other: object) -> bool:
    return isinstance(one, torch.Tensor) and _same_metadata(one, other)


def _merged(
    tx: Frame, pred: TensorVariable | SymNodeVariable, modules: list[GraphModule], lifted: list[Any]
) -> list[Any]:
    """Fakes of the results where numbers or sizes depend on which branch runs."""
    known, *values = _host(tx, [pred.proxy, *lifted])
    return _ask_operator(tx, cond_op, [known, *modules, tuple(values)])


def _host(tx: Frame, values: list[Any]) -> list[Any]:
    """The objects that stand for values of the graph in a call on fake tensors."""
    propagator = tx.tr.graph.propagator
    return [v.sym if isinstance(v, SymValue) else propagator.fake_of(v).detach() for v in values]


def _ask_operator(tx: Frame, op: HigherOrderOperator, args: list[Any]) -> list[Any]:
    """The result of the operator itself for fake tensors: sizes and numbers that only the graph knows."""
    graph = tx.tr.graph
    env, propagator = graph.symbols.env, graph.propagator
    propagator.allow_higher_order()
    try:
        with propagator.mode, without_compiler, torch.no_grad(), env.ignore_fresh_unbacked_symbols():
            return list(op(*args))
    except Exception as error:
        return unsupported(BREAK, f"{op.name()}: {gist(error)}", error)


# -- loops


def loop_node(
    tx: Frame,
    op: HigherOrderOperator,
    captured: list[CapturedBody],
    before: list[list[VariableTracker]],
    make_fakes: Callable[[list[Any], list[GraphModule], list[Any]], list[Any]],
) -> VariableTracker:
    """The node `op(*bodies, *lists of tensors and ints, lifted)`, and the result with the structure of that of the last body; of two bodies
    the first is a condition. `make_fakes(results of the last body, modules, lifted)` gives fakes of the node's results."""
    graph = tx.tr.graph
    lifted = _lifted(captured)
    modules = [c.module(lifted) for c in captured]
    results = [_fake_results(c, m, lifted) for c, m in zip(captured, modules, strict=True)][-1]
    if len(modules) > 1:
        modules[0] = returning(modules[0])
    fakes = make_fakes(results, modules, lifted)
    values = [item.proxy for items in before for item in items if isinstance(item, TensorVariable)]
    args = [graph.body_node(m) for m in modules]
    args.extend(tuple([argument_of(graph, item) for item in items]) for items in before)
    args.append(_nodes(graph, lifted))
    outs = graph.operators.call_with_results(tx, op, args, {}, detached(tx, fakes, needs_grad([*values, *lifted])))
    return captured[-1].rebuild(outs)


def _expect_like(results: list[Any], expected: list[Any], what: str) -> None:
    if len(results) != len(expected) or not all(map(_same_metadata, results, expected)):
        unsupported(BREAK, f"the body of {what} returns something else than it takes")


def _carried(tx: Frame, carried: VariableTracker) -> tuple[list[VariableTracker], list[Any]]:
    """The items that a loop carries, tensors and ints, and their fakes: ints may be others in each turn."""
    items = tx.tr.unpack(tx, carried)
    if not all(isinstance(item, TensorVariable) or is_int(item) for item in items):
        unsupported(BREAK, "a carried value of while_loop that is neither a tensor nor an int")
    symbols = tx.tr.graph.symbols  # the operator's own rules, which compilers ask, need them
    fakes: list[Any] = [
        fakes_of(tx, [item])[0] if isinstance(item, TensorVariable) else symbols.unknown_int() for item in items
    ]
    return items, fakes


MakeResults = Callable[[list[GraphModule], list[Any], list[Any]], list[Any]]
"""Fakes of the results of a loop, from the bodies, fakes of the carried values, and the values from outside."""


def _while(
    tx: Frame,
    op: HigherOrderOperator,
    functions: tuple[VariableTracker, VariableTracker],
    carried: VariableTracker,
    additional: VariableTracker,
    results: MakeResults,
) -> VariableTracker:
    """The node of a loop; `functions` are its condition and its body."""
    items, fakes = _carried(tx, carried)
    others = tx.tr.unpack(tx, additional)
    captured = []
    for fn in functions:
        body, args = body_with(tx, _carried(tx, carried)[1])
        captured.append(capture(tx, fn, [*args, *others], body=body, with_ints=True))
    test = captured[0]
    if not _is_condition(test.result):
        unsupported(BREAK, "the condition of while_loop is neither a boolean tensor nor a condition on ints")
    test.leaves = [test.result]

    def make_fakes(turn: list[Any], modules: list[GraphModule], lifted: list[Any]) -> list[Any]:
        _expect_like(turn, fakes, "while_loop")
        return results(modules, fakes, lifted)

    return loop_node(tx, op, captured, [items], make_fakes)


def _is_condition(vt: VariableTracker) -> bool:
    if isinstance(vt, TensorVariable):
        return vt.proxy.meta.dtype is torch.bool and not vt.proxy.meta.ndim
    return isinstance(vt, SymNodeVariable) and vt.python_type() is bool


@operator_model(
    "while_loop", REGION, f"{UNSHARED}; a carried value is neither a tensor nor an int", is_always_captured=True
)
def while_loop(
    tx: Frame, cond_fn: VariableTracker, body_fn: VariableTracker, carried: VariableTracker, additional: VariableTracker
) -> VariableTracker:
    def results(modules: list[GraphModule], fakes: list[Any], lifted: list[Any]) -> list[Any]:
        symbols = tx.tr.graph.symbols
        return [fake if isinstance(fake, torch.Tensor) else symbols.unknown_int() for fake in fakes]

    return _while(tx, while_loop_op, (cond_fn, body_fn), carried, additional, results)


@operator_model("while_loop_stack_output", REGION, f"{UNSHARED}; a carried value is no tensor", is_always_captured=True)
def while_loop_stack_output(
    tx: Frame, cond_fn: VariableTracker, body_fn: VariableTracker, carried: VariableTracker, additional: VariableTracker
) -> VariableTracker:
    """The results of all turns, as many as there are."""

    def results(modules: list[GraphModule], fakes: list[Any], lifted: list[Any]) -> list[Any]:
        return _ask_operator(tx, while_loop_stack_output_op, [*modules, tuple(fakes), tuple(_host(tx, lifted))])

    return _while(tx, while_loop_stack_output_op, (cond_fn, body_fn), carried, additional, results)


@operator_model("associative_scan", REGION, UNSHARED)
def associative_scan(
    tx: Frame, combine_fn: VariableTracker, xs: VariableTracker, additional_inputs: VariableTracker
) -> VariableTracker:
    (items,) = _tensors(tx, xs)
    slices = [*_slices(tx, items), *_slices(tx, items)]
    body, args = body_with(tx, slices)
    captured = capture(tx, combine_fn, [*args, *tx.tr.unpack(tx, additional_inputs)], body=body)
    if tx.tr.state.records(needs_grad([*[item.proxy for item in items], *_lifted([captured])])):
        return tx.call(tx.tr.build_constant_object(_scan_by_pairs), [combine_fn, xs, additional_inputs])

    def results(outs: list[Any], modules: list[GraphModule], lifted: list[Any]) -> list[Any]:
        _expect_like(outs, slices[: len(items)], "associative_scan")
        return fakes_of(tx, items)

    return loop_node(tx, associative_scan_op, [captured], [items], results)


def _scan_by_pairs(combine_fn: Callable[..., Any], xs: Any, additional_inputs: Any) -> Any:
    """`associative_scan` in ordinary operators, for gradients. Those of torch's own operator are wrong (2.11 to 2.13) where an item of the
    result depends on several items of the arguments: for `(a1 * a2, a2 * b1 + b2)`, the recurrence of Mamba, that of `a`."""
    dims = (0,) * (2 * len(xs)) + (None,) * len(additional_inputs)
    combine = torch.vmap(combine_fn, in_dims=dims)
    return generic_associative_scan(combine, list(xs), additional_inputs=tuple(additional_inputs))


def _slices(tx: Frame, items: list[Any]) -> list[Any]:
    """Fakes of the first slices along dimension 0."""
    with tx.tr.graph.propagator.mode, torch.no_grad():
        slices = [tx.tr.graph.propagator.fake_of(item.proxy).detach()[0].clone() for item in items]
    return [s.requires_grad_(item.proxy.meta.requires_grad) for s, item in zip(slices, items, strict=True)]


def _stacked(tx: Frame, outs: list[Any], length: object) -> list[Any]:
    with tx.tr.graph.propagator.mode, torch.no_grad():
        return [out.detach().expand(length, *out.shape).clone(memory_format=torch.contiguous_format) for out in outs]


@operator_model("scan", REGION, UNSHARED, is_always_captured=True)
def scan(
    tx: Frame,
    combine_fn: VariableTracker,
    init: VariableTracker,
    xs: VariableTracker,
    additional_inputs: VariableTracker,
) -> VariableTracker:
    carry, items = _tensors(tx, init, xs)
    fakes = fakes_of(tx, carry)
    body, args = body_with(tx, [*fakes, *_slices(tx, items)])
    captured = capture(tx, combine_fn, [*args, *tx.tr.unpack(tx, additional_inputs)], body=body)

    def results(outs: list[Any], modules: list[GraphModule], lifted: list[Any]) -> list[Any]:
        _expect_like(outs[: len(fakes)], fakes, "scan")
        return [*outs[: len(fakes)], *_stacked(tx, outs[len(fakes) :], items[0].proxy.meta.shape[0])]

    return loop_node(tx, scan_op, [captured], [carry, items], results)


@operator_model("map_impl", REGION, UNSHARED, is_always_captured=True)
def map_over(tx: Frame, f: VariableTracker, xs: VariableTracker, pos_args: VariableTracker) -> VariableTracker:
    (items,) = _tensors(tx, xs)
    body, args = body_with(tx, _slices(tx, items))
    captured = capture(tx, f, [*args, *tx.tr.unpack(tx, pos_args)], body=body)
    length = items[0].proxy.meta.shape[0]
    return loop_node(tx, map_impl, [captured], [items], lambda outs, *_: _stacked(tx, outs, length))
