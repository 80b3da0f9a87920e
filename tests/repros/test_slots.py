"""Slots that a model did not have: what it answered instead was not what the type does."""

import types

import pytest

from dynamo_lite import convert
from dynamo_lite.config import config


def text_of_hash(x):
    try:
        return hash(x)
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize(
    "f",
    [
        lambda: (text_of_hash(slice(1, 2)), text_of_hash(types.MappingProxyType({}))),
        lambda: text_of_hash({}.keys()),
        lambda: (str(types.MappingProxyType({1: 2})), repr(types.MappingProxyType({1: 2}))),
        lambda: (None.__bool__(), None.__repr__(), None.__eq__(None), ....__repr__()),
        lambda: [].__hash__ is None,
        lambda: None.__ne__,
    ],
)
def test_slots(f):
    with config.patch(capture_pure_python=True, debug=True):
        captured = convert.Region(lambda gm, inputs: gm.forward).wrap(f)()
    assert captured == f()
