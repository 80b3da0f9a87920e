"""zuko: flows and distributions that are modules."""

import torch
import zuko

from .program import Programs, leaf

programs = Programs("zuko")


def density(flow):
    return lambda x, c: flow(c).log_prob(x), (leaf(5, 3), torch.randn(5, 2))


@programs
def neural_spline():
    return density(zuko.flows.NSF(3, 2, transforms=2, hidden_features=(8, 8)))


@programs
def masked_autoregressive():
    return density(zuko.flows.MAF(3, 2, transforms=2, hidden_features=(8, 8)))


@programs
def coupling():
    return density(zuko.flows.NICE(3, 2, transforms=2, hidden_features=(8, 8)))


@programs
def neural_autoregressive():
    return density(zuko.flows.NAF(3, 2, transforms=1, hidden_features=(8, 8)))


@programs
def sum_of_squares():
    return density(zuko.flows.SOSPF(3, 2, transforms=1, hidden_features=(8, 8)))


@programs
def bernstein():
    return density(zuko.flows.BPF(3, 2, transforms=1, hidden_features=(8, 8)))


@programs
def mixture():
    return density(zuko.mixtures.GMM(3, 2, components=3, hidden_features=(8,)))


@programs
def sampling():
    flow = zuko.flows.MAF(3, 2, transforms=2, hidden_features=(8, 8))
    return lambda c: flow(c).rsample((2,)), (leaf(5, 2),)


@programs
def with_density_of_samples():
    flow = zuko.flows.NSF(3, 2, transforms=1, hidden_features=(8,))
    return lambda c: flow(c).rsample_and_log_prob((2,)), (torch.randn(5, 2),)


@programs
def distributions():
    def fn(x):
        base = zuko.distributions.DiagNormal(torch.zeros(3), torch.ones(3))
        return base.log_prob(x) + zuko.distributions.BoxUniform(-4 * torch.ones(3), 4 * torch.ones(3)).log_prob(x)

    return fn, (leaf(5, 3),)
