"""What belongs to the process: settings of the interpreter, the environment, lists of `sys`, the clock. Needs no torch."""

import os
import sys
import time

import pytest

from dynamo_lite.record import log
from tests.helpers.capturing import wrapped


class TestProcessState:
    @pytest.mark.usefixtures("pure_python")
    def test_settings_of_the_interpreter_are_guarded(self):
        def program(x):
            return sys.get_int_max_str_digits() + x

        captured = wrapped(program)
        before = sys.get_int_max_str_digits()
        assert captured(1) == before + 1
        sys.set_int_max_str_digits(before + 50)
        try:
            assert captured(1) == before + 51
        finally:
            sys.set_int_max_str_digits(before)
        assert not log.breaks()

    @pytest.mark.usefixtures("pure_python")
    def test_the_environment_is_guarded(self, monkeypatch):
        def program(x):
            return os.environ.get("DL_TEST", "none"), "DL_TEST" in os.environ, os.getenv("DL_TEST")

        captured = wrapped(program)
        for value in (None, "5", "6", None):
            if value is None:
                monkeypatch.delenv("DL_TEST", raising=False)
            else:
                monkeypatch.setenv("DL_TEST", value)
            assert captured(1) == program(1)
        assert not log.breaks()

    @pytest.mark.usefixtures("pure_python")
    def test_lists_of_sys_are_guarded(self, monkeypatch):
        def program(x):
            return len(sys.path), sys.platform, sys.maxsize, sys.flags.optimize

        captured = wrapped(program)
        assert captured(1) == program(1)
        monkeypatch.setattr(sys, "path", [*sys.path, "more"])
        assert captured(1) == program(1)
        assert not log.breaks()

    @pytest.mark.usefixtures("pure_python")
    def test_the_clock_breaks(self):
        def program(x):
            return time.time()

        captured = wrapped(program)
        first = captured(1)
        time.sleep(0.01)
        assert captured(1) > first
        assert [b.slug for b in log.breaks()] == ["time-dependent"]
