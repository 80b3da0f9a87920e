"""Recursion and deep nesting end as they do in eager execution, and never in a signal: in the main thread and in others."""

import os
import signal
import subprocess
import sys

import pytest

from .programs import CONTAINERS, PROGRAMS, SLOTS

NESTED = [name for name in PROGRAMS if name.partition(" ")[0] in {kind.partition(" ")[0] for kind in CONTAINERS}]
OTHERS = [name for name in PROGRAMS if name not in NESTED and name != "deep_frames"]
PYTHON_ONLY = [
    "a_function",
    "a_function_behind_a_break",
    "two_functions",
    "a_method",
    "a_finalizer",
    "a_hundred_calls",
]
"""Eager execution uses no C stack for them."""
CALLS_OF_C = [name for name in OTHERS if name != "functions_of_c"][::2]
"""Eager execution needs less than 2 MiB for them. Every other one, to save time."""


def ends(size: int, limit: int, names: list[str]) -> dict[str, list[str]]:
    command = [sys.executable, "-m", "tests.csrc.c_stack.worker", str(size), str(limit), *names]
    environment = {**os.environ, "DYNAMO_LITE_CACHE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    found = {line.partition("\t")[0]: line.split("\t")[1:3] for line in done.stdout.splitlines()}
    assert done.returncode == 0, (signal.Signals(-done.returncode), list(found.items())[-1], done.stderr[-2000:])
    return found


def differences(size: int, limit: int, names: list[str]) -> dict[str, list[str]]:
    found = ends(size, limit, names)
    assert list(found) == names
    return {name: ended for name, ended in found.items() if ended[0] != ended[1]}


def test_recursion_in_the_main_thread():
    assert not differences(0, 1000, OTHERS)


def test_deep_nesting_in_the_main_thread():
    assert not differences(0, 1000, NESTED)


def test_recursion_in_a_thread():
    assert not differences(2048, 1000, CALLS_OF_C)


@pytest.mark.parametrize("size", [256, 512, 1024])
def test_recursion_in_a_thread_with_little_stack(size):
    """Nothing is compiled there, and what has been compiled elsewhere is bounded."""
    assert not differences(size, 1000, PYTHON_ONLY)


@pytest.mark.parametrize("size", [0, 512])
def test_a_recursion_limit_that_no_stack_has_room_for(size):
    """Calls from Python code to Python code take none of it; each call of a compiled function takes some, up to a RecursionError."""
    assert not differences(size, 100_000, [*PYTHON_ONLY, "deep_frames"])


def test_the_slots_are_all_there():
    assert {name.partition(" ")[0] for name in OTHERS if name.startswith("__")} == set(SLOTS)
