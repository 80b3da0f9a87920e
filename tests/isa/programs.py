"""Programs that the machine and the continuations are compared on. Each is run as `f()`; `t(x)` logs and returns x."""

import sys

PRELUDE = """
import sys
log = []
def t(x, *more, **kw):
    log.append((x, more, tuple(kw.items())))
    return x
def boom(x=None):
    log.append(("boom", x))
    raise ValueError(x)
def state():
    return getattr(sys.exc_info()[1], "args", None)
class Ctx:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow
    def __enter__(self):
        log.append(("enter", self.name))
        return self
    def __exit__(self, kind, error, tb):
        log.append(("exit", self.name, kind, getattr(error, "args", None)))
        return self.swallow
class Point:
    __match_args__ = ("x", "y")
    def __init__(self, x, y):
        self.x, self.y = x, y
"""

PROGRAMS = {
    "straight": """
def f():
    a = t(1)
    b = t(a + 2, 3, k=4, l=5)
    c = [a, b, *range(3)]
    d = {"a": a, **{"b": b}}
    return t(c[0:2]), d, (a, *c), {a, *c}, f"{a}{b!r:>5}{c!s}", -a, +b, ~a, not c, a is b, a in c, a not in c
""",
    "loops": """
def f():
    total = 0
    for i in range(t(3)):
        for j in (t(1), t(2)):
            if j == 2 and i == 1:
                continue
            total += t(i * j)
        else:
            total += 10
        while total > 20:
            total -= t(7)
            if total < 15:
                break
    return total
""",
    "with": """
def f():
    with Ctx("a") as a, Ctx("b"):
        t(a.name)
    with Ctx("c", True):
        boom(t(3))
    try:
        with Ctx("d"):
            boom(t(4))
    except ValueError as e:
        t(e.args)
    return t("end")
""",
    "try": """
def f():
    r = []
    for i in range(3):
        try:
            try:
                if i == 1:
                    boom(t(i))
                r.append(t(i))
            except TypeError:
                r.append("no")
            else:
                t("else")
            finally:
                t(("finally", sys.exc_info()[0]))
        except ValueError as e:
            r.append((t(e.args), sys.exc_info()[0]))
            try:
                boom(e.args)
            except ValueError as inner:
                t((inner.__context__ is e, sys.exc_info()[1] is inner))
            t(sys.exc_info()[1] is e)
        t(sys.exc_info())
    return r
""",
    "nested_handlers": """
def f():
    try:
        try:
            boom(1)
        except ValueError as a:
            t(a.args)
            try:
                boom(2)
            except ValueError as b:
                t(b.args)
                try:
                    raise
                finally:
                    t("inner finally")
    except ValueError as c:
        t((c.args, c.__context__.args, sys.exc_info()[1] is c))
    return t(sys.exc_info()[0])
""",
    "uncaught": """
def f():
    try:
        t(1)
        boom(t(2))
    except KeyError:
        t("never")
    finally:
        t("finally")
""",
    "return_in_finally": """
def f():
    for i in range(3):
        try:
            if i == 1:
                return t(i)
            t(("body", i))
        finally:
            t(("finally", i))
""",
    "closures": """
def f(x=1):
    n = t(5)
    def g(k):
        nonlocal n
        n += k
        return n + x
    h = lambda: (n, x)
    t(g(1))
    n = n + t(1)
    x = t(g(2))
    return t(h()), g(3), n
""",
    "comprehensions": """
def f():
    k = t(2)
    i = "outer"
    a = [t(i * k) for i in range(3)]
    b = {i: j for i in range(2) for j in (t(i), i + k) if j}
    c = {t(x) for x in a}
    d = [[t(y + k) for y in range(z)] for z in range(3)]
    e = [(lambda: (q, k))() for q in range(t(2))]
    return a, b, c, d, e, i, t(list(i for i in a))
""",
    "comprehension_over_cell": """
def f():
    x = t("outer")
    get = lambda: x
    a = [t(x) for x in range(2)]
    b = [(lambda: t(x))() for x in range(2)]
    return a, b, t(x), get()
""",
    "comprehension_raises": """
def f():
    try:
        return [t(boom(i) if i else i) for i in range(2)]
    except ValueError:
        return t(i) if "i" in dir() else t("unbound")
""",
    "star_args": """
def f():
    def g(a, b=2, *c, d, e=5, **k):
        return t((a, b, c, d, e, k))
    args, kw = (1, 2, 3), {"d": 4, "z": 26}
    g(*args, **kw)
    g(*args, 9, **kw, y=t(25))
    return g(t(1), d=t(2)), g(d=1, *[t(0)])
""",
    "match": """
def f():
    r = []
    for v in (1, [1, 2, 3], {"k": 1, "z": 2}, Point(1, 2), Point(3, 4), "s", None):
        match v:
            case 1 | 2:
                r.append(t("int"))
            case [first, *rest]:
                r.append(t((first, rest)))
            case {"k": k, **others}:
                r.append(t((k, others)))
            case Point(1, y=yy):
                r.append(t(yy))
            case Point(x=a, y=b) if t(a) > 1:
                r.append((a, b))
            case None:
                r.append(t("none"))
            case _:
                r.append(t("other"))
    return r
""",
    "unpack": """
def f():
    a, (b, c), *d = t(1), (2, 3), 4, 5
    (x, *y, z) = t("hello")
    d[0], e = t(d[-1]), a
    d += [t(1)]
    d[1:2] = [t(8), 9]
    del d[0], b
    return a, c, d, x, y, z, e, d[1:], t(a) if a else c
""",
    "booleans": """
def f():
    r = []
    for a in (0, 1, None):
        for b in ("", "x"):
            r.append(t(a) or t(b))
            r.append(t(a) and t(b))
            r.append(t(1) < 2 < t(3) if a is None else a is not None and not t(b))
            if not a or (b and t(5)):
                r.append(None)
    return r
""",
    "classes": """
def f():
    class A:
        k = t(1)
        def m(self, v):
            return t(v)
    class B(A):
        def m(self, v):
            return super().m(v) + 1
    b = B()
    b.z = t(b.m(3))
    b.z += 1
    del b.z
    return b.m(k := t(4)), k, hasattr(b, "z")
""",
    "globals": """
def f():
    global G
    G = t(1)
    G += t(2)
    import os.path as p
    from sys import version_info as v
    assert t(v) >= (3,), t("no")
    del G
    return p.sep
""",
    "assertion": """
def f():
    try:
        assert t(0), t("message")
    except AssertionError as e:
        return t(str(e))
""",
    "unbound": """
def f():
    if t(0):
        a = 1
    try:
        return a
    except UnboundLocalError:
        t("unbound")
    b = t(1)
    del b
    try:
        b
    except NameError as e:
        return t(type(e))
""",
    "raise_from": """
def f():
    try:
        try:
            boom(1)
        except ValueError as e:
            raise KeyError(t(2)) from e
    except KeyError as e:
        return t((e.args, e.__cause__.args))
    finally:
        with Ctx("last"):
            t("finally")
""",
    "none_jumps": """
def f():
    r = []
    for a in (None, 1):
        if a is None:
            r.append(t("none"))
        if a is not None:
            r.append(t("some"))
        while a is not None:
            a = t(None)
        r.append(t(1) if a is None else t(2))
    return r
""",
    "annotated": """
def f():
    k = t(1)
    def g(a: t(2), *rest, b: k = t(3), **more) -> t(4):
        "doc"
        return a + b
    return t(g(5)), g.__annotations__, g.__defaults__, g.__kwdefaults__, g.__doc__
""",
    "genexps": """
def f():
    k = t(2)
    return any(t(x) == k for x in (1, 2, 3)), all(t(x) for x in (1, 0, 2)), tuple(t(x) for x in range(k))
""",
    "template": """
def f():
    w, x = t(8), t("x")
    made = t"a{x}{t(1)!r:>{w}}b{x!s}{w:x}"
    values = [(i.value, i.expression, i.conversion, i.format_spec) for i in made.interpolations]
    return made.strings, values, t"".strings, t"only".strings
""",
}
if sys.version_info < (3, 14):
    del PROGRAMS["template"]  # its syntax


def load(name):
    space = {}
    exec(compile(PRELUDE, "<prelude>", "exec"), space)
    exec(compile(PROGRAMS[name], f"<{name}>", "exec"), space)
    return space


def outcome(function, space):
    try:
        value = ("returned", function())
    except Exception as error:
        value = ("raised", type(error), error.args, type(error.__context__), type(error.__cause__))
    return repr(value), repr(space["log"])
