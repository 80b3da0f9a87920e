"""What the installed libraries compute is the same compiled: results, gradients, buffers, random numbers, in training and in evaluation,
for two sizes; nothing of ours fails, and the state of the process stays as it was."""

import copy
import importlib.util
import logging

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import dynamo_lite
from dynamo_lite.testing import differences
from examples.models import import_torchvision
from tests.helpers import seeds

from .programs import LIBRARIES

CALLS = (("training", 0), ("training", 0), ("training", 1), ("evaluation", 0), ("evaluation", 1), ("training", 0))
import_torchvision()  # which some of them import, and whose operators some installations lack
INSTALLED = [library for library in LIBRARIES if importlib.util.find_spec(library.__name__)]


def outcome(make, arguments, compiled):
    """Of each call the results, the arguments behind it, all gradients, the buffers and the next random number."""
    seeds.seed()
    program = make()
    module = program if isinstance(program, nn.Module) else nn.Identity()
    fn = compiled(program)
    outcomes = []
    for number, (kind, size) in enumerate(CALLS):
        seeds.seed(number)
        module.train(kind == "training")
        given = copy.deepcopy(arguments(size))
        with torch.set_grad_enabled(kind == "training"):
            result = fn(*given)
        roots = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
        if roots:
            sum((root.abs() if root.is_complex() else root).double().sum() for root in roots).backward()
        gradients = [p.grad for p in module.parameters()]
        module.zero_grad(set_to_none=True)
        buffers = [buffer.clone() for buffer in module.buffers()]
        state = torch.rand(1), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        outcomes.append((plain(result), list(map(plain, given)), gradients, buffers, state))
    return outcomes


def plain(value):
    """The dict of a TensorDict, whose comparisons give TensorDicts; any other value as it is."""
    return value.to_dict() if hasattr(value, "to_dict") else value


@pytest.mark.parametrize("library", INSTALLED, ids=lambda library: library.__name__)
def test_programs(library, caplog):
    caplog.set_level(logging.WARNING, "dynamo_lite")
    for name, (make, arguments) in library().items():
        dynamo_lite.reset()
        expected = outcome(make, arguments, lambda program: program)
        found = outcome(make, arguments, lambda program: dynamo_lite.compile(program, backend="eager"))
        assert not list(differences(found, expected)), name
    assert not [record for record in caplog.records if "failed on" in record.getMessage()]
