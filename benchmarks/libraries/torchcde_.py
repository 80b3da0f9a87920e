"""torchcde: controlled differential equations and interpolation of paths."""

import torch
import torchcde

from .program import Programs, leaf

programs = Programs("torchcde")


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 12)

    def forward(self, t, z):
        return self.linear(z).tanh().view(*z.shape[:-1], 4, 3)


def solved(interpolate, path, **options):
    field = Field()

    def fn(x, z):
        control = path(interpolate(x))
        return torchcde.cdeint(X=control, func=field, z0=z, t=control.interval, adjoint=False, **options)

    return fn, (torch.randn(2, 6, 3), leaf(2, 4))


def evaluated(interpolate, path):
    def fn(x):
        control = path(interpolate(x))
        return control.evaluate(1.5), control.derivative(1.5)

    return fn, (leaf(2, 6, 3),)


@programs
def hermite_runge_kutta():
    return solved(
        torchcde.hermite_cubic_coefficients_with_backward_differences,
        torchcde.CubicSpline,
        method="rk4",
        options={"step_size": 1.0},
    )


@programs
def natural_runge_kutta():
    return solved(torchcde.natural_cubic_coeffs, torchcde.CubicSpline, method="rk4", options={"step_size": 1.0})


@programs
def linear_euler():
    return solved(
        torchcde.linear_interpolation_coeffs,
        torchcde.LinearInterpolation,
        method="euler",
        options={"step_size": 1.0},
    )


@programs
def adaptive():
    return solved(torchcde.natural_cubic_coeffs, torchcde.CubicSpline, method="dopri5")


@programs
def hermite():
    return evaluated(torchcde.hermite_cubic_coefficients_with_backward_differences, torchcde.CubicSpline)


@programs
def natural():
    return evaluated(torchcde.natural_cubic_coeffs, torchcde.CubicSpline)


@programs
def linear():
    return evaluated(torchcde.linear_interpolation_coeffs, torchcde.LinearInterpolation)


@programs
def missing_values():
    def fn(x):
        return torchcde.linear_interpolation_coeffs(torch.where(x > 1, torch.nan, x))

    return fn, (torch.randn(2, 6, 3),)


@programs
def rectilinear():
    def fn(x):
        times = torch.arange(6.0).view(1, 6, 1).expand(2, 6, 1)
        return torchcde.linear_interpolation_coeffs(torch.cat([times, x], -1), rectilinear=0)

    return fn, (torch.randn(2, 6, 3),)


@programs
def two_controls():
    def fn(x):
        return torchcde.TupleControl(
            torchcde.LinearInterpolation(torchcde.linear_interpolation_coeffs(x)),
            torchcde.CubicSpline(torchcde.natural_cubic_coeffs(x)),
        ).evaluate(2.0)

    return fn, (leaf(2, 6, 3),)
