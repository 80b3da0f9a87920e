"""Exceptions, generators and coroutines under capture: small programs that were wrong or that broke the graph. Needs no torch."""

import gc
import traceback
import types
import weakref

import pytest

from dynamo_lite import _eval_frame
from dynamo_lite.config import config
from dynamo_lite.exc import unsupported
from dynamo_lite.frontend import convert
from dynamo_lite.record import log
from dynamo_lite.variables.objects.exception_instance import ExceptionVariable

_stop = lambda *args: args[0] if args else None  # noqa: E731
_stop._torchdynamo_disable = True
stop = _eval_frame.Uncaptured(_stop)


def same(fn, *args, breaks=()):
    """The program gives captured what it gives plainly, at each of two calls, with these breaks (None: any)."""
    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(fn)
        expected = fn(*args)
        assert captured(*args) == expected
        assert captured(*args) == expected
    if breaks is not None:
        assert sorted({b.slug for b in log.breaks()}) == sorted(breaks), log.breaks()


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
                    raise ExceptionGroup("g", [ValueError(1), TypeError(2), OSError(3)][:n])
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
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
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
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
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

        same(program)

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

        same(program)


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
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
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

        same(program)

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
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            assert count(captured) == count(program) == 1


class TestGenerators:
    def test_throw_into_a_delegate(self):
        def inner():
            try:
                yield 1
            except ValueError:
                got = yield 2
                return got

        def outer():
            return (yield from inner())

        def program():
            g = outer()
            seen = [next(g), g.throw(ValueError("x"))]
            try:
                g.send(5)
            except StopIteration as e:
                seen.append(e.value)
            return seen

        same(program)

    def test_throw_into_a_delegate_without_throw(self):
        def outer():
            try:
                yield from [1, 2]
            except KeyError as e:
                yield repr(e)

        def program():
            g = outer()
            return next(g), g.throw(KeyError("k"))

        same(program)

    def test_close_of_a_delegate(self):
        def program():
            seen = []

            def inner():
                try:
                    yield 1
                finally:
                    seen.append("inner")

            def outer():
                try:
                    yield from inner()
                finally:
                    seen.append("outer")

            g = outer()
            next(g)
            g.close()
            return seen, g.gi_frame, g.gi_suspended

        same(program)

    def test_stop_iteration_inside_is_a_runtime_error(self):
        def generator():
            yield 1
            raise StopIteration(3)

        def program():
            try:
                return list(generator())
            except RuntimeError as e:
                return str(e), repr(e.__cause__), e.__context__ is e.__cause__

        same(program)

    def test_value_of_the_end(self):
        def generator():
            yield 1
            return (2,)

        def program():
            g = generator()
            next(g)
            try:
                next(g)
            except StopIteration as e:
                return e.value, e.args, next(g, "none")

        same(program)

    def test_close_of_one_that_returns(self):
        def generator():
            try:
                yield
            except GeneratorExit:
                return 3

        def program():
            g = generator()
            next(g)
            return g.close()

        same(program)

    def test_names(self):
        def generator():
            yield

        def program():
            g = generator()
            g.__name__ = "other"
            return g.__name__, g.__qualname__, g.gi_code is generator.__code__, g.gi_running

        same(program)

    def test_iterator_of_a_class_that_stops_with_a_value(self):
        class Numbers:
            def __init__(self):
                self.i = 0

            def __iter__(self):
                return self

            def __next__(self):
                self.i += 1
                if self.i > 2:
                    raise StopIteration("end")
                return self.i

        def delegating():
            return [(yield from Numbers())]

        def program():
            seen = list(Numbers())
            try:
                g = delegating()
                while True:
                    seen.append(next(g))
            except StopIteration as e:
                return seen, e.value

        same(program)


@types.coroutine
def suspend(value):
    return (yield value)


def drive(coroutine):
    out = []
    try:
        while True:
            out.append(coroutine.send(len(out) or None))
    except StopIteration as e:
        return out, e.value


class TestCoroutines:
    def test_await(self):
        async def inner(x):
            return await suspend(x) or 1

        async def outer():
            return [await inner(k) for k in "ab"]

        same(lambda: drive(outer()))

    def test_async_for_and_with(self):
        class Manager:
            async def __aenter__(self):
                return await suspend("enter")

            async def __aexit__(self, kind, value, tb):
                await suspend(kind)
                return True

        async def numbers(n):
            for i in range(n):
                await suspend(i)
                yield i * 10

        async def outer():
            seen = []
            async with Manager() as m:
                seen.append(m)
                raise KeyError
            async for n in numbers(3):
                seen.append(n)
            return seen, [n async for n in numbers(2)]

        same(lambda: drive(outer()))

    def test_methods_of_async_generators(self):
        async def numbers():
            try:
                got = yield 1
                yield got
            except ValueError:
                yield "caught"
            finally:
                await suspend("finally")

        async def outer():
            g = numbers()
            seen = [await g.__anext__(), await g.asend(5), await g.athrow(ValueError), await g.aclose()]
            try:
                await anext(g)
            except StopAsyncIteration:
                seen.append("end")
            return seen

        same(lambda: drive(outer()))

    @pytest.mark.parametrize("what", [None, 1, "text"])
    def test_what_can_not_be_awaited(self, what):
        async def outer():
            try:
                await what
            except TypeError as e:
                return str(e)

        same(lambda: drive(outer()))

    def test_finished_coroutine(self):
        async def nothing():
            return 1

        def program():
            c = nothing()
            first = drive(c)
            try:
                c.send(None)
            except RuntimeError as e:
                return first, str(e)

        same(program)


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
            same(program, breaks=None)
        finally:
            gc.enable()


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

        same(program)

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

        same(program)


class TestLastReference:
    def test_loop_left_early(self):
        def program():
            seen = []

            def numbers():
                try:
                    yield 1
                    yield 2
                finally:
                    seen.append("finally")

            for _ in numbers():
                break
            seen.append("after")
            return seen

        same(program)

    def test_variable_of_a_function_that_returns(self):
        def program():
            seen = []

            def numbers():
                try:
                    yield 1
                finally:
                    seen.append("finally")

            def use():
                g = numbers()
                seen.append(next(g))

            use()
            seen.append("after")
            return seen

        same(program)

    def test_variable_of_the_outermost_function(self):
        seen = []

        def numbers():
            try:
                yield 1
            finally:
                seen.append("finally")

        def program():
            seen.clear()
            g = numbers()
            return next(g)

        with config.patch(capture_pure_python=True, debug=True):
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            for _ in range(2):
                assert captured() == 1
                assert seen == ["finally"]

    def test_one_that_is_kept_goes_on(self):
        def program():
            seen, kept = [], []

            def numbers():
                try:
                    yield 1
                    yield 2
                finally:
                    seen.append("finally")

            def use():
                g = numbers()
                kept.append(g)
                for n in g:
                    return n

            seen.append(use())
            seen.append(next(kept[0]))
            kept[0].close()
            return seen

        same(program)

    def test_errno_of_a_real_exception(self):
        def program():
            try:
                stop(open)("/nonexistent/file")
            except OSError as e:
                return type(e), e.errno, e.filename, str(e), hasattr(e, "characters_written")

        same(program, breaks=None)


class TestGlobals:
    def test_stored_and_deleted(self):
        def program():
            global AssertionError
            AssertionError = TypeError
            try:
                raise AssertionError("text")
            except BaseException as e:
                seen = type(e)
            finally:
                del AssertionError
            return seen, AssertionError  # noqa: F821

        same(program)
        assert "AssertionError" not in globals()


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

        same(program)

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

        same(program)


class TestDepth:
    def test_value_nested_too_deeply_to_be_built(self):
        def program(n):
            value = ()
            for _ in range(n):
                value = (value,)
            return value

        with config.patch(capture_pure_python=True, debug=True):
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            value, depth = captured(9000), 0
            while value:
                (value,) = value
                depth += 1
            assert depth == 9000


class TestGeneratorsFromOutside:
    def test_one_that_has_not_started_is_followed(self):
        def numbers(n, *more, scale=2):
            total = 0
            for i in (*range(n), *more):
                total += i
                yield total * scale, lambda: total

        def program(generator):
            return [(n, f()) for n, f in generator], generator.gi_frame, next(generator, "end")

        with config.patch(capture_pure_python=True, debug=True):
            log.reset()
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            for arguments in ((3,), (3,), (2, 7), (0,)):
                assert captured(numbers(*arguments)) == program(numbers(*arguments))
            done = numbers(1)
            captured(done)
            assert done.gi_frame is None
            assert not log.breaks()

    def test_expression_over_a_list(self):
        def program(generator, items):
            return sum(generator), items

        with config.patch(capture_pure_python=True, debug=True):
            log.reset()
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            for _ in range(2):
                items = [1, 2, 3]
                assert captured((x * x for x in items), items) == (14, [1, 2, 3])
            assert not log.breaks()

    def test_what_it_raises(self):
        def failing():
            yield 1
            raise KeyError(2)

        def program(generator):
            try:
                return list(generator)
            except KeyError as e:
                return repr(e), next(generator, "end")

        with config.patch(capture_pure_python=True, debug=True):
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            assert captured(failing()) == captured(failing()) == program(failing())

    def test_one_that_is_left_suspended_goes_on_outside(self):
        def numbers():
            yield from range(5)

        def program(generator):
            return [next(generator), next(generator)]

        with config.patch(capture_pure_python=True, debug=True):
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            for _ in range(2):
                generator = numbers()
                assert captured(generator) == [0, 1]
                assert captured(generator) == [2, 3]
                assert list(generator) == [4]

    def test_states_share_no_version(self):
        def numbers():
            yield 1
            yield 2

        def program(generator):
            return list(generator)

        with config.patch(capture_pure_python=True, debug=True):
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            started = numbers()
            next(started)
            assert captured(numbers()) == [1, 2]
            assert captured(started) == [2]
            assert captured(started) == []
            assert captured(numbers()) == [1, 2]

    def test_cells_are_the_ones_of_the_function(self):
        def make():
            count = 0

            def numbers():
                nonlocal count
                for _ in range(3):
                    count += 1
                    yield count

            return numbers, lambda: count

        def program(generator, read):
            seen = [(n, read()) for n in generator]
            return seen, read()

        with config.patch(capture_pure_python=True, debug=True):
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            for _ in range(2):
                numbers, read = make()
                assert captured(numbers(), read) == ([(1, 1), (2, 2), (3, 3)], 3)
                assert captured(numbers(), read) == ([(4, 4), (5, 5), (6, 6)], 6)


def _fails(_):
    raise KeyError(1)


_fails._torchdynamo_disable = True
fails = _eval_frame.Uncaptured(_fails)


class TestNoCycles:
    def test_objects_die_with_the_exception_that_broke(self):
        import gc
        import weakref

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
                    captured = convert.Region(lambda gm, inputs: gm.forward).wrap(function)
                    for _ in range(3):
                        thing = Thing()
                        alive = weakref.ref(thing)
                        captured(thing)
                        del thing
                        assert alive() is None
        finally:
            if enabled:
                gc.enable()


class TestUnwantedResults:
    def test_they_die_at_once(self):
        class Noisy:
            def __init__(self, seen):
                self.seen = seen

            def __del__(self):
                self.seen.append("dead")

        make = _eval_frame.Uncaptured(lambda seen: Noisy(seen))

        def program():
            seen = []
            make(seen)
            seen.append("after")
            return list(seen)

        same(program, breaks=None)


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
        same(names, count, breaks=None)


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
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
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
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(split)
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
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
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
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
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
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
        expected = ["break", "caught", "died"]
        assert outcome(program) == expected
        assert [outcome(captured) for _ in range(3)] == [expected] * 3


def test_a_weak_reference_to_what_only_the_stack_holds():
    events = []

    class Breaking:
        def __init__(self):
            stop()

    def program():
        weakref.ref(Breaking(), lambda reference: events.append("died"))
        events.append("after")

    with config.patch(capture_pure_python=True, debug=True):
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
        for fn in (program, captured, captured):
            events.clear()
            fn()
            assert events == ["died", "after"]


def test_looking_into_a_weak_set_asks_no_attribute():
    class Asked:
        def __getattribute__(self, name):
            READS.append(name)
            return object.__getattribute__(self, name)

    known = weakref.WeakSet()

    def program(o):
        return len(known), o in known

    with config.patch(capture_pure_python=True, debug=True):
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
        READS.clear()
        o = Asked()
        assert captured(o) == captured(o) == (0, False)
        known.add(o)
        assert captured(o) == (1, True)
    assert READS == []
