"""The package as installed and imported: lean, typed, layered."""

import email
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

import dynamo_lite

ROOT = pathlib.Path(dynamo_lite.__file__).parent
CHECKOUT = pathlib.Path(__file__).parent.parent


def python(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_import_works_without_torch():
    blocked = "import sys; sys.modules['torch'] = None; import dynamo_lite; dynamo_lite.config.recompile_limit; "
    assert (
        python(blocked + "print(dynamo_lite.breaks.BREAKS['call-print'].code, dynamo_lite.is_compiling())")
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


def test_other_pythons_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 15, 2, "final", 0))
    with pytest.raises(ImportError, match="runs on CPython 3.11 to 3.14, not on"):
        dynamo_lite.check_python()


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


BUILD = "import os, sys; from setuptools import build_meta; os.chdir(sys.argv[2]); getattr(build_meta, sys.argv[1])(sys.argv[3])"


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The sdist of this tree, and the wheel that is built of the sdist."""
    folder = tmp_path_factory.mktemp("packages")
    left_out = shutil.ignore_patterns(".*", "*.so", "*.egg-info", "__pycache__", "benchmarks", "build", "dist")
    shutil.copytree(CHECKOUT, folder / "tree", ignore=left_out)
    subprocess.run(
        [sys.executable, "-c", BUILD, "build_sdist", folder / "tree", folder], check=True, capture_output=True
    )
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    tree = folder / sdist.name.removesuffix(".tar.gz")
    subprocess.run([sys.executable, "-c", BUILD, "build_wheel", tree, folder], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def test_files_of_the_packages(packages):
    """The wheel has what runs, the sdist what a wheel is built of, and the documentation."""
    sdist, wheel = packages
    names = zipfile.ZipFile(wheel).namelist()
    sources = {path.relative_to(CHECKOUT).as_posix() for path in ROOT.rglob("*.py")} | {"dynamo_lite_pytest.py"}
    assert {name for name in names if name.endswith(".py")} == sources
    assert [name for name in names if name.endswith((".c", ".h"))] == []
    others = {name for name in names if "dist-info" not in name and not name.endswith((".py", ".so"))}
    templates = {path.relative_to(CHECKOUT).as_posix() for path in ROOT.glob("report/templates/*")}
    assert others == {"dynamo_lite/py.typed", "dynamo_lite/_eval_frame.pyi"} | templates
    assert len([name for name in names if name.endswith(".so")]) == 1
    with tarfile.open(sdist) as archive:
        kept = {name.partition("/")[2] for name in archive.getnames()}
    headers = {path.relative_to(CHECKOUT).as_posix() for path in ROOT.glob("csrc/*.h")}
    assert headers | sources | {"LICENSE", "docs/quickstart.md", "examples/toy.py"} <= kept
    assert not any(name.startswith("tests") for name in kept)


def test_metadata_of_the_wheel(packages):
    wheel = zipfile.ZipFile(packages[1])
    (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    metadata = email.message_from_bytes(wheel.read(name))
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    assert (metadata["License-Expression"], metadata["Author"]) == ("MIT", "The dynamo_lite authors")
    assert metadata["Version"] == dynamo_lite.__version__
    minors = re.findall(r"Python :: 3\.(\d+)", "\n".join(metadata.get_all("Classifier")))
    assert metadata["Requires-Python"] in (
        f">=3.{minors[0]},<3.{int(minors[-1]) + 1}",
        f"<3.{int(minors[-1]) + 1},>=3.{minors[0]}",
    )
    assert str(sys.version_info.minor) in minors


def test_extras_are_those_that_are_named(packages):
    """Every `dynamo-lite[EXTRA]` of messages and documentation exists, and `doctor` names all that are for users."""
    wheel = zipfile.ZipFile(packages[1])
    (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    extras = set(email.message_from_bytes(wheel.read(name)).get_all("Provides-Extra"))

    def named(paths):
        return {extra for path in paths for extra in re.findall(r"dynamo-lite\[(\w+)\]", path.read_text())}

    assert named([CHECKOUT / "README.md", *CHECKOUT.glob("docs/**/*.md")]) <= extras
    for_users = extras - {"test", "lint", "demo", "bench"}
    assert named(ROOT.rglob("*.py")) | {"progress", "report"} == for_users
