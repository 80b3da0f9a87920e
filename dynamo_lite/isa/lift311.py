"""CPython 3.11's opcodes in canonical ops (mirrors `Python/ceval.c` and `Lib/opcode.py` of 3.11).

The base of the later tables, which state only what changed.
"""

import opcode
import operator

from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.rules import (  # fmt: skip
    BACKWARD,
    BINARY_FUNCTIONS,
    CONVERSIONS,
    DROP,
    FORWARD,
    LiftedPart,
    const,
    flag,
    indexed,
    jump,
    name,
    one,
    raw,
    take_kwnames,
    unpack_ex,
)

NULL_FIRST = True  # a call's NULL lies below the callable
LOCALS_ARE_SHARED = True  # each locals() of a function gives the same dictionary
HAS_DOCSTRING = 0  # no flag: the first constant is the docstring if it is a string
# Instructions that only prepare the next one: the canonical program has no stack effect for them, so a continuation
# *at* the next one must begin with them.
PREPARES = {("KW_NAMES", "PRECALL"), ("PRECALL", "CALL")}


def load_global(ctx, arg):
    load = LiftedPart(Op.LOAD_GLOBAL, ctx.names[arg >> 1])
    return (LiftedPart(Op.PUSH_NULL), load) if arg & 1 else (load,)


def kw_names(ctx, arg):
    ctx.kwnames = ctx.consts[arg]
    return DROP


def format_value(ctx, arg):
    convert = CONVERSIONS.get(arg & 3)
    form = LiftedPart(Op.FORMAT, bool(arg & 4))
    if convert is None:
        return (form,)
    if arg & 4:  # the value lies below its format specification
        return (LiftedPart(Op.SWAP, 2), LiftedPart(Op.CONVERT, convert), LiftedPart(Op.SWAP, 2), form)
    return (LiftedPart(Op.CONVERT, convert), form)


def or_pop(when: bool) -> tuple[LiftedPart, ...]:
    return (LiftedPart(Op.COPY, 1), LiftedPart(Op.TO_BOOL), jump(Op.JUMP_IF, FORWARD, when), LiftedPart(Op.POP_TOP))


def pop_jump_if(when: bool, direction: int) -> tuple[LiftedPart, ...]:
    return (LiftedPart(Op.TO_BOOL), jump(Op.JUMP_IF, direction, when))


# Opcodes that keep their name, by kind of operand. NUMBER_OPERAND: a count, a slot or bits, passed on as it is.
NO_OPERAND = """
    POP_TOP PUSH_NULL GET_LEN MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS PUSH_EXC_INFO CHECK_EXC_MATCH
    CHECK_EG_MATCH WITH_EXCEPT_START GET_AITER GET_ANEXT BEFORE_ASYNC_WITH BEFORE_WITH END_ASYNC_FOR
    BINARY_SUBSCR STORE_SUBSCR DELETE_SUBSCR GET_ITER GET_YIELD_FROM_ITER LOAD_BUILD_CLASS
    RETURN_GENERATOR LIST_TO_TUPLE RETURN_VALUE IMPORT_STAR SETUP_ANNOTATIONS YIELD_VALUE
    PREP_RERAISE_STAR POP_EXCEPT
"""
NUMBER_OPERAND = """
    COPY SWAP LOAD_FAST STORE_FAST DELETE_FAST MAKE_CELL LOAD_DEREF STORE_DEREF DELETE_DEREF
    LOAD_CLASSDEREF UNPACK_SEQUENCE BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_STRING
    BUILD_SLICE BUILD_CONST_KEY_MAP LIST_APPEND SET_ADD MAP_ADD LIST_EXTEND SET_UPDATE DICT_MERGE
    DICT_UPDATE MAKE_FUNCTION MATCH_CLASS GET_AWAITABLE RERAISE RAISE_VARARGS
"""
NAME_OPERAND = """
    STORE_NAME DELETE_NAME LOAD_NAME STORE_GLOBAL DELETE_GLOBAL LOAD_ATTR LOAD_METHOD STORE_ATTR
    DELETE_ATTR IMPORT_NAME IMPORT_FROM
"""

RULES = {
    # nothing left of them
    **dict.fromkeys(("NOP", "RESUME", "PRECALL", "COPY_FREE_VARS"), DROP),
    # same name, no operand
    **{op: one(Op[op]) for op in NO_OPERAND.split()},
    # same name, the operand is a number or a slot
    **{op: one(Op[op], raw) for op in NUMBER_OPERAND.split()},
    # same name, the operand is a name
    **{op: one(Op[op], name) for op in NAME_OPERAND.split()},
    # same name, the operand is a flag
    **{op: one(Op[op], flag) for op in ("IS_OP", "CONTAINS_OP", "CALL_FUNCTION_EX")},
    "LOAD_CONST": one(Op.LOAD_CONST, const),
    "LOAD_CLOSURE": one(Op.LOAD_CELL, raw),
    "LOAD_GLOBAL": load_global,
    "LOAD_ASSERTION_ERROR": one(Op.LOAD_CONST, arg=AssertionError),
    "UNPACK_EX": one(Op.UNPACK_EX, unpack_ex),
    "FORMAT_VALUE": format_value,
    "KW_NAMES": kw_names,
    "CALL": one(Op.CALL, take_kwnames),
    # operators
    "UNARY_POSITIVE": one(Op.UNARY, arg=operator.pos),
    "UNARY_NEGATIVE": one(Op.UNARY, arg=operator.neg),
    "UNARY_INVERT": one(Op.UNARY, arg=operator.invert),
    "UNARY_NOT": (LiftedPart(Op.TO_BOOL), LiftedPart(Op.NOT)),
    "BINARY_OP": one(Op.BINARY, indexed(BINARY_FUNCTIONS.get(op) for op, _ in opcode._nb_ops)),
    "COMPARE_OP": one(Op.COMPARE, indexed(opcode.cmp_op)),
    # only in interactive code and async generators: the later intrinsics
    "PRINT_EXPR": (LiftedPart(Op.CALL_INTRINSIC, "PRINT"), LiftedPart(Op.POP_TOP)),
    "ASYNC_GEN_WRAP": one(Op.CALL_INTRINSIC, arg="ASYNC_GEN_WRAP"),
    # jumps
    "JUMP_FORWARD": (jump(Op.JUMP, FORWARD),),
    "JUMP_BACKWARD": (jump(Op.JUMP, BACKWARD),),
    "JUMP_BACKWARD_NO_INTERRUPT": (jump(Op.JUMP, BACKWARD),),
    "FOR_ITER": (jump(Op.FOR_ITER, FORWARD),),
    "SEND": (jump(Op.SEND, FORWARD),),
    "JUMP_IF_TRUE_OR_POP": or_pop(True),
    "JUMP_IF_FALSE_OR_POP": or_pop(False),
    "POP_JUMP_FORWARD_IF_TRUE": pop_jump_if(True, FORWARD),
    "POP_JUMP_FORWARD_IF_FALSE": pop_jump_if(False, FORWARD),
    "POP_JUMP_BACKWARD_IF_TRUE": pop_jump_if(True, BACKWARD),
    "POP_JUMP_BACKWARD_IF_FALSE": pop_jump_if(False, BACKWARD),
    "POP_JUMP_FORWARD_IF_NONE": (jump(Op.JUMP_IF_NONE, FORWARD, True),),
    "POP_JUMP_FORWARD_IF_NOT_NONE": (jump(Op.JUMP_IF_NONE, FORWARD, False),),
    "POP_JUMP_BACKWARD_IF_NONE": (jump(Op.JUMP_IF_NONE, BACKWARD, True),),
    "POP_JUMP_BACKWARD_IF_NOT_NONE": (jump(Op.JUMP_IF_NONE, BACKWARD, False),),
}
