"""Finding the entry among many: right whatever was predicted. `benchmarks/lookup.py` measures it."""

import functools
import gc
import weakref
from types import FunctionType

import pytest
import torch

import dynamo_lite
from dynamo_lite._eval_frame import Entry, GuardProgram, Region
from dynamo_lite.config import config
from dynamo_lite.guards.kinds import KINDS
from dynamo_lite.testing import CompileCounter

X = torch.ones(3)


@pytest.fixture(autouse=True)
def no_limits():
    with config.patch(recompile_limit=1000, accumulated_recompile_limit=1000):
        yield


def compiled(fn, **options):
    counter = CompileCounter()
    return dynamo_lite.compile(fn, backend=counter, **options), counter


def test_entries_by_constant_shape_and_object():
    class Holder:
        pass

    def f(x, k, o):
        return x.sum() * len(k) + o.n

    g, counter = compiled(f, dynamic=False)
    holders = [Holder() for _ in range(3)]
    for n, holder in enumerate(holders):
        holder.n = n
    calls = [(torch.ones(s), "k" * k, o) for s in (2, 3, 4) for k in range(1, 4) for o in holders]
    for args in calls:
        g(*args)
    compiled_once = counter.frame_count
    for args in calls * 2 + calls[::-1]:
        assert torch.equal(g(*args), f(*args))
    assert counter.frame_count == compiled_once
    holders[0].n = 1  # predicted for another entry
    for args in calls:
        assert torch.equal(g(*args), f(*args))


def test_removed_entries_are_not_predicted():
    def guard(value):
        return GuardProgram((((KINDS["LOCAL"], 0, ((KINDS["EQUALS"], value, 0),), ()),), (), 0))

    def fn(k):
        return k

    made = []

    def callback(cache, function, values):
        made.append(values[0])
        code = fn.__code__.replace(co_consts=(None, len(made)), co_name=f"version_{len(made)}")
        entry = Entry(guard(values[0]), code, None)
        cache.add(entry)
        return entry

    region = Region(callback)
    cache = region.cache_for(fn.__code__)
    for _ in range(3):
        for k in range(20):
            assert cache(fn, k) == k
    assert made == list(range(20))
    gone = weakref.ref(region)
    cache.remove(cache.entries[3])
    for k in range(20):
        assert cache(fn, k) == k
    assert len(made) == 21
    cache.clear()
    gc.collect()
    for k in range(20):
        assert cache(fn, k) == k
    assert len(made) == 41
    del region, cache
    gc.collect()
    assert gone() is None


def codes():
    """64 functions, of which each call gets a new one: only their code tells them apart."""
    made = [compile(str(n), "f", "eval") for n in range(64)]
    return lambda n: FunctionType(made[n], {})


@pytest.mark.parametrize(
    "path, make",
    [
        ((), lambda n: n),
        (("FUNC_CODE",), codes()),
        ((1, 2, 0), lambda n: [None, [1, 2, (n,)]]),  # the variables of frames that a resumed frame goes on for
        ((*[1] * 20, 0), lambda n: functools.reduce(lambda inner, _: ["self", inner], range(20), [n])),
    ],
)
def test_calls_that_come_in_turns_find_their_entries_at_once(path, make):
    tried = []

    def guard(value):
        node = ((KINDS["EQUALS"], value, 0),), ()
        for step in reversed(path):
            kind = (KINDS[step], None) if isinstance(step, str) else (KINDS["INDEX"], step)
            node = (), ((*kind, *node),)
        return GuardProgram((((KINDS["LOCAL"], 0, *node),), (), 0))

    def end_of(value):
        for step in path:
            value = value.__code__ if isinstance(step, str) else value[step]
        return value

    def fn(k):
        return k

    def callback(cache, function, values):
        code = fn.__code__.replace(co_name="version")
        guards = guard(end_of(values[0]))
        entry = Entry(guards, code, None, strict=lambda *evaluation: tried.append(evaluation))
        cache.add(entry)
        return entry

    cache = Region(callback).cache_for(fn.__code__)
    for _ in range(3):
        for k in range(64):
            cache(fn, make(k))
    assert len(cache.entries) == 64
    tried.clear()
    for k in range(64):
        assert end_of(cache(fn, make(k))) == end_of(make(k))
    assert len(tried) <= 70  # two hashes may meet in the hint; two entries never take turns in one slot
