"""Classes made and changed by captured code: class statements, metaclasses, hooks, state, stores. Needs no torch."""

import gc
import sys
import types
import typing

from dynamo_lite.config import config
from tests.helpers.capturing import captured, same, stop, wrapped
from tests.helpers.program_texts import agrees

Item = typing.TypeVar("Item")


class Hooked:
    calls = []

    def __init_subclass__(cls, **keywords):
        Hooked.calls.append((cls.__name__, sorted(keywords)))


class TestMetaclasses:
    def test_prepare_new_init_call(self):
        def program():
            class Meta(type):
                @classmethod
                def __prepare__(mcls, name, bases, **keywords):
                    return {"prepared": sorted(keywords)}

                def __new__(mcls, name, bases, namespace, extra=0):
                    cls = super().__new__(mcls, name, bases, namespace)
                    cls.extra = extra
                    return cls

                def __init__(cls, name, bases, namespace, extra=0):
                    super().__init__(name, bases, namespace)

                def __call__(cls, *args):
                    made = super().__call__(*args)
                    made.called = True
                    return made

                def __len__(cls):
                    return 7

            class A(metaclass=Meta, extra=3):
                x = 1

                def f(self):
                    return self.x + self.extra

            class B(A, extra=4):
                def f(self):
                    return super().f() * 10

            b = B()
            names = list(A.__dict__)
            return A.extra, B.extra, len(A), b.f(), b.called, B.prepared, type(B).__name__, names, B.__mro__[1] is A

        same(program, breaks=["call-c-function", "class-definition"])

    def test_operators_and_attributes_of_classes(self):
        def program():
            class Meta(type):
                def __getattr__(cls, name):
                    return name

                def __setattr__(cls, name, value):
                    super().__setattr__(name, value + 1)

                def __eq__(cls, other):
                    return True

                def __hash__(cls):
                    return 3

                def __add__(cls, other):
                    return "add"

                def __iter__(cls):
                    return iter([1])

                def __getitem__(cls, key):
                    return key

            class A(metaclass=Meta):
                pass

            A.x = 1
            return A.missing, A.x, A + 1, list(A), A == 3, hash(A), A[5]

        same(program, breaks=["class-definition"])

    def test_made_by_calls(self):
        def program():
            first = types.new_class("First", (object,), {}, lambda namespace: namespace.update(x=3))
            second = type("Second", (first,), {"y": 1})
            return first.x, second.y, second.x, second.__module__, second.__name__

        same(program, breaks=["call-c-function", "class-definition"])

    def test_no_trace_of_the_analysis(self):
        def program():
            class Derived(Hooked, flag=1):
                y = 2

            return Derived().y, [c.__name__ for c in Hooked.__subclasses__()]

        Hooked.calls.clear()
        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(program)
            assert captured()[0] == 2
        assert Hooked.calls == [("Derived", ["flag"])]
        assert [c.__name__ for c in Hooked.__subclasses__()] in ([], ["Derived"])
        gc.collect()

    def test_truth_of_a_class_by_its_metaclass(self):
        class Meta(type):
            def __len__(cls):
                return 0

            def __bool__(cls):
                return True

        class C(metaclass=Meta):
            pass

        same(lambda: bool(C), whole=True)


class TestHooks:
    def test_set_name_and_init_subclass(self):
        def program():
            seen = []

            class Descriptor:
                def __set_name__(self, owner, name):
                    seen.append((owner.__name__, name))

                def __get__(self, obj, owner):
                    return 5

            class Base:
                def __init_subclass__(cls, tag=None, **keywords):
                    super().__init_subclass__(**keywords)
                    cls.tag = tag
                    seen.append(cls.__name__)

            class Derived(Base, tag="t"):
                d = Descriptor()
                e = Descriptor()

            return seen, Derived.tag, Derived().d

        same(program, breaks=["call-c-function", "class-definition"])

    def test_keywords_that_nobody_takes(self):
        def program():
            try:

                class A(flag=1):
                    pass
            except TypeError as error:
                return str(error)

        same(program)

    def test_error_in_set_name(self):
        def program():
            class Descriptor:
                def __set_name__(self, owner, name):
                    raise LookupError(name)

            try:

                class A:
                    d = Descriptor()
            except (LookupError, RuntimeError) as error:
                return type(error), type(error.__cause__)

        same(program)


class TestState:
    def test_class_assignment(self):
        class A:
            pass

        class B(A):
            pass

        def program(a):
            a.__class__ = B
            new = A()
            new.__class__ = B
            return type(a) is B, isinstance(a, B), type(new) is B

        same(program, A(), whole=True)

    def test_dict_assignment(self):
        def program(a):
            given = {"y": 2}
            a.__dict__ = given
            new = type(a)()
            old = new.__dict__
            new.__dict__ = {"z": 1}
            old["w"] = 1
            return a.y, a.__dict__ is given, vars(new), old

        class A:
            pass

        same(program, A(), whole=True)

    def test_dict_of_a_new_object_is_its_own(self):
        def program():
            class A:
                pass

            a = A()
            attributes = a.__dict__
            a.x = 1
            return a, attributes

        with config.patch(capture_pure_python=True, debug=True):
            a, attributes = wrapped(program)()
        assert a.__dict__ is attributes and attributes == {"x": 1}

    def test_tables_are_filled_when_their_keys_are_complete(self):
        def program():
            class K:
                def __init__(self, x):
                    self.x = x

                def __hash__(self):
                    return hash(self.x)

                def __eq__(self, other):
                    return self.x == other.x

            table, elements = {K(1): 1, K(2): 2}, {K(3)}
            stop()
            return [k.x for k in table], [k.x for k in elements], table[K(1)]

        same(program)

    def test_names_of_functions(self):
        def named(f):
            f.__name__ = f.__qualname__ = "other"
            f.__defaults__ = (3,)
            return f.__name__, f.__qualname__, f()

        def program():
            def made(x):
                return x

            return named(made)

        same(program, whole=True)

    def test_dir(self):
        class A:
            x = 1

        class B(A):
            def __dir__(self):
                return ["b", "a"]

        def program(a):
            a.y = 2
            return dir(a), dir(A), dir(B()), dir(3), dir([])

        same(program, A(), whole=True)

    def test_frames(self):
        def caller():
            return sys._getframe(1).f_globals["__name__"], sys._getframe().f_code.co_name

        def program():
            return caller()

        same(program, whole=True)


class Counted:
    count = 0
    gone = 1

    def method(self):
        return self.count


class Inheriting(Counted):
    pass


class TestStoresOnClasses:
    def test_attributes_of_a_class_from_outside(self):
        def program(o):
            before = (Inheriting.count, o.method())
            Counted.count += 1
            type(o).extra = [Counted.count]
            Inheriting.count = Counted.count + 10
            seen = (Inheriting.count, Counted.count, o.method(), o.extra, hasattr(Counted, "extra"))
            del Inheriting.count
            stop()
            del Inheriting.extra
            return before, seen, Inheriting.count, o.method(), hasattr(o, "extra")

        def reset(*args):
            Counted.count = 0
            return program(*args)

        same(reset, Inheriting())

    def test_replayed_at_the_end(self):
        def program(n):
            Counted.count = n
            return Counted.count + Inheriting().method()

        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(program)
            assert captured(3) == 6 and Counted.count == 3
            assert captured(4) == 8 and Inheriting.count == 4
        Counted.count = 0

    def test_immutable_types_refuse(self):
        def program():
            messages = []
            for cls in (int, list, types.FunctionType):
                try:
                    cls.x = 1
                except TypeError as error:
                    messages.append(str(error))
            return messages

        same(program, whole=True)


def test_stand_ins_are_gone_after_the_analysis():
    class Base:
        pass

    def program():
        class Derived(Base):
            pass

        return Derived

    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(program)
        made = captured()
    assert Base.__subclasses__() == [made]


def type_errors(*actions):
    """The messages of the TypeErrors that the actions raise."""
    messages = []
    for action in actions:
        try:
            action()
        except TypeError as error:
            messages.append(str(error))
    return messages


class TestChecks:
    def test_stores_past_the_metaclass(self):
        def program():
            return type_errors(lambda: object.__setattr__(str, "x", 1), lambda: object.__delattr__(str, "lower"))

        same(program, whole=True)

    def test_slots_of_other_classes(self):
        def program():
            class A:
                __slots__ = "a"

            class B:
                pass

            return type_errors(lambda: A.a.__set__(B(), 3), lambda: A.a.__get__(B()))

        same(program, breaks=["class-definition"])

    def test_class_methods_of_builtin_types(self):
        def program():
            bound = dict.__dict__["fromkeys"]
            messages = []
            for args in ((None, None), (42,), (None, 42), (None, int)):
                try:
                    bound.__get__(*args)
                except TypeError as error:
                    messages.append(str(error))
            return messages, bound.__get__(None, dict)([1])

        same(program)

    def test_methods_of_c_as_special_methods(self):
        def program():
            class X(dict):
                __setattr__ = dict.__setitem__
                __neg__ = dict.copy

            x = X()
            x.y = 42
            return x["y"], -x

        same(program, breaks=["class-definition"])

    def test_comparison_that_a_descriptor_hides(self):
        def program():
            def refuse(self):
                raise AttributeError("hidden")

            class E:
                __eq__ = property(refuse)

            e = E()
            return E() == E(), e == e

        same(program, breaks=["class-definition"])


class TypedKeys(typing.TypedDict, typing.Generic[Item], total=False):
    key: Item


class Doubles(typing.Protocol):
    def double(self, number): ...


class Doubler(Doubles):
    def __init__(self, factor):
        self.factor = factor

    def double(self, number):
        return self.factor * number


def test_classes_whose_metaclass_typing_defines_are_called_like_any_class():
    def program():
        try:
            made = TypedKeys(key=1, other=2)
        except TypeError:
            return "not called"
        return made, type(made) is dict, TypedKeys.__total__

    def of_a_protocol():
        try:
            return Doubler(2).double(3)
        except TypeError:
            return "not called"

    same(program, whole=True)
    same(of_a_protocol, whole=True)


def test_type_calls_the_init_of_the_metaclass_of_the_bases():
    """`type(name, bases, namespace)` makes a class of that metaclass, and calls its `__init__`."""

    class Meta(type):
        def __init__(cls, name, bases, namespace):
            super().__init__(name, bases, namespace)
            cls.made = (name, len(bases), sorted(namespace))

    class Base(metaclass=Meta):
        pass

    def program():
        made = type("Made", (Base,), {"k": 1})
        return made.made, type(made) is Meta, type("Plain", (), {}).__name__

    same(program, breaks=["call-c-function", "class-definition"])
    assert captured(program)() == (("Made", 1, ["k"]), True, "Plain")


class TestClassStatements:
    def test_methods_descriptors_and_inheritance(self):
        def program(n):
            class A:
                k = 5

                def __init__(self, v):
                    self.v = v

                def get(self):
                    return self.v + self.k

                @property
                def p(self):
                    return self.v

                @p.setter
                def p(self, v):
                    self.v = v

                @staticmethod
                def s(a):
                    return a * 2

                @classmethod
                def c(cls, a):
                    return cls(a).get()

            class B(A):
                def get(self):
                    return super().get() * 2

            b = B(n)
            b.p = 7
            A.late = 9
            return (
                A(1).get(),
                B(n).get(),
                b.v,
                B.s(3),
                A.c(4),
                B.c(4),
                B.__qualname__,
                B.late,
                type(b) is B,
                isinstance(b, A),
            )

        same(program, 3, breaks=["class-definition"])

    def test_slots_and_hashes(self):
        def program(n):
            class S:
                __slots__ = ("a", "__b")

                def __init__(self, a):
                    self.a, self.__b = a, 2

                def __eq__(self, other):
                    return self.a == other.a

                def __hash__(self):
                    return 3

                def __repr__(self):
                    return f"S({self.a}, {self.__b})"

            return repr([S(n), {S(n): 1, S(n): 2}])

        same(program, 3, breaks=["class-definition"])

    def test_each_call_makes_a_class_of_its_own(self):
        def program():
            class C:
                items = [1]

                def me(self):
                    return __class__, self.items

            return C, C()

        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(program)
            (first, one), (second, two) = captured(), captured()
        assert first is not second
        assert type(one) is first and type(two) is second
        assert one.me() == (first, [1])
        assert first.__module__ == __name__ and first.__qualname__ == program.__qualname__ + ".<locals>.C"

    def test_class_that_lives_across_a_break(self):
        def program(n):
            class C(dict):
                def total(self):
                    return sum(self.values())

            c = C(a=n)
            stop()
            c["b"] = 2
            return c.total(), type(c) is C

        same(program, 3)

    def test_a_new_written_in_c_is_not_called(self):
        def program():
            class A:
                __new__ = list.__new__

            class B(list):
                __new__ = object.__new__

            class C(PythonNew):
                __new__ = object.__new__

                def __init__(self, value):
                    pass

            try:
                C(3)
            except TypeError as error:
                return type(A()).__name__, B([1]), str(error)

        class PythonNew:
            def __new__(cls, value):
                raise AssertionError

        same(program, breaks=["class-definition", "arguments-mismatch"])

    def test_super_of_an_unrelated_object(self):
        class A:
            def method(self):
                super()

        def program():
            cell = (lambda: program).__closure__[0]
            found = []
            for call in (lambda: A.method(cell), lambda: A.method(3), lambda: super(A, 3)):
                try:
                    call()
                except TypeError as error:
                    found.append(str(error))
            return found

        same(program, whole=True)

    def test_errors_of_the_class_statement(self):
        def program():
            try:

                class C(int, str):
                    pass

            except TypeError as error:
                return str(error)

        same(program, breaks=["class-definition"])


def test_a_metaclass_that_gets_a_lookup_of_its_own():
    """`slot_tp_new` asks it for `__new__`; to `object.__getattribute__` a class is an object with its namespace as `__dict__`."""
    agrees("""
    class Meta(type):
        pass
    class C(metaclass=Meta):
        pass
    class D(metaclass=Meta):
        def __new__(cls, *args):
            return stop(1, len(args))
    def program(k):
        if k == 0:
            class E(C):
                pass
        else:
            D(k)
        o66
    def make_args(k):
        return [k]
    def change(n):
        Meta.__getattribute__ = lambda self, name: object.__getattribute__(self, name)
    """)


def test_classes_are_read_past_a_metaclass_that_answers_for_all_names():
    agrees("""
    class Meta(type):
        pass
    class C(metaclass=Meta):
        def __init__(self, v):
            self.v = v
    OBJECT = C(2)
    def program(k):
        try:
            OBJECT[0] = 1
        except TypeError as error:
            stop(1, error)
        return OBJECT
    def make_args(k):
        return [k]
    def change(n):
        Meta.__getattribute__ = lambda self, name: stop(2, name)
    """)
