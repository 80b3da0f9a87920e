"""Found by `python -m tests.fuzz --observations`: what a function saw of A, it must not say of B that differs in one respect."""

import abc
import collections
import copy
import enum
import inspect
import itertools
import operator
import types
import typing
import weakref

import pytest

from dynamo_lite.config import config
from dynamo_lite.frontend import convert
from dynamo_lite.record import log


@pytest.fixture(autouse=True)
def pure_python():
    with config.patch(capture_pure_python=True, debug=True, suppress_errors=False):
        yield


def compiled(fn):
    return convert.Region(lambda gm, inputs: gm.forward).wrap(fn)


def frames_of(fn, *calls):
    """(what the calls return, number of frames captured)"""
    log.reset()
    results = [fn(*arguments) for arguments in calls]
    return results, sum(f.skipped is None for f in log.snapshot())


SLOTS = {
    "__bool__": (bool, lambda self: False, False),
    "__len__": (lambda x: "true" if x else "false", lambda self: 0, "false"),
    "__call__": (callable, lambda self: None, True),
    "__iter__": (lambda x: list(x) if hasattr(x, "__iter__") else "none", lambda self: iter([1]), [1]),
    "__radd__": (lambda x: 1 + x if hasattr(x, "__radd__") else "none", lambda self, other: "sum", "sum"),
}


@pytest.mark.parametrize("name", SLOTS)
def test_a_special_method_that_appears_and_goes(name):
    observe, method, expected = SLOTS[name]
    K = type("K", (), {})
    x, fn = K(), compiled(lambda x: observe(x))
    before = observe(x)
    assert fn(x) == before
    setattr(K, name, method)
    assert fn(x) == expected != before
    delattr(K, name)
    assert fn(x) == before


def test_operators_of_a_class_that_gets_them():
    K = type("K", (), {})
    fn = compiled(lambda x: 1 + x)
    for _ in range(2):
        with pytest.raises(TypeError):
            fn(K())
    K.__radd__ = lambda self, other: "sum"
    assert fn(K()) == "sum"


def test_a_lookup_that_appears():
    """The attribute is stored in the object's dictionary, wherever reading leads."""
    K = type("K", (), {})

    def store(x):
        x.a = 1

    fn = compiled(store)
    fn(K())
    K.__getattribute__ = lambda self, name: name
    x = K()
    fn(x)
    assert object.__getattribute__(x, "__dict__") == {"a": 1}


def test_which_of_equal_objects():
    """Two equal numbers, texts or aliases are two objects; a nan is equal to itself only by being the same."""
    one, other = int("9" * 30), int("9" * 30)
    assert frames_of(compiled(lambda x, y: x is y), (one, one), (one, other), (one, one)) == ([True, False, True], 2)
    assert frames_of(compiled(lambda x, y: id(x) == id(y)), (one, one), (one, other)) == ([True, False], 2)
    one, other = list[int], list[int]
    assert frames_of(compiled(lambda x, y: x is not y), (one, one), (one, other)) == ([False, True], 2)
    one, other = float("nan"), float("nan")
    assert frames_of(compiled(lambda x, y: x in [y]), (one, one), (one, other), (one, one))[0] == [True, False, True]
    fn = compiled(lambda x, y: hash(x) == hash(y))
    assert fn(one, one) and not fn(one, other) and fn(other, other)
    # Small numbers and short texts are one object each.
    assert frames_of(compiled(lambda x, y: x is y), (5, 5), (5, 5)) == ([True, True], 1)


def test_what_a_signature_rests_on():
    def g(x: int = 1, *, k=2):
        pass

    fn = compiled(lambda g: str(inspect.signature(g)))
    assert fn(g) == fn(g) == "(x: int = 1, *, k=2)"
    g.__defaults__ = (3,)
    assert fn(g) == "(x: int = 3, *, k=2)"
    g.__kwdefaults__ = {"k": 4}
    assert fn(g) == "(x: int = 3, *, k=4)"
    g.__annotations__ = {"k": str}
    assert fn(g) == "(x=3, *, k: str = 4)"
    g.__signature__ = inspect.Signature()
    assert fn(g) == "()"


def test_classes_registered_later():
    Root = abc.ABCMeta("Root", (), {"__module__": "program"})
    K = type("K", (), {})
    fn = compiled(lambda x: isinstance(x, Root))
    assert not fn(K())
    Root.register(K)
    assert fn(K())


def test_a_class_made_of_another_whose_bases_change():
    one, other = type("One", (), {"a": 1}), type("Other", (), {"a": 2})
    K = type("K", (type("Root", (), {}),), {})
    K.__bases__ = (one,)

    def make():
        class C(K):
            pass

        return C.__mro__[1:], C.a

    fn = compiled(make)
    assert fn() == ((K, one, object), 1)
    K.__bases__ = (other,)
    assert fn() == ((K, other, object), 2)


def test_a_hook_for_subclasses_that_appears():
    K = type("K", (), {})

    def make():
        class C(K):
            pass

        return hasattr(C, "a")

    fn = compiled(make)
    assert not fn()
    K.__init_subclass__ = classmethod(lambda cls: setattr(cls, "a", 1))
    assert fn()


def test_attributes_of_an_alias_are_those_of_its_origin():
    def observe(x):
        return hasattr(x, "append"), hasattr(x, "__len__"), x.__doc__, x.__name__, x.__origin__, x.__mro_entries__(())

    assert compiled(observe)(list[int]) == observe(list[int])
    with pytest.raises(TypeError, match="is not a generic class"):
        compiled(lambda x: x["a"])(list[int])

    class Box(list):
        pass

    alias = types.GenericAlias(Box, (int,))
    assert compiled(lambda: alias())().__orig_class__ is alias
    assert type(compiled(lambda: list[int]())()) is list


def test_calling_an_alias_of_typing():
    for alias in (typing.List, typing.List[int]):  # noqa: UP006
        with pytest.raises(TypeError, match="cannot be instantiated"):
            compiled(lambda x: x())(alias)

    class Box(typing.Generic[typing.TypeVar("T")]):
        pass

    made = compiled(lambda x: x())(Box[int])
    assert type(made) is Box and made.__orig_class__ == Box[int]
    with pytest.raises(TypeError):
        compiled(lambda x: x())(typing.Optional[int])  # noqa: UP045
    assert compiled(lambda x: x(3))(typing.NewType("N", int)) == 3


def test_attributes_of_an_alias_of_typing_are_those_of_its_origin():
    class Box(typing.Generic[typing.TypeVar("T")]):
        a = 1

    fn = compiled(lambda x: (x.a, hasattr(x, "b"), x.__origin__))
    assert fn(Box[int]) == (1, False, Box)
    Box.a = 2
    assert fn(Box[int]) == (2, False, Box)
    Box.b = 3
    assert fn(Box[int]) == (2, True, Box)
    # `typing` keeps what it has made.
    assert compiled(lambda x: Box[int] is x)(Box[int])


def test_an_alias_that_has_no_hash():
    alias = typing.Annotated[int, []]
    for fn in (hash, lambda x: {x: 1}, lambda x: {1: 2}.get(x)):
        with pytest.raises(TypeError, match="unhashable type: 'list'"):
            compiled(lambda x, fn=fn: fn(x))(alias)
    assert compiled(copy.deepcopy)(alias) == alias


def test_descriptors_want_their_class():
    with pytest.raises(TypeError, match="doesn't apply to a 'int' object"):
        compiled(lambda x: type.__dict__["__mro__"].__get__(x))(3)
    K = type("K", (), {"a": 1})
    assert compiled(lambda x: inspect.getattr_static(x, "a"))(K()) == 1


def test_the_state_of_an_object_is_its_dictionary():
    K = type("K", (), {})
    x = K()
    x.a = 1
    assert compiled(lambda x: x.__reduce_ex__(2)[2])(x) is x.__dict__


def test_a_class_that_hides_its_dictionary():
    K = type("K", (), {"__dict__": property(lambda self: {"a": 1})})
    fn = compiled(lambda x: (x.__dict__, hasattr(x, "a")))
    assert fn(K()) == ({"a": 1}, False)


def test_small_things():
    P = collections.namedtuple("P", "a b")
    assert compiled(lambda x: super(type(x), x).__repr__())(P(1, 2)) == "(1, 2)"
    assert type(compiled(operator.index)(True)) is int
    assert type(compiled(lambda x: operator.index(x))(True)) is int
    with pytest.raises(TypeError, match="format requires a mapping"):
        compiled(lambda x: "%(a)s" % x)(P)  # noqa: UP031
    assert compiled(lambda x: x["a"])(type) == types.GenericAlias(type, "a")
    with pytest.raises(AttributeError):
        compiled(lambda x: x.__func__)([].append)
    kept = P(1, 2), type("K", (), {})()
    proxy = weakref.proxy(kept[1])
    assert compiled(lambda x: isinstance(x, collections.abc.Hashable))(proxy)
    assert compiled(lambda x: x.__repr__())(itertools.repeat(1, 2)) == "repeat(1, 2)"
    S = type("S", (str,), {})
    assert type(compiled(lambda x: x.__iter__())(S("ab"))) is type(iter(S("ab")))

    def decorated(x):
        @x
        def g():
            pass

        return g

    assert compiled(decorated)(lambda g: [g])[0].__closure__ is None


def test_parts_that_formatting_asks_for():
    """Those of an enum member, or of an alias of a class, may change."""
    E = enum.Enum("E", "A")
    fn = compiled(lambda x: "{0.a} {0} {0!r:>8}".format(x))  # noqa: UP032
    for E.A.a in (1, 2):
        assert fn(E.A) == f"{E.A.a} E.A <E.A: 1>"


def test_names_that_modules_have_not():
    """`ModuleType.__call__` is that of `type`."""
    module = types.ModuleType("m")
    fn = compiled(lambda x: x.__call__)
    with pytest.raises(AttributeError, match="module 'm' has no attribute '__call__'"):
        fn(module)
    module.__getattr__ = lambda name: name
    assert fn(module) == "__call__"


def test_a_view_that_is_released():
    view = memoryview(b"ab")
    fn = compiled(lambda x: x.nbytes)
    assert fn(view) == 2
    view.release()
    with pytest.raises(ValueError, match="released"):
        fn(view)


@pytest.mark.parametrize(
    "text",
    [
        *("dict.__new__(C)", "int.__new__(C)", "tuple.__new__(C)", "frozenset.__new__(C)", "Exception.__new__(C)"),
        *(
            "object.__new__(D)",
            "BaseException.__new__(O)",
            "dict.__new__(OrderedDict)",
            "dict.__new__()",
            "dict.__new__(1)",
        ),
        *(
            "type('T', (C, C), {})",
            "float.__new__(C, 'x')",
            "Exception.__new__(C, 1)",
            "list.__new__(D)",
            "bool.__new__(C)",
        ),
    ],
)
def test_what_new_of_a_builtin_type_refuses(text):
    """The message names the class, which may get another name."""
    C, D, O = type("C", (), {}), type("D", (dict,), {}), type("O", (OSError,), {})
    namespace = {"C": C, "D": D, "O": O, "OrderedDict": collections.OrderedDict}
    exec(
        f"def f():\n    try:\n        return {text}\n    except TypeError as error:\n        return str(error)",
        namespace,
    )
    fn = compiled(namespace["f"])
    assert fn() == fn() == namespace["f"]()
    for cls in (C, D, O):
        cls.__name__ = f"New{cls.__name__}"
    assert fn() == namespace["f"]()
