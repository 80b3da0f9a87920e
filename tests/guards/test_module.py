"""Guards on a real nn.Module: every change that matters is noticed, and nothing else is."""

import pytest
import torch

from dynamo_lite.guards import ir, tensor_guards
from dynamo_lite.guards.ir import GuardSet
from dynamo_lite.guards.mirror import Mirror
from dynamo_lite.guards.program import build_program

nn = torch.nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.linear = nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x):
        return self.linear(self.norm(x)) * self.scale


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Sequential(nn.Linear(4, 2), nn.ReLU())


def guard_module(guards, node, module):
    """Type, training flag, own attributes, hooks, parameters and buffers of a module and all below it."""
    guards.check(node, ir.TYPE_IS, type(module))
    members = guards.node(node, ir.INSTANCE_DICT)
    guards.check(guards.node(guards.node(node, ir.TYPE), ir.TYPE_ATTR, "forward"), ir.IS, type(module).forward)
    guards.check(guards.node(members, ir.DICT_ITEM, "forward"), ir.ABSENT)
    for name, value in vars(module).items():
        child = guards.node(members, ir.DICT_ITEM, name)
        if isinstance(value, bool | int | float | str | None):
            guards.check(child, ir.EQUALS, value, ("model.py", 1))
        elif name.endswith("_hooks"):
            guards.check(child, ir.LEN, 0)
        elif name in ("_parameters", "_buffers"):
            guards.check(child, ir.DICT_KEYS, tuple(value))
            for key, t in value.items():
                guards.check(guards.node(child, ir.DICT_ITEM, key), ir.TENSOR, tensor_guards.tensor_spec(t))
        elif name == "_modules":
            guards.check(child, ir.DICT_KEYS, tuple(value))
            for key, submodule in value.items():
                guard_module(guards, guards.node(child, ir.DICT_ITEM, key), submodule)


class Setup:
    def __init__(self):
        self.model, self.x = Model(), torch.zeros(3, 4)
        self.guards = GuardSet(["self", "x"])
        me = self.guards.node(None, ir.LOCAL, 0)
        self.guards.check(me, ir.IS, self.model)
        guard_module(self.guards, me, self.model)
        x = self.guards.node(None, ir.LOCAL, 1)
        self.guards.check(x, ir.TENSOR, tensor_guards.tensor_spec(self.x, dynamic_sizes=[0]))
        parameters = [node for node in self.guards.nodes if any(g.kind == ir.TENSOR for g in node.checks)]
        self.guards.distinct(parameters)
        self.program, self.mirror = build_program(self.guards), Mirror(self.guards)
        assert self.agree()

    def agree(self):
        args = (self.model, self.x)
        expected = self.program.first_failure(args) is None
        for _ in range(3):
            assert self.program.check(args) is expected
        assert self.mirror.check(args) is expected
        return expected


CHANGES = {
    "eval": (lambda m: m.eval(), False),
    "train": (lambda m: m.train(), True),
    "one in eval": (lambda m: m.blocks[1].norm.eval(), False),
    "scale": (lambda m: setattr(m.blocks[0], "scale", 3.0), False),
    "same scale": (lambda m: setattr(m.blocks[0], "scale", 2.0), True),
    "new attribute": (lambda m: setattr(m.blocks[0], "other", 1), True),
    "forward of the instance": (lambda m: setattr(m.head, "forward", lambda x: x), False),
    "hook": (lambda m: m.blocks[1].linear.register_forward_hook(lambda *a: None), False),
    "pre-hook": (lambda m: m.head.register_forward_pre_hook(lambda *a: None), False),
    "parameter frozen": (lambda m: m.head[0].weight.requires_grad_(False), False),
    "all frozen": (lambda m: m.requires_grad_(False), False),
    "data of another size": (lambda m: setattr(m.head[0].bias, "data", torch.zeros(3)), False),
    "data of the same size": (lambda m: setattr(m.head[0].bias, "data", torch.ones(2)), True),
    "in-place update": (lambda m: m.head[0].bias.data.add_(1), True),
    "half": (lambda m: m.half(), False),
    "one to double": (lambda m: m.blocks[0].linear.double(), False),
    "to meta": (lambda m: m.to("meta"), False),
    "same device": (lambda m: m.to("cpu"), True),
    "new parameter": (lambda m: setattr(m.head[0], "bias", nn.Parameter(torch.zeros(2))), True),
    "bias removed": (lambda m: setattr(m.head[0], "bias", None), False),
    "parameter added": (lambda m: m.head.register_parameter("p", nn.Parameter(torch.zeros(1))), False),
    "parameter shared": (lambda m: setattr(m.blocks[0].linear, "weight", m.blocks[1].linear.weight), False),
    "buffer changed": (lambda m: m.blocks[0].norm.register_buffer("running_mean", torch.zeros(4)), True),
    "buffer of another type": (
        lambda m: m.blocks[0].norm.register_buffer("running_mean", torch.zeros(4).half()),
        False,
    ),
    "running statistics": (lambda m: m.blocks[0](torch.randn(8, 4)), True),
    "layer replaced": (lambda m: setattr(m.blocks[0], "linear", nn.Linear(4, 4)), True),
    "other layer": (lambda m: setattr(m.blocks[0], "linear", nn.Linear(4, 4, bias=False)), False),
    "other class": (lambda m: m.head.__setitem__(1, nn.GELU()), False),
    "layer added": (lambda m: m.head.append(nn.ReLU()), False),
    "layers swapped": (lambda m: m.blocks._modules.update(zip("01", reversed(list(m.blocks)), strict=True)), True),
    "class assigned": (lambda m: setattr(m.head[1], "__class__", nn.SELU), False),
    "dict of modules replaced": (lambda m: m.__dict__.__setitem__("_modules", dict(m._modules)), True),
    "dict replaced": (lambda m: setattr(m.head, "__dict__", dict(m.head.__dict__)), True),
    "training step": (
        lambda m: (
            [p.grad is None and setattr(p, "grad", torch.zeros_like(p)) for p in m.parameters()]
            and torch.optim.SGD(m.parameters(), 0.1).step()
        ),
        True,
    ),
    "state loaded": (lambda m: m.load_state_dict(Model().state_dict()), True),
    "state assigned": (lambda m: m.load_state_dict(Model().state_dict(), assign=True), True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change(name):
    change, still_valid = CHANGES[name]
    setup = Setup()
    change(setup.model)
    assert setup.agree() is still_valid


def test_class_attributes():
    setup = Setup()
    original = Block.forward
    try:
        Block.forward = lambda self, x: x
        assert not setup.agree()
    finally:
        Block.forward = original
    assert setup.agree()


def test_arguments():
    setup = Setup()
    for x, expected in (
        (torch.zeros(7, 4), True),
        (torch.zeros(7, 5), False),
        (torch.zeros(7, 4).double(), False),
        (torch.zeros(7, 4, requires_grad=True), False),
        (torch.zeros(3, 4), True),
        (setup.model.blocks[0].linear.weight, False),
    ):
        setup.x = x
        assert setup.agree() is expected


def test_back_and_forth():
    setup = Setup()
    for _ in range(20):
        setup.model.eval()
        assert not setup.agree()
        setup.model.train()
        assert setup.agree()
