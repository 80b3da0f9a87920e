"""What C code of several types does with attributes, classes and errors."""

import collections
import re
import sys

import pytest

from tests.helpers.capturing import captured, wrapped
from tests.helpers.differential import check, check_lines
from tests.helpers.program_texts import agrees


class OneList(list):
    pass


class OtherList(list):
    def __repr__(self):
        return "other"


def test_class_of_a_container_is_replaced():
    check_lines(
        """
        x = OneList([1]); x.a = 2; x.__class__ = OtherList; return type(x), repr(x), x.a, x[0]
        y.__class__ = OtherList; y.append(2); return repr(y)
        """,
        names={"OneList": OneList, "OtherList": OtherList},
        y=OneList([1]),
    )


def test_dictionaries_that_c_gives_stay():
    check_lines(
        """
        e = KeyError(); del e.__dict__
        f = functools.partial(int); del f.__dict__
        x = OneList(); x.a = 1; del x.__dict__; return x.__dict__
        """,
        names={"OneList": OneList},
    )


def test_what_fails_while_an_exception_is_made_is_thrown_in():
    check(
        """
        def waiting():
            try:
                yield
            except TypeError as error:
                return "got", str(error)

        class NoInstance(Exception):
            def __new__(cls):
                return cls

        generator = waiting()
        next(generator)
        try:
            generator.throw(NoInstance)
        except StopIteration as stop:
            return stop.value
        """,
        """
        class Failing(Exception):
            def __init__(self):
                raise KeyError(1)

        generator = (x for x in [1, 2])
        try:
            generator.throw(Failing)
        except KeyError as error:
            return error.args, list(generator)
        """,
        fullgraph=False,
    )


def test_sizes():
    check_lines(
        """
        sys.getsizeof(1), sys.getsizeof(1 << 90), sys.getsizeof(None), sys.getsizeof(1.5)
        """,
        names={"sys": sys},
    )


def test_arguments_of_comparison_keys():
    check_lines(
        """
        functools.cmp_to_key(f)()
        functools.cmp_to_key(f)(1, 2)
        functools.cmp_to_key(f)(object=1)
        functools.cmp_to_key(f)(obj=1) == functools.cmp_to_key(f)(1)
        """,
        names={"f": lambda a, b: a - b},
        fullgraph=False,
    )


@pytest.mark.parametrize("use", [lambda x: bytes([x]), lambda x: bytearray([x]), lambda x: "".join([x])])
@pytest.mark.parametrize("base", [list, dict, set])
def test_errors_of_c_code_name_the_programs_classes(use, base):
    class Own(base):
        pass

    def program(x):
        try:
            return use(x)
        except TypeError as error:
            return str(error)

    assert captured(program)(Own()) == program(Own())
    assert "Own" in program(Own())


def test_error_messages_name_classes_of_c_modules_as_their_tp_name():
    agrees("""
    def program(a):
        found = []
        for value in (functools.partial(max, a), collections.OrderedDict, collections.deque([a]), itertools.count(a), iter([a])):
            try:
                a + value
            except TypeError as error:
                found.append(str(error))
        return found
    def make_args(k):
        return [4]
    """)


def test_texts_of_type_errors():
    agrees("""
    class Made:
        def __init__(self, v):
            super().__init__(v)
    class Bare:
        pass
    def program(s, q):
        found = []
        for call in (
            lambda: heapq.heappop(s), lambda: heapq.heapify(None), lambda: heapq.heappush(s, 1), lambda: Made(1), lambda: Bare(1),
            lambda: object.__init__(Bare(), 1), lambda: q[None], lambda: operator.setitem(q, None, 1), lambda: operator.delitem(q, ''),
        ):
            try:
                call()
            except TypeError as error:
                found.append(str(error))
        return found
    def make_args(k):
        return [{1}, collections.deque([1])]
    """)


@pytest.mark.usefixtures("pure_python")
class TestMethodsOfTypes:
    def test_self_of_another_type(self):
        def program(which):
            return [
                lambda: list.append(5, 1),
                lambda: int.__add__("a", 1),
                lambda: bytearray.hex(b"a"),
                lambda: str.upper(b"a"),
                lambda: dict.get([], 1),
            ][which]()

        for which in range(5):
            with pytest.raises(TypeError) as plain:
                program(which)
            with pytest.raises(TypeError, match=re.escape(str(plain.value))):
                wrapped(program)(which)

    def test_conversion_of_a_buffer(self):
        import array

        def program(x):
            return int(x), float(x), bytes(x)

        assert wrapped(program)(array.array("b", b"12")) == (12, 12.0, b"12")

    def test_hash_of_a_nan_of_a_subclass(self):
        class F(float):
            pass

        def program(x):
            value = F("nan")
            return hash(value) == hash(value)

        assert wrapped(program)(1)


@pytest.mark.usefixtures("pure_python")
def test_a_view_that_is_released():
    view = memoryview(b"ab")
    fn = wrapped(lambda x: x.nbytes)
    assert fn(view) == 2
    view.release()
    with pytest.raises(ValueError, match="released"):
        fn(view)


@pytest.mark.usefixtures("pure_python")
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
    fn = wrapped(namespace["f"])
    assert fn() == fn() == namespace["f"]()
    for cls in (C, D, O):
        cls.__name__ = f"New{cls.__name__}"
    assert fn() == namespace["f"]()
