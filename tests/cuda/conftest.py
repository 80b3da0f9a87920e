"""Programs on a CUDA device. Without one they are left out; `DYNAMO_LITE_TEST_DEVICE=cpu` runs those that are the same on the CPU."""

import gc
import os

import pytest
import torch

import dynamo_lite
from dynamo_lite.record import log

DEVICE = os.environ.get("DYNAMO_LITE_TEST_DEVICE", "cuda")


def pytest_ignore_collect(collection_path):
    return True if DEVICE == "cuda" and not torch.cuda.is_available() else None


def pytest_collection_modifyitems(items):
    for item in items:
        if DEVICE != "cuda" and item.get_closest_marker("only_cuda"):
            item.add_marker(pytest.mark.skip(reason="for CUDA alone"))


@pytest.fixture
def device():
    """The device, with nothing compiled and its random numbers seeded."""
    dynamo_lite.reset()
    log.reset()
    torch.manual_seed(0)
    yield torch.device(DEVICE)
    dynamo_lite.reset()
    gc.collect()
