"""The examples under torchrun."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("no gloo", allow_module_level=True)

ROOT = pathlib.Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "tensor_parallel"])
def test_ranks_end_with_the_same_weights(name):
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*run, str(ROOT / "examples" / f"{name}.py")], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "dynamo_lite failed" not in done.stderr
    weights = re.findall(r"rank \d: loss [\d.]+, weights ([-\d.]+)", done.stdout)
    assert len(weights) == 2
    assert weights[0] == weights[1]
