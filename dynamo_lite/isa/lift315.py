"""CPython 3.15's opcodes in canonical ops: what changed since 3.14 (mirrors `Python/bytecodes.c` and `Lib/dis.py` of
3.15).

An index lies above the iterator of a loop and above the receiver of SEND; where it isn't used, it is NULL. The canonical
program never uses it: GET_ITER pushes the NULL, FOR_ITER and SEND work below it. Where they jump, the NULL is all that
is left of the two, so that END_FOR and CLEANUP_THROW leave what POP_ITER and END_SEND then expect.
"""

from dynamo_lite.isa import lift314
from dynamo_lite.isa.canon import Op
from dynamo_lite.isa.rules import FORWARD, LiftedPart, LiftError, jump

NULL_FIRST = lift314.NULL_FIRST
LOCALS_ARE_SHARED = lift314.LOCALS_ARE_SHARED
HAS_DOCSTRING = lift314.HAS_DOCSTRING
PREPARES = lift314.PREPARES

_LAZY = 1  # the low bits of IMPORT_NAME's operand: 0 as the mode says, 1 lazy, 2 at once


def get_iter(ctx, arg):
    return LiftedPart(Op.GET_YIELD_FROM_ITER if arg else Op.GET_ITER), LiftedPart(Op.PUSH_NULL)


def import_name(ctx, arg):
    if arg & 3 == _LAZY:
        raise LiftError("a lazy import")
    return (LiftedPart(Op.IMPORT_NAME, ctx.names[arg >> 2]),)


def swaps(*depths: int) -> tuple[LiftedPart, ...]:
    return tuple(LiftedPart(Op.SWAP, depth) for depth in depths)


RULES = {
    **{op: rule for op, rule in lift314.RULES.items() if op != "GET_YIELD_FROM_ITER"},
    "GET_ITER": get_iter,
    # The stack before and after each: iterator, NULL; the same and the item.
    "FOR_ITER": (*swaps(2), jump(Op.FOR_ITER, FORWARD), *swaps(2, 3, 2)),
    "END_FOR": (LiftedPart(Op.PUSH_NULL),),
    "POP_ITER": (LiftedPart(Op.POP_TOP), LiftedPart(Op.POP_TOP)),
    # Receiver, NULL, value before and after.
    "SEND": (*swaps(3, 2, 3), jump(Op.SEND, FORWARD), *swaps(3, 2, 3)),
    # Receiver, NULL, value and exception before; what END_SEND expects after.
    "CLEANUP_THROW": (*swaps(4, 3, 4), LiftedPart(Op.CLEANUP_THROW), *swaps(2), LiftedPart(Op.POP_TOP)),
    "IMPORT_NAME": import_name,
}
