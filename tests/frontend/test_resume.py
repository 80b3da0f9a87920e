"""Continuation functions: what `tests/isa/test_resume_everywhere.py` cannot see by results alone."""

import contextlib
import sys
import traceback
import types

import pytest

from dynamo_lite.isa import Op, lift
from dynamo_lite.isa.resume import CannotResume, is_resumed, resume_code, resume_freevars


def BREAK(*args):
    raise AssertionError("the test splits here")


def place(function, nth=0):
    """The offset of the n-th call of BREAK."""
    lifted = lift(function.__code__)
    loads = [i for i, ins in enumerate(lifted.instrs) if ins.op is Op.LOAD_GLOBAL and ins.arg == "BREAK"]
    call = next(i for i in range(loads[nth], len(lifted.instrs)) if lifted.instrs[i].op is Op.CALL)
    return lifted.instrs[call].offset


def make(function, code, closure=None):
    cells = function.__closure__ if closure is None else closure
    return types.FunctionType(code, function.__globals__, closure=cells)


def test_plain():
    def f(a, b):
        c = [a, BREAK(b), a]
        return c, b

    code = resume_code(f.__code__, place(f), 2, locals_passed=("a", "b"))
    assert code.co_varnames[: code.co_argcount] == ("__stack_0", "__stack_1 BREAK(b)", "a", "b")
    assert make(f, code)(1, "result", 1, 2) == ([1, "result", 1], 2)
    assert code is resume_code(f.__code__, place(f), 2, (), ["a", "b"])
    assert code.co_filename == __file__
    assert code.co_firstlineno == f.__code__.co_firstlineno
    assert code.co_name == "f" and is_resumed(code)
    assert code.co_qualname.startswith("test_plain.<locals>.f (resumed at line ")


def test_a_continuation_of_a_continuation():
    def f(a):
        b = BREAK(a)
        c = BREAK(b)
        return b, c

    first = make(f, resume_code(f.__code__, place(f), 1, (), ()))
    offset = place(first)
    second = resume_code(first.__code__, offset, 1, (), ("b",))
    assert make(f, second)("c", "b") == ("b", "c")
    assert second.co_name == "f" and is_resumed(second)
    assert second.co_qualname.count("resumed") == 1


def test_parameters_are_gone():
    def f():
        x = BREAK()
        return locals(), x

    code = resume_code(f.__code__, place(f), 1)
    assert make(f, code)(3) == ({"x": 3}, 3)


def test_stack_does_not_keep_values_alive(no_other_evaluator):
    class Thing:
        gone = False

        def __del__(self):
            Thing.gone = True

    def f():
        BREAK()
        return Thing.gone

    code = resume_code(f.__code__, place(f), 1)
    assert resume_freevars(f.__code__) == ("Thing",)
    run = make(f, code)
    seen = run(Thing())
    assert seen is True


def test_cells_are_shared():
    def f(a):
        b = 1

        def g():
            nonlocal a, b
            a, b = a + 1, b + 1

        BREAK(g)
        g()
        return a, b

    code = resume_code(f.__code__, place(f), 1, (), ("g",))
    assert resume_freevars(f.__code__) == f.__code__.co_cellvars
    a, b = types.CellType(10), types.CellType(20)

    def bump():
        a.cell_contents += 1
        b.cell_contents += 1

    cells = tuple({"a": a, "b": b}[name] for name in resume_freevars(f.__code__))
    assert make(f, code, cells)(None, bump) == (11, 21)
    assert (a.cell_contents, b.cell_contents) == (11, 21)


def test_super_without_arguments():
    class A:
        def f(self):
            return "A"

    class B(A):
        def f(self):
            x = BREAK()
            return super().f(), x

        def with_cell(self):
            x = BREAK()
            return super().f(), x, lambda: self

    for method, cells in ((B.f, ()), (B.with_cell, (types.CellType(B()),))):
        names = () if cells else ("self",)
        code = resume_code(method.__code__, place(method), 1, (), names)
        run = make(method, code, (*cells, *method.__closure__))
        assert run("x", *([] if cells else [B()]))[:2] == ("A", "x")


def test_generator():
    def f(a):
        b = yield a
        try:
            c = yield b
        finally:
            a.append("closed")
        return a, b, c

    lifted = lift(f.__code__)
    yields = [instr.offset for instr in lifted.instrs if instr.op is Op.YIELD_VALUE]
    code = resume_code(f.__code__, yields[0], 1, (), ("a",))
    log = []
    generator = make(f, code)("b", log)
    assert next(generator) == "b"
    with pytest.raises(StopIteration) as stop:
        generator.send("c")
    assert stop.value.value == (["closed"], "b", "c")
    generator = make(f, code)("b", log)
    next(generator)
    generator.close()
    assert log == ["closed", "closed"]


def test_raise_runs_the_handlers_with_the_users_line():
    def f(log):
        try:
            BREAK()
        except ValueError as error:
            log.append(error)
            raise

    log, error = [], ValueError("x")
    code = resume_code(f.__code__, place(f), 0, (), ("log",), mode="raise")
    with pytest.raises(ValueError) as caught:
        make(f, code)(log, error)
    assert caught.value is error and log == [error]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "f"]
    assert [frame.lineno - f.__code__.co_firstlineno for frame in frames] == [2]


def test_raise_at_the_last_instruction():
    def f():
        raise BREAK()

    last = lift(f.__code__).instrs[-1]
    assert last.op is Op.RAISE_VARARGS
    with pytest.raises(KeyError):
        make(f, resume_code(f.__code__, last.offset, 0, mode="raise"))(KeyError())


def test_raise_keeps_the_context_and_a_traceback_without_its_frame():
    def f():
        BREAK()

    error, context = ValueError("x"), KeyError("context")
    error.__context__ = context
    with contextlib.suppress(ValueError):
        raise error
    code = resume_code(f.__code__, place(f), 0, mode="raise")
    try:
        raise TypeError("handled by the caller")
    except TypeError:
        with pytest.raises(ValueError) as caught:
            make(f, code)(error)
    assert caught.value is error and error.__context__ is context
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert "f" not in names  # no generated code has caught it: it came to be where there was no such frame


def test_inner_call_is_at_the_users_line():
    def f(log):
        with log as x:
            y = BREAK()
            return x, y

    class Log:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, tb):
            self.kind, self.line = kind, tb and tb.tb_lineno
            return True

    def inner(value):
        if value is None:
            raise KeyError
        return value

    log = Log()
    leaving = (Log.__exit__, log) if sys.version_info >= (3, 14) else (log.__exit__,)
    code = resume_code(f.__code__, place(f), len(leaving) + 1, (), ("x",), mode="call")
    run = make(f, code)
    stack = [f"__stack_{i}" for i in range(len(leaving))]
    assert code.co_varnames[: code.co_argcount] == (*stack, "x", "__inner", "__inner_args")
    assert run(*leaving, log, inner, [5]) == (log, 5)
    assert run(*leaving, log, inner, [None]) is None
    assert (log.kind, log.line - f.__code__.co_firstlineno) == (KeyError, 2)


def test_handled_exception():
    def f():
        try:
            raise ValueError("x")
        except ValueError as e:
            BREAK()
            seen = sys.exc_info()[1], e
            try:
                raise
            except ValueError as again:
                seen += (again, again.__context__)
        return seen, sys.exc_info()[1]

    error = ValueError("x")
    code = resume_code(f.__code__, place(f), 2, (), ("e",), exc_entries=(0,))
    assert make(f, code)(error, None, error) == ((error, error, error, None), None)


def test_lasti_gives_the_line_of_the_first_raise():
    def f(x):
        try:
            x.fails()
        finally:
            BREAK()

    error = ValueError("x")
    offset = place(f, nth=1)  # the copy of the finally block for exceptions
    code = resume_code(f.__code__, offset, 3, (), (), exc_entries=(0,))
    with pytest.raises(ValueError):
        make(f, code)(error, error, None)

    def g(x):
        with x:
            x.fails()
        return 1

    lifted = lift(g.__code__)
    where = next(ins for ins in lifted.instrs if ins.op is Op.CALL)
    start = next(ins for ins in lifted.instrs if ins.op is Op.WITH_EXCEPT_START)
    depth = 6 if start.arg else 5
    exits = [None] * (depth - 4)
    code = resume_code(
        g.__code__,
        start.offset,
        depth,
        exc_entries=(depth - 3,),
        lasti_entries=((depth - 4, where.offset),),
    )
    # exit, handled exception, exception, the result of the exit function: do not swallow
    with pytest.raises(ValueError) as caught:
        make(g, code)(*exits, error, error, False)
    frames = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if frame.name.endswith("_g")]
    assert {frame.lineno - g.__code__.co_firstlineno for frame in frames} <= {2}


def test_unbound_locals_stay_unbound():
    def f(flag):
        if flag:
            x = 1
        BREAK()
        return x

    code = resume_code(f.__code__, place(f), 1, (), ("flag",))
    with pytest.raises(UnboundLocalError):
        make(f, code)(None, False)


def test_from_the_start():
    def f(a):
        return lambda: a

    code = resume_code(f.__code__, 0, 0, after=False)
    assert make(f, code, (types.CellType(5),))()() == 5


def test_class_bodies_cannot():
    code = compile("class A:\n    x = BREAK()\n", "<x>", "exec")
    body = code.co_consts[0]
    with pytest.raises(CannotResume):
        resume_code(body, 0, 0)


def test_many_locals():
    names = [f"x{i}" for i in range(300)]
    space = {"BREAK": BREAK}
    exec("def f():\n" + "".join(f"    {n} = 0\n" for n in names) + "    BREAK()\n    return " + "+".join(names), space)
    f = space["f"]
    code = resume_code(f.__code__, place(f), 1, (), names)
    assert make(f, code)(None, *range(300)) == sum(range(300))
