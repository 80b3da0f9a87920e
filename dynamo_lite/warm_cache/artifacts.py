"""What a backend has made of the graph of a version, for the next process.

Input: a version, a backend that can say what it has compiled as plain data (its attribute `artifacts`: `name`, `settings(**options)`,
`write(compiled)`, `read(data, library)`). Output: the callable that an earlier process has compiled; a file.
Invariant: a file belongs to one version and holds under equal settings only; it is looked for when all guards of the version hold.

Files are those of `store`, in a folder with the name of the version; shared libraries lie beside them, with their digests for names, and
are taken from the payload anew where they are not what it holds.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dynamo_lite.record import STATS, FrameRecord

from . import keys, store


class Artifacts:
    """The facts known, and learned, about the compiled graph of one version. `version`: its file; None as long as it has none."""

    def __init__(self, record: FrameRecord, version: Path | None = None) -> None:
        self.record = record
        self.version = version
        self.pending: tuple[dict[str, Any], bytes] | None = None

    def exchange(
        self, artifacts: Any, options: Mapping[str, Any], segments: list[int] | None = None
    ) -> Exchange | None:
        """For a backend with these options, which gets the graph as a whole or in `segments` of so many nodes; None where it can't say what
        decides its work."""
        settings = artifacts.settings(**options)
        return None if settings is None else Exchange(self, artifacts, keys.name([artifacts.name, settings, segments]))

    def kept_as(self, version: Path | None) -> None:
        """The version has got a file now, or None: write what has been compiled."""
        self.version = version
        pending, self.pending = self.pending, None
        if pending is not None and version is not None:
            STATS.artifacts_kept += store.put(keys.build(), version.stem, *pending) is not None


class Exchange:
    """Loads and saves for one backend. `settings`: a name for all that decides what it makes of a graph."""

    def __init__(self, owner: Artifacts, artifacts: Any, settings: str) -> None:
        self.owner = owner
        self.artifacts = artifacts
        self.settings = settings

    def load(self) -> Callable[..., Any] | None:
        """The compiled graph of an earlier process."""
        version = self.owner.version
        if version is None:
            return None
        for path, item in store.find(keys.build(), version.stem):
            if item.about.get("settings") != self.settings:
                continue
            compiled = store.attempt(path, lambda p=path, i=item: self._read(p, i))
            if compiled is not None:
                STATS.artifacts_used += 1
                return compiled
        return None

    def _read(self, path: Path, item: store.Item) -> Callable[..., Any]:
        _, data = marshal.loads(item.payload)
        return self.artifacts.read(data, lambda contents: library_in(path.parent, contents))

    def save(self, compiled: Callable[..., Any]) -> None:
        """Take what has just been compiled, if it can be said as data."""
        record = self.owner.record
        written = store.attempt_to_write(
            f"the compiled graph of {record.name}", lambda: self._written(compiled), STATS.artifact_refusals
        )
        if written is None:
            return
        kernels, payload = written
        about = keys.about(record) | {
            "compiled by": self.artifacts.name,
            "kernels": kernels,
            "settings": self.settings,
        }
        self.owner.pending = about, payload
        if self.owner.version is not None:
            self.owner.kept_as(self.owner.version)

    def _written(self, compiled: Callable[..., Any]) -> tuple[int, bytes]:
        """How many kernels there are, and the payload; equal data of other settings get a file of their own."""
        data = self.artifacts.write(compiled)
        return len(data["kernels"]), marshal.dumps((self.settings, data))


def library_in(folder: Path, contents: bytes) -> str:
    """The path of a file with these contents."""
    path = folder / f"{hashlib.blake2b(contents, digest_size=16).hexdigest()}.so"
    try:
        if path.read_bytes() == contents:
            return str(path)
    except FileNotFoundError:
        pass
    store.write(folder, path.name, contents)
    return str(path)
