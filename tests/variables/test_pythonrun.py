"""`compile`, `eval` and `exec` of constant code."""

from tests.helpers.differential import breaks, capture, check, check_lines

GLOBAL = 7


def test_eval():
    check_lines(
        """
        eval("1 + 1"), eval("x + 1"), eval("  x"), eval(b"x"), eval("len([x])"), eval("GLOBAL + x"), eval("[x for _ in range(2)]")
        eval("x + y", {"x": 1, "y": 2}), eval("x + y", {"x": 1}, {"y": 5}), eval("len('ab')", {})
        eval(compile("x * 2", "f", "eval")), eval("(lambda a: a + x)(2)", {"x": 1})
        eval("nothing")
        eval("1 / 0")
        eval("x", {})
        eval("GLOBAL", globals()), eval("x", None, {"x": 9})
        compile("x = 1", "f", "exec").co_filename, compile("x", "f", "eval").co_names, type(compile("1", "", "eval")).__name__
        compile("x", "f", "nonsense")
        exec("x = 5"), x
        """,
        names={"GLOBAL": 7},
        x=3,
    )


def test_syntax_errors():
    check_lines(
        """
        eval("x +")
        compile("x +", "f", "exec")
        """,
        fullgraph=False,
        x=3,
    )


def test_exec():
    check(
        """
        ns = {"a": 2}
        exec("b = a + 1\\ndef f(n): return n + b", ns)
        r = ns["f"](10)
        del ns["__builtins__"]
        r, ns["b"], sorted(ns), ns["f"].__globals__ is ns, ns["f"].__name__
        """,
        """
        ns = {}
        exec("import math\\nclass C:\\n    k = math.floor(2.5)", ns)
        ns["C"].k
        """,
        """
        ns, loc = {}, {}
        exec("global g\\ng = 1\\nh = 2", ns, loc)
        ns["g"], loc, "h" in ns
        """,
        """
        ns = {}
        exec("def f():\\n    global k\\n    k = 5", ns)
        ns["f"]()
        ns["k"]
        """,
        """
        exec("raise KeyError(5)", {})
        """,
        x=1,
    )


def test_a_function_made_by_exec_leaves():
    def program(x):
        ns = {"k": x}
        exec("def f(n): return n + k", ns)
        return ns["f"]

    from dynamo_lite.config import config

    with config.patch(capture_pure_python=True, debug=True):
        made = capture(program)(5)
    assert made(1) == 6
    made.__globals__["k"] = 10
    assert made(1) == 11
    assert set(made.__globals__) == {"k", "f", "__builtins__"}


def test_breaks():
    check(
        """
        y = 5
        eval("print(end='')") or x + y
        """,
        """
        ns = {}
        exec("print(end='')\\nz = 5", ns)
        ns["z"]
        """,
        """
        ns = {}
        exec("def f(a):\\n    print(end='')\\n    return a", ns)
        ns["f"](x)
        """,
        """
        ns = {"x": x}
        exec("def g():\\n    yield 1\\n    print(end='')\\n    yield x", ns)
        list(ns["g"]())
        """,
        fullgraph=False,
        x=3,
    )
    breaks("compile('1 is 1', '', 'eval')", "call-print", x=1)
    breaks("import ast; compile(ast.parse('1'), '', 'exec')", "exec-eval", x=1)


def test_functions_know_the_module_of_their_making():
    check(
        """
        ns = {"__name__": "there"}
        exec("def f(): return 1", ns)
        ns["__name__"] = "elsewhere"
        r = ns["f"].__module__, ns["f"]()
        r
        """,
    )
