"""Modules made of graphs: by torch.fx, by torch.export."""

import copy

import pytest
import torch
from torch import nn

from dynamo_lite.testing import run_both
from dynamo_lite.variables.protocol.trace_rules import why_not_captured


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x, scale=2):
        return torch.relu(self.norm(self.linear(x))) * scale


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.traced = torch.fx.symbolic_trace(Net())
        self.parts = nn.Sequential(copy.deepcopy(self.traced), torch.fx.symbolic_trace(nn.Linear(3, 3)))

    def forward(self, x):
        y = self.traced(x)
        return self.parts[1](y), self.parts[0](x, 3)


@pytest.mark.parametrize("train", [False, True])
def test_traced_modules_are_followed(train):
    run = run_both(Outer().train(train), torch.randn(5, 4))
    assert (run.graph_count, run.op_count, run.breaks) == (1, 9 + 2 * train, [])


def test_a_traced_module_alone():
    run = run_both(torch.fx.symbolic_trace(Net().eval()), torch.randn(5, 4), scale=4)
    assert (run.graph_count, run.op_count, run.breaks) == (1, 4, [])


def test_an_exported_module():
    exported = torch.export.export(Net().eval(), (torch.randn(5, 4),)).module()
    run = run_both(exported, torch.randn(5, 4))
    assert (run.graph_count, run.breaks) == (1, [])


def test_what_a_traced_module_calls_in_eager_code_is_captured():
    call = type(torch.fx.symbolic_trace(Net())).__call__
    assert why_not_captured(call.__code__, call.__globals__) == ("module torch.fx.graph_module", False)


def test_the_error_of_a_traced_module():
    def f(x):
        try:
            return traced(x)
        except RuntimeError:
            return x + 1

    traced = torch.fx.symbolic_trace(Net().eval())
    run_both(f, torch.randn(5, 7))
