"""Generators: made by captured code, from outside, delegating, closed and left suspended. Needs no torch."""

import itertools
import sys
import weakref

import pytest

from dynamo_lite.config import config
from dynamo_lite.record import log
from tests.helpers.capturing import captured, same, stop, wrapped
from tests.helpers.program_texts import agrees


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

        same(program, whole=True)

    def test_throw_into_a_delegate_without_throw(self):
        def outer():
            try:
                yield from [1, 2]
            except KeyError as e:
                yield repr(e)

        def program():
            g = outer()
            return next(g), g.throw(KeyError("k"))

        same(program, whole=True)

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

        same(program, breaks=["generator-escapes"])

    def test_stop_iteration_inside_is_a_runtime_error(self):
        def generator():
            yield 1
            raise StopIteration(3)

        def program():
            try:
                return list(generator())
            except RuntimeError as e:
                return str(e), repr(e.__cause__), e.__context__ is e.__cause__

        same(program, whole=True)

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

        same(program, whole=True)

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

        same(program, whole=True)

    def test_names(self):
        def generator():
            yield

        def program():
            g = generator()
            g.__name__ = "other"
            return g.__name__, g.__qualname__, g.gi_code is generator.__code__, g.gi_running

        same(program, breaks=["generator-escapes", "mutation-of-unknown-object"])

    def test_names_that_a_function_had_when_it_was_called(self):
        def program():
            def function():
                yield 1

            first = function()
            function.__name__, function.__qualname__ = "name", "qualname"
            second = function()
            stop()
            return [(g.__name__, g.__qualname__) for g in (first, second)]

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

        same(program, whole=True)


class TestGeneratorsFromOutside:
    def test_one_that_has_not_started_is_followed(self):
        def numbers(n, *more, scale=2):
            total = 0
            for i in (*range(n), *more):
                total += i
                yield total * scale, lambda: total

        def program(generator):
            return [(n, f()) for n, f in generator], next(generator, "end")

        with config.patch(capture_pure_python=True, debug=True):
            log.reset()
            captured = wrapped(program)
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
            captured = wrapped(program)
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
            captured = wrapped(program)
            assert captured(failing()) == captured(failing()) == program(failing())

    def test_one_that_is_left_suspended_goes_on_outside(self):
        def numbers():
            yield from range(5)

        def program(generator):
            return [next(generator), next(generator)]

        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(program)
            for _ in range(2):
                generator = numbers()
                assert captured(generator) == [0, 1]
                assert captured(generator) == [2, 3]
                assert list(generator) == [4]

    # CPython 3.13.0 itself crashes where somebody reads the variables of a frame whose generator is gone.
    @pytest.mark.parametrize("what", ["itself", *(["frame"] if sys.version_info[:2] != (3, 13) else [])])
    def test_variables_live_as_long_as_a_suspended_one(self, what):
        """Also those that it will not use any more."""

        class Thing:
            pass

        def generator():
            number, thing = 42, Thing()  # noqa: F841
            yield thing
            yield 3

        def program():
            made = generator()
            thing = weakref.ref(next(made))
            return thing, made if what == "itself" else made.gi_frame

        def shown(run):
            thing, made = run()
            variables = dict((made if what == "frame" else made.gi_frame).f_locals)
            return {
                name: value is thing() if name == "thing" else value for name, value in variables.items()
            }, thing() is None

        with config.patch(capture_pure_python=True, debug=True):
            assert shown(wrapped(program)) == shown(program)

    def test_states_share_no_version(self):
        def numbers():
            yield 1
            yield 2

        def program(generator):
            return list(generator)

        with config.patch(capture_pure_python=True, debug=True):
            captured = wrapped(program)
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
            captured = wrapped(program)
            for _ in range(2):
                numbers, read = make()
                assert captured(numbers(), read) == ([(1, 1), (2, 2), (3, 3)], 3)
                assert captured(numbers(), read) == ([(4, 4), (5, 5), (6, 6)], 6)


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

        same(program, whole=True)

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

        same(program, whole=True)

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
            captured = wrapped(program)
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

        same(program, whole=True)


def test_an_exhausted_generator_keeps_its_name():
    def program():
        def numbers():
            yield 0

        generator = numbers()
        total = sum(generator)
        return total, generator

    (total, generator), (expected, real) = captured(program)(), program()
    assert (total, list(generator), generator.__qualname__) == (expected, list(real), real.__qualname__)


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


# -- a generator in a block, held by C code alone while that iterates


def waits_in_a_block(log):
    try:
        for i in (1, 2, 3):
            log.append((yield i))
    except (ValueError, KeyError):
        log.append("caught")
    finally:
        log.append("end")


HELD = {
    "extend": lambda log, found: found.extend(itertools.islice(waits_in_a_block(log), 2)),
    "star": lambda log, found: found.append([*itertools.islice(waits_in_a_block(log), 2)]),
    "arguments": lambda log, found: found.append(max(*itertools.islice(waits_in_a_block(log), 2))),
    "slice": lambda log, found: found.__setitem__(slice(0, 0), itertools.islice(waits_in_a_block(log), 2)),
    "statement": lambda log, found: exec("found[:] = islice(g(log), 2)", {**NAMES, "log": log, "found": found}),
    "unpacking": lambda log, found: found.append((lambda a, b: a)(*itertools.islice(waits_in_a_block(log), 2))),
    "sum": lambda log, found: found.append(sum(itertools.islice(waits_in_a_block(log), 2))),
    "in": lambda log, found: found.append(2 in itertools.islice(waits_in_a_block(log), 2)),
    "chain": lambda log, found: found.extend(itertools.chain.from_iterable(map(waits_in_a_block, [log, log]))),
    "zip": lambda log, found: found.extend(zip(range(2), itertools.takewhile(bool, waits_in_a_block(log)))),
    "map": lambda log, found: found.extend(map(abs, itertools.islice(waits_in_a_block(log), 1, 3))),
    "sorted": lambda log, found: found.extend(sorted(itertools.islice(waits_in_a_block(log), 2), key=lambda v: -v)),
}
NAMES = {"g": waits_in_a_block, "islice": itertools.islice}


def assigned(log, found):
    found[:] = itertools.islice(waits_in_a_block(log), 2)
    a, *b = itertools.islice(waits_in_a_block(log), 2)
    found.append((a, b))


@pytest.mark.parametrize("name", [*HELD, "assigned"])
def test_generators_that_c_code_holds(name):
    iterate = HELD.get(name, assigned)

    def program():
        log, found = [], []
        iterate(log, found)
        return log, found

    same(program)
