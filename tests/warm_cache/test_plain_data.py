"""Values as plain data and back: what each form writes, it reads; other data are refused."""

import marshal

import pytest

from dynamo_lite.breaks import UserFrame
from dynamo_lite.exc import Mismatch, Refused
from dynamo_lite.guards.ir import GuardSet
from dynamo_lite.plain_data import Codec, Form
from dynamo_lite.record import BreakRecord, Function, Specialization
from dynamo_lite.warm_cache.references import Reader, Writer


def program():
    pass


def reader(objects=()):
    return Reader(objects, (), (), program, ())


VALUES = [
    None,
    ...,
    NotImplemented,
    -0.0,
    2j,
    b"a",
    (),
    (1, [2, ("a", {3})]),
    frozenset({"b"}),
    {"a": {1: (2,)}, (3, 4): slice(None, -1)},
    range(2, 9, 3),
    slice(1, [2], None),
    BreakRecord("slug", "why", (UserFrame("f.py", 3, "f", "x", 1, 2),)),
    Specialization("x.size(0)", 3, ("f.py", 3), None),
    {("f.py", 3): (Function("f.py", 1, "f"),)},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_there_and_back(value):
    data = marshal.loads(marshal.dumps(Writer(program, GuardSet(), [], {}).value(value)))
    again = reader().value(data)
    assert again == value and type(again) is type(value) and repr(again) == repr(value)


def test_objects_are_found_again():
    writer = Writer(program, GuardSet(), [], {})
    data = writer.value([len, int.__add__, int.real, program, Writer, {"a": pytest}])
    again = reader(marshal.loads(marshal.dumps(writer.table))).value(data)
    assert again == [len, int.__add__, int.real, program, Writer, {"a": pytest}] and again[2] is int.real


@pytest.mark.parametrize("data", [("os.system", "true"), ("tuple", (("eval", "1"),)), ("__reduce__",)])
def test_data_of_an_unknown_form(data):
    with pytest.raises(Mismatch, match="unknown form"):
        reader().value(data)


def test_places_of_an_unknown_form():
    with pytest.raises(Mismatch, match="unknown form"):
        reader([(("shell", "true"), None)])(0)


def test_values_without_a_form():
    with pytest.raises(Refused, match="a set of objects"):
        Writer(program, GuardSet(), [], {}).value({object})
    with pytest.raises(Refused):
        Writer(program, GuardSet(), [], {}).value(object())


def test_forms_are_tried_in_their_order():
    codec = Codec(
        Form("any", lambda w, v: (repr(v),), lambda r, text: text),
        Form("small", lambda w, v: (v,) if v < 10 else None, lambda r, v: v, (int,)),
    )
    assert (codec.write(None, 3), codec.write(None, 30), codec.write(None, "a")) == (
        ("small", 3),
        ("any", "30"),
        ("any", "'a'"),
    )
    assert codec.knows(("small", 3)) and not codec.knows(("large", 3)) and not codec.knows(3)
    assert Codec().write(None, 3) is None
