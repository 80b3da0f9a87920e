"""CPython 3.14's opcodes in canonical ops: what changed since 3.13 (mirrors `Python/bytecodes.c` and `Lib/opcode.py` of
3.14).

`with` is made of LOAD_SPECIAL, so the exit function lies on the stack with its self. CALL_FUNCTION_EX always finds keyword
arguments or NULL on top: the compiler pushes that NULL right before, it is folded into the operand. Template strings call
the constructors of `string.templatelib`.
"""

import opcode

from dynamo_lite.isa import lift313
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.lift313 import load_fast, load_load
from dynamo_lite.isa.rules import BINARY_FUNCTIONS, CONVERSIONS, DROP, FORWARD, LiftedPart, indexed, jump, one, raw

try:
    from string.templatelib import Interpolation, Template
except ImportError:  # before 3.14
    Interpolation = Template = None

NULL_FIRST = False
LOCALS_ARE_SHARED = False
HAS_DOCSTRING = 0x4000000  # without this flag the first constant is just a constant
PREPARES = lift313.PREPARES | {("PUSH_NULL", "CALL_FUNCTION_EX")}

_CONSTANTS = getattr(opcode, "_common_constants", (AssertionError, NotImplementedError, tuple, all, any))
_LIFTED_CONSTANTS = [None if constant in (all, any) else constant for constant in _CONSTANTS]
"""The compiler writes `any(… for …)` as a loop, and as a call in case that `any` is another function, which it compares with this
constant: the call says what it is, and is the same."""
_SPECIAL = getattr(opcode, "_special_method_names", ("__enter__", "__exit__", "__aenter__", "__aexit__"))
_BINARY = [BINARY_FUNCTIONS.get(op) for op, _ in opcode._nb_ops]
_SUBSCR = 26  # NB_SUBSCR


def binary_op(ctx, arg):
    return one(Op.BINARY_SUBSCR) if arg == _SUBSCR else one(Op.BINARY, arg=_BINARY[arg])


def call_function_ex(ctx, arg):
    instrs = ctx.instrs
    if instrs and instrs[-1].op is Op.PUSH_NULL and instrs[-1].last:
        instrs.pop()
        return one(Op.CALL_FUNCTION_EX, arg=False)
    return one(Op.CALL_FUNCTION_EX, arg=True)


def make_template(parts):
    """`parts`: the strings and the interpolations between them."""
    strings, interpolations = parts
    between = [item for pair in zip(strings, interpolations, strict=False) for item in pair]
    return Template(*between, *strings[len(interpolations) :])


def interpolation_maker(conversion):
    return lambda parts: Interpolation(parts[0], parts[1], conversion, parts[2] if len(parts) > 2 else "")


_MAKERS = [interpolation_maker(CONVERSIONS.get(i)) for i in range(4)]


def call_with_tuple(function, count: int) -> tuple[LiftedPart, ...]:
    """Replace the `count` top items by `function((item, …))`."""
    return (
        LiftedPart(Op.BUILD_TUPLE, count),
        LiftedPart(Op.LOAD_CONST, function),
        LiftedPart(Op.SWAP, 2),
        LiftedPart(Op.PUSH_NULL),
        LiftedPart(Op.SWAP, 2),
        LiftedPart(Op.CALL, (1, ())),
    )


def build_interpolation(ctx, arg):
    return call_with_tuple(_MAKERS[arg >> 2], 2 + (arg & 1))


GONE = "BEFORE_WITH BEFORE_ASYNC_WITH BINARY_SUBSCR BUILD_CONST_KEY_MAP LOAD_ASSERTION_ERROR RETURN_CONST"

RULES = {
    **{op: rule for op, rule in lift313.RULES.items() if op not in GONE.split()},
    "NOT_TAKEN": DROP,
    "POP_ITER": one(Op.POP_TOP),
    "FOR_ITER": (jump(Op.FOR_ITER, FORWARD, skip=4),),  # past END_FOR and POP_ITER
    "END_ASYNC_FOR": one(Op.END_ASYNC_FOR),  # its operand is for monitoring only
    "LOAD_SMALL_INT": one(Op.LOAD_CONST, raw),
    "LOAD_COMMON_CONSTANT": one(Op.LOAD_CONST, indexed(_LIFTED_CONSTANTS)),
    "LOAD_FAST_BORROW": load_fast,
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": load_load,
    "LOAD_SPECIAL": one(Op.LOAD_SPECIAL, indexed(_SPECIAL)),
    "WITH_EXCEPT_START": one(Op.WITH_EXCEPT_START, arg=True),
    "BINARY_OP": binary_op,
    "CALL_FUNCTION_EX": call_function_ex,
    "BUILD_INTERPOLATION": build_interpolation,
    "BUILD_TEMPLATE": call_with_tuple(make_template, 2),
}
