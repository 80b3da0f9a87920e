"""Descriptors: properties, slots, class methods. Needs no torch."""

import inspect

import pytest

from tests.helpers.capturing import same, stop, wrapped


class TestDescriptors:
    def test_property_subclass_and_copies(self):
        def program():
            class Property(property):
                "of the class"

            class A:
                @Property
                def f(self):
                    "of the getter"
                    return 1

                @f.setter
                def f(self, value):
                    self.v = value

                plain = property(doc="given")

            a = A()
            a.f = 4
            messages = []
            for action in (lambda: a.plain, lambda: setattr(a, "plain", 1), lambda: delattr(a, "f")):
                try:
                    action()
                except AttributeError as error:
                    messages.append(str(error))
            raw = A.__dict__["f"]
            return a.v, a.f, raw.__doc__, type(raw).__name__, A.plain.__doc__, messages

        same(program, whole=True)

    def test_slots(self):
        def program():
            class A:
                __slots__ = ["x", "__dict__"]

            class B(A):
                __slots__ = ("y", "__weakref__")

            b = B()
            b.x, b.y, b.z = 1, 2, 3
            stop()
            del b.y
            b.y = 4
            del b.x
            return b.__dict__, B.y.__get__(b), hasattr(b, "x"), B.__slots__, A.__slots__

        same(program)

    def test_slot_set_and_deleted_leaves_it_unset(self):
        class A:
            __slots__ = ("x",)

        def program(a):
            a.x = 1
            del a.x
            return hasattr(a, "x")

        same(program, A())

    def test_classmethod_of_a_descriptor(self):
        def program():
            class Wrapped:
                def __get__(self, obj, cls=None):
                    return obj, cls

            class A:
                f = classmethod(Wrapped())

            return type(A.f).__name__, A.f[0] is A if type(A.f) is tuple else None

        same(program)


@pytest.mark.usefixtures("pure_python")
def test_descriptors_want_their_class():
    with pytest.raises(TypeError, match="doesn't apply to a 'int' object"):
        wrapped(lambda x: type.__dict__["__mro__"].__get__(x))(3)
    K = type("K", (), {"a": 1})
    assert wrapped(lambda x: inspect.getattr_static(x, "a"))(K()) == 1
