"""Reports see the versions that the program has without them, of all functions that it compiles."""

import contextlib
import io
import logging
import re

import pytest
import torch
from torch._logging._internal import trace_log

import dynamo_lite
from dynamo_lite.__main__ import main
from dynamo_lite.api import overriding
from dynamo_lite.record import log
from dynamo_lite.report.coverage import Measurement
from dynamo_lite.report.script import redirected
from tests.recompiles.programs import PROGRAMS

SAMPLE = list(PROGRAMS)[:: len(PROGRAMS) // 30]


@contextlib.contextmanager
def logged():
    """Everything that torch's logs and the structured trace ask for."""
    names = "bytecode graph graph_code graph_sizes graph_breaks guards recompiles_verbose side_effects trace_bytecode trace_call"
    lines = logging.StreamHandler(io.StringIO())
    trace_log.addHandler(lines)
    torch._logging.set_logs(dynamo=logging.DEBUG, dynamic=logging.DEBUG, **dict.fromkeys(names.split(), True))
    try:
        yield
        assert lines.stream.getvalue()
    finally:
        torch._logging.set_logs()
        trace_log.removeHandler(lines)


OBSERVERS = {
    "logs": logged,
    "coverage": Measurement,
    "html": lambda: Measurement(keep_texts=True),
    "run --backend": lambda: redirected("aot_eager"),
}


def versions(name, observer):
    """What is captured of a program: per frame its name, version, operators of graphs, breaks and the reason of a recompilation."""
    dynamo_lite.reset()
    fn, calls = PROGRAMS[name]()
    with observer():
        compiled = dynamo_lite.compile(fn, backend="aot_eager")
        for args in calls:
            compiled(*args)
    return [
        (f.name, f.entry_index, [g.op_count for g in f.graphs], [b.reason for b in f.breaks], _reason(f))
        for f in log.snapshot()
    ]


def _reason(frame):
    """Why it was compiled again; torch numbers the lengths of nested tensors through the process."""
    return frame.recompile_reason and re.sub(r"xj\d+", "xj", frame.recompile_reason)


def test_the_sample_recompiles_and_breaks():
    assert len(SAMPLE) >= 30
    found = [version for name in SAMPLE for version in versions(name, contextlib.nullcontext)]
    assert any(version[1] for version in found) and any(version[3] for version in found)


@pytest.mark.parametrize("name", SAMPLE)
def test_observers_change_nothing(name):
    expected = versions(name, contextlib.nullcontext)
    for observer in OBSERVERS.values():
        assert versions(name, observer) == expected


PROGRAM = """
import torch, dynamo_lite
x = torch.ones(3)

{uses}
"""

ENTRY_POINTS = {
    "torch.compile": "torch.compile(lambda x: x + 1)(x)",
    "decorator": "@torch.compile(dynamic=False, mode='max-autotune')\ndef f(x): return x + 1\nf(x)",
    "module": "m = torch.nn.ReLU(); m.compile(); m(x)",
    "compile": "dynamo_lite.compile(lambda x: x + 1, backend='inductor')(x)",
    "compile of a module": "dynamo_lite.compile(torch.nn.ReLU(), mode='reduce-overhead')(x)",
    "optimize": "@dynamo_lite.optimize\ndef f(x): return x + 1\nf(x)",
    "optimize with a backend": "dynamo_lite.optimize(lambda gm, example_inputs: 1 / 0)(lambda x: x + 1)(x)",
    "optimize as a context": "def f(x): return x + 1\nwith dynamo_lite.optimize('inductor'): f(x)",
    "default backend": "dynamo_lite.set_default_backend('onnxruntime'); dynamo_lite.compile(lambda x: x + 1)(x); "
    "dynamo_lite.set_default_backend(None)",
}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_entry_point_is_seen_and_gets_the_backend(name, tmp_path, capsys):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(uses=ENTRY_POINTS[name]))
    assert main(["run", "--coverage", "--backend", "eager", str(script)]) == 0
    assert capsys.readouterr().out.startswith("dynamo_lite coverage: 1 function, 1 frame, 1 graph, 1 graph call\n")
    assert [graph.backend for frame in log.snapshot() for graph in frame.graphs] == ["eager"]


def test_another_backend_for_a_while():
    def f(x):
        return x * 2

    with overriding("eager"):
        compiled = dynamo_lite.compile(f, backend="aot_eager")
    compiled(torch.ones(2))
    dynamo_lite.compile(f, backend="aot_eager")(torch.ones(2))
    assert [graph.backend for frame in log.snapshot() for graph in frame.graphs] == ["eager", "aot_eager"]
    with pytest.raises(dynamo_lite.exc.InvalidBackend), overriding("unknown"):
        pass


def test_runs_count_the_same_with_a_warm_cache(tmp_path):
    def f(x):
        return x * 3

    heads = []
    with dynamo_lite.config.patch(cache=True, cache_dir=str(tmp_path)):
        for _ in range(3):
            dynamo_lite.reset_code_caches()
            with Measurement() as measurement:
                dynamo_lite.compile(f, backend="eager")(torch.ones(2))
            heads.append(str(measurement.coverage()).splitlines()[0])
    assert heads == ["dynamo_lite coverage: 1 function, 1 frame, 1 graph, 1 graph call"] * 3
    assert not list(tmp_path.iterdir())


def test_calls_in_threads_and_errors_end_what_they_began():
    def f(x):
        return x.view(x.shape[0] // 2, -1) + 1

    with Measurement() as measurement:
        compiled = dynamo_lite.compile(f, backend="eager")
        compiled(torch.ones(4))
        with pytest.raises(ZeroDivisionError):
            dynamo_lite.compile(lambda x: x + 1 // 0, backend="eager")(torch.ones(2))
        compiled(torch.ones(4))
    function = next(function for function in measurement.coverage().functions if function.frames[0].graphs)
    assert (function.calls, function.captured_ops) == (2, 4)
