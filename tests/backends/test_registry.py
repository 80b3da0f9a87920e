import functools
import re
import subprocess
import sys

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends import registry
from dynamo_lite.backends.registry import (
    ALIASES,
    backend_name,
    list_backends,
    lookup_backend,
    register_backend,
    reset_backends,
    with_options,
)
from dynamo_lite.backends.requirements import Requirements
from dynamo_lite.exc import InvalidBackend
from tests.helpers import processes


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_backends", dict(registry._backends))
    monkeypatch.setattr(registry, "_tags", dict(registry._tags))


def test_builtin_names():
    ours = [
        "autotune",
        "cudagraphs",
        "inductor",
        "inductor_freezing",
        "inductor_max_autotune",
        "inductor_reduce_overhead",
        "onnxruntime",
        "onnxruntime_freezing",
        "openvino",
        "openvino_freezing",
        "tensorrt",
        "torchscript",
    ]
    assert list_backends() == ours
    assert list_backends(None) == sorted([*ours, "aot_eager", "eager"])
    assert lookup_backend("eager").__name__ == "eager"


def test_register_in_three_forms():
    @register_backend
    def plain(gm, example_inputs):
        return gm.forward

    @register_backend(name="renamed", tags=("experimental",))
    def other(gm, example_inputs):
        return gm.forward

    register_backend(lambda gm, example_inputs: gm.forward, name="third")
    assert lookup_backend("plain") is plain
    assert lookup_backend("renamed") is other
    assert "renamed" not in list_backends()
    assert {"plain", "renamed", "third"} <= set(list_backends(None))
    assert register_backend(plain) is plain


def test_register_errors():
    with pytest.raises(TypeError, match="a backend is a callable"):
        register_backend(3, name="three")
    with pytest.raises(ValueError, match="a backend named 'eager' already"):
        register_backend(lambda gm, example_inputs: gm, name="eager")


def test_lookup_of_callables_and_unknown_names():
    def mine(gm, example_inputs):
        return gm.forward

    assert lookup_backend(mine) is mine
    with pytest.raises(
        InvalidBackend,
        match="Invalid backend: 'indcutor'; did you mean inductor.*[?] known backends: aot_eager, autotune, cudagraphs, eager",
    ):
        lookup_backend("indcutor")
    with pytest.raises(TypeError, match="a name or a callable, got int"):
        lookup_backend(3)


class FakeEntryPoint:
    name = "plugged"

    def __init__(self):
        self.loads = 0

    def load(self):
        self.loads += 1
        return lambda gm, example_inputs: gm.forward


@pytest.mark.parametrize("group", ["dynamo_lite.backends", "torch_dynamo_backends"])
def test_entry_points_are_found_by_name_and_loaded_when_needed(monkeypatch, group):
    plugged = FakeEntryPoint()
    own = registry.ENTRY_POINT_GROUP
    monkeypatch.setattr(registry, "_entry_points", lambda asked=own: {"plugged": plugged} if asked == group else {})
    assert "plugged" in list_backends()
    assert plugged.loads == 0
    registry.candidates(["cpu"], training=False)
    assert plugged.loads == (group == own)  # races are between backends that state their requirements
    registry._backends.pop("plugged", None)
    before = plugged.loads
    assert lookup_backend("plugged") is lookup_backend("plugged")
    assert plugged.loads == before + 1


def test_with_options():
    seen = []

    def mine(gm, example_inputs, mode=None, options=None):
        seen.append((mode, options))
        return gm

    assert with_options(mine, mode=None, options=None) is mine
    wrapped = with_options(mine, mode="fast", options={"a": 1})
    wrapped("gm", [])
    assert seen == [("fast", {"a": 1})]
    assert wrapped.__name__ == "mine"
    assert backend_name(with_options(lookup_backend("inductor"), mode="max-autotune")) == "inductor"
    assert backend_name(functools.partial(mine)) == "mine"


def test_inductor_options_are_checked_at_once():
    pytest.importorskip("torch")
    inductor = lookup_backend("inductor")
    with pytest.raises(RuntimeError, match="Unrecognized mode=fastest"):
        with_options(inductor, mode="fastest")
    with pytest.raises(RuntimeError, match="Unexpected optimization option max_autotun"):
        with_options(inductor, options={"max_autotun": True})
    with pytest.raises(RuntimeError, match="Unexpected type of option max_autotune: got str, need bool"):
        with_options(inductor, options={"max-autotune": "yes"})


def test_reset_calls_the_backends_own_reset():
    calls = []

    def mine(gm, example_inputs):
        return gm.forward

    def reset():
        calls.append(1)

    mine.reset = reset
    register_backend(mine)
    reset_backends()
    assert calls == [1]


def test_lookup_imports_no_compiler():
    pytest.importorskip("torch")
    script = (
        "import sys, torch; from dynamo_lite.backends.registry import lookup_backend; lookup_backend('inductor');"
        "print([m for m in ('torch._dynamo', 'torch._inductor', 'torch._functorch.aot_autograd') if m in sys.modules])"
    )
    done = processes.run(["-c", script], check=True)
    assert done.stdout.strip() == "[]"


def test_what_a_backend_needs(monkeypatch):
    pytest.importorskip("torch")

    class Broken:
        name = "broken"

        def load(self):
            raise RuntimeError("no such symbol\nat all")

    needs = Requirements(modules=("no_such_module",), distribution="no-such", install="the package")
    assert needs.missing() == "no_such_module not installed" and needs.version() == ""
    gpu = Requirements(distribution="pytest", cuda_distribution="no-such")
    assert gpu.missing(["cpu"]) is None and gpu.missing(["cuda"]) == "no-such not installed"
    assert gpu.usable_devices() == ["cpu"] and gpu.version()

    def mine(gm, example_inputs):
        return gm.forward

    mine.requirements = needs
    register_backend(mine)
    monkeypatch.setattr(registry, "_entry_points", lambda group="": {"broken": Broken()})
    assert registry.describe("mine") == ("", "", "no: no_such_module not installed; needs the package")
    assert registry.describe("broken") == ("", "", "no: RuntimeError: no such symbol")
    assert registry.describe("eager") == ("", "", "")


def test_a_backend_that_is_not_installed_names_its_extra(monkeypatch):
    from dynamo_lite.backends.openvino import openvino
    from dynamo_lite.backends.requirements import Requirements

    needs = Requirements(modules=("no_such_package",), install="dynamo-lite[openvino]")
    monkeypatch.setattr(openvino, "requirements", needs)
    monkeypatch.setitem(sys.modules, "openvino", None)
    lack = r"no_such_package not installed: needs dynamo-lite\[openvino\]"
    with pytest.warns(UserWarning, match=rf"backend 'openvino' failed, the graph runs eagerly: .*; {lack}$"):
        dynamo_lite.compile(lambda x: x + 1, backend="openvino")(torch.ones(2))
    with pytest.raises(dynamo_lite.exc.BackendCompilerFailed) as info:
        dynamo_lite.compile(lambda x: x + 1, backend="openvino", fullgraph=True)(torch.ones(2))
    assert re.fullmatch(lack, *info.value.__notes__)


@pytest.mark.parametrize("name", ALIASES)
def test_torchs_names_for_debugging(name):
    assert lookup_backend(name) is lookup_backend(ALIASES[name])
    x = torch.ones(3)
    assert torch.equal(dynamo_lite.compile(lambda x: x + 1, backend=name)(x), x + 1)
    assert name not in list_backends(None)


def test_a_name_of_torch_without_a_counterpart():
    with pytest.raises(InvalidBackend, match="no counterpart here; 'eager' runs .*known backends: aot_eager"):
        lookup_backend("pre_dispatch_eager")


def test_what_torchs_compilers_warn_of_when_they_are_imported_is_not_the_programs():
    program = """
import sys, warnings
import torch
from dynamo_lite.backends.aot import load_compiler

before = list(warnings.filters)
assert "torch.utils.mkldnn" not in sys.modules
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("error")
    warnings.filterwarnings("always", category=UserWarning)
    load_compiler("torch._inductor.compile_fx")
assert not caught and "torch.utils.mkldnn" in sys.modules and warnings.filters == before
"""
    subprocess.run([sys.executable, "-c", program], check=True)
