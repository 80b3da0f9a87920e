"""Fixtures of the tests of backends."""

import pytest


@pytest.fixture(params=["onnxruntime", "openvino"])
def backend(request):
    """A backend for inference that works on parts of graphs, if its package is installed."""
    from dynamo_lite.backends.registry import requirements_of
    from dynamo_lite.record import log

    reason = requirements_of(request.param).missing()
    if reason is not None:
        pytest.skip(reason)
    log.reset()
    return request.param
