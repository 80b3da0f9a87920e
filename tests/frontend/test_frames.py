# ruff: noqa: F841
"""Frames of code that is cut by graph breaks look as those of eager execution: tracebacks, lifetimes, depth. Needs no torch."""

import builtins
import gc
import io
import os
import pdb
import sys
import threading
import traceback
import types
import weakref

import pytest

from dynamo_lite import _eval_frame
from dynamo_lite.config import config
from dynamo_lite.frontend import convert
from dynamo_lite.record import log
from tests.helpers.capturing import new_region, same, uncaptured


@uncaptured
def stop(x=None):
    return x


@uncaptured
def fail(x):
    if x > 1:
        raise ValueError("x")
    try:
        return 1 / 0
    except ZeroDivisionError:
        raise KeyError(x)


def capture(fn):
    region = new_region()
    wrapped = region.wrap(fn)

    def call(*args):
        with config.patch(capture_pure_python=True, debug=True):
            return wrapped(*args)

    call.region = region
    return call


# -- tracebacks


def inner(x):
    y = x + 1
    return [
        fail(y),
        3,
    ]


def middle(x):
    z = inner(x)
    return z


def in_an_inlined_call(x):
    return middle(x) + 1


def in_a_resume_function(x):
    stop(x)
    return middle(x)


def with_a_context(x):
    try:
        middle(x)
    except ValueError:
        raise RuntimeError("again")


class Stopping:
    def __enter__(self):
        return self

    def __exit__(self, *args):
        stop(1)
        return False


class Failing(Stopping):
    def __exit__(self, *args):
        raise OSError("exit")


def in_a_with_block(x):
    with Stopping():
        middle(x)


def in_exit(x):
    with Failing():
        stop(x)
        middle(x)


def raised_after_a_loop(x):
    for i in range(3):
        stop(i)
    raise TypeError("long" + str(x))


def in_a_closure(x):
    stop(x)

    def nested(y):
        stop(y)
        return y.nope

    return nested(x)


def in_a_generator(x):
    def numbers():
        for i in range(3):
            stop(i)
            yield middle(i)

    return list(numbers())


def through_finally(x):
    try:
        fail(x)
    finally:
        stop(2)


def while_another_is_handled(x):
    try:
        raise ValueError(1)
    except ValueError:
        middle(x)


def raised_again(x):
    try:
        stop(x)
        fail(x)
    except (ValueError, KeyError) as error:
        stop(error)
        raise error from None


def in_a_comprehension(x):
    stop(x)
    return [middle(i) for i in (x, x)]


RAISING = [
    in_an_inlined_call,
    in_a_resume_function,
    with_a_context,
    in_a_with_block,
    in_exit,
    raised_after_a_loop,
    in_a_closure,
    in_a_generator,
    through_finally,
    while_another_is_handled,
    raised_again,
    in_a_comprehension,
]


def chain(fn, x):
    """Type, and the entries below that of the caller, of the exception of `fn(x)` and those that led to it."""
    try:
        fn(x)
    except Exception as error:
        links, exc = [], error
    while exc is not None:
        entries = [entry for entry in traceback.extract_tb(exc.__traceback__) if entry.name not in ("chain", "call")]
        links.append([type(exc), [(e.filename, e.name, e.lineno, e.end_lineno, e.colno, e.end_colno) for e in entries]])
        exc = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    return links


@pytest.mark.parametrize("x", [5, 0])
@pytest.mark.parametrize("fn", RAISING, ids=lambda fn: fn.__name__)
def test_tracebacks(fn, x):
    captured = capture(fn)
    expected = chain(fn, x)
    assert chain(captured, x) == expected
    assert chain(captured, x) == expected


def test_the_code_keeps_its_name():
    def f():
        stop()
        return sys._getframe().f_code.co_name

    assert capture(f)() == "f"


# -- looking at frames


def calls_locals(a):
    b = a + 1
    stop()
    c = b
    return locals(), dir(), sorted(vars())


def calls_eval(a):
    b = a + 1
    stop()
    return eval("a + b")


def calls_exec(a):
    b, d = a + 1, {}
    stop()
    exec("d['sum'] = a + b")
    return d


def in_a_nested_function(a):
    b = a + 1

    def nested():
        x = b
        stop()
        return sorted(locals()), eval("x")

    return nested(), sorted(locals())


def of_its_own_frame(a):
    stop()
    frame = sys._getframe()
    return frame.f_locals["a"], frame.f_code.co_name, frame.f_lineno


def of_the_calling_frame(a):
    b = a
    stop()

    def who():
        caller = sys._getframe(1)
        return caller.f_code.co_name, caller.f_lineno, sorted(caller.f_locals)

    return who()


def in_a_comprehension_of_its_own(a):
    stop()
    return [sorted(locals()) for i in range(1)]


def of_a_class_body(a):
    class A:
        x = 1
        stop()
        names = [name for name in locals() if name[0] != "_"]

    return A.names


def in_a_loop(a):
    for i in range(2):
        stop()
        del i
        names = sorted(locals())
    return names


def calls_globals(a):
    stop()
    return globals()["calls_globals"] is calls_globals


def unbound_cell(a):
    def get():
        return x

    stop()
    try:
        return x
    except NameError as error:
        return type(error), str(error), error.name
    x = 1


def unbound_free_variable(a):
    def get():
        stop()
        try:
            return x
        except NameError as error:
            return type(error), str(error), error.name

    result = get()
    x = 1
    return result


def cell_emptied_elsewhere(a):
    x = 1

    def clear():
        nonlocal x
        del x

    stop()
    clear()
    return x


def shows_variables(a):
    z = a
    stop()
    b = z + 1
    first = dict(locals()), dir(), dict(vars())
    stop()
    c = b
    return first, list(locals().items()), dir(), vars()["c"]


def shows_variables_beside_constants(a):
    stop()
    nothing, pair = (), (1, "locals")
    return nothing, pair, sorted(locals())


def shows_cells(a):
    z = a
    stop()
    b = lambda: (a, z)  # noqa: E731
    stop()
    return sorted(locals()), dir(), "a" in vars(), b()


def shows_a_free_variable(a):
    def inner(b):
        stop()
        c = a
        return list(locals().items()), dir()

    return inner(a + 1), sorted(name for name in locals() if name != "inner")


def shows_variables_while_handling(a):
    try:
        fail(a)
    except ValueError as error:
        stop()
        return sorted(locals())


def shows_the_same_dictionary(a):
    before = locals()
    stop()
    b = a
    after = locals()
    return (before is after, sorted(after)) if sys.version_info < (3, 13) else sorted(after)


def shows_what_was_put_there(a):
    stop()
    locals()["put"] = a
    b = a
    return sorted(locals().items())


def never_shows_variables(a):
    b = a + 1
    if a > 100:
        return locals(), eval("b")
    stop()
    return a + b


def shows_through_a_module(a):
    """As the asserts do that pytest has rewritten."""
    b = a + 1
    stop()
    return b if "b" not in builtins.locals() else sorted(builtins.locals())


def shows_variables_of_a_callee(a):
    def inner(b):
        stop()
        return sorted(locals())

    c = a
    found = inner(a)
    return found, sorted(set(locals()) - {"inner"})


def calls_a_function_of_that_name(a):
    def locals():
        return {"c": 1, "a": 2}

    def dir():
        return ["b", "a"]

    stop()
    c = b = a
    return list(locals().items()), dir()


def shows_variables_in_a_loop(a):
    found = []
    for i in range(3):
        stop()
        if i:
            late = i
        found.append(sorted(locals().items()))
    return [[name for name, _ in items] for items in found]


def deletes_variables(a):
    b = a
    stop()
    del a
    first = sorted(locals())
    stop()
    a = b
    return first, sorted(locals())


@pytest.mark.parametrize(
    "fn",
    [
        calls_locals,
        shows_variables,
        shows_variables_beside_constants,
        shows_cells,
        shows_a_free_variable,
        shows_variables_while_handling,
        shows_the_same_dictionary,
        shows_what_was_put_there,
        never_shows_variables,
        shows_through_a_module,
        shows_variables_of_a_callee,
        calls_a_function_of_that_name,
        shows_variables_in_a_loop,
        deletes_variables,
        calls_eval,
        calls_exec,
        in_a_nested_function,
        of_its_own_frame,
        of_the_calling_frame,
        in_a_comprehension_of_its_own,
        of_a_class_body,
        in_a_loop,
        calls_globals,
        unbound_cell,
        unbound_free_variable,
        cell_emptied_elsewhere,
    ],
    ids=lambda fn: fn.__name__,
)
def test_looking_at_frames(fn):
    def outcome(call):
        try:
            return call(5)
        except NameError as error:
            return type(error), str(error)

    captured = capture(fn)
    assert [outcome(captured), outcome(captured)] == [outcome(fn)] * 2


IS_SHARED = sys.version_info < (3, 13)  # later each locals() is a dictionary of its own


@pytest.mark.parametrize(
    "fn, count",
    [
        (calls_locals, 2),
        (shows_variables, 1 if IS_SHARED else 3),
        (shows_cells, 3),
        (never_shows_variables, 2),
        (shows_through_a_module, 2),
        (shows_the_same_dictionary, 0 if IS_SHARED else 2),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_frames_that_show_variables_are_cut(fn, count):
    """But for those whose dictionary somebody may have already, since that stays the frame's: what is left runs in one piece."""
    captured = capture(fn)
    captured(5)
    pieces = [cache for cache in captured.region.caches if any(e.code is not cache.code for e in cache.entries)]
    assert len(pieces) == count


def test_a_tracer_sees_the_program_only():
    def f(x):
        stop()
        return g(x) + 1

    def g(x):
        return x * 2

    def trace(call):
        events = []

        def tracer(frame, event, arg):
            if not frame.f_code.co_filename.startswith("<"):
                events.append((frame.f_code.co_filename, event))
            return tracer

        sys.settrace(tracer)
        try:
            call(2)
        finally:
            sys.settrace(None)
        return {name for name, _ in events}

    wrapped = new_region().wrap(f)
    engine = os.path.dirname(convert.__file__)
    assert __file__ in trace(wrapped)
    assert not [name for name in trace(wrapped) if name.startswith(engine)]


# -- depth


@pytest.mark.parametrize("by_hook", [False, True])
def test_a_debugger_steps_through_real_frames(by_hook, monkeypatch):
    def inner(x):
        y = x + 1
        if by_hook:
            breakpoint()
        else:
            debugger.set_trace()
        z = 5
        return y * z

    def outer(x):
        found = inner(x) + 1
        return found

    def debugged(fn):
        nonlocal debugger
        commands, out = io.StringIO("p y\nu\np x\nd\nn\nn\nn\nn\np found\nc\n"), io.StringIO()
        debugger = pdb.Pdb(stdin=commands, stdout=out, nosigint=True, readrc=False)
        debugger.use_rawinput = False
        before = sys.gettrace()
        try:
            assert fn(1) == 11
        finally:
            sys.settrace(before)
        return out.getvalue()

    debugger = None
    monkeypatch.setattr(sys, "breakpointhook", lambda: debugger.set_trace(sys._getframe(1)))
    expected = debugged(outer)
    assert "(Pdb) 2\n" in expected and "(Pdb) 11\n" in expected
    log.reset()
    assert debugged(capture(outer)) == expected
    assert [(b.slug, len(b.user_stack)) for b in log.breaks()][:2] == [("debugger", 2), ("debugger", 1)]


ELSEWHERE = types.ModuleType("elsewhere")
ELSEWHERE.uncaptured = uncaptured
exec(
    """
import collections, dataclasses, enum, sys, types
class Meta(type): pass
class Asked:
    def __call__(self):
        caller = sys._getframe(1)
        self.stop()
        return caller.f_code.co_name, caller.f_globals["__name__"]
def named(stop): return collections.namedtuple("T", "a b").__module__
def members(stop): return enum.Enum("E", "A B").__module__
def fields(stop): return dataclasses.make_dataclass("D", ["a"]).__module__
def by_type(stop): return type("C", (), {}).__module__
def by_metaclass(stop): return Meta("C", (), {}).__module__
def by_new(stop): return type.__new__(Meta, *("C", (), {})).__module__
def who(stop):
    stop()
    return sys._getframe(1).f_code.co_name, sys._getframe(1).f_globals["__name__"]
def calls_who(stop): return who(stop)
def calls_asked(stop):
    asked = Asked()
    asked.stop = stop
    return asked()
def asks_first(stop):
    frame = sys._getframe(1)
    stop()
    return frame.f_code.co_name, sorted(locals()), frame.f_globals["__name__"]
def calls_first(stop): return asks_first(stop)
def by_back(stop):
    frame = sys._getframe().f_back
    stop()
    return frame.f_code.co_name
def calls_back(stop): return by_back(stop)
@uncaptured
def uncaptured_who(): return sys._getframe(1).f_code.co_name, sys._getframe(2).f_globals["__name__"]
class Holder:
    @uncaptured
    def who(self): return sys._getframe(1).f_code.co_name
def calls_uncaptured(stop): return uncaptured_who()
def calls_method(stop): return Holder().who()
""",
    vars(ELSEWHERE),
)
_ASKING = [
    name for name, value in vars(ELSEWHERE).items() if type(value) is types.FunctionType and "uncaptured" not in name
]
_ASKING.append("calls_uncaptured")


@pytest.mark.parametrize("name", _ASKING)
def test_what_is_called_for_real_looks_at_real_callers(name):
    """At a break, too, in a function that can't go on in another frame: then those that called it must not be the outermost one's code."""
    function = getattr(ELSEWHERE, name)

    def inner():
        return function(stop)

    def outer():
        return inner()

    captured = capture(outer)
    expected = outer()
    assert [captured() for _ in range(3)] == [expected] * 3


def test_breaks_in_a_loop_do_not_nest():
    depths = set()

    @uncaptured
    def depth():
        frame, n = sys._getframe(), 0
        while frame is not None:
            frame, n = frame.f_back, n + 1
        depths.add(n)

    def f(items):
        for item in items:
            depth()
            stop(item)
        return None

    captured = capture(f)
    captured(iter([object() for _ in range(5000)]))
    assert len(depths) == 1


class TestRecursion:
    def test_recursion_without_end(self):
        def down():
            return down()

        def guarded():
            try:
                return guarded()
            except ValueError:
                return -1

        def program():
            seen = []
            for f in (down, guarded):
                try:
                    f()
                except RecursionError as e:
                    seen.append(type(e))
            return seen

        gc.disable()  # callbacks of the test tools on the collector would fail down there
        try:
            same(program)
        finally:
            gc.enable()


class TestDepth:
    def test_value_nested_too_deeply_to_be_built(self):
        def program(n):
            value = ()
            for _ in range(n):
                value = (value,)
            return value

        with config.patch(capture_pure_python=True, debug=True):
            captured = new_region().wrap(program)
            value, depth = captured(9000), 0
            while value:
                (value,) = value
                depth += 1
            assert depth == 9000


# -- lifetimes


class Thing:
    pass


@uncaptured
def alive(ref):
    return ref() is not None


@uncaptured
def weak(thing):
    return weakref.ref(thing)


def dropped_before_a_break():
    thing = Thing()
    ref = weak(thing)
    first = alive(ref)
    thing = None
    return first, alive(ref)


def deleted_after_a_break():
    thing = Thing()
    ref = weak(thing)
    stop()
    del thing
    return alive(ref)


def kept_though_unused():
    thing = Thing()
    ref = weak(thing)
    stop()
    return alive(ref)


def kept_in_a_container():
    things = [Thing()]
    ref = weak(things[0])
    stop()
    first = alive(ref)
    things.clear()
    stop()
    return first, alive(ref)


def operand_of_the_break():
    return alive(weak(Thing()))


def in_an_inlined_frame():
    def drop(thing):
        ref = weak(thing)
        del thing
        return alive(ref)

    return drop(Thing())


def iterator_is_dropped():
    things = iter([Thing()])
    refs = []
    for thing in things:
        refs.append(weak(thing))
    del thing
    stop()
    return [alive(ref) for ref in refs]


def cell_is_emptied():
    thing = Thing()

    def get():
        return thing

    ref = weak(get())
    first = alive(ref)
    thing = None
    return first, alive(ref), get()


@pytest.mark.parametrize(
    "fn",
    [
        dropped_before_a_break,
        deleted_after_a_break,
        kept_though_unused,
        kept_in_a_container,
        operand_of_the_break,
        in_an_inlined_frame,
        iterator_is_dropped,
        cell_is_emptied,
    ],
    ids=lambda fn: fn.__name__,
)
def test_lifetimes(fn, no_other_evaluator):
    gc.disable()
    try:
        expected = fn()
        captured = capture(fn)
        assert [captured(), captured()] == [expected] * 2
    finally:
        gc.enable()


def test_nothing_refers_to_the_arguments_afterwards():
    def f(thing, others):
        thing.x = len(others)
        stop()
        others.append(thing.x)
        return others

    captured = capture(f)
    gc.disable()
    try:
        for _ in range(3):
            thing, others = Thing(), [Thing()]
            refs = weakref.ref(thing), weakref.ref(others[0])
            captured(thing, others)
            del thing, others
            assert [ref() for ref in refs] == [None, None]
    finally:
        gc.enable()


def test_reference_counts():
    count = uncaptured(lambda x: sys.getrefcount(x))

    def f():
        thing = Thing()
        first = count(thing)
        other = thing
        second = count(thing)
        del other
        stop()
        return first, second, count(thing), count(Thing())

    *of_variable, of_temporary = f()
    # From 3.14 on CPython's operand stack borrows what a variable holds, that of generated code does not.
    more = sys.version_info >= (3, 14)
    captured = capture(f)
    assert [captured(), captured()] == [(*(n + more for n in of_variable), of_temporary)] * 2


def test_arguments_of_a_resume_function_are_handed_over_without_the_hook():
    """The last part of a function needs no hook, and owns what it got all the same."""

    def f(things):
        first = things.pop()
        stop()
        del first
        return None

    died = []
    thing = Thing()
    weakref.finalize(thing, died.append, 1)
    things = [thing]
    del thing
    assert capture(f)(things) is None
    assert died == [1]


def test_tail_call_wants_the_function_of_its_cache():
    region = new_region()
    for args in [(), (1,), (region.cache_for(inner.__code__), middle), (region.cache_for(inner.__code__), 1)]:
        with pytest.raises(TypeError):
            _eval_frame.tail_call(*args)
    for args in [(), (inner, ()), (1, [])]:
        with pytest.raises(TypeError):
            _eval_frame.call_moved(*args)
    with pytest.raises(TypeError):
        _eval_frame.raise_again(1)


def test_frames_with_cells_can_be_looked_into():
    """From the outside: by who is called, and by who holds a traceback."""

    @uncaptured
    def look():
        return len(sys._getframe(1).f_locals) > 0

    def f(a):
        b = [a]

        def nested():
            return a, b

        stop()
        first = look()
        stop(b)
        return first, look(), nested()

    expected = f(1)
    assert capture(f)(1) == expected


def test_recursion_as_deep_as_without_the_hook(no_other_evaluator):
    def deeper(n):
        return deeper(n - 1) + 1 if n else 0

    def refuse(cache, fn, values):
        cache.state = _eval_frame.SKIP

    def outside():
        results.append(deeper(60_000))

    results = []
    limit = sys.getrecursionlimit()
    previous = _eval_frame.set_region(_eval_frame.Region(refuse))
    try:
        sys.setrecursionlimit(70_000)
        assert deeper(60_000) == 60_000
        with pytest.raises(RecursionError):
            deeper(80_000)
        thread = threading.Thread(target=outside)  # has no region, but the hook is installed
        thread.start()
        thread.join()
    finally:
        _eval_frame.set_region(previous)
        sys.setrecursionlimit(limit)
    assert results == [60_000]


def test_a_function_whose_calls_go_elsewhere_is_called():
    testcapi = pytest.importorskip("_testcapi")
    if not hasattr(testcapi, "function_setvectorcall"):
        pytest.skip("this Python cannot")

    def plain():
        return "plain"

    def f():
        return plain()

    captured = capture(f)
    assert captured() == "plain"
    testcapi.function_setvectorcall(plain)
    assert capture(f)() == f() == "overridden"
    assert not _eval_frame.runs_its_code(plain) and _eval_frame.runs_its_code(f)
