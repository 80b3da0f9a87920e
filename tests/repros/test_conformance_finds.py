"""What CPython's own tests under capture found wrong in the engine, reduced to small programs. Needs no torch."""

import builtins
import contextlib

import pytest

from dynamo_lite import _eval_frame
from dynamo_lite.config import config
from dynamo_lite.frontend import convert
from dynamo_lite.record import log

_stop = lambda *args: args[0] if args else None  # noqa: E731
_stop._torchdynamo_disable = True
stop = _eval_frame.Uncaptured(_stop)


def same(fn, *args, whole=False):
    """The program gives captured what it gives plainly, at each of two calls; with `whole`, without a break."""
    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(fn)
        expected = fn(*args)
        assert captured(*args) == expected
        assert captured(*args) == expected
    if whole:
        assert not log.breaks()


class TestClassStatements:
    def test_methods_descriptors_and_inheritance(self):
        def program(n):
            class A:
                k = 5

                def __init__(self, v):
                    self.v = v

                def get(self):
                    return self.v + self.k

                @property
                def p(self):
                    return self.v

                @p.setter
                def p(self, v):
                    self.v = v

                @staticmethod
                def s(a):
                    return a * 2

                @classmethod
                def c(cls, a):
                    return cls(a).get()

            class B(A):
                def get(self):
                    return super().get() * 2

            b = B(n)
            b.p = 7
            A.late = 9
            return (
                A(1).get(),
                B(n).get(),
                b.v,
                B.s(3),
                A.c(4),
                B.c(4),
                B.__qualname__,
                B.late,
                type(b) is B,
                isinstance(b, A),
            )

        same(program, 3, whole=True)

    def test_slots_and_hashes(self):
        def program(n):
            class S:
                __slots__ = ("a", "__b")

                def __init__(self, a):
                    self.a, self.__b = a, 2

                def __eq__(self, other):
                    return self.a == other.a

                def __hash__(self):
                    return 3

                def __repr__(self):
                    return f"S({self.a}, {self.__b})"

            return repr([S(n), {S(n): 1, S(n): 2}])

        same(program, 3, whole=True)

    def test_each_call_makes_a_class_of_its_own(self):
        def program():
            class C:
                items = [1]

                def me(self):
                    return __class__, self.items

            return C, C()

        with config.patch(capture_pure_python=True, debug=True):
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            (first, one), (second, two) = captured(), captured()
        assert first is not second
        assert type(one) is first and type(two) is second
        assert one.me() == (first, [1])
        assert first.__module__ == __name__ and first.__qualname__ == program.__qualname__ + ".<locals>.C"

    def test_class_that_lives_across_a_break(self):
        def program(n):
            class C(dict):
                def total(self):
                    return sum(self.values())

            c = C(a=n)
            stop()
            c["b"] = 2
            return c.total(), type(c) is C

        same(program, 3)

    def test_errors_of_the_class_statement(self):
        def program():
            try:

                class C(int, str):
                    pass

            except TypeError as error:
                return str(error)

        same(program, whole=True)


class TestIterators:
    def test_string_iterator_across_breaks(self):
        def program():
            out = []
            for c in "abc":
                stop()
                out.append(c)
            return out

        same(program)

    def test_last_item_is_guarded_to_be_there(self):
        def program(it):
            for item in it:
                stop()
                return item
            return "empty"

        with config.patch(capture_pure_python=True, debug=True):
            captured = convert.Region(lambda gm, inputs: gm.forward).wrap(program)
            it = iter([[1], [2]])
            assert [captured(it), captured(it), captured(it)] == [[1], [2], "empty"]

    def test_next_deleted_during_the_loop(self):
        def program():
            class Bad:
                def __iter__(self):
                    return self

                def __next__(self):
                    del Bad.__next__
                    return 1

            try:
                for _ in Bad():
                    pass
            except TypeError:
                return "TypeError"

        same(program)


class TestExceptions:
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

    def test_wrong_number_of_arguments_of_a_c_method(self):
        def program():
            out = []
            for call in ({}.get, {}.setdefault, [].append, {}.values):
                try:
                    call(*[1] * 4)
                except TypeError as error:
                    out.append(str(error))
            return out

        same(program, whole=True)

    def test_exceptions_with_a_new_of_their_own(self):
        def program():
            return [type(e).__name__ + repr(e.args) for e in (MemoryError(1), OSError(2, "x"))]

        same(program)


class TestNames:
    def test_builtin_replaced_for_a_while(self):
        @contextlib.contextmanager
        def swapped():
            real = builtins.hex
            builtins.hex = 5
            try:
                yield
            finally:
                builtins.hex = real

        def program():
            with swapped():
                x = hex
            return hex, x

        same(program)

    def test_dictionary_of_a_module(self):
        def program():
            names = builtins.__dict__
            real = names["hex"]
            del names["hex"]
            try:
                return hex
            except NameError:
                return "gone"
            finally:
                names["hex"] = real

        same(program)

    def test_locals_of_inlined_frames(self):
        def inner(a):
            b = 2
            return sorted(locals()), vars()["b"], dir()

        def program(x):
            def closure():
                return x, locals()

            return inner(1), closure(), eval("x + 1")

        same(program, 3)

    def test_bound_class_method_of_a_builtin_across_a_break(self):
        def program():
            f = {}.fromkeys
            stop()
            return f("ab")

        same(program)


class TestObjects:
    def test_truth_of_a_class_by_its_metaclass(self):
        class Meta(type):
            def __len__(cls):
                return 0

            def __bool__(cls):
                return True

        class C(metaclass=Meta):
            pass

        same(lambda: bool(C), whole=True)

    def test_special_method_set_to_none(self):
        def program():
            class C:
                def __add__(self, other):
                    return NotImplemented

            class D(C):
                __radd__ = None

            try:
                return C() + D()
            except TypeError as error:
                return str(error)

        same(program)

    def test_subclass_of_a_builtin_type_without_a_model(self):
        class Enumerated(enumerate):
            pass

        same(lambda: list(Enumerated("ab")))

    def test_index_that_is_no_int(self):
        class Bad:
            def __index__(self):
                return "x"

        def program():
            with pytest.raises(TypeError):
                range(3)[Bad() :]
            try:
                [1][Bad()]
            except TypeError as error:
                return str(error)

        same(program)

    def test_coroutine_is_no_generator(self):
        async def coroutine():
            return 1

        def program():
            c = coroutine()
            try:
                c.send(None)
            except StopIteration as stopped:
                return type(c).__name__, stopped.value

        same(program)
