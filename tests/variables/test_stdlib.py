"""Standard library code on top of the models: copy, dataclasses, re, contextlib, SimpleNamespace, singledispatch."""

import contextlib
import copy
import dataclasses
import functools
import json
import re
import string
import textwrap
import types

import pytest

from tests.helpers.capturing import same, wrapped
from tests.helpers.differential import check, check_lines


class Pair:
    def __init__(self):
        self.a = [1]
        self.b = {"x": self.a}


class Slotted:
    __slots__ = ("u", "v")

    def __init__(self):
        self.u = 1
        self.v = [2]


class Copies:
    def __init__(self):
        self.log = []

    def __copy__(self):
        self.log.append("copied")
        return self


class Items(list):
    pass


@dataclasses.dataclass
class Data:
    a: int = 1
    b: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.b.append(self.a)


@dataclasses.dataclass(order=True, frozen=True)
class Frozen:
    a: int = 1


@functools.singledispatch
def kind(x):
    return "object"


@kind.register
def _(x: int):
    return "int"


NAMES = {
    **{c.__name__: c for c in (Pair, Slotted, Copies, Items, Data, Frozen)},
    **{m.__name__: m for m in (contextlib, copy, dataclasses, re, string, textwrap, types)},
}


def test_copy():
    check_lines(
        """
        copy.copy(xs), copy.copy({"a": xs}), copy.copy((1, 2)), copy.copy({1}), copy.copy(5), copy.copy(None)
        copy.copy(xs) is xs
        copy.deepcopy(xs), copy.deepcopy({"a": [1]}), copy.deepcopy((1, [2])), copy.deepcopy({1})
        copy.deepcopy(frozenset([1]))
        q = copy.deepcopy([xs, xs]); return q[0] is q[1], q[0] is xs, q
        xs.append(xs); q = copy.deepcopy(xs); return q[-1] is q, q is xs
        q = copy.deepcopy(p); return q, q.a is q.b["x"], q.a is p.a
        q = copy.copy(p); q.c = 1; return q, q.a is p.a, hasattr(p, "c")
        copy.copy(Slotted()).v, copy.deepcopy(Slotted()).v, copy.copy(Items([1])), copy.deepcopy(Items([[1]]))
        copy.deepcopy(collections.OrderedDict(a=[1])), copy.copy(collections.OrderedDict(a=1))
        copy.copy(collections.deque([1], 3))
        copy.deepcopy(collections.defaultdict(list, a=[1]))
        copy.copy(Copies()).log
        """,
        NAMES,
        xs=[1, [2]],
        p=Pair(),
    )
    check("copy.deepcopy(collections.deque([[1]], 3))", names=NAMES, fullgraph=False)


def test_dataclasses():
    check_lines(
        """
        Data(), Data(5), Data(b=[1]), Data() == Data(), Data() == 5, repr(Data()), str(Data(2))
        dataclasses.replace(Data(), a=3), dataclasses.asdict(Data(b=[Data()])), dataclasses.astuple(Data())
        dataclasses.fields(Data)[0].name
        Frozen(1) < Frozen(2), hash(Frozen(1)) == hash(Frozen(1)), sorted([Frozen(2), Frozen(1)])
        dataclasses.is_dataclass(Frozen), {Frozen(1): 1}[Frozen(1)]
        Frozen(1).a = 2
        d.a += 1; d.b.append(d.a); return d, repr(d)
        """,
        NAMES,
        d=Data(),
    )


def test_namespaces():
    check_lines(
        """
        n = types.SimpleNamespace(a=1, b=[2]); n.c = 3; del n.a; return n, n.b, n.c, repr(n), vars(n)
        n = types.SimpleNamespace(a=1, b=[2]); n.c = 3; del n.a; return n == types.SimpleNamespace(b=[2], c=3), n != n
        types.SimpleNamespace(a=1) < types.SimpleNamespace()
        n.a, n == n, n == 5, repr(n), hasattr(n, "zz"), n.__dict__
        n.a = 5; n.new = n; return n.a, n.new is n, repr(n)
        """,
        NAMES,
        n=types.SimpleNamespace(a=1),
    )


def test_regular_expressions():
    check_lines(
        """
        re.sub("a", "b", "aaa"), re.match("(a)(b)?", "ac").groups(), re.compile("a").findall("aab")
        re.split(",", "a,b"), re.search("z", "a")
        m = p.match("abc"); return m.group(), m.start(), m.span(), m[0], m.re is p, p.pattern, bool(m)
        p.sub("x", s), p.subn("x", s), re.escape("a.b"), re.fullmatch("a+", "aaa").end(), bool(re.search("b", s))
        textwrap.dedent("  a"), string.capwords("a b"), string.ascii_letters[:3]
        """,
        NAMES,
        p=re.compile("ab?"),
        s="abaab",
    )
    check_lines(
        """
        p.findall(s), re.sub("a", lambda m: m.group() + s, "ab")
        """,
        NAMES,
        p=re.compile("ab?"),
        s="abaab",
        fullgraph=False,
    )


def test_context_managers_and_dispatch():
    check_lines(
        """
        with contextlib.suppress(KeyError): {}["a"]
        with contextlib.nullcontext(5) as v: return v
        with contextlib.ExitStack() as stack: return stack.enter_context(contextlib.nullcontext(3))
        m = types.MethodType(lambda self, x: (self, x), 5); return m(6), m.__self__, types.MethodType(len, [1])()
        types.MethodType(5, 5)
        types.MethodType(len, None)
        kind(5), kind("a")
        """,
        {**NAMES, "kind": kind},
    )


class TestDataclasses:
    def test_plain_and_frozen(self):
        def program():
            @dataclasses.dataclass
            class P:
                x: int
                y: int = 3

            @dataclasses.dataclass(frozen=True, order=True, slots=True)
            class Q:
                x: int
                y: list = dataclasses.field(default_factory=list)

            q = Q(1)
            try:
                q.x = 3
            except dataclasses.FrozenInstanceError as error:
                message = str(error)
            return (
                P(1) == P(1, 3),
                dataclasses.asdict(P(2)),
                P.__doc__,
                q < Q(2),
                message,
                dataclasses.astuple(dataclasses.replace(q, x=4)),
                Q.__slots__,
            )

        same(program)  # `dataclasses` makes methods by `exec`


@pytest.mark.usefixtures("pure_python")
class TestRegularExpressions:
    def test_replacement_by_a_function(self):
        def program(x):
            seen = []

            def replace(m):
                seen.append(m.start())
                return m.group(1) + x

            return re.sub(r"(\w)\d", replace, "a1b2"), seen

        assert wrapped(program)("!") == program("!")

    def test_finditer_leaves_where_it_is(self):
        def program(x):
            found = re.finditer("a", "banana")
            next(found)
            return found

        rest = wrapped(program)(0)
        assert type(rest) is type(program(0))
        assert [m.span() for m in rest] == [(3, 4), (5, 6)]

    def test_templates_and_formatters(self):
        def program(x):
            text = string.Template("$who likes ${what}").substitute(who="tim", what=x)
            return text, string.Formatter().format("{0}{1:>4} {x[0]} {x!r}", 1, x, x=[5])

        assert wrapped(program)("z") == program("z")


class TestJson:
    @pytest.mark.usefixtures("pure_python")
    def test_json_of_constants(self):
        def program(x):
            return json.dumps({"a": [1, 2, {"b": None}], "c": x}), json.loads('{"a": [1, 2.5, "x"]}')["a"]

        assert wrapped(program)(5) == program(5)
