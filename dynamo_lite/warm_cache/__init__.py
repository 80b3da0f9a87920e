"""What one process has captured, for the next: `dynamo_lite.warm_cache`.

Input: a call without a compiled version; a version that has just been made. Output: a version that another process made and that holds here
too; a file.
Invariant: a version that is taken from a file does in this process what tracing would have given: everything that the trace looked at is
looked at again (`references`, `frames`), and all its guards hold. Anything else is a miss.

`config.cache` (environment `DYNAMO_LITE_CACHE`) switches it, `config.cache_dir` (`DYNAMO_LITE_CACHE_DIR`) says where it is.

Entry: `versions`, `keep`. Tests: `tests/warm_cache/`.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from dynamo_lite.config import config
from dynamo_lite.record import STATS

from . import keys, store
from .artifacts import Artifacts
from .frames import StoredVersion, write
from .store import clear, directory, export_to, files, import_from, read

if TYPE_CHECKING:
    from dynamo_lite.frontend.tracing import Trace

__all__ = [
    "Artifacts",
    "StoredVersion",
    "clear",
    "directory",
    "export_to",
    "files",
    "forget",
    "import_from",
    "keep",
    "read",
    "recall",
    "revived",
    "versions",
]

T = TypeVar("T")


def versions(function: FunctionType, values: tuple[Any, ...], region: Any) -> Iterator[StoredVersion]:
    """The kept versions for a function that may hold for this call. Who takes one checks its guards."""
    code = function.__code__
    for path, item in store.find(keys.build(), keys.key(code, values, region.dynamic, region.fullgraph)):
        if path in _forgotten:
            continue
        version = store.attempt(
            path, lambda item=item: StoredVersion(marshal.loads(item.payload), function, values, region)
        )
        if version is not None:
            version.path = path
            _met.add(path)
            yield version


def revived(version: StoredVersion, make: Callable[[], T]) -> T | None:
    """The result of `make` for a version; None if it turns out not to fit."""
    return store.attempt(version.path, make)


def keep(tr: Trace, region: Any, code: CodeType, needs_hook: bool, graph: Any) -> Path | None:
    """Write a version that has just been made, if another process could check it; its file."""
    values, record = tr.root.values, tr.root.call.record
    payload = store.attempt_to_write(
        record.name,
        lambda: marshal.dumps(write(tr, values, code, needs_hook, graph, record)),
        STATS.cache_refusals,
    )
    if payload is None:
        return None
    about = keys.about(record) | {
        "operators": 0 if graph is None else graph.op_count,
        "guards": len(tr.guards),
        "breaks": len(record.breaks),
    }
    key = keys.key(tr.root.function.__code__, values, region.dynamic, region.fullgraph)
    path = store.put(keys.build(), key, about, payload)
    if path is not None:
        STATS.cache_kept += 1
        _met.add(path)
    return path


def forget() -> None:
    """Versions that this process has written, or taken over, are not taken again: it has been told to forget them."""
    _forgotten.update(_met)
    _met.clear()


def recall() -> None:
    """All files count again, as in a new process."""
    _forgotten.clear()


_met: set[Path] = set()
_forgotten: set[Path] = set()


def is_on() -> bool:
    """Whether versions are kept and looked for."""
    return config.cache
