"""The choice of a backend on the device, the warm cache, and graphs that a later process finds."""

import copy
import os
import pathlib
import subprocess
import sys

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import differences

pytestmark = pytest.mark.only_cuda
ROOT = pathlib.Path(__file__).parents[2]


def test_a_race(device):
    model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(64, 64), torch.nn.GELU())])
    model = model.to(device)
    twin = copy.deepcopy(model)
    compiled = dynamo_lite.compile(model, backend="autotune")
    with torch.no_grad():
        for rows in (8, 8, 8, 16, 16, 5):
            x = torch.randn(rows, 64, device=device)
            torch.testing.assert_close(compiled(x), twin(x), rtol=1e-4, atol=1e-4)
    race = {name: (seconds, text) for name, seconds, text in log.frames[-1].graphs[-1].race}
    print(race)
    assert {"eager", "inductor", "cudagraphs"} <= race.keys()
    assert not any("wrong" in text for _, text in race.values() if text)


def test_a_race_of_a_training_step(device):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).to(device)
    twin = copy.deepcopy(model)
    compiled = dynamo_lite.compile(model, backend="autotune")
    for step in range(3):
        torch.manual_seed(step)
        x = torch.randn(32, 64, device=device)
        for run in (compiled, twin):
            run.zero_grad()
            run(x).square().mean().backward()
        assert (
            list(differences([p.grad for p in twin.parameters()], [p.grad for p in model.parameters()], tol=1e-4)) == []
        )
    assert log.frames[-1].graphs[-1].backend != "cudagraphs"  # which is for inference


PROGRAM = """
import sys, torch, dynamo_lite
from dynamo_lite.record import STATS
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).cuda()
compiled = dynamo_lite.compile(model, backend="inductor")
x = torch.randn(8, 16, device="cuda")
with torch.no_grad():
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
y = compiled(x)
y.sum().backward()
assert all(p.grad is not None for p in model.parameters())
from dynamo_lite.record import log
print(STATS.cache_hits, STATS.cache_misses, STATS.cache_kept, dict(STATS.cache_refusals), dict(STATS.artifact_refusals))
"""


def test_a_later_process_finds_the_graphs(device, tmp_path):
    environment = {**os.environ, "DYNAMO_LITE_CACHE": "1", "DYNAMO_LITE_CACHE_DIR": str(tmp_path / "cache")}
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
        said.append(done.stdout)
    print(said)
    assert [text.split()[0] for text in said] == ["0", "2"]  # Inductor's own cache has the kernels
