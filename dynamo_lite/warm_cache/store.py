"""The files of the cache.

Input: payloads as bytes with a few words about them, under keys. Output: the payloads that fit a key, newest first; lists of files for the
command line.
Invariant: a file is complete or not there: it is written beside its place and renamed. One that is damaged, that another user owns or that
another format wrote is left alone, with one warning in a process. A file is a line with the format, a line of JSON about it, the payload.
Folders: `<directory>/<build>/<key>/<digest>.entry`; nothing in a file depends on where it lies.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import shutil
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dynamo_lite.config import config
from dynamo_lite.exc import Mismatch, Refused
from dynamo_lite.record import STATS

T = TypeVar("T")

logger = logging.getLogger("dynamo_lite")

_ANY_FORMAT = b"dynamo_lite cache "
FORMAT = _ANY_FORMAT + b"3\n"
SUFFIX = ".entry"
MAX_PER_KEY = 32
"""Versions kept of one function with one key; the oldest go first."""

MAX_UNUSED_DAYS = 30
"""A build that no process has written for in so long goes: another version of torch or of this package has taken its place."""

MAX_SIZE = 256 << 20
"""No version is larger than this."""


class Damaged(Exception):
    """Not a file of this cache, or not as it was written; the text says why."""


class OtherFormat(Damaged):
    """What another version of this package has written."""


class Item(NamedTuple):
    """A file that is as it was written: what it says about itself, and its payload."""

    about: dict[str, Any]
    payload: bytes


def directory() -> Path:
    """The folder of the cache: `config.cache_dir`, else a folder in the user's cache directory (XDG)."""
    if config.cache_dir:
        return Path(config.cache_dir).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "dynamo_lite"


def pack(about: dict[str, Any], payload: bytes) -> bytes:
    """The contents of a file."""
    text = json.dumps({**about, "digest": _digest(payload), "size": len(payload)}, separators=(",", ":"))
    return b"".join((FORMAT, text.encode(), b"\n", payload))


def unpack(data: bytes) -> Item:
    """Raises `Damaged`."""
    if not data.startswith(FORMAT):
        if data.startswith(_ANY_FORMAT):
            raise OtherFormat("another version of dynamo_lite has written it")
        raise Damaged("it is no file of this cache")
    line, separator, payload = data[len(FORMAT) :].partition(b"\n")
    try:
        about = json.loads(line) if separator else None
    except ValueError:
        about = None
    if not isinstance(about, dict) or about.get("size") != len(payload) or about.get("digest") != _digest(payload):
        raise Damaged("it is not as it was written")
    return Item(about, payload)


def _digest(payload: bytes) -> str:
    return hashlib.blake2b(payload, digest_size=16).hexdigest()


def read(path: Path) -> Item:
    """One file. Raises `Damaged`, and OSError if it can't be read."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if hasattr(os, "getuid") and status.st_uid not in (os.getuid(), 0):
            raise Damaged("another user owns it")
        if status.st_size > MAX_SIZE:
            raise Damaged("it is too large")
        return unpack(file.read())


def find(build: str, key: str) -> Iterator[tuple[Path, Item]]:
    """The files with a key, newest first."""
    for path in _newest_first(directory() / build / key):
        try:
            yield path, read(path)
        except FileNotFoundError:
            continue  # another process has removed it
        except (Damaged, OSError) as error:
            warn(f"{path} is ignored: {error}")


def _newest_first(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            found = [(entry.stat().st_mtime_ns, entry.path) for entry in entries if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    except OSError as error:
        warn(f"{folder} is ignored: {error}")
        return []
    return [Path(path) for _, path in sorted(found, reverse=True)]


def put(build: str, key: str, about: dict[str, Any], payload: bytes) -> Path | None:
    """Write a file; None if that is not possible."""
    if len(payload) > MAX_SIZE:
        return None
    folder = directory() / build / key
    try:
        path = folder / (_digest(payload) + SUFFIX)
        write(folder, path.name, pack(about, payload))
        _drop_unused(folder.parent)
        for old in _newest_first(folder)[MAX_PER_KEY:]:
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
            shutil.rmtree(folder.parent / old.stem, ignore_errors=True)  # what was compiled of it
    except OSError as error:
        warn(f"nothing is kept in {folder}: {error}")
        return None
    return path


def write(folder: Path, name: str, data: bytes) -> None:
    """Put a whole file into its place. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".new-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, folder / name)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@functools.cache
def _drop_unused(build: Path) -> None:
    """Note that the build is in use, and remove those that nobody uses any more. Once in a process."""
    os.utime(build)
    oldest = time.time() - MAX_UNUSED_DAYS * 86_400
    for other in build.parent.iterdir():
        with contextlib.suppress(OSError):
            if other != build and other.stat().st_mtime < oldest and any(other.glob(f"*/*{SUFFIX}")):
                shutil.rmtree(other)


_warned = threading.Event()


def warn(text: str) -> None:
    """Say that something is wrong with the cache, once in a process."""
    if not _warned.is_set():
        _warned.set()
        logger.warning("dynamo_lite cache: %s (further problems of the cache are not reported)", text)


def attempt(path: object, make: Callable[[], T]) -> T | None:
    """The result of `make` for a file; None if it turns out not to fit."""
    try:
        return make()
    except Mismatch as reason:
        STATS.cache_mismatches[str(reason)] += 1
        logger.debug("%s does not fit: %s", path, reason)
    except Exception as error:  # whatever a file of another making leads to: it is ignored
        warn(f"{path} can't be used: {error!r}")
    return None


def attempt_to_write(what: str, make: Callable[[], T], refusals: Counter[str]) -> T | None:
    """The data that `make` gives; None where something can't be written, counted by reason. What is to be kept is good all the same."""
    try:
        return make()
    except Refused as reason:
        refusals[str(reason)] += 1
        logger.debug("%s is not kept: %s", what, reason)
    except Exception as error:
        if config.debug:
            raise
        refusals[f"its data can't be written: {error!r}"] += 1
        warn(f"{what} can't be written: {error!r}")
    return None


# -- for the command line


def files() -> list[Path]:
    """All files of the cache."""
    return sorted(directory().glob(f"*/*/*{SUFFIX}"))


def clear() -> int:
    """Remove all that the cache has written; how many files of versions that were."""
    found = files()
    root = directory()
    for build in {path.parent.parent for path in found}:
        shutil.rmtree(build, ignore_errors=True)
    for path in root.glob("*/*/.new-*"):  # what a process that was killed has left
        with contextlib.suppress(OSError):
            path.unlink()
            path.parent.rmdir()
            path.parent.parent.rmdir()
    with contextlib.suppress(OSError):
        root.rmdir()
    return len(found)


def export_to(archive: Path) -> int:
    """Write all files that are as they should be into a tar archive; how many. Raises OSError."""
    count = 0
    root = directory()
    with tarfile.open(archive, "w:gz") as tar:
        for path in files():
            try:
                read(path)
            except (Damaged, OSError):
                continue
            tar.add(path, arcname=str(path.relative_to(root)))
            count += 1
    return count


def import_from(archive: Path) -> tuple[int, list[str]]:
    """Take over the files of an archive: how many, and the names of those that were refused, with the reasons.

    Raises OSError and tarfile.TarError.
    """
    taken, refused = 0, []
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            parts = member.name.split("/")
            stream = tar.extractfile(member) if member.isfile() else None
            if stream is None:
                continue
            data = stream.read(MAX_SIZE + 1)
            try:
                if len(parts) != 3 or not all(map(_is_name, parts)) or not parts[2].endswith(SUFFIX):
                    raise Damaged("it has no place in a cache")
                item = unpack(data)
                if parts[2] != item.about["digest"] + SUFFIX:
                    raise Damaged("it has another name")
            except Damaged as error:
                refused.append(f"{member.name!r}: {error}")
                continue
            write(directory() / parts[0] / parts[1], parts[2], data)
            taken += 1
    return taken, refused


def _is_name(part: str) -> bool:
    return part.removesuffix(SUFFIX).isalnum()
