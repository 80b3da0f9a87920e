"""normflows: normalizing flows."""

import normflows as nf
import torch

from .program import Programs, leaf

programs = Programs("normflows")


def flow(*steps):
    return nf.NormalizingFlow(nf.distributions.DiagGaussian(2), list(steps))


@programs
def real_nvp():
    steps = []
    for _ in range(2):
        steps += [nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 8, 2], init_zeros=True)), nf.flows.Permute(2)]
    return flow(*steps).forward_kld, (leaf(6, 2),)


@programs
def glow_steps():
    steps = [nf.flows.ActNorm(2), nf.flows.LULinearPermute(2)]
    return flow(*steps).log_prob, (leaf(6, 2),)


@programs
def spline():
    return flow(nf.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8)).log_prob, (leaf(6, 2),)


@programs
def coupled_spline():
    return flow(nf.flows.CoupledRationalQuadraticSpline(2, 1, 8)).log_prob, (leaf(6, 2),)


@programs
def planar():
    model = flow(nf.flows.Planar((2,)), nf.flows.Planar((2,)))
    return lambda n: model.sample(n), (6,)


@programs
def radial():
    model = flow(nf.flows.Radial((2,)))
    return lambda n: model.sample(n), (6,)


@programs
def residual():
    net = nf.nets.LipschitzMLP([2, 8, 2], init_zeros=True, lipschitz_const=0.9)
    return flow(nf.flows.Residual(net, reduce_memory=False)).log_prob, (leaf(6, 2),)


@programs
def masked_autoregressive():
    return flow(nf.flows.MaskedAffineAutoregressive(2, 8)).log_prob, (leaf(6, 2),)


@programs
def reverse_divergence():
    model = nf.NormalizingFlow(
        nf.distributions.DiagGaussian(2),
        [nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 8, 2]))],
        nf.distributions.TwoMoons(),
    )
    return lambda n: model.reverse_kld(n), (8,)


@programs
def mixture():
    return nf.distributions.GaussianMixture(3, 2).log_prob, (torch.randn(6, 2),)
