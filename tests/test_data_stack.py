"""`with_room`: calls below it map no memory for their frames, at whatever depth they are."""

import resource
import sys

import pytest

from dynamo_lite.data_stack import with_room

DEPTHS = range(200)
CALLS = 300


def leaf(a, b):
    return a + b


# As large as the frame of `calls_at`, or it might fit in at each depth.
leaf.__code__ = leaf.__code__.replace(co_stacksize=60)


def calls_at(depth):
    """Page faults of `CALLS` calls of a small function, so many frames further down."""
    if depth:
        return calls_at(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for i in range(CALLS):
        leaf(i, i)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def most_faults():
    return max(map(calls_at, DEPTHS))


def test_calls_map_no_chunks():
    if sys.version_info < (3, 14):  # which keeps the last chunk
        assert most_faults() >= CALLS
    assert with_room(most_faults) < CALLS / 10


def test_result_and_error():
    assert with_room(sorted, [2, 1], reverse=True) == [2, 1]
    with pytest.raises(ValueError, match="invalid literal"):
        with_room(int, "x")
    assert with_room(with_room, leaf, 1, b=2) == 3
