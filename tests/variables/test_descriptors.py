"""Descriptors: properties, slots, class methods. Needs no torch."""

import gc
import inspect
import weakref

import pytest

from tests.helpers.capturing import captured, same, stop, wrapped


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
            raw = A.__dict__["f"]
            return a.v, a.f, raw.__doc__, type(raw).__name__, A.plain.__doc__

        same(program, breaks=["class-definition"])

    def test_new_properties(self):
        class Lazy(property):
            def __init__(self, function):
                property.__init__(self, function)
                self.function = function

        class A:
            v = 3

        def getter(a):
            "of the getter"
            return a.v

        def inside(f):
            plain, lazy = property(f, doc="given"), Lazy(f)
            return (
                plain.__get__(A()),
                lazy.__get__(A()),
                lazy.function is f,
                plain.__doc__,
                lazy.__dict__,
                Lazy(A).__dict__,
            )

        same(inside, getter, whole=True)

        plain, lazy = captured(lambda f: (property(f), Lazy(f)))(getter)
        expected = Lazy(getter)
        assert (plain.fget, plain.fset, plain.__doc__) == (getter, None, "of the getter")
        assert (type(lazy), lazy.fget, lazy.__dict__) == (Lazy, getter, expected.__dict__)
        assert plain.getter(A).__doc__ is A.__doc__, "the docstring is the getter's still"

    @pytest.mark.parametrize(
        "action", [lambda a: a.plain, lambda a: setattr(a, "plain", 1), lambda a: delattr(a, "plain")]
    )
    def test_property_without_functions(self, action):
        class A:
            plain = property(doc="given")

        def program():
            try:
                action(A())
            except AttributeError as error:
                return str(error)

        same(program)

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


@pytest.mark.parametrize("descriptor", [property, staticmethod, classmethod])
def test_a_version_does_not_keep_a_descriptor_alive(descriptor):
    """Nor the class of which its function knows."""

    def make():
        class A:
            @descriptor
            def f(*args):
                return __class__.__name__

        return A

    read = captured(lambda a: a.f if descriptor is property else a.f())
    cls = make()
    assert read(cls()) == "A"
    cls = weakref.ref(cls)
    gc.collect()
    assert cls() is None


@pytest.mark.usefixtures("pure_python")
def test_descriptors_want_their_class():
    with pytest.raises(TypeError, match="doesn't apply to a 'int' object"):
        wrapped(lambda x: type.__dict__["__mro__"].__get__(x))(3)
    K = type("K", (), {"a": 1})
    assert wrapped(lambda x: inspect.getattr_static(x, "a"))(K()) == 1
