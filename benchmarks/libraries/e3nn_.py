"""e3nn: networks that are equivariant under rotations."""

import torch
from e3nn import o3
from e3nn.math import soft_one_hot_linspace
from e3nn.nn import BatchNorm, FullyConnectedNet, Gate, NormActivation

from .program import Programs, leaf

programs = Programs("e3nn")
IRREPS = o3.Irreps("4x0e + 2x1o")


def features(irreps=IRREPS):
    return torch.randn(5, irreps.dim).requires_grad_()


@programs
def spherical_harmonics():
    return lambda x: o3.spherical_harmonics([0, 1, 2], x, normalize=True, normalization="component"), (leaf(5, 3),)


@programs
def linear():
    return o3.Linear(IRREPS, "3x0e + 1x1o"), (features(),)


@programs
def tensor_product():
    return o3.FullyConnectedTensorProduct(IRREPS, IRREPS, "2x0e + 2x1o"), (features(), features())


@programs
def full_product():
    return o3.FullTensorProduct("2x0e + 1x1o", "1x0e + 1x1o"), (
        features(o3.Irreps("2x0e + 1x1o")),
        features(o3.Irreps("1x0e + 1x1o")),
    )


@programs
def gate():
    layer = Gate("4x0e", [torch.relu], "2x0e", [torch.sigmoid], "2x1o")
    return layer, (features(layer.irreps_in),)


@programs
def batch_norm():
    return BatchNorm(IRREPS), (features(),)


@programs
def norm_activation():
    return NormActivation(IRREPS, torch.sigmoid), (features(),)


@programs
def radial_network():
    network = FullyConnectedNet([10, 16, 8], torch.relu)

    def fn(distance):
        return network(soft_one_hot_linspace(distance, 0.0, 3.0, 10, basis="gaussian", cutoff=True))

    return fn, (torch.rand(7).requires_grad_(),)


@programs
def rotations():
    def fn(angles):
        matrix = o3.angles_to_matrix(*angles.unbind(-1))
        return o3.matrix_to_quaternion(matrix), o3.Irreps("1x1o").D_from_matrix(matrix)

    return fn, (torch.rand(4, 3),)


@programs
def convolution():
    harmonics = o3.Irreps.spherical_harmonics(1)
    product = o3.FullyConnectedTensorProduct(IRREPS, harmonics, IRREPS, shared_weights=False)
    network = FullyConnectedNet([6, 16, product.weight_numel], torch.nn.functional.silu)
    source, target = torch.tensor([0, 1, 2, 3]), torch.tensor([1, 2, 3, 0])

    def fn(x, positions):
        edge = positions[target] - positions[source]
        angular = o3.spherical_harmonics(harmonics, edge, True, normalization="component")
        radial = soft_one_hot_linspace(edge.norm(dim=1), 0.0, 3.0, 6, basis="smooth_finite", cutoff=True)
        messages = product(x[source], angular, network(radial))
        return torch.zeros_like(x).index_add(0, target, messages)

    return fn, (features(), torch.randn(5, 3))
