"""Readable guards and the reasons of misses. Needs no torch."""

import io
from collections import deque

from dynamo_lite.config import config
from dynamo_lite.guards import ir
from dynamo_lite.guards.ir import GuardSet
from dynamo_lite.guards.mirror import Mirror, explain_miss, mirror_source
from tests.helpers.capturing import same, stop, wrapped


class Model:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def example():
    guards = GuardSet(["self", "x"], ["k"])
    members = guards.node(guards.node(None, ir.LOCAL, 0), ir.INSTANCE_DICT)
    guards.check(guards.node(members, ir.DICT_ITEM, "eps"), ir.EQUALS, 1e-5, ("model.py", 12))
    layers = guards.node(members, ir.DICT_ITEM, "layers")
    guards.check(layers, ir.TYPE_IS, list, ("model.py", 13))
    guards.check(layers, ir.LEN, 2, ("model.py", 13))
    guards.check(guards.node(layers, ir.INDEX, 1), ir.IS, None, ("model.py", 14))
    guards.check(guards.node(members, ir.DICT_ITEM, "hook"), ir.ABSENT, None, ("model.py", 15))
    x = guards.node(None, ir.LOCAL, 1)
    k = guards.node(guards.node(None, ir.FREEVAR, 0), ir.CELL_CONTENTS)
    guards.check(k, ir.EQUALS, 3)
    guards.distinct([x, k], ("model.py", 16))
    guards.predicate(lambda x, k: x > k, [x, k], "x > k", ("model.py", 17))
    return guards


def cells(k):
    return (lambda: k).__closure__


def test_source_is_readable():
    source = mirror_source(example())
    assert source.startswith("# K0 = 1e-05\n")
    assert "def first_failure(L, C):" in source
    for line in (
        "v2 = dict_item(v1, 'eps')                                     # self.eps",
        "if not (holds(equals, v2, K0)): return 0                      # model.py:12",
        "if v5 is not MISSING: return 4                                # model.py:15",
        "v8 = cell_contents(v7)                                        # k",
        "if not (holds(K2, v6, v8)): return 7                          # x > k model.py:17",
    ):
        assert line in source, source
    assert Mirror(example()).check((Model(eps=1e-5, layers=[1, None]), 4), cells(3))


def explained(model, x=4, k=3):
    return [str(failure) for failure in explain_miss(example(), (model, x), cells(k))]


def test_reasons():
    assert explained(Model(eps=1e-5, layers=[1, None])) == []
    assert explained(Model(eps=2, layers=[1, None])) == ["self.eps: expected 1e-05, found 2  (model.py:12)"]
    assert explained(Model(layers=(1, None))) == [
        "self.eps: expected a value, found nothing  (model.py:12)",
        "self.layers: expected type list, found type tuple  (model.py:13)",
    ]
    assert explained(Model(eps=1e-5, layers=[1], hook=5)) == [
        "self.layers: expected length 2, found length 1  (model.py:13)",
        "self.hook: expected nothing there, found 5  (model.py:15)",
    ]
    assert explained(Model(eps=1e-5, layers=[1, 2])) == [
        "self.layers[1]: expected the same object None, found 2  (model.py:14)"
    ]
    assert explained(Model(eps=1e-5, layers=[1, None]), x=2) == ["x, k: expected x > k, found 2, 3  (model.py:17)"]
    assert explained(Model(eps=1e-5, layers=[1, None]), x=3) == [
        "x, k: expected different objects, found the same object  (model.py:16)",
        "x, k: expected x > k, found 3, 3  (model.py:17)",
    ]
    assert explained(Model(eps=1e-5, layers=[1, None]), k=4)[0] == "k: expected 3, found 4"
    assert explained(5) == ["self.__dict__: expected a value, found nothing"]


def test_reasons_of_other_checks():
    def why(kind, arg, value):
        guards = GuardSet(["x"])
        guards.check(guards.node(None, ir.LOCAL, 0), kind, arg)
        (failure,) = explain_miss(guards, (value,))
        return f"{failure.expected} / {failure.found}"

    assert why(ir.LEN, 2, deque([1])) == "length 2 / length 1"
    assert why(ir.DICT_KEYS, ("a",), {"b": 1}) == "keys ['a'] / keys ['b']"
    assert why(ir.HAS_KEY, "a", {"b": 1}) == "a key 'a' / {'b': 1}"
    assert why(ir.LACKS_KEY, "b", {"b": 1}) == "no key 'b' / {'b': 1}"
    assert why(ir.IS_NOT, None, None) == "another object than None / None"
    assert why(ir.TRUTH, True, []) == "truth value True / []"
    assert why(ir.LEN, 3, 5) == "length 3 / length unknown"
    assert why(ir.PYTHON, callable, 5) == "<built-in function callable> to hold / 5"


def test_a_reason_that_cannot_be_told():
    """Whatever raises while a miss is described is a guard that fails, and does not reach the program."""

    class Broken:
        def __init__(self):
            self.item = object()

        def __length_hint__(self):
            raise RuntimeError

        __getattr__ = __len__ = __eq__ = __bool__ = __length_hint__

    def raises(*values):
        raise RuntimeError

    guards = GuardSet(["x", "y"])
    x, y = (guards.node(None, ir.LOCAL, i) for i in range(2))
    guards.check(x, ir.NO_FINALIZER_AT, "key")
    guards.check(guards.node(y, ir.ATTR, "gone"), ir.LEN, 2)
    guards.predicate(raises, [y], "")
    guards.global_state(raises, "state")
    failures = explain_miss(guards, (Broken(), Broken()))
    assert [(failure.path, failure.expected) for failure in failures] == [
        ("state", "unchanged"),
        ("x", "an object without __del__"),
        ("y.gone", "a value"),
        ("y", "predicate"),
    ]
    assert failures[1].found.endswith("Broken object")


def test_reasons_of_what_has_the_same_text():
    def found(kind, arg, value):
        guards = GuardSet(["x"])
        guards.check(guards.node(None, ir.LOCAL, 0), kind, arg)
        guards.settle()
        (failure,) = explain_miss(guards, (value,))
        return failure.found

    first, second = (type("Own", (), {}) for _ in range(2))
    for cls in (first, second):
        cls.__qualname__ = "Own"
    streams = io.StringIO(), io.StringIO()
    assert found(ir.IS, streams[0], streams[1]) == "another StringIO object"
    assert found(ir.TYPE_IS, first, second()) == "another type Own"
    assert found(ir.EQUALS, "a" * 200 + "b", "a" * 200 + "c").startswith("another 'aaa")
    assert found(ir.IS_NOT, streams[0], streams[0]) == "StringIO object"
    assert found(ir.IS, 12, 2) == "2"


def test_misses_as_values():
    guards = GuardSet(["x", "y"])
    x, y = (guards.node(None, ir.LOCAL, i) for i in range(2))
    items = [guards.node(x, ir.INDEX, i) for i in range(2)]
    guards.check(items[0], ir.EQUALS, 5)
    guards.check(items[1], ir.ABSENT)
    guards.predicate(lambda k: 2 <= k, [y], "2 <= y", None, ("y", 2, None))
    guards.predicate(lambda k: k % 2, [y], "y % 2 == 1")
    guards.same(x, y)
    guards.global_state(lambda: False, "grad mode")
    failures = explain_miss(guards, ([6, None], 0))
    assert [(failure.paths, failure.bounds) for failure in failures] == [
        ((), None),
        ((items[0].steps,), None),
        ((items[1].steps,), None),
        ((y.steps,), ("y", 2, None)),
        ((y.steps,), None),
        ((x.steps, y.steps), None),
    ]


def test_same_and_global_state():
    guards = GuardSet(["x", "y"])
    guards.same(guards.node(None, ir.LOCAL, 0), guards.node(None, ir.LOCAL, 1))
    guards.global_state(lambda: False, "grad mode")
    assert [str(failure) for failure in explain_miss(guards, (1, 2))] == [
        "grad mode: expected unchanged, found changed",
        "x, y: expected the same object, found different objects",
    ]


class TestGuardTexts:
    def test_a_miss_runs_no_code_of_the_program(self):
        class Counting(dict):
            reads = 0

            def __getitem__(self, key):
                Counting.reads += 1
                return super().__getitem__(key)

            def __repr__(self):
                return f"<{list(map(self.__getitem__, self))}>"

            def __len__(self):
                Counting.reads += 1
                return super().__len__()

        def program(d):
            d[stop(1)] = 2
            return list(d)

        def counted(d):
            Counting.reads = 0
            return program(d), Counting.reads

        for d in (Counting(), Counting(a=1), Counting(b=1)):
            same(counted, d)


def test_the_text_of_a_miss_asks_no_metaclass():
    class Meta(type):
        pass

    class C(metaclass=Meta):
        k = 1

    asked = []

    def f(x):
        return C.k + x

    def lookup(cls, name):
        asked.append(name)
        return type.__getattribute__(cls, name)

    with config.patch(capture_pure_python=True, suppress_errors=False):
        captured = wrapped(f)
        assert captured(1) == 2
        guards = captured.cache.entries[0].owner.guards
        Meta.__getattribute__ = lookup
        C.k = 2
        del asked[:]
        failures = explain_miss(guards, (1,), f.__closure__)
        assert [str(failure) for failure in failures] and asked == []
