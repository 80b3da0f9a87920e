"""torchsde: stochastic differential equations."""

import torch
import torchsde

from .program import Programs, leaf

programs = Programs("torchsde")
TIMES = torch.linspace(0, 1, 2)


class Equation(torch.nn.Module):
    def __init__(self, noise_type, sde_type="ito", brownian_size=4):
        super().__init__()
        self.noise_type, self.sde_type, self.brownian_size = noise_type, sde_type, brownian_size
        self.drift = torch.nn.Linear(4, 4)
        columns = {"diagonal": 4, "scalar": 4, "general": 4 * brownian_size, "additive": 4 * brownian_size}[noise_type]
        self.diffusion = torch.nn.Linear(4, columns)

    def f(self, t, y):
        return self.drift(y).tanh()

    def g(self, t, y):
        if self.noise_type == "diagonal":
            return self.diffusion(y).sigmoid()
        if self.noise_type == "additive":
            return self.diffusion(torch.ones_like(y)).view(-1, 4, self.brownian_size)
        return self.diffusion(y).sigmoid().view(-1, 4, self.brownian_size)


def solved(equation, solve=torchsde.sdeint, **options):
    def fn(y):
        brownian = torchsde.BrownianInterval(
            0.0, 1.0, size=(3, equation.brownian_size), entropy=7, levy_area_approximation="space-time"
        )
        return solve(equation, y, TIMES, dt=0.5, bm=brownian, **options)

    return fn, (leaf(3, 4),)


@programs
def euler():
    return solved(Equation("diagonal"), method="euler")


@programs
def milstein():
    return solved(Equation("diagonal"), method="milstein")


@programs
def stochastic_runge_kutta():
    return solved(Equation("diagonal"), method="srk")


@programs
def stratonovich():
    return solved(Equation("diagonal", "stratonovich"), method="midpoint")


@programs
def heun():
    return solved(Equation("general", "stratonovich", 2), method="heun")


@programs
def reversible_heun():
    return solved(Equation("general", "stratonovich", 2), method="reversible_heun")


@programs
def additive():
    return solved(Equation("additive", brownian_size=2), method="euler")


@programs
def adjoint():
    return solved(Equation("diagonal"), torchsde.sdeint_adjoint, method="euler")


@programs
def log_ratio():
    class Latent(Equation):
        def h(self, t, y):
            return -y

    equation = Latent("diagonal")
    return lambda y: torchsde.sdeint(equation, y, TIMES, dt=0.5, method="euler", logqp=True), (leaf(3, 4),)


@programs
def brownian():
    def fn(x):
        path = torchsde.BrownianInterval(0.0, 1.0, size=(3, 4), entropy=3)
        return x * path(0.1, 0.5) + path(0.5, 1.0)

    return fn, (leaf(3, 4),)
