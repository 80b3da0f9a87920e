"""Training in two processes; the long table is `python -m tests.distributed`."""

import pytest
import torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("no gloo", allow_module_level=True)

from tests.distributed import ranks

GRAPHS = {"compiled FSDP1": 1, "compiled FSDP1 of layers": 3, "FSDP1 of a compiled model": 1}


def test_as_in_eager_execution():
    outcomes = ranks.run(GRAPHS, backend="aot_eager", tables=("setups",))
    assert {name: [(o.error, o.graphs) for o in found] for name, found in outcomes.items()} == {
        name: [("", graphs)] * ranks.WORLD for name, graphs in GRAPHS.items()
    }
