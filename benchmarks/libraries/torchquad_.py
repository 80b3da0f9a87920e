"""torchquad: integration in several dimensions."""

import torch
from torchquad import Boole, GaussLegendre, MonteCarlo, Simpson, Trapezoid

from .program import Programs

programs = Programs("torchquad")
ONE = torch.tensor([[0.0, 1.0]])
TWO = torch.tensor([[0.0, 1.0], [-1.0, 1.0]])


def wave(x):
    return torch.sin(x[:, 0]) + torch.exp(x[:, -1])


def integrated(rule, points, domain, **options):
    return lambda domain: rule.integrate(
        wave, dim=len(domain), N=points, integration_domain=domain, backend="torch", **options
    ), (domain,)


@programs
def trapezoid():
    return integrated(Trapezoid(), 101, ONE)


@programs
def simpson():
    return integrated(Simpson(), 101, ONE)


@programs
def boole():
    return integrated(Boole(), 401, ONE)


@programs
def simpson_in_two_dimensions():
    return integrated(Simpson(), 121, TWO)


@programs
def gauss_legendre():
    return integrated(GaussLegendre(), 25, TWO)


@programs
def monte_carlo():
    return integrated(MonteCarlo(), 50, TWO, seed=3)


@programs
def with_gradients():
    def fn(a, domain):
        return Simpson().integrate(lambda x: (a * x[:, 0]).exp(), dim=1, N=101, integration_domain=domain)

    return fn, (torch.tensor(0.5, requires_grad=True), ONE)


@programs
def domain_with_gradients():
    return integrated(Trapezoid(), 101, ONE.clone().requires_grad_())


@programs
def vector_valued():
    def fn(domain):
        return Simpson().integrate(
            lambda x: torch.stack([x[:, 0], x[:, 0] ** 2], -1), dim=1, N=101, integration_domain=domain
        )

    return fn, (ONE,)


@programs
def grid_once():
    rule = Simpson()
    points, width, per_dimension = rule.calculate_grid(101, ONE)

    def fn(a):
        values = rule.evaluate_integrand(lambda x: a * x[:, 0], points)[0]
        return rule.calculate_result(values, 1, per_dimension, width, ONE)

    return fn, (torch.tensor(0.5, requires_grad=True),)
