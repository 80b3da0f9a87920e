"""Statements about containers and iterators, one program per line, for `differential.check`."""


class Index:
    def __init__(self, i):
        self.i = i

    def __index__(self):
        return self.i


class Always:
    def __eq__(self, other):
        return True


LIST_NAMES = {"Index": Index, "Always": Always}


LIST_CHANGES = """
    xs.append(4); xs.append(xs[0]); return xs
    xs.extend([4, 5]); xs.extend((6,)); xs.extend("ab"); xs.extend(i for i in range(2)); xs.extend({7: 8}); return xs
    xs.extend(xs); return xs
    xs.extend(3)
    xs.insert(0, 9); xs.insert(-1, 8); xs.insert(100, 7); xs.insert(-100, 6); return xs
    xs.insert("a", 1)
    xs.pop(), xs.pop(0), xs
    xs.pop(-1), xs.pop(Index(0)), xs
    xs.pop(7)
    xs.pop("a")
    [].pop()
    xs.remove(1); return xs
    xs.remove(9)
    xs.clear(); return xs
    xs.reverse(); return xs
    xs.sort(); return xs
    xs.sort(reverse=True); return xs
    xs.sort(key=lambda x: -x); return xs
    xs.sort(key=lambda x: x % 2, reverse=True); return xs
    xs.sort(key=None, reverse=False); return xs
    xs.append("a"); xs.sort(); return xs
    xs[0] = 9; xs[-1] = 8; return xs
    xs[5] = 1
    xs["a"] = 1
    xs[1:2] = [7, 8, 9]; return xs
    xs[:] = (); return xs
    xs[::2] = "ab"; return xs
    xs[::2] = "abc"
    xs[::-1] = "abc"; return xs
    xs[5:1] = [0]; return xs
    xs[1:] = 5
    xs[::2] = 5
    xs[:] = xs; xs[1:1] = xs; return xs
    del xs[0]; del xs[-1]; return xs
    del xs[7]
    del xs["a"]
    del xs[:2]; return xs
    del xs[::2]; return xs
    xs += [4]; xs += (5,); xs += "a"; return xs
    ys = xs; ys += [4]; return xs is ys, xs
    xs += 3
    xs *= 2; return xs
    xs *= 0; return xs
    xs *= "a"
    ys = xs; ys.append(1); xs.append(ys); return xs[-1] is xs, len(xs)
    xs.append(xs); return repr(xs)
    xs.__setitem__(0, 5); xs.__delitem__(1); xs.__iadd__([1]); xs.__imul__(2); return xs
    xs.__init__([7]); return xs
    xs.__init__(); return xs
    list.append(xs, 3); list.sort(xs); return xs
    for x in xs: xs.append(x) if len(xs) < 6 else None
    it = iter(xs); next(it); xs.pop(); return list(it), list(it)
    it = iter(xs); list(it); xs.append(5); return list(it)
    it = reversed(xs); next(it); xs.pop(); xs.pop(); return list(it)
    it = iter(xs); next(it); return it
    it = reversed(xs); next(it); return it
    it = iter(xs); list(it); return it
    return iter(xs), reversed(xs)
    xs.new = 1
    xs.append = 1
"""


DICT_READS = """
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
    repr(d), str(d), f"{d}", "%s" % d, "%(a)s-%(b)s" % d, "{a} {b[0]}".format(**d)
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
    isinstance(d, dict), type(d), isinstance(d.keys(), collections.abc.KeysView)
    (lambda **kw: kw)(**d), (lambda a, b: a)(**d)
    (lambda a: a)(**d)
    (lambda **kw: kw)(**d, **{"c": 1})
    (lambda **kw: kw)(**d, **{"a": 1})
    (lambda **kw: kw)(**d, a=1)
    (lambda **kw: kw)(**{1: 2})
    (lambda **kw: kw)(**3)
    {**3}
"""


DICT_CHANGES = """
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


ORDERED_DICTS = """
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
    {**d}, dict(d), collections.OrderedDict(d), sorted(d)
    d != collections.OrderedDict(a=1, b=2), collections.OrderedDict([("a", 1), ("b", 2)]) == d
    d.get("a"), d.get("z"), bool(collections.OrderedDict())
    collections.OrderedDict(1)
"""


DEFAULT_DICTS = """
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


SET_CHANGES = """
    s.add(5); s.add(1); s.add("b"); return s
    s.add([])
    s.remove(1); return s
    s.remove(9)
    s.remove({1})
    s.discard(1); s.discard(9); return s
    s.discard([])
    s.clear(); return s
    s.clear(); s.pop()
    s.update([7], {8}, "cd"); s.update(); return s
    s.update(5)
    s.intersection_update([1, "a"], {1}); return s
    s.difference_update([1], ["a"]); return s
    s.symmetric_difference_update([1, 9]); return s
    s |= {4}; s &= {1, 4}; return s
    s -= {1}; s ^= {2, 3}; return s
    t = s; t |= {4}; return s is t, s
    s |= [4]
    s -= s; return s
    s ^= s; return s
    for x in s: s.add(x)
    for x in s: s.add(100)
    for x in list(s): s.discard(x)
    it = iter(s); next(it); s.add(99); next(it)
    s.__init__([3]); return s
    s.__init__(); return s
    s.__ior__({9}); s.__isub__({1}); return s
    set.add(s, 4); set.update(s, [5]); return s
    t = {1}; s.add(frozenset(t)); s.remove(t); return s
"""


DEQUES = """
    d.append(4); d.appendleft(0); return d, len(d), bool(d), list(d)
    d.extend([7, 8]); d.extendleft("ab"); d.extend(d); return d
    d.pop(), d.popleft(), d
    d.clear(); d.pop()
    d.clear(); d.popleft()
    d[0], d[-1], d[1]
    d[9]
    d["a"]
    d[1:2]
    d[0] = 5; d[-1] = 6; return d
    d[9] = 1
    del d[0]; return d
    del d[7]
    d.rotate(); return d
    d.rotate(-2); return d
    d.reverse(); return d
    2 in d, 9 in d
    d + d, d * 2, 2 * d, d == collections.deque([1, 2, 3]), d < collections.deque([2]), d == [1, 2, 3], d.copy()
    d.maxlen
    d + [1]
    d += [5]; d *= 2; return d
    repr(d), str(d), type(d), isinstance(d, collections.deque), hasattr(d, "append")
    for x in d: d.append(x)
    it = iter(d); next(it); return it, list(reversed(d))
    it = reversed(d); next(it); return it
    a, *b = d; return a, b
    [x + 1 for x in d], sorted(d), sum(d), max(d)
    d.maxlen = 3
    e = collections.deque(d, maxlen=2); e.append(9); e.appendleft(8); return e, e.maxlen, e + e, e.copy()
    collections.deque(maxlen=0), collections.deque([1], None), collections.deque()
    collections.deque(5)
    collections.deque([], -1)
    collections.deque([], "a")
    d.__len__(), d.__getitem__(0), d.__contains__(1), d.__add__(d), d.__eq__(d), d.__copy__()
"""

BREAKING_DEQUES = """
    d.count(1), d.index(2)
    d.index(9)
    d.index(3, 0, 1)
    d.insert(1, 9); return d
    d.remove(2); return d
    d.remove(9)
    e = collections.deque([1, 2], 2); e.insert(0, 1)
"""


ITERTOOLS = """
    c = itertools.count(5, 2); return next(c), next(c), c
    list(zip(itertools.count(), xs)), list(zip(itertools.count(1.5, -0.5), "ab")), next(itertools.count(start=3))
    next(itertools.count(step=3))
    list(itertools.repeat(1, 3)), list(itertools.repeat("a", times=0)), list(map(pow, xs, itertools.repeat(2)))
    list(itertools.repeat(1, -2))
    r = itertools.repeat(xs, 3); next(r); return r
    c = itertools.cycle(xs); a = [next(c) for _ in range(5)]; return a, c
    c = itertools.cycle(xs); next(c); return c
    list(itertools.islice(itertools.cycle("ab"), 5)), list(itertools.cycle([]))
    list(itertools.chain(xs, "ab", ())), list(itertools.chain()), list(itertools.chain.from_iterable([xs, "c"]))
    list(itertools.chain([1], iter([2])))
    c = itertools.chain(xs, "ab"); next(c); return c
    c = itertools.chain(xs, "ab"); return c, list(c)
    list(itertools.chain(xs, 5))
    list(itertools.chain.from_iterable(5))
    list(itertools.islice(xs, 2)), list(itertools.islice(xs, 1, None)), list(itertools.islice(xs, 0, 9, 2))
    list(itertools.islice("abc", None)), list(itertools.islice(xs, 0))
    it = iter(xs); list(itertools.islice(it, 1)); return list(it)
    it = iter(xs); list(itertools.islice(it, 1, 2)); return list(it)
    s = itertools.islice(xs, 0, 3, 2); next(s); return s
    list(itertools.accumulate(xs)), list(itertools.accumulate(xs, lambda a, b: a * b))
    list(itertools.accumulate(xs, initial=10)), list(itertools.accumulate([])), list(itertools.accumulate("abc"))
    list(itertools.accumulate(xs, max)), list(itertools.accumulate(xs, func=operator.mul, initial=None))
    list(itertools.accumulate([], initial=1))
    a = itertools.accumulate(xs); next(a); return a
    a = itertools.accumulate(xs, initial=5); return a
    list(itertools.starmap(pow, [(2, 3), [3, 2]])), list(itertools.starmap(lambda *a: a, [(), (1,)]))
    list(itertools.starmap(pow, [5]))
    list(itertools.takewhile(lambda x: x < 3, xs)), list(itertools.dropwhile(lambda x: x < 2, xs))
    list(itertools.filterfalse(lambda x: x == 2, xs)), list(itertools.filterfalse(None, [0, 1]))
    t = itertools.takewhile(lambda x: x < 2, xs); next(t), next(t, 0), next(t, 0); return t
    d = itertools.dropwhile(lambda x: x < 2, xs); next(d); return d
    list(itertools.compress(xs, [1, 0, True])), list(itertools.compress("abc", itertools.repeat(1, 2)))
    list(itertools.pairwise(xs)), list(itertools.pairwise([1])), list(itertools.pairwise(""))
    p = itertools.pairwise(xs); next(p); return p
    list(itertools.zip_longest(xs, "a")), list(itertools.zip_longest(xs, "ab", fillvalue=0))
    list(itertools.zip_longest()), list(itertools.zip_longest("", []))
    z = itertools.zip_longest(xs, "a"); next(z), next(z); return z
    list(itertools.product(xs, "ab")), list(itertools.product([0, 1], repeat=2)), list(itertools.product())
    list(itertools.product([], xs)), list(itertools.product(xs, repeat=0))
    itertools.product(xs, repeat=-1)
    p = itertools.product(xs, "ab"); next(p); return p
    list(itertools.permutations(xs)), list(itertools.permutations(xs, 2)), list(itertools.permutations(xs, 5))
    list(itertools.permutations([], None))
    itertools.permutations(xs, -1)
    itertools.permutations(xs, "a")
    list(itertools.combinations(xs, 2)), list(itertools.combinations(xs, 0)), list(itertools.combinations(xs, 9))
    list(itertools.combinations_with_replacement("ab", 2))
    itertools.combinations(xs, -1)
    [(k, list(g)) for k, g in itertools.groupby("aabbba")]
    [(k, len(list(g))) for k, g in itertools.groupby(xs, key=lambda x: x > 1)]
    g = itertools.groupby("aab"); k, grp = next(g); k2, grp2 = next(g); return list(grp), list(grp2), k, k2
    g = itertools.groupby("aab"); k, grp = next(g); return next(grp), list(g)[0][0]
    a, b = itertools.tee(xs); return next(a), list(b), list(a), list(b)
    a, b, c = itertools.tee(iter(xs), 3); next(a); d, e = itertools.tee(a); return list(c), list(d), list(e), list(b)
    itertools.tee(xs, 0), type(itertools.tee(xs)[0])
    sorted(itertools.chain(xs, xs), key=lambda x: -x), sum(itertools.chain([1], [2]))
    dict(itertools.zip_longest("ab", xs))
    next(itertools.chain([], [7])), isinstance(itertools.count(), itertools.count), type(itertools.chain())
"""
