"""What a backend has compiled: found again under the same settings for the same version, and nowhere else."""

import json
import os
import shutil
import sys

import pytest
import torch

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.__main__ import main
from dynamo_lite.backends.compiled import artifact
from dynamo_lite.backends.compiled.generated import Generated
from dynamo_lite.exc import Mismatch, Refused
from dynamo_lite.record import STATS, log
from dynamo_lite.warm_cache import files, store
from tests.helpers import processes
from tests.warm_cache.cache_programs import Run, load, new_process

TEXT = """
import torch
def f(x): return x.sin() + 1
def main(): return f, (torch.ones(3),)
"""


class Backend:
    """A compiler whose results are data: how often it was called, and what it says of its settings."""

    def __init__(self, **options):
        self.calls = 0
        self.known = {"threads": 1}
        self.artifacts = self
        self.name = "test"
        self.refuses = self.mismatches = False
        self.got = []

    def __call__(self, gm, args, mode=None):
        self.calls += 1
        self.mode = mode
        return gm.forward

    def settings(self, mode=None):
        return None if self.known is None else [mode, self.known]

    def write(self, compiled):
        if self.refuses:
            raise Refused("for a test")
        return {"kernels": [], "library": b"some code"}

    def read(self, data, library):
        if self.mismatches:
            raise Mismatch("for a test")
        self.got.append(library(data["library"]))
        return lambda x: (x.sin() + 1,)


def run(backend, x=None, text=TEXT, again=False):
    """Call the program as a new process would."""
    new_process()
    fn, (default,) = load(prog=text).main()
    x = default if x is None else x
    result = dynamo_lite.compile(fn, backend=backend)(x)
    torch.testing.assert_close(result, fn(x))
    return STATS.artifacts_used, STATS.artifacts_kept


def test_found_again(own_cache):
    backend = Backend()
    assert run(backend) == (0, 1) and backend.calls == 1
    assert run(backend) == (1, 0) and backend.calls == 1
    (library,) = backend.got
    assert open(library, "rb").read() == b"some code" and library.startswith(str(own_cache))
    os.unlink(library)
    assert run(backend) == (1, 0) and open(library, "rb").read() == b"some code"
    with open(library, "wb") as file:
        file.write(b"something else")
    assert run(backend) == (1, 0) and open(library, "rb").read() == b"some code"


def test_other_settings():
    backend = Backend()
    run(backend)
    backend.known = {"threads": 2}
    assert run(backend) == (0, 1) and backend.calls == 2
    assert run(backend) == (1, 0) and backend.calls == 2
    backend.known = None  # it can't say
    assert run(backend) == (0, 0) and backend.calls == 3
    backend.known = {"threads": 1}
    assert run(backend) == (1, 0)


def test_other_backend():
    backend, other = Backend(), Backend()
    other.name = "other"
    run(backend)
    assert run(other) == (0, 1) and other.calls == 1
    assert run("eager") == (0, 0)


def test_options_count():
    from functools import partial

    backend = Backend()
    run(backend)
    assert run(partial(backend, mode="fast")) == (0, 1) and backend.mode == "fast"
    assert run(partial(backend, mode="fast")) == (1, 0)
    assert run(partial(backend, mode="slow")) == (0, 1)


def test_other_inputs():
    backend = Backend()
    run(backend)
    assert run(backend, torch.ones(4)) == (0, 1)
    assert run(backend, torch.ones(3, dtype=torch.float64)) == (0, 1)
    assert run(backend, torch.ones(3, requires_grad=True)) == (0, 1)
    with torch.no_grad():
        assert run(backend) == (0, 1)
    assert backend.calls == 5
    assert run(backend, torch.ones(4)) == (1, 0)


def test_symbolic_sizes_are_left_alone():
    """What a compiler demands of symbols becomes guards, which would not be there."""
    text = TEXT.replace("torch.ones(3)", "torch.ones(5)")
    backend = Backend()
    for _ in range(2):
        new_process()
        fn, (x,) = load(prog=text).main()
        compiled = dynamo_lite.compile(fn, backend=backend, dynamic=True)
        torch.testing.assert_close(compiled(x), fn(x))
        assert (STATS.artifacts_used, STATS.artifacts_kept) == (0, 0)
    assert STATS.cache_hits == 1


def test_refused():
    backend = Backend()
    backend.refuses = True
    assert run(backend) == (0, 0) and STATS.artifact_refusals == {"for a test": 1}
    assert run(backend) == (0, 0) and STATS.cache_hits == 1 and backend.calls == 2
    backend.refuses = False
    assert run(backend) == (0, 1) and STATS.cache_hits == 1  # the version is an old one
    assert run(backend) == (1, 0)


def test_mismatch():
    backend = Backend()
    run(backend)
    backend.mismatches = True
    assert run(backend) == (0, 1) and backend.calls == 2 and STATS.cache_mismatches["for a test"] == 1


@pytest.mark.parametrize("damage", (lambda data: data[:-3], lambda data: b"hello", lambda data: b""))
def test_damaged(damage):
    backend = Backend()
    run(backend)
    (path,) = [path for path in files() if b"compiled by" in path.read_bytes()]
    path.write_bytes(damage(path.read_bytes()))
    assert main(["cache", "verify"]) == 1
    assert run(backend) == (0, 1) and backend.calls == 2
    assert run(backend) == (1, 0)


def test_payload_of_something_else():
    import marshal

    backend = Backend()
    run(backend)
    (path,) = [path for path in files() if b"compiled by" in path.read_bytes()]
    about = store.unpack(path.read_bytes()).about
    for payload in (b"", b"\xff", marshal.dumps([1]), marshal.dumps({})):
        path.write_bytes(store.pack(about, payload))
        with config.patch(debug=False):
            assert run(backend)[0] <= 1
        for made in path.parent.glob("*.entry"):
            if made != path:
                made.unlink()


def test_goes_with_its_version(monkeypatch, own_cache):
    monkeypatch.setattr(store, "MAX_PER_KEY", 2)
    backend = Backend()
    for n in range(2, 7):
        run(backend, text=TEXT.replace("ones(3)", f"ones({n})"))
    assert len(files()) == 4 and len(list(own_cache.rglob("*.entry"))) == 4
    assert main(["cache", "clear"]) == 0 and not files()


def test_list_and_archive(tmp_path, capsys):
    backend = Backend()
    run(backend)
    assert main(["cache", "ls"]) == 0 and "compiled by test" in capsys.readouterr().out
    archive = str(tmp_path / "a.tar.gz")
    assert main(["cache", "export", archive]) == 0
    with config.patch(cache_dir=str(tmp_path / "elsewhere")):
        assert main(["cache", "import", archive]) == 0
        assert run(backend) == (1, 0) and backend.got[-1].startswith(str(tmp_path / "elsewhere"))


# -- the settings of Inductor


def test_settings_of_inductor(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._inductor.config", raising=False)
    plain = artifact.settings()
    assert plain is not None and artifact.settings() == plain
    json.dumps(plain)
    different = [artifact.settings(mode="max-autotune"), artifact.settings(options={"max_autotune": True})]
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    different.append(artifact.settings())
    monkeypatch.delenv("TORCHINDUCTOR_MAX_AUTOTUNE")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("SOMETHING_ELSE", "1")
    assert artifact.settings() == plain
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        different.append(artifact.settings())
    finally:
        torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float64)
    different.append(artifact.settings())
    torch.set_default_dtype(torch.float32)
    with torch.backends.mkldnn.flags(enabled=False):
        different.append(artifact.settings())
    assert artifact.settings() == plain
    assert None not in different and all(one != plain for one in different)
    assert len({json.dumps(one) for one in different}) == len(different)


def test_changed_settings_of_inductor_are_not_guessed(monkeypatch):
    from torch._inductor import config as inductor

    monkeypatch.setattr(artifact, "_environment", dict)  # `conftest` sets variables
    assert artifact.settings() is not None
    with inductor.patch(epilogue_fusion=False):
        assert artifact.settings() is None
    torch.use_deterministic_algorithms(True)  # a setting of Inductor as well
    assert artifact.settings() is None
    torch.use_deterministic_algorithms(False)
    with torch._functorch.config.patch(functionalize_rng_ops=True):
        assert artifact.settings() is None
    assert artifact.settings() is not None
    assert artifact.settings(options={"pass": test_mismatch}) is None


def test_variables_that_were_changed_after_inductor_was_loaded(monkeypatch):
    import torch._inductor.config  # noqa: F401

    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    assert artifact.settings() is None


# -- Inductor's programs

PROGRAM = """
import torch
import math
from torch import device, empty_strided
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
from torch._inductor.hooks import run_intermediate_hooks
aten = torch.ops.aten
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
async_compile = AsyncCompile()
cpp_fused_0 = async_compile.cpp_pybinding(['float*'], '''text''')
async_compile.wait(globals())
del async_compile
class Runner:
    def call(self, args):
        x, = args
        args.clear()
        buf = empty_strided_cpu((3, ), (1, ), torch.float32)
        extern_kernels.mm(x, x, out=buf)
        cpp_fused_0(buf)
        return (aten.sin.default(buf), math.inf)
runner = Runner()
call = runner.call
def get_args():
    from torch._dynamo.testing import rand_strided
if __name__ == "__main__":
    get_args()
"""


def test_program():
    found = Generated(PROGRAM)
    assert (found.kernels, found.extern) == (["cpp_fused_0"], ["mm"])
    assert {"ops.aten.sin.default", "_C._dynamo.guards._empty_strided_cpu", "float32"} <= set(found.chains)
    names = {}
    seen = []
    code = found.compile("somewhere")
    exec(code, {"cpp_fused_0": seen.append, "extern_kernels": torch, **names}, names := {})
    assert "get_args" not in code.co_names and "run_intermediate_hooks" not in code.co_names


@pytest.mark.parametrize(
    ("before", "after"),
    {
        "cpp_fused_0(buf)": "run_intermediate_hooks(buf)",
        "aten.sin.default": "torch.ops.mylib.sin.default",
        "math.inf": "unknown",
        "extern_kernels.mm(x, x, out=buf)": "f = extern_kernels",
        "async_compile.cpp_pybinding(": "async_compile.triton(",
        "import math": "import socket as math",
        "call = runner.call": "",
        "runner = Runner()": "runner = Runner()\nrunner = Runner()",
    }.items(),
)
def test_refused_programs(before, after):
    assert before in PROGRAM
    with pytest.raises(Refused):
        Generated(PROGRAM.replace(before, after))


# -- with Inductor, in processes of their own

SCRIPT = """
import json, sys
import torch
import dynamo_lite
from dynamo_lite.record import STATS, log

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.LayerNorm(4))
x = torch.randn(2, 4)
before = x.clone()
def changes(x): x.add_(1); return x * 2
with torch.no_grad():
    compiled = dynamo_lite.compile(model, backend="inductor")
    results = [compiled(x), compiled(x)]
    loaded = [name for name in ("torch._dynamo", "torch._inductor", "torch._inductor.compile_fx", "sympy") if name in sys.modules]
    torch.testing.assert_close(results, [model(x)] * 2)
    assert torch.equal(x, before) and not results[0].requires_grad
found = {"used": STATS.artifacts_used, "kept": STATS.artifacts_kept, "loaded": loaded, "hits": STATS.cache_hits}
if sys.argv[1:] != ["once"]:  # an input that is changed: left to torch's caches
    STATS.reset()
    with torch.no_grad():
        y, z = x.clone(), x.clone()
        torch.testing.assert_close(dynamo_lite.compile(changes, backend="inductor")(y), changes(z))
        torch.testing.assert_close(y, z)
    found["others"] = STATS.artifacts_used + STATS.artifacts_kept
    found["refused"] = list(STATS.artifact_refusals)
print(json.dumps(found))
"""


def test_inductor(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def process(*args, start=processes.run, **variables):
        environment = {
            **os.environ,
            "DYNAMO_LITE_CACHE": "1",
            "DYNAMO_LITE_CACHE_DIR": str(tmp_path / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch"),
            "PYTHONPATH": os.pathsep.join(sys.path),
            **variables,
        }
        done = start([script, *args], env=environment, timeout=500)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    cold = process(start=processes.start_anew)
    assert (cold["used"], cold["kept"], cold["others"]) == (0, 1, 0)
    assert len(cold["refused"]) == 1 and "input_info" in cold["refused"][0]
    warm = process()
    assert (warm["used"], warm["hits"], warm["loaded"], warm["others"]) == (1, 1, [], 0)
    shutil.rmtree(tmp_path / "torch")  # the kernels are in our cache
    shutil.move(tmp_path / "cache", tmp_path / "moved")
    for library in (tmp_path / "moved").rglob("*.so"):
        library.unlink()
    moved = process("once", DYNAMO_LITE_CACHE_DIR=str(tmp_path / "moved"))
    assert (moved["used"], moved["loaded"]) == (1, [])
    assert not list((tmp_path / "torch").rglob("*.so"))


DROPS = """
import sys, weakref
import torch
died = []
def note():
    frame = sys._getframe(1)
    while frame is not None and not any(name in frame.f_code.co_filename for name in ("<eval_with_key>", "inductor")):
        frame = frame.f_back
    died.append(frame is not None)
def watch(x):
    weakref.finalize(x, note)
def f(x):
    y = x + 1
    watch(y)
    y = y.sin()
    y = y.cos()
    return y
def main(): return f, (torch.ones(3),)
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_inputs_that_die_while_a_kept_graph_runs(backend):
    for from_cache in (False, True):
        new_process()
        module = load(prog=DROPS)
        module.watch = dynamo_lite.disable(module.watch)
        function, (x,) = module.main()
        with torch.no_grad():
            torch.testing.assert_close(dynamo_lite.compile(function, backend=backend)(x), (x + 1).sin().cos())
        (resumed,) = [frame for frame in log.snapshot() if "resumed" in frame.name]
        assert resumed.from_cache == from_cache
        assert module.died == [True]


def test_a_backend_that_fails_on_a_graph_that_was_read(own_cache):
    text = "import torch\ndef f(x): return x + 1\ndef main(): return f, (torch.ones(2),)\n"

    def backend(gm, inputs):
        if fails:
            raise TypeError("no such thing")
        return gm.forward

    fails = False
    assert Run(backend, prog=text).kept == 1
    fails = True
    with pytest.warns(UserWarning, match="backend 'backend' failed, the graph runs eagerly: TypeError: no such thing"):
        again = Run(backend, prog=text)
    assert again.hits == 1 and again.is_right
