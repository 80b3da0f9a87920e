"""Dicts, their views and iterators, OrderedDict, defaultdict, Counter, ChainMap, mapping proxies."""

import collections
import dataclasses
import datetime
import enum
import importlib
import sys
import types

import pytest

from dynamo_lite.config import config
from dynamo_lite.record import log
from tests.helpers.capturing import captured, same, stop
from tests.helpers.container_programs import DEFAULT_DICTS, DICT_CHANGES, DICT_READS, ORDERED_DICTS
from tests.helpers.differential import breaks, capture, check, check_lines
from tests.helpers.program_texts import agrees


def test_reading_a_dict():
    check_lines(DICT_READS, d={"a": 1, "b": [2]})


def test_reading_a_new_dict():
    check(*["d = {'a': 1, 'b': [2]}\n" + line.strip() for line in DICT_READS.strip().splitlines()])


def test_changing_a_dict():
    check_lines(DICT_CHANGES, d={"a": 1, "b": [2]})


def test_changing_a_new_dict():
    check(*["d = {'a': 1, 'b': [2]}\n" + line.strip() for line in DICT_CHANGES.strip().splitlines()])


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


def test_ordered_dict():
    lines = [line.strip() for line in ORDERED_DICTS.strip().splitlines()]
    check(*lines, names=NAMES, d=collections.OrderedDict(a=1, b=2))
    check(*["d = collections.OrderedDict(a=1, b=2)\n" + line for line in lines], names=NAMES)


def test_the_order_of_an_ordered_dict_is_guarded():
    with config.patch(capture_pure_python=True):
        c = capture(lambda d: list(d))
        d = collections.OrderedDict(a=1, b=2)
        assert c(d) == ["a", "b"]
        d.move_to_end("a")
        assert c(d) == ["b", "a"]


def test_default_dict():
    lines = [line.strip() for line in DEFAULT_DICTS.strip().splitlines()]
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


class TestDicts:
    def test_bound_class_method_of_a_builtin_across_a_break(self):
        def program():
            f = {}.fromkeys
            stop()
            return f("ab")

        same(program)

    def test_merging_a_dict_that_a_comparison_changes(self):
        def program():
            class X:
                def __hash__(self):
                    return 0

                def __eq__(self, other):
                    changed.clear()
                    return False

            changed = dict.fromkeys(range(1, 10), 0)
            changed[X()] = 0
            target = {X(): 0, 1: 1}
            try:
                target.update(changed)
            except RuntimeError as error:
                return str(error), len(changed)

        same(program, breaks=["class-definition"])

    def test_constant_tuples_as_keys(self):
        def program():
            d = {(1, 1): 11, (2, 2): 22}
            return d.keys() == {1: 1, 2: 2}.items(), d

        same(program, whole=True)

    def test_pure_python_ordered_dict(self):
        ordered = fresh_python("collections", "_collections").OrderedDict

        def program():
            d = ordered(a=1, b=2, c=3)
            d.move_to_end("a")
            del d["b"]
            stop()
            d["x"] = 9
            return list(d.items()), list(reversed(d)), d == {"c": 3, "a": 1, "x": 9}

        same(program)

    def test_a_string_subclass_beside_an_object_that_equals_it(self):
        class Text(str):
            pass

        def program():
            class Like:
                def __hash__(self):
                    return hash("key")

                def __eq__(self, other):
                    return isinstance(other, (str, Like)) and other == "key"

            d = {"a": 1, Text("key"): 2}
            found = d.get(Like()), d.get("key"), d[Text("key")]
            stop()
            return found, d.get(Like()), d.get("key"), d.pop(Like())

        same(program)

    def test_popitem_of_a_dict_from_outside(self):
        def program(d):
            return d.popitem(), d.popitem()

        made, expected = {"x": 1, "y": 2, "z": 3}, {"x": 1, "y": 2, "z": 3}
        assert captured(program)(made) == program(expected)
        assert made == expected

    def test_setdefault_compares_once(self):
        def program():
            class Counting:
                calls = []

                def __hash__(self):
                    return 42

                def __eq__(self, other):
                    self.calls.append("eq")
                    return self is other

            d = {Counting(): 5}
            d.setdefault(Counting(), [])
            return Counting.calls

        same(program, breaks=["class-definition", "unhashable-key"])


def fresh_python(name, without):
    """A module as it is without the module in C that has parts of it."""
    kept = {n: sys.modules.pop(n) for n in (name, without) if n in sys.modules}
    sys.modules[without] = None
    try:
        return importlib.import_module(name)
    finally:
        sys.modules.update(kept)


class TestOrderedDictAsADict:
    @pytest.mark.parametrize(
        "change",
        [
            lambda od: dict.pop(od, "a"),
            lambda od: dict.popitem(od),
            lambda od: dict.__delitem__(od, "a"),
            lambda od: dict.clear(od),
        ],
    )
    @pytest.mark.parametrize("outside", [False, True])
    def test_changes_past_its_order(self, change, outside):
        def program(od):
            if not outside:
                change(od)
            try:
                return repr(od), list(od)
            except KeyError:
                return "KeyError"

        def make():
            od = collections.OrderedDict(a=1, b=2)
            if outside:
                change(od)
            return od

        assert captured(program)(make()) == program(make())

    def test_the_order_of_the_table(self):
        def program(od):
            keys = dict.keys(od)
            return list(keys), list(od), dict.get(od, "a"), dict.__eq__(od, {"a": 1, "b": 2})

        od = collections.OrderedDict(a=1, b=2)
        od.move_to_end("a")
        same(program, od)


def test_text_of_a_view_that_holds_itself():
    def program():
        d = collections.UserDict(a=1)
        d["b"] = [d.values()]
        return repr(d.keys()), f"{d.items()._mapping['b']!r:.30}"

    same(program)


def test_pop_asks_for_no_missing():
    class Missing(collections.OrderedDict):
        def __missing__(self, key):
            return 0

    def program():
        try:
            return Missing(a=1).pop("b")
        except KeyError as error:
            return error.args

    same(program, whole=True)


def test_repr_of_a_defaultdict_whose_factory_holds_it():
    class Sub(collections.defaultdict):
        def __init__(self):
            self.default_factory = self.make

        def make(self):
            return []

    def program():
        d = Sub()
        text = repr(d)
        return text[: text.index(" object at")] if " object at" in text else text, repr(
            collections.defaultdict(None, a={})
        )

    same(program)

    def endless():
        d = Sub()
        d[1] = d
        try:
            repr(d)
        except RecursionError:
            return True

    same(endless)


def test_a_counter_updated_with_results_of_a_function_that_breaks():
    def program(items, counts):
        counts.update({0: [stop(37)] for _ in items})
        return counts

    def arguments():
        return [1, 3], collections.Counter()

    assert captured(program)(*arguments()) == program(*arguments())


def test_iterator_over_a_changed_dict_is_made_after_the_replay_of_the_change():
    agrees("""
    def program(d):
        d[0] = 0
        found = []
        for k, v in d.items():
            found.append(stop(1, k))
        return found
    def make_args(k):
        return [{5: 3}]
    """)


def test_iterator_over_a_dict_whose_keys_were_exchanged():
    agrees("""
    def program(d):
        iterator = iter(d)
        first = next(iterator)
        del d[first]
        d[9] = 1
        stop(1, d)
        return first, list(iterator)
    def make_args(k):
        return [{5: 3, 6: 4}]
    """)


def test_own_hash_without_own_eq_is_called():
    agrees("""
    class C:
        def __hash__(self):
            stop('hash', 1)
            return 0
    def program(o):
        return {o: 0}[o], o in {1, o}
    def make_args(k):
        return [C()]
    """)


def test_length_of_a_view_asks_no_subclass():
    agrees("""
    class Sub(dict):
        def __len__(self):
            return 7
    def program(d, e):
        return len(d.keys()), len(d.items()), len(e.values())
    def make_args(k):
        return [Sub(a=1), collections.Counter('ab')]
    """)


def test_pop_of_an_empty_dict_asks_for_no_hash():
    agrees("""
    def program(d):
        found = []
        for key in ([1], {}, 1):
            for args in ((key,), (key, 5)):
                try:
                    found.append(d.pop(*args))
                except Exception as error:
                    found.append(repr(error))
        return found
    def make_args(k):
        return [{}] if k < 2 else [{7: 8}]
    """)


def test_type_of_a_dict_view_from_outside_does_not_need_the_dict():
    agrees("""
    def program(l, dd):
        items = dd.items()
        stop(1, 0)
        l.append(3)
        return 0 in items
    def make_args(k):
        return [[], collections.defaultdict(int, {})]
    """)


def test_ordered_dict_of_pairs():
    agrees("""
    class Named:
        def items(self):
            stop('items', 1)
            return [(1, 2)]
    class Own(collections.OrderedDict):
        def __setitem__(self, key, value):
            GL.append(key)
            super().__setitem__(key, value)
    def program(sources):
        found = []
        for source in sources:
            for cls in (collections.OrderedDict, Own):
                try:
                    found.append(cls(source, z=1))
                except (TypeError, ValueError) as error:
                    found.append(str(error))
        return found
    def make_args(k):
        return [[collections.deque([2]), [()], [(1,)], [(1, 2, 3)], ['ab'], {1: 2}, collections.defaultdict(int, {3: 4}), Named(), 5]]
    """)


def test_iterator_whose_dict_has_grown_misses_the_entries_that_read_it():
    agrees("""
    def program(key, it, d, found):
        try:
            d.setdefault(fail(7, key), 5)
            stop(1, 2)
        finally:
            try:
                found.append(next(it))
            except RuntimeError as error:
                found.append(str(error))
    def make_args(k):
        d = {1: 2}
        return [k, iter(d.values()), d, []]
    """)


@pytest.mark.parametrize("view", ["items", "keys", "values"])
@pytest.mark.parametrize("change", ["d.setdefault(2)", "d[2] = 1", "d.clear(); d.update({7: 8, 9: 1})"])
def test_an_iterator_is_moved_before_its_dict_changes(view, change):
    """The rest of the first loop runs in a continuation, with the real iterator: its end is replayed before the change of the dict."""
    agrees(f"""
    def program(d):
        for k in d.{view}():
            stop(1, k)
        {change}
        for k in d.{view}():
            stop(2, k)
        return d
    def make_args(k):
        return [{{3: 4}}]
    """)


@pytest.mark.parametrize(
    "item",
    ["5", "Refuses()", "Stops()", "Fails()", "(1, 2, 3)", "'ab'", "{1, 2}", "[1]"],
)
def test_what_is_no_pair(item):
    """A TypeError of an item's iterator is replaced, or gets a note, as the version has it; other errors are passed on."""
    agrees(f"""
    class Refuses:
        def __iter__(self):
            raise TypeError("no")

    class Stops:
        def __iter__(self):
            yield 1
            raise TypeError("no more")

    class Fails:
        def __iter__(self):
            yield 1
            raise ValueError("bad")

    def told(error):
        return repr(error), getattr(error, "__notes__", None), repr(error.__context__)

    def program(d):
        out = []
        for make in (lambda: dict([{item}]), lambda: d.update([(1, 2), {item}])):
            try:
                out.append(make())
            except Exception as error:
                out.append(told(error))
            try:
                raise KeyError(1)
            except KeyError:
                try:
                    out.append(make())
                except Exception as error:
                    out.append(told(error))
        return out, d

    def make_args(k):
        return [{{}}]
    """)


HASHES = ["-1", "-2", "2**61", "2**64 + 5", "-2**70", "True", "Number(7)", "'text'", "None", "1.0"]


@pytest.mark.parametrize("number", HASHES)
def test_what_a_hash_method_returns(number):
    """Another int than one of C's is reduced, -1 becomes -2, and what is no int is an error: the same for `hash()` and for tables."""
    agrees(f"""
    class Number(int):
        pass

    class Key:
        def __hash__(self):
            return {number}

        def __eq__(self, other):
            return type(other) is Key

        def __repr__(self):
            return "key"

    def tried(make):
        try:
            return make()
        except TypeError as error:
            return str(error)

    def program(outside):
        made = tried(lambda: {{Key(): 1}}), tried(lambda: {{Key()}})
        hashes = tried(lambda: hash(Key())), tried(lambda: Key().__hash__()), tried(lambda: hash((Key(), 1)))
        return made, hashes, tried(lambda: Key() in outside), tried(lambda: outside | {{Key(): 3}}), tried(lambda: len({{Key(), Key()}}))

    def make_args(k):
        return [{{}} if not isinstance({number}, int) else {{Key(): 2}}]
    """)


def test_a_table_with_a_hash_of_minus_one_is_found_in():
    class Key:
        def __hash__(self):
            return -1

        def __eq__(self, other):
            return type(other) is Key

    made, others = captured(lambda: ({Key(): 1}, {Key()}))()
    assert made == {Key(): 1}
    assert made[Key()] == 1
    assert Key() in others


def test_ordered_dicts_are_compared_as_dicts_first():
    agrees("""
    from collections import OrderedDict

    class Key:
        def __init__(self, name, log):
            self.name, self.log = name, log

        def __hash__(self):
            return 1

        def __eq__(self, other):
            self.log.append((self.name, other.name))
            return self.name == other.name

    def program(one, other):
        log = []
        def table(names):
            return OrderedDict((Key(name, log), name) for name in names)
        a, b = table(one), table(other)
        log.clear()
        return a == b, a != b, a == dict(b.items()), len(log) > 0

    def make_args(k):
        return [("ab", "ab"), ("ab", "ba"), ("ab", "ac"), ("ab", "abc")][k % 4]
    """)


def test_a_missing_key_of_an_ordered_dict_is_what_the_error_is_made_of():
    class Own(collections.OrderedDict):
        pass

    class OwnError(KeyError):
        pass

    Pair = collections.namedtuple("Pair", "a b")
    error = OwnError("key")

    def program():
        seen = []
        for d in (collections.OrderedDict(), Own()):
            for key in (None, (), (1, 2), Pair(1, 2), 3, error):
                for call in (d.pop, d.move_to_end, d.__getitem__, d.__delitem__):
                    try:
                        call(key)
                    except KeyError as raised:
                        seen.append((type(raised), type(raised.args), raised.args, raised is key))
        seen.append((d.pop(1, None), d.pop(1, default=2)))
        return seen

    same(program, whole=True)


@pytest.mark.parametrize("others", [0, 2])
def test_a_captured_comparison_that_removes_a_key_while_another_is_stored(others):
    """CPython looks the key up again, in the table that the dict had before."""
    tables = []

    def removes(self, other):
        for table in tables:
            for key in list(table):
                del table[key]
        tables.clear()
        return self is other

    class Key:
        def __hash__(self):
            return 1

        __eq__ = captured(removes)

    for _ in range(2):
        first, second = Key(), Key()
        table = {first: 1, **dict.fromkeys(range(10, 10 + others))}
        tables.append(table)
        table[second] = 2
        assert not tables and list(table) == [second] and table[second] == 2 and table == {second: 2}


def test_reading_an_ordered_dict_asks_no_key():
    """Its iterators look each key up; those of one hash would be asked whether they are equal."""
    asked = []

    class Key:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            asked.append(1)
            return self is other

    class Own(collections.OrderedDict):
        def __iter__(self):
            raise AssertionError

    for make in (collections.OrderedDict, Own):
        table = make()
        keys = Key(), Key(), Key()
        for i, key in enumerate(keys):
            collections.OrderedDict.__setitem__(table, key, i)
        table.move_to_end(keys[0])

        def length(table):
            collections.OrderedDict.pop(table, None, 0)  # a key that is no constant's match: all keys are read
            return len(table)

        asked.clear()
        assert captured(length)(table) == 3
        asked.clear()
        assert captured(length)(table) == 3
        assert asked == [], "neither the analysis nor the guards"
