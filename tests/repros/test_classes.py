"""Classes made and changed by captured code: metaclasses, hooks, descriptors, enums, dataclasses. Needs no torch."""

import abc
import collections
import dataclasses
import datetime
import enum
import functools
import gc
import inspect
import sys
import threading
import types
import typing
from concurrent.futures import ThreadPoolExecutor

from dynamo_lite.config import config
from dynamo_lite.frontend import convert
from dynamo_lite.record import log
from tests.repros.test_conformance_finds import same, stop
from tests.variables.differential import captured

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

        same(program, whole=True)

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

        same(program, whole=True)

    def test_made_by_calls(self):
        def program():
            first = types.new_class("First", (object,), {}, lambda namespace: namespace.update(x=3))
            second = type("Second", (first,), {"y": 1})
            return first.x, second.y, second.x, second.__module__, second.__name__

        same(program, whole=True)

    def test_no_trace_of_the_analysis(self):
        def program():
            class Derived(Hooked, flag=1):
                y = 2

            return Derived().y, [c.__name__ for c in Hooked.__subclasses__()]

        Hooked.calls.clear()
        with config.patch(capture_pure_python=True, debug=True):
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            assert captured()[0] == 2
        assert Hooked.calls == [("Derived", ["flag"])]
        assert [c.__name__ for c in Hooked.__subclasses__()] in ([], ["Derived"])
        gc.collect()


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

        same(program, whole=True)

    def test_keywords_that_nobody_takes(self):
        def program():
            try:

                class A(flag=1):
                    pass
            except TypeError as error:
                return str(error)

        same(program, whole=True)

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
            a, attributes = convert.Region(lambda gm, inputs: gm.forward).wrap(program)()
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


class TestEnums:
    def test_members(self):
        def program():
            class Color(enum.Enum):
                RED = 1
                GREEN = 2
                ROUGE = 1

                def hello(self):
                    return self.name + "!"

            class Bits(enum.Flag):
                R = 4
                W = 2

            class Number(enum.IntEnum):
                A = 1
                B = 2

            class Auto(enum.Enum):
                X = enum.auto()
                Y = enum.auto()

            return (
                [(m.name, m.value) for m in Color],
                Color.RED.hello(),
                Color(2) is Color.GREEN,
                Color["ROUGE"] is Color.RED,
                len(Color),
                Color.RED in Color,
                (Bits.R | Bits.W).value,
                Number.A + 1,
                Number.B > Number.A,
                Auto.Y.value,
                list(Color.__members__),
            )

        same(program, whole=True)


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

            try:
                A()
            except TypeError as error:
                message = str(error)
            return message, B().f(), isinstance(B(), A), sorted(A.__abstractmethods__), inspect.isabstract(A)

        same(program, whole=True)

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

        same(program, whole=True)

    def test_claimed_class(self):
        class Proxy:
            def __init__(self, obj):
                self.obj = obj

            def __getattribute__(self, name):
                return getattr(object.__getattribute__(self, "obj"), name)

        def program(p):
            return isinstance(p, int), isinstance(p, Proxy), isinstance(p, str)

        same(program, Proxy(3))


class TestDataclasses:
    def test_plain_and_frozen(self):
        def program():
            @dataclasses.dataclass
            class P:
                x: int
                y: int = 3

            @dataclasses.dataclass(frozen=True, order=True, slots=True)
            class Q:
                x: int
                y: list = dataclasses.field(default_factory=list)

            q = Q(1)
            try:
                q.x = 3
            except dataclasses.FrozenInstanceError as error:
                message = str(error)
            return (
                P(1) == P(1, 3),
                dataclasses.asdict(P(2)),
                P.__doc__,
                q < Q(2),
                message,
                dataclasses.astuple(dataclasses.replace(q, x=4)),
                Q.__slots__,
            )

        same(program, whole=True)


def test_total_ordering():
    def program():
        @functools.total_ordering
        class A:
            def __init__(self, x):
                self.x = x

            def __lt__(self, other):
                return self.x < other.x

            def __eq__(self, other):
                return self.x == other.x

        return A(1) >= A(0), A(1) <= A(0), A.__ge__.__name__

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
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
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


def test_truth_of_a_comparison_that_breaks():
    class Refusing:
        def __bool__(self):
            raise ValueError("no truth")

    class Date(datetime.date):
        def __eq__(self, other):
            return Refusing()

        __hash__ = None

    def program(day, strange):
        seen = [1] if day == datetime.date(2000, 1, 1) else [2]
        try:
            if strange == day:
                seen.append(3)
        except ValueError as error:
            seen.append(str(error))
        return seen

    same(program, datetime.date(2000, 1, 1), Date(2000, 1, 1))


def test_stand_ins_are_gone_after_the_analysis():
    class Base:
        pass

    def program():
        class Derived(Base):
            pass

        return Derived

    with config.patch(capture_pure_python=True, debug=True):
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
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

        same(program, whole=True)

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

        same(program, whole=True)

    def test_methods_of_c_as_special_methods(self):
        def program():
            class X(dict):
                __setattr__ = dict.__setitem__
                __neg__ = dict.copy

            x = X()
            x.y = 42
            return x["y"], -x

        same(program, whole=True)

    def test_comparison_that_a_descriptor_hides(self):
        def program():
            def refuse(self):
                raise AttributeError("hidden")

            class E:
                __eq__ = property(refuse)

            e = E()
            return E() == E(), e == e

        same(program, whole=True)


def test_text_of_a_named_tuple_made_here():
    def program():
        pair = collections.namedtuple("Pair", "left right")
        p = pair(1, [2])
        template = "%r %s"
        return repr(p), f"{p!r} {p}", template % (p, pair(3, 4)), p._asdict(), p.left, pair.__doc__

    same(program, whole=True)


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


class PerThread(threading.local):
    kind = "own"

    def __init__(self):
        self.depth = 0


OWN, PLAIN = PerThread(), threading.local()


class TestThreadLocals:
    def in_threads(self, program):
        """What the program gives plainly and captured, each in this thread and in another; both begin with `PLAIN.x == 1`."""

        def outcome(fn):
            OWN.depth, PLAIN.x = 0, 1
            return fn(), vars(OWN).copy(), vars(PLAIN).copy()

        def outcomes():
            return [outcome(program), outcome(run), outcome(run)]

        run = captured(program)
        log.reset()
        with ThreadPoolExecutor(1) as other:
            plain, first, again = outcomes()
            assert first == again == plain
            assert other.submit(outcomes).result() == [plain] * 3

    def test_attributes_are_those_of_the_thread(self):
        def program():
            return OWN.depth, OWN.kind, PLAIN.x, getattr(PLAIN, "missing", None), hasattr(OWN, "x")

        self.in_threads(program)
        assert not log.breaks()

    def test_stores(self):
        def program():
            OWN.depth += 1
            PLAIN.x, PLAIN.y = OWN.depth, 5
            result = OWN.depth, PLAIN.y, vars(PLAIN) is PLAIN.__dict__
            del PLAIN.y
            return result

        self.in_threads(program)
        assert not log.breaks()

    def test_break_between_stores(self):
        def program():
            OWN.depth = 2
            stop()
            OWN.depth += 1
            return OWN.depth

        self.in_threads(program)
        assert log.breaks()


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

    same(program, whole=True)
    assert captured(program)() == (("Made", 1, ["k"]), True, "Plain")
