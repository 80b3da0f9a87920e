"""Recurrent layers train under backends that compile their gradients."""

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.testing import CompileCounterWithBackend, same


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("inside", [False, True])
def test_an_lstm_whose_input_requires_no_gradients(inside, backend):
    def run(opt):
        torch.manual_seed(0)
        net, x = nn.LSTM(3, 4, batch_first=True), torch.randn(2, 3, 3)

        def fn(x):
            loss = net(x)[0].square().mean()
            if inside:
                loss.backward()
            return loss.detach() if inside else loss

        loss = opt(fn)(x)
        if not inside:
            loss.backward()
        with torch.no_grad():
            again = opt(net)(x)
        return loss.detach(), [p.grad for p in net.parameters()], again

    expected = run(lambda fn: fn)
    compiled = run(lambda fn: dynamo_lite.compile(fn, backend=backend, fullgraph=True))
    assert same(expected, compiled, tol=1e-6)
    assert torch._C._get_mkldnn_enabled()


CELLS = {
    "LSTM": (nn.LSTM, {}),
    "GRU": (nn.GRU, {}),
    "RNN": (nn.RNN, {"nonlinearity": "relu"}),
    "RNN of tanh, bidirectional": (nn.RNN, {"bidirectional": True}),
    "projections": (nn.LSTM, {"proj_size": 2, "bidirectional": True}),
    "batch first": (nn.GRU, {"batch_first": True, "bias": False}),
}


def train(opt, net, x, lengths):
    """Results, gradients, and what the random generator draws next."""
    torch.manual_seed(1)
    net.zero_grad()

    def fn(x):
        if lengths is None:
            return net(x)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False, batch_first=net.batch_first)
        output, states = net(packed)
        return output.data, states

    output, states = opt(fn)(x)
    output.square().sum().backward()
    states = [states] if isinstance(states, torch.Tensor) else states
    gradients = [p.grad.clone() for p in net.parameters()]
    return output.detach(), output.stride(), [state.detach() for state in states], gradients, torch.rand(2)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("lengths", [None, [5, 3, 2]])
@pytest.mark.parametrize("name", CELLS)
def test_dropout_between_layers_draws_what_it_draws(name, lengths, dynamic):
    cls, options = CELLS[name]
    torch.manual_seed(0)
    net = cls(3, 4, num_layers=3, dropout=0.5, **options)
    x = torch.randn(3, 5, 3) if net.batch_first else torch.randn(5, 3, 3)
    lengths = lengths and torch.tensor(lengths)
    expected = train(lambda fn: fn, net, x, lengths)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = train(lambda fn: dynamo_lite.compile(fn, backend=counter, dynamic=dynamic), net, x, lengths)
    assert same(expected, compiled, tol=1e-6)
    assert counter.graphs and expected[1] == compiled[1]


def test_dropout_between_layers_under_inductor():
    """Inductor has random numbers of its own, or those of eager execution if it is asked for them."""
    torch.manual_seed(0)
    net, x = nn.GRU(3, 4, num_layers=2, dropout=0.5), torch.randn(5, 3, 3)
    expected = train(lambda fn: fn, net, x, None)
    with torch._inductor.config.patch(fallback_random=True):
        compiled = train(lambda fn: dynamo_lite.compile(fn, backend="inductor"), net, x, None)
    assert same(expected, compiled, tol=1e-5)
    own = train(lambda fn: dynamo_lite.compile(fn, backend="inductor"), net, x, None)
    net.dropout = 0.0
    whole = train(lambda fn: fn, net, x, None)
    assert not same(own[0], whole[0], tol=1e-5)  # something is dropped out
