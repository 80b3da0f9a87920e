"""Sets and dicts from outside that a frame only writes to: they are not read, and may have any elements and keys."""

import collections

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from tests.helpers.program_texts import agrees


def test_a_set_that_is_only_added_to_may_have_any_elements():
    """What a step has met: no version per step, and the set is not read."""
    met = set()

    def step(x, i):
        met.add(i)
        met.add("a")
        return x + 1

    log.reset()
    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    for i in range(12):
        compiled(torch.ones(2), i)
        assert met == {*range(i + 1), "a"}
    assert len(log.snapshot()) == 2, "a first step, and one for any number"


ADDED = """
    s.add(n); return len(s), n in s, "a" in s
    s.add(n); s.add("b"); s.discard(0); s.add(n + 1); return sorted(s - {"a", "b"})
    s.add(n); s.remove(n); return sorted(map(str, s))
    s.add(n); s.clear(); return s
    s.add(n); s.add(None); s |= {n + 2}; return s == {0, n, n + 2, None, "a"}
    s.add(n); s.update(s); return [*s] == [*s]
    s.add(s); return n
"""


@pytest.mark.parametrize("line", ADDED.strip().splitlines())
def test_what_is_asked_of_a_set_knows_what_was_added(line):
    agrees(f"""
    def program(s, n):
        {line.strip()}

    def make_args(k):
        return [{{0, "a"}}, k]
    """)


@pytest.mark.parametrize("make", [dict, lambda: collections.defaultdict(list)])
def test_a_dict_that_gets_a_value_for_a_number_may_have_any_keys(make):
    """A history by step: no version per step, and the dict is not read."""
    history = make()

    def step(x, i):
        history[i + 1] = x.sum().item()
        return x + 1

    log.reset()
    compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
    expected = {}
    for i in [*range(12), 3]:
        compiled(torch.full((2,), float(i)), i)
        expected[i + 1] = 2.0 * i
        assert list(history.items()) == list(expected.items())
    assert len(log.snapshot()) == 2, "a first step, and one for any number"


STORED = """
    d[n] = 1; d[0] = 2; return list(d.items())
    d[n] = 1; d[n] = 2; return d[n], len(d)
    d[n] = 1; d[n + 1] = 2; return list(d.items())
    d[n] = 1; return n in d, 1 in d, d.get(0), d.pop(n)
    d[n] = 1; d["a"] = 2; del d[n]; return list(d)
    d[n] = 1; d.clear(); return d
    d[n] = 1; return [*d.values()]
    d[0] = 1; d[n] = 2; return list(d.items())
    d[n] = 1; d.update({n: 4, n + 1: 5}); return d
    d[n] = d; return len(d)
"""


@pytest.mark.parametrize("line", STORED.strip().splitlines())
def test_what_is_asked_of_a_dict_knows_what_was_stored_for_a_number(line):
    agrees(f"""
    def program(d, n):
        {line.strip()}

    def make_args(k):
        return [{{0: 5, 1: 6, "a": 7}}, k]
    """)


def test_what_a_value_for_a_number_replaces_dies_when_it_does_in_eager_execution():
    events = []

    class Noisy:
        def __del__(self):
            events.append("dead")

    def step(x, table, i):
        table[i] = None
        events.append(i)
        return x + 1

    def run(fn):
        events.clear()
        table = {4: Noisy(), 6: Noisy()}
        for i in range(8):
            fn(torch.ones(2), table, i)
        return list(events)

    assert run(dynamo_lite.compile(step, backend="eager")) == run(step)
