"""What torch_tensorrt is asked, by a stand-in that runs the exported program. `benchmarks/gpu/run.py` tries the real one."""

import sys
import types

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.registry import requirements_of
from tests.backends.graphs import Net


@pytest.fixture
def asked(monkeypatch):
    """The calls of `torch_tensorrt.dynamo.compile`: inputs and settings."""
    calls = []
    module = types.ModuleType("torch_tensorrt")
    module.Input = lambda **settings: settings

    def compile(program, inputs, **settings):
        calls.append((inputs, settings))
        return program.module()

    module.dynamo = types.SimpleNamespace(compile=compile)
    monkeypatch.setitem(sys.modules, "torch_tensorrt", module)
    return calls


def test_parameters_are_constants(asked):
    model = Net().eval()
    x = torch.randn(2, 3, 6, 6)
    compiled = dynamo_lite.compile(model, backend="tensorrt", options={"precision": "float16"}, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x))
        ((inputs, settings),) = asked
        assert inputs == [{"shape": (2, 3, 6, 6), "dtype": torch.float32}]
        assert settings == {"enabled_precisions": {torch.float16, torch.float32}, "truncate_double": False}
        model.head.bias.add_(1)
        with pytest.warns(UserWarning, match="parameters have changed"):
            torch.testing.assert_close(compiled(x), model(x))


def test_sizes_that_vary(asked, tmp_path):
    options = {"largest": 3, "cache_dir": tmp_path}
    compiled = dynamo_lite.compile(lambda x: (x * 2).softmax(1), backend="tensorrt", options=options, fullgraph=True)
    with torch.no_grad():
        for n in (4, 7, 9):
            x = torch.randn(n, 3)
            dynamo_lite.mark_dynamic(x, 0)
            torch.testing.assert_close(compiled(x), (x * 2).softmax(1))
    ((inputs, settings),) = asked
    assert inputs == [{"min_shape": (2, 3), "opt_shape": (4, 3), "max_shape": (12, 3), "dtype": torch.float32}]
    assert settings["engine_cache_dir"] == str(tmp_path) and settings["reuse_cached_engines"]


@pytest.mark.parametrize(
    "fn, reason",
    [(lambda x: x.add_(1), "the graph writes to its inputs"), (lambda x: (x * x.shape[0]).sum(), None)],
)
def test_refusals(asked, fn, reason):
    compiled = dynamo_lite.compile(fn, backend="tensorrt", dynamic=False)
    with torch.no_grad():
        if reason is None:
            torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))
        else:
            with pytest.warns(UserWarning, match=reason):
                torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))
    assert len(asked) == (reason is None)


def test_training_is_refused(asked):
    with pytest.warns(UserWarning, match="failed, .*: NotImplementedError: gradients"):
        dynamo_lite.compile(torch.nn.Linear(2, 2), backend="tensorrt")(torch.ones(2)).sum().backward()
    assert not asked


def test_options():
    with pytest.raises(RuntimeError, match="precision='float8': expected one of float32, float16, bfloat16"):
        dynamo_lite.compile(lambda x: x, backend="tensorrt", options={"precision": "float8"})
    with pytest.raises(RuntimeError, match="Unexpected option larges of tensorrt"):
        dynamo_lite.compile(lambda x: x, backend="tensorrt", options={"larges": 2})


def test_what_is_missing_is_told():
    needs = requirements_of("tensorrt")
    if needs.missing() is None:
        pytest.skip("torch_tensorrt is installed")
    assert needs.missing() in ("torch_tensorrt not installed", "no CUDA device")
