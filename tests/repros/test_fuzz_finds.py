"""What `tests/fuzz` found, one test for each mechanism."""

import gc
import textwrap
import types
import weakref

import pytest

from dynamo_lite import _eval_frame
from dynamo_lite.config import config
from dynamo_lite.frontend import codegen, convert
from dynamo_lite.guards.mirror import explain_miss
from tests.fuzz import harness


def agrees(text):
    """The module's `program` does the same eagerly and captured, for arguments made by `make_args`."""
    text = textwrap.dedent(text) + "\nG, GL, GD = globals().get('G'), globals().get('GL'), {}\n"
    problem = harness.difference(text, view=list)
    assert problem is None, problem


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


def test_iterator_past_the_end_that_its_list_had():
    agrees("""
    def program(l):
        found = []
        for x in l:
            if len(l) < 4:
                l.append(x + 1)
            if x > 1:
                stop(1, x)
            found.append(x)
        return found
    def make_args(k):
        return [[0]]
    """)


def test_count_of_an_enumerate_from_outside_is_a_constant():
    agrees("""
    def program(l):
        for i, x in enumerate([0 for x in l]):
            stop(1, (i, x))
    def make_args(k):
        return [[1, 2, 3, 4, 5]]
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


def test_argument_in_a_cell_of_a_generator_that_has_not_started():
    agrees("""
    def program(a):
        def generator(p, *q, r=2, **s):
            yield lambda: (p, q, r, s)
            yield p, q, r, s
        g = generator(1, 2, 3, r=a, t=5)
        stop(1, a)
        next(g)
        return list(g), generator(1)
    def make_args(k):
        return [4]
    """)


def test_divmod_by_a_number_that_became_symbolic():
    agrees("""
    def program(b):
        try:
            return divmod(7, b), divmod(b, 2)
        except ZeroDivisionError as error:
            return error.args
    def make_args(k):
        return [k + 1]
    """)
    agrees("""
    def program(b):
        try:
            return divmod(7, b)
        except ZeroDivisionError as error:
            return error.args
    def make_args(k):
        return [1 - k]
    """)


def test_iterator_from_outside_is_not_moved_past_the_last_item_that_was_taken():
    agrees("""
    def program(l):
        for i in range(2):
            for x in iter([x for x in l]):
                stop(1, x)
                stop(2, 0)
                l = [9]
    def make_args(k):
        return [[1, 2, 5]]
    """)


def test_error_messages_name_classes_of_c_modules_as_their_tp_name():
    agrees("""
    def program(a):
        found = []
        for value in (functools.partial(max, a), collections.OrderedDict, collections.deque([a]), itertools.count(a), iter([a])):
            try:
                a + value
            except TypeError as error:
                found.append(str(error))
        return found
    def make_args(k):
        return [4]
    """)


def test_own_getattribute_is_not_called_by_the_engine():
    agrees("""
    G = 0
    class C:
        def __init__(self, v):
            self.v = v
        def __getattribute__(self, name):
            global G
            G += 1
            return object.__getattribute__(self, name)
    def program(o):
        o.w = o.v
        made = C(1)
        stop(1, made)
        return made.v
    def make_args(k):
        return [C(2)]
    """)


def test_generator_that_dies_inside_with_runs_its_exit():
    agrees("""
    GL = []
    class Manager:
        def __enter__(self):
            GL.append('enter')
        def __exit__(self, *args):
            GL.append('exit')
    def generator():
        with Manager():
            yield 1
            yield 2
    def program(l):
        l.extend(generator())
        l.append(next(generator()))
    def make_args(k):
        return [[]]
    """)


class Plain:
    pass


def raises(o):
    raise ValueError(o)


def prints_within(o):
    try:
        raises(o)
    except ValueError:
        print(end="")
    return [o, next(x for x in [o])]


@pytest.mark.parametrize("function", [raises, prints_within])
def test_an_analysis_does_not_keep_its_arguments(function):
    compiled = convert.Region(lambda gm, inputs: gm.forward).wrap(function)
    o = Plain()
    reference = weakref.ref(o)
    gc.disable()
    try:
        with config.patch(capture_pure_python=True):
            compiled(o)
    except ValueError:
        pass
    finally:
        del o
        alive = reference() is not None
        gc.enable()
    assert not alive


def test_variable_that_was_unbound_before_an_inlined_comprehension_with_a_break():
    agrees("""
    def program(l):
        found = []
        for x in (0 for y in l):
            found += [10 for z in l if stop(1, 0)]
            found += [z for z in l]
        return found
    def make_args(k):
        return [[4]]
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


def test_break_inside_except_star_handles_the_group():
    agrees("""
    def program(l):
        try:
            raise ValueError(1)
        except* ValueError as group:
            stop(1, l)
            found = [x for x in l if stop(2, x)]
            stop(3, group)
        return found
    def make_args(k):
        return [[1, 2]]
    """)


def test_texts_of_type_errors():
    agrees("""
    class Made:
        def __init__(self, v):
            super().__init__(v)
    class Bare:
        pass
    def program(s, q):
        found = []
        for call in (
            lambda: heapq.heappop(s), lambda: heapq.heapify(None), lambda: heapq.heappush(s, 1), lambda: Made(1), lambda: Bare(1),
            lambda: object.__init__(Bare(), 1), lambda: q[None], lambda: operator.setitem(q, None, 1), lambda: operator.delitem(q, ''),
        ):
            try:
                call()
            except TypeError as error:
                found.append(str(error))
        return found
    def make_args(k):
        return [{1}, collections.deque([1])]
    """)


def test_unbound_variable_of_a_closure_after_a_break_is_a_local_one():
    agrees("""
    def program(l):
        def inner():
            nonlocal shared
            l.append(1)
            shared = 2
            del shared
        def generator():
            stop(3, l)
            try:
                yield lambda: later
                later
            except UnboundLocalError as error:
                yield error
            later = 3
            yield later
        stop(1, l)
        found = list(generator())[1:]
        inner()
        try:
            stop(2, shared)
        except UnboundLocalError as error:
            found.append(error)
        shared = 5
        stop(4, l)
        return found, shared, [x for x in (lambda: shared,)]
    def make_args(k):
        return [[]]
    """)


def test_what_count_takes():
    agrees("""
    class Number:
        def __float__(self):
            return 1.0
    def program(*values):
        found = []
        for value in values:
            try:
                itertools.count(value)
                itertools.count(1, value)
                found.append(value)
            except TypeError as error:
                found.append(str(error))
        return found
    def make_args(k):
        return [None, '', 1, 2.5, 1j, [], Number(), True]
    """)


def test_two_breaks_below_the_place_of_a_raise():
    agrees("""
    class Manager:
        def __init__(self, v):
            pass
        def __enter__(self):
            pass
        def __exit__(self, kind, error, tb):
            stop('exit', sys.exc_info()[0])
            return stop(0, kind is ValueError)
    def program():
        with Manager(1), 0 as i:
            pass
    def make_args(k):
        return []
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


def test_hash_of_a_builtin_function_in_a_tuple():
    agrees("""
    def program(x):
        try:
            stop(1, type(hash((x, 1))))
        except TypeError as error:
            return error
    def make_args(k):
        return [[1, [], len][k]]
    """)


def test_global_that_is_deleted_twice():
    agrees("""
    G = 3
    def program():
        global G
        while True:
            del G
    def make_args(k):
        return []
    """)


def test_generator_from_outside_is_told_from_other_arguments():
    agrees("""
    def divides(x):
        try:
            return x % 4
        except TypeError as error:
            return stop(1, error)
    def program(*values):
        return [divides(x) for x in values], [stop(2, divides(x)) for x in reversed(values)]
    def make_args(k):
        return [(x for x in [3]), 4, 0]
    """)


def test_zips_from_outside_differ_in_number_and_strictness():
    agrees("""
    def program(z):
        return [next(z, 0), *z]
    def make_args(k):
        return [[zip([1, 2], [3]), zip([1, 2, 3]), zip([1, 2], [3], strict=True)][k]]
    """)


def test_class_of_an_object_is_exchanged_past_its_setattr():
    agrees("""
    class Before:
        pass
    class After:
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)
            stop('setattr', name)
    def program(o):
        o.__class__ = After
        o.__class__ = After
    def make_args(k):
        return [Before()]
    """)


def test_slots_of_a_class_with_getattr():
    agrees("""
    class Slotted:
        __slots__ = ('v', 'items')
        def __init__(self, v):
            self.items = [v]
        def __getattr__(self, name):
            return stop('getattr', name)
    class Sub(Slotted):
        def __init__(self, v):
            super().__init__(v)
            self.v = stop('init', v)
    def program(a, o):
        made = Sub(a)
        found = [o.items, o.v, made.v, made.w]
        del o.items
        return found, o.items
    def make_args(k):
        return [k, Slotted(k)]
    """)


def test_heap_after_a_comparison_that_fails():
    agrees("""
    class Odd:
        def __init__(self, heap):
            self.heap = heap
        def __lt__(self, other):
            self.heap.append(7)
            return False
    def program(l, m):
        found = []
        for call in (
            lambda: heapq.heappushpop(l, 4), lambda: heapq.heapify(l), lambda: heapq.heappush(m, 'x'), lambda: heapq.heappop(l),
            lambda: heapq.heappush(m, Odd(m)),
        ):
            try:
                found.append(call())
            except (TypeError, RuntimeError) as error:
                found.append(str(error))
            found.append(list(map(str, l)))
            found.append(len(m))
        return found
    def make_args(k):
        return [[2, 1, 4, 0, 'a', None], [1, 2, 3]]
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


def test_list_iterators_past_the_end_of_a_list_that_was_shortened():
    agrees("""
    def program(l, m):
        backwards, forwards = reversed(l), iter(m)
        found = [next(forwards), next(forwards), next(forwards), l.pop(), m.pop()]
        stop(1, found)
        m.extend([7, 8])
        return found, list(backwards), list(forwards)
    def make_args(k):
        return [[1, 2], [3, 4, 5]]
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


def test_bisect_asks_the_sequence_slots():
    agrees("""
    class Own(dict):
        def __len__(self):
            return 3
        def __getitem__(self, i):
            return i
    class Numbers:
        def __getitem__(self, i):
            return i
    def program(sources):
        found = []
        for a in sources:
            for bounds in ({}, {'hi': 2}, {'hi': 0}, {'lo': 5}, {'lo': -1}, {'hi': -1}, {'lo': 1.0}, {'hi': 'a'}, {'lo': 2, 'hi': -5}):
                for function in (bisect.bisect_right, bisect.bisect_left):
                    try:
                        found.append(function(a, 1, **bounds))
                    except (TypeError, ValueError, IndexError) as error:
                        found.append(str(error))
        return found
    def make_args(k):
        return [[{1: 2}, collections.defaultdict(int, {1: 0}), {1, 2}, 5, None, dict, [0, 1, 2], (0, 1), Own(), Numbers(), range(4)]]
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


def test_messages_of_stand_ins_name_classes_as_c_does():
    agrees("""
    class Own:
        pass
    def program(values):
        found = []
        for value in values:
            for call in (lambda: heapq.heappop(value), lambda: bisect.bisect([], 1, hi=value)):
                try:
                    found.append(call())
                except TypeError as error:
                    found.append(str(error))
        return found
    def make_args(k):
        return [[collections.deque([1]), None, (1,), Own(), collections.OrderedDict(), functools.partial(len)]]
    """)


@pytest.mark.parametrize("items", ["{1: []}", "{1: [], 2: []}", "{1: [], 2: [], 3: []}", "{1: 2}"])
@pytest.mark.parametrize("elements", ["{1, 5}", "frozenset({1, 5})", "{(1, 2), 5}"])
def test_a_set_that_is_not_shorter_than_a_view_hashes_its_items(elements, items):
    agrees(f"""
    def program(st, d):
        out = []
        for make in (lambda: st & d.items(), lambda: d.items() & st, lambda: d.items() & d.items()):
            try:
                out.append(make())
            except TypeError as error:
                out.append(str(error))
        return out

    def make_args(k):
        return [{elements}, {items}]
    """)


def test_an_int_that_varies_and_is_asked_for_itself():
    agrees("""
    def program(a):
        try:
            class K:
                k = abs(a)
            math.comb(1, a)
        except* (ValueError,) as err:
            pass
        finally:
            pass
    def make_args(k):
        return [0 - k]
    """)


def test_functions_with_one_code_and_other_globals_have_versions_of_their_own():
    def program(x):
        stop(1)  # noqa: F821
        return x + G  # noqa: F821

    region, results = convert.Region(lambda gm, inputs: gm.forward), []
    with config.patch(capture_pure_python=True, suppress_errors=False):
        for number in (10, 20):
            names = {"stop": _eval_frame.Uncaptured(results.append), "G": number}
            captured = region.wrap(types.FunctionType(program.__code__, names))
            results += [captured(1), captured(1)]
    assert results == [1, 1, 11, 11, 1, 1, 21, 21]


def test_what_the_new_code_holds_keeps_its_identity_while_the_code_is_written(monkeypatch):
    """A tracker that died would leave its id, and the local that holds its object, to another one."""
    checked = []

    def assemble(self):
        alive = {id(each) for each in self.named}
        checked.append(len(self.loaded))
        assert {*self.loaded, *self.sources, *self.updated} <= alive
        return original(self)

    original = codegen.Codegen.assemble
    monkeypatch.setattr(codegen.Codegen, "assemble", assemble)
    agrees("""
    def program(l, n, o):
        found = {n + x for x in l}
        o['v'] = stop(1, found)
        return [n + 4, n + 9, found]
    def make_args(k):
        return [[4, 5, 0, 3], k, {}]
    """)
    assert max(checked) > 3


@pytest.mark.parametrize(
    "expression, arguments",
    [
        ("math.gcd(a, x)", "[k, [0, 2.5, 'q'][k]]"),
        ("math.gcd(x, a)", "[k + 5, [2.5, len, 2.5][k]]"),
        ("math.comb(a + 3, x)", "[k, [0, 2.5, 'q'][k]]"),
        ("math.ldexp(a, x)", "[k + 0.5, [4, 2.5, 'q'][k]]"),
        ("round(a, x)", "[k + 0.5, [4, 2.5, 'q'][k]]"),
        ("x * a", "[0.0 - k, [7, 'q', 'q'][k]]"),
        ("operator.mul(a, x)", "[k + 0.5, [4, (), 'q'][k]]"),
        ("x[a]", "[k + 0.5, [[1], (), 'q'][k]]"),
        ("x[a:]", "[k + 0.5, [[1], (), 'q'][k]]"),
        ("range(a, x)", "[k + 0.5, 4 + k]"),
        ("'%s' % x", "[0, collections.deque([1] * k)]"),
        ("'' % x", "[0, [collections.deque(), set(), {}][k]]"),
    ],
)
def test_numbers_that_vary_where_they_are_wrong(expression, arguments):
    agrees(f"""
    def program(a, x):
        return {expression}
    def make_args(k):
        return {arguments}
    """)


@pytest.mark.parametrize("name", ["__getattr__", "__getattribute__", "__setattr__", "__delattr__"])
@pytest.mark.parametrize("value", ["None", "5", "Called()", "staticmethod(lambda *args: len(args))", "abs", "len"])
def test_hooks_of_attributes_that_are_no_functions(name, value):
    agrees(f"""
    class Called:
        def __call__(self, *args):
            return args
    class C:
        {name} = {value}
    def program(use):
        o = KEPT
        try:
            if use == 0:
                return o.missing, o.k
            if use == 1:
                o.k = 4
            else:
                del o.k
        except Exception as error:
            return type(error), str(error)
    KEPT = C()
    def make_args(k):
        return [k]
    """)


@pytest.mark.parametrize("defined, statement", [("__delitem__", "o[0] = 1"), ("__setitem__", "del o[0]")])
def test_items_that_can_be_set_or_deleted_only(defined, statement):
    agrees(f"""
    class C:
        def {defined}(self, *args):
            pass
    def program(o):
        {statement}
    def make_args(k):
        return [C()]
    """)


@pytest.mark.parametrize("name", ["missing", "__spec"])
@pytest.mark.parametrize("module", ["fuzz_mod", "math", "collections", "sys"])
def test_import_of_a_name_that_is_missing(module, name):
    agrees(f"""
    def program():
        try:
            from {module} import {name}
        except ImportError as error:
            return str(error), error.name, error.path, error.msg
    def make_args(k):
        return []
    """)


@pytest.mark.parametrize("read", ["repr(o)", "str(o)", "o.args"])
@pytest.mark.parametrize(
    "body", ["def __getattribute__(self, name): return stop(1, name)", "args = property(lambda self: stop(2, ()))"]
)
def test_exceptions_whose_class_says_what_their_attributes_are(body, read):
    agrees(f"""
    class C(Exception):
        {body}
    KEPT = C(1, 2)
    def program():
        o = KEPT
        return {read}
    def make_args(k):
        return []
    """)


def test_a_version_knows_its_globals_before_the_analysis_has_returned_it(monkeypatch):
    """A signal handler may raise in between."""

    def program(x):
        return G + x  # noqa: F821

    def interrupted(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if results == []:
            results.append("interrupt")
            raise KeyboardInterrupt

    original, results = convert.Region._compile, []
    monkeypatch.setattr(convert.Region, "_compile", interrupted)
    region = convert.Region(lambda gm, inputs: gm.forward)
    with config.patch(capture_pure_python=True, suppress_errors=False):
        for number in (10, 20):
            captured = region.wrap(types.FunctionType(program.__code__, {"G": number}))
            for _ in range(2):
                try:
                    results.append(captured(1))
                except KeyboardInterrupt:
                    results.append("raised")
    assert results == ["interrupt", "raised", 11, 21, 21]
    entries = region.cache_for(program.__code__).entries
    assert {entry.globals["G"] for entry in entries} == {10, 20}


def test_a_metaclass_that_gets_a_lookup_of_its_own():
    """`slot_tp_new` asks it for `__new__`; to `object.__getattribute__` a class is an object with its namespace as `__dict__`."""
    agrees("""
    class Meta(type):
        pass
    class C(metaclass=Meta):
        pass
    class D(metaclass=Meta):
        def __new__(cls, *args):
            return stop(1, len(args))
    def program(k):
        if k == 0:
            class E(C):
                pass
        else:
            D(k)
        o66
    def make_args(k):
        return [k]
    def change(n):
        Meta.__getattribute__ = lambda self, name: object.__getattribute__(self, name)
    """)


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
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(f)
        assert captured(1) == 2
        guards = captured.cache.entries[0].owner.guards
        Meta.__getattribute__ = lookup
        C.k = 2
        del asked[:]
        failures = explain_miss(guards, (1,), f.__closure__)
        assert [str(failure) for failure in failures] and asked == []


@pytest.mark.parametrize("use", ["o", "(lambda: o)"])
def test_a_traceback_holds_the_variables_of_a_frame_that_waits(use):
    """The frame of `inner` goes on after the break at `watch`: its variables, and their cells, are arguments of another frame."""
    agrees(f"""
    class Watched:
        pass
    def inner(a):
        o = watch(1, Watched())
        try:
            kept = {use}
            raise ValueError
        finally:
            stop(2, 3)
    def program(a):
        inner(a)
    def make_args(k):
        return [k]
    """)


def test_a_call_that_does_not_fit_leaves_no_garbage():
    """The class statement calls `list` with three arguments. The error of its model must not keep the frames of the analysis."""

    class Held:
        pass

    def program(held):
        class Made([]):
            pass

    captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
    held = Held()
    reference = weakref.ref(held)
    gc.collect()
    gc.disable()
    try:
        with config.patch(capture_pure_python=True, suppress_errors=False):
            with pytest.raises(TypeError, match="list expected at most 1 argument"):
                captured(held)
        del held
        assert reference() is None
    finally:
        gc.enable()


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


def test_classes_are_read_past_a_metaclass_that_answers_for_all_names():
    agrees("""
    class Meta(type):
        pass
    class C(metaclass=Meta):
        def __init__(self, v):
            self.v = v
    OBJECT = C(2)
    def program(k):
        try:
            OBJECT[0] = 1
        except TypeError as error:
            stop(1, error)
        return OBJECT
    def make_args(k):
        return [k]
    def change(n):
        Meta.__getattribute__ = lambda self, name: stop(2, name)
    """)
