"""The plugin for pytest: lock files of what is captured. Each pytest loads it where dynamo_lite is installed, before anything else of the
program; so it is no part of the package, which it imports when a test asks for it.

Input: the fixture `capture_lock`, called with a function and arguments. Output: a comparison with the file `captures/NAME.lock` beside the
test; `pytest --dynamo-lite-update` writes such files anew.
"""

from __future__ import annotations

import difflib
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--dynamo-lite-update`."""
    group = parser.getgroup("dynamo_lite")
    group.addoption(
        "--dynamo-lite-update",
        action="store_true",
        help="write the lock files of captures instead of comparing with them",
    )


_LOCKS = pytest.StashKey[dict[pathlib.Path, str]]()
"""Lock file → the test that has used it in this run."""


def _classes(node: pytest.Item) -> list[str]:
    """The names of the classes that a test is in, the outermost first."""
    return [parent.name for parent in node.listchain() if isinstance(parent, pytest.Class)]


@pytest.fixture
def capture_lock(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`capture_lock(fn, args, kwargs, then=…, name=…)`: hold what is captured to the lock file. Returns the `testing.Captured`.

    The file is `captures/MODULE.CLASS.TEST.lock`, or `captures/MODULE.CLASS.TEST.NAME.lock`; several locks in one test need a name each.
    The test fails with the difference, if there is no file, or if another test has used the file in this run.
    """
    used = request.config.stash.setdefault(_LOCKS, {})
    test = ".".join([request.path.stem, *_classes(request.node), request.node.name])

    written: set[str] = set()

    def lock(fn: Callable[..., Any], *args: Any, name: str | None = None, **options: Any) -> Any:
        from dynamo_lite.testing import capture_of

        stem = re.sub(r"[^\w.-]+", "-", f"{test}.{name}" if name else test).strip("-")
        path = request.path.parent / "captures" / f"{stem}.lock"
        other = used.setdefault(path, request.node.nodeid)
        if other != request.node.nodeid:
            pytest.fail(f"{path} is the lock of {other} already: give one of them another name", pytrace=False)
        if stem in written:
            pytest.fail(f"two locks of this test are called {stem!r}: give each a name", pytrace=False)
        written.add(stem)
        captured = capture_of(fn, *args, **options)
        text = captured.text()
        if request.config.getoption("--dynamo-lite-update"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists():
            pytest.fail(f"there is no {path}: pytest --dynamo-lite-update writes it", pytrace=False)
        else:
            expected = path.read_text(encoding="utf-8")
            if text != expected:
                lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), str(path), "now", lineterm="")
                told = "\n".join(["what is captured has changed:", *lines, *map(str, captured.breaks)])
                pytest.fail(told + "\npytest --dynamo-lite-update accepts it", pytrace=False)
        return captured

    return lock
