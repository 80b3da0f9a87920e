"""Tuning when something goes wrong around it: results are right, nothing is lost, and one line says what happened."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch

from dynamo_lite.tune.results import Store
from tests.helpers import processes

PROGRAM = """
import pathlib, resource, time, torch, dynamo_lite
from dynamo_lite.backends.registry import register_backend
from dynamo_lite.record import log

place = pathlib.Path({place!r})

def steps(x):
    for _ in range(300):
        x = x + 1
    return x

def fast(gm, examples):
    return lambda x: (x + 300,)

def slow_to_compile(gm, examples):
    (place / "compiling").write_text("")
    while not (place / "go").exists():
        time.sleep(0.01)
    return lambda x: (x + 300,)

for backend in (fast, slow_to_compile):
    register_backend(backend)

options = {{"store": str(place / "store"), "candidates": [{candidate!r}], "budget": "5min", "background": {background!r}}}
fn = dynamo_lite.compile(steps, backend="autotune", options=options)
{before}
print(fn(torch.zeros(2)).tolist(), log.frames[-1].graphs[0].backend, flush=True)
{after}
"""


@pytest.fixture
def program(tmp_path):
    """Start a program that tunes; `TMPDIR` is its own."""
    started = []

    def start(candidate="fast", before="", after="", background=False):
        text = PROGRAM.format(
            place=str(tmp_path), candidate=candidate, before=before, after=after, background=background
        )
        process = processes.Popen(
            ["-c", textwrap.dedent(text)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(path, seconds=120):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.05)


def ended(process):
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def test_a_race_that_is_killed_leaves_the_store_whole(tmp_path, program):
    Store(tmp_path / "store").put("other", before := _choice())
    killed = program("slow_to_compile")
    wait_for(tmp_path / "compiling")
    killed.send_signal(signal.SIGKILL)
    assert ended(killed)[0] == -signal.SIGKILL
    assert ended(program()) == (0, "[300.0, 300.0] fast\n", "")
    kept = Store(tmp_path / "store").all()
    assert kept["other"][:3] == before[:3]
    assert sorted(choice.backend for choice in kept.values()) == ["fast", "inductor"]


def test_a_race_in_the_background_ends_with_its_program(tmp_path, program):
    """Also when it is killed: what the other process tells reaches nobody."""
    killed = program(background=True, after="time.sleep(1000)")
    assert killed.stdout.readline() == "[300.0, 300.0] eager\n"
    racing = _children(killed.pid)
    killed.send_signal(signal.SIGKILL)
    ended(killed)
    deadline = time.monotonic() + 120
    while any(map(_is_running, racing)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert Store(tmp_path / "store").all() == {}


def test_a_full_disk(program):
    """No file may grow: SQLite says so, once, and the choice is that of the race all the same."""
    status, out, err = ended(program(before="resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"))
    assert (status, out) == (0, "[300.0, 300.0] fast\n")
    assert err.count("the tuner's store") == 1 and "is not used" in err and "Traceback" not in err


def test_a_full_disk_behind_the_program(program):
    status, out, err = ended(program(background=True, before="resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"))
    assert (status, out) == (0, "[300.0, 300.0] eager\n") and "Traceback" not in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_is_read_only(tmp_path, program):
    tmp_path.chmod(0o500)
    try:
        status, out, err = ended(program())
    finally:
        tmp_path.chmod(0o700)
    assert (status, out) == (0, "[300.0, 300.0] fast\n") and err.count("is not used") == 1


def test_two_processes_tune_one_graph(tmp_path, program):
    both = [program("slow_to_compile"), program("slow_to_compile")]
    time.sleep(1)
    wait_for(tmp_path / "compiling")
    (tmp_path / "go").write_text("")
    assert [ended(process) for process in both] == [(0, "[300.0, 300.0] slow_to_compile\n", "")] * 2
    assert [choice.backend for choice in Store(tmp_path / "store").all().values()] == ["slow_to_compile"]


def _choice():
    from dynamo_lite.tune.results import Choice

    return Choice("inductor", 2.0, [("inductor", 1.0, "1 µs")])


def _children(pid):
    return [int(n) for n in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_running(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


assert torch  # these programs need it
