"""Calls while another thread imports torch's own compiler: they run eagerly, and compile once it is there."""

import subprocess
import sys

PROGRAM = """
import threading, time, torch, dynamo_lite
from dynamo_lite import config

graphs = 0
def backend(gm, inputs):
    global graphs
    graphs += 1
    return gm

@dynamo_lite.compile(backend=backend, fullgraph=FULL)
def f(x):
    return (x.sin() + 1).cos() * x.shape[0]

config.suppress_errors = False
thread = threading.Thread(target=lambda: __import__("torch._dynamo"))
thread.start()
while thread.is_alive():
    f(torch.ones(int(time.time() * 500) % 97 + 1))
    dynamo_lite.reset()
    time.sleep(0.002)
thread.join()
before = graphs
for k in range(1, 5):
    f(torch.ones(k, k))
assert graphs > before
"""


def test_while_torch_dynamo_is_imported():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("FULL", "True")], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    assert "dynamo_lite failed" not in done.stderr


def test_an_analysis_that_meets_a_module_in_part(monkeypatch):
    import torch

    import dynamo_lite
    from dynamo_lite.frontend.analysis import Analysis

    met = []

    def entry(self, original=Analysis.entry):
        if not met:
            met.append(1)
            raise AttributeError(
                "partially initialized module 'a' has no attribute 'b' (most likely due to a circular import)"
            )
        return original(self)

    monkeypatch.setattr(Analysis, "entry", entry)
    counter = dynamo_lite.testing.CompileCounter()
    f = dynamo_lite.compile(lambda x: x + 1, backend=counter, fullgraph=True)
    assert [f(torch.ones(1)).item() for _ in range(3)] == [2, 2, 2]
    assert counter.frame_count == 1
