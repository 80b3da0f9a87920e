"""Classes that get, lose or change special methods, bases and hooks between two calls. Needs no torch."""

import pytest

from tests.helpers.capturing import wrapped

pytestmark = pytest.mark.usefixtures("pure_python")


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
    x, fn = K(), wrapped(lambda x: observe(x))
    before = observe(x)
    assert fn(x) == before
    setattr(K, name, method)
    assert fn(x) == expected != before
    delattr(K, name)
    assert fn(x) == before


def test_operators_of_a_class_that_gets_them():
    K = type("K", (), {})
    fn = wrapped(lambda x: 1 + x)
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

    fn = wrapped(store)
    fn(K())
    K.__getattribute__ = lambda self, name: name
    x = K()
    fn(x)
    assert object.__getattribute__(x, "__dict__") == {"a": 1}


def test_a_class_made_of_another_whose_bases_change():
    one, other = type("One", (), {"a": 1}), type("Other", (), {"a": 2})
    K = type("K", (type("Root", (), {}),), {})
    K.__bases__ = (one,)

    def make():
        class C(K):
            pass

        return C.__mro__[1:], C.a

    fn = wrapped(make)
    assert fn() == ((K, one, object), 1)
    K.__bases__ = (other,)
    assert fn() == ((K, other, object), 2)


def test_a_hook_for_subclasses_that_appears():
    K = type("K", (), {})

    def make():
        class C(K):
            pass

        return hasattr(C, "a")

    fn = wrapped(make)
    assert not fn()
    K.__init_subclass__ = classmethod(lambda cls: setattr(cls, "a", 1))
    assert fn()
