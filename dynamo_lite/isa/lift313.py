"""CPython 3.13's opcodes in canonical ops: what changed since 3.12 (mirrors `Python/bytecodes.c` and
`Lib/_opcode_metadata.py` of 3.13).

The NULL of a call lies above the callable. CALL_KW takes the names from the stack: the compiler loads them right
before, that constant is folded into CALL's operand (elsewhere it is a LiftError: no compiler does that). The cells of a
closure are loaded by LOAD_FAST. Truth tests are explicit.
"""

import opcode

from dynamo_lite.isa import lift312
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.rules import CONVERSIONS, FORWARD, LiftedPart, LiftError, indexed, jump, one, raw

NULL_FIRST = False
LOCALS_ARE_SHARED = False  # each locals() of a function gives the same dictionary
HAS_DOCSTRING = 0  # no flag: the first constant is the docstring if it is a string
PREPARES = {("LOAD_CONST", "CALL_KW")}


def load_global(ctx, arg):
    load = LiftedPart(Op.LOAD_GLOBAL, ctx.names[arg >> 1])
    return (load, LiftedPart(Op.PUSH_NULL)) if arg & 1 else (load,)


def load_fast(ctx, arg):
    return (_load(ctx, arg),)


def _load(ctx, slot):
    return LiftedPart(Op.LOAD_CELL if slot in ctx.cell_slots else Op.LOAD_FAST, slot)


def load_load(ctx, arg):
    return _load(ctx, arg >> 4), _load(ctx, arg & 15)


def store_load(ctx, arg):
    return LiftedPart(Op.STORE_FAST, arg >> 4), _load(ctx, arg & 15)


def store_store(ctx, arg):
    return LiftedPart(Op.STORE_FAST, arg >> 4), LiftedPart(Op.STORE_FAST, arg & 15)


def call_kw(ctx, arg):
    names = ctx.instrs.pop() if ctx.instrs else None
    if names is None or names.op is not Op.LOAD_CONST or type(names.arg) is not tuple:
        raise LiftError("CALL_KW without its names right before")
    return (LiftedPart(Op.CALL, (arg, names.arg)),)


def compare(ctx, arg):
    part = LiftedPart(Op.COMPARE, opcode.cmp_op[arg >> 5])
    return (part, LiftedPart(Op.TO_BOOL)) if arg & 16 else (part,)


GONE = "FORMAT_VALUE KW_NAMES LOAD_CLOSURE"

RULES = {
    **{op: rule for op, rule in lift312.RULES.items() if op not in GONE.split()},
    "FOR_ITER": (jump(Op.FOR_ITER, FORWARD, skip=4),),  # past END_FOR and POP_TOP
    "LOAD_GLOBAL": load_global,
    "LOAD_FAST": load_fast,
    "LOAD_FAST_CHECK": load_fast,
    "LOAD_FAST_LOAD_FAST": load_load,
    "STORE_FAST_LOAD_FAST": store_load,
    "STORE_FAST_STORE_FAST": store_store,
    "TO_BOOL": one(Op.TO_BOOL),
    "UNARY_NOT": one(Op.NOT),
    "COMPARE_OP": compare,
    "POP_JUMP_IF_TRUE": (jump(Op.JUMP_IF, FORWARD, True),),
    "POP_JUMP_IF_FALSE": (jump(Op.JUMP_IF, FORWARD, False),),
    "CONVERT_VALUE": one(Op.CONVERT, indexed(CONVERSIONS.get(i) for i in range(4))),
    "FORMAT_SIMPLE": (LiftedPart(Op.FORMAT, False),),
    "FORMAT_WITH_SPEC": (LiftedPart(Op.FORMAT, True),),
    "MAKE_FUNCTION": one(Op.MAKE_FUNCTION, arg=0),
    "SET_FUNCTION_ATTRIBUTE": one(Op.SET_FUNCTION_ATTRIBUTE, raw),
    "CALL_KW": call_kw,
}
