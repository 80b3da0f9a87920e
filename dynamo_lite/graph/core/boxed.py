"""Graphs that let go of their inputs while they run, by torch's boxed calling convention.

Input: a graph as captured, and what the backend made of it. Output: a callable that takes the inputs in one list and empties it; or
None, where the inputs have to live until the graph has ended.
Invariant: a frame whose graph has let go of its inputs cannot start again when the graph raises. So this is for graphs whose operators do
not raise whatever the data are, outside of the `try` statements of the frame. An operator that is not known here may raise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from dynamo_lite._eval_frame import call_moved
from dynamo_lite.backends.aot import BOXED, BoxedCallable
from dynamo_lite.isa.canon import Lifted, Op
from dynamo_lite.isa.eager_fallback import Place
from dynamo_lite.isa.lift import lift

from .failure import is_own
from .functional import with_tensor_for_number
from .operator_names import has_tag
from .state import SETTINGS, leave_autocast
from .values import SymValue
from .varying_floats import FloatValue


def boxed_form(compiled: Callable[..., Any]) -> BoxedCallable | None:
    """The same with one list of the inputs as its argument, which holds none of them longer than it needs it. None if there is no
    such form: a callable that takes its inputs one by one holds them until it returns."""
    if isinstance(compiled, MethodType):
        return _boxed_forward(compiled)
    return BOXED.get(compiled) if isinstance(compiled, FunctionType) else None


def _boxed_forward(compiled: MethodType) -> BoxedCallable | None:
    """For the `forward` that torch.fx has written: it sets a variable to None behind the last use of its value."""
    module = compiled.__self__
    if not isinstance(module, GraphModule) or compiled.__func__ is not type(module).forward:
        return None
    forward = compiled.__func__
    if not isinstance(forward, FunctionType) or forward.__code__.co_flags & (_CO_VARARGS | _CO_VARKEYWORDS):
        return None

    def run(inputs: list[Any]) -> Any:
        inputs.insert(0, module)
        return call_moved(forward, inputs)

    return run


_CO_VARARGS, _CO_VARKEYWORDS = 0x04, 0x08


def one_by_one(compiled: Callable[..., Any]) -> BoxedCallable:
    """A callable that has no boxed form, called as if it had one."""

    def run(inputs: list[Any]) -> Any:
        return compiled(*inputs)

    return run


# -- what may raise


def may_raise(gm: GraphModule, root: CodeType) -> bool:
    """Whether a graph may raise for what the data are, or whether the program may catch what it raises: `root` is the frame's code."""
    catching: dict[tuple[int, int], bool] = {}
    for node in gm.graph.nodes:
        if _is_operator(node) and (
            not cannot_raise(node) or _may_be_caught(getattr(node.meta, "place", None), root, catching)
        ):
            return True
    return False


def raises_behind(last: Node) -> Node | None:
    """An operator that was added behind a node and may raise for what the data are."""
    node = last.next
    while node.op != "root":
        if _is_operator(node) and not cannot_raise(node):
            return node
        node = node.next
    return None


def _is_operator(node: Node) -> bool:
    return node.op.startswith("call_") and node.target not in _STATE


def cannot_raise(node: Node) -> bool:
    """Whether what a node calls raises nothing about the data of its arguments."""
    if node.op == "call_function" and not is_own(node.target):
        return False
    if node.target in _SURE:
        return True
    if isinstance(node.meta.subject, SymValue):
        return node.target == "item" or (node.target in _SIZES and not isinstance(node.meta.subject, FloatValue))
    name = node.args[0] if node.target is with_tensor_for_number else _name_of(node.target)
    name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if name in _INDEXED:
        return not any(map(_is_tensor, _nodes_in(node.args[1])))
    values = (*node.args, *node.kwargs.values())
    if "generator" in node.kwargs or "out" in node.kwargs or _NUCLEAR_NORM in values:
        return False
    if name in _TENSORS and sum(_is_tensor(value) for value in values if isinstance(value, Node)) > _TENSORS[name]:
        return False
    if name in _DIVISIONS:
        return all(_is_floating(used) for used in (node, *node.all_input_nodes) if _is_tensor(used))
    return takes_any_data(name)


def takes_any_data(name: str) -> bool:
    """Whether an operator of this name raises for no data, apart from the integers that divisions refuse and tensors in the places of
    numbers."""
    name = name.removeprefix("_foreach_")
    return name in _ANY_DATA or name in _TENSORS or has_tag(name, torch.Tag.pointwise)


def _nodes_in(value: object) -> list[Node]:
    found: list[Node] = []
    map_arg(value, found.append)
    return found


def _name_of(target: Any) -> str:
    """The name of an operator, function or method without what tells its forms apart."""
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    if isinstance(target, torch._ops.OpOverloadPacket):
        return target._qualified_op_name.rpartition("::")[2]
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if getattr(target, "__module__", None) == "_operator":
        return _OPERATORS.get(name, name)
    return _OPERATORS.get(name.strip("_"), name.strip("_")) if name.startswith("__") else name


def _meta_of(node: Node) -> Any:
    return getattr(getattr(node.meta, "subject", None), "meta", None)


def _is_tensor(node: Node) -> bool:
    """Whether a node may stand for a tensor, or for several."""
    return not isinstance(getattr(node.meta, "subject", None), SymValue)


def _is_floating(node: Node) -> bool:
    meta = _meta_of(node)
    return meta is not None and (meta.dtype.is_floating_point or meta.dtype.is_complex)


_STATE = frozenset({*SETTINGS, leave_autocast, torch.autocast_increment_nesting})
"""What switches the ambient state."""

_SURE = (torch.autograd.grad, getattr)
"""The gradients of what is known here; a view, or a fact that is no data."""

_SIZES = frozenset({"size", "stride", "dim", "numel", "__len__", getattr, operator.getitem, len}) | {
    *(operator.add, operator.sub, operator.mul, operator.neg)
}
"""Calls that give sizes, and arithmetic on them that cannot raise."""

_OPERATORS = {
    **{name: name[1:] for name in ("iadd", "isub", "imul", "iand", "ior", "ixor", "imatmul")},
    **{"truediv": "div", "itruediv": "div", "rtruediv": "div", "ifloordiv": "floor_divide", "floordiv": "floor_divide"},
    **{"radd": "add", "rmul": "mul", "rmatmul": "matmul", "mod": "remainder", "imod": "remainder", "ipow": "pow"},
    **{
        "and_": "bitwise_and",
        "or_": "bitwise_or",
        "xor": "bitwise_xor",
        "invert": "bitwise_not",
        "not_": "logical_not",
    },
}
"""Names of Python's operators → torch's names for them."""

_DIVISIONS = frozenset({"div", "divide", "floor_divide", "remainder", "fmod", "pow"})
"""Pointwise operators that refuse some integers."""

_INDEXED = frozenset({"getitem", "setitem"})

_NUCLEAR_NORM = "nuc"
"""The argument with which norms decompose a matrix."""

_TENSORS = {
    **dict.fromkeys(("tensor_split", "repeat_interleave", "narrow", "roll"), 1),
    **dict.fromkeys(("arange", "linspace", "logspace", "full"), 0),
    **{"full_like": 1, "new_full": 1, "fill": 1, "masked_fill": 2},
}
"""Operators that may get a tensor where positions, lengths or a number are wanted, and refuse some → the number of their other tensors."""

_ANY_DATA = frozenset(
    """
    view reshape transpose permute contiguous flatten unflatten unsqueeze squeeze expand expand_as view_as reshape_as t adjoint
    swapaxes swapdims swap_axes movedim moveaxis select chunk split unbind cat concat concatenate stack hstack vstack dstack
    column_stack detach alias to type_as float half bfloat16 double int long bool short type flip fliplr flipud rot90 diagonal tril triu
    diag repeat tile pad zeros_like ones_like empty_like rand_like randn_like zeros ones empty rand randn
    eye new_zeros new_ones new_empty zero copy broadcast_to broadcast_tensors unfold fold
    ravel atleast_1d atleast_2d atleast_3d meshgrid
    sum nansum mean nanmean var std var_mean std_mean amax amin aminmax max min argmax argmin all any prod norm vector_norm
    cumsum cumprod logsumexp logcumsumexp count_nonzero sort argsort topk
    matmul mm bmm addmm baddbmm addbmm addmv mv dot vdot outer ger inner einsum tensordot linear bilinear cross
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    softmax log_softmax softmin layer_norm group_norm rms_norm batch_norm instance_norm local_response_norm normalize dropout dropout1d
    dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout scaled_dot_product_attention
    multi_head_attention_forward
    avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    lp_pool1d lp_pool2d interpolate upsample pixel_shuffle pixel_unshuffle channel_shuffle
    glu prelu logsigmoid tanhshrink softsign hardswish
    mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss kl_div binary_cross_entropy_with_logits cosine_similarity
    pairwise_distance
    """.split()
)
"""Operators, besides the pointwise ones, that take any data: they look at no positions, lengths, probabilities or labels, and solve no
equations. `tests/graph/test_boxed.py` calls each with such data as others refuse."""


# -- who catches


def _may_be_caught(place: Place | None, root: CodeType, known: dict[tuple[int, int], bool]) -> bool:
    """Whether an operator of this line, or one of the calls that led there, is inside of a `try`. Where the calls are not known,
    it may be."""
    last = None
    while place is not None:
        key = (id(place.code), place.lineno)
        if key not in known:
            known[key] = _is_caught_at(lift(place.code), place.lineno)
        if known[key]:
            return True
        last, place = place.code, place.caller
    return last is not root


def _is_caught_at(lifted: Lifted, lineno: int) -> bool:
    at = [i for i, instr in enumerate(lifted.instrs) if instr.lineno == lineno]
    return not at or any(_catches(lifted, i) for i in at)


def _catches(lifted: Lifted, index: int) -> bool:
    """Whether an exception of an instruction gets to code of the program in this frame. The handlers of `with` blocks, which call
    `__exit__`, and those that only clean up the stack pass it on."""
    seen = set()
    while (handler := lifted.handler_at[index]) is not None and handler.target not in seen:
        index = handler.target
        seen.add(index)
        ops = tuple([instr.op for instr in lifted.instrs[index : index + 3]])
        if ops[:2] != (Op.PUSH_EXC_INFO, Op.WITH_EXCEPT_START) and ops != _CLEANUP:
            return True
    return False


_CLEANUP = (Op.COPY, Op.POP_EXCEPT, Op.RERAISE)
