"""Names: locals, globals, cells and imports, bound, unbound and deleted. Needs no torch."""

import importlib

import pytest

from dynamo_lite.record import log
from tests.helpers.capturing import same, wrapped
from tests.helpers.program_texts import agrees


class TestNames:
    def test_locals_of_inlined_frames(self):
        def inner(a):
            b = 2
            return sorted(locals()), vars()["b"], dir()

        def program(x):
            def closure():
                return x, locals()

            return inner(1), closure(), eval("x + 1")

        same(program, 3)


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

        same(program, whole=True)
        assert "AssertionError" not in globals()


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


@pytest.mark.usefixtures("pure_python")
def test_import_module_of_a_loaded_module():
    def program(x):
        return importlib.import_module("string").digits + x

    assert wrapped(program)("a") == program("a")
    assert not log.breaks()
