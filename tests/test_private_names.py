"""`python -m tests.private_names`: nothing is gone in the versions that the tests run with, and what is gone is found."""

import importlib
import sys

import pytest

from tests import private_names


def test_nothing_is_gone():
    assert private_names.gone(private_names.names_of()) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="calls gcc")
def test_c_names_are_there():
    assert private_names.errors_of_c() == []


@pytest.mark.skipif(sys.platform != "linux", reason="calls gcc")
def test_free_threaded_builds_are_refused():
    assert any("docs/dev/free-threading.md" in line for line in private_names.errors_of_c("-DPy_GIL_DISABLED=1"))


TEXT = """
import os.path as where
import types
from collections import OrderedDict as Ordered
from types import no_such_type
if sys.version_info >= (3, 99):
    from types import later_type
try:
    from types import maybe_type
except ImportError:
    pass
def f(x):
    return where.join(x), where.no_such_function(x), Ordered.fromkeys.anything, Ordered.no_such_method, types.lost.deeper, x.y.z
"""


def test_what_is_gone_is_found(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "one.py").write_text(TEXT)
    assert private_names.gone(private_names.names_of(tmp_path / "package")) == {
        "types.no_such_type": ["package/one.py:5"],
        "os.path.no_such_function": ["package/one.py:13"],
        "collections.OrderedDict.no_such_method": ["package/one.py:13"],
        "types.lost": ["package/one.py:13"],
    }


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("2.14.0", "newer"),
        ("3.0.0a0+git1234567", "newer"),
        ("2.10.1", "older"),
        ("2.11.0+cu130", ""),
        ("2.13.1", ""),
        ("nightly", ""),
    ],
)
def test_another_torch_is_warned_of(version, kind, recwarn):
    pytest.importorskip("torch")
    importlib.import_module("dynamo_lite.graph.torch_runtime").warn_if_untested(version)
    assert [kind in str(warning.message) for warning in recwarn] == [True] * bool(kind)
    assert all(warning.filename == __file__ for warning in recwarn)
