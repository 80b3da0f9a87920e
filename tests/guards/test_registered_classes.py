"""Tensors and the classes that are registered with abstract classes between two calls."""

import abc
import collections.abc

import pytest
import torch

import dynamo_lite
from tests.helpers.capturing import wrapped


@pytest.mark.usefixtures("pure_python")
def test_a_class_of_a_library_registered_later():
    abstract = abc.ABCMeta("Abstract", (), {"__module__": "collections.abc"})

    def f(x):
        return 1 if isinstance(x, abstract) else 2

    run = wrapped(f)
    assert (run(torch.ones(1)), run(1), run([])) == (2, 2, 2)
    abstract.register(torch.Tensor)
    assert (run(torch.ones(1)), run(1), run([])) == (1, 2, 2)
    abstract.register(int)
    assert (run(torch.ones(1)), run(1), run([])) == (1, 1, 2)


@pytest.mark.usefixtures("pure_python")
def test_what_is_registered_elsewhere_makes_no_new_version():
    versions = []
    run = dynamo_lite.compile(
        lambda x: x + isinstance(x, collections.abc.Sequence), backend=lambda gm, _: versions.append(gm) or gm.forward
    )
    for _ in range(3):
        assert run(torch.ones(1)) == 1
        collections.abc.Sequence.register(type("Other", (), {}))
    assert len(versions) == 1
