"""Long loops: the analysis gives up after so many steps, and the program goes on at once."""

import itertools

import pytest

from dynamo_lite.config import config
from dynamo_lite.exc import Unsupported
from dynamo_lite.frontend import convert
from dynamo_lite.record import log


def run(fn, *args, **region):
    log.reset()
    with config.patch(capture_pure_python=True, debug=True, max_idle_steps=2000, max_steps=20_000):
        return convert.Region(lambda gm, inputs: gm.forward, **region).wrap(fn)(*args)


def slugs():
    return [record.slug for record in log.breaks()]


def count(n):
    i = 0
    while i < n:
        i += 1
    return i


def test_a_loop_in_the_frame_itself_runs_it_eagerly():
    assert run(count, 10_000) == 10_000
    assert slugs() == ["code-size"]
    assert log.snapshot()[0].skipped is not None


def test_a_long_call_is_left_out_and_the_rest_captured():
    seen = []

    def middle(n):
        seen.append("before")
        total = count(n)
        seen.append("after")
        return total

    def f(n):
        return [middle(n), seen.copy()]

    assert run(f, 10_000) == [10_000, ["before", "after"]]
    assert slugs() == ["code-size"] * 2  # in f, and in count itself
    resumed = [frame for frame in log.snapshot() if frame.is_resume]
    assert resumed and all(frame.skipped is None for frame in resumed)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: sum(range(n)),
        lambda n: max(itertools.islice(itertools.count(), n)),
        lambda n: len(list(map(str, range(n)))),
        lambda n: len({k: k for k in range(n)}),
    ],
)
def test_long_iteration_in_native_code(make):
    assert run(make, 10_000) == make(10_000)
    assert set(slugs()) == {"code-size"}


def test_a_container_too_big_to_model_is_measured_but_not_read():
    def f(values):
        return len(values), [values[-1]]

    values = list(range(200_000))
    assert run(f, values) == (200_000, [199_999])
    assert slugs() == ["code-size"]


def test_recursion_is_analysed_a_few_times_only():
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert run(fib, 18) == 2584
    assert len(log.snapshot()) < 20


def test_fullgraph_says_so():
    with pytest.raises(Unsupported, match="DL105"):
        run(count, 10_000, fullgraph=True)
