"""Abstract classes, and classes that are registered with them. Needs no torch."""

import abc
import collections.abc
import inspect
import numbers
import typing

import pytest

from tests.helpers.capturing import same, wrapped


class TestAbstractClasses:
    def test_abstract_methods(self):
        def program():
            class A(abc.ABC):
                @abc.abstractmethod
                def f(self): ...

                @property
                @abc.abstractmethod
                def g(self): ...

            class B(A):
                def f(self):
                    return 1

                g = 3

            return B().f(), isinstance(B(), A), sorted(A.__abstractmethods__), inspect.isabstract(A)

        same(program, breaks=["class-definition"])

    def test_an_instance_of_an_abstract_class(self):
        class A(abc.ABC):
            @abc.abstractmethod
            def f(self): ...

        def program():
            try:
                A()
            except TypeError as error:
                return str(error)

        same(program)

    def test_register_and_subclasshook(self):
        def program():
            class A(metaclass=abc.ABCMeta):
                @classmethod
                def __subclasshook__(cls, other):
                    return "foo" in other.__dict__ if cls is A else NotImplemented

            class B:
                foo = 42

            class C(abc.ABC):
                pass

            C.register(int)
            return issubclass(A, A), issubclass(B, A), isinstance(B(), A), isinstance(3, C), issubclass(str, C)

        same(program, breaks=["class-definition", "mutation-of-class", "operation-on-unknown-object"])

    def test_claimed_class(self):
        class Proxy:
            def __init__(self, obj):
                self.obj = obj

            def __getattribute__(self, name):
                return getattr(object.__getattribute__(self, "obj"), name)

        def program(p):
            return isinstance(p, int), isinstance(p, Proxy), isinstance(p, str)

        same(program, Proxy(3))


@pytest.mark.usefixtures("pure_python")
def test_classes_registered_later():
    Root = abc.ABCMeta("Root", (), {"__module__": "program"})
    K = type("K", (), {})
    fn = wrapped(lambda x: isinstance(x, Root))
    assert not fn(K())
    Root.register(K)
    assert fn(K())


@pytest.mark.usefixtures("pure_python")
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

    instance, cls = wrapped(by_instance), wrapped(by_class)
    assert (instance(Registered()), cls(Registered)) == (2, 2)
    registered_with.register(Registered)
    assert (instance(Registered()), cls(Registered)) == (1, 1)


@pytest.mark.usefixtures("pure_python")
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

    run, one = wrapped(f), Registered()
    assert run(one) == f(one) == "neither"
    collections.abc.Mapping.register(Registered)
    assert run(one) == f(one) == "mapping"
    collections.abc.Sequence.register(Registered)
    assert run(one) == f(one) == "sequence"


@pytest.mark.usefixtures("pure_python")
def test_a_protocol_with_which_a_class_is_registered_later():
    @typing.runtime_checkable
    class HasMethod(typing.Protocol):
        def method(self): ...

    class Registered:
        pass

    run = wrapped(lambda x: 1 if isinstance(x, HasMethod) else 2)
    assert run(Registered()) == 2
    HasMethod.register(Registered)
    assert run(Registered()) == 1
