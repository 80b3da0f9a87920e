"""`compile`, `eval` and `exec` break the graph; code that they make is followed afterwards."""

from tests.helpers.differential import breaks, check, check_lines


def test_results():
    check_lines(
        """
        eval("1 + 1"), eval("x + 1"), eval("  x"), eval(b"x"), eval("len([x])"), eval("[x for _ in range(2)]")
        eval("x + y", {"x": 1, "y": 2}), eval("x + y", {"x": 1}, {"y": 5}), eval("len('ab')", {})
        eval(compile("x * 2", "f", "eval")), eval("(lambda a: a + x)(2)", {"x": 1})
        eval("nothing")
        eval("1 / 0")
        eval("x", {})
        eval("x", None, {"x": 9})
        compile("x = 1", "f", "exec").co_filename
        compile("x", "f", "nonsense")
        exec("x = 5"), x
        """,
        fullgraph=False,
        x=3,
    )


def test_namespaces():
    check(
        """
        ns = {"a": 2}
        exec("b = a + 1\\ndef f(n): return n + b", ns)
        r = ns["f"](10)
        del ns["__builtins__"]
        r, ns["b"], sorted(ns), ns["f"].__globals__ is ns, ns["f"].__name__
        """,
        """
        ns, loc = {}, {}
        exec("global g\\ng = 1\\nh = 2", ns, loc)
        ns["g"], loc, "h" in ns
        """,
        """
        ns = {"x": x}
        exec("def g():\\n    yield 1\\n    print(end='')\\n    yield x", ns)
        list(ns["g"]())
        """,
        fullgraph=False,
        x=1,
    )


def test_variables_of_an_inlined_frame():
    def inner(a):
        return a + eval("a + 1")

    check("inner(x)", names={"inner": inner}, fullgraph=False, x=1)


def test_each_breaks():
    for text in ("eval('1')", "eval('x', {'x': 1})", "exec('x = 5', {})", "compile('1', '', 'eval')"):
        breaks(text, "exec-eval", x=1)
