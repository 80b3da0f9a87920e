"""What guards and compiled code keep alive, and what a program can see of that with weak references."""

import gc
import traceback
import weakref
from typing import ClassVar

import pytest

from dynamo_lite.config import config
from dynamo_lite.exc import RecompileError
from dynamo_lite.markers import set_stance
from dynamo_lite.record import log
from tests.helpers.capturing import new_region, wrapped


@pytest.fixture(autouse=True)
def pure_python():
    with config.patch(capture_pure_python=True):
        yield


def opaque(*args):
    """Breaks the graph."""
    return gc.isenabled() and args[-1]


class Plain:
    def method(self):
        return 1


def test_guards_do_not_keep_a_function_alive():
    region = new_region()

    def call(f):
        return f() + 1

    def make():
        return lambda: 1

    compiled = region.wrap(call)
    f = make()
    assert compiled(f) == compiled(f) == 2
    gone = weakref.ref(f)
    del f
    assert gone() is None
    assert [compiled(make()) for _ in range(3)] == [2, 2, 2]
    assert len(region.cache_for(call.__code__).entries) == 1


def test_entries_for_classes_that_are_gone_are_dropped():
    region = new_region()

    def make(cls):
        return cls.__name__, cls().method()

    compiled = region.wrap(make)
    for i in range(6):
        cls = type(f"Local{i}", (Plain,), {})
        assert compiled(cls) == (f"Local{i}", 1)
        entries = region.cache_for(make.__code__).entries
        assert [entry.guards.outlived() for entry in entries] == [False]
        del cls, entries
        gc.collect()
    (entry,) = region.cache_for(make.__code__).entries
    assert entry.guards.outlived()


def name_of(cls):
    return cls.__name__


def calls_with_new_classes(region, n):
    compiled = region.wrap(name_of)
    for i in range(n):
        assert compiled(type(f"Local{i}", (), {})) == f"Local{i}"
        gc.collect()


def test_entries_for_classes_that_are_gone_count_for_the_limit(caplog):
    """A loop that makes such an object in each turn comes to an end, and is told."""
    caplog.set_level("WARNING", "dynamo_lite")
    region = new_region()
    log.reset()
    calls_with_new_classes(region, 12)
    frames = log.snapshot()
    assert [frame.entry_index for frame in frames] == list(range(config.recompile_limit)) == list(range(8))
    assert [frame.is_recompile for frame in frames] == [False] + [True] * 7
    assert "cls: expected an object that is gone, found <class" in frames[1].recompile_reason
    assert caplog.text.count("reached the limit of 8") == 1 and "an object that is gone" in caplog.text
    assert len(region.cache_for(name_of.__code__).entries) <= 1
    region.reset()
    calls_with_new_classes(region, 1)
    assert len(log.snapshot()) == 9


def test_entries_for_classes_that_are_gone_are_versions_before():
    region = new_region()
    calls_with_new_classes(region, 1)
    for reason in ("an object that is gone", "objects that are gone", "objects that are gone"):
        with config.patch(error_on_recompile=True), pytest.raises(RecompileError, match=reason):
            calls_with_new_classes(region, 1)
        with set_stance("fail_on_recompile"), pytest.raises(RecompileError, match="objects that are gone"):
            calls_with_new_classes(region, 1)


def test_guards_and_code_do_not_keep_a_class_alive():
    region = new_region()

    def use(value):
        made = type(value)()
        opaque(made)
        return made.method, type(made)

    def run(compiled):
        class Local:
            def method(self):
                return 5

        for _ in range(4):
            method, cls = compiled(Local())
            assert cls is Local and method() == 5
        return weakref.ref(Local)

    gone = run(region.wrap(use))
    gc.collect()
    assert gone() is None


def test_a_reused_address_is_no_match():
    region = new_region()

    def ask(value):
        return value.answer

    compiled = region.wrap(ask)
    for i in range(20):
        cls = type("Local", (), {"answer": i})
        assert compiled(cls) == compiled(cls()) == i
        del cls
        gc.collect()


def test_aborted_analyses_let_go():
    region = new_region()

    def use(f):
        opaque(f)
        return f()

    def local():
        return 3

    compiled = region.wrap(use)
    gc.disable()
    try:
        assert compiled(local) == 3
        gone = weakref.ref(local)
        del local
        assert gone() is None
    finally:
        gc.enable()


def count_references(objects):
    return [weakref.getweakrefcount(o) for o in objects if o.method() == 1]


class Hashed:
    """Says something else when it is asked again."""

    def __init__(self):
        self.calls = 0

    def __hash__(self):
        self.calls += 1
        return self.calls // 3

    def method(self):
        return 1


def test_weak_references_of_the_program_are_its_own():
    """Such a reference keeps the hash of its object. Made anew it asks again, however often guards have met the object."""
    region = new_region()
    compiled = region.wrap(lambda value: value.method() + value.calls * 0)

    def hashes(function):
        value = Hashed()
        found = []
        for _ in range(6):
            function(value)
            found.append(hash(weakref.ref(value)))
        return found, value.calls, value in weakref.WeakSet([value])

    assert hashes(compiled) == hashes(Hashed.method)


def test_an_object_has_one_reference_of_guards_and_records():
    value = Plain()
    for _ in range(3):
        compiled = new_region().wrap(lambda value: value.method())
        for _ in range(5):
            compiled(value)
    own = weakref.ref(value)
    assert weakref.getweakrefcount(value) <= 2
    assert [ref() for ref in weakref.getweakrefs(value)] == [value] * weakref.getweakrefcount(value)
    assert own is weakref.ref(value)


def test_objects_that_come_once_are_not_referenced():
    region = new_region()

    def method_of(value):
        return value.method() + len(value.extra)

    compiled = region.wrap(method_of)
    objects = [Plain() for _ in range(8)]
    for value in objects:
        value.extra = "abc"
    assert [compiled(value) for value in objects] == [4] * 8
    assert count_references(objects) == [0] * 8


def test_a_traceback_keeps_the_variables_of_its_frames():
    def fail():
        nonlocal ref
        value = Plain()
        ref = weakref.ref(value)
        gc.set_debug("no number")

    def catch():
        try:
            fail()
        except TypeError as error:
            inside = ref() is not None, error.__traceback__.tb_next is not None
        return inside, ref() is None

    ref = None
    assert catch() == new_region().wrap(catch)() == ((True, True), True)


class Argument:
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
    compiled = wrapped(function)
    o = Argument()
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


def test_a_call_that_does_not_fit_leaves_no_garbage():
    """The class statement calls `list` with three arguments. The error of its model must not keep the frames of the analysis."""

    class Held:
        pass

    def program(held):
        class Made([]):
            pass

    captured = wrapped(program)
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


class Finalized:
    """Tells when it dies."""

    dead: ClassVar[list[object]] = []

    def __init__(self, name):
        self.name = name

    def __del__(self):
        Finalized.dead.append(self.name)


def leaves_by_finally(kept):
    try:
        {}["k"]
    finally:
        o = Finalized(1)  # noqa: F841


def raises_again_after_two_breaks(kept):
    try:
        {}["k"]
    except KeyError:
        one = Finalized(1)
        two = Finalized(2)  # noqa: F841
        del one
        Finalized.dead.append("deleted")
        raise


def leaves_through_two_frames(kept):
    o = Finalized(1)  # noqa: F841
    try:
        leaves_by_finally(kept)
    finally:
        p = Finalized(2)  # noqa: F841


def leaves_in_a_cell(kept):
    try:
        {}["k"]
    finally:
        o = Finalized(1)
        kept.append(len([lambda: o]))


def keeps_the_exception(kept):
    try:
        {}["k"]
    except KeyError as error:
        kept.append(error)
    o = Finalized(1)  # noqa: F841
    return 1


def keeps_two_exceptions(kept):
    for i in range(2):
        try:
            {}["k"]
        except KeyError as error:
            kept.append(error)
            o = Finalized(i)  # noqa: F841
    return 1


def breaks_for_each_exception(kept):
    for i in range(3):
        try:
            {}[i]
        except KeyError as error:
            kept.append(error)
            Finalized.dead.append(str(error))
    o = Finalized(1)  # noqa: F841


def drops_the_exception(kept):
    try:
        {}["k"]
    except KeyError:
        o = Finalized(1)
    Finalized.dead.append("dropped")
    o = None  # noqa: F841
    return 1


def moments_of_death(function, clears):
    """What dies while the function runs, as long as its exceptions live, and when these, or the variables in their tracebacks, go; the
    lines of the tracebacks."""
    kept, moments, lines = [], [], []
    dead = Finalized.dead = []
    try:
        function(kept)
    except KeyError as error:
        kept.append(error.with_traceback(error.__traceback__.tb_next))
    moments.append(list(dead))
    for error in kept:
        if isinstance(error, KeyError):
            lines += traceback.format_tb(error.__traceback__)
            if clears:
                traceback.clear_frames(error.__traceback__)
    moments.append(list(dead))
    error = None
    kept.clear()
    moments.append(list(dead))
    return moments, lines


@pytest.mark.parametrize("clears", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        leaves_by_finally,
        raises_again_after_two_breaks,
        leaves_through_two_frames,
        leaves_in_a_cell,
        keeps_the_exception,
        keeps_two_exceptions,
        breaks_for_each_exception,
        drops_the_exception,
    ],
)
def test_a_traceback_keeps_what_its_frame_binds_after_a_graph_break(function, clears):
    compiled = wrapped(function)
    gc.disable()
    try:
        expected = moments_of_death(function, clears)
        assert [moments_of_death(compiled, clears) for _ in range(3)] == [expected] * 3
    finally:
        gc.enable()
    assert expected[0][-1]
