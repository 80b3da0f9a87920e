"""The lift tables: every opcode known, every code object of the standard library consistent."""

import dis
import gc
import itertools
import opcode
import sys
import weakref

import pytest

from dynamo_lite.isa import LiftError, Op, lift, lift311, lift312, lift313, lift314, lift315, stack_effect
from dynamo_lite.isa.canon import NO_TARGET, TERMINAL
from tests.isa.standard_library import library, library_codes

# Opcodes that never stand in a code object's co_code.
INTERNAL = {
    "CACHE",
    "RESERVED",
    "INTERPRETER_EXIT",
    "EXIT_INIT_CHECK",
    "ENTER_EXECUTOR",
    "EXTENDED_ARG",
    "TRACE_RECORD",
}
INTERNAL |= {"BINARY_OP_INPLACE_ADD_UNICODE"}
TABLES = {(3, 11): lift311, (3, 12): lift312, (3, 13): lift313, (3, 14): lift314, (3, 15): lift315}
# On 3.15 the handler of a generator's whole body covers what lies behind a loop at its end, with the depth within the loop.
NEVER_RAISE = {Op.PUSH_NULL, Op.POP_TOP, Op.LOAD_CONST, Op.RETURN_VALUE} if sys.version_info >= (3, 15) else set()
SLACK = 2  # splitting an instruction may need an item more than the original


def check_depths(lifted):
    """Walk all paths; returns the highest depth."""
    depths, work = {}, []

    def visit(index, depth):
        assert depth >= 0, (lifted, index)
        known = depths.setdefault(index, depth)
        assert known == depth, (lifted, index, known, depth)
        if index not in seen:
            seen.add(index)
            work.append(index)

    seen = set()
    visit(0, 0)
    while work:
        index = work.pop()
        depth, instr, handler = depths[index], lifted.instrs[index], lifted.handler_at[index]
        if handler is not None:
            assert handler.depth <= depth or instr.op in NEVER_RAISE
            visit(handler.target, handler.depth + handler.lasti + 1)
        if instr.target != NO_TARGET:
            visit(instr.target, depth + stack_effect(instr, True))
        if instr.op not in TERMINAL:
            visit(index + 1, depth + stack_effect(instr, False))
    return max(depths.values())


def imports_lazily(code):
    """3.15: `lazy import`, a statement of modules."""
    imports = (instr.arg for instr in dis.get_instructions(code) if instr.opname == "IMPORT_NAME")
    return sys.version_info >= (3, 15) and any(arg & 3 == 1 for arg in imports)


def test_every_opcode_has_a_rule():
    rules = TABLES[sys.version_info[:2]].RULES
    names = {name for name, number in opcode.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED_")}
    specialised = set(getattr(opcode, "_specialized_instructions", ())) | set(getattr(opcode, "_specialized_opmap", ()))
    assert names - INTERNAL - specialised <= set(rules)


@pytest.mark.parametrize("first", range(8))
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_standard_library(first):
    """All of it, in eight parts."""
    count = 0
    for code in library_codes(library()[first::8]):
        if imports_lazily(code):
            with pytest.raises(LiftError, match="lazy import"):
                lift(code)
            continue
        lifted = lift(code)
        assert check_depths(lifted) <= code.co_stacksize + SLACK
        count += len(lifted.instrs)
    assert count > 20_000


def test_offsets_and_targets():
    def f(x):
        total = 0
        for i in x:
            total += i if i else f(*x, k=i)
        return total

    lifted = lift(f.__code__)
    for instr in dis.get_instructions(f):
        assert 0 <= lifted.index_of_offset[instr.offset] < len(lifted.instrs)
    loop = next(instr for instr in lifted.instrs if instr.op is Op.FOR_ITER)
    behind = itertools.dropwhile(lambda instr: instr.op in (Op.PUSH_NULL, Op.POP_TOP), lifted.instrs[loop.target :])
    assert next(behind).op is Op.LOAD_FAST
    kw = next(instr for instr in lifted.instrs if instr.op is Op.CALL_FUNCTION_EX)
    assert kw.arg is True
    last = [instr for instr in lifted.instrs if instr.last]
    assert len({instr.offset for instr in last}) == len(last) == len({instr.offset for instr in lifted.instrs})
    lines = f.__code__.co_firstlineno
    assert {instr.lineno - lines for instr in lifted.instrs} <= {0, 1, 2, 3, 4}


def test_keyword_names_are_folded():
    def f():
        return g(1, a=2, b=3)  # noqa: F821

    call = [instr for instr in lift(f.__code__).instrs if instr.op is Op.CALL]
    assert [instr.arg for instr in call] == [(3, ("a", "b"))]


def test_slots():
    x = 1

    def f(a, b):
        c = 2
        return lambda: (a, c, x)

    lifted = lift(f.__code__)
    assert lifted.local_names[:2] == ("a", "b")
    assert lifted.is_cell[0] and not lifted.is_cell[1]
    assert lifted.local_names[lifted.first_free_slot :] == ("x",)
    assert lifted.is_cell[lifted.slot_of("c")]


def test_cache_is_by_identity_and_weak():
    source = "def f(): return 1"

    def compiled():
        return compile(source, "<here>", "exec").co_consts[0]

    first, second = compiled(), compiled()
    assert first == second
    assert lift(first) is lift(first)
    assert lift(first) is not lift(second)
    gone = weakref.ref(first)
    lifted = lift(first)
    del first
    gc.collect()
    assert gone() is None
    assert lifted.code is None


def test_a_table_of_lines_that_does_not_reach_to_the_end():
    def f(x):
        return x + 1

    code = f.__code__.replace(co_linetable=f.__code__.co_linetable[:2])
    assert [i.op for i in lift(code).instrs] == [i.op for i in lift(f.__code__).instrs]
    assert lift(code).instrs[-1].pos == (None, None, None, None)
