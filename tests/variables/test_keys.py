"""Objects that hash tables know by their identity: at each call they are the same one, or different ones, as they were."""

import pickle
import weakref

import pytest
from differential import captured, program

from dynamo_lite.record import log


class Thing:
    def method(self):
        return self


class Other:
    """Equal to itself only, by its own account."""

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return 1


KEY = Thing()
NAMES = {
    "KEY": KEY,
    "OTHER": Other(),
    "TABLE": {KEY: 2},
    "SET": {KEY},
    "FROZEN": frozenset({KEY}),
    "WEAK": weakref.WeakKeyDictionary({KEY: 2}),
    "weakref": weakref,
    "pickle": pickle,
}

LOOKUPS = """
    x in TABLE
    TABLE.get(x, 3)
    TABLE[x] if x in TABLE.keys() else 0
    x in SET, x in FROZEN
    x in {KEY}, x in {KEY: 1}
    (x, 1) in {(KEY, 1)}
    frozenset({x}) in {frozenset({KEY})}
    x in WEAK
    weakref.ref(x) in {weakref.ref(KEY)}
    len({x} & SET), len(SET ^ {x}), len(SET | {x}), len(SET - {x})
    {x} <= SET, {x} == {KEY}, SET.isdisjoint([x]), {x: 1} == {KEY: 1}
    t = dict(TABLE); t.setdefault(x, 5); return len(t)
    t = {KEY: 1}; t.pop(x, None); return len(t)
    len(dict.fromkeys([x, KEY])), len(collections.Counter([x, KEY, KEY]))
    collections.ChainMap({x: 1}, {KEY: 2})[KEY]
    x.method in {KEY.method}
    id(x) in {id(KEY)}, {id(KEY): 2}.get(id(x))
"""


def results(f, *values):
    log.reset()
    compiled = captured(f)
    return [compiled(value) for value in (*values, *values)]


@pytest.mark.parametrize("text", [line.strip() for line in LOOKUPS.strip().splitlines()])
def test_an_object_that_becomes_the_key(text):
    f = program(text, ["x"], NAMES)
    expected = [f(Thing()), f(KEY)]
    assert results(f, Thing(), KEY) == expected * 2
    assert [frame.skipped for frame in log.frames] == [None, None]


def test_a_key_that_compares_itself():
    f = program("x in {OTHER}", ["x"], NAMES)
    assert results(f, Other(), NAMES["OTHER"]) == [False, True] * 2


def nested():
    def f():
        return None

    return f


MAKERS = {"object": Thing, "function": nested, "list": list, "class": lambda: type("C", (), {})}

DISTINCTIONS = {
    "set": "len(set(xs))",
    "loop": """
        seen, n = set(), 0
        for x in xs:
            if x not in seen:
                seen.add(x)
                n += 1
        return n
    """,
    "addresses": "len({id(x) for x in xs})",
    "pickle": "len(pickle.dumps(xs))",
}


PAIRS = [
    *((kind, text) for kind in ("object", "function", "class") for text in ("set", "loop", "addresses")),
    *((kind, text) for kind in ("list", "object") for text in ("addresses", "pickle")),
]


@pytest.mark.parametrize("kind, text", dict.fromkeys(PAIRS))
def test_objects_of_which_two_become_one(kind, text):
    f = program(DISTINCTIONS[text], ["xs"], NAMES)
    a, b, c = (MAKERS[kind]() for _ in range(3))
    apart, together = [a, b, c], [a, b, a]
    assert results(f, apart, together) == [f(apart), f(together)] * 2


def test_objects_that_are_different_ones_again_need_no_other_version():
    f = program("len(set(xs)), xs[0] in SET", ["xs"], NAMES)
    values = [[Thing() for _ in range(3)] for _ in range(4)]
    assert results(f, *values) == [(3, False)] * 8
    assert len(log.frames) == 1


def test_keys_of_a_dict_need_no_guard():
    things = [Thing() for _ in range(5)]
    table = {thing: i for i, thing in enumerate(things)}
    f = program("[t[x] for x in xs]", ["xs"], {"t": table})
    compiled = captured(f)
    assert compiled(things) == list(range(5))
    assert "all_distinct" not in log.frames[-1].guards.text()
    assert compiled(things[::-1]) == [4, 3, 2, 1, 0]
