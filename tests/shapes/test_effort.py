"""Reasoning about sizes ends: facts are taken as they are asked, and what would take too much all the same becomes a constant."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.exc import UserError
from dynamo_lite.messages import short_path
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounter, differences


def in_windows(x):
    """Padded to multiples and halved, again and again: sizes are floors of sums of remainders of floors."""
    for width in (2, 3):
        n = x.shape[1]
        x = F.pad(x, (0, 0, 0, (width - n % width) % width))
        x = x.view(x.shape[0], x.shape[1] // width, width, 4).sum(2) + 1
    return x * x.shape[0]


def calls(sizes, limit, function=in_windows, **options):
    counter = CompileCounter()
    with dynamo_lite.config.patch(symbolic_effort=limit):
        run = dynamo_lite.compile(function, backend=counter, fullgraph=True, **options)
        for n, m in sizes:
            x = torch.arange(n * m * 4.0).reshape(n, m, 4)
            assert not list(differences(function(x), run(x)))
    return counter


SIZES = [(5, 300), (6, 310), (7, 320), (9, 320)]


def test_within_the_limit():
    calls(SIZES, None)
    assert not log.snapshot()[-1].specializations


def test_beyond_the_limit_facts_are_taken_as_they_are():
    counter = calls(SIZES, 60)
    assert counter.frame_count == 2
    first, second = log.snapshot()
    assert not first.specializations and not second.specializations
    assert calls(SIZES, 60, dynamic=True).frame_count == 1


def test_far_beyond_the_limit():
    counter = calls(SIZES, 4)
    first, second, third = log.snapshot()  # the last call has another first size only, which costs nothing
    assert counter.frame_count == 3
    assert not first.specializations and not third.specializations
    (found,) = second.specializations
    assert (found.text, found.value, found.why) == ("x.size(1)", 310, "its use takes too much reasoning")
    assert found.user[0] == __file__
    assert (
        str(found) == f"x.size(1) = 310, by {short_path(__file__)}:{found.user[1]} (its use takes too much reasoning)"
    )


@pytest.mark.parametrize("swallows", [False, True])
def test_a_backend_that_asks_too_much(swallows):
    """The frame is captured again with constants; nothing is told of a backend that fails."""

    def asks(gm, inputs):
        (sizes,) = [n.meta["example_value"].shape for n in gm.graph.find_nodes(op="placeholder")]
        env = next((n.node.shape_env for n in sizes if isinstance(n, torch.SymInt)), None)
        try:
            for n in sizes if env is not None else ():
                for width in range(3, 150):
                    env.simplify(((n + width) // width * 7 % width).node.expr)
        except Exception:
            if not swallows:
                raise
        return gm.forward

    def halves(x):
        n = x.shape[0]
        for width in (3, 5, 7):
            n = (n + (width - n % width) % width) // width
        return x * 2 if n > 2 else x

    with dynamo_lite.config.patch(symbolic_effort=50), warnings.catch_warnings():
        warnings.simplefilter("error")
        run = dynamo_lite.compile(halves, backend=asks, fullgraph=True)
        for n in (300, 310, 320):
            assert run(torch.ones(n)).sum() == 2 * n
    assert [[s.value for s in f.specializations] for f in log.snapshot()] == [[], [], []]
    assert [f.restarts for f in log.snapshot()] == [0, 1, 0]


def test_everything_dynamic():
    calls(SIZES, 4, dynamic=True)
    first, *others = log.snapshot()
    assert [s.text for s in first.specializations] == ["x.size(1)"]
    assert [[s.text for s in f.specializations] for f in others] == [["x.size(2)"]] * 2


def test_an_int():
    def function(x, n):
        for width in (2, 3, 5, 7):
            n = (n + (width - n % width) % width) // width
            if n > 40:
                x = x + n
        return x

    with dynamo_lite.config.patch(symbolic_effort=6):
        run = dynamo_lite.compile(function, backend="eager", fullgraph=True)
        for n in (300, 310, 320, 330):
            assert run(torch.zeros(2), n).tolist() == function(torch.zeros(2), n).tolist()
    assert [str(s.text) for f in log.snapshot() for s in f.specializations] == ["n"]
    assert len(log.snapshot()) == 4


def test_a_promise():
    x = torch.zeros(2, 300, 4)
    dynamo_lite.mark_dynamic(x, 1)
    with dynamo_lite.config.patch(symbolic_effort=4), pytest.raises(UserError, match="too much reasoning"):
        dynamo_lite.compile(in_windows, backend="eager")(x)


def test_maxima_of_sizes_do_not_decide():
    """`max(n, 0)` of padding stays a number of the graph; what is known, and comparisons with floats, need no node."""

    def padded(x, y):
        n, m = x.shape[0], y.shape[0]
        numbers = [max(n, m), min(n - 3, 4), max(7 - n, 0), max(n, 1), min(n, 0), max(n, 2.5)]
        return F.pad(x, (0, max(7 - n, 0))) * 2, y + numbers[0], numbers

    counter = CompileCounter()
    run = dynamo_lite.compile(padded, backend=counter, fullgraph=True)
    for n, m in ((5, 6), (6, 9), (9, 4), (12, 12), (4, 8), (7, 7), (3, 5)):
        x, y = torch.arange(float(n)), torch.arange(float(m))
        assert not list(differences(padded(x, y), run(x, y)))
    assert counter.frame_count == 2
    assert not any(frame.specializations for frame in log.snapshot())


def test_padding_as_in_tensorflow():
    """Whether a convolution's image is padded at all differs from size to size (timm's pnasnet5large)."""
    convolution = torch.nn.Conv2d(2, 2, 3, stride=2).eval()

    def same(x):
        for _ in range(3):
            pads = [max((math.ceil(n / 2) - 1) * 2 + 3 - n, 0) for n in x.shape[-2:]]
            x = convolution(F.pad(x, (pads[1] // 2, pads[1] - pads[1] // 2, pads[0] // 2, pads[0] - pads[0] // 2)))
        return x

    counter = CompileCounter()
    run = dynamo_lite.compile(same, backend=counter, fullgraph=True)
    with torch.no_grad():
        for n in (32, 36, 37, 41, 50, 63, 64):
            x = torch.randn(1, 2, n, n)
            assert not list(differences(same(x), run(x)))
    assert counter.frame_count == 2


def test_many_quotients_within_each_other_are_a_constant():
    """The algebra would compare expressions with themselves without end."""

    def f(x, n):
        for _ in range(300):
            n = (n + 1) % 50
        return x + n

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    log.reset()
    for n in (3, 4, 5):
        assert compiled(torch.ones(2), n).tolist() == f(torch.ones(2), n).tolist()
    assert [len(frame.graphs) for frame in log.snapshot()] == [1, 1, 1]
