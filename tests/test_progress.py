"""The line of progress: on a terminal only, in place, gone at the end; without effect on what is captured."""

import importlib
import os
import pty
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import torch

import dynamo_lite
from dynamo_lite import progress

LINE = re.compile(r"\r\x1b\[K(dynamo_lite: [^\r]*)\r")
PROGRAM = """
import time
import torch, dynamo_lite
from dynamo_lite import progress
from dynamo_lite.backends.aot import aot_autograd
from dynamo_lite.backends.registry import register_backend
from dynamo_lite.record import log

progress.DELAY = 0.3
compiler = dict(__name__="torch._inductor.compile_fx", time=time)
exec("def compile_fx(seconds): time.sleep(seconds)", compiler)

def slow(gm, inputs):
    time.sleep(1.5)
    compiler["compile_fx"](0.8)
    return gm.forward

@register_backend
def raced(gm, inputs):
    time.sleep(0.8)
    return gm.forward

def forward(gm, inputs):
    return gm.forward

@dynamo_lite.compile(backend=slow)
def fn(x):
    return x.sin() + 1

fn(torch.ones(3))
dynamo_lite.compile(lambda x: x.cos(), backend=aot_autograd(forward, slow))(torch.ones((), requires_grad=True)).backward()
dynamo_lite.compile(lambda x: x.tan(), backend="autotune", options={"candidates": ["raced"], "store": False})(torch.ones(3))
print([frame.ops_total for frame in log.snapshot()])
"""


def test_on_a_terminal():
    """A slow backend, a backward pass that is compiled late, a race."""
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "DYNAMO_LITE_CACHE": "0"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=slave, stdin=subprocess.DEVNULL, env=env, text=True
    )
    os.close(slave)
    written = "".join(read_to_end(master))
    assert process.communicate()[0] == "[2, 1, 1]\n" and process.wait() == 0
    lines = LINE.findall(written)
    graph = [line for line in lines if " graph 0, 2 operators, slow (" in line]
    assert {re.match(r"dynamo_lite: (\d+) s, ", line)[1] for line in graph} >= {"1", "2"}
    assert any(
        re.match(r"dynamo_lite: \d+ s, AOTAutograd, graph 0", line) for line in graph
    )  # its phase, by the name of the function
    assert any(re.match(r"dynamo_lite: \d+ s, backward pass of graph 1, 1 operator \(", line) for line in lines), (
        written
    )
    assert any(
        re.match(r"dynamo_lite: \d+ s, compiling with raced, racing 1 backends for graph 2", line) for line in lines
    )
    assert written.endswith("\r\x1b[K") and "\n" not in written  # one line, changed in place, then none


def read_to_end(master):
    """What comes through a pseudo-terminal until its other end is closed."""
    try:
        while part := os.read(master, 4096):
            yield part.decode()
    except OSError:
        pass
    os.close(master)


def test_where_there_is_a_line(monkeypatch):
    master, slave = pty.openpty()
    reader, writer = os.pipe()
    monkeypatch.setenv("TERM", "xterm")
    with open(slave, "w") as stream, open(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stderr", stream)
        assert progress.terminal() is stream
        with dynamo_lite.config.patch(progress=False):
            assert progress.terminal() is None and progress.begin("title") is None
        monkeypatch.setenv("TERM", "dumb")  # it knows no cursor
        assert progress.terminal() is None
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", pipe)
        assert progress.terminal() is None
        with progress.shown("title") as tell:
            tell("nothing is written")
        monkeypatch.setattr(sys, "stderr", None)
        assert progress.terminal() is None
    os.close(master)
    os.close(reader)


def test_the_phases_are_those_of_this_torch():
    for module, name in progress.PHASES:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found)


def test_work_in_several_threads_and_within_other_work(monkeypatch):
    class Terminal:
        closed = False

        def write(self, text):
            written.append(text)

        def flush(self):
            pass

        def fileno(self):
            return slave

    written = []
    master, slave = pty.openpty()
    monkeypatch.setattr(progress, "terminal", lambda stream=Terminal(): stream)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    line = progress.ProgressLine()
    line.has_writer = True  # nobody but this test writes
    outer, inner = progress.Job("outer"), progress.Job(lambda: "inner")
    line.begin(outer)
    line.begin(inner)
    inner.tell("step")
    line._show(line.jobs[-1].text())
    assert re.fullmatch(r"\r\x1b\[Kdynamo_lite: 0 s, step, inner\r", written[-1])
    line.end(inner)
    assert written[-1] == "\r\x1b[K" and line.jobs == [outer]
    count = len(written)
    line.end(outer)
    line.end(outer)  # as in a forked process, which has no work under way
    assert len(written) == count and line.jobs == []
    os.close(master)
    os.close(slave)


def test_graphs_are_named_by_the_line_of_the_program():
    places = []

    def backend(gm, inputs):
        places.append(progress.place_of(gm))
        return gm.forward

    class Model(torch.nn.Module):
        def forward(self, x):
            return self.inner(x)

    model = Model()
    model.inner = torch.nn.Linear(2, 2)
    dynamo_lite.compile(model, backend=backend)(torch.ones(2))
    line = Model.forward.__code__.co_firstlineno + 1
    assert places == [f"test_progress.py:{line} in forward"]


def test_streams_of_the_program_are_not_asked():
    class Stream:
        def isatty(self):
            raise AssertionError("the program's own code")

    before, sys.stderr = sys.stderr, Stream()
    try:
        assert progress.terminal() is None
        assert dynamo_lite.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist() == [2.0, 2.0]
    finally:
        sys.stderr = before
