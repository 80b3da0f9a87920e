"""Graph breaks: one split each, wherever they are, and the program goes on as in eager execution."""

import contextlib
import io
import traceback
import types

import pytest
import torch

import dynamo_lite
from dynamo_lite import graph_break
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter, run_both


def run(fn, *args, graphs, calls=1, **kwargs):
    """Run eagerly and compiled with output captured; compare output and the number of graphs."""
    expected_out, actual_out = io.StringIO(), io.StringIO()
    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter, **kwargs)
    for _ in range(calls):
        with contextlib.redirect_stdout(expected_out):
            expected = fn(*args)
        with contextlib.redirect_stdout(actual_out):
            actual = compiled(*args)
        torch.testing.assert_close(actual, expected)
    assert actual_out.getvalue() == expected_out.getvalue()
    assert counter.frame_count == graphs
    return counter


def test_toy_example_of_the_field():
    def toy(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    counter = CompileCounter()
    compiled = dynamo_lite.compile(toy, backend=counter)
    torch.manual_seed(0)
    seen = set()
    for _ in range(100):
        a, b = torch.randn(10), torch.randn(10)
        seen.add(bool(b.sum() < 0))
        torch.testing.assert_close(compiled(a, b), toy(a, b), rtol=0, atol=0)
    assert seen == {True, False}
    assert counter.frame_count == 3


def test_print_in_the_leaf_of_three_nested_functions_gives_two_graphs():
    def leaf(x):
        x = x + 1
        print("leaf", x.shape)
        return x * 2

    def middle(x):
        y = leaf(x - 3)
        return y + x

    def top(x):
        z = middle(x * 5)
        return z.relu() + x

    run(top, torch.randn(4), graphs=2, calls=2)


def test_print_in_a_loop_of_three_iterations_gives_four_graphs():
    def loop(x):
        for i in range(3):
            x = x + i
            print(i)
            x = x * 2
        return x

    run(loop, torch.randn(4), graphs=4, calls=2)


def test_long_loop_is_bounded_by_automatic_dynamic_ints():
    def loop(x, n):
        for i in range(n):
            x = x + i
            print(i)
        return x.sin()

    counter = CompileCounter()
    compiled = dynamo_lite.compile(loop, backend=counter)
    x = torch.randn(4)
    with contextlib.redirect_stdout(io.StringIO()):
        torch.testing.assert_close(compiled(x, 40), loop(x, 40))
    assert counter.frame_count <= 6


def test_break_in_while_loop_over_a_list():
    def loop(xs):
        total = torch.zeros(3)
        while xs:
            total = total + xs.pop()
            print(len(xs))
        return total

    run_with_copy = [torch.randn(3) for _ in range(3)]
    run_both(loop, run_with_copy, _calls=1)


def test_break_under_with_keeps_the_context():
    def f(x):
        with torch.no_grad():
            y = x * 2
            print(torch.is_grad_enabled())
            z = y + x
        return z, x * 3, torch.is_grad_enabled()

    x = torch.randn(3, requires_grad=True)
    compiled = dynamo_lite.compile(f, backend="eager")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        z, w, enabled = compiled(x)
    assert out.getvalue() == "False\n"
    assert enabled and torch.is_grad_enabled()
    assert not z.requires_grad and w.requires_grad


class Recorder:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, *exc):
        self.log.append(("exit", exc[0]))
        return exc[0] is ValueError


def test_break_under_a_user_context_manager():
    def f(x, log):
        with Recorder(log):
            x = x + 1
            print("in")
            x = x * 2
        return x

    run_both(f, torch.randn(3), [])


def test_exception_at_a_break_reaches_the_handler():
    def boom(x):
        print("boom")
        raise ValueError("boom")

    def f(x, log):
        try:
            x = x + 1
            dynamo_lite.disable(boom)(x)
            x = x * 100
        except ValueError as e:
            log.append(str(e))
            x = x - 1
        finally:
            log.append("finally")
        return x * 2

    run_both(f, torch.randn(3), [])


def test_exception_at_a_break_in_an_inlined_callee():
    def leaf(x):
        y = x + 1
        print("leaf")
        raise KeyError("k")
        return y

    def middle(x, log):
        try:
            return leaf(x)
        except KeyError as e:
            log.append(e.args)
        return x * 3

    def top(x, log):
        return middle(x * 2, log) + 1

    run_both(top, torch.randn(3), [])


def test_break_inside_an_except_handler():
    def f(x, log):
        try:
            raise ValueError("inner")
        except ValueError as e:
            x = x + 1
            print("handling", e)
            log.append(str(e))
            x = x * 2
        return x

    run_both(f, torch.randn(3), [])


def test_break_in_a_comprehension():
    def f(xs):
        ys = [helper(x) * 2 for x in xs]
        return ys[0] + ys[-1]

    def helper(x):
        print("h")
        return x + 1

    run_both(f, [torch.randn(3) for _ in range(3)])


def test_exception_at_a_break_in_a_comprehension_behind_another_break():
    """From CPython 3.12 on, the handler that puts the variable back finds the unfinished dict or set on the stack."""

    def new_dict(x, keys):
        if x.max():
            x = x * 2
        return {k: x for k in keys}  # noqa: C420

    def new_set(x, keys):
        if x.max():
            x = x * 2
        return {k for k in keys}, x

    for function in (new_dict, new_set):
        compiled = dynamo_lite.compile(function, backend="eager")
        for _ in range(2):
            with pytest.raises(TypeError, match="unhashable type: 'list'"):
                compiled(torch.ones(3), [[]])


def test_break_with_closure_and_cells():
    def f(x):
        n = 1
        scale = torch.ones(3)

        def g(y):
            nonlocal n
            n += 1
            return y * scale + n

        x = g(x)
        print(n)
        x = g(x)
        return x, n

    run_both(f, torch.randn(3))


def test_break_with_pending_mutations():
    def f(x, items, table):
        items.append(x + 1)
        table["k"] = items
        print(len(items), sorted(table))
        items.append(x * 2)
        return table["k"][-1]

    run_both(f, torch.randn(3), [1], {"a": 2})


def test_data_dependent_and_or():
    def f(x, y):
        a = x.sum() > 0 or y.sum() > 0
        b = x.sum() > 0 and y.sum() > 0
        return x + 1 if a else y + 2, b

    for sign in (1, -1):
        for other in (1, -1):
            run_both(f, torch.ones(3) * sign, torch.ones(3) * other)


def test_item_breaks_and_goes_on():
    def f(x):
        n = x.sum().item()
        return x + n

    run_both(f, torch.randn(3))


def test_fullgraph_raises_with_the_users_line():
    def f(x):
        x = x + 1
        print(x)
        return x

    with pytest.raises(dynamo_lite.exc.Unsupported) as info:
        dynamo_lite.compile(f, backend="eager", fullgraph=True)(torch.randn(3))
    assert info.value.user_stack[-1].lineno == f.__code__.co_firstlineno + 2
    assert "print" in str(info.value)


def test_a_function_that_breaks_often_is_called():
    """After a few breaks in it the function is a frame of its own, whose parts all of its callers share."""

    def leaf(x):
        x = x + 1
        graph_break()
        return x * 2

    def f(x):
        x = leaf(x.sin())
        x = leaf(x.cos())
        x = leaf(x.tan())
        x = leaf(x.exp())
        x = leaf(x.neg())
        x = leaf(x.abs())
        return leaf(x)

    counter = CompileCounter()
    compiled = dynamo_lite.compile(f, backend=counter)
    x = torch.rand(3)
    assert torch.equal(compiled(x), f(x))
    graphs = counter.frame_count
    assert [record.name for record in log.snapshot()].count(leaf.__qualname__) == 1
    assert {b.slug for b in log.breaks()} == {"user-requested", "breaks-inside"}
    assert torch.equal(compiled(x), f(x))
    assert counter.frame_count == graphs == 8


def test_a_wrapper_is_blamed_for_each_class_by_itself():
    class Base:
        def __call__(self, value):  # the code that both classes share
            return self.forward(value)

    class Broken(Base):
        def forward(self, value):
            dynamo_lite.graph_break()
            return [v + 1 for v in (value, self and value)][0]  # `self` is in a cell, too

    class Whole(Base):
        def forward(self, value):
            return value * 2

    broken, whole = Broken(), Whole()

    def fn(x):
        x = broken(x.sin())
        x = broken(x.cos())
        x = broken(x.tan())
        x = broken(x.exp())
        x = broken(x.neg())
        x = broken(x.abs())
        x = broken(x.sqrt())
        for _ in range(8):
            x = whole(x)
        return x

    log.reset()
    compiled = dynamo_lite.compile(fn, backend=(counter := CompileCounter()))
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))
    sizes = [graph.op_count for record in log.snapshot() for graph in record.graphs]
    assert max(sizes) >= 8  # the second loop is in one graph
    assert counter.frame_count == len(sizes)


def test_numbers_on_the_stack_are_not_looked_at():
    """What only lies there while an instruction breaks is guarded by nothing."""
    numbers = iter([1.5, 2.5, 3.5])
    draw, wait = dynamo_lite.disable(lambda: next(numbers)), dynamo_lite.disable(lambda: None)

    def f(x):
        number = draw()
        return x + 1, number, wait()

    counter = CompileCounter()
    compiled = dynamo_lite.compile(f, backend=counter)
    assert [compiled(torch.ones(2))[1] for _ in range(3)] == [1.5, 2.5, 3.5]
    assert counter.frame_count == 1


def raises_text(x):
    y = x + 1
    raise ValueError(str(y))


def raises_tensor(x):
    raise ValueError("bad", x + 1)


def raises_inside(x):
    def inner(z):
        z = z * 2
        raise KeyError(tuple(z.shape))

    inner(x + 1)


def raises_through_finally(x):
    y = x + 1
    try:
        raise ValueError("first")
    finally:
        y.mul_(3)


def raises_from(x):
    y = x + 1
    try:
        raise ValueError("first")
    except ValueError as error:
        y = y * 3
        raise KeyError("second") from error


def raises_in_a_loop(x):
    for i in range(3):
        x = x + 1
        if i == 2:
            raise ValueError(i)


def raises_after_a_change(x):
    x.add_(1)
    return {}[3]


def outcome_of(function, x):
    try:
        function(x)
    except Exception as error:
        frames = [(entry.name, entry.lineno) for entry in traceback.extract_tb(error.__traceback__)[1:]]
        return type(error), repr(error), repr(error.__context__), repr(error.__cause__), frames, x.tolist()
    return None


@pytest.mark.parametrize(
    ("program", "graphs", "operators"),
    [
        (raises_text, 1, 1),
        (raises_tensor, 1, 1),
        (raises_inside, 2, 2),
        (raises_through_finally, 1, 1),
        (raises_from, 1, 2),
        (raises_in_a_loop, 1, 3),
        (raises_after_a_change, 1, 1),
    ],
)
def test_the_graph_before_an_exception_is_kept(program, graphs, operators):
    counter = CompileCounter()
    compiled = dynamo_lite.compile(program, backend=counter)
    for _ in range(2):
        expected, found = outcome_of(program, torch.ones(3)), outcome_of(compiled, torch.ones(3))
        assert found == expected and expected is not None
    assert (counter.frame_count, counter.op_count) == (graphs, operators)


def test_an_exception_without_operators_before_it_is_left_to_the_original():
    counter = CompileCounter()
    with pytest.raises(ValueError):
        dynamo_lite.compile(lambda x: int("x"), backend=counter)(torch.ones(3))
    assert counter.frame_count == 0


def test_fullgraph_raises_the_programs_exception():
    with pytest.raises(KeyError):
        dynamo_lite.compile(raises_inside, backend="eager", fullgraph=True)(torch.ones(3))


def test_the_reason_of_a_break_in_a_function_of_another_module():
    other = types.ModuleType("other_module")
    body = "    try:\n        import tests_missing_module\n    except ImportError:\n        pass\n    return t + 1\n"
    exec(f"def helper(t):\n{body}", vars(other))
    log.reset()
    compiled = dynamo_lite.compile(lambda t: other.helper(t * 2), backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert {(b.slug, b.context) for b in log.breaks()} == {("import", "tests_missing_module")}
