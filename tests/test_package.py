"""The package as installed and imported: lean, typed, layered."""

import pathlib
import subprocess
import sys

import pytest

import dynamo_lite

ROOT = pathlib.Path(dynamo_lite.__file__).parent


def python(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_import_works_without_torch():
    blocked = "import sys; sys.modules['torch'] = None; import dynamo_lite; dynamo_lite.config.recompile_limit; "
    assert (
        python(blocked + "print(dynamo_lite.exc.BREAKS['call-print'].code, dynamo_lite.is_compiling())")
        == "DL020 False"
    )


WITHOUT_TORCH = """
import sys

class Hidden:
    def find_spec(self, name, *args):
        return None if name.partition(".")[0] == "torch" else self.finder.find_spec(name, *args)

    def __init__(self, finder):
        self.finder = finder

sys.meta_path[:] = map(Hidden, sys.meta_path)
from dynamo_lite.frontend import convert
from dynamo_lite.config import config
from dynamo_lite.record import log

with config.patch(capture_pure_python=True, debug=True):
    fn = convert.Region(lambda gm, inputs: gm.forward).wrap(lambda items, k: {i: [k] * i for i in items})
    print(fn([1, 2], 3), fn([1], 4), [frame.skipped for frame in log.snapshot()], "torch" in sys.modules)
"""


def test_pure_python_is_captured_without_torch():
    assert python(WITHOUT_TORCH) == "{1: [3], 2: [3, 3]} {1: [4]} [None, None] False"


def test_public_names():
    pytest.importorskip("torch")
    assert set(dynamo_lite.__all__) <= set(dir(dynamo_lite))
    assert {name for name in dynamo_lite.__all__ if not hasattr(dynamo_lite, name)} == set()
    with pytest.raises(AttributeError, match="no attribute 'compil'"):
        dynamo_lite.compil


def test_names_for_type_checkers_are_those_at_run_time():
    source = (ROOT / "__init__.py").read_text()
    declared = source[source.index("if TYPE_CHECKING") : source.index("__version__")]
    for name in dynamo_lite.__all__:
        assert f" {name}" in declared or name in ("config", "exc")
    assert (ROOT / "py.typed").exists()


def test_imports_are_lean():
    """`import dynamo_lite` loads next to nothing, and using it loads none of torch's compilers."""
    pytest.importorskip("torch")
    script = (
        "import sys, torch; before = len(sys.modules); import dynamo_lite; added = len(sys.modules) - before; "
        "dynamo_lite.compile(lambda x: x + 1, backend='eager')(torch.ones(2)); "
        "compilers = 'torch._dynamo', 'torch._inductor', 'torch._functorch.aot_autograd'; "
        "print(added, [m for m in compilers if m in sys.modules])"
    )
    added, heavy = python(script).split(" ", 1)
    assert heavy == "[]"
    assert int(added) < 20
