"""What C code of several types does with attributes, classes and errors."""

import sys

from differential import check, check_lines


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
    )


def test_sizes():
    check_lines(
        """
        sys.getsizeof(1), sys.getsizeof(1 << 90), sys.getsizeof(None), sys.getsizeof(1.5)
        sys.getsizeof(itertools.combinations(range(5), 3))
        it = itertools.product([1, 2], repeat=3); next(it); return sys.getsizeof(it)
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
        functools.cmp_to_key(g=f)
        """,
        names={"f": lambda a, b: a - b},
    )
