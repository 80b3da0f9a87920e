"""Decoding and encoding code objects."""

import dis
import types

import bytecode
import pytest

from dynamo_lite.isa import codec
from dynamo_lite.isa.lift import exception_table
from tests.isa.programs import PROGRAMS, load, outcome
from tests.isa.standard_library import code_objects, library, library_codes


def header(code, stacksize=None):
    return codec.Header(
        code.co_name,
        code.co_qualname,
        code.co_filename,
        code.co_firstlineno,
        code.co_flags,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_varnames,
        code.co_cellvars,
        code.co_freevars,
        code.co_consts[:1],
        code.co_stacksize if stacksize is None else stacksize,
    )


def rebuild(code, stacksize=None):
    return codec.encode(codec.to_items(codec.decode(code)), header(code, stacksize))


def listing(code):
    """What a code object says, without the numbering of names and constants."""
    rows = []
    for instr in dis.get_instructions(code):
        if instr.opname == "EXTENDED_ARG":
            continue
        value = instr.argval
        rows.append((instr.opname, value.co_qualname if isinstance(value, types.CodeType) else repr(value)))
    return rows


def handlers(code):
    return {
        offset: (target, depth, lasti)
        for start, end, target, depth, lasti in exception_table(code)
        for offset in range(start, end, 2)
    }


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_round_trip():
    count = 0
    for code in library_codes(library()[::60]):
        again = rebuild(code)
        if len(again.co_code) != len(code.co_code):
            # Constants and names are numbered anew; an EXTENDED_ARG may come or go.
            assert max(len(code.co_consts), len(code.co_names) * 2) > 200
            continue
        assert listing(again) == listing(code)
        assert handlers(again) == handlers(code)
        ours = [a for a, b in zip(again.co_positions(), code.co_positions(), strict=True) if b[0] is not None]
        assert ours == [b for b in code.co_positions() if b[0] is not None]
        computed = rebuild(code, 0).co_stacksize
        assert computed <= code.co_stacksize + 1
        count += 1
    assert count > 100


@pytest.mark.parametrize("name", PROGRAMS)
def test_rebuilt_programs_run(name):
    space = load(name)
    expected = outcome(space["f"], space)
    space = load(name)
    space["f"].__code__ = rebuild(space["f"].__code__, 0)
    assert outcome(space["f"], space) == expected


def test_items_are_those_of_the_bytecode_package():
    """`bytecode` reads the same program out of what we wrote."""
    for name in PROGRAMS.keys() - {"template"}:  # it knows no conversions in template strings
        for code in code_objects(load(name)["f"].__code__):
            ours, theirs = bytecode.Bytecode.from_code(rebuild(code)), bytecode.Bytecode.from_code(code)
            assert [x.name for x in ours if isinstance(x, bytecode.Instr)] == [
                x.name for x in theirs if isinstance(x, bytecode.Instr)
            ]


def test_long_jumps_and_many_slots():
    body = "".join(f"    x{i} = t({i}) if a else x{i - 1}\n" for i in range(1, 400))
    source = f"def f(a, x0=0):\n    for _ in range(2):\n        pass\n{body}    return x399\n"
    space = {"t": lambda x: x}
    exec(source, space)
    function = space["f"]
    function.__code__ = rebuild(function.__code__)
    assert function(True) == 399
    assert function(False) == 0


def test_constants_by_identity():
    first, second, values = [1], [1], [True, 1, 1.0, -0.0, 0.0]
    items = [codec.make_instr("RESUME", 0)]
    for value in (first, second, *values):
        items.append(codec.make_instr("LOAD_CONST", value))
    items += [codec.make_instr("BUILD_TUPLE", 7), codec.make_instr("RETURN_VALUE")]
    code = codec.encode(items, codec.Header("f", "f", "<x>", 1, 3, consts=(None,)))
    result = types.FunctionType(code, {})()
    assert result[0] is first and result[1] is second
    assert all(a is b for a, b in zip(result[2:], values, strict=True))
