"""nflows: normalizing flows."""

import torch
from nflows import transforms
from nflows.distributions import ConditionalDiagonalNormal, StandardNormal
from nflows.flows import Flow, MaskedAutoregressiveFlow, SimpleRealNVP
from nflows.nn.nets import ResidualNet

from .program import Programs, leaf

programs = Programs("nflows")


def density(*steps, base=None):
    flow = Flow(transforms.CompositeTransform(steps), base or StandardNormal([4]))
    return flow.log_prob, (leaf(5, 4),)


def network(inputs, outputs):
    return ResidualNet(inputs, outputs, hidden_features=8, num_blocks=1)


@programs
def affine_autoregressive():
    return density(
        transforms.ReversePermutation(4), transforms.MaskedAffineAutoregressiveTransform(4, hidden_features=8)
    )


@programs
def coupling():
    return density(transforms.AffineCouplingTransform(torch.tensor([1, 0, 1, 0]), network))


@programs
def spline_coupling():
    step = transforms.PiecewiseRationalQuadraticCouplingTransform(
        torch.tensor([1, 0, 1, 0]), network, tails="linear", num_bins=4
    )
    return density(step)


@programs
def spline_autoregressive():
    return density(
        transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
            4, hidden_features=8, num_bins=4, tails="linear", tail_bound=3.0
        )
    )


@programs
def real_nvp():
    return SimpleRealNVP(4, 8, 2, 1).log_prob, (leaf(5, 4),)


@programs
def masked_autoregressive_flow():
    return MaskedAutoregressiveFlow(4, 8, 2, 1).log_prob, (leaf(5, 4),)


@programs
def linear_steps():
    return density(transforms.LULinear(4), transforms.ActNorm(4), transforms.QRLinear(4, 2))


@programs
def sampling():
    flow = SimpleRealNVP(4, 8, 2, 1)
    return lambda n: flow.sample(n), (6,)


@programs
def conditional():
    base = ConditionalDiagonalNormal([4], torch.nn.Linear(3, 8))
    flow = Flow(transforms.MaskedAffineAutoregressiveTransform(4, hidden_features=8, context_features=3), base)
    return lambda x, c: flow.log_prob(x, context=c), (leaf(5, 4), torch.randn(5, 3))


@programs
def inverse():
    step = transforms.CompositeTransform([transforms.Sigmoid(), transforms.Logit(), transforms.SVDLinear(4, 2)])
    return step.inverse, (leaf(5, 4),)
