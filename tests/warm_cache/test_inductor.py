"""Torch's own caches keep what the backend makes of our graphs: a second process compiles no kernels."""

import functools
import json
import os
import sys

from tests.helpers import processes

SCRIPT = """
import functools
import json
import torch
import dynamo_lite
from dynamo_lite.record import STATS, log

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.LayerNorm(4))
x = torch.randn(2, 4)
compiled = dynamo_lite.compile(model)
loss = compiled(x).square().sum()
loss.backward()
torch.testing.assert_close(loss, model(x).square().sum())
from torch._dynamo.utils import counters
print(json.dumps({"hits": STATS.cache_hits, "torch": {**counters["aot_autograd"], **counters["inductor"]}}))
"""


def test_second_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {
        **os.environ,
        "DYNAMO_LITE_CACHE": "1",
        "DYNAMO_LITE_CACHE_DIR": str(tmp_path / "cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    found = []
    for start in (processes.start_anew, functools.partial(processes.run, modules=processes.INDUCTOR)):
        done = start([script], env=environment, timeout=500)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    cold, warm = found
    assert cold["hits"] == 0 and cold["torch"].get("autograd_cache_saved") == 1
    assert warm["hits"] == 1 and warm["torch"].get("autograd_cache_hit") == 1
    assert "autograd_cache_bypass" not in warm["torch"]
