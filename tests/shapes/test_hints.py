"""What varies is known of a variable, whichever frames a break makes of the rest of the program."""

import torch

import dynamo_lite
from dynamo_lite.hints import hints_of, paths_of_waiting, seen_by
from dynamo_lite.record import Function
from dynamo_lite.testing import CompileCounter


def test_a_variable_of_a_frame_that_waits_in_another_chain():
    """From the second call on `inner` is called instead of being inlined: other frames go on for `middle`, and other code."""

    def inner(x):
        x = x + 1
        dynamo_lite.graph_break()
        x = x + 2
        dynamo_lite.graph_break()
        x = x + 3
        dynamo_lite.graph_break()
        x = x + 4
        dynamo_lite.graph_break()
        return x

    def middle(x, y):
        x = inner(x)
        return x, y * 2

    def f(x, y):
        x, y = middle(x, y)
        return x.sum() - y.sum()

    counter = CompileCounter()
    compiled = dynamo_lite.compile(f, backend=counter)
    found = []
    for n in range(3, 9):
        x, y, before = torch.ones(n), torch.randn(2, n), counter.frame_count
        torch.testing.assert_close(compiled(x, y), f(x, y))
        found.append(counter.frame_count - before)
    # What is compiled in the third call is of `inner`, which had not been called by itself before.
    assert found == [5, 5, 2, 0, 0, 0]


def resumed(name, names, lines="1"):
    """A function that looks like one that goes on for another."""
    scope = {}
    exec(f"def go({', '.join(names)}): pass", scope)
    code = scope["go"].__code__
    scope["go"].__code__ = code.replace(co_qualname=f"{name} (resumed at line {lines})", co_filename="f.py")
    return scope["go"]


def test_paths_lead_to_the_frame_whose_variable_it_is():
    innermost = resumed("c", ["__stack_0", "z"])
    middle = resumed("b", ["y", "__inner", "__inner_args"])
    outer = resumed("a", ["x", "__inner", "__inner_args"])
    values = (1, middle, [2, innermost, [3, 4]])
    assert list(paths_of_waiting(outer.__code__, values)) == [
        ("__inner_args", middle.__code__),
        ("__inner_args[2]", innermost.__code__),
    ]
    known = {}
    hints = hints_of(known, outer, values)
    hints["x"] = 1
    hints["fixed", "__inner_args[0].shape"] = 2
    hints["list(__inner_args[2][1])[0]"] = 3
    hints["__inner_args[2][0]"] = 4
    assert known == {
        Function.of(outer.__code__): {"x": 1},
        Function.of(middle.__code__): {("fixed", "y.shape"): 2},
        Function.of(innermost.__code__): {"list(z)[0]": 3},
        innermost.__code__: {"__stack_0": 4},
    }
    assert [value for _, value in seen_by(known, outer.__code__, values)] == [1, 2, 4, 3]
    assert dict(hints) == {
        "x": 1,
        ("fixed", "__inner_args[0].shape"): 2,
        "list(__inner_args[2][1])[0]": 3,
        "__inner_args[2][0]": 4,
    }
    assert hints_of(known, resumed("c", ["z", "w"]), (1, 2)).get("list(z)[0]") == 3  # other code for the same line
    assert hints_of(known, resumed("c", ["z"], lines="2"), (1,)).get("list(z)[0]") is None
    assert "y" not in hints and len(hints) == 4
