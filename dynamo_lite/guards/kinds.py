"""The kinds of steps on access paths, of checks and of relations: one row each.

Input: none. This file imports nothing of the package, so that `setup.py` can run it. Output: a number under the name of each kind, the rows
(`ROWS`) from which `mirror` and `warm_cache` work, and the C header `guard_kinds.h` (`c_header`), which is made at each build.
Invariant: the extension knows the same kinds (`ir` compares them when it is imported).

A new check is a row here, and a `case` in `check_holds()` of `csrc/evaluate.h`. It is evaluated at each call until `record_check()` of
`csrc/recorder.h` says when its answer can't change.
"""

from __future__ import annotations

from typing import NamedTuple


class KindRow(NamedTuple):
    """One kind. Texts in Python are over `v`, the value, and `k`, the argument; they use the names of `mirror`."""

    argument: str
    """What C demands of the argument: NOTHING, OBJECT, WEAKREF, TYPE, TUPLE, NAME, BOOL, NUMBER, SLOT or TENSOR."""

    python: str = ""
    """An expression: the value after a step, or whether a check holds."""

    path: str = ""
    """How a path goes on with a step, for people: a template over the path so far and the argument."""

    expected: str = ""
    found: str = "{short(v)}"
    """Why a check failed, for people: bodies of f-strings."""

    kept: str = "plain"
    """How the persistent cache keeps the argument: as plain data, as an OBJECT that is found again, or as torch's side of the graph (TORCH)
    describes it."""

    firm: int = -1
    """Of a kind that refers to its object weakly: the one that owns it."""


ROWS: dict[int, KindRow] = {}
_FIRST_CHECK, _FIRST_RELATION = 32, 64


def _kind(number: int, row: KindRow) -> int:
    while number in ROWS:
        number += 1
    ROWS[number] = row
    return number


def _step(argument: str, python: str, path: str = "") -> int:
    return _kind(0, KindRow(argument, python, path))


def _field(cls: str, name: str) -> int:
    return _step("NOTHING", f"field_of_c({{v}}, {cls}, {name!r})", f"{{v}}.{name}")


def _check(argument: str, python: str, expected: str, found: str = "{short(v)}", kept: str = "plain") -> int:
    return _kind(_FIRST_CHECK, KindRow(argument, python, "", expected, found, kept))


def _weakly(firm: int, python: str) -> int:
    return _kind(_FIRST_CHECK, ROWS[firm]._replace(argument="WEAKREF", python=python, kept="object", firm=firm))


def _relation(argument: str, python: str, expected: str, found: str, kept: str = "plain") -> int:
    return _kind(_FIRST_RELATION, KindRow(argument, python, "", expected, found, kept))


# Steps. The first three and REFERENT are roots.
LOCAL = _step("NUMBER", "local({v}, {k})")  # a local slot
FREEVAR = _step("NUMBER", "free({v}, {k})")  # a cell of the function's closure
CONST = _step("OBJECT", "{k}")  # the object itself
ATTR = _step("NAME", "attr({v}, {k})", "{v}.{k}")  # getattr(), which may run user code
INSTANCE_DICT = _step("NOTHING", "instance_dict({v})", "{v}.__dict__")
DICT_ITEM = _step("OBJECT", "dict_item({v}, {k})", "{v}[{k}]")  # looked up in the dict's own storage
INDEX = _step("NUMBER", "index({v}, {k})", "{v}[{k}]")  # looked up in the storage of a list or tuple
CELL_CONTENTS = _step("NOTHING", "cell_contents({v})", "{v}.cell_contents")
TYPE = _step("NOTHING", "type({v})", "type({v})")
TYPE_ATTR = _step("NAME", "type_attr({v}, {k})", "{v}.{k}")  # along the MRO of a type, without descriptors
FUNC_CODE = _field("FunctionType", "__code__")
FUNC_DEFAULTS = _field("FunctionType", "__defaults__")
FUNC_KWDEFAULTS = _field("FunctionType", "__kwdefaults__")
FUNC_CLOSURE = _field("FunctionType", "__closure__")
METHOD_SELF = _field("MethodType", "__self__")
METHOD_FUNC = _field("MethodType", "__func__")
ITER_ITEM = _step("NUMBER", "iter_item({v}, {k})", "list({v})[{k}]")  # an item still to come of a builtin iterator
DICT_KEY = _step("NUMBER", "dict_key({v}, {k})", "list({v})[{k}]")  # by its position
CALL = _step("OBJECT", "call({v}, {k})", "{k}({v})")  # a Python function of the value
REFERENT = _step("WEAKREF", "referent({k})")  # a root: CONST, but a weak reference to the object
FIELD = _step("NAME", "field({v}, {k})", "{v}.{k}")  # the first getset or member descriptor that an immutable class has
MEMBER = _step("NAME", "member({v}, {k})", "{v}.{k}")  # the first one of any class, such as what `__slots__` makes
DICT_VALUE = _step("NUMBER", "dict_value({v}, {k})", "list({v}.values())[{k}]")  # by its position

# Checks.
_WITHOUT_DEL = "an object without __del__"
IS = _check("OBJECT", "{v} is {k}", "the same object {short(k)}", kept="object")
IS_NOT = _check("OBJECT", "{v} is not {k}", "another object than {short(k)}", kept="object")
TYPE_IS = _check("TYPE", "type({v}) is {k}", "type {qualname_of(k)}", "type {qualname_of(type(v))}", kept="object")
EQUALS = _check("OBJECT", "holds(equals, {v}, {k})", "{short(k)}")  # same exact type and equal, all the way down
LEN = _check("NUMBER", "holds(length, {v}, {k})", "length {k}", "length {length_of(v)}")
DICT_KEYS = _check("TUPLE", "holds(dict_keys, {v}, {k})", "keys {short(list(k))}", "{keys_of(v)}")  # all, in order
HAS_KEY = _check("OBJECT", "holds(has_key, {v}, {k})", "a key {short(k)}")  # of a dict or set
LACKS_KEY = _check("OBJECT", "holds(lacks_key, {v}, {k})", "no key {short(k)}")
ABSENT = _check("NOTHING", "False", "nothing there")  # the step finds nothing
TENSOR = _check("TENSOR", "holds(tensor, {v}, {k})", "{expected_of(v, k)}", "{found_of(v, k)}", kept="torch")
TRUTH = _check("BOOL", "holds(truth, {v}, {k})", "truth value {k}")
PYTHON = _check("OBJECT", "holds({k}, {v})", "{short(k)} to hold")  # k is a predicate
SAVE = _check("SLOT", "True", "")  # the slot of a relation's value; added by `program`
# Those with REF are what `settle` makes of those without.
REF_IS = _weakly(IS, "{v} is {k}() is not None")
REF_IS_NOT = _weakly(IS_NOT, "not ({v} is {k}() is not None)")
REF_TYPE_IS = _weakly(TYPE_IS, "type({v}) is {k}()")
# No `__del__` of the program runs when the value dies; the like for what a dict has under the key, if anything.
NO_FINALIZER = _check("NOTHING", "holds(no_finalizer, {v})", _WITHOUT_DEL, "type {qualname_of(type(v))}")
NO_FINALIZER_AT = _check(
    "OBJECT", "holds(no_finalizer_at, {v}, {k})", _WITHOUT_DEL, "type {qualname_of(type(dict.get(v, k)))}"
)
REF_HAS_KEY = _weakly(HAS_KEY, "{k}() is not None and holds(has_key, {v}, {k}())")
REF_LACKS_KEY = _weakly(LACKS_KEY, "{k}() is not None and holds(lacks_key, {v}, {k}())")
INT64 = _check("NOTHING", "holds(int64, {v})", "an int of 64 bits")  # a number that may be another one at the next call

# Relations between several values, and conditions on none. Where a guard has a text, that is what was expected.
SAME = _relation("NOTHING", "are_one({v})", "the same object", "different objects")
DISTINCT = _relation("NOTHING", "all_distinct({v})", "different objects", "the same object")
PREDICATE = _relation("OBJECT", "holds({k}, {v})", "predicate", "{', '.join(map(short, v))}", kept="torch")
GLOBAL_STATE = _relation("OBJECT", "holds({k})", "unchanged", "changed", kept="torch")

KINDS: dict[str, int] = {
    name: value for name, value in list(globals().items()) if type(value) is int and not name.startswith("_")
}
KIND_NAMES: dict[int, str] = {number: name for name, number in KINDS.items()}

FIRM: dict[int, int] = {number: row.firm for number, row in ROWS.items() if row.firm >= 0}
"""The kinds of checks that refer to their object weakly, and what they are without that."""


def c_header() -> str:
    """The kinds for C: lists of X(name, number, argument)."""
    lines = ["/* Made by setup.py from guards/kinds.py. */"]
    groups = (
        ("STEP_KINDS", 0, _FIRST_CHECK),
        ("CHECK_KINDS", _FIRST_CHECK, _FIRST_RELATION),
        ("RELATION_KINDS", _FIRST_RELATION, 256),
    )
    for group, first, end in groups:
        rows = [f"X({KIND_NAMES[n]}, {n}, {ROWS[n].argument})" for n in sorted(ROWS) if first <= n < end]
        lines.append(" \\\n    ".join([f"#define {group}(X)", *rows]))
    return "\n\n".join(lines) + "\n"
