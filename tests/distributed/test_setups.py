"""Training in two processes; the long table is `python -m tests.distributed`."""

import pytest
import torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("no gloo", allow_module_level=True)

from tests.distributed import ranks, trainings

GRAPHS = {
    "compiled DDP": (1, 12),
    "compiled DDP in small buckets": (5, 12),
    "compiled DDP with no sync": (1, 12),
    "compiled DDP static graph": (1, 12),
    "compiled DDP find unused": (1, 12),
    "compiled DDP of a sequence": (1, 3),
    "DDP step of a sequence": (3, 11),
    "step of a model beside DDP": (2, 32),
    "step of what DDP waits for": (1, 14),
    "compiled FSDP1": (1, 12),
    "compiled FSDP1 of layers": (3, 7),
    "FSDP1 of a compiled model": (1, 12),
    "compiled FSDP2": (3, 7),
    "FSDP2 of compiled layers": (1, 5),
    "transformer in DDP": (3, 59),
    "FSDP2 in mixed precision": (3, 21),
    "state dicts of FSDP2": (3, 21),
}
"""Set-up → graphs that the backend gets, operators in them."""


def test_as_in_eager_execution():
    outcomes = ranks.run(GRAPHS, backend="aot_eager")
    assert {name: [(o.error, o.graphs, o.operators) for o in found] for name, found in outcomes.items()} == {
        name: [("", *counts)] * ranks.WORLD for name, counts in GRAPHS.items()
    }


@pytest.mark.parametrize("size", [2, 4])
def test_trainings(size):
    names = trainings.SETUPS if size == ranks.WORLD else trainings.IN_FOUR
    outcomes = ranks.run(names, backend="aot_eager", size=size)
    assert {name: [o.error for o in found] for name, found in outcomes.items()} == {name: [""] * size for name in names}
    assert all(o.graphs for found in outcomes.values() for o in found)
