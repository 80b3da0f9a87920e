"""collections.deque."""

import collections

from differential import check

D = collections.deque
LINES = """
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
    d.count(1), d.index(2), 2 in d, 9 in d
    d.index(9)
    d.index(3, 0, 1)
    d.insert(1, 9); return d
    d.remove(2); return d
    d.remove(9)
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
    e = collections.deque([1, 2], 2); e.insert(0, 1)
    d.__len__(), d.__getitem__(0), d.__contains__(1), d.__add__(d), d.__eq__(d), d.__copy__()
"""


def test_deques():
    lines = [line.strip() for line in LINES.strip().splitlines()]
    check(*lines, d=D([1, 2, 3]))
    check(*["d = collections.deque([1, 2, 3])\n" + line for line in lines])


def test_bounded_from_outside():
    check("d.append(5)\nd.extend([6, 7])\nreturn d, list(d)", "d.maxlen, d[0], repr(d)", d=D([1, 2], maxlen=2))


class Log(D):
    def append(self, x):
        super().append((len(self), x))


def test_subclass():
    check("l.append('a')\nl.append('b')\nreturn l, len(l)", "Log([1]), Log('ab', 1)", names={"Log": Log}, l=Log([0]))
