"""Values that are read and then dropped, or only passed on: that they are there is part of what was seen."""

import abc
import collections.abc
import functools
import numbers
import types
import typing

import pytest
import torch

import dynamo_lite
from dynamo_lite import graph_break
from dynamo_lite.config import config
from dynamo_lite.frontend import convert
from dynamo_lite.record import log

COUNT = 1


@pytest.fixture(autouse=True)
def pure_python():
    with config.patch(capture_pure_python=True, debug=True):
        yield


def compiled(fn):
    return convert.Region(lambda gm, inputs: gm.forward).wrap(fn)


def test_a_global_that_is_gone(monkeypatch):
    def read():
        COUNT
        return 1

    fn = compiled(read)
    assert fn() == 1
    monkeypatch.delitem(globals(), "COUNT")
    with pytest.raises(NameError, match="COUNT"):
        fn()


def test_a_cell_that_is_empty():
    def outer(items):
        for last in items:
            pass

        def read():
            last
            return 1

        return read

    bound = outer([1])
    fn = compiled(bound)
    assert fn() == 1
    del bound.__closure__[0].cell_contents
    with pytest.raises(NameError, match="last"):
        fn()


def test_a_cell_after_a_break():
    """Found by the fuzzer: the continuation took a default from a cell without looking at it."""

    def program(n):
        for _, last in zip([0], [0] * n, strict=False):
            pass
        print(end="")

        def inner(default=last):
            return last, default

        return 1

    fn = compiled(program)
    assert [fn(1), fn(2)] == [1, 1]
    with pytest.raises(UnboundLocalError, match="last"):
        fn(0)


def test_an_attribute_that_is_gone():
    class Holder:
        def __init__(self):
            self.x = 1

    def read(holder):
        holder.x
        return 1

    fn, holder = compiled(read), Holder()
    assert fn(holder) == 1
    del holder.x
    with pytest.raises(AttributeError, match="x"):
        fn(holder)


def test_a_store_that_drops_an_object_with_a_finalizer():
    table = {}

    class Clears(int):
        def __del__(self):
            table.clear()

    table.update({i: Clears(i) for i in range(8)})

    def run():
        for key in table:
            if key == 2:
                table[2] = None

    with pytest.raises(RuntimeError, match="changed size during iteration"):
        compiled(run)()


class Holder:
    def __init__(self, a):
        self.a = a


@pytest.mark.parametrize(
    "first, second",
    [
        (max, min),
        (functools.partial(max, 1), functools.partial(min, 1)),
        (compiled, pytest.raises),
        (Holder, dict),
        (functools, pytest),
    ],
)
def test_what_is_made_once_is_known_by_a_path_that_nobody_looks_at(first, second):
    def what(holder):
        a = holder.a.func if isinstance(holder.a, functools.partial) else holder.a
        return a is max, a is compiled, a is Holder, a is functools

    fn = compiled(what)
    for value in (first, second, first):
        assert fn(Holder(value)) == what(Holder(value))


def cell(*content):
    if content:
        (x,) = content
    return (lambda: x).__closure__[0]


@pytest.mark.parametrize("contents", [((1,), (2,)), ((2,), (1,)), ((1,), (1,)), ((), (1,)), ((1,), ()), ((), ())])
def test_cells_as_objects(contents):
    def program(c, d):
        try:
            found = c.cell_contents, d.cell_contents
        except ValueError as error:
            found = str(error)
        c.cell_contents = 5
        return found, c < d, c == d, c >= d, hasattr(c, "b"), getattr(c, "foo", 5), type(c).__name__, c.cell_contents

    def comparisons(c, d):
        return c < d, c <= d, c == d, c != d, c > d, c >= d

    for f in (program, comparisons):
        fn = compiled(f)
        for _ in range(2):
            assert fn(*(cell(*content) for content in contents)) == f(*(cell(*content) for content in contents))


def test_bytes_of_a_number_that_varies():
    def program(n):
        try:
            return bytes(n), bytearray(n)
        except TypeError as error:
            return repr(error)

    fn = compiled(program)
    assert [fn(n) for n in (1, 2, 3)] == [program(n) for n in (1, 2, 3)]


def test_bytes_of_an_object_that_says_what_they_are():
    class Both:
        def __bytes__(self):
            return b"own"

        def __index__(self):
            return 3

    assert compiled(lambda: (bytes(Both()), bytearray(Both())))() == (b"own", bytearray(3))


MAKERS = [lambda: "".join(["one ", "two"]), lambda: int("1" * 30), lambda: float("2.5"), lambda: bytes([1, 2])]


@pytest.mark.parametrize("make", MAKERS, ids=["str", "int", "float", "bytes"])
def test_equal_values_are_returned_as_the_objects_that_came(make):
    """A text or number from outside is guarded by its value, but which object it is can be asked outside."""

    def passed(value, other):
        return value if value == other else None

    def kept(value, other):
        found = [value] if value == other else []
        return {"found": found, "first": (value, value)}

    first, second, other = make(), make(), make()
    assert first is not second
    fn = compiled(passed)
    assert fn(first, other) is first
    assert fn(second, other) is second
    fn = compiled(kept)
    for value in (first, second):
        found = fn(value, other)
        assert found["found"][0] is value and found["first"][0] is value and found["first"][1] is value


def test_an_equal_value_after_a_break():
    def fn(value, other):
        same = value == other
        graph_break()
        return value, same

    first, second = ("".join(["one ", "two"]) for _ in range(2))
    capture = compiled(fn)
    for value in (first, second):
        found, same = capture(value, "one two")
        assert found is value and same


@pytest.mark.parametrize(
    "asked, registered_with",
    [
        (collections.abc.Sized, collections.abc.Sized),
        (collections.abc.Sequence, collections.abc.MutableSequence),
        (numbers.Number, numbers.Integral),
    ],
)
def test_classes_registered_later_with_an_abstract_class_of_the_standard_library(asked, registered_with):
    class Registered:
        pass

    def by_instance(value):
        return 1 if isinstance(value, asked) else 2

    def by_class(cls):
        return 1 if issubclass(cls, asked) else 2

    instance, cls = compiled(by_instance), compiled(by_class)
    assert (instance(Registered()), cls(Registered)) == (2, 2)
    registered_with.register(Registered)
    assert (instance(Registered()), cls(Registered)) == (1, 1)


def test_a_class_of_a_library_registered_later():
    abstract = abc.ABCMeta("Abstract", (), {"__module__": "collections.abc"})

    def f(x):
        return 1 if isinstance(x, abstract) else 2

    run = compiled(f)
    assert (run(torch.ones(1)), run(1), run([])) == (2, 2, 2)
    abstract.register(torch.Tensor)
    assert (run(torch.ones(1)), run(1), run([])) == (1, 2, 2)
    abstract.register(int)
    assert (run(torch.ones(1)), run(1), run([])) == (1, 1, 2)


def test_what_is_registered_elsewhere_makes_no_new_version():
    versions = []
    run = dynamo_lite.compile(
        lambda x: x + isinstance(x, collections.abc.Sequence), backend=lambda gm, _: versions.append(gm) or gm.forward
    )
    for _ in range(3):
        assert run(torch.ones(1)) == 1
        collections.abc.Sequence.register(type("Other", (), {}))
    assert len(versions) == 1


def test_patterns_of_classes_registered_later():
    class Registered:
        pass

    def f(x):
        match x:
            case [*_]:
                return "sequence"
            case {}:
                return "mapping"
            case _:
                return "neither"

    run, one = compiled(f), Registered()
    assert run(one) == f(one) == "neither"
    collections.abc.Mapping.register(Registered)
    assert run(one) == f(one) == "mapping"
    collections.abc.Sequence.register(Registered)
    assert run(one) == f(one) == "sequence"


def test_a_protocol_with_which_a_class_is_registered_later():
    @typing.runtime_checkable
    class HasMethod(typing.Protocol):
        def method(self): ...

    class Registered:
        pass

    run = compiled(lambda x: 1 if isinstance(x, HasMethod) else 2)
    assert run(Registered()) == 2
    HasMethod.register(Registered)
    assert run(Registered()) == 1


class Attributes:
    def __init__(self, value):
        self.value = value


class More(Attributes):
    pass


def add_one(a, b):
    a.value += 1
    return b.value


def store_and_delete(a, b):
    a.value = a.other = 3
    del a.other
    return b.value, hasattr(b, "other")


@pytest.mark.parametrize("cls", [Attributes, More], ids=["same class", "subclass"])
@pytest.mark.parametrize("program", [add_one, store_and_delete])
@pytest.mark.parametrize("first", [False, True])
def test_two_objects_may_have_one_dict(program, cls, first):
    """As in the "Borg" pattern. A version for objects with a dict each does not fit two that share one, nor the other way round."""

    def outcome(fn, share):
        a, b = Attributes(1), cls(1)
        if share:
            b.__dict__ = a.__dict__
        return fn(a, b), vars(a), vars(b)

    log.reset()
    fn = compiled(program)
    for share in (first, not first, first, not first):
        assert outcome(fn, share) == outcome(program, share)
    assert len(log.frames) == 2 and not log.breaks()


def test_a_module_gets_another_class():
    """Its class attributes are seen where the module has none, and data descriptors before those of the module."""
    module = types.ModuleType("module_of_this_test")

    def program():
        return getattr(module, "value", None)

    def store():
        module.value = 7
        return vars(module).get("value")

    read, write = compiled(program), compiled(store)
    for attributes in ({}, {"value": 1}, {"value": property(lambda self: 5, lambda self, value: None)}, {}):
        module.__class__ = type("Sub", (types.ModuleType,), attributes) if attributes else types.ModuleType
        for present in (False, True):
            vars(module).pop("value", None)
            if present:
                vars(module)["value"] = 3
            assert read() == program()
            vars(module).pop("value", None)
            expected = store()
            vars(module).pop("value", None)
            assert write() == expected
