"""CPython 3.12's opcodes in canonical ops: what changed since 3.11 (mirrors `Python/bytecodes.c` and `Lib/opcode.py` of
3.12).

FOR_ITER and SEND jump to a cleanup instruction which the interpreter then skips (END_FOR) or which removes the receiver
(END_SEND, also reached after CLEANUP_THROW). Canonical jumps go past it.
"""

import opcode
import operator

from dynamo_lite.isa import lift311
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.lift311 import pop_jump_if
from dynamo_lite.isa.rules import BACKWARD, DROP, FORWARD, LiftedPart, const, indexed, jump, name, one, raw

NULL_FIRST = True
LOCALS_ARE_SHARED = True  # each locals() of a function gives the same dictionary
HAS_DOCSTRING = 0  # no flag: the first constant is the docstring if it is a string
PREPARES = {("KW_NAMES", "CALL")}

_INTRINSIC_1 = [text.removeprefix("INTRINSIC_") for text in getattr(opcode, "_intrinsic_1_descs", ())]
_INTRINSIC_2 = [text.removeprefix("INTRINSIC_") for text in getattr(opcode, "_intrinsic_2_descs", ())]
# Intrinsics that are canonical ops.
_AS_OPS = {
    "UNARY_POSITIVE": one(Op.UNARY, arg=operator.pos),
    "LIST_TO_TUPLE": one(Op.LIST_TO_TUPLE),
    "IMPORT_STAR": (LiftedPart(Op.IMPORT_STAR), LiftedPart(Op.LOAD_CONST, None)),  # a POP_TOP follows
    "PREP_RERAISE_STAR": one(Op.PREP_RERAISE_STAR),
}


def intrinsic_1(ctx, arg):
    which = _INTRINSIC_1[arg]
    return _AS_OPS.get(which) or one(Op.CALL_INTRINSIC, arg=which)


def intrinsic_2(ctx, arg):
    which = _INTRINSIC_2[arg]
    return _AS_OPS.get(which) or one(Op.CALL_INTRINSIC_2, arg=which)


def load_attr(ctx, arg):
    return (LiftedPart(Op.LOAD_METHOD if arg & 1 else Op.LOAD_ATTR, ctx.names[arg >> 1]),)


def super_attr(ctx, arg):
    return ctx.names[arg >> 2], bool(arg & 1), bool(arg & 2)


GONE = """
        PRECALL LOAD_METHOD LOAD_CLASSDEREF UNARY_POSITIVE LIST_TO_TUPLE IMPORT_STAR PREP_RERAISE_STAR PRINT_EXPR
    ASYNC_GEN_WRAP     JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP
"""

RULES = {
    **{op: rule for op, rule in lift311.RULES.items() if op not in GONE.split() and not op.startswith("POP_JUMP_")},
    "END_FOR": DROP,
    "END_SEND": (LiftedPart(Op.SWAP, 2), LiftedPart(Op.POP_TOP)),
    "FOR_ITER": (jump(Op.FOR_ITER, FORWARD, skip=2),),
    "SEND": (jump(Op.SEND, FORWARD, skip=2),),
    "CLEANUP_THROW": one(Op.CLEANUP_THROW),
    "POP_JUMP_IF_TRUE": pop_jump_if(True, FORWARD),
    "POP_JUMP_IF_FALSE": pop_jump_if(False, FORWARD),
    "POP_JUMP_IF_NONE": (jump(Op.JUMP_IF_NONE, FORWARD, True),),
    "POP_JUMP_IF_NOT_NONE": (jump(Op.JUMP_IF_NONE, FORWARD, False),),
    "JUMP_BACKWARD_NO_INTERRUPT": (jump(Op.JUMP, BACKWARD),),
    "LOAD_FAST_CHECK": one(Op.LOAD_FAST, raw),
    "LOAD_FAST_AND_CLEAR": one(Op.LOAD_FAST_AND_CLEAR, raw),
    "LOAD_ATTR": load_attr,
    "LOAD_SUPER_ATTR": one(Op.LOAD_SUPER_ATTR, super_attr),
    "LOAD_LOCALS": one(Op.LOAD_LOCALS),
    "LOAD_FROM_DICT_OR_GLOBALS": one(Op.LOAD_FROM_DICT_OR_GLOBALS, name),
    "LOAD_FROM_DICT_OR_DEREF": one(Op.LOAD_FROM_DICT_OR_DEREF, raw),
    "BINARY_SLICE": (LiftedPart(Op.BUILD_SLICE, 2), LiftedPart(Op.BINARY_SUBSCR)),
    "STORE_SLICE": (LiftedPart(Op.BUILD_SLICE, 2), LiftedPart(Op.STORE_SUBSCR)),
    "COMPARE_OP": one(Op.COMPARE, indexed(op for op in opcode.cmp_op for _ in range(16))),
    "RETURN_CONST": (LiftedPart(Op.LOAD_CONST, None, const), LiftedPart(Op.RETURN_VALUE)),
    "CALL_INTRINSIC_1": intrinsic_1,
    "CALL_INTRINSIC_2": intrinsic_2,
}
