"""The classes of `torch.nn`, `torch.distributions`, `torch.optim` and its schedulers, and calls of each in their documented forms.

The calls are in the text files beside this one. A line is `arguments | constructor; constructor; …`, Python expressions over `NAMES`;
optimisers have lines `class | keyword arguments; …`, schedulers `constructor; …`. `NOT_CALLED` says what is left out, and why.
"""

import pathlib

import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import nn, optim
from torch.distributions import transforms
from torch.optim import lr_scheduler

FOLDER = pathlib.Path(__file__).parent


def n(*size):
    """Normally distributed numbers that require gradients."""
    return torch.randn(*size).requires_grad_()


def u(*size):
    """Numbers between 0.1 and 0.9 that require gradients."""
    return torch.rand(*size).mul(0.8).add(0.1).requires_grad_()


def c(*size):
    """Numbers without gradients."""
    return torch.rand(*size)


def i(high, *size):
    """Integers below `high`."""
    return torch.randint(high, size)


def b(*size):
    """Booleans."""
    return torch.rand(*size) < 0.3


def signs(*size):
    """1 and -1."""
    return torch.randint(2, size) * 2.0 - 1


def simplex(*size):
    """Numbers that add up to 1 along the last dimension."""
    return torch.rand(*size).add(0.1).softmax(-1).requires_grad_()


def definite(size):
    """A positive definite matrix."""
    made = torch.rand(size, size)
    return (made @ made.T + 2 * torch.eye(size)).requires_grad_()


def lower(size):
    """The Cholesky factor of a positive definite matrix."""
    return torch.linalg.cholesky(definite(size).detach()).requires_grad_()


def packed(size, lengths):
    """A packed sequence of that many features."""
    return nn.utils.rnn.pack_padded_sequence(torch.randn(max(lengths), len(lengths), size), lengths)


class WithContainers(nn.Module):
    """A module of the containers that have no `forward`."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.layers.append(nn.Tanh())
        self.named = nn.ModuleDict({"first": nn.Linear(4, 3), "last": nn.Linear(3, 2)})
        self.weights = nn.ParameterList([nn.Parameter(torch.rand(4)), nn.Parameter(torch.rand(4))])
        self.table = nn.ParameterDict({"scale": nn.Parameter(torch.rand(2)), "shift": nn.Parameter(torch.rand(2))})
        self.table["more"] = nn.Parameter(torch.rand(2))
        self.steps = nn.Buffer(torch.zeros(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        for weight in self.weights:
            x = x * weight
        for layer in self.named.values():
            x = layer(x)
        self.steps += 1
        return x * self.table["scale"] + self.table.shift + sum(self.table.values())


NAMES = {"torch": torch, "nn": nn, "F": F, "D": D, "optim": optim, "T": transforms, "S": lr_scheduler}
NAMES |= {"n": n, "u": u, "c": c, "i": i, "b": b, "signs": signs, "simplex": simplex, "definite": definite}
NAMES |= {"lower": lower, "packed": packed}

CONTAINERS = "in WithContainers"
BASE = "a base class without a forward pass or a sampler of its own"
NOT_CALLED = {
    **dict.fromkeys(["Buffer", "Parameter", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList"], CONTAINERS),
    **dict.fromkeys(["Module", "Container", "RNNBase", "RNNCellBase", "Distribution", "ExponentialFamily"], BASE),
    **dict.fromkeys(["Transform", "Optimizer", "LRScheduler"], BASE),
    **dict.fromkeys(
        ["UninitializedBuffer", "UninitializedParameter"], "what lazy modules have before their first call"
    ),
    "LinearCrossEntropyOptions": "options of LinearCrossEntropyLoss",
}


def lines(name):
    """The lines of a table: the part before the bar, and the list after it."""
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        before, bar, after = line.rpartition(" | ")
        yield (before if bar else ""), after.split("; ")


def class_of(constructor):
    """The name of the class in an expression that makes an object."""
    return constructor.partition("(")[0].partition(".")[0]
