"""Versions with symbolic sizes: another process makes the symbols for its own inputs, and takes over what the guards say of them."""

import torch

import dynamo_lite
from dynamo_lite.record import STATS, log
from tests.warm_cache.cache_programs import Run, load, new_process

HEADER = "import torch\n"


def call(text, *sizes, dynamic=None, backend="eager"):
    """As a process of its own: calls with these sizes; (hits, misses), and whether each version came from the cache."""
    new_process()
    fn, make = load(prog=HEADER + text).main()
    compiled = dynamo_lite.compile(fn, backend=backend, dynamic=dynamic)
    for size in sizes:
        args = make(*size) if isinstance(size, tuple) else make(size)
        torch.testing.assert_close(compiled(*args), fn(*args))
    return STATS.cache_hits, STATS.cache_misses


ROWS = """
def f(x):
    y = torch.cat([x, x])
    if y.shape[0] > 10:
        y = y + x.shape[0]
    return y.view(2, x.shape[0], -1).sum(1)
def main(): return f, lambda n: (torch.randn(n, 3),)
"""


def test_a_version_for_many_sizes():
    assert call(ROWS, 6, dynamic=True) == (0, 1)
    assert call(ROWS, 9, 6, 30, dynamic=True) == (1, 0)


BOUNDS = """
def f(x):
    assert x.shape[1] == 3
    return x[:100] if x.shape[0] <= 50 else x
def main(): return f, lambda n: (torch.randn(n, 3),)
"""


def test_bounds_of_sizes_are_kept():
    """The numbers that a guard demands of a size are known to who asks, also of a version that another process made."""
    found = []
    for hits in (0, 1):
        new_process()
        fn, make = load(prog=HEADER + BOUNDS).main()
        compiled = dynamo_lite.compile(fn, backend="eager", dynamic=True)
        compiled(*make(6))
        assert STATS.cache_hits == hits
        guards = log.snapshot()[-1].guards.guards()
        found.append({(guard.text, guard.bounds) for guard in guards if guard.bounds is not None})
    assert (
        found[0]
        == found[1]
        == {
            ("2 <= x.size(0) and x.size(0) <= 50", ("x.size(0)", 2, 50)),
            ("x.size(1) == 3", ("x.size(1)", 3, 3)),
            ("x.stride(0) == 3", ("x.stride(0)", 3, 3)),
        }
    )


def test_a_size_that_was_seen_to_vary():
    assert call(ROWS, 6, 7) == (0, 2)
    assert call(ROWS, 8, 9, 20) == (1, 0)


def test_conditions_on_sizes_hold():
    assert call(ROWS, 6, dynamic=True) == (0, 1)
    assert call(ROWS, 4, dynamic=True) == (0, 1)
    assert call(ROWS, 5, 7, dynamic=True) == (2, 0)


def test_a_size_of_one(caplog):
    assert call(ROWS, 6, dynamic=True) == (0, 1)
    assert call(ROWS, 1, dynamic=True) == (0, 1)
    assert not caplog.records


TWO = """
def f(x, y):
    return x.sum(0) + y.sum(0) if x.shape[0] != y.shape[0] else x * y
def main(): return f, lambda n, m: (torch.randn(n, 4), torch.randn(m, 4))
"""


def test_sizes_that_are_equal_by_accident():
    assert call(TWO, (5, 6), dynamic=True) == (0, 1)
    assert call(TWO, (5, 5), dynamic=True) == (0, 1)
    assert call(TWO, (7, 7), (7, 8), dynamic=True) == (2, 0)


INTS = """
def f(x, n):
    return x[:, :n] * n + x.stride(0)
def main(): return f, lambda n, m: (torch.randn(3, n), m)
"""


def test_ints_and_strides():
    assert call(INTS, (8, 5), dynamic=True) == (0, 1)
    assert call(INTS, (9, 6), (12, 7), dynamic=True) == (1, 0)
    assert call(INTS, (9, 1), (12, 1), dynamic=True)[0] == 0  # 1 is a number of its own


def test_a_compiler_is_told_of_the_sizes():
    assert call(ROWS, 6, dynamic=True, backend="aot_eager") == (0, 1)
    assert call(ROWS, 9, 30, dynamic=True, backend="aot_eager") == (1, 0)


def test_what_the_compiler_takes_for_granted_is_guarded():
    """In the second process it takes for granted more than in the first."""
    seen = []

    def strict(gm, args):
        node = next(n for n in gm.graph.nodes if n.op == "placeholder" and n.meta["example_value"].dim() == 2)
        if len(seen) == 1:
            assert node.meta["example_value"].shape[0] < 20  # asks the symbol
        seen.append(1)
        return gm.forward

    assert call(ROWS, 6, dynamic=True, backend=strict) == (0, 1)
    assert call(ROWS, 9, 19, 30, dynamic=True, backend=strict) == (2, 0)
    assert len(log.snapshot()) == 2  # one of them for less than 20 rows


def test_what_nodes_stand_for():
    """A compiler asks for their metadata."""
    found = []

    def look(gm, args):
        found.append(
            [
                (n.name, tuple(map(str, v.shape)) if isinstance(v, torch.Tensor) else str(v))
                for n in gm.graph.nodes
                if (v := n.meta.get("example_value")) is not None
            ]
        )
        return gm.forward

    call(ROWS, 6, dynamic=True, backend=look)
    assert call(ROWS, 6, dynamic=True, backend=look) == (1, 0)
    assert found[0] == found[1]


def test_reports_say_the_same():
    fn, make = load(prog=HEADER + ROWS).main()
    texts = []
    for _ in range(2):
        new_process()
        dynamo_lite.compile(fn, backend="eager", dynamic=True)(*make(6))
        (frame,) = log.snapshot()
        lines = [line for line in frame.guards.text().splitlines() if not line.startswith("#")]
        texts.append((frame.from_cache, lines, [str(n) for n in frame.guards.guards().sizes]))
    assert [text[0] for text in texts] == [False, True]
    assert texts[0][1:] == texts[1][1:]


def test_marked_sizes_are_not_kept():
    text = (
        HEADER
        + """
import dynamo_lite
def f(x): return x + x.shape[0]
def main():
    x = torch.randn(5, 3)
    dynamo_lite.mark_dynamic(x, 0)
    return f, (x,)
"""
    )
    run = Run(prog=text)
    assert run.is_right and run.kept == 0 and run.refusals == {"a tensor with marks": 1}


def test_marks_of_another_process():
    text = HEADER + "def f(x): return x + x.shape[0]\ndef main(): return f, (torch.randn(5, 3),)\n"
    for _ in range(2):
        new_process()
        fn, (x,) = load(prog=text).main()
        dynamo_lite.compile(fn, backend="eager", dynamic=True)(x)
    assert STATS.cache_hits == 1
    new_process()
    fn, (x,) = load(prog=text).main()
    dynamo_lite.mark_dynamic(x, 0)
    dynamo_lite.compile(fn, backend="eager", dynamic=True)(x)
    assert STATS.cache_hits == 0


def test_sizes_that_depend_on_data_are_not_kept():
    text = HEADER + "def f(x): return x[x > 0] * 2\ndef main(): return f, (torch.tensor([1.0, -1.0, 2.0]),)\n"
    with dynamo_lite.config.patch(capture_dynamic_output_shape_ops=True):
        run = Run(prog=text)
        assert run.is_right and run.kept == 0


PART = """
def f(x):
    return torch.cat([x, x * 2], 1) + x.stride(0)
def main(): return f, lambda n, m: (torch.randn(3, n)[:, :m],)
"""


def test_a_stride_that_follows_from_no_size():
    assert call(PART, (9, 5), (10, 6)) == (0, 2)
    assert call(PART, (12, 7), (13, 7), (20, 8)) == (1, 0)
    assert call(PART, (9, 9)) == (0, 1)  # contiguous: another version
    assert call(PART, (9, 5)) == (1, 0)
    assert call(PART, (14, 6), (30, 7)) == (1, 0)
