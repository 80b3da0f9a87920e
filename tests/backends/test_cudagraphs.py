"""Recording and replay, by a device that does so on the CPU. `benchmarks/gpu/run.py` tries the real one."""

import gc

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends import cudagraphs as module
from dynamo_lite.backends.cudagraphs import cudagraphs
from dynamo_lite.record import log
from dynamo_lite.testing import differences
from tests.backends.fake_cuda import FakeDevice, recording
from tests.backends.graphs import GRAPHS, Net, observed


@pytest.fixture
def device():
    log.reset()
    made = FakeDevice()
    yield made
    module.reset()


def compiled_for(device, fn, dynamic=None, **options):
    def of(_):
        return device

    of.type = "cpu"

    def backend(gm, example_inputs):
        return cudagraphs(gm, example_inputs, options=options, device=of)

    backend.dynamo_lite_floats = "tensors"
    return dynamo_lite.compile(fn, backend=backend, dynamic=dynamic)


def notes():
    return log.frames[-1].graphs[-1].notes["cudagraphs"]


@pytest.mark.parametrize("name", GRAPHS)
def test_as_in_eager_execution(device, name):
    fn, make = GRAPHS[name]
    compiled = compiled_for(device, fn)
    for seed in range(4):
        assert list(differences(*(observed(run, make, seed) for run in (fn, compiled)))) == []
    assert notes() == []
    assert device.log == ["record"] + ["enter", "replay"] * 3


def test_results_outlive_the_next_replay(device):
    compiled = compiled_for(device, lambda x: (x * 2, x.sum()))
    with torch.no_grad():
        kept = [compiled(torch.full((3,), float(i))) for i in range(5)]
    assert [k[0].tolist() for k in kept] == [[2.0 * i] * 3 for i in range(5)]
    assert [k[1].item() for k in kept] == [3.0 * i for i in range(5)]


def test_a_model_and_its_parameters(device):
    torch.manual_seed(0)
    model, twin = Net(), Net()  # in training: statistics are written
    twin.load_state_dict(model.state_dict())
    compiled = compiled_for(device, model)
    with torch.no_grad():
        for i in range(5):
            x = torch.randn(2, 3, 6, 6)
            if i == 3:
                model.head.weight.data.mul_(2)
                twin.head.weight.data.mul_(2)
            version = model.norm.running_mean._version
            torch.testing.assert_close(compiled(x), twin(x))
            assert model.norm.running_mean._version > version
        assert device.log.count("record") == 1
        model.head.weight.data = twin.head.weight.data = model.head.weight.data.clone()
        for _ in range(3):  # elsewhere now: recorded anew
            torch.testing.assert_close(compiled(x), twin(x))
    assert device.log.count("record") == 2
    for mine, other in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, other)


def test_inference_mode(device):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count.add_(x)
            return self.count * x

    with torch.inference_mode():
        model, twin = Counting(), Counting()
        compiled = compiled_for(device, model)
        for _ in range(4):
            x = torch.randn(3)
            torch.testing.assert_close(compiled(x), twin(x))
        torch.testing.assert_close(model.count, twin.count)
    assert "replay" in device.log


def test_modules_that_share_a_graph_have_recordings_of_their_own(device):
    layers = [torch.nn.Linear(3, 3) for _ in range(3)]

    def layer(module, x):
        return torch.relu(module(x))

    compiled = compiled_for(device, layer)
    with torch.no_grad():
        for _ in range(3):
            for one in layers:
                x = torch.randn(2, 3)
                torch.testing.assert_close(compiled(one, x), layer(one, x))
    assert device.log.count("record") <= 3


def test_one_compilation_and_a_recording_per_size(device):
    compiled = compiled_for(device, lambda x: (x * 2).softmax(0), dynamic=True)
    with torch.no_grad():
        for n in (2, 3, 2, 3, 2, 3):
            x = torch.randn(n, 4)
            torch.testing.assert_close(compiled(x), (x * 2).softmax(0))
    assert len(log.frames) == 1
    assert device.log.count("record") == 2 and device.log.count("replay") == 4


def test_the_buffers_of_all_sizes_share_memory(device):
    compiled = compiled_for(device, lambda x: x * 2, dynamic=True)
    with torch.no_grad():
        for n in (9, 9, 4, 4, 6, 6):
            compiled(torch.randn(n))
    (recorder,) = module._wrappers
    assert len(recorder.recordings) == 3
    assert [len(memory) for memory in recorder.buffers if memory] == [1]


def test_a_limit_of_sizes(device):
    compiled = compiled_for(device, lambda x: x * 2, dynamic=True, max_recordings=2)
    with torch.no_grad():
        for n in (2, 2, 3, 3, 4, 4, 5, 5, 2):
            assert compiled(torch.ones(n)).tolist() == [2.0] * n
    assert device.log.count("record") == 2
    assert notes() == ["recording: more than 2 sizes"]


class TestPadding:
    def test_sizes_are_rounded_up(self, device):
        compiled = compiled_for(device, lambda x: (x * 2, x.sum(1)), dynamic=True, padding=[4, 8])
        with torch.no_grad():
            for n in (3, 4, 2, 7, 8, 6, 4, 9, 9):
                x = torch.randn(n, 5)
                for actual, expected in zip(compiled(x), (x * 2, x.sum(1)), strict=True):
                    torch.testing.assert_close(actual, expected)
                    assert actual.stride() == expected.stride()
        assert device.log.count("record") == 3  # 4, 8 and, beyond the ladder, 9
        assert notes() == []

    def test_rows_that_depend_on_each_other(self, device):
        compiled = compiled_for(device, lambda x: x.softmax(0), dynamic=True, padding=[8])
        with torch.no_grad():
            for n in (3, 4, 5, 5, 5):
                x = torch.randn(n, 5)
                torch.testing.assert_close(compiled(x), x.softmax(0))
        assert len(notes()) == 1 and notes()[0].startswith("recording: padding: it changes results: result 0")

    @pytest.mark.parametrize(
        "fn, reason",
        [
            (lambda x: x.sum(0), "result 0 has no size that varies"),
            (lambda x: x.add_(1) * 2, "the graph writes to its inputs"),
        ],
    )
    def test_what_cannot_be_padded(self, device, fn, reason):
        compiled = compiled_for(device, fn, padding=[8])
        with torch.no_grad():
            for n in (3, 3, 4, 4):
                x = torch.ones(n, 2)
                dynamo_lite.mark_dynamic(x, 0)
                torch.testing.assert_close(compiled(x), fn(torch.ones(n, 2)))
        assert notes() == [f"recording: padding: {reason}"]
        assert device.log.count("record") == 2

    def test_channels_last(self, device):
        def fn(x):
            return torch.nn.functional.avg_pool2d(x, 2)

        compiled = compiled_for(device, fn, dynamic=True, padding=[4])
        with torch.no_grad():
            for n in (2, 3, 2):
                x = torch.randn(n, 3, 4, 4).to(memory_format=torch.channels_last)
                torch.testing.assert_close(compiled(x), fn(x))
        assert notes() == []


class TestReasons:
    def told(self, device, fn, *inputs):
        compiled = compiled_for(device, fn)
        with torch.no_grad():
            for _ in range(3):
                torch.testing.assert_close(compiled(*inputs), fn(*inputs))
        assert "replay" not in device.log
        (reason,) = notes()
        return reason

    def test_another_device(self, device):
        def of(_):
            return device

        of.type = "cuda"

        def backend(gm, example_inputs):
            return cudagraphs(gm, example_inputs, device=of)

        with torch.no_grad():
            dynamo_lite.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
        assert notes() == ["recording: inputs on cpu"]

    def test_no_input(self, device):
        assert self.told(device, lambda: torch.ones(3) + 1) == "recording: no tensor goes in"

    def test_sizes_that_depend_on_data(self, device):
        with dynamo_lite.config.patch(capture_dynamic_output_shape_ops=True):
            reason = self.told(device, lambda x: x.nonzero() + 1, torch.tensor([0.0, 1.0]))
        assert reason == "recording: aten.nonzero.default: sizes that depend on data"

    def test_an_operator_that_cannot_be_recorded(self, device):
        device.cannot_record.add(torch.ops.aten.sort.default)
        reason = self.told(device, lambda x: x.sort().values + 1, torch.tensor([2.0, 1.0]))
        assert reason.startswith("recording: RuntimeError: operation not permitted when stream is capturing")

    def test_while_the_program_records(self, device):
        compiled = compiled_for(device, lambda x: x + 1)
        with torch.no_grad(), recording(device):
            for _ in range(3):
                compiled(torch.ones(2))
        assert device.log == []

    def test_training(self, device):
        compiled = compiled_for(device, torch.nn.Linear(2, 2))
        with pytest.warns(UserWarning, match="failed, .*: NotImplementedError: gradients"):
            compiled(torch.ones(2, 2)).sum().backward()


def test_recordings_go_with_the_callable(device):
    compiled = compiled_for(device, lambda x: x * 2)
    with torch.no_grad():
        for _ in range(3):
            compiled(torch.ones(2))
    assert len(device.graphs) == 1
    del compiled
    dynamo_lite.reset()
    log.reset()
    gc.collect()
    assert len(device.graphs) == 0


def test_reset_drops_recordings(device):
    compiled = compiled_for(device, lambda x: x * 2)
    with torch.no_grad():
        for _ in range(3):
            compiled(torch.ones(2))
        module.reset()
        assert len(device.graphs) == 0
        assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]


def test_options():
    with pytest.raises(RuntimeError, match="Unexpected option pading of cudagraphs; known: padding, max_recordings"):
        dynamo_lite.compile(lambda x: x, backend="cudagraphs", options={"pading": [2]})
    with pytest.raises(RuntimeError, match=r"padding=\[4, 2\]: expected ascending sizes"):
        dynamo_lite.compile(lambda x: x, backend="cudagraphs", options={"padding": [4, 2]})


def test_without_cuda_the_reason_is_told():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with torch.no_grad():
        dynamo_lite.compile(lambda x: x + 1, backend="cudagraphs")(torch.ones(2))
    assert notes() == ["recording: inputs on cpu"]
