"""Exceptions under capture: groups, chaining, tracebacks, members, what they keep alive. Needs no torch."""

import gc
import traceback
import weakref

import pytest

from dynamo_lite import _eval_frame
from dynamo_lite.config import config
from dynamo_lite.exc import unsupported
from dynamo_lite.record import log
from dynamo_lite.variables.objects.exception_instance import ExceptionVariable
from tests.helpers.capturing import same, stop, uncaptured, wrapped
from tests.helpers.program_texts import agrees


class TestGroups:
    def test_split_keeps_structure_and_metadata(self):
        def program():
            inner = ExceptionGroup("inner", [TypeError(1), ValueError(2)])
            group = ExceptionGroup("outer", [ValueError(3), inner])
            group.add_note("note")
            match, rest = group.split(ValueError)
            match.add_note("second")
            return repr(match), repr(rest), match.__notes__, rest.__notes__, group.subgroup(KeyError), str(group)

        same(program)

    def test_except_star(self):
        def program(n):
            seen = []
            try:
                try:
                    raise ExceptionGroup("g", [ValueError(1), TypeError(2), LookupError(3)][:n])
                except* ValueError as e:
                    seen.append(repr(e))
                except* TypeError as e:
                    seen.append(repr(e))
                    raise KeyError(4)
            except BaseException as e:
                seen.append((repr(e), repr(e.__context__)))
            return seen

        for n in (1, 2, 3):
            same(program, n)

    def test_except_star_wraps_a_naked_exception(self):
        def program():
            try:
                raise ValueError(1)
            except* ValueError as e:
                seen = repr(e), type(e.exceptions[0])
            return seen

        same(program)

    def test_class_of_a_group(self):
        def program():
            a, b = BaseExceptionGroup("a", [ValueError()]), BaseExceptionGroup("b", [KeyboardInterrupt()])
            try:
                ExceptionGroup("c", [b])
            except TypeError as e:
                return type(a), type(b), str(e)

        same(program)

    def test_wrong_arguments(self):
        def program():
            texts = []
            for args in (("a", []), (1, [ValueError()]), ("a", 1), ("a", [1]), ("a",)):
                try:
                    ExceptionGroup(*args)
                except Exception as e:
                    texts.append((type(e), str(e)))
            return texts

        same(program)


class TestChaining:
    def test_context_of_what_the_caller_handles(self):
        def program():
            try:
                raise KeyError(1)
            except KeyError as e:
                return e.__context__

        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(program)
            assert captured() is None
            try:
                raise ValueError("outer")
            except ValueError as outer:
                assert captured() is outer
            assert captured() is None

    def test_bare_raise_of_what_the_caller_handles(self):
        def program():
            try:
                raise
            except BaseException as e:
                return e

        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(program)
            try:
                raise ValueError("outer")
            except ValueError as outer:
                assert captured() is outer
            assert type(captured()) is RuntimeError

    def test_members_refuse_what_is_no_exception(self):
        def program():
            e, texts = ValueError(), []
            for name in ("__cause__", "__context__", "__traceback__", "__suppress_context__", "args"):
                try:
                    setattr(e, name, 1)
                except TypeError as error:
                    texts.append(str(error))
                try:
                    delattr(e, name)
                except TypeError as error:
                    texts.append(str(error))
            return texts

        same(program)

    def test_context_is_cut_where_it_would_be_a_cycle(self):
        def program():
            a, b = KeyError("a"), KeyError("b")
            try:
                try:
                    raise a
                except KeyError:
                    raise b
            except KeyError:
                try:
                    raise a
                except KeyError as e:
                    return e is a, e.__context__ is b, b.__context__

        same(program, whole=True)

    def test_handled_exception_of_a_generator_is_its_own(self):
        import sys

        def generator():
            yield sys.exception()
            try:
                raise KeyError("inside")
            except KeyError:
                yield repr(sys.exception())
            yield sys.exception()

        def program():
            g, seen = generator(), []
            try:
                raise ValueError("outside")
            except ValueError:
                seen.append(repr(next(g)))
                seen.append(next(g))
                seen.append(repr(sys.exception()))
            seen.append(next(g))
            return seen

        same(program, whole=True)


class TestTracebacks:
    def test_entries_of_an_exception_that_escapes(self):
        def fails(n):
            if n:
                return fails(n - 1)
            return 1 / 0

        def program():
            try:
                fails(2)
            except ZeroDivisionError as e:
                return e

        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(program)
            expected = traceback.format_exception(program())
            assert traceback.format_exception(captured()) == expected
            assert traceback.format_exception(captured()) == expected

    def test_lines_are_known_inside(self):
        def program():
            try:
                raise KeyError
            except KeyError as e:
                tb = e.__traceback__
                return tb.tb_next, tb.tb_lineno - program.__code__.co_firstlineno, tb.tb_frame.f_code.co_name

        same(program, whole=True)

    def test_traceback_of_an_argument_grows(self):
        def program(e):
            try:
                raise e
            except ValueError:
                return None

        def count(run):
            e = ValueError()
            run(e)
            return len(traceback.extract_tb(e.__traceback__))

        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(program)
            assert count(captured) == count(program) == 1

    def test_traceback_is_that_of_real_frames(self):
        def divide(x):
            return 1 // x

        def program():
            try:
                divide(0)
            except ZeroDivisionError as error:
                tb, out = error.__traceback__, []
                while tb:
                    out.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
                    tb = tb.tb_next
                return out

        same(program)

    def test_traceback_keeps_its_identity(self):
        def program():
            try:
                raise KeyError(3)
            except KeyError as error:
                return error.__traceback__ is error.__traceback__, error.with_traceback(None).__traceback__

        same(program, whole=True)


class TestMatching:
    def test_metaclass_is_not_asked(self):
        class Meta(type):
            def __subclasscheck__(cls, other):
                raise ValueError

        class Odd(Exception, metaclass=Meta):
            pass

        def program():
            try:
                try:
                    raise KeyError
                except Odd:
                    return "odd"
            except KeyError:
                return "key"

        same(program, whole=True)

    def test_missing_attribute_is_named(self):
        class Asked:
            def __getattr__(self, name):
                raise AttributeError

        def program():
            a = Asked()
            try:
                a.thing
            except AttributeError as e:
                return e.name, e.obj is a

        same(program, whole=True)


class TestMembers:
    def test_errno_of_a_real_exception(self):
        def program():
            try:
                stop(open)("/nonexistent/file")
            except OSError as e:
                return type(e), e.errno, e.filename, str(e), hasattr(e, "characters_written")

        same(program)


class TestRaisingAgain:
    def test_bare_raise_adds_no_entry(self):
        def fails():
            try:
                raise KeyError(1)
            except KeyError:
                raise

        def program():
            try:
                fails()
            except KeyError as e:
                tb, lines = e.__traceback__, []
                while tb is not None:
                    lines.append(tb.tb_lineno - program.__code__.co_firstlineno)
                    tb = tb.tb_next
                return lines

        same(program, whole=True)

    def test_caller_of_a_delegate_that_is_thrown_into(self):
        import sys

        def callers(frame):
            names = []
            while frame.f_code.co_name != "program":
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            return names

        def inner():
            try:
                yield
            except KeyError:
                yield callers(sys._getframe())

        def outer():
            yield from inner()

        def program():
            g = outer()
            next(g)
            return g.throw(KeyError)

        same(program, whole=True)


@uncaptured
def fails(_):
    raise KeyError(1)


class TestNoCycles:
    def test_objects_die_with_the_exception_that_broke(self):
        class Thing:
            pass

        def caught(thing):
            try:
                fails(thing)
            except KeyError:
                pass

        def program(thing):
            caught(thing)

        enabled = gc.isenabled()
        gc.disable()
        try:
            for function in (caught, program):
                with config.patch(capture_pure_python=True, debug=True):
                    captured = wrapped(function)
                    for _ in range(3):
                        thing = Thing()
                        alive = weakref.ref(thing)
                        captured(thing)
                        del thing
                        assert alive() is None
        finally:
            if enabled:
                gc.enable()


def test_an_exception_that_c_set_and_that_cannot_be_made():
    """CPython 3.11 makes it where it is caught: the traceback is that of its constructor alone."""
    raise_exception = pytest.importorskip("_testcapi").raise_exception

    class Bad(Exception):
        def __init__(self):
            raise RuntimeError("no instance")

    def names(count):
        try:
            raise_exception(Bad, count)
        except Exception as error:
            return type(error), [frame.name for frame in traceback.extract_tb(error.__traceback__)]

    for count in (0, 1):
        same(names, count)


class TestRaising:
    def test_break_in_a_with_statement_that_handles_an_exception(self):
        class Manager:
            def __enter__(self):
                return self

            def __exit__(self, cls, exc, tb):
                stop()
                return cls is KeyError

        def program():
            with Manager():
                raise KeyError(1)
            return "after"

        same(program)

    def test_raise_as_the_last_instruction_breaks(self):
        def fail():
            raise SyntaxError("x")

        def program():
            try:
                fail()
            except SyntaxError as error:
                return error.args

        same(program)

    def test_exceptions_with_a_new_of_their_own(self):
        def program():
            return [type(e).__name__ + repr(e.args) for e in (MemoryError(1), OSError(2, "x"))]

        same(program)


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


# -- exceptions from outside, whose classes have methods and properties of their own for what CPython reads in C

READS = []
FIELDS = [
    BaseException.__dict__[name] for name in ("__traceback__", "__context__", "__cause__", "__suppress_context__")
]


def noted(self, name):
    READS.append(name)
    return object.__getattribute__(self, name)


def refused(self, *args):
    READS.append(args)
    raise TypeError("not for you")


def hidden(value):
    def read(self):
        READS.append(value)
        return value

    return property(read)


def names_of_fields(value):
    return {field.__name__: value for field in FIELDS}


HIDDEN = {
    "__getattribute__ that notes": {"__getattribute__": noted},
    "__getattribute__ that raises": {"__getattribute__": refused},
    "__getattr__": {"__getattr__": refused},
    "properties": names_of_fields(hidden(5)),
    "values": names_of_fields(5),
    "slots": {"__slots__": tuple(names_of_fields(None))},
    "methods": {"with_traceback": refused, "__setattr__": refused, "add_note": refused},
}


def raise_it(o, x):
    raise o


def raise_and_catch(o, x):
    try:
        raise o
    except Exception as caught:
        return caught is o


def raise_from(o, x):
    try:
        raise x from o
    except Exception as caught:
        return caught is x


def raise_from_other(o, x):
    try:
        raise o from x
    except Exception as caught:
        return caught is o


def raise_while_handling(o, x):
    try:
        try:
            raise o
        except Exception:
            raise x
    except Exception as caught:
        return caught is x


def raise_twice(o, x):
    found = []
    for error in (o, x, o):
        try:
            try:
                raise error
            except Exception:
                raise o
        except Exception as caught:
            found.append(caught is o)
    return found


def raise_behind_a_break(o, x):
    try:
        raise o
    except Exception as caught:
        stop()
        result = caught is o
    return result, sum(range(3))


def raise_again_behind_a_break(o, x):
    try:
        try:
            raise o
        except Exception:
            stop()
            raise
    except Exception as caught:
        return caught is o


def leave_with(o, x):
    class Manager:
        def __enter__(self):
            return None

        def __exit__(self, cls, error, tb):
            stop()
            return error is o and tb is FIELDS[0].__get__(o)

    with Manager():
        raise o
    return "left"


def leave_with_breaking(o, x):
    with breaking(o):
        raise o
    return "left"


class Leaving:
    def __init__(self, error):
        self.error = error

    def __enter__(self):
        return None

    @_eval_frame.Uncaptured
    def __exit__(self, cls, error, tb):
        return error is self.error and tb is FIELDS[0].__get__(error)


breaking = _eval_frame.Uncaptured(Leaving)


def fields(*errors):
    """What the exceptions hold in C, lines for the traceback, positions for the others."""
    found = []
    for error in errors:
        tb, *others = [field.__get__(error) for field in FIELDS]
        lines = [(frame.name, frame.lineno) for frame in traceback.extract_tb(tb)]
        found.append((lines[1:], [errors.index(other) if other in errors else other for other in others]))
    return found


RAISING = [
    raise_it,
    raise_and_catch,
    raise_from,
    raise_from_other,
    raise_while_handling,
    raise_twice,
    raise_behind_a_break,
    raise_again_behind_a_break,
    leave_with,
    leave_with_breaking,
]


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize("program", RAISING, ids=lambda f: f.__name__)
def test_raising_reads_fields_and_no_attributes(program, kind):
    cls = type("Hidden", (Exception,), dict(HIDDEN[kind]))

    def outcome(fn):
        READS.clear()
        o, x = cls(1), ValueError(2)
        try:
            result = fn(o, x)
        except Exception as error:
            result = "raised", error is o
        return result, list(READS), fields(o, x)

    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(program)
        expected = outcome(program)
        assert expected[1] == []
        assert [outcome(captured) for _ in range(3)] == [expected] * 3
    slugs = {record.slug for record in log.breaks()}
    assert not slugs & {"attribute-of-unknown-object", "mutation-of-unknown-object"}, slugs


def test_groups_read_fields_and_no_attributes():
    class Hidden(ExceptionGroup):
        exceptions = message = __class__ = property(refused)
        locals().update(names_of_fields(property(refused)))

    class Naked(Exception):
        __getattribute__ = refused

    def split(group, error):
        match, rest = group.split(ValueError)
        try:
            raise error
        except* Exception as caught:
            stop()
            found = caught.exceptions[0] is error
        return len(match.exceptions), len(rest.exceptions), type(match), found

    def outcome(fn):
        return fn(Hidden("g", [ValueError(1), TypeError(2)]), Naked(1))

    READS.clear()
    expected = outcome(split)
    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(split)
        assert [outcome(captured) for _ in range(2)] == [expected] * 2
    assert READS == []


@pytest.mark.parametrize("program", RAISING, ids=lambda f: f.__name__)
def test_no_break_where_an_exception_is_raised_again(program, monkeypatch):
    """A break at the instruction with which a frame is resumed after an exception would lead to that instruction once more, for ever."""

    def refuse(self, tx, name):
        unsupported("attribute-of-unknown-object", name)

    expected = [program(ValueError(1), KeyError(2)) for _ in range(2)] if program is not raise_it else None
    monkeypatch.setattr(ExceptionVariable, "_read", refuse)
    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(program)
        if program is raise_it:
            for _ in range(2):
                with pytest.raises(ValueError):
                    captured(ValueError(1), KeyError(2))
        else:
            assert [captured(ValueError(1), KeyError(2)) for _ in range(2)] == expected


def test_slots_are_read_past_hooks():
    class Hooked:
        __slots__ = ("value", "empty")

        def __getattr__(self, name):
            READS.append(name)
            return 7

    class Asked(Hooked):
        def __getattribute__(self, name):
            READS.append(name)
            return object.__getattribute__(self, name)

    def program(o):
        o.value += 1
        found = o.value, o.missing, o.empty
        del o.value
        return found

    for cls in (Hooked, Asked):

        def outcome(fn, cls=cls):
            READS.clear()
            o = cls()
            o.value = 1
            return fn(o), list(READS), [hasattr(o, name) for name in ("value", "empty")]

        log.reset()
        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(program)
            expected = outcome(program)
            assert [outcome(captured) for _ in range(3)] == [expected] * 3
        assert not log.breaks()


# -- what dies when, around exceptions that frames go on with after a break


class Mortal:
    def __init__(self, events):
        self.events = events


class Finalized(Mortal):
    def __del__(self):
        self.events.append("died")


@_eval_frame.Uncaptured
def make_finalized(events):
    return Finalized(events)


@_eval_frame.Uncaptured
def make_watched(events):
    made = Mortal(events)
    weakref.finalize(made, events.append, "died")
    return made


@pytest.mark.parametrize("make", [make_finalized, make_watched], ids=["finalizer", "weak reference"])
def test_a_traceback_keeps_the_variables_across_a_break(make):
    def program(events):
        held = make(events)  # noqa: F841
        try:
            raise 0
        finally:
            stop(events.append("break"))

    def outcome(fn):
        events = []
        try:
            fn(events)
        except TypeError:
            events.append("caught")
        return events

    with config.patch(capture_pure_python=True, debug=True):
        captured = wrapped(program)
        expected = ["break", "caught", "died"]
        assert outcome(program) == expected
        assert [outcome(captured) for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize("notes", ["'a', 'b'", "1, 'x'", ""])
@pytest.mark.parametrize("made", ["ValueError('v')", "WithNotes()", "KeyError(1)"])
def test_notes(made, notes):
    agrees(f"""
    class WithNotes(Exception):
        __notes__ = ()

    def program(d):
        out = []
        try:
            raise {made}
        except Exception as error:
            for note in [{notes}]:
                try:
                    error.add_note(note)
                except TypeError as refused:
                    out.append(str(refused))
            out += [getattr(error, "__notes__", 0), dict(error.__dict__)]
            error.__notes__ = None
            try:
                error.add_note("more")
            except TypeError as refused:
                out.append(str(refused))
        return out

    def make_args(k):
        return [k]
    """)
