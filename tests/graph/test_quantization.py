"""Quantisation-aware training: observers that resize their buffers at the first call."""

import copy

import pytest
import torch
import torch.ao.quantization as quantization
from torch import nn

import dynamo_lite
from dynamo_lite.record import log
from dynamo_lite.testing import CompileCounterWithBackend, differences, run_both


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.linear, self.relu = quantization.QuantStub(), nn.Linear(4, 4), nn.ReLU()
        self.dequant = quantization.DeQuantStub()

    def forward(self, x):
        return self.dequant(self.relu(self.linear(self.quant(x))))


def prepared(engine):
    torch.manual_seed(0)
    model = Model().train()
    model.qconfig = quantization.get_default_qat_qconfig(engine)
    return quantization.prepare_qat(model)


def train(model, call):
    """What comes out of four steps, and the state of the model after them."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(1)
    outputs = []
    for i in range(4):
        output = call(torch.randn(3, 4) * (i + 1))
        optimizer.zero_grad()
        output.square().sum().backward()
        optimizer.step()
        outputs.append(output.detach())
    return outputs, dict(model.state_dict())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack"])
def test_training_per_channel_and_per_tensor(engine, backend):
    model = prepared(engine)
    expected = train(copied := copy.deepcopy(model), copied)
    counter, frames = CompileCounterWithBackend(backend), []
    stop = log.listen(frames.append)
    try:
        found = train(model, dynamo_lite.compile(model, backend=counter))
    finally:
        stop()
    assert not list(differences(expected, found, tol=1e-5))
    assert counter.graphs and not any(frame.skipped for frame in frames)
    breaks = [record.context for frame in frames for record in frame.breaks]
    assert breaks == ["fused_moving_avg_obs_fake_quant resizes an input"] * (engine == "fbgemm")


ARGUMENTS = (0.01, -128, 127, 0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["fused_moving_avg_obs_fake_quant", "_fused_moving_avg_obs_fq_helper"])
def test_operators_that_resize_what_they_write(name, backend):
    flag = torch.ones(1, dtype=torch.int64)

    def call(x, low, high, scale, zero, per_row):
        return getattr(torch, name)(x, flag, flag, low, high, scale, zero, *ARGUMENTS, per_row, True)

    for per_row in (True, False):
        for n in (0, 3) if per_row else (1,):
            buffers = [torch.zeros(n), torch.zeros(n), torch.ones(n), torch.zeros(n, dtype=torch.int32)]
            run = run_both(call, torch.randn(3, 4), *buffers, per_row, _backend=backend, _calls=1, _tol=1e-6)
            assert len(run.breaks) == (n == 0) and run.graph_count == (n != 0)


def per_tensor(x):
    q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    return q.q_scale(), q.is_quantized, q.dtype, q.int_repr() + 1, q.dequantize()


def per_channel(x):
    q = torch.quantize_per_channel(x, torch.tensor([0.1, 0.2]), torch.tensor([0, 0]), 0, torch.qint8)
    return q.qscheme(), q.is_quantized, q.dequantize()


def by_itself(x):
    q = torch._make_per_tensor_quantized_tensor(x.to(torch.int8), 0.1, 0)
    return q.dtype, (q.dequantize() + 1).dtype


def to_mkldnn(x):
    m = x.to_mkldnn()
    return m.is_mkldnn, m.layout is torch.strided, m.to_dense()


def of_mkldnn(x):
    return x.is_mkldnn, x.to_dense() * 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fn", [per_tensor, per_channel, by_itself, to_mkldnn, of_mkldnn])
def test_tensors_that_no_fake_tensor_is_like_are_left_to_eager_execution(fn):
    x = torch.randn(2, 3)
    if fn is of_mkldnn:
        x = x.to_mkldnn()
    with dynamo_lite.config.patch(debug=True):
        assert not list(differences(fn(x), dynamo_lite.compile(fn, backend="eager")(x)))
    with pytest.raises(dynamo_lite.exc.Unsupported, match="DL088"):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(x)
