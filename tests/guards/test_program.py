"""The C program and its Python mirror: every accessor and check, both ways. Needs no torch."""

import collections
import functools
import gc
import io
import types

import pytest

from dynamo_lite._eval_frame import GuardProgram
from dynamo_lite.guards import ir
from dynamo_lite.guards.ir import GuardSet
from dynamo_lite.guards.mirror import Mirror
from dynamo_lite.guards.program import build_program
from dynamo_lite.isa.typeobject import member_descriptor


class Both:
    """Builds a guard set; asks the C program and the mirror, which must agree."""

    def __init__(self, *names):
        self.guards = GuardSet(names or ("x", "y", "z"))

    def path(self, *steps, root=(ir.LOCAL, 0)):
        node = self.guards.node(None, *root)
        for step in steps:
            node = self.guards.node(node, *(step if isinstance(step, tuple) else (step,)))
        return node

    def check(self, node, kind, arg=None):
        self.guards.check(node, kind, arg)
        return self

    def __call__(self, *values, closure=None):
        program, mirror = build_program(self.guards), Mirror(self.guards)
        result = None
        for _ in range(4):  # later calls take the shortcuts that the first ones prepare
            result = program.check(values, closure)
            failure = program.first_failure(values, closure)
            assert result is (failure is None)
            assert failure == mirror.first_failure(values, closure)
            assert result is mirror.check(values, closure)
        return result


class Slotted:
    __slots__ = ("a",)


class Plain:
    a = "class"

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def method(self):
        pass


class Nasty:
    """Every hook raises."""

    def _fail(self, *args):
        raise ValueError

    __getattribute__ = __eq__ = __len__ = __bool__ = __getitem__ = __iter__ = __contains__ = _fail
    __hash__ = None


class NastyDict(dict):
    def _fail(self, *args):
        raise ValueError

    __getitem__ = __len__ = __contains__ = __iter__ = keys = get = _fail


class NastyList(list):
    __getitem__ = __len__ = __iter__ = NastyDict._fail


def function(a, b=17, *, c=18):
    pass


def closure_of(value):
    return (lambda: value).__closure__


class Sub(tuple):
    pass


Point = collections.namedtuple("Point", "x y")
ordered = collections.OrderedDict(a=1, b=2)
ordered.move_to_end("a")
used_iterator = iter([1, 2, 3])
next(used_iterator)
nan = float("nan")

# One object of every kind, for throwing at every accessor.
ZOO = [
    None,
    True,
    0,
    1,
    1.0,
    10**30,
    "abc",
    b"abc",
    (),
    (1, 2),
    Point(1, 2),
    [],
    [1, 2],
    NastyList([1, 2]),
    {},
    {"a": 1, "b": 2},
    {1: "a"},
    NastyDict(a=1),
    ordered,
    {1, 2},
    frozenset("ab"),
    range(3),
    iter([]),
    used_iterator,
    iter((1, 2)),
    iter(range(5)),
    iter({"a": 1}),
    iter({"a": 1}.values()),
    iter({"a": 1}.items()),
    iter("abc"),
    reversed([1, 2]),
    (i for i in [1]),
    Slotted(),
    Plain(),
    Plain(a=1, b=2),
    Nasty(),
    Plain,
    int,
    type,
    function,
    len,
    Plain.method,
    Plain().method,
    types.CellType(),
    types.CellType(5),
    types.ModuleType("m"),
    ValueError("x"),
    Sub((1, 2)),
]

ACCESSORS = [
    (ir.ATTR, "a"),
    (ir.MEMBER, "a"),
    (ir.MEMBER, "__traceback__"),
    (ir.FIELD, "__traceback__"),
    ir.INSTANCE_DICT,
    (ir.DICT_ITEM, "a"),
    (ir.DICT_ITEM, 1),
    (ir.DICT_ITEM, (1, 2)),
    (ir.DICT_ITEM, []),
    (ir.INDEX, 0),
    (ir.INDEX, 1),
    (ir.INDEX, 5),
    ir.CELL_CONTENTS,
    ir.TYPE,
    (ir.TYPE_ATTR, "a"),
    (ir.TYPE_ATTR, "__init__"),
    ir.FUNC_CODE,
    ir.FUNC_DEFAULTS,
    ir.FUNC_KWDEFAULTS,
    ir.FUNC_CLOSURE,
    ir.METHOD_SELF,
    ir.METHOD_FUNC,
    (ir.ITER_ITEM, 0),
    (ir.ITER_ITEM, 1),
    (ir.ITER_ITEM, 9),
    (ir.DICT_KEY, 0),
    (ir.DICT_KEY, 1),
    (ir.DICT_VALUE, 0),
    (ir.DICT_VALUE, 1),
    (ir.CALL, len),
    (ir.CALL, repr),
]

CHECKS = [
    (ir.IS, None),
    (ir.IS_NOT, None),
    (ir.TYPE_IS, int),
    (ir.EQUALS, 1),
    (ir.EQUALS, (1, 2)),
    (ir.EQUALS, [1, 2]),
    (ir.EQUALS, {"a": 1, "b": 2}),
    (ir.EQUALS, Point(1, 2)),
    (ir.LEN, 0),
    (ir.LEN, 2),
    (ir.DICT_KEYS, ("a", "b")),
    (ir.DICT_KEYS, ("b", "a")),
    (ir.HAS_KEY, "a"),
    (ir.HAS_KEY, []),
    (ir.LACKS_KEY, "a"),
    (ir.LACKS_KEY, 1),
    (ir.ABSENT, None),
    (ir.TRUTH, True),
    (ir.TRUTH, False),
    (ir.PYTHON, lambda x: x == 1),
    (ir.PYTHON, lambda x: len(x) == 2),
]


@pytest.mark.parametrize("accessor", ACCESSORS, ids=lambda a: str(a if isinstance(a, int) else f"{a[0]}-{a[1]!r}"))
def test_every_accessor_on_every_kind_of_object(accessor):
    results = set()
    for value in ZOO:
        for check in [(ir.IS_NOT, Both), (ir.ABSENT, None), (ir.TRUTH, True)]:
            both = Both()
            results.add(both.check(both.path(accessor), *check)(value))
    assert results == ({False} if accessor == (ir.DICT_ITEM, []) else {True, False})


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: f"{ir.KIND_NAMES[c[0]]}-{c[1]!r:.20}")
def test_every_check_on_every_kind_of_object(check):
    for value in ZOO:
        both = Both()
        both.check(both.path(), *check)(value)


def answer(*steps, check=(ir.IS_NOT, Both), root=(ir.LOCAL, 0)):
    both = Both()
    return both.check(both.path(*steps, root=root), *check)


def test_accessors_find_the_right_things():
    obj = Plain(x=[1, (2, "deep")])
    path = (ir.INSTANCE_DICT, (ir.DICT_ITEM, "x"), (ir.INDEX, 1), (ir.INDEX, 1))
    assert answer(*path, check=(ir.EQUALS, "deep"))(obj)
    assert answer((ir.ATTR, "x"), (ir.INDEX, 0), check=(ir.EQUALS, 1))(obj)
    assert not answer((ir.ATTR, "x"), (ir.INDEX, 0), check=(ir.EQUALS, True))(obj)
    assert answer(ir.TYPE, (ir.TYPE_ATTR, "a"), check=(ir.EQUALS, "class"))(obj)
    assert answer(ir.TYPE, check=(ir.IS, Plain))(obj)
    assert answer(ir.FUNC_CODE, check=(ir.IS, function.__code__))(function)
    assert answer(ir.FUNC_DEFAULTS, (ir.INDEX, 0), check=(ir.EQUALS, 17))(function)
    assert answer(ir.FUNC_KWDEFAULTS, (ir.DICT_ITEM, "c"), check=(ir.EQUALS, 18))(function)
    assert answer(ir.FUNC_DEFAULTS, check=(ir.IS, None))(answer)
    assert answer(ir.METHOD_SELF, check=(ir.IS, obj))(obj.method)
    assert answer(ir.METHOD_FUNC, check=(ir.IS, Plain.method))(obj.method)
    assert answer((ir.CALL, len), check=(ir.EQUALS, 3))("abc")
    cells = closure_of(17)
    assert answer(ir.CELL_CONTENTS, root=(ir.FREEVAR, 0), check=(ir.EQUALS, 17))(closure=cells)
    assert not answer(ir.CELL_CONTENTS, root=(ir.FREEVAR, 1))(closure=cells)
    assert not answer(ir.CELL_CONTENTS, root=(ir.FREEVAR, 0))(closure=None)
    assert not answer(root=(ir.LOCAL, 3))(1, 2, 3)
    assert answer((ir.DICT_ITEM, "k"), root=(ir.CONST, {"k": 5}), check=(ir.EQUALS, 5))()


def test_a_member_is_read_past_the_program():
    """The value of a slot or of a field in C, whatever hides its name; nothing of the class runs."""

    class WithSlot(ValueError):
        __slots__ = ("a",)

    class Hidden(WithSlot):
        a = __traceback__ = property(lambda self: 1 / 0)

        def __getattribute__(self, name):
            raise ZeroDivisionError

    class Shadowed(Hidden):
        __slots__ = ("a",)

    for cls in (Hidden, Shadowed):
        obj = cls()
        assert answer((ir.MEMBER, "a"), check=(ir.ABSENT,))(obj)
        member_descriptor(cls, "a").__set__(obj, 5)
        assert answer((ir.MEMBER, "a"), check=(ir.EQUALS, 5))(obj)
        assert answer((ir.FIELD, "__traceback__"), check=(ir.IS, None))(obj)
        assert not answer((ir.FIELD, "a"))(obj)
        assert not answer((ir.MEMBER, "b"), check=(ir.ABSENT,))(obj)  # not a member at all
    assert answer((ir.FIELD, "__traceback__"), check=(ir.IS_NOT, None))(raised(Hidden()))

    class Slots(ValueError):
        __slots__ = ("__traceback__",)

    assert answer((ir.FIELD, "__traceback__"), check=(ir.IS_NOT, None))(raised(Slots()))
    assert answer((ir.MEMBER, "__traceback__"), check=(ir.ABSENT,))(Slots())


def raised(error):
    """An exception that has been raised."""
    try:
        raise error
    except type(error):
        return error


def test_instance_dict_of_everything():
    def f():
        pass

    assert answer(ir.INSTANCE_DICT, check=(ir.LEN, 0))(f)
    assert answer(ir.INSTANCE_DICT, (ir.DICT_ITEM, "x"), check=(ir.ABSENT,))(f)
    f.x = 1
    assert answer(ir.INSTANCE_DICT, (ir.DICT_ITEM, "x"), check=(ir.EQUALS, 1))(f)
    assert answer(ir.INSTANCE_DICT, (ir.DICT_ITEM, "__name__"), check=(ir.EQUALS, "types"))(types)
    assert answer(ir.INSTANCE_DICT, (ir.DICT_ITEM, "a"), check=(ir.EQUALS, "class"))(Plain)
    assert answer(ir.INSTANCE_DICT, check=(ir.ABSENT,))(Slotted())
    assert not answer(ir.INSTANCE_DICT)(5)


def test_iterators_do_not_move():
    def two(iterator):
        next(iterator)
        return iterator

    for iterator in (
        two(iter(["x", "a", "b"])),
        two(iter(("x", "a", "b"))),
        two(iter({"x": 0, "a": 0, "b": 0})),
        two(iter({0: "x", 1: "a", 2: "b"}.values())),
    ):
        assert answer((ir.ITER_ITEM, 0), check=(ir.EQUALS, "a"))(iterator)
        assert answer((ir.ITER_ITEM, 1), check=(ir.EQUALS, "b"))(iterator)
        assert answer((ir.ITER_ITEM, 2), check=(ir.ABSENT,))(iterator)
        assert answer(check=(ir.LEN, 2))(iterator)
        assert list(iterator) == ["a", "b"]
        assert answer((ir.ITER_ITEM, 0), check=(ir.ABSENT,))(iterator)
        assert answer(check=(ir.LEN, 0))(iterator)
    numbers = iter(range(10, 50, 10))
    next(numbers)
    assert answer((ir.ITER_ITEM, 1), check=(ir.EQUALS, 30))(numbers)
    big = iter(range(1 << 70, (1 << 70) + 5))
    next(big)
    assert answer((ir.ITER_ITEM, 1), check=(ir.EQUALS, (1 << 70) + 2))(big)


def test_ordered_dict_has_its_own_order():
    assert answer(check=(ir.DICT_KEYS, ("b", "a")))(ordered)
    assert not answer(check=(ir.DICT_KEYS, ("a", "b")))(ordered)
    assert answer((ir.DICT_KEY, 0), check=(ir.EQUALS, "b"))(ordered)
    assert answer((ir.DICT_VALUE, 0), check=(ir.EQUALS, ordered["b"]))(ordered)


def test_items_of_a_dict_by_their_place():
    """Also where items were deleted, at the front, within and at the end, and in the shared tables of attributes."""
    plain = Plain(a=1, b=2, c=3)
    holed = dict.fromkeys(range(10))
    for key in (0, 4, 9):
        del holed[key]
    last_gone = {"a": 1, "b": 2, "c": 3}
    last_gone.popitem()
    for table in ({}, {1: 2}, vars(plain), holed, last_gone, {None: 1, **holed}):
        for i, (key, value) in enumerate(table.items()):
            assert answer((ir.DICT_KEY, i), check=(ir.EQUALS, key))(table)
            assert answer((ir.DICT_VALUE, i), check=(ir.EQUALS, value))(table)
        for kind in (ir.DICT_KEY, ir.DICT_VALUE):
            assert answer((kind, len(table)), check=(ir.ABSENT,))(table)
            assert answer((kind, len(table) + 1), check=(ir.ABSENT,))(table)


SAME_CONSTANTS = [
    (lambda: 1, lambda: 1),
    (lambda: 10**20, lambda: 10**20),
    (lambda: "".join("ab"), lambda: "ab"),
    (lambda: float("nan"), lambda: float("nan")),
    (lambda: complex("nan"), lambda: complex("nan")),
    (lambda: -0.0, lambda: -0.0),
    (lambda: 1.5 - 0.5j, lambda: 1.5 - 0.5j),
    (lambda: (1, ("a", [2.0], None)), lambda: (1, ("a", [2.0], None))),
    (lambda: {"a": [1], 2: ()}, lambda: {"a": [1], 2: ()}),
    (lambda: frozenset({1, "a", (2.0,)}), lambda: frozenset({"a", (2.0,), 1})),
    (lambda: {1, 2}, lambda: {2, 1}),
    (lambda: slice(1, None, 2), lambda: slice(1, None, 2)),
    (lambda: range(1, 5), lambda: range(1, 5)),
    (lambda: Point(1, 2), lambda: Point(1, 2)),
    (lambda: ..., lambda: ...),
    (lambda: bytearray(b"x"), lambda: bytearray(b"x")),
]

DIFFERENT_CONSTANTS = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    (complex(0.0, 0.0), complex(-0.0, 0.0)),
    (1, 2),
    ("a", "b"),
    ("a", b"a"),
    (None, 0),
    ((1, 2), (1, True)),
    ((1, 2), (1, 2, 3)),
    ((1, (2, (0.0,))), (1, (2, (-0.0,)))),
    ((1, 2), Point(1, 2)),
    (Point(1, 2), Point(1, 2.0)),
    ([1], (1,)),
    ([1], [True]),
    ({"a": 1}, {"a": True}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (frozenset({1}), frozenset({True})),
    (frozenset({1}), {1}),
    (frozenset({0.0}), frozenset({-0.0})),
    (slice(1), slice(True)),
    (range(0), range(1, 1)),
    (nan, 1.0),
]


def test_finalizers_of_c_modules_are_none_of_the_program():
    """The classes of `io` are heap types since 3.12."""

    class Buffer(io.StringIO):
        pass

    no_finalizer = answer(check=(ir.NO_FINALIZER,))
    assert no_finalizer(io.StringIO()) and no_finalizer([]) and not no_finalizer(Buffer())


@pytest.mark.parametrize("a, b", SAME_CONSTANTS)
def test_equal_constants(a, b):
    assert answer(check=(ir.EQUALS, a()))(b())
    assert answer(check=(ir.EQUALS, a()))(a())


@pytest.mark.parametrize("a, b", DIFFERENT_CONSTANTS)
def test_different_constants(a, b):
    assert not answer(check=(ir.EQUALS, a))(b)
    assert not answer(check=(ir.EQUALS, b))(a)


def test_cyclic_constants_are_a_miss():
    a, b = [], []
    a.append(a)
    b.append(b)
    assert not answer(check=(ir.EQUALS, a))(b)


def test_relations():
    both = Both()
    x, y, z = (both.path(root=(ir.LOCAL, i)) for i in range(3))
    both.guards.same(x, y)
    both.guards.distinct([x, z])
    both.guards.predicate(lambda a, b: a[0] < b[0], [x, z], "x[0] < z[0]")
    a, b = [1], [2]
    assert both(a, a, b)
    assert not both(a, [1], b)
    assert not both(a, a, a)
    assert not both(b, b, a)
    assert not both([], [], [])


def test_many_distinct_objects():
    both = Both(*(f"x{i}" for i in range(500)))
    both.guards.distinct([both.path(root=(ir.LOCAL, i)) for i in range(500)])
    objects = [object() for _ in range(500)]
    assert both(*objects)
    for i, j in ((0, 499), (17, 18), (250, 3)):
        copy = list(objects)
        copy[i] = copy[j]
        assert not both(*copy)


def test_predicates_with_many_values():
    both = Both(*(f"x{i}" for i in range(20)))
    nodes = [both.path(root=(ir.LOCAL, i)) for i in range(20)]
    both.guards.predicate(lambda *values: sum(values) == 190, nodes, "sum")
    assert both(*range(20))
    assert not both(*range(1, 21))


def test_global_state_comes_first():
    both, state = Both(), [True]
    both.check(both.path(), ir.EQUALS, 1)
    both.guards.global_state(lambda: state[0], "state")
    assert both(1)
    assert not both(2)
    state[0] = False
    assert not both(1)
    assert build_program(both.guards).first_failure((2,)) == 1


@pytest.mark.parametrize(
    "function, holds",
    [
        ("a".isidentifier, True),
        ("".isidentifier, False),
        ("a".upper, True),
        ([].copy, False),
        ([].clear, False),
        ({}.popitem, False),  # raises
        (gc.get_count, True),
        ((3).__bool__, True),
        (types.SimpleNamespace(a=1).__repr__, True),
        (dict, False),
        (object, True),
        (functools.partial(bool, 1), True),
        (lambda: 0.0, False),
        (lambda: "text", True),
        (len, False),  # raises: no argument
    ],
)
def test_kinds_of_functions_for_the_global_state(function, holds):
    both = Both()
    both.guards.global_state(function, "state")
    both.check(both.path(), ir.EQUALS, 1)
    assert both(1) is holds and not both(2)


def test_class_checks():
    class Base:
        first = 1

    class Derived(Base):
        pass

    asked = []

    def is_as_it_was(cls):
        asked.append(cls)
        return cls.first == 1

    both = Both()
    both.guards.class_check(Derived, is_as_it_was)
    both.check(both.path(), ir.EQUALS, 1)
    assert both(1) and not both(2)
    program = build_program(both.guards)
    assert program.check((1,), None)
    asked.clear()
    assert program.check((1,), None) and not asked
    for change, holds in (("other", True), ("first", False), ("other", False)):
        setattr(Base, change, 2)
        assert program.check((1,), None) is holds and asked == [Derived]
        assert program.check((1,), None) is holds and asked == [Derived]
        assert both(1) is holds
        asked.clear()
    Derived.first = 1
    assert both(1)
    del asked[:], Derived
    gc.collect()
    assert not program.check((1,), None) and not both(1) and not asked


class Interrupt(BaseException):
    pass


@pytest.mark.parametrize("error, raised", [(ValueError, False), (RecursionError, False), (Interrupt, True)])
def test_errors_of_user_code(error, raised):
    def fail(*args):
        raise error

    for build in (
        lambda both: both.check(both.path(), ir.PYTHON, fail),
        lambda both: both.check(both.path((ir.CALL, fail)), ir.IS_NOT, None),
        lambda both: both.check(both.path((ir.CALL, fail)), ir.ABSENT),
        lambda both: both.guards.predicate(fail, [both.path()], "fail"),
        lambda both: both.guards.global_state(fail, "fail"),
        lambda both: both.guards.global_state(functools.partial(fail).__call__, "fail"),
        lambda both: both.guards.class_check(type("Class", (), {}), fail),
    ):
        both = Both()
        build(both)
        program, mirror = build_program(both.guards), Mirror(both.guards)
        for check in (program.check, program.first_failure, mirror.check):
            if raised:
                with pytest.raises(Interrupt):
                    check((1,))
            else:
                assert check((1,)) in (False, 0)


def test_objects_are_kept_alive():
    both = Both()
    both.check(both.path(), ir.EQUALS, (1, "".join(["a", "b"])))
    program = build_program(both.guards)
    both.guards = None
    assert program.check(((1, "ab"),))


@pytest.mark.parametrize(
    "spec",
    [
        None,
        (),
        ((), (), -1),
        ((), (), 1 << 40),
        ([], (), 0),
        ((), None, 0),
        (((0, 0, (), ()),), (), 0),
        (((0, -1, ((32, 0, 0),), ()),), (), 0),
        (((3, "a", ((32, 0, 0),), ()),), (), 0),
        (((0, 0, (), ((0, 0, ((32, 0, 0),), ()),)),), (), 0),
        (((0, 0, ((99, 0, 0),), ()),), (), 0),
        (((99, 0, ((32, 0, 0),), ()),), (), 0),
        (((0, 0, ((34, 5, 0),), ()),), (), 0),
        (((0, 0, ((37, [], 0),), ()),), (), 0),
        (((0, 0, ((42, 1, 0),), ()),), (), 0),
        (((0, 0, ((44, 0, 0),), ()),), (), 0),
        (((0, 0, ((41, None, 0),), ()),), (), 0),
        (((0, 0, ((41, (1,) * 9, 0),), ()),), (), 0),
        (((0, 0, (), ((3, 5, ((32, 0, 0),), ()),)),), (), 0),
        ((), ((64, (0, 1), 0),), 1),
        ((), ((64, (0,), 0),), 1),
        ((), ((65, [0], 0),), 1),
        ((), ((66, len, 0),), 1),
        ((), ((99, 0, 0),), 1),
        ((), ((65, (0,), 0), (67, len, 1)), 1),
        ((), ((65, (0,), 0),), 1),
        ((), ((66, (len, (0,)), 0),), 1),
    ],
)
def test_bad_specs_are_refused(spec):
    with pytest.raises(TypeError):
        GuardProgram(spec)


def test_bad_calls_are_refused():
    program = GuardProgram(((), (), 0))
    assert program.check(()) is True
    for bad in ((), ([],), ((), [])):
        with pytest.raises(TypeError):
            program.check(*bad)
