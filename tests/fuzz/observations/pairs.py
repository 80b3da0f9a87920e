"""Pairs of objects that differ in one respect, and objects of which one respect changes.

Output: `PAIRS`, name → a function that makes a fresh iterator over three objects: A, B, A again. The iterator changes objects in place
between two of its items where A and B are one object.
"""

import abc
import array
import collections
import contextlib
import contextvars
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import importlib.util
import io
import itertools
import pathlib
import random
import re
import threading
import types
import typing
import weakref

PAIRS = {}


def pair(make):
    """Register a generator function: what it yields are the objects to look at."""
    PAIRS[make.__name__] = make
    return make


def two(**makers):
    """Register pairs of new objects, each given by a function that returns both."""
    for name, make in makers.items():

        def objects(make=make):
            a, b = make()
            yield a
            yield b
            yield a

        PAIRS[name] = objects


class Thing:
    """An instance has what is given."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def meth(self, *args):
        return self.__dict__.get("a"), args


class Other(Thing):
    def meth(self, *args):
        return "other", args


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, **attributes):
        for name, value in attributes.items():
            setattr(self, name, value)


def thing_class(name="K", bases=(), meta=type, /, **namespace):
    """A new class with a method; all else is given."""
    return meta(name, bases, {"meth": lambda self, *args: "meth", "__module__": __name__, **namespace})


def generic_class(**namespace):
    return types.new_class("G", (typing.Generic[typing.TypeVar("T")],), {}, lambda names: names.update(namespace))


def instances(**namespaces):
    """Instances of two new classes that differ in one attribute: `a` and `b` are their namespaces."""
    return thing_class(**namespaces["a"])(), thing_class(**namespaces["b"])()


def function(default=1, *, closed=0, named="g", annotation=None):
    def g(x=default, *, k=closed):
        return x, k, closed

    g.__name__ = named
    if annotation is not None:
        g.__annotations__ = {"x": annotation}
    return g


def with_globals(**names):
    return types.FunctionType((lambda x=0: a).__code__, {**names, "__name__": "elsewhere"}, "g")  # noqa: F821


def at(position, iterator):
    """The iterator, advanced."""
    for _ in range(position):
        next(iterator, None)
    return iterator


def fresh_module(name):
    spec = importlib.util.find_spec(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def count_up(n=4):
    yield from range(n)


def raised(error, cause=None):
    try:
        raise error from cause
    except BaseException as e:
        return e


two(
    ints=lambda: (3, 4),
    zero_one=lambda: (0, 1),
    int_bool=lambda: (1, True),
    int_float=lambda: (3, 3.0),
    big_ints=lambda: (2**70, 2**70 + 1),
    equal_big_ints=lambda: (int("9" * 30), int("9" * 30)),
    signs=lambda: (3, -3),
    floats=lambda: (1.5, 2.5),
    zeros=lambda: (0.0, -0.0),
    nans=lambda: (1.0, float("nan")),
    two_nans=lambda: (float("nan"), float("nan")),
    nan_signs=lambda: (float("nan"), -float("nan")),
    infinities=lambda: (float("inf"), float("-inf")),
    complexes=lambda: (1 + 2j, 1 - 2j),
    complex_zeros=lambda: (complex(0, 0.0), complex(0, -0.0)),
    none_false=lambda: (None, False),
    ellipsis_not_implemented=lambda: (..., NotImplemented),
    texts=lambda: ("ab", "ba"),
    empty_text=lambda: ("", "a"),
    equal_texts=lambda: ("".join(["a", "b", "c"]), "".join(["a", "b", "c"])),
    text_bytes=lambda: ("ab", b"ab"),
    bytes_=lambda: (b"ab", b"abc"),
    bytearrays=lambda: (bytearray(b"ab"), bytearray(b"ac")),
    memoryviews=lambda: (memoryview(b"abcd"), memoryview(bytearray(b"abcd"))),
    memoryview_formats=lambda: (memoryview(b"abcd"), memoryview(b"abcd").cast("H")),
    tuples=lambda: ((1, 2), (2, 1)),
    tuple_lengths=lambda: ((1, 2), (1, 2, 3)),
    tuple_item_types=lambda: ((1, 0), (True, 0.0)),
    nested_tuples=lambda: (((1,), "a"), ((2,), "a")),
    tuples_of_lists=lambda: (([1], "a"), ([2], "a")),
    lists=lambda: ([1, 2], [2, 1]),
    empty_list=lambda: ([], [0]),
    list_item_types=lambda: ([1, 2], [1.0, 2]),
    nested_lists=lambda: ([[1], [2]], [[1], [3]]),
    list_subclass=lambda: ([1, 2], thing_class("L", (list,))([1, 2])),
    equal_lists=lambda: ([1, 2], [1, 2]),
    dicts=lambda: ({"a": 1, "b": 2}, {"a": 1, "b": 3}),
    dict_order=lambda: ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    dict_keys=lambda: ({"a": 1}, {"a": 1, "c": 1}),
    dict_key_types=lambda: ({1: "a", "b": 0}, {True: "a", "b": 0}),
    dict_float_keys=lambda: ({1: "a"}, {1.0: "a"}),
    dict_none=lambda: ({"a": None}, {}),
    nested_dicts=lambda: ({"b": {"c": 1}}, {"b": {"c": 2}}),
    dict_subclass=lambda: ({"a": 1}, thing_class("D", (dict,))({"a": 1})),
    dict_missing=lambda: (
        thing_class("D", (dict,), __missing__=lambda self, key: ("missing", key))({"a": 1}),
        thing_class("D", (dict,), __missing__=lambda self, key: ("gone", key))({"a": 1}),
    ),
    dict_views=lambda: ({"a": 1}.items(), {"a": 2}.items()),
    key_views=lambda: ({"a": 1}.keys(), {"b": 1}.keys()),
    value_views=lambda: ({"a": 1}.values(), {"a": 1, "b": 2}.values()),
    mapping_proxies=lambda: (types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2})),
    sets=lambda: ({1, 2}, {1, 3}),
    set_item_types=lambda: ({1}, {True}),
    empty_set=lambda: (set(), {0}),
    set_frozenset=lambda: ({1}, frozenset({1})),
    frozensets=lambda: (frozenset({1, 2}), frozenset({2})),
    nested_frozensets=lambda: (frozenset({(1, 2)}), frozenset({(1, 3)})),
    ranges=lambda: (range(3), range(4)),
    equal_ranges=lambda: (range(0, 3, 2), range(0, 4, 2)),
    empty_ranges=lambda: (range(0), range(2, 2)),
    slices=lambda: (slice(3), slice(1, 3)),
    slice_parts=lambda: (slice(None, [1]), slice(None, [2])),
    int_subclass=lambda: (3, thing_class("I", (int,))(3)),
    int_subclass_attribute=lambda: (lambda c: (Thing.__init__(x := c(3), a=1) or x, c(3)))(thing_class("I", (int,))),
    text_subclass=lambda: ("ab", thing_class("S", (str,))("ab")),
    tuple_subclass=lambda: ((1, 2), thing_class("T", (tuple,))((1, 2))),
    namedtuples=lambda: (lambda c: (c(1, 2), c(1, 3)))(collections.namedtuple("P", "a b")),
    namedtuple_types=lambda: (collections.namedtuple("P", "a b")(1, 2), collections.namedtuple("P", "b a")(1, 2)),
    namedtuple_classes=lambda: (collections.namedtuple("P", "a b"), collections.namedtuple("P", "a c", defaults=[1])),
    simple_namespaces=lambda: (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
)

two(
    function_defaults=lambda: (function(1), function(2)),
    function_kwdefaults=lambda: (function(closed=[1]), function(closed=[2])),
    function_names=lambda: (function(), function(named="h")),
    function_annotations=lambda: (function(annotation=int), function(annotation=str)),
    function_globals=lambda: (with_globals(a=1), with_globals(a=2)),
    function_global_missing=lambda: (with_globals(a=1), with_globals()),
    function_attributes=lambda: (lambda f, g: (setattr(f, "a", 1), (f, g))[1])(function(), function()),
    function_code=lambda: ((lambda x=0: (x, 1)), (lambda x=0: (x, 2))),
    function_arity=lambda: ((lambda x=0: x), (lambda x=0, y=1: x)),
    wrapped_functions=lambda: (functools.wraps(len)(function()), functools.wraps(abs)(function())),
    builtin_functions=lambda: (len, abs),
    builtin_methods=lambda: ([1].append, [2].append),
    method_descriptors=lambda: (list.append, list.pop),
    wrapper_descriptors=lambda: (list.__len__, tuple.__len__),
    method_wrappers=lambda: ([1].__len__, [1, 2].__len__),
    method_self=lambda: (Thing(a=1).meth, Thing(a=2).meth),
    method_function=lambda: (lambda t: (t.meth, types.MethodType(function(), t)))(Thing(a=1)),
    partial_arguments=lambda: (functools.partial(function(), 1), functools.partial(function(), 2)),
    partial_keywords=lambda: (functools.partial(function(), k=1), functools.partial(function(), k=2)),
    partial_functions=lambda: (functools.partial(int, "1"), functools.partial(float, "1")),
    static_methods=lambda: (staticmethod(len), staticmethod(abs)),
    class_methods=lambda: (classmethod(function(1)), classmethod(function(2))),
    properties=lambda: (property(lambda s: 1), property(lambda s: 2, doc="second")),
    cells=lambda: (types.CellType(1), types.CellType(2)),
    empty_cell=lambda: (types.CellType(1), types.CellType()),
    codes=lambda: ((lambda: 1).__code__, (lambda: 2).__code__),
    cached_functions=lambda: (functools.lru_cache(function(1)), functools.lru_cache(function(2))),
    single_dispatch=lambda: (functools.singledispatch(function(1)), functools.singledispatch(function(2))),
    attrgetters=lambda: (__import__("operator").attrgetter("a"), __import__("operator").attrgetter("b")),
    class_attribute=lambda: (thing_class(a=1), thing_class(a=2)),
    class_attribute_missing=lambda: (thing_class(a=1), thing_class()),
    class_names=lambda: (thing_class("K"), thing_class("J")),
    class_docs=lambda: (thing_class(__doc__="one"), thing_class(__doc__="two")),
    class_bases=lambda: (thing_class("K", (Thing,)), thing_class("K", (Other,))),
    class_builtin_bases=lambda: (thing_class("K", (list,)), thing_class("K", (tuple,))),
    class_metaclass=lambda: (thing_class("K"), thing_class("K", (), abc.ABCMeta)),
    metaclass_len=lambda: (
        thing_class("K", (), thing_class("M", (type,), __len__=lambda cls: 1)),
        thing_class("K", (), thing_class("M", (type,), __len__=lambda cls: 2)),
    ),
    class_slots=lambda: (thing_class(__slots__=("a",)), thing_class(__slots__=("b",))),
    class_property=lambda: (thing_class(a=property(lambda s: 1)), thing_class(a=property(lambda s: 2))),
    class_annotations=lambda: (thing_class(__annotations__={"a": int}), thing_class(__annotations__={"a": str})),
    abstract_classes=lambda: (
        thing_class("K", (), abc.ABCMeta),
        thing_class("K", (), abc.ABCMeta, a=abc.abstractmethod(lambda self: 1)),
    ),
    builtin_types=lambda: (int, str),
    exception_types=lambda: (KeyError, IndexError),
    type_objects=lambda: (type, object),
    none_types=lambda: (type(None), type(...)),
)

two(
    instance_attribute=lambda: (Thing(a=1), Thing(a=2)),
    instance_attribute_missing=lambda: (Thing(a=1), Thing()),
    instance_attribute_order=lambda: (Thing(a=1, b=2), Thing(b=2, a=1)),
    instance_list_attribute=lambda: (Thing(a=[1]), Thing(a=[2])),
    instance_extra=lambda: (Thing(a=1), Thing(a=1, b=2)),
    instance_classes=lambda: (Thing(a=1), Other(a=1)),
    instance_shadow=lambda: (Thing(a=1), Thing(a=1, meth=len)),
    instance_slots=lambda: (Slotted(a=1), Slotted(a=2)),
    instance_slot_missing=lambda: (Slotted(a=1), Slotted(b=1)),
    equal_instances=lambda: (Thing(a=1), Thing(a=1)),
    plain_objects=lambda: (object(), object()),
    getattr_hooks=lambda: instances(a={"__getattr__": lambda s, n: n}, b={"__getattr__": lambda s, n: n * 2}),
    getattr_hook_missing=lambda: instances(a={"__getattr__": lambda s, n: 1}, b={}),
    getattribute_hooks=lambda: instances(
        a={"__getattribute__": lambda s, n: object.__getattribute__(s, n)},
        b={"__getattribute__": lambda s, n: 7 if n == "a" else object.__getattribute__(s, n)},
    ),
    eq_hooks=lambda: instances(a={"__eq__": lambda s, o: True}, b={"__eq__": lambda s, o: False}),
    eq_hook_missing=lambda: instances(a={"__eq__": lambda s, o: True, "__hash__": lambda s: 3}, b={}),
    hash_hooks=lambda: instances(a={"__hash__": lambda s: 3}, b={"__hash__": lambda s: 4}),
    hash_none=lambda: instances(a={}, b={"__hash__": None}),
    len_hooks=lambda: instances(a={"__len__": lambda s: 0}, b={"__len__": lambda s: 2}),
    bool_hooks=lambda: instances(a={"__bool__": lambda s: True}, b={"__bool__": lambda s: False}),
    bool_hook_missing=lambda: instances(a={"__bool__": lambda s: False}, b={}),
    iter_hooks=lambda: instances(a={"__iter__": lambda s: iter([1, 2])}, b={"__iter__": lambda s: iter([2])}),
    getitem_hooks=lambda: instances(a={"__getitem__": lambda s, i: [1, 2][i]}, b={"__getitem__": lambda s, i: [2][i]}),
    contains_hooks=lambda: instances(a={"__contains__": lambda s, v: v == 1}, b={"__contains__": lambda s, v: 0}),
    call_hooks=lambda: instances(a={"__call__": lambda s, *p: 1}, b={"__call__": lambda s, *p: 2}),
    call_hook_missing=lambda: instances(a={"__call__": lambda s, *p: 1}, b={}),
    repr_hooks=lambda: instances(a={"__repr__": lambda s: "one"}, b={"__repr__": lambda s: "two"}),
    str_hooks=lambda: instances(a={"__str__": lambda s: "one"}, b={"__str__": lambda s: "two"}),
    format_hooks=lambda: instances(a={"__format__": lambda s, f: "1" + f}, b={"__format__": lambda s, f: "2" + f}),
    index_hooks=lambda: instances(a={"__index__": lambda s: 1}, b={"__index__": lambda s: 2}),
    float_hooks=lambda: instances(a={"__float__": lambda s: 1.0}, b={"__float__": lambda s: 2.0}),
    add_hooks=lambda: instances(a={"__add__": lambda s, o: 1}, b={"__add__": lambda s, o: NotImplemented}),
    radd_hooks=lambda: instances(a={"__radd__": lambda s, o: 1}, b={"__radd__": lambda s, o: 2}),
    enter_hooks=lambda: instances(
        a={"__enter__": lambda s: 1, "__exit__": lambda s, *e: None},
        b={"__enter__": lambda s: 2, "__exit__": lambda s, *e: None},
    ),
    get_hooks=lambda: instances(a={"__get__": lambda s, o, t=None: 1}, b={"__get__": lambda s, o, t=None: 2}),
    data_descriptor=lambda: instances(
        a={"__get__": lambda s, o, t=None: 1}, b={"__get__": lambda s, o, t=None: 1, "__set__": lambda s, o, v: None}
    ),
    copy_hooks=lambda: instances(a={"__copy__": lambda s: 1}, b={"__copy__": lambda s: 2}),
    dir_hooks=lambda: instances(a={"__dir__": lambda s: ["a"]}, b={"__dir__": lambda s: ["b"]}),
    class_hooks=lambda: instances(a={"__class__": property(lambda s: int)}, b={"__class__": property(lambda s: list)}),
    length_hints=lambda: instances(a={"__length_hint__": lambda s: 1}, b={"__length_hint__": lambda s: 2}),
    mro_entries=lambda: instances(a={"__mro_entries__": lambda s, b: (int,)}, b={"__mro_entries__": lambda s, b: ()}),
    nonstandard_dict=lambda: instances(a={"__dict__": property(lambda s: {"a": 1})}, b={"__dict__": {"a": 2}}),
)

two(
    generators=lambda: (at(1, count_up()), at(2, count_up())),
    fresh_generators=lambda: (count_up(2), count_up(3)),
    finished_generator=lambda: (at(1, count_up()), at(9, count_up())),
    generator_expressions=lambda: (at(1, (v for v in [1, 2, 3])), at(1, (v for v in [1, 2, 4]))),
    list_iterators=lambda: (iter([1, 2, 3]), at(1, iter([1, 2, 3]))),
    finished_list_iterator=lambda: (iter([1]), at(2, iter([1]))),
    tuple_iterators=lambda: (iter((1, 2)), at(1, iter((1, 2)))),
    text_iterators=lambda: (iter("ab"), at(1, iter("ab"))),
    range_iterators=lambda: (iter(range(3)), at(1, iter(range(3)))),
    dict_iterators=lambda: (iter({"a": 1, "b": 2}), at(1, iter({"a": 1, "b": 2}))),
    item_iterators=lambda: (iter({"a": 1}.items()), iter({"a": 2}.items())),
    set_iterators=lambda: (iter({1, 2}), at(1, iter({1, 2}))),
    reversed_=lambda: (reversed([1, 2]), reversed([1, 3])),
    enumerates=lambda: (enumerate("ab"), enumerate("ab", 1)),
    zips=lambda: (zip("ab", [1, 2]), zip("ab", [1])),
    strict_zips=lambda: (zip("ab", [1]), zip("ab", [1], strict=True)),
    maps=lambda: (map(str, [1]), map(float, [1])),
    filters=lambda: (filter(None, [0, 1]), filter(None, [2, 1])),
    counts=lambda: (itertools.islice(itertools.count(1), 3), itertools.islice(itertools.count(2), 3)),
    cycles=lambda: (itertools.islice(itertools.cycle([1]), 2), itertools.islice(itertools.cycle([2]), 2)),
    chains=lambda: (itertools.chain([1], [2]), at(1, itertools.chain([1], [2]))),
    repeats=lambda: (itertools.repeat(1, 2), itertools.repeat(1, 3)),
    products=lambda: (itertools.product([1, 2]), itertools.product([1, 3])),
    call_iterators=lambda: (iter([1, 2, 0].pop, 1), iter([1, 2, 0].pop, 2)),
    exceptions=lambda: (ValueError(1), ValueError(2)),
    exception_classes=lambda: (ValueError(1), TypeError(1)),
    exception_causes=lambda: (raised(ValueError(1), KeyError(1)), raised(ValueError(1), KeyError(2))),
    exception_tracebacks=lambda: (ValueError(1), raised(ValueError(1))),
    stop_iterations=lambda: (StopIteration(1), StopIteration(2)),
    os_errors=lambda: (OSError(2, "x"), OSError(3, "x")),
    exception_groups=lambda: (ExceptionGroup("m", [ValueError(1)]), ExceptionGroup("m", [ValueError(2)])),
    list_aliases=lambda: (list[int], list[str]),
    alias_origins=lambda: (list[int], tuple[int]),
    typing_aliases=lambda: (typing.List[int], typing.List[str]),  # noqa: UP006
    bare_aliases=lambda: (typing.List, typing.Dict),  # noqa: UP006
    optionals=lambda: (typing.Optional[int], typing.Optional[str]),  # noqa: UP045
    unions=lambda: (int | str, int | float),
    generic_classes=lambda: (generic_class(a=1)[int], generic_class(a=2)[int]),
    typevars=lambda: (typing.TypeVar("T"), typing.TypeVar("T", bound=int)),
    literals=lambda: (typing.Literal[1], typing.Literal[2]),
    callables=lambda: (typing.Callable[[int], str], typing.Callable[[str], str]),
    new_types=lambda: (typing.NewType("N", int), typing.NewType("N", str)),
    annotated=lambda: (typing.Annotated[int, [1]], typing.Annotated[int, [2]]),
    deques=lambda: (collections.deque([1, 2]), collections.deque([1, 3])),
    deque_lengths=lambda: (collections.deque([1, 2], 2), collections.deque([1, 2], 3)),
    counters=lambda: (collections.Counter("aab"), collections.Counter("abb")),
    ordered_dicts=lambda: (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
    default_factories=lambda: (collections.defaultdict(int, a=1), collections.defaultdict(list, a=1)),
    default_dicts=lambda: (collections.defaultdict(int, a=1), collections.defaultdict(int, a=2)),
    chain_maps=lambda: (collections.ChainMap({"a": 1}, {"b": 2}), collections.ChainMap({"a": 1}, {"b": 3})),
    user_dicts=lambda: (collections.UserDict(a=1), collections.UserDict(a=2)),
    user_lists=lambda: (collections.UserList([1]), collections.UserList([2])),
    arrays=lambda: (array.array("i", [1, 2]), array.array("i", [1, 3])),
    locks=lambda: (lambda lock: (threading.Lock(), (lock.acquire(), lock)[1]))(threading.Lock()),
    fractions_=lambda: (fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
    decimals=lambda: (decimal.Decimal("1.5"), decimal.Decimal("1.50")),
    dates=lambda: (datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)),
    deltas=lambda: (datetime.timedelta(1), datetime.timedelta(2)),
    paths=lambda: (pathlib.PurePosixPath("a/b"), pathlib.PurePosixPath("a/c")),
    patterns=lambda: (re.compile("a(b)"), re.compile("(a)b")),
    matches=lambda: (re.match("a", "ab"), re.match("ab", "ab")),
    text_files=lambda: (io.StringIO("ab"), io.StringIO("ac")),
    text_file_positions=lambda: (lambda f: (io.StringIO("ab"), (f.read(1), f)[1]))(io.StringIO("ab")),
    randoms=lambda: (random.Random(1), random.Random(2)),
    null_contexts=lambda: (contextlib.nullcontext(1), contextlib.nullcontext(2)),
    suppressors=lambda: (contextlib.suppress(KeyError), contextlib.suppress(ValueError)),
    modules=lambda: (types.ModuleType("m", "one"), types.ModuleType("m", "two")),
    real_modules=lambda: (fresh_module("bisect"), fresh_module("heapq")),
    supers=lambda: (super(Other, Other(a=1)), super(Other, Other(a=2))),
    super_types=lambda: (super(Other, Other(a=1)), super(Thing, Other(a=1))),
)


@pair
def weak_references():
    one, other = Thing(a=1), Thing(a=2)
    a, b = weakref.ref(one), weakref.ref(other)
    yield a
    yield b
    yield a


@pair
def weak_reference_that_dies():
    one = Thing(a=1)
    yield (ref := weakref.ref(one))
    del one
    yield ref
    yield ref


@pair
def proxies():
    one, other = Thing(a=1), Thing(a=2)
    a, b = weakref.proxy(one), weakref.proxy(other)
    yield a
    yield b
    yield a


@pair
def weak_dicts():
    kept = [Thing(a=1), Thing(a=2)]
    a, b = weakref.WeakValueDictionary(a=kept[0]), weakref.WeakValueDictionary(a=kept[1])
    yield a
    yield b
    yield a


@pair
def coroutines():
    async def work(n):
        return n

    a, b = work(1), work(2)
    yield a
    yield b
    yield a
    a.close()
    b.close()


@dataclasses.dataclass
class Point:
    a: int
    b: int = 0


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: int = 0


@dataclasses.dataclass(slots=True)
class Compact:
    a: int


def dataclass_with(default):
    @dataclasses.dataclass
    class Made:
        a: int = default
        b: list = dataclasses.field(default_factory=list)

    return Made


two(
    enum_members=lambda: tuple(enum.Enum("E", "A B")),
    int_enum_members=lambda: tuple(enum.IntEnum("E", "A B")),
    int_enum_int=lambda: (1, *enum.IntEnum("E", "A")),
    flags=lambda: (lambda cls: (cls.A, cls.A | cls.B))(enum.Flag("F", "A B")),
    enum_types=lambda: (enum.Enum("E", "A B"), enum.IntEnum("E", "A B")),
    enum_classes=lambda: (enum.Enum("E", "A B"), enum.Enum("E", "B A")),
    dataclass_fields=lambda: (Point(1), Point(2)),
    frozen_dataclasses=lambda: (Frozen(1), Frozen(2)),
    compact_dataclasses=lambda: (Compact(1), Compact(2)),
    dataclass_defaults=lambda: (dataclass_with(1), dataclass_with(2)),
    dataclass_instances=lambda: (dataclass_with(1)(), dataclass_with(2)()),
)


def changing(make, change, back):
    """Objects of one identity: made, changed, and changed back."""

    def objects():
        value = make()
        yield value
        change(value)
        yield value
        back(value)
        yield value

    return objects


def attribute(name, one, other, make=Thing):
    """One attribute of an object changes."""
    return changing(
        lambda: _with(make(), name, one), lambda v: setattr(v, name, other), lambda v: setattr(v, name, one)
    )


def _with(value, name, attribute):
    setattr(value, name, attribute)
    return value


def vanishing(name, value, make=Thing):
    """An attribute goes, and comes again."""
    return changing(
        lambda: _with(make(), name, value),
        lambda v: v.__dict__.pop(name) if not isinstance(v, type) else delattr(v, name),
        lambda v: setattr(v, name, value),
    )


def on_type(name, one, other):
    """An attribute of an instance's class changes; None: it is not there."""

    def put(cls, value):
        if value is not None:
            setattr(cls, name, value)
        elif name in cls.__dict__:
            delattr(cls, name)

    def make():
        cls = thing_class()
        put(cls, one)
        return cls()

    return changing(make, lambda v: put(type(v), other), lambda v: put(type(v), one))


class Base:
    a = 1


class Sibling:
    a = 2


def with_cell():
    cell = types.CellType(1)
    return types.FunctionType((lambda c: lambda x=0: c)(0).__code__, {"__name__": "m"}, "g", (0,), (cell,))


def _cached(fn):
    found = functools.cached_property(fn)
    found.__set_name__(None, "a")
    return found


@pair
def views_of_a_dict_that_changes():
    table = {"a": 1}
    view = table.items()
    yield view
    table["a"] = 2
    yield view
    table["b"] = 1
    yield view


@pair
def proxies_of_a_dict_that_changes():
    table = {"a": 1}
    proxy = types.MappingProxyType(table)
    yield proxy
    table["a"] = 2
    yield proxy
    table["b"] = 1
    yield proxy


@pair
def context_variables():
    variable = contextvars.ContextVar("v", default=1)
    yield variable
    variable.set(2)
    yield variable
    variable.set(1)
    yield variable


PAIRS |= {
    "list_changes": changing(lambda: [1, 2], lambda v: v.append(3), lambda v: v and v.pop()),
    "list_item_changes": changing(lambda: [1, 2], lambda v: v.__setitem__(slice(0, 1), [5]), lambda v: v.reverse()),
    "nested_list_changes": changing(lambda: [[1], 2], lambda v: v and v.__setitem__(0, [7]), lambda v: v.insert(0, 1)),
    "dict_changes": changing(lambda: {"a": 1}, lambda v: v.update(a=2), lambda v: v.update(a=1)),
    "dict_grows": changing(lambda: {"a": 1}, lambda v: v.update(b=2), lambda v: v.pop("b", 0)),
    "dict_reorders": changing(
        lambda: {"a": 1, "b": 2},
        lambda v: v.update(a=v.pop("a", 0)),
        lambda v: v.update(b=v.pop("b", 0)),
    ),
    "set_changes": changing(lambda: {1, 2}, lambda v: v.add(3), lambda v: v.discard(3)),
    "deque_changes": changing(lambda: collections.deque([1]), lambda v: v.append(2), lambda v: v and v.pop()),
    "ordered_dict_moves": changing(
        lambda: collections.OrderedDict(a=1, b=2),
        lambda v: "a" in v and v.move_to_end("a"),
        lambda v: "b" in v and v.move_to_end("b"),
    ),
    "default_factory_changes": attribute("default_factory", int, list, lambda: collections.defaultdict(int, a=1)),
    "bytearray_changes": changing(lambda: bytearray(b"a"), lambda v: v.append(98), lambda v: v and v.pop()),
    "attribute_changes": attribute("a", 1, 2),
    "attribute_list_changes": attribute("a", [1], [2]),
    "attribute_goes": vanishing("a", 1),
    "attribute_shadows": vanishing("meth", len),
    "dict_is_replaced": attribute("__dict__", {"a": 1}, {"a": 2, "b": 3}),
    "class_is_replaced": attribute("__class__", Thing, Other, lambda: Thing(a=1)),
    "slot_changes": attribute("a", 1, 2, Slotted),
    "class_attribute_changes": attribute("a", 1, 2, thing_class),
    "class_attribute_goes": vanishing("a", 1, thing_class),
    "class_name_changes": attribute("__name__", "A", "B", thing_class),
    "class_doc_changes": attribute("__doc__", "one", "two", thing_class),
    "class_bases_change": attribute(
        "__bases__", (Base,), (Sibling,), lambda: thing_class("K", (thing_class("Root", (), a=0),))
    ),
    "type_attribute_changes": on_type("a", 1, 2),
    "type_attribute_appears": on_type("a", None, 2),
    "type_property_appears": on_type("a", 1, property(lambda self: 2)),
    "type_method_changes": on_type("meth", lambda s, *a: 1, lambda s, *a: 2),
    "type_len_changes": on_type("__len__", lambda s: 1, lambda s: 0),
    "type_bool_appears": on_type("__bool__", None, lambda s: False),
    "type_eq_appears": on_type("__eq__", None, lambda s, o: "equal"),
    "type_hash_changes": on_type("__hash__", lambda s: 3, lambda s: 4),
    "type_getattr_appears": on_type("__getattr__", None, lambda s, n: n),
    "type_getattribute_appears": on_type("__getattribute__", None, lambda s, n: n),
    "type_iter_appears": on_type("__iter__", None, lambda s: iter([1])),
    "type_call_appears": on_type("__call__", None, lambda s, *a: a),
    "type_repr_changes": on_type("__repr__", lambda s: "one", lambda s: "two"),
    "type_enter_changes": on_type("__enter__", None, lambda s: 1),
    "type_set_appears": on_type("__setattr__", None, lambda s, n, v: None),
    "alias_origin_changes": changing(
        lambda: generic_class(a=1)[int],
        lambda v: setattr(v.__origin__, "a", 2),
        lambda v: setattr(v.__origin__, "a", 1),
    ),
    "type_index_appears": on_type("__index__", None, lambda s: 2),
    "type_float_appears": on_type("__float__", None, lambda s: 2.0),
    "type_getitem_appears": on_type("__getitem__", None, lambda s, i: [5][i]),
    "type_contains_appears": on_type("__contains__", None, lambda s, v: True),
    "type_lt_appears": on_type("__lt__", None, lambda s, o: True),
    "type_radd_appears": on_type("__radd__", None, lambda s, o: 7),
    "type_get_appears": on_type("__get__", None, lambda s, o, t=None: 7),
    "type_format_changes": on_type("__format__", None, lambda s, f: "format"),
    "type_dir_appears": on_type("__dir__", None, lambda s: ["b"]),
    "type_copy_appears": on_type("__copy__", None, lambda s: 3),
    "type_reduce_appears": on_type("__reduce_ex__", None, lambda s, v: "text"),
    "type_match_args_change": on_type("__match_args__", ("a",), ("b",)),
    "type_instancecheck_appears": changing(
        lambda: thing_class("K", (), thing_class("M", (type,))),
        lambda v: setattr(type(v), "__instancecheck__", lambda c, o: True),
        lambda v: delattr(type(v), "__instancecheck__"),
    ),
    "metaclass_call_appears": changing(
        lambda: thing_class("K", (), thing_class("M", (type,))),
        lambda v: setattr(type(v), "__call__", lambda c, *p: "called"),
        lambda v: delattr(type(v), "__call__"),
    ),
    "metaclass_attribute_appears": changing(
        lambda: thing_class("K", (), thing_class("M", (type,)), a=1),
        lambda v: setattr(type(v), "a", property(lambda c: 2)),
        lambda v: delattr(type(v), "a"),
    ),
    "metaclass_iter_appears": changing(
        lambda: thing_class("K", (), thing_class("M", (type,))),
        lambda v: setattr(type(v), "__iter__", lambda c: iter([1])),
        lambda v: delattr(type(v), "__iter__"),
    ),
    "class_new_appears": changing(
        lambda: thing_class("K"),
        lambda v: setattr(v, "__new__", lambda c, *p: "new"),
        lambda v: delattr(v, "__new__"),
    ),
    "class_init_changes": changing(
        lambda: thing_class("K", __init__=lambda s: None),
        lambda v: setattr(v, "__init__", lambda s, *p: setattr(s, "a", 1)),
        lambda v: setattr(v, "__init__", lambda s: None),
    ),
    "class_getitem_appears": changing(
        lambda: thing_class("K"),
        lambda v: setattr(v, "__class_getitem__", classmethod(lambda c, k: k)),
        lambda v: delattr(v, "__class_getitem__"),
    ),
    "class_init_subclass_appears": changing(
        lambda: thing_class("K"),
        lambda v: setattr(v, "__init_subclass__", classmethod(lambda c: setattr(c, "a", 3))),
        lambda v: delattr(v, "__init_subclass__"),
    ),
    "function_default_changes": attribute("__defaults__", (1,), (2,), function),
    "function_kwdefault_changes": attribute("__kwdefaults__", {"k": 1}, {"k": 2}, function),
    "function_code_changes": attribute(
        "__code__", (lambda x=0: 1).__code__, (lambda x=0: 2).__code__, lambda: lambda x=0: 0
    ),
    "function_name_changes": attribute("__name__", "g", "h", function),
    "function_doc_changes": attribute("__doc__", "one", "two", function),
    "function_attribute_changes": attribute("a", 1, 2, function),
    "function_attribute_goes": vanishing("a", 1, function),
    "function_annotations_change": attribute("__annotations__", {"x": int}, {"x": str}, function),
    "function_cell_changes": changing(
        with_cell,
        lambda v: setattr(v.__closure__[0], "cell_contents", 2),
        lambda v: setattr(v.__closure__[0], "cell_contents", 1),
    ),
    "function_global_changes": changing(
        lambda: with_globals(a=1), lambda v: v.__globals__.update(a=2), lambda v: v.__globals__.update(a=1)
    ),
    "function_global_goes": changing(
        lambda: with_globals(a=1), lambda v: v.__globals__.pop("a", 0), lambda v: v.__globals__.update(a=1)
    ),
    "function_builtin_shadowed": changing(
        lambda: types.FunctionType((lambda x=0: len("ab")).__code__, {"__name__": "m"}, "g", (0,)),
        lambda v: v.__globals__.update(len=abs),
        lambda v: v.__globals__.pop("len", 0),
    ),
    "module_attribute_changes": attribute("a", 1, 2, lambda: types.ModuleType("m")),
    "module_attribute_goes": vanishing("a", 1, lambda: types.ModuleType("m")),
    "module_getattr_appears": changing(
        lambda: types.ModuleType("m"),
        lambda v: setattr(v, "__getattr__", lambda n: n),
        lambda v: delattr(v, "__getattr__"),
    ),
    "namespace_changes": attribute("a", 1, 2, types.SimpleNamespace),
    "exception_args_change": attribute("args", (1,), (2,), ValueError),
    "exception_note_added": changing(
        lambda: ValueError(1), lambda v: v.add_note("n"), lambda v: v.__dict__.pop("__notes__", 0)
    ),
    "exception_cause_changes": attribute("__cause__", None, KeyError(1), ValueError),
    "partial_attribute_changes": attribute("a", 1, 2, lambda: functools.partial(len)),
    "cell_changes": attribute("cell_contents", 1, 2, types.CellType),
    "cell_is_emptied": changing(
        lambda: types.CellType(1),
        lambda v: delattr(v, "cell_contents"),
        lambda v: setattr(v, "cell_contents", 1),
    ),
    "generator_advances": changing(count_up, lambda v: next(v, None), lambda v: next(v, None)),
    "list_iterator_advances": changing(lambda: iter([1, 2, 3, 4]), lambda v: next(v, 0), lambda v: next(v, 0)),
    "dict_iterator_advances": changing(lambda: iter({"a": 1, "b": 2}), lambda v: next(v, 0), lambda v: None),
    "enumerate_advances": changing(lambda: enumerate("abcd"), lambda v: next(v, 0), lambda v: next(v, 0)),
    "lock_is_taken": changing(threading.Lock, lambda v: v.acquire(False), lambda v: v.locked() and v.release()),
    "file_advances": changing(
        lambda: io.StringIO("abcdef"),
        lambda v: v.closed or v.read(2),
        lambda v: v.closed or v.seek(0),
    ),
    "file_closes": changing(lambda: io.StringIO("ab"), lambda v: v.close(), lambda v: None),
    "enum_member_changes": attribute("a", 1, 2, lambda: next(iter(enum.Enum("E", "A B")))),
    "enum_class_changes": attribute("a", 1, 2, lambda: enum.Enum("E", "A B")),
    "static_method_changes": on_type("meth", staticmethod(lambda *a: 1), staticmethod(lambda *a: 2)),
    "slot_goes": changing(lambda: Slotted(a=1), lambda v: delattr(v, "a"), lambda v: setattr(v, "a", 1)),
    "user_dict_changes": changing(
        lambda: collections.UserDict(a=1), lambda v: v.data.update(a=2, b=1), lambda v: v.data.pop("b", 0)
    ),
    "simple_namespace_grows": changing(
        lambda: types.SimpleNamespace(a=1), lambda v: setattr(v, "b", 2), lambda v: v.__dict__.pop("b", 0)
    ),
    "memoryview_changes": changing(
        lambda: memoryview(bytearray(b"ab")), lambda v: v.__setitem__(0, 99), lambda v: v.release()
    ),
    "array_changes": changing(lambda: array.array("i", [1]), lambda v: v.append(2), lambda v: v and v.pop()),
    "counter_changes": changing(lambda: collections.Counter("aab"), lambda v: v.update("b"), lambda v: v.subtract("b")),
    "property_doc_changes": attribute("__doc__", "one", "two", lambda: property(lambda s: 1)),
    "method_function_changes": changing(
        lambda: Thing(a=1).meth,
        lambda v: setattr(v.__self__, "a", 2),
        lambda v: setattr(v.__self__, "a", 1),
    ),
    "dataclass_changes": attribute("a", 1, 2, lambda: Point(0)),
    "cached_property_filled": changing(
        lambda: thing_class(a=_cached(lambda self: [1]))(),
        lambda v: v.a,
        lambda v: v.__dict__.pop("a", 0),
    ),
    "cache_filled": changing(lambda: functools.lru_cache(function(1)), lambda v: v(1), lambda v: v.cache_clear()),
    "dispatch_registered": changing(
        lambda: functools.singledispatch(lambda v=0: "object"),
        lambda v: v.register(int, lambda v: "int"),
        lambda v: v.register(int, lambda v: "other"),
    ),
    "abc_registered": changing(
        lambda: thing_class("K", (), abc.ABCMeta), lambda v: v.register(bool), lambda v: v.register(int)
    ),
    "chain_map_changes": changing(
        lambda: collections.ChainMap({}, {"a": 1}),
        lambda v: v.maps[1].update(a=2),
        lambda v: v.maps[1].update(a=1),
    ),
}
