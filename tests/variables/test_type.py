"""Classes whose bases or names the program assigns between two calls of compiled code."""

import collections
import enum
import functools
import gc
import types
import weakref

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import CompileCounter

X = torch.ones(2)


class Base:
    def text(self):
        return "base"

    def __add__(self, other):
        return "base add"

    def __lt__(self, other):
        return "base lt"


class Other:
    def text(self):
        return "other"


class Thing(Base):
    def text(self):
        return "thing " + super().text()

    def __radd__(self, other):
        return "thing radd"

    def __gt__(self, other):
        return "thing gt"


class Middle(Base):
    pass


class Below(Middle):
    pass


class Error(Exception):
    pass


class OtherError(Exception):
    pass


class SomeError(Error):
    pass


def same(a, b):
    return torch.equal(a[0], b[0]) and a[1:] == b[1:]


def check(f, args, cls, attribute, value):
    """The call before, during and after a change of a class; the number of graphs."""
    counter = CompileCounter()
    compiled = dynamo_lite.compile(f, backend=counter, fullgraph=True)
    before = f(*args)
    assert same(before, compiled(*args)) and same(before, compiled(*args))
    assert counter.frame_count == 1
    old = getattr(cls, attribute)
    setattr(cls, attribute, value)
    try:
        during = f(*args)
        assert not same(before, during)
        assert same(during, compiled(*args)) and same(during, compiled(*args))
    finally:
        setattr(cls, attribute, old)
    assert same(before, compiled(*args))
    assert counter.frame_count == 2


def matches(x, o):
    match o:
        case Base():
            return x + 1, True
        case _:
            return x - 1, False


def catches(x, o):
    try:
        raise o
    except Error:
        return x + 1, 1
    except Exception:
        return x - 1, 2


def catches_some(x, o):
    try:
        raise o
    except (KeyError, Error):
        return x + 1, 1
    except Exception:
        return x - 1, 2


def catches_group(x, o):
    found = []
    try:
        try:
            raise o
        except* Error:
            found.append(1)
    except BaseException:
        found.append(2)
    return x + 1, found


RELATIONS = {
    "isinstance": (lambda x, o: (x + 1, isinstance(o, Base)), Thing),
    "isinstance of some": (lambda x, o: (x + 1, isinstance(o, (int, Base))), Thing),
    "isinstance of a union": (lambda x, o: (x + 1, isinstance(o, int | Base)), Thing),
    "issubclass": (lambda x, o: (x + 1, issubclass(type(o), Base)), Thing),
    "type.__instancecheck__": (lambda x, o: (x + 1, type.__instancecheck__(Base, o)), Thing),
    "match": (matches, Thing),
    "super": (lambda x, o: (x + 1, o.text()), Thing),
    "reflected operator": (lambda x, o: (x + 1, Base() + o), Thing),
    "reflected comparison": (lambda x, o: (x + 1, Base() < o), Thing),
    "mro()": (lambda x, o: (x + 1, type(o).mro()), Thing),
    "__mro__": (lambda x, o: (x + 1, Base in type(o).__mro__), Thing),
    "except": (catches, SomeError),
    "except of some": (catches_some, SomeError),
}


@pytest.mark.parametrize("name", RELATIONS)
def test_other_bases(name):
    f, cls = RELATIONS[name]
    check(f, (X, cls()), cls, "__bases__", (Other,) if cls is Thing else (OtherError,))


def test_other_bases_where_a_group_is_split():
    """`except*` breaks the graph, so it is Python that asks for the bases."""
    compiled = dynamo_lite.compile(catches_group, backend="eager")
    bases = SomeError.__bases__
    try:
        for now in (bases, (OtherError,), bases):
            SomeError.__bases__ = now
            result, found = compiled(X, SomeError())
            assert torch.equal(result, X + 1) and found == catches_group(X, SomeError())[1]
    finally:
        SomeError.__bases__ = bases


@pytest.mark.parametrize("ask", [lambda o: isinstance(o, Base), lambda o: issubclass(type(o), Base)])
def test_a_base_gets_other_bases(ask):
    check(lambda x, o: (x + 1, ask(o)), (X, Below()), Middle, "__bases__", (Other,))


def test_it_becomes_a_subclass():
    class Alone(Other):
        pass

    check(lambda x, o: (x + 1, isinstance(o, Base)), (X, Alone()), Alone, "__bases__", (Other, Base))


def test_other_changes_of_the_class_are_none():
    class Plain(Base):
        pass

    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda x, o: (x + 1, isinstance(o, Base)), backend=counter)
    compiled(X, Plain())
    Plain.new_attribute = 3
    assert compiled(X, Plain())[1] and counter.frame_count == 1


def message_of(operation):
    def f(x, o):
        try:
            operation(o)
        except Exception as error:
            return x + 1, str(error)

    return f


class Named:
    __slots__ = ("slot",)


MESSAGES = {
    "attribute": lambda o: o.missing,
    "read-only attribute": lambda o: setattr(o, "missing", 1),
    "slot": lambda o: o.slot,
    "attribute of the class": lambda o: type(o).missing,
    "operator": lambda o: o + 1,
    "operand on the right": lambda o: 1 - o,
    "comparison": lambda o: o < 1,
    "sign": lambda o: -o,
    "len": lambda o: len(o),
    "call": lambda o: o(),
    "iteration": lambda o: list(o),
    "unpacking": lambda o: (lambda a, b: 0)(*o),
    "item": lambda o: o[0],
    "index": lambda o: [1, 2][o],
    "in": lambda o: 1 in o,
    "int": lambda o: int(o),
    "float": lambda o: float(o),
    "with": lambda o: o.__enter__,
    "format": lambda o: format(o, ">3"),
    "subscript of the class": lambda o: type(o)[3],
    "concatenation": lambda o: "a" + o,
    "join": lambda o: "".join(["a", o]),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_name_in_a_message(name):
    f = message_of(MESSAGES[name])
    attribute = "__qualname__" if f"{Named.__module__}.Named" in f(X, Named())[1] else "__name__"
    check(f, (X, Named()), Named, attribute, "Renamed")


def test_the_name_in_the_arguments_of_an_exception():
    def f(x, o):
        try:
            o.missing
        except AttributeError as error:
            return x + 1, error.args

    check(f, (X, Named()), Named, "__name__", "Renamed")


def test_the_name_in_a_message_that_passes_frames():
    def inner(o):
        try:
            return len(o)
        finally:
            o = None

    def f(x, o):
        try:
            inner(o)
        except TypeError as error:
            return x + 1, repr(error)

    check(f, (X, Named()), Named, "__name__", "Renamed")


class List(list):
    pass


class Deque(collections.deque):
    pass


class Set(set):
    pass


class Ordered(collections.OrderedDict):
    pass


class Default(collections.defaultdict):
    pass


class Namespace(types.SimpleNamespace):
    pass


class Partial(functools.partial):
    pass


class Colour(enum.Enum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")

REPRS = {
    "set": Set([1]),
    "empty set": Set(),
    "deque": Deque([1]),
    "OrderedDict": Ordered(a=1),
    "defaultdict": Default(None, a=1),
    "SimpleNamespace": Namespace(a=1),
    "exception": SomeError("a"),
    "enum": Colour.RED,
    "named tuple": Pair(1, 2),
}


@pytest.mark.parametrize("name", REPRS)
def test_the_name_in_a_repr(name):
    o = REPRS[name]
    check(lambda x, o: (x + 1, repr(o)), (X, o), type(o), "__name__", "Renamed")


@pytest.mark.parametrize("attribute", ["__qualname__", "__module__"])
@pytest.mark.parametrize("text", [repr, str, lambda cls: f"{cls}", lambda cls: f"{[cls]}"])
def test_the_repr_of_a_class(text, attribute):
    class Local:
        pass

    check(lambda x, cls: (x + 1, text(cls)), (X, Local), Local, attribute, "Renamed")


class Meta(type):
    """Says other names than its classes have."""

    @property
    def __name__(cls):
        return "nothing"

    @property
    def __module__(cls):
        return "nowhere"


class Computed(metaclass=Meta):
    __slots__ = ()


@pytest.mark.parametrize("operation", [lambda o: o.missing, lambda o: len(o), lambda o: o < 1])
def test_a_metaclass_that_computes_names(operation):
    """A message has the name that the class has in C."""
    f = message_of(operation)
    counter = CompileCounter()
    compiled = dynamo_lite.compile(f, backend=counter, fullgraph=True)
    assert f(X, Computed())[1] == compiled(X, Computed())[1]
    type.__dict__["__name__"].__set__(Computed, "Renamed")
    try:
        assert "Renamed" in f(X, Computed())[1] and f(X, Computed())[1] == compiled(X, Computed())[1]
    finally:
        type.__dict__["__name__"].__set__(Computed, "Computed")
    assert counter.frame_count == 2


def test_nobody_sees_the_message():
    """What `hasattr` catches names no class."""
    counter = CompileCounter()
    compiled = dynamo_lite.compile(
        lambda x, o: (x + 1, hasattr(o, "missing"), getattr(o, "missing", 3)), backend=counter, fullgraph=True
    )

    class Local:
        pass

    assert compiled(X, Local())[1:] == (False, 3)
    Local.__name__ = "Renamed"
    compiled(X, Local())
    assert counter.frame_count == 1


def test_classes_die():
    """Guards on bases and names keep no class alive."""

    def f(x, o):
        try:
            o.missing
        except AttributeError as error:
            return x + 1, isinstance(o, list), str(error)

    def make():
        class A:
            pass

        class B(A):
            pass

        return A, B

    classes = make()
    compiled = dynamo_lite.compile(f, backend=CompileCounter())
    for _ in range(2):
        compiled(X, classes[1]())
    gone = [weakref.ref(cls) for cls in classes]
    del classes
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    (a, b) = make()
    b.__bases__ = (List,) if issubclass(List, a) else (a,)
    assert compiled(X, b())[1:] == (False, "'B' object has no attribute 'missing'")
