"""Declared fields of models: constructor, children, and the call that makes an object again."""

import pytest

from dynamo_lite import compile
from dynamo_lite.testing import CompileCounter
from dynamo_lite.variables.builtin.dict import DictVariable
from dynamo_lite.variables.builtin.list import ListVariable
from dynamo_lite.variables.builtin.odict import DefaultDictVariable, OrderedDictVariable
from dynamo_lite.variables.builtin.zip import MapVariable, ZipVariable
from dynamo_lite.variables.protocol.base import Child, Children, Lazy, Plain, VariableTracker
from dynamo_lite.variables.protocol.constant import ConstantVariable


class Pair(VariableTracker):
    first: VariableTracker = Child()
    second: VariableTracker = Child(None)
    rest: list = Children(factory=list)
    label: str = Plain("pair")
    seen: list = Plain(factory=list, init=False)
    count = 0


class Named(Pair):
    name: VariableTracker = Child(None, init=False)

    def __post_init__(self) -> None:
        self.length = len(self.rest)


A, B, C = map(ConstantVariable, "abc")


def test_the_constructor_takes_the_fields_in_their_order_and_the_path_last():
    made = Pair(A, B, [C], "label", "path")
    assert (made.first, made.second, made.rest, made.label, made.source) == (A, B, [C], "label", "path")
    made = Pair(A)
    assert (made.second, made.rest, made.label, made.source, made.count) == (None, [], "pair", None, 0)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        Pair()
    with pytest.raises(TypeError, match="seen"):
        Pair(A, seen=[])


def test_a_factory_makes_a_value_for_each_object():
    one, other = Pair(A), Pair(A)
    assert one.rest is not other.rest and one.seen is not other.seen


def test_the_children_are_those_that_are_there():
    assert Pair(A).children() == [A]
    assert Pair(A, B, [C]).children() == [A, B, C]


def test_a_subclass_adds_fields():
    made = Named(A, rest=[B])
    assert made.length == 1 and made.children() == [A, B]
    made.name = C
    assert made.children() == [A, B, C]


class Counted(Pair):
    def __post_init__(self) -> None:
        self.length = len(self.rest)


def test_a_subclass_adds_nothing_but_what_follows_the_constructor():
    assert Counted(A, B, [C]).length == 1


def test_fields_add_to_children_that_a_base_finds_by_hand():
    made = DefaultDictVariable({"k": A}, B)
    assert A in made.children() and B in made.children()
    ordered = OrderedDictVariable()
    assert ordered.children() == []
    ordered.attributes = DictVariable()
    assert ordered.children() == [ordered.attributes]


def test_a_field_without_a_value_is_no_attribute():
    assert not hasattr(Pair.__new__(Pair), "first")
    assert isinstance(ListVariable.items, Lazy)
    assert ListVariable([A]).items == [A]


class Cg:
    """Notes what a model asks code generation for."""

    def __init__(self):
        self.asm, self.seen, self.fills = self, [], []

    def __getattr__(self, name):
        return lambda *args: self.seen.append((name, *args))


def test_the_call_that_makes_the_object_again():
    cg = Cg()
    MapVariable(A, [B, C]).emit_new(cg)
    assert cg.seen == [("load_callable", map), ("load", A), ("load", B), ("load", C), ("call", 3, ())]
    cg = Cg()
    ZipVariable([A]).emit_new(cg)
    assert cg.seen == [("load_callable", zip), ("load", A), ("call", 1, ())]
    cg = Cg()
    ZipVariable([A], True).emit_new(cg)
    assert cg.seen[1:] == [("load", A), ("load_const", True), ("call", 2, ("strict",))]


def test_the_call_for_an_instance_of_a_subclass():
    class Mine(map):
        pass

    made, cg = MapVariable(A, [B]), Cg()
    made.cls = Mine
    made.emit_new(cg)
    assert cg.seen[:2] == [("load_callable", map.__new__), ("load_const", Mine)]
    assert cg.seen[-1] == ("call", 3, ())


def test_a_model_that_says_nothing_has_no_code():
    with pytest.raises(NotImplementedError):
        Pair(A).emit_new(Cg())


def test_iterators_come_back_in_their_state():
    def f(x, names):
        pairs = zip(names, [x, x + 1], strict=True)
        next(pairs)
        return pairs, map(str.upper, names), enumerate(names, 3), filter(None, names), reversed(names)

    counter = CompileCounter()
    made, expected = compile(f, backend=counter)(1, ["a", "b"]), f(1, ["a", "b"])
    assert [type(m) for m in made] == [type(e) for e in expected]
    assert [list(m) for m in made] == [list(e) for e in expected]
