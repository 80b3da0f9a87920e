"""The settings under which numbers and sizes that data decide stay in the graph where nothing in Python needs them."""

import pytest

import dynamo_lite


@pytest.fixture
def captures_data():
    """Numbers and sizes that data decide are captured automatically."""
    with dynamo_lite.config.patch(capture_scalar_outputs=None, capture_dynamic_output_shape_ops=None):
        yield
