"""Each test has an empty cache of its own, switched on."""

import sys

import pytest

from dynamo_lite import config


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    before = set(sys.modules)
    with config.patch(cache=True, cache_dir=str(tmp_path / "cache"), debug=True):
        yield tmp_path / "cache"
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "") and sys.modules[name].__file__.startswith("/somewhere/"):
            del sys.modules[name]
