"""What has to be the same before a kept version is looked at.

Input: a code object, settings, this process. Output: `build()`, a name for everything that is installed; `key()`, a name for one function
under given settings.
Invariant: whatever changes how a program is captured is in one of the two, in a version's facts (`references`) or in its guards.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import sys
import time
from types import CodeType
from typing import Any

from dynamo_lite import __version__
from dynamo_lite.config import config
from dynamo_lite.graph import side
from dynamo_lite.record import FrameRecord

from .references import fingerprint

WITHOUT_EFFECT = frozenset(
    """
    cache cache_dir recompile_limit accumulated_recompile_limit fail_on_recompile_limit_hit error_on_recompile suppress_errors
    verbose debug strict_guards timing disable report_guard_failures
    """.split()
)
"""Settings that change nothing about a version once there is one."""


@functools.cache
def facts() -> dict[str, Any]:
    """The installed versions, and the machine."""
    return {
        "dynamo_lite": __version__,
        "dynamo_lite source": _source(),
        "python": sys.version,
        "implementation": sys.implementation.cache_tag,
        "platform": f"{sys.platform} {platform.machine()} {sys.byteorder}",
        "optimize": sys.flags.optimize,
        **side.versions(),
    }


def about(record: FrameRecord) -> dict[str, Any]:
    """The line that every file has about itself: its part of the program, when and where it was made."""
    return {
        "name": record.name,
        "file": record.filename,
        "line": record.lineno,
        "made": time.time(),
        "facts": facts(),
    }


@functools.cache
def build() -> str:
    """A name for `facts()`."""
    return name(facts())


def _source() -> str:
    """A digest of this package's files: in a working copy they change while the version does not."""
    digest = hashlib.blake2b(digest_size=16)
    for folder, folders, names in os.walk(os.path.dirname(os.path.dirname(__file__))):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", ".h", ".c")):
                digest.update(name.encode())
                with open(os.path.join(folder, name), "rb", buffering=0) as file:
                    digest.update(file.readall())
    return digest.hexdigest()


def key(code: CodeType, values: tuple[Any, ...], dynamic: bool | None, fullgraph: bool) -> str:
    """A name for a function of these arguments, with the settings of its region and of the process."""
    first = type(values[0]) if values else None  # all modules share one function
    owner = f"{first.__module__}.{first.__qualname__}" if first is not None else ""
    settings = {setting: value for setting, value in config.changed().items() if setting not in WITHOUT_EFFECT}
    return name([fingerprint(code).hex(), owner, dynamic, fullgraph, settings])


def name(value: object) -> str:
    """A name for such data."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
