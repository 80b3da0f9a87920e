"""Expressions over what the standard library gives: itertools, functools, collections, the methods of builtin types, iterators.

Each method returns alternatives for one kind of value, as functions without arguments that return text.
"""

from .scope import KINDS, Chooser

METHODS = {
    "str": ("lower()", "title()", "strip('a')", "zfill(4)", "swapcase()", "replace('a', 'bb')", "center(7, '*')", "lstrip('x')"),
    "dict": ("copy()", "__class__()"),
    "list": ("copy()",),
}  # fmt: skip


class Library(Chooser):
    """More alternatives for `Expressions`."""

    def more_int(self, s, d):
        e = lambda kind="int": self.expr(s, kind, d)  # noqa: E731
        v = lambda kind, default: self.variable(s, kind, default)  # noqa: E731
        x = self.fresh("x")
        return [
            lambda: f"({e()} ** 2) % 97",
            lambda: f"({e()} {self.pick(['<<', '>>'])} ({e()} & 3))",
            lambda: f"{self.pick(['~', '+'])}{e()}",
            lambda: f"({e()} % {e()})",
            lambda: f"pow({e()}, 2, 7)",
            lambda: f"rec({e()})",
            lambda: f"call({self.tag()}, {e('func')}, {e()})",
            lambda: f"advance({self.tag()}, {self.generator(s, d)})",
            lambda: f"functools.reduce(lambda {x}, y: {self.inner(s, x, d)} + y, {e('list')}, {e()})",
            lambda: f"{e('list')}.{self.pick(['index', 'count', '__len__', '__getitem__'])}({e()})",
            lambda: (
                f"{e('str')}.{self.pick(['count', 'find', 'index', 'rfind'])}({self.pick(['chr(97)', repr('b'), e('str')])})"
            ),
            lambda: f"int({self.pick([e('str'), e('float'), repr('12'), repr('z')])})",
            lambda: f"round({e('float')})",
            lambda: f"ord({e('str')}[{self.pick(['0', '-1'])}])",
            lambda: f"{self.pick(['min', 'max'])}({e('list')}, key={e('func')}{self.pick(['', ', default=4'])})",
            lambda: f"{self.pick(['min', 'max'])}({e('dict')}.values(), default={e()})",
            lambda: f"next(filter({self.pick(['None', e('func')])}, {e('list')}), {e()})",
            lambda: f"hash(({e()}, {e('str')} == 'a'))",
            lambda: (
                f"{v('deque', 'collections.deque([1])')}.{self.pick(['pop()', 'popleft()', '__len__()', 'count(1)'])}"
            ),
            lambda: f"{v('deque', 'collections.deque([1])')}[{e()}]",
            lambda: f"len({e('view')})",
            lambda: (
                f"(lambda *q, **r: len(q) + len(r))(*{e('list')}, **{self.pick(['{}', repr({'a': 1}), v('dict', '{}')])})"
            ),
            lambda: f"spread({e()}, *{e('list')}{self.pick(['', ', c=' + e(), ', **dict(c=' + e() + ')'])})",
            lambda: f"operator.{self.pick(['add', 'sub', 'mul', 'iadd', 'xor'])}({e()}, {e()})",
            lambda: f"operator.itemgetter({self.pick(['0', '-1', e()])})({e('list')})",
            lambda: f"math.{self.pick(['gcd', 'comb'])}({e()}, {e()})",
            lambda: f"make_counter({e()})()",
            lambda: f"Pair({e()}, {e()}).{self.pick(['x', 'y', 'index(1)', 'total()'])}",
            lambda: f"Point({e()}{self.pick(['', ', ' + e()])}).{self.pick(['x', 'y', 'norm()', 'tags'])}",
            lambda: f"Color({e()}).{self.pick(['value', 'value', 'name'])}",
            lambda: f"({e()}).{self.pick(['__add__', '__mul__', '__rsub__', '__lt__'])}({e()})",
            lambda: f"({e()}).bit_length()",
            lambda: f"bytes({e('list')})[{self.pick(['0', '-1', e()])}]",
            lambda: f"[{x} for {x} in {e('list')} if ({self.fresh('w')} := {x}) > 1][{self.pick(['0', '-1'])}]",
            lambda: f"cached({e()})",
            lambda: f"globals()[{self.pick([repr('G'), repr('missing')])}]",
            lambda: f"Defaults({e('dict')})[{e()}]",
            lambda: f"bisect.{self.pick(['bisect', 'bisect_left'])}({e('list')}, {e()})",
            lambda: f"heapq.heappop({e('list')})",
            lambda: f"heapq.heappushpop({e('list')}, {e()})",
        ]

    def more_bool(self, s, d):
        e = lambda kind="int": self.expr(s, kind, d)  # noqa: E731
        return [
            lambda: f"{self.pick(['any', 'all'])}({self.generator(s, d)})",
            lambda: f"callable({e(self.pick(KINDS))})",
            lambda: (
                f"type({e()}) {self.pick(['is', 'is not', '=='])} {self.pick(['int', 'bool', 'type(' + e('str') + ')'])}"
            ),
            lambda: f"{e('set')} {self.pick(['<=', '<', '>', '==', '!='])} {e('set')}",
            lambda: f"{e('str')} {self.pick(['in', 'not in', '<', '=='])} {e('str')}",
            lambda: f"{e('str')}.{self.pick(['startswith', 'endswith'])}({self.pick([repr('a'), repr(('a', 'x'))])})",
            lambda: f"{e('str')}.{self.pick(['isdigit()', 'isupper()', 'islower()', 'isalpha()'])}",
            lambda: f"{e('float')} {self.pick(['<', '>=', '=='])} {e()}",
            lambda: f"{e()} in {e('view')}",
            lambda: f"{e('dict')} {self.pick(['==', '!=', 'is'])} {e('dict')}",
            lambda: f"{e('tuple')} {self.pick(['==', '<', '>='])} {e('tuple')}",
            lambda: f"hasattr({e('list')}, {self.pick([repr('append'), repr('nothing')])})",
            lambda: f"hasattr({e('obj')}, {self.pick([repr('v'), repr('extra'), repr('p')])})",
            lambda: f"({self.fresh('w')} := {e()}) > 1",
            lambda: f"{e('deque')} == {e('deque')}",
            lambda: f"Pair({e()}, 1) {self.pick(['==', '<', 'is'])} ({e()}, {e()})",
            lambda: f"Point({e()}) {self.pick(['==', '!=', '<'])} Point({e()})",
            lambda: f"Color.RED {self.pick(['is', '==', 'in'])} {self.pick(['Color(1)', 'Color', '[Color.BLUE]'])}",
        ]

    def more_str(self, s, d):
        e = lambda kind="str": self.expr(s, kind, d)  # noqa: E731
        return [
            lambda: f"{e()}.{self.pick(METHODS['str'])}[:9]",
            lambda: f"'{{}}/{{:>3}}'.format({e('int')}, {e('int')})",
            lambda: f"'%s-%d' % ({e(self.pick(['int', 'str']))}, {e('int')})",
            lambda: f"repr({e('float')})[:9]",
            lambda: f"f'{{{self.variable(s, 'int', '1')}!r:>4}}{{{self.variable(s, 'str', 'GL')}:.2}}'",
            lambda: f"chr(97 + {e('int')} % 26)",
            lambda: f"{e()}.{self.pick(['split()', 'partition(chr(98))', 'splitlines()'])}[{self.pick(['0', '-1'])}]",
            lambda: f"{e()}.join([{e()}, {e()}])[:9]",
            lambda: f"{e()}[{e('int')}]",
            lambda: f"({e()} * ({e('int')} % 3))",
            lambda: f"''.join(sorted({e()}))",
            lambda: f"type({e(self.pick(KINDS))}).__name__[:9]",
            lambda: f"repr({self.pick(['Pair(1, ' + e('int') + ')', 'Point(' + e('int') + ')', 'Color.RED'])})",
            lambda: f"bytes({e('list')}).hex()[:8]",
            lambda: f"str({e('int')}.__class__)",
        ]

    def more_list(self, s, d, x):
        e = lambda kind="list": self.expr(s, kind, d)  # noqa: E731
        g = lambda: self.generator(s, d)  # noqa: E731
        k = self.fresh("k")
        return [
            lambda: (
                f"[*{e(self.pick(['tuple', 'set', 'dict', 'deque']))}, *{e()}][:6]"
                if not self.chance(20)
                else f"[*{g()}][:6]"
            ),
            lambda: f"list(itertools.islice({g()}, {self.choose(4)}))",
            lambda: f"list(itertools.chain({e()}, {g()}))[:6]",
            lambda: (
                f"list(itertools.accumulate({e()}{self.pick(['', ', max', ', lambda p, q: stop(' + self.tag() + ', p + q)'])}))"
            ),
            lambda: f"[{k} for {k}, {x} in itertools.groupby({e()}, {e('func')})]",
            lambda: f"[{k} for {k} in map(max, {e()}, {e()})]",
            lambda: f"list({e('dict')}.items())",
            lambda: (
                f"{e()}[{self.pick(['', e('int')])}:{self.pick(['', e('int')])}{self.pick(['', ':-1', ':' + e('int')])}]"
            ),
            lambda: f"({e()} * ({e('int')} % 3))[:6]",
            lambda: f"[f() for f in [lambda: {x} for {x} in {e()}]]",
            lambda: f"[f({e('int')}) for f in [(lambda q, r={x}: q + r) for {x} in {e()}]]",
            lambda: f"[[{self.inner(s, x, 0)} for {x} in range({k} % 3)] for {k} in {e()}]",
            lambda: f"sorted({e()}, key={e('func')}, reverse={e('bool')})",
            lambda: f"sorted({e('dict')})",
            lambda: f"list({e('deque')})",
            lambda: f"list({e('view')})",
            lambda: f"{e()}.copy()",
            lambda: f"(lambda {k}: [*zip({k}, {k})])(iter({e()}))",
            lambda: f"({self.fresh('w')} := {e()})",
            lambda: f"[{self.walrus(s, x)} for {x} in {e()}]",
            lambda: f"list(itertools.{self.pick(['takewhile', 'dropwhile', 'filterfalse'])}({e('func')}, {e()}))",
            lambda: f"list(itertools.product({e()}[:2], {e()}[:2]))",
            lambda: f"list(itertools.zip_longest({e()}, {e()}))[:4]",
            lambda: f"list(itertools.pairwise({g()}))",
            lambda: f"list(enumerate({g()}))[:4]",
            lambda: f"{e('str')}.split({self.pick(['', repr('a')])})",
            lambda: f"list({e('str')})",
            lambda: f"[ord({x}) for {x} in {e('str')}]",
            lambda: f"list(dict.fromkeys({e()}))",
            lambda: f"[{x} for {x} in {e()} for {k} in range({x} % 3) if {k} != {self.variable(s, 'int', '1')}]",
            lambda: f"list(zip(*[{e()}, {e()}]))",
            lambda: f"(lambda *q, **r: [*q, *r.values()])(*{e()}, z={e('int')})",
            lambda: f"heapq.{self.pick(['nsmallest', 'nlargest'])}({e('int')} % 4, {e()})",
            lambda: f"list(Pair({e('int')}, {e('int')})._asdict().values())",
            lambda: f"Items({e()}){self.pick(['', '[:2]', '.first()'])}",
            lambda: f"vars({e('obj')}).setdefault('extra', {e()})",
        ]

    def more_dict(self, s, d):
        e = lambda kind="int": self.expr(s, kind, d)  # noqa: E731
        x = self.fresh("x")
        return [
            lambda: f"dict.fromkeys({e('list')}, {e()})",
            lambda: f"collections.Counter({e(self.pick(['list', 'str']))})",
            lambda: f"collections.defaultdict({self.pick(['int', 'lambda: ' + e()])}, {e('dict')})",
            lambda: f"collections.OrderedDict({e('dict')})",
            lambda: f"dict({e('dict')}, z={e()})",
            lambda: f"{e('dict')}.copy()",
            lambda: f"Defaults({e('dict')})",
            lambda: f"collections.ChainMap({e('dict')}, {e('dict')})",
            lambda: f"{{{x}: [{x}] for {x} in {e('list')} if {self.inner(s, x, d)}}}",
            lambda: f"{{k: v for k, v in zip({self.generator(s, d)}, {e('list')})}}",
            lambda: f"{{k: v for k, v in sorted({e('dict')}.items(), key=lambda p: p[1])}}",
            lambda: f"({e('dict')} or {e('dict')})",
        ]

    def more_set(self, s, d):
        e = lambda kind="set": self.expr(s, kind, d)  # noqa: E731
        return [
            lambda: f"frozenset({e()})",
            lambda: f"{e()}.{self.pick(['union', 'intersection', 'difference', 'symmetric_difference'])}({e('list')})",
            lambda: f"set(map(abs, {e('list')}))",
            lambda: f"{e()}.copy()",
        ]

    def more_tuple(self, s, d):
        e = lambda kind="int": self.expr(s, kind, d)  # noqa: E731
        return [
            lambda: f"({e('tuple')} + {e('tuple')})[:4]",
            lambda: f"{e('tuple')}[{self.pick(['1:', ':1', '::-1'])}]",
            lambda: f"Pair({e()}, {e()}){self.pick(['', '._replace(x=' + e() + ')'])}",
            lambda: f"({e('bool')}, {e('float')})",
            lambda: f"max([({e()}, 1), ({e()}, 2)])",
            lambda: f"{e('str')}.partition('a')",
            lambda: f"next(zip({e('list')}, {e('list')}), (0, 0))",
            lambda: f"tuple({self.generator(s, d)})",
        ]

    def more_func(self, s, d):
        e = lambda kind="int": self.expr(s, kind, d)  # noqa: E731
        x = self.fresh("q")
        return [
            lambda: f"{self.variable(s, 'list', 'GL')}.{self.pick(['__contains__', 'count', '__len__'])}",
            lambda: f"{self.variable(s, 'dict', 'GD')}.{self.pick(['get', '__contains__', '__getitem__'])}",
            lambda: f"make_counter({e()})",
            lambda: f"functools.partial({e('func')}, {e()})",
            lambda: f"functools.partial(spread, c={e()})",
            lambda: f"(lambda {x}={e()}: {x})",
            lambda: f"(lambda {x}: lambda: {x})({e()}).__call__",
            lambda: f"(lambda {x}: [{x}, {e('list')}][{x} % 2])",
            lambda: self.pick(["bool", "str", "rec", "bump", "cached", "hash", "repr"]),
            lambda: f"wrapper({e('func')})",
            lambda: f"stop({self.tag()}, {e('func')})",
            lambda: "operator.neg",
        ]

    def e_float(self, s, depth):
        if depth <= 0:
            return self.variable(s, "float", "1.5")
        d = depth - 1
        e = lambda kind="float": self.expr(s, kind, d)  # noqa: E731
        return self.pick([
            lambda: self.variable(s, "float", "1.5"),
            lambda: f"({e(self.pick(['int', 'float']))} {self.pick(['+', '-', '*'])} {e()})",
            lambda: f"({e('int')} / {e('int')})",
            lambda: f"float({self.pick([e('int'), e('bool'), repr('1e3'), e('str')])})",
            lambda: f"math.{self.pick(['sqrt', 'floor', 'fabs'])}({e(self.pick(['int', 'float']))})",
            lambda: f"round({e()}, 1)",
            lambda: f"abs({e()})",
            lambda: f"stop({self.tag()}, {e()})",
            lambda: f"sum([{e()}, {e()}], {e('int')})",
            lambda: f"(-{e()} // {e('int')})",
            lambda: f"({e()} if {self.expr(s, 'bool', d)} else {e('int')})",
        ])()  # fmt: skip

    def e_deque(self, s, depth):
        if depth <= 0:
            return self.variable(s, "deque", "collections.deque([1])")
        d = depth - 1
        e = lambda kind="list": self.expr(s, kind, d)  # noqa: E731
        return self.pick([
            lambda: self.variable(s, "deque", "collections.deque([1])"),
            lambda: f"collections.deque({e()}{self.pick(['', ', 3', ', maxlen=' + e('int')])})",
            lambda: f"collections.deque({self.generator(s, d)}, 4)",
            lambda: f"({e('deque')} + {e('deque')})",
            lambda: f"{e('deque')}.copy()",
            lambda: f"stop({self.tag()}, {e('deque')})",
        ])()  # fmt: skip

    def e_view(self, s, depth):
        dictionary = (
            self.expr(s, "dict", depth - 1) if depth > 0 and self.chance(40) else self.variable(s, "dict", "GD")
        )
        return self.variable(s, "view", "") or f"{dictionary}.{self.pick(['keys', 'items', 'values'])}()"

    def iterators(self, s, d):
        """Iterators of every kind, none of them infinite."""
        e = lambda kind="list": self.expr(s, kind, d)  # noqa: E731
        g = lambda: self.generator(s, d - 1) if d > 0 else "iter([3, 4])"  # noqa: E731
        x = self.fresh("x")
        return [
            lambda: f"iter({e(self.pick(['dict', 'view', 'tuple', 'set', 'str', 'deque']))})",
            lambda: f"map({e('func')}, {e()})",
            lambda: f"filter({self.pick(['None', e('func')])}, {g()})",
            lambda: f"zip({g()}, {e()})",
            lambda: f"enumerate({g()}, {self.choose(3)})",
            lambda: f"reversed({e(self.pick(['list', 'dict', 'deque']))})",
            lambda: f"({x} for {x} in {g()} if {self.inner(s, x, d)})",
            lambda: f"itertools.chain({g()}, {g()})",
            lambda: f"itertools.chain.from_iterable([{e()}, {g()}])",
            lambda: f"itertools.islice({g()}, {self.choose(3)}, None)",
            lambda: f"itertools.islice(itertools.{self.pick(['count', 'repeat'])}({e('int')}), {self.choose(4)})",
            lambda: f"itertools.tee({g()})[{self.choose(2)}]",
            lambda: f"itertools.compress({g()}, {e()})",
            lambda: f"itertools.starmap({e('func')}, zip({g()}))",
            lambda: f"iter({self.variable(s, 'list', 'GL')}.pop, {e('int')})",
            lambda: f"iter(Items({e()}))",
            lambda: f"stop({self.tag()}, {g()})",
            lambda: f"Countdown({e('int')})",
        ]
