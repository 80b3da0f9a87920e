"""Binding of arguments: what fits, and what this CPython says about what doesn't."""

from differential import check_lines


def f(a, b=2, /, c=3, *, dd, e=5):
    return a, b, c, dd, e


def g(abc, *, key):
    return abc


def h(*a, k=1, **kw):
    return a, k, kw


def named(**kw):
    return kw


def nothing():
    return None


NAMES = {fn.__name__: fn for fn in (f, g, h, named, nothing)}


def test_messages():
    check_lines(
        """
        f(1, dd=2), f(1, 2, 4, dd=2, e=1), h(1, 2, z=3), h(k=5), named(a=1), nothing()
        f(1)
        f()
        f(1, 2, 3, 4, dd=1)
        f(1, 2, 3, 4)
        f(1, a=2, dd=3)
        f(1, 2, 3, c=4, dd=1)
        f(1, zz=2, dd=3)
        g()
        g(1, kye=3)
        g(1, kex=3, key=4)
        g(1, 2)
        g(1, 2, key=4)
        named(1)
        nothing(1)
        nothing(x=1)
        g(*5)
        len(*5)
        g(**5)
        g(1, **{1: 2})
        g(1, **{"key": 1}, **{"key": 2})
        g(abc=1, **{"abc": 1})
        g(*[1, 2, 3], key=2)
        (lambda a, b, c: 0)(1)
        """,
        names=NAMES,
        z=1,
    )
