"""The 3.14 table against what is documented of 3.14 (`opcodes314`), on every version; on 3.14 also the documented data
against the interpreter."""

import dis
import opcode
import operator
import sys

import pytest

from dynamo_lite.isa import Op, lift312, lift314, stack_effect
from dynamo_lite.isa.canon import NO_TARGET, Instr
from dynamo_lite.isa.rules import LiftError
from tests.isa.opcodes314 import (
    CACHES,
    COMMON_CONSTANTS,
    EFFECTS,
    INTERNAL,
    INTRINSICS_1,
    INTRINSICS_2,
    JUMPS,
    NOT_A_JUMP,
    SPECIAL_METHODS,
    SUBSCRIPT,
)

ON_314 = pytest.mark.skipif(sys.version_info[:2] != (3, 14), reason="asks a 3.14 interpreter")
NAMES = tuple("abcdefgh")
TABLES = {"CALL_INTRINSIC_1": INTRINSICS_1, "CALL_INTRINSIC_2": INTRINSICS_2}
OPERANDS = {
    "BINARY_OP": range(27),
    "BUILD_INTERPOLATION": (2, 3, 6, 7, 10, 11, 14, 15),
    "BUILD_SLICE": (2, 3),
    "CALL_KW": (1, 2, 5),
    "COMPARE_OP": [op << 5 | to_bool for op in range(6) for to_bool in (0, 16)],
    "CONVERT_VALUE": (1, 2, 3),
    "LOAD_COMMON_CONSTANT": range(5),
    "LOAD_SMALL_INT": (0, 255),
    "LOAD_SPECIAL": range(4),
    "RAISE_VARARGS": range(3),
    "RERAISE": (0, 1),
    "SET_FUNCTION_ATTRIBUTE": (1, 2, 4, 8, 16),
    "UNPACK_EX": (0, 2, 0x300, 0x102),
}


class Context:
    """What decoders ask: as in a code object with eight constants and eight names, cells in the slots 3 and 6."""

    consts = tuple("ABCDEFGH")
    names = NAMES
    cell_slots = frozenset({3, 6})
    kwnames = ()

    def __init__(self, *before):
        self.instrs = [Instr(op, arg, NO_TARGET, 0, True, (1, 1, 0, 0)) for op, arg in before]


@pytest.fixture(autouse=True)
def tables(monkeypatch):
    """Before 3.14 the tables that the rules take from the `opcode` module are those of another version."""
    monkeypatch.setattr(lift312, "_INTRINSIC_1", INTRINSICS_1)
    monkeypatch.setattr(lift312, "_INTRINSIC_2", INTRINSICS_2)


def parts(name, arg=0, *before):
    """The canonical instructions as (op, operand), what lay before them included if it was not folded."""
    ctx = Context(*before)
    rule = lift314.RULES[name]
    found = rule if isinstance(rule, tuple) else rule(ctx, arg)
    return [(i.op, i.arg) for i in ctx.instrs] + [
        (part.op, part.arg if part.decode is None else part.decode(ctx, arg)) for part in found
    ]


def effect(program, jump=False):
    return sum(stack_effect(Instr(op, arg, NO_TARGET, 0, True, (None, None, None, None)), jump) for op, arg in program)


def operands(name):
    return OPERANDS.get(name, range(len(TABLES.get(name, NAMES))))


def documented(name, arg):
    found = EFFECTS[name]
    return found(arg) if callable(found) else found


def test_no_opcode_is_missing_and_none_invented():
    assert set(lift314.RULES) == set(EFFECTS)


@pytest.mark.parametrize("name", EFFECTS)
def test_stack_effect(name):
    for arg in operands(name):
        if name == "CALL_KW":  # the names are folded into the call
            program = parts(name, arg, (Op.LOAD_CONST, ("k",)))
            assert effect(program) == 1 + documented(name, arg)
        elif name == "END_FOR":
            assert parts(name) == []  # jumps go past it, nothing falls into it
        else:
            assert effect(parts(name, arg)) == documented(name, arg), (name, arg)


@pytest.mark.parametrize("name", EFFECTS)
def test_jumps(name):
    rule = lift314.RULES[name]
    jumps = [part for part in rule if part.jump is not None] if isinstance(rule, tuple) else []
    if name not in JUMPS:
        assert jumps == []
        return
    direction, cleanup, taken = JUMPS[name]
    assert [part.jump for part in jumps] == [(direction, 2 * len(cleanup))]
    assert effect(parts(name), jump=True) == taken


def test_calls():
    assert parts("CALL", 2) == [(Op.CALL, (2, ()))]
    assert parts("CALL_KW", 3, (Op.LOAD_CONST, ("x", "y"))) == [(Op.CALL, (3, ("x", "y")))]
    with pytest.raises(LiftError):
        parts("CALL_KW", 1, (Op.LOAD_FAST, 0))
    assert parts("CALL_FUNCTION_EX", 0, (Op.PUSH_NULL, None)) == [(Op.CALL_FUNCTION_EX, False)]
    assert parts("CALL_FUNCTION_EX", 0, (Op.DICT_MERGE, 1)) == [(Op.DICT_MERGE, 1), (Op.CALL_FUNCTION_EX, True)]


def test_names():
    assert parts("LOAD_GLOBAL", 4) == [(Op.LOAD_GLOBAL, "c")]
    assert parts("LOAD_GLOBAL", 5) == [(Op.LOAD_GLOBAL, "c"), (Op.PUSH_NULL, None)]
    assert parts("LOAD_ATTR", 4) == [(Op.LOAD_ATTR, "c")]
    assert parts("LOAD_ATTR", 5) == [(Op.LOAD_METHOD, "c")]
    assert parts("LOAD_SUPER_ATTR", 0b1001) == [(Op.LOAD_SUPER_ATTR, ("c", True, False))]
    assert parts("LOAD_SUPER_ATTR", 0b1010) == [(Op.LOAD_SUPER_ATTR, ("c", False, True))]
    for name in "IMPORT_NAME IMPORT_FROM LOAD_NAME STORE_NAME DELETE_NAME STORE_GLOBAL DELETE_GLOBAL".split():
        assert parts(name, 2) == [(Op[name], "c")]
    for name in "STORE_ATTR DELETE_ATTR LOAD_FROM_DICT_OR_GLOBALS".split():
        assert parts(name, 2) == [(Op[name], "c")]


@pytest.mark.parametrize("borrow", ["", "_BORROW"])
def test_locals(borrow):
    assert parts("LOAD_FAST" + borrow, 2) == [(Op.LOAD_FAST, 2)]
    assert parts("LOAD_FAST" + borrow, 3) == [(Op.LOAD_CELL, 3)]  # the cell itself, for a closure
    assert parts(f"LOAD_FAST{borrow}_LOAD_FAST{borrow}", 0x26) == [(Op.LOAD_FAST, 2), (Op.LOAD_CELL, 6)]
    assert parts("LOAD_FAST_CHECK", 2) == [(Op.LOAD_FAST, 2)]
    assert parts("LOAD_FAST_AND_CLEAR", 2) == [(Op.LOAD_FAST_AND_CLEAR, 2)]
    assert parts("STORE_FAST_LOAD_FAST", 0x12) == [(Op.STORE_FAST, 1), (Op.LOAD_FAST, 2)]
    assert parts("STORE_FAST_STORE_FAST", 0x12) == [(Op.STORE_FAST, 1), (Op.STORE_FAST, 2)]
    for name in "MAKE_CELL LOAD_DEREF STORE_DEREF DELETE_DEREF LOAD_FROM_DICT_OR_DEREF".split():
        assert parts(name, 6) == [(Op[name], 6)]


def test_operators():
    assert parts("BINARY_OP", SUBSCRIPT) == [(Op.BINARY_SUBSCR, None)]
    assert parts("BINARY_OP", 0) == [(Op.BINARY, operator.add)]
    assert parts("BINARY_OP", 13) == [(Op.BINARY, operator.iadd)]
    assert parts("COMPARE_OP", 2 << 5 | 2) == [(Op.COMPARE, "==")]
    assert parts("COMPARE_OP", 5 << 5 | 16 | 5) == [(Op.COMPARE, ">="), (Op.TO_BOOL, None)]
    assert parts("IS_OP", 1) == [(Op.IS_OP, True)]
    assert parts("CONTAINS_OP", 0) == [(Op.CONTAINS_OP, False)]
    assert parts("UNARY_NOT") == [(Op.NOT, None)]
    assert parts("BINARY_SLICE") == [(Op.BUILD_SLICE, 2), (Op.BINARY_SUBSCR, None)]
    assert parts("STORE_SLICE") == [(Op.BUILD_SLICE, 2), (Op.STORE_SUBSCR, None)]


def test_constants():
    assert parts("LOAD_CONST", 1) == [(Op.LOAD_CONST, "B")]
    assert parts("LOAD_SMALL_INT", 255) == [(Op.LOAD_CONST, 255)]
    lifted = [None if x in (all, any) else x for x in COMMON_CONSTANTS]  # so that their calls are followed
    assert [parts("LOAD_COMMON_CONSTANT", i) for i in range(5)] == [[(Op.LOAD_CONST, x)] for x in lifted]


def test_with():
    assert [parts("LOAD_SPECIAL", i) for i in range(4)] == [[(Op.LOAD_SPECIAL, name)] for name in SPECIAL_METHODS]
    # exit, its self, lasti, previous, exception: five items, one more than before
    assert parts("WITH_EXCEPT_START") == [(Op.WITH_EXCEPT_START, True)]


def test_functions():
    assert parts("MAKE_FUNCTION") == [(Op.MAKE_FUNCTION, 0)]
    for flag in (1, 2, 4, 8, 16):
        assert parts("SET_FUNCTION_ATTRIBUTE", flag) == [(Op.SET_FUNCTION_ATTRIBUTE, flag)]
    assert parts("CALL_INTRINSIC_1", 2) == [(Op.IMPORT_STAR, None), (Op.LOAD_CONST, None)]
    assert parts("CALL_INTRINSIC_1", 5) == [(Op.UNARY, operator.pos)]
    assert parts("CALL_INTRINSIC_1", 6) == [(Op.LIST_TO_TUPLE, None)]
    assert parts("CALL_INTRINSIC_1", 7) == [(Op.CALL_INTRINSIC, "TYPEVAR")]
    assert parts("CALL_INTRINSIC_2", 1) == [(Op.PREP_RERAISE_STAR, None)]
    assert parts("CALL_INTRINSIC_2", 5) == [(Op.CALL_INTRINSIC_2, "SET_TYPEPARAM_DEFAULT")]


def test_nothing_is_left_of_bookkeeping():
    for name in "NOP RESUME COPY_FREE_VARS NOT_TAKEN END_FOR".split():
        assert parts(name) == []


def run_parts(program, stack):
    """Execute LOAD_CONST, BUILD_TUPLE, SWAP and CALL."""
    for op, arg in program:
        if op is Op.LOAD_CONST:
            stack.append(arg)
        elif op is Op.PUSH_NULL:
            stack.append(None)
        elif op is Op.SWAP:
            stack[-arg], stack[-1] = stack[-1], stack[-arg]
        elif op is Op.BUILD_TUPLE:
            stack[-arg:] = [tuple(stack[-arg:])]
        else:
            assert (op, arg) == (Op.CALL, (1, ()))
            function, null, argument = stack[-3:]
            assert null is None
            stack[-3:] = [function(argument)]
    return stack


def test_templates(monkeypatch):
    monkeypatch.setattr(lift314, "Interpolation", lambda *args: args)
    monkeypatch.setattr(lift314, "Template", lambda *args: args)
    below = ["below"]
    for arg, conversion in ((2, None), (6, "s"), (10, "r"), (14, "a")):
        assert run_parts(parts("BUILD_INTERPOLATION", arg), [*below, 1, "x"]) == [*below, (1, "x", conversion, "")]
        assert run_parts(parts("BUILD_INTERPOLATION", arg | 1), [*below, 1, "x", ">5"])[1] == (1, "x", conversion, ">5")
    built = run_parts(parts("BUILD_TEMPLATE"), [*below, ("a", "b", "c"), (1, 2)])
    assert built == [*below, ("a", 1, "b", 2, "c")]
    assert run_parts(parts("BUILD_TEMPLATE"), [("only",), ()]) == [("only",)]


@ON_314
def test_the_data_is_that_of_the_interpreter():
    real = {name for name, number in opcode.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED_")}
    assert real - set(opcode._specialized_opmap) - INTERNAL == set(EFFECTS)
    assert {name: n for name, n in opcode._inline_cache_entries.items() if n} == CACHES
    assert tuple(opcode._common_constants) == COMMON_CONSTANTS
    assert tuple(opcode._special_method_names) == SPECIAL_METHODS
    assert [name.removeprefix("INTRINSIC_") for name in opcode._intrinsic_1_descs] == INTRINSICS_1
    assert [name.removeprefix("INTRINSIC_") for name in opcode._intrinsic_2_descs] == INTRINSICS_2
    assert opcode._nb_ops[SUBSCRIPT][1] == "[]" and len(opcode._nb_ops) == SUBSCRIPT + 1
    jumps = {opcode.opname[n] for n in opcode.hasjump if n < 256}
    assert {name for name in jumps if not name.startswith("INSTRUMENTED_")} == {*JUMPS, NOT_A_JUMP}


@ON_314
def test_the_effects_are_those_of_the_interpreter():
    for name in EFFECTS:
        number = opcode.opmap[name]
        for arg in operands(name) if number in opcode.hasarg else (None,):
            # CPython leaves the returned value to the caller's stack.
            expected = 0 if name == "RETURN_VALUE" else documented(name, arg)
            assert dis.stack_effect(number, arg, jump=False) == expected, (name, arg)
