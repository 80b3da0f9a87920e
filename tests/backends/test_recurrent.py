"""Recurrent layers train under backends that compile their gradients."""

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite.testing import same


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
