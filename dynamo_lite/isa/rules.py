"""The little language in which the version tables (`lift311` …) say how an opcode becomes canonical ops.

A table maps an opcode name to a rule: a tuple of parts, or a function `(context, oparg) -> parts` where the shape
depends on the operand. No parts: the instruction is dropped. A `LiftedPart` says which op, its constant operand or how to
decode it, and for jumps the direction and how many bytes of cleanup code to skip at the target.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from dynamo_lite.isa.canon import Op


class LiftError(Exception):
    """Bytecode that no CPython compiler produces (or an opcode that the table lacks)."""


class LiftedPart(NamedTuple):
    op: Op
    arg: Any = None
    decode: Callable | None = None
    jump: tuple[int, int] | None = None  # direction, bytes of cleanup code to skip at the target


class LiftContext:
    """The facts about the code object being lifted that decoders need."""

    __slots__ = ("cell_slots", "consts", "instrs", "kwnames", "names")

    def __init__(self, code, cell_slots, instrs):
        self.consts = code.co_consts
        self.names = code.co_names
        self.cell_slots = cell_slots
        self.kwnames = ()
        self.instrs = instrs


# Decoders of operands.
def raw(ctx, arg):
    return arg


def const(ctx, arg):
    return ctx.consts[arg]


def name(ctx, arg):
    return ctx.names[arg]


def flag(ctx, arg):
    return bool(arg & 1)


def unpack_ex(ctx, arg):
    return arg & 0xFF, arg >> 8


def take_kwnames(ctx, arg):
    kwnames, ctx.kwnames = ctx.kwnames, ()
    return arg, kwnames


def indexed(values) -> Callable:
    values = tuple(values)
    return lambda ctx, arg: values[arg]


# Makers of rules.
def one(op: Op, decode: Callable | None = None, arg: object = None) -> tuple[LiftedPart, ...]:
    return (LiftedPart(op, arg, decode),)


def jump(op: Op, direction: int, arg: object = None, skip: int = 0) -> LiftedPart:
    return LiftedPart(op, arg, None, (direction, skip))


FORWARD, BACKWARD = 1, -1
DROP: tuple[LiftedPart, ...] = ()

_INPLACE = {
    "ADD": "iadd", "AND": "iand", "FLOOR_DIVIDE": "ifloordiv", "LSHIFT": "ilshift", "MATRIX_MULTIPLY": "imatmul",
    "MULTIPLY": "imul", "REMAINDER": "imod", "OR": "ior", "POWER": "ipow", "RSHIFT": "irshift", "SUBTRACT": "isub",
    "TRUE_DIVIDE": "itruediv", "XOR": "ixor",
}  # fmt: skip
_PLAIN = {key: {"iand": "and_", "ior": "or_"}.get(value, value[1:]) for key, value in _INPLACE.items()}

# `_nb_ops` names of the `opcode` module → functions of the `operator` module.
BINARY_FUNCTIONS = {
    **{f"NB_{key}": getattr(operator, value) for key, value in _PLAIN.items()},
    **{f"NB_INPLACE_{key}": getattr(operator, value) for key, value in _INPLACE.items()},
}
# Functions of the `operator` module → opcode (or intrinsic) names.
UNARY_NAMES = {operator.neg: "UNARY_NEGATIVE", operator.invert: "UNARY_INVERT", operator.pos: "UNARY_POSITIVE"}
CONVERSIONS = {1: "s", 2: "r", 3: "a"}
