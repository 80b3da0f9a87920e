"""What scripts written for torch.compile say to it by torch's names counts where they run redirected, and ends with them."""

import copy
import inspect
import subprocess
import sys
from unittest import mock

import pytest
import torch
import torch._dynamo
from torch._dynamo import config as theirs
from torch._dynamo.backends.common import aot_autograd

import dynamo_lite
from dynamo_lite import exc
from dynamo_lite.config import config
from dynamo_lite.report.script import redirected
from dynamo_lite.testing import CompileCounter

X = torch.ones(3)


@pytest.fixture(autouse=True)
def block():
    """Each test runs redirected; afterwards nothing is left of it."""
    before = config.to_dict()
    names = [(owner, vars(owner).copy()) for owner in (torch._dynamo, torch._dynamo.backends.registry, torch.compiler)]
    bases = {name: found.__bases__ for name, found in vars(exc).items() if isinstance(found, type)}
    kind = type(theirs)
    of_torch = theirs.get_config_copy()
    try:
        with redirected():
            yield
    finally:
        theirs.load_config(of_torch)
    assert config.to_dict() == before
    assert type(theirs) is kind
    assert all(getattr(owner, name) is found for owner, all_names in names for name, found in all_names.items())
    assert {name: found.__bases__ for name, found in vars(exc).items() if isinstance(found, type)} == bases
    assert dynamo_lite.compiler.get_default_backend() == "inductor"
    assert "of_the_script" not in dynamo_lite.list_backends(None)


def versions(calls=20, **keywords):
    """How many graphs are made for a text that changes with each call."""
    counter = CompileCounter()
    f = torch.compile(lambda x, s: x + len(s), backend=counter, **keywords)
    for i in range(calls):
        assert torch.equal(f(X, "a" * i), X + i)
    return counter.frame_count


def broken(gm, example_inputs):
    raise ValueError("broken")


# Entry points


def test_compile_is_described_as_torch_describes_it():
    assert (torch.compile.__name__, torch.nn.Module.compile.__name__) == ("compile", "compile")
    assert "fullgraph" in inspect.signature(torch.compile).parameters
    assert torch.compile.__doc__ == inspect.unwrap(torch.compile).__doc__
    assert inspect.unwrap(torch.compile).__module__ == "torch"


@pytest.mark.skipif(
    not hasattr(torch.compiler, "set_default_backend"), reason="torch before 2.12 has no default backend"
)
def test_the_default_backend():
    counter = CompileCounter()
    torch.compiler.set_default_backend(counter)
    assert torch.compiler.get_default_backend() is counter
    torch.compile(lambda x: x + 1)(X)
    module = torch.nn.Linear(3, 3)
    module.compile()
    module(X)
    assert counter.frame_count == 2
    torch._dynamo.backends.registry.set_default_backend(None)
    assert dynamo_lite.compiler.get_default_backend() == "inductor"


@pytest.mark.parametrize("owner", [torch._dynamo, torch._dynamo.backends.registry], ids=lambda owner: owner.__name__)
def test_backends_of_the_script(owner):
    counter = CompileCounter()

    @owner.register_backend(name="of_the_script", tags=("debug",))
    def backend(gm, example_inputs):
        return counter(gm, example_inputs)

    try:
        assert torch.equal(torch.compile(lambda x: x + 1, backend="of_the_script")(X), X + 1)
        assert counter.frame_count == 1
        assert owner.lookup_backend("of_the_script") is backend
        assert owner.lookup_backend("torchscript") is dynamo_lite.lookup_backend("torchscript")
        assert "of_the_script" in owner.list_backends(None)
        assert "of_the_script" not in torch.compiler.list_backends()
    finally:
        torch._dynamo.backends.registry._COMPILER_FNS.pop("of_the_script")
        torch._dynamo.backends.registry._BACKENDS.pop("of_the_script")


def test_torchs_backends_are_not_registered_here():
    assert callable(
        torch._dynamo.lookup_backend("aot_eager_decomp_partition")
    )  # imports torch's backends, which register themselves
    assert "tvm" not in dynamo_lite.list_backends(None)


def test_lookup_of_a_backend_takes_graphs_of_any_origin():
    graph = torch.fx.symbolic_trace(lambda x: (x + 1,))  # without fake values, which ours need
    assert torch.equal(torch._dynamo.lookup_backend("aot_eager")(graph, [X])(X)[0], X + 1)


@pytest.mark.parametrize("forget", [torch._dynamo.reset, torch._dynamo.reset_code_caches], ids=lambda f: f.__name__)
def test_forgetting(forget):
    counter = CompileCounter()
    f = torch.compile(lambda x: x + 1, backend=counter)
    for _ in range(2):
        f(X)
        getattr(torch._dynamo, forget.__name__)()
    assert counter.frame_count == 2


def test_stance_run_and_error_on_graph_break():
    counter = CompileCounter()
    f = torch.compile(lambda x: x + 1, backend=counter)
    with torch._dynamo.set_stance("force_eager"):
        f(X)
    torch._dynamo.run(f)(X)
    assert counter.frame_count == 0

    def breaks(x):
        torch._dynamo.graph_break()
        return x + 1

    with torch._dynamo.error_on_graph_break(True), pytest.raises(dynamo_lite.exc.Unsupported):
        torch.compile(breaks, backend="eager")(X)


def test_torchs_own_compiler_works():
    graph, _ = torch._dynamo.export(lambda x: x.sin() + 1)(X)
    assert torch.equal(graph(X), X.sin() + 1)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch._dynamo.export(lambda x: x + 1 if x.sum() > 0 else x)(X)


# Settings


def test_a_setting_and_its_alias():
    theirs.cache_size_limit = 12
    assert (config.recompile_limit, theirs.recompile_limit, versions()) == (12, 12, 12)
    sys.modules["torch._dynamo.config"].recompile_limit = 3
    assert (theirs.cache_size_limit, versions()) == (3, 3)


def test_a_patch_ends():
    @theirs.patch(recompile_limit=3)
    def patched():
        return config.recompile_limit

    assert (patched(), config.recompile_limit, patched()) == (3, 8, 3)
    with theirs.patch("suppress_errors", False), theirs.patch({"suppress_errors": True, "recompile_limit": 5}):
        assert (config.suppress_errors, config.recompile_limit) == (True, 5)
    assert (config.suppress_errors, config.recompile_limit, theirs.suppress_errors) == (True, 8, False)
    with mock.patch.object(theirs, "suppress_errors", True):
        assert config.suppress_errors
    assert (config.suppress_errors, theirs.suppress_errors) == (True, False)


def test_load_config_tells_what_differs():
    saved = theirs.save_config()
    theirs.assume_static_by_default = False
    changed = theirs.get_config_copy()
    theirs.load_config(saved)
    assert (config.assume_static_by_default, config.suppress_errors) == (True, True)
    theirs.load_config(changed)
    assert (config.assume_static_by_default, config.suppress_errors) == (False, True)


def test_settings_have_an_effect():
    with theirs.patch(recompile_limit=3, fail_on_recompile_limit_hit=True):
        with pytest.raises(exc.FailOnRecompileLimitHit):
            versions()
    with theirs.patch(error_on_recompile=True), pytest.raises(exc.RecompileError):
        versions()
    with theirs.patch(disable=True):
        assert versions() == 0
    with theirs.patch(automatic_dynamic_shapes=False):
        counter = CompileCounter()
        f = torch.compile(lambda x: x + 1, backend=counter)
        for n in range(3, 7):
            f(torch.ones(n))
        assert counter.frame_count == 4


def test_an_explicit_suppress_errors_counts():
    with pytest.warns(UserWarning, match="the graph runs eagerly"):
        assert torch.equal(torch.compile(lambda x: x + 1, backend=broken)(X), X + 1)
    theirs.suppress_errors = False
    with pytest.raises(exc.BackendCompilerFailed):
        torch.compile(lambda x: x + 2, backend=broken)(X)


def test_keys_of_torch_alone_and_values_that_are_refused():
    with theirs.patch(minimum_call_count=2):
        assert theirs.minimum_call_count == 2
    with pytest.warns(UserWarning, match=r"torch\._dynamo\.config\.recompile_limit = 0 has no effect: .*1 or more"):
        theirs.recompile_limit = 0
    assert (config.recompile_limit, theirs.recompile_limit) == (8, 0)
    with pytest.raises(AttributeError, match="does not exist"):
        theirs.no_such_key = 1


# Exceptions


def of_fullgraph():
    def f(x):
        torch._dynamo.graph_break()
        return x

    torch.compile(f, backend="eager", fullgraph=True)(X)


RAISED = {
    "Unsupported": of_fullgraph,
    "BackendCompilerFailed": lambda: torch.compile(lambda x: x + 1, backend=broken, fullgraph=True)(X),
    "InvalidBackend": lambda: torch.compile(lambda x: x, backend="no such backend"),
    "RecompileError": lambda: theirs.patch(error_on_recompile=True)(versions)(),
    "FailOnRecompileLimitHit": lambda: theirs.patch(recompile_limit=1, fail_on_recompile_limit_hit=True)(versions)(),
    "TorchDynamoException": of_fullgraph,
}


@pytest.mark.parametrize("name", RAISED)
def test_except_of_torchs_class_catches_ours(name):
    try:
        RAISED[name]()
    except getattr(torch._dynamo.exc, name) as error:
        assert isinstance(error, getattr(exc, name))
        assert str(error)
        assert type(copy.copy(error)) is type(error)
    else:
        pytest.fail("nothing was raised")


def test_the_package_is_redirected_when_the_script_imports_it(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(
        "import sys, torch\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "import torch._dynamo.config as c\n"
        "from torch._dynamo import register_backend\n"
        "from torch._dynamo.exc import BackendCompilerFailed\n"
        "c.suppress_errors = False\n"
        "@register_backend\n"
        "def bad(gm, example_inputs): raise ValueError\n"
        "try: torch.compile(lambda x: x + 1, backend='bad')(torch.ones(2))\n"
        "except BackendCompilerFailed as error: print(type(error).__module__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "dynamo_lite", "run", str(script)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("dynamo_lite.exc\n", 0), done.stderr


def test_what_torch_sets_and_puts_back_is_no_wish_of_the_script():
    """Higher-order operators that run eagerly do."""
    with config.patch(recompile_limit=64):
        torch.cond(X.sum() > 0, torch.sin, torch.cos, (X,))
        assert (config.capture_scalar_outputs, config.recompile_limit) == (None, 64)


def test_a_backend_made_by_torch_for_the_script():
    counter = CompileCounter()
    made = aot_autograd(fw_compiler=counter)
    torch._dynamo.register_backend(made, name="of_the_script")
    assert torch.equal(torch.compile(lambda x: x + 1, backend="of_the_script")(X), X + 1)
    assert counter.frame_count == 1


def test_blocks_may_be_nested():
    def breaks(x):
        torch._dynamo.graph_break()
        return x

    with redirected(), pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(breaks, backend="eager", fullgraph=True)(X)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(breaks, backend="eager", fullgraph=True)(X)


LATER = """
import torch
import dynamo_lite
from dynamo_lite.config import config
from dynamo_lite.report.script import redirected
before = config.to_dict()
with redirected():
    with config.patch(recompile_limit=3):
        import torch._dynamo
    dynamo_lite.register_backend(lambda gm, inputs: gm, name="of_the_script")
    config.max_inline_depth = 7
assert config.to_dict() == before
assert "of_the_script" not in dynamo_lite.list_backends(None)
"""


def test_settings_from_before_the_block_are_put_back():
    subprocess.run([sys.executable, "-c", LATER], check=True)
