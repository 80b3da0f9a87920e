"""geotorch: layers whose weights lie on manifolds."""

import geotorch
import torch

from .program import Programs, leaf

programs = Programs("geotorch")


def constrained(constrain, *options):
    layer = torch.nn.Linear(6, 6)
    constrain(layer, "weight", *options)
    return layer, (leaf(3, 6),)


@programs
def orthogonal():
    return constrained(geotorch.orthogonal)


@programs
def symmetric():
    return constrained(geotorch.symmetric)


@programs
def skew():
    return constrained(geotorch.skew)


@programs
def sphere():
    return constrained(geotorch.sphere)


@programs
def low_rank():
    return constrained(geotorch.low_rank, 2)


@programs
def fixed_rank():
    return constrained(geotorch.fixed_rank, 2)


@programs
def positive_definite():
    return constrained(geotorch.positive_definite)


@programs
def positive_semidefinite():
    return constrained(geotorch.positive_semidefinite)


@programs
def invertible():
    return constrained(geotorch.invertible)


@programs
def almost_orthogonal():
    return constrained(geotorch.almost_orthogonal, 0.5)


@programs
def grassmannian():
    layer = torch.nn.Linear(6, 3)
    geotorch.grassmannian(layer, "weight")
    return layer, (leaf(3, 6),)
