"""The assembler: every program is taken apart into canonical ops and emitted again."""

import operator
import sys
import types

import pytest
from bytecode import TryBegin, TryEnd

from dynamo_lite.isa import Op, emit, lift
from dynamo_lite.isa.emit import Assembler
from tests.isa.programs import PROGRAMS, load, outcome

SLOT_OPS = {
    Op.LOAD_FAST: lambda asm, name: asm.emit("LOAD_FAST_CHECK" if sys.version_info >= (3, 12) else "LOAD_FAST", name),
    Op.LOAD_FAST_AND_CLEAR: lambda asm, name: asm.emit("LOAD_FAST_AND_CLEAR", name),
    Op.STORE_FAST: Assembler.store_fast,
    Op.DELETE_FAST: Assembler.delete_fast,
    Op.LOAD_CELL: Assembler.load_cell,
    Op.LOAD_DEREF: Assembler.load_deref,
    Op.STORE_DEREF: Assembler.store_deref,
    Op.DELETE_DEREF: Assembler.delete_deref,
}


def again(code):
    """Emit the lifted program of `code`."""
    lifted = lift(code)
    asm = Assembler()
    labels = {i: asm.label() for i in range(len(lifted.instrs))}
    loop_ends = []
    begin = None
    for i, (instr, handler) in enumerate(zip(lifted.instrs, lifted.handler_at, strict=True)):
        if instr.op is Op.MAKE_CELL and i == sum(x.op is Op.MAKE_CELL for x in lifted.instrs[:i]):
            asm.place(labels[i])
            continue  # the assembler's prologue makes them
        if begin:
            asm.items.append(TryEnd(begin))
        begin = TryBegin(labels[handler.target], handler.lasti, handler.depth) if handler else None
        if begin:
            asm.items.append(begin)
        asm.place(labels[i])
        asm.set_location(*instr.pos)
        emit_one(asm, instr, lifted, labels, loop_ends)
    if begin:
        asm.items.append(TryEnd(begin))
    for end, target in loop_ends:
        asm.place_for_end(end)
        asm.jump(labels[target])
    args = code.co_varnames[: code.co_argcount]
    return asm.assemble(
        code.co_name,
        code.co_qualname,
        code.co_filename,
        code.co_firstlineno,
        code.co_argcount,
        argnames=args,
        cellvars=code.co_cellvars,
        freevars=code.co_freevars,
    )


def emit_one(asm, instr, lifted, labels, loop_ends):
    op = instr.op
    if op in SLOT_OPS or op is Op.MAKE_CELL:
        name, is_cell = lifted.local_names[instr.arg], lifted.is_cell[instr.arg]
        operand = emit.FreeVar(name) if is_cell else name
        if op is Op.MAKE_CELL:
            asm.emit("MAKE_CELL", operand)
        elif op in (Op.LOAD_FAST, Op.STORE_FAST, Op.LOAD_FAST_AND_CLEAR) and is_cell:
            asm.emit(op.name, operand)
        else:
            SLOT_OPS[op](asm, name)
    elif op is Op.JUMP:
        asm.jump(labels[instr.target])
    elif op is Op.JUMP_IF:
        asm.jump_if(instr.arg, labels[instr.target])
    elif op is Op.JUMP_IF_NONE:
        asm.jump_if_none(instr.arg, labels[instr.target])
    elif op is Op.FOR_ITER:
        loop_ends.append((asm.label(), instr.target))
        asm.for_iter(loop_ends[-1][0])
    else:
        asm.emit_op(op, instr.arg)


@pytest.mark.parametrize("name", PROGRAMS)
def test_emitted_programs_run(name):
    space = load(name)
    expected = outcome(space["f"], space)
    space = load(name)
    space["f"].__code__ = again(space["f"].__code__)
    assert outcome(space["f"], space) == expected
    assert lines(space["f"].__code__) <= lines(load(name)["f"].__code__)


def lines(code):
    return {line for _, _, line in code.co_lines() if line}


def function(asm, argnames=(), **kwargs):
    code = asm.assemble("f", "f", "<emitted>", 3, len(argnames), argnames=argnames, **kwargs)
    return types.FunctionType(code, globals(), closure=kwargs.pop("closure", None))


def test_call_of_a_constant():
    asm, seen = Assembler(), []
    asm.push_callable(lambda: asm.load_const(lambda *a, **k: seen.append((a, k)) or 7))
    asm.load_fast("x")
    asm.load_const([1])
    asm.call(2, ("key",))
    asm.return_value()
    assert function(asm, ("x",))(5) == 7
    assert seen == [((5,), {"key": [1]})]


def test_nested_regions():
    """An outer region goes on after an inner one, with its own depth."""
    asm = Assembler()
    outer, inner, end = asm.label(), asm.label(), asm.label()
    asm.load_const("bottom")
    asm.begin_try(outer)
    asm.load_const("middle")
    asm.begin_try(inner)
    asm.push_callable(lambda: asm.load_fast("f"))
    asm.load_const(1)
    asm.call(1)
    asm.build_tuple(3)
    asm.return_value()
    asm.end_try()
    asm.place(inner)
    asm.push_exc_info()
    asm.pop_top()
    asm.pop_except()
    asm.push_callable(lambda: asm.load_fast("f"))
    asm.load_const(2)
    asm.call(1)
    asm.jump(end)
    asm.end_try()
    asm.place(outer)
    asm.push_exc_info()
    asm.pop_top()
    asm.pop_except()
    asm.load_const("outer")
    asm.build_tuple(2)
    asm.return_value()
    asm.place(end)
    asm.build_tuple(3)
    asm.return_value()
    run = function(asm, ("f",))

    def fails(*when):
        def f(x):
            if x in when:
                raise ValueError(x)
            return x

        return f

    assert run(fails()) == ("bottom", "middle", 1)
    assert run(fails(1)) == ("bottom", "middle", 2)
    assert run(fails(1, 2)) == ("bottom", "outer")


def test_backward_conditional_jump():
    asm = Assembler()
    top = asm.label()
    asm.place(top)
    asm.load_fast("n")
    asm.load_const(1)
    asm.binary(operator.isub)
    asm.store_fast("n")
    asm.load_fast("n")
    asm.load_const(3)
    asm.compare(">")
    asm.to_bool()
    asm.jump_if(True, top)
    asm.load_fast("n")
    asm.return_value()
    assert function(asm, ("n",))(10) == 3


def test_cells_and_positions():
    asm = Assembler()
    asm.set_location(7, 7, 2, 9)
    asm.load_const(41)
    asm.store_deref("c")
    asm.load_cell("c")
    asm.load_deref("d")
    asm.build_tuple(2)
    asm.return_value()
    cell = types.CellType("free")
    code = asm.assemble("f", "g.f", "<emitted>", 3, cellvars=("c",), freevars=("d",), docstring="text")
    run = types.FunctionType(code, {}, closure=(cell,))
    made, free = run()
    assert (made.cell_contents, free, run.__doc__) == (41, "free", "text")
    assert code.co_qualname == "g.f"
    assert (7, 7, 2, 9) in set(code.co_positions())


def test_generator_and_arguments():
    asm = Assembler()
    asm.load_fast("args")
    asm.emit_op(Op.YIELD_VALUE)
    asm.return_value()
    flags = emit.CO_GENERATOR | emit.CO_VARARGS
    code = asm.assemble("f", "f", "<emitted>", 1, 1, flags=flags, argnames=("a", "args"))
    generator = types.FunctionType(code, {})(1, 2, 3)
    assert next(generator) == (2, 3)
    with pytest.raises(StopIteration) as stop:
        generator.send("sent")
    assert stop.value.value == "sent"


@pytest.mark.parametrize("flags", range(16))
def test_make_function(flags):
    asm = Assembler()
    values = {1: (5,), 2: {"k": 6}, 4: (), 8: None}
    for flag in (1, 2, 4, 8):
        if flags & flag:
            if flag == 8:
                asm.load_cell("c")
                asm.build_tuple(1)
            else:
                asm.load_const(values[flag])
    inner = (lambda c: lambda a, *, k: (a, k, c) if 0 else None)(1) if flags & 8 else lambda a, *, k: None
    asm.load_const(inner.__code__)
    asm.make_function(flags)
    asm.return_value()
    code = asm.assemble("f", "f", "<emitted>", 1, cellvars=("c",))
    made = types.FunctionType(code, {})()
    assert made.__defaults__ == ((5,) if flags & 1 else None)
    assert made.__kwdefaults__ == ({"k": 6} if flags & 2 else None)
    assert bool(made.__closure__) == bool(flags & 8)
