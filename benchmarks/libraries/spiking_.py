"""snntorch and ncps: neurons with state."""

import snntorch
import torch
from ncps.torch import LTC, CfC
from ncps.wirings import AutoNCP
from snntorch import surrogate

from .program import Programs, leaf

programs = Programs("snntorch")


def spikes(neuron):
    linear = torch.nn.Linear(4, 3)

    def fn(x):
        state = neuron.reset_mem()
        state = state if isinstance(state, tuple) else (state,)
        out = []
        for step in x:
            spike, *state = neuron(linear(step), *state)
            out.append(spike)
        return torch.stack(out), state

    return fn, (leaf(4, 2, 4),)


@programs
def leaky():
    return spikes(snntorch.Leaky(beta=0.9))


@programs
def learned_decay():
    return spikes(snntorch.Leaky(beta=0.9, learn_beta=True, spike_grad=surrogate.fast_sigmoid()))


@programs
def synaptic():
    return spikes(snntorch.Synaptic(alpha=0.8, beta=0.9))


@programs
def alpha():
    return spikes(snntorch.Alpha(alpha=0.9, beta=0.8))


@programs
def reset_to_zero():
    return spikes(snntorch.Leaky(beta=0.9, reset_mechanism="zero", spike_grad=surrogate.atan()))


@programs
def recurrent():
    neuron = snntorch.RLeaky(beta=0.9, linear_features=3)
    linear = torch.nn.Linear(4, 3)

    def fn(x):
        spike, state = neuron.init_rleaky()
        for step in x:
            spike, state = neuron(linear(step), spike, state)
        return spike, state

    return fn, (leaf(4, 2, 4),)


@programs
def liquid():
    return LTC(4, AutoNCP(8, 2)), (leaf(2, 3, 4),)


@programs
def closed_form():
    return CfC(4, 6), (leaf(2, 3, 4),)


@programs
def wired_closed_form():
    return CfC(4, AutoNCP(8, 2)), (leaf(2, 3, 4),)


@programs
def with_memory():
    return CfC(4, 6, mixed_memory=True, proj_size=2), (leaf(2, 3, 4),)
