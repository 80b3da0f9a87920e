"""A graph that communicates is not raced: other processes would have to run it as often."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log

distributed = pytest.importorskip("torch.distributed")
if not distributed.is_available() or not distributed.is_gloo_available():
    pytest.skip("no gloo", allow_module_level=True)


def test_no_race(tmp_path):
    log.reset()
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:

        def average(x):
            y = x * 2
            distributed.all_reduce(y)
            return y / distributed.get_world_size()

        options = {"store": tmp_path / "store", "candidates": ["aot_eager"]}
        compiled = dynamo_lite.compile(average, backend="autotune", options=options, fullgraph=True)
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    finally:
        distributed.destroy_process_group()
    record = log.frames[-1].graphs[0]
    assert record.race == [("eager", None, "no race: all_reduce communicates with other processes")]
