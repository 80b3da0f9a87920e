"""Shared by all tests: no network, a clean compiler for each test, and no torch tests where there is no torch."""

import functools
import gc
import importlib.util
import os
import pathlib
import re

import pytest

from tests.sweeps import sampled

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["DYNAMO_LITE_CACHE"] = "0"  # tests see what capture does; those of the cache have one of their own
os.environ["DYNAMO_LITE_STITCH"] = (
    "0"  # print() is the break of tests that want one; those of `config.stitch` and of the docs set it
)
# Inductor compiles in the process that asks, not in a pool that imports torch first; and it tries no program for each set of vector
# instructions that /proc/cpuinfo lists, in each new cache directory. `setdefault`: who runs the tests may ask for both.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

ROOT = pathlib.Path(__file__).parent.parent
HAVE_TORCH = importlib.util.find_spec("torch") is not None
NEEDS_TORCH = re.compile(r"^\s*(import|from) torch\b|^from dynamo_lite\.testing", re.MULTILINE)
FIRST_IMPORTS_TORCH = re.compile(r"^(import|from) torch\b|^from dynamo_lite\.testing", re.MULTILINE)
OF_TESTS = re.compile(r"^from (tests[\w.]*|\.[\w.]*) import ([\w, ]+|\([\w,\s]+\))", re.MULTILINE)


def pytest_ignore_collect(collection_path, config):
    """Without torch, leave out the files that import it, themselves or by other files of the tests, and folders whose `conftest` does."""
    if HAVE_TORCH:
        return None
    if collection_path.is_dir():
        own = collection_path / "conftest.py"
        return True if own.exists() and FIRST_IMPORTS_TORCH.search(own.read_text()) else None
    if collection_path.suffix != ".py":
        return None
    return True if NEEDS_TORCH.search(collection_path.read_text()) or leads_to_torch(collection_path) else None


@functools.cache
def leads_to_torch(path):
    """Whether the import of a file imports torch."""
    text = path.read_text()
    return bool(FIRST_IMPORTS_TORCH.search(text)) or any(map(leads_to_torch, imported_files(path, text)))


def imported_files(path, text):
    """The files of the tests that a file imports at its top."""
    for module, names in OF_TESTS.findall(text):
        above = len(module) - len(module.lstrip("."))
        folder = path.parents[above - 1] if above else ROOT
        target = folder.joinpath(*filter(None, module.split(".")))
        for file in (target, *(target / name for name in re.findall(r"\w+", names))):
            if file.with_suffix(".py").exists():
                yield file.with_suffix(".py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what `make test` leaves to `make sweeps`."""
    for item in sampled(items):
        item.add_marker("sweep")


if HAVE_TORCH:
    import torch

    import dynamo_lite
    from tests.helpers import seeds

    @pytest.fixture(autouse=True)
    def clean_compiler():
        """No test sees what another one compiled."""
        seeds.seed()
        yield
        dynamo_lite.reset()
        assert not hide_hooks(False), "hooks of saved tensors are still hidden in this thread"

    hide_hooks = torch._C._autograd._saved_tensors_hooks_set_tracing


@pytest.fixture(autouse=True, scope="module")
def small_heap():
    """Collections look at what the tests of one file make, not at torch and at what all files before have left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_settings():
    """No test leaves a setting behind: the fault is told where it is made, and goes no further."""
    from dynamo_lite.config import config

    before = config.to_dict()
    yield
    after, changed = config.to_dict(), {}
    for name, value in before.items():
        if after[name] != value:
            changed[name] = after[name]
            setattr(config, name, value)
    assert not changed, f"settings left changed: {changed}"


@pytest.fixture
def pure_python():
    """Functions without tensors are captured too, and a fault of the engine is an error of the test."""
    from dynamo_lite.config import config
    from dynamo_lite.record import log

    log.reset()
    with config.patch(capture_pure_python=True, debug=True, suppress_errors=False):
        yield
