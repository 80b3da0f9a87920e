"""What went wrong with containers, iterators, functools and operator, reduced to small programs. Needs no torch."""

import collections
import copy
import functools
import importlib
import itertools
import operator
import pickle
import sys
import threading
import weakref

import pytest

from dynamo_lite.record import log
from tests.repros.test_conformance_finds import same, stop
from tests.variables.differential import captured


def fresh_copy(name):
    """A second copy of a module written in C."""
    original = sys.modules.pop(name)
    try:
        return __import__(name)
    finally:
        sys.modules[name] = original


class TestDicts:
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

        same(program, whole=True)

    def test_constant_tuples_as_keys(self):
        def program():
            d = {(1, 1): 11, (2, 2): 22}
            return d.keys() == {1: 1, 2: 2}.items(), d

        same(program, whole=True)


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


class TestFunctools:
    def test_state_of_partial_objects(self):
        def program():
            p = functools.partial(max, 1, key=abs)
            p.keywords["default"] = 3
            q = functools.partial(p, 2)
            state = p.__reduce__()[2]
            p.__setstate__((min, (5,), {}, {"note": 1}))
            return p.func is min, p.args, p.keywords, p.note, q.args, q.keywords, state[1], state[0] is max

        same(program, whole=True)

    def test_partial_objects_that_escape_keep_what_the_program_holds(self):
        def program():
            p = functools.partial(max, 1)
            keywords, args = p.keywords, p.args
            stop()
            return p.keywords is keywords, p.args is args, p(2)

        same(program)

    def test_subclasses_of_partial(self):
        class Sub(functools.partial):
            pass

        def program():
            p = Sub(int, base=2)
            stop()
            return type(p) is Sub, p("101"), p.keywords, p.func is int

        same(program)

    def test_second_copy_of_the_module(self):
        second = fresh_copy("_functools")

        def program():
            p = second.partial(pow, 2)
            key = second.cmp_to_key(lambda a, b: b - a)
            return type(p) is second.partial, p(3), sorted([1, 3, 2], key=key), second.reduce(max, [1, 3, 2])

        same(program, whole=True)

    def test_cache_made_here(self):
        def program():
            calls = []

            @functools.lru_cache(maxsize=2)
            def f(x):
                calls.append(x)
                return [x]

            same_object = f(1) is f(1)
            f(2), f(1), f(3), f(2)
            info = tuple(f.cache_info())
            f.cache_clear()
            return same_object, calls, info, tuple(f.cache_info())

        same(program, whole=True)

    def test_cache_from_outside_is_kept(self):
        calls = []

        @functools.lru_cache
        def f(x):
            calls.append(x)
            return [x]

        def program():
            f.cache_clear()
            calls.clear()
            return f(1) is f(1), calls

        same(program)


class TestOperator:
    def test_getters_are_taken_apart(self):
        def program():
            made = operator.methodcaller("split", ",", maxsplit=1)
            function, args = made.__reduce__()
            return repr(made), function(*args)("a,b,c"), operator.itemgetter(0, -1).__reduce__()[1]

        same(program, whole=True)


class TestLocks:
    def test_a_lock_made_here(self):
        def program():
            lock = threading.RLock()
            with lock, lock:
                held = lock._is_owned()
            stop()
            return held, lock._is_owned()

        same(program)


class TestIterators:
    def test_classes_are_complete_before_their_instances_are_iterated_over(self):
        def program():
            class Up:
                def __init__(self, n):
                    self.n = n

                def __iter__(self):
                    return self

                def __next__(self):
                    if not self.n:
                        raise StopIteration
                    self.n -= 1
                    return self.n

            pairs = itertools.zip_longest(Up(3), Up(2), fillvalue="-")
            first = next(pairs)
            stop()
            return first, list(pairs)

        same(program)

    @pytest.mark.parametrize(
        "text",
        [
            "iter([1, 2, 3])",
            "iter((1, 2, 3))",
            "iter('abc')",
            "iter(b'abc')",
            "iter(range(3))",
            "reversed([1, 2, 3])",
            "reversed('abc')",
            "iter({1: 2, 3: 4, 5: 6}.items())",
            "reversed({1: 2, 3: 4, 5: 6}.values())",
            "iter({1, 2, 3})",
            "iter(collections.deque([1, 2, 3]))",
            "enumerate([1, 2, 3], 5)",
            "zip([1, 2, 3], 'abc', strict=True)",
            "map(abs, [-1, 2, -3])",
            "filter(None, [0, 1, 2, 3])",
        ],
    )
    def test_taking_iterators_apart(self, text):
        taken_apart(text, 3)

    @pytest.mark.skipif(hasattr(itertools, "batched"), reason="taking these apart is deprecated from 3.12 on")
    @pytest.mark.parametrize(
        "text",
        [
            "itertools.count(3, 2)",
            "itertools.repeat('a', 4)",
            "itertools.cycle('abc')",
            "itertools.chain('ab', 'cd')",
            "itertools.islice('abcdefgh', 1, 7, 2)",
            "itertools.accumulate([1, 2, 3], initial=5)",
            "itertools.accumulate([None, None, None], operator.is_)",
            "itertools.starmap(pow, [(2, 3), (3, 2), (4, 1)])",
            "itertools.takewhile(bool, [1, 2, 3, 0, 4])",
            "itertools.dropwhile(bool, [1, 0, 3, 0, 4])",
            "itertools.compress('abcd', [1, 0, 1, 1])",
            "itertools.zip_longest('ab', 'abcd')",
            "itertools.filterfalse(None, [0, 1, 0, 0])",
            "itertools.product('ab', repeat=2)",
            "itertools.permutations('abc', 2)",
        ],
    )
    def test_taking_itertools_apart(self, text):
        taken_apart(text, 2)

    def test_subclasses_of_iterator_types(self):
        class Pairs(zip):
            def total(self):
                return sum(a * b for a, b in self)

        class Numbered(enumerate):
            def __new__(cls, items):
                self = super().__new__(cls, items, 10)
                self.note = "n"
                return self

        def program():
            numbered = Numbered("abc")
            first = next(numbered)
            stop()
            return Pairs([1, 2], [3, 4]).total(), first, type(numbered) is Numbered, numbered.note, list(numbered)

        same(program)

    def test_tee_that_escapes(self):
        def program():
            a, b, c = itertools.tee(iter("abcdef"), 3)
            next(a), next(a), next(b)
            stop()
            d = copy.copy(a)
            return list(a), next(b), list(c), list(d), list(b)

        same(program)

    def test_pairwise_that_is_entered_again(self):
        def program():
            class Again:
                steps = 0

                def __iter__(self):
                    return self

                def __next__(self):
                    self.steps += 1
                    if self.steps == 1:
                        return next(pairs)
                    if self.steps > 5:
                        raise StopIteration
                    return self.steps

            again = Again()
            pairs = itertools.pairwise(again)
            return list(pairs)

        same(program, whole=True)


def taken_apart(text, n):
    """An iterator, advanced by 0 … n items, reduced and built again, goes on as it would have."""
    make = eval(f"lambda: {text}", {"itertools": itertools, "collections": collections, "operator": operator})

    def program():
        results = []
        for i in range(n + 1):
            iterator = make()
            for _ in range(i):
                next(iterator)
            function, args, *state = iterator.__reduce__()
            again = function(*args)
            if state and state[0] is not None:
                again.__setstate__(state[0])
            rest = list(itertools.islice(again, 5))
            results.append(
                (function.__name__, len(args), len(state), rest == list(itertools.islice(iterator, 5)), rest)
            )
        return results

    same(program, whole=True)


class Plain:
    def __init__(self, x):
        self.x = x


class TestPickle:
    def test_there_and_back(self):
        def program():
            shared = [1, "a", (2.5, None)]
            plain = Plain(shared)
            d = {"s": {1, 2}, "f": frozenset("ab"), "o": collections.OrderedDict(a=shared), "p": plain, "r": range(3)}
            shared.append(shared)
            again = pickle.loads(pickle.dumps(d))
            items = again["o"]["a"]
            positions = pickle.loads(pickle.dumps(iter([1, 2, 3])))
            return (
                list(again),
                items[:3],
                items[3] is items,
                again["p"].x is items,
                type(again["p"]) is Plain,
                again["s"],
                again["f"],
                again["r"],
                list(positions),
            )

        same(program, whole=True)

    def test_code_of_the_program_does_not_run_during_the_analysis(self):
        def program():
            text = pickle.dumps(Telling(3))
            calls.append("dumped")
            return pickle.loads(text).x, calls.copy(), calls.clear()

        same(program)


calls = []


class Telling(Plain):
    def __reduce__(self):
        calls.append("reduce")
        return make_telling, (self.x,)


def make_telling(x):
    calls.append("made")
    return Telling(x)


class TestWeakReferences:
    def test_of_objects_made_here(self):
        def program():
            class Node:
                pass

            a, b = Node(), Node()
            a.next, b.back = b, weakref.proxy(a)
            b.back.note = 5
            ref = weakref.ref(b)
            stop()
            return a.note, ref() is b, ref is weakref.ref(b), b.back.next is b, weakref.proxy(a) is b.back

        same(program)

    def test_an_object_that_may_be_gone_is_asked_for(self):
        def program():
            class Node:
                pass

            a = Node()
            ref = weakref.ref(a)
            before = ref() is a
            del a
            return before, ref() is None

        same(program)

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


def fresh_python(name, without):
    """A module as it is without the module in C that has parts of it."""
    kept = {n: sys.modules.pop(n) for n in (name, without) if n in sys.modules}
    sys.modules[without] = None
    try:
        return importlib.import_module(name)
    finally:
        sys.modules.update(kept)


class TestKeysOfTheProgram:
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

    def test_a_set_that_a_comparison_changes(self):
        def program():
            class Bad:
                def __hash__(self):
                    return 0

                def __eq__(self, other):
                    a.clear()
                    return False

            a = {Bad(), 1, 2}
            try:
                return a.isdisjoint({Bad(), 4}), a
            except RuntimeError as error:
                return str(error)

        same(program)

    def test_popitem_changes_the_layout(self):
        def program(d):
            return d.popitem()

        class C:
            def __init__(self):
                self.x, self.y = 1, 2

        made, other, expected = C(), C(), C()
        assert captured(program)(made.__dict__) == expected.__dict__.popitem()
        assert sys.getsizeof(made.__dict__) == sys.getsizeof(expected.__dict__)
        assert vars(other) == {"x": 1, "y": 2}


class TestProtocols:
    def test_length_hints(self):
        class Weird:
            def __len__(self):
                raise ZeroDivisionError

            def __getitem__(self, i):
                return i

        class Hint:
            def __init__(self, value):
                self.value = value

            def __length_hint__(self):
                if isinstance(self.value, type):
                    raise self.value
                return self.value

        def program():
            found = [operator.length_hint(itertools.repeat(None), 12), operator.length_hint(Hint(TypeError), 5)]
            for make in (lambda: operator.length_hint(Hint(-1)), lambda: operator.length_hint(Hint("a"))):
                try:
                    make()
                except (ValueError, TypeError) as error:
                    found.append(str(error))
            return found, operator.length_hint(Hint(4)), hasattr(Weird, "__len__")

        same(program, whole=True)

    def test_a_class_whose_iter_is_none(self):
        class Closed:
            __iter__ = None

            def __getitem__(self, i):
                return i

        def program():
            try:
                iter(Closed())
            except TypeError as error:
                return str(error)

        same(program, whole=True)

    def test_concatenation_of_user_sequences(self):
        class Items:
            def __getitem__(self, i):
                return i

            def __add__(self, other):
                return "sum"

        def program():
            return operator.concat(Items(), Items()), operator.concat([1], [2]), operator.iconcat(Items(), Items())

        same(program, whole=True)

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

        same(program, whole=True)

    def test_addresses_of_what_is_gone(self):
        def program():
            return len(set(map(id, enumerate("abc")))), len(set(map(id, list(enumerate("abc")))))

        same(program)

    def test_keywords_of_a_list_subclass_with_its_own_new(self):
        class Sub(list):
            def __new__(cls, items, note=None):
                self = super().__new__(cls, items)
                self.note = note
                return self

        def program():
            s = Sub([1, 2], note=3)
            return s, s.note

        same(program)

    def test_iterators_over_huge_ranges(self):
        def program():
            iterator = iter(range(1 << 70))
            next(iterator)
            iterator.__setstate__(1 << 69)
            return next(iterator), next(iter(range(0))) if range(0) else None

        same(program, whole=True)


class TestArgumentsOfC:
    """Calls that the argument parsers of C refuse, and those whose keywords they leave to `__init__`."""

    @pytest.mark.parametrize(
        "call",
        [
            lambda: dict.fromkeys(),
            lambda: dict.__init__(),
            lambda: dict.update(),
            lambda: collections.OrderedDict.__init__(),
            lambda: collections.OrderedDict.update(),
            lambda: list.append(),
            lambda: slice.indices(),
        ],
    )
    def test_too_few(self, call):
        def program():
            try:
                call()
            except TypeError as error:
                return str(error)

        same(program, whole=True)

    @pytest.mark.parametrize("base", [tuple, frozenset, float])
    def test_keywords_of_a_subclass(self, base):
        class Plain(base):
            pass

        class WithInit(base):
            def __init__(self, value, note=None):
                self.note = note

        def program():
            made = WithInit("1", note=2)
            try:
                Plain(note=3)
            except TypeError as error:
                return made == base("1"), made.note, str(error)

        same(program, whole=True)

    @pytest.mark.parametrize("make", [lambda: {}.keys(), lambda: iter(range(3)), lambda: iter({}), lambda: iter(set())])
    def test_types_that_cannot_be_called(self, make):
        def program():
            try:
                type(make())()
            except TypeError as error:
                return str(error)

        same(program, whole=True)

    def test_slices_are_copied(self):
        def program():
            s = slice([1], 2)
            t = copy.deepcopy(s)
            return t, t.start is not s.start, s.__reduce__()

        same(program, whole=True)


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


class TestDequesOfC:
    def test_search_notices_changes(self):
        class Mutating:
            def __init__(self, d, result):
                self.d, self.result = d, result

            def __eq__(self, other):
                self.d.rotate()
                return self.result

        def program():
            seen = []
            for method in ("index", "remove", "count", "__contains__"):
                for result in (False, True):
                    for n in (0, 2):
                        d = collections.deque(range(3))
                        d[n] = Mutating(d, result)
                        try:
                            seen.append(getattr(d, method)("x"))
                        except (IndexError, RuntimeError, ValueError) as error:
                            seen.append((type(error), str(error), len(d)))
            return seen

        same(program)

    def test_subclasses_are_copied_by_their_class(self):
        class Sub(collections.deque):
            pass

        class Bad(collections.deque):
            def __new__(cls, *args):
                return [42] if args else super().__new__(cls)

        def program():
            s = Sub([1, 2], 3)
            bad = Bad()
            try:
                bad * 2
            except TypeError as error:
                return type(s * 2), s * 2, s + s, (s + s).maxlen, str(error)

        same(program, whole=True)


class TestHashesInTables:
    def test_elements_are_hashed_once(self):
        class Counting:
            n = 0

            def __hash__(self):
                Counting.n += 1
                return 5

            def __eq__(self, other):
                return self is other

        def program():
            Counting.n = 0
            d = dict.fromkeys([Counting(), 2])
            seen = [Counting.n]
            s = frozenset(d)
            hash(s), hash(s)
            dict.fromkeys(s, 1)
            dict.fromkeys(d)
            return [*seen, Counting.n]

        same(program)

    def test_hashes_of_nested_frozensets(self):
        def program():
            nested = []
            for _ in range(40):
                nested.append(frozenset(nested))
            return hash(nested[-1])

        same(program, whole=True)


class TestDeepTexts:
    @pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: {1: x}, lambda x: {1: x}.values(), lambda x: (x,)])
    @pytest.mark.parametrize("depth", [50, 500, 100_000])
    def test_repr(self, wrap, depth):
        def program():
            nested = []
            for _ in range(min(depth, sys.getrecursionlimit() + 50)):
                nested = wrap(nested)
            try:
                return len(repr(nested))
            except RecursionError:
                return "too deep"

        same(program)


def test_keywords_with_the_names_of_parameters():
    class Plain:
        def __init__(self, /, **kwargs):
            self.kwargs = kwargs

    Pair = collections.namedtuple("Pair", ["tx", "self", "cls", "args"])

    class Error(Exception):
        def __init__(self, /, **kwargs):
            self.kwargs = kwargs

    def program():
        error = Error(self=1, tx=2)
        return Pair(tx=1, self=2, cls=3, args=4), Plain(tx=1, self=2, cls=3).kwargs, error.kwargs

    same(program, whole=True)


@pytest.mark.parametrize("base", [collections.deque, set, frozenset, collections.OrderedDict])
def test_reduced_with_slots_and_attributes(base):
    class Slotted(base):
        __slots__ = ("x", "y") if base is collections.OrderedDict else ("x", "y", "__dict__")

    class Own(base):
        def __getstate__(self):
            return "state"

    def program():
        s = Slotted()
        s.x, s.z = 1, 2
        plain = base()
        return [t.__reduce__()[2] for t in (s, Own(), plain)], copy.deepcopy(s).x, copy.deepcopy(s).z

    same(program, whole=True)


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


@pytest.mark.parametrize("base", [collections.deque, set, collections.OrderedDict, collections.defaultdict])
def test_reduce_iterates_as_the_class_does(base):
    class Sub(base):
        def __iter__(self):
            raise TypeError("no iteration")

        def items(self):
            raise TypeError("no items")

    def program():
        try:
            return copy.deepcopy(Sub())
        except TypeError as error:
            return str(error)

    same(program, whole=True)


def test_sequences_too_long_for_memory():
    def program():
        seen = []
        for make in (lambda: [0] * sys.maxsize, lambda: (0, 1) * sys.maxsize, lambda: [0] * (sys.maxsize + 1)):
            try:
                make()
            except (MemoryError, OverflowError) as error:
                seen.append((type(error), str(error)))
        items = [1, 2]
        try:
            items *= sys.maxsize // 2
        except MemoryError:
            return seen, items

    same(program, whole=True)


def test_a_counter_updated_with_results_of_a_function_that_breaks():
    def program(items, counts):
        counts.update({0: [stop(37)] for _ in items})
        return counts

    def arguments():
        return [1, 3], collections.Counter()

    assert captured(program)(*arguments()) == program(*arguments())


@pytest.mark.parametrize("use", [lambda x: bytes([x]), lambda x: bytearray([x]), lambda x: "".join([x])])
@pytest.mark.parametrize("base", [list, dict, set])
def test_errors_of_c_code_name_the_programs_classes(use, base):
    class Own(base):
        pass

    def program(x):
        try:
            return use(x)
        except TypeError as error:
            return str(error)

    assert captured(program)(Own()) == program(Own())
    assert "Own" in program(Own())


def test_an_exhausted_generator_keeps_its_name():
    def program():
        def numbers():
            yield 0

        generator = numbers()
        total = sum(generator)
        return total, generator

    (total, generator), (expected, real) = captured(program)(), program()
    assert (total, list(generator), generator.__qualname__) == (expected, list(real), real.__qualname__)


def test_the_error_of_reduce_has_no_context():
    def program():
        try:
            functools.reduce(operator.add, 1.5, -1)
        except TypeError as error:
            return str(error), error.__context__

    assert captured(program)() == program() == ("reduce() arg 2 must support iteration", None)


class TestEnumerateFromOutside:
    """An enumerate object that was begun before a break."""

    @pytest.mark.parametrize("strict", [False, True])
    @pytest.mark.parametrize("counts", [(3, 5), (5, 3), (3, 3)])
    def test_over_a_zip(self, counts, strict):
        def program():
            iterators = [iter(range(n)) for n in counts]
            pairs, out = enumerate(zip(*iterators, strict=strict), 7), []
            out.append(next(pairs))
            stop()
            try:
                for i, (a, b) in pairs:
                    out.append((i, a, b))
            except ValueError as error:
                out.append(str(error))
            return out, [list(it) for it in iterators]

        same(program)

    def test_a_loop_with_a_break(self):
        def program():
            out = []
            for i, (a, b) in enumerate(zip([1, 2, 3], "abc")):
                out.append((i, a))
                stop()
                out.append(b)
            return out

        same(program)
        assert "iterator-state" not in {record.slug for record in log.breaks()}

    def test_the_iterator_within_is_moved_by_the_program_too(self):
        def program():
            it = iter([1, 2, 3, 4])
            pairs = enumerate(it)
            stop()
            return next(pairs), next(it), next(pairs), list(it)

        same(program)


def test_iteration_over_a_generic_alias():
    same(lambda: ([*list[int]] == [*list[int]], 3 in list[int], [repr(item) for item in list[int]]))


class AlwaysEqual:
    """Known by identity as a key, equal to everything otherwise, as tensors with the same data are."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return True


class TestOrderOfSets:
    def test_set_from_outside_gives_its_elements_as_it_does_in_eager_execution(self):
        def program(elements):
            return list(elements), [e for e in elements]

        for _ in range(5):
            same(program, {object() for _ in range(6)}, whole=True)

    def test_break_in_a_loop_over_a_set(self):
        def program(elements):
            seen = []
            for e in elements:
                seen.append(e)
                stop()
            return seen

        for _ in range(5):
            same(program, {object() for _ in range(3)})

    def test_pop_takes_the_first(self):
        def program(elements):
            return [elements.pop(), elements.pop()], list(elements)

        for _ in range(5):
            elements = {object() for _ in range(4)}
            order = list(elements)
            assert captured(program)(elements) == (order[:2], order[2:])
            assert elements == set(order[2:])

    def test_elements_that_say_they_are_equal_keep_their_places(self):
        def program(elements):
            seen = []
            for e in elements:
                seen.append(id(e))
                stop()
            return seen

        for _ in range(5):
            same(program, {AlwaysEqual() for _ in range(3)})
