"""Dicts, their views and iterators, OrderedDict, defaultdict, Counter, ChainMap, mapping proxies."""

import collections
import dataclasses
import datetime
import enum
import types

from differential import breaks, capture, check, check_lines

from dynamo_lite.config import config
from dynamo_lite.record import log

READ = """
    d["a"], d["b"], d.get("a"), d.get("z"), d.get("z", 5), "a" in d, "z" not in d
    d["z"]
    d[[]]
    [] in d
    d.get([])
    d[1]
    len(d), bool(d), list(d), list(d.keys()), list(d.values()), list(d.items()), [*d], tuple(d)
    d == {"b": [2], "a": 1}, d != {}, d == {"a": 1}, d == 1, {} == {}, {"a": 1, "b": [2]} == d
    d < {}
    d | {"c": 3}, {"a": 0, "c": 1} | d
    d | [("c", 3)]
    {**d, "a": 9}, dict(d), dict(d, c=1), dict(d) is d, d.copy(), d.copy() is d
    repr(d), str(d), f"{d}", "%s" % d, "%(a)s-%(b)s" % d, "{a} {b[0]}".format(**d), "{a}".format_map(d)
    "%(z)s" % d
    hash(d)
    {k: v for k, v in d.items()}, {v: k for k, v in d.items() if k == "a"}, sorted(d), max(d)
    sum(v for v in d.values() if v == 1)
    d.keys() & {"a"}, d.keys() | ["z"], d.keys() - "a", d.keys() ^ {"a", "q"}, {"a"} & d.keys(), ["a"] - d.keys()
    d.keys() == {"a", "b"}, d.keys() <= {"a", "b", "c"}, d.keys() > {"a"}, d.keys() == ["a", "b"], d.keys() != d.keys()
    d.keys().isdisjoint(["x"]), d.keys().isdisjoint(d), "a" in d.keys(), "z" in d.keys(), len(d.items())
    len(d.values())
    ("a", 1) in d.items(), ("a", 2) in d.items(), "a" in d.items(), 1 in d.values(), [2] in d.values(), 7 in d.values()
    list(reversed(d)), list(reversed(d.items())), list(reversed(d.values()))
    repr(d.keys()), repr(d.values()), repr(d.items()), type(d.keys()), type(iter(d)), d.keys().mapping == d
    d.items() == {("a", 1)}
    d.values() == d.values(), d.values() is d.values()
    hash(d.keys())
    d.keys()[0]
    x = d.keys(); d["c"] = 3; return list(x), len(x)
    iter(d), d.keys(), d.values(), d.items()
    it = iter(d.items()); next(it); return it
    it = reversed(d); next(it); return it
    it = iter(d); list(it); return it, list(it)
    k = iter(d); return next(k), next(k), next(k, None)
    d()
    d.x
    d.x = 1
    d.__len__(), d.__getitem__("a"), d.__contains__("b"), d.__eq__({}), d.__or__({}), d.__iter__().__next__()
    dict.__getitem__(d, "a"), dict.get(d, "z"), dict.keys(d), dict.__contains__(d, "a")
    iter(d).__length_hint__(), isinstance(d, dict), type(d), isinstance(d.keys(), collections.abc.KeysView)
    (lambda **kw: kw)(**d), (lambda a, b: a)(**d)
    (lambda a: a)(**d)
    (lambda **kw: kw)(**d, **{"c": 1})
    (lambda **kw: kw)(**d, **{"a": 1})
    (lambda **kw: kw)(**d, a=1)
    (lambda **kw: kw)(**{1: 2})
    (lambda **kw: kw)(**3)
    {**3}
"""

CHANGE = """
    d["c"] = 3; d["a"] = 2; return d
    d[[]] = 1
    del d["a"]; return d
    del d["z"]
    del d[[]]
    d.pop("a"), d.pop("z", 5), d
    d.pop("z")
    d.popitem(), d
    d.clear(); return d
    d.clear(); d.popitem()
    d.setdefault("a", 9), d.setdefault("c", 3), d.setdefault("e"), d
    d.update({"a": 5, "f": 6}); d.update([("g", 7)]); d.update(h=8); d.update(d); d.update(["ij"]); return d
    d.update(5)
    d.update([1])
    d.update(["abc"])
    d.update({"x": 1}, {"y": 2})
    d |= {"c": 3}; d |= [("e", 5)]; return d
    d |= 5
    for k in d: d[k] = 0
    for k in d: d[k + "!"] = 0
    for k in d: del d[k]
    for k in list(d): del d[k]
    it = iter(d); next(it); d["n"] = 1; next(it)
    it = iter(d); next(it); d.clear(); next(it)
    it = iter(d); d["n"] = 1; del d["a"]; return list(it)
    a = d.pop("a"); d["a"] = a; return d
    d["a"], d["b"] = d["b"], d["a"]; return d
    d["self"] = d; return d["self"] is d, repr(d)
    e = d; e["q"] = 1; return d is e, d
    d["x"] = 1; d.pop("x"); return d
    d["x"] = 1; d.pop("x"); d["y"] = 2; d["x"] = 3; return "x" in d, d.get("y")
    d["b"].append(3); return d
    d["n"] = 1; d["n"] += 1; return d["n"]
    d[1] = "int"; d[1.0] = "float"; d[True] = "bool"; return d
    d[None] = 0; d[(1, 2)] = 1; d[1, (2, "x")] = 2; d[frozenset([1])] = 3; d[2 ** 70] = 4; d[len] = 5; return d[1, 2]
    d[None] = 0; d[(1, 2)] = 1; d[1, (2, "x")] = 2; d[frozenset([1])] = 3; d[2 ** 70] = 4; d[len] = 5; return d[len]
    d[None] = 0; d[(1, 2)] = 1; d[1, (2, "x")] = 2; d[frozenset([1])] = 3; d[2 ** 70] = 4; d[len] = 5; return len(d)
    del d["a"]; d["a"] = 5; return list(d)
    del d["a"]; return "a" in d, d.get("a"), len(d)
    d.__setitem__("k", 1); d.__delitem__("a"); d.__ior__({"m": 2}); return d
    d.__init__(z=1); return d
    dict.update(d, a=7); dict.__setitem__(d, "s", 1); dict.pop(d, "b"); return d
"""


def test_reading_a_dict():
    check_lines(READ, d={"a": 1, "b": [2]})


def test_reading_a_new_dict():
    check(*["d = {'a': 1, 'b': [2]}\n" + line.strip() for line in READ.strip().splitlines()])


def test_changing_a_dict():
    check_lines(CHANGE, d={"a": 1, "b": [2]})


def test_changing_a_new_dict():
    check(*["d = {'a': 1, 'b': [2]}\n" + line.strip() for line in CHANGE.strip().splitlines()])


def test_making_dicts():
    check_lines("""
        dict(), dict(a=1), dict({"a": 1}), dict([("a", 1), ["b", 2]]), dict(zip("ab", [1, 2])), dict(["ab"])
        dict({"a": 0}, a=1)
        dict(1)
        dict([1])
        dict({}, {})
        dict.fromkeys("ab"), dict.fromkeys([1, 2], 0), dict.fromkeys({"a": 1}, [])
        dict.fromkeys(5)
        {"a": 1, "a": 2}, {1: "x", True: "y"}, {**{"a": 1}, **{"b": 2}}
        d = dict.fromkeys("ab", []); d["a"].append(1); return d
        {x: y for x, y in [(1, 2)]}, {}, {(): 1}[()], {0: 1}[False], {0.0: 1}[-0.0]
        n = float("nan"); d = {n: 1}; return d[n], n in d, float("nan") in d
    """)


class Key:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return self.n % 2

    def __eq__(self, other):
        return isinstance(other, Key) and self.n == other.n


class Same:
    pass


class Unhashable:
    __hash__ = None


class EqOnly:
    def __eq__(self, other):
        return True


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: str = "x"


NAMES = {
    "Key": Key,
    "Same": Same,
    "Unhashable": Unhashable,
    "EqOnly": EqOnly,
    "Colour": Colour,
    "Level": Level,
    "Frozen": Frozen,
    "collections": collections,
}


def test_keys():
    check_lines(
        """
        d = {Key(1): "a", Key(3): "b"}; d[Key(1)] = "c"; return d[Key(1)], d[Key(3)], len(d), Key(5) in d, Key(3) in d
        s = Same(); d = {s: 1}; return d[s], Same() in d, len({s, s, Same()})
        {Unhashable(): 1}
        {EqOnly(): 1}
        {Colour.RED: 1, Colour.BLUE: 2}[Colour.RED], Colour.RED in {Colour.BLUE: 0}, {Level.LOW: 5}[1]
        {1: 6}[Level.LOW]
        {Frozen(1): "x"}[Frozen(1)], Frozen(1, "y") in {Frozen(1): 0}, len({Frozen(1), Frozen(1), Frozen(2)})
        {int: 1, str: 2, Same: 3}[str], {len: 1}[len], {collections: 1}[collections], {None: 1}[None], {...: 2}[...]
        f = lambda: 1; d = {f: 2}; return d[f]
        s = Same(); m = {(1, s): 2}; return m[1, s], (1, Same()) in m, (s,) in {(s,): 1}
        xs = [1]; m = {xs.append: 1}; return m[xs.append], [].append in m
        {1: "a"}[1.0], {1.0: "a"}[True], {"a": 1}["a"], {b"a": 1}[b"a"], {1j: 2}[1j], {2: "x"}[2 + 0j]
        d = {}; d[id(d)] = 1; return d[id(d)], id(dict) in d, id(d) == id(d)
        s = k; d[s] = 5; return d[s], len(d), k in d
        d[c], c in d, d.get(Colour.BLUE), Key(7) in d, d[Key(9)]
        """,
        NAMES,
        d={Colour.RED: 1, Key(9): 2, "a": 3},
        k=Same(),
        c=Colour.RED,
    )


def test_a_big_dict_is_read_key_by_key():
    d = {f"k{i}": i for i in range(100)}

    def f(d):
        return d["k5"] + d.get("nothing", 1) + ("k7" in d)

    with config.patch(capture_pure_python=True):
        c = capture(f)
        assert c(d) == 7
        d["k99"] = "changed"
        d["more"] = 1
        del d["k50"]
        before = len(log.frames)
        assert c(d) == 7
        assert len(log.frames) == before
        del d["k7"]
        assert c(d) == 6
        d["nothing"] = 10
        assert c(d) == 15


def test_changes_of_single_keys_need_no_guard_on_the_others():
    def f(d, x):
        d["count"] = d["count"] + 1
        d["last"] = x
        return d["count"]

    with config.patch(capture_pure_python=True):
        c = capture(f)
        d = {"count": 0, "other": 1}
        assert c(d, 5) == 1
        assert d == {"count": 1, "other": 1, "last": 5}
        assert list(d) == ["count", "other", "last"]


ORDERED = """
    d["a"], list(d), list(d.items()), len(d), d == {"b": 2, "a": 1}, d == collections.OrderedDict(b=2, a=1), repr(d)
    "a" in d
    d.move_to_end("a"); return d, list(d.keys())
    d.move_to_end("b", last=False); return d
    d.move_to_end("b", False); d["c"] = 3; return d
    d.move_to_end("z")
    d.popitem(), d
    d.popitem(last=False), d
    d.pop("a"), d.pop("z", 0), d
    d.pop("z")
    d.setdefault("z", 1), d.update(b=7), d
    d["a"] = 5; del d["b"]; d["b"] = 1; return d
    list(reversed(d)), list(reversed(d.values())), d.copy(), d | {"c": 3}, {"c": 3} | d, type(d.keys())
    d |= {"c": 1}; return d
    d.clear(); d.popitem()
    for k in d: d[k] = 1
    for k in d: d[k * 2] = 1
    d.x = 1; return d, d.x
    iter(d), d.keys(), d.items()
    {**d}, dict(d), collections.OrderedDict(d), collections.OrderedDict.fromkeys("ab", 1), sorted(d)
    d != collections.OrderedDict(a=1, b=2), collections.OrderedDict([("a", 1), ("b", 2)]) == d
    d.get("a"), d.get("z"), bool(collections.OrderedDict())
    collections.OrderedDict(1)
"""


def test_ordered_dict():
    lines = [line.strip() for line in ORDERED.strip().splitlines()]
    check(*lines, names=NAMES, d=collections.OrderedDict(a=1, b=2))
    check(*["d = collections.OrderedDict(a=1, b=2)\n" + line for line in lines], names=NAMES)


def test_the_order_of_an_ordered_dict_is_guarded():
    with config.patch(capture_pure_python=True):
        c = capture(lambda d: list(d))
        d = collections.OrderedDict(a=1, b=2)
        assert c(d) == ["a", "b"]
        d.move_to_end("a")
        assert c(d) == ["b", "a"]


DEFAULT = """
    d["new"].append(1); d["a"].append(2); return d, len(d)
    d.get("new"), "new" in d, d.default_factory, d
    d.default_factory = None; d["new"]
    d.default_factory = int; d["n"] += 1; return d
    repr(d), str(d), d.copy(), d == {"a": [0]}, d | {"b": 1}, {"b": 1} | d, type(d.copy())
    d.__missing__("q"), d
    d.setdefault("k", 3), d.pop("a"), d
    d[[]]
    {**d}, dict(d), list(d.items())
    collections.defaultdict(int, a=1), collections.defaultdict(None, {"a": 1}), collections.defaultdict()
    collections.defaultdict(5)
    collections.defaultdict(lambda: 7)["x"]
    collections.defaultdict(lambda: 1 // 0)["x"]
    c = collections.defaultdict(lambda: collections.defaultdict(int)); c[1][2] += 1; return {k: dict(c[k]) for k in c}
    c = collections.defaultdict(list); [c[k].append(v) for k, v in [("a", 1), ("b", 2), ("a", 3)]]; return c
"""


def test_default_dict():
    lines = [line.strip() for line in DEFAULT.strip().splitlines()]
    check(*lines, names=NAMES, d=collections.defaultdict(list, a=[0]))
    check(*["d = collections.defaultdict(list, a=[0])\n" + line for line in lines], names=NAMES)


def test_counter():
    check_lines(
        """
        collections.Counter("abca"), collections.Counter(a=1), collections.Counter({"a": 2}), collections.Counter()
        c["a"], c["zzz"], c.most_common(1), c.total(), list(c.elements()), c == collections.Counter("aab")
        c.update("ab"); c.subtract("b"); c["q"] += 1; return c
        c + c, c - collections.Counter("a"), c & c, c | collections.Counter("z"), +c, -c
        del c["a"]; del c["nothing"]; return c
        type(c.copy()), repr(c), dict(c), sorted(c.items())
        """,
        NAMES,
        c=collections.Counter("aab"),
    )


def test_chain_map_and_proxy():
    check_lines(
        """
        m = collections.ChainMap({"a": 1}, d); m["q"] = 5; return m["a"], m["x"], m["q"], list(m), len(m), "zz" in m
        m = collections.ChainMap({"a": 1}, d); m["q"] = 5; return m.maps[0]
        collections.ChainMap({"a": 1})["z"]
        p = types.MappingProxyType(d); return p["x"], "x" in p, len(p), list(p), p.get("z", 1), p == d, p | {"y": 2}
        p = types.MappingProxyType(d); return repr(p), p.copy()
        types.MappingProxyType(d)["z"]
        types.MappingProxyType(d)["z"] = 1
        types.MappingProxyType([1])
        p = types.MappingProxyType(d); d["n"] = 1; return p["n"], list(p.items()), list(reversed(p))
        d.keys().mapping["x"], type(d.keys().mapping)
        """,
        {**NAMES, "types": types},
        d={"x": 1},
    )


class Attr(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __setattr__(self, name, value):
        self[name] = value


class Missing(dict):
    def __missing__(self, key):
        return f"no {key}"


class Loud(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)

    def __iter__(self):
        return iter(["fake"])

    def keys(self):
        return ["k"]

    def __getitem__(self, key):
        return "got"


SUBCLASSES = {"Attr": Attr, "Missing": Missing, "Loud": Loud, "collections": collections}


def test_subclasses():
    check_lines(
        """
        a.x, a.y, a["x"], hasattr(a, "z"), list(a), len(a), isinstance(a, dict), a == {"x": 1, "y": 2}, a.copy()
        repr(a)
        a.z
        a.z = 3; a["w"] = 4; del a["x"]; return a
        b = Attr(x=1); b.n = Attr(); b.n.m = 2; return b, b.n.m, {**b}
        Missing(a=1)["a"], Missing()["q"], Missing().get("q"), "q" in Missing()
        m["q"], m.get("q"), m
        l = Loud(a=1); l["b"] = 2; l.update(c=3); return list(l), dict(l), {**l}, dict.__getitem__(l, "b"), len(l)
        l = Loud(a=1); l["b"] = 2; l.update(c=3); return dict.__repr__(l)
        d = {}; d.update(Loud(a=1)); return d
        collections.OrderedDict(a).popitem(), sorted(a.items()), max(a.values())
        """,
        SUBCLASSES,
        a=Attr(x=1, y=2),
        m=Missing(),
    )


def test_views_and_iterators_from_outside():
    d = {"a": 1, "b": 2}

    def f(view):
        return list(view), len(view)

    with config.patch(capture_pure_python=True):
        for view in (d.keys(), d.values(), d.items()):
            c = capture(f)
            assert c(view) == f(view)
            assert c(view) == f(view)

        def aliased(d, view):
            d["n"] = 1
            return list(view)

        c = capture(aliased)
        assert c(d, d.items()) == [("a", 1), ("b", 2), ("n", 1)]


def test_arguments_that_do_not_fit():
    check_lines(
        """
        d.get()
        d.get(1, 2, 3)
        d.pop()
        d.keys(1)
        d.setdefault()
        d.clear(1)
        d.get(key=1)
        """,
        fullgraph=False,
        d={"a": 1},
    )


def test_breaks():
    breaks("{o: 1}", "unhashable-key", o=datetime.date(2020, 1, 1))
