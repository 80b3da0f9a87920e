"""Found in CPython's tests of texts, numbers, grammar and calls. Needs no torch."""

import importlib
import json
import logging
import os
import re
import string
import sys
import time
import types
import warnings

import pytest

from dynamo_lite.config import config
from dynamo_lite.frontend import convert
from dynamo_lite.record import log


def capture(fn):
    return convert.Region(lambda gm, inputs: gm.forward).wrap(fn)


@pytest.fixture(autouse=True)
def pure_python():
    log.reset()
    with config.patch(capture_pure_python=True, debug=True):
        yield


helper_module = types.ModuleType("helper_module")
HELPER = """
import logging, warnings
def helper(n, stacklevel=1):
    warnings.warn("boo", stacklevel=stacklevel)
    return n
def say(text):
    logging.getLogger("dl_test").warning(text)
"""
exec(compile(HELPER, "/nowhere/helper_file.py", "exec"), helper_module.__dict__)


class TestWhoCalled:
    def test_location_and_registry_of_a_warning(self):
        def program(n):
            a = helper_module.helper(n)
            b = helper_module.helper(n, 2)
            warnings.warn("here", stacklevel=1)
            return a + b

        def locations(fn):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fn(3)
            return [(str(w.message), w.filename, w.lineno) for w in caught], "__warningregistry__" in vars(
                helper_module
            )

        expected = locations(program)
        vars(helper_module).pop("__warningregistry__", None)
        assert locations(capture(program)) == expected

    def test_location_of_a_log_record(self):
        def program(n):
            helper_module.say("a")
            logging.getLogger("dl_test").warning("b")
            return n

        def records(fn):
            found = []
            handler = logging.Handler()
            handler.emit = lambda r: found.append((r.getMessage(), r.filename, r.lineno))
            logger = logging.getLogger("dl_test")
            logger.addHandler(handler)
            logger.propagate = False
            try:
                fn(3)
            finally:
                logger.removeHandler(handler)
            return found

        expected = records(program)
        assert records(capture(program)) == expected


class TestWarningsOfOperators:
    def test_a_truth_value_of_not_implemented(self):
        def program(x):
            return 1 if NotImplemented else x

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if sys.version_info < (3, 14):
                assert capture(program)(2) == 1
                assert len(caught) == 1

    def test_inverted_bool(self):
        def program(x):
            return ~x

        def caught_by(fn):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                return fn(True), len(caught)

        expected = caught_by(program)
        captured = capture(program)
        assert caught_by(captured) == caught_by(captured) == expected


class TestNumbers:
    def test_hash_of_a_nan_is_that_of_the_object(self):
        nan = float("nan")

        def program(x):
            return hash(x), {x: 1}[x]

        assert capture(program)(nan) == program(nan)

    def test_truth_and_length_are_checked(self):
        def truth(x):
            return bool(x)

        def size(x):
            return len(x)

        for fn, value in (
            (truth, type("A", (), {"__bool__": lambda s: 1})()),
            (truth, type("A", (), {"__len__": lambda s: -1})()),
            (size, type("A", (), {"__len__": lambda s: "a"})()),
            (size, type("A", (), {"__len__": lambda s: 1 << 80})()),
        ):
            with pytest.raises((TypeError, ValueError, OverflowError)) as plain:
                fn(value)
            with pytest.raises(plain.type, match=re.escape(str(plain.value))):
                capture(fn)(value)

    def test_settings_of_the_interpreter_are_guarded(self):
        def program(x):
            return sys.get_int_max_str_digits() + x

        captured = capture(program)
        before = sys.get_int_max_str_digits()
        assert captured(1) == before + 1
        sys.set_int_max_str_digits(before + 50)
        try:
            assert captured(1) == before + 51
        finally:
            sys.set_int_max_str_digits(before)
        assert not log.breaks()


class TestRegularExpressions:
    def test_replacement_by_a_function(self):
        def program(x):
            seen = []

            def replace(m):
                seen.append(m.start())
                return m.group(1) + x

            return re.sub(r"(\w)\d", replace, "a1b2"), seen

        assert capture(program)("!") == program("!")
        assert not log.breaks()

    def test_finditer_leaves_where_it_is(self):
        def program(x):
            found = re.finditer("a", "banana")
            next(found)
            return found

        rest = capture(program)(0)
        assert type(rest) is type(program(0))
        assert [m.span() for m in rest] == [(3, 4), (5, 6)]
        assert not log.breaks()

    def test_templates_and_formatters(self):
        def program(x):
            text = string.Template("$who likes ${what}").substitute(who="tim", what=x)
            return text, string.Formatter().format("{0}{1:>4} {x[0]} {x!r}", 1, x, x=[5])

        assert capture(program)("z") == program("z")
        assert not log.breaks()


def test_import_module_of_a_loaded_module():
    def program(x):
        return importlib.import_module("string").digits + x

    assert capture(program)("a") == program("a")
    assert not log.breaks()


class TestMethodsOfTypes:
    def test_self_of_another_type(self):
        def program(which):
            return [
                lambda: list.append(5, 1),
                lambda: int.__add__("a", 1),
                lambda: bytearray.hex(b"a"),
                lambda: str.upper(b"a"),
                lambda: dict.get([], 1),
            ][which]()

        for which in range(5):
            with pytest.raises(TypeError) as plain:
                program(which)
            with pytest.raises(TypeError, match=re.escape(str(plain.value))):
                capture(program)(which)

    def test_conversion_of_a_buffer(self):
        import array

        def program(x):
            return int(x), float(x), bytes(x)

        assert capture(program)(array.array("b", b"12")) == (12, 12.0, b"12")

    def test_hash_of_a_nan_of_a_subclass(self):
        class F(float):
            pass

        def program(x):
            value = F("nan")
            return hash(value) == hash(value)

        assert capture(program)(1)


class TestWarningFilters:
    def test_context_is_followed(self):
        def program(x):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.filterwarnings("error", "never", UserWarning)
                x = x + 1
            return x

        before = list(warnings.filters)
        assert capture(program)(1) == 2
        assert warnings.filters == before
        assert not log.breaks()

    def test_filters_are_in_force_at_a_break(self):
        def program(x):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(2):
                    warnings.warn("a", stacklevel=1)
                warnings.simplefilter("ignore")
                warnings.warn("b", stacklevel=1)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    helper_module.helper(1)
                except UserWarning as error:
                    return [str(w.message) for w in caught], str(error), x
            return None

        before = list(warnings.filters)
        assert capture(program)(1) == program(1) == (["a", "a"], "boo", 1)
        assert warnings.filters == before

    def test_a_filter_that_stays(self):
        def program(x):
            warnings.filterwarnings("ignore", "dl_stays")
            return x

        with warnings.catch_warnings():
            capture(program)(1)
            assert any(f[1] is not None and f[1].pattern == "dl_stays" for f in warnings.filters)
            with warnings.catch_warnings(record=True) as caught:
                warnings.warn("dl_stays", stacklevel=1)
            assert not caught


first = second = len
one = another = string.capwords


def two_paths(x):
    return first(x), second(x), one("ab"), another("ab")


class TestTwoPathsToOneObject:
    def test_each_path_is_guarded(self, monkeypatch):
        captured = capture(two_paths)
        assert captured((1, 2)) == (2, 2, "Ab", "Ab")
        monkeypatch.setitem(globals(), "second", max)
        monkeypatch.setitem(globals(), "another", str.upper)
        assert captured((1, 2)) == (2, 2, "Ab", "AB")
        monkeypatch.setitem(globals(), "second", sum)
        assert captured((1, 2)) == (2, 3, "Ab", "AB")

    def test_arguments(self):
        def program(f, g):
            return f([1, 2]), g([1, 2])

        captured = capture(program)
        assert captured(len, len) == (2, 2)
        assert captured(len, sum) == (2, 3)
        assert captured(sum, len) == (3, 2)

    def test_functions_made_anew_at_each_call_need_no_new_version(self):
        def program(f, g):
            return f(1) + g(1)

        captured = capture(program)
        for k in range(12):

            def add(x, k=1):
                return x + k

            assert captured(add, add) == 4
        assert len([f for f in log.snapshot() if f.name.endswith("program")]) == 1

    def test_items_of_a_loop(self):
        seen = []

        def record(f, a):
            seen.append((f.__name__, a))

        record._torchdynamo_disable = True
        calls = [(min, (1, 2)), (len, (1, 2)), (len, ()), (sum, (1, 2)), (any, ()), (all, (7,))]

        import contextlib

        from dynamo_lite import _eval_frame

        real = _eval_frame.Uncaptured(record)

        @contextlib.contextmanager
        def block(f):
            yield

        def program(x):
            for f, args in calls:
                with block(f):
                    real(f, args)
                    if not args:
                        real(f, None)

        program(1)
        expected = list(seen)
        seen.clear()
        capture(program)(1)
        assert seen == expected


class TestTraceFunctions:
    def test_lines_are_those_of_the_program(self):
        def traced(n):
            for i in range(n):
                if i:
                    n += i
            return n

        def lines(fn, *args):
            seen = []

            def trace(frame, event, arg):
                if frame.f_code is traced.__code__ and event == "line":
                    seen.append(frame.f_lineno - frame.f_code.co_firstlineno)
                return trace

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                fn(*args)
            finally:
                sys.settrace(before)
            return seen

        def program(n):
            return lines(traced, n)

        expected = program(2)
        captured = capture(program)
        assert captured(2) == captured(2) == expected


class TestProcessState:
    def test_the_environment_is_guarded(self, monkeypatch):
        def program(x):
            return os.environ.get("DL_TEST", "none"), "DL_TEST" in os.environ, os.getenv("DL_TEST")

        captured = capture(program)
        for value in (None, "5", "6", None):
            if value is None:
                monkeypatch.delenv("DL_TEST", raising=False)
            else:
                monkeypatch.setenv("DL_TEST", value)
            assert captured(1) == program(1)
        assert not log.breaks()

    def test_lists_of_sys_are_guarded(self, monkeypatch):
        def program(x):
            return len(sys.path), sys.platform, sys.maxsize, sys.flags.optimize

        captured = capture(program)
        assert captured(1) == program(1)
        monkeypatch.setattr(sys, "path", [*sys.path, "more"])
        assert captured(1) == program(1)
        assert not log.breaks()

    def test_the_clock_breaks(self):
        def program(x):
            return time.time()

        captured = capture(program)
        first = captured(1)
        time.sleep(0.01)
        assert captured(1) > first
        assert [b.slug for b in log.breaks()] == ["time-dependent"]

    def test_json_of_constants(self):
        def program(x):
            return json.dumps({"a": [1, 2, {"b": None}], "c": x}), json.loads('{"a": [1, 2.5, "x"]}')["a"]

        assert capture(program)(5) == program(5)
