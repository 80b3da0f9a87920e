"""Warnings and log records: where they come from, filters that are in force. Needs no torch."""

import logging
import sys
import types
import warnings

import pytest

from dynamo_lite.record import log
from tests.helpers.capturing import wrapped

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


@pytest.mark.usefixtures("pure_python")
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
        assert locations(wrapped(program)) == expected

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
        assert records(wrapped(program)) == expected


@pytest.mark.usefixtures("pure_python")
class TestWarningsOfOperators:
    def test_a_truth_value_of_not_implemented(self):
        def program(x):
            return 1 if NotImplemented else x

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if sys.version_info < (3, 14):
                assert wrapped(program)(2) == 1
                assert len(caught) == 1

    def test_inverted_bool(self):
        def program(x):
            return ~x

        def caught_by(fn):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                return fn(True), len(caught)

        expected = caught_by(program)
        captured = wrapped(program)
        assert caught_by(captured) == caught_by(captured) == expected


@pytest.mark.usefixtures("pure_python")
class TestWarningFilters:
    def test_context_is_followed(self):
        def program(x):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.filterwarnings("error", "never", UserWarning)
                x = x + 1
            return x

        before = list(warnings.filters)
        assert wrapped(program)(1) == 2
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
        assert wrapped(program)(1) == program(1) == (["a", "a"], "boo", 1)
        assert warnings.filters == before

    def test_a_filter_that_stays(self):
        def program(x):
            warnings.filterwarnings("ignore", "dl_stays")
            return x

        with warnings.catch_warnings():
            wrapped(program)(1)
            assert any(f[1] is not None and f[1].pattern == "dl_stays" for f in warnings.filters)
            with warnings.catch_warnings(record=True) as caught:
                warnings.warn("dl_stays", stacklevel=1)
            assert not caught


class Told(UserWarning):
    pass


def written(message):
    """As `warnings` itself, which pytest has replaced."""
    sys.stderr.write(_formatwarnmsg(message))  # noqa: F821


class TestWarningsOfConstants:
    """They are issued behind the graph: the text, the place, and how often."""

    @staticmethod
    def program(x):
        y = x + 1
        warnings.warn("old", DeprecationWarning)
        y = helper_module.helper(y) + helper_module.helper(y, 2)
        warnings.warn("told", Told, stacklevel=1)
        return y

    @pytest.fixture(params=["default", "always", "once", "module", "ignore", "error"])
    def outcome(self, request, capsys):
        """What some calls return, write and note in the registries, under one filter."""

        def run(fn):
            spaces = (globals(), vars(helper_module))
            for space in spaces:
                space.pop("__warningregistry__", None)
            with warnings.catch_warnings(), warnings.catch_warnings():
                warnings.showwarning = warnings._showwarning_orig
                warnings._showwarnmsg_impl = types.FunctionType(written.__code__, vars(warnings))
                warnings.resetwarnings()
                warnings.simplefilter(request.param)
                results = []
                for n in range(3):
                    try:
                        results.append(fn(n))
                    except Warning as warning:
                        results.append(repr(warning))
            noted = [{k for k in space.get("__warningregistry__", ()) if k != "version"} for space in spaces]
            return results, capsys.readouterr().err, noted

        return request.param, run

    @pytest.mark.usefixtures("pure_python")
    def test_as_eager_execution(self, outcome):
        action, run = outcome
        expected = run(self.program)
        assert run(wrapped(self.program)) == expected
        assert bool(log.breaks()) == (action == "error")

    @pytest.mark.usefixtures("pure_python")
    def test_filters_that_change_behind_a_warning(self, outcome):
        def program(x):
            warnings.warn("before", stacklevel=1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                x = x + 1
            return x

        _, run = outcome
        expected = run(program)
        assert run(wrapped(program)) == expected
